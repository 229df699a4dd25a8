"""Labels spread over processes: the same functions for a ``DTensor`` that is sharded along its labels."""

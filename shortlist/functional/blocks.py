"""How much of a batch is worked on at a time, so that operators with many buffers stay in cache."""

BLOCK = 1 << 16
"""Entries per thread."""

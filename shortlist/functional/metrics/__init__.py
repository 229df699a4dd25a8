"""Metrics as functions of one batch; :mod:`shortlist.metrics` accumulates them over batches."""

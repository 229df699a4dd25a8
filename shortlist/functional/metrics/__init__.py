"""Metrics as functions of scores and labels."""

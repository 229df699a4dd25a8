"""Answers on a taxonomy: conformal rules that name groups of labels, and sets of labels as sets of nodes."""

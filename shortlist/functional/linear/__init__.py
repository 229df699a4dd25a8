"""Logits of a linear layer that are computed a block of labels at a time and never held."""

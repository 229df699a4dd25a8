"""Logits in, probabilities out: the projections, their solvers, and the Fenchel-Young losses that train them."""

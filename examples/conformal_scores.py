"""Conformal sets on scores from anywhere: any model, any framework; here two arrays of numbers."""

import numpy as np
import torch

from shortlist.sets import AverageError, ClassConditional, PointwiseError

rng = np.random.default_rng(0)


def scores_of_some_model(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Class probabilities of 20 classes, the last of them hard, and the true classes."""
    truth = rng.integers(20, size=rows)
    logits = rng.normal(size=(rows, 20)) + 3 * np.eye(20)[truth] * np.where(truth < 15, 1.0, 0.4)[:, None]
    odds = np.exp(logits)
    return torch.from_numpy(odds / odds.sum(1, keepdims=True)), torch.from_numpy(truth)


held_out, test = scores_of_some_model(4000), scores_of_some_model(4000)
hard = test[1] >= 15
for rule in (AverageError(0.1), PointwiseError(0.1), ClassConditional(0.1)):
    sets = rule.fit(*held_out, from_logits=False).predict(test[0])
    hits = sets.contains(test[1]).double()
    missed, missed_hard = 1 - hits.mean(), 1 - hits[hard].mean()
    size = sets.sizes.double().mean()
    print(
        f"{type(rule).__name__}: misses {missed:.1%}, on hard classes {missed_hard:.1%}; {size:.1f} labels on average"
    )

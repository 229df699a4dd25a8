"""Classes whose true labels are scored alike, found by k-means on quantiles."""

from __future__ import annotations

import torch
from torch import Tensor

_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
_ROUNDS = 100


def group_by_quantiles(scores: Tensor, classes: Tensor, num_labels: int, clusters: int, fewest: int) -> Tensor:
    """The group of each class by its distribution of scores; -1 for classes with fewer than ``fewest`` examples.

    Classes weigh by the square root of their number of examples, since that is how well their quantiles are known.
    The start is spread along the medians, so the result depends on nothing but the data.
    """
    counts = torch.bincount(classes, minlength=num_labels)
    groups = torch.full((num_labels,), -1)
    known = (counts >= fewest).nonzero()[:, 0]
    if len(known) == 0:
        return groups
    order = torch.argsort(classes, stable=True)
    by_class = torch.split(scores[order].double(), counts.tolist())
    levels = torch.tensor(_LEVELS, dtype=torch.float64)
    points = torch.stack([torch.quantile(by_class[label], levels) for label in known.tolist()])
    groups[known] = _k_means(points, counts[known].double().sqrt(), min(clusters, len(known)))
    return groups


def _k_means(points: Tensor, weights: Tensor, clusters: int) -> Tensor:
    by_median = points[:, len(_LEVELS) // 2].argsort()
    start = torch.linspace(0, len(points) - 1, clusters).round().long()
    centres = points[by_median[start]]
    member = torch.zeros(len(points), dtype=torch.int64)
    for turn in range(_ROUNDS):
        nearest = torch.cdist(points, centres).argmin(-1)
        if turn and (nearest == member).all():
            break
        member = nearest
        total = torch.zeros(clusters, dtype=torch.float64).index_add(0, member, weights)
        sums = torch.zeros_like(centres).index_add(0, member, points * weights[:, None])
        # A centre that lost all its points stays where it was.
        centres = torch.where(total[:, None] > 0, sums / total[:, None].clamp(min=1e-300), centres)
    return member

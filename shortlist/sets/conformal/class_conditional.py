"""A conformal threshold for each class, or for each cluster of classes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import LabelThresholds
from shortlist.sets.conformal.thresholds import conformal_rank, conformal_threshold, members
from shortlist.sets.scores import Link
from shortlist.tensors import as_written

# Quantiles of the true-label scores by which classes are clustered.
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
_MAX_ITERATIONS = 100


class ClassConditional(LabelThresholds):
    r"""A conformal threshold for each class, or for each cluster of classes with similar scores.

    A label is in the set if its score reaches the threshold of its own class, so the miscoverage of every class, rare
    or common, is at most ``alpha``. Classes with fewer than ``min_count`` examples share one threshold, fitted on their
    pooled examples; the guarantee then holds for them as a group. If even the pooled examples are too few, the
    threshold is fitted on all examples and guarantees nothing for the rare classes themselves.
    ``evidence["pooled_classes"]`` counts the classes without a guarantee of their own.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        clusters: number of groups of classes, found by k-means on quantiles of the scores of half the examples;
            thresholds are then fitted, per group, on the other half. None: one group per class.
        min_count: smallest number of examples for which a class gets its own threshold; by default as many as a finite
            threshold requires.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> scores, classes = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 0, 1, 1])
        >>> rule = ClassConditional(0.5).fit(scores, classes, from_logits=False)
        >>> rule.predict(torch.tensor([[0.65, 0.45]])).sizes  # class 1 is harder: its threshold is lower
        tensor([1])

    References:
        Ding, Angelopoulos, Bates, Jordan, Tibshirani, "Class-conditional conformal prediction with many classes", 2023.
    """

    groups: Tensor

    def __init__(
        self,
        alpha: float,
        *,
        clusters: int | None = None,
        min_count: int | None = None,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        for name, value in (("clusters", clusters), ("min_count", min_count)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"`{name}` must be None or an integer, at least 1; got {value!r}.")
        self.clusters = clusters
        self.min_count = min_count
        super().__init__(alpha, score, link=link, min_size=min_size)

    def _clear(self) -> None:
        super()._clear()
        # The group of each class; -1 for rare classes, which share a threshold.
        self.register_buffer("groups", torch.zeros(0, dtype=torch.int64))

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        classes = observed[1]
        num_labels = self.num_labels or 0
        smallest = self.min_count or _smallest_sample(self.alpha)
        if self.clusters is None:
            groups = torch.where(
                torch.bincount(classes, minlength=num_labels) >= smallest, torch.arange(num_labels), -1
            )
        else:
            half = _every_other(classes)
            groups = _cluster_classes(observed[0][half], classes[half], num_labels, self.clusters, smallest)
            observed = tuple(column[~half] for column in observed)
        self._settle_groups(groups, *observed)
        worst, shared = self._worst_error(*observed), int((groups < 0).sum())
        return {"constraint": "error of each class", "wanted": self.alpha, "achieved": worst, "pooled_classes": shared}

    def _settle_groups(self, groups: Tensor, true: Tensor, classes: Tensor, *rest: Tensor) -> None:
        """Fit the threshold of each group of classes."""
        self.groups = groups
        self.thresholds, self.tie_shares = (torch.zeros(len(groups), dtype=torch.float64) for _ in range(2))
        rows = members(groups[classes])
        for group, labels in members(groups).items():
            own = rows.get(group, classes[:0])
            if group < 0 and conformal_rank(len(own), self.alpha) > len(own):
                own = torch.arange(len(true))
            self._settle_group(labels, true[own], *(column[own] for column in rest))

    def _settle_group(self, labels: Tensor, true: Tensor, *rest: Tensor) -> None:
        """Set what belongs to some labels, given the conformity of their calibration rows."""
        self.thresholds[labels], self.tie_shares[labels] = conformal_threshold(true, self.alpha)


def _smallest_sample(alpha: float) -> int:
    """The smallest N whose conformal rank is at most N: (N + 1) alpha must be at least 1."""
    return max(1, math.ceil(1 / as_written(alpha)) - 1)


def _every_other(classes: Tensor) -> Tensor:
    """Mask of every other example of each class."""
    order = classes.argsort(stable=True)
    counts = torch.bincount(classes)
    first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    mask = torch.zeros(len(classes), dtype=torch.bool)
    mask[order] = (torch.arange(len(classes)) - first) % 2 == 0
    return mask


def _cluster_classes(scores: Tensor, classes: Tensor, num_labels: int, clusters: int, smallest: int) -> Tensor:
    """The group of each class, by its score distribution; -1 for classes with fewer than ``smallest`` examples.

    Classes are weighted by the square root of their number of examples, the precision of their quantiles. The initial
    centers are spread along the medians, so the result depends only on the data.
    """
    counts = torch.bincount(classes, minlength=num_labels)
    groups = torch.full((num_labels,), -1)
    known = (counts >= smallest).nonzero()[:, 0]
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
    centers = points[by_median[start]]
    member = torch.zeros(len(points), dtype=torch.int64)
    for iteration in range(_MAX_ITERATIONS):
        nearest = torch.cdist(points, centers).argmin(-1)
        if iteration and (nearest == member).all():
            break
        member = nearest
        total = torch.zeros(clusters, dtype=torch.float64).index_add(0, member, weights)
        sums = torch.zeros_like(centers).index_add(0, member, points * weights[:, None])
        # A center that loses all its points stays in place.
        centers = torch.where(total[:, None] > 0, sums / total[:, None].clamp(min=1e-300), centers)
    return member

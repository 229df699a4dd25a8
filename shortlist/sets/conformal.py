"""Split conformal prediction: one threshold for all classes, or one per class or cluster; ties are exact."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.sets.rule import Draw, SetRule, check_alpha, read_classes
from shortlist.sets.scores import Block, Link, Selection
from shortlist.tensors import as_written

# Quantiles of the true-label scores by which classes are clustered.
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
_MAX_ITERATIONS = 100


class ConformalRule(SetRule):
    """One threshold on conformity scores, at the rank that bounds the miscoverage by ``alpha``."""

    constraint: ClassVar[str]
    threshold: Tensor
    tie_share: Tensor

    def __init__(self, alpha: float, *, link: Link, min_size: int) -> None:
        self.alpha = check_alpha(alpha)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))
        self.register_buffer("tie_share", torch.tensor(1.0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shares("tie_share", self.tie_share)

    def _read_labels(self, labels: Tensor, rows: int) -> Tensor:
        return read_classes(labels, rows, self.num_labels)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        (true,) = observed
        threshold, share = conformal_threshold(true, self.alpha)
        self.threshold.fill_(threshold)
        self.tie_share.fill_(share)
        return {"constraint": self.constraint, "wanted": self.alpha, "achieved": missing_share(true, threshold)}


class AverageError(ConformalRule):
    r"""Split conformal prediction: all labels that score at least as high as most true labels.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad
              t = \text{the } \lceil (N+1)(1-\alpha) \rceil \text{-th largest } s_{y_i}(x_i)

    For exchangeable data, the set contains the true label with probability between :math:`1 - \alpha` and :math:`1 -
    \alpha + 1 / (N + 1)`, for any model and any pattern of ties: ties at the threshold are broken at random, with the
    exact probability. If the scores are the true probabilities, no rule with this guarantee has smaller sets on
    average.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = AverageError(0.2).fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.5, 0.7]])).sizes
        tensor([1])

    References:
        Sadinle, Lei, Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019; Vovk,
        Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """

    constraint: ClassVar[str] = "average error"
    threshold_name: ClassVar[str | None] = "threshold"

    def __init__(self, alpha: float, *, link: Link = "softmax", min_size: int = 0) -> None:
        super().__init__(alpha, link=link, min_size=min_size)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return (self._true_scores(block, labels),)

    def _kept(self, found: Selection, draw: Draw) -> Tensor:
        return kept_with_ties(found.values, self.threshold.to(found.values.dtype), self.tie_share, draw)


class ClassConditional(SetRule):
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
        link, min_size: as in `SetRule`.

    Example:
        >>> scores, classes = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 0, 1, 1])
        >>> rule = ClassConditional(0.5).fit(scores, classes, from_logits=False)
        >>> rule.predict(torch.tensor([[0.65, 0.45]])).sizes  # class 1 is harder: its threshold is lower
        tensor([1])

    References:
        Ding, Angelopoulos, Bates, Jordan, Tibshirani, "Class-conditional conformal prediction with many classes", 2023.
    """

    threshold_name: ClassVar[str | None] = "thresholds"
    thresholds: Tensor
    tie_shares: Tensor
    groups: Tensor

    def __init__(
        self,
        alpha: float,
        *,
        clusters: int | None = None,
        min_count: int | None = None,
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.alpha = check_alpha(alpha)
        for name, value in (("clusters", clusters), ("min_count", min_count)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"`{name}` must be None or an integer, at least 1; got {value!r}.")
        self.clusters = clusters
        self.min_count = min_count
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("tie_shares", torch.zeros(0, dtype=torch.float64))
        # The group of each class; -1 for rare classes, which share a threshold.
        self.register_buffer("groups", torch.zeros(0, dtype=torch.int64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shares("tie_shares", self.tie_shares)

    def _read_labels(self, labels: Tensor, rows: int) -> Tensor:
        return read_classes(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return self._true_scores(block, labels), labels

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, classes = observed
        num_labels = self.num_labels or 0
        smallest = self.min_count or _smallest_sample(self.alpha)
        if self.clusters is None:
            groups = torch.where(
                torch.bincount(classes, minlength=num_labels) >= smallest, torch.arange(num_labels), -1
            )
        else:
            half = _every_other(classes)
            groups = _cluster_classes(true[half], classes[half], num_labels, self.clusters, smallest)
            true, classes = true[~half], classes[~half]
        self.groups = groups
        thresholds = torch.zeros(num_labels, dtype=torch.float64)
        shares = torch.ones(num_labels, dtype=torch.float64)
        member = groups[classes]
        for group in groups.unique().tolist():
            own = true[member == group]
            pooled = group < 0 and conformal_rank(len(own), self.alpha) > len(own)
            threshold, share = conformal_threshold(true if pooled else own, self.alpha)
            thresholds[groups == group], shares[groups == group] = threshold, share
        self.thresholds, self.tie_shares = thresholds, shares
        missed = ((true < thresholds[classes]) | (true == -torch.inf)).double()
        rates = torch.zeros(num_labels, dtype=torch.float64).index_add(0, classes, missed)
        counts = torch.bincount(classes, minlength=num_labels)
        worst = float((rates / counts.clamp(min=1)).max())
        pooled = int((groups < 0).sum())
        return {"constraint": "error of each class", "wanted": self.alpha, "achieved": worst, "pooled_classes": pooled}

    def _kept(self, found: Selection, draw: Draw) -> Tensor:
        thresholds = self.thresholds.to(found.values.dtype)
        return kept_with_ties(found.values, thresholds[found.labels], self.tie_shares[found.labels], draw)


def conformal_threshold(scores: Tensor, alpha: float) -> tuple[float, float]:
    r"""Threshold on conformity scores (higher conforms better), and the probability of including a score equal to it.

    The threshold is the r-th largest of the N scores of true labels, :math:`r = \lceil (N + 1)(1 - \alpha) \rceil`; a
    of them are larger and b are equal. If ties are included with probability (r - a) / (b + 1), the set contains the
    true label of a new example with probability exactly r / (N + 1): this is the probability that a new score, ranked
    at random among its equals, has rank at most r.

    Returns:
        ``(threshold, share)``; ``(-inf, 1.0)``, which selects all labels, if N is too small for the level.
    """
    rank = conformal_rank(len(scores), alpha)
    if rank > len(scores):
        return -math.inf, 1.0
    threshold = float(scores.kthvalue(len(scores) - rank + 1).values)
    larger = int((scores > threshold).sum())
    equal = int((scores == threshold).sum())
    return threshold, (rank - larger) / (equal + 1)


def missing_share(scores: Tensor, threshold: float) -> float:
    """Share of true labels that are missing: below the threshold, or absent."""
    return float(((scores < threshold) | (scores == -math.inf)).double().mean())


def conformal_rank(count: int, alpha: float) -> int:
    """``ceil((N + 1)(1 - alpha))``, computed with the exact decimal value of alpha."""
    return math.ceil((count + 1) * (1 - as_written(alpha)))


def kept_with_ties(values: Tensor, threshold: Tensor, share: Tensor, draw: Draw) -> Tensor:
    """Mask of the values to keep among those that reach their threshold: all above it, and a random part of the ties.

    Args:
        values: ``(count,)``.
        threshold, share: one number, or one per value; a tie is kept with probability ``share``.
        draw: random numbers for the ties.
    """
    tied = (values == threshold).nonzero()[:, 0]
    kept = torch.ones(len(values), dtype=torch.bool)
    if len(tied):
        kept[tied] = draw.uniform((len(tied),)) < (share[tied] if share.ndim else share)
    return kept


def check_shares(name: str, shares: Tensor) -> None:
    """Raise unless all are probabilities."""
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"`{name}` must lie in [0, 1]")


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

"""Sets that miss each class at the same rate, not only all classes together."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from shortlist.sets.clustering import group_by_quantiles
from shortlist.sets.conformal import conformal_rank, conformal_threshold, kept_with_ties, reaching
from shortlist.sets.entries import Entries
from shortlist.sets.row_labels import read_classes
from shortlist.sets.rule import Draw, Link, SetRule, check_alpha


class ClassConditional(SetRule):
    r"""A conformal threshold for each class, or for each cluster of classes with similar scores.

    A label is inside when its score reaches the threshold of its own class, so that every class is missed at
    most at the rate ``alpha``, and not rare classes more often than common ones. Classes with fewer than ``min_count``
    examples share one threshold, fitted on their examples together; their guarantee is for them as a group. When
    these are too few as well, it is fitted on all examples, and says nothing about the rare classes themselves.
    ``evidence["pooled_classes"]`` counts the classes without a guarantee of their own.

    Args:
        alpha: how often the true label may be missing, in (0, 1).
        clusters: number of groups of classes, found by k-means on quantiles of the scores of half of the examples;
            thresholds are then fitted, per group, on the other half. None: one group per class.
        min_count: fewest examples for a class to stand on its own; by default as many as a finite threshold needs.
        link, min_size: as in `SetRule`.

    Example:
        >>> scores, classes = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 0, 1, 1])
        >>> rule = ClassConditional(0.5).fit(scores, classes, from_logits=False)
        >>> rule.predict(torch.tensor([[0.65, 0.45]])).sizes  # class 1 is harder: its threshold is lower
        tensor([1])

    References:
        Ding, Angelopoulos, Bates, Jordan, Tibshirani, "Class-conditional conformal prediction with many classes", 2023.
    """

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
                raise ValueError(f"`{name}` must be None or a whole number, at least 1; got {value!r}.")
        self.clusters = clusters
        self.min_count = min_count
        super().__init__(link=link, min_size=min_size)

    def options(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "clusters": self.clusters, "min_count": self.min_count}

    def _clear(self) -> None:
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("tie_shares", torch.zeros(0, dtype=torch.float64))
        # The group of each class; -1 for those that share the threshold of the rare ones.
        self.register_buffer("groups", torch.zeros(0, dtype=torch.int64))
        self._true: list[Tensor] = []
        self._classes: list[Tensor] = []

    def _read_labels(self, labels: Tensor, rows: int) -> Tensor:
        return read_classes(labels, rows, self.num_labels)

    def _observe(self, values: Tensor, labels: Any) -> None:
        self._true.append(values.gather(1, labels[:, None])[:, 0])
        self._classes.append(labels)

    def _settle(self) -> dict[str, Any]:
        true, classes = torch.cat(self._true), torch.cat(self._classes)
        num_labels = self.num_labels or 0
        fewest = self.min_count or self._fewest()
        if self.clusters is None:
            groups = torch.where(torch.bincount(classes, minlength=num_labels) >= fewest, torch.arange(num_labels), -1)
        else:
            half = _every_other(classes)
            groups = group_by_quantiles(true[half], classes[half], num_labels, self.clusters, fewest)
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

    def _fewest(self) -> int:
        """The least N with a rank within N: (N + 1) alpha must reach 1."""
        return max(1, math.ceil(1 / Fraction(repr(self.alpha))) - 1)

    def _forget(self) -> None:
        self._true, self._classes = [], []

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        return reaching(values, self.thresholds.to(values.dtype))

    def _floor(self) -> Tensor:
        return self.thresholds

    def _kept(self, found: Entries, draw: Draw) -> Tensor:
        thresholds = self.thresholds.to(found.values.dtype)
        return kept_with_ties(found.values, thresholds[found.labels], self.tie_shares[found.labels], draw)


def _every_other(classes: Tensor) -> Tensor:
    """Mask of every other example of each class, whatever the order of the rows."""
    order = classes.argsort(stable=True)
    counts = torch.bincount(classes)
    first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    mask = torch.zeros(len(classes), dtype=torch.bool)
    mask[order] = (torch.arange(len(classes)) - first) % 2 == 0
    return mask

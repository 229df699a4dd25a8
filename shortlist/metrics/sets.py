"""Coverage and size of predicted sets, given as bool masks or as `LabelSets`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from shortlist.functional.metrics.accuracy import AVERAGES, Average, macro_mean
from shortlist.functional.metrics.scored_labels import check_choice, check_mask
from shortlist.labels import LabelsLike, Numbers, list_labels, read_numbers, read_target
from shortlist.metrics.base import SumMetric, state_size
from shortlist.tensors import counts_of, may_look, whole_k


@runtime_checkable
class LabelSets(Protocol):
    """One set of labels per row."""

    @property
    def sizes(self) -> Tensor:
        """``(B,)`` int64."""
        ...

    def contains(self, labels: Tensor, /) -> Tensor:
        """``(B,)`` bool: whether the class of each row ``(B,)`` is in its set."""
        ...

    def count_hits(self, labels: Tensor, /) -> Tensor:
        """``(B,)`` int64: how many labels of each row, index lists ``(B, m)``, are in its set."""
        ...


class _GroupedCoverage(SumMetric):
    """Share of a row's true labels that are in its set, summed over groups of rows."""

    covered: Tensor
    total: Tensor
    rows_without_positives: Tensor

    def __init__(self, family: str, option: object, groups: int, **torchmetrics_options: Any) -> None:
        super().__init__(family, option, **torchmetrics_options)
        self.add_sum("covered", groups)
        self.add_sum("total", groups, dtype=torch.int64)
        self.add_count("rows_without_positives")

    def update(self, sets: Numbers | LabelSets, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: sets as bool ``(B, n)`` or `LabelSets`, labels in any form, optionally a mask of rows."""
        sets = read_sets(sets)
        given, target = target, read_target(target, getattr(sets, "num_labels", -1))
        target = target.to(sets.device) if isinstance(sets, Tensor) and target is not given else target
        rows, share, missing = covered_share(sets, target, mask)
        group = self._group_of(rows, sets, target)
        self.covered = self.covered.index_add(0, group, share)
        self.total = self.total + counts_of(group, len(self.total))
        self.rows_without_positives = self.rows_without_positives + missing

    def _group_of(self, rows: Tensor, sets: Tensor | LabelSets, target: Tensor) -> Tensor:
        raise NotImplementedError


class SetCoverage(_GroupedCoverage):
    r"""Share of a row's true labels that are in its set, averaged over rows.

    .. math:: \frac1B \sum_i \frac{|Y_i \cap S_i|}{|Y_i|}

    For one class per row this is coverage. Rows without a (known) positive are left out.

    Args:
        average: ``"micro"`` over rows; ``"macro"`` (one class per row only) over the classes that occur: the mean of
            class-conditional coverage.
        num_labels: n, required for ``"macro"``.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import SetCoverage
        >>> metric = SetCoverage()
        >>> metric(torch.tensor([[True, True, False], [False, True, False]]), torch.tensor([0, 2]))
        tensor(0.5000, dtype=torch.float64)
    """

    def __init__(
        self, *, average: Average = "micro", num_labels: int | None = None, **torchmetrics_options: Any
    ) -> None:
        check_choice("average", average, AVERAGES)
        if (average == "macro") == (num_labels is None):
            raise ValueError(f'`num_labels` must be given if and only if `average="macro"`; got {num_labels}.')
        super().__init__("coverage", num_labels, state_size(num_labels), **torchmetrics_options)
        self.average, self.num_labels = average, num_labels

    def _group_of(self, rows: Tensor, sets: Tensor | LabelSets, target: Tensor) -> Tensor:
        if self.num_labels is None:
            return torch.zeros_like(rows)
        if target.dtype != torch.int64 or target.ndim != 1:
            raise ValueError(f'`target` must be class indices for `average="macro"`; got shape {tuple(target.shape)}.')
        classes = target[rows]
        if len(classes) and int(classes.max()) >= self.num_labels:
            raise ValueError(f"`target` must lie in [0, {self.num_labels}); got {int(classes.max())}.")
        return classes

    def compute(self) -> Tensor:
        """One number; NaN if no row had a positive."""
        return macro_mean(self.covered, self.total)

    def by_class(self) -> Tensor:
        """Coverage of each class, ``(n,)`` for macro; NaN for classes that have not occurred."""
        return self.covered / self.total


class SetSize(SumMetric):
    """Mean size of the sets and a histogram of the sizes.

    Args:
        num_labels: n.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import SetSize
        >>> metric = SetSize(3)
        >>> metric(torch.tensor([[True, True, False], [False, True, False]]))
        tensor(1.5000, dtype=torch.float64)
        >>> metric.histogram
        tensor([0, 1, 1, 0])
    """

    higher_is_better = False
    histogram: Tensor

    def __init__(self, num_labels: int, **torchmetrics_options: Any) -> None:
        whole_k(num_labels, 1 << 62, name="num_labels")
        super().__init__("size", num_labels, **torchmetrics_options)
        self.num_labels = num_labels
        self.add_sum("histogram", num_labels + 1, dtype=torch.int64)

    def update(self, sets: Numbers | LabelSets, mask: Numbers | None = None) -> None:
        """Add a batch: sets as bool ``(B, n)`` or `LabelSets`, and optionally a mask of the rows that count."""
        sizes = set_sizes(read_sets(sets))
        sizes = sizes[check_mask(mask, len(sizes), sizes.device)]
        if len(sizes) and int(sizes.max()) > self.num_labels:
            raise ValueError(f"`sets` must have at most {self.num_labels} labels; got one of {int(sizes.max())}.")
        self.histogram = self.histogram + counts_of(sizes, self.num_labels + 1)

    def compute(self) -> Tensor:
        """The mean; NaN without rows."""
        sizes = torch.arange(len(self.histogram), dtype=torch.float64, device=self.histogram.device)
        return (self.histogram * sizes).sum() / self.histogram.sum()


class SizeStratifiedCoverage(_GroupedCoverage):
    """Smallest coverage among groups of sets of similar size; reveals sets that are too small for hard rows.

    Args:
        edges: ascending sizes; a group contains the sizes from one edge up to but not including the next, and the last
            group is open-ended.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import SizeStratifiedCoverage
        >>> metric = SizeStratifiedCoverage()
        >>> metric(torch.tensor([[True, True, False], [False, True, False]]), torch.tensor([0, 1]))
        tensor(1., dtype=torch.float64)
        >>> metric.by_size()
        tensor([nan, 1., 1., nan, nan, nan], dtype=torch.float64)

    References:
        Angelopoulos, Bates, Malik, Jordan, "Uncertainty Sets for Image Classifiers using Conformal Prediction", 2021.
    """

    edges: Tensor

    def __init__(self, edges: Sequence[int] = (0, 1, 2, 4, 11, 101), **torchmetrics_options: Any) -> None:
        limits = [whole_k(edge, 1 << 62, lowest=0, name="edges") for edge in edges]
        if not limits or limits[0] != 0 or sorted(set(limits)) != limits:
            raise ValueError(f"`edges` must ascend from 0; got {tuple(edges)}.")
        super().__init__("stratified coverage", limits, len(limits), **torchmetrics_options)
        self.register_buffer("edges", torch.tensor(limits), persistent=False)

    def _group_of(self, rows: Tensor, sets: Tensor | LabelSets, target: Tensor) -> Tensor:
        return torch.searchsorted(self.edges, set_sizes(sets)[rows], right=True) - 1

    def compute(self) -> Tensor:
        """One number; NaN if no row had a positive."""
        values = self.by_size()[self.total > 0]
        return values.min() if len(values) else self.covered.sum() / 0

    def by_size(self) -> Tensor:
        """Coverage of each group; NaN for those without rows."""
        return self.covered / self.total


def read_sets(sets: Numbers | LabelSets) -> Tensor | LabelSets:
    """Sets as a bool tensor ``(B, n)``, or as they are if they have ``sizes``, ``contains`` and ``count_hits``."""
    if not isinstance(sets, Tensor) and isinstance(sets, LabelSets):
        return sets
    mask = read_numbers(sets, name="sets")
    if mask.dtype != torch.bool:
        raise TypeError(f"`sets` must be bool, or have `sizes`, `contains` and `count_hits`; got {mask.dtype}.")
    if mask.ndim != 2:
        raise ValueError(f"`sets` must have the shape (rows, labels); got {tuple(mask.shape)}.")
    return mask


def set_sizes(sets: Tensor | LabelSets) -> Tensor:
    """The number of labels in each set, ``(B,)`` int64."""
    return sets.sum(-1) if isinstance(sets, Tensor) else sets.sizes


def covered_share(sets: Tensor | LabelSets, target: Tensor, mask: Numbers | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that count and have positives, the covered share of these, and the number of rows without positives."""
    num_rows = len(set_sizes(sets))
    if len(target) != num_rows:
        raise ValueError(f"`target` must have the {num_rows} rows of `sets`; got {tuple(target.shape)}.")
    hits, positives = _hits_and_positives(sets, target)
    counted = check_mask(mask, num_rows, positives.device)
    rows = (counted & (positives > 0)).nonzero().squeeze(-1)
    return rows, hits[rows].double() / positives[rows], (counted & (positives == 0)).sum()


def _hits_and_positives(sets: Tensor | LabelSets, target: Tensor) -> tuple[Tensor, Tensor]:
    """The number of covered positives and of all positives in each row."""
    if not isinstance(sets, Tensor) and target.dtype == torch.int64:
        if target.ndim == 1:
            return sets.contains(target).long(), torch.ones_like(target)
        return sets.count_hits(target), (target >= 0).sum(-1)
    num_labels = sets.shape[-1] if isinstance(sets, Tensor) else target.shape[-1]
    entries = list_labels(target, num_labels, check=may_look(target)).positives()
    (rows, labels), positives = entries.pairs(), entries.counts
    if isinstance(sets, Tensor):
        inside = sets[rows, labels].long()
        return torch.zeros_like(positives).index_add(0, rows, inside), positives
    # Sets take index lists, which cannot express unknown labels; those count neither as covered nor as missed.
    return sets.count_hits(entries.index_lists()), positives

"""Hierarchical precision, recall and F1 over many batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shortlist.functional.metrics.f1 import f1_of
from shortlist.functional.metrics.hierarchy import HierarchicalCounts, StoredSets, hierarchical_counts
from shortlist.labels import LabelsLike, Numbers
from shortlist.metrics.base import SumMetric
from shortlist.taxonomy import Taxonomy


class _Hierarchical(SumMetric):
    hits: Tensor
    predicted: Tensor
    positives: Tensor

    def __init__(self, taxonomy: Taxonomy, **torchmetrics_options: Any) -> None:
        if not isinstance(taxonomy, Taxonomy):
            raise TypeError(f"`taxonomy` must be a Taxonomy; got {type(taxonomy).__name__}.")
        super().__init__("hierarchy", taxonomy.document(), **torchmetrics_options)
        self.taxonomy = taxonomy
        for name in HierarchicalCounts._fields:
            self.add_sum(name)

    def update(self, sets: Numbers | StoredSets, target: LabelsLike, mask: Numbers | None = None) -> None:
        """Add a batch: sets as bool ``(B, n)`` or ``(B, nodes)`` or `PredictionSets`, labels, and a mask of rows."""
        self.accumulate(hierarchical_counts(sets, target, self.taxonomy, mask=mask))


class HierarchicalPrecision(_Hierarchical):
    """:func:`~shortlist.functional.hierarchical_precision` over many batches.

    Args:
        taxonomy: of the labels.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import HierarchicalPrecision
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> metric = HierarchicalPrecision(trees)
        >>> metric(torch.tensor([[False, True, False], [False, False, True]]), torch.tensor([0, 0]))
        tensor(0.2500, dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number; NaN if nothing but the root was predicted."""
        return self.hits / self.predicted


class HierarchicalRecall(_Hierarchical):
    """:func:`~shortlist.functional.hierarchical_recall` over many batches.

    Args:
        taxonomy: of the labels.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import HierarchicalRecall
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> metric = HierarchicalRecall(trees)
        >>> metric(torch.tensor([[False, True, False], [False, False, True]]), torch.tensor([0, 0]))
        tensor(0.2500, dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number; NaN without positives."""
        return self.hits / self.positives


class HierarchicalF1(_Hierarchical):
    """Harmonic mean of hierarchical precision and recall over many batches.

    Args:
        taxonomy: of the labels.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import HierarchicalF1
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> HierarchicalF1(trees)(torch.tensor([[True, True, False]]), torch.tensor([0]))
        tensor(0.8000, dtype=torch.float64)
    """

    def compute(self) -> Tensor:
        """One number; NaN if there were no positives and no predictions."""
        return f1_of(self.hits, self.predicted, self.positives)

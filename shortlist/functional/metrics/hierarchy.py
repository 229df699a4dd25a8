"""Hierarchical precision and recall: sets with their ancestors, so that a near miss counts in part."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from shortlist.functional.metrics.scored_labels import check_mask
from shortlist.labels import LabelsLike, Numbers, list_labels, read_numbers, read_target
from shortlist.taxonomy import Taxonomy


@runtime_checkable
class StoredSets(Protocol):
    """Sets as entries, such as `shortlist.sets.PredictionSets`."""

    num_labels: int

    @property
    def sizes(self) -> Tensor:
        """``(B,)`` int64."""
        ...

    @property
    def rows(self) -> Tensor:
        """``(entries,)`` int64."""
        ...

    @property
    def labels(self) -> Tensor:
        """``(entries,)`` int64."""
        ...


class HierarchicalCounts(NamedTuple):
    """Counts of nodes over all rows, float64, which add up over batches; the root, which is right always, is left out.

    Attributes:
        hits: predicted and true.
        predicted: in the sets, or above a node in them.
        positives: true labels, and the nodes above them.
    """

    hits: Tensor
    predicted: Tensor
    positives: Tensor


def hierarchical_counts(
    sets: Numbers | StoredSets, target: LabelsLike, taxonomy: Taxonomy, *, mask: Numbers | None = None
) -> HierarchicalCounts:
    """Count the nodes of the sets and of the true labels, each with all their ancestors but the root.

    Args:
        sets: bool ``(B, n)``, or ``(B, nodes)`` if sets hold inner nodes; or `PredictionSets` of either.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are taken out of the sets.
        taxonomy: of the labels.
        mask: ``(B,)`` bool, False for rows that do not count.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> hierarchical_counts(torch.tensor([[False, True, False]]), torch.tensor([0]), trees).hits  # the genus
        tensor(1., dtype=torch.float64)
    """
    if not isinstance(taxonomy, Taxonomy):
        raise TypeError(f"`taxonomy` must be a Taxonomy; got {type(taxonomy).__name__}.")
    num_rows, rows, nodes = _entries(sets, taxonomy)
    labels = list_labels(*_target(target, num_rows, taxonomy.num_labels))
    counted = check_mask(mask, num_rows, rows.device)
    positives, unknown = labels.positives(), labels.only(labels.values < 0)
    left_out = unknown.pairs()[0] * len(taxonomy) + unknown.pairs()[1]
    stays = counted[rows] & ~torch.isin(rows * len(taxonomy) + nodes, left_out)
    predicted = _with_ancestors(rows[stays], nodes[stays], taxonomy)
    true_rows, true_labels = positives.pairs()
    true = _with_ancestors(true_rows[counted[true_rows]], true_labels[counted[true_rows]], taxonomy)
    counts = (int(torch.isin(predicted, true).sum()), len(predicted), len(true))
    return HierarchicalCounts(*(torch.tensor(count, dtype=torch.float64) for count in counts))


def hierarchical_precision(
    sets: Numbers | StoredSets, target: LabelsLike, taxonomy: Taxonomy, *, mask: Numbers | None = None
) -> Tensor:
    r"""Share of the predicted nodes that are true, each set and each row's true labels with all their ancestors.

    .. math:: \text{hP} = \frac{\sum_i |\hat A_i \cap A_i|}{\sum_i |\hat A_i|}, \quad
              \text{hR} = \frac{\sum_i |\hat A_i \cap A_i|}{\sum_i |A_i|}

    Args:
        sets, target, taxonomy, mask: as for :func:`hierarchical_counts`.

    Returns:
        Float64, one number over all rows; NaN if nothing but the root was predicted.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> sets = torch.tensor([[False, True, False], [False, False, True]])  # ilex for robur, ash for robur
        >>> hierarchical_precision(sets, torch.tensor([0, 0]), trees)
        tensor(0.2500, dtype=torch.float64)

    References:
        Kiritchenko, Matwin, Nock, Famili, "Learning and evaluation in the presence of class hierarchies", 2006;
        Kosmopoulos, Partalas, Gaussier, Paliouras, Androutsopoulos, "Evaluation measures for hierarchical
        classification", 2015.
    """
    counts = hierarchical_counts(sets, target, taxonomy, mask=mask)
    return counts.hits / counts.predicted


def hierarchical_recall(
    sets: Numbers | StoredSets, target: LabelsLike, taxonomy: Taxonomy, *, mask: Numbers | None = None
) -> Tensor:
    """Share of the true nodes that are predicted: hR of :func:`hierarchical_precision`.

    Args:
        sets, target, taxonomy, mask: as for :func:`hierarchical_counts`.

    Returns:
        Float64, one number over all rows; NaN without positives.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> quercus = torch.tensor([[False, False, False, True, False, False]])
        >>> hierarchical_recall(quercus, torch.tensor([0]), trees)  # the genus, but not the species
        tensor(0.5000, dtype=torch.float64)
    """
    counts = hierarchical_counts(sets, target, taxonomy, mask=mask)
    return counts.hits / counts.positives


def _entries(sets: Numbers | StoredSets, taxonomy: Taxonomy) -> tuple[int, Tensor, Tensor]:
    """The number of rows, and the row and the node of each entry."""
    if isinstance(sets, StoredSets) and not isinstance(sets, Tensor):
        num_rows, width, rows, nodes = len(sets.sizes), sets.num_labels, sets.rows, sets.labels
    else:
        mask = read_numbers(sets, name="sets").cpu()
        if mask.ndim != 2 or mask.dtype != torch.bool:
            raise ValueError(f"`sets` must be bool (rows, labels or nodes); got {mask.dtype} {tuple(mask.shape)}.")
        (num_rows, width), (rows, nodes) = mask.shape, mask.nonzero(as_tuple=True)
    if width not in (taxonomy.num_labels, len(taxonomy)):
        raise ValueError(f"`sets` must be of {taxonomy.num_labels} labels or {len(taxonomy)} nodes; got {width}.")
    return num_rows, rows, nodes


def _target(target: LabelsLike, num_rows: int, n: int) -> tuple[Tensor, int]:
    read = read_target(target, n).cpu()
    if len(read) != num_rows:
        raise ValueError(f"`target` must have the {num_rows} rows of `sets`; got {tuple(read.shape)}.")
    return read, n


def _with_ancestors(rows: Tensor, nodes: Tensor, taxonomy: Taxonomy) -> Tensor:
    """The nodes of each row with all above them but the root, each once, as one number."""
    place, above = taxonomy.ancestors.of(nodes)
    keys = rows[place] * len(taxonomy) + above
    return keys[above != taxonomy.root].unique()

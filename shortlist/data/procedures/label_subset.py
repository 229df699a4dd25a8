"""Fewer labels: selected ones, frequent ones, or whole groups of similar ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_range, check_share, integer_tensor
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.training_rows import exact_share
from shortlist.data.target_rows import label_pairs, sparse_targets
from shortlist.targets import TargetForm, target_form
from shortlist.tensors import check_size


def keep_labels(dataset: Dataset, labels: Tensor | Sequence[int]) -> Dataset:
    """Keep some labels, renumbered in the given order, and the rows that have one of them.

    Rows that lose all true labels, present or unknown, are dropped; rows that never had any are kept. Groups without a
    label vanish. Classes stay class indices; sets become sparse.

    Args:
        dataset: labels in any form.
        labels: indices of labels, all different.

    Example:
        >>> from shortlist.data import Dataset, Features, keep_labels
        >>> three = Dataset(Features(torch.eye(3)), torch.tensor([0, 1, 2]), ("a", "b", "c"))
        >>> two = keep_labels(three, [2, 0])
        >>> two.label_names, two.targets.tolist()
        (('c', 'a'), [1, 0])
    """
    labels = integer_tensor("labels", labels)
    if len(labels.unique()) != len(labels):
        raise ValueError("`labels` must hold each label once.")
    check_range("labels", labels, dataset.num_labels)
    number = torch.full((dataset.num_labels,), -1)
    number[labels] = torch.arange(len(labels))
    # The true labels decide, even hidden ones; a noisy class must be among the kept ones too.
    kept = _keeps_a_label(dataset.true_targets, number)
    if dataset.targets.dim() == 1:
        kept &= number[dataset.targets] >= 0
    rows = dataset.subset(kept.nonzero().squeeze(-1))
    return replace(
        rows,
        targets=renumbered(rows.targets, number, len(labels)),
        clean_targets=None if rows.clean_targets is None else renumbered(rows.clean_targets, number, len(labels)),
        label_names=tuple(dataset.label_names[label] for label in labels.tolist()),
        label_groups={name: groups.take(labels).compact() for name, groups in dataset.label_groups.items()},
    )


def frequent_labels(dataset: Dataset, min_count: int, *, part: str | None = None) -> Dataset:
    """Keep the labels that occur in at least ``min_count`` rows, of one part or of all.

    Example:
        >>> from shortlist.data import Dataset, Features, frequent_labels
        >>> frequent_labels(Dataset(Features(torch.eye(3)), torch.tensor([0, 1, 1]), ("a", "b")), 2).label_names
        ('b',)
    """
    min_count = check_size("min_count", min_count, at_least=0)
    return keep_labels(dataset, (dataset.label_counts(part) >= min_count).nonzero().squeeze(-1))


def sample_groups(
    dataset: Dataset, share: float, *, groups: str = "genus", min_count: int = 5, seed: int = 0
) -> Dataset:
    """Keep random whole groups of similar labels, which preserves the ambiguity among them.

    Args:
        dataset: labels in any form.
        share: the share of the groups to keep, in [0, 1], rounded up to whole groups.
        groups: which of ``dataset.label_groups``.
        min_count: labels of these groups with fewer rows are dropped: 5 keeps "more than 4 images".
        seed: an integer from 0, which alone determines the result.

    Returns:
        The labels of the kept groups, in their order, and the rows that have one.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups, sample_groups
        >>> genus = {"genus": Groups(torch.tensor([0, 0, 1, 2]), ("Fedia", "Nyctaginia", "Pereskia"))}
        >>> plants = Dataset(Features(torch.zeros(8, 1)), torch.arange(8) % 4, tuple("abcd"), label_groups=genus)
        >>> sample_groups(plants, 0.3, min_count=1).label_names
        ('c',)

    References:
        Garcin, "Set-valued classification", 2023, section 3.2.2.
    """
    check_share("share", share)
    partition = dataset.label_group(groups)
    order = Draws(seed, "groups").order(len(partition.names))
    chosen = order[: exact_share(share, len(partition.names))]
    inside = torch.from_numpy(np.isin(partition.index.numpy(), chosen))
    return keep_labels(dataset, (inside & (dataset.label_counts() >= min_count)).nonzero().squeeze(-1))


def _keeps_a_label(target: Tensor, number: Tensor) -> Tensor:
    """Which rows keep a label, present or unknown, or never had one."""
    rows, labels, _ = label_pairs(target, len(number))
    none = torch.zeros(len(target), dtype=torch.bool)
    return ~none.index_fill(0, rows, True) | none.index_fill(0, rows[number[labels] >= 0], True)


def renumbered(target: Tensor, number: Tensor, num_labels: int) -> Tensor:
    """Renumbered labels: classes stay class indices, sets become sparse.

    Args:
        target: labels in any form.
        number: the new index of each label; -1 drops it, which is not allowed for a class that occurs.
        num_labels: the new number of labels.
    """
    if target_form(target, len(number)) is TargetForm.CLASS_INDICES:
        return number[target]
    rows, labels, present = label_pairs(target, len(number))
    kept = number[labels] >= 0
    return sparse_targets(rows[kept], number[labels[kept]], len(target), num_labels, present=present[kept])

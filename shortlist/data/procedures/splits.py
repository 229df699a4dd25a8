"""Splits into train, val and test: per class, at random, by group, by year."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from shortlist.data.checks import check_share
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.files.part_names import PARTS
from shortlist.data.groups import Groups
from shortlist.data.procedures.training_rows import all_classes, exact_share, rank_within
from shortlist.errors import InputError

TRAIN, VAL, TEST = range(3)


def split_per_class(dataset: Dataset, *, val: float = 0.1, test: float = 0.1, seed: int = 0) -> Dataset:
    r"""Split each class separately: :math:`\lceil \text{val} \cdot n_c \rceil` and :math:`\lceil \text{test} \cdot n_c
    \rceil` rows, the rest for training, and at least one row in each requested part.

    Shares are read as decimal numbers: 7% of 100 rows are 7, not 8 as binary fractions would have it.

    Args:
        dataset: one class per row, and at least three rows of each class that occurs.
        val, test: shares in [0, 1); 0 leaves the part out.
        seed: an integer from 0, which alone determines the result.

    Returns:
        The dataset with a new split.

    Example:
        >>> from shortlist.data import Dataset, Features, split_per_class
        >>> plants = Dataset(Features(torch.zeros(34, 1)), torch.tensor([0] * 30 + [1] * 4), ("common", "rare"))
        >>> [len(split_per_class(plants).part(part)) for part in ("train", "val", "test")]
        [26, 4, 4]

    References:
        Garcin, "Set-valued classification", 2023, section 3.2.2.
    """
    check_shares(val, test)
    classes = all_classes(dataset, "split_per_class")
    counts = np.bincount(classes, minlength=dataset.num_labels)
    sizes_val = np.array([exact_share(val, count) for count in counts.tolist()])
    sizes_test = np.array([exact_share(test, count) for count in counts.tolist()])
    short = np.flatnonzero((counts > 0) & (sizes_val + sizes_test >= counts))
    if len(short):
        name, count = dataset.label_names[short[0]], counts[short[0]]
        raise InputError(f"`dataset` must have enough rows of each class for all parts; class {name!r} has {count}.")
    rank = rank_within(classes, Draws(seed, "split per class").raw(len(classes)))
    part = np.full(len(classes), TRAIN)
    part[rank < (sizes_val + sizes_test)[classes]] = TEST
    part[rank < sizes_val[classes]] = VAL
    return with_parts(dataset, part)


def split_at_random(dataset: Dataset, *, val: float = 0.1, test: float = 0.1, seed: int = 0) -> Dataset:
    """Split rows at random, with shares rounded up to whole rows.

    Args:
        dataset: labels in any form.
        val, test: shares in [0, 1); 0 leaves the part out.
        seed: an integer from 0, which alone determines the result.

    Example:
        >>> from shortlist.data import Dataset, Features, split_at_random
        >>> rows = Dataset(Features(torch.zeros(25, 1)), torch.zeros(25, dtype=torch.int64), ("only",))
        >>> split_at_random(rows, val=0.2).split.counts()
        tensor([17,  5,  3])
    """
    check_shares(val, test)
    order = Draws(seed, "split at random").order(len(dataset))
    size_val, size_test = exact_share(val, len(dataset)), exact_share(test, len(dataset))
    if len(dataset) and size_val + size_test >= len(dataset):
        raise InputError(f"`dataset` must have more rows: none of {len(dataset)} are left for training.")
    part = np.full(len(dataset), TRAIN)
    part[order[: size_val + size_test]] = TEST
    part[order[:size_val]] = VAL
    return with_parts(dataset, part)


def split_by_group(dataset: Dataset, by: str, *, val: float = 0.1, test: float = 0.1, seed: int = 0) -> Dataset:
    """Split at random, but never within a group: rows of one patient, source or image stay together.

    In random order, each group goes to the part that lacks the most rows. A row without a group is a group of its own.

    Args:
        dataset: labels in any form.
        by: which of ``dataset.row_groups``.
        val, test, seed: as in `split_at_random`.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups, split_by_group
        >>> source = {"source": Groups(torch.arange(20) // 2, tuple("abcdefghij"))}
        >>> rows = Dataset(Features(torch.zeros(20, 1)), torch.zeros(20, 1), ("only",), row_groups=source)
        >>> split_by_group(rows, "source").split.counts()
        tensor([16,  2,  2])
    """
    check_shares(val, test)
    groups = dataset.row_group(by)
    group = groups.index.numpy().copy()
    alone = group < 0
    group[alone] = len(groups.names) + np.arange(alone.sum())
    group = np.unique(group, return_inverse=True)[1]
    sizes = np.bincount(group)
    shares = np.array([1 - val - test, val, test])
    wanted = {part for part in (TRAIN, VAL, TEST) if shares[part] > 0}
    if len(dataset) and len(sizes) < len(wanted):
        raise InputError(f"`by` {by!r} must have a group for each of {len(wanted)} parts; it has {len(sizes)}.")
    left = shares * len(dataset)
    part_of_group = np.empty(len(sizes), dtype=np.int64)
    for number, each in enumerate(Draws(seed, "split by group").order(len(sizes)).tolist()):
        # The last groups go to parts that would otherwise stay empty.
        last = len(sizes) - number <= len(wanted)
        part = max(wanted if last else (TRAIN, VAL, TEST), key=lambda part: left[part])
        wanted.discard(part)
        part_of_group[each] = part
        left[part] -= sizes[each]
    return with_parts(dataset, part_of_group[group])


def split_by_year(dataset: Dataset, *, val_from: int, test_from: int, by: str = "year") -> Dataset:
    """Train on the past, validate on what follows, test on the newest rows.

    Args:
        dataset: its ``row_groups[by]`` are named by integers. Rows without a group go to training.
        val_from: the first year of validation.
        test_from: the first year of test, not before ``val_from``.
        by: which of ``dataset.row_groups``.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups, split_by_year
        >>> year = {"year": Groups.of([1977, 1979, 1978])}
        >>> rows = Dataset(Features(torch.zeros(3, 1)), torch.zeros(3, 1), ("only",), row_groups=year)
        >>> split_by_year(rows, val_from=1978, test_from=1979).split.index
        tensor([0, 2, 1])
    """
    if test_from < val_from:
        raise ValueError(f"`test_from` must not be before `val_from`, {val_from}; got {test_from}.")
    groups = dataset.row_group(by)
    try:
        years = np.array([int(name) for name in groups.names] + [val_from - 1])
    except ValueError as error:
        raise InputError(f"`by` must name groups of integers; {by!r} has {groups.names[:3]}.") from error
    year = years[groups.index.numpy()]  # -1, no year, reads the last entry.
    return with_parts(dataset, (year >= val_from).astype(np.int64) + (year >= test_from))


def split_off_validation(dataset: Dataset, *, val: float = 0.1, seed: int = 0) -> Dataset:
    """Set training rows aside for validation if a dataset has none, so nothing is tuned on test rows.

    Args:
        dataset: with the parts ``train`` and ``test``; rows of other parts lose theirs.
        val: the share of the training rows, in [0, 1), rounded up to whole rows.
        seed: an integer from 0, which alone determines the result.

    Returns:
        The dataset with the parts ``train``, ``val`` and ``test``.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups, split_off_validation
        >>> parts = Groups.of(["train"] * 20 + ["test"] * 5)
        >>> rows = Dataset(Features(torch.zeros(25, 1)), torch.zeros(25, dtype=torch.int64), ("only",), split=parts)
        >>> split_off_validation(rows).split.counts()
        tensor([18,  2,  5])
    """
    check_shares(val, 0.0)
    train = dataset.part_rows("train").numpy()
    part = np.full(len(dataset), -1)
    part[train] = TRAIN
    part[dataset.part_rows("test").numpy()] = TEST
    part[train[Draws(seed, "validation").order(len(train))[: exact_share(val, len(train))]]] = VAL
    return with_parts(dataset, part)


def check_shares(val: float, test: float) -> None:
    """Refuse shares outside [0, 1), and shares that leave nothing for training."""
    for name, value in (("val", val), ("test", test)):
        check_share(name, value, below_one=True)
    if val + test >= 1:
        raise ValueError(f"`val` and `test` must leave rows for training; got {val} and {test}.")


def with_parts(dataset: Dataset, part: np.ndarray) -> Dataset:
    """The dataset with a new split; ValueError if labels were changed, which would affect the rows to evaluate on."""
    if dataset.clean_targets is not None:
        raise ValueError("`dataset` must be split before labels are changed or hidden; it already has clean targets.")
    return replace(dataset, split=Groups(torch.from_numpy(part.astype(np.int64)), PARTS))

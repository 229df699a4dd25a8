"""Missing annotations: labels hidden from training and kept for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from shortlist.data.checks import check_share
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.training_rows import rank_within
from shortlist.data.target_rows import label_pairs, sparse_targets

Mark = Literal["absent", "unknown"]


def hide_labels(dataset: Dataset, rate: float, *, mark: Mark = "absent", seed: int = 0) -> Dataset:
    """Hide each present label of the training rows independently with probability ``rate``; rows may lose all.

    Args:
        dataset: labels in any form. Rows outside the part ``train`` stay as they are.
        rate: the probability, in [0, 1].
        mark: what a hidden label becomes: ``absent``, as if annotators forgot it, or ``unknown``, as if they said so.
        seed: an integer from 0, which alone determines the result.

    Returns:
        The dataset with sparse ``targets`` and with ``clean_targets``.

    Example:
        >>> from shortlist.data import Dataset, Features, hide_labels
        >>> full = Dataset(Features(torch.zeros(2, 1)), torch.ones(2, 4), tuple("abcd"))
        >>> hide_labels(full, 0.5, mark="unknown", seed=1).targets.to_dense()
        tensor([[-1.,  1.,  1.,  1.],
                [-1., -1., -1., -1.]])
    """
    check_share("rate", rate)
    draws = Draws(seed, "hidden labels")
    return _hide(dataset, lambda rows: draws.uniform(len(rows)) < rate, mark)


def incomplete_labels(dataset: Dataset, *, mark: Mark = "absent", seed: int = 0) -> Dataset:
    """Keep a random strict subset of each training row's labels, uniform over the nonempty ones.

    A row with a single label keeps it, since it has no other subset. Arguments and result are as in `hide_labels`.

    Example:
        >>> from shortlist.data import Dataset, Features, incomplete_labels
        >>> full = Dataset(Features(torch.zeros(3, 1)), torch.ones(3, 3), tuple("abc"))
        >>> incomplete_labels(full).targets.to_dense()
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 1., 1.]])

    References:
        Amos, Koltun and Kolter, "The limited multi-label projection layer", 2019, section 4.
    """
    draws = Draws(seed, "incomplete labels")

    def choose(rows: np.ndarray) -> np.ndarray:
        row = np.unique(rows, return_inverse=True)[1]
        size = np.bincount(row)
        hidden = np.zeros(len(rows), dtype=bool)
        # A fair coin per label, tossed again for rows that kept all or nothing: uniform over the other subsets.
        again = size[row] > 1
        while again.any():
            hidden[again] = draws.uniform(int(again.sum())) < 0.5
            lost = np.bincount(row, weights=hidden)
            again = (size[row] > 1) & ((lost == 0) | (lost == size))[row]
        return hidden

    return _hide(dataset, choose, mark)


def single_positive(dataset: Dataset, *, mark: Mark = "absent", seed: int = 0) -> Dataset:
    """Keep one of each training row's labels, chosen uniformly. Arguments and result are as in `hide_labels`.

    Example:
        >>> from shortlist.data import Dataset, Features, single_positive
        >>> full = Dataset(Features(torch.zeros(2, 1)), torch.ones(2, 3), tuple("abc"))
        >>> single_positive(full).label_counts().sum()
        tensor(2)
    """
    draws = Draws(seed, "single positive")
    return _hide(dataset, lambda rows: rank_within(rows, draws.raw(len(rows))) > 0, mark)


def _hide(dataset: Dataset, choose: Callable[[np.ndarray], np.ndarray], mark: Mark) -> Dataset:
    """Hide the entries that ``choose`` selects, given the row of each present label of the training rows."""
    if mark not in ("absent", "unknown"):
        raise ValueError(f"`mark` must be 'absent' or 'unknown'; got {mark!r}.")
    rows, labels, present = (part.numpy() for part in label_pairs(dataset.targets, dataset.num_labels))
    training = np.zeros(len(dataset), dtype=bool)
    training[dataset.part_rows("train").numpy()] = True
    touched = np.flatnonzero(present & training[rows])
    hidden = np.zeros(len(rows), dtype=bool)
    hidden[touched] = choose(rows[touched])
    if mark == "absent":
        rows, labels, present = rows[~hidden], labels[~hidden], present[~hidden]
    else:
        present = present & ~hidden
    targets = sparse_targets(rows, labels, len(dataset), dataset.num_labels, present=present)
    return replace(dataset, targets=targets, clean_targets=dataset.true_targets)

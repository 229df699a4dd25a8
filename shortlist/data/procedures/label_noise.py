"""Label noise among similar classes: a true class is replaced by one of its superclass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from shortlist.data.checks import check_share
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.procedures.training_rows import training_classes


def label_noise(
    dataset: Dataset, rate: float, *, groups: str = "superclass", others_only: bool = False, seed: int = 0
) -> Dataset:
    r"""Redraw the class of each training row within its superclass, with probability ``rate``.

    The new class is uniform over the superclass. By default the old class may be drawn again, so a share
    :math:`\text{rate} (1 - 1/m)` of the rows of a superclass of m classes changes.

    Args:
        dataset: one class per row. Rows outside the part ``train`` stay as they are.
        rate: the probability, in [0, 1].
        groups: which of ``dataset.label_groups``. Rows of a class without a group stay as they are.
        others_only: draw among the other classes of the superclass, so a share ``rate`` of the rows changes.
        seed: an integer from 0, which alone determines the result.

    Returns:
        The dataset with noisy ``targets`` and with ``clean_targets``.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups, label_noise
        >>> classes = torch.arange(4).repeat(250)
        >>> halves = {"superclass": Groups(torch.tensor([0, 0, 1, 1]), ("left", "right"))}
        >>> clean = Dataset(Features(torch.zeros(1000, 1)), classes, tuple("abcd"), label_groups=halves)
        >>> noisy = label_noise(clean, 0.4)
        >>> (noisy.targets != classes).float().mean(), (noisy.targets // 2 == classes // 2).all()
        (tensor(0.2210), tensor(True))

    References:
        Garcin, "Set-valued classification", 2023, section 4.4.4.
    """
    check_share("rate", rate)
    rows, classes = training_classes(dataset, "label_noise")
    superclass = dataset.label_group(groups)
    order, start, size = _members(superclass)
    draws = Draws(seed, "label noise")
    hit = draws.uniform(len(rows)) < rate
    group = superclass.index.numpy()[classes]
    hit &= group >= 0
    if others_only:
        hit &= size[group] > 1
    group, old = group[hit], classes[hit]
    position = draws.below(size[group] - others_only)
    if others_only:
        # Positions among the other classes: those from the own position on move up by one.
        own = np.argsort(order)[old] - start[group]
        position += position >= own
    targets = dataset.targets.clone()
    targets[rows[torch.from_numpy(hit)]] = torch.from_numpy(order[start[group] + position])
    return replace(dataset, targets=targets, clean_targets=dataset.true_targets)


def _members(groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels sorted by group, the start of each group among them, and its size."""
    index = groups.index.numpy()
    # Labels without a group come last, where they shift no others.
    order = np.argsort(np.where(index < 0, len(groups.names), index), kind="stable")
    size = groups.counts().numpy()
    return order, np.cumsum(size) - size, size

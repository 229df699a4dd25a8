"""Label noise among similar classes: a true class is swapped for one of its superclass."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.procedures.one_class import training_classes


def label_noise(
    dataset: Dataset, rate: float, *, groups: str = "superclass", others_only: bool = False, seed: int = 0
) -> Dataset:
    r"""Draw the class of training rows anew within its superclass, each with probability ``rate``.

    The new class is uniform over the superclass. By default the old class may come up again, so that a superclass of m
    classes changes a share :math:`\text{rate} (1 - 1/m)` of its rows.

    Args:
        dataset: one class per row. Rows outside the part ``train`` stay as they are.
        rate: the probability, in [0, 1].
        groups: which of ``dataset.label_groups``. A class without a group keeps its rows.
        others_only: draw among the other classes of the superclass, so that the share that changes is ``rate``.
        seed: a whole number from 0; the result depends on nothing else.

    Returns:
        The dataset with noisy ``targets``, and with ``clean_targets`` as they were.

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
    place = draws.below(size[group] - others_only)
    if others_only:
        # Places of the others: those from the own place on move up by one.
        own = np.argsort(order)[old] - start[group]
        place += place >= own
    targets = dataset.targets.clone()
    targets[rows[torch.from_numpy(hit)]] = torch.from_numpy(order[start[group] + place])
    return replace(dataset, targets=targets, clean_targets=dataset.true_targets)


def check_share(name: str, value: float) -> None:
    """Refuse what is no number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number; got {value!r}.")
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must lie in [0, 1]; got {value}.")


def _members(groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels ordered by group, where each group starts among them, and its size."""
    index = groups.index.numpy()
    # Labels without a group come last, so that they shift nobody.
    order = np.argsort(np.where(index < 0, len(groups.names), index), kind="stable")
    size = groups.counts().numpy()
    return order, np.cumsum(size) - size, size

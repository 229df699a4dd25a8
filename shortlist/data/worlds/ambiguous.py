"""A world of groups of look-alikes, from clear to hopeless, with known probabilities."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_inputs, check_positive_pair, check_size_pair
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features
from shortlist.data.worlds.world import World, by_blocks, parts_in_order
from shortlist.tensors import check_number, check_positive, check_size


class AmbiguousWorld(World):
    r"""One true label among groups of look-alikes: a small version of plant identification with known probabilities.

    .. math:: P(y) \propto \operatorname{rank}(y)^{-\text{tail}}, \qquad x \mid y \sim N(\mu_y, I)

    The means :math:`\mu_y` of a group scatter around its center, each group with its own spread: the ratio of the noise
    to the typical distance between two means goes, evenly on a logarithmic scale, from the lower to the higher
    ``ambiguity``. So one label is plausible in some regions and a dozen are in others, and sets of varying size pay
    off. Group sizes go, evenly on a logarithmic scale, from the smallest to the largest, independently of ambiguity.
    Frequent and rare labels are spread over all groups alike.

    With the defaults, the optimal errors in percent, from a million x with standard errors below 0.03, are:

    ==========  ====  ====  ====  ====
    k              1     2     3     5
    ==========  ====  ====  ====  ====
    top-K       33.5  21.0  14.9   8.6
    average-K   32.7  16.9  10.3   4.3
    ==========  ====  ====  ====  ====

    Args:
        num_groups: the number of groups, at least 1.
        labels_per_group: the smallest and the largest number of labels of a group, at least 1. A single group has the
            largest.
        dim: the dimension of x, at least 1.
        ambiguity: noise over the typical (root-mean-square) distance of two means in a group, for the clearest and for
            the most ambiguous group; positive. Two equally frequent labels at ratio a are confused with probability
            :math:`\Phi(-1 / 2a)`: 0.15 is clear, 2 is hopeless.
        tail: exponent of the long tail of label frequencies; 0 makes all labels equally frequent.
        separation: typical distance between the centers of two groups, in units of the noise; positive.
        seed: determines the means and which labels are rare; an integer from 0.

    Attributes:
        num_labels: n, the number of labels.
        label_names: by group, such as ``group 1 label 2``.
        dim, tail, separation, seed: as given.
        superclass: the group of each label, `Groups`.
        group_ambiguity: ``(groups,)`` float64, the ambiguity of each group.
        priors: ``(n,)`` float64, the frequency of each label.
        means: ``(n, dim)`` float64.

    Example:
        >>> from shortlist.data.worlds.ambiguous import AmbiguousWorld
        >>> world = AmbiguousWorld()
        >>> world.num_labels, len(world.superclass.names)
        (89, 20)
        >>> data = world.sample(1000, seed=1)
        >>> len(data.part("train")), world.probabilities(data.batch([0, 1]).inputs).shape
        (600, torch.Size([2, 89]))
        >>> better = world.advantage(3, num_samples=20_000)
        >>> round(better.value, 3), better.standard_error < 0.001
        (0.046, True)
    """

    kind = "ambiguous world"

    def __init__(
        self,
        num_groups: int = 20,
        labels_per_group: tuple[int, int] = (1, 12),
        *,
        dim: int = 16,
        ambiguity: tuple[float, float] = (0.15, 2.0),
        tail: float = 0.9,
        separation: float = 4.5,
        seed: int = 0,
    ) -> None:
        self.dim = check_size("dim", dim)
        self.tail = check_number("tail", tail, at_least=0.0, below=1000.0)
        self.separation = check_positive("separation", separation)
        draws = Draws(seed, self.kind)
        self.seed = int(seed)
        groups = check_size("num_groups", num_groups)
        fewest, most = check_size_pair("labels_per_group", labels_per_group)
        sizes = _between(fewest, most, groups).round().astype(np.int64)
        ambiguities = _between(*check_positive_pair("ambiguity", ambiguity), groups)
        self.num_labels = int(sizes.sum())
        # Multiples of the golden ratio spread clear and ambiguous groups over all sizes, whatever the seed.
        spread = (np.arange(groups) * ((math.sqrt(5) - 1) / 2) + draws.uniform(1)) % 1
        shuffled = ambiguities[np.argsort(np.argsort(spread, kind="stable"), kind="stable")]
        group = np.repeat(np.arange(groups), sizes)
        within = np.arange(self.num_labels) - np.repeat(np.cumsum(sizes) - sizes, sizes)

        centers = draws.normal(groups * self.dim).reshape(groups, self.dim) * self.separation
        offsets = draws.normal(self.num_labels * self.dim).reshape(self.num_labels, self.dim)
        # Two standard normal points are a root-mean-square distance of sqrt(2 dim) apart.
        means = (centers[group] + offsets / shuffled[group, None]) / math.sqrt(2 * self.dim)

        # A group of m labels has one in each m-th of the ranks, so every group has its share of the tail.
        position = (within + draws.uniform(groups)[group]) / sizes[group]
        rank = np.argsort(np.argsort(position, kind="stable"), kind="stable") + 1.0
        priors = rank**-self.tail
        self.group_ambiguity = torch.from_numpy(shuffled)
        self.means = torch.from_numpy(means)
        self.priors = torch.from_numpy(priors / priors.sum())
        self.superclass = Groups(torch.from_numpy(group), tuple(f"group {g + 1}" for g in range(groups)))
        self.label_names = tuple(
            f"group {g + 1} label {j + 1}" for g, j in zip(group.tolist(), within.tolist(), strict=True)
        )

    def __repr__(self) -> str:
        """Show the sizes."""
        groups = len(self.superclass.names)
        return f"AmbiguousWorld({self.num_labels} labels in {groups} groups, dim={self.dim}, seed={self.seed})"

    def probabilities(self, x: Tensor) -> Tensor:
        """The exact probability of each label.

        Args:
            x: ``(B, dim)``, floating.

        Returns:
            ``(B, n)`` with the dtype of ``x``, computed in float64 and in log space. Rows sum to 1.

        Example:
            >>> from shortlist.data.worlds.ambiguous import AmbiguousWorld
            >>> world = AmbiguousWorld(2, (2, 2), dim=1, separation=20.0)
            >>> world.probabilities(world.means[:1].float()).sum()
            tensor(1.)
        """
        check_inputs(x, self.dim)
        means = self.means.to(x.device)
        bias = self.priors.to(x.device).log() - means.square().sum(1) / 2
        return by_blocks(x, self.num_labels, lambda block: torch.addmm(bias, block, means.T).softmax(1))

    def sample(
        self, num_rows: int, *, seed: int = 0, split: tuple[float, float, float] | None = (0.6, 0.2, 0.2)
    ) -> Dataset:
        """Draw a dataset.

        Args:
            num_rows: the number of rows, from 0.
            seed: an integer from 0; another seed draws other rows from the same world.
            split: shares of train, val and test, in the order of the rows; None for no split.

        Returns:
            Features ``(N, dim)`` float32, class indices, and the groups as ``label_groups["superclass"]``.

        Example:
            >>> from shortlist.data.worlds.ambiguous import AmbiguousWorld
            >>> AmbiguousWorld().sample(10, seed=1).split.counts().tolist()
            [6, 2, 2]
        """
        num_rows = check_size("num_rows", num_rows, at_least=0)
        labels, x = self._draw(num_rows, self._draws(seed, "rows"))
        return Dataset(
            Features(torch.from_numpy(x).float()),
            torch.from_numpy(labels),
            self.label_names,
            label_groups={"superclass": self.superclass},
            split=None if split is None else parts_in_order(num_rows, split),
            name=self.kind,
        )

    def _draw(self, num_rows: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Labels, and x in float64."""
        bounds = np.cumsum(self.priors.numpy())[:-1]  # without the last, which rounding may leave below 1
        labels = np.searchsorted(bounds, draws.uniform(num_rows), side="right").astype(np.int64)
        noise = draws.normal(num_rows * self.dim).reshape(num_rows, self.dim)
        return labels, self.means.numpy()[labels] + noise

    def _block_gains(self, rows: int, draws: Draws) -> Tensor:
        return self.probabilities(torch.from_numpy(self._draw(rows, draws)[1]))


def _between(low: float, high: float, count: int) -> np.ndarray:
    """Numbers from ``low`` to ``high``, evenly on a logarithmic scale; a single one is ``high``."""
    return high * (low / high) ** (np.arange(count)[::-1] / max(1, count - 1))

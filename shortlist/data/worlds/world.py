"""The interface of all worlds, their optimal risks, and splits in the order of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.files.part_names import PARTS
from shortlist.data.groups import Groups
from shortlist.data.worlds.bayes import (
    BLOCK_ENTRIES,
    BayesRisk,
    Gains,
    average_k_advantage,
    average_k_risk,
    sampled_gains,
    top_k_risk,
)


class World(ABC):
    r"""Data with known probabilities, hence with known optimal risks.

    The risk is the expected share of a row's true labels that a predicted set misses, over rows with at least one; for
    exactly one true label, that is the probability of missing it. A world only has to compute the gains
    :math:`E[1\{y \in Y\} / |Y| \mid x]` of the labels at sampled x, from which :mod:`shortlist.data.worlds.bayes`
    computes the risks. Estimates with the same ``num_samples`` and ``seed`` use the same x.

    Attributes:
        num_labels: n, the number of labels.
        label_names: their names, counted from 1.
        kind: what the world is called.
        seed: of the world itself.

    Example:
        >>> from shortlist.data.worlds import AmbiguousWorld, MultiLabelWorld, SceneGraphWorld
        >>> for world in (AmbiguousWorld(), MultiLabelWorld(), SceneGraphWorld()):
        ...     data = world.sample(100, seed=1)
        ...     world.num_labels, world.probabilities(data.batch([0, 1]).inputs).shape, data.split.names
        (89, torch.Size([2, 89]), ('train', 'val', 'test'))
        (100, torch.Size([2, 100]), ('train', 'val', 'test'))
        (12, torch.Size([2, 12]), ('train', 'val', 'test'))
    """

    num_labels: int
    label_names: tuple[str, ...]
    kind: str
    seed: int

    @abstractmethod
    def probabilities(self, x: Any) -> Tensor:
        """The exact probability of each label.

        Args:
            x: a batch of the inputs of a sample.

        Returns:
            ``(B, n)`` with the dtype of ``x``, computed in float64.
        """

    @abstractmethod
    def sample(
        self, n: int, /, *, seed: int = 0, split: tuple[float, float, float] | None = (0.6, 0.2, 0.2)
    ) -> Dataset:
        """Draw a dataset.

        Args:
            n: how many rows or images to draw, from 0.
            seed: an integer from 0; another seed draws other rows from the same world.
            split: shares of train, val and test, in the order of the rows or images; None for no split.

        Returns:
            A dataset with the labels of the world.
        """

    @abstractmethod
    def _block_gains(self, rows: int, draws: Draws) -> Tensor:
        """The gains of the labels at some independent x, ``(rows, n)``."""

    def _draws(self, seed: int, purpose: str) -> Draws:
        """The stream of this world for a purpose."""
        return Draws(seed, f"{self.kind} {self.seed}: {purpose}")

    def _sampled(self, of: Callable[[int, Draws], Tensor], num_samples: int, seed: int) -> Gains:
        """What ``of`` computes at ``num_samples`` independent x, the same at each call."""
        return sampled_gains(
            lambda number, rows: of(rows, self._draws(seed, f"risk, block {number}")), num_samples, self.num_labels
        )

    def top_k_risk(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The optimal risk of sets with k labels for each row.

        Args:
            k: the number of labels, an integer in [0, n].
            num_samples: the number of x to estimate from, at least 1.
            seed: of these x, an integer from 0.

        Returns:
            The risk with its standard error; see `shortlist.data.worlds.bayes.top_k_risk`.

        Example:
            >>> from shortlist.data.worlds import MultiLabelWorld
            >>> round(MultiLabelWorld(50, labels_per_row=2.5).top_k_risk(3, num_samples=10_000).value, 2)
            0.29
        """
        return top_k_risk(self._sampled(self._block_gains, num_samples, seed), k)

    def average_k_risk(self, k: float, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The optimal risk of sets with k labels on average over all rows, including those without true labels.

        Args:
            k: the average number of labels, a number in [0, n], whole or not.
            num_samples, seed: as in `top_k_risk`.

        Returns:
            The risk with its standard error; see `shortlist.data.worlds.bayes.average_k_risk`.

        Example:
            >>> from shortlist.data.worlds import MultiLabelWorld
            >>> round(MultiLabelWorld(50, labels_per_row=2.5).average_k_risk(3, num_samples=10_000).value, 2)
            0.23
        """
        return average_k_risk(self._sampled(self._block_gains, num_samples, seed), k)

    def advantage(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The optimal top-K risk minus the optimal average-K risk, estimated on the same x.

        Args:
            k, num_samples, seed: as in `top_k_risk`.

        Returns:
            The difference, at least 0, with its own standard error; see
            `shortlist.data.worlds.bayes.average_k_advantage`.

        Example:
            >>> from shortlist.data.worlds import AmbiguousWorld
            >>> better = AmbiguousWorld().advantage(3, num_samples=20_000)
            >>> round(better.value, 3), better.standard_error < 0.001
            (0.046, True)
        """
        return average_k_advantage(self._sampled(self._block_gains, num_samples, seed), k)


def by_blocks(x: Tensor, width: int, of: Callable[[Tensor], Tensor]) -> Tensor:
    """What ``of`` computes in float64, ``(B, width)`` with the dtype of ``x``, in blocks that stay in cache."""
    out = x.new_empty(len(x), width)
    rows = max(1, (1 << 17) // width)
    for start in range(0, len(x), rows):
        out[start : start + rows] = of(x[start : start + rows].double())
    return out


def draw_labels(
    draws: Draws, probabilities: Callable[[int, int], np.ndarray], num_rows: int, num_labels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels that are independent given x: row and label of each present one, int64.

    Args:
        draws: one fraction is drawn per row and label, in this order.
        probabilities: maps the first row of a block and the row after its last to their probabilities ``(rows, n)``.
        num_rows, num_labels: of all blocks.
    """
    found = [np.empty((2, 0), dtype=np.int64)]
    size = max(1, BLOCK_ENTRIES // num_labels)
    for start in range(0, num_rows, size):
        probs = probabilities(start, min(start + size, num_rows))
        hits = np.stack(np.nonzero(draws.uniform(probs.size).reshape(probs.shape) < probs))
        hits[0] += start
        found.append(hits)
    rows, labels = np.concatenate(found, axis=1)
    return rows, labels


def observed_labels(draws: Draws, missing: np.ndarray | float, rows: np.ndarray, split: Groups | None) -> np.ndarray:
    """Which present labels, in these rows, are observed: training labels are missing with these probabilities."""
    observed = draws.uniform(len(rows)) >= missing
    return observed if split is None else observed | (split.index.numpy()[rows] > 0)


def parts_in_order(num_rows: int, shares: Sequence[float]) -> Groups:
    """The split of independent random rows: first train, then val and test.

    Args:
        num_rows: the number of rows.
        shares: of train, val and test, nonnegative with sum 1; the ends of parts are rounded to whole rows.

    Returns:
        A split with all three names, even if a part has no rows.

    Raises:
        ValueError: if there are not three shares, one is negative, or their sum is not 1.

    Example:
        >>> from shortlist.data.worlds.world import parts_in_order
        >>> parts_in_order(5, (0.6, 0.2, 0.2)).counts().tolist()
        [3, 1, 1]
    """
    numbers = isinstance(shares, Sequence) and all(isinstance(share, Real) for share in shares)
    if not numbers or len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"`split` must be three shares with sum 1; got {shares!r}.")
    ends = torch.tensor([round(shares[0] * num_rows), round((shares[0] + shares[1]) * num_rows)])
    return Groups(torch.bucketize(torch.arange(num_rows), ends, right=True), PARTS)

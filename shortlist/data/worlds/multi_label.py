"""A world with several labels per row, some of them missing, and known probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_inputs
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features
from shortlist.data.target_rows import sparse_targets
from shortlist.data.worlds.bayes import BayesRisk, best_precision
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.data.worlds.world import World, by_blocks, draw_labels, observed_labels, parts_in_order
from shortlist.tensors import check_number, check_size


class MultiLabelWorld(World):
    r"""Labels that are independent given x, and randomly missing from the annotations.

    .. math:: x \sim N(0, I), \qquad P(y_j = 1 \mid x) = \sigma(w_j \cdot x + b_j), \qquad
        P(\text{seen} \mid y_j = 1) = (1 - \text{missing}_j) \, (\pi_j / \max \pi)^{\text{rarity}}

    Labels of a topic have similar :math:`w_j`, so they occur together. The frequencies :math:`\pi_j = P(y_j = 1)` have
    a long tail, odds :math:`\pi_j / (1 - \pi_j) \propto \operatorname{rank}(j)^{-\text{tail}}`, scaled so that a row
    has ``labels_per_row`` labels on average; both are solved by bisection.

    Args:
        num_labels: n, at least 1.
        dim: the dimension of x, at least 1.
        labels_per_row: the mean number of labels present, in (0, n). Rows without labels occur.
        tail: exponent of the long tail of label frequencies; 0 makes all labels equally frequent.
        missing: the probability that a present label is not observed, in [0, 1]; one number, or one per label.
        rarity: how much more often rare labels are missing; 0 for equally often, 1 for in proportion to their rarity.
        strength: how informative x is: the norm of each :math:`w_j`, in [0, 100).
        seed: determines the weights and which labels are rare; an integer from 0.

    Attributes:
        num_labels: n, the number of labels.
        label_names: ``label 1``, ``label 2`` and so on.
        dim, seed: as given.
        topic: the topic of each label, `Groups`.
        label_shares: ``(n,)`` float64, the achieved share of rows with each label.
        mean_labels: their sum, the achieved ``labels_per_row``.
        missing: ``(n,)`` float64, the probability that each present label is not observed, including rarity.
        directions, offsets: ``(n, dim)`` and ``(n,)`` float64, w and b.

    Example:
        >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
        >>> world = MultiLabelWorld(50, labels_per_row=2.5, missing=0.4)
        >>> round(world.mean_labels, 9)
        2.5
        >>> data = world.sample(1000, seed=1)
        >>> train = data.part("train")  # observed labels, and the true ones to compare with
        >>> train.targets.values().numel() < train.true_targets.values().numel()
        True
        >>> round(world.top_k_risk(3, num_samples=10_000).value, 2)
        0.29
        >>> round(world.average_k_risk(3, num_samples=10_000).value, 2)
        0.23
    """

    kind = "multi-label world"

    def __init__(
        self,
        num_labels: int = 100,
        *,
        dim: int = 16,
        labels_per_row: float = 3.0,
        tail: float = 1.0,
        missing: float | Sequence[float] | Tensor = 0.3,
        rarity: float = 0.0,
        strength: float = 4.0,
        seed: int = 0,
    ) -> None:
        n = self.num_labels = check_size("num_labels", num_labels)
        self.dim = check_size("dim", dim)
        draws = Draws(seed, self.kind)
        self.seed = int(seed)
        if not 0 < check_number("labels_per_row", labels_per_row) < n:
            raise ValueError(f"`labels_per_row` must lie between 0 and {n}; got {labels_per_row}.")
        tail = check_number("tail", tail, at_least=0.0, below=1000.0)
        strength = check_number("strength", strength, at_least=0.0, below=100.0)
        topics = max(1, round(math.sqrt(n)))
        topic = draws.order(n) % topics
        centers = _unit(draws.normal(topics * self.dim).reshape(topics, self.dim))
        own = _unit(draws.normal(n * self.dim).reshape(n, self.dim))
        # The cosine of two labels of a topic is about 0.8 squared.
        directions = strength * _unit(0.8 * centers[topic] + 0.6 * own)
        offsets = _offsets(_long_tail(draws.order(n) + 1.0, tail, labels_per_row), strength)
        achieved = _mean_sigmoid(offsets, strength)

        self.topic = Groups(torch.from_numpy(topic), tuple(f"topic {t + 1}" for t in range(topics)))
        self.label_names = tuple(f"label {j + 1}" for j in range(n))
        self.directions, self.offsets = torch.from_numpy(directions), torch.from_numpy(offsets)
        self.label_shares, self.mean_labels = torch.from_numpy(achieved), float(achieved.sum())
        seen = 1 - _per_label(missing, n)
        self.missing = 1 - seen * (self.label_shares / achieved.max()) ** check_number("rarity", rarity, at_least=0.0)

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"MultiLabelWorld({self.num_labels} labels, dim={self.dim}, seed={self.seed})"

    def probabilities(self, x: Tensor) -> Tensor:
        """The exact probability of each label to be present.

        Args:
            x: ``(B, dim)``, floating.

        Returns:
            ``(B, n)`` with the dtype of ``x``, computed in float64.

        Example:
            >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
            >>> MultiLabelWorld(4, dim=2, labels_per_row=2.0, tail=0.0).probabilities(torch.zeros(1, 2))
            tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
        """
        return self._sigmoids(x, None)

    def observed_probabilities(self, x: Tensor) -> Tensor:
        """The exact probability of each label to be present and observed.

        Args:
            x: ``(B, dim)``, floating.

        Returns:
            ``(B, n)`` with the dtype of ``x``: `probabilities` times one minus ``missing``.

        Example:
            >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
            >>> world = MultiLabelWorld(2, dim=2, labels_per_row=1.0, tail=0.0, missing=0.4)
            >>> world.observed_probabilities(torch.zeros(1, 2))
            tensor([[0.3000, 0.3000]])
        """
        return self._sigmoids(x, 1 - self.missing)

    def sample(
        self, num_rows: int, *, seed: int = 0, split: tuple[float, float, float] | None = (0.6, 0.2, 0.2)
    ) -> Dataset:
        """Draw a dataset.

        With the same seeds, a world with higher ``missing`` has the same rows and true labels, and hides the same
        labels and more.

        Args:
            num_rows: the number of rows, from 0.
            seed: an integer from 0; another seed draws other rows from the same world.
            split: shares of train, val and test, in the order of the rows; None if all rows are for training.

        Returns:
            Features ``(N, dim)`` float32; sparse targets with the observed labels for training and the true ones
            elsewhere; clean targets with the true ones; the topics as ``label_groups["topic"]``.

        Example:
            >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
            >>> data = MultiLabelWorld(missing=1.0).sample(10, seed=1)
            >>> data.label_counts("train").sum(), data.split.counts().tolist()
            (tensor(0), [6, 2, 2])
        """
        num_rows, n = check_size("num_rows", num_rows, at_least=0), self.num_labels
        parts = None if split is None else parts_in_order(num_rows, split)
        x = self._draw(num_rows, self._draws(seed, "x")).float()
        truth = self._draws(seed, "labels")
        rows, labels = draw_labels(truth, lambda a, b: self.probabilities(x[a:b].double()).numpy(), num_rows, n)
        kept = observed_labels(self._draws(seed, "observation"), self.missing.numpy()[labels], rows, parts)
        return Dataset(
            Features(x),
            sparse_targets(rows[kept], labels[kept], num_rows, n),
            self.label_names,
            label_groups={"topic": self.topic},
            split=parts,
            clean_targets=sparse_targets(rows, labels, num_rows, n),
            name=self.kind,
        )

    def best_precision(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The largest expected precision of k labels, over all rows.

        Args:
            k: the number of labels, an integer in [1, n].
            num_samples, seed: as in `top_k_risk`.

        Returns:
            The precision with its standard error; see `shortlist.data.worlds.bayes.best_precision`.

        Example:
            >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
            >>> round(MultiLabelWorld(50, labels_per_row=2.5).best_precision(1, num_samples=10_000).value, 2)
            0.67
        """
        return best_precision(self._sampled(self._block_probabilities, num_samples, seed), k)

    def _sigmoids(self, x: Tensor, factors: Tensor | None) -> Tensor:
        check_inputs(x, self.dim)
        directions, offsets = self.directions.to(x.device), self.offsets.to(x.device)

        def block_sigmoids(block: Tensor) -> Tensor:
            p = torch.addmm(offsets, block, directions.T).sigmoid_()
            return p if factors is None else p.mul_(factors.to(x.device))

        return by_blocks(x, self.num_labels, block_sigmoids)

    def _draw(self, num_rows: int, draws: Draws) -> Tensor:
        """x in float64."""
        return torch.from_numpy(draws.normal(num_rows * self.dim).reshape(num_rows, self.dim))

    def _block_probabilities(self, rows: int, draws: Draws) -> Tensor:
        return self.probabilities(self._draw(rows, draws))

    def _block_gains(self, rows: int, draws: Draws) -> Tensor:
        return expected_shares(self._block_probabilities(rows, draws))


def _long_tail(rank: np.ndarray, tail: float, total: float) -> np.ndarray:
    """Log-odds of shares proportional to ``rank ** -tail`` in their odds, with the given sum."""
    logs = -tail * np.log(rank)
    low = math.log(total) - math.log(len(rank) - total)  # where no share is above total / n
    high = low - float(logs.min())  # where none is below
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(middle + logs).sum() < total else (low, middle)
    return high + logs


def _offsets(log_odds: np.ndarray, strength: float) -> np.ndarray:
    """The b at which the mean of sigmoid(strength z + b) over normal z has these log-odds."""
    shares = _sigmoid(log_odds)
    # E sigmoid <= E exp(strength z + b) = exp(b + strength^2 / 2), and the same for the complement.
    low = -np.logaddexp(0, -log_odds) - strength**2 / 2
    high = np.logaddexp(0, log_odds) + strength**2 / 2
    for _ in range(70):
        middle = (low + high) / 2
        below = _mean_sigmoid(middle, strength) < shares
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def _mean_sigmoid(offsets: np.ndarray, strength: float) -> np.ndarray:
    """The mean of sigmoid(strength z + b) over normal z, for each b, by the trapezoidal rule."""
    # For a function analytic within d of the real axis, here pi / strength, the rule errs by about exp(-2 pi d / step).
    step = min(0.25, 0.5 / max(strength, 1e-9))
    reach = math.ceil((9 + strength) / step)  # rare labels occur around z = strength
    z = np.arange(-reach, reach + 1) * step
    density = np.exp(-z * z / 2)
    density /= density.sum()
    size = max(1, (1 << 16) // len(z))
    blocks = [offsets[start : start + size, None] for start in range(0, len(offsets), size)]
    return np.concatenate([_sigmoid(strength * z + block) @ density for block in blocks])


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).sigmoid().numpy()


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt((vectors * vectors).sum(1, keepdims=True))


def _per_label(missing: float | Sequence[float] | Tensor, num_labels: int) -> Tensor:
    values = torch.as_tensor(missing, dtype=torch.float64)
    if values.dim() > 1 or (values.dim() == 1 and len(values) != num_labels):
        raise ValueError(
            f"`missing` must be one number or one per label, {num_labels}; got shape {tuple(values.shape)}."
        )
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(f"`missing` must lie in [0, 1]; got {wrong[0].item()}.")
    return values.expand(num_labels)

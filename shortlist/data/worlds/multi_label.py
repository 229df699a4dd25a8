"""A world of several labels per row, some of them missing, in which every probability is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features
from shortlist.data.target_rows import sparse_targets
from shortlist.data.worlds.ambiguous import need_inputs, need_whole, parts_in_order
from shortlist.data.worlds.bayes import (
    BLOCK_ENTRIES,
    BayesRisk,
    Gains,
    average_k_advantage,
    average_k_risk,
    best_precision,
    sampled_gains,
    top_k_risk,
)
from shortlist.functional.options import check_number


class MultiLabelWorld:
    r"""Labels that are present independently of each other once x is known, and observed with some luck.

    .. math:: x \sim N(0, I), \qquad P(y_j = 1 \mid x) = \sigma(w_j \cdot x + b_j), \qquad
        P(\text{seen} \mid y_j = 1) = (1 - \text{missing}_j) \, (\pi_j / \max \pi)^{\text{rarity}}

    Labels of a topic have similar :math:`w_j`, so they occur together. The shares :math:`\pi_j = P(y_j = 1)` have a
    long tail, odds :math:`\pi_j / (1 - \pi_j) \propto \operatorname{rank}(j)^{-\text{tail}}`, scaled so that a row has
    ``labels_per_row`` labels on average; both by bisection.

    Args:
        num_labels: n, at least 1.
        dim: how many numbers make an x, at least 1.
        labels_per_row: how many labels are present on average, in (0, n). Rows without any label occur.
        tail: exponent of the long tail of label frequencies; 0 makes all labels equally frequent.
        missing: how often a present label is not observed, in [0, 1]; one number, or one for each label.
        rarity: how much more often rare labels are missing; 0 for no more often, 1 for in proportion to their rarity.
        strength: how much x tells, the length of each :math:`w_j`, in [0, 100).
        seed: of the weights and of which label is rare; a whole number from 0.

    Attributes:
        label_names: names of the labels.
        topic: the topic of each label, `Groups`.
        label_shares: ``(n,)`` float64, the share of rows in which each label is present, as achieved.
        mean_labels: their sum, the achieved ``labels_per_row``.
        missing: ``(n,)`` float64, how often each present label is not observed, rarity included.
        directions, offsets: ``(n, dim)`` and ``(n,)`` float64, w and b.

    Example:
        >>> from shortlist.data.worlds.multi_label import MultiLabelWorld
        >>> world = MultiLabelWorld(50, labels_per_row=2.5, missing=0.4)
        >>> round(world.mean_labels, 9)
        2.5
        >>> data = world.sample(1000, seed=1)
        >>> train = data.part("train")  # observed labels, and the truth to compare with
        >>> train.targets.values().numel() < train.true_targets.values().numel()
        True
        >>> round(world.top_k_risk(3, num_samples=10_000).value, 2)
        0.29
        >>> round(world.average_k_risk(3, num_samples=10_000).value, 2)
        0.23
    """

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
        n = self.num_labels = need_whole("num_labels", num_labels, at_least=1)
        self.dim = need_whole("dim", dim, at_least=1)
        self.seed = seed
        if not 0 < check_number("labels_per_row", labels_per_row) < n:
            raise ValueError(f"`labels_per_row` must lie between 0 and {n}; got {labels_per_row}.")
        tail = check_number("tail", tail, at_least=0.0, below=1000.0)
        strength = check_number("strength", strength, at_least=0.0, below=100.0)
        draws = Draws(seed, "multi-label world")
        topics = max(1, round(math.sqrt(n)))
        topic = draws.order(n) % topics
        centres = _unit(draws.normal(topics * self.dim).reshape(topics, self.dim))
        own = _unit(draws.normal(n * self.dim).reshape(n, self.dim))
        # Two labels of a topic have a cosine of about 0.8 squared.
        directions = strength * _unit(0.8 * centres[topic] + 0.6 * own)
        offsets = _offsets(_long_tail(draws.order(n) + 1.0, tail, labels_per_row), strength)
        achieved = _mean_sigmoid(offsets, strength)

        self.topic = Groups(torch.from_numpy(topic), tuple(f"topic {t + 1}" for t in range(topics)))
        self.label_names = tuple(f"label {j + 1}" for j in range(n))
        self.directions, self.offsets = torch.from_numpy(directions), torch.from_numpy(offsets)
        self.label_shares, self.mean_labels = torch.from_numpy(achieved), float(achieved.sum())
        seen = 1 - _per_label(missing, n)
        self.missing = 1 - seen * (self.label_shares / achieved.max()) ** check_number("rarity", rarity, at_least=0.0)

    def __repr__(self) -> str:
        """Name the sizes."""
        return f"MultiLabelWorld({self.num_labels} labels, dim={self.dim}, seed={self.seed})"

    def probabilities(self, x: Tensor) -> Tensor:
        """The exact probability of each label to be present.

        Args:
            x: ``(B, dim)``, floating.

        Returns:
            ``(B, n)`` with the dtype of ``x``, computed in float64.
        """
        return self._sigmoids(x, None)

    def observed_probabilities(self, x: Tensor) -> Tensor:
        """The exact probability of each label to be present and observed; shapes as in `probabilities`."""
        return self._sigmoids(x, 1 - self.missing)

    def sample(
        self, num_rows: int, *, seed: int = 0, split: tuple[float, float, float] | None = (0.6, 0.2, 0.2)
    ) -> Dataset:
        """Draw a dataset.

        With the same seeds, a world with higher ``missing`` has the same rows and truth, and hides the same labels and
        more.

        Args:
            num_rows: how many rows, from 0.
            seed: a whole number from 0; another seed draws other rows from the same world.
            split: shares of train, val and test, in the order of the rows; None if all rows are for training.

        Returns:
            Features ``(N, dim)`` float32; sparse targets with the observed labels for training and the true ones
            elsewhere; clean targets with the true ones; the topics as ``label_groups["topic"]``.
        """
        num_rows, n = need_whole("num_rows", num_rows, at_least=0), self.num_labels
        parts = None if split is None else parts_in_order(num_rows, split)
        normal = Draws(seed, f"multi-label world {self.seed}: x").normal(num_rows * self.dim)
        x = torch.from_numpy(normal.reshape(num_rows, self.dim)).float()
        truth = Draws(seed, f"multi-label world {self.seed}: labels")
        size = max(1, BLOCK_ENTRIES // n)
        found = [np.empty((2, 0), dtype=np.int64)]
        for start in range(0, num_rows, size):
            p = self.probabilities(x[start : start + size].double()).numpy()
            hits = np.stack(np.nonzero(truth.uniform(p.size).reshape(p.shape) < p))
            hits[0] += start
            found.append(hits)
        rows, labels = np.concatenate(found, axis=1)
        chance = Draws(seed, f"multi-label world {self.seed}: observation").uniform(len(rows))
        kept = chance >= self.missing.numpy()[labels]
        if parts is not None:
            kept |= parts.index.numpy()[rows] > 0
        return Dataset(
            Features(x),
            sparse_targets(rows[kept], labels[kept], num_rows, n),
            self.label_names,
            label_groups={"topic": self.topic},
            split=parts,
            clean_targets=sparse_targets(rows, labels, num_rows, n),
            name="multi-label world",
        )

    def top_k_risk(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The least expected share of true labels missed by k answers, over rows with at least one true label.

        Args:
            k: how many labels, a whole number in [0, n].
            num_samples: how many x to estimate from.
            seed: of these x.

        Returns:
            The risk with its standard error; see `bayes.top_k_risk`.
        """
        return top_k_risk(self._gains(expected_shares, num_samples, seed), k)

    def average_k_risk(self, k: float, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """As `top_k_risk`, with k answers on average over all rows, those without a true label included."""
        return average_k_risk(self._gains(expected_shares, num_samples, seed), k)

    def advantage(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """By how much average-K beats top-K at best; see `bayes.average_k_advantage`."""
        return average_k_advantage(self._gains(expected_shares, num_samples, seed), k)

    def best_precision(self, k: int, *, num_samples: int = 100_000, seed: int = 0) -> BayesRisk:
        """The largest expected precision at k, over all rows; see `bayes.best_precision`."""
        return best_precision(self._gains(lambda p: p, num_samples, seed), k)

    def _sigmoids(self, x: Tensor, factors: Tensor | None) -> Tensor:
        need_inputs(x, self.dim)
        directions, offsets = self.directions.to(x.device), self.offsets.to(x.device)
        out = x.new_empty(len(x), self.num_labels)
        rows = max(1, (1 << 17) // self.num_labels)  # so that a block stays in cache
        for start in range(0, len(x), rows):
            p = torch.addmm(offsets, x[start : start + rows].double(), directions.T).sigmoid_()
            out[start : start + rows] = p if factors is None else p.mul_(factors.to(x.device))
        return out

    def _gains(self, of: Callable[[Tensor], Tensor], num_samples: int, seed: int) -> Gains:
        def block(number: int, rows: int) -> Tensor:
            draws = Draws(seed, f"multi-label world {self.seed}: risk, block {number}")
            return of(self.probabilities(torch.from_numpy(draws.normal(rows * self.dim).reshape(rows, self.dim))))

        return sampled_gains(block, num_samples, self.num_labels)


def expected_shares(probabilities: Tensor) -> Tensor:
    r"""What each label is worth: its expected part in the true labels, if labels are present independently.

    .. math:: E\Big[\frac{1\{j \in Y\}}{|Y|}\Big] = p_j \, E\Big[\frac{1}{1 + S_j}\Big]
        = p_j \int_0^1 \prod_{i \ne j} (1 - p_i + p_i t) \, dt

    with :math:`S_j` the number of the other labels. The integrand is a positive polynomial in t, and Gauss-Legendre
    nodes integrate it exactly, or to the last bits with far fewer nodes than labels. At a node each factor is at least
    t, so that taking one out of the product is a safe division, also where p is 1. Nothing is subtracted: the relative
    error is a few n units in the last place.

    Args:
        probabilities: ``(B, n)``, floating, in [0, 1].

    Returns:
        ``(B, n)`` float64. A row sums to the probability that any label is present.

    Example:
        >>> from shortlist.data.worlds.multi_label import expected_shares
        >>> expected_shares(torch.tensor([[1.0, 0.5]]))
        tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    if probabilities.dim() != 2 or not probabilities.is_floating_point():
        raise ValueError(
            f"`probabilities` must be floating (B, n); got {probabilities.dtype} of shape {tuple(probabilities.shape)}."
        )
    p = probabilities.detach().cpu().double().numpy()
    out = np.empty_like(p)
    if not p.size:
        return torch.from_numpy(out)
    means = p.sum(1)
    order = np.argsort(means)  # so that few rows get the many nodes that a row with many labels needs
    size = max(1, (1 << 16) // p.shape[1])
    for start in range(0, len(p), size):
        rows = order[start : start + size]
        out[rows] = _block_shares(np.ascontiguousarray(p[rows].T), float(means[rows[-1]])).T
    return torch.from_numpy(out)


def _block_shares(p: np.ndarray, mean: float) -> np.ndarray:
    """Expected shares of a block ``(n, rows)``; labels come first so that products run along whole rows of memory."""
    nodes, weights = np.polynomial.legendre.leggauss(_node_count(mean, len(p)))
    total, factors = np.zeros_like(p), np.empty_like(p)
    for t, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
        np.multiply(p, t - 1, out=factors)
        factors += 1
        total += np.divide(weight * factors.prod(0), factors, out=factors)
    total *= p
    return total


def _node_count(mean: float, n: int) -> int:
    """How many Gauss-Legendre nodes leave no error but rounding, where ``mean`` labels are expected."""
    # A function bounded by M inside the Bernstein ellipse of parameter rho is integrated by m nodes on [0, 1] with an
    # error of at most (32 / 15) M rho^-(2m - 2) / (1 - rho^-2). There |t| <= r = ((rho + 1 / rho) / 2 + 1) / 2, and so
    # the product is at most M = exp(mean (r - 1)). The integral is at least 1 / (1 + mean), by Jensen's inequality.
    rho = np.geomspace(1.02, 1e3, 200)
    growth = mean * ((rho + 1 / rho) / 2 - 1) / 2
    needed = math.log(32 / 15 * (1 + mean) / np.finfo(np.float64).eps) + growth - np.log1p(-(rho**-2.0))
    # Half as many nodes as labels are exact, because the degree is n - 1.
    return min(1 + math.ceil(float((needed / (2 * np.log(rho))).min())), (n + 1) // 2)


def _long_tail(rank: np.ndarray, tail: float, total: float) -> np.ndarray:
    """Log-odds of shares that go with ``rank ** -tail`` and have the given sum."""
    logs = -tail * np.log(rank)
    low = math.log(total) - math.log(len(rank) - total)  # at which no share is above total / n
    high = low - float(logs.min())  # at which none is below
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
    reach = math.ceil((9 + strength) / step)  # rare labels live around z = strength
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
            f"`missing` must be one number or one for each of {num_labels} labels; got shape {tuple(values.shape)}."
        )
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(f"`missing` must lie in [0, 1]; got {wrong[0].item()}.")
    return values.expand(num_labels)

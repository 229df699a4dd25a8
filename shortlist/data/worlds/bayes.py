r"""The risk of the optimal predictor of sets, given the true probabilities.

Let the gain :math:`g_y(x) \ge 0` be what label y adds to a set: :math:`P(y \mid x)` for one true label,
:math:`E[1\{y \in Y\} / |Y| \mid x]` for a set Y of true labels. A set predictor S then misses the share

.. math:: R = 1 - E\Big[\sum_{y \in S(x)} g_y(x)\Big] \Big/ E\Big[\sum_y g_y(x)\Big]

of all gains, and the predictor with the largest gains is optimal: the k largest of each x (top-K), or all those above
one threshold for all x, k on average (average-K).

Gains are one tensor, or a function without arguments that yields the same blocks of rows at each call, from a seed or a
file. Blocks are never kept. The average-K threshold is an exact order statistic of all gains: nonnegative floats are
ordered like the integers with the same bits, so one pass counts the gains by their first 16 bits, and a second one
collects those that share them with the threshold and sorts only these (if they are too many, further bits are counted
first, in up to three more passes). A last pass computes two numbers per row. So a million rows of a thousand labels
need one block at a time, at most a million collected gains, and 16 bytes per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from numbers import Integral
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from shortlist.tensors import check_number, check_size

Gains: TypeAlias = Tensor | Callable[[], Iterable[Tensor]]

BLOCK_ENTRIES = 1 << 20
"""Gains to handle at once."""

_MAX_IN_MEMORY = 1 << 24
"""Up to so many gains (128 MB) are kept in memory; beyond that, they are recomputed for each pass."""

_MAX_SORTED = 1 << 20
"""So many gains, with their weights, may be collected and sorted."""


class BayesRisk(NamedTuple):
    """A risk of the optimal predictor, or, where stated, a difference of risks or a precision.

    Attributes:
        value: the estimate.
        standard_error: of an estimate from sampled x; 0 for a quadrature, infinite for one x.

    Example:
        >>> from shortlist.data.worlds.bayes import BayesRisk
        >>> risk, error = BayesRisk(0.25, 0.01)  # also a tuple
        >>> risk
        0.25
    """

    value: float
    standard_error: float


def top_k_risk(gains: Gains, k: int, *, weights: Tensor | None = None) -> BayesRisk:
    r"""The risk of predicting the k largest gains of each x.

    Args:
        gains: ``(N, n)`` floating and nonnegative, for N values of x; or a function that yields blocks of such rows.
        k: the number of labels, an integer in [0, n].
        weights: ``(N,)``, of a quadrature over x, with sum 1; None if x are sampled, with equal weights.

    Returns:
        The risk, and the standard error of the estimate, :math:`\mathrm{sd} / \sqrt{N}` of its linear part.

    Raises:
        ValueError: for gains that are negative or not finite, with the row; for k or weights outside their range.

    Example:
        >>> from shortlist.data.worlds.bayes import top_k_risk
        >>> sure, unsure = [0.94, 0.04, 0.02], [0.34, 0.34, 0.32]
        >>> risk = top_k_risk(torch.tensor([sure, unsure], dtype=torch.float64), 2, weights=torch.tensor([0.5, 0.5]))
        >>> round(risk.value, 4), risk.standard_error
        (0.17, 0.0)
    """
    source = _Source(gains, weights)
    captured, totals = source.by_row(lambda block: _largest(block, _whole(k, block)))
    return _mean_ratio(totals - captured, totals, source.weights)


def average_k_risk(gains: Gains, k: float, *, weights: Tensor | None = None) -> BayesRisk:
    r"""The risk of predicting all gains from one threshold on, k on average.

    If gains tie at the threshold, enough of them count to make the average k, fractionally if need be. No choice among
    them is made: the captured gain is the minimum of its dual,

    .. math:: \min_\lambda \; E\Big[\sum_y (g_y - \lambda)_+\Big] + \lambda k,

    to which ties contribute nothing. Since the estimated threshold minimizes it, the error of the threshold has no
    first-order effect, and the standard error is that of this mean at a fixed threshold.

    Args:
        gains, weights: as in `top_k_risk`.
        k: the average number of labels over all x, a number in [0, n], whole or not.

    Returns:
        The risk with its standard error; never above `top_k_risk`, up to rounding.

    Example:
        >>> from shortlist.data.worlds.bayes import average_k_risk
        >>> sure, unsure = [0.94, 0.04, 0.02], [0.34, 0.34, 0.32]
        >>> risk = average_k_risk(
        ...     torch.tensor([sure, unsure], dtype=torch.float64), 2, weights=torch.tensor([0.5, 0.5])
        ... )
        >>> round(risk.value, 4)
        0.03

    References:
        Garcin, "Set-valued classification", 2023, section 2.2.4; Denis and Hebiri, "Confidence sets with expected
        sizes for multiclass classification", 2017.
    """
    source, k = _Source(gains, weights), check_number("k", k, at_least=0.0)
    threshold = _threshold(source, k)
    captured, totals = source.by_row(lambda block: _above(block, threshold, k))
    return _mean_ratio(totals - captured, totals, source.weights)


def average_k_advantage(gains: Gains, k: int, *, weights: Tensor | None = None) -> BayesRisk:
    """The top-K risk minus the average-K risk, on the same x.

    The standard error is that of the difference: if the two risks are correlated, it is smaller than for independent
    estimates.

    Args:
        gains, k, weights: as in `top_k_risk`.

    Returns:
        Top-K minus average-K risk, at least 0, with its standard error.

    Example:
        >>> from shortlist.data.worlds.bayes import average_k_advantage
        >>> gains = torch.tensor([[0.94, 0.04, 0.02], [0.34, 0.34, 0.32]], dtype=torch.float64)
        >>> round(average_k_advantage(gains, 2).value, 4)
        0.14
    """
    source = _Source(gains, weights)
    threshold = _threshold(source, k)
    more, totals = source.by_row(lambda block: _above(block, threshold, k) - _largest(block, _whole(k, block)))
    return _mean_ratio(more, totals, source.weights)


def average_k_threshold(gains: Gains, k: float, *, weights: Tensor | None = None) -> float:
    """The threshold of the average-K prediction: the largest gain that at least k gains reach on average.

    Args:
        gains, k, weights: as in `average_k_risk`.

    Returns:
        One of the gains, exactly; the largest of all if k is 0.

    Example:
        >>> from shortlist.data.worlds.bayes import average_k_threshold
        >>> average_k_threshold(torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.375, 0.125]]), 1.5)
        0.375
    """
    return _threshold(_Source(gains, weights), check_number("k", k, at_least=0.0))


def best_precision(probabilities: Gains, k: int, *, weights: Tensor | None = None) -> BayesRisk:
    """The largest expected precision of k labels: that of the k most probable ones.

    Args:
        probabilities: ``(N, n)``, of each label to be true, or a function that yields blocks of such rows.
        k: the number of labels, an integer in [1, n].
        weights: as in `top_k_risk`.

    Returns:
        The precision with its standard error.

    Example:
        >>> from shortlist.data.worlds.bayes import best_precision
        >>> round(best_precision(torch.tensor([[0.9, 0.7, 0.1], [0.4, 0.8, 0.3]]), 2).value, 4)
        0.7
    """
    source = _Source(probabilities, weights)
    found, _ = source.by_row(lambda block: _largest(block, _whole(k, block, at_least=1)) / k)
    return _mean_ratio(found, np.ones_like(found), source.weights)


def sampled_gains(block: Callable[[int, int], Tensor], num_samples: int, num_labels: int) -> Gains:
    """Gains of sampled x: computed once if they fit in memory, else at each pass.

    Args:
        block: maps the index of a block and its number of rows to its gains ``(rows, n)``; the same at each call.
        num_samples: the number of x, at least 1.
        num_labels: n.

    Returns:
        One tensor ``(num_samples, n)``, or a function that yields it in blocks.

    Raises:
        TypeError, ValueError: if ``num_samples`` is not a whole number from 1.

    Example:
        >>> from shortlist.data.worlds.bayes import sampled_gains
        >>> sampled_gains(lambda number, rows: torch.full((rows, 2), 0.5), 3, 2).shape
        torch.Size([3, 2])
    """
    num_samples = check_size("num_samples", num_samples)
    rows = max(1, BLOCK_ENTRIES // num_labels)

    def blocks() -> Iterator[Tensor]:
        for number, start in enumerate(range(0, num_samples, rows)):
            yield block(number, min(rows, num_samples - start))

    return torch.cat(list(blocks())) if num_samples * num_labels <= _MAX_IN_MEMORY else blocks


class _Source:
    """Gains that can be read repeatedly, with their weights."""

    def __init__(self, gains: Gains, weights: Tensor | None) -> None:
        self.gains = gains
        self.rows: int | None = None  # known after one pass
        self.weights = None if weights is None else _checked_weights(weights)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Blocks of rows in float64, and their weights."""
        start, width = 0, None
        for block in self._tensors():
            if block.dim() != 2 or not block.is_floating_point():
                raise ValueError(f"`gains` must be floating (N, n); got {block.dtype} of shape {tuple(block.shape)}.")
            if width not in (None, block.shape[1]):
                raise ValueError(
                    f"`gains` must have the same number of labels in all blocks; got {width} and then {block.shape[1]}."
                )
            width = block.shape[1]
            values = np.ascontiguousarray(block.detach().cpu().double().numpy())
            _check_gains(values, start)
            end = start + len(values)
            if self.weights is not None and end > len(self.weights):
                raise ValueError(f"`weights` must have one entry per row of `gains`; got {len(self.weights)}.")
            if len(values):
                yield values + 0.0, None if self.weights is None else self.weights[start:end]  # -0.0 becomes 0.0
            start = end
        if not start or not width:
            raise ValueError("`gains` must have a row and a label; got none (blocks must be yielded at each call).")
        if self.weights is not None and start != len(self.weights):
            raise ValueError(
                f"`weights` must have one entry for each of the {start} rows of `gains`; got {len(self.weights)}."
            )
        if self.rows not in (None, start):
            raise ValueError(f"`gains` must yield the same rows at each call; got {self.rows} and then {start}.")
        self.rows = start

    def _tensors(self) -> Iterable[Tensor]:
        if not isinstance(self.gains, Tensor):
            return self.gains()
        if self.gains.dim() != 2:
            raise ValueError(f"`gains` must be floating (N, n); got shape {tuple(self.gains.shape)}.")
        return self.gains.split(max(1, BLOCK_ENTRIES // max(1, self.gains.shape[1])))

    def budget(self, k: float) -> float:
        """The total weight of k gains on average, after one pass; k is read as a decimal: 0.07 of 100 rows are 7."""
        return float(Fraction(repr(float(k))) * (self.rows or 0)) if self.weights is None else k

    def by_row(self, captured: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """One number per row, and the sum of its gains."""
        pairs = [(captured(block), block.sum(1)) for block, _ in self.blocks()]
        return np.concatenate([first for first, _ in pairs]), np.concatenate([second for _, second in pairs])


def _threshold(source: _Source, k: float) -> float:
    """The largest gain that gains of weight k reach, found by its bits from the highest on."""
    prefix, above, shift = 0, 0.0, 64
    few = False
    while shift and not few:
        shift -= 16
        sizes, masses = np.zeros((2, 1 << 16))
        for block, weights in source.blocks():
            _checked_average(k, block)
            bits, each = _inside(block, weights, prefix, shift + 16)
            digits = (bits >> shift) & 0xFFFF
            counts = np.bincount(digits, minlength=len(sizes))
            sizes += counts
            masses += counts if each is None else np.bincount(digits, weights=each, minlength=len(sizes))
        filled = np.flatnonzero(sizes)[::-1]
        position, above = _reach(masses[filled], above, source.budget(k))
        prefix = (prefix << 16) | int(filled[position])
        few = sizes[filled[position]] <= _MAX_SORTED
    if shift:
        pairs = [_inside(block, weights, prefix, shift) for block, weights in source.blocks()]
        bits = np.concatenate([some for some, _ in pairs])
        masses = np.concatenate([np.ones(len(some)) if each is None else each for some, each in pairs])
        order = np.argsort(bits)[::-1]
        position, _ = _reach(masses[order], above, source.budget(k))
        prefix = int(bits[order[position]])
    return float(np.array(prefix, dtype=np.int64).view(np.float64))


def _inside(
    block: np.ndarray, weights: np.ndarray | None, prefix: int, shift: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Bits, and weights, of the gains that begin with ``prefix`` before the last ``shift`` bits."""
    bits = block.view(np.int64)
    if shift == 64:
        return bits.ravel(), None if weights is None else np.repeat(weights, block.shape[1])
    inside = (bits >> shift) == prefix
    return bits[inside], None if weights is None else np.repeat(weights, inside.sum(1))


def _reach(masses: np.ndarray, above: float, wanted: float) -> tuple[int, float]:
    """The first position at which ``above`` plus the masses reaches ``wanted``, and the mass above it."""
    reached = above + np.cumsum(masses)
    # Counts are exact integers; sums of weights may fall short by rounding.
    position = min(int(np.searchsorted(reached, wanted)), len(masses) - 1)
    return position, float(reached[position - 1]) if position else above


def _largest(block: np.ndarray, k: int) -> np.ndarray:
    return torch.from_numpy(block).topk(k, dim=1, sorted=False).values.sum(1).numpy()


def _above(block: np.ndarray, threshold: float, k: float) -> np.ndarray:
    """The dual objective of each row: gains above the threshold, plus k times the threshold."""
    return np.maximum(block - threshold, 0.0).sum(1) + threshold * k


def _mean_ratio(parts: np.ndarray, totals: np.ndarray, weights: np.ndarray | None) -> BayesRisk:
    """A nonnegative ratio of two means, with the error of its linear expansion."""
    if weights is not None:
        whole = float(totals @ weights)
        _check_some_gain(whole)
        return BayesRisk(max(float(parts @ weights) / whole, 0.0), 0.0)
    count, whole = len(parts), float(totals.mean())
    _check_some_gain(whole)
    value = float(parts.mean()) / whole
    error = float(np.std(parts - value * totals, ddof=1)) / (whole * math.sqrt(count)) if count > 1 else math.inf
    return BayesRisk(max(value, 0.0), error)


def _check_some_gain(whole: float) -> None:
    if whole == 0:
        raise ValueError("`gains` must not all be 0.")


def _check_gains(values: np.ndarray, start: int) -> None:
    # NaN fails the comparison, so one test finds everything.
    if values.size and not (values.min() >= 0 and values.max() < math.inf):
        row, label = np.argwhere(~((values >= 0) & (values < math.inf)))[0].tolist()
        raise ValueError(
            f"`gains` row {start + row}: label {label} must be finite and at least 0; got {values[row, label]}."
        )


def _checked_weights(weights: Tensor) -> np.ndarray:
    values = weights.detach().cpu().double().numpy()
    if values.ndim != 1:
        raise ValueError(f"`weights` must have 1 dimension; got {values.ndim}.")
    if not (values >= 0).all() or not abs(values.sum() - 1) <= 1e-6:
        raise ValueError(f"`weights` must be at least 0 with sum 1; got sum {values.sum()}.")
    return values / values.sum()


def _whole(k: int, block: np.ndarray, *, at_least: int = 0) -> int:
    if isinstance(k, bool) or not isinstance(k, Integral) or not at_least <= k <= block.shape[1]:
        raise ValueError(f"`k` must be an integer in [{at_least}, {block.shape[1]}]; got {k!r}.")
    return int(k)


def _checked_average(k: float, block: np.ndarray) -> None:
    if check_number("k", k, at_least=0.0) > block.shape[1]:
        raise ValueError(f"`k` must lie in [0, {block.shape[1]}]; got {k:g}.")

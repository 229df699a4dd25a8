"""Features for which a truncated DFT answers with a given label set, written down instead of searched for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.dft.logits import check_degree
from shortlist.functional.dft.runs import Runs, active_labels, active_runs
from shortlist.functional.dft.transform import analysis

_BLOCK = 1 << 18
"""Entries of the table rows x labels that are held at a time."""


class DFTWitness(NamedTuple):
    """Features whose logits have the signs of a label set, and how far those are from changing.

    ``features``, ``(rows, 2k + 1)`` float64, have 1 as their largest magnitude. ``log10_radius``, ``(rows,)`` float64,
    is the decimal logarithm of ``min_i |z_i| / ||w_i||`` for them in exact arithmetic: the radius of a ball of features
    that all have these signs. For features in a box of half width c, add ``log10(c)``.
    """

    features: Tensor
    log10_radius: Tensor


def dft_witness(target: Tensor, num_labels: int, k: int, *, row_norms: Tensor | None = None) -> DFTWitness:
    r"""Coefficients, in the columns of :func:`dft_matrix`, of a polynomial that is positive on the set only.

    .. math:: p(t) = \pm \prod_\rho 2 \sin \frac{t - \rho}{2}

    with two roots :math:`\rho` for each run of neighbouring labels on the circle: in the middle of the gaps at its
    ends, or :math:`h / \sqrt2` to both sides of a label without neighbours, :math:`h = 2 \pi / n`. The empty set has
    the constant -1, the full one +1.

    The product is evaluated in logarithms, so ``log10_radius`` is right where the values underflow. The coefficients
    are rounded to float64: where the smallest value of p is some 1e-15 of the largest, as for many labels close
    together, *they no longer have the signs of the set*. The radius warns of that, and looking at the signs decides.

    Args:
        target: label sets, one per row, in any form of :mod:`shortlist.targets` without unknown labels.
        num_labels: n.
        k: the largest frequency, a whole number with ``2k + 1 <= n``.
        row_norms: ``(n,)``, the norms ``||w_i||`` to measure the radius by, if there are columns beside those of the
            DFT; by default ``sqrt((2k + 1) / n)`` for all.

    Returns:
        :class:`DFTWitness`, on the device of ``target``.

    Raises:
        ValueError: for a row with more than ``2k`` cyclic sign changes; no features exist for it.

    Example:
        >>> witness = dft_witness(torch.tensor([[0, 2]]), 6, 2)
        >>> dft_logits(witness.features, 6).sign()
        tensor([[ 1., -1.,  1., -1., -1., -1.]], dtype=torch.float64)

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification",
        2024, theorem 4.
    """
    check_degree(num_labels, k)
    log_norms = _log_norms(row_norms, num_labels, k)
    num_rows, *places = active_labels(target, num_labels)
    rows, labels = (place.cpu() for place in places)
    runs = active_runs(num_rows, rows, labels, num_labels)
    counts = runs.counts().numpy()
    _refuse_changes(counts, k)
    features, radius = np.empty((num_rows, 2 * k + 1)), np.empty(num_rows)
    polynomials = _Polynomials(runs, num_labels)
    size = max(1, _BLOCK // num_labels)
    for start in range(0, num_rows, size):
        block = slice(start, min(start + size, num_rows))
        logs = polynomials.log_values(block)
        logs -= logs.max(-1, keepdims=True)
        values = -np.exp(logs)
        first, end = np.searchsorted(rows.numpy(), [block.start, block.stop])
        values[rows[first:end].numpy() - start, labels[first:end].numpy()] *= -1
        found = analysis(torch.from_numpy(values), 2 * k + 1).numpy()
        # A polynomial has no frequency above half the number of its roots: what is there is rounding.
        found[np.arange(2 * k + 1) > 2 * counts[block, None]] = 0
        largest = np.abs(found).max(-1, keepdims=True)
        features[block] = found / largest
        radius[block] = (logs - log_norms).min(-1) - np.log(largest[:, 0])
    radius /= math.log(10)
    return DFTWitness(torch.from_numpy(features).to(target.device), torch.from_numpy(radius).to(target.device))


class _Polynomials:
    """``log |p|`` at all labels, as sums of windows into two tables: shifting a root shifts its factor."""

    def __init__(self, runs: Runs, num_labels: int) -> None:
        self.runs, self.n = runs, num_labels
        self.first = np.concatenate([[0], np.cumsum(runs.counts().numpy())])
        self.left, self.right = (-runs.first % num_labels).tolist(), ((-1 - runs.last) % num_labels).tolist()
        self.alone = (runs.first == runs.last).tolist()
        places = np.arange(num_labels)
        # Folded to the near side of the circle, where the sine keeps all digits of a small angle.
        near = np.minimum(places, num_labels - places)
        offset = math.sqrt(0.5)
        pair = self._log_factor(near - offset) + self._log_factor(near + offset)
        root = self._log_factor(np.minimum(places, num_labels - 1 - places) + 0.5)
        self.pair, self.root = np.tile(pair, 2), np.tile(root, 2)

    def _log_factor(self, steps: np.ndarray) -> np.ndarray:
        """``log |2 sin(t / 2)|`` where t is so many steps from one label to the next."""
        return np.log(2 * np.abs(np.sin(steps * (np.pi / self.n))))

    def log_values(self, block: slice) -> np.ndarray:
        """``(rows, n)``, for the rows of a block."""
        n, logs = self.n, np.zeros((block.stop - block.start, self.n))
        for row, values in enumerate(logs, block.start):
            for run in range(self.first[row], self.first[row + 1]):
                left, right = self.left[run], self.right[run]
                if self.alone[run]:
                    values += self.pair[left : left + n]
                else:
                    values += self.root[left : left + n]
                    values += self.root[right : right + n]
        return logs


def _log_norms(row_norms: Tensor | None, n: int, k: int) -> np.ndarray | float:
    if row_norms is None:
        return 0.5 * math.log((2 * k + 1) / n)
    if row_norms.shape != (n,):
        raise ValueError(f"`row_norms` must have shape ({n},); got {tuple(row_norms.shape)}.")
    return row_norms.detach().double().log().cpu().numpy()


def _refuse_changes(counts: np.ndarray, k: int) -> None:
    too_many = np.flatnonzero(counts > k)
    if len(too_many):
        row = int(too_many[0])
        raise ValueError(
            f"`target` row {row}: must have at most 2k = {2 * k} cyclic sign changes; got {2 * int(counts[row])}."
        )

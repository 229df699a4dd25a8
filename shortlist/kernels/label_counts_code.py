"""Numba code for sums of independent labels: one label after the other, in registers instead of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled


@compiled("contract")
def count_masses(probs: Any, masses: Any, start: int, stop: int) -> None:
    """Probabilities of so many true labels; beyond the last number they are dropped."""
    most = masses.shape[1] - 1
    before, after = np.zeros(most + 2), np.zeros(most + 2)  # after one slot that stays 0
    for row in range(start, stop):
        before[:], after[:] = 0.0, 0.0
        before[1], width = 1.0, 1
        for label in range(probs.shape[1]):
            p = np.float64(max(probs[row, label], np.float32(0)))
            if p == 0:
                continue
            width = min(width + 1, most + 1)
            none = 1 - p
            for count in range(width):  # indices that cannot be negative, so that the loop takes several at a time
                after[count + 1] = before[count + 1] * none + before[count] * p
            before, after = after, before
        masses[row] = before[1:]


@compiled("contract")
def expected_f(first: Any, masses: Any, found: Any, beta: float, start: int, stop: int) -> None:
    """Divides each label out of the numbers of true labels: upward for small probabilities, otherwise downward."""
    most = masses.shape[1] - 1
    hits = np.empty(most + 1)
    weights = np.zeros((first.shape[1], most + 1))
    for size in range(first.shape[1]):
        for true in range(1, most + 1):
            weights[size, true] = (1 + beta**2) / (size + 1 + beta**2 * true)
    for row in range(start, stop):
        total = masses[row]
        hits[:] = 0.0
        for size in range(first.shape[1]):
            p = np.float64(max(first[row, size], np.float32(0)))
            if p <= 0.5:
                rest, last = 1 / (1 - p), 0.0
                for true in range(1, most + 1):
                    last = (total[true - 1] - p * last) * rest
                    hits[true] += p * last
            else:
                last = 0.0
                for true in range(most, 0, -1):
                    last = (total[true] - (1 - p) * last) / p
                    hits[true] += p * last
            expected = 0.0
            for true in range(most + 1):
                expected += hits[true] * weights[size, true]
            found[row, size] = expected

"""Numba code for binary cross-entropy: terms and slopes of negatives in one pass over float32 rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled
from shortlist.kernels.projection_code import exponentials, sum_of

_BLOCK = 1024
"""Entries at a time, so that what lies between stays in the fastest cache."""

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_LARGEST = np.finfo(np.float32).max
_A3, _A5, _A7, _A9, _A11, _A13 = (np.float32(2 / power) for power in range(3, 14, 2))
"""Of the series of ``2 artanh z``. It is ``log(1 + e)`` for ``z = e / (2 + e)``, which is at most 1/3."""


@compiled()
def negatives(x: Any, slopes: Any, sums: Any, start: int, stop: int) -> None:
    """Row sums of ``log(1 + exp x)``, each term at most the largest number, and the slopes ``sigmoid(x)``."""
    below, e, terms = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    for row in range(start, stop):
        total = 0.0
        for first in range(0, x.shape[1], _BLOCK):
            part = x[row, first : first + _BLOCK]
            size = len(part)
            _negate(part, below)
            exponentials(below[:size], _ZERO, 1.0, e)
            _negative_side(part, e, terms, slopes[row, first : first + _BLOCK])
            total += sum_of(terms[:size])
        sums[row] = total


@compiled()
def _negate(x: Any, below: Any) -> None:
    for j in range(x.shape[0]):
        below[j] = -abs(x[j])


@compiled("contract")
def _negative_side(x: Any, e: Any, terms: Any, slopes: Any) -> None:
    """Terms and slopes, given ``e = exp(-|x|)``."""
    for j in range(x.shape[0]):
        z = e[j] / (_TWO + e[j])
        square = z * z
        series = ((((_A13 * square + _A11) * square + _A9) * square + _A7) * square + _A5) * square + _A3
        term = (x[j] if x[j] > _ZERO else _ZERO) + z * (series * square + _TWO)
        terms[j] = _LARGEST if term > _LARGEST else term  # this form propagates NaN
        slopes[j] = (_ONE if x[j] > _ZERO else e[j]) / (_ONE + e[j])

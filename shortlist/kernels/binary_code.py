"""Numba code for binary losses: terms and slopes of negatives in one pass over float32 rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled
from shortlist.kernels.projection_code import bits_of, exponentials, float_of, sum_of

_BLOCK = 1024
"""Entries at a time, so that what lies between stays in the fastest cache."""

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_LARGEST = np.finfo(np.float32).max
_A3, _A5, _A7, _A9, _A11, _A13 = (np.float32(2 / power) for power in range(3, 14, 2))
"""Of the series of ``2 artanh z``. It is ``log(1 + e)`` for ``z = e / (2 + e)``, which is at most 1/3."""


_LN2, _ROOT_OF_HALF = np.float32(math.log(2)), np.int32(0x3F3504F3)
"""The second is the bits of the square root of 1/2, where the mantissa of a logarithm starts."""


@compiled()
def negatives(x: Any, gamma: int, clip: float, slopes: Any, sums: Any, start: int, stop: int) -> None:
    """Row sums of ``-p_m^γ log(1 - p_m)`` with ``p_m = max(sigmoid(x) - clip, 0)``, and the slopes.

    Either gamma and clip are 0, and a term is at most the largest number, or both are positive.
    """
    below, e, terms = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    rest, powers = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    for row in range(start, stop):
        total = 0.0
        for first in range(0, x.shape[1], _BLOCK):
            part, slope = x[row, first : first + _BLOCK], slopes[row, first : first + _BLOCK]
            size = len(part)
            _negate(part, below)
            exponentials(below[:size], _ZERO, 1.0, e)
            if gamma == 0:
                _plain_side(part, e, terms, slope)
            else:
                _rest(part, e, np.float32(clip), rest, powers)
                for _ in range(gamma - 1):
                    _multiply(powers[:size], rest)
                _clipped_side(e, rest, powers, np.float32(gamma), terms, slope)
            total += sum_of(terms[:size])
        sums[row] = total


@compiled()
def _negate(x: Any, below: Any) -> None:
    for j in range(x.shape[0]):
        below[j] = -abs(x[j])


@compiled("contract")
def _plain_side(x: Any, e: Any, terms: Any, slopes: Any) -> None:
    """``log(1 + exp x)`` and its slopes, given ``e = exp(-|x|)``."""
    for j in range(x.shape[0]):
        z = e[j] / (_TWO + e[j])
        square = z * z
        series = ((((_A13 * square + _A11) * square + _A9) * square + _A7) * square + _A5) * square + _A3
        term = (x[j] if x[j] > _ZERO else _ZERO) + z * (series * square + _TWO)
        terms[j] = _LARGEST if term > _LARGEST else term  # this form propagates NaN
        slopes[j] = (_ONE if x[j] > _ZERO else e[j]) / (_ONE + e[j])


@compiled("contract")
def _rest(x: Any, e: Any, clip: Any, rest: Any, powers: Any) -> None:
    """``1 - p_m``, given ``e = exp(-|x|)``, and the power 0 of ``p_m``."""
    for j in range(x.shape[0]):
        r = (e[j] if x[j] > _ZERO else _ONE) / (_ONE + e[j]) + clip
        rest[j] = _ONE if r > _ONE else r
        powers[j] = _ONE


@compiled()
def _multiply(powers: Any, rest: Any) -> None:
    for j in range(powers.shape[0]):
        powers[j] *= _ONE - rest[j]


@compiled("contract")
def _clipped_side(e: Any, rest: Any, powers: Any, gamma: Any, terms: Any, slopes: Any) -> None:
    """The terms and slopes, given ``e = exp(-|x|)``, ``1 - p_m`` and ``p_m^(γ - 1)``."""
    for j in range(slopes.shape[0]):
        inverse, clipped = _ONE / (_ONE + e[j]), _ONE - rest[j]
        # The logarithm of m 2^h with m from 0.7 to 1.4 is h log 2 + 2 artanh((m - 1) / (m + 1)).
        bits = bits_of(rest[j]) - _ROOT_OF_HALF
        m = float_of((bits & np.int32(0x7FFFFF)) + _ROOT_OF_HALF)
        z = (m - _ONE) / (m + _ONE)
        square = z * z
        series = (((_A11 * square + _A9) * square + _A7) * square + _A5) * square + _A3
        loss = -(np.float32(bits >> np.int32(23)) * _LN2 + z * (series * square + _TWO))
        terms[j] = loss * powers[j] * clipped
        slopes[j] = e[j] * inverse * inverse * powers[j] * (gamma * loss + clipped / rest[j])

"""Scores in the fewest digits that tell them apart in their own precision, many at a time."""

from __future__ import annotations

import numpy as np

# Up to here powers of ten are exact, so that one division gives the float next to a decimal number.
_POWERS = 10.0 ** np.arange(23)
_LEAST, _MOST, _DIGITS = 1e-13, 10.0, 9


def short_numbers(scores: np.ndarray) -> list[float]:
    """Numbers of Python whose digits, written out, are as few as read back to the same score.

    Args:
        scores: one axis, float32 or float64.

    Example:
        >>> short_numbers(np.array([0.1, 1 / 3], dtype=np.float32))
        [0.1, 0.33333334]
    """
    if scores.dtype == np.float64:
        return scores.tolist()
    found = scores.astype(np.float64)
    size = np.abs(found)
    usual = (size >= _LEAST) & (size < _MOST)
    odd = np.flatnonzero(~usual)
    # numpy knows the digits of any number, but takes its time.
    found[odd] = scores[odd].astype(str).astype(np.float64)
    left = np.flatnonzero(usual)
    exact, places = found[left], -np.floor(np.log10(size[left])).astype(np.int64)
    for digits in range(_DIGITS, 0, -1):
        power = _POWERS[np.maximum(places + digits - 1, 0)]
        short = np.rint(exact * power) / power
        same = short.astype(np.float32) == scores[left]
        left, exact, places = left[same], exact[same], places[same]
        found[left] = short[same]
        if not len(left):
            break
    return found.tolist()

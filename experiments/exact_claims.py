"""Verdicts on mathematics: what was computed must agree everywhere, or the claim does not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shortlist.evidence import Finding
from shortlist.evidence.verdicts import FAILS, HOLDS


def checked(agrees: bool, why: str) -> Finding:
    """The verdict of a check that leaves no room for chance.

    Example:
        >>> checked(2 + 2 == 4, "2 + 2 = 4")
        Finding(verdict='holds', why='2 + 2 = 4')
    """
    return Finding(HOLDS if agrees else FAILS, why)


def power(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent a of the law ``y = c x^a`` that fits best: the slope of a line through the logarithms.

    Example:
        >>> round(power([1.0, 2.0, 4.0], [3.0, 6.0, 12.0]), 6)
        1.0
    """
    if len(x) != len(y) or len(set(x)) < 2:
        raise ValueError(f"`x` must have at least 2 different values, and `y` as many; got {len(set(x))} and {len(y)}.")
    logs = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True)]
    middle_x, middle_y = (math.fsum(side) / len(logs) for side in zip(*logs, strict=True))
    return math.fsum((a - middle_x) * (b - middle_y) for a, b in logs) / math.fsum((a - middle_x) ** 2 for a, _ in logs)


def worded(value: float) -> str:
    """A small number in a few letters, with a true exponent.

    Example:
        >>> worded(2.22e-16), worded(0.0), worded(0.125)
        ('2·10⁻¹⁶', '0', '0.125')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"

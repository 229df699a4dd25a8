"""From figures of several seeds to a verdict: holds, does not hold, or not decidable at this scale.

Every verdict rests on Student's 95% interval over seeds; differences are paired by seed, because runs of one seed share
their noise, their split and the order of their batches. A claim of a difference holds when the interval is above 0; it
does not hold when all of the interval lies below the least difference that would be worth having; between the two the
scale of the experiment does not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shortlist.train.comparison import Interval

Verdict = Literal["holds", "does not hold", "not decidable at this scale"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "not decidable at this scale"


@dataclass(frozen=True)
class Finding:
    """A verdict and the figures that it rests on, in words."""

    verdict: Verdict
    why: str


def beats(
    ours: Sequence[float], other: Sequence[float], *, names: tuple[str, str], worth: float = 0.002, unit: str = "%"
) -> Finding:
    """Whether the first is greater than the second, seed by seed.

    Args:
        ours, other: one figure per seed, in the same order; greater is better.
        names: of both, for the words.
        worth: the least difference worth having, in the unit of the figures.
        unit: ``"%"`` writes shares as percentage points; anything else is written after the number.

    Example:
        >>> beats([0.84, 0.85, 0.86], [0.80, 0.82, 0.82], names=("lml", "softmax"))
        Finding(verdict='holds', why='lml − softmax = +3.67 ± 1.43 points')
    """
    gap = _paired(ours, other)
    low, high = gap.mean - gap.half_width, gap.mean + gap.half_width
    verdict = HOLDS if low > 0 else FAILS if high < worth else OPEN
    return Finding(verdict, f"{names[0]} − {names[1]} = {_told(gap, unit)}")


def alike(
    ours: Sequence[float], other: Sequence[float], *, names: tuple[str, str], within: float = 0.01, unit: str = "%"
) -> Finding:
    """Whether two figures differ by no more than ``within``, seed by seed: the whole interval must lie inside.

    Example:
        >>> alike([0.84, 0.85, 0.86], [0.84, 0.85, 0.86], names=("lml", "svm")).verdict
        'holds'
    """
    gap = _paired(ours, other)
    nearest, farthest = abs(gap.mean) - gap.half_width, abs(gap.mean) + gap.half_width
    verdict = HOLDS if farthest <= within else FAILS if nearest > within else OPEN
    return Finding(verdict, f"{names[0]} − {names[1]} = {_told(gap, unit)} (band ±{_number(within, unit)})")


def at_least(values: Sequence[float], bound: float, *, name: str, unit: str = "%") -> Finding:
    """Whether a figure is at least ``bound``: the whole interval above it holds, the whole interval below it fails.

    Example:
        >>> at_least([0.95, 0.96, 0.94], 0.9, name="coverage").verdict
        'holds'
    """
    found = Interval.of(list(values))
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = HOLDS if low >= bound else FAILS if high < bound else OPEN
    return Finding(verdict, f"{name} = {_told(found, unit, sign=False)} (at least {_number(bound, unit)})")


def grows(
    gaps: Mapping[float, Sequence[float]], *, name: str, along: str, worth: float = 0.002, unit: str = "%"
) -> Finding:
    """Whether a figure grows along a condition: the slope of a least-squares line, fitted to each seed for itself.

    Args:
        gaps: by condition, one figure per seed.
        name: of the figure, for the words.
        along: what the condition is.
        worth: the least growth over the whole range that would be worth having.
        unit: as in `beats`.

    Example:
        >>> grows({0.0: [0.0, 0.01], 0.4: [0.05, 0.06]}, name="gap", along="noise").verdict
        'holds'
    """
    places = [float(place) for place in gaps]
    middle, span = sum(places) / len(places), max(places) - min(places)
    spread = sum((place - middle) ** 2 for place in places)
    slopes = [
        span * sum((place - middle) * value for place, value in zip(places, values, strict=True)) / spread
        for values in zip(*gaps.values(), strict=True)
    ]
    found = Interval.of(slopes)
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = HOLDS if low > 0 else FAILS if high < worth else OPEN
    return Finding(verdict, f"{name} changes by {_told(found, unit)} from {along} {min(places):g} to {max(places):g}")


def all_of(findings: Sequence[Finding]) -> Finding:
    """A claim of several parts: it holds if all do, and does not if one does not.

    Example:
        >>> all_of([Finding("holds", "a"), Finding("not decidable at this scale", "b")])
        Finding(verdict='not decidable at this scale', why='a; b')
    """
    if not findings:
        raise ValueError("`findings` must not be empty.")
    verdicts = {finding.verdict for finding in findings}
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    return Finding(verdict, "; ".join(finding.why for finding in findings))


def _paired(ours: Sequence[float], other: Sequence[float]) -> Interval:
    if len(ours) != len(other) or len(ours) < 2:
        raise ValueError(f"both must have one figure for each of at least 2 seeds; got {len(ours)} and {len(other)}.")
    return Interval.of([a - b for a, b in zip(ours, other, strict=True)])


def _number(value: float, unit: str) -> str:
    """Without its unit, which stands before it."""
    return f"{100 * value:g}" if unit == "%" else f"{value:g}"


def _told(interval: Interval, unit: str, *, sign: bool = True) -> str:
    """Differences with their sign, of shares in percentage points; what is no difference without one, in percent."""
    scale, word = (100.0, "points" if sign else "%") if unit == "%" else (1.0, unit)
    mean, half = scale * interval.mean, scale * interval.half_width
    return f"{mean:{'+' if sign else ''}.2f} ± {half:.2f} {word}".rstrip()

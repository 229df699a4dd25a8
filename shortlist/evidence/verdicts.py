"""Verdicts from the results of several seeds: a statement holds, holds in part, does not hold, or stays open.

Every verdict rests on Student's 95% interval over seeds. Differences are paired by seed, because runs with the same
seed share their noise, split and order of batches. A claimed difference holds if the whole interval is above 0; it
does not hold if the whole interval is below the smallest difference worth having; otherwise the experiment is too
small to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shortlist.train.comparison import Interval

Verdict = Literal["holds", "holds in part", "does not hold", "not decidable", "not run yet"]
HOLDS: Verdict = "holds"
PARTLY: Verdict = "holds in part"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "not decidable"
NOT_RUN: Verdict = "not run yet"


@dataclass(frozen=True)
class Finding:
    """A verdict and a short text with the supporting numbers; for several conditions, those of each of them."""

    verdict: Verdict
    why: str
    parts: tuple[Finding, ...] = ()

    @property
    def conditions(self) -> tuple[Finding, ...]:
        """The parts, or the finding itself if there is one condition only."""
        return self.parts or (self,)

    @property
    def headline(self) -> str:
        """The verdict in words; with several conditions, in how many of them the statement holds.

        Example:
            >>> parts = Finding("holds", "a"), Finding("does not hold", "b"), Finding("not decidable", "c")
            >>> all_of(parts).headline
            'holds in 1 of 3 (1 undecided)'
        """
        if not self.parts:
            return self.verdict
        counts = Counter(part.verdict for part in self.parts)
        undecided = f" ({counts[OPEN]} undecided)" if counts[OPEN] else ""
        return f"holds in {counts[HOLDS]} of {len(self.parts)}{undecided}"


def beats(
    ours: Sequence[float],
    other: Sequence[float],
    *,
    names: tuple[str, str],
    worth: float = 0.002,
    unit: str = "points",
) -> Finding:
    """Whether the first is greater than the second, paired by seed.

    Args:
        ours, other: one value per seed, in the same order; greater is better.
        names: names of both, for the text.
        worth: the smallest difference worth having, in the unit of the values.
        unit: ``"points"`` for fractions, whose differences are written as percentage points; anything else is written
            after the number.

    Example:
        >>> beats([0.84, 0.85, 0.86], [0.80, 0.82, 0.82], names=("lml", "softmax"))
        Finding(verdict='holds', why='lml − softmax = +3.67 ± 1.43 points', parts=())
    """
    gap = _paired(ours, other)
    low, high = _ends(gap)
    verdict = HOLDS if low > 0 else FAILS if high < worth else OPEN
    return Finding(verdict, f"{names[0]} − {names[1]} = {_words(gap, unit, signed=True)}")


def alike(
    ours: Sequence[float],
    other: Sequence[float],
    *,
    names: tuple[str, str],
    within: float = 0.01,
    unit: str = "points",
) -> Finding:
    """Whether two values differ by at most ``within``, paired by seed: the whole interval must lie within.

    Example:
        >>> alike([0.84, 0.85, 0.86], [0.84, 0.85, 0.86], names=("lml", "svm")).verdict
        'holds'
    """
    gap = _paired(ours, other)
    nearest, farthest = abs(gap.mean) - gap.half_width, abs(gap.mean) + gap.half_width
    verdict = HOLDS if farthest <= within else FAILS if nearest > within else OPEN
    why = f"{names[0]} − {names[1]} = {_words(gap, unit, signed=True)} (band ±{_bound(within, unit)})"
    return Finding(verdict, why)


def at_least(values: Sequence[float], bound: float, *, name: str, unit: str = "%") -> Finding:
    """Whether a value is at least ``bound``: holds if the whole interval is above, fails if all of it is below.

    Args:
        values: one per seed.
        bound: in the unit of the values.
        name: name of the value, for the text.
        unit: ``"%"`` writes fractions as percentages, ``"points"`` as signed percentage points; anything else is
            written after the number.

    Example:
        >>> at_least([0.95, 0.96, 0.94], 0.9, name="coverage").verdict
        'holds'
    """
    found = Interval.of(list(values))
    low, high = _ends(found)
    verdict = HOLDS if low >= bound else FAILS if high < bound else OPEN
    return Finding(verdict, f"{name} = {_words(found, unit)} (at least {_bound(bound, unit)})")


def at_most(values: Sequence[float], bound: float, *, name: str, unit: str = "%") -> Finding:
    """Whether a value is at most ``bound``; the arguments are those of `at_least`.

    Example:
        >>> at_most([1.0, 1.1, 0.9], 1.5, name="ratio", unit="")
        Finding(verdict='holds', why='ratio = 1.00 ± 0.25 (at most 1.5)', parts=())
    """
    found = Interval.of(list(values))
    low, high = _ends(found)
    verdict = HOLDS if high <= bound else FAILS if low > bound else OPEN
    return Finding(verdict, f"{name} = {_words(found, unit)} (at most {_bound(bound, unit)})")


def grows(
    gaps: Mapping[float, Sequence[float]], *, name: str, along: str, worth: float = 0.002, unit: str = "points"
) -> Finding:
    """Whether a value grows with a condition, by the slope of a least-squares line fitted to each seed.

    Args:
        gaps: by condition, one value per seed.
        name: name of the value, for the text.
        along: what the condition is.
        worth: the smallest growth over the whole range that would be worth having.
        unit: as in `beats`.

    Example:
        >>> grows({0.0: [0.0, 0.01], 0.4: [0.05, 0.06]}, name="gap", along="noise").verdict
        'holds'
    """
    xs = [float(x) for x in gaps]
    center, span = sum(xs) / len(xs), max(xs) - min(xs)
    variance = sum((x - center) ** 2 for x in xs)
    slopes = [
        span * sum((x - center) * value for x, value in zip(xs, values, strict=True)) / variance
        for values in zip(*gaps.values(), strict=True)
    ]
    found = Interval.of(slopes)
    low, high = _ends(found)
    verdict = HOLDS if low > 0 else FAILS if high < worth else OPEN
    change = _words(found, unit, signed=True)
    return Finding(verdict, f"{name} changes by {change} from {along} {min(xs):g} to {max(xs):g}")


def all_of(findings: Sequence[Finding]) -> Finding:
    """A statement about several conditions, with the verdict of each.

    It holds if it holds in every condition, and does not hold if it fails in every one. It holds in part if it holds
    in some; otherwise it is not decidable.

    Example:
        >>> found = all_of([Finding("holds", "a"), Finding("not decidable", "b")])
        >>> found.verdict, found.why, found.headline
        ('holds in part', 'a; b', 'holds in 1 of 2 (1 undecided)')
    """
    if not findings:
        raise ValueError("`findings` must not be empty.")
    parts = tuple(each for finding in findings for each in finding.conditions)
    if len(parts) == 1:
        return parts[0]
    verdicts: set[Verdict] = {part.verdict for part in parts}
    verdict: Verdict = verdicts.pop() if len(verdicts) == 1 else PARTLY if HOLDS in verdicts else OPEN
    return Finding(verdict, "; ".join(part.why for part in parts), parts)


def _paired(ours: Sequence[float], other: Sequence[float]) -> Interval:
    if len(ours) != len(other) or len(ours) < 2:
        raise ValueError(f"both must have one value for each of at least 2 seeds; got {len(ours)} and {len(other)}.")
    return Interval.of([a - b for a, b in zip(ours, other, strict=True)])


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.mean - interval.half_width, interval.mean + interval.half_width


def _scale(unit: str) -> float:
    return 100.0 if unit in ("%", "points") else 1.0


def _bound(value: float, unit: str) -> str:
    """The number without its unit, which is written elsewhere."""
    return f"{_scale(unit) * value:g}"


def _words(interval: Interval, unit: str, *, signed: bool = False) -> str:
    mean, half_width = _scale(unit) * interval.mean, _scale(unit) * interval.half_width
    sign = "+" if signed or unit == "points" else ""
    number = f"{mean:{sign}.2f} ± {half_width:.2f}"
    return number + unit if unit == "%" else f"{number} {unit}".rstrip()

"""Set rules, from their definitions: loops over rows, full sorts, and fractions for every count.

Rows are lists of floats, one score per label and the larger the better; ``-inf`` marks an absent label. Sets are
Python sets of labels. Nothing is shared with the package, and nothing is fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

Row = Sequence[float]


class Quota(NamedTuple):
    """Average-K: entries inside for certain, and how many of the tied ``candidates`` (all of one label) join them."""

    size: int
    inside: set[tuple[int, int]]
    candidates: list[tuple[int, int]]
    wanted: int


class Cut(NamedTuple):
    """A threshold below which values are inside; at the threshold, inside with probability ``share``."""

    value: float | Fraction
    share: Fraction


def decimal(number: float) -> Fraction:
    """The decimal that the number prints as: 0.29 is 29/100, not the nearest double."""
    return Fraction(repr(number))


def ranking(row: Row) -> list[int]:
    """Present labels, the best first; of equal scores the lower label."""
    return sorted((j for j, score in enumerate(row) if score > -math.inf), key=lambda j: (-row[j], j))


def top_k(row: Row, k: int) -> set[int]:
    """The k best."""
    return set(ranking(row)[:k])


def descending(rows: Iterable[Row]) -> list[float]:
    """All present scores of all rows, sorted."""
    return sorted((score for row in rows for score in row if score > -math.inf), reverse=True)


def midpoint(rows: Sequence[Row], k: float) -> Fraction:
    """Half way between the m-th and the next of all scores, m = floor(k N); both must exist."""
    values, m = descending(rows), math.floor(decimal(k) * len(rows))
    return (Fraction(values[m - 1]) + Fraction(values[m])) / 2


def average_k(rows: Sequence[Row], k: float) -> Quota:
    """The floor(k N) best of all entries. Among entries that tie at the cut, lower labels come first."""
    values = descending(rows)
    m = min(math.floor(decimal(k) * len(rows)), len(values))
    if m in (0, len(values)):
        everything = {(i, j) for i, row in enumerate(rows) for j in ranking(row)}
        return Quota(m, everything if m else set(), [], 0)
    last = values[m - 1]
    inside = {(i, j) for i, row in enumerate(rows) for j, score in enumerate(row) if score > last}
    left = m - len(inside)
    for j in range(len(rows[0])):
        tied = [(i, j) for i, row in enumerate(rows) if row[j] == last]
        if 0 < left < len(tied):
            return Quota(m, inside, tied, left)
        inside |= set(tied) if left else set()
        left -= min(left, len(tied))
    return Quota(m, inside, [], 0)


def conformal_rank(alpha: float, count: int) -> int:
    """Rank of the threshold among the sorted values: the least r with r/(N + 1) >= 1 - α."""
    return math.ceil((count + 1) * (1 - decimal(alpha)))


def conformal_cut(values: Sequence[float | Fraction], alpha: float) -> Cut:
    """The r-th smallest. If q of the e that tie with it are wanted, so is a new tie with probability q/(e + 1)."""
    rank = conformal_rank(alpha, len(values))
    if rank > len(values):
        return Cut(math.inf, Fraction(1))
    value = sorted(values)[rank - 1]
    below, equal = sum(v < value for v in values), sum(v == value for v in values)
    return Cut(value, Fraction(rank - below, equal + 1))


def chances(values: Sequence[float | Fraction], cut: Cut) -> list[Fraction]:
    """The probability that each label is in the set."""
    return [Fraction(v < cut.value) if v != cut.value else cut.share for v in values]


def average_error(rows: Sequence[Row], classes: Sequence[int], alpha: float) -> Cut:
    """Split conformal on 1 - p_y, exactly."""
    return conformal_cut([1 - Fraction(row[y]) for row, y in zip(rows, classes, strict=True)], alpha)


def mass_scores(row: Row, *, u: float = 1.0, penalty: float = 0.0, free: int = 0) -> list[Fraction]:
    """Score of each label: mass of the labels before it, u times its own, and the penalty of its rank."""
    scores, before = [Fraction(0)] * len(row), Fraction(0)
    for rank, j in enumerate(ranking(row), start=1):
        own = Fraction(row[j])
        scores[j] = before + decimal(u) * own + decimal(penalty) * max(rank - free, 0)
        before += own
    return scores


def pointwise_error(rows: Sequence[Row], classes: Sequence[int], alpha: float, **options: float) -> Cut:
    """Split conformal on the mass down to the true class and including it: without randomization."""
    return conformal_cut([mass_scores(row, **options)[y] for row, y in zip(rows, classes, strict=True)], alpha)  # pyright: ignore


def class_conditional(rows: Sequence[Row], classes: Sequence[int], alpha: float) -> dict[int, Cut]:
    """One split conformal threshold for each class that occurs, on its own rows."""
    own: dict[int, list[Fraction]] = {}
    for row, y in zip(rows, classes, strict=True):
        own.setdefault(y, []).append(1 - Fraction(row[y]))
    return {y: conformal_cut(values, alpha) for y, values in own.items()}


def recall_control(rows: Sequence[Row], positives: Sequence[set[int]], alpha: float) -> float:
    """The largest λ with (Σ loss + 1)/(N + 1) <= α, loss the share of positives below λ; -inf if there is none."""
    kept = [(row, own) for row, own in zip(rows, positives, strict=True) if own]
    steps = sorted(
        ((row[j], Fraction(1, len(own))) for row, own in kept for j in own), key=lambda step: step[0], reverse=True
    )
    budget = decimal(alpha) * (len(kept) + 1) - 1
    loss = Fraction(len(kept))
    for place, (score, gain) in enumerate(steps):
        loss -= gain
        if loss <= budget and (place + 1 == len(steps) or steps[place + 1][0] < score):
            return score
    return -math.inf


def threshold_sets(rows: Sequence[Row], threshold: float) -> list[set[int]]:
    """Present labels whose score is at least the threshold."""
    return [{j for j in ranking(row) if row[j] >= threshold} for row in rows]


def misses(sets: Sequence[set[int]], positives: Sequence[set[int]]) -> Fraction:
    """Mean share of the positives outside the set, over the rows that have some."""
    shares = [Fraction(len(own - found), len(own)) for found, own in zip(sets, positives, strict=True) if own]
    return sum(shares, Fraction(0)) / len(shares)


def f1(found: Iterable[bool], truth: Iterable[bool]) -> Fraction:
    """2 TP / (2 TP + FP + FN) of one label; 0 if it is neither predicted nor present."""
    pairs = list(zip(found, truth, strict=True))
    hits, total = sum(a and b for a, b in pairs), sum(a for a, _ in pairs) + sum(b for _, b in pairs)
    return Fraction(2 * hits, total) if total else Fraction(0)


def best_f1(scores: Sequence[float], truth: Sequence[bool]) -> Fraction:
    """The best F1 of any threshold on the scores of one label."""
    return max(f1([s >= t for s in scores], truth) for t in [*scores, math.inf])

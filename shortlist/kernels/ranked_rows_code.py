"""Numba code for ranks, masses and hashes of rows.

Masses are rounded to multiples of a small part of the largest one, so that their sums are exact in any order: what is
selected here equals what sorting and adding up selects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled

_PRIME = 2**31 - 1
_BUCKETS = 256
# Buckets hold an eighth of a power of two: floats that agree in their exponent and their first 3 bits.
_BITS = 20


@compiled()
def hashes(scores: Any, factors: Any, out: Any, start: int, stop: int) -> None:
    """For each score, two integers: its whole part and the rest, times their factors; the sum of all of a row."""
    n = scores.shape[1]
    for row in range(start, stop):
        total = np.int64(0)
        for label in range(n):
            fixed = min(max(np.float64(scores[row, label]), -(2.0**20)), 2.0**20) * 2.0**32
            whole = np.floor(fixed)
            total += _product(np.int64(whole), factors[label])
            total += _product(np.int64((fixed - whole) * 2.0**52), factors[n + label])
        out[row] = total % _PRIME


@compiled()
def _product(number: Any, factor: Any) -> Any:
    """Congruent to the product modulo the prime, below 2**32: 2**31 is congruent to 1."""
    number = (number & _PRIME) + (number >> 31)
    product = ((number & _PRIME) + (number >> 31)) * factor
    return (product & _PRIME) + (product >> 31)


@compiled()
def places(probs: Any, labels: Any, ranks: Any, masses: Any, start: int, stop: int) -> None:
    """The rank of a label, and the mass of those before it; of equal ones the lower label comes first."""
    n = probs.shape[1]
    for row in range(start, stop):
        own, label, unit = probs[row, labels[row]], labels[row], _unit(probs[row])
        rank, mass = 1, 0.0
        for other in range(label):
            if probs[row, other] >= own:
                rank += 1
                mass += _rounded(probs[row, other], unit)
        for other in range(label + 1, n):
            if probs[row, other] > own:
                rank += 1
                mass += _rounded(probs[row, other], unit)
        ranks[row], masses[row] = rank, mass


@compiled()
def first_labels(
    probs: Any,
    shares: Any,
    limits: Any,
    marks: Any,
    by_rank: bool,
    weight: float,
    free: float,
    start: int,
    stop: int,
) -> None:
    """Mark labels with a level below their row's limit by 1, at the limit by 2, and the others by 0.

    Labels are counted in buckets of similar size. Whole buckets are inside while the level of their last label must be;
    from there on labels are sorted, bucket by bucket.
    """
    n = probs.shape[1]
    counts, sums = np.zeros(_BUCKETS, np.int64), np.zeros(_BUCKETS, np.float64)
    ordered = np.empty(n, np.int64)
    for row in range(start, stop):
        p, share, limit = probs[row], shares[row], limits[row]
        bits, unit = p.view(np.int32) & np.int32(0x7FFFFFFF), _unit(p)  # of 0 and -0 the same
        best = abs(np.float64(p.max()))
        top = bits.max() >> _BITS
        counts[:], sums[:] = 0, 0.0
        for label in range(n):
            bucket = min(top - (bits[label] >> _BITS), _BUCKETS - 1)
            counts[bucket] += 1
            sums[bucket] += _rounded(p[label], unit)
        rank, mass, whole = 0, 0.0, 0
        while whole < _BUCKETS:
            after, total = rank + counts[whole], mass + sums[whole]
            if not _level(by_rank, after, total, 0.0, best, share, weight, free) < limit:
                break
            rank, mass, whole = after, total, whole + 1
        for label in range(n):
            marks[row, label] = min(top - (bits[label] >> _BITS), _BUCKETS - 1) < whole
        for bucket in range(whole, _BUCKETS):
            if not counts[bucket]:
                continue
            size = 0
            for label in range(n):
                if min(top - (bits[label] >> _BITS), _BUCKETS - 1) == bucket:
                    ordered[size] = (np.int64(-bits[label]) << 32) + label
                    size += 1
            ordered[:size].sort()
            for place in range(size):
                label = ordered[place] & 0xFFFFFFFF
                rank += 1
                level = _level(by_rank, rank, mass, _rounded(p[label], unit), best, share, weight, free)
                if not level <= limit:
                    break
                marks[row, label] = 2 if level == limit else 1
                mass += _rounded(p[label], unit)
            else:
                continue
            break


@compiled()
def _level(
    by_rank: bool, rank: int, mass: float, own: float, best: float, share: float, weight: float, free: float
) -> float:
    """By rank: the best probability plus a weight for each rank beyond the first; else the mass and a penalty."""
    if by_rank:
        return share * best if rank <= 1 else best + (rank - 2 + share) * weight
    return mass + share * own + weight * max(rank - free, 0.0)


@compiled()
def _unit(p: Any) -> float:
    """Adding and subtracting it rounds a probability, so that sums of the row are exact."""
    return np.float64(p.max()) * (2.0 * len(p))


@compiled()
def _rounded(p: float, unit: float) -> float:
    return (np.float64(p) + unit) - unit

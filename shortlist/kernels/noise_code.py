"""Numba code of noised order statistics: the k-th largest of ``x + epsilon Z``, for many draws of ``Z``.

The noise of a label is a function of its two words and of the draw's multiplier (`shortlist.functional.noise`), so it
can be evaluated for any label independently. We choose a threshold that slightly more than k noised labels should
exceed, and sort the labels of a row into buckets of nearly equal logits. A label in a bucket that ends at the logit
``b`` can exceed the threshold only if its noise exceeds ``(threshold - b) / epsilon``, that is if its 32 random bits
are small. Only such labels are evaluated. If at least k values exceed the threshold, the k-th largest of all is among
them; otherwise, which is rare, all labels are evaluated. The result therefore does not depend on the threshold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled

_BUCKETS, _PER_BUCKET, _STEP = 96, 2, 1 / 8
"""Number of steps, of ``_STEP`` epsilon each, per bucket; thresholds lie at whole numbers of steps."""

_STEPS = _BUCKETS * _PER_BUCKET
_REACHED = np.array([0.5 * math.erfc(_STEP * (i - _STEPS) / math.sqrt(2)) for i in range(2 * _STEPS)])
"""The probability that noise exceeds the level ``_STEP * (i - _STEPS)``."""

_HEAD = 4.5
"""How far above the k-th largest logit the buckets start, in epsilon: noise lifts the k-th of many labels that high."""

_BINS = 64
_SPARE = 2.5
"""Safety margin, in standard deviations, by which more than k labels should exceed the threshold."""

# The noise that is exceeded with probability exp(-r^2), r from sqrt(log 2) to 9: (U5 r^5 + ...) / (D4 r^4 + ... + 1),
# with an error of 4e-9 times that noise, or times 0.7 where the noise is smaller.
_U5, _U4, _U3, _U2, _U1, _U0 = (
    np.float32(c) for c in (0.687247402, 7.99974766, 18.7861083, 1.73681980, -15.4549940, -3.29629081)
)
_D4, _D3, _D2, _D1 = (np.float32(c) for c in (0.485864128, 5.66511574, 14.4326862, 9.40719061))
_L3, _L5, _L7, _L9, _LN2 = (np.float32(c) for c in (1 / 3, 1 / 5, 1 / 7, 1 / 9, math.log(2)))
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_ROOT_HALF, _EXPONENT = np.int32(0x3F3504F3), np.int32(23)
_GOLDEN, _ALL = np.uint64(0x9E3779B97F4A7C15), np.uint32(0xFFFFFFFF)
_LOW, _EVEN = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFE)
_NONE = np.uint64(0)


@compiled()
def _mix(z: Any) -> Any:
    """The output function of SplitMix64 (Steele, Lea, Flood): 64 random bits for a state."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled("contract", "nsz")
def _noise(tails: Any, bits: Any, signs: Any, exponents: Any, out: Any) -> None:
    """The noise that is exceeded with probability ``tails``; the arrays in between are workspace."""
    parts = bits.view(np.float32)
    for i in range(tails.shape[0]):
        upper = tails[i] < 0.5
        tail = tails[i] if upper else 1 - tails[i]
        signs[i] = _ONE if upper else -_ONE
        parts[i] = np.float32(tail)
    for i in range(tails.shape[0]):
        exponent = (bits[i] - _ROOT_HALF) >> _EXPONENT
        exponents[i] = np.float32(exponent)
        bits[i] -= exponent << _EXPONENT
    for i in range(tails.shape[0]):
        rest = parts[i] - _ONE
        s = rest / (_TWO + rest)
        w = s * s
        logarithm = exponents[i] * _LN2 + _TWO * s * ((((_L9 * w + _L7) * w + _L5) * w + _L3) * w + _ONE)
        r = np.sqrt(-logarithm)
        up = ((((_U5 * r + _U4) * r + _U3) * r + _U2) * r + _U1) * r + _U0
        down = (((_D4 * r + _D3) * r + _D2) * r + _D1) * r + _ONE
        out[i] = signs[i] * (up / down)


@compiled()
def _range(x: Any) -> Any:
    """The minimum and the maximum; NaN if not all are finite."""
    low, high, odd = x[0], x[0], np.float32(0)
    for j in range(x.shape[0]):
        low = x[j] if x[j] < low else low
        high = x[j] if x[j] > high else high
        odd += x[j] - x[j]
    return np.float64(low) + odd, np.float64(high) + odd


@compiled()
def _above_the_kth(x: Any, k: Any, low: Any, high: Any, least: Any, counts: Any) -> Any:
    """A number at most ``least`` above the k-th largest, or within rounding of it; fewer than k exceed it."""
    wanted = k
    for _ in range(40):
        width = (high - low) / _BINS
        if width * _BINS <= least or not low < low + width:
            break
        counts[:_BINS] = 0
        for j in range(x.shape[0]):
            if low <= x[j] <= high:
                counts[min(int((x[j] - low) / width), _BINS - 1)] += 1
        place = _BINS - 1
        while counts[place] < wanted and place > 0:
            wanted -= counts[place]
            place -= 1
        low, high = low + place * width, high if place == _BINS - 1 else low + (place + 1) * width
    return high


@compiled()
def _fill_buckets(x: Any, top: Any, width: Any, bucket: Any, counts: Any) -> None:
    """The bucket of each label, in steps of ``width`` down from ``top``, and bucket sizes; the outer ones are open."""
    last, per_width = np.float32(_BUCKETS - 1), np.float32(1 / width)
    near, far = np.float32(top), np.float32(top - np.float32(top))
    for j in range(x.shape[0]):
        depth = ((near - x[j]) + far) * per_width
        depth = depth if depth > _ZERO else _ZERO
        bucket[j] = np.int32(depth if depth < last else last)
    counts[:] = 0
    for j in range(x.shape[0]):
        counts[bucket[j]] += 1


@compiled()
def _steps_down(counts: Any, wanted: Any) -> Any:
    """The smallest number of steps below the top at which ``wanted`` labels are expected; ``_STEPS`` if none."""
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high) // 2
        expected = 0.0
        for b in range(_BUCKETS):
            at = _PER_BUCKET * b + _PER_BUCKET // 2 - middle + _STEPS
            expected += counts[b] * _REACHED[at]
        if expected >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@compiled()
def label_words(seed: Any, factors: Any, terms: Any) -> None:
    """The two words of each label: an even factor and an odd term."""
    state = _mix(~seed)
    for j in range(factors.shape[0]):
        word = _mix(state + _GOLDEN * np.uint64(j + 1))
        factors[j] = np.uint32(word & _EVEN)
        terms[j] = np.uint32((word >> np.uint64(32)) | np.uint64(1))


@compiled()
def _mark(multiplier: Any, factors: Any, terms: Any, levels: Any, hits: Any) -> None:
    for j in range(levels.shape[0]):
        hits[j] = np.uint8(np.uint32(factors[j] * multiplier + terms[j]) <= levels[j])


@compiled()
def _draw(multiplier: Any, factors: Any, terms: Any, levels: Any, hits: Any, labels: Any, tails: Any) -> Any:
    """Collect the labels whose 32 random bits are at most their level, with the probability that noise exceeds theirs;
    return their number.
    """
    _mark(multiplier, factors, terms, levels, hits)
    groups, count = hits.view(np.uint64), 0
    for i in range(groups.shape[0]):
        if groups[i] != _NONE:  # eight labels at a time
            for j in range(8 * i, 8 * i + 8):
                labels[count] = j
                count += np.int64(hits[j])
    for i in range(count):
        tails[i] = np.uint32(factors[labels[i]] * multiplier + terms[labels[i]]) * 2.0**-32
    return count


@compiled()
def _select(values: Any, labels: Any, count: Any, k: Any) -> Any:
    """The k-th largest of the first ``count`` values and its label; reorders both arrays."""
    low, high, place = 0, count - 1, k - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                labels[i], labels[j] = labels[j], labels[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place], labels[place]


@compiled()
def _keep(x: Any, epsilon: Any, threshold: Any, labels: Any, noise: Any, values: Any, kept: Any) -> Any:
    """Collect the noised values that exceed the threshold, and their labels; return their number."""
    count = 0
    for i in range(noise.shape[0]):
        value = x[labels[i]] + epsilon * noise[i]
        values[count], kept[count] = value, labels[i]
        count += 1 if value >= threshold else 0
    return count


@compiled()
def noised_kth(
    x: Any,
    k: Any,
    epsilon: Any,
    samples: Any,
    seed: Any,
    factors: Any,
    terms: Any,
    first: Any,
    last: Any,
    offset: Any,
    places: Any,
) -> None:
    """The place of the k-th largest noised value in each sample, and the mean of epsilon times the noise there.

    Processes the rows from ``first`` to ``last``; the offset of a row that is not finite is NaN.
    """
    n = x.shape[1]
    padded = (n + 7) // 8 * 8
    hits, labels = np.zeros(padded, np.uint8), np.empty(padded + 8, np.int32)
    kept, tails, values = np.empty(n + 1, np.int32), np.empty(n + 1), np.empty(n + 1)
    bits, signs = np.empty(n, np.int32), np.empty(n, np.float32)
    exponents, noise = np.empty(n, np.float32), np.empty(n, np.float32)
    bucket, bins, counts = np.empty(n, np.int32), np.empty(_BINS, np.int64), np.empty(_BUCKETS, np.int64)
    levels, everything = np.empty(n, np.uint32), np.full(n, _ALL, np.uint32)
    level_of = np.empty(_BUCKETS, np.uint32)
    width = _PER_BUCKET * _STEP * epsilon
    for i in range(first, last):
        low, high = _range(x[i])
        if not high - low < np.inf:
            offset[i] = np.nan
            continue
        if high - low > (_BUCKETS * _PER_BUCKET * _STEP - _HEAD) * epsilon:
            high = _above_the_kth(x[i], k, low, high, width, bins)
        top = high + _HEAD * epsilon
        _fill_buckets(x[i], top, width, bucket, counts)
        steps = _steps_down(counts, k + _SPARE * math.sqrt(k) + 1)
        threshold = top - steps * _STEP * epsilon if steps < _STEPS else -np.inf
        for b in range(_BUCKETS):
            # Slightly beyond the end of the bucket, for logits that were rounded into it.
            reached = min(1.001 * _REACHED[_PER_BUCKET * b - steps + _STEPS], 1.0)
            level_of[b] = _ALL if b == 0 or steps == _STEPS else np.uint32(reached * (2.0**32 - 1))
        for j in range(n):
            levels[j] = level_of[bucket[j]]
        row_key, total = _mix(seed + _GOLDEN * np.uint64(i + 1)), 0.0
        for sample in range(samples):
            multiplier = np.uint32(_mix(row_key + _GOLDEN * np.uint64(sample + 1)) & _LOW)
            count = _draw(multiplier, factors, terms, levels, hits, labels, tails)
            _noise(tails[:count], bits, signs, exponents, noise)
            reaching = _keep(x[i], epsilon, threshold, labels, noise[:count], values, kept)
            if reaching < k:
                count = _draw(multiplier, factors, terms, everything, hits, labels, tails)
                _noise(tails[:count], bits, signs, exponents, noise)
                reaching = _keep(x[i], epsilon, -np.inf, labels, noise[:count], values, kept)
            value, label = _select(values, kept, reaching, k)
            total += value - x[i, label]
            places[i, sample] = label
        offset[i] = total / samples

"""The machine code of noised order statistics: the k-th largest of ``x + epsilon Z``, for many draws of ``Z``.

A row is put in order roughly, into buckets of nearly equal logits. A threshold is chosen that a few more than k noised
labels should exceed. A label in a bucket that ends at the logit ``b`` can do so only if its noise exceeds the level
``(threshold - b) / epsilon``, which in most buckets has a small probability ``q``. The labels whose noise exceeds the
level are found by skipping over the others, and get a value from the normal distribution above it. If k values or more
exceed the threshold, the k-th largest of all is among them. If not, which is rare, the missing noise is drawn too, from
the normal distribution below the levels. So the law is exact wherever the threshold lies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shortlist.kernels.compilation import compiled

_BUCKETS, _PER_BUCKET, _STEP = 48, 4, 1 / 8
"""A bucket spans so many steps of ``_STEP`` epsilon each; a threshold lies at a whole number of steps."""

_STEPS = _BUCKETS * _PER_BUCKET
_REACHED = np.array([0.5 * math.erfc(_STEP * (i - _STEPS) / math.sqrt(2)) for i in range(2 * _STEPS)])
"""The probability that noise exceeds the level ``_STEP * (i - _STEPS)``."""

_HEAD = 4.5
"""How far above the k-th largest logit the buckets start, in epsilon: noise lifts the k-th of many labels so high."""

_BINS = 64
_SPARE = 2.5
"""By so many deviations more than k labels should exceed the threshold."""

_DENSE = 1 / 8
"""Where this share of a bucket exceeds the level, every label is asked; else those that do not are skipped."""

_HAZARD = -np.log1p(-np.minimum(_REACHED, _DENSE))
"""Of such a level: how many labels are skipped is geometric, a whole number of an exponential number over this rate."""

# The noise that is exceeded with probability exp(-r^2), r from sqrt(log 2) to 9: (U5 r^5 + ...) / (D4 r^4 + ... + 1),
# with an error of 4e-9 times that noise, or times 0.7 where it is less.
_U5, _U4, _U3, _U2, _U1, _U0 = (
    np.float32(c) for c in (0.687247402, 7.99974766, 18.7861083, 1.73681980, -15.4549940, -3.29629081)
)
_D4, _D3, _D2, _D1 = (np.float32(c) for c in (0.485864128, 5.66511574, 14.4326862, 9.40719061))
_L3, _L5, _L7, _L9, _LN2 = (np.float32(c) for c in (1 / 3, 1 / 5, 1 / 7, 1 / 9, math.log(2)))
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_ROOT_HALF, _EXPONENT = np.int32(0x3F3504F3), np.int32(23)
_LEAST = 1e-35
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled()
def _number(z: Any) -> Any:
    """The number in (0, 1), of 53 bits, that the generator SplitMix64 (Steele, Lea, Flood) has for a state."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53 + 2.0**-54


@compiled()
def _uniform(state: Any) -> Any:
    """The next number of a state."""
    state[0] += _GOLDEN
    return _number(state[0])


@compiled("contract", "nsz")
def _noise(tails: Any, bits: Any, signs: Any, exponents: Any, out: Any) -> None:
    """The noise that is exceeded with probability ``tails``; the arrays between are room to work in."""
    parts = bits.view(np.float32)
    for i in range(tails.shape[0]):
        upper = tails[i] < 0.5
        tail = tails[i] if upper else 1 - tails[i]
        signs[i] = _ONE if upper else -_ONE
        parts[i] = np.float32(tail if tail > _LEAST else _LEAST)
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
    """The least and the largest; NaN if not all are finite."""
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
def _fill_buckets(x: Any, top: Any, width: Any, bucket: Any, starts: Any, order: Any) -> None:
    """The labels by buckets of ``width`` from ``top`` down; what lies beyond either end is in the last one there."""
    n, last, per_width = x.shape[0], np.float32(_BUCKETS - 1), np.float32(1 / width)
    near, far = np.float32(top), np.float32(top - np.float32(top))
    for j in range(n):
        depth = ((near - x[j]) + far) * per_width
        depth = depth if depth > _ZERO else _ZERO
        bucket[j] = np.int32(depth if depth < last else last)
    starts[:] = 0
    for j in range(n):
        starts[bucket[j] + 2] += 1
    for b in range(2, _BUCKETS + 2):
        starts[b] += starts[b - 1]
    for j in range(n):
        order[starts[bucket[j] + 1]] = j
        starts[bucket[j] + 1] += 1


@compiled()
def _steps_down(starts: Any, wanted: Any) -> Any:
    """The least number of steps below the top at which ``wanted`` labels are expected; ``_STEPS`` if there is none."""
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high) // 2
        expected = 0.0
        for b in range(_BUCKETS):
            at = _PER_BUCKET * b + _PER_BUCKET // 2 - middle + _STEPS
            expected += (starts[b + 1] - starts[b]) * _REACHED[at]
        if expected >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@compiled()
def _draw(order: Any, starts: Any, q: Any, hazard: Any, state: Any, labels: Any, tails: Any) -> Any:
    """The labels whose noise exceeds the level of their bucket, and the probability to exceed that noise; how many."""
    count, left = 0, -math.log(_uniform(state))
    for b in range(_BUCKETS):
        j, stop, share, rate = starts[b], starts[b + 1], q[b], hazard[b]
        if share > _DENSE:
            z = state[0]  # apart from memory that the compiler must believe to be written to
            for place in range(j, stop):
                z += _GOLDEN
                tail = _number(z)
                labels[count], tails[count] = order[place], tail
                count += 1 if tail < share else 0
            state[0] = z
        else:
            while left < (stop - j) * rate:
                j = min(j + int(left / rate), stop - 1)
                labels[count], tails[count] = order[j], share * _uniform(state)
                count += 1
                j += 1
                left = -math.log(_uniform(state))
            left -= (stop - j) * rate
    return count


@compiled()
def _draw_rest(bucket: Any, q: Any, state: Any, seen: Any, count: Any, labels: Any, tails: Any) -> Any:
    """Every label that has none gets noise below the level of its bucket; how many there are."""
    seen[:] = False
    for i in range(count):
        seen[labels[i]] = True
    for j in range(bucket.shape[0]):
        if not seen[j]:
            share = q[bucket[j]]
            labels[count], tails[count] = j, share + (1 - share) * _uniform(state)
            count += 1
    return count


@compiled()
def _select(values: Any, labels: Any, count: Any, k: Any) -> Any:
    """The k-th largest of the first ``count`` values, and its label; both arrays are put in another order."""
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
    """The noised values that exceed the threshold, and their labels; how many."""
    count = 0
    for i in range(noise.shape[0]):
        value = x[labels[i]] + epsilon * noise[i]
        values[count], kept[count] = value, labels[i]
        count += 1 if value >= threshold else 0
    return count


@compiled()
def noised_kth(
    x: Any, k: Any, epsilon: Any, samples: Any, seed: Any, first: Any, last: Any, mean: Any, share: Any
) -> None:
    """The mean of the k-th largest noised value, and the share of the samples in which each label is it.

    Of the rows from ``first`` to ``last``; a row that is not finite has the mean NaN. What is drawn for a row depends
    on the seed and on the place of the row alone.
    """
    n = x.shape[1]
    order, labels, kept = np.empty(n, np.int32), np.empty(n + 1, np.int32), np.empty(n + 1, np.int32)
    tails, values = np.empty(n + 1), np.empty(n + 1)
    bits, signs = np.empty(n, np.int32), np.empty(n, np.float32)
    exponents, noise = np.empty(n, np.float32), np.empty(n, np.float32)
    bucket, seen, counts = np.empty(n, np.int32), np.empty(n, np.bool_), np.empty(_BINS, np.int64)
    starts, state = np.empty(_BUCKETS + 2, np.int64), np.empty(1, np.uint64)
    q, hazard = np.empty(_BUCKETS), np.empty(_BUCKETS)
    width = _PER_BUCKET * _STEP * epsilon
    for i in range(first, last):
        share[i] = 0
        low, high = _range(x[i])
        if not high - low < np.inf:
            mean[i] = np.nan
            continue
        if high - low > (_BUCKETS * _PER_BUCKET * _STEP - _HEAD) * epsilon:
            high = _above_the_kth(x[i], k, low, high, width, counts)
        top = high + _HEAD * epsilon
        _fill_buckets(x[i], top, width, bucket, starts, order)
        steps = _steps_down(starts, k + _SPARE * math.sqrt(k) + 1)
        threshold = top - steps * _STEP * epsilon if steps < _STEPS else -np.inf
        for b in range(_BUCKETS):
            level = _PER_BUCKET * b - steps + _STEPS
            q[b], hazard[b] = _REACHED[level], _HAZARD[level]
            if b == 0 or steps == _STEPS:
                q[b] = 1.0
        state[0] = np.uint64(seed)
        state[0] = np.uint64(_uniform(state) * 2.0**63) + np.uint64(i) * np.uint64(0xD1342543DE82EF95)
        total = 0.0
        for _ in range(samples):
            count = _draw(order, starts, q, hazard, state, labels, tails)
            _noise(tails[:count], bits, signs, exponents, noise)
            reaching = _keep(x[i], epsilon, threshold, labels, noise[:count], values, kept)
            if reaching < k:
                count = _draw_rest(bucket, q, state, seen, count, labels, tails)
                _noise(tails[:count], bits, signs, exponents, noise)
                reaching = _keep(x[i], epsilon, -np.inf, labels, noise[:count], values, kept)
            value, label = _select(values, kept, reaching, k)
            total += value
            share[i, label] += np.float32(1 / samples)
        mean[i] = total / samples

"""Numba code for the projections, row by row: LML and sparse-top, their gradients, and work sharing by threads.

Everything is in one file because numba's disk cache is keyed by the *file* of a function, while the functions it calls
are inlined.

LML is ``p = e / (e + s)`` with ``e = exp((x - center) / T)`` and ``center`` a little below the root; the scale ``s`` is
the root of ``sum_j e_j / (e_j + s) = k``. Away from plateaus it uses Halley's method on the log-odds of the mean of p,
which are nearly linear in ``log s``; on a plateau, Newton's method on the log-ratio of the sum of p below 1/2 to the
sum of 1 - p above. An ordinary row converges in two passes.

Sparse-top is ``p = clip((x - l) / T, 0, 1)``. The sum of p is piecewise linear in the threshold ``l``, so Newton's
method is exact once it reaches the right piece. The threshold is kept in float64; entries are compared with the nearest
float32, so that an offset loses no digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba import types

from shortlist.kernels.chooser import compiled, keeping

_SUMS = ("reassoc", "contract", "nsz")
"""Fast-math flags that let the compiler vectorize sums."""

_BLOCK = 1024
"""Entries summed in float32 before the sum moves to float64."""

_RUNS, _RUN = 8, 32
"""The initial guess samples this many runs of this many entries, spread over the row."""

_ABSENT = 1000.0
"""The guess ignores entries more than this many T below the largest of the sample."""

_PROBIT = 1.7**2
"""The logistic function is close to the normal distribution function with this variance."""

_RAMP = 1 / 12
"""Variance of a uniform variable: clip(x, 0, 1) is its distribution function."""

_ABOVE = 4.0
"""Expected distance of the LML root above the center, in units of T."""

_NEAR = 12.0
"""Maximum distance: up to it, p is computed down to float32's limit and 1 - p down to 1e-32."""

_UNDERFLOW = 1.2e-38 / 1e-6
"""The smallest exponential over the error that its underflow may cause."""

_ZERO, _ONE = np.float32(0), np.float32(1)
_EPS = 2.0**-23
_PER_LN2, _LN2, _LN2_REST = np.float32(1 / math.log(2)), np.float32(0.693359375), np.float32(-2.12194440e-4)
_ROUNDING = np.float32(3 * 2.0**22 + 127)
"""Adding this to a number leaves the nearest integer plus float32's exponent bias in the last bits."""

_C2, _C3, _C4, _C5, _C6 = (np.float32(1 / math.factorial(i)) for i in range(2, 7))
_EXPONENT = np.int32(23)


JOB = ("taken", "unsettled", "at_once", "rows", "labels", "columns", "k_step", "x", "y", "out", "k", "per_row")
"""The job shared by the threads of a kernel: 64-bit integers, followed by the temperature in float64.

``x``, ``y`` and ``out`` are addresses of ``(rows, labels)`` numbers, ``per_row`` of ``(rows, columns)``, all float32;
the ``k`` of row i is ``k[i * k_step]``.
"""

_SLOTS = len(JOB) + 1
_TAKEN, _UNSETTLED, _AT_ONCE, _ROWS, _LABELS, _COLUMNS, _K_STEP, _X, _Y, _OUT, _K, _PER_ROW = range(len(JOB))

carray = numba.carray  # pyright: ignore[reportPrivateImportUsage]
instruction: Any = numba.extending.intrinsic


def entry(function: Callable[[Any], None]) -> Callable[[], Any]:
    """Compile, on first use, a kernel that gets its arrays from ``arrays`` and its rows from ``next_rows``."""
    compiler = keeping(numba.cfunc, types.void(types.voidptr), error_model="numpy")
    return functools.cache(lambda: compiler(function))


@instruction
def _add_atomically(context: Any, address: Any, slot: Any, amount: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)
        slot = builder.add(builder.ptrtoint(arguments[0], whole), builder.mul(arguments[1], ir.Constant(whole, 8)))
        return builder.atomic_rmw("add", builder.inttoptr(slot, ir.PointerType(whole)), arguments[2], "monotonic")

    return types.int64(types.voidptr, types.int64, types.int64), generate


@instruction
def _floats(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.PointerType(ir.FloatType()))

    return types.CPointer(types.float32)(types.int64), generate


@compiled()
def arrays(address: Any) -> Any:
    """``x``, ``y``, ``out``, ``per_row`` and the temperature of the job at ``address``."""
    job = carray(address, (_SLOTS,), np.int64)
    shape = job[_ROWS], job[_LABELS]
    x, y = carray(_floats(job[_X]), shape), carray(_floats(job[_Y]), shape)
    out = carray(_floats(job[_OUT]), shape)
    per_row = carray(_floats(job[_PER_ROW]), (job[_ROWS], job[_COLUMNS]))
    return x, y, out, per_row, carray(address, (_SLOTS,), np.float64)[-1]


@compiled()
def wanted(address: Any, row: Any) -> Any:
    """``k`` of a row."""
    job = carray(address, (_SLOTS,), np.int64)
    return np.float64(carray(_floats(job[_K]), (job[_ROWS],))[row * job[_K_STEP]])


@compiled()
def next_rows(address: Any) -> Any:
    """The next range of rows to process; empty if none are left."""
    job = carray(address, (_SLOTS,), np.int64)
    start = _add_atomically(address, _TAKEN, job[_AT_ONCE])
    return min(start, job[_ROWS]), min(start + job[_AT_ONCE], job[_ROWS])


@instruction
def bits_of(context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@instruction
def float_of(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@compiled("contract")
def exponentials(x: Any, center: Any, temperature: Any, e: Any) -> None:
    """``exp((x - center) / T)`` within 3e-7, and 0 below exp(-87.7)."""
    lowest, highest = np.float32(-88 * temperature), np.float32(87 * temperature)
    inverse = np.float32(1 / temperature)
    inverse_rest = np.float32(1 / temperature - inverse)
    for j in range(x.shape[0]):
        shifted = x[j] - center
        shifted = lowest if shifted < lowest else shifted  # this form propagates NaN
        shifted = highest if shifted > highest else shifted
        z = shifted * inverse + shifted * inverse_rest
        rounded = z * _PER_LN2 + _ROUNDING
        whole = rounded - _ROUNDING
        r = (z - whole * _LN2) - whole * _LN2_REST
        power = (((((_C6 * r + _C5) * r + _C4) * r + _C3) * r + _C2) * r + _ONE) * r + _ONE
        e[j] = power * float_of(bits_of(rounded) << _EXPONENT)


@compiled(*_SUMS)
def _lml_sums(e: Any, s: Any) -> Any:
    """Sums of p below 1/2, of 1 - p above, the number above, p (1 - p), and its derivative in the log-odds."""
    n = e.shape[0]
    below, above, count, slope, curve = 0.0, 0.0, 0.0, 0.0, 0.0
    for start in range(0, n, _BLOCK):
        b, a, c, q, v = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
        part = e[start : start + _BLOCK]
        for j in range(part.shape[0]):
            inverse = _ONE / (part[j] + s)
            p, rest = part[j] * inverse, s * inverse
            top = _ONE if part[j] > s else _ZERO
            product = p * rest
            b += p * (_ONE - top)
            a += rest * top
            c += top
            q += product
            v += product * (rest - p)
        below, above, count, slope, curve = below + b, above + a, count + c, slope + q, curve + v
    return below, above, count, slope, curve


@compiled()
def _largest(x: Any) -> Any:
    """The largest entry; entries are compared as integers, which the compiler vectorizes."""
    best = np.int32(-(2**31))
    for j in range(x.shape[0]):
        bits = bits_of(x[j])
        best = max(best, bits ^ ((bits >> np.int32(31)) & np.int32(2**31 - 1)))
    return float_of(best ^ ((best >> np.int32(31)) & np.int32(2**31 - 1)))


@compiled(*_SUMS)
def _moments(x: Any, origin: Any, reach: Any) -> Any:
    """Count of entries at most ``reach`` below ``origin``, and the sums of x - origin and its square over them."""
    count, total, square = _ZERO, _ZERO, _ZERO
    for j in range(x.shape[0]):
        z = x[j] - origin
        near = _ONE if z > -reach else _ZERO
        z = near * (z if z > -reach else _ZERO)
        count += near
        total += z
        square += z * z
    return count, total, square


@compiled()
def _normal(x: Any, k: Any, temperature: Any) -> Any:
    """Mean and variance of a sample of the row, the share of k, and the normal quantile that this share exceeds."""
    n = x.shape[0]
    runs, length = (_RUNS, _RUN) if n > _RUNS * _RUN else (1, n)
    largest = x[0]
    for run in range(runs):
        start = run * (n - length) // max(runs - 1, 1)
        largest = max(largest, _largest(x[start : start + length]))
    count, total, square = 0.0, 0.0, 0.0
    for run in range(runs):
        start = run * (n - length) // max(runs - 1, 1)
        c, t, s = _moments(x[start : start + length], largest, np.float32(_ABSENT * temperature))
        count, total, square = count + c, total + t, square + s
    mean = total / count
    share = min(k * runs * length / (n * count), 1 - 1e-6)
    # The quantile of the normal distribution within 0.003 (Abramowitz and Stegun, 26.2.22).
    root = math.sqrt(-2 * math.log(min(share, 1 - share)))
    quantile = root - (2.30753 + 0.27061 * root) / (1 + (0.99229 + 0.04481 * root) * root)
    return largest + mean, max(square / count - mean * mean, 0.0), quantile if share < 0.5 else -quantile, share


@compiled()
def _lml_step(sums: Any, k: Any, n: Any) -> Any:
    """The step of ``-log s`` toward the root, and the tolerance at which it is the last one."""
    below, above, count, slope, curve = sums
    excess = (below - above) + (count - k)
    if below + above < 0.5:
        left, right = below + max(count - k, 0.0), above + max(k - count, 0.0)
        return math.log(right / left) * (below + above) / (slope * (below / left + above / right)), 1e-3
    total = k + excess
    room = total * (n - total)
    step = (math.log1p(-excess / (n - k)) - math.log1p(excess / k)) * room / (n * slope)
    bend = 1 + 0.5 * step * (curve / slope - slope * (n - 2 * total) / room)
    return (step / bend if 0.5 < bend < 2 else step), 5e-3


@compiled()
def _lml_row(x: Any, k: Any, temperature: Any, e: Any) -> Any:
    """The center, ``log s`` and whether the row converged; fills ``e``."""
    n = x.shape[0]
    if not 0 < k < n:
        return _ZERO, 0.0, False
    # If the row were normal, the mean of sigmoid would be close to a normal distribution function.
    mean, variance, quantile, _ = _normal(x, k, temperature)
    root = mean + quantile * math.sqrt(variance + _PROBIT * temperature * temperature)
    center, height = _ZERO, 0.0
    for _ in range(5):
        center, height, slope = np.float32(root - _ABOVE * temperature), _ABOVE, 0.0
        exponentials(x, center, temperature, e)
        low, high, step, enough = -80.0, 80.0, 1.0, 0.0
        for _ in range(20):
            sums = _lml_sums(e, np.float32(math.exp(height)))
            step, enough = _lml_step(sums, k, n)
            excess, slope = (sums[0] - sums[1]) + (sums[2] - k), sums[3]
            low, high = height if excess >= 0 else low, height if excess <= 0 else high
            new = height - step
            height = new if low <= new <= high else max(min((low + high) / 2, height + 20), height - 20)
            if not abs(step) > enough or not abs(height) < 40:
                break
        if not abs(step) <= enough and abs(height) < 40:  # too many steps, or NaN
            break
        if 0 <= height <= _NEAR:
            return center, height, n * _UNDERFLOW * math.exp(height) < slope
        root = center + temperature * height
    return center, height, False


@entry
def lml(job: Any) -> None:
    """``x, k -> out``: p; unconverged rows start with NaN."""
    x, _, out, _, temperature = arrays(job)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            e = out[i]
            _, height, settled = _lml_row(x[i], wanted(job, i), temperature, e)
            s = np.float32(math.exp(height))
            for j in range(e.shape[0]):
                e[j] = e[j] / (e[j] + s)
            if not settled:
                e[0] = np.nan
                _add_atomically(job, _UNSETTLED, 1)
        start, stop = next_rows(job)


@entry
def lml_root(job: Any) -> None:
    """``x, k -> per_row``: pivot and delta, ``p = sigmoid((x - pivot) / T + delta)``; delta is NaN if unconverged."""
    x, _, _, per_row, temperature = arrays(job)
    e = np.empty(x.shape[1], np.float32)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            per_row[i, 0], height, settled = _lml_row(x[i], wanted(job, i), temperature, e)
            per_row[i, 1] = -height
            if not settled:
                per_row[i, 1] = np.nan
                _add_atomically(job, _UNSETTLED, 1)
        start, stop = next_rows(job)


@compiled(*_SUMS)
def _lml_mean(p: Any, values: Any) -> Any:
    """The mean of ``values`` with weights ``p (1 - p)``."""
    total, weighted = 0.0, 0.0
    for start in range(0, p.shape[0], _BLOCK):
        t, w = _ZERO, _ZERO
        p_part, part = p[start : start + _BLOCK], values[start : start + _BLOCK]
        for j in range(p_part.shape[0]):
            q = p_part[j] * (_ONE - p_part[j])
            t += q
            w += q * part[j]
        total, weighted = total + t, weighted + w
    return weighted / max(total, 1.2e-38)


@compiled()
def _lml_center(p: Any, values: Any, mean: Any, temperature: Any, out: Any) -> None:
    inverse = np.float32(1 / temperature)
    for j in range(p.shape[0]):
        q = p[j] * (_ONE - p[j])
        moved = q * (values[j] - mean) * inverse  # this order keeps small numbers in range
        out[j] = _ZERO if q == _ZERO else moved


@entry
def lml_gradient(job: Any) -> None:
    """``x = p, y -> out = q (y - mean) / T``, with the mean of y weighted by ``q = p (1 - p)``."""
    p, values, out, _, temperature = arrays(job)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            mean = np.float32(_lml_mean(p[i], values[i]))
            _lml_center(p[i], values[i], mean, temperature, out[i])
        start, stop = next_rows(job)


@compiled("contract")
def _lml_slopes(e: Any, s: Any) -> None:
    """Replace the exponentials by ``q = p (1 - p)``; any other order of operations would overflow."""
    for j in range(e.shape[0]):
        inverse = _ONE / (e[j] + s)
        e[j] = (e[j] * inverse) * (s * inverse)


@compiled(*_SUMS)
def sum_of(values: Any) -> Any:
    total = 0.0
    for start in range(0, values.shape[0], _BLOCK):
        t = _ZERO
        part = values[start : start + _BLOCK]
        for j in range(part.shape[0]):
            t += part[j]
        total += t
    return total


@entry
def lml_root_gradient(job: Any) -> None:
    """``x, per_row -> out = y q / sum q``, with a row's pivot, delta and y; the last becomes ``1 / sum q``.

    ``out`` starts with NaN in rows whose root these kernels did not find.
    """
    x, _, out, per_row, temperature = arrays(job)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            height, total = -np.float64(per_row[i, 1]), 0.0
            if 0 <= height <= _NEAR:
                exponentials(x[i], per_row[i, 0], temperature, out[i])
                _lml_slopes(out[i], np.float32(math.exp(height)))
                total = sum_of(out[i])
            if x.shape[1] * _UNDERFLOW * math.exp(height) < total:
                value, inverse = per_row[i, 2], np.float32(1 / total)
                for j in range(x.shape[1]):
                    out[i, j] = (out[i, j] * inverse) * value
                per_row[i, 2] = inverse
            else:
                out[i, 0] = np.nan
                _add_atomically(job, _UNSETTLED, 1)
        start, stop = next_rows(job)


@compiled(*_SUMS)
def _clip_sums(x: Any, base: Any, inverse: Any, offset: Any) -> Any:
    """With ``z = (x - base) / T - offset``: how many are at least 1, how many lie in (0, 1), the sum of the latter."""
    n = x.shape[0]
    ones, inside, total = 0.0, 0.0, 0.0
    for start in range(0, n, _BLOCK):
        o, i, s = _ZERO, _ZERO, _ZERO
        part = x[start : start + _BLOCK]
        for j in range(part.shape[0]):
            z = (part[j] - base) * inverse - offset
            top, positive = _ONE if z >= _ONE else _ZERO, _ONE if z > _ZERO else _ZERO
            z = _ZERO if z < _ZERO else z  # this form propagates NaN
            z = _ONE if z > _ONE else z
            o += top
            i += positive * (_ONE - top)
            s += z * (_ONE - top)
        ones, inside, total = ones + o, inside + i, total + s
    return ones, inside, total


@compiled()
def _sparse_top_row(x: Any, k: Any, temperature: Any, p: Any) -> Any:
    """Fill ``p``; return whether the row converged."""
    n = x.shape[0]
    if not 0 < k < n:
        return False
    inverse = np.float32(1 / temperature)
    # If the row were normal, the sum would be n times the probability that an entry exceeds the threshold plus a
    # uniform variable, and the difference of a normal and a uniform variable is nearly normal.
    mean, variance, quantile, share = _normal(x, k, temperature)
    deviation = math.sqrt(variance + _RAMP * temperature * temperature)
    threshold = mean - 0.5 * temperature + quantile * deviation
    rate = math.exp(-0.5 * quantile * quantile) / (math.sqrt(2 * math.pi) * share) * (temperature / deviation)
    low, high, reach = -np.inf, np.inf, temperature
    for _ in range(40):
        base = np.float32(threshold)
        offset = np.float32((threshold - base) / temperature)
        ones, inside, part = _clip_sums(x, base, inverse, offset)
        total = ones + part
        miss = total - k
        if abs(miss) <= 8 * _EPS * part:
            offset = np.float32(offset + miss / max(inside, 1.0))
            for j in range(n):
                z = (x[j] - base) * inverse - offset
                z = _ZERO if z < _ZERO else z
                p[j] = _ONE if z > _ONE else z
            return True
        if not abs(miss) <= n:  # NaN
            return False
        low, high = threshold if miss > 0 else low, threshold if miss < 0 else high
        # From above, use the log of the sum, which decays exponentially.
        ratio = math.log(max(total, 0.5) / k)
        new = threshold + temperature * (ratio * total if miss > 0 else miss) / inside
        if not low < new < high:
            new = threshold + temperature * ratio / rate
        if not low < new < high:
            reach *= 2
            new = (low + high) / 2 if high - low < np.inf else threshold + (reach if miss > 0 else -reach)
        threshold = new
    return False


@entry
def sparse_top(job: Any) -> None:
    """``x, k -> out``: p; unconverged rows start with NaN."""
    x, _, p, _, temperature = arrays(job)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            if not _sparse_top_row(x[i], wanted(job, i), temperature, p[i]):
                p[i, 0] = np.nan
                _add_atomically(job, _UNSETTLED, 1)
        start, stop = next_rows(job)


@compiled(*_SUMS)
def _clip_mean(p: Any, values: Any) -> Any:
    """The mean of ``values`` where 0 < p < 1; NaN in a row that contains NaN."""
    count, total, known = 0.0, 0.0, 0.0
    for start in range(0, p.shape[0], _BLOCK):
        c, t, s = _ZERO, _ZERO, _ZERO
        p_part, part = p[start : start + _BLOCK], values[start : start + _BLOCK]
        for j in range(p_part.shape[0]):
            inside = (_ONE if p_part[j] > _ZERO else _ZERO) - (_ONE if p_part[j] >= _ONE else _ZERO)
            c += inside
            t += inside * part[j]
            s += p_part[j]
        count, total, known = count + c, total + t, known + s
    return total / max(count, 1.0) if known == known else np.nan


@compiled()
def _clip_center(p: Any, values: Any, mean: Any, temperature: Any, out: Any) -> None:
    inverse = np.float32(1 / temperature)
    for j in range(p.shape[0]):
        moved = (values[j] - mean) * inverse
        out[j] = _ZERO if p[j] == _ZERO or p[j] == _ONE else moved


@entry
def sparse_top_gradient(job: Any) -> None:
    """``x = p, y -> out = (y - mean) / T`` where 0 < p < 1, else 0; ``per_row`` is the mean of y there."""
    p, values, out, per_row, temperature = arrays(job)
    start, stop = next_rows(job)
    while start < stop:
        for i in range(start, stop):
            per_row[i, 0] = _clip_mean(p[i], values[i])
            _clip_center(p[i], values[i], per_row[i, 0], temperature, out[i])
        start, stop = next_rows(job)

"""Projections, potentials and building blocks for one row, from their definitions: slow, obvious, beyond float64.

A row is a sequence of floats; ``-inf`` marks an absent label, ``+inf`` a certain one. Answers are numbers of
``MP``, a private context of 80 digits: arithmetic on them keeps those digits and needs no global setting.
"""

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, combinations

import numpy as np

from tests.multiprecision import MP


def _sigmoid(z):
    """Both tails keep their relative precision: exponents of ``MP`` are unbounded."""
    return 1 / (1 + MP.exp(-z))


def _left(row, k):
    """Return the finite labels, and ``k`` minus the number of certain labels."""
    return [x for x in row if math.isfinite(x)], k - sum(x == math.inf for x in row)


def _project(row, k, solve, number=MP.mpf):
    """Apply the edge rules; ``solve(finite, left)`` is only called when 0 < left < len(finite)."""
    finite, left = _left(row, number(k))
    certain = number(1) if left >= 0 else number(k) / sum(x == math.inf for x in row)
    if left <= 0:
        inner = [number(0)] * len(finite)
    elif left >= len(finite):
        inner = [number(1)] * len(finite)
    else:
        inner = solve([number(x) for x in finite], left)
    values = iter(inner)
    return [MP.convert(next(values) if math.isfinite(x) else certain if x > 0 else 0) for x in row]


@lru_cache(maxsize=256)
def _dual_root(row, k):
    """Root of Σσ(x + ν) = k for a descending row of finite labels and 0 < k < n.

    With c = floor(k), the equation reads Σσ over the n - c lowest = Σ(1 - σ) over the c highest + (k - c).
    Every term is positive, so the logarithms of both sides tell their order even where Σσ is flat to 1000
    digits. Newton on the difference of these logarithms, inside a bracket that always holds the root.
    """
    c, weights = int(MP.floor(k)), [MP.exp(x) for x in row]
    center = MP.log(k / (len(row) - k))
    low, high = center - row[0] - 1, center - row[-1] + 1
    nu = (low + high) / 2
    for _ in range(1000):
        t = MP.exp(nu)
        odds = [w * t for w in weights]
        rest = [1 / (1 + o) for o in odds]  # 1 - σ
        p = [o * r for o, r in zip(odds, rest, strict=True)]
        q = [a * r for a, r in zip(p, rest, strict=True)]
        below, above = MP.fsum(p[c:]), MP.fsum(rest[:c]) + (k - c)
        residual = MP.log(below / above)
        slope = MP.fsum(q[c:]) / below + MP.fsum(q[:c]) / above
        low, high = (nu, high) if residual < 0 else (low, nu)
        step = residual / slope
        if abs(step) < MP.mpf(10) ** (25 - MP.dps) * (1 + abs(nu)):
            return nu - step
        nu = nu - step if low < nu - step < high else (low + high) / 2
    raise ArithmeticError(f"no root found for k = {k} in {row}")


def lml_dual(row, k, temperature=1):
    """ν with Σσ((x + ν)/T) = k; -inf if certain labels use up k, +inf if at most k labels are present."""
    finite, left = _left(row, MP.mpf(k))
    if left <= 0:
        return MP.ninf
    if left >= len(finite):
        return MP.inf
    row = sorted((MP.mpf(x) / temperature for x in finite), reverse=True)
    return temperature * _dual_root(tuple(row), left)


def lml(row, k, temperature=1):
    """p = σ((x + ν)/T), Σp = k."""
    nu = lml_dual(row, k, temperature)
    return _project(row, k, lambda finite, left: [_sigmoid((x + nu) / temperature) for x in finite])


def log_lml(row, k, temperature=1):
    """log p, with the relative precision of 1 - p where p is close to 1."""
    nu, probs = lml_dual(row, k, temperature), lml(row, k, temperature)
    return [
        -MP.log1p(MP.exp(-(x + nu) / temperature)) if math.isfinite(x) and MP.isfinite(nu) else MP.log(p)
        for x, p in zip(row, probs, strict=True)
    ]


def lml_jacobian(row, k):
    """Return ∂p_i/∂x_j for a finite row: Σ q_i (dx_i + dν) = 0 gives dν = -⟨q, dx⟩/Σq, with q = p(1 - p)."""
    nu = lml_dual(row, k)
    if not MP.isfinite(nu):
        return [[MP.mpf(0)] * len(row) for _ in row]
    q = [_sigmoid(x + nu) * _sigmoid(-x - nu) for x in map(MP.mpf, row)]
    shares = [b / MP.fsum(q) for b in q]
    matrix = [[-a * b for b in shares] for a in q]
    for i, line in enumerate(matrix):
        # q_i - q_i²/Σq, without its cancellation: a common shift of the row changes nothing.
        line[i] = -MP.fsum(line[:i] + line[i + 1 :])
    return matrix


def sparse_top(row, k):
    """p = clip(x - λ, 0, 1), Σp = k; Σp is linear in λ between neighbors among all x and x - 1."""

    def solve(finite, left):
        def total(lam):
            return sum(min(max(x - lam, 0), 1) for x in finite)

        points = sorted({x - step for x in finite for step in (0, 1)})
        i = bisect_left(points, -left, key=lambda lam: -total(lam))
        start, end = points[i - 1], points[i]
        lam = start + (end - start) * (total(start) - left) / (total(start) - total(end))
        return [min(max(x - lam, Fraction(0)), Fraction(1)) for x in finite]

    return _project(row, k, solve, Fraction)


def sparsemax(row):
    """p = (x - τ)+, Σp = 1: the support is the longest sorted prefix whose last label stays above its τ."""

    def solve(finite, left):
        ordered = sorted(finite, reverse=True)
        taus = [(total - 1) / size for size, total in enumerate(accumulate(ordered), start=1)]
        tau = [tau for x, tau in zip(ordered, taus, strict=True) if x > tau][-1]
        return [max(x - tau, Fraction(0)) for x in finite]

    return _project(row, 1, solve, Fraction)


def constrained_softmax(row, k):
    """p = min(1, e^x t), Σp = k: as few of the highest labels saturate as keep all others at most 1."""

    def solve(finite, left):
        weights = [MP.exp(x) for x in finite]
        ordered = sorted(weights, reverse=True)
        scales = ((left - m) / MP.fsum(ordered[m:]) for m in range(int(MP.ceil(left))))
        t = next(t for m, t in enumerate(scales) if ordered[m] * t <= 1)
        return [min(MP.mpf(1), w * t) for w in weights]

    return _project(row, k, solve)


def lml_budget(row, k, temperature=1):
    """σ(x/T) where that sums to at most k, else LML."""
    free = [_sigmoid(MP.mpf(x) / temperature) for x in row]
    return free if MP.fsum(free) <= k else lml(row, k, temperature)


def sparse_top_budget(row, k):
    """clip(x, 0, 1) where that sums to at most k, else sparse-top."""
    free = [min(max(MP.mpf(x), MP.mpf(0)), MP.mpf(1)) for x in row]
    return free if MP.fsum(free) <= k else sparse_top(row, k)


def sigmoid_potential(row):
    """Maximum of x·p + H_b(p) over the cube: Σ log(1 + e^x)."""
    return MP.fsum(MP.log1p(MP.exp(MP.mpf(x))) for x in row)


def softmax_potential(row):
    """Maximum of x·p - Σ p log p over the simplex: log Σ e^x."""
    return MP.log(MP.fsum(MP.exp(MP.mpf(x)) for x in row))


def lml_potential(row, k):
    """Maximum of x·p + H_b(p), H_b in nats, over Σp = k; +inf with a certain label."""
    nu = lml_dual(row, k)
    value = MP.fsum(x * p for x, p in zip(map(MP.mpf, row), lml(row, k), strict=True) if p > 0)
    if MP.isfinite(nu):
        for z in (MP.mpf(x) + nu for x in row if math.isfinite(x)):
            value += _sigmoid(z) * MP.log1p(MP.exp(-z)) + _sigmoid(-z) * MP.log1p(MP.exp(z))
    return value


def _euclidean_potential(row, probs):
    return MP.fsum(x * p + p * (1 - p) / 2 for x, p in zip(map(MP.mpf, row), probs, strict=True) if p > 0)


def sparse_top_potential(row, k):
    """Maximum of x·p + ½Σp(1 - p) over Σp = k; +inf with a certain label."""
    return _euclidean_potential(row, sparse_top(row, k))


def sparsemax_potential(row):
    """Maximum of x·p + ½Σp(1 - p) over the simplex; +inf with a certain label."""
    return _euclidean_potential(row, sparsemax(row))


def kth_largest(row, k):
    return sorted(map(MP.mpf, row), reverse=True)[k - 1]


def noised_kth_largest(row, k, noise, epsilon=1):
    """``noise`` has one line per sample."""
    values = [kth_largest([MP.mpf(x) + MP.mpf(epsilon) * z for x, z in zip(row, z, strict=True)], k) for z in noise]
    return MP.fsum(values) / len(values)


def log_elementary_symmetric(row, k):
    """log Σ over all k-subsets of e^(their sum)."""
    return MP.log(MP.fsum(MP.exp(MP.fsum(map(MP.mpf, chosen))) for chosen in combinations(row, k)))


def log_elementary_symmetric_by_recurrence(row, k):
    """S_j of one more number z is S_j + z S_{j-1}: n·k steps instead of all subsets."""
    sums = [MP.mpf(1)] + [MP.mpf(0)] * k
    for z in (MP.exp(MP.mpf(x)) for x in row):
        for j in range(k, 0, -1):
            sums[j] += z * sums[j - 1]
    return MP.log(sums[k])


def inclusion_probabilities(row, k):
    """Share of each label among the k-subsets weighted by e^(their sum): the gradient of log S_k."""
    subsets = list(combinations(range(len(row)), k))
    weights = [MP.exp(MP.fsum(MP.mpf(row[j]) for j in chosen)) for chosen in subsets]
    total = MP.fsum(weights)
    return [
        MP.fsum(w for w, chosen in zip(weights, subsets, strict=True) if j in chosen) / total for j in range(len(row))
    ]


def margins_from_counts(counts, largest=0.5):
    """C / count^¼, where C makes the margin of the rarest class ``largest``; without examples: ``largest``."""
    seen = [MP.root(c, 4) for c in counts if c > 0]
    return [MP.mpf(largest) * (min(seen) / MP.root(c, 4) if c > 0 else 1) for c in counts]


def _hard_rows():
    rng, inf = np.random.default_rng(0), math.inf
    ramp, noise = np.linspace(-1, 1, 20), rng.normal(size=20)
    table = [
        ("one label", [3.0], [1e-3, 0.5, 1 - 1e-3, 1]),
        ("two labels", [0.3, -0.4], [1e-3, 0.5, 1, 1.5, 2 - 1e-3]),
        ("two labels far apart", [1e3, 0], [0.5, 1, 1.5]),
        ("none wanted or all wanted", noise, [0, 20]),
        ("all equal", np.full(10, 0.7), [1e-3, 0.5, 1, 3, 9, 10 - 1e-3]),
        ("all equal and far from 0", np.full(50, -1e6), [1, 7.5, 50 - 1e-3]),
        ("gap of 1000 after 3 labels", np.concatenate([1e3 + noise[:3], noise[3:]]), [2, 2.5, 3, 3.5, 4]),
        ("gap of 1000, uneven sides", [500, 499, 480, -500, -540, -560], [3 - 1e-9, 3, 3 + 1e-9]),
        ("gaps of 1000 on both sides", np.concatenate([1e3 + ramp, ramp, ramp - 1e3]), [20, 30, 40.5]),
        ("offset of 1e6", 1e6 + 4 * noise, [1e-3, 1, 5, 5.5]),
        ("offset of -1e6", -1e6 + 4 * noise, [1, 5.5, 19, 20 - 1e-3]),
        ("huge spread", np.linspace(-1e4, 1e4, 101), [1e-3, 1, 10.5, 50, 100]),
        ("staircase by 100", 100.0 * np.arange(10), [0.5, 1, 4, 4.5, 9, 10 - 1e-3]),
        ("powers of two", 2.0 ** np.arange(-10, 14), [1, 8, 12.3, 23]),
        ("powers of two, both signs", np.outer([1, -1], 2.0 ** np.arange(-8, 12)).ravel(), [1, 20, 39.5]),
        ("ties at the k-th place", [5.0] * 2 + [1.0] * 30 + [-4.0] * 8, [2, 3, 17, 31.5, 32]),
        ("ties after a gap of 1000", [1e3] * 2 + [0.0] * 30, [1.5, 2, 2 + 1e-6, 3]),
        ("giant outlier above", [1e6, *noise], [0.5, 1, 1.5, 3]),
        ("giant outlier below", [-1e6, *noise], [0.5, 19, 20, 20.5]),
        ("outlier near the end of float32", [1e30, *noise], [1, 1.5]),
        ("differences of 1e-7", 0.5 + 1e-7 * np.arange(12), [1, 4, 11.5]),
        ("differences of 1e-7 and of 50", np.concatenate([1e-7 * noise, 50 + 1e-7 * noise]), [3, 20, 25]),
        ("just beside an integer", 3 * noise, [3 - 1e-6, 3 - 1e-12, 3 + 1e-12, 3 + 1e-6]),
        ("absent labels", [1.5, -inf, 0.2, -inf, -3.0, 2.0], [1e-3, 1, 2.5, 3, 4 - 1e-3]),
        ("as many present as wanted, or fewer", [0.4, -inf, 7.0, -inf], [2, 2.5, 4]),
        ("one present", [-inf, -2.0, -inf], [0.5, 1]),
        ("none present", [-inf, -inf, -inf], [0, 1]),
        ("absent labels beside a gap of 1000", [1e3, -inf, 0.0, 1.0, -inf], [1, 1.5, 2]),
        ("80 to 110 apart", [0, -80, -87.5, -88.75, -103, -104, -110], [1e-3, 1, 1.5, 2, 6, 6.5]),
        ("two groups 104 apart", np.concatenate([noise[:6], noise[6:] - 104]), [5, 6, 6.5]),
        ("700 to 760 apart", [0, -700, -709, -710, -745, -746, -760], [1e-3, 1, 1.5, 2, 6, 6.5]),
        ("two groups 1500 apart", np.concatenate([noise[:6], noise[6:] - 1500]), [5, 6, 6.5]),
    ]
    for scale in (0.1, 1, 3, 10, 30, 100):
        for n, ks in ((5, [1, 2.5]), (20, [0.5, 5]), (100, [1e-3, 10]), (200, [5, 200 - 1e-3])):
            table.append((f"{n} normal labels of scale {scale}", scale * rng.normal(size=n), ks))
    return [
        (f"{name}, k = {k}", [float(x) for x in np.asarray(row, dtype=np.float32)], float(k))
        for name, row, ks in table
        for k in ks
    ]


# Name, row and k of cases that break careless arithmetic; every logit is exact in float32, but not every k.
HARD_ROWS = _hard_rows()

"""How many label assignments a layer can output: exact counts, and their share of all 2^n."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator


def count_argmaxable(num_labels: int, dim: int, *, bias: bool = False) -> int:
    r"""Number of the ``2^n`` label assignments that a layer in general position can output.

    .. math:: |\mathcal{A}(W)| = 2 \sum_{j=0}^{d-1} \binom{n-1}{j}
              \quad\text{and, with a bias,}\quad \sum_{j=0}^{d} \binom{n}{j}

    Both are :math:`2^n` once :math:`d \ge n`. The number depends on the sizes alone, not on the weights, as long as
    any ``d`` rows are independent (`in_general_position` decides that) and, with a bias, any ``d + 1`` rows of
    ``[W, bias]`` too. Every other layer of these sizes can output fewer.

    Args:
        num_labels: n, the rows of the weight.
        dim: d, its columns.
        bias: whether the layer adds one.

    Returns:
        The exact count.

    Example:
        >>> count_argmaxable(3, 2), count_argmaxable(3, 2, bias=True), 2**3
        (6, 7, 8)

    References:
        Cover, "Geometrical and statistical properties of systems of linear inequalities", 1965, theorem 2.
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, theorem 1.
    """
    num_labels = _whole(num_labels, "num_labels")
    dim = _whole(dim, "dim")
    if dim >= num_labels:
        return 2**num_labels
    if bias:
        return _sum_of_binomials(num_labels, dim)
    return 2 * _sum_of_binomials(num_labels - 1, dim - 1)


def count_k_active(num_labels: int, k: int) -> int:
    r"""Number of label assignments with at most ``k`` active labels, :math:`\sum_{j=0}^{k} \binom{n}{j}`.

    Args:
        num_labels: n.
        k: the most labels that may be active, in [0, n].

    Returns:
        The exact count.

    Example:
        >>> count_k_active(6, 1)
        7
    """
    num_labels = _whole(num_labels, "num_labels")
    k = _whole(k, "k")
    if k > num_labels:
        raise ValueError(f"`k` must lie in [0, {num_labels}]; got {k}.")
    return _sum_of_binomials(num_labels, k)


def count_alternating(num_labels: int, changes: int) -> int:
    r"""Number of label assignments whose signs change at most ``changes`` times from the first label to the last.

    .. math:: |V_{n,c}| = 2 \sum_{j=0}^{c} \binom{n-1}{j}

    A layer whose maximal minors agree in sign (`minors_agree`) can output exactly the assignments with at most
    :math:`d - 1` changes, hence the equality with `count_argmaxable`. The DFT layer of degree ``k`` is one, with
    :math:`d = 2k + 1`; for its even number ``2k`` it does not matter whether the step from the last label back to the
    first is counted, because the number of changes around a circle is even.

    Args:
        num_labels: n.
        changes: c, at least 0; n - 1 and more allow every assignment.

    Returns:
        The exact count.

    Example:
        >>> count_alternating(6, 2), count_argmaxable(6, 3), count_k_active(6, 1)
        (32, 32, 7)

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, definition 7 and theorem 3.
    """
    changes = _whole(changes, "changes")
    return count_argmaxable(num_labels, changes + 1)


def log10_share(count: int, num_labels: int) -> float:
    r"""Logarithm :math:`\log_{10}(\text{count} / 2^n)`, right where the share underflows or rounds to 1.

    Args:
        count: how many assignments, in [0, 2^n].
        num_labels: n.

    Returns:
        At most 0; ``-inf`` for a count of 0.

    Example:
        >>> round(log10_share(count_argmaxable(1000, 50), 1000), 3)
        -217.031
        >>> log10_share(2**1000, 1000)
        0.0
    """
    num_labels = _whole(num_labels, "num_labels")
    count = _whole(count, "count")
    everything = 1 << num_labels
    if count > everything:
        raise ValueError(f"`count` must lie in [0, 2**{num_labels}]; got more.")
    if count == 0:
        return -math.inf
    missing = everything - count
    if missing == 0:
        return 0.0
    if missing < count:
        # Division of integers is correctly rounded, and log1p keeps the digits that log10(1 - tiny) would lose.
        return math.log1p(-(missing / everything)) / math.log(10)
    bits = count.bit_length()
    return math.log10(count / (1 << bits)) + (bits - num_labels) * math.log10(2)


def cumulative_binomials(n: int) -> Iterator[int]:
    r"""Yield :math:`\sum_{j \le m} \binom{n}{j}` for m = 0, 1, ..., n, each from the one before."""
    term = total = 1
    yield total
    for j in range(n):
        term = term * (n - j) // (j + 1)
        total += term
        yield total


def _sum_of_binomials(n: int, last: int) -> int:
    """Sum of the binomials of ``n`` up to and including ``last``; 0 for a negative ``last``."""
    if last < 0:
        return 0
    for m, total in enumerate(cumulative_binomials(n)):
        if m == last:
            return total
    return 2**n


def _whole(value: int, name: str) -> int:
    """``value`` as a Python int of at least 0: a fixed-width one would overflow in the powers of two."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a whole number; got {type(value).__name__}.") from None
    if value < 0:
        raise ValueError(f"`{name}` must be at least 0; got {value}.")
    return value

"""P-values and sequences of tests are those of the definition."""

import math
from fractions import Fraction

import pytest
import torch

from shortlist.sets.risk.admissible import accepted_in_sequence, hoeffding_bentkus
from tests.sets.worlds import seeded


def reference_p(total: float, rows: int, alpha: float) -> float:
    """Hoeffding-Bentkus with exact binomial sums."""
    mean = min(total / rows, alpha)
    terms = [(mean, mean / alpha), (1 - mean, (1 - mean) / (1 - alpha))]
    hoeffding = math.exp(-rows * sum(weight * math.log(ratio) for weight, ratio in terms if weight > 0))
    share = Fraction(alpha)
    masses = (math.comb(rows, k) * share**k * (1 - share) ** (rows - k) for k in range(math.ceil(total) + 1))
    return min(1.0, hoeffding, math.e * float(sum(masses)))


@pytest.mark.parametrize("rows", [1, 2, 17, 200])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.97])
def test_p_values_are_those_of_the_definition(rows, alpha):
    totals = torch.linspace(0, rows, 23, dtype=torch.float64)
    expected = [reference_p(total, rows, alpha) for total in totals.tolist()]
    found = hoeffding_bentkus(totals, rows, alpha)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-300)
    assert (found.diff() >= 0).all()


def test_p_values_of_a_million_rows_are_finite_and_exact_at_the_ends():
    found = hoeffding_bentkus(torch.tensor([0.0, 99_000.0, 100_000.0, 1e6]), 10**6, 0.1)
    assert found[-2:].tolist() == [1.0, 1.0]
    assert 0 <= found[0] < 1e-300
    assert 1e-5 < found[1] < 1e-2


def test_a_p_value_is_rarely_small_where_the_risk_is_at_the_bound():
    """Its distribution function lies below the diagonal, for losses of 0 and 1 and for others."""
    generator = seeded(0)
    for losses in (
        torch.rand(20_000, 50, generator=generator) < 0.3,
        0.6 * torch.rand(20_000, 50, generator=generator),
    ):
        p = hoeffding_bentkus(losses.double().sum(-1), 50, 0.3)
        for level in (0.01, 0.1, 0.3):
            assert (p <= level).double().mean() <= level + 4 * math.sqrt(level / 20_000)


def reference_sequence(p: list[float], delta: float, full: bool, empty: bool) -> list[bool]:
    """Walk from candidate to candidate."""
    accepted = [False] * len(p)

    def walk(start: int, by: int, level: float) -> None:
        while 0 <= start < len(p) and p[start] <= level:
            accepted[start] = True
            start += by

    if full or empty:
        walk(0 if full else len(p) - 1, 1 if full else -1, delta)
        return accepted
    step = math.ceil(len(p) / 40)
    starts = list(range(min(step // 2, len(p) - 1), len(p), step))
    for start in starts:
        for by in (-1, 1):
            walk(start, by, delta / (len(starts) if step == 1 else 2 * len(starts)))
    return accepted


@pytest.mark.parametrize("count", [1, 2, 3, 40, 41, 387])
@pytest.mark.parametrize(("full", "empty"), [(True, False), (False, True), (False, False), (True, True)])
def test_tests_go_from_safe_ends_or_from_fixed_starts_to_the_first_failure(count, full, empty):
    for seed in range(20):
        wave = (torch.arange(count) / 9.0 + seed).sin().abs() * torch.rand(count, generator=seeded(seed)) * 0.3
        for p in (wave, torch.rand(count, generator=seeded(seed)), torch.zeros(count), torch.ones(count)):
            found = accepted_in_sequence(p.double(), 0.2, full_is_safe=full, empty_is_safe=empty)
            assert found.tolist() == reference_sequence(p.double().tolist(), 0.2, full, empty)

"""Every projection sums to k and agrees, entry by entry, with the reference."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.contracts import BY_NAME, EXACTLY_K, PER_LABEL, PROJECTIONS, WITH_K, Projection
from tests.functional.paths import HALVES, PATHS, each_path, on_each_path
from tests.reference import HARD_ROWS, MP

SUM_TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
# The path is chosen once for all examples.
quick = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
each_half = pytest.mark.parametrize("dtype", HALVES, indirect=True)


def rounded(k: float, dtype: torch.dtype) -> float:
    """``k`` as the operator sees it."""
    return torch.tensor(k, dtype=dtype).item()


def misses(projection: Projection, row: list[float], k: float, dtype: torch.dtype, temperature: float = 1):
    logits, k = torch.tensor(row, dtype=dtype), rounded(k, dtype)
    return projection.misses(logits, projection(logits, k, temperature=temperature), k, temperature)


def hard_batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All hard rows, filled up with absent labels, which change nothing."""
    width = max(len(row) for _, row, _ in HARD_ROWS)
    padded = [row + [-torch.inf] * (width - len(row)) for _, row, _ in HARD_ROWS]
    return torch.tensor(padded, dtype=dtype), torch.tensor([k for _, _, k in HARD_ROWS], dtype=dtype)


@pytest.mark.parametrize("n", [7, 1000, 100_000])
@on_each_path("projection", EXACTLY_K)
def test_probabilities_sum_to_k_from_a_few_labels_to_a_hundred_thousand(projection, dtype, n, fresh):
    noise = torch.randn(n, generator=fresh, dtype=torch.float64)
    ks = sorted({1, 5, min(100, n), n / 2, n - 1, n / 3 + 0.123, 0.37}) if projection.takes_k else [1]
    for scale in (1, 3, 10, 30):
        for k in ks:
            k = rounded(k, dtype)
            total = projection.probs((scale * noise).to(dtype), k).double().sum().item()
            assert abs(total - k) <= SUM_TOLERANCE[dtype] * max(1, k), (scale, k)


@on_each_path("projection", EXACTLY_K)
def test_a_batch_of_rows_sums_to_the_k_of_each_row(projection, dtype, fresh):
    logits = (10 * torch.randn(300, 2000, generator=fresh, dtype=torch.float64)).to(dtype)
    k = (1 + 1998 * torch.rand(300, generator=fresh, dtype=torch.float64)).to(dtype)
    wanted = k.double() if projection.takes_k else torch.ones(300, dtype=torch.float64)
    error = (projection.probs(logits, k).double().sum(-1) - wanted).abs()
    assert (error <= SUM_TOLERANCE[dtype] * wanted.clamp(min=1)).all()


@on_each_path("projection", EXACTLY_K)
def test_rows_of_mixed_spread_in_one_batch_sum_to_the_k_of_each_row(projection, dtype, fresh):
    """Easy rows end the work early, hard ones prolong it: neither may pass for solved when it is not."""
    scales = torch.tensor([1.0, 10, 100, 300], dtype=torch.float64).repeat(200)[:, None]
    logits = scales * torch.randn(800, 100, generator=fresh, dtype=torch.float64)
    logits[::7, :3] += 1000
    k = 50 * torch.rand(800, generator=fresh, dtype=torch.float64)
    k[::5] = k[::5].round()
    k[3::50] = 0
    logits, k = logits.to(dtype), k.to(dtype)
    wanted = k.double() if projection.takes_k else torch.ones(800, dtype=torch.float64)
    error = (
        torch.stack(
            [projection.probs(*part).double().sum(-1) for part in zip(logits.split(50), k.split(50), strict=True)]
        ).flatten()
        - wanted
    )
    assert (error.abs() <= SUM_TOLERANCE[dtype] * wanted.clamp(min=1)).all()


@each_half
@each_projection
def test_half_precision_is_solved_in_float32(projection, dtype, fresh):
    logits = (5 * torch.randn(6, 300, generator=fresh)).to(dtype)
    for k in (1, 7.5, torch.tensor([1, 2, 3.5, 100, 150.25, 299])):
        assert torch.equal(projection(logits, k), projection(logits.float(), k).to(dtype))


@each_half
@pytest.mark.parametrize("projection", WITH_K, ids=str)
def test_k_is_not_rounded_to_the_half_precision_of_the_logits(projection, dtype, fresh):
    logits = torch.randn(300, generator=fresh).to(dtype)
    assert torch.equal(projection(logits, torch.tensor(4.0625 + 2**-12)), projection(logits, 4.0625 + 2**-12))
    exact = projection(logits.float(), 4.0625 + 2**-12)
    assert torch.equal(projection(logits, 4.0625 + 2**-12), exact.to(dtype))


@on_each_path("projection", PROJECTIONS)
def test_hard_rows_one_by_one_agree_with_the_reference(projection, dtype):
    wrong = [(name, miss) for name, row, k in HARD_ROWS[::10] if (miss := misses(projection, row, k, dtype))]
    assert not wrong


@on_each_path("projection", PROJECTIONS)
def test_hard_rows_in_one_batch_agree_with_the_reference(projection, dtype):
    logits, k = hard_batch(dtype)
    answers = projection(logits, k)
    wrong = {}
    for i, (name, row, _) in enumerate(HARD_ROWS):
        answer = answers[i] if projection.is_dual else answers[i, : len(row)]
        if miss := projection.misses(logits[i, : len(row)], answer, k[i].item()):
            wrong[name] = miss
    assert not wrong


@on_each_path("projection", PROJECTIONS)
def test_a_temperature_divides_the_logits(projection, dtype):
    rows, temperature = HARD_ROWS[1::10], 0.3 if dtype == torch.float32 else 2.5
    wrong = [(name, miss) for name, row, k in rows if (miss := misses(projection, row, k, dtype, temperature))]
    assert not wrong


@each_path
def test_a_log_keeps_the_relative_precision_of_what_is_missing_to_one(dtype):
    log_lml, limits = BY_NAME["log_lml"], torch.finfo(dtype)
    for name, row, k in HARD_ROWS:
        logits, k = torch.tensor(row, dtype=dtype), rounded(k, dtype)
        for got, want in zip(log_lml(logits, k).tolist(), log_lml.expected(row, k), strict=True):
            if -0.1 < want < 0:
                allowed = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
                allowed += 4 * limits.eps * abs(MP.log(-want))
                assert abs(got - want) <= -want * allowed + 2 * limits.tiny, name


wide = st.floats(allow_nan=False, allow_infinity=False, width=32)
LOGITS = st.one_of(
    st.lists(wide, min_size=1, max_size=12),
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=20),
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=20),
    st.lists(st.sampled_from([0.0, 1.0, 1e-6, -60.0, 200.0]), min_size=1, max_size=20),
    st.lists(st.sampled_from([0.0, -1.5, 3.25, -torch.inf]), min_size=1, max_size=9),
)
SHARES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


@on_each_path("projection", PROJECTIONS)
@quick
@given(row=LOGITS, share=SHARES, whole=st.booleans())
def test_random_rows_agree_with_the_reference(projection, row, share, whole, dtype):
    k = share * len(row)
    # Below the least normal number k itself has no digits left to keep.
    k = float(round(k)) if whole else 0.0 if k < 1e-37 else k
    assert not misses(projection, row, k, dtype)


@on_each_path("projection", EXACTLY_K)
def test_logits_up_to_the_largest_number_still_sum_to_k(projection, dtype):
    largest = torch.finfo(dtype).max
    for scale in (0.3, 1, 2.5):
        row = torch.tensor([largest, largest / 3, 1, 0, -1, -largest / 3, -largest], dtype=dtype)
        for k in (0.5, 1, 1.5, 3, 4.25, 6, 6.5):
            probs = projection.probs(row, k, temperature=scale)
            assert abs(probs.sum().item() - projection.wanted(k)) <= 1e-6
            assert (probs.diff() <= 0).all()


@on_each_path("projection", PER_LABEL, [*PATHS, *HALVES])
def test_probabilities_stay_in_the_unit_interval(projection, dtype):
    logits, k = hard_batch(torch.float32)
    probs = projection.probs(logits.to(dtype), k)
    assert ((probs >= 0) & (probs <= 1)).all()

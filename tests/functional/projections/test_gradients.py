"""Gradients of every projection: right where they are smooth, finite and balanced everywhere."""

import math
import os

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from shortlist.functional import lml, log_lml
from tests.contracts import BY_NAME, EXACTLY_K, PER_LABEL, PROJECTIONS, WITH_K, Projection
from tests.functional.paths import HALVES, PATHS, each_path, every_path, on_each_path
from tests.reference import HARD_ROWS, MP, lml_jacobian

OPTIONS = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "first axis": {"dim": 0},
    "mask": {"mask": torch.arange(15).reshape(3, 5) % 7 != 3},
}
EXTREMES = [
    ("far apart", [1e4, 0.0, -1e4, 9999.0, 3.0, -2.0]),
    ("end of float16", [6e4, -6e4, 6e4, 0.0, 1.0, 5.9e4]),
    ("tied", [1.0, 1.0, 1.0, 0.0, 0.0, -1.0]),
    ("all equal", [0.3] * 6),
    ("all zero", [0.0] * 6),
    ("one far above", [300.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("one far below", [-300.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
]

each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def gradient(
    projection: Projection, logits: Tensor, k: float | Tensor, generator: torch.Generator, **options
) -> Tensor:
    """Gradient in the logits for a random upstream of order 1 (uniform, so bounded)."""
    logits = logits.clone().requires_grad_()
    result = projection(logits, k, **options)
    upstream = 2 * torch.rand(result.shape, generator=generator) - 1
    # Backwards through -inf results the upstream is arbitrary too.
    return torch.autograd.grad(result, logits, upstream.to(result.dtype))[0]


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@each_option
@each_projection
def test_derivatives_in_the_logits_agree_with_finite_differences(projection, options, check, fresh):
    logits = torch.randn(3, 5, generator=fresh, dtype=torch.float64, requires_grad=True)
    present = options.get("mask")

    def op(x: Tensor, k: float) -> Tensor:
        result = projection(x, k, **options)
        # Differences of logarithms of absent labels are differences of infinities.
        return result if present is None or projection.is_dual else result[present]

    # Each entry of the plain Jacobian; all else by a random direction, which sees a wrong entry just as surely.
    plain = check is gradcheck and not options
    for k in (0.4, 1, 1.9, 2.25) if plain else (0.4, 1.9):
        assert check(lambda x, k=k: op(x, k), (logits,), fast_mode=not plain)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@each_option
@pytest.mark.parametrize("projection", WITH_K, ids=str)
def test_derivatives_in_k_agree_with_finite_differences(projection, options, check, fresh):
    logits = torch.randn(3, 5, generator=fresh, dtype=torch.float64, requires_grad=True)
    rows = 5 if options.get("dim") == 0 else 3
    present = options.get("mask")
    for k in (torch.linspace(0.6, 1.9, rows, dtype=torch.float64), torch.tensor(1.3, dtype=torch.float64)):

        def op(x: Tensor, k: Tensor) -> Tensor:
            result = projection(x, k, **options)
            return result if present is None or projection.is_dual else result[present]

        assert check(op, (logits, k.requires_grad_()), fast_mode=check is gradgradcheck or bool(options))


def derivatives(row: Tensor, k: float) -> tuple[Tensor, Tensor]:
    """Of each entry of ``lml(row, k)`` in the logits and in k, by one backward pass through copies of the row."""
    n = len(row)
    logits, ks = row.expand(n, n).clone().requires_grad_(), row.new_full((n,), k).requires_grad_()
    return torch.autograd.grad(lml(logits, ks), (logits, ks), torch.eye(n, dtype=row.dtype))


@each_path
def test_the_jacobian_of_lml_agrees_with_the_reference_on_hard_rows(dtype):
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-13}[dtype]
    wrong = []
    for name, row, k in HARD_ROWS[::2]:
        if len(row) > 60 or not all(map(math.isfinite, row)):
            continue
        logits, k = torch.tensor(row, dtype=dtype), torch.tensor(k, dtype=dtype).item()
        jacobian = derivatives(logits, k)[0].double()
        expected = torch.tensor([[float(v) for v in line] for line in lml_jacobian(row, k)], dtype=torch.float64)
        if not torch.allclose(jacobian, expected, rtol=10 * tolerance, atol=tolerance):
            wrong.append((name, (jacobian - expected).abs().max().item()))
    assert not wrong


BEYOND_LOG_ODDS = (
    "giant outlier above, k = 1",
    "giant outlier below, k = 20",
    "outlier near the end of float32, k = 1",
)
"""Rows whose root lies midway in a huge gap: log-odds of that size cannot tell neighbouring labels apart."""


@each_path
def test_the_derivative_of_lml_in_k_agrees_with_the_reference_on_hard_rows(dtype):
    """Its entries q / Σq sum to 1 however far p is saturated: a label more is a label more."""
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    # One copy of the row per label: Triton's interpreter takes minutes for long rows.
    longest = 60 if os.environ.get("SHORTLIST_KERNELS") == "triton" else math.inf
    wrong = []
    for name, row, k in (each for each in HARD_ROWS[::2] if len(each[1]) <= longest):
        logits, k = torch.tensor(row, dtype=dtype), torch.tensor(k, dtype=dtype).item()
        nu = BY_NAME["lml_dual"].expected(row, k)[0]
        if not MP.isfinite(nu) or name in BEYOND_LOG_ODDS:
            continue
        odds = [MP.exp(MP.mpf(x) + nu) if math.isfinite(x) else MP.mpf(0) for x in row]
        q = [o / (1 + o) ** 2 for o in odds]
        expected = torch.tensor([float(v / MP.fsum(q)) for v in q], dtype=torch.float64)
        slope = derivatives(logits, k)[1].double()
        if not torch.allclose(slope, expected, rtol=0, atol=tolerance):
            wrong.append((name, (slope - expected).abs().max().item()))
    assert not wrong


def together(rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Rows filled up with absent labels, which change nothing, and how many labels each has."""
    width = max(len(row) for row in rows)
    padded = torch.tensor([row + [-math.inf] * (width - len(row)) for row in rows], dtype=torch.float64)
    return padded, torch.tensor([float(len(row)) for row in rows], dtype=torch.float64)


@on_each_path("projection", PROJECTIONS, [*PATHS, *HALVES])
def test_gradients_are_finite_for_every_finite_input(projection, dtype, fresh):
    logits, sizes = together([row for _, row, *_ in HARD_ROWS + EXTREMES])
    if dtype == torch.float16:
        logits = torch.where(logits.isfinite(), logits.clamp(-6e4, 6e4), logits)
    for k in (torch.ones_like(sizes), sizes / 2, sizes - 1):
        finite = gradient(projection, logits.to(dtype), k, fresh).isfinite().all(-1)
        assert finite.all(), [(HARD_ROWS + EXTREMES)[row][0] for row in (~finite).nonzero()]


@on_each_path("projection", WITH_K)
def test_gradients_in_k_are_finite_for_every_finite_input(projection, dtype, fresh):
    logits, _ = together([row for _, row, _ in HARD_ROWS])
    k = torch.tensor([k for _, _, k in HARD_ROWS], dtype=dtype, requires_grad=True)
    result = projection(logits.to(dtype), k)
    upstream = (2 * torch.rand(result.shape, generator=fresh) - 1).to(dtype)
    finite = torch.autograd.grad(result, k, upstream)[0].isfinite()
    assert finite.all(), [HARD_ROWS[row][0] for row in (~finite).nonzero()]


@on_each_path("projection", PROJECTIONS)
def test_gradients_at_the_largest_numbers_are_finite(projection, dtype, fresh):
    largest = torch.finfo(dtype).max
    logits = torch.tensor([largest, largest / 3, 1, 0, -1, -largest / 3, -largest], dtype=dtype)
    for k in (0.5, 1, 1.5, 3, 4.25, 6, 6.5):
        assert gradient(projection, logits, k, fresh).isfinite().all(), k


@every_path
@pytest.mark.parametrize("projection", EXACTLY_K, ids=str)
def test_the_gradient_of_a_row_sums_to_zero(projection, fresh):
    rows = [torch.tensor(row) for row in {tuple(row) for _, row, *_ in HARD_ROWS + EXTREMES}]
    rows += [scale * torch.randn(5000, generator=fresh) for scale in (1, 10)]
    for logits in rows:
        for k in {0.5, 1, len(logits) / 2}:
            slope = gradient(projection, logits, k, fresh).double()
            assert abs(slope.sum().item()) <= 1e-6 * max(1, slope.abs().sum().item())


def test_the_gradient_of_the_dual_sums_to_minus_one(fresh):
    for _, row, k in HARD_ROWS:
        logits = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        nu = BY_NAME["lml_dual"](logits, k)
        if nu.isfinite():
            assert torch.autograd.grad(nu, logits)[0].sum().item() == pytest.approx(-1, abs=1e-12)


@every_path
@pytest.mark.parametrize("as_mask", [False, True], ids=["-inf", "mask"])
@each_projection
def test_absent_labels_have_no_gradient(projection, as_mask, fresh):
    logits = torch.randn(6, 9, generator=fresh)
    present = torch.rand(6, 9, generator=fresh) > 0.4
    present[0], present[1] = False, True
    options = {"mask": present} if as_mask else {}
    given = logits if as_mask else logits.masked_fill(~present, -math.inf)
    for k in (0.5, 1, 2.5, 9):
        slope = gradient(projection, given, k, fresh, **options)
        assert slope.isfinite().all()
        assert (slope[~present] == 0).all()


@every_path
@each_projection
def test_rows_where_all_labels_or_none_are_taken_have_no_gradient(projection, fresh):
    """A budget of n, a sparsemax of one label: whatever the logits, the answer stays."""
    logits = torch.full((3, 4), -math.inf)
    logits[0, 1] = 0.7
    slope = gradient(projection, logits, 1, fresh)
    if not projection.budget:
        assert (slope == 0).all()
    assert (slope[1:] == 0).all()
    if projection.takes_k:
        assert (gradient(projection, 5 + logits.nan_to_num(neginf=3), 0, fresh) == 0).all()
        if not projection.budget:
            assert (gradient(projection, torch.randn(3, 4, generator=fresh), 4, fresh) == 0).all()


@every_path
@pytest.mark.parametrize("k", [1, 1.5, 2])
def test_the_gradient_of_log_lml_is_exact_where_p_underflows(k, fresh):
    logits = torch.tensor([300.0, 299.0, 1.0, 0.0, -2.0])
    slope = gradient(BY_NAME["log_lml"], logits, k, fresh.manual_seed(1))
    exact = gradient(BY_NAME["log_lml"], logits.double(), k, fresh.manual_seed(1))
    assert torch.allclose(slope.double(), exact, rtol=1e-4, atol=1e-6)  # log-odds of 150 have an ulp of 1.5e-5
    assert lml(logits, k).min() == 0


def test_the_gradient_of_log_lml_is_that_of_the_log_of_lml(fresh):
    logits = torch.randn(4, 30, generator=fresh, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 30, generator=fresh, dtype=torch.float64)
    direct, by_chain = (
        torch.autograd.grad(log_p, logits, upstream)[0] for log_p in (log_lml(logits, 3), lml(logits, 3).log())
    )
    assert torch.allclose(direct, by_chain, rtol=1e-11, atol=1e-13)


@every_path
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")  # by Triton's interpreter
@pytest.mark.parametrize("projection", PER_LABEL, ids=str)
def test_a_row_of_nan_spoils_no_other_gradient(projection, fresh):
    logits = torch.randn(3, 6, generator=fresh)
    logits[1, 2] = math.nan
    slope = gradient(projection, logits, 2, fresh)
    assert slope[0].isfinite().all()
    assert slope[2].isfinite().all()

"""The truncated DFT: entries to the last digits, orthonormal columns, minors of one sign, and two ways to multiply."""

import itertools

import pytest
import torch
from torch import Tensor

from shortlist.functional import dft_logits, dft_matrix
from shortlist.functional.dft import fft_is_cheaper
from tests.compiling import each_backend, whole_graph
from tests.multiprecision import MP

# The forward derivatives and the compiler of torch use what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

METHODS = ["fft", "matmul", None]
SIZES = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (8, 3), (9, 1), (9, 4), (30, 7), (101, 50)]
each_method = pytest.mark.parametrize("method", METHODS)


def features(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def exact_entry(n: int, i: int, column: int):
    if column == 0:
        return 1 / MP.sqrt(n)
    wave = MP.sin if column % 2 == 0 else MP.cos
    return MP.sqrt(MP.mpf(2) / n) * wave(2 * MP.pi * i * ((column + 1) // 2) / n)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (3, 1), (8, 3), (12, 5), (97, 48), (9000, 20), (100003, 30)])
def test_every_entry_is_right_to_three_units_in_the_last_place(n, k):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    assert matrix.shape == (n, 2 * k + 1)
    rows = sorted({*range(min(n, 12)), n // 8, n // 4, n // 3, n // 2, 7 * n // 8, n - 2, n - 1} - {-1})
    columns = sorted({*range(min(2 * k + 1, 30)), 2 * k - 1, 2 * k} - {-1})
    for i, column in itertools.product(rows, columns):
        got, exact = matrix[i, column].item(), exact_entry(n, i, column)
        assert abs(got - exact) <= 3 * 2**-52 * abs(exact) + 1e-60, (i, column)


def test_zeros_are_exact():
    matrix = dft_matrix(24, 6, dtype=torch.float64)
    zeros = [(i, c) for i in range(24) for c in range(13) if abs(exact_entry(24, i, c)) < 1e-60]
    assert len(zeros) > 20
    assert all(matrix[place] == 0 and not matrix[place].signbit() for place in zeros)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_columns_are_orthonormal(n, k):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    assert torch.allclose(matrix.T @ matrix, torch.eye(2 * k + 1, dtype=torch.float64), atol=1e-14, rtol=0)


@pytest.mark.parametrize("n", range(3, 10))
@pytest.mark.parametrize("k", [0, 1, 2])
def test_all_maximal_minors_are_positive(n, k):
    if 2 * k + 1 > n:
        return
    matrix = dft_matrix(n, k, dtype=torch.float64)
    chosen = torch.tensor(list(itertools.combinations(range(n), 2 * k + 1)))
    assert (torch.linalg.det(matrix[chosen]) > 1e-6).all()


def test_the_matrix_is_rounded_once_and_made_where_it_is_wanted():
    exact = dft_matrix(50, 4, dtype=torch.float64)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(dft_matrix(50, 4, dtype=dtype), exact.to(dtype))
    assert dft_matrix(5, 1).dtype == torch.get_default_dtype()
    assert dft_matrix(5, 1, device="meta").device.type == "meta"
    with torch.device("meta"):
        assert dft_matrix(5, 1).device.type == "meta"
        assert dft_matrix(5, 1, device="cpu").device.type == "cpu"


@each_method
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_logits_are_the_product_with_the_matrix(n, k, method):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    for shape in ((), (1,), (7,), (2, 3, 4)):
        v = features(*shape, 2 * k + 1)
        z = dft_logits(v, n, method=method)
        assert z.shape == (*shape, n)
        assert torch.allclose(z, v @ matrix.T, atol=1e-13, rtol=0)
        assert torch.allclose(z, dft_logits(v, n, method=method, matrix=matrix), atol=1e-13, rtol=0)


@each_method
def test_no_rows_give_no_logits_and_no_gradient(method):
    for shape in ((0,), (3, 0)):
        v = torch.zeros(*shape, 5, requires_grad=True)
        z = dft_logits(v, 8, method=method)
        assert z.shape == (*shape, 8)
        z.sum().backward()
        assert v.grad.shape == v.shape


@pytest.mark.parametrize("method", ["fft", "matmul"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_multiplied_in_float32(dtype, method):
    v = features(6, 21, dtype=torch.float32).to(dtype)
    z = dft_logits(v, 100, method=method)
    assert z.dtype == dtype
    exact = v.double() @ dft_matrix(100, 10, dtype=torch.float64).T
    # Half a unit in the last place, and what float32 may have added.
    assert ((z.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 1e-6).all()


@each_method
def test_autocast_does_not_round_the_matrix(method):
    v = features(6, 21, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        z = dft_logits(v, 100, method=method)
        short = dft_logits(v.bfloat16(), 100, method=method)
    assert z.dtype == torch.float32
    assert torch.equal(z, dft_logits(v, 100, method=method))
    assert torch.equal(short, dft_logits(v.bfloat16(), 100, method=method))


@each_method
@pytest.mark.parametrize(("n", "k"), [(1, 0), (6, 0), (7, 3), (8, 3), (12, 2)])
def test_derivatives_of_every_order_and_mode_are_right(n, k, method):
    v = features(2, 2 * k + 1).requires_grad_()
    run = lambda x: dft_logits(x, n, method=method)
    assert torch.autograd.gradcheck(run, v, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: run(x) ** 3, v)
    upstream = features(2, n)
    (slope,) = torch.autograd.grad(run(v), v, upstream)
    assert torch.allclose(slope, upstream @ dft_matrix(n, k, dtype=torch.float64), atol=1e-13)


@each_method
def test_rows_may_be_mapped_over(method):
    v = features(3, 4, 7)
    run = lambda x: dft_logits(x, 20, method=method)
    assert torch.allclose(torch.func.vmap(run)(v), run(v), atol=1e-14)
    assert torch.allclose(torch.func.vmap(torch.func.vmap(run), in_dims=1, out_dims=1)(v), run(v), atol=1e-14)
    jacobian = torch.func.vmap(torch.func.jacrev(run))(v[0])
    assert torch.allclose(jacobian, dft_matrix(20, 3, dtype=torch.float64).expand(4, 20, 7), atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@each_backend
@each_method
def test_the_compiled_operator_agrees_with_the_eager_one(method, backend):
    torch.compiler.reset()
    v = features(3, 11, dtype=torch.float32).requires_grad_()
    run = lambda x: dft_logits(x, 40, method=method).square()
    results = []
    for function in (run, whole_graph(run, backend)):
        z = function(v)
        results.append((z.detach(), *torch.autograd.grad(z.sum(), v)))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-5, atol=1e-5)


def test_the_operators_of_the_compiler_are_sound():
    v, z = features(3, 7).requires_grad_(), features(3, 12).requires_grad_()
    torch.library.opcheck(torch.ops.shortlist.dft_synthesis.default, (v, 12))
    torch.library.opcheck(torch.ops.shortlist.dft_analysis.default, (z, 7))


def test_the_cheaper_way_is_taken_and_forced_ones_are_obeyed():
    for n, k, rows in ((1000, 3, 2000), (1024, 200, 1), (1009, 200, 500)):
        v = features(rows, 2 * k + 1, dtype=torch.float32)
        by_fft, by_product = (dft_logits(v, n, method=method) for method in ("fft", "matmul"))
        assert not torch.equal(by_fft, by_product)
        assert torch.equal(dft_logits(v, n), by_fft if fft_is_cheaper(n, k, rows) else by_product)
        kept = dft_logits(v, n, matrix=dft_matrix(n, k))
        assert torch.equal(kept, by_fft if fft_is_cheaper(n, k, None) else by_product)


def test_the_rule_favours_the_fft_for_many_columns_few_rows_and_smooth_sizes():
    assert not fft_is_cheaper(9000, 20, None)
    assert fft_is_cheaper(9000, 100, None)
    assert not fft_is_cheaper(8923, 100, None)
    assert fft_is_cheaper(9000, 20, 1)
    assert not fft_is_cheaper(9000, 20, 10_000)
    assert isinstance(fft_is_cheaper(9000, 20, 0), bool)


@pytest.mark.parametrize(
    ("n", "k", "error", "text"),
    [
        (10, 5, ValueError, r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 10 labels; got 5\."),
        (10, -1, ValueError, r"`k` must lie in \[0, 4\], .*; got -1\."),
        (0, 0, ValueError, r"`num_labels` must be at least 1; got 0\."),
        (10, 1.5, TypeError, r"`k` must be a whole number; got float\."),
        (10.0, 1, TypeError, r"`num_labels` must be a whole number; got float\."),
    ],
)
def test_a_wrong_size_is_named(n, k, error, text):
    with pytest.raises(error, match=text):
        dft_matrix(n, k)


def test_other_wrong_arguments_are_named():
    with pytest.raises(TypeError, match=r"`dtype` must be floating; got torch\.int64\."):
        dft_matrix(5, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"`features` must have an odd last size, 2k \+ 1; got shape \(3, 4\)\."):
        dft_logits(torch.zeros(3, 4), 10)
    with pytest.raises(ValueError, match=r"`features` must have an odd last size, 2k \+ 1; got shape \(\)\."):
        dft_logits(torch.tensor(1.0), 10)
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 10 labels; got 5\."):
        dft_logits(torch.zeros(3, 11), 10)
    with pytest.raises(TypeError, match=r"`features` must be a floating tensor; got torch\.int64\."):
        dft_logits(torch.zeros(3, 3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match=r"`method` must be 'fft', 'matmul' or None; got 'fast'\."):
        dft_logits(torch.zeros(3, 3), 10, method="fast")
    with pytest.raises(ValueError, match=r"`matrix` must have shape \(10, 3\); got \(3, 10\)\."):
        dft_logits(torch.zeros(3, 3), 10, matrix=torch.zeros(3, 10))

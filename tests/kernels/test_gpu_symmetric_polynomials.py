"""The Triton kernel of symmetric polynomials: hard rows, rows of several blocks, half precision, targets."""

import math

import pytest
import torch
from torch import Tensor

from shortlist.functional import smooth_topk_svm
from shortlist.functional.polynomial_tree import log_coefficient
from shortlist.functional.symmetric_polynomials import log_symmetric_ratio
from tests.python_process import run_python

gpu = pytest.importorskip("shortlist.kernels.gpu.symmetric_polynomials", exc_type=ImportError)

# The interpreter calculates with numpy, which warns of what IEEE 754 defines, as the logarithm of 0 in an empty row.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")

INF, NAN = math.inf, math.nan


def hard_rows() -> Tensor:
    rows = 3 * torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    rows[1, :3] += 1e3
    rows[2, ::2] = -INF
    rows[3] = 0.7
    rows[4, 5] = 1e30
    rows[5] = rows[5].round() + 1e5
    rows[6, 2:] = -INF  # too few for k = 5
    rows[7] = -INF
    rows[8] = 1e8
    rows[8, :20] += 64
    rows[9] *= 1e4
    rows[10] = 3e38 * torch.linspace(-1, 1, 40)
    rows[11] = -1e4
    return rows


def by_tensors(rows: Tensor, k: int, ratio: bool) -> tuple[Tensor, Tensor]:
    return log_coefficient(rows.double(), k, ratio=ratio, derivatives=True)


@pytest.mark.parametrize(
    ("k", "ratio"),
    [
        # The ratio is of the same two coefficients, so half of the pairs meets every branch.
        pytest.param(k, ratio, marks=[pytest.mark.slow] * (ratio == bool(i % 2)))
        for i, k in enumerate([1, 5, 20, 39, 40])
        for ratio in (False, True)
    ],
)
def test_hard_rows_agree_with_tensor_operations_in_float64(k, ratio):
    rows = hard_rows()
    (value, slopes), (exact, expected) = gpu.log_coefficient(rows, k, ratio, True), by_tensors(rows, k, ratio)
    size = exact.abs().clamp(min=1) + k * rows.masked_fill(rows.isinf(), 0).abs().amax(-1, keepdim=True) / 16
    exact = exact.float().double()
    assert ((value == exact) | ((value - exact).abs() <= 4e-6 * size)).all()
    assert (slopes - expected).abs().max() <= 1e-6


def test_rows_of_nan_and_infinity_leave_the_others_alone():
    rows = hard_rows()[:4]
    expected, slopes = gpu.log_coefficient(rows, 3, True, True)
    rows[1, 7], rows[2, 9] = NAN, INF
    value, with_nan = gpu.log_coefficient(rows, 3, True, True)
    assert value[1].isnan()
    assert with_nan[1].isnan().all()
    torch.testing.assert_close(value[[0, 3]], expected[[0, 3]], rtol=0, atol=0)
    torch.testing.assert_close(with_nan[[0, 3]], slopes[[0, 3]], rtol=0, atol=0)
    certain = by_tensors(rows[2:3], 3, True)
    torch.testing.assert_close(value[2:3].double(), certain[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(with_nan[2:3].double(), certain[1], rtol=0, atol=1e-6)


def test_rows_of_several_blocks_agree_with_rows_of_one(monkeypatch):
    rows, own, hidden = hard_rows()[:4], torch.tensor([0, 1, 3, 39]), torch.tensor([True, False, True, True])
    for options in ({}, {"own": own, "hidden": hidden, "scale": 0.5}):
        expected = gpu.log_coefficient(rows, 5, True, True, **options)
        with monkeypatch.context() as patch:
            patch.setattr(gpu, "LARGEST_BLOCK", 32)
            found = gpu.log_coefficient(rows, 5, True, True, **options)
        for one, several in zip(expected, found, strict=True):
            torch.testing.assert_close(several, one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_read_as_it_is(dtype):
    rows = hard_rows()[:2].to(dtype)
    value, slopes = gpu.log_coefficient(rows, 5, False, True)
    exact, expected = by_tensors(rows, 5, False)
    torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slopes.double(), expected, rtol=0, atol=1e-6 if dtype == torch.float16 else 4e-3)


def test_beside_a_label_it_agrees_with_the_logits_less_those_of_the_label(monkeypatch):
    rows, own = hard_rows()[:4], torch.tensor([0, 1, 3, 39])
    hidden = torch.tensor([True, False, True, True])
    value, slopes = gpu.log_coefficient(rows, 5, True, True, own=own, hidden=hidden, scale=0.2)
    x = rows.double().requires_grad_()
    rest = 0.2 * (x - x.gather(-1, own[:, None]))
    left_out = (torch.arange(40) == own[:, None]) & hidden[:, None]
    expected = log_symmetric_ratio(rest.masked_fill(left_out, -INF), 5)
    torch.testing.assert_close(value[:, 0].double(), expected.detach(), rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(slopes.double(), torch.autograd.grad(expected.sum(), x)[0], rtol=0, atol=1e-6)


def test_a_class_out_of_range_makes_its_row_nan():
    value, _ = gpu.log_coefficient(hard_rows()[:2], 5, True, False, own=torch.tensor([3, 40]))
    assert value.isnan().flatten().tolist() == [False, True]


def test_second_derivatives_of_the_loss_agree_with_those_of_tensor_operations(monkeypatch):
    x, classes = hard_rows()[:1], torch.tensor([3])
    found = []
    for choice in ("triton", "device"):
        monkeypatch.setenv("SHORTLIST_KERNELS", choice)
        logits = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(smooth_topk_svm(logits, classes, 5), logits, create_graph=True)
        found.append((slope.detach(), torch.autograd.grad(slope.square().sum(), logits)[0]))
    for by_kernel, by_operations in zip(*found, strict=True):
        torch.testing.assert_close(by_kernel, by_operations, rtol=1e-4, atol=1e-6)


def test_the_operator_of_the_compiler_has_the_shapes_of_the_kernel():
    arguments = hard_rows()[:2], torch.tensor([0, 3]), None, 5, True, True, 0.5
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.shortlist.log_symmetric.default, arguments, test_utils=checks)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from shortlist.kernels.gpu.symmetric_polynomials import _law

pointers = {"x_ptr": "*bf16", "own_ptr": "*i64", "hidden_ptr": "*i1", "value_ptr": "*fp32", "slope_ptr": "*bf16"}
numbers = {name: "i32" for name in ("n", "k", "capacity", "half", "points", "terms")}
fixed = dict(RATIO=True, DERIVATIVES=True, BESIDE=True, ALL_HIDDEN=False, ONE=True, BLOCK=1024, ANGLES=16)
signature = {**pointers, "listed_ptr": "*fp32", **numbers, "scale": "fp32", **dict.fromkeys(fixed, "constexpr")}
signature = {name: signature[name] for name in _law.arg_names}
for target in (("cuda", 80, 32), ("cuda", 90, 32), ("cuda", 100, 32), ("hip", "gfx942", 64)):
    kernel = triton.compile(ASTSource(_law, signature, fixed), target=GPUTarget(*target), options={"num_warps": 4})
    print(target[1], "hsaco" in kernel.asm or "cubin" in kernel.asm)
"""


@pytest.mark.slow
def test_it_compiles_for_cuda_and_rocm(tmp_path):
    (tmp_path / "compile.py").write_text(COMPILE)
    done = run_python(str(tmp_path / "compile.py"), TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert done.stdout.split() == ["80", "True", "90", "True", "100", "True", "gfx942", "True"]

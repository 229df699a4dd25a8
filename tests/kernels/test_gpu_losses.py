"""The Triton kernels of binary and two-way losses, interpreted, against tensor operations, hard rows included."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from shortlist import functional as F
from shortlist.functional.losses import labeled_logits
from shortlist.kernels import chooser
from shortlist.kernels.gpu import binary, two_way
from shortlist.targets import to_multi_hot

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

INF = math.inf
ROWS, N = 11, 37

LOSSES = {
    "bce": F.bce,
    "asymmetric": F.asymmetric,
    "asymmetric-rough": partial(F.asymmetric, gamma_positive=0.5, gamma_negative=2.5),
    "asymmetric-unclipped": partial(F.asymmetric, gamma_positive=1.0, clip=0.0),
    "asymmetric-hard": partial(F.asymmetric, gamma_negative=0.0, clip=0.2),
    "assume_negative": F.assume_negative,
    "two_way": F.two_way,
    "two_way-sample": partial(F.two_way, kind="sample", negative_temperature=0.25),
    "two_way-class": partial(F.two_way, kind="class", positive_temperature=0.5, margin=1.0),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
FORMS = ["classes", "lists", "float", "bool", "half", "soft"]
each_form = pytest.mark.parametrize("form", FORMS)


def covering(name: str, values: list, step: int, *whole: str) -> pytest.MarkDecorator:
    """Every loss with every ``step``-th value, in turn; all other pairs, except of losses in ``whole``, are slow."""
    pairs = [
        pytest.param(
            loss, value, id=f"{key}-{value}", marks=[pytest.mark.slow] * (key not in whole and (i + j) % step != 0)
        )
        for i, (key, loss) in enumerate(LOSSES.items())
        for j, value in enumerate(values)
    ]
    return pytest.mark.parametrize(("loss", name), pairs)


def batch(form: str, generator: torch.Generator, rows: int = ROWS, n: int = N) -> tuple[Tensor, Tensor, Tensor]:
    """Logits with ties and absent labels, a target of this form with rows of every kind, and weights."""
    logits = torch.randn(rows, n, generator=generator).mul(16).round() / 8
    logits[0] *= 1e4
    weight = torch.rand(n, generator=generator) + 0.1
    target = labels(form, generator, rows, n)
    present = to_multi_hot(target, n)[1] > 0 if target.dtype == torch.int64 else target[1] > 0
    logits[1, ::3] = logits[1, ::3].masked_fill(~present[::3], -INF)
    return logits, target, weight


def labels(form: str, generator: torch.Generator, rows: int, n: int) -> Tensor:
    if form == "classes":
        return torch.randint(n, (rows,), generator=generator)
    order = torch.rand(rows, n, generator=generator).argsort(-1)
    if form == "lists":
        lists = order[:, :4].clone()
        lists[2], lists[3, 2:] = -1, -1
        return lists
    hot = (order < 5).float()
    if form == "bool":
        hot[2] = 0
        return hot.bool()
    hot[order > n - 4] = -1
    hot[2], hot[3], hot[4] = 0, 1, -1  # no positive, no negative, nothing known
    if form == "soft":
        hot = torch.where(hot > 0, torch.rand(rows, n, generator=generator), hot)
    return hot.half() if form == "half" else hot


def on_path(monkeypatch, path: str, loss, logits: Tensor, *args, **options) -> tuple[Tensor, Tensor]:
    """The value and the gradient by tensor operations ("device") or by kernels ("triton")."""
    monkeypatch.setenv("SHORTLIST_KERNELS", path)
    logits = logits.clone().requires_grad_()
    value = loss(logits, *args, **options)
    return value.detach(), torch.autograd.grad(value.sum(), logits)[0]


def agree(monkeypatch, loss, logits: Tensor, target: Tensor, rtol: float = 2e-5, **options) -> None:
    expected, slope = on_path(monkeypatch, "device", loss, logits, target, **options)
    assert labeled_logits.read_raw(logits, target, options.get("weight")) is None
    value, got = on_path(monkeypatch, "triton", loss, logits, target, **options)
    assert labeled_logits.read_raw(logits, target, options.get("weight")) is not None, "no kernel was used"
    assert value.dtype == expected.dtype
    assert got.dtype == logits.dtype
    assert torch.allclose(value, expected, rtol=rtol, atol=1e-6, equal_nan=True)
    assert torch.allclose(got, slope, rtol=rtol, atol=1e-6 * slope.nan_to_num().abs().max().item(), equal_nan=True)


@covering("form", FORMS, 3, "bce", "asymmetric", "two_way")
def test_kernels_agree_with_tensor_operations_on_hard_rows(loss, form, fresh, monkeypatch):
    logits, target, weight = batch(form, fresh)
    agree(monkeypatch, loss, logits, target)
    agree(monkeypatch, loss, logits, target, weight=weight, reduction="sum")


@each_loss
def test_rows_longer_than_a_block_and_batches_of_several_chunks_agree(loss, fresh, monkeypatch):
    for kernels in (binary, two_way):
        monkeypatch.setattr(kernels, "LARGEST_BLOCK", 16)
    monkeypatch.setattr(two_way, "CHUNK", 8)
    for form in ("lists", "float"):
        logits, target, weight = batch(form, fresh, rows=9)
        agree(monkeypatch, loss, logits, target, weight=weight)


@covering("dtype", [torch.float16, torch.bfloat16], 2)
def test_half_precision_is_read_as_it_is_and_answered_in_float32(loss, dtype, fresh, monkeypatch):
    logits, target, _ = batch("float", fresh)
    logits = logits.clamp(-100, 100).to(dtype)
    value, slope = on_path(monkeypatch, "triton", loss, logits, target)
    exact, exact_slope = on_path(monkeypatch, "triton", loss, logits.float(), target)
    assert value.dtype == torch.float32
    assert slope.dtype == dtype
    assert torch.equal(value, exact)
    assert torch.allclose(slope.float(), exact_slope, rtol=2**-7, atol=1e-7)  # the interpreter truncates to bfloat16


@covering("shape", [(3, 1), (1, 1), (1, 5), (2, 3, 5)], 2, "two_way")
def test_single_labels_single_rows_and_several_row_axes_agree(loss, shape, fresh, monkeypatch):
    logits = torch.randn(shape, generator=fresh)
    agree(monkeypatch, loss, logits, torch.rand(shape, generator=fresh) < 0.5)
    agree(monkeypatch, loss, logits.mT.contiguous().mT, torch.zeros(shape[:-1], dtype=torch.int64))


@each_loss
def test_no_rows_give_a_zero_that_backpropagates(loss, monkeypatch):
    value, slope = on_path(monkeypatch, "triton", loss, torch.zeros(0, 5), torch.zeros(0, 5))
    assert value == 0
    assert slope.shape == (0, 5)


@each_form
@pytest.mark.parametrize("loss", [F.assume_negative, LOSSES["two_way-sample"]], ids=["assume_negative", "two_way"])
def test_a_row_of_nan_spoils_no_other(loss, form, fresh, monkeypatch):
    logits, target, _ = batch(form, fresh)
    logits[5, 7] = math.nan
    if target.dtype != torch.int64:
        target[5, 7] = 1
    value, slope = on_path(monkeypatch, "triton", loss, logits, target, reduction="none")
    spoiled = torch.arange(len(logits)) == 5
    assert torch.equal(value.isnan(), spoiled)
    assert not slope[~spoiled].isnan().any()


@each_loss
def test_a_label_that_does_not_exist_makes_its_row_nan(loss, fresh, monkeypatch):
    logits, lists, _ = batch("lists", fresh)
    for wrong in (N, N + 100, -2):
        lists[6, 1] = wrong
        assert on_path(monkeypatch, "triton", loss, logits, lists)[0].isnan()


@covering("form", FORMS, 3)
def test_second_derivatives_are_those_of_tensor_operations(loss, form, fresh, monkeypatch):
    logits, target, weight = batch(form, fresh, rows=6, n=9)
    logits[0] /= 1e4
    direction = torch.randn(logits.shape, generator=fresh)
    found = []
    for path in ("device", "triton"):
        monkeypatch.setenv("SHORTLIST_KERNELS", path)
        x = logits.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(x, target, weight=weight), x, create_graph=True)
        found.append(torch.autograd.grad((slope * direction).sum(), x)[0])
    assert torch.allclose(*found, rtol=1e-4, atol=1e-6)


@each_loss
def test_forward_and_reverse_mode_agree(loss, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "triton")
    logits, target, weight = batch("float", fresh)
    logits[0] /= 1e4
    direction = torch.randn(logits.shape, generator=fresh)
    with forward_ad.dual_level():
        value = loss(forward_ad.make_dual(logits, direction), target, weight=weight)
        moved = forward_ad.unpack_dual(value).tangent
    _, slope = on_path(monkeypatch, "triton", loss, logits, target, weight=weight)
    assert torch.allclose(moved, (slope * direction).sum(), rtol=1e-4, atol=1e-6)


@each_loss
def test_what_a_kernel_cannot_do_is_left_to_tensor_operations(loss, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "triton")
    logits, hot, weight = batch("bool", fresh)
    wide = torch.arange(100).expand(ROWS, 100)
    assert labeled_logits.read_raw(logits, hot, weight.requires_grad_()) is None
    assert labeled_logits.read_raw(logits.double(), hot, None) is None
    assert labeled_logits.read_raw(torch.zeros(ROWS, 200), wide, None) is None
    assert loss(logits, hot.to_sparse()).isfinite()
    with pytest.raises(ValueError, match="`target` must have the rows"):
        loss(logits, hot[:-1])
    with pytest.raises(ValueError, match="`weight` must"):
        loss(logits, hot, weight=torch.ones(N + 1))


@pytest.mark.parametrize("loss", [F.asymmetric, F.two_way], ids=lambda loss: loss.__name__)
def test_the_compiler_calls_the_kernels_without_tracing_them(loss, fresh, monkeypatch):
    logits, target, weight = batch("lists", fresh)
    expected = on_path(monkeypatch, "triton", loss, logits, target, weight=weight)
    monkeypatch.setattr(labeled_logits, "use_triton", lambda *_: True)
    graphs = []

    def keep(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for got, want in zip(on_path(monkeypatch, "on", compiled, logits, target, weight=weight), expected, strict=True):
        assert torch.allclose(got, want, rtol=1e-6)
    torch.compile(loss, fullgraph=True, backend=keep)(logits, target, weight=weight)
    nodes = [str(node.target) for graph in graphs for part in graph.modules() for node in part.graph.nodes]
    assert any(name.startswith("shortlist.") for name in nodes)
    torch.compiler.reset()


@each_loss
def test_autocast_changes_nothing(loss, fresh, monkeypatch):
    logits, target, weight = batch("float", fresh)
    plain = on_path(monkeypatch, "triton", loss, logits, target, weight=weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = on_path(monkeypatch, "triton", loss, logits, target, weight=weight)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


def test_operators_and_kernels_are_registered_for_every_device_with_triton():
    for name in ("binary_sums", "binary_gradient", "two_way_contrasts", "two_way_gradient"):
        for device in chooser.TRITON_DEVICES:
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"shortlist::{name}", device.upper())

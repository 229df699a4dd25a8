"""Losses under differentiation, vmap, the compiler, autocast and no-gradient modes; nothing is changed in place."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, vmap

from tests.compiling import each_backend, whole_graph
from tests.contracts_losses import LOSSES, Loss, random_hot

N = 6
ROW_BY_ROW = [loss for loss in LOSSES if not loss.couples_rows]
COMPILED = [
    "focal",
    "truncated_topk_entropy",
    "topk_hinge-calibrated",
    "smooth_topk_svm",
    "noised_topk",
    "lml_nll",
    "two_way-two-way",
    "asymmetric",
    "warp",
]
ALWAYS_COMPILED = ("lml_nll",)

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_row_by_row = pytest.mark.parametrize("loss", ROW_BY_ROW, ids=str)


def batch(loss: Loss, generator: torch.Generator, *, rows: int = 4, unknown: float = 0.2) -> tuple[Tensor, Tensor]:
    """Labels as class indices where one is true: what a multi-hot holds is read, and that cannot be mapped over."""
    logits = 2 * torch.randn(rows, N, generator=generator, dtype=torch.float64)
    if loss.one_class:
        return logits, random_hot(loss, rows, N, generator).argmax(-1)
    return logits, random_hot(loss, rows, N, generator, unknown=unknown)


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-9, atol=1e-11)


CHECKS = {
    "first, none": (gradcheck, "none", ()),
    "first, mean": (gradcheck, "mean", ()),
    "second, none": (gradgradcheck, "none", ()),
    "second, mean": (gradgradcheck, "mean", pytest.mark.slow),  # a sum of the same
}


@pytest.mark.parametrize(
    ("loss", "check", "reduction"),
    [
        pytest.param(loss, check, reduction, id=f"{loss}-{name}", marks=marks)
        for loss in LOSSES
        for name, (check, reduction, marks) in CHECKS.items()
        if not loss.detaches and (loss.smooth or check is gradcheck)
    ],
)
def test_derivatives_agree_with_finite_differences(loss, check, reduction, fresh):
    logits, target = batch(loss, fresh)
    weight = torch.linspace(0.5, 2, N, dtype=torch.float64)
    inputs = [part.requires_grad_() for part in ([logits, loss.second(logits)] if loss.partner else [logits])]

    def run(x: Tensor, partner: Tensor | None = None, k: int = 2) -> Tensor:
        return loss(x, target, k, partner=partner, weight=weight, reduction=reduction)

    # Each entry of the gradient; second derivatives by a random direction, which sees a wrong entry just as surely.
    options = {"fast_mode": check is gradgradcheck}
    assert check(run, tuple(inputs), **options)
    if loss.takes_k:
        assert check(lambda *parts: run(*parts, *[None] * (2 - len(parts)), k=4), tuple(inputs), **options)


@each_row_by_row
def test_vmap_over_rows_is_the_batch_in_value_and_gradient(loss, fresh):
    logits, target = batch(loss, fresh)
    weight = torch.linspace(0.5, 2, N, dtype=torch.float64)

    def run(x: Tensor, labels: Tensor) -> Tensor:
        return loss(x, labels, weight=weight, reduction="none")

    assert close(vmap(run)(logits, target), run(logits, target))
    per_row = vmap(grad(lambda x, labels: loss(x, labels, reduction="sum")))(logits, target)
    logits.requires_grad_()
    assert close(per_row, torch.autograd.grad(loss(logits, target, reduction="sum"), logits)[0])


@each_row_by_row
def test_vmap_over_models_of_one_batch_is_each_model_alone(loss, fresh):
    logits, target = batch(loss, fresh)
    models = torch.stack([logits, 2 * logits, -logits])
    together = vmap(lambda x: loss(x, target))(models)
    assert close(together, torch.stack([loss(x, target) for x in models]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch scripts some forward derivatives
@each_loss
def test_forward_and_reverse_mode_agree(loss, fresh):
    logits, target = batch(loss, fresh, rows=2)
    reverse, forward = (jacobian(lambda x: loss(x, target, reduction="none"))(logits) for jacobian in (jacrev, jacfwd))
    assert close(reverse, forward)


@each_loss
def test_autocast_changes_nothing(loss, fresh):
    logits, target = batch(loss, fresh)
    logits = logits.float().requires_grad_()

    def value_and_gradient() -> tuple[Tensor, Tensor]:
        value = loss(logits, target)
        return value, torch.autograd.grad(value, logits)[0]

    plain = value_and_gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = value_and_gradient()
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@each_loss
def test_no_gradient_modes_give_the_same_value(loss, mode, fresh):
    logits, target = batch(loss, fresh)
    logits.requires_grad_()
    expected = loss(logits, target)
    with mode():
        value = loss(logits, target)
    assert expected.requires_grad
    assert not value.requires_grad
    assert torch.equal(value, expected)


@each_loss
def test_inputs_are_left_as_they_were(loss, fresh):
    logits, target = batch(loss, fresh)
    weight = torch.linspace(0.5, 2, N, dtype=torch.float64)
    parts = [logits, target, weight, loss.second(logits)]
    before = [(part.clone(), part._version) for part in parts]
    rows = logits.clone().requires_grad_()
    for reduction in ("none", "sum", "mean"):
        value = loss(rows, target, weight=weight, partner=parts[3], reduction=reduction)
        upstream = torch.ones_like(value)
        torch.autograd.grad(value, rows, upstream)
        loss(logits, target, weight=weight, partner=parts[3], reduction=reduction)
        assert (upstream == 1).all()
    assert torch.equal(rows.detach(), logits)
    for part, (copy, version) in zip(parts, before, strict=True):
        assert torch.equal(part, copy)
        assert part._version == version


@each_loss
def test_the_chain_rule_reaches_what_the_logits_are_made_of(loss, fresh):
    logits, target = batch(loss, fresh)
    leaf = logits.clone().requires_grad_()
    direct = torch.autograd.grad(loss(leaf, target), leaf)[0]
    base = (logits / 3).requires_grad_()
    made = base * 3
    total = loss(made, target) + made.sum()
    through = torch.autograd.grad(total, base)[0]
    assert close(through, 3 * (direct + 1))


# Noise or a second tensor would have to be permuted, too.
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not (loss.takes_noise or loss.partner)], ids=str)
def test_a_row_of_the_batch_may_be_permuted_with_its_labels(loss, fresh):
    logits, target = batch(loss, fresh)
    order = torch.randperm(N, generator=fresh)
    moved = order.argsort()[target] if loss.one_class else target[:, order]
    assert close(loss(logits[:, order], moved), loss(logits, target))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "loss",
    # Compiling takes seconds, so most losses wait for the slow tests.
    [
        pytest.param(loss, id=str(loss), marks=[pytest.mark.slow] * (str(loss) not in ALWAYS_COMPILED))
        for loss in LOSSES
        if str(loss) in COMPILED
    ],
)
@each_backend
def test_the_compiled_loss_agrees_with_the_eager_one(loss, backend, fresh):
    torch.compiler.reset()
    logits, target = batch(loss, fresh)
    options = {"noise": loss.noise(logits.float())} if loss.takes_noise else {}

    def run(x: Tensor) -> Tensor:
        return loss(x, target, 2, **options)

    results = []
    for function in (run, whole_graph(run, backend)):
        rows = logits.float().requires_grad_()
        value = function(rows)
        results.append((value.detach(), torch.autograd.grad(value, rows)[0]))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-5, atol=1e-6)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(loss, id=str(loss), marks=[pytest.mark.slow] * (not str(loss).startswith("asymmetric")))
        for loss in LOSSES
        if str(loss) in COMPILED
    ],
)
def test_a_loss_compiles_for_sizes_and_options_that_may_vary(loss, fresh):
    torch.compiler.reset()
    logits, target = batch(loss, fresh)
    options = {"noise": loss.noise(logits.float())} if loss.takes_noise else {}
    compiled = torch.compile(lambda x: loss(x, target, 2, **options), dynamic=True, backend="eager")
    assert close(compiled(logits.float()), loss(logits.float(), target, 2, **options))
    torch.compiler.reset()

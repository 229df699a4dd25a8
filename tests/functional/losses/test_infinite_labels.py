"""Infinite logits beside missing classes, positives at -inf, and gradients into targets: every loss, every path."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from tests.contracts_losses import LOSSES, N, batch, value_and_gradient

INF = math.inf
PATHS = ["on", "off", "device"]
ONE_CLASS = [loss for loss in LOSSES if loss.one_class]
WITHOUT_PARTNER = [loss for loss in LOSSES if not loss.partner]

each_path = pytest.mark.parametrize("path", PATHS)


@each_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("loss", ONE_CLASS, ids=str)
def test_a_row_without_a_class_has_no_gradient_whatever_labels_are_absent(loss, dtype, path, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", path)
    logits, hot = batch(loss, fresh)
    for absent in ([0], [0, 3], list(range(N))):
        with_absent, without = logits.to(dtype).clone(), hot.to(dtype).clone()
        with_absent[2, absent], without[2] = -INF, 0
        lists = torch.where(without.any(-1), without.argmax(-1), -1).unsqueeze(-1)
        for target in (without, without.bool(), lists):
            for reduction in ("none", "mean", "sum"):
                value, slope = value_and_gradient(loss, with_absent, target, reduction=reduction)
                assert value.isfinite().all()
                assert slope.isfinite().all()
                assert (slope[2] == 0).all()


@each_path
@pytest.mark.parametrize("rivals", ["present", "some absent", "all absent"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_positive_at_minus_infinity_gives_no_nan(loss, rivals, path, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", path)
    logits, hot = batch(loss, fresh)
    logits = logits.float()
    absent = torch.rand(logits.shape, generator=fresh) < {"present": 0.0, "some absent": 0.5, "all absent": 1.0}[rivals]
    logits[1, (hot[1] > 0) | absent[1]] = -INF
    for k in {1, 2, loss.largest_k(N)} if loss.takes_k else {2}:
        value, slope = value_and_gradient(loss, logits, hot, k, reduction="none")
        assert not value.isnan().any()
        assert not slope.isnan().any()


@pytest.mark.parametrize("name", ["warp", "rml"])
def test_ranking_losses_of_a_positive_at_minus_infinity_are_their_limits(name, fresh):
    loss = next(loss for loss in LOSSES if str(loss) == name)
    logits, hot = torch.randn(3, N, generator=fresh, dtype=torch.float64), torch.zeros(3, N)
    hot[:, 1] = 1
    hot[1] = 1  # no negatives
    far, absent = logits.clone(), logits.clone()
    far[:, 1], absent[:, 1] = -1e12, -INF
    expected, _ = value_and_gradient(loss, far, hot, reduction="none")
    value, slope = value_and_gradient(loss, absent, hot, reduction="none")
    if name == "warp":
        assert value.tolist() == [INF, 0.0, INF]
    else:
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=0)
    assert slope.isfinite().all()


@pytest.mark.parametrize("form", [lambda hot: hot, lambda hot: hot.to_sparse()], ids=["multi-hot", "sparse"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_floating_target_gets_the_same_gradient_on_every_path_and_it_is_right_or_none(loss, form, fresh, monkeypatch):
    logits, hot = batch(loss, fresh)
    soft = hot if loss.one_class else 0.7 * hot
    found = []
    for path in PATHS:
        monkeypatch.setenv("SHORTLIST_KERNELS", path)
        for dtype in (torch.float32, torch.float64):
            target = form(soft).to(dtype).requires_grad_()
            value = loss(logits.to(dtype).requires_grad_(), target)
            (slope,) = torch.autograd.grad(value, target, allow_unused=True)
            found.append(slope if slope is None or slope.layout == torch.strided else slope.to_dense())
    assert all((slope is None) == (found[0] is None) for slope in found)
    if found[0] is not None:
        for slope in found:
            torch.testing.assert_close(slope.double(), found[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.one_class and not loss.detaches], ids=str)
def test_the_gradient_into_soft_targets_is_that_of_finite_differences_if_there_is_one(loss, fresh):
    logits, _ = batch(loss, fresh)
    soft = (0.1 + 0.8 * torch.rand(logits.shape, generator=fresh, dtype=torch.float64)).requires_grad_()
    if torch.autograd.grad(loss(logits.requires_grad_(), soft), soft, allow_unused=True)[0] is not None:
        assert gradcheck(lambda target: loss(logits, target), (soft,))

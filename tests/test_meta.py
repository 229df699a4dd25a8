"""On the meta device, shapes and dtypes are those of the CPU: for every operator, loss, module, head and metric."""

import pytest
import torch
from torch.fx.experimental import _config
from torch.utils._pytree import tree_leaves, tree_map_only

from shortlist import functional as F
from shortlist import metrics as M
from tests.contracts import HEADS, POTENTIALS, PROJECTIONS
from tests.contracts_losses import BUILDING_BLOCKS, FORMS, LOSSES, N, batch
from tests.contracts_metrics import METRICS, draw

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


def on_meta(tree):
    """The same tensors without values; leaves stay leaves."""
    return tree_map_only(torch.Tensor, lambda x: x.detach().to("meta").requires_grad_(x.requires_grad), tree)


def described(tree):
    return [(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(tree)]


def assert_agree(function, *arguments):
    """The results of ``function`` on meta tensors have the shapes and dtypes of those on the CPU."""
    ours, theirs = function(*arguments), function(*on_meta(arguments))
    assert described(theirs) == described(ours)
    assert all(leaf.is_meta for leaf in tree_leaves(theirs) if isinstance(leaf, torch.Tensor))


def with_gradient(function):
    """``function``, and its gradient in its first argument."""

    def both(x, *others):
        value = function(x, *others)
        return value, torch.autograd.grad(value.sum(), x)

    return both


@each_dtype
@pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
@pytest.mark.parametrize("per_row", [False, True], ids=["number", "k per row"])
def test_projections(projection, per_row, dtype, fresh):
    x = torch.randn(3, 4, 7, generator=fresh).to(dtype).requires_grad_()
    if per_row and not projection.takes_k:
        pytest.skip("has no k")
    if not per_row:
        assert_agree(with_gradient(lambda x: projection(x, 2)), x)
        return
    k = torch.full((3, 4), 2.0, dtype=dtype).requires_grad_()
    assert_agree(with_gradient(lambda x, k: projection(x, k)), x, k)


@pytest.mark.parametrize("projection", [one for one in PROJECTIONS if one.module], ids=str)
def test_modules_of_projections(projection, fresh):
    x = torch.randn(3, 7, generator=fresh).requires_grad_()
    assert_agree(with_gradient(lambda x: projection.layer(2)(x)), x)


@each_dtype
@pytest.mark.parametrize("case", POTENTIALS, ids=str)
def test_potentials(case, dtype, fresh):
    x = torch.randn(3, 7, generator=fresh).to(dtype).requires_grad_()
    assert_agree(with_gradient(case.potential(2)), x)


BLOCKS = {
    F.kth_largest: lambda x: F.kth_largest(x, 2),
    F.noised_kth_largest: lambda x: F.noised_kth_largest(x, 2, samples=3),
    F.log_elementary_symmetric: lambda x: F.log_elementary_symmetric(x, 2),
}


@each_dtype
@pytest.mark.parametrize("block", BLOCKS, ids=lambda function: function.__name__)
def test_building_blocks(block, dtype, fresh):
    x = torch.randn(3, 7, generator=fresh).to(dtype).requires_grad_()
    assert_agree(with_gradient(BLOCKS[block]), x)


def test_every_building_block_of_logits_is_listed():
    assert {*BLOCKS, F.margins_from_counts} == set(BUILDING_BLOCKS)


DENSE_FORMS = ["class indices", "index lists", "float32 multi-hot", "bool multi-hot"]


@each_dtype
@pytest.mark.parametrize("form", DENSE_FORMS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_losses(loss, form, dtype, fresh):
    x, hot = batch(loss, fresh)
    if form == "class indices" and not loss.one_class:
        hot = torch.nn.functional.one_hot(hot.argmax(-1), N).to(hot)
    x = x.to(dtype).requires_grad_()
    assert_agree(with_gradient(lambda x, y: loss(x, y)), x, FORMS[form](hot))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_reductions_and_weights(loss, reduction, fresh):
    x, hot = batch(loss, fresh)
    weight = torch.rand(N, generator=fresh)
    assert_agree(
        with_gradient(lambda x, y, w: loss(x, y, weight=w, reduction=reduction)),
        x.float().requires_grad_(),
        hot,
        weight,
    )


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_modules_of_losses(loss, fresh):
    x, hot = batch(loss, fresh)
    x = x.float().requires_grad_()

    def call(x, y):
        return loss.forward(loss.layer(x.new_empty(x.shape, device="cpu").zero_()).to(x.device), x, y)

    assert_agree(with_gradient(call), x, hot)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_heads(head, fresh):
    features = torch.randn(3, 5, generator=fresh)
    assert_agree(lambda x: head().to(x.device)(x), features)


VALUES_DECIDE = {M.MeanAveragePrecision, M.SceneGraphRecall, M.AverageKAccuracy, M.SetSize}
VALUES_DECIDE |= {M.HierarchicalPrecision, M.HierarchicalRecall, M.HierarchicalF1}
VALUES_DECIDE |= {M.AdaptiveCalibrationError, M.AreaUnderRiskCoverage}
"""Metrics that keep all rows, count distinct nodes, or check a size that depends on values."""


@pytest.mark.parametrize("case", METRICS, ids=str)
def test_metrics(case, fresh):
    if type(case.metric()) in VALUES_DECIDE:
        pytest.skip("needs values")
    scores, hot = draw(case, 6, 0)
    scores, hot = scores.float(), hot.clamp(min=0)

    def state(scores, hot):
        metric = case.metric().to(scores.device)
        # Labels are lists of the positives, as many as there are; on the meta device all entries.
        with _config.patch(meta_nonzero_assume_all_nonzero=True):
            case.update(metric, scores, hot)
        return {name: getattr(metric, name) for name in metric._defaults}

    assert_agree(state, scores, hot)

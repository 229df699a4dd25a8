"""Logits that are never held, where it is hard: extremes, ties, half precision, empty, absent, NaN; and their topk."""

import math

import pytest
import torch
from torch.nn.functional import linear

from shortlist import functional as F
from shortlist.functional import LinearLogits
from shortlist.label_axis import linear_blocks
from tests.label_axis.linear_cases import LOSSES, ONE_CLASS, TOLERANCE, Layer, draw_hot, outcome

each_loss = pytest.mark.parametrize("name", LOSSES)
BLOCKS = [None, 5]

SPREAD = torch.arange(52.0).mul(19).remainder(53).reshape(4, 13)
"""Whole numbers, all different, so that logits are exact in every precision and the plain loss in float64 can judge."""
EXTREMES = {
    "gaps of 1e3": (1000 * SPREAD, 0.0),
    "small gaps": (SPREAD / 64, 0.0),
    "an offset of 1e6": (SPREAD / 16, 1e6),
    "an offset of -1e6": (SPREAD / 16, -1e6),
    "one far above": (SPREAD / 8 + 500 * (torch.arange(13) == 3), 0.0),
    "two far below": (SPREAD / 8 - 3000 * (torch.arange(13) % 7 == 3), 0.0),
}


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("extreme", EXTREMES)
@each_loss
def test_extreme_logits_give_what_the_plain_loss_gives_in_double_precision(name, extreme, k):
    hot = draw_hot(4, n=13, one=name in ONE_CLASS, unknown=False)
    logits, offset = EXTREMES[extreme]
    # Features that pick: the gradient of the weight is that of the logits, and nothing cancels in it.
    wide = Layer(*(part.double() for part in (torch.eye(4), logits.T, torch.full((13,), offset))))
    wide.weight.requires_grad_()
    expected = outcome(wide, lambda x: LOSSES[name](x, hot, k), wide.dense())
    for dtype in (torch.float64, torch.float32):
        layer = Layer(*(part.detach().to(dtype) for part in wide.parts))
        layer.weight.requires_grad_()
        for block in BLOCKS:
            found = outcome(layer, lambda x: LOSSES[name](x, hot, k), layer.unheld(block))
            assert torch.allclose(found.value.double(), expected.value, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
            assert torch.allclose(layer.weight.grad.double(), wide.weight.grad, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@each_loss
def test_equal_logits_give_the_plain_value_and_a_gradient_of_the_same_sum(name, dtype, block):
    hot = draw_hot(4, n=13, one=name in ONE_CLASS, unknown=False)
    layer = Layer(torch.eye(4, dtype=dtype), torch.full((13, 4), 2.0, dtype=dtype).requires_grad_(), None)
    sums = []
    for logits in (layer.unheld(block), layer.dense()):
        found = outcome(layer, lambda x: LOSSES[name](x, hot, 4), logits)
        # Which of equal logits are dropped is not defined.
        sums.append((found.value, layer.weight.grad.sum(0), layer.weight.grad[hot.T > 0]))
    for ours, plain in zip(*sums, strict=True):
        assert torch.allclose(ours, plain, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("block", BLOCKS)
@each_loss
def test_absent_labels_and_unknown_ones_leave_the_competition(name, block):
    layer = Layer.draw(5, n=13)
    with torch.no_grad():
        layer.bias[[2, 7]] = -math.inf
    hot = draw_hot(5, n=13, one=name in ONE_CLASS, unknown=True)
    hot[:, [2, 7]] = hot[:, [2, 7]].clamp(max=0)
    results = [outcome(layer, lambda x: LOSSES[name](x, hot, 3), x) for x in (layer.unheld(block), layer.dense())]
    assert results[0].misses(results[1], 1e-10) == []
    assert results[0].value.isfinite()


@pytest.mark.parametrize("k", [11, 12, 13])
def test_more_places_than_labels_that_are_present_take_them_all(k):
    layer, hot = Layer.draw(5, n=13), draw_hot(5, n=13, one=False, unknown=False)
    with torch.no_grad():
        layer.bias[[2, 7]] = -math.inf
    hot[:, [2, 7]] = 0
    results = [outcome(layer, lambda x: F.lml_nll(x, hot, k), x) for x in (layer.unheld(4), layer.dense())]
    assert results[0].misses(results[1], 1e-10) == []


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not (loss.entrywise or loss.couples_rows)])
def test_a_row_of_nan_is_nan_alone(name):
    layer, hot = Layer.draw(4, n=11), draw_hot(4, n=11, one=name in ONE_CLASS, unknown=False)
    with torch.no_grad():
        layer.features[1] = math.nan
    values = LOSSES[name](layer.unheld(4), hot, 3, reduction="none")
    assert values.isnan().tolist() == [False, True, False, False]


@pytest.mark.parametrize("rows", [(0,), (2, 0)])
@each_loss
def test_an_empty_batch_gives_zero_and_a_gradient_of_zeros(name, rows):
    layer = Layer.draw(*rows, n=11)
    found = outcome(layer, lambda x: LOSSES[name](x, torch.zeros(*rows, 11), 3), layer.unheld())
    assert found.value.item() == 0
    assert all(
        part.shape == own.shape and not part.any() for part, own in zip(found.gradients, layer.parts, strict=True)
    )


@each_loss
def test_rows_without_positives_count_as_in_the_plain_loss(name):
    layer = Layer.draw(3, n=11)
    for hot in (torch.zeros(3, 11), -torch.ones(3, 11)):
        results = [outcome(layer, lambda x, y=hot: LOSSES[name](x, y, 3), x) for x in (layer.unheld(4), layer.dense())]
        assert results[0].misses(results[1], 1e-10) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_loss
def test_half_precision_is_that_of_the_plain_layer(name, dtype):
    layer = Layer.draw(6, n=40, d=5, dtype=dtype)
    hot = draw_hot(6, n=40, one=name in ONE_CLASS, unknown=False)
    results = [outcome(layer, lambda x: LOSSES[name](x, hot, 3), x) for x in (layer.unheld(7), layer.dense())]
    assert results[0].value.dtype == torch.float32
    assert torch.allclose(results[0].value, results[1].value, rtol=1e-2)
    for ours, plain in zip(results[0].gradients, results[1].gradients, strict=True):
        assert ours.dtype == dtype
        assert torch.allclose(
            ours.float(), plain.float(), rtol=0, atol=4 * torch.finfo(dtype).eps * plain.abs().max().item() + 1e-3
        )


@each_loss
def test_autocast_casts_the_products_and_nothing_else(name):
    layer = Layer.draw(6, n=40, d=5, dtype=torch.float32)
    hot = draw_hot(6, n=40, one=name in ONE_CLASS, unknown=False)
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer.unheld(7)
        found = outcome(layer, lambda x: LOSSES[name](x, hot, 3), logits)
        assert logits.dtype == logits.dense().dtype == torch.bfloat16
        outside_made = LinearLogits(layer.features, layer.weight.detach().double().float(), layer.bias)
    plain = outcome(layer, lambda x: LOSSES[name](x, hot, 3), linear(*(part.bfloat16() for part in layer.parts)))
    exact = outcome(layer, lambda x: LOSSES[name](x, hot, 3), layer.dense())
    assert outside_made.dtype == torch.bfloat16
    assert found.value.dtype == torch.float32
    assert torch.allclose(found.value, plain.value, rtol=1e-4)
    assert not torch.equal(found.value, exact.value)
    for ours, wide in zip(found.gradients, exact.gradients, strict=True):
        assert ours.dtype == torch.float32
        assert torch.allclose(ours, wide, atol=0.05 * max(1.0, wide.abs().max().item()))


def test_the_block_is_of_a_size_for_the_rows():
    assert linear_blocks.block_width(1) == linear_blocks.ENTRIES
    assert linear_blocks.block_width(256) * 256 == linear_blocks.ENTRIES
    assert linear_blocks.block_width(10**9) == linear_blocks.NARROWEST
    assert linear_blocks.block_width(10**9, 3) == 3


@pytest.mark.parametrize("block", [None, 1, 3, 64, 200])
@pytest.mark.parametrize("k", [0, 1, 2, 7, 200])
def test_the_best_labels_are_those_of_a_stable_sort(k, block):
    layer = Layer.draw(2, 3, n=200, dtype=torch.float32)
    with torch.no_grad():  # whole numbers: many ties
        for part in layer.parts:
            part.round_()
        layer.bias[::3] = -math.inf
    values, order = layer.dense().detach().sort(dim=-1, descending=True, stable=True)
    best = layer.unheld(block).topk(k)
    assert torch.equal(best.labels, order[..., :k])
    assert torch.equal(best.values, values[..., :k])
    assert not best.values.requires_grad


def test_the_best_labels_of_many_are_found_in_groups():
    layer = Layer.draw(5, n=20_000, dtype=torch.float32)
    values, labels = layer.dense().detach().topk(9)
    best = layer.unheld(6000).topk(9)
    assert torch.equal(best.labels, labels)
    assert torch.allclose(best.values, values)
    with torch.no_grad():
        for part in layer.parts:
            part.zero_()
    assert torch.equal(layer.unheld(6000).topk(9).labels, torch.arange(9).expand(5, 9))
    assert layer.unheld().topk(3).values.dtype == torch.float32
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 20000\]; got 20001"):
        layer.unheld().topk(20_001)


def test_what_it_stands_for_is_said():
    layer = Layer.draw(2, 3, n=9)
    logits = layer.unheld(4)
    assert (logits.shape, logits.ndim, logits.num_labels) == ((2, 3, 9), 3, 9)
    assert (logits.dtype, logits.device) == (torch.float64, torch.device("cpu"))
    assert torch.equal(logits.dense(), layer.dense())
    assert repr(logits) == "LinearLogits(shape=(2, 3, 9), dtype=torch.float64, label_block=4)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"features": torch.zeros(2, 4)},
            ValueError,
            r"`features` must have last size 3 like `weight`; got shape \(2, 4\)",
        ),
        ({"features": torch.zeros(2, 3).long()}, TypeError, "`features` must be a floating tensor; got torch.int64"),
        ({"features": [1.0]}, TypeError, "`features` must be a floating tensor; got list"),
        (
            {"weight": torch.zeros(3)},
            ValueError,
            r"`weight` must have 2 dimensions, labels and features; got shape \(3,\)",
        ),
        ({"bias": torch.zeros(4)}, ValueError, r"`bias` must have one value per label, shape \(5,\); got \(4,\)"),
        (
            {"bias": torch.zeros(5).double()},
            TypeError,
            "`features`, `weight` and `bias` must have one dtype; got torch.float32, ",
        ),
        ({"label_block": 0}, ValueError, "`label_block` must be at least 1; got 0"),
        ({"label_block": 1.5}, TypeError, "`label_block` must be a whole number; got float"),
    ],
)
def test_what_is_no_layer_is_refused(change, error, message):
    parts = {"features": torch.zeros(2, 3), "weight": torch.zeros(5, 3), "bias": torch.zeros(5)}
    with pytest.raises(error, match=message):
        LinearLogits(**{**parts, **change})


def test_what_a_loss_cannot_do_without_all_logits_is_refused():
    logits, hot = Layer.draw(2, n=9).unheld(), torch.zeros(2, 9)
    with pytest.raises(ValueError, match='`reduction` must be "mean" or "sum" for LinearLogits, which hold no entries'):
        F.bce(logits, hot, reduction="none")
    with pytest.raises(ValueError, match="`weight` must not require a gradient for LinearLogits"):
        F.bce(logits, hot, weight=torch.ones(9, requires_grad=True))
    with pytest.raises(ValueError, match="`target` must not require a gradient for LinearLogits"):
        F.bce(logits, hot.clone().requires_grad_())


@each_loss
def test_bad_arguments_are_refused_as_by_the_plain_loss(name):
    layer = Layer.draw(2, n=9)
    hot = draw_hot(2, n=9, one=True, unknown=False)
    cases = [
        ((hot, 2), {"weight": torch.ones(8)}),
        ((hot, 2), {"reduction": "best"}),
        ((torch.tensor([9, 0]), 2), {}),
        ((hot[:1], 2), {}),
        ((hot[:, :8], 2), {}),
        *([((hot, 10), {}), ((hot, 0), {})] if LOSSES[name].takes_k else []),
    ]
    for args, options in cases:
        said = []
        for logits in (layer.unheld(), layer.dense()):
            with pytest.raises(ValueError, match="`") as error:
                LOSSES[name](logits, *args, **options)
            said.append(str(error.value))
        assert said[0] == said[1]

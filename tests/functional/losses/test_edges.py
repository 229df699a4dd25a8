"""Edge cases of every loss: rows without labels, unknown rows, infinite logits; one label, one row, no rows."""

import math

import pytest
import torch

from tests.contracts_losses import LOSSES, N, batch, random_hot, value_and_gradient

INF = math.inf
ONE_CLASS = [loss for loss in LOSSES if loss.one_class]
SETS = [loss for loss in LOSSES if not loss.one_class]
ROW_BY_ROW = [loss for loss in LOSSES if not loss.couples_rows]

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


@each_loss
def test_rows_without_positives_count_for_nothing(loss, fresh):
    logits, hot = batch(loss, fresh)
    for reduction in ("none", "sum", "mean"):
        value, slope = value_and_gradient(loss, logits, torch.zeros_like(hot), reduction=reduction)
        assert value.isfinite().all()
        assert slope.isfinite().all()
        if not loss.counts_absent:
            assert (value == 0).all()
            assert (slope == 0).all()


@pytest.mark.parametrize("loss", [loss for loss in ONE_CLASS if not loss.couples_rows], ids=str)
def test_a_row_without_a_class_leaves_the_others_alone(loss, fresh):
    logits, hot = batch(loss, fresh)
    without = torch.cat([hot[:2], torch.zeros_like(hot[:1]), hot[3:]])
    kept = [0, 1, 3, 4]
    values, alone = loss(logits, without, reduction="none"), loss(logits[kept], hot[kept], reduction="none")
    assert torch.allclose(values[kept], alone, rtol=1e-12)
    assert values[2] == 0
    if loss.mean_over == "class weights":
        assert torch.allclose(loss(logits, without), loss(logits[kept], hot[kept]), rtol=1e-12)


@pytest.mark.parametrize("loss", SETS, ids=str)
def test_rows_of_nothing_but_positives_agree_with_the_reference(loss, fresh):
    logits, hot = batch(loss, fresh)
    for rows in (torch.ones_like(hot), torch.cat([hot[:4], torch.ones_like(hot[:1])])):
        value, slope = value_and_gradient(loss, logits, rows)
        assert value.item() == pytest.approx(float(loss.expected_mean(logits, rows)), rel=1e-9, abs=1e-12)
        assert slope.isfinite().all()


@each_loss
def test_a_batch_of_which_nothing_is_known_has_no_gradient(loss, fresh):
    logits, hot = batch(loss, fresh)
    for reduction in ("none", "sum", "mean"):
        value, slope = value_and_gradient(loss, logits, torch.full_like(hot, -1), reduction=reduction)
        assert value.isfinite().all()
        assert (slope == 0).all()
        if not loss.takes_expected:
            assert (value == 0).all()


@each_loss
def test_one_row_and_a_row_of_which_nothing_is_known_agree_with_the_reference(loss, fresh):
    logits, hot = batch(loss, fresh)
    hot[1] = -1
    for rows in (slice(None), slice(0, 1)):
        value, slope = value_and_gradient(loss, logits[rows], hot[rows])
        expected = float(loss.expected_mean(logits[rows], hot[rows]))
        assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert slope.isfinite().all()
        assert (slope[1:2] == 0).all()


@pytest.mark.parametrize("loss", ROW_BY_ROW, ids=str)
def test_a_row_needs_no_batch_axis(loss, fresh):
    logits, hot = batch(loss, fresh)
    for reduction in ("none", "sum", "mean"):
        alone, first = (loss(x, t, reduction=reduction) for x, t in ((logits[0], hot[0]), (logits[:1], hot[:1])))
        assert torch.allclose(alone, first.squeeze(0), rtol=1e-12)


@pytest.mark.parametrize("shape", [(0, N), (2, 0, N)])
@each_loss
def test_no_rows_give_a_zero_that_backpropagates(loss, shape):
    logits = torch.zeros(shape, requires_grad=True)
    for target in (torch.zeros(shape), torch.zeros(shape, dtype=torch.bool), torch.zeros(shape[:-1]).long()):
        for reduction in ("sum", "mean"):
            value = loss(logits, target, reduction=reduction)
            assert value.item() == 0
            assert value.shape == ()
            assert torch.autograd.grad(value, logits)[0].shape == shape
        values = loss(logits, target, reduction="none")
        if loss.options.get("kind") != "class":
            assert values.shape == (shape if loss.entrywise else shape[:-1])


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.takes_k], ids=str)
def test_as_many_labels_as_there_are_or_one_less_may_be_wanted(loss, fresh):
    for n in (1, 2, 3, N):
        logits = 2 * torch.randn(4, n, generator=fresh, dtype=torch.float64)
        hot = random_hot(loss, 4, n, fresh)
        for k in {max(1, n - 1), n}:
            if k > loss.largest_k(n):
                continue
            values, slope = value_and_gradient(loss, logits, hot, k, reduction="none")
            assert values.tolist() == pytest.approx([float(v) for v in loss.expected(logits, hot, k)], abs=1e-9)
            assert slope.isfinite().all()
            if k == n and loss.options.get("kind") != "convex":
                assert (values == 0).all()
                assert (slope == 0).all()


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.function.__name__ != "average_k"], ids=str)
@pytest.mark.parametrize("label", [1.0, 0.0, -1.0])
def test_a_single_label_is_a_row(loss, label, fresh):
    logits, hot = torch.randn(3, 1, generator=fresh).double(), torch.full((3, 1), label, dtype=torch.float64)
    value, slope = value_and_gradient(loss, logits, hot, 1)
    assert value.item() == pytest.approx(float(loss.expected_mean(logits, hot, 1)), abs=1e-12)
    assert slope.isfinite().all()


@pytest.mark.parametrize("rows", [(2, 3), (2, 1, 3), (1, 2, 1, 3), (2, 1, 1, 1, 3)], ids=str)
@each_loss
def test_any_number_of_row_axes_is_the_flat_batch(loss, rows, fresh):
    logits, hot = batch(loss, fresh, unknown=0.2, rows=6)
    weight = torch.linspace(0.5, 2, N, dtype=torch.float64)
    deep = logits.reshape(*rows, N), hot.reshape(*rows, N)
    flat, flat_slope = value_and_gradient(loss, logits, hot, weight=weight)
    value, slope = value_and_gradient(loss, *deep, weight=weight)
    assert torch.allclose(value, flat, rtol=1e-12)
    assert torch.allclose(slope.reshape(6, N), flat_slope, rtol=1e-12, atol=1e-14)
    values = loss(*deep, reduction="none")
    if loss.options.get("kind") == "class":
        assert values.shape == (N,)
    else:
        assert values.shape == (*rows, N) if loss.entrywise else rows
    assert torch.allclose(values.flatten(), loss(logits, hot, reduction="none").flatten(), rtol=1e-12)


@pytest.mark.parametrize("loss", ONE_CLASS, ids=str)
def test_class_indices_may_have_several_axes(loss, fresh):
    logits, hot = batch(loss, fresh, rows=6)
    classes = hot.argmax(-1)
    expected = loss(logits, hot, reduction="none")
    assert torch.equal(loss(logits, classes, reduction="none"), expected)
    deep = loss(logits.reshape(2, 3, N), classes.reshape(2, 3), reduction="none")
    assert torch.allclose(deep, expected.reshape(2, 3), rtol=1e-12)
    listed = loss(logits.reshape(2, 3, N), classes.reshape(2, 3, 1), reduction="none")
    assert torch.allclose(listed, expected.reshape(2, 3), rtol=1e-12)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.partner], ids=str)
def test_absent_labels_of_minus_infinity_give_no_nan(loss, fresh):
    logits, hot = batch(loss, fresh, rows=8)
    absent = (torch.rand(8, N, generator=fresh) < 0.5) & (hot <= 0)
    absent[:, 2] = hot[:, 2] <= 0  # a whole column, but for its positives
    absent[3] = hot[3] <= 0  # a whole row, but for its positives
    logits = logits.masked_fill(absent, -INF)
    for k in (1, 2, 5):
        for reduction in ("none", "mean"):
            value, slope = value_and_gradient(loss, logits, hot, k, reduction=reduction)
            assert value.isfinite().all()
            assert slope.isfinite().all()
            assert (slope[absent] == 0).all()
        if not loss.entrywise:
            expected = [float(v) for v in loss.expected(logits, hot, k)]
            values = loss(logits, hot, k, reduction="none").tolist()
            assert values == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_absent_labels_of_both_heads_of_average_k_give_no_nan(fresh):
    loss = next(loss for loss in LOSSES if loss.partner == "proposals")
    logits, hot = batch(loss, fresh)
    absent = torch.zeros(5, N, dtype=torch.bool)
    absent[1, 2], absent[2, 4], absent[4, 0] = hot[1, 2] == 0, hot[2, 4] == 0, hot[4, 0] == 0
    assert absent.any()
    logits, proposals = logits.masked_fill(absent, -INF), loss.second(logits).masked_fill(absent, -INF)
    value, slope = value_and_gradient(loss, logits, hot, partner=proposals)
    assert value.isfinite()
    assert slope.isfinite().all()


@pytest.mark.parametrize("loss", ROW_BY_ROW, ids=str)
def test_a_row_of_nan_spoils_no_other(loss, fresh):
    logits, hot = batch(loss, fresh)
    values, slope = value_and_gradient(loss, logits, hot, reduction="none")
    logits[1] = math.nan
    spoiled, spoiled_slope = value_and_gradient(loss, logits, hot, reduction="none")
    kept = [0, 2, 3, 4]
    assert torch.allclose(spoiled[kept], values[kept], rtol=1e-12)
    assert torch.allclose(spoiled_slope[kept], slope[kept], rtol=1e-12, atol=1e-15)
    assert spoiled[1].isnan().any()

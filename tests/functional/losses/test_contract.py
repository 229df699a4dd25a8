"""The contract of all losses: reductions, weights, error messages, precision and unknown labels."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from tests.contracts_losses import LOSSES, Loss, N, batch, value_and_gradient
from tests.functional.paths import HALVES, PATHS, on_each_path

INF = math.inf
ONE_CLASS = [loss for loss in LOSSES if loss.one_class]
SETS = [loss for loss in LOSSES if not loss.one_class]
WHOLE_K = [loss for loss in LOSSES if loss.takes_k and loss.function.__name__ not in ("lml_nll", "average_k")]

BAD_K = {True: (0, -1, N + 1, 1.5, math.nan, INF, "2", None, [2]), False: (0, N + 1, "2", None, [2])}
"""Numbers of labels that losses of a whole number refuse, and those of any number."""

ROUGH = [{"gamma_positive": g, "gamma_negative": g, "clip": clip} for g in (0.5, 1.0, 3.0) for clip in (0.0, 0.2)]
SHARP = {
    "focal": [{"gamma": 0.5}, {"gamma": 0.0}, {"gamma": 5.0}],
    "ldam": [{"scale": 30.0, "margin": 0.5}],
    "smooth_topk_svm": [{"temperature": 0.01}, {"temperature": 0}, {"temperature": 100.0}],
    "noised_topk": [{"epsilon": 100.0}, {"epsilon": 0.0}, {"scale": 30.0}],
    "two_way": [{"positive_temperature": 0.01, "negative_temperature": 0.01}, {"negative_temperature": 100.0}],
    "asymmetric": ROUGH,
    "rml": [{"floor": -100.0}],
}
"""Options with steep, flat or vanishing slopes."""

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_half = pytest.mark.parametrize("dtype", HALVES, indirect=True)


def shape_of_values(loss: Loss, logits: Tensor) -> torch.Size:
    if loss.entrywise:
        return logits.shape
    return logits.shape[-1:] if loss.options.get("kind") == "class" else logits.shape[:-1]


@each_loss
def test_none_gives_one_value_each_and_sum_adds_them(loss, fresh):
    logits, hot = batch(loss, fresh, unknown=0.2)
    values = loss(logits, hot, reduction="none")
    assert values.shape == shape_of_values(loss, logits)
    total = loss(logits, hot, reduction="sum")
    assert total.shape == ()
    assert torch.allclose(total, values.sum(), rtol=1e-12)


@each_loss
def test_the_mean_is_the_default_and_that_of_equal_rows_is_their_value(loss, fresh):
    logits, hot = batch(loss, fresh)
    assert torch.equal(loss(logits, hot), loss(logits, hot, reduction="mean"))
    values = loss(logits, hot, reduction="none")
    if loss.options.get("kind") == "class":
        counted = (hot.amax(0) > 0) & (hot.amin(0) < 1)
        values = values[counted]
    assert torch.allclose(loss(logits, hot), values.mean(), rtol=1e-12)


@each_loss
def test_no_weight_means_a_weight_of_one(loss, fresh):
    logits, hot = batch(loss, fresh, unknown=0.2)
    ones = torch.ones(N, dtype=torch.float64)
    for reduction in ("none", "sum", "mean"):
        plain, weighted = (
            value_and_gradient(loss, logits, hot, weight=weight, reduction=reduction) for weight in (None, ones)
        )
        assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(plain, weighted, strict=True))


@each_loss
def test_the_scale_of_the_weights_matters_only_to_sums(loss, fresh):
    logits, hot = batch(loss, fresh)
    weight = torch.rand(N, generator=fresh, dtype=torch.float64) + 0.5
    mean, scaled = (loss(logits, hot, weight=w) for w in (weight, 4 * weight))
    if loss.function.__name__ == "two_way" or loss.mean_over == "class weights":
        assert torch.allclose(scaled, mean, rtol=1e-12)
    elif not (loss.takes_expected or loss.partner):
        assert torch.allclose(scaled, 4 * mean, rtol=1e-12)


@each_loss
def test_a_class_of_weight_zero_is_not_trained_on(loss, fresh):
    logits, hot = batch(loss, fresh)
    if loss.one_class:
        value, slope = value_and_gradient(loss, logits, hot, weight=torch.zeros(N, dtype=torch.float64))
        assert value == 0
        assert (slope == 0).all()
    else:
        assert loss(logits, hot, weight=torch.zeros(N, dtype=torch.float64)).isfinite()


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        pytest.param(loss, reduction, id=f"{loss}-{reduction}")
        for loss in LOSSES
        for reduction in (["average", "", None, "Mean"] if loss is LOSSES[0] else ["Mean"])
    ],
)
def test_another_reduction_is_refused(loss, reduction, fresh):
    with pytest.raises(ValueError, match="`reduction` must"):
        loss(*batch(loss, fresh), reduction=reduction)


@each_loss
def test_a_weight_of_another_shape_or_type_is_refused(loss, fresh):
    for shape in [(N - 1,), (N + 1,), (1, N), (1,), ()]:
        with pytest.raises(ValueError, match="`weight` must"):
            loss(*batch(loss, fresh), weight=torch.ones(shape))
    for weight in (torch.ones(N, dtype=torch.int64), torch.ones(N, dtype=torch.bool), [1.0] * N, 2.0):
        with pytest.raises(TypeError, match="`weight` must"):
            loss(*batch(loss, fresh), weight=weight)


@pytest.mark.parametrize(
    ("loss", "k"),
    [pytest.param(loss, k, id=f"{loss}-{k}") for loss in LOSSES if loss.takes_k for k in BAD_K[loss in WHOLE_K]],
)
def test_a_number_of_labels_that_cannot_be_is_refused(loss, k, fresh):
    with pytest.raises((ValueError, TypeError), match="`k` must"):
        loss(*batch(loss, fresh), k)


@each_loss
def test_labels_of_another_type_or_shape_are_refused(loss, fresh):
    logits, hot = batch(loss, fresh)
    with pytest.raises(TypeError, match="`target` must be int64"):
        loss(logits, hot.int())
    with pytest.raises(TypeError, match=r"`target` must be a torch\.Tensor"):
        loss(logits, [0, 1, 2, 3, 4])
    for wrong in (hot[:, :-1], hot[0], hot[None], torch.zeros(1, 5, 2, dtype=torch.int64)):
        with pytest.raises(ValueError, match="`target`"):
            loss(logits, wrong)
    for wrong in (hot[:-1], torch.zeros(4, dtype=torch.int64), torch.zeros(3, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match="`target` must have the rows"):
            loss(logits, wrong)


@each_loss
def test_logits_must_be_floating_and_have_a_label_axis(loss):
    with pytest.raises(TypeError, match="`logits` must be a floating tensor"):
        loss(torch.zeros(3, N, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="`logits` must have"):
        loss(torch.tensor(1.0), torch.tensor(0), 1, **({"noise": torch.zeros(1)} if loss.takes_noise else {}))


@pytest.mark.parametrize("loss", ONE_CLASS, ids=str)
def test_two_classes_in_a_row_are_refused_where_one_is_true(loss, fresh):
    logits, hot = batch(loss, fresh)
    hot[3] = 0
    hot[3, [0, 2]] = 1
    for wrong in (hot, hot.bool(), hot.to_sparse()):
        with pytest.raises(ValueError, match="row 3"):
            loss(logits, wrong)
    with pytest.raises(ValueError, match="`target`"):
        loss(logits, torch.tensor([[0, 1]] * 5))


@each_loss
def test_options_are_keyword_only(loss, fresh):
    logits, hot = batch(loss, fresh)
    args = [logits, *([loss.second(logits)] if loss.partner else []), hot]
    args += [2] if loss.takes_k or loss.takes_expected else []
    with pytest.raises(TypeError, match="positional argument"):
        loss.function(*args, 1.0)


@each_loss
def test_unknown_labels_matter_to_nothing_and_get_no_gradient(loss, fresh):
    logits, hot = batch(loss, fresh, unknown=0.5)
    unknown = hot < 0
    assert unknown.any()
    for reduction in ("none", "mean"):
        value, slope = value_and_gradient(loss, logits, hot, reduction=reduction)
        assert (slope[unknown] == 0).all()
        for value_there in (1e4, -INF, INF, math.nan):
            other = logits.masked_fill(unknown, value_there)
            moved, moved_slope = value_and_gradient(loss, other, hot, reduction=reduction)
            assert torch.allclose(value, moved, rtol=1e-9, atol=1e-12)
            assert torch.allclose(slope, moved_slope, rtol=1e-9, atol=1e-12)


@each_half
@each_loss
def test_half_precision_is_computed_and_answered_in_float32(loss, dtype, fresh):
    logits, hot = batch(loss, fresh, unknown=0.2)
    logits, hot, weight = logits.to(dtype), hot.to(dtype), torch.linspace(0.5, 2, N)
    for reduction in ("none", "sum", "mean"):
        options = {"reduction": reduction, "weight": weight}
        partner = loss.second(logits).float()
        value, slope = value_and_gradient(loss, logits, hot, **options)
        exact, exact_slope = value_and_gradient(loss, logits.float(), hot, partner=partner, **options)
        assert value.dtype == torch.float32
        assert slope.dtype == dtype
        assert torch.equal(value, exact)
        assert torch.equal(slope, exact_slope.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_loss
def test_the_loss_has_the_dtype_of_the_logits_whatever_that_of_labels_and_weights(loss, dtype, fresh):
    logits, hot = batch(loss, fresh)
    for other in (torch.float16, torch.float32, torch.float64):
        value, slope = value_and_gradient(loss, logits.to(dtype), hot.to(other), weight=torch.ones(N, dtype=other))
        assert value.dtype == slope.dtype == dtype


EXTREMES = {
    "far apart": [1.0, 0.0, -1.0, 0.9999, 3e-4, -2e-4],
    "all high": [1.0, 0.9, 1.0, 0.8, 1.0, 0.7],
    "all low": [-1.0, -0.9, -1.0, -0.8, -1.0, -0.7],
    "one above": [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    "one below": [0.0, 0.0, -1.0, 0.0, 0.0, 0.0],
    "two ends": [1.0, -1.0, 1.0, -1.0, 1.0, -1.0],
}


@on_each_path("loss", LOSSES, ["float32-kernels", "float32-tensors", *HALVES])
def test_huge_logits_give_the_right_value_and_finite_gradients(loss, dtype):
    """Each is as wrong as float32 sums of that many terms of that size must be, and no more."""
    size = 1e4 if dtype == torch.float32 else 6e4
    hot = torch.eye(N) if loss.one_class else (torch.arange(N)[:, None] > torch.arange(N)).float()
    for (name, row), k in product(EXTREMES.items(), (1, 3)):
        logits = (size * torch.tensor([row] * N, dtype=torch.float64)).to(dtype)
        value, slope = value_and_gradient(loss, logits, hot, k, reduction="none")
        assert slope.isfinite().all()
        expected = loss.expected(logits, hot, k)
        flat = [float(v) for line in expected for v in line] if loss.entrywise else [float(v) for v in expected]
        expected = torch.tensor(flat, dtype=torch.float64).reshape(value.shape)
        rounding = 10 * torch.finfo(torch.float32).eps * max(size, 1)
        assert torch.allclose(value.double(), expected, rtol=1e-5, atol=rounding), (name, k)


@pytest.mark.parametrize(
    ("loss", "options", "dtype"),
    [
        pytest.param(loss, options, path, id=f"{loss}-{i}-{path}")
        for loss in LOSSES
        for i, options in enumerate([{}, *SHARP.get(loss.function.__name__, [])])
        for path in [*PATHS, *HALVES]
        if loss.has_kernel or path != "float32-tensors"
    ],
    indirect=["dtype"],
)
def test_gradients_are_finite_at_every_distance(loss, options, dtype):
    for logit in (-300.0, -30.0, -20.7, -8.0, 0.0, 8.0, 20.7, 30.0, 300.0):
        logits = torch.zeros(N, N, dtype=dtype).fill_diagonal_(logit)
        assert value_and_gradient(loss, logits, torch.eye(N), reduction="sum", **options)[1].isfinite().all(), logit


@pytest.mark.parametrize("distance", [30.0, 300.0])
@each_loss
def test_a_hard_miss_is_still_pulled_up(loss, distance):
    logits = torch.zeros(N, N).fill_diagonal_(-distance)
    slope = value_and_gradient(loss, logits, torch.eye(N), 1, reduction="sum")[1]
    if loss.function.__name__ == "rml":  # ramps are flat beyond their floor: that is what makes them robust
        assert (slope.diagonal() <= 0).all()
    else:
        assert (slope.diagonal() <= -0.1).all()

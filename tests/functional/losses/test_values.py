"""Every loss agrees with its reference: values, options, weights, unknown labels, forms of the labels, means."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.functional import lml_nll, margins_from_counts
from tests import reference
from tests.contracts_losses import FORMS, LOSSES, Loss, label_sets, random_hot
from tests.functional.paths import each_path, on_each_path
from tests.reference import MP

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.25, 1.5, 3.0, 0.75], dtype=torch.float64)
N = len(WEIGHT)
quick = settings(derandomize=True, deadline=None, max_examples=12)

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
each_share = pytest.mark.parametrize("unknown", [0, 0.4], ids=["all known", "some unknown"])


def wrong(loss: Loss, got: Tensor, expected: object, dtype: torch.dtype) -> list[tuple[float, str]]:
    """Pairs whose relative difference is too large; where terms cancel, relative to values above 1 only."""
    least = 1 if loss.cancels else 1e-30
    flat = [want for line in expected for want in line] if isinstance(expected[0], list) else expected
    assert got.dtype == dtype
    pairs = zip(got.flatten().tolist(), flat, strict=True)
    return [
        (value, MP.nstr(want, 17))
        for value, want in pairs
        if not abs(MP.mpf(value) - want) <= TOLERANCE[dtype] * max(least, abs(want))
    ]


def batch(loss: Loss, generator: torch.Generator, *, unknown: float = 0, rows: int = 5) -> tuple[Tensor, Tensor]:
    logits = 2 * torch.randn(rows, N, generator=generator).double()
    return logits, random_hot(loss, rows, N, generator, unknown=unknown)


@each_share
@on_each_path("loss", LOSSES)
def test_values_agree_with_the_reference(loss, dtype, unknown, fresh):
    logits, hot = batch(loss, fresh, unknown=unknown)
    logits = logits.to(dtype)
    for k in (1, 2, 5, N - 1, N) if loss.takes_k else (1,):
        if k <= loss.largest_k(N):
            got = loss(logits, hot, k, reduction="none")
            assert not wrong(loss, got, loss.expected(logits, hot, k), dtype), k


@each_loss
@quick
@given(data=st.data(), n=st.integers(2, 8), rows=st.integers(1, 4), seed=st.integers(0, 9999))
def test_values_agree_on_any_rows_tied_ones_included(loss, data, n, rows, seed):
    """Multiples of 1/8 keep every difference exact, so that a rank is the same in every precision."""
    steps = st.lists(st.integers(-40, 40), min_size=rows * n, max_size=rows * n)
    logits = torch.tensor(data.draw(steps), dtype=torch.float64).reshape(rows, n) / 8
    k = data.draw(st.integers(1, loss.largest_k(n)))
    hot = random_hot(loss, rows, n, torch.Generator().manual_seed(seed), unknown=0.3)
    for dtype in TOLERANCE:
        got = loss(logits.to(dtype), hot, k, reduction="none")
        assert not wrong(loss, got, loss.expected(logits.to(dtype), hot, k), dtype)


@each_dtype
@pytest.mark.parametrize(
    ("loss", "options"),
    [pytest.param(loss, options, id=f"{loss}-{i}") for loss in LOSSES for i, options in enumerate(loss.variants)],
)
def test_options_do_what_the_reference_says(loss, options, dtype, fresh):
    logits, hot = batch(loss, fresh, unknown=0.2)
    logits = logits.to(dtype)
    for k in (1, 3) if loss.takes_k else (1,):
        got = loss(logits, hot, k, reduction="none", **options)
        assert not wrong(loss, got, loss.expected(logits, hot, k, **options), dtype), k


@each_share
@each_dtype
@each_loss
def test_weights_multiply_the_terms_of_their_class(loss, dtype, unknown, fresh):
    logits, hot = batch(loss, fresh, unknown=unknown)
    logits, weight = logits.to(dtype), WEIGHT.to(dtype)
    mean = loss(logits, hot, weight=weight)
    assert not wrong(loss, mean, [loss.expected_mean(logits, hot, weight=WEIGHT)], dtype)
    got = loss(logits, hot, weight=weight, reduction="none")
    assert not wrong(loss, got, loss.expected(logits, hot, weight=WEIGHT), dtype)


@each_dtype
@each_loss
def test_the_mean_divides_by_what_counts(loss, dtype, fresh):
    logits, hot = batch(loss, fresh, unknown=0.3, rows=6)
    hot[2] = hot[2].clamp(max=0)  # a row without positives
    if not loss.one_class:
        hot[4] = 1
    for weight in (None, WEIGHT):
        given_weight = None if weight is None else weight.to(dtype)
        got = loss(logits.to(dtype), hot, weight=given_weight)
        assert not wrong(loss, got, [loss.expected_mean(logits.to(dtype), hot, weight=weight)], dtype)


@pytest.mark.parametrize("form", FORMS)
@each_loss
def test_every_form_of_the_labels_gives_the_same_value(loss, form, fresh):
    logits, hot = batch(loss, fresh)
    if form == "class indices" and not loss.one_class:
        hot = torch.eye(N, dtype=torch.float64)[[3, 0, 6, 2, 2]]
    for reduction in ("none", "sum", "mean"):
        for weight in (None, WEIGHT):
            options = {"weight": weight, "reduction": reduction}
            expected, got = loss(logits, hot, **options), loss(logits, FORMS[form](hot), **options)
            assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["float32 multi-hot", "sparse COO", "sparse CSR"])
@each_loss
def test_every_form_that_can_say_unknown_gives_the_same_value(loss, form, fresh):
    logits, hot = batch(loss, fresh, unknown=0.4)
    assert (hot < 0).any()
    expected = loss(logits, hot, weight=WEIGHT, reduction="none")
    got = loss(logits, FORMS[form](hot), weight=WEIGHT, reduction="none")
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    any_negative = torch.where(hot < 0, -3.5 * torch.rand(hot.shape, generator=fresh) - 0.1, hot)
    assert torch.equal(loss(logits, any_negative, weight=WEIGHT, reduction="none"), expected)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.one_class], ids=str)
def test_index_lists_of_one_class_may_be_empty(loss, fresh):
    logits, hot = batch(loss, fresh)
    target = FORMS["index lists"](hot)
    target[3] = -1
    hot[3] = 0
    for reduction in ("none", "mean"):
        assert torch.equal(loss(logits, target, reduction=reduction), loss(logits, hot, reduction=reduction))
    assert loss(logits, target, reduction="none")[3] == 0


@each_path
def test_the_number_of_labels_of_lml_may_differ_by_row_and_be_fractional(dtype, fresh):
    loss = next(loss for loss in LOSSES if loss.function is lml_nll)
    logits, hot = batch(loss, fresh, unknown=0.2)
    logits, k = logits.to(dtype), torch.tensor([0.25, 1.0, 2.5, 3.75, 7.0], dtype=dtype)
    positives, unknown = label_sets(hot)
    expected = [loss.reference(*args) for args in zip(logits.tolist(), positives, unknown, k.tolist(), strict=True)]
    assert not wrong(loss, lml_nll(logits, hot, k, reduction="none"), expected, dtype)
    for row, number in enumerate(k.tolist()):
        got = lml_nll(logits[row], hot[row], number, reduction="none")
        assert not wrong(loss, got, expected[row : row + 1], dtype)


@pytest.mark.parametrize("k", [1, 1.25, 2.6, 4, 5.9])
def test_average_k_wants_any_number_of_labels_below_all(k, fresh):
    loss = next(loss for loss in LOSSES if loss.partner == "proposals")
    logits, hot = batch(loss, fresh, rows=4)
    got = loss(logits, hot, k, reduction="none")
    assert not wrong(loss, got, loss.expected(logits, hot, k), torch.float64)


@pytest.mark.parametrize("largest", [0.5, 0.2])
def test_margins_shrink_with_the_fourth_root_of_the_counts(largest):
    counts = [1000, 16, 1, 0, 81, 7]
    expected = reference.margins_from_counts(counts, largest)
    for given_counts in (torch.tensor(counts), torch.tensor(counts, dtype=torch.float64)):
        margins = margins_from_counts(given_counts, largest=largest)
        assert margins.is_floating_point()
        assert [float(m) for m in expected] == pytest.approx(margins.tolist(), rel=1e-6)
        assert margins.max().item() == pytest.approx(largest)
    assert margins_from_counts(torch.tensor([0, 0])).tolist() == [0.5, 0.5]
    rare = margins_from_counts(torch.tensor([0, 16, 256])).tolist()
    assert rare == pytest.approx([0.5, 0.5, 0.25])

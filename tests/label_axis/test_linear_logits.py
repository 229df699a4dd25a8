"""Logits that are never held: values and gradients of the plain losses, for every block, form of labels and option."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from shortlist import functional as F
from shortlist import nn
from shortlist.functional import LinearLogits
from shortlist.label_axis import linear_blocks
from tests.contracts import PROJECTIONS
from tests.label_axis.linear_cases import FORMS, LOSSES, ONE_CLASS, TOLERANCE, Layer, draw_hot, outcome

each_loss = pytest.mark.parametrize("name", LOSSES)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


@st.composite
def settings_of_a_loss(draw, loss):
    """Shape, block, form of the labels and options; no reduction of entries that are not held."""
    rows = draw(st.sampled_from([(1,), (4,), (2, 3), ()]))
    n = draw(st.integers(1, 70))
    form = draw(st.sampled_from(["multi-hot", "bool", "lists", *(["COO", "CSR"] if len(rows) == 1 else [])]))
    return {
        "rows": rows,
        "n": n,
        "block": draw(st.sampled_from([None, 1, 7, n, n + 5])),
        "form": form,
        "unknown": form in ("multi-hot", "COO", "CSR") and draw(st.booleans()),
        "weighted": draw(st.booleans()),
        "biased": draw(st.booleans()),
        "reduction": draw(st.sampled_from(["mean", "sum"] if loss.entrywise else ["mean", "sum", "none"])),
        "k": draw(st.integers(1, n)),
        "seed": draw(st.integers(0, 1000)),
    }


@each_dtype
@each_loss
@settings(max_examples=20, derandomize=True, deadline=None)
@given(data=st.data())
def test_values_and_gradients_are_those_of_the_plain_loss(name, dtype, data):
    case = data.draw(settings_of_a_loss(LOSSES[name]))
    layer = Layer.draw(*case["rows"], n=case["n"], dtype=dtype, seed=case["seed"])
    if not case["biased"]:
        layer.bias = None
    hot = draw_hot(*case["rows"], n=case["n"], one=name in ONE_CLASS, unknown=case["unknown"], seed=case["seed"])
    target = FORMS[case["form"]](hot)
    options = {"reduction": case["reduction"], "weight": torch.rand(case["n"]) if case["weighted"] else None}

    def loss(logits):
        return LOSSES[name](logits, target, case["k"], **options)

    ours = outcome(layer, loss, layer.unheld(case["block"]))
    assert ours.misses(outcome(layer, loss, layer.dense()), TOLERANCE[dtype]) == []
    assert ours.value.dtype == dtype


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lml_nll", {"temperature": 0.3}),
        ("lml_nll", {"temperature": 5.0}),
        ("two_way-two-way", {"positive_temperature": 0.5, "negative_temperature": 3.0, "margin": 0.7}),
        ("two_way-class", {"negative_temperature": 0.2}),
    ],
)
def test_options_mean_what_they_mean_for_the_plain_loss(name, options, block):
    layer, hot = Layer.draw(6, n=23), draw_hot(6, n=23, one=False, unknown=True)
    results = [outcome(layer, lambda x: LOSSES[name](x, hot, 3, **options), x) for x in _both(layer, block)]
    assert results[0].misses(results[1], 1e-10) == []


def test_k_may_differ_by_row_and_learn():
    layer, hot = Layer.draw(5, n=23), draw_hot(5, n=23, one=False, unknown=False)
    gradients = []
    for logits in _both(layer, 7):
        k = torch.tensor([1.0, 2.5, 3.0, 22.0, 23.0], dtype=torch.float64, requires_grad=True)
        F.lml_nll(logits, hot, k).backward()
        gradients.append(k.grad)
    assert torch.allclose(*gradients, rtol=1e-10)
    outside = F.lml_nll(layer.unheld(7), hot, torch.tensor([1.0, -1.0, 2.0, 24.0, 3.0]), reduction="none")
    assert outside.isnan().tolist() == [False, True, False, True, False]


def test_soft_targets_of_binary_cross_entropy_are_weighed():
    layer = Layer.draw(4, n=11)
    soft = torch.rand(4, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).masked_fill_(
        torch.eye(4, 11) > 0, -1
    )
    results = [outcome(layer, lambda x: F.bce(x, soft), x) for x in _both(layer, 4)]
    assert results[0].misses(results[1], 1e-10) == []


def test_a_label_that_a_list_names_twice_is_refused_as_by_the_plain_loss():
    layer, lists = Layer.draw(2, n=9), torch.tensor([[4, 4, 1], [0, -1, -1]])
    for name in set(LOSSES) - ONE_CLASS:
        for logits in _both(layer, 4):
            with pytest.raises(ValueError, match="`target` row 0: label 4 must not occur twice"):
                LOSSES[name](logits, lists, 3)


def test_the_class_of_a_row_may_be_an_index_or_missing():
    layer = Layer.draw(3, n=9)
    one_missing = torch.eye(3, 9).index_fill(0, torch.tensor(1), 0)
    for target in (torch.tensor([8, 0, 4]), torch.tensor([[8], [-1], [4]]), one_missing):
        results = [outcome(layer, lambda x, y=target: F.truncated_topk_entropy(x, y, 3), x) for x in _both(layer, 4)]
        assert results[0].misses(results[1], 1e-10) == []
    with pytest.raises(ValueError, match=r"`target` row 1: one label must be positive for this loss; got \[3, 5\]\."):
        F.truncated_topk_entropy(
            layer.unheld(), one_missing.index_put((torch.tensor(1), torch.tensor([3, 5])), torch.tensor(1.0)), 3
        )
    with pytest.raises(ValueError, match="`target` must name one class per row; got index lists with room for 2"):
        F.truncated_topk_entropy(layer.unheld(), torch.tensor([[0, 1]] * 3), 3)


@pytest.mark.parametrize("module", [nn.LMLNLL(2), nn.BCE(), nn.TwoWay(), nn.MultilabelTruncatedTopKEntropy(3)], ids=str)
def test_modules_take_them_too(module):
    layer, hot = Layer.draw(4, n=11), draw_hot(4, n=11, one=False, unknown=True)
    results = [outcome(layer, lambda x: module(x, hot), x) for x in _both(layer, 4)]
    assert results[0].misses(results[1], 1e-10) == []


class _Sizes(TorchDispatchMode):
    """Follow the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                # A tensor of which all entries are one number holds nothing.
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@each_loss
def test_nothing_as_large_as_the_logits_is_made(name, monkeypatch):
    monkeypatch.setattr(linear_blocks, "ENTRIES", 1 << 12)
    rows, n, d = 32, 3000, 4
    layer = Layer.draw(rows, n=n, d=d, dtype=torch.float32)
    lists = torch.arange(rows * 3).view(rows, 3) * 31 % n
    target = lists[:, 0] if name in ONE_CLASS else lists
    found = []
    for make in (layer.unheld, layer.dense):
        with _Sizes() as sizes:
            LOSSES[name](make(), target, 5).backward()
        found.append(sizes.largest)
    assert found[0] <= n * d  # the gradient of the weight
    assert found[1] >= rows * n


@each_loss
def test_only_what_wants_a_gradient_gets_one(name):
    hot = draw_hot(4, n=11, one=name in ONE_CLASS, unknown=False)
    whole = Layer.draw(4, n=11)
    LOSSES[name](whole.unheld(4), hot, 3).backward()
    for i in range(3):
        layer = Layer.draw(4, n=11)
        for j, part in enumerate(layer.parts):
            part.requires_grad_(i == j)
        LOSSES[name](layer.unheld(4), hot, 3).backward()
        for j, (part, other) in enumerate(zip(layer.parts, whole.parts, strict=True)):
            assert (part.grad is None) == (i != j)
            assert i != j or torch.equal(part.grad, other.grad)
    with torch.no_grad():
        assert not LOSSES[name](whole.unheld(4), hot, 3).requires_grad


def test_gradients_can_be_had_again_but_not_differentiated():
    layer, hot = Layer.draw(4, n=11), draw_hot(4, n=11, one=False, unknown=False)
    loss = F.lml_nll(layer.unheld(4), hot, 3)
    first = torch.autograd.grad(loss, layer.parts, retain_graph=True)
    again = torch.autograd.grad(loss, layer.parts, create_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    with pytest.raises(RuntimeError, match="`LinearLogits` can be differentiated once; got a second derivative"):
        again[1].sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="`LinearLogits` can be differentiated once; got a second derivative"):
        torch.autograd.grad(again[1].sum(), layer.parts, allow_unused=True)


def test_a_weight_that_was_changed_before_the_gradient_is_noticed():
    layer, hot = Layer.draw(4, n=11), draw_hot(4, n=11, one=False, unknown=False)
    loss = F.bce(layer.unheld(4), hot)
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
def test_projections_refuse_linear_logits(projection):
    with pytest.raises(TypeError, match="got LinearLogits, which this function does not accept"):
        projection(Layer.draw(3, n=9).unheld(), 2)


def _both(layer: Layer, block: int | None) -> tuple[LinearLogits, torch.Tensor]:
    return layer.unheld(block), layer.dense()

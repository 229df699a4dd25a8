"""The chunked head: parameters of a linear layer, logits that are not held, every way in which heads are used."""

import copy
import io

import pytest
import torch
from torch import nn

from shortlist import functional as F
from shortlist.audit import audit
from shortlist.functional import LinearLogits
from shortlist.nn import BCE, LMLNLL, ChunkedHead, MultilabelTruncatedTopKEntropy, TruncatedTopKEntropy, TwoWay
from tests.nn.saving import copies

FEATURES = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))


def head(**options) -> ChunkedHead:
    torch.manual_seed(0)
    return ChunkedHead(5, 9, **options)


def test_it_starts_as_a_linear_layer_and_a_state_of_either_fits_the_other():
    torch.manual_seed(0)
    linear = nn.Linear(5, 9)
    layer = head()
    for name, value in linear.state_dict().items():
        assert torch.allclose(layer.state_dict()[name], value, atol=1e-7)
    linear.load_state_dict(layer.state_dict())
    assert torch.equal(layer(FEATURES).dense(), linear(FEATURES))
    assert list(head(bias=False).state_dict()) == ["weight"]


@pytest.mark.parametrize("train", [True, False])
def test_it_gives_logits_that_are_not_held_in_training_and_after(train):
    layer = head(label_block=4).train(train)
    logits = layer(FEATURES)
    assert isinstance(logits, LinearLogits)
    assert (logits.shape, logits.label_block) == ((2, 3, 9), 4)
    assert torch.equal(logits.topk(3).labels, logits.dense().topk(3).indices)


@pytest.mark.parametrize("loss", [LMLNLL(3), BCE(), TwoWay(), MultilabelTruncatedTopKEntropy(3)], ids=str)
def test_it_learns_what_the_plain_layer_learns(loss):
    target = torch.tensor([[[0, 3], [1, -1], [8, 2]], [[4, 5], [6, -1], [7, 0]]])
    layer, plain = head(label_block=4), nn.Linear(5, 9)
    plain.load_state_dict(layer.state_dict())
    for module, logits in ((layer, lambda: layer(FEATURES)), (plain, lambda: plain(FEATURES))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            loss(logits(), target).backward()
            optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.allclose(layer.state_dict()[name], value, atol=1e-5)


def test_features_learn_through_it():
    encoder, layer = nn.Linear(4, 5), head()
    TruncatedTopKEntropy(2)(layer(encoder(torch.randn(6, 4))), torch.tensor([0, 1, 2, 3, 4, 8])).backward()
    assert encoder.weight.grad.abs().sum() > 0


def test_it_is_copied_saved_and_made_without_memory():
    layer = head(label_block=4)
    for name, again in copies(layer).items():
        assert repr(again) == repr(layer), name
        assert torch.equal(again(FEATURES).dense(), layer(FEATURES).dense()), name
    empty = ChunkedHead(5, 9, device="meta", dtype=torch.float64).to_empty(device="cpu")
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(
        empty(FEATURES.double()).dense().float(), copy.deepcopy(layer).double()(FEATURES.double()).dense().float()
    )
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert set(torch.load(file, weights_only=True)) == {"weight", "bias"}


def test_it_says_its_sizes_and_refuses_others():
    assert repr(head()) == "ChunkedHead(in_features=5, num_labels=9, bias=True)"
    assert (
        repr(head(bias=False, label_block=3)) == "ChunkedHead(in_features=5, num_labels=9, bias=False, label_block=3)"
    )
    with pytest.raises(ValueError, match=r"`features` must have last size 5; got shape \(2, 4\)"):
        head()(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="`label_block` must be at least 1; got 0"):
        head(label_block=0)
    with pytest.raises(ValueError, match="`num_labels` must be at least 1; got 0"):
        ChunkedHead(5, 0)


def test_the_auditor_takes_it_like_any_linear_layer():
    layer, plain = head(), nn.Linear(5, 9)
    plain.load_state_dict(layer.state_dict())
    sets = torch.tensor([[0, 1], [3, 8], [4, 5]])
    reports = [audit(module, sets, mode="top-k") for module in (layer, plain)]
    assert reports[0].verdicts.tolist() == reports[1].verdicts.tolist()


def test_a_projection_of_its_logits_is_refused_with_a_way_out():
    with pytest.raises(TypeError, match=r"its `dense\(\)` is a tensor"):
        F.lml(head()(FEATURES), 2)
    assert F.lml(head()(FEATURES).dense(), 2).shape == (2, 3, 9)


def test_autocast_reaches_the_products():
    layer = head()
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(FEATURES)
    assert logits.dtype == torch.bfloat16
    BCE()(logits, torch.zeros(2, 3, dtype=torch.long)).backward()
    assert layer.weight.grad.dtype == torch.float32

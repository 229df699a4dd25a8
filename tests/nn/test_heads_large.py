"""Heads for very many labels, and the losses that take their logits."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from shortlist.audit import audit
from shortlist.functional import LinearLogits, lml
from shortlist.nn import BCE, LMLNLL, ChunkedHead, ColumnParallelHead, MultilabelTruncatedTopKEntropy, TwoWay
from tests.contracts_losses import LOSSES

FEATURES = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))


def head(**options) -> ChunkedHead:
    torch.manual_seed(0)
    return ChunkedHead(5, 9, **options)


def test_a_chunked_head_starts_as_a_linear_layer_and_shares_its_state():
    torch.manual_seed(0)
    linear, layer = nn.Linear(5, 9), head()
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in linear.state_dict().items())
    linear.load_state_dict(layer.state_dict())
    assert torch.equal(layer(FEATURES).dense(), linear(FEATURES))
    assert list(head(bias=False).state_dict()) == ["weight"]


@pytest.mark.parametrize("train", [True, False])
def test_it_returns_linear_logits_in_training_and_in_evaluation(train):
    logits = head(label_block=4).train(train)(FEATURES)
    assert isinstance(logits, LinearLogits)
    assert (logits.shape, logits.label_block) == ((2, 3, 9), 4)
    assert torch.equal(logits.topk(3).labels, logits.dense().topk(3).indices)


@pytest.mark.parametrize("loss", [LMLNLL(3), BCE(), TwoWay(), MultilabelTruncatedTopKEntropy(3)], ids=str)
def test_it_learns_what_a_plain_layer_learns(loss):
    target = torch.tensor([[[0, 3], [1, -1], [8, 2]], [[4, 5], [6, -1], [7, 0]]])
    layer, plain = head(label_block=4), nn.Linear(5, 9)
    plain.load_state_dict(layer.state_dict())
    for module in (layer, plain):
        torch.manual_seed(1)
        encoder = nn.Linear(5, 5)
        before = encoder.weight.clone()
        optimizer = torch.optim.SGD([*encoder.parameters(), *module.parameters()], lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            loss(module(encoder(FEATURES)), target).backward()
            optimizer.step()
        assert not torch.equal(encoder.weight, before)
    for name, value in plain.state_dict().items():
        assert torch.allclose(layer.state_dict()[name], value, atol=1e-5)


def test_it_is_created_without_memory():
    layer = head(label_block=4)
    empty = ChunkedHead(5, 9, device="meta", dtype=torch.float64).to_empty(device="cpu")
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(empty(FEATURES.double()).dense(), layer.double()(FEATURES.double()).dense())


def test_it_shows_its_sizes_and_refuses_others():
    assert repr(head()) == "ChunkedHead(in_features=5, num_labels=9, bias=True)"
    shown = repr(head(bias=False, label_block=3))
    assert shown == "ChunkedHead(in_features=5, num_labels=9, bias=False, label_block=3)"
    with pytest.raises(ValueError, match=r"`features` must have last size 5; got shape \(2, 4\)"):
        head()(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="`label_block` must be at least 1; got 0"):
        head(label_block=0)
    with pytest.raises(ValueError, match="`num_labels` must be at least 1; got 0"):
        ChunkedHead(5, 0)


def test_an_audit_takes_it_like_any_linear_layer():
    layer, plain = head(), nn.Linear(5, 9)
    plain.load_state_dict(layer.state_dict())
    sets = torch.tensor([[0, 1], [3, 8], [4, 5]])
    reports = [audit(module, sets, mode="top-k") for module in (layer, plain)]
    assert reports[0].verdicts.tolist() == reports[1].verdicts.tolist()


def test_autocast_reaches_the_products():
    layer = head()
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(FEATURES)
    assert logits.dtype == torch.bfloat16
    BCE()(logits, torch.zeros(2, 3, dtype=torch.long)).backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.fixture
def sharded(tmp_path) -> torch.Tensor:
    """Logits that are sharded over one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield ColumnParallelHead(5, 9, init_device_mesh("cpu", (1,)))(FEATURES[0])
    dist.destroy_process_group()


def test_losses_take_linear_logits_and_dtensors_as_their_classes_say(sharded):
    for loss in LOSSES:
        facts, options = loss.module, {"noise": None} if loss.takes_noise else {}
        for logits, taken, hint in (
            (head()(FEATURES[0]), facts.takes_linear_logits, r"call its `dense\(\)`"),
            (sharded, facts.takes_dtensor, r"call its `full_tensor\(\)`"),
        ):
            with nullcontext() if taken else pytest.raises(TypeError, match=hint):
                assert loss(logits, torch.tensor([0, 3, 8]), partner=logits, **options).isfinite(), loss
        assert bool(facts.memory) == facts.takes_linear_logits, loss


def test_a_projection_refuses_linear_logits_with_a_hint():
    with pytest.raises(TypeError, match=r"call its `dense\(\)`"):
        lml(head()(FEATURES), 2)

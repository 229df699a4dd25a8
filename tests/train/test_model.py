"""A model is an encoder and a head; losses take all that the head gives, predictions one part of it."""

import pytest
import torch

from shortlist.nn import AverageK, BottleneckHead, CosineHead, DFTHead, TwoHead
from shortlist.train import MLP, Bag, Plain, SetModel
from tests.train.test_encoders import words

HEADS = {
    "linear": lambda: torch.nn.Linear(4, 9),
    "cosine": lambda: CosineHead(4, 9),
    "bottleneck": lambda: BottleneckHead(4, 9, 2),
    "dft": lambda: DFTHead(4, 9, 2),
}


def inputs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("name", HEADS)
def test_one_head_gives_one_output_and_predicts_with_it(name):
    torch.manual_seed(0)
    model = SetModel(Plain((4,)), HEADS[name]())
    (logits,) = model.outputs(inputs())
    assert logits.shape == (3, 9)
    assert torch.equal(logits, model(inputs()))
    assert model.output_layer is model.head


@pytest.mark.parametrize("name", HEADS)
def test_two_heads_give_two_outputs_and_the_first_predicts(name):
    torch.manual_seed(0)
    model = SetModel(Plain((4,)), TwoHead(HEADS[name](), HEADS[name]()))
    logits, proposals = model.outputs(inputs())
    assert torch.equal(logits, model(inputs()))
    assert not torch.equal(logits, proposals)
    assert model.output_layer is model.head.prediction
    assert AverageK(2)(logits, proposals, torch.tensor([0, 1, 2])).isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", HEADS)
def test_features_of_any_dtype_meet_a_head_in_float32(name, dtype):
    assert SetModel(Plain((4,)), HEADS[name]())(inputs(dtype)).dtype == torch.float32
    assert SetModel(MLP(Plain((4,)), (4,)), HEADS[name]())(inputs(dtype)).dtype == torch.float32


def test_a_model_in_float64_takes_inputs_in_float32():
    assert SetModel(Plain((4,)), torch.nn.Linear(4, 9)).double()(inputs()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_rows_train_a_model(dtype):
    torch.manual_seed(0)
    model = SetModel(MLP(Bag(6, 5), (4,)), TwoHead.linear(4, 9))
    logits, proposals = model.outputs(words(dtype).batch(torch.arange(5)))
    AverageK(2)(logits, proposals, torch.arange(5)).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_predicting_does_not_run_the_proposing_head():
    class Refuses(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    assert SetModel(Plain((4,)), TwoHead(HEADS["linear"](), Refuses()))(inputs()).shape == (3, 9)


def test_the_state_holds_parameters_and_nothing_else():
    model = SetModel(Plain((4,)), TwoHead.linear(4, 9))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    again = SetModel(Plain((4,)), TwoHead.linear(4, 9))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(inputs()), model(inputs()))

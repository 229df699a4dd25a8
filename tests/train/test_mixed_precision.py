"""In half precision every loss trains to about what it trains to in float32, and what is saved is float32."""

from typing import Any

import pytest
import torch

from shortlist.recipes import LOSSES
from shortlist.train import SetClassifier, evaluate, fit, load_model, save_model
from tests.train.small_data import classes, images, label_sets, quick


def options(loss: str, precision: str) -> Any:
    plain = {"hidden": [8], "dropout": 0.0}
    return quick(loss=loss, precision=precision, encoder_options=plain, learning_rate=0.01)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_in_half_precision_as_in_float32(loss):
    data = classes() if LOSSES[loss].one_class else label_sets()
    wanted, found = (fit(data, options(loss, precision)) for precision in ("32-true", "bf16-mixed"))
    assert found.history[0]["train_loss"] == pytest.approx(wanted.history[0]["train_loss"], rel=0.02)
    # A row of 48 may change sides.
    assert found.history[0][found.monitor] == pytest.approx(wanted.history[0][found.monitor], abs=0.05)
    assert found.history != wanted.history
    assert all(parameter.dtype == torch.float32 for parameter in found.model.parameters())


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("loss", ["cross_entropy", "average_k", "lml_nll"])
def test_the_network_is_in_half_precision_and_the_loss_is_not(monkeypatch, precision, loss):
    seen = []
    step = SetClassifier.training_step

    def training_step(self, batch, index):
        raw, take = self.model.outputs(batch.inputs)[0].dtype, self.loss.forward

        def forward(*arguments):
            inside = torch.ones(1, 1) @ torch.ones(1, 1)
            seen.append((raw, arguments[0].dtype, inside.dtype))
            return take(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(self.loss, "forward", forward)
            loss = step(self, batch, index)
        assert loss.dtype == torch.float32
        return loss

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    fit(classes(), quick(loss=loss, precision=precision))
    # On a CPU both mean bfloat16.
    assert set(seen) == {(torch.bfloat16, torch.float32, torch.float32)}


@pytest.mark.parametrize("data", [classes, images])
def test_a_model_of_half_precision_answers_in_float32(tmp_path, data):
    encoder = {"width": 2} if data is images else {"hidden": [8]}
    fitted = fit(data(), quick(precision="bf16-mixed", encoder_options=encoder))
    found = evaluate(fitted, data())
    assert all(0 <= value <= 7 for value in found.values.values())
    saved = load_model(save_model(fitted, tmp_path, rule=found.rule))
    assert {value.dtype for value in saved.model.state_dict().values()} <= {torch.float32, torch.int64}
    scores = saved.scores(data())
    assert scores.dtype == torch.float32
    # Scores of half precision would all be numbers of eight bits.
    assert (scores != scores.bfloat16().float()).float().mean() > 0.9

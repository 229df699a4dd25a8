"""Steps of a training: learning rates, half precision and augmented images."""

from typing import Any

import pytest
import torch

from shortlist.factory import LOSSES
from shortlist.train import SetClassifier, SetModel, evaluate, fit, load_model, save_model
from shortlist.train.classifier import rate_factor
from tests.train.interruptions import cut_short, equal
from tests.train.small_data import ENCODERS, KINDS, classes, images, label_sets, quick

STEPPED = quick(epochs=4, patience=0, optimizer="sgd", learning_rate=0.1, milestones=[0.5, 0.75], seed=3)


@pytest.fixture
def rates(monkeypatch) -> list[float]:
    """The rate of every step that is taken from here on."""
    seen, step = [], SetClassifier.training_step

    def training_step(self, batch, index):
        seen.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return step(self, batch, index)

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    return seen


def test_the_rate_is_divided_by_ten_at_the_first_step_of_an_epoch_in_an_interrupted_run_too(
    monkeypatch, tmp_path, rates
):
    cut_short(monkeypatch, tmp_path, 2, STEPPED)
    assert len(rates) == 6  # three steps each epoch
    fit(classes(), STEPPED, folder=tmp_path)
    assert rates == pytest.approx(6 * [0.1] + 3 * [0.01] + 3 * [0.001], rel=1e-12)


def test_without_milestones_the_rate_rises_and_falls_to_nothing():
    found = [rate_factor(step, 100) for step in range(100)]
    assert found[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert max(found) == found[4] > 0.99
    assert found[4:] == sorted(found[4:], reverse=True)
    assert found[50] == pytest.approx(0.5)
    assert found[-1] < 1e-3


@pytest.mark.parametrize("epochs", [10, 30, 90, 200])
@pytest.mark.parametrize("batches", [1, 7, 391, 3907])
def test_a_share_that_is_no_binary_fraction_meets_the_first_step_of_its_epoch(epochs, batches):
    steps = epochs * batches
    for tenth in range(1, 10):
        first = tenth * steps // 10
        shares = (tenth / 10, (tenth + 0.5) / 10)
        assert rate_factor(first - 1, steps, milestones=shares) == 1
        assert rate_factor(first, steps, milestones=shares[:1]) == 0.1


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


@pytest.mark.parametrize("kind", ["features", "images"])
def test_a_model_of_half_precision_answers_in_float32(tmp_path, kind):
    data = KINDS[kind]()
    fitted = fit(data, quick(precision="bf16-mixed", encoder_options=ENCODERS[kind]))
    found = evaluate(fitted, data)
    assert all(0 <= value <= 7 for value in found.values.values())
    saved = load_model(save_model(fitted, tmp_path, rule=found.rule))
    assert {value.dtype for value in saved.model.state_dict().values()} <= {torch.float32, torch.int64}
    scores = saved.scores(data)
    assert scores.dtype == torch.float32
    # Scores of half precision would all be numbers of eight bits.
    assert (scores != scores.bfloat16().float()).float().mean() > 0.9


CHANGED = quick(epochs=2, patience=0, encoder="linear", learning_rate=0.05, augmentation="crop-flip")


def test_training_sees_changed_images_and_validation_does_not(monkeypatch):
    data, seen = images(), {True: [], False: []}
    outputs = SetModel.outputs
    step = SetClassifier.training_step
    given = []

    def noted(self, inputs):
        seen[self.training].append(inputs.clone())
        return outputs(self, inputs)

    def training_step(self, batch, index):
        given.append(batch.inputs)
        return step(self, batch, index)

    monkeypatch.setattr(SetModel, "outputs", noted)
    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    fit(data, CHANGED)
    changed, plain = torch.cat(seen[True]), torch.cat(given)
    assert changed.dtype == torch.uint8
    assert (changed == plain).flatten(1).all(1).float().mean() < 0.1
    assert (changed == 0).float().mean() > 0.2  # what moved in was black
    val = data.part("val")
    wanted = val.inputs.batch(torch.arange(len(val)))
    assert all(torch.equal(batch, wanted) for batch in seen[False])


def test_an_interrupted_run_repeats_the_chance_of_its_images(monkeypatch, tmp_path):
    whole = fit(images(), CHANGED)
    cut_short(monkeypatch, tmp_path, 1, CHANGED, images())
    assert equal(fit(images(), CHANGED, folder=tmp_path), whole)
    assert load_model(save_model(whole, tmp_path)).about["options"]["augmentation"] == "crop-flip"

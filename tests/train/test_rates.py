"""The learning rate falls as a cosine, or by ten at milestones, whether or not a run was interrupted."""

import pytest

from shortlist.train import FitOptions, SetClassifier, fit, load_model, save_model
from shortlist.train.classifier import rate_factor
from tests.train.small_data import classes, quick
from tests.train.test_resume import cut_short

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


def test_milestones_are_kept_with_the_model(tmp_path):
    assert STEPPED.milestones == (0.5, 0.75)
    folder = save_model(fit(classes(), quick(milestones=[0.25])), tmp_path)
    kept = load_model(folder).about["options"]
    assert kept["milestones"] == [0.25]
    assert FitOptions(**kept) == quick(milestones=(0.25,))

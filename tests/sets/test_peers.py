"""The same numbers as other libraries on the same data, where they have the rule.

Skipped without them. To run: install MAPIE, TorchCP and crepes beside this package, or give an environment of theirs
this package by ``PYTHONPATH``.
"""

import numpy as np
import pytest
import torch

from shortlist.sets import APS, LAC, Margin, PValues, RiskControl, SplitConformal, false_discovery_rate
from shortlist.sets.risk.admissible import accepted_in_sequence, hoeffding_bentkus
from tests.sets.worlds import seeded

pytestmark = pytest.mark.slow
ROWS, LABELS = 2000, 30


def world(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities without ties, and one class for each row."""
    generator = seeded(seed)
    probs = (2 * torch.randn(ROWS, LABELS, generator=generator)).softmax(-1)
    return probs, probs.multinomial(1, generator=generator)[:, 0]


def label_sets(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of independent labels, none of them empty, and label sets."""
    generator = seeded(seed)
    probs = (2 * torch.randn(ROWS, LABELS, generator=generator) - 2).sigmoid()
    labels = torch.rand(ROWS, LABELS, generator=generator) < probs
    labels[torch.arange(ROWS), probs.argmax(-1)] |= ~labels.any(-1)  # MAPIE wants one in each row
    return probs, labels


def test_p_values_of_learn_then_test_and_its_fixed_sequence_are_those_of_mapie():
    control = pytest.importorskip("mapie.risk_control.methods")
    family = pytest.importorskip("mapie.risk_control.fwer_control")
    for rows, alpha in ((50, 0.1), (500, 0.3), (2000, 0.05), (2000, 0.5)):
        totals = torch.linspace(0, alpha * rows, 60, dtype=torch.float64)
        mine = hoeffding_bentkus(totals, rows, alpha)
        theirs = control.compute_hoeffding_bentkus_p_value((totals / rows).numpy(), rows, alpha).ravel()
        np.testing.assert_allclose(mine.numpy(), np.minimum(theirs, 1.0), rtol=1e-9, atol=1e-300)
        found = np.flatnonzero(accepted_in_sequence(mine, 0.1, full_is_safe=True, empty_is_safe=False).numpy())
        wanted = family.control_fwer(mine.numpy(), 0.1, family.FWERFixedSequenceTesting(n_starts=1))
        assert found.tolist() == np.sort(np.asarray(wanted).ravel()).tolist()


def test_the_precision_of_mapie_holds_at_thresholds_that_are_a_part_of_ours():
    control = pytest.importorskip("mapie.risk_control")
    grid = [step / 100 for step in range(1, 100)]
    for seed in range(5):
        probs, labels = label_sets(seed)
        rule = RiskControl(false_discovery_rate, 0.3, 0.1, candidates=grid).fit(probs, labels, from_logits=False)
        theirs = control.MultiLabelClassificationController(
            lambda x: x, "precision", "ltt", target_level=0.7, confidence_level=0.9, predict_params=np.array(grid)
        ).calibrate(probs.double().numpy(), labels.numpy().astype(int))
        valid = np.asarray(grid)[np.asarray(theirs.valid_index[0], dtype=int)]
        # One sequence of tests from the safe end accepts at least what a correction for all candidates does.
        assert len(valid)
        assert float(rule.threshold) <= valid.min() + 1e-6


@pytest.mark.parametrize(
    ("score", "theirs", "options"),
    [
        (LAC(), "LAC", {}),
        (Margin(), "Margin", {}),
        (APS(randomized=False), "APS", {"randomized": False}),
    ],
    ids=["LAC", "Margin", "APS"],
)
def test_thresholds_and_sets_are_those_of_torchcp(score, theirs, options):
    scores = pytest.importorskip("torchcp.classification.score")
    predictors = pytest.importorskip("torchcp.classification.predictor")
    for seed in range(5):
        probs, classes = world(seed)
        half = ROWS // 2
        with pytest.warns(DeprecationWarning, match="temperature"):
            other = predictors.SplitPredictor(getattr(scores, theirs)(score_type="identity", **options))
        other.calculate_threshold(probs[:half].clone(), classes[:half], 0.1)  # some of them write into it
        rule = SplitConformal(0.1, score=score).fit(probs[:half], classes[:half], from_logits=False)
        own = score.of_labels(block(probs[:half]), classes[:half]).double()
        np.testing.assert_allclose(np.sort(other.cal_scores), np.sort(offset(theirs) - own), atol=3e-6)
        wanted = other.predict_with_logits(probs[half:].clone()).bool()
        mine = rule(probs[half:])
        # They add up in float32: a label within rounding of the threshold may fall on either side.
        assert (mine != wanted).float().mean() < 1e-4


def block(probs: torch.Tensor):
    from shortlist.sets.scores import Block

    return Block(probs, probs)


def offset(score: str) -> float:
    """What TorchCP adds to minus our score."""
    return 1.0 if score == "LAC" else 0.0


def test_p_values_are_those_of_crepes():
    crepes = pytest.importorskip("crepes")
    probs, classes = world(0)
    half = ROWS // 2
    rule = PValues(0.1).fit(probs[:half], classes[:half], from_logits=False)
    other = crepes.ConformalClassifier()
    other.fit(1 - probs[:half][torch.arange(half), classes[:half]].double().numpy())
    wanted = other.predict_p(1 - probs[half : half + 200].double().numpy(), smoothing=False)
    np.testing.assert_allclose(rule.predict_p(probs[half : half + 200]).numpy(), wanted, atol=1e-12)

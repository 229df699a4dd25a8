"""Calibrators exported with a model answer in onnxruntime as they do here."""

import math

import pytest
import torch
from torch import nn

from shortlist.calibration import BetaCalibration, IsotonicCalibration, TemperatureScaling, VectorScaling
from shortlist.sets import NoneOfThese, SelectiveAnswers, TopK
from tests.nn.test_onnx import export_all
from tests.nn.test_onnx import pytestmark as exporter_warnings

pytestmark = exporter_warnings
LABELS = 6


class Answers(nn.Module):
    """Calibrated logits and probabilities of every calibrator, and the sets of rules that abstain."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(400, LABELS, generator=generator)
        classes = torch.multinomial((logits / 2).softmax(-1), 1, generator=generator).squeeze(-1)
        kinds = [
            make(link=link).fit(logits, classes)
            for link in ("softmax", "sigmoid")
            for make in (
                TemperatureScaling,
                VectorScaling,
                IsotonicCalibration,
                BetaCalibration,
                lambda link: IsotonicCalibration(per_label=True, link=link),
            )
        ]
        self.calibrators = nn.ModuleList(kinds)
        inner = TopK(2).fit(logits, from_logits=True)
        self.rules = nn.ModuleList(
            [
                SelectiveAnswers(0.4, rule=inner).fit(logits, classes, from_logits=True),
                SelectiveAnswers(0.4, confidence="margin").fit(logits, classes, from_logits=True),
                NoneOfThese(0.2).fit(logits, from_logits=True),
            ]
        )

    def forward(self, logits):
        found = [calibrator.calibrated_logits(logits) for calibrator in self.calibrators]
        probs = [calibrator(logits) for calibrator in self.calibrators]
        return torch.stack(found), torch.stack(probs), torch.stack([rule(logits) for rule in self.rules])


@pytest.mark.slow
def test_every_calibrator_and_abstaining_rule_answers_the_same():
    model = Answers().eval()
    fresh = 3 * torch.randn(50, LABELS, generator=torch.Generator().manual_seed(1))
    fresh[::5, 2] = -math.inf
    fresh[3, 1:] = -math.inf
    run = export_all(model, fresh)
    for some in (fresh, fresh[:7]):
        logits, probs, sets = (torch.from_numpy(output) for output in run(some))
        expected = model(some)
        assert torch.equal(logits == -math.inf, expected[0] == -math.inf)
        torch.testing.assert_close(logits.clamp(min=-100), expected[0].clamp(min=-100), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(probs, expected[1], rtol=1e-4, atol=1e-5)
        assert torch.equal(sets, expected[2])
        assert 0 < sets.float().mean() < 1

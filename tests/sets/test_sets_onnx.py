"""A model and its set rules exported together answer in onnxruntime as they do here."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.nn.test_onnx import export_all
from tests.nn.test_onnx import pytestmark as exporter_warnings
from tests.sets.rules import LABELS, RULES, Rule
from tests.sets.worlds import seeded

pytestmark = exporter_warnings
FEATURES = 4


class Answers(nn.Module):
    """The logits of a linear layer, and what every rule makes of them: ``(rows, rules, labels)``.

    Every other rule has a least size of 1; ``start`` says which.
    """

    def __init__(self, rules: list[Rule], *, start: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, LABELS)
        with torch.no_grad():
            for parameter in self.linear.parameters():
                parameter.copy_(2 * torch.randn(parameter.shape, generator=seeded(0)))
        self.rules = nn.ModuleList(rule.fitted(min_size=i % 2) for i, rule in enumerate(rules, start=start))

    def forward(self, features: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The bias may mark labels as absent."""
        logits = self.linear(features) + bias
        return logits, self.answers(logits)

    def answers(self, logits: Tensor) -> Tensor:
        return torch.stack([rule(logits) for rule in self.rules], dim=1)


def check(model: Answers) -> None:
    features, bias = torch.randn(64, FEATURES, generator=seeded(1)), torch.zeros(64, LABELS)
    run = export_all(model.eval(), features, bias)
    absent = bias.clone()
    absent[::2, 1] = -math.inf
    absent[3, 1:] = -math.inf
    for some, added in ((features, bias), (features, absent), (features[:9], absent[:9]), (features[:1], bias[:1])):
        logits, sets = (torch.from_numpy(output) for output in run(some, added))
        torch.testing.assert_close(logits, model(some, added)[0])
        # A randomized rule hashes the logits, so it must get those of the exported layer to the last bit.
        expected = model.answers(logits)
        assert expected.dtype == torch.bool
        assert not expected.movedim(1, -1)[added == -math.inf].any()
        # A score within rounding of a threshold might fall on either side; these rows have none.
        assert torch.equal(sets, expected)
    shares = model(features, bias)[1].float().mean((0, 2))
    assert ((shares > 0) & (shares < 1)).all()


def test_a_model_and_some_rules_exported_together_are_the_module():
    check(Answers(RULES[::4]))


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 1])
def test_a_model_and_all_rules_exported_together_are_the_module(start):
    check(Answers(RULES, start=start))

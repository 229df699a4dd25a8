"""A rule keeps its promise in every form: `predict`, as a module, saved and loaded, exported to ONNX."""

import math

import pytest
import torch
from torch import Tensor, nn

from shortlist.sets import AverageK, SetRule, load_rule
from tests.nn.test_onnx import export
from tests.nn.test_onnx import pytestmark as exporter_warnings
from tests.sets.rules import LABELS, REJECTING, RULES, Rule
from tests.sets.worlds import seeded

pytestmark = exporter_warnings


class AllRules(nn.Module):
    """What every rule makes of the same scores: ``(rules, rows, labels)``."""

    def __init__(self, rules: list[SetRule]) -> None:
        super().__init__()
        self.rules = nn.ModuleList(rules)

    def forward(self, scores: Tensor) -> Tensor:
        return torch.stack([rule(scores) for rule in self.rules])


def masks(rules: list[SetRule], scores: Tensor, folder) -> dict[str, Tensor]:
    """The answers of all rules, ``(rules, rows, labels)``, in every form in which a rule may be used."""
    loaded = []
    for i, rule in enumerate(rules):
        rule.save(folder / f"{i}.json")
        loaded.append(load_rule(folder / f"{i}.json"))
    module = AllRules(rules).eval()
    return {
        "predict": torch.stack([rule.predict(scores, generator=seeded(0)).to_mask() for rule in rules]),
        "loaded": torch.stack([rule.predict(scores, generator=seeded(0)).to_mask() for rule in loaded]),
        "module": module(scores),
        "loaded module": AllRules(loaded)(scores),
        "onnx": torch.from_numpy(export(module, scores[:4])(scores)),
    }


def missed(rule: Rule, mask: Tensor, labels: Tensor) -> float:
    """The average share of true labels that are missing."""
    hot = labels if rule.wants == "sets" else nn.functional.one_hot(labels, LABELS).bool()
    some = hot.any(-1)
    return float((1 - (mask & hot)[some].sum(-1) / hot[some].sum(-1)).mean())


def check(wants: tuple[str, ...], rows: int, folder, *, from_logits: bool) -> None:
    # Whether a row belongs to no label is read from logits alone.
    rejecting = [rule for rule in REJECTING if from_logits or rule.name != "none of these"]
    cases = [rule for rule in [*rejecting, *RULES] if rule.wants in wants]
    rules = [rule.fitted(rows=rows, from_logits=from_logits) for rule in cases]
    scores, labels = cases[-1].data(rows, seed=1)
    scores = scores if from_logits else cases[-1].probs(scores)
    found = masks(rules, scores, folder)
    for i, (case, rule) in enumerate(zip(cases, rules, strict=True)):
        size, error = found["predict"][i].sum(-1).double().mean(), missed(case, found["predict"][i], labels)
        for form, answers in found.items():
            # Links round differently in another runtime, so a few scores cross a threshold.
            assert abs(answers[i].sum(-1).double().mean() - size) < 2e-3 + 1 / rows, (case.name, form)
            assert abs(missed(case, answers[i], labels) - error) < 2e-3 + 1 / rows, (case.name, form)
        if rule.options().get("alpha") == 0.2:
            # Calibration and test data both vary.
            assert abs(error - 0.2) < 5 * math.sqrt(2 * 0.16 / rows) + 0.01, case.name


@pytest.mark.slow
def test_every_form_of_a_rule_for_classes_misses_and_returns_the_same(tmp_path):
    check(("none", "classes"), 2000, tmp_path, from_logits=True)


def test_every_form_of_a_rule_for_label_sets_misses_and_returns_the_same(tmp_path):
    check(("sets",), 2000, tmp_path, from_logits=False)


@pytest.mark.slow
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("wants", [("none", "classes"), ("sets",)], ids=["classes", "sets"])
def test_every_form_of_a_rule_agrees_on_a_hundred_thousand_rows(wants, from_logits, tmp_path):
    check(wants, 100_000, tmp_path, from_logits=from_logits)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_scores_in_another_dtype_that_are_equal_give_equal_sets(rule: Rule, dtype, tmp_path):
    """A rule is applied in the precision in which it was fitted, also after it is loaded."""
    logits, labels = rule.data(2000, seed=2)
    fitted = rule.make().fit(logits.to(dtype), labels, from_logits=True)
    fitted.save(tmp_path / "rule.json")
    copy = rule.make()
    copy.load_state_dict(fitted.state_dict())
    for form in (fitted, load_rule(tmp_path / "rule.json"), copy):
        for wider in (torch.float32, torch.float64):
            equal = logits.to(dtype).to(wider)
            assert torch.equal(form(equal), fitted(logits.to(dtype)))
            sets = form.predict(equal, generator=seeded(0))
            assert torch.equal(sets.to_mask(), fitted.predict(logits.to(dtype), generator=seeded(0)).to_mask())
    if rule.name == "average-k":
        assert fitted.predict(logits.to(dtype).double()).sizes.sum() == 4600


def test_a_rule_fitted_in_float64_reads_rounded_scores_exactly():
    """Rounding the threshold to float32 would put a label on the other side."""
    scores = torch.tensor([[0.1, 0.9]], dtype=torch.float64)
    rule = AverageK(1).fit(scores, from_logits=False)
    rule.threshold.fill_(0.1 + 1e-9)
    assert rule(torch.tensor([[0.1, 0.9]])).tolist() == [[float(torch.tensor(0.1)) >= 0.1 + 1e-9, True]]

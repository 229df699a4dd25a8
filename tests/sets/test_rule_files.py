"""Rules come back from their files, copies and state dicts as they were; other files are one clear error."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import shortlist.sets
from shortlist.sets import AverageError, AverageK, ClassConditional, RecallControl, SetRule, TopK, load_rule
from tests.nn.saving import copies
from tests.sets.rules import RULES, Rule, state
from tests.sets.worlds import seeded, tied_scores

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)


def same(left: SetRule, right: SetRule, scores: torch.Tensor) -> None:
    assert type(left) is type(right)
    a, b = state(left), state(right)
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype, name
        assert torch.equal(value, b[name]), name
    first, second = (rule.predict(scores, generator=seeded(0)) for rule in (left, right))
    assert torch.equal(first.to_mask(), second.to_mask())
    assert torch.equal(first.scores, second.scores)
    assert torch.equal(left(scores), right(scores))
    assert left.evidence == right.evidence


def test_the_list_of_rules_is_complete():
    exported = {
        value
        for value in (getattr(shortlist.sets, name) for name in shortlist.sets.__all__)
        if isinstance(value, type) and issubclass(value, SetRule) and value is not SetRule
    }
    assert {type(rule.make()) for rule in RULES} == exported


@each_rule
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("min_size", [0, 2])
def test_a_saved_rule_comes_back_exactly(rule: Rule, from_logits, min_size, tmp_path):
    fitted = rule.fitted(from_logits=from_logits, min_size=min_size)
    fitted.save(tmp_path / "rule.json")
    logits, _ = rule.data(80, seed=1)
    same(load_rule(tmp_path / "rule.json"), fitted, logits if from_logits else rule.probs(logits))
    assert list(tmp_path.iterdir()) == [tmp_path / "rule.json"]


@each_rule
def test_a_loaded_rule_saves_to_the_same_text(rule: Rule, tmp_path):
    rule.fitted().save(tmp_path / "first.json")
    load_rule(str(tmp_path / "first.json")).save(str(tmp_path / "second.json"))
    assert (tmp_path / "first.json").read_text() == (tmp_path / "second.json").read_text()


@each_rule
def test_files_are_json_that_others_can_read(rule: Rule, tmp_path):
    rule.fitted().save(tmp_path / "rule.json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    content = json.loads((tmp_path / "rule.json").read_text(), parse_constant=refuse)
    assert isinstance(content, dict)
    assert any("version" in key for key in content)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AverageK(0).fit(torch.rand(5, 3, generator=seeded(0)), from_logits=False),
        lambda: AverageK(9).fit(torch.rand(5, 3, generator=seeded(0)), from_logits=False),
        lambda: AverageError(0.1).fit(torch.ones(5, 3), torch.zeros(5, dtype=torch.int64), from_logits=False),
        lambda: ClassConditional(0.1).fit(torch.ones(5, 3), torch.zeros(5, dtype=torch.int64), from_logits=False),
        lambda: RecallControl(0.1).fit(torch.ones(5, 3), torch.ones(5, 3), from_logits=False),
    ],
    ids=["none", "all", "average error", "classes", "recall"],
)
def test_infinite_thresholds_are_kept(make, tmp_path):
    rule = make()
    assert any(value.isinf().any() for value in state(rule).values() if value.is_floating_point())
    rule.save(tmp_path / "rule.json")
    probe = torch.tensor([[0.0, 0.5, 1.0], [1e-30, 1e30, -5.0]])
    same(load_rule(tmp_path / "rule.json"), rule, probe)


def test_thresholds_that_are_no_short_decimals_are_kept_to_the_last_bit(tmp_path):
    for seed in range(30):
        scores = torch.rand(7, 5, generator=seeded(seed), dtype=torch.float64) * 10.0 ** (seed - 15)
        rule = AverageK(1.3).fit(scores, from_logits=False)
        rule.save(tmp_path / "rule.json")
        same(load_rule(tmp_path / "rule.json"), rule, scores)


@pytest.mark.parametrize("kind", ["constant", "quantised", "one-hot"])
def test_ties_are_decided_alike_after_loading(kind, tmp_path):
    scores = tied_scores(kind, 50, 6, seeded(1))
    rule = AverageK(2.3).fit(scores, from_logits=False)
    rule.save(tmp_path / "rule.json")
    same(load_rule(tmp_path / "rule.json"), rule, scores)


def damaged(content: dict) -> dict[str, str]:
    """Texts that are no rule, by what is wrong with them."""
    text = json.dumps(content)
    version = next(key for key in content if "version" in key)
    kinds = {key: value for key, value in content.items() if value == "AverageK"}
    newer = content | {version: 999}
    texts = {
        "empty": "",
        "truncated": text[: len(text) // 2],
        "one brace less": text.rstrip()[:-1],
        "no JSON": "PK\x03\x04 not a rule",
        "a list": "[1, 2, 3]",
        "a number": "3",
        "foreign": json.dumps({"name": "something else", "items": [1]}),
        "an empty object": "{}",
        "newer": json.dumps(newer),
        "a version that is no number": json.dumps(content | {version: "one"}),
        "no version": json.dumps({key: value for key, value in content.items() if key != version}),
    }
    for key in kinds:
        texts[f"unknown {key}"] = json.dumps(content | {key: "Oracle"})
        texts[f"{key} of a class that is no rule"] = json.dumps(content | {key: "PredictionSets"})
    for key in content:
        texts[f"without {key}"] = json.dumps({other: value for other, value in content.items() if other != key})
        texts[f"{key} is null"] = json.dumps(content | {key: None})
    return texts


def assert_refused(path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"rule\.json") as caught:
        load_rule(path)
    assert len(str(caught.value).splitlines()) == 1, name


def test_damaged_foreign_and_newer_files_are_one_value_error(tmp_path):
    path = tmp_path / "rule.json"
    AverageK(1.5).fit(torch.rand(9, 4, generator=seeded(2)), from_logits=False).save(path)
    texts = damaged(json.loads(path.read_text()))
    assert any("unknown" in name for name in texts)
    for name, text in texts.items():
        path.write_text(text)
        assert_refused(path, name)


def test_a_file_that_is_not_text_is_one_value_error(tmp_path):
    (tmp_path / "rule.json").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match=r"rule\.json"):
        load_rule(tmp_path / "rule.json")


def test_a_newer_file_says_so(tmp_path):
    path = tmp_path / "rule.json"
    TopK(1).fit(torch.ones(2, 3), from_logits=False).save(path)
    content = json.loads(path.read_text())
    version = next(key for key in content if "version" in key)
    path.write_text(json.dumps(content | {version: 999}))
    with pytest.raises(ValueError, match=r"999|newer"):
        load_rule(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json.*No such file"):
        load_rule(tmp_path / "none.json")


@each_rule
def test_a_rule_that_is_not_fitted_is_not_saved(rule: Rule, tmp_path):
    with pytest.raises((RuntimeError, ValueError), match="fit"):
        rule.make().save(tmp_path / "rule.json")
    assert not list(tmp_path.iterdir())


@each_rule
def test_copies_of_every_kind_predict_the_same(rule: Rule):
    fitted = rule.fitted()
    for copy in copies(fitted).values():
        same(copy, fitted, rule.data(60, seed=2)[0])


@each_rule
def test_a_state_dict_carries_what_was_fitted(rule: Rule):
    fitted, other = rule.fitted(), rule.make()
    other.load_state_dict(fitted.state_dict())
    same(other, fitted, rule.data(60, seed=2)[0])
    model = nn.Sequential(nn.Identity(), fitted)
    again = nn.Sequential(nn.Identity(), rule.make())
    again.load_state_dict(model.state_dict())
    same(again[1], fitted, rule.data(60, seed=3)[0])


@each_rule
@pytest.mark.parametrize("move", ["to", "half", "bfloat16", "float", "double", "cpu"])
def test_moving_a_model_to_another_dtype_does_not_move_the_thresholds(rule: Rule, move):
    """A threshold rounded to half precision is another rule."""
    fitted = rule.fitted()
    logits = rule.data(300, seed=3)[0]
    before = fitted.predict(logits, generator=seeded(0)).to_mask()
    model = nn.Sequential(nn.Identity(), fitted)
    model.to("cpu", torch.float16) if move == "to" else getattr(model, move)()
    assert torch.equal(fitted.predict(logits, generator=seeded(0)).to_mask(), before)


def test_evidence_is_plain_json():
    for rule in RULES:
        evidence = rule.fitted().evidence
        assert json.loads(json.dumps(evidence)) == evidence
        assert evidence["rows"] == 120
        assert not any(isinstance(value, float) and math.isnan(value) for value in evidence.values())

"""Rules come back from their files, copies and state dicts as they were; other files are one clear error."""

import json
import math

import pytest
import torch
from torch import nn

import shortlist.sets
from shortlist.errors import InputError
from shortlist.sets import AverageError, AverageK, ClassConditional, RecallControl, SetRule, load_rule
from tests.nn.saving import copies
from tests.sets.rules import REJECTING, RULES, Rule, assert_same, state
from tests.sets.worlds import seeded, tied_scores

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)


def test_the_list_of_rules_is_complete():
    exported = {
        value
        for value in (getattr(shortlist.sets, name) for name in shortlist.sets.__all__)
        if isinstance(value, type) and issubclass(value, SetRule) and value is not SetRule
    }
    assert {type(rule.make()) for rule in RULES + REJECTING} == exported


@each_rule
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("min_size", [0, 2])
def test_a_saved_rule_comes_back_exactly(rule: Rule, from_logits, min_size, tmp_path):
    fitted = rule.fitted(from_logits=from_logits, min_size=min_size)
    fitted.save(tmp_path / "rule.json")
    logits, _ = rule.data(80, seed=1)
    loaded = load_rule(tmp_path / "rule.json")
    assert_same(loaded, fitted, logits if from_logits else rule.probs(logits))
    assert list(tmp_path.iterdir()) == [tmp_path / "rule.json"]
    loaded.save(str(tmp_path / "again.json"))
    text = (tmp_path / "rule.json").read_text()
    assert (tmp_path / "again.json").read_text() == text
    content = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert content["evidence"] == fitted.evidence
    assert fitted.evidence["rows"] == 120


FIRST = torch.zeros(5, dtype=torch.int64)
EXTREME_FITS = {
    "no labels": lambda: AverageK(0).fit(torch.rand(5, 3, generator=seeded(0)), from_logits=False),
    "all labels": lambda: AverageK(9).fit(torch.rand(5, 3, generator=seeded(0)), from_logits=False),
    "average error": lambda: AverageError(0.1).fit(torch.ones(5, 3), FIRST, from_logits=False),
    "classes": lambda: ClassConditional(0.1).fit(torch.ones(5, 3), FIRST, from_logits=False),
    "recall": lambda: RecallControl(0.1).fit(torch.ones(5, 3), torch.ones(5, 3), from_logits=False),
}


@pytest.mark.parametrize("fit", EXTREME_FITS)
def test_infinite_thresholds_are_kept(fit, tmp_path):
    rule = EXTREME_FITS[fit]()
    assert any(value.isinf().any() for value in state(rule).values() if value.is_floating_point())
    rule.save(tmp_path / "rule.json")
    assert_same(load_rule(tmp_path / "rule.json"), rule, torch.tensor([[0.0, 0.5, 1.0], [1e-30, 1e30, -5.0]]))


def test_thresholds_are_kept_to_the_last_bit_and_ties_with_their_quota(tmp_path):
    wide = [torch.rand(7, 5, generator=seeded(i), dtype=torch.float64) * 10.0 ** (i - 15) for i in range(30)]
    for scores in (*wide, *(tied_scores(kind, 50, 6, seeded(1)) for kind in ("constant", "quantised", "one-hot"))):
        rule = AverageK(1.3).fit(scores, from_logits=False)
        rule.save(tmp_path / "rule.json")
        assert_same(load_rule(tmp_path / "rule.json"), rule, scores)


CONTENT = {
    "format": "shortlist set rule",
    "version": 1,
    "kind": "AverageK",
    "options": {"k": 1.5, "rows": None, "link": "softmax", "min_size": 0},
    "from_logits": False,
    "num_labels": 2,
    "fitted": {
        "threshold": {"dtype": "float64", "shape": [], "values": [0.25]},
        "tie_label": {"dtype": "int64", "shape": [], "values": [2]},
        "tie_taken": {"dtype": "int64", "shape": [], "values": [0]},
        "tie_count": {"dtype": "int64", "shape": [], "values": [1]},
    },
    "evidence": {"rows": 9, "labels": 2},
}
"""A file as version 1 has it."""


def number(value: float) -> dict:
    return {"dtype": "float64", "shape": [], "values": [value]}


CONFORMAL = {"threshold": number(0.5), "tie_share": number(0.5)}
DAMAGED = {
    "empty": "",
    "truncated": json.dumps(CONTENT)[:200],
    "one brace less": json.dumps(CONTENT)[:-1],
    "not JSON": "PK\x03\x04 not a rule",
    "a list": "[1, 2, 3]",
    "foreign": json.dumps({"name": "something else"}),
    **{
        f"{key}: {value!r}": json.dumps(CONTENT | {key: value})
        for key, value in [
            ("version", 999),
            ("version", "one"),
            ("kind", "Oracle"),
            ("kind", "PredictionSets"),
            ("kind", "ConformalRule"),
            ("num_labels", 0),
            ("options", {"k": -1}),
            ("fitted", {}),
            ("fitted", CONTENT["fitted"] | {"threshold": {"dtype": "float64", "shape": [3], "values": [0, 1, 2]}}),
            ("fitted", CONTENT["fitted"] | {"threshold": {"dtype": "float64", "shape": [], "values": ["low"]}}),
        ]
    },
    "nested deeply": '{"format": "shortlist set rule", "version": 1, "evidence": '
    + "[" * 100_000
    + "]" * 100_000
    + "}",
    **{
        f"{name} {value}": json.dumps(
            CONTENT | {"fitted": CONTENT["fitted"] | {name: {"dtype": dtype, "shape": [], "values": [value]}}}
        )
        for name, dtype, value in [
            ("threshold", "float64", math.nan),
            ("threshold", "float64", "nan"),
            ("threshold", "int64", 1),
            ("tie_count", "int64", 0),
            ("tie_count", "int64", -3),
            ("tie_count", "int64", 10**30),
            ("tie_taken", "int64", 2),
            ("tie_label", "int64", 3),
            ("tie_label", "int64", -1),
        ]
    },
    **{
        f"{kind} {options}": json.dumps(CONTENT | {"kind": kind, "options": options, "fitted": fitted})
        for kind, options, fitted in [
            ("PointwiseError", {"alpha": 0.1, "free": 10**29}, CONFORMAL),
            ("PointwiseError", {"alpha": 0.1}, CONFORMAL | {"tie_share": number(math.nan)}),
            ("AverageError", {"alpha": 0.1}, CONFORMAL | {"tie_share": number(1.5)}),
            ("AverageError", {"alpha": 0.1}, CONFORMAL | {"threshold": number(math.nan)}),
            ("TopK", {"k": 10**29}, {}),
            ("TopK", {"k": 1, "min_size": 3}, {}),
        ]
    },
    **{f"without {key}": json.dumps({k: v for k, v in CONTENT.items() if k != key}) for key in CONTENT},
    **{f"{key} is null": json.dumps(CONTENT | {key: None}) for key in CONTENT},
}


def test_a_file_of_version_1_is_read(tmp_path):
    (tmp_path / "rule.json").write_text(json.dumps(CONTENT))
    rule = load_rule(tmp_path / "rule.json")
    assert isinstance(rule, AverageK)
    assert rule.predict(torch.tensor([[0.2, 0.3]])).labels.tolist() == [1]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_foreign_or_newer_file_is_one_sentence(damage, tmp_path):
    (tmp_path / "rule.json").write_text(DAMAGED[damage])
    with pytest.raises(InputError, match=r"rule\.json") as caught:
        load_rule(tmp_path / "rule.json")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_text_or_missing_is_named(tmp_path):
    (tmp_path / "rule.json").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=r"rule\.json"):
        load_rule(tmp_path / "rule.json")
    with pytest.raises(InputError, match=r"none\.json.*No such file"):
        load_rule(tmp_path / "none.json")


@pytest.mark.parametrize("kind", ["PointwiseError", "AverageError"])
def test_the_hostile_conformal_files_are_hostile_by_one_value_only(kind, tmp_path):
    content = CONTENT | {"kind": kind, "options": {"alpha": 0.1}, "fitted": CONFORMAL}
    (tmp_path / "rule.json").write_text(json.dumps(content))
    assert len(load_rule(tmp_path / "rule.json").predict(torch.tensor([[0.2, 0.8]]))) == 1


@each_rule
def test_a_rule_that_is_not_fitted_is_not_saved(rule: Rule, tmp_path):
    with pytest.raises((RuntimeError, ValueError), match="fit"):
        rule.make().save(tmp_path / "rule.json")
    assert not list(tmp_path.iterdir())


@each_rule
def test_copies_and_state_dicts_carry_what_was_fitted(rule: Rule):
    fitted, other = rule.fitted(), rule.make()
    other.load_state_dict(fitted.state_dict())
    for copy in (other, *copies(fitted).values()):
        assert_same(copy, fitted, rule.data(60, seed=2)[0])
    model = nn.Sequential(nn.Identity(), fitted)
    again = nn.Sequential(nn.Identity(), rule.make())
    again.load_state_dict(model.state_dict())
    assert_same(again[1], fitted, rule.data(60, seed=3)[0])


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

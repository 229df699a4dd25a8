"""Arguments besides the scores and labels of rules, and what is not a rule: every form of array gives equal results."""

from collections.abc import Callable
from typing import Any

import pandas
import polars
import pyarrow
import pytest
import torch
from torch import Tensor

from shortlist.calibration import BetaCalibration, IsotonicCalibration, TemperatureScaling, VectorScaling
from shortlist.calibration.calibrator import concrete_calibrators
from shortlist.doctor import find_label_issues, find_wrong_classes, rows_to_label
from shortlist.sets import (
    AverageError,
    CovariateShift,
    DeepestNode,
    ExpectedUtility,
    FeatureDistance,
    GroupConditional,
    LabelShift,
    MissGoal,
    OnlineAverageK,
    OnlineConformal,
    PredictionSets,
    PValues,
    RiskControl,
    ShiftAlarm,
    SizeGoal,
    choose_rule,
    collapse,
    density_ratio,
    expected_f,
    false_negative_rate,
    label_ratios,
    p_values,
    u65,
)
from tests.labels.test_arrays import TABLES, forms_of, read_only
from tests.sets.rules import LABELS, REJECTING, TREE, assert_same
from tests.sets.worlds import long_tailed, multilabel, seeded

pytestmark = pytest.mark.cpu_only  # other libraries are on the CPU

NULLABLE = {torch.bool: "boolean", torch.int64: "Int64", torch.float32: "Float32", torch.float64: "Float64"}
COLUMNS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "read-only numpy": lambda x: read_only(x.numpy()),
    "numpy backwards": lambda x: x.flip(0).numpy()[::-1],
    "numpy of another byte order": lambda x: x.numpy().astype(x.numpy().dtype.newbyteorder(">")),
    "pandas": lambda x: pandas.Series(x.numpy(), index=range(len(x), 0, -1)),
    "pandas, nullable": lambda x: pandas.Series(x.numpy()).astype(NULLABLE[x.dtype]),
    "polars": lambda x: polars.Series(x.numpy()),
    "pyarrow": lambda x: pyarrow.array(x.numpy()),
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(x.tolist()),
}
"""Other forms of a vector; `TABLES` has those of a matrix."""

ROWS = 60
LOGITS, CLASSES = (part.double() if part.is_floating_point() else part for part in long_tailed(ROWS, LABELS, seeded(0)))
PROBS = LOGITS.softmax(-1)
MULTI_LOGITS, SETS = multilabel(ROWS, LABELS, seeded(1), rate=0.3)
MULTI_LOGITS = MULTI_LOGITS.double()
GROUPS = torch.arange(ROWS) % 3
WEIGHTS = torch.rand(ROWS, generator=seeded(2), dtype=torch.float64) + 0.5
RATIOS = torch.tensor([0.5, 1.0, 2.0, 1.0, 1.5, 0.7], dtype=torch.float64)
CONFUSION = torch.eye(LABELS, dtype=torch.float64) * 9 + 1


def by_group(t: Callable, c: Callable) -> Any:
    rule = GroupConditional(0.2).fit(t(LOGITS), c(CLASSES), from_logits=True, groups=c(GROUPS))
    return rule.state_dict(), rule.predict(t(LOGITS), groups=c(GROUPS), generator=seeded(0)), rule(t(LOGITS), c(GROUPS))


def by_weight(t: Callable, c: Callable) -> Any:
    rule = CovariateShift(0.2).fit(t(LOGITS), c(CLASSES), from_logits=True, weights=c(WEIGHTS))
    return (
        rule.state_dict(),
        rule.predict(t(LOGITS), weights=c(WEIGHTS), generator=seeded(0)),
        rule(t(LOGITS), c(WEIGHTS)),
    )


def of_classes(t: Callable, c: Callable) -> Any:
    rule = LabelShift(0.2, ratios=c(RATIOS)).fit(t(LOGITS), c(CLASSES), from_logits=True)
    return rule.state_dict(), label_ratios(t(CONFUSION), c(RATIOS))


def of_features(t: Callable, c: Callable) -> Any:
    distance, ratio = FeatureDistance().fit(t(LOGITS), c(CLASSES)), density_ratio(t(LOGITS[:30]), t(LOGITS[20:]))
    return distance(t(LOGITS)), ratio(t(LOGITS)), p_values(c(WEIGHTS), c(WEIGHTS[:7]))


def of_streams(t: Callable, c: Callable) -> Any:
    rule = OnlineConformal(0.2).fit(t(LOGITS), c(CLASSES), from_logits=True)
    size = OnlineAverageK(2.0).fit(t(LOGITS), from_logits=True)
    alarm = ShiftAlarm(0.01, generator=seeded(0)).fit(c(WEIGHTS)).update(c(WEIGHTS[:9]))
    return rule.update(t(LOGITS), c(CLASSES)), size.update(t(LOGITS)), alarm.log_capital


def of_p_values(t: Callable, c: Callable) -> Any:
    rule = PValues(0.2).fit(t(LOGITS), c(CLASSES), from_logits=True)
    plain = AverageError(0.2).fit(t(LOGITS), c(CLASSES), from_logits=True)
    return (
        rule.predict_p(t(LOGITS)),
        rule.true_conformity(t(LOGITS), c(CLASSES)),
        plain.predict(t(LOGITS), generator=seeded(0)),
    )


def of_nodes(t: Callable, c: Callable) -> Any:
    rule = DeepestNode(0.2, TREE).fit(t(LOGITS), c(CLASSES), from_logits=True)
    sets = PredictionSets.from_mask(t(LOGITS > 0), t(LOGITS))
    return (
        rule.predict_nodes(t(LOGITS), generator=seeded(0)),
        collapse(sets, TREE, absent=t(LOGITS < -1)),
        sets.abstain(c(GROUPS == 1)),
    )


def of_utilities(t: Callable, c: Callable) -> Any:
    valued = ExpectedUtility(u65, worth=t(CONFUSION)).fit(t(PROBS), from_logits=False)
    listed = ExpectedUtility(c(RATIOS)).fit(t(PROBS), from_logits=False)
    return valued.predict(t(PROBS)), listed.predict(t(PROBS)), expected_f(t(PROBS))


def of_entries(t: Callable, c: Callable) -> Any:
    sets = PredictionSets.from_entries(c(GROUPS[:3]), c(CLASSES[:3]), c(WEIGHTS[:3]), (3, LABELS))
    return sets, sets.contains(c(CLASSES[:3]))


def of_choices(t: Callable, c: Callable) -> Any:
    goals = {"goal": SizeGoal(2), "from_logits": True, "one_class": True, "groups": c(GROUPS)}
    size = choose_rule(t(LOGITS), c(CLASSES), **goals)
    error = choose_rule(t(LOGITS), c(CLASSES), **goals | {"goal": MissGoal(0.3)})
    return str(size), str(error)


def of_doctors(t: Callable, c: Callable) -> Any:
    wrong = find_wrong_classes(t(PROBS), c(CLASSES), from_logits=False)
    return wrong.to_list(), wrong.quality, rows_to_label(t(LOGITS), from_logits=True, one_class=True).rows


CALLS = {
    call.__name__.replace("_", " "): call
    for call in (
        by_group,
        by_weight,
        of_classes,
        of_features,
        of_streams,
        of_p_values,
        of_nodes,
        of_utilities,
        of_entries,
        of_choices,
        of_doctors,
    )
}


def assert_equal(found: Any, expected: Any) -> None:
    """Equal to the last bit, with tensors inside of tuples, lists and dictionaries."""
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        assert_equal([*found.values()], [*expected.values()])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_equal(*pair)
    else:
        assert found == expected


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("call", CALLS)
def test_vectors_and_matrices_of_every_library_are_the_same_arguments(call, column):
    as_column, tables = COLUMNS[column], list(TABLES.values())
    as_table = tables[list(COLUMNS).index(column) % len(tables)]
    assert_equal(CALLS[call](as_table, as_column), CALLS[call](Tensor.clone, Tensor.clone))


@pytest.mark.parametrize("rule", REJECTING, ids=str)
def test_every_rule_that_abstains_is_the_same_for_every_form(rule):
    logits, labels = rule.data(ROWS)
    logits = logits.double()
    expected = rule.make().fit(logits, labels, from_logits=True)
    hot = None if labels is None else torch.eye(LABELS, dtype=torch.bool)[labels]
    for i, form in enumerate([None] if hot is None else forms_of(hot, one_class=True)):
        scores = list(TABLES.values())[i % len(TABLES)](logits)
        assert_same(rule.make().fit(scores, form, from_logits=True), expected, logits)
    for make in TABLES.values():
        assert expected.predict(make(logits)) == expected.predict(logits)
        assert torch.equal(expected.answers(make(logits)), expected.answers(logits))


CALIBRATORS = {
    "temperature": TemperatureScaling,
    "vector": lambda **options: VectorScaling(**options),
    "isotonic": IsotonicCalibration,
    "isotonic per label": lambda **options: IsotonicCalibration(per_label=True, **options),
    "beta": BetaCalibration,
}


def test_the_list_of_calibrators_is_complete():
    assert {type(make()) for make in CALIBRATORS.values()} == set(concrete_calibrators())


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("kind", CALIBRATORS)
def test_every_calibrator_is_the_same_for_every_form(kind, link):
    logits, hot = (LOGITS, torch.eye(LABELS, dtype=torch.bool)[CLASSES]) if link == "softmax" else (MULTI_LOGITS, SETS)
    expected = CALIBRATORS[kind](link=link).fit(logits, hot)
    # One of each kind of form, since each is one more fit.
    for i, labels in enumerate(forms_of(hot, one_class=link == "softmax")[::3]):
        make = list(TABLES.values())[i % len(TABLES)]
        assert_equal(CALIBRATORS[kind](link=link).fit(make(logits), labels).state_dict(), expected.state_dict())
    for make in TABLES.values():
        assert torch.equal(expected.predict(make(logits)), expected.predict(logits))
        assert torch.equal(expected.calibrated_logits(make(logits)), expected.calibrated_logits(logits))


def test_doctors_risks_and_choices_read_label_sets_in_every_form():
    goal = {"goal": MissGoal(0.3), "from_logits": True, "one_class": False}
    for_sets = find_label_issues(MULTI_LOGITS, SETS, from_logits=True)
    rule = RiskControl(false_negative_rate, 0.3).fit(MULTI_LOGITS, SETS, from_logits=True)
    rows = rows_to_label(MULTI_LOGITS, SETS, from_logits=True, one_class=False)
    choice = str(choose_rule(MULTI_LOGITS, SETS, **goal))
    for i, labels in enumerate(forms_of(SETS, one_class=False)):
        scores = list(TABLES.values())[i % len(TABLES)](MULTI_LOGITS)
        assert_equal(find_label_issues(scores, labels, from_logits=True).to_list(), for_sets.to_list())
        assert_equal(rows_to_label(scores, labels, from_logits=True, one_class=False).rows, rows.rows)
        assert_same(RiskControl(false_negative_rate, 0.3).fit(scores, labels, from_logits=True), rule, MULTI_LOGITS)
        if i % 5 == 0:
            assert str(choose_rule(scores, labels, **goal)) == choice

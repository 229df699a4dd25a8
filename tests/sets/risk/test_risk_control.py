"""RiskControl finds the threshold of the definition, for every risk, and refuses what it cannot promise."""

import json
import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from shortlist.sets import (
    RecallControl,
    Risk,
    RiskControl,
    f_risk,
    false_discovery_rate,
    false_negative_rate,
    load_rule,
    set_size,
)
from shortlist.sets.risk.admissible import hoeffding_bentkus
from shortlist.sets.risk.control import CANDIDATES
from tests.sets.rules import no_hit
from tests.sets.worlds import multilabel, seeded, tied_scores

KINDS = ("distinct", "constant", "quantised", "one-hot", "duplicated rows")


def squared_misses(hits: Tensor, sizes: Tensor, positives: Tensor) -> Tensor:
    return (positives - hits) ** 2


several_misses = Risk(
    "squared number of missing labels",
    squared_misses,
    bound=36.0,
    larger_sets="lower",
    of_hits=lambda hits, positives: Fraction((positives - hits) ** 2),
)


def world(kind: str, rows: int, labels: int, seed: int) -> tuple[Tensor, Tensor]:
    scores = tied_scores(kind, rows, labels, seeded(seed), torch.float64)
    hot = torch.rand(rows, labels, generator=seeded(seed + 1000)) < 0.15 + 0.6 * scores
    hot[0, 0] = True
    return scores, hot


def mean_loss(name: str, scores: Tensor, hot: Tensor, threshold: float) -> float:
    """The mean loss of the sets at a threshold, row by row."""
    losses = []
    for row, own in zip(scores.tolist(), hot.tolist(), strict=True):
        answer = {j for j, score in enumerate(row) if score >= threshold}
        true = {j for j, one in enumerate(own) if one}
        if name == "fnr" and true:
            losses.append(len(true - answer) / len(true))
        elif name == "fdr":
            losses.append(len(answer - true) / len(answer) if answer else 0.0)
        elif name == "f2":
            both = 4 * len(true) + len(answer)
            losses.append(1 - 5 * len(true & answer) / both if both else 0.0)
        elif name == "size":
            losses.append(len(answer))
        elif name == "squares":
            losses.append(len(true - answer) ** 2)
    return sum(losses) / len(losses)


RISKS = {
    "fnr": (false_negative_rate, 1.0),
    "fdr": (false_discovery_rate, 1.0),
    "f2": (f_risk(2.0), 1.0),
    "size": (set_size(), 6.0),
    "squares": (several_misses, 36.0),
}


def rows_of(name: str, hot: Tensor) -> int:
    return int(hot.any(-1).sum()) if name == "fnr" else len(hot)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fnr", "squares"])
@pytest.mark.parametrize("delta", [None, 0.1])
def test_an_exact_threshold_is_the_largest_score_of_a_true_label_that_is_admissible(kind, name, delta):
    risk, bound = RISKS[name]
    for seed, rows in enumerate((1, 5, 30, 90)):
        scores, hot = world(kind, rows, 6, seed)
        count = rows_of(name, hot)
        for alpha in (0.05 * bound, 0.2 * bound, 0.5 * bound):
            rule = RiskControl(risk, alpha, delta).fit(scores, hot, from_logits=False)
            expected = -math.inf
            for threshold in sorted(set(scores[hot].tolist())):
                mean = mean_loss(name, scores, hot, threshold)
                if delta is None:
                    kept = (mean * count + bound) / (count + 1) <= alpha + 1e-9
                else:
                    totals = torch.tensor([mean * count / bound - 1e-9]).double().clamp(min=0)
                    kept = hoeffding_bentkus(totals, count, alpha / bound) <= delta
                expected = threshold if kept else expected
            assert float(rule.threshold) == expected
            assert rule.evidence["achieved"] == pytest.approx(mean_loss(name, scores, hot, expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fdr", "f2", "size", "fnr"])
def test_a_threshold_among_candidates_is_the_one_that_plain_loops_find(kind, name):
    risk, bound = RISKS[name]
    candidates = [0.07 * i for i in range(1, 14)]
    edges = [-math.inf, *candidates, math.inf]
    for seed, alpha in enumerate((0.1, 0.35, 0.6)):
        scores, hot = world(kind, 300, 6, seed)
        rule = RiskControl(risk, alpha * bound, 0.1, candidates=candidates)
        means = [mean_loss(name, scores, hot, edge) for edge in edges]
        totals = torch.tensor(means, dtype=torch.float64) * rows_of(name, hot) / bound
        p = hoeffding_bentkus(totals - 1e-9, rows_of(name, hot), alpha)
        order = range(len(edges)) if name == "fnr" else range(len(edges) - 1, -1, -1)
        if name == "f2":
            passed = p <= 0.1 / len(edges)
            if not passed.any():
                with pytest.raises(ValueError, match="no threshold is sure to keep the 1 - F2 at"):
                    rule.fit(scores, hot, from_logits=False)
                continue
            rule.fit(scores, hot, from_logits=False)
            assert passed[edges.index(float(rule.threshold))]
        else:
            expected = None
            for place, at in enumerate(order):
                if place and p[at] > 0.1:
                    break
                expected = at
            rule.fit(scores, hot, from_logits=False)
            assert edges.index(float(rule.threshold)) == expected
        at = edges.index(float(rule.threshold))
        assert rule.evidence["achieved"] == pytest.approx(means[at], abs=1e-6)


def test_the_expected_size_is_controlled_by_the_last_candidate_that_the_definition_allows():
    scores, _ = world("distinct", 200, 6, 3)
    labels = torch.zeros(200, 6)
    rule = RiskControl(set_size(), 2.0).fit(scores, labels, from_logits=False)
    allowed = [t for t in CANDIDATES if int((scores >= t).sum()) + 6 <= 2 * 201]
    assert float(rule.threshold) == allowed[0]
    assert (
        RiskControl(set_size(), 2.0, objective="smallest").fit(scores, labels, from_logits=False).threshold == math.inf
    )


def test_candidates_and_exact_thresholds_agree_where_the_candidates_are_all_scores():
    scores, hot = world("distinct", 60, 5, 8)
    for delta in (None, 0.2):
        exact = RiskControl(false_negative_rate, 0.3, delta).fit(scores, hot, from_logits=False)
        every = RiskControl(false_negative_rate, 0.3, delta, candidates=scores.unique().tolist())
        every.fit(scores, hot, from_logits=False)
        assert torch.equal(every(scores), exact(scores))


def test_several_risks_all_hold_and_the_objective_chooses_among_the_admissible():
    logits, hot = multilabel(3000, 8, seeded(4), rate=0.3, signal=5.0)
    both = [(false_negative_rate, 0.3), (false_discovery_rate, 0.3)]
    goals = {"smallest": "smallest", "largest": "largest", "f1": f_risk(), None: None}
    fitted = {
        name: RiskControl(both, delta=0.1, objective=goal).fit(logits, hot, from_logits=True)
        for name, goal in goals.items()
    }
    for rule in fitted.values():
        assert all(value < 0.3 for value in rule.evidence["achieved"])
        assert rule.evidence["wanted"] == [0.3, 0.3]
    thresholds = {key: float(rule.threshold) for key, rule in fitted.items()}
    assert thresholds["smallest"] == thresholds[None] > thresholds["f1"] > thresholds["largest"]
    lack = {key: mean_loss_f1(rule(logits), hot) for key, rule in fitted.items()}
    assert lack["f1"] == min(lack.values())
    exact = RiskControl([(false_negative_rate, 0.3), (several_misses, 0.5)], delta=0.1).fit(
        logits, hot, from_logits=True
    )
    alone = [RiskControl(r, a, 0.1).fit(logits, hot, from_logits=True) for r, a in exact.risk]
    assert exact.threshold == min(rule.threshold for rule in alone)


def mean_loss_f1(mask: Tensor, hot: Tensor) -> float:
    both = mask.sum(-1) + hot.sum(-1)
    return float(torch.where(both > 0, 1 - 2 * (mask & hot).sum(-1) / both.clamp(min=1), 0.0).double().mean())


@pytest.mark.parametrize(
    ("risk", "answer"), [(false_discovery_rate, 0), (set_size(), 0), (false_negative_rate, 6), (no_hit, 6)]
)
def test_if_no_candidate_is_admissible_the_sets_are_those_that_keep_the_promise_by_definition(risk, answer):
    scores, hot = torch.rand(30, 6, generator=seeded(1)), torch.rand(30, 6, generator=seeded(2)) < 0.5
    rule = RiskControl(risk, 0.001, 0.01).fit(scores, hot, from_logits=False)
    assert rule.predict(scores).sizes.tolist() == [answer] * 30


@pytest.mark.parametrize("risks", [f_risk(), [(false_negative_rate, 0.1), (false_discovery_rate, 0.1)]])
def test_if_no_sets_keep_the_promise_by_definition_it_is_an_error(risks):
    alpha = None if isinstance(risks, list) else 0.1
    with pytest.raises(ValueError, match=r"no threshold is sure to keep .* at 0\.1 or below: give more rows"):
        RiskControl(risks, alpha, 0.1).fit(torch.rand(30, 6), torch.rand(30, 6) < 0.5, from_logits=False)


def test_recall_control_is_risk_control_of_missing_labels_and_streams_as_one():
    logits, hot = multilabel(200, 6, seeded(7), rate=0.3)
    plain = RecallControl(0.2).fit(logits, hot, from_logits=True)
    general = RiskControl(false_negative_rate, 0.2).fit(logits, hot, from_logits=True)
    assert plain.threshold == general.threshold
    assert plain.evidence == general.evidence
    assert plain.options() == {"alpha": 0.2}


def test_a_rule_from_a_file_keeps_threshold_and_name_and_refuses_to_be_fitted(tmp_path):
    logits, hot = multilabel(400, 6, seeded(7), rate=0.3)
    rules = [
        RiskControl(several_misses, 1.5, candidates=[0.1, 0.2]),
        RiskControl([(no_hit, 0.4), (false_negative_rate, 0.4)], delta=0.2, objective=f_risk()),
    ]
    for rule in rules:
        rule.fit(logits, hot, from_logits=True).save(tmp_path / "rule.json")
        loaded = load_rule(tmp_path / "rule.json")
        assert torch.equal(loaded(logits), rule(logits))
        assert (loaded.options(), loaded.evidence, repr(loaded)) == (rule.options(), rule.evidence, repr(rule))
        with pytest.raises(ValueError, match="a rule read from a file knows only the name of its risk, '"):
            loaded.fit(logits, hot, from_logits=True)
    content = json.loads((tmp_path / "rule.json").read_text())
    assert content["options"]["risk"] == [["rows without a hit", 0.4], ["share of true labels missing", 0.4]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RiskControl("precision", 0.1), TypeError, "`risk` must be a Risk or a list"),
        (lambda: RiskControl([], None, 0.1), TypeError, "`risk` must be a Risk or a list"),
        (lambda: RiskControl([(no_hit,)], None, 0.1), TypeError, "got an entry"),
        (lambda: RiskControl(no_hit), ValueError, "`alpha` must be given"),
        (lambda: RiskControl([(no_hit, 0.1)], 0.1), ValueError, "`alpha` must be given for one risk, and only there"),
        (lambda: RiskControl(no_hit, 1.0), ValueError, "`alpha` must lie strictly between 0 and 1; got 1"),
        (lambda: RiskControl(several_misses, 36), ValueError, "`alpha` must lie strictly between 0 and 36"),
        (lambda: RiskControl(no_hit, 0.1, 0.0), ValueError, "`delta` must lie strictly between 0 and 1; got 0"),
        (lambda: RiskControl(false_discovery_rate, 0.1), ValueError, "`delta` must be given, because larger sets may"),
        (lambda: RiskControl(no_hit, 0.1, objective="best"), ValueError, "`objective` must be"),
        (lambda: RiskControl(no_hit, 0.1, candidates=[0.2, 0.2]), ValueError, "`candidates` must be .* increasing"),
        (lambda: RiskControl(no_hit, 0.1, candidates=[math.nan]), ValueError, "`candidates` must be finite"),
        (lambda: Risk("", squared_misses), TypeError, "`name` must be"),
        (lambda: Risk("x", None), TypeError, "`loss` must be a function"),
        (lambda: Risk("x", squared_misses, of_hits=3), TypeError, "`of_hits` must be a function"),
        (lambda: Risk("x", squared_misses, bound=0.0), ValueError, "`bound` must be positive"),
        (lambda: Risk("x", squared_misses, larger_sets="up"), ValueError, "`larger_sets` must be"),
        (lambda: f_risk(0.0), ValueError, "`beta` must be positive"),
        (lambda: set_size(-1), ValueError, "`most` must be positive"),
    ],
)
def test_wrong_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("risk", "message"),
    [
        (Risk("x", squared_misses), "the loss of 'x' must be at least 0 and at most 1; got"),
        (Risk("x", lambda hits, sizes, positives: hits / 0.0, bound=None), "must be at least 0; got nan"),
        (Risk("x", lambda hits, sizes, positives: hits[:, :1]), "must have shape"),
        (Risk("x", lambda hits, sizes, positives: sizes / 6, larger_sets="lower"), "must only lower the loss of 'x'"),
        (Risk("x", lambda hits, sizes, positives: 1 - sizes / 6, larger_sets="raise"), "must only raise the loss"),
        (
            Risk("x", no_hit.loss, larger_sets="lower", of_hits=lambda hits, positives: Fraction(hits, 6)),
            "the loss of 'x' must not fall when a true label is missing",
        ),
    ],
)
def test_a_loss_that_is_not_as_claimed_is_an_error_when_fitted(risk, message):
    logits, hot = multilabel(50, 6, seeded(1), rate=0.6)
    with pytest.raises(ValueError, match=message):
        RiskControl(risk, 0.3, 0.1).fit(logits, hot, from_logits=True)


def test_absent_labels_are_in_no_set_and_rows_without_labels_count_for_precision_alone():
    scores = torch.full((40, 3), 0.9)
    scores[:, 2] = -math.inf
    hot = torch.zeros(40, 3)
    hot[:20, :2] = 1
    rule = RiskControl(false_discovery_rate, 0.7, 0.1).fit(scores, hot, from_logits=False)
    assert rule.evidence["achieved"] == pytest.approx(0.5)
    assert rule(scores).sum(-1).tolist() == [2] * 40
    rule = RiskControl(false_negative_rate, 0.3, 0.1, candidates=[0.5]).fit(scores, hot, from_logits=False)
    assert rule.evidence["achieved"] == 0.0
    with pytest.raises(ValueError, match="without one, the share of true labels missing is undefined"):
        RiskControl(false_negative_rate, 0.3, 0.1, candidates=[0.5]).fit(scores, hot * 0, from_logits=False)

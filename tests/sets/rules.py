"""Every rule, with data to fit it on: contracts run over this list, and a test fails when an export is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.sets import (
    APS,
    SAPS,
    AdaptiveConformal,
    AverageError,
    AverageK,
    CheapestCover,
    ClassConditional,
    CovariateShift,
    DeepestNode,
    Entropy,
    ExpectedF,
    ExpectedUtility,
    GroupConditional,
    LabelShift,
    Margin,
    NoneOfThese,
    OnlineAverageK,
    OnlineConformal,
    PerLabelThreshold,
    PointwiseError,
    PValues,
    RankCalibrated,
    RecallControl,
    Risk,
    RiskControl,
    SelectiveAnswers,
    SetRule,
    SplitConformal,
    TopK,
    f_risk,
    false_discovery_rate,
    false_negative_rate,
    set_size,
    u80,
)
from shortlist.taxonomy import taxonomy_from_parents
from tests.sets.worlds import long_tailed, multilabel, seeded

LABELS = 6
TREE = taxonomy_from_parents(
    {"0": "a", "1": "a", "2": "a", "a": "c", "3": "b", "4": "b", "b": "root", "5": "c", "c": "root"},
    labels=[str(label) for label in range(LABELS)],
)
DAG = taxonomy_from_parents(
    {
        "0": "a",
        "1": ["a", "b"],
        "2": "b",
        "3": "b",
        "4": ["c", "b"],
        "5": "c",
        "a": "d",
        "b": ["d", "r"],
        "c": "r",
        "d": "r",
    },
    labels=[str(label) for label in range(LABELS)],
)


def _without_hit(hits: Tensor, sizes: Tensor, positives: Tensor) -> Tensor:
    return (hits == 0) & (positives > 0)


no_hit = Risk("rows without a hit", _without_hit, larger_sets="lower")
"""A risk as a user might write it."""


class Rule(NamedTuple):
    """How a rule is made, and which labels its ``fit`` wants: none, a class per row, or a set per row."""

    name: str
    make: Callable[..., SetRule]
    wants: str

    def __str__(self) -> str:
        return self.name

    def data(self, rows: int = 120, *, seed: int = 0, labels: int = LABELS) -> tuple[Tensor, Tensor | None]:
        """Logits, and the labels that the rule wants."""
        if self.wants == "sets":
            return multilabel(rows, labels, seeded(seed), rate=0.3)
        logits, classes = long_tailed(rows, labels, seeded(seed))
        return logits, None if self.wants == "none" else classes

    def fitted(self, *, from_logits: bool = True, rows: int = 120, seed: int = 0, **options: Any) -> SetRule:
        """The rule fitted on its data; probabilities are what its own link makes of the logits."""
        logits, labels = self.data(rows, seed=seed)
        scores = logits if from_logits else self.probs(logits)
        return self.make(**options).fit(scores, labels, from_logits=from_logits)

    def probs(self, logits: Tensor) -> Tensor:
        """What the default link makes of logits."""
        return logits.sigmoid() if self.wants == "sets" else logits.softmax(-1)


RULES = [
    Rule("top-k", lambda **options: TopK(2, **options), "none"),
    Rule("average-k", lambda **options: AverageK(2.3, **options), "none"),
    Rule("expected utility", lambda **options: ExpectedUtility(u80, **options), "none"),
    Rule("expected F1", lambda **options: ExpectedF(**{"link": "softmax", **options}), "none"),
    Rule("online average-k", lambda **options: OnlineAverageK(2.3, **options), "none"),
    Rule("average error", lambda **options: AverageError(0.2, **options), "classes"),
    Rule("pointwise error", lambda **options: PointwiseError(0.2, **options), "classes"),
    Rule("plain pointwise error", lambda **options: PointwiseError(0.2, randomized=False, **options), "classes"),
    Rule("regularized", lambda **options: PointwiseError(0.2, penalty=0.05, free=1, **options), "classes"),
    Rule("sorted", lambda **options: SplitConformal(0.2, score=SAPS(0.1), **options), "classes"),
    Rule("margin", lambda **options: SplitConformal(0.2, score=Margin(), **options), "classes"),
    Rule("entropy", lambda **options: SplitConformal(0.2, score=Entropy(), **options), "classes"),
    Rule("class-conditional", lambda **options: ClassConditional(0.2, **options), "classes"),
    Rule("clustered", lambda **options: ClassConditional(0.2, clusters=2, **options), "classes"),
    Rule("rank-calibrated", lambda **options: RankCalibrated(0.2, **options), "classes"),
    Rule("p-values", lambda **options: PValues(0.2, **options), "classes"),
    Rule("p-values by class", lambda **options: PValues(0.2, by_class=True, **options), "classes"),
    Rule("covariate shift", lambda **options: CovariateShift(0.2, score=APS(), **options), "classes"),
    Rule("label shift", lambda **options: LabelShift(0.2, **options), "classes"),
    Rule("groups", lambda **options: GroupConditional(0.2, **options), "classes"),
    Rule("adaptive", lambda **options: AdaptiveConformal(0.2, score=Margin(), **options), "classes"),
    Rule("online", lambda **options: OnlineConformal(0.2, **options), "classes"),
    Rule("average error of nodes", lambda **options: DeepestNode(0.2, TREE, **options), "classes"),
    Rule("average error of nodes of a DAG", lambda **options: DeepestNode(0.2, DAG, **options), "classes"),
    Rule("average error of covers", lambda **options: CheapestCover(0.2, TREE, **options), "classes"),
    Rule("recall control", lambda **options: RecallControl(0.2, **options), "sets"),
    Rule(
        "precision by learn-then-test",
        lambda **options: RiskControl(false_discovery_rate, 0.5, delta=0.2, **options),
        "sets",
    ),
    Rule(
        "missing labels with confidence",
        lambda **options: RiskControl(false_negative_rate, 0.3, 0.2, **options),
        "sets",
    ),
    Rule(
        "two risks and the best F1",
        lambda **options: RiskControl(
            [(false_negative_rate, 0.5), (no_hit, 0.6)], delta=0.3, objective=f_risk(), **options
        ),
        "sets",
    ),
    Rule("limited size", lambda **options: RiskControl(set_size(), 2.5, objective="largest", **options), "sets"),
    Rule("f1 thresholds", lambda **options: PerLabelThreshold("f1", **options), "sets"),
    Rule("average-size thresholds", lambda **options: PerLabelThreshold("average-size", k=1.5, **options), "sets"),
]
WITH_ALPHA = [
    AverageError,
    PointwiseError,
    lambda alpha: SplitConformal(alpha, score=Margin()),
    ClassConditional,
    CovariateShift,
    RecallControl,
]
ON_A_TAXONOMY = [rule.name for rule in RULES if " of " in rule.name]
"""Rules that know how many labels there are."""
REJECTING = [
    Rule("selective", lambda **options: SelectiveAnswers(0.4, **options), "classes"),
    Rule("none of these", lambda **options: NoneOfThese(0.1, **options), "none"),
]
"""Rules that abstain; they have no least size, so contracts of their own."""


def state(rule: SetRule) -> dict[str, Tensor]:
    return {name: value for name, value in rule.state_dict().items() if isinstance(value, torch.Tensor)}


def assert_same(left: SetRule, right: SetRule, scores: Tensor) -> None:
    """The same rule to the last bit: its class, its state, its evidence and its answers."""
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

"""From held-out scores to a fitted set rule or calibrator, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.calibration import (
    BetaCalibration,
    Calibrator,
    IsotonicCalibration,
    TemperatureScaling,
    VectorScaling,
)
from shortlist.errors import InputError
from shortlist.formatting import format_count
from shortlist.predict.scores import Scores
from shortlist.predict.true_labels import labels_of
from shortlist.sets import (
    AverageError,
    AverageK,
    CheapestCover,
    ClassConditional,
    DeepestNode,
    ExpectedF,
    ExpectedUtility,
    PerLabelThreshold,
    PointwiseError,
    RecallControl,
    RiskControl,
    SetRule,
    TopK,
    f_risk,
    f_utility,
    false_discovery_rate,
    false_negative_rate,
    set_size,
    u65,
    u80,
)
from shortlist.taxonomy import taxonomy_from_csv


class RuleKind(NamedTuple):
    """A set rule as users choose it by name.

    Attributes:
        rule: the class.
        required: its options that must be given.
        optional: its other options.
        one_class: whether it is fitted on one class per row or on sets; None if on scores alone.
        guarantee: what holds for new rows, with the options in braces.
    """

    rule: type[SetRule]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_class: bool | None = None
    guarantee: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the facts as plain values; options stand in the guarantee by their names."""
        labels = {None: "none", True: "one class", False: "sets"}[self.one_class]
        guarantee = self.guarantee.replace("{k:g}", "k").replace("{alpha:g}", "alpha")
        return {"required": self.required, "optional": self.optional, "labels": labels, "guarantee": guarantee}


_ERROR = "for new rows like these the true label is missing with probability at most {alpha:g}"
RULES = {
    "top-k": RuleKind(TopK, ("k",), guarantee="every set has {k:g} labels"),
    "average-k": RuleKind(
        AverageK, ("k",), guarantee="for new rows like these about {k:g} labels on average; no error is guaranteed"
    ),
    "average-error": RuleKind(AverageError, ("alpha",), one_class=True, guarantee=_ERROR),
    "pointwise-error": RuleKind(PointwiseError, ("alpha",), ("penalty", "free", "randomized"), True, _ERROR),
    "class-conditional": RuleKind(
        ClassConditional, ("alpha",), ("clusters", "min_count"), True, f"{_ERROR}, whatever its class"
    ),
    "deepest-node": RuleKind(
        DeepestNode,
        ("alpha", "taxonomy"),
        one_class=True,
        guarantee="for new rows like these the node lacks the true label with probability at most {alpha:g}",
    ),
    "cheapest-cover": RuleKind(CheapestCover, ("alpha", "taxonomy"), ("name_cost",), True, _ERROR),
    "recall-control": RuleKind(
        RecallControl,
        ("alpha",),
        one_class=False,
        guarantee="for new rows like these at most the fraction {alpha:g} of the true labels is missing on average",
    ),
    "risk-control": RuleKind(
        RiskControl,
        ("risk", "alpha"),
        ("delta",),
        False,
        "for new rows like these the risk is at most {alpha:g}: on average, or in all but the share delta of fits",
    ),
    "per-label": RuleKind(
        PerLabelThreshold, (), ("objective", "k", "prior"), False, "none: the thresholds suit these rows"
    ),
    "expected-utility": RuleKind(
        ExpectedUtility, ("utility",), guarantee="none: the best sets if the probabilities of one true label are right"
    ),
    "expected-f": RuleKind(
        ExpectedF,
        (),
        ("beta",),
        guarantee="none: the best sets if the probabilities of independent labels are right",
    ),
}
"""The rules by the names of the command line."""
CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind for kind in (TemperatureScaling, VectorScaling, IsotonicCalibration, BetaCalibration)
}
"""The calibrators by the names of the command line."""

OPTIONS = {
    "risk": {
        "recall": false_negative_rate,
        "precision": false_discovery_rate,
        "f1": f_risk(),
        "size": set_size(),
    },
    "utility": {"u65": u65, "u80": u80, "f1": f_utility()},
}
"""The risks and utilities by the names of the command line; `recall` bounds one minus recall, and so on."""


def make_rule(name: str, scores: Scores, **options: Any) -> SetRule:
    """Make an unfitted rule of `RULES` for scores.

    Args:
        name: one of `RULES`.
        scores: that it will be fitted on.
        options: of the rule, and ``link`` and ``min_size``; None counts as not given. A taxonomy may be a CSV file of
            the names of the labels, or of their indices if they have none; what else it holds is left out.

    Raises:
        InputError: for an option whose value the rule refuses.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> make_rule("average-k", tensor_scores(torch.eye(3), from_logits=False), k=2).options()["k"]
        2.0
    """
    kind = RULES[name].rule
    given = {
        option: OPTIONS.get(option, {}).get(value, value) for option, value in options.items() if value is not None
    }
    k = given.get("k")
    if k is not None and k > scores.num_labels:
        raise InputError(f"k must be at most the number of labels, {scores.num_labels}; got {k:g}.")
    if kind is TopK and isinstance(k, float) and k.is_integer():
        given["k"] = int(k)
    if kind is AverageK:
        # With their number known, the scores that it keeps are enough whatever the order of rows.
        given["rows"] = scores.num_rows
    if isinstance(given.get("taxonomy"), str | Path):
        labels = scores.names or [str(label) for label in range(scores.num_labels)]
        given["taxonomy"] = taxonomy_from_csv(given["taxonomy"], labels=labels, prune=True)
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def calibrate(scores: Scores, rule: SetRule, target: Tensor | None = None, *, progress: bool = False) -> SetRule:
    """Fit a rule on scores of held-out rows.

    Args:
        scores: of rows that the model was not trained on.
        rule: unfitted; it is fitted in place.
        target: the true labels of the rows, which most rules need; see `read_true_labels`.
        progress: whether to show the progress on standard error.

    Returns:
        The rule.

    Raises:
        InputError: if the scores or labels are not such as the rule needs.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> from shortlist.sets import AverageK
        >>> scores = tensor_scores(torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]]), from_logits=False)
        >>> calibrate(scores, AverageK(1.5)).predict(torch.tensor([[0.1, 0.8, 0.1]])).labels
        tensor([1])
    """
    try:
        with scores.progress("calibrating", shown=progress) as blocks:
            for block in blocks:
                labels = labels_of(target, block) if rule.needs_labels and target is not None else None
                rule.partial_fit(block.scores, labels, from_logits=scores.from_logits)
        return rule.finish()
    except ValueError as error:  # The rule refuses what the files hold, such as no label at all.
        raise InputError(str(error)) from error


def fit_calibrator(
    scores: Scores, calibrator: Calibrator, target: Tensor | None, *, progress: bool = False
) -> Calibrator:
    """Fit a calibrator on the logits and labels of held-out rows.

    Raises:
        InputError: if the scores or labels are not such as the calibrator needs.
    """
    if target is None:
        raise InputError(f"`{scores.path}` has no labels.")
    if not scores.from_logits:
        raise InputError(f"`{scores.path}` holds probabilities; calibrators are fitted on logits.")
    try:
        with scores.progress("calibrating", shown=progress) as blocks:
            for block in blocks:
                calibrator.partial_fit(block.scores, labels_of(target, block))
        return calibrator.finish()
    except ValueError as error:
        raise InputError(str(error)) from error


def calibration_warnings(rule: SetRule) -> list[str]:
    """Return what one should know before using a fitted rule, one phrase each."""
    found = []
    thresholds = [buffer for name, buffer in rule.named_buffers() if name in ("threshold", "thresholds")]
    alpha = rule.options().get("alpha")
    if alpha is not None and any(bool((buffer == -torch.inf).any()) for buffer in thresholds):
        which = "all labels are in every set" if thresholds[0].ndim == 0 else "some labels are in every set"
        found.append(f"too few rows for an alpha of {alpha:g}: {which}")
    if alpha is not None and any(bool((buffer == torch.inf).any()) for buffer in thresholds):
        found.append(f"no threshold is sure to keep an alpha of {alpha:g}: every set is empty")
    if rule.evidence.get("pooled_classes"):
        classes = format_count(rule.evidence["pooled_classes"], "class", "classes")
        found.append(f"{classes} with too few rows share one threshold and have no guarantee of their own")
    if rule.min_size:
        found.append(f"the minimum size of {rule.min_size} adds labels to smaller sets")
    return found

"""From held-out scores to a fitted set rule or calibrator, block by block."""

from __future__ import annotations

import re
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
from shortlist.predict.prediction import read_rule
from shortlist.predict.row_values import read_finite
from shortlist.predict.scores import Scores
from shortlist.predict.true_labels import labels_of
from shortlist.sets import (
    AdaptiveConformal,
    AverageError,
    AverageK,
    CheapestCover,
    ClassConditional,
    CovariateShift,
    DeepestNode,
    ExpectedF,
    ExpectedUtility,
    GroupConditional,
    LabelShift,
    NoneOfThese,
    OnlineAverageK,
    OnlineConformal,
    PerLabelThreshold,
    PointwiseError,
    RankCalibrated,
    RecallControl,
    RiskControl,
    SelectiveAnswers,
    SetRule,
    ShiftAlarm,
    TopK,
    f_risk,
    f_utility,
    false_discovery_rate,
    false_negative_rate,
    label_ratios,
    set_size,
    u65,
    u80,
)
from shortlist.sets.rejection.rejecting_rule import RejectingRule
from shortlist.taxonomy import taxonomy_from_csv

OnlineRule = AdaptiveConformal | OnlineConformal | OnlineAverageK


class RuleKind(NamedTuple):
    """A set rule as users choose it by name.

    Attributes:
        rule: the class.
        required: its options that must be given.
        optional: its other options.
        one_class: whether it is fitted on one class per row or on sets; None if on either, or on scores alone.
        guarantee: what holds for new rows, with the options in braces.
    """

    rule: type[SetRule]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_class: bool | None = None
    guarantee: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the facts as plain values; options stand in the guarantee by their names."""
        labels = {None: "either", True: "one class", False: "sets"}[self.one_class]
        guarantee = re.sub(r"{(\w+):g}", r"\1", self.guarantee)
        required = (*self.required, *([self.rule.row_option] if self.rule.row_option else []))
        labels = labels if self.rule.needs_labels else "none"
        return {"required": required, "optional": self.optional, "labels": labels, "guarantee": guarantee}


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
    "rank-calibrated": RuleKind(
        RankCalibrated, ("alpha",), ("rank_share", "min_count"), True, f"{_ERROR}, whatever its class"
    ),
    "group-conditional": RuleKind(
        GroupConditional, ("alpha",), one_class=True, guarantee=f"{_ERROR}, whatever its group"
    ),
    "covariate-shift": RuleKind(
        CovariateShift,
        ("alpha",),
        one_class=True,
        guarantee="if the weights are right, the true label of a new row is missing with probability at most {alpha:g}",
    ),
    "label-shift": RuleKind(
        LabelShift,
        ("alpha",),
        ("ratios", "new"),
        one_class=True,
        guarantee="if the ratios are right, the true label of a new row is missing with probability at most {alpha:g}",
    ),
    "adaptive-conformal": RuleKind(
        AdaptiveConformal, ("alpha",), ("step",), True, "along any stream that `update` follows {alpha:g} are missed"
    ),
    "online-conformal": RuleKind(
        OnlineConformal,
        ("alpha",),
        ("step", "decay"),
        True,
        "along any stream that `update` follows {alpha:g} are missed",
    ),
    "online-average-k": RuleKind(
        OnlineAverageK, ("k",), ("step", "decay"), guarantee="{k:g} labels on average along any stream, with `update`"
    ),
    "selective": RuleKind(
        SelectiveAnswers,
        ("max_error",),
        ("delta", "confidence", "inner"),
        guarantee="in all but the share delta of fits at most {max_error:g} of the answers given lack a true label",
    ),
    "none-of-these": RuleKind(
        NoneOfThese,
        ("alpha",),
        ("familiarity", "inner"),
        guarantee="at most the fraction {alpha:g} of new rows like these is rejected",
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
_RENAMED = {"inner": "rule", "familiarity": "score"}
"""Options of the command line that would be ambiguous there by the name of the argument."""


def kind_of(rule: SetRule) -> str:
    """The name of a rule among `RULES`."""
    return next(name for name, kind in RULES.items() if kind.rule is type(rule))


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
        _RENAMED.get(option, option): OPTIONS[option].get(value, value) if option in OPTIONS else value
        for option, value in options.items()
        if value is not None
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
    if isinstance(given.get("ratios"), str | Path):
        given["ratios"] = read_finite(str(given["ratios"]))
        if len(given["ratios"]) != scores.num_labels:
            raise InputError(
                f"`{options['ratios']}` must have one ratio per label, {scores.num_labels}; it has "
                f"{len(given['ratios'])}."
            )
    if isinstance(given.get("rule"), str | Path):
        given["rule"] = read_rule(given["rule"], scores)
        given.pop("link", None)
    if issubclass(kind, RejectingRule) and given.pop("min_size", 0):
        raise InputError(f"--min-size does not apply to {name}: it is for the rule inside.")
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
                rule.partial_fit(block.scores, labels, from_logits=scores.from_logits, **block.given)
        return rule.finish()
    except ValueError as error:  # The rule refuses what the files hold, such as no label at all.
        raise InputError(str(error)) from error


def estimate_ratios(scores: Scores, target: Tensor, new: Scores) -> list[float]:
    """How much more frequent each class is among new rows, from the best label of each row (`label_ratios`).

    Args:
        scores: of rows that the model was not trained on.
        target: their true classes.
        new: of new rows, which need no labels.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> held_out = tensor_scores(torch.eye(2), from_logits=True)
        >>> estimate_ratios(held_out, torch.tensor([0, 1]), tensor_scores(torch.eye(2)[[0, 1, 1, 1]], from_logits=True))
        [0.5, 1.5]
    """
    n = scores.num_labels
    if new.num_labels != n:
        raise InputError(f"`{new.path}` must have the {n} labels of `{scores.path}`; it has {new.num_labels}.")
    confusion, predicted = torch.zeros(n, n), torch.zeros(n)
    for block in scores.blocks():
        pairs = (block.scores.argmax(-1), labels_of(target, block))
        confusion.index_put_(pairs, torch.tensor(1.0), accumulate=True)
    for block in new.blocks():
        predicted += block.scores.argmax(-1).bincount(minlength=n)
    return label_ratios(confusion, predicted).tolist()


def update_rule(
    scores: Scores,
    rule: OnlineRule,
    target: Tensor | None = None,
    *,
    alarm: ShiftAlarm | None = None,
    progress: bool = False,
) -> dict[str, float]:
    """Let an online rule follow rows of a stream, in the order in which they arrived.

    Args:
        scores: of the rows.
        rule: fitted; it is changed in place.
        target: their true labels, which became known since; `OnlineAverageK` needs none.
        alarm: fitted on the conformity of calibration rows; it watches that of these.
        progress: whether to show the progress on standard error.

    Returns:
        The number of rows; the share of them whose label was missed or their average size; and the same along the whole
        stream.

    Raises:
        InputError: if the scores or labels are not such as the rule needs.
    """
    rows, total = 0, 0.0
    try:
        with scores.progress("updating", shown=progress) as blocks:
            for block in blocks:
                if isinstance(rule, OnlineAverageK):
                    found = rule.update(block.scores)
                elif target is None:
                    raise InputError(f"`{scores.path}` has no labels.")
                else:
                    labels = labels_of(target, block)
                    if alarm is not None:
                        alarm.update(rule.true_conformity(block.scores, labels))
                    found = rule.update(block.scores, labels)
                rows, total = rows + len(found), total + float(found.sum())
    except ValueError as error:
        raise InputError(str(error)) from error
    if isinstance(rule, OnlineAverageK):
        return {"rows": rows, "average_size": total / rows, "average_size_of_stream": rule.average_size}
    return {"rows": rows, "error": total / rows, "error_of_stream": rule.error}


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
    if isinstance(rule, RejectingRule):
        if bool(rule.threshold == torch.inf):
            found.append("no number of answers is sure to keep the error: it never answers")
        if bool(rule.threshold == -torch.inf) and isinstance(rule, NoneOfThese):
            found.append(f"too few rows for an alpha of {rule.alpha:g}: nothing is rejected")
        return found
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

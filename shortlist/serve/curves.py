"""Curves of a kind of rule: size, error, worst class and empty sets by k or alpha, on rows it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.formatting import format_percent
from shortlist.predict import RULES
from shortlist.predict.calibration import kind_of
from shortlist.serve.held_out import HeldOut, Measured, Part
from shortlist.serve.models import ServedModel
from shortlist.sets import SetRule
from shortlist.sets.choice import LEAST_ROWS

SLIDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "top-k": ("k", {}),
    "average-k": ("k", {}),
    "per-label": ("k", {"objective": "average-size"}),
    "average-error": ("alpha", {}),
    "pointwise-error": ("alpha", {}),
    "class-conditional": ("alpha", {}),
    "recall-control": ("alpha", {}),
    "risk-control": ("alpha", {"risk": "precision", "delta": 0.1}),
}
"""The option that a slider moves, by kind of rule, and the other options of its curve."""
_ALPHAS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
_LARGEST = 20


def rule_facts(model: ServedModel) -> list[dict[str, Any]]:
    """The kinds of rules that suit the model's task, with what a page needs to offer them."""
    return [
        {
            "kind": name,
            **about.describe(),
            "slider": SLIDERS.get(name, (None,))[0],
            "fixed": SLIDERS[name][1] if name in SLIDERS else {},
            "values": slider_values(model, name),
        }
        for name, about in RULES.items()
        if about.one_class in (None, model.one_class) and "taxonomy" not in about.required
    ]


def slider_values(model: ServedModel, kind: str) -> list[float]:
    """The values of a slider; none for a rule without one."""
    option = SLIDERS.get(kind, (None,))[0]
    if option is None:
        return []
    if option == "alpha":
        return list(_ALPHAS)
    most = min(_LARGEST, len(model.labels))
    whole = [float(k) for k in range(1, most + 1)]
    return whole if kind == "top-k" else sorted({0.5, *whole, *(k + 0.5 for k in whole if k < min(most, 10))})


def curve(held_out: HeldOut, kind: str) -> dict[str, Any]:
    """The figures of rules of one kind at every value of the slider, fitted on some rows and measured on others.

    Raises:
        InputError: for a kind without a slider, or one that does not suit the task.
    """
    model = held_out.model
    if kind not in SLIDERS:
        raise InputError(f"`kind` must be one of {', '.join(SLIDERS)} to have a curve; got {kind!r}.")
    if RULES[kind].one_class not in (None, model.one_class):
        task = "one class per row" if RULES[kind].one_class else "sets of labels"
        raise InputError(f"{kind} is for {task}, which `{model.name}` does not have.")
    option, fixed = SLIDERS[kind]
    values = slider_values(model, kind)
    found = [figures(held_out, held_out.rule(kind, {**fixed, option: value})) for value in values]
    own = model.rule
    return {
        "kind": kind,
        "option": option,
        "fixed": fixed,
        "values": values,
        "size": [each["size"] for each in found],
        "error": [each["error"] for each in found],
        "misses": [each["misses"] for each in found],
        "worst_class": {
            "label": [each["worst_class"]["label"] for each in found],
            "error": [each["worst_class"]["error"] for each in found],
        },
        "empty": [each["empty"] for each in found],
        "rows": len(held_out.shown),
        "measured_on": held_out.part,
        "fitted_on": {"part": held_out.fitted_on, "rows": len(held_out.fit)},
        "current": None if own is None else {"rule": describe_rule(own), **figures(held_out, own)},
    }


def figures(held_out: HeldOut, rule: SetRule) -> dict[str, Any]:
    """Average size, error, missed labels, worst class and share of empty sets of a rule on the shown rows."""
    found = held_out.measure(rule)
    label, error = worst_class(held_out.shown, found)
    name = None if label is None else held_out.model.labels[label]
    return {
        "size": found.size,
        "error": found.error,
        "misses": found.misses,
        "worst_class": {"label": name, "error": error},
        "empty": found.empty,
    }


def worst_class(part: Part, found: Measured) -> tuple[int | None, float | None]:
    """The label that is missed most among those of at least `LEAST_ROWS` rows, and how often; None if there is none."""
    error = 1 - recall(part, found)
    error[part.support < LEAST_ROWS] = -1
    worst = int(error.argmax())
    return (worst, float(error[worst])) if error[worst] >= 0 else (None, None)


def recall(part: Part, found: Measured) -> Tensor:
    """``(n,)``: how often each label is in the set of a row that it is true for; NaN for a label of no row."""
    inside = torch.bincount(part.labels, weights=found.hits.double(), minlength=part.logits.shape[1])
    return inside / part.support


def describe_rule(rule: SetRule) -> dict[str, Any]:
    """A rule as the service shows it: its kind, its options, a phrase and what it guarantees."""
    kind = kind_of(rule)
    taken = (*RULES[kind].required, *RULES[kind].optional)
    options = {name: value for name, value in rule.options().items() if name in taken and _is_plain(value)}
    return {
        "kind": kind,
        "options": options,
        "text": _phrase(kind, options),
        "guarantee": RULES[kind].guarantee.format_map(_Known(options)),
    }


class _Known(dict[str, Any]):
    """Options for a format string; one that is not there stays as its name."""

    def __missing__(self, name: str) -> Any:
        return math.nan


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bool) and value == value


def _phrase(kind: str, options: Mapping[str, Any]) -> str:
    if kind == "top-k":
        return f"{options['k']:g} labels in every set"
    if kind == "average-k" or options.get("objective") == "average-size":
        return f"{options['k']:g} labels on average"
    if "alpha" not in options:
        return kind
    what = {
        "recall-control": "of the true labels missed",
        "risk-control": f"risk of {options.get('risk', 'the chosen kind')}",
        "class-conditional": "missed in every class",
    }.get(kind, "missed")
    return f"at most {format_percent(options['alpha'])} {what}"

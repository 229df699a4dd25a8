"""Ways to train that are compared with one another: each gets the same number of tries, then the same seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from shortlist.evidence import Choice, Lab, tuned
from shortlist.evidence.lab import Trial

_NESTED = ("loss_options", "head_options", "encoder_options")


@dataclass(frozen=True)
class Compared:
    """What a comparison gave.

    Args:
        choices: by candidate, the options that were chosen on validation rows, and all that were tried.
        found: by candidate, what the final trials gave, one for each seed in turn.
    """

    choices: Mapping[str, Choice]
    found: Mapping[str, list[dict[str, Any]]]

    def figure(self, name: str, figure: str) -> list[float]:
        """One figure of a candidate, for each seed in turn."""
        return [values[figure] for values in self.found[name]]


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run, later ones over earlier ones; a key such as ``loss_options.k`` is one of the options within.

    Example:
        >>> merged({"epochs": 3, "loss_options": {"k": 5}}, {"loss_options.temperature": 2.0})
        {'epochs': 3, 'loss_options': {'k': 5, 'temperature': 2.0}}
    """
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            outer, _, inner = key.partition(".")
            if inner or outer in _NESTED:
                result[outer] = {**result.get(outer, {}), **({inner: value} if inner else value)}
            else:
                result[key] = value
    return result


def grid_points(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of a grid.

    Example:
        >>> grid_points({"learning_rate": [0.1, 0.2], "loss_options.k": [5]})
        [{'learning_rate': 0.1, 'loss_options.k': 5}, {'learning_rate': 0.2, 'loss_options.k': 5}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def count_trials(settings: Mapping[str, Any], *, conditions: int = 1) -> int:
    """How many trials `compared` runs, for `Lab.plan`."""
    points = [len(grid_points(each.get("grid", {}))) for each in settings["candidates"].values()]
    tries = sum(points) * len(settings["tuning_seeds"]) if max(points) > 1 else 0
    return conditions * (tries + len(points) * len(settings["seeds"]))


def compared(lab: Lab, trial: Trial, settings: Mapping[str, Any], *, figure: str, **more: Any) -> Compared:
    """Choose the options of every candidate on validation rows, then train it with every seed.

    Args:
        lab: runs the trials.
        trial: takes ``data``, ``fit``, ``seed``, ``part`` (``val`` while options are chosen, else ``test``) and
            ``more``; gives figures of the rows of ``part``.
        settings: ``data``; ``fit``, what all candidates share; ``candidates`` by name, each with ``fit`` and ``grid``,
            lists of values by option; ``tuning_seeds`` and ``seeds``.
        figure: what the choice goes by; higher is better.
        more: further settings of the trials, such as a condition.
    """
    candidates = settings["candidates"]

    def asked(name: str, options: Mapping[str, Any], seed: int, part: str) -> dict[str, Any]:
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options)
        return {"data": settings["data"], "fit": fit, "seed": seed, "part": part, **more}

    choices = tuned(
        lab,
        trial,
        {name: grid_points(candidate.get("grid", {})) for name, candidate in candidates.items()},
        lambda name, options, seed: asked(name, options, seed, "val"),
        figure=figure,
        seeds=settings["tuning_seeds"],
    )
    order = [(name, seed) for name in candidates for seed in settings["seeds"]]
    results = lab.trials(trial, [asked(name, choices[name].options, seed, "test") for name, seed in order])
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in candidates}
    for (name, _), values in zip(order, results, strict=True):
        found[name].append(values)
    return Compared(choices, found)

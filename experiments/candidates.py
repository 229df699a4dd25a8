"""Candidates of a comparison: each is tuned with the same budget on validation rows, then run with the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from experiments.data import open_data
from shortlist.data import Dataset
from shortlist.evidence import Choice, Lab, tuned
from shortlist.evidence.lab import Trial
from shortlist.train import FitOptions, fit
from shortlist.train.evaluation import model_scores
from shortlist.train.fit import Fitted
from shortlist.train.inputs import prepare_inputs

_NESTED = ("loss_options", "head_options", "encoder_options")


class Run(NamedTuple):
    """A trained model and its data."""

    fitted: Fitted
    dataset: Dataset

    def logits(self, part: str) -> Tensor:
        """``(N, n)``: the logits of a part's rows."""
        rows = prepare_inputs(self.dataset, self.fitted.plan).part(part)
        return model_scores(self.fitted.model, rows, self.dataset.num_labels)


def trained(settings: Mapping[str, Any], root: Path, *, change: Callable[[Dataset], Dataset] | None = None) -> Run:
    """Train one model.

    Args:
        settings: ``data`` as in `experiments.data.open_data`; ``fit``, the arguments of `FitOptions`; ``seed`` of the
            split, the training run and ``change``.
        root: where the data are.
        change: transforms the split dataset before training, for example by adding label noise.
    """
    seed = int(settings["seed"])
    dataset = open_data(settings["data"], root, seed=seed)
    if change is not None:
        dataset = change(dataset)
    return Run(fit(dataset, FitOptions(**{**settings["fit"], "seed": seed})), dataset)


def merged(*options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a training run, later ones over earlier ones; ``loss_options.k`` is a nested option.

    Example:
        >>> merged({"epochs": 3, "loss_options": {"k": 5}}, {"loss_options.temperature": 2.0})
        {'epochs': 3, 'loss_options': {'k': 5, 'temperature': 2.0}}
    """
    result: dict[str, Any] = {}
    for each in options:
        for key, value in each.items():
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


Conditions = Mapping[Any, Sequence[Any]]
"""By candidate, the conditions under which it runs, such as values of K."""

Asked = Callable[[Any, Mapping[str, Any], Any, int, str], dict[str, Any]]
"""From candidate, options, condition, seed and part to the settings of a trial."""


class TunedRuns(NamedTuple):
    """What `tuned_runs` returns: choices by candidate; results by candidate and condition, one per seed."""

    choices: dict[Any, Choice]
    found: dict[Any, dict[Any, list[dict[str, Any]]]]


def tuned_runs(
    lab: Lab,
    trial: Trial,
    settings: Mapping[str, Any],
    asked: Asked,
    *,
    figure: str,
    conditions: Conditions,
    tuning_condition: Any = None,
    final_trial: Trial | None = None,
) -> TunedRuns:
    """Choose the options of every candidate on validation rows, then run it under all its conditions with all seeds.

    Args:
        lab: runs the trials.
        trial: returns ``figure`` and other results for the rows of a part.
        settings: ``candidates`` by name, each with a ``grid`` of values by option; ``tuning_seeds`` and ``seeds``.
        asked: makes the settings of a trial; the part is ``val`` during tuning and ``test`` afterwards.
        figure: the score that decides; higher is better.
        conditions: of the final runs, by candidate.
        tuning_condition: the condition under which options are tried.
        final_trial: of the final runs, if it differs from ``trial``.
    """
    candidates = settings["candidates"]
    choices = tuned(
        lab,
        trial,
        {name: grid_points(candidate.get("grid", {})) for name, candidate in candidates.items()},
        lambda name, options, seed: asked(name, options, tuning_condition, seed, "val"),
        figure=figure,
        seeds=settings["tuning_seeds"],
    )
    order = [(name, each, seed) for name in candidates for each in conditions[name] for seed in settings["seeds"]]
    todo = [asked(name, choices[name].options, condition, seed, "test") for name, condition, seed in order]
    found: dict[str, dict[Any, list[dict[str, Any]]]] = {
        name: {condition: [] for condition in conditions[name]} for name in candidates
    }
    for (name, condition, _), values in zip(order, lab.trials(final_trial or trial, todo), strict=True):
        found[name][condition].append(values)
    return TunedRuns(choices, found)


def count_runs(settings: Mapping[str, Any], conditions: Conditions) -> int:
    """How many trials `tuned_runs` runs, for `Lab.plan`."""
    points = [len(grid_points(each.get("grid", {}))) for each in settings["candidates"].values()]
    tuning = sum(points) * len(settings["tuning_seeds"]) if max(points) > 1 else 0
    return tuning + sum(map(len, conditions.values())) * len(settings["seeds"])


@dataclass(frozen=True)
class Compared:
    """The results of a comparison.

    Args:
        choices: by candidate, the options chosen on validation rows and all that were tried.
        found: by candidate, the results of the final trials, one per seed.
    """

    choices: Mapping[str, Choice]
    found: Mapping[str, list[dict[str, Any]]]

    def figure(self, name: str, figure: str) -> list[float]:
        """One result of a candidate, per seed."""
        return [values[figure] for values in self.found[name]]


def compared(lab: Lab, trial: Trial, settings: Mapping[str, Any], *, figure: str, **more: Any) -> Compared:
    """Compare candidates under one condition.

    Args:
        lab: runs the trials.
        trial: takes ``data``, ``fit``, ``seed``, ``part`` and ``more``; returns results for the rows of ``part``.
        settings: those of `tuned_runs`; ``data``; ``fit``, which all candidates share and each may extend.
        figure: the score that decides; higher is better.
        more: further settings of the trials, such as a condition.
    """
    candidates = settings["candidates"]

    def asked(name: str, options: Mapping[str, Any], _: Any, seed: int, part: str) -> dict[str, Any]:
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options)
        return {"data": settings["data"], "fit": fit, "seed": seed, "part": part, **more}

    choices, found = tuned_runs(lab, trial, settings, asked, figure=figure, conditions=_single(candidates))
    return Compared(choices, {name: by_condition[None] for name, by_condition in found.items()})


def count_trials(settings: Mapping[str, Any], *, conditions: int = 1) -> int:
    """How many trials ``conditions`` calls of `compared` run, for `Lab.plan`."""
    return conditions * count_runs(settings, _single(settings["candidates"]))


def _single(candidates: Mapping[str, Any]) -> dict[str, list[None]]:
    return {name: [None] for name in candidates}

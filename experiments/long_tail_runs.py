"""Losses compared on long-tailed classes: options chosen on validation rows, then models for every K and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.candidates import grid_points, merged
from experiments.long_tail_trial import trial
from shortlist.evidence import Choice, Finding, Lab, all_of, tuned
from shortlist.evidence.lab import Trial
from shortlist.evidence.verdicts import HOLDS, OPEN

Asked = Callable[[str, Mapping[str, Any], int, int, str], dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """Figures of all final runs, by candidate and K, one dict for each seed."""

    choices: Mapping[str, Choice]
    found: Mapping[str, Mapping[int, list[dict[str, Any]]]]

    def values(self, name: str, figure: str, k: int, *, trained: int | None = None) -> list[float]:
        """A figure at K, of the models for that K or for ``trained``; empty if some seed has none."""
        values = [run[f"{figure}{k}"] for run in self.found[name][k if trained is None else trained]]
        return [] if None in values else values

    def rivals(self, name: str, figure: str, k: int) -> list[str]:
        """The other candidates, the one with the highest mean first."""
        others = [other for other in self.found if other != name]
        return sorted(others, key=lambda other: -sum(self.values(other, figure, k)))


def measured(lab: Lab, settings: Mapping[str, Any]) -> Measured:
    """Choose options for ``tuning_k`` by macro accuracy, then train: for every K where the loss depends on it."""
    candidates = settings["candidates"]

    def asked(name: str, options: Mapping[str, Any], seed: int, k: int, part: str) -> dict[str, Any]:
        watched = {"k": k, "monitor": f"top{k}_accuracy"}
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options, watched)
        about = {name: settings[name] for name in ("data", "tail")}
        return {**about, "ks": settings["shown_ks"], "fit": fit, "seed": seed, "part": part}

    return measured_by_k(lab, trial, settings, asked, figure="macro")


def measured_by_k(lab: Lab, trial: Trial, settings: Mapping[str, Any], asked: Asked, *, figure: str) -> Measured:
    """Choose options for ``tuning_k`` on validation rows, then train: for every K where the loss depends on it.

    Args:
        lab: runs the trials.
        trial: gives ``figure`` with K behind it, and whatever else is measured.
        settings: ``candidates``, of which those with ``per_k`` depend on K; ``ks``, ``tuning_k``, ``seeds``,
            ``tuning_seeds``.
        asked: from candidate, options, seed, K and part to the settings of a trial.
        figure: what the choice goes by.
    """
    candidates, middle, ks = settings["candidates"], int(settings["tuning_k"]), list(settings["ks"])
    grids = {name: grid_points(candidate["grid"]) for name, candidate in candidates.items()}
    trained_ks = {name: ks if candidate.get("per_k") else [middle] for name, candidate in candidates.items()}
    finals = [(name, k, seed) for name, own in trained_ks.items() for k in own for seed in settings["seeds"]]
    lab.plan(sum(map(len, grids.values())) * len(settings["tuning_seeds"]) + len(finals))
    choices = tuned(
        lab,
        trial,
        grids,
        lambda name, options, seed: asked(name, options, seed, middle, "val"),
        figure=f"{figure}{middle}",
        seeds=settings["tuning_seeds"],
    )
    results = lab.trials(trial, [asked(name, choices[name].options, seed, k, "test") for name, k, seed in finals])
    found: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in candidates}
    for (name, k, _), values in zip(finals, results, strict=True):
        for each in [k] if candidates[name].get("per_k") else ks:
            found[name].setdefault(each, []).append(values)
    return Measured(choices, found)


def best_of_all(findings: Sequence[Finding]) -> Finding:
    """From the verdicts against every rival, the strongest first, that on being the best; it tells what decides."""
    verdict = all_of(findings).verdict
    telling = findings[:1] if verdict == HOLDS else [each for each in findings if each.verdict == verdict]
    return Finding(verdict, "; ".join(each.why for each in telling))


def decided(groups: Sequence[Sequence[float]], decide: Callable[[], Finding], what: str) -> Finding:
    """A verdict where all figures are there, else an open one."""
    return decide() if all(groups) else Finding(OPEN, f"for some seed no class is {what}")


def told_choices(choices: Mapping[str, Choice]) -> list[str]:
    """A sentence on the grid of each candidate that had one."""
    sentences = []
    for name, choice in choices.items():
        if not choice.tried:
            continue
        told = ", ".join(
            f"{key.rpartition('.')[2]} {_told(value)}{' (at the edge)' if key in choice.edges() else ''}"
            for key, value in choice.options.items()
        )
        figures = [figure for _, figure in choice.tried]
        spread = f"{100 * min(figures):.1f} to {100 * max(figures):.1f} %"
        sentences.append(
            f"{name}: {_grid([options for options, _ in choice.tried])}, {len(figures)} points ({spread} on validation "
            f"rows); {told} was chosen."
        )
    return sentences


def _grid(points: Sequence[Mapping[str, Any]]) -> str:
    """The values that were tried, by option."""
    values = {key: list(dict.fromkeys(_told(point[key]) for point in points)) for key in points[0]}
    return "; ".join(f"{key.rpartition('.')[2]} {', '.join(each)}" for key, each in values.items())


def _told(value: Any) -> str:
    """A number, or the sizes of hidden layers."""
    return f"{value:g}" if isinstance(value, int | float) else "×".join(map(str, value)) or "none"

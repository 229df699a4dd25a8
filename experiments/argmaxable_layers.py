"""The trials of output layers on several data sets: rates chosen on validation rows, then all widths and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.argmaxable_trial import layer_trial
from experiments.candidates import grid_points, merged
from shortlist.evidence import Choice, Lab, tuned
from shortlist.train.comparison import Interval

HEADS = ("bottleneck", "dft")
_SHORT = (
    "Runs end after a fixed number of epochs, while the text trains until a validation figure stops rising: a layer "
    "that starts far from the label frequencies has less time to make up for it here."
)
NAMES = {"bottleneck": "bottleneck", "dft": "DFT layer"}


class Cell(NamedTuple):
    """What one row of runs is: where the logits start, which head, how many learned columns."""

    start: str
    head: str
    width: int


@dataclass(frozen=True)
class Layers:
    """What the trials of one data set gave.

    Args:
        k: of the figures at k.
        choices: by start and head, the options chosen on validation rows.
        found: by cell, what the trial of each seed gave.
    """

    k: int
    choices: Mapping[tuple[str, str], Choice]
    found: Mapping[Cell, list[dict[str, Any]]]

    def figure(self, cell: Cell, name: str) -> list[float]:
        """A figure of a cell, seed by seed."""
        return [values[name] for values in self.found[cell]]

    def share(self, cell: Cell, verdict: str) -> list[float]:
        """The share of the audited sets that have a verdict, seed by seed; sets beyond the guarantee included."""
        told = [_summed(values["audit"]) for values in self.found[cell]]
        return [each[verdict] / max(sum(each.values()), 1) for each in told]

    def margin(self, cell: Cell, name: str) -> list[float]:
        """The share of the audited sets with a ball of radius above 10^-8 (``eps``) or at least 1 (``one``).

        Of ``open`` ones it is not decided whether the radius is 1.
        """
        told = [values["audit"]["margins"] for values in self.found[cell]]
        return [each[name] / max(each["sets"], 1) for each in told]

    def widths(self, start: str) -> list[int]:
        """The widths that were run from a start, ascending."""
        return sorted({cell.width for cell in self.found if cell.start == start})


def _summed(audit: Mapping[str, Any]) -> dict[str, int]:
    return {name: count + audit["beyond"][name] for name, count in audit["within"].items()}


def measured(settings: Mapping[str, Any], lab: Lab) -> dict[str, Layers]:
    """Run what the settings ask for.

    Args:
        settings: ``data_sets`` by name, each with ``data`` and ``fit``; ``fit``, what all runs share; ``candidates``,
            the two heads, each with ``fit``, ``grid`` and ``width``, the name of the option that is the number of its
            learned columns; ``starts``, widths by start; ``tuning_width``, at which the grid is tried; ``seeds``;
            ``tuning_seeds``; ``audit``, ``ranked`` and ``radius`` as in `layer_trial`.
        lab: runs the trials.

    Returns:
        What was found, by data set.
    """
    refuse_other_heads(settings)
    lab.plan(planned(settings))
    return {name: _layers(settings, each, lab) for name, each in settings["data_sets"].items()}


def refuse_other_heads(settings: Mapping[str, Any]) -> None:
    """Raise ValueError unless the candidates are the two heads."""
    if set(settings["candidates"]) != set(HEADS):
        raise ValueError(f"`candidates` must be {' and '.join(HEADS)}; got {', '.join(settings['candidates'])}.")


def planned(settings: Mapping[str, Any]) -> int:
    """How many trials there are."""
    points = sum(len(grid_points(each["grid"])) for each in settings["candidates"].values())
    tuning = len(settings["starts"]) * points * len(settings["tuning_seeds"])
    final = len(list(_cells(settings))) * len(settings["seeds"])
    return len(settings["data_sets"]) * (tuning + final)


def _cells(settings: Mapping[str, Any]) -> Iterator[Cell]:
    for start, widths in settings["starts"].items():
        for head in HEADS:
            yield from (Cell(start, head, width) for width in widths)


def _layers(settings: Mapping[str, Any], data_set: Mapping[str, Any], lab: Lab) -> Layers:
    candidates = settings["candidates"]
    names = {f"{start} {head}": (start, head) for start in settings["starts"] for head in HEADS}

    def asked(cell: Cell, options: Mapping[str, Any], seed: int, part: str) -> dict[str, Any]:
        about = candidates[cell.head]
        fit = merged(settings["fit"], data_set.get("fit", {}), about["fit"], {about["width"]: cell.width}, options)
        audits = {name: settings[name] if part == "test" else 0 for name in ("audit", "ranked", "radius")}
        return {"data": data_set["data"], "fit": fit, "seed": seed, "part": part, "start": cell.start, **audits}

    choices = tuned(
        lab,
        layer_trial,
        {name: grid_points(candidates[head]["grid"]) for name, (_, head) in names.items()},
        lambda name, options, seed: asked(Cell(*names[name], settings["tuning_width"]), options, seed, "val"),
        figure="f1",
        seeds=settings["tuning_seeds"],
    )
    chosen = {names[name]: choice for name, choice in choices.items()}
    order = [(cell, seed) for cell in _cells(settings) for seed in settings["seeds"]]
    todo = [asked(cell, chosen[cell.start, cell.head].options, seed, "test") for cell, seed in order]
    found: dict[Cell, list[dict[str, Any]]] = {cell: [] for cell in _cells(settings)}
    for (cell, _), values in zip(order, lab.trials(layer_trial, todo), strict=True):
        found[cell].append(values)
    fit = merged(settings["fit"], data_set.get("fit", {}))
    return Layers(int(fit["k"]), chosen, found)


def setup(settings: Mapping[str, Any], results: Mapping[str, Layers]) -> str:
    """One paragraph on how the figures came about."""
    parts = []
    for name, layers in results.items():
        fit = merged(settings["fit"], settings["data_sets"][name].get("fit", {}))
        degrees = sorted({degree for degree in map(_degree, layers.found.values()) if degree is not None})
        fixed = f", DFT layers with k = {' or '.join(map(str, degrees))}" if degrees else ""
        parts.append(f"{name} ({fit['epochs']} epochs, batches of {fit['batch_size']}, figures at {layers.k}{fixed})")
    return (
        f"Binary cross-entropy on {'; '.join(parts)}. Both layers have a projection below and d learned columns; the "
        'DFT layer has 2k + 1 fixed columns besides, k the largest label set in training. Start "text" is the text\'s: '
        'a bottleneck at probability 1/2 for every label, a DFT layer at k/n; start "frequencies" gives both the '
        f"log-odds of the labels. The learning rate was chosen on validation rows at d = {settings['tuning_width']}, "
        "apart for each layer and start, with as many tries, and kept for all widths, as in the text. "
        f"{len(settings['seeds'])} seeds; intervals are Student's at 95%. Audits ask about the signs of all labels, "
        f"for {_many(settings['audit'])} of the test rows of each run."
    )


def _degree(runs: Sequence[Mapping[str, Any]]) -> int | None:
    return max((values["audit"]["degree"] for values in runs if _has_degree(values)), default=None)


def _has_degree(values: Mapping[str, Any]) -> bool:
    return values["audit"] is not None and values["audit"]["degree"] is not None


def _many(audit: int) -> str:
    return "the label sets of all" if audit < 0 else f"the label sets of {audit}"


def tried(settings: Mapping[str, Any], results: Mapping[str, Layers]) -> list[str]:
    """One sentence for each choice of a rate, and one on the length of the runs."""
    rates = [
        f"{name}, start {start}, {NAMES[head]}: "
        + ", ".join(f"rate {options['learning_rate']:g} → {100 * value:.1f}" for options, value in choice.tried)
        + f" (validation F1@{layers.k} in %); chosen {choice.options['learning_rate']:g}."
        for name, layers in results.items()
        for (start, head), choice in layers.choices.items()
    ]
    return rates if settings["fit"].get("patience") != 0 else [*rates, _SHORT]


def per_seed(results: Mapping[str, Layers], *figures: str) -> dict[str, Any]:
    """Figures of every seed, by data set and cell."""
    return {
        name: {
            f"{cell.start} {cell.head} {cell.width}": {figure: layers.figure(cell, figure) for figure in figures}
            for cell in layers.found
        }
        for name, layers in results.items()
    }


def interval(values: Sequence[float]) -> Interval:
    """Mean and interval over seeds."""
    return Interval.of(list(values))

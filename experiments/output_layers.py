"""Bottleneck and DFT output layers: the trial, its runs on several datasets, and how lines and bars are drawn."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning import seed_everything
from torch import Tensor

from experiments.candidates import Run, count_runs, merged, tuned_runs
from experiments.data import open_data
from experiments.presentation import DPI, tried_words
from shortlist.audit import AuditReport, audit
from shortlist.audit.certificates import Theorem
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs
from shortlist.evidence import Choice, Lab
from shortlist.extras import require
from shortlist.functional import f1_at_k, f1_score, ndcg_at_k, precision_at_k, recall_at_k
from shortlist.nn import DFTHead
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure, save_figure, style_axis
from shortlist.train import FitOptions
from shortlist.train.comparison import Interval
from shortlist.train.fit import Fitted, Training, make_run, quiet_lightning
from shortlist.train.inputs import prepare_inputs, settle
from shortlist.train.model.encoders import Standardised
from shortlist.train.model.starting_point import start_at_frequencies

STARTS = ("paper", "frequencies")
"""Where logits start: as in the paper, or at the label frequencies."""
HEADS = ("bottleneck", "dft")
_SHORT = (
    "Runs end after a fixed number of epochs, while the paper trains until a validation metric stops improving: a "
    "layer that starts far from the label frequencies has less time to catch up here."
)
NAMES = {"bottleneck": "bottleneck", "dft": "DFT layer"}
_MARKERS = ("o", "s", "D", "^")
_DASHES = {"paper": "-", "frequencies": "--"}
_MIN_WIDTH = 7.6  # Room for a legend of two columns.
EPS = 1e-8
"""The paper treats a region as empty if it contains no ball of this radius."""
_POINTS = 60


def layer_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train and evaluate one output layer.

    Args:
        settings: ``data``; ``fit``; ``seed``; ``part`` to evaluate; ``start``, see `started`; ``audit``, how many label
            sets of these rows to audit (0: none; negative: all); ``ranked``, how many of these to audit also as the
            top-ranked labels; ``radius``, how many radii to solve at most.
        root: where the data are.

    Returns:
        Metrics by name, ``losses`` of the training, ``curve`` of the validation metric by epoch, ``steps`` per epoch,
        ``step_seconds``, ``parameters`` of the output layer with its projection, and ``audit``.
    """
    run, losses, seconds = started(settings, root)
    k, fitted = int(settings["fit"]["k"]), run.fitted
    rows = run.dataset.part(settings["part"])
    history = fitted.history
    return {
        **_metrics(run.logits(settings["part"]), rows.targets, k),
        "losses": _thinned(losses),
        "curve": [epoch[fitted.monitor] for epoch in history],
        "steps": len(losses) // max(len(history), 1),
        "step_seconds": seconds / max(len(losses), 1),
        "parameters": sum(each.numel() for each in fitted.model.head.parameters()),
        "audit": _audited(run, rows, settings),
    }


def started(settings: Mapping[str, Any], root: Path) -> tuple[Run, list[float], float]:
    """Train like `shortlist.train.fit`, with a choice of the initial logits, and record the loss of every step.

    ``start: paper`` keeps the default initialization, as the paper does: every label near one half for a bottleneck,
    near k / n for a DFT head. ``start: frequencies`` starts both at the log-odds of the labels.

    Returns:
        The run, the losses, and the duration of the training in seconds.
    """
    start, seed = settings["start"], int(settings["seed"])
    if start not in STARTS:
        raise ValueError(f"`start` must be one of {', '.join(STARTS)}; got {start!r}.")
    dataset = open_data(settings["data"], root, seed=seed)
    options = settle(FitOptions(**{**settings["fit"], "seed": seed}), dataset)
    losses: list[float] = []
    with quiet_lightning():
        seed_everything(seed, verbose=False)
        module, plan = make_run(dataset, options)
        if any(isinstance(each, Standardised) for each in module.model.modules()):
            raise ValueError(f"`encoder` must not standardize its inputs, as for sparse ones; got {plan.encoder!r}.")
        ready = prepare_inputs(dataset, plan)
        train = ready.part("train")
        if start == "frequencies":
            start_at_frequencies(module.model.head, train.label_counts(), len(train))
        module.loss.register_forward_hook(lambda *parts: losses.append(float(parts[-1].detach())))
        with TemporaryDirectory() as scratch:
            began = time.monotonic()
            best = Training(module, train, ready.part("val"), options, options.monitor, Path(scratch)).run(False)
            seconds = time.monotonic() - began
    fitted = Fitted(module.model, plan, options, dataset.label_names, options.monitor, best, module.history)
    return Run(fitted, dataset), losses, seconds


def _metrics(logits: Tensor, target: Tensor, k: int) -> dict[str, float]:
    """The metrics of the paper; micro and macro F1 take the labels with a positive logit."""
    found = {
        "f1": f1_at_k(logits, target, k),
        "precision": precision_at_k(logits, target, k),
        "recall": recall_at_k(logits, target, k),
        "ndcg": ndcg_at_k(logits, target, k),
        "micro_f1": f1_score(logits, target, threshold=0.0, average="micro"),
        "macro_f1": f1_score(logits, target, threshold=0.0, average="macro"),
    }
    return {name: float(value) for name, value in found.items()}


def _thinned(losses: Sequence[float]) -> list[list[float]]:
    """Points (step, mean loss since the previous point); the first step is a point of its own."""
    edges = np.unique(np.concatenate([[0, 1], np.linspace(1, len(losses), _POINTS).round()]).astype(int))
    return [[int(end), float(np.mean(losses[begin:end]))] for begin, end in pairwise(edges)]


def label_sets(rows: Dataset) -> list[list[int]]:
    """The label sets of all rows that have labels; equal sets of several rows are repeated."""
    at, labels, present = label_pairs(rows.targets, rows.num_labels)
    sets: dict[int, list[int]] = {}
    for row, label in zip(at[present].tolist(), labels[present].tolist(), strict=True):
        sets.setdefault(row, []).append(label)
    return [sorted(sets[row]) for row in sorted(sets)]


def _audited(run: Run, rows: Dataset, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = int(settings.get("audit", 0))
    if not asked:
        return None
    head, sets = run.fitted.model.output_layer, label_sets(rows)
    order = Draws(int(settings["seed"]), "audited sets").order(len(sets)).tolist()
    chosen = [sets[index] for index in (order if asked < 0 else order[:asked])]
    degree = head.dft_degree if isinstance(head, DFTHead) else None
    report = audit(head, chosen, radius=False, jobs=1)
    ranked = audit(head, chosen[: int(settings.get("ranked", 0))], mode="top-k", radius=False, jobs=1)
    return {
        "degree": degree,
        **counts(report, most=degree),
        "ranked": ranked.counts(),
        "margins": margins(report, most=int(settings.get("radius", 0))),
    }


def counts(report: AuditReport, *, most: int | None) -> dict[str, dict[str, int]]:
    """Sets by verdict: those of at most ``most`` labels (None: of any size), and separately the larger ones.

    ``by_theorem`` counts argmaxable sets without a vector that float64 could confirm.
    """
    small = np.array([most is None or len(labels) <= most for labels in report.label_sets], dtype=bool)
    names = ("argmaxable", "unargmaxable", "undecided")
    trusted = np.array([isinstance(each, Theorem) for each in report.certificates], dtype=bool)

    def count(here: np.ndarray) -> dict[str, int]:
        found = {name: int(np.count_nonzero(report.verdicts[here] == name)) for name in names}
        return {**found, "by_theorem": int(np.count_nonzero(trusted & here))}

    return {"within": count(small), "beyond": count(~small)}


def margins(report: AuditReport, *, most: int) -> dict[str, int]:
    """How many sets have a ball of radius above 10^-8, and of radius at least 1, with features up to 10^4.

    The bounds that come with a verdict decide most sets; of the others, up to ``most`` are solved for their radius. The
    rest is ``open``: sets that may have a ball of radius 1, and count as if they had none.
    """
    bounds = report.radius_bounds.copy()
    unsure = np.flatnonzero((bounds[:, 0] < 1) & (bounds[:, 1] >= 1))
    solved = unsure[:most].tolist()
    if solved:
        weight = torch.from_numpy(report.system.weight)
        exact = audit(weight, [report.label_sets[index].tolist() for index in solved], dft=report.system.dft, jobs=1)
        bounds[solved] = exact.radius_bounds
    low = bounds[:, 0]
    return {
        "sets": len(report),
        "eps": int(np.count_nonzero(low > EPS)),
        "one": int(np.count_nonzero(low >= 1)),
        "open": int(np.count_nonzero((low < 1) & (bounds[:, 1] >= 1))),
    }


class Cell(NamedTuple):
    """One configuration: initial logits, head, and number of learned columns."""

    start: str
    head: str
    width: int


@dataclass(frozen=True)
class Layers:
    """The results on one dataset.

    Args:
        k: of the metrics at k.
        choices: by start and head, the options chosen on validation rows.
        found: by cell, the results of each seed.
    """

    k: int
    choices: Mapping[tuple[str, str], Choice]
    found: Mapping[Cell, list[dict[str, Any]]]

    def figure(self, cell: Cell, name: str) -> list[float]:
        """One result of a cell, per seed."""
        return [values[name] for values in self.found[cell]]

    def share(self, cell: Cell, verdict: str) -> list[float]:
        """The fraction of the audited sets with a verdict, per seed, including sets beyond the guarantee."""
        counted = [_summed(values["audit"]) for values in self.found[cell]]
        return [each[verdict] / max(sum(each.values()), 1) for each in counted]

    def margin(self, cell: Cell, name: str) -> list[float]:
        """The fraction of the audited sets with a ball of radius above 10^-8 (``eps``) or at least 1 (``one``).

        For ``open`` ones, it is undecided whether the radius is at least 1.
        """
        counted = [values["audit"]["margins"] for values in self.found[cell]]
        return [each[name] / max(each["sets"], 1) for each in counted]

    def widths(self, start: str) -> list[int]:
        """The widths that were run from a start, ascending."""
        return sorted({cell.width for cell in self.found if cell.start == start})


def _summed(audit: Mapping[str, Any]) -> dict[str, int]:
    return {name: count + audit["beyond"][name] for name, count in audit["within"].items()}


def measured(settings: Mapping[str, Any], lab: Lab) -> dict[str, Layers]:
    """Run all configurations.

    Args:
        settings: ``data_sets`` by name, each with ``data`` and ``fit``; ``fit``, which all runs share; ``candidates``,
            the two heads, each with ``fit``, ``grid`` and ``width``, the name of the option for its number of learned
            columns; ``starts``, widths by start; ``tuning_width``, at which the grid is tried; ``seeds``;
            ``tuning_seeds``; ``audit``, ``ranked`` and ``radius`` as in `layer_trial`.
        lab: runs the trials.

    Returns:
        The results by dataset.
    """
    refuse_other_heads(settings)
    lab.plan(planned(settings))
    return {name: _layers(settings, each, lab) for name, each in settings["data_sets"].items()}


def refuse_other_heads(settings: Mapping[str, Any]) -> None:
    """Raise ValueError unless the candidates are the two heads."""
    if set(settings["candidates"]) != set(HEADS):
        raise ValueError(f"`candidates` must be {' and '.join(HEADS)}; got {', '.join(settings['candidates'])}.")


def _tuned_heads(settings: Mapping[str, Any]) -> tuple[dict[tuple[str, str], Any], dict[tuple[str, str], list[int]]]:
    """Grids and widths by (start, head): options are chosen separately for each."""
    keys = [(start, head) for start in settings["starts"] for head in HEADS]
    return {key: settings["candidates"][key[1]] for key in keys}, {key: settings["starts"][key[0]] for key in keys}


def planned(settings: Mapping[str, Any]) -> int:
    """How many trials there are."""
    candidates, widths = _tuned_heads(settings)
    return len(settings["data_sets"]) * count_runs({**settings, "candidates": candidates}, widths)


def _layers(settings: Mapping[str, Any], data_set: Mapping[str, Any], lab: Lab) -> Layers:
    candidates, widths = _tuned_heads(settings)

    def asked(key: tuple[str, str], options: Mapping[str, Any], width: int, seed: int, part: str) -> dict[str, Any]:
        about = candidates[key]
        fit = merged(settings["fit"], data_set.get("fit", {}), about["fit"], {about["width"]: width}, options)
        audits = {name: settings[name] if part == "test" else 0 for name in ("audit", "ranked", "radius")}
        return {"data": data_set["data"], "fit": fit, "seed": seed, "part": part, "start": key[0], **audits}

    choices, found = tuned_runs(
        lab,
        layer_trial,
        {**settings, "candidates": candidates},
        asked,
        figure="f1",
        conditions=widths,
        tuning_condition=settings["tuning_width"],
    )
    by_cell = {
        Cell(start, head, width): runs for (start, head), by_width in found.items() for width, runs in by_width.items()
    }
    return Layers(int(merged(settings["fit"], data_set.get("fit", {}))["k"]), choices, by_cell)


def setup(settings: Mapping[str, Any], results: Mapping[str, Layers]) -> str:
    """Data, layers and tuning, in one paragraph."""
    parts = []
    for name, layers in results.items():
        fit = merged(settings["fit"], settings["data_sets"][name].get("fit", {}))
        degrees = sorted({degree for degree in map(_degree, layers.found.values()) if degree is not None})
        fixed = f", DFT layers with k = {' or '.join(map(str, degrees))}" if degrees else ""
        parts.append(f"{name} ({fit['epochs']} epochs, batches of {fit['batch_size']}, figures at {layers.k}{fixed})")
    return (
        f"Binary cross-entropy on {'; '.join(parts)}. Both layers have d learned columns after a projection; the DFT "
        "layer also has 2k + 1 fixed columns, where k is the size of the largest label set in training. The start of "
        "the paper is a probability of 1/2 for every label for a bottleneck, and of k/n for a DFT layer; the start "
        '"frequencies" gives both the log-odds of the labels. The learning rate is chosen on validation rows at d = '
        f"{settings['tuning_width']}, separately for each layer and start, with the same number of trials, and used "
        f"for all widths, as in the paper. {len(settings['seeds'])} seeds; intervals are Student's at 95%. Audits "
        f"check the signs of all labels, for {_many(settings['audit'])} of the test rows of each run."
    )


def _degree(runs: Sequence[Mapping[str, Any]]) -> int | None:
    return max((values["audit"]["degree"] for values in runs if _has_degree(values)), default=None)


def _has_degree(values: Mapping[str, Any]) -> bool:
    return values["audit"] is not None and values["audit"]["degree"] is not None


def _many(audit: int) -> str:
    return "the label sets of all" if audit < 0 else f"the label sets of {audit}"


def tried(settings: Mapping[str, Any], results: Mapping[str, Layers]) -> list[str]:
    """One sentence for each tuned layer, and one on the length of the runs."""
    sentences = [
        sentence
        for name, layers in results.items()
        for (start, head), choice in layers.choices.items()
        for sentence in tried_words({NAMES[head]: choice}, f"{name}, start {start}, ")
    ]
    return sentences if settings["fit"].get("patience") != 0 else [*sentences, _SHORT]


def per_seed(results: Mapping[str, Layers], *figures: str) -> dict[str, Any]:
    """Results of every seed, by dataset and cell."""
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


class Line(NamedTuple):
    """Intervals along an axis for one head and one start; ``name`` is for the legend."""

    name: str
    start: str
    head: str
    x: Sequence[float]
    y: Sequence[Interval]


def draw_panels(
    path: Path,
    panels: Mapping[str, Sequence[Line]],
    *,
    title: str,
    x: str,
    y: str,
    percent: bool = True,
    log: bool = False,
    widths: bool = True,
) -> Path:
    """Draw lines with their 95% bands.

    Args:
        path: the file.
        panels: the lines of each panel, by its title.
        title: of the figure.
        x, y: what the axes measure.
        percent: values are fractions.
        log: a logarithmic y axis.
        widths: x are widths on a logarithmic axis; else steps.
    """
    ticker = require("matplotlib.ticker", extra="report")
    figure = new_figure(max(3.9 * len(panels) + 0.6, _MIN_WIDTH), 4.4)
    figure.suptitle(title, fontsize=12, color=INK)
    handles: dict[str, Any] = {}
    for axis, (name, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for line in lines:
            handles[line.name] = _draw_line(axis, line, marked=widths, log=log)
        axis.set_title(name, fontsize=10, color=INK)
        axis.set_xlabel(x, fontsize=9)
        if log:
            axis.set_yscale("log")
        elif lines:
            axis.set_ylim(bottom=0)
        if percent:
            axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
        if widths:
            _mark_widths(axis, sorted({index for line in lines for index in line.x}))
        style_axis(axis, ticks=8)
    figure.axes[0].set_ylabel(y, fontsize=9)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save_figure(figure, path, dpi=DPI)


def draw_bars(path: Path, bars: Mapping[str, Mapping[str, Interval]], *, title: str, y: str) -> Path:
    """Draw groups of bars with their 95% intervals: ``bars[name][group]``."""
    figure = new_figure(7.4, 4.4)
    axis = figure.subplots()
    axis.set_title(title, fontsize=12, color=INK, loc="left")
    groups = list(dict.fromkeys(group for each in bars.values() for group in each))
    wide = 0.8 / max(len(bars), 1)
    for index, (name, each) in enumerate(bars.items()):
        at = [groups.index(group) + (index - (len(bars) - 1) / 2) * wide for group in each]
        means = [found.mean for found in each.values()]
        halves = [found.half_width for found in each.values()]
        color = candidate_style(index).color
        axis.bar(at, means, 0.9 * wide, yerr=halves, color=color, label=name, capsize=3, error_kw={"ecolor": INK})
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel(y, fontsize=10)
    style_axis(axis, ticks=8)
    figure.legend(loc="outside lower center", ncols=min(len(bars), 2), frameon=False, fontsize=9)
    return save_figure(figure, path, dpi=DPI)


def _draw_line(axis: Any, line: Line, *, marked: bool, log: bool) -> Any:
    index = HEADS.index(line.head)
    color, dash = candidate_style(index).color, _DASHES.get(line.start, ":")
    means = [each.mean for each in line.y]
    # A logarithmic axis cannot show an interval that reaches 0.
    low = [max(each.mean - each.half_width, each.mean / 4 if log else -math.inf) for each in line.y]
    high = [each.mean + each.half_width for each in line.y]
    marker = _MARKERS[index] if marked else None
    axis.fill_between(line.x, low, high, color=color, alpha=0.14, linewidth=0)
    return axis.plot(line.x, means, dash, color=color, marker=marker, markersize=5, linewidth=1.7)[0]


def _mark_widths(axis: Any, positions: Sequence[float]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(positions, [f"{index:g}" for index in positions])
    axis.minorticks_off()

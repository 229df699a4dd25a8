"""How fast bottleneck and DFT layers learn: the training loss by step, and steps until convergence (dft, 7 and 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.argmaxable import STARTS
from experiments.argmaxable_drawn import Line, draw_bars, draw_panels
from experiments.argmaxable_layers import HEADS, NAMES, Cell, Layers, interval, measured, per_seed, setup, tried
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, beats

NEAR = 0.01
"""A run has converged when its validation figure is within this share of its best one."""
WORTH_LOG = 0.02
"""The least difference of losses worth having, 2%; the text gives no number and a logarithmic plot."""
ALIKE_LOG = 0.05
"""Losses within 5% count as alike; the text gives no number, and a logarithmic plot hardly shows less."""
WORTH_SAVED = 0.05
"""The least log ratio of steps worth having, 5% fewer: a fifth of what the text reports."""


def loss_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 7: the training loss by step at one width."""
    results = measured(settings, lab)
    claims = [
        Claim(
            "With the starts of the text the DFT layer begins at a lower training loss.",
            published["start"],
            all_of([_lower_loss(name, layers, "text", 0) for name, layers in results.items()]),
        ),
        Claim(
            "With the starts of the text the DFT layer also ends at a lower training loss.",
            published["end"],
            all_of([_lower_loss(name, layers, "text", -1) for name, layers in results.items()]),
        ),
        Claim(
            "The lead comes from the start: when both start at the label frequencies, the final losses are alike.",
            published["reason"],
            all_of([_same_loss(name, layers) for name, layers in results.items()]),
        ),
    ]
    draw_panels(
        lab.figures / "loss.png",
        {f"{name} (d = {_width(layers)})": _loss_lines(layers) for name, layers in results.items()},
        title="Training loss",
        x="steps",
        y="binary cross-entropy",
        percent=False,
        log=True,
        widths=False,
    )
    return Outcome(
        setup(settings, results),
        claims,
        [_loss_table(results)],
        [Figure("loss.png", "Mean training loss since the last point, logarithmic; bands are 95% over seeds.")],
        tried(settings, results),
        per_seed(results, "losses"),
    )


def steps_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 8: steps until convergence, as ratios."""
    results = measured(settings, lab)
    claims = [
        Claim(
            "With the starts of the text the DFT layer needs fewer steps to come within 1% of its own best figure.",
            published["faster"],
            _all_saved(results, "text", own=True),
        ),
        Claim(
            "With the starts of the text the DFT layer needs fewer steps to the figure that both layers reach.",
            published["equivalent"],
            _all_saved(results, "text", own=False),
        ),
        Claim(
            "When both start at the label frequencies, the DFT layer still needs fewer steps to the figure that both "
            "layers reach.",
            published["equal_starts"],
            _all_saved(results, "frequencies", own=False),
        ),
    ]
    kinds = {("text", True): "own best, starts of the text", ("text", False): "same figure, starts of the text"}
    kinds[("frequencies", False)] = "same figure, both start at label frequencies"
    bars = {
        told: {name: interval(log_steps_saved(layers, start, own=own)) for name, layers in results.items()}
        for (start, own), told in kinds.items()
    }
    title = "Steps that the DFT layer saves until convergence"
    draw_bars(lab.figures / "steps.png", bars, title=title, y="log of the ratio (0.29 is 25% fewer)")
    return Outcome(
        setup(settings, results),
        claims,
        [_steps_table(results)],
        [Figure("steps.png", f"{title}, by data set; below 0 it needs more. Whiskers are 95% over seeds.")],
        [
            *tried(settings, results),
            "The rate falls as a cosine, which moves convergence to the end of a run for both layers.",
        ],
        per_seed(results, "curve", "steps", "step_seconds"),
    )


def steps_until(curve: Sequence[float], target: float, *, steps: int) -> float:
    """The step at which a figure reaches ``target``, on straight lines between epochs that begin at 0; all if never.

    Example:
        >>> steps_until([0.2, 0.4], 0.3, steps=10)
        15.0
    """
    before = 0.0
    for epoch, value in enumerate(curve):
        if value >= target:
            return steps * (epoch + (target - before) / (value - before) if value > before else epoch)
        before = value
    return float(steps * len(curve))


def log_steps_saved(layers: Layers, start: str, *, own: bool) -> list[float]:
    """Logarithm of the bottleneck's steps over those of the DFT layer, seed by seed; 0.29 is 25% fewer.

    Args:
        layers: what was found.
        start: where the logits started.
        own: each until it is near its own best figure; else both until they are near the lower one of the best two.
    """
    saved = []
    width = _width(layers)
    for low, high in zip(*(layers.found[Cell(start, head, width)] for head in HEADS), strict=True):
        common = min(max(low["curve"]), max(high["curve"]))
        needed = [
            steps_until(each["curve"], (1 - NEAR) * (max(each["curve"]) if own else common), steps=each["steps"])
            for each in (low, high)
        ]
        saved.append(math.log(max(needed[0], 1.0) / max(needed[1], 1.0)))
    return saved


def _all_saved(results: Mapping[str, Layers], start: str, *, own: bool) -> Finding:
    findings = []
    for name, layers in results.items():
        saved = log_steps_saved(layers, start, own=own)
        names = (f"{name}: log steps of the bottleneck", "of the DFT layer")
        findings.append(beats(saved, [0.0] * len(saved), names=names, worth=WORTH_SAVED, unit=""))
    return all_of(findings)


def _width(layers: Layers) -> int:
    """The one width of a study of training; the largest if there are several."""
    return max(cell.width for cell in layers.found)


def _log_losses(layers: Layers, start: str, head: str, place: int) -> list[float]:
    return [math.log(values["losses"][place][1]) for values in layers.found[Cell(start, head, _width(layers))]]


def _lower_loss(name: str, layers: Layers, start: str, place: int) -> Finding:
    pair = [_log_losses(layers, start, head, place) for head in HEADS]
    names = (f"{name}: log loss of the bottleneck", "of the DFT layer")
    return beats(*pair, names=names, worth=WORTH_LOG, unit="")


def _same_loss(name: str, layers: Layers) -> Finding:
    pair = [_log_losses(layers, "frequencies", head, -1) for head in HEADS]
    return alike(*pair, names=(f"{name}: log loss of the bottleneck", "of the DFT layer"), within=ALIKE_LOG, unit="")


def _loss_lines(layers: Layers) -> list[Line]:
    lines = []
    for start in STARTS:
        for head in HEADS if layers.widths(start) else ():
            runs = layers.found[Cell(start, head, _width(layers))]
            points = list(zip(*(values["losses"] for values in runs), strict=True))
            x = [seeds[0][0] for seeds in points]
            y = [interval([value for _, value in seeds]) for seeds in points]
            lines.append(Line(f"{NAMES[head]}, {STARTS[start]}", start, head, x, y))
    return lines


def _loss_table(results: Mapping[str, Layers]) -> Table:
    rows = []
    for name, layers in results.items():
        for start in STARTS:
            for head in HEADS:
                runs = layers.found[Cell(start, head, _width(layers))]
                ends = [interval([1000 * values["losses"][place][1] for values in runs]) for place in (0, -1)]
                rows.append([f"{name}, {NAMES[head]}, {STARTS[start]}", *ends])
    columns = ["data, layer and start", "first step", "last steps"]
    return Table("Training loss, in thousandths", columns, rows, digits=2)


def _steps_table(results: Mapping[str, Layers]) -> Table:
    rows = []
    for name, layers in results.items():
        for start in STARTS:
            pair = [layers.found[Cell(start, head, _width(layers))] for head in HEADS]
            costs = [high["step_seconds"] / low["step_seconds"] for low, high in zip(*pair, strict=True)]
            kept = [[math.exp(-each) for each in log_steps_saved(layers, start, own=own)] for own in (True, False)]
            rows.append([f"{name}, {STARTS[start]}", *(interval(each) for each in (*kept, costs))])
    columns = ["data and start", "steps to own best", "steps to the same figure", "seconds of a step"]
    note = (
        "A value below 1 means that the DFT layer needs less. Seconds were taken while other runs shared the machine."
    )
    return Table("DFT layer as a multiple of the bottleneck", columns, rows, digits=2, note=note)

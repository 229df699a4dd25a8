"""Bottleneck and DFT output layers: which label sets they can say, and how good they are (dft, figures 6 and 10-14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.argmaxable_drawn import Line, draw_panels
from experiments.argmaxable_layers import HEADS, NAMES, Cell, Layers, interval, measured, per_seed, setup, tried
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, beats
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN

WORTH = 0.01
"""The text speaks of a wide margin without a number; one point is the least that we would call a margin."""
STARTS = {"text": "starts of the text", "frequencies": "both start at label frequencies"}
FIGURES = {
    "f1": "F1@k",
    "precision": "precision@k",
    "recall": "recall@k",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "ndcg": "nDCG@k",
}


def sets_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 6: test label sets that no features give, and F1@k against the width."""
    results = measured(settings, lab)
    narrow = {name: min(layers.widths("text")) for name, layers in results.items()}
    claims = [
        Claim(
            f"A trained bottleneck of d = {_one_of(narrow.values())} has label sets in the test rows that no features "
            "give.",
            published["impossible"],
            some_impossible({name: _counted(layers, "bottleneck", narrow[name]) for name, layers in results.items()}),
        ),
        Claim(
            "A DFT layer can say every test set of at most k labels, at every width.",
            published["guarantee"],
            none_impossible({name: _of_head(layers, "dft") for name, layers in results.items()}),
        ),
        better_claim(results, "f1", "text", published["better"]),
    ]
    if any(layers.widths("frequencies") for layers in results.values()):
        claims.append(better_claim(results, "f1", "frequencies", published["equal_starts"]))
    halved = _half_width(results)
    if halved is not None:
        claims.append(Claim(_halved_words(results), published["half"], halved))
    picture = draw_panels(
        lab.figures / "impossible.png",
        {name: _lines(layers, "unargmaxable") for name, layers in results.items()},
        title="Label sets of test rows that no features give",
        x="learned columns d",
        y="share of the sets",
    )
    return Outcome(
        setup(settings, results),
        claims,
        [_audit_table(results), figure_table(results, "f1")],
        [
            Figure(picture.name, "Share of test label sets with a proof that no features give them; bands are 95%."),
            figure_picture(results, "f1", lab),
        ],
        tried(settings, results),
        per_seed(results, "f1", "parameters", "audit"),
    )


def figure_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figures 10 to 14: one more figure of the same runs, ``settings["figure"]``, against the width."""
    figure = settings["figure"]
    if figure not in FIGURES:
        raise ValueError(f"`figure` must be one of {', '.join(FIGURES)}; got {figure!r}.")
    results = measured(settings, lab)
    claims = [better_claim(results, figure, "text", published["better"])]
    if any(layers.widths("frequencies") for layers in results.values()):
        claims.append(better_claim(results, figure, "frequencies", published["equal_starts"]))
    return Outcome(
        setup(settings, results),
        claims,
        [figure_table(results, figure)],
        [figure_picture(results, figure, lab)],
        tried(settings, results),
        per_seed(results, figure),
    )


def better_claim(results: Mapping[str, Layers], figure: str, start: str, told: str) -> Claim:
    """Whether the DFT layer is better in a figure at every width, all data sets together."""
    findings = [
        beats(
            layers.figure(Cell(start, "dft", width), figure),
            layers.figure(Cell(start, "bottleneck", width), figure),
            names=(f"{name}, d = {width}: DFT", "bottleneck"),
            worth=WORTH,
        )
        for name, layers in results.items()
        for width in layers.widths(start)
    ]
    return Claim(
        f"At every width the DFT layer has a higher {FIGURES[figure]} than the bottleneck ({STARTS[start]}).",
        told,
        all_of(findings),
    )


def some_impossible(counted: Mapping[str, Sequence[Mapping[str, int]]]) -> Finding:
    """Whether every run has a set that was proved impossible, from counts of verdicts by data set and run."""
    least = {name: min(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    most = {name: max(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    verdict = HOLDS if min(least.values()) > 0 else FAILS if max(most.values()) == 0 else OPEN
    return Finding(verdict, "; ".join(_told_range(name, counted[name], least[name], most[name]) for name in counted))


def none_impossible(counted: Mapping[str, Sequence[Mapping[str, int]]]) -> Finding:
    """Whether every set has features that give it; sets without a vector that float64 confirms leave it open."""
    wrong = {name: sum(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    unsure = {name: sum(each["undecided"] for each in runs) for name, runs in counted.items()}
    trusted = {name: sum(each["by_theorem"] for each in runs) for name, runs in counted.items()}
    verdict = FAILS if any(wrong.values()) else OPEN if any(unsure.values()) or any(trusted.values()) else HOLDS
    parts = []
    for name, runs in counted.items():
        asked = sum(each["argmaxable"] + each["unargmaxable"] + each["undecided"] for each in runs)
        shown = asked - wrong[name] - unsure[name] - trusted[name]
        parts.append(
            f"{name}: of {asked} sets in all runs {shown} with a vector that gives them in float64, {trusted[name]} by "
            f"the theorem alone, {unsure[name]} undecided, {wrong[name]} impossible"
        )
    return Finding(verdict, "; ".join(parts))


def _told_range(name: str, runs: Sequence[Mapping[str, int]], least: int, most: int) -> str:
    asked = runs[0]["argmaxable"] + runs[0]["unargmaxable"] + runs[0]["undecided"]
    return f"{name}: {least} to {most} of {asked} sets impossible"


def _counted(layers: Layers, head: str, width: int) -> list[dict[str, int]]:
    return [values["audit"]["within"] for values in layers.found[Cell("text", head, width)]]


def _of_head(layers: Layers, head: str) -> list[dict[str, int]]:
    return [values["audit"]["within"] for cell, runs in layers.found.items() if cell.head == head for values in runs]


def _half_width(results: Mapping[str, Layers]) -> Finding | None:
    """Whether a DFT layer of half the widest width reaches the bottleneck of that width."""
    findings = []
    for name, layers in results.items():
        wide = max(layers.widths("text"))
        if wide // 2 in layers.widths("text"):
            half, whole = Cell("text", "dft", wide // 2), Cell("text", "bottleneck", wide)
            saved = 1 - layers.figure(half, "parameters")[0] / layers.figure(whole, "parameters")[0]
            names = (f"{name}, {100 * saved:.0f}% fewer parameters: DFT of {wide // 2}", f"bottleneck of {wide}")
            findings.append(beats(layers.figure(half, "f1"), layers.figure(whole, "f1"), names=names, worth=WORTH))
    return all_of(findings) if findings else None


def _halved_words(results: Mapping[str, Layers]) -> str:
    wide = _one_of([max(layers.widths("text")) for layers in results.values()])
    return f"A DFT layer with half the learned columns is better in F1@k than a bottleneck of d = {wide}."


def _one_of(values: Any) -> str:
    return " or ".join(map(str, sorted(set(values))))


def _lines(layers: Layers, figure: str) -> list[Line]:
    lines = []
    for start in STARTS:
        for head in HEADS if layers.widths(start) else ():
            places = layers.widths(start)
            cells = [Cell(start, head, width) for width in places]
            values = [
                layers.share(cell, figure) if figure == "unargmaxable" else layers.figure(cell, figure)
                for cell in cells
            ]
            lines.append(Line(f"{NAMES[head]}, {STARTS[start]}", start, head, places, [interval(v) for v in values]))
    return lines


def figure_picture(results: Mapping[str, Layers], figure: str, lab: Lab) -> Figure:
    """A figure against the width, with all starts."""
    name = FIGURES[figure]
    draw_panels(
        lab.figures / f"{figure}.png",
        {f"{data} (k = {layers.k})": _lines(layers, figure) for data, layers in results.items()},
        title=f"{name} on test rows",
        x="learned columns d",
        y=name,
    )
    return Figure(f"{figure}.png", f"{name} against the number of learned columns; bands are 95% intervals over seeds.")


def figure_table(results: Mapping[str, Layers], figure: str) -> Table:
    """A figure of both layers by data set, start and width."""
    rows = [
        [f"{name}, {STARTS[start]}", width, *(interval(layers.figure(Cell(start, h, width), figure)) for h in HEADS)]
        for name, layers in results.items()
        for start in STARTS
        for width in layers.widths(start)
    ]
    columns = ["data and start", "d", *(NAMES[head] for head in HEADS)]
    return Table(f"{FIGURES[figure]} on test rows, in percent", columns, rows, percent=True)


def _audit_table(results: Mapping[str, Layers]) -> Table:
    columns = ["data, layer", "d", "impossible", "undecided", "larger than k", "impossible to rank first"]
    rows = []
    for name, layers in results.items():
        for head in HEADS:
            for width in layers.widths("text"):
                cell = Cell("text", head, width)
                audits = [values["audit"] for values in layers.found[cell]]
                beyond = [sum(each["beyond"].values()) / max(each["margins"]["sets"], 1) for each in audits]
                ranked = [each["ranked"]["unargmaxable"] / max(sum(each["ranked"].values()), 1) for each in audits]
                shares = (layers.share(cell, "unargmaxable"), layers.share(cell, "undecided"), beyond, ranked)
                rows.append([f"{name}, {NAMES[head]}", width, *(interval(each) for each in shares)])
    note = (
        "Starts of the text. Larger than k: sets beyond the guarantee of the DFT layer, counted among all here. The "
        "last column asks whether the labels of a set can be the best ones, with any threshold, on a part of the sets."
    )
    return Table("Test label sets with a proof that no features give them, in percent", columns, rows, True, 1, note)

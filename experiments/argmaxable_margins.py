"""How much room label sets have in the feature space of bottleneck and DFT layers (dft, tables 2 to 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.argmaxable_drawn import Line, draw_panels
from experiments.argmaxable_layers import HEADS, NAMES, Cell, Layers, interval, measured, setup, tried
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, at_least, grows
from shortlist.evidence.verdicts import OPEN

NEARLY_ALL = 0.999
"""The text counts 9,995 of 10,000 sets where it says all but a handful, whose regions are too thin to detect."""
WITHIN = 0.01
"""In the tables of the text the two counts of a bottleneck differ by 0.2% of the sets at most."""
KINDS = {"eps": "radius above 10⁻⁸", "one": "radius at least 1"}


def margins_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Tables 2 to 4: test label sets whose region holds a ball of radius 10^-8, and of radius 1."""
    results = measured(settings, lab)
    claims = []
    for name, layers in results.items():
        wide = max(layers.widths("text"))
        claims += [
            Claim(
                f"{name}: the wider a bottleneck, the more test sets it can say.",
                _published(published, "eps", "bottleneck"),
                _growing(layers),
            ),
            Claim(
                f"{name}: a bottleneck of d = {wide} can say all test sets.",
                _published(published, "eps", "bottleneck"),
                at_least(
                    layers.margin(Cell("text", "bottleneck", wide), "eps"), NEARLY_ALL, name=f"share at d = {wide}"
                ),
            ),
            Claim(
                f"{name}: a DFT layer can say all test sets at every width.",
                _published(published, "eps", "dft"),
                all_of([_all_said(layers, width) for width in layers.widths("text")]),
            ),
            Claim(
                f"{name}: what a bottleneck can say at all, it can say with a margin of 1.",
                _published(published, "one", "bottleneck"),
                all_of([_as_wide(layers, width) for width in layers.widths("text")]),
            ),
        ]
    draw_panels(
        lab.figures / "margins.png",
        {f"{name}: {told}": _lines(layers, kind) for name, layers in results.items() for kind, told in KINDS.items()},
        title="Test label sets with a ball of that radius, features up to 10⁴",
        x="learned columns d",
        y="share of the sets",
    )
    return Outcome(
        setup(settings, results),
        claims,
        [_table(name, layers, published) for name, layers in results.items()],
        [Figure("margins.png", "Share of the audited test sets with so much room; bands are 95% over seeds.")],
        tried(settings, results),
        {name: _values(layers) for name, layers in results.items()},
    )


def _growing(layers: Layers) -> Finding:
    cells = {width: Cell("text", "bottleneck", width) for width in layers.widths("text")}
    shares = {float(width): layers.margin(cell, "eps") for width, cell in cells.items()}
    return grows(shares, name="share of sets that can be said", along="d =", worth=WITHIN)


def _all_said(layers: Layers, width: int) -> Finding:
    return at_least(layers.margin(Cell("text", "dft", width), "eps"), NEARLY_ALL, name=f"share at d = {width}")


def _as_wide(layers: Layers, width: int) -> Finding:
    cell = Cell("text", "bottleneck", width)
    names = (f"d = {width}: share with radius above 10⁻⁸", "with at least 1")
    said, sure, unsure = (layers.margin(cell, kind) for kind in ("eps", "one", "open"))
    least = alike(said, sure, names=names, within=WITHIN)
    most = alike(said, [a + b for a, b in zip(sure, unsure, strict=True)], names=names, within=WITHIN)
    return least if least.verdict == most.verdict else Finding(OPEN, f"{least.why}, undecided radii counted as less")


def _published(published: Mapping[str, Any], kind: str, head: str) -> str:
    """The counts of the text in a few words."""
    told = ", ".join(f"{count} at d = {width}" for width, count in published[kind][head].items())
    return f"{published['data']}, {KINDS[kind]}, of {published['sets']} test sets: {told}"


def _lines(layers: Layers, kind: str) -> list[Line]:
    places = layers.widths("text")
    return [
        Line(
            NAMES[head],
            "text",
            head,
            places,
            [interval(layers.margin(Cell("text", head, width), kind)) for width in places],
        )
        for head in HEADS
    ]


def _table(name: str, layers: Layers, published: Mapping[str, Any]) -> Table:
    """Ours and the text's, as shares of the sets."""
    rows = []
    for width in layers.widths("text"):
        for head in HEADS:
            ours = [interval(layers.margin(Cell("text", head, width), kind)) for kind in KINDS]
            theirs = [published[kind][head].get(width) for kind in KINDS]
            shares = [None if count is None else count / published["sets"] for count in theirs]
            rows.append([f"d = {width}, {NAMES[head]}", ours[0], shares[0], ours[1], shares[1]])
    columns = ["layer"]
    for told in KINDS.values():
        columns += [f"{name}, {told}", f"{published['data']}, {told}"]
    unsolved = sum(values["audit"]["margins"]["open"] for runs in layers.found.values() for values in runs)
    note = (
        f"{max(values['audit']['margins']['sets'] for runs in layers.found.values() for values in runs)} sets a run. "
        f"Of {unsolved} sets in all runs it was not decided whether the radius is at least 1; they count as less."
    )
    return Table("Test label sets with so much room, in percent", columns, rows, percent=True, note=note)


def _values(layers: Layers) -> dict[str, Any]:
    return {
        f"{cell.start} {cell.head} {cell.width}": [values["audit"] for values in runs]
        for cell, runs in layers.found.items()
    }

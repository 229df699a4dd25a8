"""Bottleneck and DFT layers: possible sets, metrics, training and margins (dft, figures 6-8, 10-14, tables 2-4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.output_layers import (
    HEADS,
    NAMES,
    Cell,
    Layers,
    Line,
    draw_bars,
    draw_panels,
    interval,
    measured,
    per_seed,
    setup,
    tried,
)
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, at_least, beats, grows
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN

WORTH = 0.01
"""The paper claims a wide margin without a number; one point is the least that we would call a margin."""
NEAR = 0.01
"""A run has converged when its validation metric is within this fraction of its best."""
WORTH_LOG = 0.02
"""The smallest difference of losses worth having, 2%; the paper gives a logarithmic plot and no number."""
ALIKE_LOG = 0.05
"""Losses within 5% count as alike; the paper gives no number, and its logarithmic plot hardly shows less."""
WORTH_SAVED = 0.05
"""The smallest log ratio of steps worth having, 5% fewer: a fifth of what the paper reports."""
NEARLY_ALL = 0.999
"""The paper says "all but a handful" for 9,995 of 10,000 sets; the regions of the others are too thin to detect."""
WITHIN = 0.01
"""In the paper's tables, the two counts of a bottleneck differ by at most 0.2% of the sets."""
KINDS = {"eps": "radius above 10⁻⁸", "one": "radius at least 1"}
STARTS = {"paper": "starts of the paper", "frequencies": "both start at label frequencies"}
FIGURES = {
    "f1": "F1@k",
    "precision": "precision@k",
    "recall": "recall@k",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "ndcg": "nDCG@k",
}


def sets_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 6: test label sets that no features produce, and F1@k, by width."""
    results = measured(settings, lab)
    narrow = {name: min(layers.widths("paper")) for name, layers in results.items()}
    claims = [
        Claim(
            f"A trained bottleneck of d = {_one_of(narrow.values())} has test label sets that no features produce.",
            published["impossible"],
            some_impossible({name: _counted(layers, "bottleneck", narrow[name]) for name, layers in results.items()}),
        ),
        Claim(
            "At every width, a DFT layer can output every test set of at most k labels.",
            published["guarantee"],
            none_impossible({name: _of_head(layers, "dft") for name, layers in results.items()}),
        ),
        better_claim(results, "f1", "paper", published["better"]),
    ]
    if any(layers.widths("frequencies") for layers in results.values()):
        claims.append(better_claim(results, "f1", "frequencies", published["equal_starts"]))
    halved = _half_width(results)
    if halved is not None:
        claims.append(Claim(_halved_words(results), published["half"], halved))
    picture = draw_panels(
        lab.figures / "impossible.png",
        {name: _lines(layers, "unargmaxable") for name, layers in results.items()},
        title="Test label sets that no features produce",
        x="learned columns d",
        y="fraction of the sets",
    )
    return Outcome(
        setup(settings, results),
        claims,
        [_audit_table(results), figure_table(results, "f1")],
        [
            Figure(
                picture.name,
                "Fraction of the test label sets that provably no features produce; bands are 95% intervals.",
            ),
            figure_picture(results, "f1", lab),
        ],
        tried(settings, results),
        per_seed(results, "f1", "parameters", "audit"),
    )


def figure_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figures 10 to 14: one more metric of the same runs, ``settings["figure"]``, by width."""
    figure = settings["figure"]
    if figure not in FIGURES:
        raise ValueError(f"`figure` must be one of {', '.join(FIGURES)}; got {figure!r}.")
    results = measured(settings, lab)
    claims = [better_claim(results, figure, "paper", published["better"])]
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


def better_claim(results: Mapping[str, Layers], figure: str, start: str, published: str) -> Claim:
    """Whether the DFT layer is better by a metric at every width, on all datasets."""
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
    text = f"At every width, the DFT layer has a higher {FIGURES[figure]} than the bottleneck ({STARTS[start]})."
    return _of_paper(text, published, all_of(findings)) if start == "paper" else _control(text, published, findings)


def _of_paper(text: str, published: str, finding: Finding) -> Claim:
    """A claim about layers with the starts of the paper."""
    return Claim(text, published, None, paper=finding)


def _control(text: str, published: str, findings: Sequence[Finding]) -> Claim:
    """A statement of ours about layers with equal starts."""
    return Claim(text, published, all_of(findings), ours=True)


def some_impossible(counted: Mapping[str, Sequence[Mapping[str, int]]]) -> Finding:
    """Whether every run has a set that is provably impossible, from counts of verdicts by dataset and run."""
    least = {name: min(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    most = {name: max(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    verdict = HOLDS if min(least.values()) > 0 else FAILS if max(most.values()) == 0 else OPEN
    return Finding(verdict, "; ".join(_range_words(name, counted[name], least[name], most[name]) for name in counted))


def none_impossible(counted: Mapping[str, Sequence[Mapping[str, int]]]) -> Finding:
    """Whether features produce every set; sets without a vector that float64 confirms leave the claim open."""
    wrong = {name: sum(each["unargmaxable"] for each in runs) for name, runs in counted.items()}
    unsure = {name: sum(each["undecided"] for each in runs) for name, runs in counted.items()}
    trusted = {name: sum(each["by_theorem"] for each in runs) for name, runs in counted.items()}
    verdict = FAILS if any(wrong.values()) else OPEN if any(unsure.values()) or any(trusted.values()) else HOLDS
    parts = []
    for name, runs in counted.items():
        asked = sum(each["argmaxable"] + each["unargmaxable"] + each["undecided"] for each in runs)
        shown = asked - wrong[name] - unsure[name] - trusted[name]
        parts.append(
            f"{name}: of {asked} sets in all runs, {shown} have a vector that produces them in float64, "
            f"{trusted[name]} hold by the theorem alone, {unsure[name]} are undecided, {wrong[name]} are impossible"
        )
    return Finding(verdict, "; ".join(parts))


def _range_words(name: str, runs: Sequence[Mapping[str, int]], least: int, most: int) -> str:
    asked = runs[0]["argmaxable"] + runs[0]["unargmaxable"] + runs[0]["undecided"]
    return f"{name}: {least} to {most} of {asked} sets impossible"


def _counted(layers: Layers, head: str, width: int) -> list[dict[str, int]]:
    return [values["audit"]["within"] for values in layers.found[Cell("paper", head, width)]]


def _of_head(layers: Layers, head: str) -> list[dict[str, int]]:
    return [values["audit"]["within"] for cell, runs in layers.found.items() if cell.head == head for values in runs]


def _half_width(results: Mapping[str, Layers]) -> Finding | None:
    """Whether a DFT layer of half the largest width beats the bottleneck of that width."""
    findings = []
    for name, layers in results.items():
        wide = max(layers.widths("paper"))
        if wide // 2 in layers.widths("paper"):
            half, whole = Cell("paper", "dft", wide // 2), Cell("paper", "bottleneck", wide)
            saved = 1 - layers.figure(half, "parameters")[0] / layers.figure(whole, "parameters")[0]
            names = (f"{name}, {100 * saved:.0f}% fewer parameters: DFT of {wide // 2}", f"bottleneck of {wide}")
            findings.append(beats(layers.figure(half, "f1"), layers.figure(whole, "f1"), names=names, worth=WORTH))
    return all_of(findings) if findings else None


def _halved_words(results: Mapping[str, Layers]) -> str:
    wide = _one_of([max(layers.widths("paper")) for layers in results.values()])
    return f"A DFT layer with half the learned columns has a higher F1@k than a bottleneck of d = {wide}."


def _one_of(values: Any) -> str:
    return " or ".join(map(str, sorted(set(values))))


def _lines(layers: Layers, figure: str) -> list[Line]:
    lines = []
    for start in STARTS:
        for head in HEADS if layers.widths(start) else ():
            positions = layers.widths(start)
            cells = [Cell(start, head, width) for width in positions]
            values = [
                layers.share(cell, figure) if figure == "unargmaxable" else layers.figure(cell, figure)
                for cell in cells
            ]
            lines.append(Line(f"{NAMES[head]}, {STARTS[start]}", start, head, positions, [interval(v) for v in values]))
    return lines


def figure_picture(results: Mapping[str, Layers], figure: str, lab: Lab) -> Figure:
    """A metric by width, with all starts."""
    name = FIGURES[figure]
    draw_panels(
        lab.figures / f"{figure}.png",
        {f"{data} (k = {layers.k})": _lines(layers, figure) for data, layers in results.items()},
        title=f"{name} on test rows",
        x="learned columns d",
        y=name,
    )
    return Figure(f"{figure}.png", f"{name} by the number of learned columns; bands are 95% intervals over seeds.")


def figure_table(results: Mapping[str, Layers], figure: str) -> Table:
    """A metric of both layers by dataset, start and width."""
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
            for width in layers.widths("paper"):
                cell = Cell("paper", head, width)
                audits = [values["audit"] for values in layers.found[cell]]
                beyond = [sum(each["beyond"].values()) / max(each["margins"]["sets"], 1) for each in audits]
                ranked = [each["ranked"]["unargmaxable"] / max(sum(each["ranked"].values()), 1) for each in audits]
                shares = (layers.share(cell, "unargmaxable"), layers.share(cell, "undecided"), beyond, ranked)
                rows.append([f"{name}, {NAMES[head]}", width, *(interval(each) for each in shares)])
    note = (
        "Starts of the paper. Larger than k: sets beyond the guarantee of the DFT layer, included here. The last "
        "column tells whether the labels of a set can be ranked first, for any threshold, on a part of the sets."
    )
    return Table("Test label sets that provably no features produce, in percent", columns, rows, True, 1, note)


def loss_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 7: the training loss by step at one width."""
    results = measured(settings, lab)
    claims = [
        _of_paper(
            "With the starts of the paper, the DFT layer begins at a lower training loss.",
            published["start"],
            all_of([_lower_loss(name, layers, "paper", 0) for name, layers in results.items()]),
        ),
        _of_paper(
            "With the starts of the paper, the DFT layer also ends at a lower training loss.",
            published["end"],
            all_of([_lower_loss(name, layers, "paper", -1) for name, layers in results.items()]),
        ),
        _control(
            "The lead comes from the start: if both start at the label frequencies, the final losses are alike.",
            published["reason"],
            [_same_loss(name, layers) for name, layers in results.items()],
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
        [
            Figure(
                "loss.png",
                "Mean training loss since the previous point, logarithmic; bands are 95% intervals over seeds.",
            )
        ],
        tried(settings, results),
        per_seed(results, "losses"),
    )


def steps_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 8: ratios of the steps until convergence."""
    results = measured(settings, lab)
    claims = [
        _of_paper(
            "With the starts of the paper, the DFT layer needs fewer steps to come within 1% of its own best score.",
            published["faster"],
            _all_saved(results, "paper", own=True),
        ),
        _of_paper(
            "With the starts of the paper, the DFT layer needs fewer steps to the score that both layers reach.",
            published["equivalent"],
            _all_saved(results, "paper", own=False),
        ),
        _control(
            "If both start at the label frequencies, the DFT layer still needs fewer steps to the score that both "
            "layers reach.",
            published["equal_starts"],
            [_all_saved(results, "frequencies", own=False)],
        ),
    ]
    kinds = {("paper", True): "own best, starts of the paper", ("paper", False): "same score, starts of the paper"}
    kinds[("frequencies", False)] = "same score, both start at label frequencies"
    bars = {
        words: {name: interval(log_steps_saved(layers, start, own=own)) for name, layers in results.items()}
        for (start, own), words in kinds.items()
    }
    title = "Steps that the DFT layer saves until convergence"
    draw_bars(lab.figures / "steps.png", bars, title=title, y="log of the ratio (0.29 is 25% fewer)")
    return Outcome(
        setup(settings, results),
        claims,
        [_steps_table(results)],
        [Figure("steps.png", f"{title}, by dataset; below 0 it needs more. Whiskers are 95% intervals over seeds.")],
        [
            *tried(settings, results),
            "The learning rate follows a cosine, which moves convergence to the end of a run for both layers.",
        ],
        per_seed(results, "curve", "steps", "step_seconds"),
    )


def steps_until(curve: Sequence[float], target: float, *, steps: int) -> float:
    """The step at which a score reaches ``target``, interpolated between epochs from 0; all steps if it never does.

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
    """Logarithm of the bottleneck's steps over those of the DFT layer, per seed; 0.29 is 25% fewer.

    Args:
        layers: the results.
        start: of the logits.
        own: steps until each layer is near its own best score; else until both are near the lower of the two best.
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
    """The width of a study of training; the largest if there are several."""
    return max(cell.width for cell in layers.found)


def _log_losses(layers: Layers, start: str, head: str, index: int) -> list[float]:
    return [math.log(values["losses"][index][1]) for values in layers.found[Cell(start, head, _width(layers))]]


def _lower_loss(name: str, layers: Layers, start: str, index: int) -> Finding:
    pair = [_log_losses(layers, start, head, index) for head in HEADS]
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
                ends = [interval([1000 * values["losses"][index][1] for values in runs]) for index in (0, -1)]
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
    columns = ["data and start", "steps to own best", "steps to the same score", "seconds per step"]
    note = "Below 1, the DFT layer needs less. Seconds were measured while other runs shared the machine."
    return Table("DFT layer as a multiple of the bottleneck", columns, rows, digits=2, note=note)


def margins_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Tables 2 to 4: test label sets whose region contains a ball of radius 10^-8, and of radius 1."""
    results = measured(settings, lab)
    claims = []
    for name, layers in results.items():
        wide = max(layers.widths("paper"))
        claims += [
            Claim(
                f"{name}: the wider a bottleneck, the more test sets it can output.",
                _published(published, "eps", "bottleneck"),
                _growing(layers),
            ),
            Claim(
                f"{name}: a bottleneck of d = {wide} can output all test sets.",
                _published(published, "eps", "bottleneck"),
                at_least(
                    layers.margin(Cell("paper", "bottleneck", wide), "eps"), NEARLY_ALL, name=f"fraction at d = {wide}"
                ),
            ),
            Claim(
                f"{name}: a DFT layer can output all test sets at every width.",
                _published(published, "eps", "dft"),
                all_of([_all_possible(layers, width) for width in layers.widths("paper")]),
            ),
            Claim(
                f"{name}: a bottleneck outputs the sets that it can output with a margin of 1.",
                _published(published, "one", "bottleneck"),
                all_of([_as_wide(layers, width) for width in layers.widths("paper")]),
            ),
        ]
    draw_panels(
        lab.figures / "margins.png",
        {
            f"{name}: {words}": _margin_lines(layers, kind)
            for name, layers in results.items()
            for kind, words in KINDS.items()
        },
        title="Test label sets with a ball of that radius, features up to 10⁴",
        x="learned columns d",
        y="fraction of the sets",
    )
    return Outcome(
        setup(settings, results),
        claims,
        [_table(name, layers, published) for name, layers in results.items()],
        [
            Figure(
                "margins.png", "Fraction of the audited test sets with such a ball; bands are 95% intervals over seeds."
            )
        ],
        tried(settings, results),
        {name: _values(layers) for name, layers in results.items()},
    )


def _growing(layers: Layers) -> Finding:
    cells = {width: Cell("paper", "bottleneck", width) for width in layers.widths("paper")}
    shares = {float(width): layers.margin(cell, "eps") for width, cell in cells.items()}
    return grows(shares, name="fraction of possible sets", along="d =", worth=WITHIN)


def _all_possible(layers: Layers, width: int) -> Finding:
    return at_least(layers.margin(Cell("paper", "dft", width), "eps"), NEARLY_ALL, name=f"fraction at d = {width}")


def _as_wide(layers: Layers, width: int) -> Finding:
    cell = Cell("paper", "bottleneck", width)
    names = (f"d = {width}: fraction with radius above 10⁻⁸", "with at least 1")
    said, sure, unsure = (layers.margin(cell, kind) for kind in ("eps", "one", "open"))
    least = alike(said, sure, names=names, within=WITHIN)
    most = alike(said, [a + b for a, b in zip(sure, unsure, strict=True)], names=names, within=WITHIN)
    return (
        least if least.verdict == most.verdict else Finding(OPEN, f"{least.why}, with undecided radii counted as less")
    )


def _published(published: Mapping[str, Any], kind: str, head: str) -> str:
    """The counts of the paper, in words."""
    counts = ", ".join(f"{count} at d = {width}" for width, count in published[kind][head].items())
    return f"{published['data']}, {KINDS[kind]}, of {published['sets']} test sets: {counts}"


def _margin_lines(layers: Layers, kind: str) -> list[Line]:
    positions = layers.widths("paper")
    return [
        Line(
            NAMES[head],
            "paper",
            head,
            positions,
            [interval(layers.margin(Cell("paper", head, width), kind)) for width in positions],
        )
        for head in HEADS
    ]


def _table(name: str, layers: Layers, published: Mapping[str, Any]) -> Table:
    """Our fractions of the sets, and the paper's."""
    rows = []
    for width in layers.widths("paper"):
        for head in HEADS:
            ours = [interval(layers.margin(Cell("paper", head, width), kind)) for kind in KINDS]
            theirs = [published[kind][head].get(width) for kind in KINDS]
            shares = [None if count is None else count / published["sets"] for count in theirs]
            rows.append([f"d = {width}, {NAMES[head]}", ours[0], shares[0], ours[1], shares[1]])
    columns = ["layer"]
    for words in KINDS.values():
        columns += [f"{name}, {words}", f"{published['data']}, {words}"]
    unsolved = sum(values["audit"]["margins"]["open"] for runs in layers.found.values() for values in runs)
    note = (
        f"{max(values['audit']['margins']['sets'] for runs in layers.found.values() for values in runs)} sets per run. "
        f"For {unsolved} sets in all runs, it is undecided whether the radius is at least 1; they count as less."
    )
    return Table("Test label sets with such a ball, in percent", columns, rows, percent=True, note=note)


def _values(layers: Layers) -> dict[str, Any]:
    return {
        f"{cell.start} {cell.head} {cell.width}": [values["audit"] for values in runs]
        for cell, runs in layers.found.items()
    }

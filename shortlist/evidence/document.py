"""The document of all results: every claim with its verdicts, the supporting numbers, and what was tried."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.evidence.experiment import Experiment, natural_order, read_experiments
from shortlist.evidence.reproduction import Folders, is_current, read_results
from shortlist.evidence.verdicts import FAILS, HOLDS, NOT_RUN, OPEN, PARTLY, Finding
from shortlist.files import replacing
from shortlist.formatting import format_count

_MARKS = {HOLDS: "✔", PARTLY: "◐", FAILS: "✘", OPEN: "?", NOT_RUN: "…"}
_RECIPES = {"paper": "the paper's recipe", "finding": "tuned per loss"}
_HEAD = """\
# Evidence

What the papers claim, and what {experiments} found here. Statements about our own speed and our own controls are
counted apart.

{counts}
`shortlist reproduce --all --scale small --data-root FOLDER` makes these results in about {minutes} minutes on two
cores and writes this document. It reports what was measured, whether or not it supports the claim.

**Two recipes.** *The paper's recipe*: its optimizer, learning rate, schedule and loss parameters, for all losses
alike. *Tuned per loss*: learning rate and loss parameters chosen for each loss on rows split off from the training
part, with the same number of trials for every loss. Test rows are never used to choose anything. What was tried is
listed below each table; a value chosen at the edge of its grid is marked, because a wider grid might do better.

**Verdicts.** A statement that involves randomness is tested with three seeds or more. Differences are paired by
seed and come with Student's 95% interval. *Holds*: the whole interval is on the side of the statement. *Does not
hold*: the whole interval is below the smallest difference worth having, or outside the band of "alike". *Not
decidable*: the interval covers both, or the paper's data are not available here. A statement about several
conditions *holds in k of n*, with the verdict of each condition. *Not run yet*: there is no result of the current
design. A dash: the design has no runs of this recipe. Seeds change the initial parameters, the batches, the noise
and the validation rows; the test rows are the same for all seeds, so the intervals do not cover the choice of test
rows.

**Scale.** Networks are small, and many are trained on frozen features: a verdict is about the losses at this
scale. The papers' own numbers (columns "paper") are for orientation, not for equality.

**Why not.** Below its table, each statement that does not hold everywhere has its mechanism in a sentence, with the
figures that support it; where nothing measured here explains it, the sentence says so.
"""
_MAX_ALIGNED_WIDTH = 40
_SCALES = {"small": "small scale", "paper": "scale of the paper"}


def write_evidence(folders: Folders, path: Path, *, leave_out: Sequence[str] = ()) -> Path:
    """Write the document of all results, using only the result files.

    An experiment without a result of its current settings is shown as not run yet.

    Args:
        folders: where to find the experiments, their results, and ``claims.json``, which names claims and papers.
        path: the document, in Markdown.
        leave_out: experiments that could not be run; stale results on other data may exist for them.
    """
    about = json.loads((folders.experiments / "claims.json").read_text(encoding="utf-8"))
    experiments = read_experiments(folders.experiments)
    results = [
        {**each, **_of_design(experiments[name], scale)}
        for (name, scale), each in read_results(folders.output).items()
        if name not in leave_out and name in experiments and is_current(each, experiments[name])
    ]
    done = {each["name"] for each in results}
    results += [_not_run(each) for name, each in experiments.items() if name not in done]
    text = evidence(results, about, _relative(folders.output, path.parent))
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _of_design(experiment: Experiment, scale: str) -> dict[str, Any]:
    """What the description of an experiment adds to its result."""
    mechanisms = experiment.mechanisms if scale == "small" else {}
    return {"mechanisms": mechanisms, "minutes": experiment.scales[scale].minutes if experiment.scales else 0.0}


def _not_run(experiment: Experiment) -> dict[str, Any]:
    """What is known about an experiment without a result, in the form of one."""
    verdict, why = (OPEN, experiment.not_decidable) if experiment.not_decidable else (NOT_RUN, "")
    design = _of_design(experiment, "small")
    claims = experiment.claims or [{"text": f"{experiment.title}.", "published": ""}]
    finding = {"verdict": verdict, "why": why, "parts": []}
    return {
        "name": experiment.name,
        "title": experiment.title,
        "text": experiment.publication,
        "item": experiment.item,
        "claim": experiment.claim,
        "scale": "small",
        "trials": 0,
        "core_seconds": 0.0,
        **design,
        "outcome": {
            "setup": why or f"Not run yet; about {design['minutes']:g} minutes on two cores.",
            "claims": [
                {"text": each["text"], "published": each["published"], "finding": finding, "paper": finding}
                | {"ours": bool(each.get("ours"))}
                for each in claims
            ],
            "tables": [],
            "figures": [],
            "tried": [],
        },
    }


def evidence(results: Sequence[Mapping[str, Any]], about: Mapping[str, Any], figures: str) -> str:
    """The document as Markdown.

    Args:
        results: contents of result files.
        about: ``claims``, titles by number; ``exact``, the numbers of those that involve no training; ``papers``,
            references by key.
        figures: the path from the document to the folder of the results.
    """
    results = sorted(results, key=lambda each: (each["claim"], each["scale"] != "small", natural_order(each["name"])))
    exact = set(about.get("exact", ()))
    trained = [result for result in results if result["claim"] not in exact]
    computed = [result for result in results if result["claim"] in exact]
    parts = [
        _head(results, trained, computed),
        "## Claims about training\n\n" + _overview(_claims(trained, ours=False), _RECIPES),
        "## Claims about time, and mathematics\n\n" + _overview(_claims(computed, ours=False), {"finding": "verdict"}),
        "## Our own statements\n\n" + _overview(_claims(results, ours=True), {"finding": "verdict"}),
    ]
    for number, claim in about["claims"].items():
        mine = [result for result in results if str(result["claim"]) == number]
        if mine:
            parts.append(f"## {number}. {claim}\n")
            parts.extend(_experiment(result, about, figures, exact) for result in mine)
    return "\n".join(parts).rstrip() + "\n"


def _claims(results: Iterable[Mapping[str, Any]], *, ours: bool) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Every claim with its result."""
    return [(result, claim) for result in results for claim in result["outcome"]["claims"] if claim["ours"] == ours]


def _head(
    results: Sequence[Mapping[str, Any]],
    trained: Sequence[Mapping[str, Any]],
    computed: Sequence[Mapping[str, Any]],
) -> str:
    groups = [
        ("the papers on training, the paper's recipe", _claims(trained, ours=False), "paper"),
        ("the papers on training, tuned per loss", _claims(trained, ours=False), "finding"),
        ("the papers on time, and mathematics", _claims(computed, ours=False), "finding"),
        ("our own", _claims(results, ours=True), "finding"),
    ]
    rows = []
    for name, claims, column in groups:
        counts = Counter(claim[column]["verdict"] for _, claim in claims if claim[column] is not None)
        rows.append([name, *(str(counts[verdict]) for verdict in _MARKS)])
    return _HEAD.format(
        counts=_table(["statements of", *_MARKS], rows),
        experiments=format_count(len(results), "experiment"),
        minutes=f"{sum(result['minutes'] for result in results if result['scale'] == 'small'):.0f}",
    )


def _overview(claims: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], columns: Mapping[str, str]) -> str:
    rows = []
    for result, claim in claims:
        link = f"{result['text']}, [{result['item']}](#{_anchor(result)})"
        rows.append([_cell(claim["text"]), link, *(_verdict(claim[column]) for column in columns)])
    return _table(["statement", "published in", *columns.values()], rows)


def _verdict(finding: Mapping[str, Any] | None) -> str:
    if finding is None:
        return "–"
    parts = tuple(Finding(part["verdict"], part["why"]) for part in finding["parts"])
    return f"{_MARKS[finding['verdict']]} {Finding(finding['verdict'], finding['why'], parts).headline}"


def _reasons(finding: Mapping[str, Any] | None) -> str:
    """The verdict and the numbers of every condition."""
    if finding is None or not finding["why"]:
        return _verdict(finding)
    parts = finding["parts"]
    lines = [f"{_MARKS[part['verdict']]} {_cell(part['why'])}" for part in parts] or [_cell(finding["why"])]
    return "<br>".join([f"**{_verdict(finding)}**", *lines])


def _anchor(result: Mapping[str, Any]) -> str:
    """The anchor that Markdown renderers generate for the heading of an experiment."""
    kept = "".join(letter for letter in _heading(result).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _heading(result: Mapping[str, Any]) -> str:
    scale = "" if result["scale"] == "small" else ", scale of the paper"
    return f"{result['name']}: {result['title']}{scale}"


def _experiment(result: Mapping[str, Any], about: Mapping[str, Any], figures: str, exact: set[int]) -> str:
    outcome = result["outcome"]
    parts = [f"### {_heading(result)}\n"]
    reference = about["papers"].get(result["text"], result["text"])
    parts.append(f"{reference}: {result['item']}. {outcome['setup']}\n")
    columns = {"finding": f"ours, {_SCALES[result['scale']]}"} if result["claim"] in exact else _RECIPES
    if outcome["claims"]:
        rows = [
            [
                _cell(claim["text"]) + (" *(our own)*" if claim["ours"] else ""),
                _cell(claim["published"]),
                *(_reasons(claim[column]) for column in columns),
            ]
            for claim in outcome["claims"]
        ]
        parts.append(_table(["statement", "published", *columns.values()], rows))
    if result["mechanisms"]:
        reasons = [f"- *{text}* {why}\n" for text, why in result["mechanisms"].items()]
        parts.append("Why not, or not everywhere:\n\n" + "".join(reasons))
    parts.extend(_result_table(table) for table in outcome["tables"])
    folder = f"{figures}/{result['scale']}/{result['name']}"
    parts.extend(
        f"![{each['caption']}]({folder}/{each['file']})\n\n*{each['caption']}*\n" for each in outcome["figures"]
    )
    if outcome["tried"]:
        parts.append("Tried:\n\n" + "".join(f"- {sentence}\n" for sentence in outcome["tried"]))
    if result["trials"]:
        command = f"shortlist reproduce {result['name']}" + ("" if result["scale"] == "small" else " --scale paper")
        trials = format_count(result["trials"], "trial")
        parts.append(f"`{command}`: {trials}, {result['core_seconds'] / 60:.1f} minutes of trials.\n")
    return "\n".join(parts)


def _result_table(table: Mapping[str, Any]) -> str:
    rows = [[_value(cell, table) for cell in row] for row in table["rows"]]
    note = f"\n{table['note']}\n" if table["note"] else ""
    return f"**{table['title']}**\n\n{_table(table['columns'], rows)}{note}"


def _value(cell: Any, table: Mapping[str, Any]) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, int) and not isinstance(cell, bool):  # A count, such as a width: never a percentage.
        return str(cell)
    scale, digits = (100 if table["percent"] else 1), table["digits"]
    if isinstance(cell, Mapping):
        mean, half = cell["mean"], cell["half_width"]
        if mean is None:
            return "–"
        number = f"{scale * mean:.{digits}f}"
        return number if half is None else f"{number} ± {scale * half:.{digits}f}"
    return f"{scale * cell:.{digits}f}" if isinstance(cell, float) else _cell(str(cell))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with right-aligned numbers; columns of short cells are also aligned in the source."""
    numeric = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    cells = [[_cell(column) for column in columns], *rows]
    widths = [max(3, *(len(row[at]) for row in cells)) for at in range(len(columns))]
    widths = [width if width <= _MAX_ALIGNED_WIDTH else 3 for width in widths]

    def line(row: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "| " + " | ".join(aligned) + " |"

    rule = (("-" * (width - 1) + ":") if right else "-" * width for width, right in zip(widths, numeric, strict=True))
    return "\n".join([line(cells[0]), "| " + " | ".join(rule) + " |", *map(line, cells[1:])]) + "\n"


def _is_number(cell: str) -> bool:
    return cell == "–" or re.fullmatch(r"-?[\d.,]+( ± [\d.]+)?", cell) is not None


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _relative(target: Path, start: Path) -> str:
    return Path(os.path.relpath(target.resolve(), start.resolve())).as_posix()


def verdict_lines(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Verdict, statement and numbers of every claim of a result, for a terminal."""
    for claim in result["outcome"]["claims"]:
        for column, recipe in _RECIPES.items():
            finding = claim[column]
            if finding is not None:
                known = f" ({recipe})" if claim["paper"] is not None else ""
                yield f"{_verdict(finding)}{known}", claim["text"], finding["why"]

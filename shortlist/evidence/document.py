"""The document of all results: every claim with its verdict, the figures behind it, and what was tried."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.evidence.experiment import natural_order
from shortlist.evidence.reproduction import Place, read_results
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.files import replacing

_MARKS = {HOLDS: "✔ holds", FAILS: "✘ does not hold", OPEN: "? not decidable at this scale"}
_HEAD = """\
# Evidence

{statements} put to the test: **{holds}, {fails} not hold, {open} cannot be decided at this scale.** Most are made by
the texts in words, some by their figures alone, and a few are ours; the last group (claim 10) is mathematics, checked
by numbers.

This document is written by `shortlist reproduce --all --scale small --data-root FOLDER` from the result files, which
the runs write: {experiments}, {minutes} minutes of trials, of which several run at a time, and those that two
experiments share count in both. What stands here is what was measured, whether it pleases or not.

How verdicts are reached: a statement that chance has a part in is tested with at least five seeds. Differences are
paired by seed and come with Student's 95 % interval. *Holds*: the whole interval lies on the side of the statement.
*Does not hold*: the whole interval lies below the least difference that would be worth having, or beyond the band of
"alike". *Not decidable at this scale*: the interval covers both, or the data that it takes are not here. Seeds change
parameters, batches, noise and the validation rows; test rows are the same for all, so intervals do not speak of other
test rows.

Learning rates and the parameters of the losses are chosen on rows that are cut from the training part, with the same
number of tries for every loss; test rows choose nothing. What was tried stands below each table; a value that was
chosen at the edge of its grid is marked, for more of it might do better. Networks are small and many stand on frozen
features: a verdict is one about the losses at this scale, and the figures of the texts stand beside ours for reading,
not for equality.
"""
_WIDEST = 40
_SCALES = {"small": "small scale", "paper": "the scale of the text"}


def write_evidence(place: Place, path: Path, *, leave_out: Sequence[str] = ()) -> Path:
    """Write the document of all results of a place; nothing in it comes from anywhere else.

    Args:
        place: of results and of ``claims.json``, which names claims and texts.
        path: of the document, in Markdown.
        leave_out: experiments that could not be run, of which the place may have results from other data.
    """
    about = json.loads((place.experiments / "claims.json").read_text(encoding="utf-8"))
    results = [each for (name, _), each in read_results(place.output).items() if name not in leave_out]
    text = evidence(results, about, _relative(place.output, path.parent))
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def evidence(results: Sequence[Mapping[str, Any]], about: Mapping[str, Any], figures: str) -> str:
    """The document as Markdown.

    Args:
        results: contents of result files.
        about: ``claims``, title by number, and ``texts``, reference by key.
        figures: from the document to the folder of the results.
    """
    results = sorted(results, key=lambda each: (each["claim"], each["scale"] != "small", natural_order(each["name"])))
    parts = [_head(results), _summary(results, about), _overview(results)]
    for number, claim in about["claims"].items():
        mine = [result for result in results if str(result["claim"]) == number]
        if mine:
            parts.append(f"## {number}. {claim}\n")
            parts.extend(_experiment(result, about, figures) for result in mine)
    return "\n".join(parts).rstrip() + "\n"


def _head(results: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(claim["finding"]["verdict"] for result in results for claim in result["outcome"]["claims"])
    return _HEAD.format(
        statements=_number(sum(counts.values()), "statement was", "statements were"),
        holds=_number(counts[HOLDS], "holds", "hold"),
        fails=_number(counts[FAILS], "does", "do"),
        open=counts[OPEN],
        experiments=_number(len(results), "experiment", "experiments"),
        minutes=f"{sum(result['core_seconds'] for result in results) / 60:.0f}",
    )


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _summary(results: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    rows = []
    for number, claim in about["claims"].items():
        mine = [each for result in results if str(result["claim"]) == number for each in result["outcome"]["claims"]]
        counts = Counter(each["finding"]["verdict"] for each in mine)
        if mine:
            rows.append([number, claim, *(str(counts[verdict]) for verdict in _MARKS)])
    return _table(["claim", "about", *_MARKS], rows)


def _overview(results: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for result in results:
        link = f"[{result['item']}](#{_anchor(result)})"
        for claim in result["outcome"]["claims"]:
            verdict = _MARKS[claim["finding"]["verdict"]]
            rows.append([str(result["claim"]), _cell(claim["text"]), f"{result['text']}, {link}", verdict])
    return "## All verdicts\n\n" + _table(["claim", "statement", "published in", "verdict"], rows)


def _anchor(result: Mapping[str, Any]) -> str:
    """The anchor that a reader of Markdown makes of the heading of an experiment."""
    kept = "".join(letter for letter in _heading(result).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _heading(result: Mapping[str, Any]) -> str:
    scale = "" if result["scale"] == "small" else ", scale of the text"
    return f"{result['name']}: {result['title']}{scale}"


def _experiment(result: Mapping[str, Any], about: Mapping[str, Any], figures: str) -> str:
    outcome = result["outcome"]
    parts = [f"### {_heading(result)}\n"]
    reference = about["texts"].get(result["text"], result["text"])
    parts.append(f"{reference}: {result['item']}. {outcome['setup']}\n")
    if outcome["claims"]:
        rows = [
            [
                _cell(claim["text"]),
                _cell(claim["published"]),
                _cell(claim["finding"]["why"]),
                f"**{_MARKS[claim['finding']['verdict']]}**",
            ]
            for claim in outcome["claims"]
        ]
        parts.append(_table(["statement", "published", f"ours, {_SCALES[result['scale']]}", "verdict"], rows))
    parts.extend(_result_table(table) for table in outcome["tables"])
    folder = f"{figures}/{result['scale']}/{result['name']}"
    parts.extend(
        f"![{each['caption']}]({folder}/{each['file']})\n\n*{each['caption']}*\n" for each in outcome["figures"]
    )
    if outcome["tried"]:
        parts.append("Tried:\n\n" + "".join(f"- {sentence}\n" for sentence in outcome["tried"]))
    command = f"shortlist reproduce {result['name']}" + ("" if result["scale"] == "small" else " --scale paper")
    trials = _number(result["trials"], "trial", "trials")
    parts.append(f"`{command}`: {trials}, {result['core_seconds'] / 60:.1f} minutes of trials.\n")
    return "\n".join(parts)


def _result_table(table: Mapping[str, Any]) -> str:
    rows = [[_value(cell, table) for cell in row] for row in table["rows"]]
    note = f"\n{table['note']}\n" if table["note"] else ""
    return f"**{table['title']}**\n\n{_table(table['columns'], rows)}{note}"


def _value(cell: Any, table: Mapping[str, Any]) -> str:
    if cell is None:
        return "–"
    scale, digits = (100 if table["percent"] else 1), table["digits"]
    if isinstance(cell, Mapping):
        mean, half = cell["mean"], cell["half_width"]
        if mean is None:
            return "–"
        told = f"{scale * mean:.{digits}f}"
        return told if half is None else f"{told} ± {scale * half:.{digits}f}"
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return _cell(str(cell))
    return str(cell) if isinstance(cell, int) and not table["percent"] else f"{scale * cell:.{digits}f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns stand below one another in the source, too, but for those of sentences; numbers right."""
    numeric = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    cells = [[_cell(column) for column in columns], *rows]
    widths = [max(3, *(len(row[at]) for row in cells)) for at in range(len(columns))]
    widths = [width if width <= _WIDEST else 3 for width in widths]

    def line(row: Sequence[str]) -> str:
        told = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "| " + " | ".join(told) + " |"

    rule = (("-" * (width - 1) + ":") if right else "-" * width for width, right in zip(widths, numeric, strict=True))
    return "\n".join([line(cells[0]), "| " + " | ".join(rule) + " |", *map(line, cells[1:])]) + "\n"


def _is_number(cell: str) -> bool:
    return cell == "–" or re.fullmatch(r"-?[\d.,]+( ± [\d.]+)?", cell) is not None


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _relative(target: Path, start: Path) -> str:
    return Path(os.path.relpath(target.resolve(), start.resolve())).as_posix()


def verdict_lines(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Verdict, statement and figures of every claim of a result, for a terminal."""
    for claim in result["outcome"]["claims"]:
        yield _MARKS[claim["finding"]["verdict"]], claim["text"], claim["finding"]["why"]

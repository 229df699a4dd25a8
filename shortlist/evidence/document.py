"""The document of all results: every claim with its verdict, the supporting numbers, and what was tried."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.evidence.experiment import natural_order
from shortlist.evidence.reproduction import Folders, read_results
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.files import replacing
from shortlist.formatting import format_count

_MARKS = {HOLDS: "✔ holds", FAILS: "✘ does not hold", OPEN: "? not decidable at this scale"}
_HEAD = """\
# Evidence

{statements} tested: **{holds}, {fails} not hold, and {open} cannot be decided at this scale.** Most statements are
claims that the papers make in words; some are read from their figures, and a few are ours. The last group (claim
10) is mathematics, checked numerically.

`shortlist reproduce --all --scale small --data-root FOLDER` writes this document from the result files of
{experiments}, which took {minutes} minutes of trials (several trials run at a time; a trial that two experiments
share counts in both). It reports what was measured, whether or not it supports the claim.

**Verdicts.** A statement that involves randomness is tested with at least five seeds. Differences are paired by
seed and come with Student's 95% interval. *Holds*: the whole interval is on the side of the statement. *Does not
hold*: the whole interval is below the smallest difference worth having, or outside the band of "alike". *Not
decidable at this scale*: the interval covers both, or the required data are not available here. Seeds change the
initial parameters, the batches, the noise and the validation rows; the test rows are the same for all seeds, so
the intervals do not cover the choice of test rows.

**Tuning.** Learning rates and loss parameters are chosen on rows that are split off from the training part, with
the same number of trials for every loss. Test rows are never used to choose anything. What was tried is listed
below each table; a value chosen at the edge of its grid is marked, because a wider grid might do better.

**Scale.** Networks are small, and many are trained on frozen features: a verdict is about the losses at this
scale. The papers' own numbers (columns "paper", or "text" in earlier results) are for orientation, not for
equality.
"""
_MAX_ALIGNED_WIDTH = 40
_SCALES = {"small": "small scale", "paper": "scale of the paper"}


def write_evidence(folders: Folders, path: Path, *, leave_out: Sequence[str] = ()) -> Path:
    """Write the document of all results, using only the result files.

    Args:
        folders: where to find the results and ``claims.json``, which names the claims and the papers.
        path: the document, in Markdown.
        leave_out: experiments that could not be run; stale results on other data may exist for them.
    """
    about = json.loads((folders.experiments / "claims.json").read_text(encoding="utf-8"))
    results = [each for (name, _), each in read_results(folders.output).items() if name not in leave_out]
    text = evidence(results, about, _relative(folders.output, path.parent))
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def evidence(results: Sequence[Mapping[str, Any]], about: Mapping[str, Any], figures: str) -> str:
    """The document as Markdown.

    Args:
        results: contents of result files.
        about: ``claims``, titles by number, and ``papers``, references by key.
        figures: the path from the document to the folder of the results.
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
        statements=format_count(sum(counts.values()), "statement was", "statements were"),
        holds=format_count(counts[HOLDS], "holds", "hold"),
        fails=format_count(counts[FAILS], "does", "do"),
        open=counts[OPEN],
        experiments=format_count(len(results), "experiment"),
        minutes=f"{sum(result['core_seconds'] for result in results) / 60:.0f}",
    )


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
    """The anchor that Markdown renderers generate for the heading of an experiment."""
    kept = "".join(letter for letter in _heading(result).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _heading(result: Mapping[str, Any]) -> str:
    scale = "" if result["scale"] == "small" else ", scale of the paper"
    return f"{result['name']}: {result['title']}{scale}"


def _experiment(result: Mapping[str, Any], about: Mapping[str, Any], figures: str) -> str:
    outcome = result["outcome"]
    parts = [f"### {_heading(result)}\n"]
    reference = about["papers"].get(result["text"], result["text"])
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
        yield _MARKS[claim["finding"]["verdict"]], claim["text"], claim["finding"]["why"]

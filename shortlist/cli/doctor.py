"""``shortlist doctor``: annotations that are probably wrong or missing."""

from __future__ import annotations

import argparse
import csv
import sys
from typing import Any

from shortlist.cli.console import aligned, note, print_json
from shortlist.cli.options import (
    add_json_option,
    add_labelled_score_options,
    add_parser,
    add_task_options,
    open_labelled_scores,
    read_task,
    whole_number,
)
from shortlist.errors import InputError
from shortlist.files import check_output, replacing, writing
from shortlist.formatting import format_count

_EXAMPLES = """\
examples:
  shortlist doctor scores.npy labels.npy --logits
  shortlist doctor scores.csv labels.txt --probabilities --id image --output issues.csv
  shortlist doctor plants-model --data plants.csv --part test --top 50

SCORES must be those of a model that was not trained on the rows: of held-out rows, or out of fold. With a model, the
rows of --part are looked at, by default its test rows.
One class per row: rows that the model confidently assigns to another class. Sets of labels: labels that are probably
wrong, and labels that are probably missing. The least credible come first. A weak model doubts good labels, so look at
them before changing any.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_COLUMNS: tuple[str, ...] = ("row", "label", "issue", "suggested", "quality")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "doctor",
        run,
        help="find annotations that are probably wrong or missing",
        about="Find annotations that are probably wrong or missing, by confident learning.",
        epilog=_EXAMPLES,
    )
    add_labelled_score_options(parser, part="test")
    add_task_options(parser)
    parser.add_argument(
        "--top", metavar="N", type=whole_number(at_least=1), default=20, help="how many to print (default 20)"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="CSV file for all of them")
    add_json_option(parser, "all of them")


def run(options: argparse.Namespace) -> int:
    """Find, print, write."""
    from shortlist.doctor import find_label_issues, find_wrong_classes

    if options.output is not None:
        check_output(options.output, options.scores, options.labels, options.names, options.data)
    found = open_labelled_scores(options, one_class=read_task(options))
    scores = found.scores
    find = find_wrong_classes if found.target.ndim == 1 else find_label_issues
    values, ids = scores.whole()
    try:
        issues = find(values, found.target, from_logits=scores.from_logits, names=scores.names)
    except ValueError as error:
        raise InputError(str(error)) from error
    records = [{**each, "row": each["row"] if ids is None else ids[each["row"]]} for each in issues.to_list()]
    if options.output is not None:
        with writing(options.output), replacing(options.output) as partial, partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(_COLUMNS))
            writer.writeheader()
            writer.writerows(records)
    if options.json:
        print_json(records)
        return 0
    _print(records, len(values), options.top)
    if options.output is not None:
        note(f"Written to {options.output}.")
    return 0


def _print(records: list[dict[str, Any]], rows: int, top: int) -> None:
    missing = sum(each["issue"] == "missing" for each in records)
    doubtful, all_rows = format_count(len(records) - missing, "label"), format_count(rows, "row")
    sys.stdout.write(f"{doubtful} probably wrong and {missing:,} probably missing in {all_rows}.\n")
    shown = [[_cell(each[column]) for column in _COLUMNS] for each in records[:top]]
    if shown:
        sys.stdout.write("\n".join(aligned([_COLUMNS, *shown])) + "\n")
    if len(records) > top:
        sys.stdout.write(f"... and {len(records) - top:,} more; --output FILE writes all of them.\n")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

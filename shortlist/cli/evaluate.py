"""``shortlist evaluate``: how good the scores of a file or a model are, and the sets that a rule makes of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from shortlist.cli.model_options import add_data_options, check_model_options
from shortlist.cli.predict import read_rule, seeded
from shortlist.cli.score_figures import ScoreFigures, measure_classes, measure_label_sets
from shortlist.cli.scores_file import Scores, add_score_options, scores_of
from shortlist.cli.set_figures import SetFigures, measure_sets, number
from shortlist.cli.true_labels import add_label_options, in_form, read_true_labels
from shortlist.extras import require
from shortlist.formatting import format_count, format_percent
from shortlist.sets import SetRule

_EXAMPLES = """\
examples:
  shortlist evaluate test.npy test_labels.txt --logits
  shortlist evaluate test.npy test_labels.npy --logits --rule rule.json --k 1 5 10
  shortlist evaluate test.csv sets.json --probabilities --id image --json > figures.json
  shortlist evaluate plants-model --data new.csv --k 1 3
  shortlist evaluate plants-model --data plants.csv --part val --rule rule.json

SCORES may be a model of `shortlist fit`; then --data has inputs and labels, and its own rule serves without --rule.
Labels are matched by their names. DATA are read as those of training were; --reader says what is different.

One class per row: top-k and average-k accuracy. Sets of labels: precision, recall, F1 and nDCG at k, micro and macro
F1 of labels of at least --threshold, mean average precision. With --rule also size, coverage or recall of its sets.
Arrays of labels say by their form which of the two they are; text and JSON are one class where each row has one label.
Macro averages run over the labels that occur; ties count by expectation.
exit code: 0, or 2 when something is wrong.
"""
_KS = (1, 3, 5)
_BAR_WIDTH = 30
_NAMES = {
    "top_k_accuracy_micro": "top-k accuracy, micro",
    "top_k_accuracy_macro": "top-k accuracy, macro",
    "average_k_accuracy_micro": "average-k accuracy, micro",
    "average_k_accuracy_macro": "average-k accuracy, macro",
    "f1": "F1",
    "ndcg": "nDCG",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "map_of_labels": "mAP of labels",
    "map_of_labels_at_least": "  at least",
    "map_of_labels_at_most": "  at most",
    "map_of_rows": "mAP of rows",
}


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="how good scores are, and the sets that a rule makes of them",
        description="Measure scores, and the sets of a rule, against true labels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_score_options(parser, required=False)
    add_label_options(parser, optional=True)
    add_data_options(parser, "--format", part="test, or all rows where there are no parts")
    parser.add_argument("--rule", metavar="FILE", help="JSON of `shortlist calibrate`: measure its sets, too")
    parser.add_argument("--k", metavar="K", type=int, nargs="+", help="how many labels (default 1 3 5)")
    parser.add_argument(
        "--threshold", metavar="P", type=float, help="for F1 of sets of labels, on probabilities (default 0.5)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--one-class", action="store_true", help="every row has one label, whatever the form of LABELS")
    form.add_argument("--multi-label", action="store_true", help="rows have sets of labels, even if of one each")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of ties in sets of the rule (default 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    seeded(options.seed)  # A mistake is told before the work.
    if check_model_options(options):
        scores, target, link, rule, ks = _of_model(options)
    else:
        scores, target, link, rule, ks = _of_file(options)
    if target.ndim == 1:
        if options.threshold is not None:
            raise ValueError("--threshold is for sets of labels, and these rows have one class each.")
        figures = measure_classes(scores, target, ks, link)
    else:
        figures = measure_label_sets(scores, target, ks, 0.5 if options.threshold is None else options.threshold)
    sets = None if rule is None else measure_sets(rule, scores, target, seed=options.seed)
    if options.json:
        content = _content(scores, target, ks, figures, sets)
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(scores, target, ks, figures, sets)
    return 0


class _Measured(NamedTuple):
    """What is measured: scores against labels, with a link between rows, a rule and numbers of labels."""

    scores: Scores
    target: Tensor
    link: str
    rule: SetRule | None
    ks: list[int]


def _of_file(options: argparse.Namespace) -> _Measured:
    if options.labels is None:
        raise ValueError(f"LABELS must be given: the true labels of the rows of `{options.scores}`.")
    scores = scores_of(options)
    ks = _checked_ks(options.k, scores.num_labels)
    rule = None if options.rule is None else read_rule(options.rule, scores)
    target = read_true_labels(options.labels, scores, key=options.labels_key, one_class=_form(options))
    return _Measured(scores, target, "softmax", rule, ks)


def _of_model(options: argparse.Namespace) -> _Measured:
    for name, given in (("LABELS", options.labels), ("--labels-key", options.labels_key), ("--id", options.id)):
        if given is not None:
            raise ValueError(f"{name} is for files of scores; `{options.scores}` is a model.")
    from shortlist.cli.model_scores import labelled_scores

    found = labelled_scores(options)
    ks = _checked_ks(options.k, found.scores.num_labels)
    file = options.rule or found.rule_file
    rule = None if file is None else read_rule(file, found.scores, model=options.scores)
    target = in_form(found.target, found.scores.num_labels, _form(options), options.data)
    return _Measured(found.scores, target, found.link, rule, ks)


def _form(options: argparse.Namespace) -> bool | None:
    return True if options.one_class else False if options.multi_label else None


def _checked_ks(given: Sequence[int] | None, num_labels: int) -> list[int]:
    if given is None:
        return [k for k in _KS if k <= num_labels]
    for k in given:
        if not 1 <= k <= num_labels:
            raise ValueError(f"--k must lie in [1, {num_labels}], as there are that many labels; got {k}.")
    return sorted(set(given))


def _content(
    scores: Scores, target: Tensor, ks: list[int], figures: ScoreFigures, sets: SetFigures | None
) -> dict[str, Any]:
    return {
        "rows": scores.num_rows,
        "labels": scores.num_labels,
        "labels_that_do_not_occur": figures.absent,
        "scores": "logits" if scores.from_logits else "probabilities",
        "task": "one class" if target.ndim == 1 else "sets of labels",
        "at_k": {
            name: {str(k): number(value) for k, value in zip(ks, values, strict=True)}
            for name, values in figures.at_k.items()
        },
        "figures": {name: number(value) for name, value in figures.single.items()},
        **({} if sets is None else {"sets": sets.to_json()}),
    }


def _print(scores: Scores, target: Tensor, ks: list[int], figures: ScoreFigures, sets: SetFigures | None) -> None:
    text = require("rich.text", extra="report").Text
    tables = require("rich.table", extra="report").Table
    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    rows, labels = format_count(scores.num_rows, "row"), format_count(scores.num_labels, "label")
    task = "one class per row" if target.ndim == 1 else "sets of labels"
    console.print(text(f"{rows}, {labels}, {task}", "bold green"))
    if figures.absent:
        console.print(text(f"{format_count(figures.absent, 'label')} without a row, in no macro average", "yellow"))
    table = tables()
    table.add_column("")
    for k in ks:
        table.add_column(f"k = {k:,}", justify="right")
    for name, values in figures.at_k.items():
        table.add_row(text(_shown(name)), *(_share(value) for value in values))
    console.print(table)
    grid = tables.grid(padding=(0, 2))
    for name, value in figures.single.items():
        grid.add_row(text(_shown(name), "bold"), _share(value))
    if sets is not None:
        for name, line in sets.lines():
            grid.add_row(text(name, "bold"), text(line))
    if grid.row_count:
        console.print(grid)
    if sets is not None:
        console.print()
        console.print(text("rows by set size", "bold"))
        console.print(_bars(sets.bins(), "█" if console.encoding.lower().startswith("utf") else "#"))


def _shown(name: str) -> str:
    """The name of a figure for people."""
    return _NAMES.get(name, name.replace("_", " "))


def _share(value: float) -> str:
    return "·" if value != value else format_percent(value)


def _bars(bars: list[tuple[str, int]], block: str) -> Any:
    table = require("rich.table", extra="report").Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    most = max(times for _, times in bars)
    for name, times in bars:
        # Whatever is there is seen: at least one block.
        width = max(1, round(_BAR_WIDTH * times / most)) if times else 0
        table.add_row(name, f"{block * width} {times:,}")
    return table

"""``shortlist evaluate``: how good scores are, and the sets that a rule makes of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.cli.predict import read_rule, seeded
from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import Scores, add_score_options, scores_of
from shortlist.cli.set_figures import SetFigures, measure_sets, number
from shortlist.cli.true_labels import add_label_options, labels_of, read_true_labels
from shortlist.extras import require
from shortlist.report.dataset import counted, percent

_EXAMPLES = """\
examples:
  shortlist evaluate test.npy test_labels.txt --logits
  shortlist evaluate test.npy test_labels.npy --logits --rule rule.json --k 1 5 10
  shortlist evaluate test.csv sets.json --probabilities --id image --json > figures.json

One class per row: top-k and average-k accuracy. Sets of labels: precision, recall, F1 and nDCG at k, micro and macro
F1 of labels of at least --threshold, mean average precision. With --rule also size, coverage or recall of its sets.
Arrays of labels say by their form which of the two they are; text and JSON are one class where each row has one label.
Macro averages run over the labels that occur; ties count by expectation.
exit code: 0, or 2 when something is wrong.
"""
_KS = (1, 3, 5)
# Up to this many scores, mean average precision is exact: it must keep all of them.
_MOST_KEPT = 1 << 26
_MOST_BINS, _FEWEST_BINS = 1000, 20
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


class _Figures(NamedTuple):
    """Values at each k by name, and single values by name."""

    at_k: dict[str, list[float]]
    single: dict[str, float]
    absent: int  # labels that do not occur


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="how good scores are, and the sets that a rule makes of them",
        description="Measure scores, and the sets of a rule, against true labels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_score_options(parser)
    add_label_options(parser)
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
    scores = scores_of(options)
    ks = _checked_ks(options.k, scores.num_labels)
    rule = None if options.rule is None else read_rule(options.rule, scores)
    form = True if options.one_class else False if options.multi_label else None
    target = read_true_labels(options.labels, scores, key=options.labels_key, one_class=form)
    if target.ndim == 1:
        if options.threshold is not None:
            raise ValueError("--threshold is for sets of labels, and these rows have one class each.")
        figures = _one_class(scores, target, ks)
    else:
        figures = _sets_of_labels(scores, target, ks, 0.5 if options.threshold is None else options.threshold)
    sets = None if rule is None else measure_sets(rule, scores, target, seed=options.seed)
    if options.json:
        content = _content(scores, target, ks, figures, sets)
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(scores, target, ks, figures, sets)
    return 0


def _checked_ks(given: Sequence[int] | None, num_labels: int) -> list[int]:
    if given is None:
        return [k for k in _KS if k <= num_labels]
    for k in given:
        if not 1 <= k <= num_labels:
            raise ValueError(f"--k must lie in [1, {num_labels}], as there are that many labels; got {k}.")
    return sorted(set(given))


def _one_class(scores: Scores, target: Tensor, ks: list[int]) -> _Figures:
    from shortlist.metrics import AverageKAccuracy, TopKAccuracy

    metrics = require("torchmetrics", extra="metrics")
    micro, macro = TopKAccuracy(ks), TopKAccuracy(ks, average="macro", num_labels=scores.num_labels)
    # The two averages of one k have one state, which the collection keeps once.
    averages = [
        metrics.MetricCollection(
            {name: AverageKAccuracy(k=k, num_rows=scores.num_rows, average=name) for name in ("micro", "macro")}
        )
        for k in ks
    ]
    with watched_blocks(scores, "measuring scores") as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            micro.update(block.scores, labels)
            macro.update(block.scores, labels)
            # One threshold for all rows compares scores between rows, as only probabilities can be.
            compared = _probabilities(block.scores, "softmax") if scores.from_logits else block.scores
            for average in averages:
                average.update(compared, labels)
    found = [average.compute() for average in averages]
    # torchmetrics gives a single value without its axis.
    at_k = {
        "top_k_accuracy_micro": micro.compute().reshape(-1).tolist(),
        "top_k_accuracy_macro": macro.compute().reshape(-1).tolist(),
        "average_k_accuracy_micro": [float(values["micro"]) for values in found],
        "average_k_accuracy_macro": [float(values["macro"]) for values in found],
    }
    return _Figures(at_k, {}, len(macro.absent))


def _sets_of_labels(scores: Scores, target: Tensor, ks: list[int], threshold: float) -> _Figures:
    from shortlist.metrics import MacroF1, MeanAveragePrecision, MicroF1, RankingMetrics

    n = scores.num_labels
    ranking, by_row, by_label = RankingMetrics(ks), MeanAveragePrecision("sample"), _by_label(scores)
    micro, macro = MicroF1(threshold=threshold), MacroF1(n, threshold=threshold)
    with watched_blocks(scores, "measuring scores") as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            for metric in (ranking, by_row, by_label):
                metric.update(block.scores, labels)
            probabilities = _probabilities(block.scores, "sigmoid") if scores.from_logits else block.scores
            micro.update(probabilities, labels)
            macro.update(probabilities, labels)
    values = {name: float(value) for name, value in ranking.compute().items()}
    at_k = {name: [values[f"{name}@{k}"] for k in ks] for name in ("precision", "recall", "f1", "ndcg")}
    single = {
        "micro_f1": float(micro.compute()),
        "macro_f1": float(macro.compute()),
        "map_of_rows": float(by_row.compute()),
        "map_of_labels": float(by_label.compute()),
    }
    if not isinstance(by_label, MeanAveragePrecision):
        low, high = by_label.bounds
        single |= {"map_of_labels_at_least": float(low), "map_of_labels_at_most": float(high)}
    return _Figures(at_k, single, len(macro.absent))


def _by_label(scores: Scores) -> Any:
    """Mean average precision over labels: exact, or with two bounds where not all scores can be kept."""
    from shortlist.metrics import BinnedMeanAveragePrecision, MeanAveragePrecision

    if scores.num_rows * scores.num_labels <= _MOST_KEPT:
        return MeanAveragePrecision()
    bins = max(_FEWEST_BINS, min(_MOST_BINS, (_MOST_KEPT // 2) // scores.num_labels))
    return BinnedMeanAveragePrecision(scores.num_labels, bins=bins, limits=None if scores.from_logits else (0.0, 1.0))


def _probabilities(logits: Tensor, link: str) -> Tensor:
    """As the rules of ``shortlist.sets`` read logits: -inf stays, and is in no set."""
    work = logits.double() if logits.dtype == torch.float64 else logits.float()
    values = work.softmax(-1) if link == "softmax" else work.sigmoid()
    return torch.where(work == -torch.inf, -torch.inf, values)


def _content(
    scores: Scores, target: Tensor, ks: list[int], figures: _Figures, sets: SetFigures | None
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


def _print(scores: Scores, target: Tensor, ks: list[int], figures: _Figures, sets: SetFigures | None) -> None:
    text = require("rich.text", extra="report").Text
    tables = require("rich.table", extra="report").Table
    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    rows, labels = counted(scores.num_rows, "row"), counted(scores.num_labels, "label")
    task = "one class per row" if target.ndim == 1 else "sets of labels"
    console.print(text(f"{rows}, {labels}, {task}", "bold green"))
    if figures.absent:
        console.print(text(f"{counted(figures.absent, 'label')} without a row, in no macro average", "yellow"))
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
    return "·" if value != value else percent(value)


def _bars(bars: list[tuple[str, int]], block: str) -> Any:
    table = require("rich.table", extra="report").Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    most = max(times for _, times in bars)
    for name, times in bars:
        # Whatever is there is seen: at least one block.
        width = max(1, round(_BAR_WIDTH * times / most)) if times else 0
        table.add_row(name, f"{block * width} {times:,}")
    return table

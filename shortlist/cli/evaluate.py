"""``shortlist evaluate``: measure the scores of a file or a model, and the sets of a rule, against true labels."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from shortlist.cli.console import bars, console, name_value_grid, print_json, table, text
from shortlist.cli.options import (
    LabelledScores,
    add_json_option,
    add_labelled_score_options,
    add_parser,
    add_row_options,
    add_rule_option,
    add_seed_option,
    add_task_options,
    given_row_options,
    open_labelled_scores,
    read_task,
    rule_file,
)
from shortlist.errors import InputError
from shortlist.formatting import format_count, format_percent

_EXAMPLES = """\
examples:
  shortlist evaluate test.npy test_labels.txt --logits
  shortlist evaluate test.npy test_labels.npy --logits --rule rule.json --k 1 5 10
  shortlist evaluate test.csv sets.json --probabilities --id image --json > metrics.json
  shortlist evaluate plants-model --data new.csv --k 1 3
  shortlist evaluate plants-model --data plants.csv --part val --rule rule.json

SCORES may be a model saved by `shortlist fit`; then --data names inputs and labels, and --rule defaults to the model's
rule. Labels are matched by name; those that the model never saw count as missed. DATA is read like the training data;
--reader overrides this.

One class per row: top-k and average-k error (accuracy in --json). Sets of labels: precision, recall, F1 and nDCG at k,
micro and macro F1 of labels with a probability of at least --threshold, mean average precision. With --rule, also the
size and the coverage or recall of its sets. The shape and dtype of label arrays decide between the two; text and JSON
count as one class if each row has one label. Macro averages run over the labels that occur; ties count by their
expected value.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_KS = (1, 3, 5)
_MOST_BINS = 10
_NAMES = {
    "top_k_accuracy_micro": "top-k error, micro",
    "top_k_accuracy_macro": "top-k error, macro",
    "average_k_accuracy_micro": "average-k error, micro",
    "average_k_accuracy_macro": "average-k error, macro",
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
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "evaluate",
        run,
        help="measure scores, and the sets of a rule, against true labels",
        about="Measure scores, and the sets of a rule, against true labels.",
        epilog=_EXAMPLES,
    )
    add_labelled_score_options(parser, part="test")
    add_rule_option(parser, "measure its sets, too: ")
    add_row_options(parser)
    parser.add_argument("--k", metavar="K", type=int, nargs="+", help="set sizes to evaluate (default 1 3 5)")
    parser.add_argument(
        "--threshold", metavar="P", type=float, help="probability threshold of F1 for sets of labels (default 0.5)"
    )
    add_task_options(parser)
    add_seed_option(parser, default=0, help="seed for breaking ties in the rule's sets (default 0)")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    from shortlist.predict import evaluate_scores, evaluate_sets, read_rule
    from shortlist.predict.row_values import check_row_values

    found = open_labelled_scores(options, one_class=read_task(options), unseen="miss")
    scores, target, ks = found.scores, found.target, _checked_ks(options.k, found.scores.num_labels)
    rule = sets = None
    if options.rule is not None or found.has_rule:
        rule = read_rule(rule_file(options), scores, absent=found.absent)
        check_row_values(rule, given_row_options(options), name=str(options.rule or options.scores))
    metrics = evaluate_scores(
        scores, target, ks, link=found.link or "softmax", threshold=options.threshold, progress=True
    )
    if rule is not None:
        sets = evaluate_sets(scores, rule, target, seed=options.seed, progress=True)
    if options.json:
        print_json(_content(found, ks, metrics, sets))
    else:
        _print(found, ks, metrics, sets)
    return 0


def _checked_ks(given: Sequence[int] | None, num_labels: int) -> list[int]:
    if given is None:
        return [k for k in _KS if k <= num_labels]
    for k in given:
        if not 1 <= k <= num_labels:
            raise InputError(f"--k must lie in [1, {num_labels}], the number of labels; got {k}.")
    return sorted(set(given))


def _content(found: LabelledScores, ks: Sequence[int], metrics: Any, sets: Any) -> dict[str, Any]:
    from shortlist.predict.evaluation import json_number

    return {
        "rows": found.scores.num_rows,
        "labels": found.scores.num_labels,
        "labels_that_do_not_occur": metrics.absent,
        "scores": "logits" if found.scores.from_logits else "probabilities",
        "task": "one class" if found.target.ndim == 1 else "sets of labels",
        "at_k": {
            name: {str(k): json_number(value) for k, value in zip(ks, values, strict=True)}
            for name, values in metrics.at_k.items()
        },
        "figures": {name: json_number(value) for name, value in metrics.single.items()},
        **({} if sets is None else {"sets": sets.to_json()}),
    }


def _print(found: LabelledScores, ks: Sequence[int], metrics: Any, sets: Any) -> None:
    screen = console(wrap=False)
    rows, labels = format_count(found.scores.num_rows, "row"), format_count(found.scores.num_labels, "label")
    task = "one class per row" if found.target.ndim == 1 else "sets of labels"
    screen.print(text(f"{rows}, {labels}, {task}", "bold green"))
    if metrics.absent:
        absent = format_count(metrics.absent, "label")
        screen.print(text(f"{absent} without a row, left out of macro averages", "yellow"))
    at_k = table()
    at_k.add_column("")
    for k in ks:
        at_k.add_column(f"k = {k:,}", justify="right")
    for name, values in metrics.at_k.items():
        # Errors, as in the tables of `fit` and `compare`.
        shown = [1 - value for value in values] if "accuracy" in name else values
        at_k.add_row(text(_shown(name)), *map(_percent, shown))
    screen.print(at_k)
    lines = [(_shown(name), _percent(value)) for name, value in metrics.single.items()]
    if sets is not None:
        lines += [(name, text(line)) for name, line in set_lines(sets)]
    if lines:
        screen.print(name_value_grid(lines))
    if sets is not None:
        screen.print()
        screen.print(text("rows by set size", "bold"))
        bins = sets.sizes.bins(_MOST_BINS)
        sizes = [(f"{low:,}" if low == high else f"{low:,}-{high:,}", times) for low, high, times in bins]
        screen.print(bars(sizes, encoding=screen.encoding))


def set_lines(metrics: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each metric of sets, in words."""
    sizes = metrics.sizes
    spread = f"median {sizes.median:g}, {sizes.minimum:,} to {sizes.maximum:,}"
    yield "set size", f"{sizes.mean:.4g} labels on average, {spread}"
    yield (
        "empty sets",
        f"{metrics.empty:,} ({format_percent(metrics.empty / sizes.members)})" if metrics.empty else "none",
    )
    if metrics.coverage is None:
        return
    inside, missing = format_percent(metrics.coverage), format_percent(1 - metrics.coverage)
    if metrics.one_class:
        yield "coverage", f"{inside} of rows have their true label inside (error {missing})"
        if metrics.macro_coverage is not None:
            yield "by class", f"{format_percent(metrics.macro_coverage)} on average over classes"
    else:
        yield "recall", f"{inside} of the true labels of a row are inside ({missing} missing)"
        if metrics.micro_f1 is not None and metrics.macro_f1 is not None:
            yield "F1", f"micro {format_percent(metrics.micro_f1)}, macro {format_percent(metrics.macro_f1)}"
    if metrics.rows_without_labels:
        yield "left out", f"{format_count(metrics.rows_without_labels, 'row')} without a true label"


def _shown(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


def _percent(value: float) -> str:
    return "·" if value != value else format_percent(value)

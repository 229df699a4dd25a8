"""``shortlist calibrate``: from held-out scores and a constraint to a set rule."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.cli.output_file import check_output, told_failure
from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import Scores, add_score_options, scores_of
from shortlist.cli.set_figures import SetFigures, measure_sets, number
from shortlist.cli.true_labels import add_label_options, labels_of, read_true_labels
from shortlist.extras import require
from shortlist.formatting import format_count, format_percent
from shortlist.sets import (
    AverageError,
    AverageK,
    ClassConditional,
    PerLabelThreshold,
    PointwiseError,
    RecallControl,
    SetRule,
    TopK,
)

_EXAMPLES = """\
examples:
  shortlist calibrate val.npy --logits --rule average-k --k 3 --output rule.json
  shortlist calibrate val.npy val_labels.txt --logits --rule average-error --alpha 0.1 --output rule.json
  shortlist calibrate val.csv labels.txt --probabilities --id image --rule class-conditional --alpha 0.05
  shortlist calibrate val.npz val.npz --key logits --labels-key y --logits --rule recall-control --alpha 0.2
  shortlist calibrate val.npy sets.json --logits --rule per-label --objective f1 --output rule.json

rules:
  top-k              exactly --k labels
  average-k          --k labels on average, more where it is hard
  average-error      the true label is missing at most at the rate --alpha, with the smallest sets
  pointwise-error    the same, with sets that collect probability: the error does not hide in hard rows
  class-conditional  the same, for each class on its own
  recall-control     of several true labels, at most the share --alpha is missing on average
  per-label          a threshold for every label, for the best --objective f1 or for --objective average-size of --k

top-k and average-k need no LABELS; with them, the error is told, too. The scores must be of rows that the model was
not trained on. per-label holds all scores in memory; the others read them in blocks.
exit code: 0, or 2 when something is wrong.
"""


class _Rule(NamedTuple):
    """What the command line knows of a rule."""

    kind: type[SetRule]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    one_class: bool | None = None  # whether it is fitted on one class or on sets; None: on no labels
    promise: str = ""


_ERROR = "for new rows like these the true label is missing with a probability of at most {alpha:g}"
RULES = {
    "top-k": _Rule(TopK, ("k",), promise="every set has {k:g} labels"),
    "average-k": _Rule(
        AverageK, ("k",), promise="for new rows like these about {k:g} labels on average; no error is promised"
    ),
    "average-error": _Rule(AverageError, ("alpha",), one_class=True, promise=_ERROR),
    "pointwise-error": _Rule(PointwiseError, ("alpha",), ("penalty", "free", "deterministic"), True, _ERROR),
    "class-conditional": _Rule(
        ClassConditional, ("alpha",), ("clusters", "min_count"), True, f"{_ERROR}, whichever its class"
    ),
    "recall-control": _Rule(
        RecallControl,
        ("alpha",),
        one_class=False,
        promise="for new rows like these at most the share {alpha:g} of the true labels is missing on average",
    ),
    "per-label": _Rule(
        PerLabelThreshold, (), ("objective", "k", "prior"), False, "none: the thresholds suit these rows"
    ),
}
_OPTIONS = ("k", "alpha", "objective", "prior", "clusters", "min_count", "penalty", "free", "deterministic")


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "calibrate",
        help="from held-out scores and a constraint to a set rule",
        description="Find the thresholds with which sets of labels have the size or the error that is asked for.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_score_options(parser)
    add_label_options(parser, optional=True)
    parser.add_argument("--rule", choices=tuple(RULES), required=True, metavar="RULE", help=", ".join(RULES))
    parser.add_argument("--k", metavar="K", type=float, help="how many labels: of every set, or on average")
    parser.add_argument("--alpha", metavar="SHARE", type=float, help="how much may be missing, between 0 and 1")
    parser.add_argument("--objective", choices=("f1", "average-size"), help="of per-label (default f1)")
    parser.add_argument("--prior", metavar="N", type=float, help="of per-label: examples that all labels are worth")
    parser.add_argument("--clusters", metavar="N", type=int, help="of class-conditional: groups of similar classes")
    parser.add_argument("--min-count", metavar="N", type=int, help="of class-conditional: examples to stand alone")
    parser.add_argument("--penalty", metavar="P", type=float, help="of pointwise-error: per label beyond --free")
    parser.add_argument("--free", metavar="N", type=int, help="of pointwise-error: labels without penalty")
    parser.add_argument(
        "--deterministic", action="store_true", default=None, help="of pointwise-error: no chance, larger sets"
    )
    parser.add_argument(
        "--link", choices=("softmax", "sigmoid"), help="how logits become probabilities (default: as the rule needs it)"
    )
    parser.add_argument("--min-size", metavar="N", type=int, default=0, help="the N best labels are in every set")
    parser.add_argument("--output", "-o", metavar="FILE", help="where to save the rule, as JSON")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Fit a rule, tell what it holds, and save it."""
    known, given = RULES[options.rule], _given(options)
    if known.one_class is not None and options.labels is None:
        raise ValueError(f"--rule {options.rule} is fitted on true labels: LABELS must be given.")
    if options.labels is None and options.labels_key is not None:
        raise ValueError(f"--labels-key names an array of LABELS, which is not given; got {options.labels_key!r}.")
    if options.output is not None:
        check_output(options.output, options.scores, options.labels, options.names)
    scores = scores_of(options)
    rule = _make(known.kind, given, options, scores)
    target = None
    if options.labels is not None:
        target = read_true_labels(options.labels, scores, key=options.labels_key, one_class=known.one_class)
    _fit(rule, scores, target)
    figures = measure_sets(rule, scores, target, seed=0)
    if options.output is not None:
        with told_failure(options.output):
            rule.save(options.output)
    promise, warnings = known.promise.format(**given), _warnings(rule)
    if options.json:
        content = _content(options, rule, promise, warnings, figures)
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(options, rule, promise, warnings, figures)
    return 0


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the rule that were given, under the names of the library's arguments."""
    known = RULES[options.rule]
    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    for name in known.needs:
        if name not in given:
            raise ValueError(f"--rule {options.rule} needs {_flag(name)}.")
    for name in given:
        if name not in (*known.needs, *known.takes):
            taken = ", ".join(map(_flag, (*known.needs, *known.takes)))
            raise ValueError(f"{_flag(name)} has no use for --rule {options.rule}, which takes {taken}.")
    if options.link is not None and options.probabilities:
        raise ValueError("--link turns logits into probabilities, and --probabilities says that these are some.")
    return given


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _make(kind: type[SetRule], given: dict[str, Any], options: argparse.Namespace, scores: Scores) -> SetRule:
    arguments: dict[str, Any] = {**given, "min_size": options.min_size}
    if options.link is not None:
        arguments["link"] = options.link
    if arguments.pop("deterministic", False):
        arguments["randomized"] = False
    if "k" in given:
        if given["k"] > scores.num_labels:
            raise ValueError(f"--k must be at most the number of labels, {scores.num_labels}; got {given['k']:g}.")
        if kind is TopK and given["k"].is_integer():
            arguments["k"] = int(given["k"])
    if kind is AverageK:
        # With their number known, the scores that are kept are enough however the rows are ordered.
        arguments["rows"] = scores.num_rows
    return kind(**arguments)


def _fit(rule: SetRule, scores: Scores, target: Tensor | None) -> None:
    with watched_blocks(scores, "calibrating") as blocks:
        for block in blocks:
            labels = labels_of(target, block) if rule.needs_labels and target is not None else None
            rule.partial_fit(block.scores, labels, from_logits=scores.from_logits)
    rule.finish()


def _warnings(rule: SetRule) -> list[str]:
    """What one should know before the rule is used."""
    found = []
    endless = [buffer for name, buffer in rule.named_buffers() if name in ("threshold", "thresholds")]
    if "alpha" in rule.options() and any(bool((buffer == -torch.inf).any()) for buffer in endless):
        which = "all labels are in every set" if endless[0].ndim == 0 else "some labels are in every set"
        found.append(f"too few rows for --alpha {rule.options()['alpha']:g}: {which}")
    if rule.evidence.get("pooled_classes"):
        classes = format_count(rule.evidence["pooled_classes"], "class").replace("classs", "classes")
        found.append(f"{classes} with too few rows share one threshold and have no promise of their own")
    if rule.min_size:
        found.append(f"--min-size {rule.min_size} adds labels to sets that have fewer")
    return found


def _content(
    options: argparse.Namespace, rule: SetRule, promise: str, warnings: list[str], figures: SetFigures
) -> dict[str, Any]:
    evidence = {name: number(value) if isinstance(value, float) else value for name, value in rule.evidence.items()}
    return {
        "rule": options.rule,
        "options": {**rule.options(), "link": rule.link if rule.from_logits else None, "min_size": rule.min_size},
        "scores": "logits" if rule.from_logits else "probabilities",
        "evidence": evidence,
        "promise": promise,
        "warnings": warnings,
        "sets": figures.to_json(),
        "output": options.output,
    }


def _print(options: argparse.Namespace, rule: SetRule, promise: str, warnings: list[str], figures: SetFigures) -> None:
    evidence = rule.evidence
    text = require("rich.text", extra="report").Text
    console = require("rich.console", extra="report").Console(highlight=False)
    rows, labels = format_count(evidence["rows"], "row"), format_count(evidence["labels"], "label")
    console.print(text(f"{options.rule} on {rows} of {labels}", "bold green"))
    table = require("rich.table", extra="report").Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    lines = [("aim", _aim(rule)), *figures.lines(), ("promise", promise)]
    for name, line in lines:
        table.add_row(text(name, "bold"), text(line))
    for line in warnings:
        table.add_row(text("note", "bold"), text(line, "yellow"))
    console.print(table)
    where = f"Rule: {options.output}" if options.output else "The rule is not saved; --output FILE does that."
    sys.stdout.write(f"{where}\n")


def _aim(rule: SetRule) -> str:
    """What was asked for and what came of it, in labels or in shares."""
    evidence = rule.evidence
    constraint = evidence["constraint"]
    wanted, achieved = (
        f"{evidence[name]:.4g}" if "size" in constraint else format_percent(evidence[name])
        for name in ("wanted", "achieved")
    )
    if isinstance(rule, PerLabelThreshold) and rule.objective == "f1":
        return f"{constraint}: {achieved} on these rows"
    where = "in the worst class of these rows" if isinstance(rule, ClassConditional) else "on these rows"
    return f"{constraint}: {wanted} wanted, {achieved} {where}"

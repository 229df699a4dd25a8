"""``shortlist update``: let an online rule follow rows whose true labels became known."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shortlist.cli.console import print_json
from shortlist.cli.options import (
    add_json_option,
    add_labelled_score_options,
    add_parser,
    add_rule_option,
    open_labelled_scores,
    rule_file,
)
from shortlist.errors import InputError
from shortlist.files import check_output, writing
from shortlist.formatting import format_count, format_percent

_EXAMPLES = """\
examples:
  shortlist update monday.npy monday.txt --logits --rule rule.json
  shortlist update monday.csv --probabilities --id image --rule size.json
  shortlist update plants-model --data monday.csv --rule adaptive-conformal

RULE is one of adaptive-conformal, online-conformal and online-average-k from `shortlist calibrate`; the last needs no
LABELS. Rows are followed in the order of the file, which must be that of their arrival, each once. The file of the rule
is replaced, so that `shortlist predict` answers with the new threshold; with --output the new rule is written there.
exit code: 0, 2 on errors, or 130 if interrupted; then the rule is as it was.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "update",
        run,
        help="let an online rule follow new rows with labels",
        about="Move the threshold of an online rule by rows whose true labels became known.",
        epilog=_EXAMPLES,
    )
    add_labelled_score_options(parser, part="test")
    add_rule_option(parser)
    parser.add_argument("--output", "-o", metavar="FILE", help="where to save the rule instead")
    add_json_option(parser, "the figures")


def run(options: argparse.Namespace) -> int:
    """Follow the rows, save the rule, print how it fared."""
    from shortlist.predict import update_rule
    from shortlist.predict.calibration import OnlineRule
    from shortlist.predict.prediction import check_rule
    from shortlist.sets import load_rule

    if options.output is not None:
        check_output(options.output, options.scores, options.labels, options.names, options.data, options.allowed)
    file = rule_file(options)
    rule = load_rule(file)
    if not isinstance(rule, OnlineRule):
        kind = type(rule).__name__
        raise InputError(f"`{file}` holds {kind}, which follows no stream; see `shortlist update --help`.")
    new = open_labelled_scores(options, one_class=True, unseen="refuse", required=rule.needs_labels)
    check_rule(rule, new.scores, name=str(file))
    found = update_rule(new.scores, rule, new.target, progress=True)
    output = str(options.output or file)
    with writing(output):
        rule.save(output)
    if options.json:
        print_json({**found, "threshold": float(rule.threshold), "output": output})
        return 0
    rows = format_count(int(found["rows"]), "row")
    if "error" in found:
        here, all_rows = (format_percent(found[name]) for name in ("error", "error_of_stream"))
        text = f"{rows}: the true label was missing in {here} of them, and in {all_rows} of the stream so far."
    else:
        here, all_rows = found["average_size"], found["average_size_of_stream"]
        text = f"{rows}: {here:.4g} labels on average, and {all_rows:.4g} along the stream so far."
    sys.stdout.write(f"{text}\nRule: {output}\n")
    return 0

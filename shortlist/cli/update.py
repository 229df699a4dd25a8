"""``shortlist update``: let an online rule follow rows whose true labels became known."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
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
  shortlist update monday.npy monday.txt --logits --rule rule.json --alarm alarm.json
  shortlist update monday.csv --probabilities --id image --rule size.json
  shortlist update plants-model --data monday.csv --rule adaptive-conformal

RULE is one of adaptive-conformal, online-conformal and online-average-k from `shortlist calibrate`; the last needs no
LABELS. Rows are followed in the order of the file, which must be that of their arrival, each once. The file of the rule
is replaced, so that `shortlist predict` answers with the new threshold; with --output the new rule is written there.
--alarm, for adaptive-conformal, keeps a second file, which watches for rows that are no longer like those of the
calibration: as long as they are, it is ever raised with probability at most 0.01.
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
    parser.add_argument(
        "--alarm", metavar="FILE", help="for adaptive-conformal: the alarm, which is begun if necessary"
    )
    add_json_option(parser, "the figures")


def run(options: argparse.Namespace) -> int:
    """Follow the rows, save the rule, print how it fared."""
    from shortlist.predict import update_rule
    from shortlist.predict.calibration import OnlineRule
    from shortlist.predict.prediction import check_rule
    from shortlist.sets import load_rule

    for path in filter(None, (options.output, options.alarm)):
        check_output(path, options.scores, options.labels, options.names, options.data, options.allowed)
    file = rule_file(options)
    rule = load_rule(file)
    if not isinstance(rule, OnlineRule):
        kind = type(rule).__name__
        raise InputError(f"`{file}` holds {kind}, which follows no stream; see `shortlist update --help`.")
    new = open_labelled_scores(options, one_class=True, unseen="refuse", required=rule.needs_labels)
    check_rule(rule, new.scores, name=str(file))
    alarm = _alarm(options, rule)
    found: dict[str, Any] = update_rule(new.scores, rule, new.target, alarm=alarm, progress=True)
    output = str(options.output or file)
    with writing(output):
        rule.save(output)
    if alarm is not None:
        with writing(options.alarm):
            alarm.save(options.alarm)
        found |= {"alarm_raised_at": alarm.raised_at, "alarm": options.alarm}
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
    if alarm is not None:
        raised = f"raised at row {alarm.raised_at} of the stream, from 0" if alarm.raised else "not raised"
        text += f"\nThe alarm is {raised}: {options.alarm}"
    sys.stdout.write(f"{text}\nRule: {output}\n")
    return 0


def _alarm(options: argparse.Namespace, rule: Any) -> Any:
    """The alarm of the file, or a new one; None if there is to be none."""
    from shortlist.sets import AdaptiveConformal, ShiftAlarm

    if options.alarm is None:
        return None
    if not isinstance(rule, AdaptiveConformal):
        raise InputError(f"--alarm is for adaptive-conformal, which keeps its calibration; got {type(rule).__name__}.")
    if Path(options.alarm).exists():
        return ShiftAlarm.load(options.alarm)
    try:
        return ShiftAlarm().fit(rule.calibration)
    except ValueError as error:  # a true label of the calibration was absent
        raise InputError(str(error)) from error

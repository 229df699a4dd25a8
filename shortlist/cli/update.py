"""``shortlist update``: let an online rule follow rows whose true labels became known."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.console import print_json
from shortlist.cli.options import (
    add_data_options,
    add_json_option,
    add_label_options,
    add_parser,
    add_restrictions,
    add_score_options,
    is_model,
    open_labelled_scores,
    open_model_scores,
    open_score_file,
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
    add_score_options(parser, kind_required=False)
    add_label_options(parser)
    add_data_options(parser, part="all rows")
    add_restrictions(parser, labels=True)
    parser.add_argument(
        "--rule", metavar="RULE", help="file from `shortlist calibrate`, or the name of a rule in the model's folder"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="where to save the rule instead")
    parser.add_argument(
        "--alarm", metavar="FILE", help="for adaptive-conformal: the alarm, which is begun if necessary"
    )
    add_json_option(parser, "the figures")


def run(options: argparse.Namespace) -> int:
    """Follow the rows, save the rule, print how it fared."""
    from shortlist.predict import read_rule, update_rule
    from shortlist.predict.calibration import OnlineRule

    for path in filter(None, (options.output, options.alarm)):
        check_output(path, options.scores, options.labels, options.names, options.data, options.allowed)
    file = _rule_file(options)
    scores, target = _source(options)
    rule = read_rule(file, scores)
    if not isinstance(rule, OnlineRule):
        kind = type(rule).__name__
        raise InputError(f"`{file}` holds {kind}, which follows no stream; see `shortlist update --help`.")
    if rule.needs_labels and target is None:
        raise InputError(f"LABELS must be given: the true labels of the rows of `{options.scores}`.")
    alarm = _alarm(options, rule)
    found: dict[str, Any] = update_rule(scores, rule, target, alarm=alarm, progress=True)
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


def _rule_file(options: argparse.Namespace) -> Any:
    if is_model(options):
        from shortlist.predict import find_rule

        return find_rule(options.scores, options.rule)
    if options.rule is None:
        raise InputError("--rule must name the JSON of `shortlist calibrate`.")
    return options.rule


def _source(options: argparse.Namespace) -> tuple[Any, Any]:
    """Scores, and their classes if there are any."""
    if is_model(options):
        try:
            scores, target, _ = open_labelled_scores(options, one_class=True, usual_part="test", unseen="refuse")
        except InputError:
            return open_model_scores(options, labelled=False).scores, None
        return scores, target
    if options.labels is None:
        return open_score_file(options), None
    scores, target, _ = open_labelled_scores(options, one_class=True, usual_part="test", unseen="refuse")
    return scores, target

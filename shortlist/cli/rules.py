"""``shortlist rules``: what every set rule guarantees; with scores and a goal, which one to take."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from shortlist.cli.calibrate import flag
from shortlist.cli.console import aligned, print_json
from shortlist.cli.options import (
    add_json_option,
    add_labelled_score_options,
    add_parser,
    add_seed_option,
    add_task_options,
    open_labelled_scores,
    read_task,
)
from shortlist.errors import InputError
from shortlist.files import check_output, writing

_EXAMPLES = """\
examples:
  shortlist rules
  shortlist rules val.npy val_labels.npy --logits --k 3
  shortlist rules val.csv labels.txt --probabilities --id image --alpha 0.1 --output rule.json
  shortlist rules plants-model --data plants.csv --alpha 0.1 --per-class
  shortlist rules val.npy val_labels.npy --logits --alpha 0.1 --groups hospitals.txt

Without SCORES: what every rule guarantees for new rows, what `shortlist calibrate` needs to be told (options in
brackets may be left out), and the true labels that it is fitted on: one class per row, sets, or none.

With SCORES of rows that the model was not trained on, the rules that keep --k labels, or that miss at most --alpha, are
fitted on a random half of the rows and measured on the other half. The one that misses least, or has the smallest
sets, is recommended; a simpler one if the difference may be luck. Scores are read in blocks, twice for each rule.
exit code: 0, 2 on errors, or 130 if interrupted.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "List all set rules and what they guarantee; or recommend one for scores and a goal."
    parser = add_parser(
        commands,
        "rules",
        run,
        help="what every set rule guarantees, and which one to take",
        about=about,
        epilog=_EXAMPLES,
    )
    add_labelled_score_options(parser, part="val", scores_required=False)
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--k", metavar="K", type=float, help="goal: K labels per row")
    goal.add_argument("--alpha", metavar="FRACTION", type=float, help="goal: at most this fraction of labels missed")
    parser.add_argument("--per-class", action="store_true", help="with --alpha: in every class, not only on average")
    parser.add_argument(
        "--groups",
        metavar="FILE",
        help="the group of each row, such as its source, one per line, or TABLE:COLUMN: name the worst one",
    )
    add_task_options(parser)
    parser.add_argument("--output", "-o", metavar="FILE", help="where to save the recommended rule, as JSON")
    add_seed_option(parser, default=0, help="seed of the halves (default 0)")
    add_json_option(parser, "the list or the figures")


def run(options: argparse.Namespace) -> int:
    """Print the list, or the figures of the rules that promise the goal."""
    if options.scores is None:
        if any(getattr(options, name) is not None for name in ("k", "alpha", "output", "data", "groups")):
            raise InputError("SCORES must be given: a file of scores or a model, for which a rule is recommended.")
        return _list(options)
    if (options.k is None) == (options.alpha is None):
        raise InputError("the goal must be given: --k labels per row, or --alpha of the true labels missed.")
    if options.output is not None:
        check_output(options.output, options.scores, options.labels, options.names, options.data, options.groups)
    try:
        choice, groups = _choose(options)
    except ValueError as error:
        raise InputError(str(error)) from error
    if options.output is not None:
        with writing(options.output):
            choice.rule.save(options.output)
    if options.json:
        figures = [{**asdict(each), "rule": each.rule.options()} for each in choice.figures]
        found = {"best": choice.best, "reason": choice.reason, "rules": figures, "groups": groups}
        print_json({**found, "output": options.output})
        return 0
    worst = next(each.worst_group for each in choice.figures if each.name == choice.best)
    lines = [str(choice)]
    lines += [] if worst is None else [f"Its worst group is {groups[worst.index]!r}, with {worst.rows:,} rows."]
    lines += [] if options.output is None else [f"Rule: {options.output}"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _choose(options: argparse.Namespace) -> tuple[Any, list[str]]:
    """Return the choice and the names of the groups."""
    from shortlist.predict.row_values import read_row_values
    from shortlist.sets import MissGoal, SizeGoal
    from shortlist.sets.choice import choose_rule_in_blocks

    goal = SizeGoal(options.k) if options.alpha is None else MissGoal(options.alpha, options.per_class)
    found = open_labelled_scores(options, one_class=read_task(options))
    scores = found.scores
    named = None if options.groups is None else read_row_values(scores, "groups", options.groups)
    names = list(dict.fromkeys(named or ()))
    groups = None if named is None else list(map({name: at for at, name in enumerate(names)}.__getitem__, named))
    choice = choose_rule_in_blocks(
        lambda: (block.scores for block in scores.blocks()),
        found.target,
        shape=(scores.num_rows, scores.num_labels),
        goal=goal,
        from_logits=scores.from_logits,
        one_class=found.target.ndim == 1,
        link=found.link,
        groups=groups,
        seed=options.seed,
    )
    return choice, names


def _list(options: argparse.Namespace) -> int:
    from shortlist.predict import RULES

    found = [{"name": name, **kind.describe()} for name, kind in RULES.items()]
    if options.json:
        print_json(found)
        return 0
    rows = [("rule", "needs", "labels", "guarantee")]
    for rule in found:
        flags = [*map(flag, rule["required"]), *(f"[{flag(name)}]" for name in rule["optional"])]
        rows.append((rule["name"], " ".join(flags), rule["labels"], rule["guarantee"]))
    sys.stdout.write("\n".join(aligned(rows)) + "\n")
    return 0

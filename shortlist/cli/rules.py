"""``shortlist rules``: what every set rule guarantees and what it needs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shortlist.cli.calibrate import FLAGS
from shortlist.cli.console import aligned, print_json
from shortlist.cli.options import add_json_option, add_parser

_EXAMPLES = """\
examples:
  shortlist rules
  shortlist calibrate plants-model --data plants.csv --rule average-error --alpha 0.1

needs   what `shortlist calibrate` has to be told; options in brackets may be left out
labels  the true labels that it is fitted on: one class per row, sets, or none
exit code: 0.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "List all set rules: what they guarantee for new rows, and what they need."
    parser = add_parser(
        commands, "rules", run, help="what every set rule guarantees and needs", about=about, epilog=_EXAMPLES
    )
    add_json_option(parser, "the list")


def run(options: argparse.Namespace) -> int:
    """Print a line for each rule."""
    from shortlist.predict import RULES

    found = [{"name": name, **kind.describe()} for name, kind in RULES.items()]
    if options.json:
        print_json(found)
        return 0
    rows = [("rule", "needs", "labels", "guarantee")]
    for rule in found:
        flags = [FLAGS.get(name, f"--{name}") for name in rule["required"]]
        flags += [f"[{FLAGS.get(name, f'--{name}')}]" for name in rule["optional"]]
        rows.append((rule["name"], " ".join(flags), rule["labels"], rule["guarantee"]))
    sys.stdout.write("\n".join(aligned(rows)) + "\n")
    return 0

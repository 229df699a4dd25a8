"""``shortlist losses``: what there is to choose from, one line each."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shortlist.cli.console import aligned, print_json
from shortlist.cli.options import add_json_option, add_parser

_EXAMPLES = """\
examples:
  shortlist losses
  shortlist losses --options
  shortlist losses --json | jq -r '.[] | select(.takes == "sets") | .name'

cost    time of the loss as a multiple of torch's cross-entropy, for 256 rows of 1000 labels; a network costs more.
        `shortlist bench --what losses` measures it on this machine and at other sizes
takes   one class per row, or sets of labels; losses for sets also accept one class per row
link    how logits become scores that are comparable across rows
head    the head that `--head auto` chooses
blocks  whether logits may be computed in blocks of labels (LinearLogits) or sharded over processes (DTensor)
exit code: 0.
"""

_COLUMNS = ("loss", "takes", "link", "head", "blocks", "options")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "List all losses: for what data, for or against what, and what they cost; or their options."
    parser = add_parser(
        commands, "losses", run, help="what every loss is for and what it costs", about=about, epilog=_EXAMPLES
    )
    parser.add_argument("--options", action="store_true", help="list options, links and heads instead of purposes")
    add_json_option(parser, "the list")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from shortlist.factory import LOSSES

    losses = [loss.describe() for loss in LOSSES.values()]
    if options.json:
        print_json(losses)
    elif options.options:
        sys.stdout.write(_table(losses))
    else:
        rows = [(loss["name"], loss["takes"], f"{loss['cost']:g}×", loss["purpose"]) for loss in losses]
        sys.stdout.write("\n".join(aligned([("loss", "takes", "cost", "purpose"), *rows])) + "\n")
    return 0


def _table(losses: list[dict[str, Any]]) -> str:
    lines = aligned([_COLUMNS, *(_row(loss) for loss in losses)])
    summaries = [f"    {loss['summary']}" for loss in losses]
    body = [line for pair in zip(lines[1:], summaries, strict=True) for line in pair]
    notes = "Options without a value are derived from the data. All losses take weight=None and reduction='mean'."
    return "\n".join([lines[0], *body, "", notes]) + "\n"


def _row(loss: dict[str, Any]) -> tuple[str, ...]:
    head = loss["head"] if loss["num_heads"] == 1 else f"{loss['num_heads']} × {loss['head']}"
    kinds = {"LinearLogits": loss["takes_linear_logits"], "DTensor": loss["takes_dtensor"]}
    blocks = ", ".join(kind for kind, taken in kinds.items() if taken) or "-"
    options = [name if name in loss["from_data"] else f"{name}={value!r}" for name, value in loss["options"].items()]
    return loss["name"], loss["takes"], loss["link"], head, blocks, ", ".join(options) or "-"

"""``shortlist losses``: list every loss, the targets it accepts, and its options."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shortlist.cli.console import print_json
from shortlist.cli.options import add_json_option, add_parser

_EXAMPLES = """\
examples:
  shortlist losses
  shortlist losses --json | jq -r '.[] | select(.takes == "sets") | .name'

takes   one class per row, or sets of labels; losses for sets also accept one class per row
link    how logits become scores that are comparable across rows
head    the head that `--head auto` chooses
blocks  whether logits may be computed in blocks of labels (LinearLogits) or sharded over processes (DTensor)
exit code: 0.
"""

_COLUMNS = ("loss", "takes", "link", "head", "blocks", "options")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "List all losses: the targets they accept, their link and head, and their options with defaults."
    parser = add_parser(
        commands, "losses", run, help="list all losses and their options", about=about, epilog=_EXAMPLES
    )
    add_json_option(parser, "the list")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from shortlist.recipes import LOSSES

    losses = [loss.describe() for loss in LOSSES.values()]
    if options.json:
        print_json(losses)
    else:
        sys.stdout.write(_table(losses))
    return 0


def _table(losses: list[dict[str, Any]]) -> str:
    rows = [_COLUMNS, *(_row(loss) for loss in losses)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)] + [0]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
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

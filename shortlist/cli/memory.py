"""``shortlist memory``: what an output layer and its loss will need in training, before anything is allocated."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist memory --labels 1000000 --features 256 --rows 256 --loss lml_nll
  shortlist memory --labels 10000000 --features 512 --loss bce --processes 8 --dtype bfloat16 --optimizer sgd
  shortlist memory --labels 1000000 --features 256 --loss two_way --chunked --json > memory.json

Bytes of one process: the layer, its gradient, the optimiser's states and the peak of the loss. A plain layer holds all
logits of a batch; a chunked one (shortlist.nn.ChunkedHead) computes them a block of labels at a time. The rest of the
model, Python and torch come on top. It estimates, and allocates nothing.
exit code: 0, or 2 when something is wrong.
"""


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "memory",
        help="what an output layer and its loss will need",
        description="Estimate the memory of a linear output layer and its loss in training.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--labels", metavar="N", type=int, required=True, help="labels")
    parser.add_argument("--features", metavar="N", type=int, required=True, help="features that the layer takes")
    parser.add_argument("--rows", metavar="N", type=int, default=256, help="rows of a batch (default 256)")
    parser.add_argument(
        "--loss",
        metavar="LOSS",
        required=True,
        help="bce, lml_nll, two_way, ...: one that takes logits in blocks; see `shortlist losses`",
    )
    parser.add_argument("--chunked", action="store_true", help="only the chunked layer (default: plain beside it)")
    parser.add_argument("--label-block", metavar="N", type=int, help="labels that the chunked layer computes at a time")
    parser.add_argument(
        "--processes", metavar="N", type=int, default=1, help="processes that share the labels (default 1)"
    )
    parser.add_argument(
        "--dtype", metavar="DTYPE", default="float32", help="float32 (default), float64, bfloat16 or float16"
    )
    parser.add_argument(
        "--optimizer", metavar="NAME", default="adam", help="adam (default), adamw, adagrad, momentum or sgd"
    )
    parser.add_argument("--json", action="store_true", help="print the bytes as JSON and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Estimate and print."""
    from shortlist.memory import MemoryEstimate, estimate_memory

    setting = {
        name: getattr(options, name)
        for name in ("rows", "labels", "features", "loss", "processes", "dtype", "optimizer")
    }
    if options.label_block is not None:
        setting["label_block"] = options.label_block
    found: dict[str, MemoryEstimate] = {}
    try:
        for head in ("chunked",) if options.chunked else ("plain", "chunked"):
            found[head] = estimate_memory(**setting, head=head)
    except ValueError as error:
        # The names of the options are those of the function.
        name = str(error).split("`")[1]
        raise ValueError(str(error).replace(f"`{name}`", f"--{name.replace('_', '-')}", 1)) from None
    if options.json:
        parts = {head: {**vars(estimate), "peak": estimate.total} for head, estimate in found.items()}
        sys.stdout.write(json.dumps({**setting, "bytes": parts}, indent=1) + "\n")
    else:
        _print(setting, found)
    return 0


def _print(setting: dict[str, Any], found: dict[str, Any]) -> None:
    from shortlist.cli.bench_turns import free_memory
    from shortlist.formatting import format_bytes

    text = require("rich.text", extra="report").Text
    console = require("rich.console", extra="report").Console(highlight=False)
    processes = "1 process" if setting["processes"] == 1 else f"{setting['processes']:,} processes"
    console.print(
        text(
            f"{setting['rows']:,} rows × {setting['labels']:,} labels, {setting['features']:,} features, "
            f"{setting['loss']}, {setting['optimizer']}, {setting['dtype']}, {processes}",
            "bold green",
        )
    )
    table = require("rich.table", extra="report").Table(title="memory of each process", title_justify="left")
    table.add_column("")
    for head in found:
        table.add_column(head, justify="right")
    parts = {head: estimate.parts() for head, estimate in found.items()}
    for name in next(iter(parts.values())):
        if name == "peak":
            table.add_section()
        table.add_row(name, *(format_bytes(sizes[name]) for sizes in parts.values()))
    console.print(table)
    free = free_memory()
    if free is not None:
        console.print(f"free on this machine: {format_bytes(free)}")

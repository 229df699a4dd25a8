"""``shortlist memory``: estimate the training memory of an output layer and its loss."""

from __future__ import annotations

import argparse
from typing import Any

from shortlist.cli.console import console, print_json, table, text
from shortlist.cli.options import add_json_option, add_parser, whole_number
from shortlist.errors import InputError
from shortlist.formatting import format_bytes, format_count

_EXAMPLES = """\
examples:
  shortlist memory --labels 1000000 --features 256 --rows 256 --loss lml_nll
  shortlist memory --labels 10000000 --features 512 --loss bce --processes 8 --dtype bfloat16 --optimizer sgd
  shortlist memory --labels 1000000 --features 256 --loss two_way --chunked --json > memory.json

Bytes per process: the layer, its gradient, the optimizer's states and the peak of the loss. A plain layer holds all
logits of a batch; a chunked one (shortlist.nn.ChunkedHead) computes them one block of labels at a time. The rest of the
model, Python and torch need additional memory. This is an estimate; nothing is allocated.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_DTYPES = ("float32", "float64", "bfloat16", "float16")
_OPTIMIZERS = ("adam", "adamw", "adagrad", "momentum", "sgd")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "memory",
        run,
        help="estimate the memory of an output layer and its loss",
        about="Estimate the memory of a linear output layer and its loss in training.",
        epilog=_EXAMPLES,
    )
    positive = whole_number(at_least=1)
    parser.add_argument("--labels", metavar="N", type=positive, required=True, help="labels")
    parser.add_argument("--features", metavar="N", type=positive, required=True, help="input features of the layer")
    parser.add_argument("--rows", metavar="N", type=positive, default=256, help="rows per batch (default 256)")
    parser.add_argument(
        "--loss",
        metavar="LOSS",
        required=True,
        help="bce, lml_nll, two_way, ...: a loss that accepts logits in blocks; see `shortlist losses`",
    )
    parser.add_argument("--chunked", action="store_true", help="show only the chunked layer (default: both)")
    parser.add_argument(
        "--label-block", metavar="N", type=positive, help="labels that the chunked layer computes at a time"
    )
    parser.add_argument(
        "--processes", metavar="N", type=positive, default=1, help="processes that share the labels (default 1)"
    )
    parser.add_argument("--dtype", choices=_DTYPES, default="float32", help="default float32")
    parser.add_argument("--optimizer", choices=_OPTIMIZERS, default="adam", help="default adam")
    add_json_option(parser, "the bytes")


def run(options: argparse.Namespace) -> int:
    """Estimate and print."""
    from shortlist.factory import current_name
    from shortlist.memory import LOSSES, estimate_memory

    loss = current_name(options.loss)
    if loss not in LOSSES:
        raise InputError(f"--loss must be one of {', '.join(LOSSES)}; got {options.loss!r}.")
    setting = {name: getattr(options, name) for name in ("rows", "labels", "features")}
    setting |= {"loss": loss, **{name: getattr(options, name) for name in ("processes", "dtype", "optimizer")}}
    if options.label_block is not None:
        setting["label_block"] = options.label_block
    heads = ("chunked",) if options.chunked else ("plain", "chunked")
    found = {head: estimate_memory(**setting, head=head) for head in heads}
    if options.json:
        parts = {head: {**vars(estimate), "peak": estimate.total} for head, estimate in found.items()}
        print_json({**setting, "bytes": parts})
    else:
        _print(setting, found)
    return 0


def _print(setting: dict[str, Any], found: dict[str, Any]) -> None:
    from shortlist.timing import free_memory

    screen = console()
    processes = format_count(setting["processes"], "process", "processes")
    size = f"{setting['rows']:,} rows × {setting['labels']:,} labels, {setting['features']:,} features"
    rest = f"{setting['loss']}, {setting['optimizer']}, {setting['dtype']}, {processes}"
    screen.print(text(f"{size}, {rest}", "bold green"))
    sizes = table(title="memory of each process", title_justify="left")
    sizes.add_column("")
    for head in found:
        sizes.add_column(head, justify="right")
    parts = {head: estimate.parts() for head, estimate in found.items()}
    for name in next(iter(parts.values())):
        if name == "peak":
            sizes.add_section()
        sizes.add_row(name, *(format_bytes(each[name]) for each in parts.values()))
    screen.print(sizes)
    free = free_memory()
    if free is not None:
        screen.print(f"free on this machine: {format_bytes(free)}")

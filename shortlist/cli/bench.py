"""``shortlist bench``: time projections, losses and set rules at a given size on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from shortlist.cli.console import console, print_json, table, text
from shortlist.cli.options import add_json_option, add_parser, whole_number
from shortlist.errors import InputError
from shortlist.formatting import format_bytes, format_count
from shortlist.progress import progress_bar

_EXAMPLES = """\
examples:
  shortlist bench
  shortlist bench --labels 1000 --rows 128 --k 3 --what losses
  shortlist bench --labels 100000 --rows 32 --threads 4 --json > speed.json
  shortlist bench --device cuda; SHORTLIST_KERNELS=off shortlist bench --device cuda

Times are medians of steps that take turns in one process, on random logits in which the true labels stand out. Ratios
are relative to softmax for projections, to cross-entropy for single-class losses, to binary cross-entropy for losses of
sets, and to one topk pass for set rules. Rules are fitted beforehand; only their predictions are timed.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_WHAT = ("projections", "losses", "rules")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "bench",
        run,
        help="time projections, losses and set rules at your size",
        about="Time projections, losses and set rules side by side at a given size.",
        epilog=_EXAMPLES,
    )
    positive = whole_number(at_least=1)
    parser.add_argument("--rows", metavar="N", type=positive, default=256, help="rows per batch (default 256)")
    parser.add_argument(
        "--labels", metavar="N", type=whole_number(at_least=2), default=10_000, help="labels (default 10000)"
    )
    parser.add_argument("--k", metavar="K", type=float, default=5, help="size of a prediction set (default 5)")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="such as cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument("--what", nargs="+", choices=_WHAT, default=_WHAT, metavar="WHAT", help=", ".join(_WHAT))
    parser.add_argument("--threads", metavar="N", type=positive, help="torch threads (default: unchanged)")
    parser.add_argument(
        "--repeat", metavar="N", type=positive, default=10, help="repetitions of each step (default 10)"
    )
    add_json_option(parser, "the times")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    import torch

    from shortlist.benchmark import run_benchmark

    what = [name for name in _WHAT if name in options.what]
    device = _checked_device(options.device)
    if device.type == "cpu":
        _check_size(options, what)
    with progress_bar("timing", unit="turns") as bar:
        found, used = run_benchmark(
            rows=options.rows,
            labels=options.labels,
            k=options.k,
            device=device,
            what=what,
            num_threads=options.threads,
            turns=options.repeat,
            progress=lambda name, total: bar.update(bar.completed + 1, total, f"timing {name}"),
        )
    results = {group.title: _times(group, timings) for group, timings in found}
    size = {"rows": options.rows, "labels": options.labels, "k": options.k, "threads": used, "repeat": options.repeat}
    size |= {"device": str(device)}
    if options.json:
        print_json({**size, "torch": torch.__version__, "results": results})
    else:
        _print(size, [group for group, _ in found], results)
    return 0


def _checked_device(name: str) -> Any:
    """The device of this name, if it is here."""
    import torch

    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # unknown, not built into torch, not there
        raise InputError(f"--device must be a device of this machine; torch finds no {name!r}.") from error
    return device


def _check_size(options: argparse.Namespace, what: list[str]) -> None:
    """Reject sizes that are impossible or do not fit into memory, before allocating anything."""
    from shortlist.benchmark import Batch
    from shortlist.timing import free_memory

    if not 0 < options.k <= options.labels:
        raise InputError(f"--k must lie in (0, {options.labels}], the number of labels; got {options.k:g}.")
    need, free = Batch.bytes_needed(options.rows, options.labels, options.k, what), free_memory()
    if free is not None and need > free:
        raise InputError(
            f"--rows {options.rows} and --labels {options.labels} need about {format_bytes(need)} of memory, and "
            f"{format_bytes(free)} are free."
        )


def _times(group: Any, timings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    base = timings[group.baseline].seconds
    found: dict[str, dict[str, Any]] = {}
    for name, timing in timings.items():
        if timing.seconds is None:
            found[name] = {"milliseconds": None, "ratio": None, "reason": timing.reason}
        else:
            ratio = None if base is None else timing.seconds / base
            found[name] = {"milliseconds": 1000 * timing.seconds, "ratio": ratio}
    return found


def _print(size: dict[str, Any], groups: list[Any], results: dict[str, dict[str, dict[str, Any]]]) -> None:
    screen, threads = console(), format_count(size["threads"], "thread")
    where = threads if size["device"] == "cpu" else size["device"]
    head = f"{size['rows']:,} rows × {size['labels']:,} labels, k = {size['k']:g}, float32, {where}"
    screen.print(text(head, "bold green"))
    for group in groups:
        times = table(title=group.title, title_justify="left")
        times.add_column("")
        times.add_column("ms", justify="right")
        times.add_column(f"÷ {group.baseline}", justify="right")
        for name, found in results[group.title].items():
            if found["milliseconds"] is None:
                times.add_row(name, text(found["reason"], "yellow"), "·")
            else:
                ratio = "·" if found["ratio"] is None else f"{found['ratio']:.2f}"
                times.add_row(name, f"{found['milliseconds']:.3g}", ratio)
        screen.print(times)

"""``shortlist bench``: what projections, losses and set rules cost at the user's own size on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shortlist.extras import require

if TYPE_CHECKING:
    from shortlist.cli.bench_steps import Batch, Group
    from shortlist.cli.bench_turns import Timing

_EXAMPLES = """\
examples:
  shortlist bench
  shortlist bench --labels 1000 --rows 128 --k 3 --what losses
  shortlist bench --labels 100000 --rows 32 --threads 4 --json > speed.json

Times are medians of steps that take turns in one process, on random logits with true labels that stand out. Ratios are
to softmax for projections, to cross-entropy for losses of one class, to binary cross-entropy for losses of sets, and to
one pass of topk for set rules. Rules are fitted before; only their answers are timed. It measures, and asserts nothing.
exit code: 0, or 2 when something is wrong.
"""
_WHAT = ("projections", "losses", "rules")


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="what projections, losses and rules cost at your size",
        description="Measure projections, losses and set rules side by side, at a size of your own.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", metavar="N", type=int, default=256, help="rows of a batch (default 256)")
    parser.add_argument("--labels", metavar="N", type=int, default=10_000, help="labels (default 10000)")
    parser.add_argument("--k", metavar="K", type=float, default=5, help="labels of an answer (default 5)")
    parser.add_argument("--what", nargs="+", choices=_WHAT, default=_WHAT, metavar="WHAT", help=", ".join(_WHAT))
    parser.add_argument("--threads", metavar="N", type=int, help="threads of torch (default: as many as it takes)")
    parser.add_argument("--repeat", metavar="N", type=int, default=10, help="turns of each step (default 10)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    import torch

    from shortlist.cli.bench_steps import Batch
    from shortlist.cli.bench_turns import take_turns, threads

    what = [name for name in _WHAT if name in options.what]
    _check(options, what)
    with torch.random.fork_rng(devices=[]), threads(options.threads) as used:
        groups = _groups(Batch.draw(options.rows, options.labels, options.k), what)
        with _bar(sum(len(group.steps) for group in groups) * (options.repeat + 1)) as progress:
            found = [take_turns(group.steps, repeat=options.repeat, progress=progress) for group in groups]
    results = {group.title: _figures(group, timings) for group, timings in zip(groups, found, strict=True)}
    size = {"rows": options.rows, "labels": options.labels, "k": options.k, "threads": used, "repeat": options.repeat}
    if options.json:
        content = {**size, "torch": torch.__version__, "results": results}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(size, groups, results)
    return 0


def _check(options: argparse.Namespace, what: list[str]) -> None:
    """Refuse sizes that make no sense, or that do not fit into the memory, before anything is allocated."""
    from shortlist.cli.bench_steps import Batch
    from shortlist.cli.bench_turns import free_memory

    for name, least in (("rows", 1), ("labels", 2), ("threads", 1), ("repeat", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} must be at least {least}; got {value}.")
    if not 0 < options.k <= options.labels:
        raise ValueError(f"--k must lie in (0, {options.labels}], the number of labels; got {options.k:g}.")
    need, free = Batch.bytes_needed(options.rows, options.labels, options.k, what), free_memory()
    if free is not None and need > free:
        raise ValueError(
            f"--rows {options.rows} and --labels {options.labels} need about {need / 2**30:,.1f} GiB of memory, and "
            f"{free / 2**30:,.1f} GiB are free."
        )


def _groups(batch: Batch, what: list[str]) -> list[Group]:
    from shortlist.cli.bench_steps import losses, projections, rules

    groups = []
    if "projections" in what:
        groups.append(projections(batch))
    if "losses" in what:
        groups += losses(batch)
    if "rules" in what:
        groups.append(rules(batch))
    return groups


def _figures(group: Group, timings: dict[str, Timing]) -> dict[str, dict[str, Any]]:
    base = timings[group.baseline].seconds
    figures = {}
    for name, timing in timings.items():
        if timing.seconds is None:
            figures[name] = {"milliseconds": None, "ratio": None, "reason": timing.reason}
        else:
            ratio = None if base is None else timing.seconds / base
            figures[name] = {"milliseconds": 1000 * timing.seconds, "ratio": ratio}
    return figures


def _print(size: dict[str, Any], groups: list[Group], results: dict[str, dict[str, dict[str, Any]]]) -> None:
    text = require("rich.text", extra="report").Text
    tables = require("rich.table", extra="report").Table
    console = require("rich.console", extra="report").Console(highlight=False)
    threads = "1 thread" if size["threads"] == 1 else f"{size['threads']} threads"
    head = f"{size['rows']:,} rows × {size['labels']:,} labels, k = {size['k']:g}, float32, {threads}"
    console.print(text(head, "bold green"))
    for group in groups:
        table = tables(title=group.title, title_justify="left")
        table.add_column("")
        table.add_column("ms", justify="right")
        table.add_column(f"÷ {group.baseline}", justify="right")
        for name, figures in results[group.title].items():
            if figures["milliseconds"] is None:
                table.add_row(name, text(figures["reason"], "yellow"), "·")
            else:
                ratio = "·" if figures["ratio"] is None else f"{figures['ratio']:.2f}"
                table.add_row(name, f"{figures['milliseconds']:.3g}", ratio)
        console.print(table)


@contextmanager
def _bar(steps: int) -> Iterator[Callable[[str], object] | None]:
    """A bar on a terminal's standard error that leaves nothing behind."""
    if not sys.stderr.isatty():
        yield None
        return
    rich = require("rich.progress", extra="report")
    console = require("rich.console", extra="report").Console(stderr=True)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("warming up", total=steps)
        yield lambda name: bar.update(task, advance=1, description=name)

"""``shortlist data``: look at a dataset before anything is trained on it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.cli.data_options import reader_options
from shortlist.cli.data_tables import print_summary
from shortlist.data import Dataset
from shortlist.data.summary import DatasetSummary, summarise
from shortlist.extras import require
from shortlist.report.chart_matplotlib import save_figure
from shortlist.report.dataset import draw_dataset
from shortlist.report.dataset_examples import example_rows

_INSPECT_EXAMPLES = """\
examples:
  shortlist data inspect plantnet_300K/
  shortlist data inspect labels.csv --option label=species --figure labels.pdf
  shortlist data inspect annotations/instances_val2017.json --format coco --no-duplicates
  shortlist data inspect features.npz --json > summary.json

VALUE of --option is read as JSON (5, true, [64, 64]) where the reader takes such a value, and as text otherwise.
exit code: 0, or 2 when something could not be read.
"""
_EXAMPLES = """\
examples:
  shortlist data inspect PATH      what is in a dataset: figures, a picture, examples
  shortlist data formats           which formats can be read
"""
_PICTURES = (".png", ".svg", ".pdf")
_MOST_EXAMPLES = 60
_LONG_SECONDS = 1.0


def add_command(commands: Any) -> None:
    """Describe the command and its parts to the parser."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        "data",
        help="look at datasets of many formats",
        description="Look at datasets of many formats.",
        epilog=_EXAMPLES,
        formatter_class=raw,
    )
    parts = parser.add_subparsers(metavar="inspect|formats", required=True)
    inspect = parts.add_parser(
        "inspect",
        help="what is in a dataset: figures, a picture, examples",
        description="Print and draw what is in a dataset: rows, labels, long tail, groups, gaps, duplicates, examples.",
        epilog=_INSPECT_EXAMPLES,
        formatter_class=raw,
    )
    inspect.add_argument("path", metavar="PATH", help="file or folder")
    inspect.add_argument("--format", metavar="NAME", help="see `shortlist data formats`; by default found by content")
    inspect.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="option of the reader; may be repeated"
    )
    inspect.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    picture = inspect.add_mutually_exclusive_group()
    picture.add_argument(
        "--figure",
        metavar="FILE",
        help="where to draw: .png, .svg or .pdf (default: <name>-inspect.png; none with --json)",
    )
    picture.add_argument("--no-figure", action="store_true", help="draw nothing")
    inspect.add_argument("--examples", metavar="N", type=int, default=12, help="rows to show (default 12)")
    inspect.add_argument("--seed", metavar="N", type=int, default=0, help="which rows (default 0)")
    inspect.add_argument("--no-duplicates", action="store_true", help="do not read all inputs to find equal rows")
    inspect.set_defaults(run=run_inspect)
    formats = parts.add_parser("formats", help="which formats can be read", description="List what can be read.")
    formats.add_argument("--json", action="store_true", help="print them as JSON and nothing else")
    formats.set_defaults(run=run_formats)


def run_formats(options: argparse.Namespace) -> int:
    """List the formats, one a line."""
    from shortlist.data.opening import FORMATS

    if options.json:
        sys.stdout.write(json.dumps({name: form.about for name, form in FORMATS.items()}, indent=1) + "\n")
        return 0
    width = max(map(len, FORMATS), default=0)
    for name, form in FORMATS.items():
        sys.stdout.write(f"{name:<{width}}  {form.about}\n")
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """Summarise, print and draw a dataset."""
    figure = _wanted_figure(options)
    dataset = _open(options)
    with _bar(shown=sys.stderr.isatty()) as progress:
        summary = summarise(dataset, duplicates=not options.no_duplicates, progress=progress)
    if options.json:
        sys.stdout.write(json.dumps(summary.to_json(), indent=1) + "\n")
    else:
        rows = example_rows(len(dataset), options.examples, seed=options.seed)
        print_summary(summary, dataset, rows)
    if figure is not None:
        path = _draw(summary, dataset, figure, options)
        if path is not None and not options.json:
            sys.stdout.write(f"Picture: {path}\n")
    return 0


def _wanted_figure(options: argparse.Namespace) -> str | None:
    """Where to draw, an empty text for the default place, None for nowhere; mistakes are told before the work."""
    if not 0 <= options.examples <= _MOST_EXAMPLES:
        raise ValueError(f"--examples must lie in [0, {_MOST_EXAMPLES}]; got {options.examples}.")
    if options.seed < 0:
        raise ValueError(f"--seed must be at least 0; got {options.seed}.")
    if options.figure is None:
        return None if options.no_figure or options.json else ""
    if Path(options.figure).suffix.lower() not in _PICTURES:
        raise ValueError(f"--figure must end in {', '.join(_PICTURES)}; got {options.figure!r}.")
    require("matplotlib.figure", extra="report")
    return options.figure


def _open(options: argparse.Namespace) -> Dataset:
    from shortlist.data.opening import FORMATS, open_dataset

    # Which format it is shows when it is opened, so that without a name any reader's types count.
    named = [FORMATS[options.format]] if options.format in FORMATS else FORMATS.values()
    given = reader_options(options.option, [form.read for form in named])
    try:
        return open_dataset(options.path, format=options.format, **given)
    except TypeError as error:
        if not given or str(error).startswith("`"):  # Our own sentences begin with what they are about.
            raise
        names = ", ".join(f"--option {name}" for name in given)
        raise ValueError(f"`{options.path}`: {names} must be what the reader takes ({error}).") from error


def _draw(summary: DatasetSummary, dataset: Dataset, figure: str, options: argparse.Namespace) -> Path | None:
    try:
        path = figure or _default_figure(summary, options.path)
        return _save(draw_dataset(summary, dataset, examples=options.examples, seed=options.seed), path)
    except (ImportError, OSError) as error:
        if figure:
            raise
        # Nobody asked for the picture, so that its absence is no failure.
        sys.stderr.write(f"shortlist: no picture: {error}\n")
        return None


def _default_figure(summary: DatasetSummary, path: str) -> str:
    name = re.sub(r"[^\w.-]+", "-", summary.name or Path(path).resolve().stem).strip("-.")
    return f"{name or 'dataset'}-inspect.png"


def _save(drawn: Any, path: str) -> Path:
    """Write a figure; an error names its file, as the one that is written first and then renamed means nothing."""
    try:
        return save_figure(drawn, path)
    except OSError as error:
        reason, folder = error.strerror or str(error), Path(path).parent
        # Where a folder is at fault, perhaps one above, it is what to look at.
        if error.filename is not None and Path(error.filename) in (folder, *folder.parents):
            reason = f"`{error.filename}`: {reason}"
        raise OSError(f"`{path}` cannot be written: {reason}.") from error


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on standard error that appears when the work turns out to be long, and leaves nothing behind."""
    if not shown:
        yield None
        return
    rich = require("rich.progress", extra="report")
    console = require("rich.console", extra="report").Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    bar, began = rich.Progress(*columns, console=console, transient=True), time.monotonic()
    task = bar.add_task("looking for equal rows", total=None)

    def advance(done: int, total: int) -> None:
        if done < total and time.monotonic() - began > _LONG_SECONDS:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()

"""``shortlist data``: inspect a dataset before training on it."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.console import print_json
from shortlist.cli.options import add_json_option, add_parser, add_seed_option, whole_number
from shortlist.errors import InputError
from shortlist.extras import MissingExtraError, require
from shortlist.files import writing
from shortlist.progress import progress_bar

_INSPECT_EXAMPLES = """\
examples:
  shortlist data inspect plantnet_300K/
  shortlist data inspect labels.csv --option label=species --figure labels.pdf
  shortlist data inspect annotations/instances_val2017.json --format coco --no-duplicates
  shortlist data inspect features.npz --json > summary.json

VALUE of --option is parsed as JSON (5, true, [64, 64]) if the reader expects such a value, and as text otherwise.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_EXAMPLES = """\
examples:
  shortlist data inspect PATH      summarize a dataset: statistics, a figure, examples
  shortlist data formats           list the formats that can be read
"""
_PICTURES = (".png", ".svg", ".pdf")


def add_command(commands: Any) -> None:
    """Add the command and its subcommands to the parser."""
    about = "Inspect datasets in many formats."
    parser = add_parser(
        commands, "data", _no_part, help="inspect datasets in many formats", about=about, epilog=_EXAMPLES
    )
    parts = parser.add_subparsers(metavar="inspect|formats", required=True)
    inspect = add_parser(
        parts,
        "inspect",
        run_inspect,
        help="summarize a dataset: statistics, a figure, examples",
        about="Print and draw a summary of a dataset: rows, labels, long tail, groups, gaps, duplicates, examples.",
        epilog=_INSPECT_EXAMPLES,
    )
    inspect.add_argument("path", metavar="PATH", help="file or folder")
    inspect.add_argument(
        "--format", metavar="NAME", help="see `shortlist data formats`; by default recognized by content"
    )
    inspect.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="option of the reader; may be repeated"
    )
    add_json_option(inspect, "the numbers")
    picture = inspect.add_mutually_exclusive_group()
    picture.add_argument(
        "--figure",
        metavar="FILE",
        help="where to draw: .png, .svg or .pdf (default: <name>-inspect.png; none with --json)",
    )
    picture.add_argument("--no-figure", action="store_true", help="draw nothing")
    inspect.add_argument(
        "--examples", metavar="N", type=whole_number(at_least=0, below=61), default=12, help="rows to show (default 12)"
    )
    add_seed_option(inspect, default=0, help="seed for the rows to show (default 0)")
    inspect.add_argument(
        "--no-duplicates", action="store_true", help="skip the search for duplicate rows, which reads all inputs"
    )
    formats = add_parser(
        parts,
        "formats",
        run_formats,
        help="list the formats that can be read",
        about="List the formats that can be read.",
    )
    add_json_option(formats, "them")


def _no_part(options: argparse.Namespace) -> int:
    raise InputError("data needs `inspect` or `formats`; see `shortlist data --help`.")


def run_formats(options: argparse.Namespace) -> int:
    """List the formats, one per line."""
    from shortlist.data.opening import FORMATS

    if options.json:
        print_json({name: form.about for name, form in FORMATS.items()})
        return 0
    width = max(map(len, FORMATS), default=0)
    for name, form in FORMATS.items():
        sys.stdout.write(f"{name:<{width}}  {form.about}\n")
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """Summarize, print and draw a dataset."""
    figure = _wanted_figure(options)

    from shortlist.cli.data_tables import print_summary
    from shortlist.data.summary import summarise
    from shortlist.report.dataset_examples import example_rows

    dataset = _open(options)
    with progress_bar("looking for equal rows", unit="rows") as bar:
        summary = summarise(dataset, duplicates=not options.no_duplicates, progress=bar.update)
    if options.json:
        print_json(summary.to_json())
    else:
        rows = example_rows(len(dataset), options.examples, seed=options.seed)
        print_summary(summary, dataset, rows)
    if figure is not None:
        path = _draw(summary, dataset, figure, options)
        if path is not None and not options.json:
            sys.stdout.write(f"Picture: {path}\n")
    return 0


def _wanted_figure(options: argparse.Namespace) -> str | None:
    """Return the figure's path (empty for the default, None for no figure), checked before the work."""
    if options.figure is None:
        return None if options.no_figure or options.json else ""
    if Path(options.figure).suffix.lower() not in _PICTURES:
        raise InputError(f"--figure must end in {', '.join(_PICTURES)}; got {options.figure!r}.")
    require("matplotlib.figure", extra="report")
    return options.figure


def _open(options: argparse.Namespace) -> Any:
    from shortlist.data.opening import FORMATS, open_dataset, recognize_format
    from shortlist.data.reader_options import reader_options

    name, path = recognize_format(options.path) if options.format is None else (options.format, options.path)
    if name not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {name!r}.")
    return open_dataset(path, format=name, **reader_options(options.option, FORMATS[name].read))


def _draw(summary: Any, dataset: Any, figure: str, options: argparse.Namespace) -> Path | None:
    from shortlist.report.chart_matplotlib import save_figure
    from shortlist.report.dataset import draw_dataset

    path = figure or _default_figure(summary, options.path)
    try:
        with writing(path):
            return save_figure(draw_dataset(summary, dataset, examples=options.examples, seed=options.seed), path)
    except (InputError, MissingExtraError) as error:
        if figure:
            raise
        # The default figure was not requested, so failing to draw it is not an error.
        sys.stderr.write(f"shortlist: no figure: {error}\n")
        return None


def _default_figure(summary: Any, path: str) -> str:
    name = re.sub(r"[^\w.-]+", "-", summary.name or Path(path).resolve().stem).strip("-.")
    return f"{name or 'dataset'}-inspect.png"

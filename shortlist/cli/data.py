"""``shortlist data``: inspect a dataset before training on it."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shortlist.cli.console import note, print_json
from shortlist.cli.options import (
    Renamed,
    add_json_option,
    add_parser,
    add_reader_options,
    add_seed_option,
    whole_number,
)
from shortlist.errors import ChoiceError, InputError
from shortlist.extras import require
from shortlist.files import writing
from shortlist.progress import progress_bar

_INSPECT_EXAMPLES = """\
examples:
  shortlist data inspect plantnet_300K/
  shortlist data inspect labels.csv --reader label=species --figure labels.pdf
  shortlist data inspect annotations/instances_val2017.json --format coco --no-duplicates
  shortlist data inspect features.npz --json > summary.json

VALUE of --reader is parsed as JSON (5, true, [64, 64]) if the reader expects such a value, and as text otherwise.
The last line is the command that compares losses on these data.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_EXAMPLES = """\
examples:
  shortlist data inspect PATH      summarize a dataset: statistics, examples, what to do next
  shortlist data formats           list the formats that can be read
"""
_IMAGES = 16
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
        help="summarize a dataset: statistics, examples, what to do next",
        about="Print a summary of a dataset: rows, labels, long tail, groups, gaps, duplicates, examples.",
        epilog=_INSPECT_EXAMPLES,
    )
    inspect.add_argument("path", metavar="PATH", help="file or folder")
    add_reader_options(inspect, "PATH")
    inspect.add_argument("--option", metavar="NAME=VALUE", action=Renamed, now="--reader", help=argparse.SUPPRESS)
    add_json_option(inspect, "the numbers")
    inspect.add_argument("--figure", metavar="FILE", help="draw the numbers and some rows: .png, .svg or .pdf")
    inspect.add_argument("--no-figure", action="store_true", help=argparse.SUPPRESS)
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
    if options.figure is not None:
        if Path(options.figure).suffix.lower() not in _PICTURES:
            raise InputError(f"--figure must end in {', '.join(_PICTURES)}; got {options.figure!r}.")
        require("matplotlib.figure", extra="report")

    from shortlist.cli.data_tables import print_summary
    from shortlist.data import ImageFiles
    from shortlist.data.opening import open_data
    from shortlist.data.summary import summarise
    from shortlist.report.dataset_examples import example_rows
    from shortlist.typed_values import read_entries

    reader = read_entries(options.reader, "--reader", parse=False)
    dataset = open_data(options.path, format=options.format, reader=reader, tell=note)
    missing = []
    if isinstance(dataset.inputs, ImageFiles) and (missing := dataset.inputs.missing()):
        # Labels often come long before the images.
        count, first = f"{len(missing):,} of {len(dataset):,} images", dataset.inputs.path(missing[0])
        note(f"{count} are missing, such as `{first}`, so only labels are summarized.")
        options.no_duplicates, options.examples = True, 0
    with progress_bar("looking for equal rows", unit="rows") as bar:
        summary = summarise(dataset, duplicates=not options.no_duplicates, progress=bar.update)
    if options.json:
        print_json(summary.to_json())
    else:
        print_summary(summary, dataset, example_rows(len(dataset), options.examples, seed=options.seed))
    if options.figure is not None:
        _draw(summary, dataset, options)
    if not options.json and summary.rows:
        reader = {} if missing else _size_of_images(dataset)
        sys.stdout.write(f"\n{_next_step(summary, options, reader, missing=bool(missing))}\n")
    return 0


def _size_of_images(dataset: Any) -> Mapping[str, Any]:
    """Return the option of the reader that images of different sizes need; a few of them show it."""
    if dataset.inputs.kind != "images" or not len(dataset):
        return {}
    import torch

    some = torch.arange(0, len(dataset), max(1, len(dataset) // _IMAGES))
    try:
        dataset.inputs.batch(some)
    except ChoiceError as error:
        return error.choices[0]
    except (InputError, ImportError):
        pass  # Whoever reads all of them will say what is wrong.
    return {}


def _next_step(summary: Any, options: argparse.Namespace, reader: Mapping[str, Any], *, missing: bool) -> str:
    """Return what to do next, the command last."""
    if summary.labels < 2:
        return f"No comparison: a model needs at least 2 labels, and these rows have {summary.labels}."
    when = "Next, once the images are there" if missing else "Next"
    return f"{when}: {_compare_command(summary, options, reader)}"


def _draw(summary: Any, dataset: Any, options: argparse.Namespace) -> None:
    from shortlist.report.chart_matplotlib import save_figure
    from shortlist.report.dataset import draw_dataset

    with writing(options.figure):
        figure = draw_dataset(summary, dataset, examples=options.examples, seed=options.seed)
        path = save_figure(figure, options.figure)
    if not options.json:
        sys.stdout.write(f"Picture: {path}\n")


def _compare_command(summary: Any, options: argparse.Namespace, reader: Mapping[str, Any]) -> str:
    """Return the command that compares losses on the data."""
    one_class = summary.labels_per_row.minimum == summary.labels_per_row.maximum == 1
    k = 3 if one_class else max(1, round(summary.labels_per_row.mean))
    losses = ["cross_entropy", "lml_nll", "average_k"] if one_class else ["bce", "lml_nll", "two_way"]
    entries = [*options.reader, *(f"{name}={value}" for name, value in reader.items())]
    given = [] if options.format is None else ["--format", options.format]
    given += [word for entry in entries for word in ("--reader", entry)]
    name = re.sub(r"[^\w.-]+", "-", summary.name or Path(options.path).resolve().stem).strip("-.") or "data"
    sizes = ["--k", str(min(k, max(1, summary.labels - 1)))]
    return shlex.join(
        ["shortlist", "compare", options.path, *given, "--losses", *losses, *sizes, "--output", f"{name}-comparison"]
    )

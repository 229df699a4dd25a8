"""Options of a training run on the command line: a YAML file, with flags over it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from shortlist.cli.data_options import check_reader_options, with_tuples
from shortlist.data import Dataset, ImageFiles, open_dataset, split_at_random, split_off_validation
from shortlist.data.opening import FORMATS, told_format
from shortlist.extras import require
from shortlist.train import FitOptions
from shortlist.train.fit import make_run
from shortlist.train.inputs import check_rows

_IMAGES_AT_ONCE = 16


def options_parser(prog: str, description: str, examples: str) -> Any:
    """A parser of the data to train on and of all `FitOptions`, which ``--config FILE.yaml`` may hold."""
    jsonargparse = require("jsonargparse", extra="train")

    class Parser(jsonargparse.ArgumentParser):
        given: Sequence[str] = ()

        def parse_args(self, args: Sequence[str], **more: Any) -> Any:
            self.given = args
            return super().parse_args(args, **more)

        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            reason = _reason(str(ex or message))
            raise ValueError(f"{_file_at_fault(reason, self.given)}{reason}; see `{self.prog} --help`.")

    parser = Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA", help="file or folder, or pubmed, digits or ambiguous")
    parser.add_argument("--config", action="config", help="YAML file with any of these options")
    parser.add_argument("--format", metavar="NAME", default=None, help="see `shortlist data formats`")
    parser.add_argument("--reader", type=dict, default={}, help="options of the reader, as a YAML or JSON object")
    parser.add_class_arguments(FitOptions, as_group=False)
    return parser


def _reason(message: str) -> str:
    """One line of what jsonargparse says in several, without the names that Python has for types."""
    text = " ".join(message.split()).rstrip(".")
    text = re.sub(r'Parser key "([\w.]+)": ', r"--\1: ", text)
    text = re.sub(r"Expected a <class '(?:[\w.]*\.)?(\w+)'>", r"expected \1", text)
    text = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"expected one of \1", text)
    return text.replace(". Got value: ", "; got ")


def _file_at_fault(reason: str, given: Sequence[str]) -> str:
    """The name of the YAML file, if what is wrong stands in it and not among the flags."""
    flags = [flag.partition("=") for flag in given]
    files = [value or given[place + 1] for place, (flag, _, value) in enumerate(flags[:-1]) if flag == "--config"]
    key = re.match(r"--(\w+)[\w.]*: |Option '", reason)
    if key is None or not files or any(flag.partition(".")[0] == f"--{key[1]}" for flag, _, _ in flags):
        return ""
    return f"`{files[-1]}`: "


def fit_options(given: Any) -> FitOptions:
    """The training options among those that were parsed."""
    return FitOptions(**{field.name: getattr(given, field.name) for field in fields(FitOptions)})


def training_data(given: Any) -> Dataset:
    """The dataset of the command line; where it has no parts, a tenth each is set aside for validation and test."""
    dataset = open_data(given.data, format=given.format, reader=given.reader)
    if not len(dataset):
        raise ValueError(f"`{given.data}` holds no rows.")
    return with_parts(dataset, seed=given.seed, data=given.data)


def open_data(path: str | Path, *, format: str | None, reader: Mapping[str, Any]) -> Dataset:
    """Open a dataset; ValueError for options of the reader that are of other types than it takes."""
    name, place = told_format(path) if format is None else (format, Path(path))
    options = reader_values(reader)
    if name in FORMATS:
        check_reader_options(options, FORMATS[name].read)
    return open_dataset(place, format=name, **options)


def reader_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a reader with tuples for lists, which YAML and JSON have no other word for."""
    return {name: with_tuples(value) for name, value in given.items()}


def with_parts(dataset: Dataset, *, seed: int, data: str) -> Dataset:
    """The dataset with parts train, val and test; those that it has stay, and chance draws the others.

    Args:
        dataset: with any parts, or none.
        seed: of what is drawn.
        data: its path, for an error.
    """
    if dataset.split is None:
        return split_at_random(dataset, seed=seed)
    missing = [part for part in ("train", "test") if part not in dataset.split.names]
    if missing:
        raise ValueError(f"`{data}` must have parts train and test; it has {', '.join(dataset.split.names)}.")
    if "val" not in dataset.split.names or not len(dataset.part_rows("val")):
        return split_off_validation(dataset, seed=seed)
    return dataset


@contextmanager
def naming_data(data: str) -> Iterator[None]:
    """Say the path of the data where the library, which does not know it, says `dataset`."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("`dataset` "):
            raise
        raise ValueError(f"`{data}` {str(error).removeprefix('`dataset` ')}") from error


def check_test_rows(dataset: Dataset, candidates: Iterable[FitOptions]) -> None:
    """Read the rows that come into play only when all candidates are trained, so that a bad one is told before."""
    check_rows(dataset, ("test",))
    if isinstance(dataset.inputs, ImageFiles):
        for options in candidates:  # A wrong option must not wait for many files.
            make_run(dataset, options)
        for rows in dataset.part_rows("test").split(_IMAGES_AT_ONCE):
            dataset.inputs.batch(rows)

"""Options of a training run on the command line: a YAML file, with flags over it."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from shortlist.data import Dataset, open_dataset, split_at_random, split_off_validation
from shortlist.extras import require
from shortlist.train import FitOptions


def options_parser(prog: str, description: str, examples: str) -> Any:
    """A parser of the data to train on and of all `FitOptions`, which ``--config FILE.yaml`` may hold."""
    jsonargparse = require("jsonargparse", extra="train")

    class Parser(jsonargparse.ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            raise ValueError(f"{_reason(str(ex or message))}; see `{self.prog} --help`.")

    parser = Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA", help="file or folder, or pubmed or digits")
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


def fit_options(given: Any) -> FitOptions:
    """The training options among those that were parsed."""
    return FitOptions(**{field.name: getattr(given, field.name) for field in fields(FitOptions)})


def training_data(given: Any) -> Dataset:
    """The dataset of the command line; where it has no parts, a tenth each is set aside for validation and test."""
    dataset = open_dataset(Path(given.data), format=given.format, **given.reader)
    if dataset.split is None:
        return split_at_random(dataset, seed=given.seed)
    missing = [part for part in ("train", "test") if part not in dataset.split.names]
    if missing:
        raise ValueError(f"`{given.data}` must have parts train and test; it has {', '.join(dataset.split.names)}.")
    if "val" not in dataset.split.names or not len(dataset.part_rows("val")):
        return split_off_validation(dataset, seed=given.seed)
    return dataset

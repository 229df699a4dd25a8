"""Options of commands that take scores or a saved model: the data to answer to, and how they are read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shortlist.extras import require

_OF_SCORES = ("logits", "probabilities", "key", "names")
_OF_MODELS = ("data", "data_format", "part", "reader")


def add_data_options(parser: argparse.ArgumentParser, *flags: str, part: str) -> None:
    """Add --data and what must be known to read it.

    Args:
        parser: of the command.
        flags: further names of --data-format.
        part: what --part is by default, for its help.
    """
    parser.add_argument("--data", metavar="PATH", help="with a model: the data to answer to")
    parser.add_argument("--part", metavar="NAME", help=f"with a model: the part of the data (default: {part})")
    parser.add_argument(
        "--data-format", *flags, metavar="NAME", help="of DATA; see `shortlist data formats` (default: told by PATH)"
    )
    parser.add_argument(
        "--reader",
        metavar="OBJECT",
        help="options of the reader of DATA, as YAML or JSON, over those of training: '{features: [a, b]}'",
    )


def is_model(path: str | Path) -> bool:
    """Whether a path is a folder, as a saved model is and scores are not."""
    return Path(path).is_dir()


def check_model_options(options: argparse.Namespace) -> bool:
    """Whether SCORES is a model; ValueError for options that do not go with what it is."""
    if is_model(options.scores):
        if options.data is None:
            raise ValueError(f"`{options.scores}` is a model: --data must name what it should answer to.")
        for name in _OF_SCORES:
            if getattr(options, name):
                raise ValueError(f"--{name} is for files of scores; `{options.scores}` is a model.")
        return True
    for name in _OF_MODELS:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for models; `{options.scores}` is none.")
    if not options.logits and not options.probabilities:
        raise ValueError("one of --logits and --probabilities must say what the scores are.")
    return False


def given_reader(text: str | None) -> dict[str, Any]:
    """The options of ``--reader``.

    Example:
        >>> given_reader("{label: species, features: [a, b]}")
        {'label': 'species', 'features': ['a', 'b']}
    """
    if text is None:
        return {}
    yaml = require("yaml", extra="train")
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--reader must be YAML or JSON; got {text!r:.80} ({reason}).") from error
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"--reader must be an object like '{{label: species}}'; got {text!r:.80}.")
    return given

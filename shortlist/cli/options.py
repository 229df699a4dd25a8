"""Options that several commands share. Nothing here imports torch, so that help and completion are fast."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from shortlist.cli.console import note
from shortlist.errors import InputError

_DOTTED = re.compile(r"--([\w-]+)\.([\w.-]+)(?:=(.*))?", re.DOTALL)
FILE_SUFFIXES = ".npy, .npz, .safetensors, .h5, .hdf5, .csv, .tsv, .parquet"


class Parser(argparse.ArgumentParser):
    """Raises InputError for an invalid command line, so that all mistakes are reported the same way."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`.")


def add_parser(commands: Any, name: str, run: Callable[..., int], *, help: str, about: str, epilog: str = "") -> Parser:
    """Add a command.

    Args:
        commands: the result of ``add_subparsers``.
        name: name of the command.
        run: takes the parsed options and returns the exit code.
        help: a phrase for the list of commands.
        about: a sentence for the command's own help.
        epilog: examples and exit codes.
    """
    parser: Parser = commands.add_parser(
        name, help=help, description=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_debug_option(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run, prog=parser.prog)
    return parser


def add_debug_option(parser: argparse.ArgumentParser, default: Any = False) -> None:
    """Add --debug, which may come before or after the command."""
    parser.add_argument("--debug", action="store_true", default=default, help="show the traceback of errors")


def normalize_arguments(arguments: Sequence[str]) -> list[str]:
    """Write options with dashes, and ``--NAME.KEY VALUE`` as ``--set NAME.KEY=VALUE``.

    Example:
        >>> normalize_arguments(["fit", "digits", "--encoder_options.width", "2", "--batch_size=2"])
        ['fit', 'digits', '--set', 'encoder_options.width=2', '--batch-size=2']
    """
    found: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        dotted = _DOTTED.fullmatch(argument)
        if dotted is not None:
            value = dotted[3] if dotted[3] is not None else next(rest, None)
            path = f"{dotted[1].replace('-', '_')}.{dotted[2]}"
            found += ["--set", path + ("" if value is None else f"={value}")]
        elif argument == "--json" and found[:1] == ["audit"]:
            found += _former_json(next(rest, None))
        elif argument.startswith("--"):
            name, equals, value = argument.partition("=")
            found.append(name.replace("_", "-") + equals + value)
        else:
            found.append(argument)
    return found


def _former_json(following: str | None) -> list[str]:
    """Return what ``audit --json`` means: a switch, or the former name of --output if a file follows."""
    if following is not None and following.endswith(".json"):
        note("shortlist: --json FILE of audit is called --output FILE now; --json prints.")
        return ["--output", following]
    return ["--json", *([] if following is None else normalize_arguments([following]))]


def whole_number(*, at_least: int, below: int | None = None) -> Callable[[str], int]:
    """Return an argparse type for whole numbers in a range."""

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number; got {value!r}") from None
        if number < at_least or (below is not None and number >= below):
            upper = "" if below is None else f" and below {below}"
            raise argparse.ArgumentTypeError(f"must be at least {at_least}{upper}; got {number}")
        return number

    return read


def add_seed_option(parser: argparse.ArgumentParser, *, default: int | None, help: str) -> None:
    """Add --seed."""
    parser.add_argument("--seed", metavar="N", type=whole_number(at_least=0, below=1 << 63), default=default, help=help)


def add_json_option(parser: argparse.ArgumentParser, what: str = "the metrics") -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON and nothing else")


def add_cluster_option(parser: argparse.ArgumentParser, needs: str) -> None:
    """Add --cluster; ``needs`` says what workers need besides this release of shortlist."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        default="local",
        help="local (default), dask://HOST:PORT or ray://HOST:PORT; dask:// and ray:// start one on this machine. All "
        "workers are used unless --jobs limits them; work lost with a worker is repeated. Workers need the "
        f"same release of shortlist and {needs}",
    )


def add_score_options(parser: argparse.ArgumentParser, *, part: str, scores_required: bool = True) -> None:
    """Add SCORES and the options for reading it; ``part`` is the default of --part, for its help."""
    parser.add_argument(
        "scores",
        metavar="SCORES",
        nargs=None if scores_required else "?",
        help=f"one row per example, one column per label: {FILE_SUFFIXES}",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--logits", action="store_true", help="the scores are logits")
    kind.add_argument("--probabilities", action="store_true", help="the scores are probabilities")
    parser.add_argument("--key", help="array in SCORES; optional if there is only one")
    parser.add_argument("--id", metavar="COLUMN", help="the column of a table that contains row ids")
    parser.add_argument(
        "--names", metavar="FILE", help="label names, one per line, in the order of the columns; not needed for tables"
    )
    add_data_options(parser, part=part)
    parser.add_argument(
        "--allowed",
        metavar="FILE",
        help="the labels that each row may have, a line per row (or .json, arrays): no other is in its set",
    )


def add_labelled_score_options(parser: argparse.ArgumentParser, *, part: str, scores_required: bool = True) -> None:
    """Add SCORES, LABELS and the options for reading them, for `open_labelled_scores`.

    Args:
        parser: parser of the command.
        part: the default of --part for data with parts.
        scores_required: whether SCORES must be given.
    """
    add_score_options(parser, part=f"{part}, or all rows if the data have no parts", scores_required=scores_required)
    parser.add_argument(
        "labels",
        metavar="LABELS",
        nargs="?",
        help="true labels of the same rows: arrays (dense or sparse), .json, or text with one row per line",
    )
    parser.add_argument("--labels-key", metavar="KEY", help="array in LABELS; optional if there is only one")
    parser.add_argument("--strict", action="store_true", help="with a model: refuse labels that it does not know")
    parser.set_defaults(usual_part=part)


def add_rule_option(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Add --rule, which `rule_file` reads; ``prefix`` begins its help."""
    parser.add_argument(
        "--rule",
        metavar="RULE",
        help=f"{prefix}file from `shortlist calibrate`, or the name of a rule in the model's folder",
    )


def rule_file(options: argparse.Namespace) -> str | Path:
    """The file that --rule names; of a model, by default that of its own rule."""
    if is_model(options):
        from shortlist.predict import find_rule  # Imports training, which takes longer than to answer.

        return find_rule(options.scores, options.rule)
    if options.rule is None:
        raise InputError("--rule must name the JSON of `shortlist calibrate`.")
    return options.rule


class Renamed(argparse.Action):
    """The former name of an option: sets the new one and says so."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, now: str, **options: Any) -> None:
        super().__init__(option_strings, now.removeprefix("--").replace("-", "_"), default=argparse.SUPPRESS, **options)
        self._now = now

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Set the option; one that may be repeated gets another value."""
        note(f"shortlist: {option_string} is called {self._now} now.")
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, [*before, values] if isinstance(before, list) else values)


def add_reader_options(parser: argparse.ArgumentParser, data: str, more: str = "") -> None:
    """Add --format and --reader.

    Args:
        parser: parser of the command.
        data: what its help calls the data.
        more: end of the help of --reader.
    """
    parser.add_argument(
        "--format", metavar="NAME", help=f"format of {data}; see `shortlist data formats` (default: detected)"
    )
    parser.add_argument(
        "--reader",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"option of the reader, such as label=species or 'features=[a, b]'; may be repeated{more}",
    )


def add_data_options(parser: argparse.ArgumentParser, *, part: str) -> None:
    """Add --data and the options for reading it; ``part`` is the default of --part, for its help."""
    parser.add_argument("--data", metavar="PATH", help="with a model: the data to score")
    parser.add_argument("--part", metavar="NAME", help=f"with a model: the part of the data (default: {part})")
    add_reader_options(parser, "DATA", "; overrides that of training")
    parser.add_argument("--data-format", metavar="NAME", action=Renamed, now="--format", help=argparse.SUPPRESS)


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """Add --groups and --weights, which come with the rows wherever scores are opened."""
    value = "one per line, or TABLE:COLUMN"
    parser.add_argument("--groups", metavar="FILE", help=f"for group-conditional: the group of each row, {value}")
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help=f"for covariate-shift: how much more likely each row is among new ones, {value}",
    )
    parser.set_defaults(row_options=("groups", "weights"))


def given_row_options(options: argparse.Namespace) -> list[str]:
    """The names of the options of `add_row_options` that were given."""
    return [name for name in getattr(options, "row_options", ()) if getattr(options, name) is not None]


def add_task_options(parser: argparse.ArgumentParser) -> None:
    """Add --one-class and --multi-label, which `read_task` reads."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--one-class", action="store_true", help="treat every row as having one label, regardless of the form of LABELS"
    )
    form.add_argument("--multi-label", action="store_true", help="treat rows as label sets, even if each has one label")


def read_task(options: argparse.Namespace) -> bool | None:
    """Whether every row has one class; None if that is left to the labels."""
    return True if options.one_class else False if options.multi_label else None


def refuse_file_options(options: argparse.Namespace) -> None:
    """Raise InputError for options that belong to labels in a file, because SCORES is a model."""
    for name, given in (("LABELS", options.labels), ("--labels-key", options.labels_key), ("--id", options.id)):
        if given is not None:
            raise InputError(f"{name} is for files of scores, but `{options.scores}` is a model.")


def is_model(options: argparse.Namespace) -> bool:
    """Whether SCORES is a saved model, which is a folder; raise InputError for incompatible options."""
    path = options.scores
    if Path(path).is_dir():
        if options.data is None and not getattr(options, "text", None):
            or_text = " or --text" if hasattr(options, "text") else ""
            raise InputError(f"`{path}` is a model: --data{or_text} must name the data to score.")
        for name in ("logits", "probabilities", "key", "names"):
            if getattr(options, name):
                raise InputError(f"--{name} is for files of scores, but `{path}` is a model.")
        return True
    for name in ("data", "format", "part", "reader", "text", "strict"):
        if getattr(options, name, None):
            raise InputError(f"--{name} is for models, but `{path}` is not a folder with a model.")
    if not options.logits and not options.probabilities:
        raise InputError("either --logits or --probabilities must say what the scores are.")
    return False


def open_score_file(options: argparse.Namespace) -> Any:
    """Open the scores that the options of `add_score_options` name."""
    from shortlist.predict import open_scores

    scores = open_scores(
        options.scores, from_logits=options.logits, key=options.key, id_column=options.id, names=options.names
    )
    return _with_rows(scores, options)


def open_model_scores(
    options: argparse.Namespace, *, labelled: bool, unseen: str = "refuse", calibrated: bool = True
) -> Any:
    """Open the data that the options of `add_data_options` name.

    Args:
        options: of the command.
        labelled: whether to read labels, too.
        unseen: what becomes of labels that the model does not know, unless --strict refuses them.
        calibrated: whether the model's calibration, if it has one, is applied.
    """
    from shortlist.predict.model_scores import open_model
    from shortlist.typed_values import read_entries

    texts, data = getattr(options, "text", None), options.data
    if data == "-":
        texts, data = [line.rstrip("\r\n") for line in sys.stdin], None
    found = open_model(
        options.scores,
        data,
        texts=texts or None,
        labelled=labelled,
        unseen="refuse" if getattr(options, "strict", False) else unseen,  # pyright: ignore[reportArgumentType]
        part=options.part,
        usual_part=getattr(options, "usual_part", "test"),
        format=options.format,
        reader=read_entries(options.reader, "--reader", parse=False),
        id_column=options.id,
        calibrated=calibrated,
    )
    if found.unseen:
        _mention_unseen(found.unseen, unseen)
    return found._replace(scores=_with_rows(found.scores, options))


class LabelledScores(NamedTuple):
    """Scores and true labels of rows; None if there are none.

    Of a model also the link of its loss, whether it has a rule, and how many labels of the data it does not know.
    """

    scores: Any
    target: Any = None
    link: Any = None
    has_rule: bool = False
    absent: int = 0


def open_labelled_scores(
    options: argparse.Namespace, *, one_class: bool | None, unseen: str = "drop", required: bool = True
) -> LabelledScores:
    """Open what the options of `add_labelled_score_options` name.

    Args:
        options: of the command.
        one_class: whether rows have one class or sets; None lets the labels decide.
        unseen: as in `open_model_scores`.
        required: whether there must be labels.
    """
    from shortlist.predict.true_labels import as_task, read_true_labels

    if is_model(options):
        refuse_file_options(options)
        try:
            found = open_model_scores(options, labelled=True, unseen=unseen)
        except InputError as error:
            if required:
                raise
            found = open_model_scores(options, labelled=False)
            note(f"shortlist: the error of the sets is not reported, since no labels were read: {error}")
        target = found.target
        if target is not None:
            target = as_task(target, found.scores.num_labels, one_class, options.data)
        return LabelledScores(found.scores, target, found.link, found.rule_file is not None, len(found.unseen))
    if options.labels is None:
        if required:
            raise InputError(f"LABELS must be given: the true labels of the rows of `{options.scores}`.")
        if options.labels_key is not None:
            raise InputError(f"--labels-key names an array of LABELS, which are not given; got {options.labels_key!r}.")
        return LabelledScores(open_score_file(options))
    scores = open_score_file(options)
    return LabelledScores(scores, read_true_labels(options.labels, scores, key=options.labels_key, one_class=one_class))


def _with_rows(scores: Any, options: argparse.Namespace) -> Any:
    """Scores with what is given for each row: the labels that it may have, its group, its weight."""
    from shortlist.predict import with_allowed_labels, with_row_values

    path = getattr(options, "allowed", None)
    scores = scores if path is None else with_allowed_labels(scores, path)
    for name in given_row_options(options):
        scores = with_row_values(scores, name, getattr(options, name))
    return scores


def _mention_unseen(unseen: Mapping[str, int], consequence: str) -> None:
    names = ", ".join(f"{name!r} ({rows})" for name, rows in list(unseen.items())[:5])
    more = ", …" if len(unseen) > 5 else ""
    what = "count as missed" if consequence == "miss" else "are left out, so the guarantee is for rows without them"
    labels = f"{len(unseen)} label{'s' * (len(unseen) > 1)}"
    note(
        f"shortlist: the model does not know {labels} of the data, with the number of their rows: {names}{more}. "
        f"They {what}; --strict refuses them."
    )

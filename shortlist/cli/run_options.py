"""Options of a training run: dataclass fields, set by a YAML file or by flags and checked against their types."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import reduce
from inspect import getdoc
from operator import or_
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shortlist.errors import InputError
from shortlist.fit_options import RECIPES, TRIALS, FitOptions
from shortlist.typed_values import alternatives, matches, read_entries, read_value, read_yaml

_NOT_FLAGS = ("data",)
_KEPT_AS_TEXT = ("reader",)  # The types of the reader's own options say what their values are.


@dataclass(frozen=True)
class DataOptions:
    """The data of a run.

    Args:
        data: file or folder, or pubmed, digits or ambiguous.
        format: see `shortlist data formats`.
        reader: option of the reader, such as label=species or 'features=[a, b]'; may be repeated.
        multi_label: treat labels as sets even if every row has exactly one, which is its class otherwise.
    """

    data: str
    format: str | None = None
    reader: Mapping[str, Any] = field(default_factory=dict)
    multi_label: bool = False


@dataclass(frozen=True)
class TuningOptions:
    """How the learning rate is found.

    Args:
        tune: how many pairs of learning rate and weight decay to try for each loss, the same number for all. Each is a
            short training that is scored on validation rows, never on test rows; the better half is repeated at twice
            the length, and again. A rate at the edge of the grid widens it. 0 takes the rate of the recipe (default
            12; 0 if learning_rate is given, or with several nodes).
    """

    tune: int | None = field(default=None, metadata={"metavar": "N"})

    def trials(self, options: FitOptions, *, alone: bool) -> int:
        """Return the number of trials.

        Args:
            options: of the run.
            alone: whether this command starts all processes of a run; several would have to agree on the result.

        Raises:
            InputError: if the number is negative, or options exclude tuning.
        """
        given = options.learning_rate is not None
        if self.tune is None:
            return 0 if given or not alone else TRIALS
        if self.tune < 0:
            raise InputError(f"--tune must be at least 0; got {self.tune}.")
        if self.tune and (given or not alone):
            why = "if --learning-rate is given" if given else "with several nodes"
            raise InputError(f"--tune must be 0 {why}; got {self.tune}.")
        return self.tune


def add_run_options(parser: ArgumentParser, *groups: type) -> None:
    """Add DATA, --config, --set, and a flag for every field of `FitOptions` and of the dataclasses ``groups``.

    A flag overrides the YAML file, and both override the field's default. The help text comes from the docstring.
    """
    parser.add_argument("data", metavar="DATA", help=_field_help(DataOptions)["data"])
    parser.add_argument(
        "--config", metavar="FILE", action="append", default=[], help="YAML file with any of these options"
    )
    parser.add_argument(
        "--set",
        metavar="NAME.KEY=VALUE",
        action="append",
        default=[],
        help="set one entry of an object option; --NAME.KEY VALUE is a shorthand",
    )
    for group in (DataOptions, *groups, FitOptions):
        texts = _field_help(group)
        hints = _option_types(group)
        for each in fields(group):
            if each.name not in _NOT_FLAGS:
                _add_flag(parser, each, hints[each.name], texts[each.name])


def _add_flag(parser: ArgumentParser, each: Any, hint: Any, text: str) -> None:
    """Add the flag of a field, whose metadata may contain a ``metavar``; a bool with one takes a value."""
    flag = _flag(each.name)
    default = "" if each.default in (MISSING, None, "", (), False) else f" (default {each.default})"
    default = default or _recipe_defaults(each.name)
    options: dict[str, Any] = {"default": SUPPRESS, "help": f"{text}{default}".replace("%", "%%")}
    metavar = each.metadata.get("metavar")
    if hint is bool and metavar is None:
        parser.add_argument(flag, action="store_true", **options)
        return
    if hint is bool:
        options |= {"nargs": "?", "const": True}
    elif get_origin(hint) is Literal:
        metavar = "|".join(map(str, filter(None, get_args(hint))))
    elif matches(hint, {}):
        options["action"] = "append"
        metavar = metavar or "NAME=VALUE"
    elif get_origin(hint) is tuple and get_args(hint)[0] is str:
        options["nargs"] = "+"
    short = ["-o"] if each.name == "output" else []
    parser.add_argument(flag, *short, metavar=metavar or each.name.upper(), **options)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _recipe_defaults(name: str) -> str:
    """Return the default of a field in each recipe, if recipes have one, as in `` (default 0.001; paper: 0.1)``."""
    found: dict[str, str] = {}
    for recipe, each in RECIPES.items():
        if name not in each.defaults:
            return ""
        own = {"": each.defaults[name]} | {f" for {kind}": by[name] for kind, by in each.by_kind.items() if name in by}
        found[recipe] = ", ".join(f"{_shown(value)}{kind}" for kind, value in own.items())
    first, *others = found.items()
    return f" (default {'; '.join([first[1], *(f'{recipe}: {text}' for recipe, text in others if text != first[1])])})"


def _shown(value: Any) -> str:
    return str(list(value) or "none") if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class RunOptions:
    """The options given for a run: the values of all dataclasses, by name, and the YAML files."""

    values: Mapping[str, Any]
    configs: tuple[Path, ...]

    def of(self, group: type) -> Any:
        """Return a dataclass with the given values; raise InputError if it rejects one."""
        given = {each.name: self.values[each.name] for each in fields(group) if each.name in self.values}
        try:
            return group(**given)
        except (TypeError, ValueError) as error:
            raise InputError(str(error)) from error

    def sized(self, options: FitOptions, num_labels: int, *, tell: Callable[[str], object] | None = None) -> FitOptions:
        """The options of a run on so many labels: a K that nobody gave is less than their number, and told."""
        most = max(1, num_labels - 1)
        if "k" in self.values or options.k <= most:
            return options
        if tell is not None:
            tell(f"K is {most}, because there are {num_labels} labels; --k chooses another.")
        return replace(options, k=most)


def read_run_options(options: Namespace, *groups: type) -> RunOptions:
    """Collect the values of the YAML files, overridden by those of the flags; null leaves an option as it is.

    Raises:
        InputError: for an unknown option or a value of the wrong type; names the file or the flag.
    """
    hints = {name: hint for group in (DataOptions, *groups, FitOptions) for name, hint in _option_types(group).items()}
    values: dict[str, Any] = {}
    configs = tuple(Path(file) for file in options.config)
    for file in configs:
        for name, value in _read_config(file).items():
            if name not in hints or name in _NOT_FLAGS:
                known = ", ".join(known for known in hints if known not in _NOT_FLAGS)
                raise InputError(f"`{file}`: {name!r} is not an option; options are {known}.")
            if value is not None:
                values[name] = read_value(value, hints[name], f"`{file}`: {name}")
    for name, hint in hints.items():
        if name in options:
            values[name] = _read_flag(getattr(options, name), name, hint, values.get(name, {}))
    _set_entries(values, options.set, hints)
    return RunOptions(values, configs)


def _read_flag(given: Any, name: str, hint: Any, before: Mapping[str, Any]) -> Any:
    """Return the value of a flag; entries NAME=VALUE are added to those of a file."""
    if matches(hint, {}):
        return read_entries(given, _flag(name), parse=name not in _KEPT_AS_TEXT, before=before)
    given = tuple(given) if isinstance(given, list) else given
    return read_value(given, hint, "DATA" if name == "data" else _flag(name))


def _option_types(group: type) -> dict[str, Any]:
    """Return the type of each field without None, which stands for an option that is not given."""
    hints = get_type_hints(group).items()
    given = {name: [kind for kind in alternatives(hint) if kind is not type(None)] for name, hint in hints}
    return {name: reduce(or_, kinds) for name, kinds in given.items()}


def _set_entries(values: dict[str, Any], entries: Iterable[str], hints: Mapping[str, Any]) -> None:
    for entry in entries:
        path, equals, text = entry.partition("=")
        name, _, key = path.partition(".")
        name = name.replace("-", "_")
        hint = hints.get(name)
        if not equals or not key or hint is None or not matches(hint, {}):
            objects = ", ".join(name for name, hint in hints.items() if matches(hint, {}))
            raise InputError(f"--set must look like NAME.KEY=VALUE with a NAME among {objects}; got {entry!r}.")
        value = text if name in _KEPT_AS_TEXT else read_value(text, Any, f"--set {path}")
        values[name] = _with_entry(dict(values.get(name, {})), key.split("."), value)


def _with_entry(content: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = keys
    inner = content.get(first)
    content[first] = _with_entry(dict(inner) if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    return content


def _read_config(file: Path) -> Mapping[str, Any]:
    content = read_yaml(file.read_text(encoding="utf-8"), f"`{file}`")
    if content is None:
        return {}
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise InputError(f"`{file}` must hold options by name, such as 'epochs: 5'.")
    return content


def _field_help(group: type) -> dict[str, str]:
    """Return the help of each field, from the Args section of the docstring."""
    section = (getdoc(group) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    for names, content in re.findall(r"^ {4}([\w, ]+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
        text = " ".join(content.split()).replace("``", "").rstrip(".")
        found |= dict.fromkeys(names.split(", "), text)
    return found

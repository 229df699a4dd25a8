"""An experiment: its description in YAML, and the outcome that its study returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shortlist.errors import InputError
from shortlist.evidence.verdicts import Finding
from shortlist.extras import require
from shortlist.train.comparison import Interval

SCALES = ("small", "paper")
_KEYS = {"title": str, "publication": str, "item": str, "claim": int}
_OPTIONAL_KEYS = {
    "study": str,
    "small": dict,
    "paper": dict,
    "claims": list,
    "mechanisms": dict,
    "published": dict,
    "not_decidable": str,
}
_SCALE_KEYS = {"minutes": (int, float), "files": list, "settings": dict}

Cell = str | float | int | Interval | None


@dataclass(frozen=True)
class Scale:
    """How an experiment is run.

    Args:
        settings: the arguments of the study.
        files: what the study reads, as paths below the data root.
        minutes: the duration on two cores, for estimating the remaining time; 0 if unknown.
    """

    settings: Mapping[str, Any]
    files: tuple[str, ...] = ()
    minutes: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """A published table or figure.

    Args:
        name: the name of its file.
        title: one line.
        publication: the key of the paper in ``claims.json``.
        item: which table or figure of the paper.
        claim: the number of the claim that it supports.
        study: ``module:function`` in the folder of the experiments.
        published: numbers of the paper, in the form that the study expects.
        scales: ``small`` and, if the paper had such an experiment, ``paper``.
        claims: what the paper states: ``text`` and ``published``, and whatever the study needs to decide it. Studies
            may also make their claims themselves.
        mechanisms: by the text of a claim that does not hold everywhere, why: one sentence that results support.
        not_decidable: why nothing that can be run here would decide the claims; then there is no study.
    """

    name: str
    title: str
    publication: str
    item: str
    claim: int
    study: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Scale] = field(default_factory=dict)
    claims: Sequence[Mapping[str, Any]] = ()
    mechanisms: Mapping[str, str] = field(default_factory=dict)
    not_decidable: str = ""


def read_experiments(folder: str | Path) -> dict[str, Experiment]:
    """All experiments in a folder by name, ordered by claim.

    Raises:
        InputError: if the folder contains no experiments, or a file does not describe one.
    """
    files = sorted(Path(folder).glob("*.yaml"))
    if not files:
        raise InputError(f"`{folder}` holds no experiments (*.yaml); they come with the source code of shortlist.")
    found = [_read(path) for path in files]
    return {each.name: each for each in sorted(found, key=lambda each: (each.claim, natural_order(each.name)))}


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """A sort key that puts table 10 after table 9.

    Example:
        >>> sorted(["dft-table-10", "dft-table-9", "dft-figure-6"], key=natural_order)
        ['dft-figure-6', 'dft-table-9', 'dft-table-10']
    """
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.replace(".", "-").split("-")]


def _read(path: Path) -> Experiment:
    yaml = require("yaml", extra="train")
    try:
        # libyaml is much faster, if it is installed.
        content = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}.") from error
    _check(path, content, {**_KEYS, **_OPTIONAL_KEYS}, required=tuple(_KEYS))
    if "not_decidable" not in content:
        _check(path, content, {**_KEYS, **_OPTIONAL_KEYS}, required=("study", "small"))
        if content["study"].count(":") != 1:
            raise InputError(f"`{path}`: `study` must be module:function; got {content['study']!r}.")
    scales = {name: _scale(path, content.pop(name)) for name in SCALES if name in content}
    for claim in content.get("claims", ()):
        if not isinstance(claim, dict) or not all(isinstance(claim.get(key), str) for key in ("text", "published")):
            raise InputError(
                f"`{path}`: each of `claims` must have the texts `text` and `published`; got {claim!r:.60}."
            )
    return Experiment(name=path.stem, scales=scales, **content)


def _scale(path: Path, content: Any) -> Scale:
    _check(path, content, _SCALE_KEYS, required=("settings",))
    return Scale(content["settings"], tuple(content.get("files", ())), float(content.get("minutes", 0)))


def _check(path: Path, content: Any, types: Mapping[str, Any], *, required: tuple[str, ...]) -> None:
    if not isinstance(content, dict):
        raise InputError(f"`{path}` must contain keys and values; got {type(content).__name__}.")
    for key in required:
        if key not in content:
            raise InputError(f"`{path}`: `{key}` is missing.")
    for key, value in content.items():
        if key not in types:
            raise InputError(f"`{path}`: keys must be among {', '.join(types)}; got {key!r}.")
        if not isinstance(value, types[key]):
            raise InputError(f"`{path}`: `{key}` has the wrong type; got {value!r:.60}.")


@dataclass(frozen=True)
class Claim:
    """A claim and its verdicts.

    Args:
        text: the claim in one sentence, in our own words.
        published: the paper's numbers, in a few words.
        finding: what was found with options tuned for each candidate, or by a computation that needs none.
        paper: what was found with the paper's own recipe.
        ours: whether the statement is not the paper's: about our own speed, or a control of ours.
    """

    text: str
    published: str
    finding: Finding | None
    paper: Finding | None = None
    ours: bool = False


@dataclass(frozen=True)
class Table:
    """A table of an outcome.

    Args:
        title: what it shows, with the unit.
        columns: the headings; the first one is for the row names.
        rows: cells. An `Interval` is written as mean ± half-width, None as a dash, an integer unchanged.
        percent: other numbers are fractions, written as percentages.
        digits: how many decimals.
        note: one sentence below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    percent: bool = False
    digits: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"`rows` of {self.title!r} must have {len(self.columns)} cells; got {len(row)}.")


@dataclass(frozen=True)
class Figure:
    """A figure that the study wrote.

    Args:
        file: its name in the experiment's figure folder.
        caption: what it shows, in one or two sentences.
    """

    file: str
    caption: str


@dataclass(frozen=True)
class Outcome:
    """What a study returns.

    Args:
        setup: one paragraph: data, model, budget, seeds, and how hyperparameters were chosen.
        claims, tables, figures: the results.
        tried: what was tried before a negative verdict; one sentence each.
        values: the numbers of every seed as plain values, for further analysis.
    """

    setup: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    tried: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; intervals as ``{"mean", "half_width"}``."""
        return asdict(self)

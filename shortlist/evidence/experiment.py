"""An experiment as its YAML file describes it: what was published, and how to run it at two scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.extras import require

SCALES = ("small", "paper")
_KEYS = {"title": str, "text": str, "item": str, "claim": int, "study": str, "small": dict, "paper": dict}
_SCALE_KEYS = {"minutes": (int, float), "files": list, "settings": dict}


@dataclass(frozen=True)
class Scale:
    """How an experiment is run.

    Args:
        settings: what the study takes.
        files: what must be there, as paths below the data root.
        minutes: how long it takes on two cores, for the time that is left; 0 where nobody has measured it.
    """

    settings: Mapping[str, Any]
    files: tuple[str, ...] = ()
    minutes: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """A published table or figure.

    Args:
        name: of its file.
        title: one line.
        text: the key of the text in which it was published.
        item: which table or figure of it.
        claim: the number of the claim that it is evidence for.
        study: ``module:function`` below the folder of the experiments.
        published: figures of the text, in the form that the study wants.
        scales: ``small`` and ``paper``.
    """

    name: str
    title: str
    text: str
    item: str
    claim: int
    study: str
    published: Mapping[str, Any]
    scales: Mapping[str, Scale]


def read_experiments(folder: str | Path) -> dict[str, Experiment]:
    """All experiments of a folder, by name, in the order of the claims.

    Raises:
        ValueError: if there is no such folder, or a file does not describe an experiment.
    """
    files = sorted(Path(folder).glob("*.yaml"))
    if not files:
        raise ValueError(f"`{folder}` holds no experiments (*.yaml); they come with the source of shortlist.")
    found = [_read(path) for path in files]
    return {each.name: each for each in sorted(found, key=lambda each: (each.claim, natural_order(each.name)))}


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """A key to sort names by, in which table 10 comes after table 9.

    Example:
        >>> sorted(["dft-table-10", "dft-table-9", "dft-figure-6"], key=natural_order)
        ['dft-figure-6', 'dft-table-9', 'dft-table-10']
    """
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.replace(".", "-").split("-")]


def _read(path: Path) -> Experiment:
    yaml = require("yaml", extra="train")
    try:
        # By libyaml, which is much faster, where it is installed.
        content = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"`{path}` cannot be read: {' '.join(str(error).split())}.") from error
    _check(path, content, _KEYS, needed=tuple(_KEYS), also=("published",))
    if content["study"].count(":") != 1:
        raise ValueError(f"`{path}`: `study` must be module:function; got {content['study']!r}.")
    scales = {name: _scale(path, content.pop(name)) for name in SCALES}
    return Experiment(name=path.stem, scales=scales, **{"published": {}, **content})


def _scale(path: Path, content: Any) -> Scale:
    _check(path, content, _SCALE_KEYS, needed=("settings",))
    return Scale(content["settings"], tuple(content.get("files", ())), float(content.get("minutes", 0)))


def _check(
    path: Path, content: Any, kinds: Mapping[str, Any], *, needed: tuple[str, ...], also: tuple[str, ...] = ()
) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"`{path}` must hold keys and values; got {type(content).__name__}.")
    for key in needed:
        if key not in content:
            raise ValueError(f"`{path}`: `{key}` is missing.")
    for key, value in content.items():
        if key not in kinds and key not in also:
            raise ValueError(f"`{path}`: keys must be among {', '.join((*kinds, *also))}; got {key!r}.")
        if key in kinds and not isinstance(value, kinds[key]):
            raise ValueError(f"`{path}`: `{key}` is of the wrong type; got {value!r:.60}.")

"""The document of a comparison, read and checked before anything is drawn of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shortlist.files import read_document
from shortlist.report.document_shape import (
    anything,
    chosen_by,
    count,
    list_of,
    map_of,
    number,
    one_of,
    or_null,
    positive,
    record,
    share,
    shown,
    text,
)

FILE_NAME = "comparison.json"
_FORMAT = "shortlist comparison"
_VERSION = 2

_BY_K = record(
    average_size=number,
    error=share,
    empty=share,
    top_error=or_null(share),
    error_by_shot=map_of(or_null(share)),
    top_error_by_shot=or_null(map_of(or_null(share))),
    histogram=map_of(list_of(number)),
)
_FINDINGS = record(
    curves=record(sizes=list_of(number), errors=map_of(list_of(or_null(share)))),
    by_k=list_of(_BY_K),
    classes=record(count=list_of(count), accuracy=list_of(or_null(share))),
    calibration=record(
        bins=list_of(record(predicted=or_null(number), observed=or_null(number), pairs=count)), error=or_null(number)
    ),
)
_RUN = record(
    seed=count,
    values=map_of(or_null(number)),
    best_epoch=or_null(number),
    seconds=or_null(number),
    monitor=or_null(text),
    history=list_of(map_of(or_null(number))),
    sets=_FINDINGS,
)
_AUDIT = record(
    mode=one_of("sign", "top-k"),
    sets=count,
    argmaxable=count,
    unargmaxable=count,
    undecided=count,
    labels=count,
    features=count,
    by_size=list_of(record(size=count, argmaxable=count, unargmaxable=count, undecided=count)),
    worst=list_of(list_of(text)),
)
_CANDIDATE = record(
    about=text,
    options=map_of(anything),
    intervals=map_of(record(mean=or_null(number), half_width=or_null(number))),
    runs=list_of(_RUN, least=1),
    audit=or_null(_AUDIT),
)
_INPUT = chosen_by(
    "kind", {"text": record(text=text), "image": record(png=text), "features": record(values=list_of(or_null(number)))}
)
_EXAMPLE = record(
    row=count,
    input=_INPUT,
    truth=list_of(text),
    answers=map_of(record(labels=list_of(text), scores=list_of(or_null(number)), sizes=list_of(count))),
)
_DOCUMENT = record(
    made=record(shortlist=text, torch=text, python=text, date=text, seconds=number),
    commands=list_of(text),
    data=record(
        name=text,
        kind=text,
        task=one_of("one class", "sets"),
        labels=count,
        labels_per_row=number,
        parts=map_of(count),
        evaluated=text,
        shots=list_of(record(name=text, about=text, labels=count, rows=count)),
    ),
    k=positive,
    ks=list_of(positive, least=1),
    target=text,
    figures=list_of(record(name=text, better=one_of("lower", "higher", None)), least=1),
    best=map_of(list_of(text, least=1)),
    optimum=or_null(record(values=map_of(or_null(number)), sets=_FINDINGS)),
    candidates=map_of(_CANDIDATE, least=1),
    examples=list_of(_EXAMPLE),
)


def comparison_file(path: str | Path) -> Path:
    """The document in a folder; a path that is no folder is the document itself.

    Raises:
        ValueError: one sentence, when the folder is not there or holds no document.
    """
    path = Path(path)
    if path.is_dir():
        file = path / FILE_NAME
        if not file.is_file():
            raise ValueError(f"`{path}` holds no {FILE_NAME}; `shortlist compare --output {path}` writes one.")
        return file
    if not path.exists():
        raise ValueError(f"`{path}` is not there.")
    return path


def read_comparison(path: str | Path) -> dict[str, Any]:
    """Read a comparison and check every part of it that a report uses.

    Args:
        path: the folder that ``shortlist compare --output`` wrote, or the ``comparison.json`` in it.

    Returns:
        The document: plain dicts, lists, text and finite numbers; None for a number that is not there.

    Raises:
        ValueError: one sentence with file and key, when something is missing, of the wrong type, or contradicts the
            rest of the document.
    """
    file = comparison_file(path)
    document = read_document(file, kind=_FORMAT, version=_VERSION)
    try:
        _DOCUMENT(document, "")
        _check_names(document)
        _check_lengths(document)
    except ValueError as error:
        raise ValueError(f"`{file}` is damaged: {error}") from error
    return document


def _check_names(document: dict[str, Any]) -> None:
    """Names that point to other parts of the document must be found there."""
    figures = [figure["name"] for figure in document["figures"]]
    candidates = document["candidates"]
    _among(document["target"], figures, "target")
    for figure, names in document["best"].items():
        _among(figure, figures, "best")
        for name in names:
            _among(name, candidates, f"best.{figure}")
    if document["target"] not in document["best"]:
        raise ValueError(f"best.{document['target']} is missing.")
    for name, candidate in candidates.items():
        for figure in figures:
            if figure not in candidate["intervals"]:
                raise ValueError(f"candidates.{name}.intervals.{figure} is missing.")
        for figure, names in document["best"].items():
            if name in names and candidate["intervals"][figure]["mean"] is None:
                raise ValueError(f"candidates.{name}.intervals.{figure}.mean must be a number; it is among the best.")
    for place, example in enumerate(document["examples"]):
        for name in example["answers"]:
            _among(name, candidates, f"examples[{place}].answers")
    _among(document["data"]["evaluated"], document["data"]["parts"], "data.evaluated")


def _check_lengths(document: dict[str, Any]) -> None:
    """Lists that run side by side must be of one length."""
    ks, labels = document["ks"], document["data"]["labels"]
    if document["k"] not in ks:
        raise ValueError(f"ks must hold k, {document['k']}.")
    if ks != sorted(set(ks)):
        raise ValueError("ks must rise from entry to entry.")
    found = [("optimum.sets", document["optimum"]["sets"])] if document["optimum"] is not None else []
    for name, candidate in document["candidates"].items():
        found += [(f"candidates.{name}.runs[{i}].sets", run["sets"]) for i, run in enumerate(candidate["runs"])]
    for key, sets in found:
        _as_long(sets["by_k"], ks, f"{key}.by_k", "ks")
        for rule, errors in sets["curves"]["errors"].items():
            _as_long(errors, sets["curves"]["sizes"], f"{key}.curves.errors.{rule}", f"{key}.curves.sizes")
        for part in ("count", "accuracy"):
            if len(sets["classes"][part]) != labels:
                raise ValueError(
                    f"{key}.classes.{part} must have one entry for each of {labels} labels; "
                    f"got {len(sets['classes'][part])}."
                )
        for place, entry in enumerate(sets["by_k"]):
            if "all" not in entry["histogram"]:
                raise ValueError(f"{key}.by_k[{place}].histogram.all is missing.")
    for place, example in enumerate(document["examples"]):
        for name, answer in example["answers"].items():
            key = f"examples[{place}].answers.{name}"
            _as_long(answer["scores"], answer["labels"], f"{key}.scores", "labels")
            _as_long(answer["sizes"], ks, f"{key}.sizes", "ks")


def _among(name: str, known: Sequence[str] | dict[str, Any], key: str) -> None:
    if name not in known:
        raise ValueError(f"{key} names {shown(name)}, which is not among {', '.join(list(known)[:12])}.")


def _as_long(entries: Sequence[Any], others: Sequence[Any], key: str, other: str) -> None:
    if len(entries) != len(others):
        raise ValueError(f"{key} must be as long as {other}, {len(others)}; got {len(entries)}.")

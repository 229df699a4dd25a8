"""Scores of a saved model on new data, computed in blocks like those of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.data import Dataset, Features, Inputs, SparseRows
from shortlist.data.target_rows import sparse_targets
from shortlist.data.unlabelled import InputBlock, UnlabelledRows
from shortlist.errors import InputError
from shortlist.factory import loss_class
from shortlist.fingerprint import digest_values, file_state
from shortlist.predict.model_data import (
    Unseen,
    open_labelled,
    open_unlabelled,
    part_rows,
    rows_of,
    targets_by_name,
    text_rows,
)
from shortlist.predict.restricted_scores import with_absent_labels
from shortlist.predict.scores import ScoreBlock, Scores, rows_per_block
from shortlist.train import SavedModel, load_model
from shortlist.train.data_source import DataSource, saved_source, with_classes

# Rows of a block; fewer for images, which take long, so that the progress moves.
_ROWS, _IMAGES = 1024, 128
# About this many input values pass through a network at a time; an image has many.
_VALUES = 1 << 20
# A product of fewer rows than this takes another path in the libraries of linear algebra, which rounds differently:
# batches are filled up, so that a row scores the same alone, in a file, and among the requests of a service.
_EVEN, _EVEN_IMAGES = 8, 4
# Up to this many scores are kept if they are read more than once, because a network takes its time.
_MOST_KEPT = 1 << 26


class ModelScores(NamedTuple):
    """The scores of a model.

    Attributes:
        scores: logits.
        rule_file: the model's own rule; None if it has none.
        link: how logits become probabilities that can be compared between rows.
        target: the true labels, numbered as in the model; None if they were not asked for.
        unseen: labels of the data that the model does not know, and in how many rows each occurs.
    """

    scores: Scores
    rule_file: Path | None
    link: str
    target: Tensor | None = None
    unseen: Mapping[str, int] = MappingProxyType({})


def open_model(
    folder: str | Path,
    data: str | None = None,
    *,
    texts: Sequence[str] | None = None,
    labelled: bool = False,
    unseen: Unseen = "refuse",
    part: str | None = None,
    usual_part: str = "test",
    format: str | None = None,
    reader: Mapping[str, Any] | None = None,
    id_column: str | None = None,
    calibrated: bool = True,
) -> ModelScores:
    """Open the scores that a saved model gives new data.

    Args:
        folder: of a model that `shortlist.train.save_model` wrote.
        data: a path, or the name of a dataset inside a package. Without labels also a table with the columns of
            training, text line by line, features alone, an image or a folder of images.
        texts: the texts to score, instead of ``data``.
        labelled: whether to read the true labels, too. Then the rows are those of ``usual_part`` by default, or all
            rows of data without parts.
        unseen: what becomes of labels that the model does not know. ``refuse`` them; ``miss`` appends them to the
            model's own, with scores of -inf, so that they count as missed in every metric; ``drop`` leaves them out,
            and rows whose class is one.
        part: the part of the data; all rows by default.
        usual_part: the default of ``part`` with ``labelled``.
        format: of the data, one of ``shortlist.data.opening.FORMATS``; by default that of training or what the path
            tells.
        reader: options of the reader that override those of training.
        id_column: the column of a table that holds the ids of rows; only without ``labelled`` and ``part``.
        calibrated: whether the model's calibration, if it has one, is applied.

    Returns:
        Scores that are computed when their blocks are iterated.

    Raises:
        InputError: names what does not match, such as a label that the model does not know; when scores are read, the
            file and the row.
    """
    saved = load_model(folder)
    saved = saved if calibrated else replace(saved, calibrator=None)
    source, options = saved_source(saved, folder), dict(reader or {})
    target, new = None, {}
    if (data is None) == (texts is None):
        raise ValueError("either `data` or `texts` must be given.")
    if texts is not None or data is None:
        if source.kind != "text" or labelled:
            raise InputError(f"`{folder}` takes {source.kind}, not texts.")
        rows = text_rows(texts or ())
    elif labelled:
        dataset = open_labelled(data, source, format=format, reader=options)
        part = _part_or_usual(dataset, part, usual_part, data)
        numbers = torch.arange(len(dataset)) if part is None else part_rows(dataset, part, data)
        if not len(numbers):
            raise InputError(f"`{data}` holds no rows in the part {part!r}.")
        dataset = with_classes(dataset) if source.one_class else dataset
        known = targets_by_name(dataset, numbers, saved, unseen, data=data, folder=str(folder))
        target, new = known.target, known.unseen
        rows = rows_of(dataset, data, rows=None if part is None and not new else known.rows)
    elif part is None:
        rows = open_unlabelled(data, source, format=format, reader=options, id_column=id_column)
    else:
        if id_column is not None:
            raise InputError(f"rows of the part {part!r} are numbered; leave out the id column {id_column!r}.")
        if "label_names" in source.reader:
            options = {"label_names": None, **options}  # Labels are not used, so none is refused.
        dataset = open_labelled(data, source, format=format, reader=options)
        rows = rows_of(dataset, data, rows=part_rows(dataset, part, data))

    def fingerprint(exclude: Iterable[Path]) -> dict[str, Any]:
        given = {"part": part, "format": format, "reader": repr(reader), "id": id_column}
        what = (
            digest_values(list(texts)) if data is None and texts is not None else file_state(str(data), exclude=exclude)
        )
        return {"model": file_state(folder, exclude=exclude), "data": what, **given}

    scores = _scores(saved, rows, source.kind, fingerprint, kept=labelled)
    if unseen == "miss" and new:
        scores = with_absent_labels(scores, list(new))
    rule_file = None if saved.rule is None else Path(folder) / "rule.json"
    return ModelScores(scores, rule_file, loss_class(saved.plan.loss).link, target, new)


def row_scores(saved: SavedModel, inputs: Inputs, source: DataSource) -> Scores:
    """Return the scores of rows in memory, the same numbers as `open_model` gives for these rows in a file.

    Args:
        saved: the model, loaded once for many calls.
        inputs: the rows.
        source: of `saved_source`; names the kind of inputs that the model was trained on.
    """
    rows = UnlabelledRows(
        Path("rows"), lambda: iter([InputBlock(inputs, None, lambda row: f"row {row}")]), lambda: len(inputs)
    )
    return _scores(saved, rows, source.kind, lambda _: {}, kept=False)


def part_scores(
    saved: SavedModel, dataset: Dataset, rows: Tensor, source: DataSource, *, data: str, folder: str, unseen: Unseen
) -> ModelScores:
    """Return the scores and true labels of some rows of an open dataset; they are kept, if they are not too many.

    Args:
        saved: the model.
        dataset, rows: the data and the numbers of the rows.
        source: how the data of the model were read.
        data, folder: names of data and model, for errors.
        unseen: as in `open_model`.
    """
    dataset = with_classes(dataset) if source.one_class else dataset
    known = targets_by_name(dataset, rows, saved, unseen, data=data, folder=folder)
    scores = _scores(saved, rows_of(dataset, data, rows=known.rows), source.kind, lambda _: {}, kept=True)
    return ModelScores(scores, None, loss_class(saved.plan.loss).link, known.target, known.unseen)


def _part_or_usual(dataset: Dataset, part: str | None, usual: str, data: str) -> str | None:
    if not len(dataset):
        raise InputError(f"`{data}` holds no rows.")
    if part is not None or dataset.split is None:
        return part
    if usual not in dataset.split.names:
        raise InputError(f"`{data}` has no part {usual}: choose one of {', '.join(dataset.split.names)}.")
    return usual


def _scores(
    saved: SavedModel,
    rows: UnlabelledRows,
    takes: str,
    fingerprint: Callable[[Iterable[Path]], Mapping[str, Any]],
    *,
    kept: bool,
) -> Scores:
    """Return scores that are computed on demand.

    Args:
        saved: the model.
        rows: what it scores.
        takes: the kind of inputs that it was trained on.
        fingerprint: of model and data.
        kept: whether to keep the scores, if they are few enough, because they are read more than once.
    """
    labels = len(saved.label_names)
    step = min(_IMAGES if takes == "images" else _ROWS, rows_per_block(labels))
    batch_size = max(_EVEN, min(_ROWS, _VALUES // max(1, math.prod(saved.plan.shape))) // _EVEN * _EVEN)
    if saved.plan.kind == "sparse features":
        batch_size = _ROWS

    def read(begin: int) -> Iterator[ScoreBlock]:
        start = 0
        for block in rows.blocks():
            if len(block.inputs) and block.inputs.kind not in (takes, saved.plan.kind):
                raise InputError(f"{block.location(0)}: the model takes {takes}; these are {block.inputs.kind}.")
            for first in range(0, len(block.inputs), step):
                some = slice(first, min(first + step, len(block.inputs)))
                if start < begin:
                    start += some.stop - some.start
                    continue
                inputs = block.inputs.take(torch.arange(some.start, some.stop))
                location = lambda row, first=first, block=block: block.location(first + row)
                scores = _model_scores(saved, inputs, location, batch_size, str(rows.path))
                ids = None if block.ids is None else list(block.ids[some])
                numbers = None if block.numbers is None else block.numbers[some]
                yield ScoreBlock(start, scores, ids, location, numbers)
                start += len(scores)

    done: list[ScoreBlock] = []

    def read_once(begin: int) -> Iterator[ScoreBlock]:
        if done or begin:
            yield from (block for block in done if block.start >= begin) if done else read(begin)
            return
        seen = []
        for block in read(0):
            seen.append(block)
            yield block
        done.extend(seen)

    keeps = kept and rows.count() * labels <= _MOST_KEPT
    return Scores(rows.path, True, labels, saved.label_names, read_once if keeps else read, rows.count, fingerprint)


def _model_scores(
    saved: SavedModel, inputs: Inputs, location: Callable[[int], str], batch_size: int, name: str
) -> Tensor:
    if inputs.kind in ("features", "sparse features"):
        inputs = _finite(inputs, location)
    count, even = len(inputs), _EVEN_IMAGES if inputs.kind == "images" else _EVEN
    if count % even:
        inputs = inputs.take(torch.arange(count + -count % even).clamp(max=count - 1))
    # The model ignores labels, so there are none.
    none = torch.zeros(0, dtype=torch.int64)
    dataset = Dataset(inputs, sparse_targets(none, none, len(inputs), len(saved.label_names)), saved.label_names)
    return saved.scores(dataset, batch_size=batch_size, name=name)[:count]


def _finite(inputs: Inputs, location: Callable[[int], str]) -> Inputs:
    """Return the features in memory; InputError names the first row with one that is NaN or infinite."""
    batch: Tensor = inputs.batch(torch.arange(len(inputs)))
    sparse = batch.layout == torch.sparse_csr
    values = batch.values() if sparse else batch
    wrong = (~values.isfinite()).nonzero()
    if len(wrong):
        first = wrong[0]
        row = int(torch.searchsorted(batch.crow_indices(), first, right=True)[0]) - 1 if sparse else int(first[0])
        raise InputError(f"{location(row)}: features must be finite; got {float(values[tuple(first)]):g}.")
    if sparse:
        return SparseRows(batch.crow_indices(), batch.col_indices(), batch.values(), batch.shape[1])
    return Features(batch)

"""Scores of a saved model on rows of data, in blocks like those of a file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.cli import scores_file
from shortlist.cli.model_data import (
    kept_source,
    open_labelled,
    open_unlabelled,
    part_rows,
    rows_of,
    targets_by_name,
)
from shortlist.cli.model_options import given_reader
from shortlist.cli.scores_file import ScoreBlock, Scores
from shortlist.data import Dataset, Features, Inputs, SparseRows
from shortlist.data.target_rows import sparse_targets
from shortlist.data.unlabelled import UnlabelledRows
from shortlist.recipes import loss_class
from shortlist.train import SavedModel, load_model

# Rows of a block; of images fewer, for they take long and a bar should move.
_ROWS, _IMAGES = 1024, 128
# About this many numbers of inputs go through a network at a time; images have many each.
_NUMBERS = 1 << 20
# Up to this many scores are kept where they are read more than once, for a network takes its time.
_MOST_KEPT = 1 << 26
_TEST = "test"


class LabelledScores(NamedTuple):
    """Scores with the true labels of their rows.

    Attributes:
        scores: logits.
        target: in a form of ``shortlist.targets``, under the numbers of the model.
        link: how logits become scores that compare rows.
        rule_file: of the model; None if it has no rule.
    """

    scores: Scores
    target: Tensor
    link: str
    rule_file: Path | None


def unlabelled_scores(options: argparse.Namespace) -> tuple[Scores, Path | None]:
    """The scores of a model for all that ``--data`` holds, or for a part of it, and the file of the model's own rule.

    Raises:
        ValueError: names what does not fit, and on reading the file and the row.
    """
    saved = load_model(options.scores)
    source, reader = kept_source(saved, options.scores), given_reader(options.reader)
    if options.part is None:
        rows = open_unlabelled(options.data, source, format=options.data_format, reader=reader, id_column=options.id)
    elif options.id is not None:
        raise ValueError(f"--id and --part do not go together: rows of a part have numbers; got {options.id!r}.")
    else:
        if "label_names" in source.reader:
            reader = {"label_names": None, **reader}  # Labels are not used, so that none is refused.
        dataset = open_labelled(options.data, source, format=options.data_format, reader=reader)
        rows = rows_of(dataset, options.data, part=options.part)
    return _scores(saved, rows, source.kind), _rule_file(saved, options.scores)


def labelled_scores(options: argparse.Namespace) -> LabelledScores:
    """The scores of a model for the rows of ``--data`` that it should be measured on, and their labels.

    Those are the part of ``--part``; without it the part test, or all rows of data without parts.

    Raises:
        ValueError: names what does not fit, such as a label that the model does not know.
    """
    saved = load_model(options.scores)
    source, data = kept_source(saved, options.scores), options.data
    dataset = open_labelled(data, source, format=options.data_format, reader=given_reader(options.reader))
    part = options.part
    if not len(dataset):
        raise ValueError(f"`{data}` holds no rows.")
    if part is None and dataset.split is not None:
        if _TEST not in dataset.split.names:
            raise ValueError(f"--part must be one of {', '.join(dataset.split.names)}, the parts of `{data}`.")
        part = _TEST
    rows = torch.arange(len(dataset)) if part is None else part_rows(dataset, part, data)
    if not len(rows):
        raise ValueError(f"`{data}` holds no rows in the part {part!r}.")
    target = targets_by_name(dataset, rows, saved, data=data, folder=options.scores)
    scores = _scores(saved, rows_of(dataset, data, part=part), source.kind, kept=True)
    return LabelledScores(scores, target, loss_class(saved.plan.loss).link, _rule_file(saved, options.scores))


def _rule_file(saved: SavedModel, folder: str) -> Path | None:
    return None if saved.rule is None else Path(folder) / "rule.json"


def _scores(saved: SavedModel, rows: UnlabelledRows, takes: str, *, kept: bool = False) -> Scores:
    """Scores that are computed when they are asked for; ``kept``, if there is room, where they are again.

    Args:
        saved: the model.
        rows: what it answers to.
        takes: the kind of inputs that it was trained on.
        kept: whether they are asked for more than once.
    """
    labels = len(saved.label_names)
    step = max(1, min(_IMAGES if takes == "images" else _ROWS, scores_file.BLOCK // labels))
    batch_size = max(1, min(_ROWS, _NUMBERS // max(1, math.prod(saved.plan.shape))))
    if saved.plan.kind == "sparse features":
        batch_size = _ROWS

    def read(begin: int) -> Iterator[ScoreBlock]:
        start = 0
        for block in rows.blocks():
            if len(block.inputs) and block.inputs.kind not in (takes, saved.plan.kind):
                raise ValueError(f"{block.place(0)}: the model takes {takes}; these are {block.inputs.kind}.")
            for first in range(0, len(block.inputs), step):
                some = slice(first, min(first + step, len(block.inputs)))
                if start < begin:
                    start += some.stop - some.start
                    continue
                inputs = block.inputs.take(torch.arange(some.start, some.stop))
                place = lambda row, first=first, block=block: block.place(first + row)
                scores = _answers(saved, inputs, place, batch_size)
                ids = None if block.ids is None else list(block.ids[some])
                numbers = None if block.numbers is None else block.numbers[some]
                yield ScoreBlock(start, scores, ids, place, numbers)
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
    return Scores(rows.path, True, labels, saved.label_names, read_once if keeps else read, rows.count)


def _answers(saved: SavedModel, inputs: Inputs, place: Callable[[int], str], batch_size: int) -> Tensor:
    if inputs.kind in ("features", "sparse features"):
        inputs = _finite(inputs, place)
    rows = len(inputs)
    # The model does not look at labels, and there are none.
    none = torch.zeros(0, dtype=torch.int64)
    dataset = Dataset(inputs, sparse_targets(none, none, rows, len(saved.label_names)), saved.label_names)
    try:
        return saved.scores(dataset, batch_size=batch_size)
    except ValueError as error:
        raise ValueError(str(error).replace("`dataset`", place(0))) from error


def _finite(inputs: Inputs, place: Callable[[int], str]) -> Inputs:
    """The features in memory; ValueError for the first row with one that is NaN or infinite."""
    batch: Tensor = inputs.batch(torch.arange(len(inputs)))
    sparse = batch.layout == torch.sparse_csr
    values = batch.values() if sparse else batch
    wrong = (~values.isfinite()).nonzero()
    if len(wrong):
        first = wrong[0]
        row = int(torch.searchsorted(batch.crow_indices(), first, right=True)[0]) - 1 if sparse else int(first[0])
        raise ValueError(f"{place(row)}: features must be finite; got {float(values[tuple(first)]):g}.")
    if sparse:
        return SparseRows(batch.crow_indices(), batch.col_indices(), batch.values(), batch.shape[1])
    return Features(batch)

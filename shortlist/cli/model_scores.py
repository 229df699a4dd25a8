"""Scores of a saved model on a dataset, in blocks like those of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from shortlist.cli.scores_file import BLOCK, ScoreBlock, Scores
from shortlist.data import open_dataset


def is_model(path: str | Path) -> bool:
    """Whether a path is a folder with a saved model."""
    return (Path(path) / "model.json").is_file()


def open_model_scores(folder: str | Path, data: str, *, part: str | None, format: str | None) -> Scores:
    """The logits of a model for the rows of a dataset, computed when they are asked for.

    Args:
        folder: of `shortlist fit`.
        data: a path, or a dataset that comes inside a package.
        part: which part of its split; None for all rows.
        format: of the data; None tells it.

    Raises:
        ValueError: names what does not fit.
    """
    from shortlist.train import load_model

    model = load_model(folder)
    dataset = open_dataset(data, format=format)
    dataset = dataset if part is None else dataset.part(part)
    rows_at_once = max(1, BLOCK // len(model.label_names))

    def read() -> Iterator[ScoreBlock]:
        for rows in torch.arange(len(dataset)).split(rows_at_once) if len(dataset) else ():
            start = int(rows[0])
            scores = model.scores(dataset.subset(rows))
            yield ScoreBlock(start, scores, None, lambda row, start=start: f"`{data}` row {start + row}")

    return Scores(Path(folder), True, len(model.label_names), model.label_names, read, lambda: len(dataset))

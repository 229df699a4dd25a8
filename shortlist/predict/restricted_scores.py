"""Scores with labels that cannot be answered: those that a row may not have, and those that a model does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.fingerprint import file_state
from shortlist.predict.files.label_files import read_label_sets
from shortlist.predict.scores import ScoreBlock, Scores


def with_allowed_labels(scores: Scores, path: str | Path) -> Scores:
    r"""Leave each row only its own candidates: all other logits become -inf, so that no rule answers with them.

    Args:
        scores: logits.
        path: the candidates of each row, in the order of the rows; see `read_label_sets`.

    Raises:
        InputError: for probabilities, another number of rows, or a row without candidates.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.predict import tensor_scores
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "allowed.txt").write_text("0 2\n1\n")
        ...     scores = tensor_scores(torch.zeros(2, 3), from_logits=True)
        ...     [block.scores for block in with_allowed_labels(scores, f"{folder}/allowed.txt").blocks()]
        [tensor([[0., -inf, 0.],
                [-inf, 0., -inf]])]
    """
    if not scores.from_logits:
        raise InputError(
            "allowed labels need logits: probabilities would have to be computed again without the others."
        )
    names = None if scores.names is None else list(scores.names)
    sets = read_label_sets(path, scores.num_labels, names=names)
    allowed = [torch.tensor([int(label) for label in labels], dtype=torch.int64) for labels in sets]
    if len(allowed) != scores.num_rows:
        raise InputError(
            f"`{path}` must have one line of allowed labels for each row of `{scores.path}`, {scores.num_rows}; "
            f"got {len(allowed)}."
        )
    for row, labels in enumerate(allowed):
        if not len(labels):
            raise InputError(f"`{path}` must allow at least one label for every row; row {row} has none.")

    def masked(block: ScoreBlock) -> Tensor:
        found = torch.full_like(block.scores, -torch.inf)
        for at, row in enumerate(block.rows):
            found[at, allowed[row]] = block.scores[at, allowed[row]]
        return found

    def fingerprint(exclude: Iterable[Path]) -> Mapping[str, Any]:
        return {**scores.fingerprint(exclude), "allowed": file_state(path, exclude=exclude)}

    return replace(scores, read=_changed(scores, masked), fingerprint=fingerprint)


def with_absent_labels(scores: Scores, names: Sequence[str]) -> Scores:
    """Append labels that no row can be answered with, because the model does not know them."""
    width = scores.num_labels + len(names)

    def padded(block: ScoreBlock) -> Tensor:
        missing = block.scores.new_full((len(block.scores), len(names)), -torch.inf)
        return torch.cat([block.scores, missing], dim=1)

    known = tuple(map(str, range(scores.num_labels))) if scores.names is None else scores.names
    return replace(scores, num_labels=width, names=(*known, *names), read=_changed(scores, padded))


def _changed(scores: Scores, change: Callable[[ScoreBlock], Tensor]) -> Callable[[int], Iterator[ScoreBlock]]:
    def read(start: int) -> Iterator[ScoreBlock]:
        for block in scores.read(start):
            yield block._replace(scores=change(block))

    return read

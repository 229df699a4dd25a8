"""Scores of many rows, read in blocks: from arrays, tables, tensors or a model.

`Scores` is what everything in this package consumes. Memory stays bounded whatever the number of rows, because blocks
hold about four million scores each and are read one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.data.files.text_files import need_file
from shortlist.errors import InputError
from shortlist.fingerprint import Digest, digest_file, digest_values, file_state
from shortlist.predict.files.label_files import read_names
from shortlist.predict.files.matrix_files import ARRAYS, HDF, open_matrix
from shortlist.predict.files.score_tables import TABLES, open_score_table
from shortlist.progress import progress_bar

BLOCK_SCORES = 1 << 22
"""About this many scores are in memory at a time, whatever the number of labels."""
_MOST_ROWS = 1 << 15
# Averages of several models may exceed 1 by rounding.
_ROUNDING = 1e-6
SCORE_FILES = (*ARRAYS, *HDF, *TABLES)
"""The suffixes of files that `open_scores` reads; text tables may be compressed, with ``.gz`` or ``.xz`` appended."""

Fingerprint = Callable[[Iterable[Path]], Mapping[str, Any]]


class ScoreBlock(NamedTuple):
    """Consecutive rows of scores.

    Attributes:
        start: the number of the first row.
        scores: ``(rows, labels)``, floating.
        ids: of the rows, or None.
        location: names the file and a row of the block, for errors.
        numbers: of the rows in their file, where only some of them are read.
        given: what rows bring besides their scores, by the keyword of a rule, such as ``groups``.
    """

    start: int
    scores: Tensor
    ids: list[str] | None
    location: Callable[[int], str]
    numbers: Sequence[int] | None = None
    given: Mapping[str, Any] = MappingProxyType({})

    @property
    def rows(self) -> range:
        """The numbers of the rows among all that are read."""
        return range(self.start, self.start + len(self.scores))


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores that have not been read yet; made by `open_scores`, `tensor_scores` or `open_model`.

    Args:
        path: of the file, for errors.
        from_logits: whether they are logits; otherwise they are probabilities, which is checked.
        num_labels: the number of labels.
        names: of the labels, or None.
        read: yields the unchecked blocks from a row on; that row must be 0 or the end of an earlier block.
        count: returns the number of rows; for text that takes a pass over the file, so it is called on demand.
        fingerprint: identifies what is read, leaving out the given files; see `shortlist.fingerprint`.
    """

    path: Path
    from_logits: bool
    num_labels: int
    names: tuple[str, ...] | None
    read: Callable[[int], Iterator[ScoreBlock]]
    count: Callable[[], int]
    fingerprint: Fingerprint

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, at least 1."""
        rows = self.count()
        if rows == 0:
            raise InputError(f"`{self.path}` holds no rows.")
        return rows

    def blocks(self, start: int = 0) -> Iterator[ScoreBlock]:
        """Yield the rows in order, from ``start`` on, which must be 0 or the end of a block.

        Raises:
            InputError: names the file and the row of a score that is NaN or infinite (``-inf`` marks an absent label),
                or of a probability outside [0, 1].
        """
        block = None
        try:
            for block in self.read(start):
                _check_values(block, self.from_logits)
                yield block
        except OSError as error:
            raise InputError(f"`{self.path}` cannot be read: {error.strerror or error}.") from error
        if block is None and start == 0:
            raise InputError(f"`{self.path}` holds no rows.")

    def whole(self) -> tuple[Tensor, list[str] | None]:
        """All scores in memory, ``(rows, labels)``, and the ids of the rows.

        Example:
            >>> tensor_scores(torch.tensor([[0.75, 0.25]]), from_logits=False).whole()
            (tensor([[0.7500, 0.2500]]), None)
        """
        blocks = list(self.blocks())
        ids = [each for block in blocks for each in block.ids or ()]
        return torch.cat([block.scores for block in blocks]), ids or None

    @contextmanager
    def progress(self, description: str, *, start: int = 0, shown: bool = True) -> Iterator[Iterator[ScoreBlock]]:
        """Yield `blocks` while the progress in rows is shown on standard error.

        Args:
            description: what is being done.
            start: the first row.
            shown: False to show nothing.
        """
        with progress_bar(description, completed=start, unit="rows", shown=shown) as bar:

            def advancing() -> Iterator[ScoreBlock]:
                for block in self.blocks(start):
                    yield block
                    if shown:  # The total may take a pass over the file.
                        bar.update(block.rows.stop, self.num_rows)

            yield advancing()


def open_scores(
    path: str | Path,
    *,
    from_logits: bool,
    key: str | None = None,
    id_column: str | None = None,
    names: str | Path | None = None,
) -> Scores:
    r"""Open a file of scores, a row per example and a column per label.

    Args:
        path: ``.npy``, ``.npz``, ``.safetensors`` or ``.h5`` with a floating-point matrix; or ``.csv``, ``.tsv``
            (optionally compressed, with ``.gz`` or ``.xz`` appended) or ``.parquet`` whose header names the labels.
        from_logits: whether the scores are logits rather than probabilities; never guessed.
        key: which array of a file with several.
        id_column: the column of a table that holds the ids of rows.
        names: file with the names of the labels, one per line; for a table they must be those of its header.

    Returns:
        Scores that are read when their blocks are iterated.

    Raises:
        InputError: names the file and what is wrong with it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "scores.csv")
        ...     _ = file.write_text("image,daisy,rose,tulip\na.png,0.5,0.25,0.25\nb.png,0,1,0\n")
        ...     scores = open_scores(file, from_logits=False, id_column="image")
        ...     print(scores.num_rows, scores.names)
        ...     print([(block.ids, block.scores.tolist()) for block in scores.blocks()])
        2 ('daisy', 'rose', 'tulip')
        [(['a.png', 'b.png'], [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])]
    """
    path = need_file(path)

    def fingerprint(exclude: Iterable[Path]) -> dict[str, Any]:
        return {
            "scores": file_state(path, exclude=exclude),
            "names": None if names is None else digest_file(names),
            "key": key,
            "id": id_column,
            "logits": from_logits,
        }

    if path.suffix in (*ARRAYS, *HDF):
        if id_column is not None:
            raise InputError(f"`{path}` holds arrays, not a table, so it has no id column {id_column!r}.")
        found = _open_array(path, key, from_logits, fingerprint)
    elif any(suffix in TABLES for suffix in path.suffixes[-2:]):
        if key is not None:
            raise InputError(f"`{path}` is a table, so it has no array {key!r} to choose: leave out the key.")
        found = _open_table(path, id_column, from_logits, fingerprint)
    else:
        raise InputError(f"`{path}` must end in one of {', '.join(SCORE_FILES)}.")
    return found if names is None else _with_names(found, names)


def tensor_scores(
    scores: Tensor, *, from_logits: bool, names: Sequence[str] | None = None, ids: Sequence[str] | None = None
) -> Scores:
    """Wrap a matrix of scores in memory, so that everything here takes it like a file.

    Args:
        scores: ``(rows, labels)``, floating.
        from_logits: whether they are logits rather than probabilities.
        names: of the labels, or None.
        ids: of the rows, or None.

    Example:
        >>> scores = tensor_scores(torch.tensor([[0.75, 0.25]]), from_logits=False, names=["daisy", "rose"])
        >>> scores.num_rows, scores.num_labels
        (1, 2)
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise ValueError(f"`scores` must be a floating-point matrix; got {scores.dtype} of {tuple(scores.shape)}.")
    for name, given, size in (("names", names, scores.shape[1]), ("ids", ids, scores.shape[0])):
        if given is not None and len(given) != size:
            raise ValueError(f"`{name}` must have {size} entries; got {len(given)}.")
    step = rows_per_block(scores.shape[1])

    def read(start: int) -> Iterator[ScoreBlock]:
        for first in range(start, len(scores), step):
            some = slice(first, first + step)
            block_ids = None if ids is None else list(ids[some])
            yield ScoreBlock(first, scores[some], block_ids, lambda row, first=first: f"`scores` row {first + row}")

    def fingerprint(exclude: Iterable[Path]) -> dict[str, Any]:
        found = Digest(
            f"{scores.dtype} {tuple(scores.shape)} {digest_values([names and list(names), ids and list(ids)])}"
        )
        found.update(scores.contiguous().flatten().view(torch.uint8).numpy().data)
        return {"scores": found.hex(), "logits": from_logits}

    label_names = None if names is None else tuple(names)
    return Scores(Path("scores"), from_logits, scores.shape[1], label_names, read, lambda: len(scores), fingerprint)


def rows_per_block(num_labels: int) -> int:
    """Return how many rows of that many scores are read at a time."""
    return max(1, min(_MOST_ROWS, BLOCK_SCORES // num_labels))


def _with_names(scores: Scores, file: str | Path) -> Scores:
    names = tuple(read_names(file))
    if len(names) != scores.num_labels:
        raise InputError(
            f"`{file}` must name each of the {scores.num_labels} labels of `{scores.path}`; it names {len(names)}."
        )
    for own, other in zip(scores.names or names, names, strict=True):
        if own != other:
            raise InputError(
                f"`{file}` must have the names of the header of `{scores.path}`; {other!r} differs from {own!r}."
            )
    return replace(scores, names=names)


def _open_array(path: Path, key: str | None, from_logits: bool, fingerprint: Fingerprint) -> Scores:
    matrix = open_matrix(path, key)
    rows, labels = matrix.shape

    def read(start: int) -> Iterator[ScoreBlock]:
        for block in matrix.read(start, rows_per_block(labels)):
            yield ScoreBlock(start, block, None, lambda row, start=start: f"{matrix.location} row {start + row}")
            start += len(block)

    return Scores(path, from_logits, labels, None, read, lambda: rows, fingerprint)


def _open_table(path: Path, id_column: str | None, from_logits: bool, fingerprint: Fingerprint) -> Scores:
    table = open_score_table(path, id_column)
    names = table.labels

    def read(start: int) -> Iterator[ScoreBlock]:
        for block in table.blocks(start, rows_per_block(len(names))):
            yield ScoreBlock(start, torch.from_numpy(block.values), block.ids, block.location)
            start += len(block.values)

    return Scores(path, from_logits, len(names), names, read, table.count, fingerprint)


def _check_values(block: ScoreBlock, from_logits: bool) -> None:
    # If there is a NaN the maximum is NaN, and every comparison with it is False.
    high = float(block.scores.amax())
    if high < (float("inf") if from_logits else 1 + _ROUNDING) and (from_logits or float(block.scores.amin()) >= 0):
        return
    scores = block.scores.double()
    wrong = ~(scores < torch.inf)
    rule, hint = "scores must not be NaN or infinite", ""
    if not wrong.any() and not from_logits:
        # -inf marks an absent label, among probabilities too.
        wrong = (scores > 1 + _ROUNDING) | ((scores < 0) & (scores > -torch.inf))
        rule, hint = "probabilities must lie in [0, 1]", " (are these logits?)"
    found = wrong.nonzero()
    if len(found):
        row, label = found[0].tolist()
        value = float(scores[row, label])
        raise InputError(f"{block.location(row)}: {rule}; that of label {label} is {value:g}{hint}.")

"""The result of a set rule: one label set per row, best label first, in compressed sparse row (CSR) format."""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.extras import MissingExtraError, require
from shortlist.labels import LabelsLike, Numbers, read_numbers, read_scores, read_target
from shortlist.targets import to_pairs
from shortlist.tensors import solvable

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """One label set per row in CSR format, so memory grows with the size of the sets, not with the number of labels.

    Attributes:
        indptr: ``(rows + 1,)`` int64; the labels of row i are at ``indptr[i]`` up to ``indptr[i + 1]``.
        labels: ``(total,)`` int64, within each row by descending score, equal scores by ascending label.
        scores: ``(total,)`` floating, the score of each label in a set.
        num_labels: n.
        names: label names, or None.
        abstained: ``(rows,)`` bool, which of the empty sets mean that no answer is given; None from rules that always
            answer. Slices and `cat` keep it; unions and intersections drop it.

    Example:
        >>> sets = PredictionSets.from_mask(torch.tensor([[True, False, True], [False, False, True]]))
        >>> sets.sizes
        tensor([2, 1])
        >>> sets.contains(torch.tensor([1, 2]))
        tensor([False,  True])
        >>> sets[0]
        [(0, 1.0), (2, 1.0)]
    """

    indptr: Tensor
    labels: Tensor
    scores: Tensor
    num_labels: int
    names: tuple[str, ...] | None = None
    abstained: Tensor | None = None

    @classmethod
    def from_mask(
        cls, mask: Numbers, scores: Numbers | None = None, *, names: Sequence[str] | None = None
    ) -> PredictionSets:
        """Build from a dense ``(rows, n)`` bool mask; without scores, every label in a set scores 1."""
        mask = read_numbers(mask, name="mask")
        scores = None if scores is None else read_scores(scores)
        if mask.ndim != 2 or mask.dtype != torch.bool:
            raise ValueError(f"`mask` must be bool with 2 dimensions; got {mask.dtype} {tuple(mask.shape)}.")
        if scores is not None and scores.shape != mask.shape:
            raise ValueError(f"`scores` must have the shape of `mask`, {tuple(mask.shape)}; got {tuple(scores.shape)}.")
        mask = mask.cpu()
        rows, labels = mask.nonzero(as_tuple=True)
        values = torch.ones(len(rows)) if scores is None else scores.detach().cpu()[mask]
        return cls.from_entries(rows, labels, values, mask.shape, names=names)

    @classmethod
    def from_entries(
        cls,
        rows: Numbers,
        labels: Numbers,
        scores: Numbers,
        shape: Sequence[int],
        *,
        names: Sequence[str] | None = None,
    ) -> PredictionSets:
        """Build from entries in any order, each at most once; ``shape`` is (rows, labels)."""
        num_rows, num_labels = shape
        rows, labels = (read_numbers(part, name=name).long() for part, name in ((rows, "rows"), (labels, "labels")))
        scores = read_scores(scores)
        for name, values, bound in (("rows", rows, num_rows), ("labels", labels, num_labels)):
            if len(values) and not (int(values.min()) >= 0 and int(values.max()) < bound):
                raise ValueError(f"`{name}` must lie in [0, {bound}); got {int(values.min())} to {int(values.max())}.")
        if names is not None and len(names) != num_labels:
            raise ValueError(f"`names` must have one entry per label, {num_labels}; got {len(names)}.")
        _check_distinct(rows.numpy() * num_labels + labels.numpy())
        counts = torch.bincount(rows, minlength=num_rows)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        found = _best_first(rows, labels, scores, (num_rows, num_labels))
        return cls(indptr, *found, num_labels, None if names is None else tuple(names))

    @classmethod
    def cat(cls, sets: Sequence[PredictionSets]) -> PredictionSets:
        """Concatenate the rows of several batches."""
        if not sets:
            raise ValueError("`sets` must not be empty.")
        first = sets[0]
        for other in sets[1:]:
            _check_same_labels(first, other)
        sizes = torch.cat([batch.sizes for batch in sets])
        indptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        labels = torch.cat([batch.labels for batch in sets])
        scores = torch.cat([batch.scores for batch in sets])
        flags = [batch.abstained for batch in sets if batch.abstained is not None]
        abstained = torch.cat(flags) if len(flags) == len(sets) else None
        return cls(indptr, labels, scores, first.num_labels, first.names, abstained)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __eq__(self, other: object) -> bool:
        """Whether labels, scores, names and abstentions are equal."""
        if not isinstance(other, PredictionSets):
            return NotImplemented
        mine, theirs = ((sets.indptr, sets.labels, sets.scores) for sets in (self, other))
        same = (self.num_labels, self.names) == (other.num_labels, other.names)
        flags = [sets.abstained for sets in (self, other) if sets.abstained is not None]
        same = same and (len(flags) == 0 or (len(flags) == 2 and torch.equal(*flags)))
        return same and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __contains__(self, label: object) -> bool:
        """Raise, because the row is ambiguous."""
        raise TypeError("`in` is ambiguous for several rows; use `contains`, or `in` on the labels of one row.")

    @property
    def sizes(self) -> Tensor:
        """``(rows,)`` int64: the number of labels in each set."""
        return self.indptr.diff()

    @property
    def rows(self) -> Tensor:
        """``(total,)`` int64: the row of each stored label."""
        return torch.repeat_interleave(self.sizes)

    @overload
    def __getitem__(self, index: int) -> list[tuple[int | str, float]]: ...

    @overload
    def __getitem__(self, index: slice) -> PredictionSets: ...

    def __getitem__(self, index: int | slice) -> list[tuple[int | str, float]] | PredictionSets:
        """One row as a list of (label or name, score), best first; for a slice, a `PredictionSets` with those rows."""
        if isinstance(index, slice):
            return self._take(torch.from_numpy(np.arange(len(self))[index].copy()))
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        index %= len(self)
        inside = slice(int(self.indptr[index]), int(self.indptr[index + 1]))
        labels = self.labels[inside].tolist()
        named = labels if self.names is None else [self.names[label] for label in labels]
        return list(zip(named, self.scores[inside].tolist(), strict=True))

    def __iter__(self) -> Iterator[list[tuple[int | str, float]]]:
        return (self[index] for index in range(len(self)))

    def _take(self, rows: Tensor) -> PredictionSets:
        sizes = self.sizes[rows]
        indptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        stored = torch.arange(int(indptr[-1])) + torch.repeat_interleave(self.indptr[rows] - indptr[:-1], sizes)
        abstained = None if self.abstained is None else self.abstained[rows]
        return PredictionSets(indptr, self.labels[stored], self.scores[stored], self.num_labels, self.names, abstained)

    def abstain(self, rows: Numbers) -> PredictionSets:
        """The sets with no answer in the rows where the ``(rows,)`` mask is true, or that already had none.

        Example:
            >>> sets = PredictionSets.from_mask(torch.tensor([[True, False], [True, True]]))
            >>> sets.abstain([True, False]).to_list()
            [[], [0, 1]]
        """
        gone = read_numbers(rows, name="rows").cpu()
        if gone.dtype != torch.bool or gone.shape != (len(self),):
            raise ValueError(f"`rows` must be bool of shape ({len(self)},); got {gone.dtype} {tuple(gone.shape)}.")
        gone = gone if self.abstained is None else gone | self.abstained
        kept, sizes = ~gone[self.rows], self.sizes * ~gone
        indptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return PredictionSets(indptr, self.labels[kept], self.scores[kept], self.num_labels, self.names, gone)

    def contains(self, labels: LabelsLike) -> Tensor:
        """``(rows,)`` bool: whether all labels of a row are in its set.

        Labels are in a form of ``shortlist.targets``, as a tensor or of numpy, scipy, pandas, polars or Python.
        """
        rows, wanted = self._pairs(labels)
        return self._hits(rows, wanted) == torch.bincount(rows, minlength=len(self))

    def count_hits(self, labels: LabelsLike) -> Tensor:
        """``(rows,)`` int64: how many labels of the row, in a form of `contains`, are in its set."""
        return self._hits(*self._pairs(labels))

    def _pairs(self, labels: LabelsLike) -> tuple[Tensor, Tensor]:
        labels = read_target(labels, self.num_labels, name="labels")
        pairs = to_pairs(labels.cpu(), self.num_labels, name="labels")
        if labels.shape[0] != len(self):
            raise ValueError(f"`labels` must have one row per set, {len(self)}; got {labels.shape[0]}.")
        return pairs

    def _hits(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Look up labels among the stored ones, encoding each (row, label) pair as one number."""
        stored = (self.rows * self.num_labels + self.labels).sort().values
        found = torch.zeros(len(self), dtype=torch.int64)
        if not len(stored):
            return found
        wanted = rows * self.num_labels + labels
        nearest = stored[torch.searchsorted(stored, wanted).clamp(max=len(stored) - 1)]
        return found.index_add(0, rows, (nearest == wanted).long())

    def to_list(self) -> list[list[int | str]]:
        """The labels of each set as a list of Python integers, or of names if there are any; best label first.

        Example:
            >>> mask = torch.tensor([[True, False, True], [False, False, False]])
            >>> PredictionSets.from_mask(mask).to_list()
            [[0, 2], []]
            >>> PredictionSets.from_mask(mask, names=["cat", "dog", "owl"]).to_list()
            [['cat', 'owl'], []]
        """
        labels, ends = self._named_labels(), self.indptr.tolist()
        return [labels[start:stop] for start, stop in itertools.pairwise(ends)]

    def to_arrow(self) -> pyarrow.Table:
        """A table of Arrow with one row per set and the lists ``labels`` (or names) and ``scores``, best label first.

        Requires pyarrow, which the extra ``data`` installs. `polars.from_arrow` reads it without a copy.

        Example:
            >>> sets = PredictionSets.from_mask(torch.tensor([[True, False, True], [False, False, False]]))
            >>> sets.to_arrow().to_pydict()
            {'labels': [[0, 2], []], 'scores': [[1.0, 1.0], []]}
        """
        arrow = require("pyarrow", extra="data")
        ends = arrow.array(self.indptr.numpy())
        labels = arrow.array(self.labels.numpy()) if self.names is None else arrow.array(self._named_labels(), "string")
        scores = arrow.array(solvable(self.scores).numpy())  # Arrow has no bfloat16
        lists = [arrow.LargeListArray.from_arrays(ends, part) for part in (labels, scores)]
        return arrow.table(lists, names=["labels", "scores"])

    def to_pandas(self) -> pandas.DataFrame:
        """A table of pandas with one row per set and the lists ``labels`` (or names) and ``scores``, best label first.

        Requires pandas. Empty sets keep their row; ``explode(["labels", "scores"])`` makes a row of each label.

        Example:
            >>> sets = PredictionSets.from_mask(torch.tensor([[True, False, True], [False, False, False]]))
            >>> sets.to_pandas()
               labels      scores
            0  [0, 2]  [1.0, 1.0]
            1      []          []
        """
        ends, scores = self.indptr.tolist(), self.scores.tolist()
        lists = {"labels": self.to_list(), "scores": [scores[start:stop] for start, stop in itertools.pairwise(ends)]}
        try:
            return importlib.import_module("pandas").DataFrame(lists)
        except ModuleNotFoundError as error:
            raise MissingExtraError("`pandas` is not installed: run `pip install pandas`.", name="pandas") from error

    def _named_labels(self) -> list[int | str]:
        labels = self.labels.tolist()
        return labels if self.names is None else [self.names[label] for label in labels]

    def to_mask(self) -> Tensor:
        """Dense ``(rows, n)`` bool."""
        mask = torch.zeros(len(self), self.num_labels, dtype=torch.bool)
        mask[self.rows, self.labels] = True
        return mask

    def to_csr(self) -> Tensor:
        """Sparse CSR tensor of the scores, with ascending columns."""
        order = (self.rows * self.num_labels + self.labels).argsort()
        size = (len(self), self.num_labels)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            return torch.sparse_csr_tensor(
                self.indptr, self.labels[order], self.scores[order], size, check_invariants=False
            )

    def __or__(self, other: PredictionSets) -> PredictionSets:
        """Labels in either set; a label in both has the score of the left one."""
        _check_same_rows(self, other)
        fresh = ~self._has(other)
        rows = torch.cat([self.rows, other.rows[fresh]])
        labels = torch.cat([self.labels, other.labels[fresh]])
        scores = torch.cat([self.scores, other.scores[fresh]])
        return PredictionSets.from_entries(rows, labels, scores, (len(self), self.num_labels), names=self.names)

    def __and__(self, other: PredictionSets) -> PredictionSets:
        """Labels in both sets, with the scores of the left one."""
        _check_same_rows(self, other)
        both = other._has(self)
        rows, labels, scores = self.rows[both], self.labels[both], self.scores[both]
        return PredictionSets.from_entries(rows, labels, scores, (len(self), self.num_labels), names=self.names)

    def _has(self, other: PredictionSets) -> Tensor:
        """Mask of the labels of ``other`` that are also in these sets."""
        mine, theirs = (sets.rows * sets.num_labels + sets.labels for sets in (self, other))
        return torch.isin(theirs, mine)


def collect_sets(
    blocks: Iterable[tuple[tuple[Tensor, Tensor, Tensor], int]],
    num_labels: int,
    *,
    most: int,
    names: Sequence[str] | None,
) -> PredictionSets:
    """Build the sets of consecutive blocks of rows.

    Args:
        blocks: for each block, the row (from 0), label and score of the selected labels, and the number of rows.
        num_labels: n.
        most: sort about this many labels at a time, because sorting makes several copies of them.
        names: label names.
    """
    none = torch.zeros(0, dtype=torch.int64)
    waiting, rows, sets = [(none, none, torch.zeros(0))], 0, []
    for (row, labels, scores), count in blocks:
        waiting = waiting if rows else []
        waiting.append((row + rows, labels, scores))
        rows += count
        if sum(len(part[0]) for part in waiting) >= most:
            sets.append(_join(waiting, (rows, num_labels), names))
            waiting, rows = [], 0
    if waiting or not sets:
        sets.append(_join(waiting, (rows, num_labels), names))
    return sets[0] if len(sets) == 1 else PredictionSets.cat(sets)


def _join(parts: list[tuple[Tensor, ...]], shape: Sequence[int], names: Sequence[str] | None) -> PredictionSets:
    rows, labels, scores = (torch.cat(part) for part in zip(*parts, strict=True))
    return PredictionSets.from_entries(rows, labels, scores, shape, names=names)


def _check_distinct(keys: NDArray[np.int64]) -> None:
    """Raise if a number occurs twice."""
    if (keys[1:] > keys[:-1]).all():  # most rules list their entries in ascending order
        return
    keys = np.sort(keys)
    if (keys[1:] == keys[:-1]).any():
        raise ValueError(f"a label must occur once per row; {(keys[1:] == keys[:-1]).sum()} occur twice.")


def _best_first(rows: Tensor, labels: Tensor, scores: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Labels and scores by row, then by descending score, then by ascending label."""
    row_bits, label_bits = ((int(size) - 1).bit_length() for size in shape)
    values = None if scores.dtype == torch.float64 else scores.detach().float().numpy()
    if values is None or row_bits + 32 + label_bits > 63 or np.isnan(values).any():
        # numpy has no bfloat16; negated float64 orders all floating types.
        order = torch.from_numpy(np.lexsort((labels.numpy(), -scores.double().numpy(), rows.numpy())))
        return labels[order], scores[order]
    # All three in one integer, which sorts many times faster than an index. The bits of floats ascend if those of
    # negative ones are flipped; adding 0.0 leaves one zero.
    bits = (values + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    packed = rows.numpy() << 32
    packed += 0x7FFFFFFF - bits.astype(np.int64)
    packed <<= label_bits
    packed |= labels.numpy()
    packed.sort()
    bits = (0x7FFFFFFF - ((packed >> label_bits) & 0xFFFFFFFF)).astype(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    packed &= (1 << label_bits) - 1
    return torch.from_numpy(packed), torch.from_numpy(bits.view(np.float32)).to(scores.dtype)


def _check_same_labels(first: PredictionSets, second: PredictionSets) -> None:
    if first.num_labels != second.num_labels:
        raise ValueError(f"sets must have the same labels; got {first.num_labels} and {second.num_labels}.")
    if first.names is not None and second.names is not None and first.names != second.names:
        raise ValueError("sets must have the same label names, or none; got two lists that differ.")


def _check_same_rows(first: PredictionSets, second: PredictionSets) -> None:
    _check_same_labels(first, second)
    if len(first) != len(second):
        raise ValueError(f"sets must have the same rows; got {len(first)} and {len(second)}.")

"""Sets of k labels on average, with as many labels as each row needs, by an exact order statistic."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.label_axis.processes import ProcessShards, all_max, all_sum
from shortlist.sets.rule import Draw, SetRule
from shortlist.sets.scores import Block, Link, Scores, Selection
from shortlist.tensors import as_written, check_number, on_accelerator

# If the number of rows is unknown, keep this multiple of the number of labels wanted so far.
_RESERVE = 8
# Each round of the search for the m-th largest score over several processes determines this many bits.
_DIGIT_BITS = 4


class AverageK(SetRule):
    r"""All labels whose score reaches one threshold, chosen so that sets have ``k`` labels on average.

    .. math:: \lambda = \tfrac12 \left(s_{[m]} + s_{[m + 1]}\right), \quad m = \lfloor k N \rfloor

    over all :math:`N \times n` scores of the calibration data. No labels are needed. If the scores are the true
    probabilities, no rule with the same average size makes fewer errors.

    If scores tie at the threshold, lower label indices come first. For the one label at which the m-th score is
    reached, an evenly spaced part of the tied rows is selected, in row order. A single call of ``predict`` on the
    calibration data therefore returns exactly m labels, regardless of ties.

    Scores may be a ``DTensor`` sharded along the labels, in all batches of a fit or in none: every process keeps its
    own largest scores, and all processes find the same threshold by counting. Softmax scores of sharded and plain
    logits may differ in the last bit, so if a rule was fitted on one kind and predicts on the other, ties at the
    threshold may be resolved differently.

    Args:
        k: average number of labels, a real number of at least 0. Its decimal value is exact: 0.29 labels for 100 rows
            are 29.
        rows: total number of calibration rows, if known, for fitting in batches.
        link, min_size: as in `SetRule`. ``min_size`` adds labels beyond the average.

    Example:
        >>> from shortlist.sets import AverageK
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> rule = AverageK(1.5).fit(scores, from_logits=False)
        >>> rule.predict(scores).sizes  # one label where one is enough
        tensor([1, 2])

    References:
        Lorieul, "Uncertainty in predictions of deep learning models for fine-grained classification", 2020; Garcin,
        "Set-valued classification", 2023, chapters 2 and 3.
    """

    needs_labels: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True
    threshold_name: ClassVar[str | None] = "threshold"
    threshold: Tensor
    tie_label: Tensor
    tie_taken: Tensor
    tie_count: Tensor

    def __init__(self, k: float, *, rows: int | None = None, link: Link = "softmax", min_size: int = 0) -> None:
        self.k = check_number("k", k, at_least=0.0)
        if rows is not None and (not isinstance(rows, Integral) or rows < 1):
            raise ValueError(f"`rows` must be None or an integer, at least 1; got {rows!r}.")
        self.rows = None if rows is None else int(rows)
        super().__init__(link=link, min_size=min_size)

    def wanted(self, rows: int) -> int:
        """Total number of labels in the sets of ``rows`` rows."""
        return int(as_written(self.k) * rows)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(torch.inf, dtype=torch.float64))
        # Labels with a lower index are in the set if their score equals the threshold.
        self.register_buffer("tie_label", torch.tensor(0))
        self.register_buffer("tie_taken", torch.tensor(0))
        self.register_buffer("tie_count", torch.tensor(1))
        self._largest: LargestScores | None = None
        self._again: Scores | None = None
        self._seen = 0

    def _check_buffers(self, num_labels: int) -> None:
        label, taken, count = int(self.tie_label), int(self.tie_taken), int(self.tie_count)
        if not (0 <= label <= num_labels and 0 <= taken <= count and count >= 1):
            raise ValueError(
                f"of `tie_count` tied rows, at least 1, `tie_taken` must be taken, for a label up to {num_labels}; got "
                f"{count}, {taken} and {label}"
            )

    def _begin_batch(self, scores: Scores) -> None:
        if self._largest is None:
            self._largest = LargestScores(scores.local.shape[-1], scores.shards, scores.local.device)
        # The fit of one batch can be repeated, so its first pass need not count ties nor mark absent labels.
        self._again = scores if scores.stay and self._is_only_batch else None
        if self._largest.is_sharded != (scores.shards is not None):
            raise ValueError("`scores` must be sharded over processes in all batches or in none.")

    @property
    def _is_only_batch(self) -> bool:
        return self._expected is not None and self._rows == 0

    def _doubts_about(self, scores: Scores) -> list[tuple[str, Tensor]]:
        # The largest scores of a single batch tell whether all must be checked.
        return [] if self._is_only_batch else super()._doubts_about(scores)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        self._seen += len(block)
        total = self._expected or self.rows
        keep = self.wanted(total) + 1 if total else _RESERVE * self.wanted(self._seen) + 1024
        if self._largest is None:
            return ()
        if not on_accelerator(block.scores) or self._largest.is_sharded:
            self._largest.add(block.values.numpy(), keep)
        elif self._again is not None:
            self._largest.add_tensor(block.values, keep, count_ties=False)
        else:
            self._largest.add_tensor(block.marked(), keep, count_ties=True)
        return ()

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        if self.rows not in (None, self._rows):
            raise ValueError(f"`rows` must be the number of rows, {self._rows}; got {self.rows}.")
        m, largest = self.wanted(self._rows), self._largest
        if (
            largest is not None
            and self._again is not None
            and not largest.is_clear(m, 0.0 if self._link_used else -torch.inf)
        ):
            source, self._again = self._again, None
            self._check_values(source)
            largest = self._largest = LargestScores(source.shape[-1], None, source.local.device)
            for block in source.blocks(self._link_used):
                self._observe(block, None)
        self._again = None
        total = 0 if largest is None else largest.total
        if m >= total > 0 or (m > 0 and total == 0):
            self._set(-torch.inf, self.num_labels or 0, 0, 1)
        elif largest is not None and m > 0:
            self._set_cut(largest.cut(m))
        self._largest = None
        return {"constraint": "average size", "wanted": self.k, "achieved": min(m, total) / self._rows}

    def _set_cut(self, cut: Cut | None) -> None:
        if cut is None:
            raise ValueError(
                "the threshold is not among the scores kept, because the batches differ too much; give `rows`, the "
                "total number of rows."
            )
        if cut.inside == cut.tied and cut.below < cut.value:
            self._set(_midpoint(cut, self.precision or torch.float64), self.num_labels or 0, 0, 1)
        else:
            self._set(cut.value, *cut.quota)

    def _set(self, threshold: float, label: int, taken: int, count: int) -> None:
        self.threshold.fill_(threshold)
        self.tie_label.fill_(label)
        self.tie_taken.fill_(taken)
        self.tie_count.fill_(count)

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        values, scores, threshold = block.values, block.scores, self.threshold.to(block.scores.dtype)
        labels = torch.arange(scores.shape[-1], device=scores.device)
        below = labels < self.tie_label
        if torch.compiler.is_exporting():
            inside = (values > threshold) | ((values == threshold) & below)
        else:  # one comparison is enough with a bound for each label, and no bound includes -inf
            above = torch.nextafter(threshold, threshold.new_full((), math.inf))
            inside = values >= torch.where(below, threshold, above).clamp(min=torch.finfo(values.dtype).min)
        if torch.compiler.is_exporting() or values is not scores:
            inside = inside & (scores > -torch.inf)
        at = self.tie_label.clamp(max=len(labels) - 1).reshape(1)
        tied = (values.index_select(1, at) == threshold) & (scores.index_select(1, at) > -torch.inf)
        return inside | ((labels == self.tie_label) & tied & self._taken(tied.cumsum(0)))

    def _kept(self, found: Selection, draw: Draw) -> Tensor:
        above = found.values > self.threshold.to(found.values.dtype)
        column = ~above & (found.labels == self.tie_label)
        position = column.cumsum(0) + draw.seen
        draw.seen += int(column.sum())
        return above | (found.labels < self.tie_label) | (column & self._taken(position))

    def _taken(self, position: Tensor) -> Tensor:
        """Whether to select a tied row: yes if ``position * taken / count`` reaches a new integer there."""
        return position * self.tie_taken // self.tie_count > (position - 1) * self.tie_taken // self.tie_count


def _midpoint(cut: Cut, dtype: torch.dtype) -> float:
    """Midpoint of the last score inside and the first outside, in their dtype; the former if they are adjacent."""
    middle = torch.tensor(cut.value / 2 + cut.below / 2, dtype=torch.float64).to(dtype).item()
    return middle if cut.below < middle <= cut.value else cut.value


class Cut(NamedTuple):
    """Where the m largest scores end.

    Attributes:
        value: the m-th largest score.
        below: the largest score smaller than ``value``; -inf if there is none.
        tied: how many scores equal ``value``.
        inside: how many of the tied scores are among the m largest.
        quota: with lower labels first: the label at which the m largest end, how many of its ties are inside, and how
            many ties it has.
    """

    value: float
    below: float
    tied: int
    inside: int
    quota: tuple[int, int, int]


class _Kept(NamedTuple):
    """The largest scores of all tensors added, in descending order, with their labels.

    Attributes:
        floor: all scores above it were kept; -inf in ``values`` stands for those below it.
        ties: ``(labels,)``, how often each label scored ``floor``; None if that was not counted.
        total: how many scores were above -inf; None if that was not counted.
    """

    values: Tensor
    labels: Tensor
    floor: Tensor
    ties: Tensor | None
    total: Tensor | None


class LargestScores:
    """Keeps the scores above a rising floor and counts, per label, the scores equal to it.

    The labels may be sharded over processes: each process keeps its local scores, and results cover all labels.

    Args:
        num_labels: columns of the local scores.
        shards: the labels on this process; None if it has all of them.
        device: device for collectives.
    """

    def __init__(
        self, num_labels: int, shards: ProcessShards | None = None, device: torch.device | None = None
    ) -> None:
        self._num_labels, self._shards, self._device = num_labels, shards, device
        self._values: list[NDArray[np.floating]] = []
        self._labels: list[NDArray[np.int64]] = []
        self._count = 0
        self._floor = -np.inf
        self._at_floor = np.zeros(num_labels, dtype=np.int64)
        self._total = 0
        self._kept: _Kept | None = None
        self._added = 0

    @property
    def is_sharded(self) -> bool:
        """Whether the labels are sharded over processes."""
        return self._shards is not None

    @property
    def total(self) -> int:
        """Number of scores above -inf seen so far; at least as many as were kept, if ties were not counted."""
        self._fetch()
        return self._sum([self._total])[0]

    def add_tensor(self, scores: Tensor, keep: int, *, count_ties: bool) -> None:
        """Add ``(rows, labels)`` scores on an accelerator, without reading any; instead of `add`, in all batches.

        Args:
            scores: in the first pass of a fit, absent labels may score 0.
            keep: as in `add`.
            count_ties: whether to count the scores that equal the lowest one kept, which takes a pass of its own.
        """
        flat, keep, before = scores.reshape(-1), max(1, keep), self._kept
        values, at = flat.topk(min(keep, len(flat)))
        labels = at % max(1, self._num_labels)
        self._added += len(flat)
        if before is not None:
            values, at = torch.cat([before.values, values]).topk(min(keep, len(before.values) + len(values)))
            labels = torch.cat([before.labels, labels])[at]
        floor = values[-1] if self._added > len(values) else values.new_tensor(-torch.inf)
        if before is not None:
            floor = torch.maximum(floor, before.floor)
            values = values.masked_fill(values < floor, -torch.inf)  # others of that size were dropped before
        if not count_ties:
            self._kept = _Kept(values, labels, floor, None, None)
            return
        ties, total = (scores == floor).sum(0), (scores > -torch.inf).sum()
        if before is not None and before.ties is not None and before.total is not None:
            old = (before.values == floor) & (before.values > before.floor)
            ties = ties.index_add(0, before.labels, old.long()) + before.ties * (floor == before.floor)
            total = total + before.total
        self._kept = _Kept(values, labels, floor, ties, total)

    def is_clear(self, m: int, above: float) -> bool:
        """Whether the m-th largest of the tensors added is larger than the next one and than ``above``; reads both.

        Never if a score is NaN or infinite.
        """
        if self._kept is None or not 0 < m < len(self._kept.values):
            return False
        largest = self._kept.values
        first, value, following = torch.stack([largest[0], largest[m - 1], largest[m]]).tolist()
        # The softmax of a row without labels, or with a score that is not finite, is NaN, which is the largest.
        return math.inf > first >= value > max(following, above)

    def _fetch(self) -> None:
        """Read what was kept of tensors, once all were added, into the form of `add`."""
        if self._kept is None:
            return
        kept, self._kept = self._kept, None
        values, labels = kept.values.cpu().numpy(), kept.labels.cpu().numpy()
        self._total = int(np.count_nonzero(values > -np.inf)) if kept.total is None else int(kept.total)
        self._floor = float(kept.floor)
        above = values > self._floor
        if kept.ties is not None and self._floor > -np.inf:
            self._at_floor = kept.ties.cpu().numpy()
        else:
            self._at_floor = np.bincount(
                labels[(values == self._floor) & (values > -np.inf)], minlength=self._num_labels
            )
        self._values, self._labels, self._count = [values[above]], [labels[above]], int(np.count_nonzero(above))

    def add(self, scores: NDArray[np.floating], keep: int) -> None:
        """Add ``(rows, labels)`` scores and keep at least the ``keep`` largest seen so far."""
        flat = scores.reshape(-1)
        if self._floor == -np.inf:
            found = np.flatnonzero(flat > -np.inf)
            self._total += len(found)
        else:
            self._total += int(np.count_nonzero(flat > -np.inf))
            found = np.flatnonzero(flat >= self._floor)
        values, labels = flat[found], found % max(1, self._num_labels)
        if self._floor > -np.inf:
            equal = values == self._floor
            self._at_floor += np.bincount(labels[equal], minlength=self._num_labels)
            values, labels = values[~equal], labels[~equal]
        self._values.append(values)
        self._labels.append(labels)
        self._count += len(values)
        if self._count > max(2 * keep, 1024):
            self._raise_floor(max(1, keep))

    def _raise_floor(self, keep: int) -> None:
        values, labels = np.concatenate(self._values), np.concatenate(self._labels)
        self._floor = _kth_largest(values, keep)
        equal, above = values == self._floor, values > self._floor
        self._at_floor = np.bincount(labels[equal], minlength=self._num_labels)
        self._values, self._labels = [values[above]], [labels[above]]
        self._count = int(np.count_nonzero(above))

    def cut(self, m: int) -> Cut | None:
        """Where the m largest end, for 0 < m < total; None if relevant scores were dropped."""
        self._fetch()
        values, labels = np.concatenate(self._values), np.concatenate(self._labels)
        floor, at_floor = self._floor, int(self._at_floor.sum())
        highest = self._max(floor)
        known = int(np.count_nonzero(values >= highest)) + at_floor * (floor == highest)
        if highest > -np.inf and self._sum([known])[0] <= m:
            return None
        value = self._mth_largest(values, m)
        ties = np.bincount(labels[values == value], minlength=self._num_labels)
        above = int(np.count_nonzero(values > value))
        if floor == value:
            ties = ties + self._at_floor
        elif floor > value:
            above += at_floor
        smaller = values[values < value]
        below = float(smaller.max()) if len(smaller) else -np.inf
        below = self._max(max(below, floor) if floor < value else below)
        above, tied = self._sum([above, int(ties.sum())])
        return Cut(value, below, tied, m - above, self._quota(ties, m - above))

    def _mth_largest(self, values: NDArray[np.floating], m: int) -> float:
        if self._shards is None:
            return _kth_largest(values, m) if m <= len(values) else self._floor
        # All processes count the scores that reach each candidate for the next bits of the result.
        keys, bits, at_floor = np.sort(_to_keys(values)), 8 * values.dtype.itemsize, int(self._at_floor.sum())
        floor = int(_to_keys(np.asarray([self._floor], dtype=values.dtype))[0])
        key = 0
        for shift in range(bits - _DIGIT_BITS, -1, -_DIGIT_BITS):
            candidates = [key | digit << shift for digit in range(1, 1 << _DIGIT_BITS)]
            counts = len(keys) - np.searchsorted(keys, np.asarray(candidates, dtype=keys.dtype))
            local = [int(n) + at_floor * (floor >= c) for n, c in zip(counts, candidates, strict=True)]
            key |= sum(count >= m for count in self._sum(local)) << shift
        return _from_key(key, bits)

    def _quota(self, ties: NDArray[np.int64], inside: int) -> tuple[int, int, int]:
        """The first label, over all processes, at which the cumulative number of ties exceeds ``inside``."""
        shards, tied = self._shards, int(ties.sum())
        first, before = 0, 0
        if shards is not None:
            rank = shards.mesh.get_local_rank()
            tied_by_rank = self._sum([tied * (rank == other) for other in range(shards.mesh.size())])
            first, before = shards.first, sum(tied_by_rank[:rank])
        filled = np.cumsum(ties) + before
        quota = [0, 0, 0]
        if before <= inside < before + tied:
            label = int(np.searchsorted(filled, inside, side="right"))
            quota = [label + first, inside - int(filled[label] - ties[label]), int(ties[label])]
        label, taken, count = self._sum(quota)
        return label, taken, count

    def _sum(self, counts: list[int]) -> list[int]:
        if self._shards is None:
            return counts
        return all_sum(torch.tensor(counts, device=self._device), self._shards.group).tolist()

    def _max(self, value: float) -> float:
        if self._shards is None:
            return value
        return float(all_max(torch.tensor([value], dtype=torch.float64, device=self._device), self._shards.group))


def _kth_largest(values: NDArray[np.floating], k: int) -> float:
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _to_keys(values: NDArray[Any]) -> NDArray[Any]:
    """Integers that sort like the floats: their bits, inverted if negative."""
    kind = np.uint32 if values.dtype == np.float32 else np.uint64
    bits = (values + values.dtype.type(0)).view(kind)  # turns -0 into 0
    sign = kind(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _from_key(key: int, bits: int) -> float:
    """The inverse of `_to_keys` for one key."""
    sign = 1 << (bits - 1)
    plain = key ^ sign if key & sign else ~key & (2 * sign - 1)
    kind, number = (np.uint32, np.float32) if bits == 32 else (np.uint64, np.float64)
    return float(np.asarray([plain], dtype=kind).view(number)[0])

"""`Labels`: the labels of each row, independent of the form of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shortlist.tensors import counts_of, holds, may_look, wide


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of all rows as entries: (row, label) pairs with a value.

    Labels without an entry are absent, so a few entries can represent rows of any length. There are three layouts:

    - *listed*: the entries of all rows one after the other. Used where values may be read, and for sparse targets.
    - *padded* (``width`` is a number): every row has ``width`` entries, in the order of the rows. Used for index forms
      whose values may not be read. Padding has value 0 and repeats a label of its own row; in a row without labels it
      names label 0 and is not ``listed``.
    - *dense* (``rows`` and ``labels`` are None): every label of every row has an entry. Used for multi-hots that hold
      many positives or whose values may not be read.

    Attributes:
        row_shape: the shape of the rows; ``num_rows`` is their flat count.
        num_labels: n.
        rows: ``(m,)`` int64, the flat row of each entry.
        labels: ``(m,)`` int64, the label of each entry.
        values: ``(m,)``, dense ``(num_rows, n)``: above 0 present (1, or a soft target), negative unknown, 0 absent.
        listed: ``(m,)`` bool, False for an entry whose label is absent after all; None if there is none.
        width: the number of entries per row, if fixed.
        slots: the number of labels that a row of an index-form target can hold.
        has_unknown: whether a value may be negative.
        soft: whether a positive value may differ from 1.
        name: the target's name in error messages.
    """

    row_shape: torch.Size
    num_labels: int
    rows: Tensor | None
    labels: Tensor | None
    values: Tensor
    listed: Tensor | None = None
    width: int | None = None
    slots: int | None = None
    has_unknown: bool = False
    soft: bool = False
    name: str = "target"

    @property
    def num_rows(self) -> int:
        """The number of rows over all row dimensions."""
        return math.prod(self.row_shape)

    @property
    def is_dense(self) -> bool:
        """Whether every label of every row has an entry."""
        return self.rows is None

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The row and the label of each entry, ``(m,)``; not of dense labels."""
        if self.rows is None or self.labels is None:
            raise RuntimeError("dense labels have no list of entries")
        return self.rows, self.labels

    @property
    def indices(self) -> Tensor:
        """The index of each entry in the flattened ``(num_rows, n)``; past the end for a label out of range."""
        rows, labels = self.pairs()
        n = self.num_labels
        # Without this, a label out of range would have the flat index of another row's label.
        return torch.where((labels >= 0) & (labels < n), rows * n + labels, self.num_rows * n)

    @property
    def present(self) -> Tensor:
        """The weight of each entry as a positive; 0 if it is unknown, absent or padding."""
        return self.values.clamp(min=0) if self.has_unknown else self.values

    @property
    def absent(self) -> Tensor | None:
        """The weight of each entry as a negative: one minus a soft target. None if all are zero."""
        present = self.present
        if not self.is_dense:
            return present.sign() - present if self.soft else None
        return 1 - present + self.values.sign().clamp(max=0) if self.has_unknown else 1 - present

    @property
    def unknown(self) -> Tensor | None:
        """Which entries are unknown; None if none can be."""
        return self.values < 0 if self.has_unknown else None

    @property
    def members(self) -> Tensor:
        """1 for each positive, soft ones included, else 0."""
        return self.values if self.only_present else (self.values.detach() > 0).to(self.values.dtype)

    @property
    def only_present(self) -> bool:
        """Whether every entry is known to be a positive of value 1."""
        return not (self.is_dense or self.has_unknown or self.soft or self.listed is not None)

    def known(self) -> Tensor | int:
        """The number of known labels in all rows."""
        total, unknown = self.num_rows * self.num_labels, self.unknown
        return total if unknown is None else total - unknown.sum()

    def weights(self, weight: Tensor) -> Tensor:
        """Gather weights ``(n,)`` at the label of each entry."""
        return weight if self.labels is None else weight.index_select(0, self.labels)

    def at(self, table: Tensor) -> Tensor:
        """The entries' values in a table ``(num_rows, n)``."""
        return table if self.is_dense else table[self.pairs()]

    # Sums and maxima over the entries of each row (axis -1) or of each label (axis -2).

    def sum_along(self, values: Tensor, axis: int = -1) -> Tensor:
        """Sum values of the entries, ``(m, ...)`` or dense ``(num_rows, n, ...)``, over rows or labels.

        Returns ``(num_rows, ...)`` for axis -1, ``(n, ...)`` for axis -2.
        """
        if self.is_dense:
            return values.sum(2 + axis)
        more = values.shape[1:]
        if self.width is not None and axis == -1:  # sums in a fixed order
            return values.reshape(self.num_rows, self.width, *more).sum(1)
        # Sequential additions lose digits in float32.
        precise = values.to(wide(values))
        total = precise.new_zeros(self._size(axis), *more)
        return total.index_add(0, self._line(axis), precise).to(values.dtype)

    def max_along(self, values: Tensor, axis: int, lowest: float) -> Tensor:
        """The maximum of one value per entry over rows or labels; ``lowest`` if there are no entries."""
        if self.is_dense and values.shape[axis]:
            return values.amax(axis)
        if axis == -1 and self.width:
            return values.reshape(self.num_rows, self.width).amax(-1)
        none = values.new_full((self._size(axis),), lowest)
        return none if self.is_dense else none.scatter_reduce(0, self._line(axis), values, "amax")

    def spread(self, values: Tensor, axis: int = -1) -> Tensor:
        """Give each entry the value of its row, from ``(num_rows, ...)``, or of its label, from ``(n, ...)``."""
        if self.is_dense:
            return values.unsqueeze(2 + axis)
        if self.width is not None and axis == -1:
            return values.unsqueeze(1).expand(-1, self.width, *values.shape[1:]).flatten(0, 1)
        line = self._line(axis)
        if not values.requires_grad:
            return values.index_select(0, line)
        # In the backward pass, the gradients of a row's entries are added sequentially.
        return values.to(wide(values)).index_select(0, line).to(values.dtype)

    @cached_property
    def counts(self) -> Tensor:
        """The number of entries in each row of a list, ``(num_rows,)`` int64."""
        return counts_of(self.pairs()[0], self.num_rows)

    def index_lists(self) -> Tensor:
        """The labels of each row of a list in the order of its rows, padded with -1: ``(*rows, most labels)``.

        One column more if a row has all labels: a table with n columns could be a multi-hot.
        """
        (rows, labels), counts = self.pairs(), self.counts
        width = int(counts.max()) if len(counts) else 0
        width += width == self.num_labels > 0
        slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        lists = rows.new_full((len(counts), width), -1)
        lists[rows, slots] = labels
        return lists.reshape(*self.row_shape, width)

    # Some of the entries.

    def as_list(self) -> Labels:
        """The present and the unknown labels as a list; reading their number synchronizes with the device."""
        if not self.is_dense:
            return self.only(self.values != 0)
        rows, labels = self.values.nonzero(as_tuple=True)
        return replace(self, rows=rows, labels=labels, values=self.values[rows, labels])

    def only(self, which: Tensor | slice) -> Labels:
        """Some entries of a list, by a mask, indices or a slice."""
        rows, labels = self.pairs()
        listed = None if self.listed is None else self.listed[which]
        return replace(
            self, rows=rows[which], labels=labels[which], values=self.values[which], listed=listed, width=None
        )

    def hiding_unknown(self) -> Labels:
        """The unknown entries of a list; where their number may not be read, all entries, of which those are listed."""
        if not self.has_unknown:
            return self.only(slice(0, 0))
        unknown = self.values < 0
        return self.only(unknown) if may_look(unknown) else replace(self, listed=unknown)

    def positives(self) -> Labels:
        """The present entries; reading their number synchronizes with the device."""
        entries = self.as_list()
        return replace(entries.only(entries.values > 0), has_unknown=False, listed=None)

    def __len__(self) -> int:
        """The number of rows along the first row dimension."""
        return self.row_shape[0]

    def __getitem__(self, which: slice) -> Labels:
        """Some consecutive rows of a list of labels in the order of its rows, renumbered from 0."""
        start, stop, _ = which.indices(self.num_rows)
        rows, _ = self.pairs()
        first, last = torch.searchsorted(rows, torch.tensor([start, stop])).tolist()
        part = self.only(slice(first, last))
        return replace(part, rows=rows[first:last] - start, row_shape=torch.Size([stop - start]))

    def label_range(self, start: int, count: int) -> Labels:
        """The entries of consecutive labels, renumbered from 0."""
        if self.is_dense:
            return replace(self, num_labels=count, values=self.values.narrow(-1, start, count))
        _, labels = self.pairs()
        inside = (labels >= start) & (labels < start + count)
        if self.listed is not None:
            inside &= self.listed
        part = replace(self.only(inside), listed=None)
        return replace(part, labels=labels[inside] - start, num_labels=count)

    def by_label(self) -> Labels:
        """The present and the unknown labels as a list, sorted by label, then by row."""
        entries = replace(self.as_list(), listed=None)
        # Use two stable sorts, because a single key label * rows + row can overflow.
        entries = entries.only(entries.pairs()[0].argsort(stable=True))
        return entries.only(entries.pairs()[1].argsort(stable=True))

    def between(self, start: int, stop: int) -> slice:
        """The entries with labels in [start, stop), for entries sorted as by `by_label`."""
        first, last = np.searchsorted(self._host_labels, (start, stop))
        return slice(int(first), int(last))

    def in_block(self, start: int, width: int) -> tuple[slice, Tensor]:
        """The entries in the block of ``width`` labels from ``start``, for entries sorted as by `by_label`, and their
        indices in the flattened block ``(num_rows, width)``.
        """
        chosen = self.between(start, start + width)
        rows, labels = self.pairs()
        return chosen, rows[chosen] * width + (labels[chosen] - start)

    # One class per row.

    def one_class(self) -> tuple[Tensor, Tensor | None]:
        """The one positive of each row, ``(*rows, 1)`` (0 if there is none), and 1 or 0 for rows with or without.

        The second is None if every row has a class. Two positives in a row raise if reading values needs no
        synchronization; otherwise the second value of that row is NaN.
        """
        # With one label, lists have a column of padding: of width 1 they could be a multi-hot.
        if self.slots not in (None, 1) and self.num_labels > 1:
            raise ValueError(
                f"`{self.name}` must name one class per row; got index lists with room for {self.slots}. "
                "Losses for several positives are `lml_nll`, `two_way`, `bce` and others."
            )
        if self.width == 1 and self.labels is not None:
            counted = None if self.listed is None else self.present.reshape(self.row_shape)
            return self.labels.reshape(*self.row_shape, 1), counted
        n, positive = self.num_labels, self.values > 0
        if self.is_dense:
            last, several = positive.to(self.values.dtype).argmax(-1), positive.sum(-1) > 1
            found = positive.any(-1)
        else:
            # Compare the first and the last: if values are not read, a label may be listed twice.
            rows, labels = self.pairs()
            none = labels.new_full((self.num_rows,), -1)
            first = (none + 1 + n).scatter_reduce(0, rows, torch.where(positive, labels, n), "amin")
            last = none.scatter_reduce(0, rows, torch.where(positive, labels, -1), "amax")
            several, found, last = first < last, last >= 0, last.clamp(min=0)
        if holds(several.any()):
            row = int(several.nonzero()[0])
            labels = (self.values[row] > 0).nonzero().squeeze(-1) if self.is_dense else self._positives_of(row)
            raise ValueError(
                f"`{self.name}` row {self.row_name(row)}: one label must be positive for this loss; "
                f"got {labels.tolist()}."
            )
        counted = torch.where(several, math.nan, found.to(self.values.dtype))
        return last.reshape(*self.row_shape, 1), counted.reshape(self.row_shape)

    # Errors.

    def row_name(self, row: int) -> str:
        """The index of a flat row; a tuple if there are several row dimensions."""
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(row), self.row_shape))
        return str(index[0] if len(index) == 1 else index)

    def refuse(self, bad: Tensor, rule: str) -> None:
        """Raise for the first bad entry; ``rule`` may contain ``{value}``."""
        if bad.any():
            i = int(bad.nonzero()[0])
            rows, labels = self.pairs()
            row, value = self.row_name(int(rows[i])), self.values[i].item()
            raise ValueError(f"`{self.name}` row {row}: label {int(labels[i])} {rule.format(value=value)}")

    def refuse_unknown(self, form: str) -> None:
        """Raise for the first unknown label; ``form`` cannot express unknown labels."""
        self.refuse(self.values < 0, f"must not be unknown (negative) to become {form}; got {{value}}.")

    def _size(self, axis: int) -> int:
        return self.num_rows if axis == -1 else self.num_labels

    def _line(self, axis: int) -> Tensor:
        """The row (axis -1) or the label (axis -2) of each entry."""
        return self.pairs()[0 if axis == -1 else 1]

    def _positives_of(self, row: int) -> Tensor:
        rows, labels = self.pairs()
        return labels[(rows == row) & (self.values > 0)]

    @cached_property
    def _host_labels(self) -> np.ndarray:
        return self.pairs()[1].cpu().numpy()

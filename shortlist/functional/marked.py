"""Labels by what is marked: the few entries of the logits that are present or unknown, one by one.

All other entries are absent labels, so nothing as large as the logits is made of the labels alone. Where values may be
read for free the entries are just the marked ones. Elsewhere (on an accelerator, for the compiler, under ``vmap``)
their number must not depend on values: index lists keep their padding, which names a label of its own row once more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.observed import check_rows
from shortlist.functional.row_function import RowFunction
from shortlist.targets import TargetForm, stored_entries
from shortlist.tensors import is_plain, solvable, wide

_RARE = 16
"""One entry in this many may be marked in a multi-hot for the marks to be picked one by one."""


class Marked(NamedTuple):
    """Rows in which all entries but some are absent labels."""

    logits: Tensor  # (*rows, n), float32 or float64
    places: Tensor  # (m,) int64: the entries, as indices into the flattened logits
    present: Tensor  # (m,): how much each counts as a positive; 0 for unknown ones, for padding and for repeats
    absent: Tensor | None = None  # (m,): how much as a negative, in soft targets; None: not at all
    unknown: Tensor | None = None  # (m,) bool; None if none is
    taken: Tensor | None = None  # (m,) bool: False for entries that are absent labels after all; None: all are marked
    width: int | None = None  # how many entries every row has, in the order of rows; None if that differs

    @property
    def matrix(self) -> Tensor:
        """The logits as ``(rows, n)``."""
        return self.logits.reshape(math.prod(self.logits.shape[:-1]), self.logits.shape[-1])

    @property
    def rows(self) -> Tensor:
        """The row of each entry in `matrix`, ``(m,)``."""
        return self.places // max(self.logits.shape[-1], 1)

    @property
    def labels(self) -> Tensor:
        """The label of each entry, ``(m,)``."""
        return self.places % max(self.logits.shape[-1], 1)

    @property
    def members(self) -> Tensor:
        """1 for each positive, soft ones too, else 0; ``(m,)``."""
        return self.present.detach().sign()

    def known(self) -> Tensor | int:
        """How many entries of the logits are not unknown."""
        return self.logits.numel() - (0 if self.unknown is None else self.unknown.sum())

    def own(self) -> Tensor:
        """The logits of the entries, ``(m,)``; 0 for unknown ones, whatever they are."""
        own = self.logits.reshape(-1)[self.places]
        return own if self.unknown is None else own.masked_fill(self.unknown, 0)

    def filled(self, value: float) -> Tensor:
        """The logits with ``value`` in all marked places."""
        return filled(self.logits.reshape(-1), self.places, self.taken, value).view(self.logits.shape)

    def without_unknown(self) -> Tensor:
        """The logits with -inf in unknown places."""
        if self.unknown is None:
            return self.logits
        return filled(self.logits.reshape(-1), self.places, self.unknown, -math.inf).view(self.logits.shape)

    def row_sums(self, terms: Tensor) -> Tensor:
        """The sum of the ``terms`` ``(m,)`` of each row's entries, ``(*rows,)``."""
        return sum_rows(terms, self.places, self.matrix, self.width).view(self.logits.shape[:-1])


def marked(logits: Tensor, target: Tensor) -> Marked | None:
    """Read ``target`` by what is not absent: always for index and sparse forms.

    None for a multi-hot that is soft, holds many marks, or may not be read for free: it is a mask already.
    """
    form = check_rows(logits, target)
    x = solvable(logits)
    if form is TargetForm.MULTI_HOT:
        return _of_multi_hot(x, target)
    if form is TargetForm.SPARSE:
        return _of_sparse(x, target)
    lists = target.unsqueeze(-1) if form is TargetForm.CLASS_INDICES else target
    lists = lists.reshape(math.prod(lists.shape[:-1]), lists.shape[-1])
    if form is TargetForm.CLASS_INDICES and x.numel():
        places = _places(torch.arange(len(lists), device=x.device).unsqueeze(-1), lists, x).reshape(-1)
        return Marked(x, places, torch.ones_like(places, dtype=x.dtype), width=1)
    if x.numel() == 0 or lists.shape[-1] == 0:
        return Marked(x, lists.new_empty(0), x.new_empty(0), width=0)
    return _of_read_lists(x, lists) if is_plain(lists) else _of_lists(x, lists)


def filled(x: Tensor, places: Tensor, taken: Tensor | None, value: float) -> Tensor:
    """``x`` ``(..., N)`` with ``value`` at those ``places`` ``(..., m)`` that are ``taken``; no gradient goes there."""
    return x.scatter(-1, places, value) if taken is None else _Filled.run(x, places, taken, value)


def add_at(x: Tensor, places: Tensor, terms: Tensor) -> Tensor:
    """``x`` ``(..., rows, n)`` plus ``terms`` ``(..., m)`` at ``places`` of its flattened rows."""
    return x.flatten(-2).scatter_add(-1, places, terms).view(x.shape)


def sum_rows(terms: Tensor, places: Tensor, like: Tensor, width: int | None) -> Tensor:
    """The sum of ``terms`` ``(..., m)`` for each row of ``like`` ``(..., rows, n)``."""
    rows, n = like.shape[-2:]
    if width is not None:  # a sum in a fixed order
        return terms.unflatten(-1, (rows, width)).sum(-1)
    total = terms.new_zeros(*terms.shape[:-1], rows, dtype=wide(terms))
    return total.scatter_add(-1, places // max(n, 1), terms.to(total.dtype)).to(terms.dtype)


class _Filled(RowFunction):
    """``x, places, taken, value -> filled``: linear in x, so that its derivatives are itself with a value of 0.

    Plain indexing has the same value, but where padding names one place several times, a gradient of its own for each.
    """

    @staticmethod
    def forward(x: Tensor, places: Tensor, taken: Tensor, value: float) -> Tensor:
        return x.scatter(-1, places, torch.where(taken, value, x.gather(-1, places)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:3])
        ctx.save_for_forward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _Filled.run(gradient, *ctx.saved_tensors, 0.0), None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> Tensor:
        return _Filled.run(x_tangent, *ctx.saved_tensors, 0.0)


def _of_multi_hot(x: Tensor, target: Tensor) -> Marked | None:
    if x.numel() == 0 or target.requires_grad or not is_plain(x):
        return None
    hot = target if target.dtype == torch.bool else target.to(x.dtype)
    if not is_plain(hot):
        return None
    hot = hot.reshape(-1)
    places = torch.from_numpy(np.flatnonzero(hot.numpy() != 0))
    if len(places) * _RARE > x.numel():
        return None
    values = hot[places].to(x.dtype)
    if ((values > 0) & (values != 1)).any():
        return None
    return _with_values(x, places, values)


def _of_sparse(x: Tensor, target: Tensor) -> Marked:
    rows, labels, values = stored_entries(target)
    places, values = _places(rows, labels, x), values.to(x.dtype)
    stored = values != 0
    if is_plain(places) and is_plain(values):
        return _with_values(x, *((places, values) if stored.all() else (places[stored], values[stored])))
    if target.layout == torch.sparse_coo and not target.is_coalesced():  # may name a label twice, which is not read
        places, order = places.sort(stable=True)
        values, stored = values[order] * _first_of_each(places), stored[order]
    return _with_values(x, places, values, stored)


def _with_values(x: Tensor, places: Tensor, values: Tensor, stored: Tensor | None = None) -> Marked:
    """The entries of a multi-hot by their values, of which some may not count as ``stored``."""
    present, unknown = values.clamp(min=0), values < 0
    if stored is None:
        soft = bool((present != present.sign()).any()) or values.requires_grad
        absent = present.sign() - present if soft else None
        return Marked(x, places, present, absent, unknown if unknown.any() else None)
    return Marked(x, places, present, present.sign() - present, unknown, stored)


def _of_read_lists(x: Tensor, lists: Tensor) -> Marked:
    rows = torch.arange(len(lists)).unsqueeze(-1)
    places = (lists + rows * x.shape[-1])[lists >= 0]
    return Marked(x, places, x.new_ones(len(places)))


def _of_lists(x: Tensor, lists: Tensor) -> Marked:
    """In entries of a fixed number: padding names the largest label of its row again, or label 0 if it has none."""
    ordered = lists.sort(-1).values
    largest = ordered[:, -1:]
    labels = torch.where(ordered >= 0, ordered, largest).clamp(min=0)
    present = (ordered >= 0) & _first_of_each(ordered)
    places = _places(torch.arange(len(lists), device=lists.device).unsqueeze(-1), labels, x)
    taken = (largest >= 0).expand(lists.shape)
    return Marked(x, places.reshape(-1), present.to(x.dtype).reshape(-1), taken=taken.reshape(-1), width=lists.shape[1])


def _places(rows: Tensor, labels: Tensor, x: Tensor) -> Tensor:
    """Indices into the flattened logits. A label that there is not gets an index that there is not, not a neighbour."""
    n = x.shape[-1]
    return torch.where((labels >= 0) & (labels < n), rows * n + labels, x.numel())


def _first_of_each(ordered: Tensor) -> Tensor:
    """Whether each differs from the one before it, along the last axis."""
    return torch.cat([torch.ones_like(ordered[..., :1], dtype=torch.bool), ordered[..., 1:] != ordered[..., :-1]], -1)

"""Per-row state of an iterative solver: numpy arrays on the host, tensor columns on the logits' device."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.label_axis.axis import HeldLabels, LabelAxis
from shortlist.tensors import wide

_WIDEST = 60.0
"""The widest row, in units of T, whose exponentials relative to the largest logit stay accurate."""

_FARTHEST = 1e4
"""For moments, labels are clipped to this distance below the largest one, in units of T."""


class Columns:
    """Moves per-row values between the host (float64) and the device and dtype of an axis."""

    def __init__(self, axis: LabelAxis, like: Tensor) -> None:
        self.axis, self.place, self._like = axis, like.device, like
        # A tracer must not bake in values read during the solve; reading an item makes it raise.
        like[:1, :1].sum().item()

    def host(self, values: Tensor) -> np.ndarray:
        """A column ``(B, 1)`` as an array ``(B,)``; several columns keep their shape."""
        array = values.detach().cpu().numpy().astype(np.float64)
        return array[:, 0] if array.shape[-1] == 1 else array

    def device(self, array: np.ndarray) -> Tensor:
        """``(B,)`` as a column ``(B, 1)`` in the dtype of the axis."""
        return torch.from_numpy(array).to(self._like.dtype).to(self._like.device).unsqueeze(-1)

    def zeros(self, rows: int, columns: int) -> Tensor:
        """A buffer for sums, in the precision for sums over processes."""
        return torch.zeros(rows, columns, dtype=wide(self._like), device=self._like.device)

    def sum(self, values: Tensor) -> np.ndarray:
        """The sum over the processes of ``(B, c)``."""
        return self.host(self.axis.processes.sum(values.to(wide(values))))

    def max(self, values: Tensor) -> np.ndarray:
        """The maximum over the processes of ``(B, c)``."""
        return self.host(self.axis.processes.max(values))


def chosen_rows(waiting: np.ndarray) -> np.ndarray | None:
    """The indices of the unfinished rows; None, meaning all rows, while more than half are unfinished."""
    rows = np.flatnonzero(waiting)
    return None if 2 * len(rows) > len(waiting) else rows


def take(rows: np.ndarray | None, *arrays: np.ndarray) -> list[np.ndarray]:
    """The entries of some rows."""
    return list(arrays) if rows is None else [array[rows] for array in arrays]


def put(rows: np.ndarray | None, array: np.ndarray, values: np.ndarray) -> None:
    """Write the entries of some rows."""
    array[slice(None) if rows is None else rows] = values


class Moments(NamedTuple):
    """Per-row statistics from which a solver computes its initial guess."""

    present: np.ndarray  # number of labels above -inf
    seen: np.ndarray  # number of finite logits in the sample
    top: np.ndarray  # the largest finite logit, or 0
    bottom: np.ndarray  # the smallest
    mean: np.ndarray  # of ``z = (x - top) / T`` over the sample, where z is at least -`_FARTHEST`
    variance: np.ndarray
    infinite: np.ndarray  # number of logits equal to +inf
    broken: np.ndarray  # whether there is a NaN
    scaled: Tensor | None = None  # z of all labels, if they are in memory, finite and close together

    def quantile(self, k: np.ndarray) -> np.ndarray:
        """Minus the normal quantile that k of the present labels exceed."""
        share = np.clip(k / np.maximum(self.present, 1), 1e-300, 1 - 1e-16)
        return torch.special.ndtri(torch.from_numpy(share)).numpy()


class Equations(NamedTuple):
    """One equation per row, "the sum of p is k", and which rows have a trivial answer."""

    columns: Columns
    sample: Tensor
    moments: Moments
    k: np.ndarray
    none: np.ndarray  # k is 0
    everything: np.ndarray  # no more than k labels are present
    invalid: np.ndarray  # k is outside [0, n]
    shared: np.ndarray  # more than k logits are +inf: they share k and the others get nothing
    sortable: bool  # all labels are at hand, so rows that do not converge can be sorted

    @property
    def trivial(self) -> np.ndarray:
        """Rows without a root to search for."""
        return self.none | self.everything | self.invalid

    @property
    def wanted(self) -> np.ndarray:
        """The sum to search for; some value in between for trivial rows."""
        return np.where(self.trivial, self.moments.present / 2, self.k)


def pose_equations(axis: LabelAxis, k: Tensor, temperature: float) -> Equations:
    """Read what a solver needs to know about the rows of ``axis`` and their ``k``, broadcastable to ``(B, 1)``."""
    sample = axis.sample()
    columns = Columns(axis, sample)
    k_array = columns.host(k.expand(len(sample), 1))
    moments = row_moments(columns, sample, temperature)
    none, everything = k_array <= 0, k_array >= moments.present
    invalid = ~((k_array >= 0) & (k_array <= axis.total_labels))
    shared = ~(none | everything | invalid) & (moments.infinite >= k_array)
    sortable = isinstance(axis, HeldLabels) and axis.processes.group is None
    return Equations(columns, sample, moments, k_array, none, everything, invalid, shared, sortable)


def row_moments(columns: Columns, sample: Tensor, temperature: float) -> Moments:
    """Moments of the logits in ``sample``, over all processes."""
    axis = columns.axis
    top, bottom = _ends(columns, sample)
    scaled = None
    if isinstance(axis, HeldLabels) and ((top - bottom) / temperature <= _WIDEST).all():
        scaled = sample - columns.device(top)
        z = scaled = scaled if temperature == 1 else scaled.div_(temperature)
        sums = columns.sum(_sums(z))
        present = count = np.full_like(top, axis.total_labels)
        infinite, broken = np.zeros_like(top), np.isnan(sums[:, 0])
    else:
        present, seen = columns.host(axis.present()), sample.isfinite()
        flags = (seen, sample == math.inf, sample.isnan())
        count, infinite, broken = columns.sum(torch.stack([flag.sum(-1) for flag in flags], -1)).T
        top, _ = _ends(columns, torch.where(seen, sample, -math.inf))
        _, bottom = _ends(columns, torch.where(seen, sample, math.inf))
        top, bottom = (np.where(np.isfinite(end), end, 0) for end in (top, bottom))
        z = (sample - columns.device(top)).div_(temperature).clamp_(min=-_FARTHEST).masked_fill_(~seen, 0)
        sums, broken = columns.sum(_sums(z)), broken > 0
    mean, square = sums.T / np.maximum(count, 1)
    variance = np.maximum(square - mean * mean, 0)
    return Moments(present, count, top, bottom, mean, variance, infinite, broken, scaled)


def _ends(columns: Columns, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest entry of each row; they may hide NaN."""
    ends = torch.stack([x.amax(-1), -x.amin(-1)], -1) if x.shape[-1] else x.new_full((len(x), 2), -math.inf)
    top, bottom = columns.max(ends).T
    return top, -bottom


def _sums(z: Tensor) -> Tensor:
    """The sums of z and of its square, ``(B, 2)``."""
    return torch.stack([z.sum(-1), torch.linalg.vector_norm(z, dim=-1).square_()], -1)


def middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The midpoint of a bracket; near its finite end if the other one is infinite."""
    far = 1 + np.abs(np.where(np.isfinite(low), low, high))
    low, high = np.where(np.isfinite(low), low, high - far), np.where(np.isfinite(high), high, low + far)
    return low / 2 + high / 2


def scratch(room: dict[int, Tensor], key: int, like: Tensor) -> Tensor:
    """A buffer shaped like ``like``, reused between passes: fresh memory of this size costs page faults."""
    if key not in room or room[key].numel() < like.numel():
        room[key] = torch.empty_like(like, memory_format=torch.contiguous_format).view(-1)
    return room[key][: math.prod(like.shape)].view(like.shape)

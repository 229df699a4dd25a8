"""Average precision, exactly: by class (mAP) or by row (label ranking)."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.metrics.labels import check_choice, labelled, refuse_nan
from shortlist.tensors import is_plain, solvable

By = Literal["class", "sample"]
_BLOCK = 1 << 21
"""Entries that are sorted at a time; the buffers take some tens of megabytes."""

_MANY = 64
"""Wanted values of a line from which numpy, which goes on from one to the next, is faster than torch."""


def average_precision(
    scores: Tensor,
    target: Tensor,
    *,
    by: By = "class",
    reduction: Literal["mean", "none"] = "mean",
    mask: Tensor | None = None,
) -> Tensor:
    r"""Mean precision at the positives: of each class over the rows, or of each row over the classes.

    .. math:: \text{AP} = \frac{1}{|P|} \sum_{i \in P}
              \frac{|\{j \in P : s_j \ge s_i\}|}{|\{j : s_j \ge s_i\}|}

    Equal scores are one threshold, as in scikit-learn, so the order among them does not matter. A positive of score
    ``-inf`` is never found: its precision is 0. By class this is average precision without interpolation, by sample
    it is label ranking average precision.

    Args:
        scores: ``(B, n)``, floating; only their order matters (by class: down the rows). ``-inf`` marks an absent
            label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out.
        by: ``"class"`` or ``"sample"``.
        reduction: ``"mean"`` over the classes (rows) that have a positive, or ``"none"``: one value each, NaN for those
            that have none.
        mask: ``(B,)`` bool, False where a row does not count.

    Returns:
        Float64: one number, or ``(n,)`` by class and ``(B,)`` by sample; NaN where there is no positive.

    Example:
        >>> scores = torch.tensor([[0.9, 0.2], [0.8, 0.7], [0.1, 0.6]])
        >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> average_precision(scores, target, reduction="none")
        tensor([0.8333, 1.0000], dtype=torch.float64)

    References:
        Kobayashi, "Two-way Multi-Label Loss", 2023, section 4 (both ways); Tsoumakas, Katakis, Vlahavas, "Mining
        Multi-label Data", 2010 (label ranking).
    """
    check_choice("by", by, ("class", "sample"))
    check_choice("reduction", reduction, ("mean", "none"))
    data = labelled(scores, target, mask)
    refuse_nan(data.scores)
    rows, labels = data.rows, data.labels
    if mask is not None:
        chosen = mask[rows]
        rows, labels = rows[chosen], labels[chosen]
    if by == "class":
        # A row that does not count is one in which every label is absent.
        x = data.scores if mask is None else data.scores.masked_fill(~mask.unsqueeze(-1), -math.inf)
        values = line_average_precision(x.T, labels, rows)
    else:
        values = line_average_precision(data.scores, rows, labels)
    return values if reduction == "none" else mean_of_known(values)


def mean_of_known(values: Tensor) -> Tensor:
    """Mean over what is not NaN; NaN if all is."""
    return values[~values.isnan()].mean()


def line_average_precision(x: Tensor, lines: Tensor, places: Tensor) -> Tensor:
    """Average precision of each line of ``x`` ``(L, m)`` with its positives at ``(lines, places)``; float64."""
    counts = torch.bincount(lines, minlength=len(x))
    result = torch.full((len(x),), math.nan, dtype=torch.float64, device=x.device)
    width = max(x.shape[-1], 1)
    places = ascending(lines * width + places) - width * torch.repeat_interleave(counts)  # in the order of the lines
    first = counts.cumsum(0) - counts
    size = max(1, _BLOCK // width)
    for start in range(0, len(x), size):
        table = solvable(x[start : start + size]).contiguous()
        ordered, own = ascending(table), counts[start : start + size]
        for chosen in _alike(own):
            slot = torch.arange(int(own[chosen].max()), device=x.device)
            entry = first[start + chosen].unsqueeze(-1) + slot
            real = slot < own[chosen].unsqueeze(-1)
            found = table[chosen].gather(-1, places[entry.clamp(max=len(places) - 1)]).masked_fill(~real, -math.inf)
            result[start + chosen] = _precision_sums(ordered[chosen], ascending(found)) / own[chosen]
    return result


def _alike(counts: Tensor) -> list[Tensor]:
    """Lines with at least one positive, in groups in which no line has twice as many as another.

    The positives of a group make a table, which then is at least half full.
    """
    doublings = counts.clamp(min=1).double().log2().floor().masked_fill(counts == 0, -1)
    return [(doublings == level).nonzero().squeeze(-1) for level in doublings.unique().tolist() if level >= 0]


def ascending(table: Tensor) -> Tensor:
    """Each line sorted; on the CPU numpy's sort is several times as fast as torch's."""
    table = table.contiguous()
    return torch.from_numpy(np.sort(table.numpy(), axis=-1)) if is_plain(table) else table.sort(-1).values


def _precision_sums(table: Tensor, found: Tensor) -> Tensor:
    """Sum of the precision at each of ``found`` in its line; both ascend, and ``-inf`` in ``found`` counts as 0."""
    at_least = table.shape[-1] - _places(table, found)
    # Without ties the positives stand at their own places.
    places = torch.arange(found.shape[-1], device=found.device).repeat(len(found), 1)
    tied = (found[:, 1:] == found[:, :-1]).any(-1).nonzero().squeeze(-1)
    places[tied] = _places(found[tied], found[tied])
    positives_at_least = found.shape[-1] - places
    return (positives_at_least / at_least.double()).masked_fill(found == -math.inf, 0).sum(-1)


def _places(table: Tensor, wanted: Tensor) -> Tensor:
    """How many entries of each line of ``table`` lie below each of ``wanted``; both ascend."""
    if wanted.shape[-1] < _MANY or len(table) == 0 or not is_plain(table):
        return torch.searchsorted(table, wanted)
    pairs = zip(table.numpy(), wanted.numpy(), strict=True)
    return torch.from_numpy(np.stack([np.searchsorted(*pair) for pair in pairs]))

"""Rank-weighted hinges over all pairs of a positive and a negative: WARP, and its robust form."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    read_plain,
    reduce_rows,
    split,
    weighted,
)
from shortlist.functional.losses.violations import count_below, harmonic, ranked_rows, violations
from shortlist.labels import Labels
from shortlist.tensors import check_number, is_plain

__all__ = ["rml", "warp"]


def warp(
    logits: Tensor, target: Tensor, *, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Hinge over all pairs of a positive and a negative, each positive weighted by its exact rank.

    .. math:: \ell = \sum_{i \in Y} L(r_i) \sum_{j \in N} (\text{margin} - x_i + x_j)_+, \quad
              L(r) = \sum_{s=1}^{r} \frac{1}{s}

    with :math:`r_i` the number of negatives that violate the margin of positive i. Ranks are counted, not sampled, in
    :math:`O(n \log n)` per row, and are constants for the gradient.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out, and what is above 0
            counts as present.
        margin: by how much a positive should exceed each negative; at least 0.
        weight: ``(n,)``, multiplies the terms of each positive.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64. Piecewise linear, with jumps where a rank changes.

    Example:
        >>> warp(torch.tensor([[1.0, 0.5, -2.0, 0.25]]), torch.tensor([[0]]))
        tensor(1.1250)

    References:
        Weston, Bengio, Usunier, "WSABIE: Scaling Up To Large Vocabulary Image Annotation", 2011.
        Gong, Jia, Leung, Toshev, Ioffe, "Deep Convolutional Ranking for Multilabel Image Annotation", 2014.
    """
    margin = check_number("margin", margin, at_least=0)
    data = read_plain(logits, target, weight)
    if _in_one_pass(data):
        return reduce_rows(_ranked(data, margin=margin), reduction)
    pairs = _Pairs.of(data, *split(data.tensor, data.labels))
    return reduce_rows(pairs.total(*pairs.ramps(margin, math.inf)), reduction)


def rml(
    logits: Tensor,
    target: Tensor,
    *,
    floor: float = -0.8,
    balance: float = 2.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Robust multi-label ranking: rank-weighted ramp losses, which bound the influence of wrong labels.

    .. math:: \ell = \sum_{i \in Y} L(r_i) \sum_{j \in N} R(x_i - x_j)
              + \text{balance} \sum_{l \in Y \cup N} R(y_l x_l), \quad R(t) = \min(1 - \text{floor}, (1 - t)_+)

    with :math:`y_l = \pm 1`, and :math:`r_i` and L as in :func:`warp` with a margin of 1.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out, and what is above 0
            counts as present.
        floor: the margin below which the ramp is flat; below 1.
        balance: weight of the binary terms; at least 0.
        weight: ``(n,)``, multiplies the ranking terms of each positive and the binary term of each label.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64. Piecewise linear, with jumps where a rank changes.

    Example:
        >>> rml(torch.tensor([[1.0, 0.5, -2.0, 0.25]]), torch.tensor([[0]]))
        tensor(6.6250)

    References:
        Cevikalp, Benligiray, Gerek, Saribas, "Semi-Supervised Robust Deep Neural Networks for Multi-Label
        Classification", 2019.
    """
    floor = check_number("floor", floor, below=1)
    balance = check_number("balance", balance, at_least=0)
    data, top = read_plain(logits, target, weight), 1 - floor
    if _in_one_pass(data):
        return reduce_rows(_ranked(data, cap=top, balance=balance), reduction)
    rest, own = split(data.tensor, data.labels)
    pairs = _Pairs.of(data, rest, own)
    binary = _binary_ramps(data, rest, own, top)
    ranking = pairs.total(*pairs.ramps(1.0, top))
    return reduce_rows(ranking + balance * binary, reduction)


def _in_one_pass(data: LabeledLogits) -> bool:
    """Whether a multi-hot stays as it is, since its positives may not be counted."""
    fixed = not (isinstance(data.weight, Tensor) and data.weight.requires_grad)
    return data.labels.is_dense and data.tensor.shape[-1] > 0 and fixed and not is_plain(data.tensor)


def _ranked(data: LabeledLogits, **options: float) -> Tensor:
    return ranked_rows(data.tensor, data.labels.values.detach(), data.weight, **options).reshape(data.row_shape)


def _binary_ramps(data: LabeledLogits, rest: Tensor, own: Tensor, top: float) -> Tensor:
    """The sum of the binary terms of each row, ``(*rows,)``."""
    labels = data.labels
    # Of -inf the ramp is 0, so the labels that are no negatives add nothing.
    ramps = (1 + (torch.where(labels.values > 0, -own, rest) if labels.is_dense else rest)).clamp(0, top)
    ramps = ramps if data.weight is None else ramps * data.weight
    binary = ramps.sum(-1).reshape(data.row_shape)
    if labels.is_dense:
        return binary
    return binary + data.row_sums(weighted((1 - own).clamp(0, top) * labels.members, labels, data.weight))


class _Pairs(NamedTuple):
    """The positives of each row against all its negatives."""

    labels: Labels  # of which the positives count
    own: Tensor  # the entries' logits, 0 where they are no positives
    share: Tensor  # how much each counts, 0 if it is no positive
    rest: Tensor  # (num_rows, n): the negatives' logits, and -inf
    ranked: _Ranked | None  # the same in order, where numpy can sort them

    @classmethod
    def of(cls, data: LabeledLogits, rest: Tensor, own: Tensor) -> _Pairs:
        """The pairs of logits that are split into ``rest`` and ``own``."""
        labels, plain = data.labels, is_plain(rest) and is_plain(own)
        if labels.is_dense and plain and own.numel():
            labels = labels.positives()
            own = labels.at(own)
        own = torch.where(labels.values > 0, own, 0)
        share = weighted(labels.members, labels, data.weight)
        return cls(labels, own, share, rest, _Ranked.of(rest) if plain else None)

    def ramps(self, margin: float, cap: float) -> tuple[Tensor, Tensor]:
        """For each entry, how many negatives violate the margin, and by how much in total, each by at most ``cap``."""
        if self.ranked is not None:
            rank, total = self.ranked.hinge(self.labels, margin - self.own.double())
            if cap < math.inf:
                total = total - self.ranked.hinge(self.labels, margin - cap - self.own.double())[1]
        else:
            labels, threshold = self.labels, margin - self.own
            if labels.is_dense or labels.width is not None:
                threshold, rows = threshold.reshape(len(self.rest), -1), None
            else:
                rows = labels.pairs()[0]
            rank, total = (x.reshape(self.own.shape) for x in violations(self.rest, threshold, cap, rows))
        # Every negative violates the margin of a positive at -inf by infinitely much.
        return rank, torch.where(self.own == -math.inf, torch.where(rank > 0, rank * cap, 0), total)

    def total(self, rank: Tensor, terms: Tensor) -> Tensor:
        """The sum of the positives' ``terms`` over each row, weighted by 1 + 1/2 + ... + 1/rank, ``(*rows,)``."""
        summed = self.labels.sum_along(self.share * harmonic(self.rest).to(terms.dtype)[rank] * terms)
        return summed.reshape(self.labels.row_shape).to(self.share.dtype)


class _Ranked(NamedTuple):
    """Negatives by rank: O(n log n) for any number of pairs."""

    keys: Tensor  # (num_rows, n): minus the negatives' logits, ascending, then inf; in float64
    sums: Tensor  # (num_rows, n + 1): the sum of the 0, 1, 2, ... largest negatives

    @classmethod
    def of(cls, rest: Tensor) -> _Ranked:
        """The negatives, which are all that is above -inf."""
        x = -rest.detach()
        order = torch.from_numpy(np.argsort(x.numpy(), -1))  # several times faster than torch
        ranked = rest.gather(-1, order)
        negative = ranked > -math.inf
        ranked = torch.where(negative, ranked, 0).double()
        return cls(torch.where(negative, -ranked.detach(), math.inf), pad(ranked.cumsum(-1), (1, 0)))

    def hinge(self, labels: Labels, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """How many negatives plus the threshold of each entry are above 0, and their sum."""
        wanted = threshold.detach().contiguous()
        if labels.is_dense:
            rank = torch.searchsorted(self.keys, wanted)
            return rank, rank * threshold + self.sums.gather(-1, rank)
        (rows, _), width = labels.pairs(), labels.width
        if width is None:
            rank = count_below(self.keys, rows, wanted)
        else:
            rank = torch.searchsorted(self.keys, wanted.view(len(self.keys), width)).reshape(-1)
        return rank, rank * threshold + self.sums.reshape(-1)[rows * self.sums.shape[-1] + rank]

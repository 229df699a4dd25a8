"""Positives above negatives: the two-way contrast, and rank-weighted hinges over all pairs."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from shortlist.functional.linear.two_way import linear_two_way
from shortlist.functional.losses.contrast import Pair, contrast
from shortlist.functional.losses.few_contrast import few_contrast
from shortlist.functional.losses.pairs import marked_pairs, observed_pairs
from shortlist.functional.marked import Marked, marked
from shortlist.functional.observed import Observed, observed
from shortlist.functional.options import check_number, check_positive
from shortlist.functional.reduction import Reduction, check_reduction, check_weight, reduce_rows
from shortlist.functional.sharded.two_way import sharded_two_way
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.tensors import is_dtensor, log_sigmoid

__all__ = ["rml", "two_way", "warp"]

TwoWayKind = Literal["two-way", "sample", "class"]
"""Whether labels compete within a row, rows within a class, or both."""


def two_way(
    logits: Tensor | LinearLogits,
    target: Tensor,
    *,
    kind: TwoWayKind = "two-way",
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    margin: float = 0.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Contrast between the lowest positive and the highest negative, along rows, along classes, or both.

    .. math:: \ell = \log\left(1 + e^{u}\right), \quad u = T_N \log \sum_{j \in N} e^{x_j / T_N}
              + T_P \log \sum_{i \in P} e^{-x_i / T_P} + \text{margin}

    Sample-wise, P and N are the positives and the known negatives of a row; class-wise, the rows in which a class is
    present and absent, all leading dimensions taken together. The two-way loss is the sum of both means. Rows and
    classes that lack a positive or a negative are left out. A constant added to all logits changes nothing.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label. :class:`LinearLogits` are never held. A
            ``DTensor`` may be sharded along its labels; all processes give the same target, with the numbers of all
            labels, and get a replicated loss (one value per class: sharded alike).
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out, and what is above 0
            counts as present.
        kind: ``"two-way"``, ``"sample"`` or ``"class"``.
        positive_temperature: ``T_P``; the smaller, the more the lowest positive counts alone.
        negative_temperature: ``T_N``, the same for the highest negative.
        margin: how far apart the two must be for half a point.
        weight: ``(n,)``: a class counts by its weight, a row by the mean weight of its positives.
        reduction: ``"mean"`` over the rows that count plus mean over the classes that count; ``"none"`` gives one
            value per row (for ``"class"``, per class), 0 where left out, times its weight, and the two-way loss adds
            the class-wise mean to every row; ``"sum"`` their sum.

    Returns:
        One number, or one value per row or class; float32 or float64.

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 1.0, 0.0]])
        >>> two_way(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), reduction="none", kind="sample")
        tensor([0.2413, 0.4076])
        >>> two_way(logits, torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        tensor(0.4122)

    References:
        Kobayashi, "Two-way Multi-Label Loss", 2023, eq. 14-15.
    """
    if kind not in get_args(TwoWayKind):
        raise ValueError(f'`kind` must be "two-way", "sample" or "class"; got {kind!r}.')
    check_reduction(reduction)
    options = (
        check_positive("positive_temperature", positive_temperature),
        check_positive("negative_temperature", negative_temperature),
        check_number("margin", margin),
    )
    axes = {"two-way": (-1, -2), "sample": (-1,), "class": (-2,)}[kind]
    if isinstance(logits, LinearLogits):
        return linear_two_way(logits, target, axes=axes, options=options, weight=weight, reduction=reduction)
    if is_dtensor(logits):
        return sharded_two_way(logits, target, axes=axes, options=options, weight=weight, reduction=reduction)
    labels = marked(logits, target) or observed(logits, target)
    weight = check_weight(weight, labels.logits)
    parts = _contrasts(labels, axes, *options)
    if kind == "class":
        return _class_wise(parts[0], weight, reduction)
    samples = _sample_wise(parts[0], labels, weight, reduction)
    if kind == "sample":
        return samples
    classes = _class_wise(parts[1], weight, "mean")
    return samples + classes * (math.prod(logits.shape[:-1]) if reduction == "sum" else 1)


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
    marks = marked(logits, target)
    if marks is None:
        labels = observed(logits, target)
        pairs = observed_pairs(labels, check_weight(weight, labels.logits))
    else:
        pairs = marked_pairs(marks, marks.filled(-math.inf), check_weight(weight, marks.logits))
    rank, hinge = pairs.hinge(margin)
    return reduce_rows(pairs.total(rank, hinge), reduction)


def rml(
    logits: Tensor,
    target: Tensor,
    *,
    floor: float = -0.8,
    balance: float = 2.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Robust multi-label ranking: rank-weighted ramps, which wrong labels cannot pull without bound.

    .. math:: \ell = \sum_{i \in Y} L(r_i) \sum_{j \in N} R(x_i - x_j)
              + \text{balance} \sum_{l \in Y \cup N} R(y_l x_l), \quad R(t) = \min(1 - \text{floor}, (1 - t)_+)

    with :math:`y_l = \pm 1`, and :math:`r_i` and L as in :func:`warp` with a margin of 1.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out, and what is above 0
            counts as present.
        floor: where the ramp ends: what lies further on the wrong side costs no more; below 1.
        balance: how much the binary terms count; at least 0.
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
    marks, top = marked(logits, target), 1 - floor
    if marks is None:
        labels = observed(logits, target)
        x, present, absent = labels
        weight = check_weight(weight, x)
        pairs = observed_pairs(labels, weight)
        # Of -inf the ramps are 0 and their largest value, so that no product is NaN.
        ramps = (1 - x).clamp(0, top) * present.ceil() + (1 + x).clamp(0, top) * absent.floor()
        binary = (ramps if weight is None else ramps * weight).sum(-1)
    else:
        weight, rest = check_weight(weight, marks.logits), marks.filled(-math.inf)
        pairs = marked_pairs(marks, rest, weight)
        ramps, own = (1 + rest).clamp(0, top), (1 - marks.own()).clamp(0, top) * marks.members
        if weight is not None:
            ramps, own = ramps * weight, own * weight[marks.labels]
        binary = ramps.sum(-1) + marks.row_sums(own)
    rank, hinge = pairs.hinge(1.0)
    ranking = pairs.total(rank, hinge - pairs.hinge(floor)[1])
    return reduce_rows(ranking + balance * binary, reduction)


def _contrasts(
    labels: Marked | Observed,
    axes: tuple[int, ...],
    positive_temperature: float,
    negative_temperature: float,
    margin: float,
) -> list[Pair]:
    """The losses of the rows (axis -1) and the classes (-2), and whether each counts."""
    n, temperatures = labels.logits.shape[-1], (positive_temperature, negative_temperature)
    if labels.logits.numel() == 0:
        x = labels.logits.reshape(math.prod(labels.logits.shape[:-1]), n)
        return [(zeros, torch.zeros_like(zeros)) for zeros in (x.sum(axis) for axis in axes)]
    if isinstance(labels, Marked):
        parts = few_contrast(labels, axes, temperatures)
    else:
        x, present, absent = (part.reshape(-1, n) for part in labels)
        parts = contrast(x, present, absent, axes, temperatures)
    return [(-log_sigmoid(-(value + margin)), counted) for value, counted in parts]


def _sample_wise(part: Pair, labels: Marked | Observed, weight: Tensor | None, reduction: Reduction) -> Tensor:
    values, share = (each.reshape(labels.logits.shape[:-1]) for each in part)
    if weight is not None and isinstance(labels, Marked):
        total = labels.row_sums(labels.members * weight[labels.labels])
        share = share * total / labels.row_sums(labels.members).clamp(min=1)
    elif weight is not None:
        members = labels.present.ceil()
        share = share * (members * weight).sum(-1) / members.sum(-1).clamp(min=1)
    return reduce_rows(values, reduction, share=share)


def _class_wise(part: Pair, weight: Tensor | None, reduction: Reduction) -> Tensor:
    values, share = part
    return reduce_rows(values, reduction, share=share if weight is None else share * weight)

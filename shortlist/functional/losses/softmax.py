"""Losses of the softmax family: cross-entropy, its focal and large-margin forms, and its truncation for top-k."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    own_logits,
    read_labeled,
    read_plain,
    reduce_rows,
    without_unknown,
)
from shortlist.functional.losses.soft_maximum import soft_maxima, soft_maximum, truncated_soft_maximum
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.tensors import check_number, check_positive, whole_k

__all__ = [
    "cross_entropy",
    "focal",
    "ldam",
    "margins_from_counts",
    "multilabel_softmax",
    "multilabel_truncated_topk_entropy",
    "truncated_topk_entropy",
]


def cross_entropy(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Softmax cross-entropy.

    .. math:: \ell = -\log \frac{e^{x_y}}{\sum_j e^{x_j}}

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: one class per row: class indices, index lists of width 1 or one-hots. A row without a class is left
            out; unknown labels are left out.
        weight: ``(n,)``, one weight per class.
        reduction: ``"mean"`` weights each row by its class, as torch does; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> cross_entropy(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.3490)
    """
    data = read_plain(logits, target, weight, one_class=True)
    return data.reduce_classes(log1pexp(rival_excess(data)), reduction)


def focal(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Focal loss: cross-entropy that puts less weight on rows that are already predicted well.

    .. math:: \ell = (1 - p_y)^\gamma \, (-\log p_y), \qquad p = \operatorname{softmax}(x)

    Args:
        logits: as for :func:`cross_entropy`.
        target: as for :func:`cross_entropy`.
        gamma: at least 0; 0 is cross-entropy.
        weight: ``(n,)``, one weight per class.
        reduction: as for :func:`cross_entropy`.

    Returns:
        A number, or one value per row.

    Example:
        >>> focal(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.0303)

    References:
        Lin, Goyal, Girshick, He, Dollár, "Focal Loss for Dense Object Detection", 2017.
    """
    gamma = check_number("gamma", gamma, at_least=0)
    data = read_plain(logits, target, weight, one_class=True)
    excess = rival_excess(data)
    return data.reduce_classes((-gamma * log1pexp(-excess)).exp() * log1pexp(excess), reduction)


def ldam(
    logits: Tensor,
    target: Tensor,
    *,
    margin: float | Tensor,
    scale: float = 30.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Cross-entropy with a margin for each class, larger for rare ones.

    .. math:: \ell = -\log \frac{e^{s (x_y - m_y)}}{e^{s (x_y - m_y)} + \sum_{j \neq y} e^{s x_j}}

    Args:
        logits: as for :func:`cross_entropy`; meant for cosine similarities.
        target: as for :func:`cross_entropy`.
        margin: ``m``, a number or one per class, ``(n,)``: see :func:`margins_from_counts`.
        scale: ``s``, positive.
        weight: ``(n,)``, one weight per class.
        reduction: as for :func:`cross_entropy`.

    Returns:
        A number, or one value per row.

    Example:
        >>> margin = margins_from_counts(torch.tensor([1000, 100, 10]))
        >>> ldam(torch.tensor([[0.2, 0.3, 0.9]]), torch.tensor([2]), margin=margin, scale=10.0)
        tensor(0.4076)

    References:
        Cao, Wei, Gaidon, Arechiga, Ma, "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", 2019.
    """
    scale = check_positive("scale", scale)
    data = read_plain(logits, target, weight, one_class=True)
    margin = class_margin(margin, data.labels.pairs()[1], data.tensor)
    excess = scale * (rival_excess(data, temperature=1 / scale) + margin)
    return data.reduce_classes(log1pexp(excess), reduction)


def margins_from_counts(counts: Tensor, *, largest: float = 0.5) -> Tensor:
    r"""Margins for imbalanced classes: the rarer, the larger.

    .. math:: m_y = C / n_y^{1/4}, \qquad \max_y m_y = \texttt{largest}

    Args:
        counts: ``(n,)``, the number of training rows of each class.
        largest: the margin of the rarest class that has examples, and of those without any.

    Returns:
        ``(n,)``, floating.

    Example:
        >>> margins_from_counts(torch.tensor([10000, 625, 16, 0]), largest=0.5)
        tensor([0.1000, 0.2000, 0.5000, 0.5000])
    """
    if not isinstance(counts, Tensor) or counts.ndim != 1:
        kind = tuple(counts.shape) if isinstance(counts, Tensor) else type(counts).__name__
        raise TypeError(f"`counts` must be a tensor with one number per class; got {kind}.")
    if bool((counts < 0).any()):
        raise ValueError(f"`counts` must be at least 0; got {counts.min().item()}.")
    largest = check_positive("largest", largest)
    floating = counts if counts.is_floating_point() else counts.to(torch.get_default_dtype())
    seen = torch.where(floating > 0, floating, math.inf)
    rarest = seen.amin() if len(seen) else floating.new_ones(())
    return torch.where(floating > 0, largest * (rarest / floating.clamp(min=1e-30)) ** 0.25, largest)


def truncated_topk_entropy(
    logits: Tensor | LinearLogits,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Cross-entropy without the ``k - 1`` largest rivals, which a top-k prediction has room for.

    .. math:: \ell = \log\Bigl(1 + \sum_{j \in J} e^{x_j - x_y}\Bigr), \qquad
              J = \text{the } n - k \text{ smallest of } (x_j)_{j \neq y}

    Args:
        logits: as for :func:`cross_entropy`. May be :class:`LinearLogits`.
        target: as for :func:`cross_entropy`.
        k: how many labels the prediction holds, a whole number in [1, n]. 1 is cross-entropy; n gives 0, since such a
            prediction is never wrong.
        weight: ``(n,)``, one weight per class.
        reduction: as for :func:`cross_entropy`.

    Returns:
        A number, or one value per row.

    Example:
        >>> truncated_topk_entropy(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([1]), k=2)
        tensor(0.1269)

    References:
        Lapin, Hein, Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016.
    """
    data, k = read_labeled(logits, target, weight, one_class=True, sharded=False), whole_k(k, logits.shape[-1])
    values = data.row_sums(_set_entropy_terms(data, k - 1, k - 1) * data.labels.members)
    return data.processes.replicate(data.reduce_classes(values, reduction))


def multilabel_truncated_topk_entropy(
    logits: Tensor | LinearLogits,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Truncated entropy for sets, without the negatives that a perfect prediction of ``k`` labels has room for.

    .. math:: \ell = \sum_{i \in Y} \log\Bigl(1 + \sum_{j \in J} e^{x_j - x_i}\Bigr), \qquad
              J = \text{the negatives but the } \max(0, k - |Y|) \text{ largest}

    Args:
        logits: ``(*rows, n)``, floating. May be :class:`LinearLogits`.
        target: the positives, in any form of :mod:`shortlist.targets`; unknown labels are left out.
        k: how many labels the prediction holds, a whole number in [1, n].
        weight: ``(n,)``, the weight of each positive.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> multilabel_truncated_topk_entropy(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]), k=3)
        tensor(0.2500)

    References:
        Amos, Koltun, Kolter, "The Limited Multi-Label Projection Layer", 2019, appendix B.
    """
    data, k = read_labeled(logits, target, weight, sharded=False), whole_k(k, logits.shape[-1])
    count = data.row_sums(data.labels.members).reshape(-1)
    terms = _set_entropy_terms(data, (k - count).clamp(0, k - 1), k - 1)
    return data.processes.replicate(reduce_rows(data.positive_sums(terms), reduction))


def multilabel_softmax(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Softmax cross-entropy for sets: the target puts equal mass on every positive.

    .. math:: \ell = -\frac{1}{|Y|} \sum_{i \in Y} \log \frac{e^{x_i}}{\sum_j e^{x_j}}

    With one positive it is :func:`cross_entropy`. Its infimum is the log of the number of positives, for equal logits
    of the positives far above all others.

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: the positives, in any form of :mod:`shortlist.targets`; unknown labels are left out.
        weight: ``(n,)``, the weight of each positive.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> multilabel_softmax(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.2452)

    References:
        Mahajan, Girshick, Ramanathan, He, Paluri, Li, Bharambe, van der Maaten, "Exploring the Limits of Weakly
        Supervised Pretraining", 2018.
    """
    data = read_plain(logits, target, weight)
    known = without_unknown(data.tensor, data.labels)
    top, part = soft_maximum(known)
    terms = (data.beside(top) - own_logits(known, data.labels)) + data.beside(part)
    count = data.row_sums(data.labels.present)
    return reduce_rows(data.positive_sums(terms) / torch.where(count > 0, count, 1), reduction)


def rival_excess(data: LabeledLogits, temperature: float = 1.0) -> Tensor:
    """``T log sum exp(x_j / T) - x_y`` over all labels j but the class y of each row, ``(num_rows,)``.

    Cross-entropy is ``log(1 + exp(excess))``, with all the digits of a tiny loss. Without rivals it is hugely negative.
    """
    own, (top, part) = soft_maxima(data.tensor, data.labels, (-1,), temperature)
    return (top - own) + part


def _set_entropy_terms(data: LabeledLogits, dropped: Tensor | int, most: int) -> Tensor:
    """``log(1 + sum exp(x_j - x_i))`` of each entry i, over the rest j of its row but the ``dropped`` largest."""
    own, top, part = truncated_soft_maximum(data, dropped, most)
    return log1pexp((data.beside(top) - own) + data.beside(part))


def class_margin(margin: float | Tensor, index: Tensor, logits: Tensor) -> Tensor | float:
    """The margin of each row's class, or the number that holds for all."""
    if not isinstance(margin, Tensor):
        return check_number("margin", margin)
    if margin.shape != logits.shape[-1:]:
        raise ValueError(
            f"`margin` must be a number or have one value per label, shape {tuple(logits.shape[-1:])}; "
            f"got {tuple(margin.shape)}."
        )
    return margin.to(logits.dtype)[index]


def log1pexp(u: Tensor) -> Tensor:
    """``log(1 + exp u)`` with all its digits in both tails."""
    return softplus(u, threshold=40.0)  # from here on it is u, in float64 too

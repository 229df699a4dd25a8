"""Losses of the softmax family: cross-entropy, its focal and large-margin forms, and its truncation for top-k."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.binned_sums import Bins, binned_sums
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    own_logits,
    read_labeled,
    read_plain,
    reduce_rows,
    without_unknown,
)
from shortlist.functional.losses.soft_maximum import (
    negative_soft_maxima,
    soft_maxima,
    soft_maximum,
    truncated_soft_maximum,
)
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.labels import Labels
from shortlist.tensors import check_number, check_positive, is_plain, on_accelerator, whole_k, wide

__all__ = [
    "cross_entropy",
    "focal",
    "ldam",
    "margins_from_counts",
    "multilabel_softmax",
    "multilabel_truncated_topk_entropy",
    "plackett_luce",
    "truncated_topk_entropy",
]

_CERTAIN = 1000.0
"""Excess of the rivals of a class whose probability is 0 in every dtype."""
_NODES = {torch.float32: 48, torch.float64: 160}
"""Nodes of the quadrature in `plackett_luce` for few positives; with them its error is below the rounding error."""


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
    # Beyond the bound 1 - p is one; the gradient of an infinite excess would be 0 times infinity.
    log_rest = -log1pexp(-excess.clamp(max=_CERTAIN))
    return data.reduce_classes((gamma * log_rest).exp() * log1pexp(excess), reduction)


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


def plackett_luce(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Negative log-likelihood of a set: its labels are drawn first, in any order, from a softmax without replacement.

    .. math:: \ell = -\log \sum_{\pi} \prod_{i=1}^{|Y|} \frac{e^{x_{\pi_i}}}{Z - \sum_{j<i} e^{x_{\pi_j}}}
              = -\log \int_0^\infty e^{-t} \prod_{i \in Y} \left(1 - e^{-t\, r_i}\right) dt, \quad
              Z = \sum_j e^{x_j}, \; r_i = \frac{e^{x_i}}{\sum_{j \notin Y} e^{x_j}}

    The integral gives the sum over all :math:`|Y|!` orders :math:`\pi` exactly up to rounding, in time linear in the
    number of positives. With one positive the loss is :func:`cross_entropy`. Unlike in :func:`multilabel_softmax`,
    positives do not compete with each other, and the loss goes to 0 as they rise above all others.

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: the positives, in any form of :mod:`shortlist.targets`; unknown labels are left out. Index lists and
            sparse targets take memory in proportion to their labels, and on the CPU multi-hots, too.
        weight: ``(n,)``; a row is multiplied by the mean weight of its positives.
        reduction: ``"mean"`` over the rows, where one without positives counts as 0; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> plackett_luce(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.1772)

    References:
        Plackett, "The Analysis of Permutations", 1975. Kool, van Hoof, Welling, "Estimating Gradients for Discrete
        Random Variables by Sampling without Replacement", 2020.
    """
    data = read_plain(logits, target, weight)
    own, [(top, part)] = negative_soft_maxima(data, (-1,))
    lead = (own - data.beside(top)) - data.beside(part)
    values = -(_log_first_binned if _takes_bins(data.labels, lead) else _log_first)(data.labels, lead)
    values = values.reshape(data.row_shape)
    if weight is not None:
        count = data.row_sums(data.labels.present)
        values = values * data.row_sums(data.share()) / torch.where(count > 0, count, 1)
    return reduce_rows(values, reduction)


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


def _log_first(labels: Labels, lead: Tensor) -> Tensor:
    """``log P`` that the positives of each row come before all other labels, ``(num_rows,)``.

    ``lead`` is ``log r`` of each entry. With ``t = e^z`` the integrand is ``exp(g(z))``, where
    ``g(z) = z - e^z + sum_i log(1 - exp(-e^(z + lead_i)))`` is concave and analytic, so the trapezoidal rule converges
    exponentially. If g is largest at m, it has fallen by at least ``e^m (d - 1 + e^-d)`` at m - d and by
    ``e^m (e^d - 1 - d)`` at m + d, which bounds the range of z.
    """
    if labels.is_dense and is_plain(lead):
        labels = labels.positives()
        lead = labels.at(lead)
    member, precision = labels.values > 0, lead.dtype
    lead = lead.to(wide(lead))  # a sum over many labels is large, and its rounding error is relative to it
    # Each round divides the bracket of the largest point; on accelerators few rounds of many points, since calls cost.
    rounds, parts = (2, 16) if on_accelerator(lead) else (8, 2)
    with torch.no_grad():
        count = labels.sum_along(labels.members).to(lead.dtype)
        low, width = torch.zeros_like(count), count.log1p()
        points = torch.arange(1, parts, device=lead.device, dtype=lead.dtype)
        for _ in range(rounds):
            width = width / parts
            middle = low.unsqueeze(-1) + width.unsqueeze(-1) * points
            power = (lead.unsqueeze(-1) + labels.spread(middle)).clamp(-30, 4).exp()
            slopes = (power / power.expm1()).masked_fill(~member.unsqueeze(-1), 0)
            rising = 1 + labels.sum_along(slopes) > middle.exp()
            low = low + width * rising.sum(-1)
        mode = low + width / 2
        fall = (2 - math.log(torch.finfo(precision).eps)) / mode.exp()
        room = fall + (2 * fall).sqrt()
        # The more positives, the steeper the integrand where it vanishes.
        most = int(labels.counts.max()) if count.numel() and is_plain(lead) else labels.width or labels.num_labels
        nodes = int(_NODES[precision] * max(1.0, math.log(max(most, 1)) / 1.65))
        steps = torch.linspace(0, 1, nodes, dtype=lead.dtype, device=lead.device)
        width = room + room.log1p()
        z = (mode - room).unsqueeze(-1) + width.unsqueeze(-1) * steps
    terms = _log_first_of_one(lead.unsqueeze(-1) + labels.spread(z))
    g = z - z.exp() + labels.sum_along(terms.masked_fill(~member.unsqueeze(-1), 0))
    # Rounding may exceed a probability of 1.
    return (g.logsumexp(-1) + (width / (len(steps) - 1)).log()).clamp(max=0).to(precision)


def _takes_bins(labels: Labels, lead: Tensor) -> bool:
    """Whether each label would take part at each node; compilers fuse that, and tracers cannot keep tables."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or type(lead) is not Tensor
    return labels.is_dense and on_accelerator(lead) and lead.dtype == torch.float32 and not traced


def _log_first_of_one(u: Tensor) -> Tensor:
    """``log(1 - exp(-e^u))``."""
    far = u < -16  # where it is log(e^u (1 - e^u / 2)) to the last digit
    near = (-(-u.masked_fill(far, 0).clamp(max=6).exp()).expm1()).log()
    return torch.where(far, u - u.clamp(max=0).exp() / 2, near)


def _log_first_binned(labels: Labels, lead: Tensor) -> Tensor:
    """The same in float32 of a multi-hot, whose positives an accelerator may not count: from sums over bins.

    All rows share the nodes: evenly spaced in s, with ``e^z = (2.5 softplus(s))^2``, which are as close in z as the
    integrand is steep, whether its largest point is the logarithm of a count or a row's leads reach below 0.
    """
    z, log_width, bins = _nodes_and_bins(lead.shape[-1], lead.device)
    lead = torch.where(labels.values > 0, lead, math.inf)  # where the terms are zero
    # Below the bins the terms are linear, with the gradient of the lowest one.
    beyond = (lead.detach() - bins.low).clamp_(max=0).sum(-1)
    g = z - z.exp() + log_width + binned_sums(lead, bins)
    # Of hundreds of tiny leads g has few digits after the point, which the sum of the gradient's weights must not lack.
    top = g.detach().amax(-1, keepdim=True)
    return ((g - top).logsumexp(-1) + (top.squeeze(-1) + beyond)).clamp(max=0)


@functools.cache
def _nodes_and_bins(n: int, device: torch.device) -> tuple[Tensor, Tensor, Bins]:
    """Nodes for up to ``n`` positives, the logarithms of their weights, and the sums of the integrand's terms there."""
    step = 0.5 / math.log(max(n, 30))  # the more labels, the steeper their product where it vanishes
    s = torch.arange(-9.5, math.sqrt(n) / 2 + 3, step, dtype=torch.float64)
    z = 2 * (2.5 * softplus(s)).log()
    log_width = (2 * step * s.sigmoid() / softplus(s)).log()
    # Below -14 the terms are linear, and above 3 zero.
    bins = Bins.of(_log_first_of_one, z, -14 - float(z[-1]), 3 - float(z[0]))
    z, log_width, table = (part.to(device, torch.float32) for part in (z, log_width, bins.table))
    return z, log_width, bins._replace(table=table)

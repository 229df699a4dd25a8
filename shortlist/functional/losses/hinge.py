"""Top-k hinge losses: plain, convex and calibrated, smoothed over sets, and smoothed by noise."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from shortlist.functional.losses.labeled_logits import Reduction, own_logits, read_plain, split
from shortlist.functional.losses.softmax import class_margin, log1pexp
from shortlist.functional.order_statistics import entries_at, kth_largest, largest, mean_of, noised_kth_places
from shortlist.functional.symmetric_polynomials import has_kernel, log_symmetric_ratio, log_symmetric_ratio_beside
from shortlist.tensors import check_number, check_positive, whole_k

__all__ = ["noised_topk", "smooth_topk_svm", "topk_hinge"]

HingeKind = Literal["calibrated", "plain", "convex"]


def topk_hinge(
    logits: Tensor,
    target: Tensor,
    k: int,
    *,
    kind: HingeKind = "calibrated",
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Hinge losses for the top-k error.

    .. math::
        \text{calibrated:}\ (m + x_{[k+1]} - x_y)_+ \qquad
        \text{plain:}\ (m + (x_{\setminus y})_{[k]} - x_y)_+ \qquad
        \text{convex:}\ \Bigl(\tfrac1k \sum_{j \le k} (x + m (1 - \delta_y))_{[j]} - x_y\Bigr)_+

    Only the calibrated one is consistent for the top-k error.

    Args:
        logits: ``(*rows, n)``, floating. float16 and bfloat16 are computed in float32, and so is the result.
        target: one class per row, as for :func:`cross_entropy`.
        k: how many labels the prediction holds, a whole number in [1, n]. With n the calibrated and the plain loss are
            0.
        kind: ``"calibrated"``, ``"plain"`` or ``"convex"``.
        margin: ``m``.
        weight: ``(n,)``, one weight per class.
        reduction: ``"mean"`` weights each row by its class; ``"sum"``; ``"none"``.

    Returns:
        A number, or one value per row.

    Example:
        >>> topk_hinge(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.)

    References:
        Lapin, Hein, Schiele, "Top-k Multiclass SVM", 2015; Yang, Koyejo, "On the Consistency of Top-k Surrogate
        Losses", 2020.
    """
    if kind not in get_args(HingeKind):
        raise ValueError(f'`kind` must be "calibrated", "plain" or "convex"; got {kind!r}.')
    margin = check_number("margin", margin)
    data = read_plain(logits, target, weight, one_class=True)
    k, x, own = whole_k(k, data.num_labels), data.tensor, own_logits(data.tensor, data.labels)
    if kind == "convex":
        shifted = (x + margin).scatter(-1, data.labels.pairs()[1].unsqueeze(-1), own.unsqueeze(-1))
        excess = _excess(shifted.gather(-1, largest(shifted, k)).mean(-1), own)
    elif k == data.num_labels:
        excess = _zero(own)
    else:
        rival = kth_largest(x, k + 1) if kind == "calibrated" else kth_largest(split(x, data.labels)[0], k)
        excess = _excess(margin + rival, own)
    return data.reduce_classes(excess.relu(), reduction)


def smooth_topk_svm(
    logits: Tensor,
    target: Tensor,
    k: int,
    *,
    temperature: float = 1.0,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Top-k SVM smoothed over all sets of ``k`` labels.

    .. math:: \ell = \tau \log\bigl(e^{\alpha/\tau} S_k + S_{k-1} z_y\bigr) - \tau \log\bigl(S_{k-1} z_y\bigr),
              \qquad z = e^{x / (k \tau)}

    with :math:`S_j` the elementary symmetric polynomial of degree j of the :math:`z_i` but :math:`z_y`: the first
    sum runs over the sets without the true class, the second over those with it.

    Args:
        logits: as for :func:`topk_hinge`.
        target: one class per row, as for :func:`cross_entropy`.
        k: how many labels the prediction holds, a whole number in [1, n]; n gives 0.
        temperature: ``τ``, at least 0; 0 is the hard loss, :math:`(\alpha + ((x_{\setminus y})_{[k]} - x_y) / k)_+`.
        margin: ``α``.
        weight: ``(n,)``, one weight per class.
        reduction: as for :func:`topk_hinge`.

    Returns:
        A number, or one value per row.

    Example:
        >>> smooth_topk_svm(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.3950)

    References:
        Berrada, Zisserman, Kumar, "Smooth Loss Functions for Deep Top-k Classification", 2018.
    """
    temperature, margin = check_number("temperature", temperature, at_least=0), check_number("margin", margin)
    data = read_plain(logits, target, weight, one_class=True)
    k, x, labels = whole_k(k, data.num_labels), data.tensor, data.labels
    if k < data.num_labels and temperature > 0 and has_kernel(x, k):
        ratio = log_symmetric_ratio_beside(x, labels.pairs()[1], labels.listed, k, 1 / (k * temperature))
        return data.reduce_classes(temperature * log1pexp(margin / temperature + ratio), reduction)
    others, own = split(x, labels)
    if k == data.num_labels:
        return data.reduce_classes(_zero(own), reduction)
    absent = own == -math.inf  # Then no set holds the true class, and the loss is infinite.
    own = torch.where(absent, 0, own)
    if temperature == 0:
        values = (margin + (kth_largest(others, k) - own) / k).relu()
        return data.reduce_classes(torch.where(absent, math.inf, values), reduction)
    # Relative to the true class, so that an offset of the logits costs no digits.
    rest = (others - own.unsqueeze(-1)) / (k * temperature)
    values = temperature * log1pexp(margin / temperature + log_symmetric_ratio(rest, k))
    return data.reduce_classes(torch.where(absent, math.inf, values), reduction)


def noised_topk(
    logits: Tensor,
    target: Tensor,
    k: int,
    *,
    epsilon: float = 1.0,
    samples: int = 10,
    margin: float | Tensor = 1.0,
    scale: float = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Calibrated top-k hinge, smoothed by noise.

    .. math:: \ell = \bigl(s\, (m_y + \hat\tau - x_y)\bigr)_+, \qquad
              \hat\tau = \tfrac1M \sum_m (x + \varepsilon Z_m)_{[k+1]}

    The balanced form has the margin 1 and the scale 1; the imbalanced one, for cosines, has
    :func:`margins_from_counts` and a larger scale. Noise as large as the margin may leave the loss at 0 for scores that
    are all equal: keep ``epsilon`` well below the margin where few classes compete.

    Args:
        logits: as for :func:`topk_hinge`.
        target: one class per row, as for :func:`cross_entropy`.
        k: how many labels the prediction holds, a whole number in [1, n]; n gives 0.
        epsilon: the standard deviation of the noise; 0 is the calibrated hinge.
        samples: ``M``, the number of noise samples.
        margin: ``m``, a number or one per class, ``(n,)``.
        scale: ``s``, positive.
        generator: for reproducible noise.
        noise: ``(M, *rows, n)``, given instead of drawn.
        weight: ``(n,)``, one weight per class.
        reduction: as for :func:`topk_hinge`.

    Returns:
        A number, or one value per row; the gradient goes to the true class and to where the (k+1)-th was found.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> loss = noised_topk(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2, generator=generator)
        >>> bool(loss > 0)
        True

    References:
        Garcin, Servajean, Joly, Salmon, "Stochastic smoothing of the top-K calibrated hinge loss", 2022.
    """
    scale = check_positive("scale", scale)
    data = read_plain(logits, target, weight, one_class=True)
    k, x, own_place = whole_k(k, data.num_labels), data.tensor, data.labels.pairs()[1].unsqueeze(-1)
    margin = class_margin(margin, own_place.squeeze(-1), x)
    if k == data.num_labels:
        return data.reduce_classes(_zero(x.gather(-1, own_place).squeeze(-1)), reduction)
    # Reading all logits that count in one place gives one gradient, not the sum of two.
    places, offset = noised_kth_places(
        x.reshape(logits.shape), k + 1, epsilon=epsilon, samples=samples, generator=generator, noise=noise
    )
    entries = entries_at(x, torch.cat([places.reshape(len(x), places.shape[-1]), own_place], -1))
    rival = mean_of(entries[:, :-1]) + offset.reshape(-1)
    return data.reduce_classes((scale * _excess(margin + rival, entries[:, -1])).relu(), reduction)


def _excess(rival: Tensor, own: Tensor) -> Tensor:
    """``rival - own``, infinite for an absent class even if its rival is absent too."""
    both = (own == -math.inf) & (rival == -math.inf)
    return torch.where(both, math.inf, rival - own)


def _zero(own: Tensor) -> Tensor:
    """Zeros with zero gradients, also for an absent class."""
    return own.masked_fill(own == -math.inf, 0) * 0

"""One binary question per label: cross-entropy, and its asymmetric form for the many easy negatives."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from shortlist.functional.linear.bce import linear_bce
from shortlist.functional.losses.binary_terms import binary_terms
from shortlist.functional.losses.few_binary_terms import few_binary_terms
from shortlist.functional.marked import marked
from shortlist.functional.observed import observed
from shortlist.functional.options import check_number
from shortlist.functional.reduction import Reduction, check_reduction, check_weight
from shortlist.functional.sharded.losses import sharded_entries
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.tensors import is_dtensor

__all__ = ["asymmetric", "bce"]


def bce(
    logits: Tensor | LinearLogits, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Binary cross-entropy of every label.

    .. math:: \ell_j = -t_j \log \sigma(x_j) - (1 - t_j) \log(1 - \sigma(x_j))

    Args:
        logits: ``(*rows, n)``, floating. ``-inf`` marks an absent label: value and gradient are 0 there.
            :class:`LinearLogits` are never held, and have no reduction ``"none"``. A ``DTensor`` may be sharded along
            its labels; all processes give the same target, with the numbers of all labels, and get a replicated loss
            (one value per entry: sharded alike).
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. A floating multi-hot may
            hold soft targets in [0, 1].
        weight: ``(n,)``, multiplies the entries of each label.
        reduction: ``"none"`` gives one value per entry, ``"sum"`` their sum, ``"mean"`` the sum over the number of
            known entries, whatever their weights.

    Returns:
        The shape of ``logits`` for ``"none"``, else one number; float32 or float64.

    Example:
        >>> bce(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, -1.0]]), reduction="none")
        tensor([[0.1269, 0.3133, 0.0000]])

    References:
        Good, "Rational Decisions", 1952.
    """
    if isinstance(logits, LinearLogits):
        return linear_bce(logits, target, weight=weight, reduction=reduction)
    return _entries(logits, target, (0.0, 0.0, 0.0), weight, reduction)


def asymmetric(
    logits: Tensor,
    target: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Binary cross-entropy that fades out easy labels, negatives more than positives.

    .. math:: \ell_j = -t_j\, (1 - p)^{\gamma_+} \log p - (1 - t_j)\, p_m^{\gamma_-} \log(1 - p_m), \quad
              p = \sigma(x_j), \; p_m = \max(p - \text{clip}, 0)

    Negatives below ``clip`` cost nothing and get no gradient. With both gammas and ``clip`` at 0 this is :func:`bce`.

    Args:
        logits: ``(*rows, n)``, floating. ``-inf`` marks an absent label: value and gradient are 0 there.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. Soft targets in [0, 1]
            weigh the two terms.
        gamma_positive: how fast positives fade as they become certain; at least 0.
        gamma_negative: the same for negatives.
        clip: how probable a negative may be for free; in [0, 1).
        weight: ``(n,)``, multiplies the entries of each label.
        reduction: as for :func:`bce`.

    Returns:
        The shape of ``logits`` for ``"none"``, else one number; float32 or float64.

    Example:
        >>> asymmetric(torch.tensor([[2.0, -1.0, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]), reduction="none")
        tensor([[0.1269, 0.0006, 0.0000]])

    References:
        Ben-Baruch, Ridnik, Zamir, Noy, Friedman, Protter, Zelnik-Manor, "Asymmetric Loss For Multi-Label
        Classification", 2021.
    """
    options = (
        check_number("gamma_positive", gamma_positive, at_least=0),
        check_number("gamma_negative", gamma_negative, at_least=0),
        check_number("clip", clip, at_least=0, below=1),
    )
    return _entries(logits, target, options, weight, reduction)


def _entries(
    logits: Tensor, target: Tensor, options: tuple[float, float, float], weight: Tensor | None, reduction: Reduction
) -> Tensor:
    """Reduce one value per entry, as torch does: weights do not change the divisor of the mean."""
    check_reduction(reduction)
    if is_dtensor(logits):
        return sharded_entries(partial(_terms, options), logits, target, weight, reduction)
    values, known = _terms(options, logits, target, weight, summed=reduction != "none")
    if reduction == "none":
        return values
    total = values.sum()
    if reduction == "sum":
        return total
    return total / (known.clamp(min=1) if isinstance(known, Tensor) else max(known, 1))


def _terms(
    options: tuple[float, float, float], logits: Tensor, target: Tensor, weight: Tensor | None, *, summed: bool
) -> tuple[Tensor, Tensor | int]:
    """The values of all entries, or of rows if ``summed``, and how many entries are known."""
    marks = marked(logits, target)
    if marks is not None:
        weight = check_weight(weight, marks.logits)
        return few_binary_terms(marks, *options, weight=weight, summed=summed), marks.known()
    x, present, absent = observed(logits, target)
    weight = check_weight(weight, x)
    weighted = (present, absent) if weight is None else (present * weight, absent * weight)
    return binary_terms(x, *weighted, *options, summed=summed), present.sum() + absent.sum()

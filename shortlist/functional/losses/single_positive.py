"""Losses for rows of which some positives were seen and the rest was not looked at."""

from __future__ import annotations

import math

from torch import Tensor

from shortlist.checks import check_logits
from shortlist.functional.losses.binary_terms import binary_terms
from shortlist.functional.losses.few_binary_terms import few_binary_terms
from shortlist.functional.marked import marked
from shortlist.functional.observed import observed, positives, without_unknown
from shortlist.functional.options import check_number
from shortlist.functional.reduction import Reduction, check_weight, reduce_rows
from shortlist.targets import count_known
from shortlist.tensors import log_sigmoid

__all__ = ["assume_negative", "expected_positive", "role"]


def assume_negative(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Binary cross-entropy that takes what was not observed as absent, but counts it little.

    .. math:: \ell = -\sum_{j \in Y} \log \sigma(x_j) - \frac{1}{n - 1} \sum_{j \notin Y} \log(1 - \sigma(x_j))

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; labels marked
            unknown are left out.
        weight: ``(n,)``, multiplies the term of each label.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64.

    Example:
        >>> assume_negative(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.6301)

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic, "Multi-Label Learning from Single Positive Labels", 2021.
    """
    marks = marked(logits, target)
    background = 1 / (logits.shape[-1] - 1) if logits.shape[-1] > 1 else 0.0
    if marks is not None:
        weight = check_weight(weight, marks.logits)
        return reduce_rows(few_binary_terms(marks, background=background, weight=weight), reduction)
    x, present, absent = observed(logits, target)
    weight, absent = check_weight(weight, x), background * absent
    if weight is not None:
        present, absent = present * weight, absent * weight
    return reduce_rows(binary_terms(x, present, absent), reduction)


def expected_positive(
    logits: Tensor,
    target: Tensor,
    expected: float,
    *,
    beta: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Likelihood of the observed positives, with the average number of predicted ones held near what is expected.

    .. math:: \ell = -\sum_{j \in Y} \log \sigma(x_j) + \beta (\hat K - K)^2, \quad
              \hat K = \frac{1}{\text{rows}} \sum_{\text{rows}} \sum_j \sigma(x_j)

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; labels marked
            unknown do not count among the predicted ones.
        expected: ``K``, how many labels a row has on average; at least 0.
        beta: how much the number of labels counts; at least 0.
        weight: ``(n,)``, multiplies the term of each observed label.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``; the second term, the same for all rows, is part
            of each.

    Returns:
        One number, or one value per row; float32 or float64.

    Example:
        >>> expected_positive(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([0]), 2.0)
        tensor(0.2496)

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic, "Multi-Label Learning from Single Positive Labels", 2021.
    """
    known = without_unknown(logits, target)
    return reduce_rows(_expected_positive(known, target, expected, beta, weight), reduction)


def role(
    logits: Tensor,
    estimates: Tensor,
    target: Tensor,
    expected: float,
    *,
    beta: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Predictions and estimated labels that teach each other, both held to the expected number of positives.

    .. math:: \ell = \tfrac{1}{2} \left[ E(x) + C(x \mid \sigma(\theta)) + E(\theta) + C(\theta \mid \sigma(x)) \right]

    with E the loss :func:`expected_positive` and C the mean over the known labels of the binary cross-entropy with a
    soft target, which is a constant for the gradient. A label at ``-inf`` is absent for certain and leaves the mean of
    its own side.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        estimates: :math:`\theta`, the logits of the estimated labels of the same rows, shaped like ``logits``.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; labels marked
            unknown are left out.
        expected: how many labels a row has on average; at least 0.
        beta: how much the number of labels counts; at least 0.
        weight: ``(n,)``, multiplies the terms of each observed label in E.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64.

    Example:
        >>> logits, estimates = torch.tensor([[2.0, -1.0, 0.0]]), torch.zeros(1, 3)
        >>> role(logits, estimates, torch.tensor([0]), 2.0)
        tensor(1.3818)

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic, "Multi-Label Learning from Single Positive Labels", 2021.
    """
    check_logits(logits)
    check_partner("estimates", estimates, logits)
    ours, theirs = without_unknown(logits, target), without_unknown(estimates, target)
    values = _expected_positive(ours, target, expected, beta, weight)
    values = values + _expected_positive(theirs, target, expected, beta, weight)
    known = count_known(target, logits.shape[-1], row_dims=logits.ndim - 1).clamp(min=1)
    values = values + (_taught(ours, theirs.detach()) + _taught(theirs, ours.detach())) / known
    return reduce_rows(values / 2, reduction)


def check_partner(name: str, second: Tensor, logits: Tensor) -> None:
    """Refuse a second tensor of logits that is not floating or not shaped like the first."""
    if not isinstance(second, Tensor) or not second.is_floating_point():
        kind = second.dtype if isinstance(second, Tensor) else type(second).__name__
        raise TypeError(f"`{name}` must be a floating tensor; got {kind}.")
    if second.shape != logits.shape:
        raise ValueError(f"`{name}` must have the shape of `logits`, {tuple(logits.shape)}; got {tuple(second.shape)}.")


def _expected_positive(x: Tensor, target: Tensor, expected: float, beta: float, weight: Tensor | None) -> Tensor:
    expected, beta = check_number("expected", expected, at_least=0), check_number("beta", beta, at_least=0)
    seen = positives(x, target, weight)
    predicted = x.sigmoid().sum() / max(1, math.prod(x.shape[:-1]))  # unknown labels, at -inf, add nothing
    return seen.total(-log_sigmoid(seen.logits)) + beta * (predicted - expected) ** 2


def _taught(x: Tensor, teacher: Tensor) -> Tensor:
    """The sum over the labels above -inf of the cross-entropy with the probabilities of the teacher."""
    counted = (x.detach() > -math.inf).to(x.dtype)
    return binary_terms(x, counted * teacher.sigmoid(), counted * (-teacher).sigmoid())

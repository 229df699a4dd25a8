"""Losses for rows of which only some positives were observed."""

from __future__ import annotations

import math

from torch import Tensor

from shortlist.functional.losses.binary import row_sums, weighted_terms
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    add_at,
    check_second_logits,
    own_logits,
    read_plain,
    reduce_rows,
    without_unknown,
)
from shortlist.labels import Labels
from shortlist.tensors import check_logits, check_number, log_sigmoid

__all__ = ["assume_negative", "expected_positive", "role"]


def assume_negative(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Binary cross-entropy that takes unobserved labels as absent, with a small weight.

    .. math:: \ell = -\sum_{j \in Y} \log \sigma(x_j) - \frac{1}{n - 1} \sum_{j \notin Y} \log(1 - \sigma(x_j))

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; unknown labels are
            left out.
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
    check_logits(logits)
    n = logits.shape[-1]
    background = 1 / (n - 1) if n > 1 else 0.0
    return reduce_rows(row_sums(logits, target, background=background, weight=weight), reduction)


def expected_positive(
    logits: Tensor,
    target: Tensor,
    expected: float,
    *,
    beta: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Likelihood of the observed positives, with a penalty on the average number of predicted ones.

    .. math:: \ell = -\sum_{j \in Y} \log \sigma(x_j) + \beta (\hat K - K)^2, \quad
              \hat K = \frac{1}{\text{rows}} \sum_{\text{rows}} \sum_j \sigma(x_j)

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; unknown labels do not
            count as predicted.
        expected: ``K``, how many labels a row has on average; at least 0.
        beta: weight of the penalty; at least 0.
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
    data = read_plain(logits, target, weight)
    x = without_unknown(data.tensor, data.labels)
    return reduce_rows(_expected_positive(data, x, x.sigmoid(), expected, beta), reduction)


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
    r"""Joint training of predictions and label estimates, both with a penalty on the number of positives.

    .. math:: \ell = \tfrac{1}{2} \left[ E(x) + C(x \mid \sigma(\theta)) + E(\theta) + C(\theta \mid \sigma(x)) \right]

    with E the loss :func:`expected_positive` and C the binary cross-entropy with a soft target, summed over the known
    labels; the soft target is a constant for the gradient. A label at ``-inf`` is absent for certain and leaves the sum
    of its own side.

    This is the weighting of the authors' code: an observed positive and an entry of C count alike. Their value, a mean
    over rows and labels with a penalty :math:`\lambda ((\hat K - K) / n)^2`, is this one divided by n, with
    :math:`\beta = \lambda / n`.

    Args:
        logits: ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        estimates: :math:`\theta`, the logits of the estimated labels of the same rows, shaped like ``logits``.
        target: the observed labels, one or more per row, in any form of :mod:`shortlist.targets`; unknown labels are
            left out.
        expected: how many labels a row has on average; at least 0.
        beta: weight of the penalty; at least 0.
        weight: ``(n,)``, multiplies the terms of each observed label in E.
        reduction: ``"mean"`` over the rows, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64.

    Example:
        >>> logits, estimates = torch.tensor([[2.0, -1.0, 0.0]]), torch.zeros(1, 3)
        >>> role(logits, estimates, torch.tensor([0]), 2.0)
        tensor(2.9528)

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic, "Multi-Label Learning from Single Positive Labels", 2021.
    """
    check_second_logits("estimates", estimates, logits)
    ours = read_plain(logits, target, weight)
    theirs = ours.with_logits(estimates)
    x, other = (without_unknown(side.tensor, side.labels) for side in (ours, theirs))
    p, q = x.sigmoid(), other.sigmoid()
    penalty = _penalty(p, expected, beta) + _penalty(q, expected, beta)
    share = ours.share()
    taught = _taught(x, q.detach(), other.detach(), ours.labels, share)
    taught = taught + _taught(other, p.detach(), x.detach(), theirs.labels, share.to(other.dtype))
    return reduce_rows((penalty + taught.reshape(ours.row_shape)) / 2, reduction)


def _expected_positive(data: LabeledLogits, x: Tensor, p: Tensor, expected: float, beta: float) -> Tensor:
    """The loss of each row; ``x`` are the logits with -inf for unknown labels, and ``p`` their probabilities."""
    penalty = _penalty(p, expected, beta)
    return data.positive_sums(-log_sigmoid(own_logits(x, data.labels))) + penalty


def _penalty(p: Tensor, expected: float, beta: float) -> Tensor:
    expected, beta = check_number("expected", expected, at_least=0), check_number("beta", beta, at_least=0)
    return beta * (p.sum() / max(1, len(p)) - expected) ** 2  # unknown labels add nothing


def _taught(x: Tensor, probs: Tensor, teacher: Tensor, labels: Labels, share: Tensor) -> Tensor:
    """The sum over the labels above -inf of the cross-entropy with the probabilities of the teacher's logits.

    Observed labels count once more as positives, which saves a pass of their own.
    """
    # As a negative, a label at -inf has neither a value nor a slope.
    present = add_at(probs.masked_fill(x.detach() == -math.inf, 0), labels, share)
    return weighted_terms(x, present, (-teacher).sigmoid())

"""Losses that take more than logits and labels: a second head, or estimates of the labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist import functional as F
from shortlist.functional.reduction import Reduction
from shortlist.nn.loss import Loss


class AverageK(Loss):
    """Average-K loss for two heads on one feature: one proposes labels, the other predicts.

    The arguments are those of :func:`shortlist.functional.average_k`. Only the first argument of ``forward`` is used to
    predict.

    Example:
        >>> logits, proposals = torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[1.0, 0.0, 0.5, 0.0]])
        >>> AverageK(2)(logits, proposals, torch.tensor([0]))
        tensor(2.2654)
    """

    def __init__(
        self, k: float, *, alpha: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(k=k, alpha=alpha, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, proposals: Tensor, target: Tensor) -> Tensor:
        """The loss of the predicting head ``logits`` and the proposing head ``proposals``."""
        return F.average_k(logits, proposals, target, **self.arguments())


class ROLE(Loss):
    """Expected positives jointly with an estimate of all labels, which is learned beside the model.

    The estimates are a parameter with one row per training example, so they need memory for examples × labels; only
    the rows of a batch get a gradient. They start near 1/2, as the published method does.

    Args:
        num_examples: how many training examples there are.
        num_labels: how many labels.
        expected: how many positives a row has on average.
        beta: the strength with which that number is held.
        generator: makes the start reproducible.
        weight: one factor per label.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> loss = ROLE(100, 4, expected=2.0, generator=torch.Generator().manual_seed(0))
        >>> logits, target, examples = torch.zeros(1, 4), torch.tensor([2]), torch.tensor([17])
        >>> loss(logits, target, examples).isfinite().item()
        True
    """

    def __init__(
        self,
        num_examples: int,
        num_labels: int,
        expected: float,
        *,
        beta: float = 1.0,
        generator: torch.Generator | None = None,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(expected=expected, beta=beta, weight=weight, reduction=reduction)
        start = torch.empty(num_examples, num_labels).uniform_(0.4, 0.6, generator=generator)
        self.estimates = nn.Parameter(start.logit())

    def forward(self, logits: Tensor, target: Tensor, examples: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target`` of the training examples numbered ``examples``."""
        return F.role(logits, self.estimates[examples], target, **self.arguments())

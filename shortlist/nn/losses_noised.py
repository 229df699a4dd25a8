"""The noised top-k loss as a module."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist.functional.reduction import Reduction
from shortlist.nn.loss import Loss


class NoisedTopK(Loss):
    """Calibrated top-k hinge smoothed by noise; tensor margins are saved with the module.

    The arguments are those of :func:`shortlist.functional.noised_topk`. In training every call draws new noise, from
    ``generator`` or from torch's own. In evaluation every call draws the same.

    Args:
        k: how many labels the answer holds.
        epsilon: the scale of the noise.
        samples: how often noise is drawn.
        margin: a number, or one per class: see :func:`shortlist.functional.margins_from_counts`.
        scale: a positive factor; larger than 1 for cosines.
        generator: makes the noise of training reproducible.
        weight: one factor per class.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> loss = NoisedTopK(2).eval()
        >>> logits, target = torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2])
        >>> bool(loss(logits, target) == loss(logits, target))
        True
    """

    def __init__(
        self,
        k: int,
        *,
        epsilon: float = 1.0,
        samples: int = 10,
        margin: float | Tensor = 1.0,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            k=k, epsilon=epsilon, samples=samples, margin=margin, scale=scale, weight=weight, reduction=reduction
        )
        self.generator = generator

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the classes ``target``."""
        generator = self.generator if self.training else torch.Generator(logits.device).manual_seed(0)
        return F.noised_topk(logits, target, generator=generator, **self.arguments())

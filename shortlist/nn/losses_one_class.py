"""Losses for one true class: modules that store options and delegate to ``shortlist.functional``."""

from __future__ import annotations

from torch import Tensor

from shortlist import functional as F
from shortlist.functional.losses.hinge import HingeKind
from shortlist.functional.reduction import Reduction
from shortlist.nn.loss import Loss


class CrossEntropy(Loss):
    """Cross-entropy of the softmax.

    The arguments are those of :func:`shortlist.functional.cross_entropy`.

    Example:
        >>> CrossEntropy()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.4952)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.cross_entropy(logits, target, **self.arguments())


class Focal(Loss):
    """Cross-entropy that turns away from what is already right.

    The arguments are those of :func:`shortlist.functional.focal`.

    Example:
        >>> Focal(gamma=1.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.1600)
    """

    def __init__(self, *, gamma: float = 2.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(gamma=gamma, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.focal(logits, target, **self.arguments())


class LDAM(Loss):
    """Cross-entropy with a margin for each class; a tensor of margins is saved with the module.

    The arguments are those of :func:`shortlist.functional.ldam`.

    Example:
        >>> LDAM(margin=0.5, scale=1.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.9028)
    """

    def __init__(
        self,
        *,
        margin: float | Tensor,
        scale: float = 30.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(margin=margin, scale=scale, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.ldam(logits, target, **self.arguments())


class TruncatedTopKEntropy(Loss):
    """Cross-entropy against all others but the ``k - 1`` largest.

    The arguments are those of :func:`shortlist.functional.truncated_topk_entropy`.

    Example:
        >>> TruncatedTopKEntropy(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(0.5550)
    """

    def __init__(self, k: int, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(k=k, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.truncated_topk_entropy(logits, target, **self.arguments())


class TopKHinge(Loss):
    """Hinge losses for the top-k error: calibrated, plain or convex.

    The arguments are those of :func:`shortlist.functional.topk_hinge`.

    Example:
        >>> TopKHinge(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(0.5000)
    """

    def __init__(
        self,
        k: int,
        *,
        kind: HingeKind = "calibrated",
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(k=k, kind=kind, margin=margin, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.topk_hinge(logits, target, **self.arguments())


class SmoothTopKSVM(Loss):
    """Top-k SVM smoothed over all sets of ``k`` labels; temperature 0 is the hard one.

    The arguments are those of :func:`shortlist.functional.smooth_topk_svm`.

    Example:
        >>> SmoothTopKSVM(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.1369)
    """

    def __init__(
        self,
        k: int,
        *,
        temperature: float = 1.0,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(k=k, temperature=temperature, margin=margin, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.smooth_topk_svm(logits, target, **self.arguments())


class SparsemaxLoss(Loss):
    """The convex loss of sparsemax.

    The arguments are those of :func:`shortlist.functional.sparsemax_loss`.

    Example:
        >>> SparsemaxLoss()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.0000)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.sparsemax_loss(logits, target, **self.arguments())

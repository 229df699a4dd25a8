"""Losses for sets of positives: modules that store options and delegate to ``shortlist.functional``."""

from __future__ import annotations

from torch import Tensor

from shortlist import functional as F
from shortlist.functional.losses.ranking import TwoWayKind
from shortlist.functional.reduction import Reduction
from shortlist.nn.loss import Loss


class LMLNLL(Loss):
    """Negative log-likelihood of the observed labels under the LML projection.

    The arguments are those of :func:`shortlist.functional.lml_nll`.

    Example:
        >>> LMLNLL(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.0056)
    """

    def __init__(
        self,
        k: float | Tensor,
        *,
        temperature: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(k=k, temperature=temperature, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.lml_nll(logits, target, **self.arguments())


class MultilabelSoftmax(Loss):
    """Cross-entropy of the softmax, shared equally among the positives.

    The arguments are those of :func:`shortlist.functional.multilabel_softmax`.

    Example:
        >>> MultilabelSoftmax()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.2452)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.multilabel_softmax(logits, target, **self.arguments())


class MultilabelTruncatedTopKEntropy(Loss):
    """Truncated top-k entropy for sets of positives.

    The arguments are those of :func:`shortlist.functional.multilabel_truncated_topk_entropy`.

    Example:
        >>> MultilabelTruncatedTopKEntropy(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.4040)
    """

    def __init__(self, k: int, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(k=k, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.multilabel_truncated_topk_entropy(logits, target, **self.arguments())


class SparseTopLoss(Loss):
    """The convex loss of sparse-top, for as many labels as the row has positives.

    The arguments are those of :func:`shortlist.functional.sparse_top_loss`.

    Example:
        >>> SparseTopLoss()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.5625)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.sparse_top_loss(logits, target, **self.arguments())


class TwoWay(Loss):
    """Two-way loss: positives against negatives in every row and in every class.

    The arguments are those of :func:`shortlist.functional.two_way`.

    Example:
        >>> TwoWay(kind="sample")(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(2.7833)
    """

    def __init__(
        self,
        *,
        kind: TwoWayKind = "two-way",
        positive_temperature: float = 4.0,
        negative_temperature: float = 1.0,
        margin: float = 0.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            kind=kind,
            positive_temperature=positive_temperature,
            negative_temperature=negative_temperature,
            margin=margin,
            weight=weight,
            reduction=reduction,
        )

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.two_way(logits, target, **self.arguments())


class BCE(Loss):
    """Binary cross-entropy of every known entry.

    The arguments are those of :func:`shortlist.functional.bce`.

    Example:
        >>> BCE()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.5569)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.bce(logits, target, **self.arguments())


class Asymmetric(Loss):
    """Asymmetric loss: binary cross-entropy that turns away from easy negatives.

    The arguments are those of :func:`shortlist.functional.asymmetric`.

    Example:
        >>> Asymmetric()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.2119)
    """

    def __init__(
        self,
        *,
        gamma_positive: float = 0.0,
        gamma_negative: float = 4.0,
        clip: float = 0.05,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            gamma_positive=gamma_positive, gamma_negative=gamma_negative, clip=clip, weight=weight, reduction=reduction
        )

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.asymmetric(logits, target, **self.arguments())


class WARP(Loss):
    """Hinge of every pair of a positive and a negative, weighted by the rank of the positive.

    The arguments are those of :func:`shortlist.functional.warp`.

    Example:
        >>> WARP()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.5000)
    """

    def __init__(self, *, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(margin=margin, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.warp(logits, target, **self.arguments())


class RML(Loss):
    """Robust multi-label ranking: ramps instead of hinges, and one for each label.

    The arguments are those of :func:`shortlist.functional.rml`.

    Example:
        >>> RML()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(6.1000)
    """

    def __init__(
        self, *, floor: float = -0.8, balance: float = 2.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(floor=floor, balance=balance, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.rml(logits, target, **self.arguments())


class AssumeNegative(Loss):
    """Binary cross-entropy with everything not observed as a light negative.

    The arguments are those of :func:`shortlist.functional.assume_negative`.

    Example:
        >>> AssumeNegative()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.1432)
    """

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.assume_negative(logits, target, **self.arguments())


class ExpectedPositive(Loss):
    """Likelihood of the observed positives, with the expected number of positives held.

    The arguments are those of :func:`shortlist.functional.expected_positive`.

    Example:
        >>> ExpectedPositive(2.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.8543)
    """

    def __init__(
        self, expected: float, *, beta: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(expected=expected, beta=beta, weight=weight, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return F.expected_positive(logits, target, **self.arguments())

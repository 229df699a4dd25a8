"""Losses for one true class per row."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist.functional import margins_from_counts
from shortlist.functional.losses.hinge import HingeKind
from shortlist.functional.losses.labeled_logits import Reduction
from shortlist.nn.loss import Loss, LossMemory

__all__ = [
    "LDAM",
    "AverageK",
    "CrossEntropy",
    "Focal",
    "NoisedTopK",
    "NoisedTopKImbalanced",
    "SmoothTopKSVM",
    "SparsemaxLoss",
    "TopKHinge",
    "TruncatedTopKEntropy",
]


class _OneClassLoss(Loss):
    one_class = True
    mean_over = "class weights"


class CrossEntropy(_OneClassLoss):
    """Cross-entropy of the softmax.

    The arguments are those of :func:`shortlist.functional.cross_entropy`.

    Example:
        >>> CrossEntropy()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.4952)
    """

    purpose = "the default: clean labels, classes of similar size"
    cost = 2
    function = staticmethod(F.cross_entropy)


class Focal(_OneClassLoss):
    """Cross-entropy that puts less weight on rows that are already classified well.

    The arguments are those of :func:`shortlist.functional.focal`.

    Example:
        >>> Focal(gamma=1.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.1600)
    """

    purpose = "against easy rows that outweigh hard ones"
    cost = 2
    function = staticmethod(F.focal)

    def __init__(self, *, gamma: float = 2.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(gamma=gamma)


class LDAM(_OneClassLoss):
    """Cross-entropy with one margin per class, larger for rare classes.

    The arguments are those of :func:`shortlist.functional.ldam`; a tensor of margins is saved with the module.

    Example:
        >>> LDAM(margin=0.5, scale=1.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.9028)
    """

    purpose = "against a long tail, where rare classes matter; with a cosine head"
    cost = 2
    function = staticmethod(F.ldam)
    takes_candidates = False
    head = "cosine"
    from_data = {"margin": lambda task: margins_from_counts(task.counts)}

    def __init__(
        self,
        *,
        margin: float | Tensor,
        scale: float = 30.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(margin=margin, scale=scale)


class TruncatedTopKEntropy(_OneClassLoss):
    """Cross-entropy against all other labels except the ``k - 1`` largest.

    The arguments are those of :func:`shortlist.functional.truncated_topk_entropy`.

    Example:
        >>> TruncatedTopKEntropy(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(0.5550)
    """

    purpose = "against labels that cannot be told apart: leaves the k - 1 likeliest rivals alone"
    cost = 4
    function = staticmethod(F.truncated_topk_entropy)
    starts_at_frequencies = False
    takes_linear_logits = True
    memory = {"plain": LossMemory(3, 3), "chunked": LossMemory(2.3, 1)}
    from_data = {"k": lambda task: task.whole_k}

    def __init__(self, k: int, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k)


class TopKHinge(_OneClassLoss):
    """Hinge losses for the top-k error: calibrated, plain or convex.

    The arguments are those of :func:`shortlist.functional.topk_hinge`.

    Example:
        >>> TopKHinge(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(0.5000)
    """

    purpose = "against the top-k error itself; a baseline, hard to train"
    cost = 3
    function = staticmethod(F.topk_hinge)
    starts_at_frequencies = False
    from_data = {"k": lambda task: task.whole_k}

    def __init__(
        self,
        k: int,
        *,
        kind: HingeKind = "calibrated",
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k, kind=kind, margin=margin)


class SmoothTopKSVM(_OneClassLoss):
    """Top-k SVM, smoothed over all sets of ``k`` labels; temperature 0 gives the hard one.

    The arguments are those of :func:`shortlist.functional.smooth_topk_svm`.

    Example:
        >>> SmoothTopKSVM(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([1]))
        tensor(1.1369)
    """

    purpose = "against noisy labels, for answers of k labels"
    cost = 10
    function = staticmethod(F.smooth_topk_svm)
    from_data = {"k": lambda task: task.whole_k}

    def __init__(
        self,
        k: int,
        *,
        temperature: float = 1.0,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k, temperature=temperature, margin=margin)


class NoisedTopK(_OneClassLoss):
    """Calibrated top-k hinge, smoothed by noise.

    The arguments are those of :func:`shortlist.functional.noised_topk`; a tensor of margins is saved with the module.
    In training mode, every call draws new noise; in evaluation mode, every call draws the same noise.

    Args:
        k: the size of the prediction set.
        epsilon: the scale of the noise.
        samples: number of noise samples.
        margin: a number, or one per class: see :func:`shortlist.functional.margins_from_counts`.
        scale: a positive factor; larger than 1 for cosines.
        generator: makes the noise of training reproducible; by default torch's own.
        weight: one factor per class.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> loss = NoisedTopK(2).eval()
        >>> logits, target = torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2])
        >>> bool(loss(logits, target) == loss(logits, target))
        True
    """

    purpose = "against the top-k error, smoothed by noise"
    cost = 10
    function = staticmethod(F.noised_topk)
    starts_at_frequencies = False
    from_data = {"k": lambda task: task.whole_k}

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
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k, epsilon=epsilon, samples=samples, margin=margin, scale=scale)
        self.generator = generator

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the classes ``target``."""
        generator = self.generator if self.training else torch.Generator(logits.device).manual_seed(0)
        return F.noised_topk(logits, target, generator=generator, **self.arguments())


class NoisedTopKImbalanced(NoisedTopK):
    """Noised top-k with the published settings for a long tail: little noise, cosines, one margin per class.

    The arguments are those of :class:`NoisedTopK`, with other defaults.

    Example:
        >>> margin = margins_from_counts(torch.tensor([5000, 40, 7, 1]), largest=0.4)
        >>> NoisedTopKImbalanced(2, margin=margin)
        NoisedTopKImbalanced(k=2, epsilon=0.1, samples=5, margin=tensor(4,), scale=30.0, reduction='mean')
    """

    purpose = "against a long tail, for answers of k labels; with a cosine head"
    cost = 6
    name = "noised_topk_imbalanced"
    takes_candidates = False
    head = "cosine"
    from_data = {
        "k": lambda task: task.whole_k,
        "margin": lambda task: margins_from_counts(task.counts, largest=0.4),
    }

    def __init__(
        self,
        k: int,
        *,
        margin: float | Tensor,
        epsilon: float = 0.1,
        samples: int = 5,
        scale: float = 30.0,
        generator: torch.Generator | None = None,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            k,
            epsilon=epsilon,
            samples=samples,
            margin=margin,
            scale=scale,
            generator=generator,
            weight=weight,
            reduction=reduction,
        )


class SparsemaxLoss(_OneClassLoss):
    """The Fenchel-Young loss of sparsemax.

    The arguments are those of :func:`shortlist.functional.sparsemax_loss`.

    Example:
        >>> SparsemaxLoss()(torch.tensor([[2.0, 1.2, 0.5, -1.0]]), torch.tensor([1]))
        tensor(0.8100)
    """

    purpose = "for probabilities that are exactly 0 for most labels"
    cost = 3
    function = staticmethod(F.sparsemax_loss)
    former_names = ("sparsemax",)


class AverageK(_OneClassLoss):
    """Average-K loss for two heads on the same features: one proposes labels, the other predicts.

    The arguments are those of :func:`shortlist.functional.average_k`. Only the first head is used to predict.

    Example:
        >>> logits, proposals = torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[1.0, 0.0, 0.5, 0.0]])
        >>> AverageK(2)(logits, proposals, torch.tensor([0]))
        tensor(2.2654)
    """

    purpose = "against ambiguity that differs between rows, for k labels on average"
    cost = 7
    function = staticmethod(F.average_k)
    averages_negatives = True
    takes_candidates = False
    couples_rows = True
    mean_over = "labeled rows"
    num_heads = 2
    from_data = {"k": lambda task: task.k}

    def __init__(
        self, k: float, *, alpha: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k, alpha=alpha)

    def forward(self, logits: Tensor, proposals: Tensor, target: Tensor) -> Tensor:
        """The loss of the predicting head's ``logits`` and the proposing head's ``proposals``."""
        return F.average_k(logits, proposals, target, **self.arguments())

"""Losses for sets of positives, observed fully or in part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist import functional as F
from shortlist.functional.losses.labeled_logits import Reduction
from shortlist.functional.losses.two_way import TwoWayKind
from shortlist.nn.loss import Loss, LossMemory

__all__ = [
    "BCE",
    "LMLNLL",
    "RML",
    "ROLE",
    "WARP",
    "AssumeNegative",
    "Asymmetric",
    "ExpectedPositive",
    "MultilabelSoftmax",
    "MultilabelTruncatedTopKEntropy",
    "PlackettLuce",
    "SparseTopLoss",
    "TwoWay",
]


class LMLNLL(Loss):
    """Negative log-likelihood of the observed labels under the LML projection, for recall at ``k``.

    The arguments are those of :func:`shortlist.functional.lml_nll`.

    Example:
        >>> LMLNLL(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.0056)
    """

    purpose = "against unrecorded labels, for answers of k labels"
    cost = 3
    function = staticmethod(F.lml_nll)
    former_names = ("lml",)
    takes_linear_logits = takes_dtensor = True
    # Measured for tensor operations; with a plain head, the kernel (float32 on the CPU, extra `fast`) needs a quarter
    # less. In blocks, most of it is the solver's sample and its powers of the probabilities.
    memory = {"plain": LossMemory(1.0, 4), "chunked": LossMemory(5.2, 1)}
    from_data = {"k": lambda task: task.k}

    def __init__(
        self,
        k: float | Tensor,
        *,
        temperature: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k, temperature=temperature)


class MultilabelSoftmax(Loss):
    """Cross-entropy of the softmax, shared equally among the positives.

    The arguments are those of :func:`shortlist.functional.multilabel_softmax`.

    Example:
        >>> MultilabelSoftmax()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.2452)
    """

    purpose = "against unrecorded labels: a softmax shared by the recorded ones"
    cost = 3
    function = staticmethod(F.multilabel_softmax)


class MultilabelTruncatedTopKEntropy(Loss):
    """Truncated top-k entropy for sets of positives.

    The arguments are those of :func:`shortlist.functional.multilabel_truncated_topk_entropy`.

    Example:
        >>> MultilabelTruncatedTopKEntropy(2)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.4040)
    """

    purpose = "against unrecorded labels: leaves the likeliest rivals alone"
    cost = 6
    function = staticmethod(F.multilabel_truncated_topk_entropy)
    starts_at_frequencies = False
    takes_linear_logits = True
    memory = {"plain": LossMemory(3, 3), "chunked": LossMemory(2.3, 1)}
    from_data = {"k": lambda task: task.whole_k}

    def __init__(self, k: int, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(k=k)


class PlackettLuce(Loss):
    """Negative log-likelihood of a set under the Plackett-Luce model, summed over all orders of its labels.

    The arguments are those of :func:`shortlist.functional.plackett_luce`.

    Example:
        >>> PlackettLuce()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.1772)
    """

    purpose = "for labels that are ranked before all others"
    cost = 9
    function = staticmethod(F.plackett_luce)


class SparseTopLoss(Loss):
    """The Fenchel-Young loss of sparse-top, with as many labels as the row has positives.

    The arguments are those of :func:`shortlist.functional.sparse_top_loss`.

    Example:
        >>> SparseTopLoss()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.5625)
    """

    purpose = "for answers of k labels with exact zeros"
    cost = 4
    function = staticmethod(F.sparse_top_loss)
    former_names = ("sparse_top",)


class TwoWay(Loss):
    """Two-way loss: positives against negatives in every row and in every class.

    The arguments are those of :func:`shortlist.functional.two_way`.

    Example:
        >>> TwoWay(kind="sample")(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(2.7833)
    """

    purpose = "against imbalance between labels and between rows"
    cost = 6
    function = staticmethod(F.two_way)
    takes_candidates = False
    link = "sigmoid"
    # True even for rows alone, because which rows count depends on their labels.
    couples_rows = True
    mean_over = "rows and classes"
    takes_linear_logits = takes_dtensor = True
    memory = {"plain": LossMemory(4.1, 4), "chunked": LossMemory(2, 2, bytes_per_label=52)}

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
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(
            kind=kind,
            positive_temperature=positive_temperature,
            negative_temperature=negative_temperature,
            margin=margin,
        )


class BCE(Loss):
    """Binary cross-entropy of every known entry.

    The arguments are those of :func:`shortlist.functional.bce`.

    Example:
        >>> BCE()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.5569)
    """

    purpose = "the default for sets: every label is recorded, present or absent"
    cost = 4
    function = staticmethod(F.bce)
    link = "sigmoid"
    mean_over = "known entries"
    takes_linear_logits = takes_dtensor = True
    memory = {"plain": LossMemory(2.2, 3), "chunked": LossMemory(5, 1)}


class Asymmetric(Loss):
    """Asymmetric loss (ASL): binary cross-entropy that puts less weight on easy negatives.

    The arguments are those of :func:`shortlist.functional.asymmetric`.

    Example:
        >>> Asymmetric()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.2119)
    """

    purpose = "against many easy negatives"
    cost = 6
    function = staticmethod(F.asymmetric)
    link = "sigmoid"
    mean_over = "known entries"
    takes_linear_logits = takes_dtensor = True
    memory = {"plain": LossMemory(2.2, 3), "chunked": LossMemory(11, 1)}

    def __init__(
        self,
        *,
        gamma_positive: float = 0.0,
        gamma_negative: float = 4.0,
        clip: float = 0.05,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(gamma_positive=gamma_positive, gamma_negative=gamma_negative, clip=clip)


class WARP(Loss):
    """Hinge of every pair of a positive and a negative, weighted by the rank of the positive.

    The arguments are those of :func:`shortlist.functional.warp`.

    Example:
        >>> WARP()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.5000)
    """

    purpose = "against the top of the ranking: pairs of a label and a rival above it"
    cost = 26
    function = staticmethod(F.warp)

    def __init__(self, *, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(margin=margin)


class RML(Loss):
    """Robust multi-label ranking: ramps instead of hinges, by pairs and by single labels.

    The arguments are those of :func:`shortlist.functional.rml`.

    Example:
        >>> RML()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(6.1000)
    """

    purpose = "against wrongly ranked pairs, with negatives that may be unrecorded"
    cost = 33
    function = staticmethod(F.rml)
    link = "sigmoid"
    starts_at_frequencies = False

    def __init__(
        self, *, floor: float = -0.8, balance: float = 2.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(floor=floor, balance=balance)


class AssumeNegative(Loss):
    """Binary cross-entropy with every unobserved label as a negative of small weight.

    The arguments are those of :func:`shortlist.functional.assume_negative`.

    Example:
        >>> AssumeNegative()(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(1.1432)
    """

    purpose = "against unrecorded labels, if one label per row is recorded: takes the rest as absent"
    cost = 4
    function = staticmethod(F.assume_negative)
    takes_candidates = False


class ExpectedPositive(Loss):
    """Likelihood of the observed positives, with a penalty on the expected number of positives (EPR).

    The arguments are those of :func:`shortlist.functional.expected_positive`.

    Example:
        >>> ExpectedPositive(2.0)(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([[0, 2]]))
        tensor(0.8543)
    """

    purpose = "against unrecorded labels, if the number of labels per row is known"
    cost = 2
    function = staticmethod(F.expected_positive)
    couples_rows = True
    from_data = {"expected": lambda task: task.expected_positives}

    def __init__(
        self, expected: float, *, beta: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(expected=expected, beta=beta)


class ROLE(Loss):
    """Expected positives, trained jointly with an estimate of all labels.

    The other arguments are those of :func:`shortlist.functional.role`. The estimates are a parameter with one row per
    training example, so they need memory for examples × labels; only the rows of a batch get a gradient. They start
    near 1/2, as in the published method.

    Args:
        num_examples: the number of training examples.
        num_labels: the number of labels.
        expected: the average number of positives of a row.
        beta: the weight of the penalty on that number.
        generator: makes the initial estimates reproducible.
        weight: one factor per label.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> loss = ROLE(100, 4, expected=2.0, generator=torch.Generator().manual_seed(0))
        >>> logits, target, examples = torch.zeros(1, 4), torch.tensor([2]), torch.tensor([17])
        >>> loss(logits, target, examples).isfinite().item()
        True
    """

    purpose = "against unrecorded labels: estimates them while training; needs memory and time for every training row"
    cost = 15
    function = staticmethod(F.role)
    takes_candidates = False
    couples_rows = True
    needs_examples = True
    from_data = {
        "num_examples": lambda task: task.num_rows,
        "num_labels": lambda task: task.num_labels,
        "expected": lambda task: task.expected_positives,
    }

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
        super().__init__(weight=weight, reduction=reduction)
        self.add_options(expected=expected, beta=beta)
        start = torch.empty(num_examples, num_labels).uniform_(0.4, 0.6, generator=generator)
        self.estimates = nn.Parameter(start.logit())

    def forward(self, logits: Tensor, target: Tensor, examples: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target`` of the training examples with indices ``examples``."""
        return F.role(logits, self.estimates[examples], target, **self.arguments())

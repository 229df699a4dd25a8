"""Losses and heads by name, matched sensibly: what a configuration or a command line says becomes modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch import nn as torch_nn

from shortlist import nn
from shortlist.functional import margins_from_counts


@dataclass(frozen=True, eq=False)
class Task:
    """What losses and heads want to know of the data.

    Args:
        num_labels: n.
        counts: ``(n,)``, in how many training rows each label is present.
        num_rows: how many training rows.
        k: how many labels an answer should hold, or hold on average; in (0, n].
    """

    num_labels: int
    counts: Tensor
    num_rows: int
    k: float

    def __post_init__(self) -> None:
        if not 0 < self.k <= self.num_labels:
            raise ValueError(f"`k` must lie in (0, {self.num_labels}], the number of labels; got {self.k}.")

    @property
    def whole_k(self) -> int:
        """``k`` rounded up, for losses of whole sets, and below the number of labels."""
        return max(1, min(-int(-self.k // 1), self.num_labels - 1))

    @property
    def labels_per_row(self) -> float:
        """How many labels a training row has on average."""
        return float(self.counts.sum()) / max(self.num_rows, 1)


Make = Callable[..., torch_nn.Module]

# Each takes the task and the options that the user gave, which come after the defaults.
LOSSES: dict[str, Make] = {
    "cross_entropy": lambda task, /, **o: nn.CrossEntropy(**o),
    "focal": lambda task, /, **o: nn.Focal(**o),
    "ldam": lambda task, /, **o: nn.LDAM(**{"margin": margins_from_counts(task.counts), **o}),
    "truncated_topk_entropy": lambda task, /, **o: nn.TruncatedTopKEntropy(**{"k": task.whole_k, **o}),
    "topk_hinge": lambda task, /, **o: nn.TopKHinge(**{"k": task.whole_k, **o}),
    "smooth_topk_svm": lambda task, /, **o: nn.SmoothTopKSVM(**{"k": task.whole_k, **o}),
    "noised_topk": lambda task, /, **o: nn.NoisedTopK(**{"k": task.whole_k, **o}),
    "noised_topk_imbalanced": lambda task, /, **o: nn.NoisedTopK(
        **{
            "k": task.whole_k,
            "epsilon": 0.1,
            "samples": 5,
            "scale": 30.0,
            "margin": margins_from_counts(task.counts, largest=0.4),
            **o,
        }
    ),
    "sparsemax": lambda task, /, **o: nn.SparsemaxLoss(**o),
    "average_k": lambda task, /, **o: nn.AverageK(**{"k": task.k, **o}),
    "lml": lambda task, /, **o: nn.LMLNLL(**{"k": task.k, **o}),
    "multilabel_softmax": lambda task, /, **o: nn.MultilabelSoftmax(**o),
    "multilabel_truncated_topk_entropy": lambda task, /, **o: nn.MultilabelTruncatedTopKEntropy(
        **{"k": task.whole_k, **o}
    ),
    "sparse_top": lambda task, /, **o: nn.SparseTopLoss(**o),
    "two_way": lambda task, /, **o: nn.TwoWay(**o),
    "bce": lambda task, /, **o: nn.BCE(**o),
    "asymmetric": lambda task, /, **o: nn.Asymmetric(**o),
    "warp": lambda task, /, **o: nn.WARP(**o),
    "rml": lambda task, /, **o: nn.RML(**o),
    "assume_negative": lambda task, /, **o: nn.AssumeNegative(**o),
    "expected_positive": lambda task, /, **o: nn.ExpectedPositive(
        **{"expected": max(task.k, task.labels_per_row), **o}
    ),
    "role": lambda task, /, **o: nn.ROLE(
        **{
            "num_examples": task.num_rows,
            "num_labels": task.num_labels,
            "expected": max(task.k, task.labels_per_row),
            **o,
        }
    ),
}

# Losses for one true class; all others take sets, and a class is a set of one.
ONE_CLASS = frozenset(
    {
        "cross_entropy",
        "focal",
        "ldam",
        "truncated_topk_entropy",
        "topk_hinge",
        "smooth_topk_svm",
        "noised_topk",
        "noised_topk_imbalanced",
        "sparsemax",
        "average_k",
    }
)

# Losses that ask of each label for itself whether it belongs; all others compare the labels of a row.
_LABEL_BY_LABEL = frozenset(
    {"average_k", "bce", "asymmetric", "two_way", "assume_negative", "expected_positive", "role"}
)


# Losses that leave rivals far above the true labels alone, as outliers or as members of the set: what starts on top of
# every row is never pushed down.
_BLIND_AT_THE_TOP = frozenset(
    {
        "truncated_topk_entropy",
        "multilabel_truncated_topk_entropy",
        "topk_hinge",
        "noised_topk",
        "noised_topk_imbalanced",
        "rml",
    }
)


def may_start_at_frequencies(loss: str) -> bool:
    """Whether a head may begin with the frequencies of the labels, the frequent ones on top of every row.

    Example:
        >>> may_start_at_frequencies("bce"), may_start_at_frequencies("truncated_topk_entropy")
        (True, False)
    """
    return loss not in _BLIND_AT_THE_TOP


def link_of(loss: str) -> Literal["softmax", "sigmoid"]:
    """How logits of a model that was trained with a loss become scores that compare rows.

    Example:
        >>> link_of("cross_entropy"), link_of("average_k")
        ('softmax', 'sigmoid')
    """
    return "sigmoid" if loss in _LABEL_BY_LABEL else "softmax"


HEADS: dict[str, Make] = {
    "linear": lambda features, labels, /, **o: torch_nn.Linear(features, labels, **o),
    "cosine": lambda features, labels, /, **o: nn.CosineHead(features, labels, **o),
    "bottleneck": lambda features, labels, /, **o: nn.BottleneckHead(features, labels, **{"bottleneck": 50, **o}),
    "dft": lambda features, labels, /, **o: nn.DFTHead(features, labels, **o),
}

_COSINE_LOSSES = ("ldam", "noised_topk_imbalanced")


def make_loss(name: str, task: Task, options: Mapping[str, Any] | None = None) -> torch_nn.Module:
    """The loss of a name, with what it wants of the data filled in unless an option says otherwise.

    Example:
        >>> import torch
        >>> make_loss("lml", Task(10, torch.ones(10), 10, k=3), {"temperature": 2.0})
        LMLNLL(k=3, temperature=2.0, reduction='mean')
    """
    return _made("loss", LOSSES, name, (task,), options)


def make_head(
    name: str, in_features: int, num_labels: int, *, loss: str, options: Mapping[str, Any] | None = None
) -> torch_nn.Module:
    """The head of a name; ``auto`` is a cosine head for losses with margins per class, else a linear one.

    The average-K loss gets the head twice.

    Example:
        >>> make_head("auto", 4, 10, loss="ldam")
        CosineHead(in_features=4, num_labels=10, scale=1.0)
        >>> type(make_head("auto", 4, 10, loss="average_k")).__name__
        'TwoHead'
    """
    if name == "auto":
        name = "cosine" if loss in _COSINE_LOSSES else "linear"
    heads = [_made("head", HEADS, name, (in_features, num_labels), options) for _ in range(1 + (loss == "average_k"))]
    return nn.TwoHead(*heads) if loss == "average_k" else heads[0]


def _made(
    what: str, known: Mapping[str, Make], name: str, arguments: tuple[Any, ...], options: Mapping[str, Any] | None
) -> torch_nn.Module:
    if name not in known:
        raise ValueError(f"`{what}` must be one of {', '.join(known)}; got {name!r}.")
    try:
        return known[name](*arguments, **(options or {}))
    except TypeError as error:
        # Options come from users, so a wrong name is a mistake to explain, not a fault.
        reason = str(error).rstrip(".")
        raise ValueError(f"`{what}` {name!r}: {reason}.") from error

"""The base class of the losses, with the class attributes that other layers use, and the task a loss is built for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from shortlist.functional.losses.labeled_logits import Reduction, check_reduction
from shortlist.nn.function_module import FunctionModule

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Loss", "LossMemory", "Task"]

MeanOver = Literal["rows", "labeled rows", "class weights", "known entries", "rows and classes"]


@dataclass(frozen=True, eq=False)
class Task:
    """What losses need to know about the training data.

    Args:
        num_labels: n.
        counts: ``(n,)``, the number of training rows in which each label is positive.
        num_rows: the number of training rows.
        k: the (average) size of a prediction set, in (0, n].
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
        """``k`` rounded up, but less than the number of labels."""
        return max(1, min(-int(-self.k // 1), self.num_labels - 1))

    @property
    def labels_per_row(self) -> float:
        """The average number of labels per training row."""
        return float(self.counts.sum()) / max(self.num_rows, 1)

    @property
    def expected_positives(self) -> float:
        """The number of positives to expect per row when only some of them are observed."""
        return max(self.k, self.labels_per_row)


class LossMemory(NamedTuple):
    """Peak memory of a loss, in copies of the logits (plain head) or of one block of them (:class:`ChunkedHead`)."""

    forward: float
    """Peak while gradients of the previous step may still exist, as in Lightning."""
    backward: float
    """Peak in the backward pass of the loss, before the weight has a gradient (with blocks it always has one)."""
    bytes_per_label: int = 0
    """Additional memory, independent of the number of rows."""


class Loss(FunctionModule):
    """Base class of the losses: stores the options of a function and calls it.

    Tensors among the options are buffers: they move with ``.to()`` and are part of the state. A subclass sets
    ``function`` and those attributes that differ from the defaults. Everything else (names on the command line,
    recipes, the loss of a global batch, memory estimates, tables) is derived from them.

    Attributes:
        function: the function of :mod:`shortlist.functional` that computes the loss.
        name: name on the command line and in saved models; the function's name, except for presets.
        purpose: what it is for, or against, in a phrase.
        cost: time of forward and backward as a multiple of that of torch's cross-entropy, for 256 rows of 1000 labels
            and k = 5; see ``benchmarks/results/losses.json``.
        former_names: old spellings of ``name`` that are still accepted.
        one_class: whether each row has exactly one true class; all other losses take sets, and a class is a set with
            one label.
        link: how logits become scores that are comparable across rows, as the paper of the loss evaluates it.
        couples_rows: whether the loss of a batch is not just a weighted mean of per-row losses.
        mean_over: what ``reduction="mean"`` divides by.
        head: the head that suits the loss.
        num_heads: how many heads the loss trains on the same features; the first one predicts.
        needs_examples: whether ``forward`` also takes the indices of the training examples.
        starts_at_frequencies: whether the head may be initialized to the label frequencies. False for losses that
            ignore negatives far above the positives: they would never push down a label that starts on top of every
            row.
        averages_negatives: whether all negatives of a row together weigh as much as a positive; such a loss keeps
            logits of 0 where a label is as frequent as 1 / n, and heads start there.
        takes_linear_logits: whether it accepts :class:`shortlist.functional.LinearLogits`.
        takes_dtensor: whether it accepts logits sharded along the labels.
        takes_candidates: whether it acts on the logits of each row alone, so that labels with logit -inf can be left
            out; only then can it train a :class:`ClusterHead`.
        memory: for losses that accept ``LinearLogits``, the peak memory with a ``"plain"`` and a ``"chunked"`` head.
        from_data: options that are derived from a `Task` unless the user sets them.
    """

    name: ClassVar[str]
    purpose: ClassVar[str] = ""
    cost: ClassVar[int] = 1
    former_names: ClassVar[tuple[str, ...]] = ()
    one_class: ClassVar[bool] = False
    link: ClassVar[Literal["softmax", "sigmoid"]] = "softmax"
    couples_rows: ClassVar[bool] = False
    mean_over: ClassVar[MeanOver] = "rows"
    head: ClassVar[Literal["linear", "cosine"]] = "linear"
    num_heads: ClassVar[int] = 1
    needs_examples: ClassVar[bool] = False
    starts_at_frequencies: ClassVar[bool] = True
    averages_negatives: ClassVar[bool] = False
    takes_linear_logits: ClassVar[bool] = False
    takes_dtensor: ClassVar[bool] = False
    takes_candidates: ClassVar[bool] = True
    memory: ClassVar[Mapping[str, LossMemory]] = {}
    from_data: ClassVar[Mapping[str, Callable[[Task], Any]]] = {}

    weight: Tensor | None
    reduction: Reduction

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "function" in vars(cls):
            cls.name = cls.function.__name__

    def __init__(self, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.add_options(reduction=reduction)
        self.register_buffer("weight", weight)
        self.options = ("weight", *self.options)

    @classmethod
    def from_task(cls, task: Task, /, **options: Any) -> Self:
        """The loss for a task: options that are not given are derived from the data or keep their defaults.

        Example:
            >>> TopKHinge.from_task(Task(num_labels=10, counts=torch.ones(10), num_rows=10, k=2.5), margin=0.5)
            TopKHinge(k=3, kind='calibrated', margin=0.5, reduction='mean')
        """
        known = {name: make(task) for name, make in cls.from_data.items() if name not in options}
        return cls(**known, **options)

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """The properties of the loss as plain values, for tables and JSON.

        ``options`` maps each option to its default, except ``weight`` and ``reduction``, which all losses have;
        ``from_data`` lists the options that are derived from the training data.

        Example:
            >>> TopKHinge.describe()["options"]
            {'k': None, 'kind': 'calibrated', 'margin': 1.0}
        """
        parameters = inspect.signature(cls).parameters
        options = {
            name: None if parameter.default is parameter.empty else parameter.default
            for name, parameter in parameters.items()
            if name not in ("weight", "reduction", "generator")
        }
        return {
            "name": cls.name,
            "module": cls.__name__,
            "function": cls.function.__name__,
            "summary": (inspect.getdoc(cls) or "").partition("\n")[0].replace("`", ""),
            "purpose": cls.purpose,
            "cost": cls.cost,
            "takes": "one class" if cls.one_class else "sets",
            "link": cls.link,
            "head": cls.head,
            "num_heads": cls.num_heads,
            "options": options,
            "from_data": list(cls.from_data),
            "mean_over": cls.mean_over,
            "couples_rows": cls.couples_rows,
            "starts_at_frequencies": cls.starts_at_frequencies,
            "takes_linear_logits": cls.takes_linear_logits,
            "takes_dtensor": cls.takes_dtensor,
            "takes_candidates": cls.takes_candidates,
        }

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits`` for the labels ``target``."""
        return type(self).function(logits, target, **self.arguments())

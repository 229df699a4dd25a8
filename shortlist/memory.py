"""How much memory a linear output layer and its loss will need in training, told before anything is allocated.

The estimate counts tensors: what stays (parameters, gradients, optimiser states, features) and the larger of two peaks,
that of the loss and that of the optimiser's step. It leaves out the rest of the model, Python and torch themselves
(a few hundred MB), and what libraries take: on a CPU without instructions for half precision, products may convert a
matrix to float32 on the way. The shares of the losses are those of their code; tests compare them with what they take.
That of LML is for tensor operations: its compiled loops (float32 on the CPU, extra ``fast``) take half of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple, get_args

from shortlist.label_axis.linear_blocks import block_width

HeadKind = Literal["plain", "chunked"]
"""Logits as a tensor, or :class:`shortlist.functional.LinearLogits`."""


class _Work(NamedTuple):
    """What a loss holds at its peaks: for a plain head in copies of the logits, for a chunked one in blocks of them."""

    forward: float  # while the gradients of the last step may still be there, as in Lightning
    backward: float  # in its own backward, before there is a gradient of the weight (for blocks, there always is)
    per_label: int = 0  # bytes beside


_PLAIN = {
    "lml": _Work(1.6, 6),
    "bce": _Work(2.2, 3),
    "two_way": _Work(4.1, 4),
    "truncated_topk_entropy": _Work(2, 3),
    "multilabel_truncated_topk_entropy": _Work(4, 3),
}
_CHUNKED = {
    "lml": _Work(6.7, 1),  # the solver's sample, and its powers of the probabilities
    "bce": _Work(3, 1),
    "two_way": _Work(2, 2, per_label=52),
    "truncated_topk_entropy": _Work(2.3, 1),
    "multilabel_truncated_topk_entropy": _Work(2.3, 1),
}
_AT_WEIGHT = 1.0
"""Copies of the logits, their gradient, that a plain layer holds while it makes the gradient of its weight."""

LOSSES = tuple(_CHUNKED)
"""The losses that can be estimated: those that take ``LinearLogits``."""

_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

OPTIMIZERS = {"adam": (2, 2), "adamw": (2, 2), "adagrad": (1, 1), "momentum": (1, 0), "sgd": (0, 0)}
"""Copies of the parameters that each keeps, and that its step makes for a while where it is not fused."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one process, by part; ``str`` of it is a table."""

    parameters: int
    gradients: int
    optimizer_states: int
    features: int  # and their gradient
    loss: int  # logits, or blocks of them, and all that the loss makes of them, at its peak
    step: int  # what the optimiser's step makes, when the loss is done

    @property
    def total(self) -> int:
        """The peak: all that stays, and the larger of loss and step."""
        return self.parameters + self.gradients + self.optimizer_states + self.features + max(self.loss, self.step)

    def parts(self) -> dict[str, int]:
        """Bytes by the names that a table shows, the peak last."""
        return {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimiser states": self.optimizer_states,
            "features, their gradient": self.features,
            "logits, work of the loss": self.loss,
            "or work of the step": self.step,
            "peak": self.total,
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:<24} {readable(size):>11}" for name, size in self.parts().items())


def estimate_memory(
    *,
    rows: int,
    labels: int,
    features: int,
    loss: str,
    head: HeadKind = "plain",
    processes: int = 1,
    dtype: str = "float32",
    optimizer: str = "adam",
    label_block: int | None = None,
) -> MemoryEstimate:
    """Say what a training step of a linear layer with bias and its loss will need.

    Args:
        rows: B, rows of a batch in each process.
        labels: n.
        features: d.
        loss: one of `LOSSES`; by target with few labels per row.
        head: ``"plain"``, logits as a tensor; ``"chunked"``, :class:`shortlist.nn.ChunkedHead`.
        processes: over how many the labels are sharded; each holds its share of the layer, and all the features.
        dtype: of parameters and products: ``"float32"``, ``"float64"``, ``"bfloat16"`` or ``"float16"``. Losses of half
            precision are computed in float32.
        optimizer: one of `OPTIMIZERS`.
        label_block: that of the chunked head.

    Returns:
        Bytes of one process, by part.

    Example:
        >>> print(estimate_memory(rows=256, labels=1_000_000, features=256, loss="bce", head="chunked"))
        parameters                 0.957 GiB
        gradients                  0.957 GiB
        optimiser states            1.91 GiB
        features, their gradient   0.500 MiB
        logits, work of the loss    12.0 MiB
        or work of the step         1.91 GiB
        peak                        5.74 GiB
    """
    for name, value in (("rows", rows), ("labels", labels), ("features", features), ("processes", processes)):
        _check_size(name, value)
    if label_block is not None:
        _check_size("label_block", label_block)
    _check_name("loss", loss, LOSSES)
    _check_name("head", head, get_args(HeadKind))
    _check_name("dtype", dtype, _BYTES)
    _check_name("optimizer", optimizer, OPTIMIZERS)
    own, size = math.ceil(labels / processes), _BYTES[dtype]
    parameters = own * (features + 1) * size
    kept, made = OPTIMIZERS[optimizer]
    return MemoryEstimate(
        parameters=parameters,
        gradients=parameters,
        optimizer_states=kept * parameters,
        features=2 * rows * features * size,
        loss=_loss_bytes(rows, own, loss, head, size, parameters, label_block),
        step=made * parameters,
    )


def readable(size: int) -> str:
    """Bytes with three digits and a unit."""
    if size == 0:
        return "0"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 512 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = max(0, 2 - math.floor(math.log10(max(value, 0.1))))
    return f"{value:,.{min(digits, 3)}f} {units[0]}"


def _loss_bytes(
    rows: int, own: int, loss: str, head: HeadKind, size: int, gradients: int, label_block: int | None
) -> int:
    """The peak of a loss over ``own`` labels beyond parameters, features and the gradients of the layer."""
    solved = max(size, 4)
    if head == "plain":
        entries, work = rows * own, _PLAIN[loss]
        # In half precision the logits, and later their gradient, are there beside float32.
        given = entries * size if size < solved else 0
        forward = entries * solved * work.forward + given
        backward = entries * solved * work.backward + given - gradients
        at_weight = entries * size * _AT_WEIGHT
        return round(max(forward, backward, at_weight))
    entries, work = rows * min(own, block_width(rows, label_block)), _CHUNKED[loss]
    given = entries * size if size < solved else 0
    return round(entries * solved * max(work.forward, work.backward) + given + own * work.per_label)


def _check_size(name: str, value: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be a whole number; got {value!r}.")
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1; got {value}.")


def _check_name(name: str, value: str, known: object) -> None:
    names = list(known)  # type: ignore[call-overload]
    if value not in names:
        raise ValueError(f"`{name}` must be one of {', '.join(names)}; got {value!r}.")

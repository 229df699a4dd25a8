"""Estimate the training memory of a linear output layer and its loss, without allocating anything.

The estimate counts tensors: what persists (parameters, gradients, optimizer states, features) and the larger of the
peaks of the loss and of the optimizer step. It excludes the rest of the model, Python and torch themselves (a few
hundred MB), and temporary buffers of libraries: on a CPU without half-precision instructions, a matrix product may
convert its operands to float32. The memory factors of a loss are attributes of its class; tests compare them with
measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from shortlist import factory
from shortlist.formatting import format_bytes
from shortlist.label_axis.linear_blocks import block_width
from shortlist.nn import LossMemory
from shortlist.tensors import check_size

HeadKind = Literal["plain", "chunked"]
"""Logits as a tensor, or :class:`shortlist.functional.LinearLogits`."""


LOSSES = tuple(name for name, loss in factory.LOSSES.items() if loss.memory)
"""The losses whose memory can be estimated: those that accept ``LinearLogits``."""

_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

OPTIMIZERS = {"adam": (2, 2), "adamw": (2, 2), "adagrad": (1, 1), "momentum": (1, 0), "sgd": (0, 0)}
"""Copies of the parameters that each optimizer stores, and that its unfused step makes temporarily."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one process, by category; ``str`` gives a table."""

    parameters: int
    gradients: int
    optimizer_states: int
    features: int  # and their gradient
    loss: int  # logits, or blocks of them, and all temporaries of the loss, at its peak
    step: int  # temporaries of the optimizer step, after the loss

    @property
    def total(self) -> int:
        """The peak: everything that persists plus the larger of loss and step."""
        return self.parameters + self.gradients + self.optimizer_states + self.features + max(self.loss, self.step)

    def parts(self) -> dict[str, int]:
        """Bytes by row name of the table, with the peak last."""
        return {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer states": self.optimizer_states,
            "features and gradient": self.features,
            "logits and loss": self.loss,
            "or optimizer step": self.step,
            "peak": self.total,
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:<24} {format_bytes(size):>11}" for name, size in self.parts().items())


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
    """Estimate the memory of a training step of a linear layer with bias and its loss.

    Args:
        rows: B, the rows of a batch in each process.
        labels: n.
        features: d.
        loss: one of `LOSSES`, for targets with few labels per row.
        head: ``"plain"``, logits as a tensor; ``"chunked"``, :class:`shortlist.nn.ChunkedHead`.
        processes: the number of processes that share the labels; each holds its rows of the layer and all features.
        dtype: dtype of parameters and matrix products: ``"float32"``, ``"float64"``, ``"bfloat16"`` or ``"float16"``.
            In half precision, losses are computed in float32.
        optimizer: one of `OPTIMIZERS`.
        label_block: the block size of the chunked head.

    Returns:
        Bytes of one process, by category.

    Example:
        >>> print(estimate_memory(rows=256, labels=1_000_000, features=256, loss="bce", head="chunked"))
        parameters                 0.957 GiB
        gradients                  0.957 GiB
        optimizer states            1.91 GiB
        features and gradient      0.500 MiB
        logits and loss             20.0 MiB
        or optimizer step           1.91 GiB
        peak                        5.74 GiB
    """
    for name, value in (("rows", rows), ("labels", labels), ("features", features), ("processes", processes)):
        check_size(name, value)
    if label_block is not None:
        check_size("label_block", label_block)
    loss = factory.current_name(loss)
    _check_name("loss", loss, LOSSES)
    _check_name("head", head, get_args(HeadKind))
    _check_name("dtype", dtype, _BYTES)
    _check_name("optimizer", optimizer, OPTIMIZERS)
    own, size = math.ceil(labels / processes), _BYTES[dtype]
    parameters = own * (features + 1) * size
    kept, made = OPTIMIZERS[optimizer]
    entries = rows * (own if head == "plain" else min(own, block_width(rows, label_block)))
    forward, backward = _loss_bytes(entries, own, factory.LOSSES[loss].memory[head], size)
    if head == "plain":
        # The layer's gradients do not exist yet; while they are computed, those of the logits still exist.
        backward = max(backward - parameters, entries * size)
    return MemoryEstimate(
        parameters=parameters,
        gradients=parameters,
        optimizer_states=kept * parameters,
        features=2 * rows * features * size,
        loss=round(max(forward, backward)),
        step=made * parameters,
    )


def _loss_bytes(entries: int, labels: int, memory: LossMemory, size: int) -> tuple[float, float]:
    """Peaks of a loss in its forward and its backward pass, from its number of logits and their size in bytes."""
    solved = max(size, 4)
    # In half precision, the logits and later their gradient exist in addition to the float32 copies.
    rest = (entries * size if size < solved else 0) + labels * memory.bytes_per_label
    return entries * solved * memory.forward + rest, entries * solved * memory.backward + rest


def _check_name(name: str, value: str, known: object) -> None:
    names = list(known)  # type: ignore[call-overload]
    if value not in names:
        raise ValueError(f"`{name}` must be one of {', '.join(names)}; got {value!r}.")

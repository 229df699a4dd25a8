"""Tensors and numbers as arguments: checks, a suitable precision, and when values may be read."""

from __future__ import annotations

import math
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from numbers import Integral, Real

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

HALF = (torch.float16, torch.bfloat16)


def solvable(logits: Tensor) -> Tensor:
    """``logits`` in a precision suitable for solving: half precision becomes float32."""
    return logits.float() if logits.dtype in HALF else logits


def wide(x: Tensor) -> torch.dtype:
    """The precision for long sums and for sums over processes."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def on_accelerator(x: Tensor) -> bool:
    """Whether ``x`` takes the code for accelerators, which never reads a value back to the host.

    ``SHORTLIST_KERNELS=device`` and ``SHORTLIST_KERNELS=triton`` make CPU tensors take it, too, so that it can be
    tested without an accelerator: as tensor operations, or as Triton kernels under ``TRITON_INTERPRET=1``.
    """
    if x.device.type != "cpu":
        return True
    return not torch.compiler.is_compiling() and os.environ.get("SHORTLIST_KERNELS") in ("device", "triton")


def may_look(x: Tensor) -> bool:
    """Whether control flow may depend on values of ``x`` at no cost: on the CPU, and not while compiling."""
    return not torch.compiler.is_compiling() and not on_accelerator(x)


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which operations on ``device`` keep their dtypes; some devices, such as meta, have no autocast."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def is_plain(x: Tensor) -> bool:
    """Whether numpy can read ``x``: a strided CPU tensor outside of compilation and ``torch.func`` transforms."""
    if not may_look(x) or x.layout != torch.strided or x.dtype == torch.bfloat16:  # numpy has no bfloat16
        return False
    try:
        x.detach().numpy()
    except RuntimeError:  # under a transform
        return False
    return True


def holds(condition: Tensor | bool) -> bool:
    """Whether ``condition`` is known to hold; False where reading it would synchronize or a transform hides it."""
    if isinstance(condition, bool):
        return condition
    if not may_look(condition):
        return False
    try:
        return bool(condition)
    except RuntimeError:  # under vmap
        return False


def counts_of(indices: Tensor, size: int) -> Tensor:
    """How often each of ``size`` indices occurs, ``(size,)`` int64; on accelerators without waiting for the largest.

    Example:
        >>> counts_of(torch.tensor([0, 2, 2]), 4)
        tensor([1, 0, 2, 0])
    """
    if not on_accelerator(indices):
        return torch.bincount(indices, minlength=size)
    return torch.zeros(size, dtype=torch.int64, device=indices.device).index_add_(0, indices, torch.ones_like(indices))


def is_dtensor(x: object) -> bool:
    """Whether ``x`` is a ``DTensor`` with any placement. Imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def moved(x: Tensor, source: int, to: int) -> Tensor:
    """``movedim``, but returns ``x`` itself if the axis stays in place: a no-op would add a node to the graph."""
    return x if source % x.ndim == to % x.ndim else x.movedim(source, to)


def at_most_finite(x: Tensor) -> Tensor:
    """``x`` with +inf replaced by the largest finite number."""
    largest = torch.finfo(x.dtype).max
    if torch.compiler.is_exporting():  # ONNX reads `clamp(max=...)` as a bound on -inf, too
        return torch.minimum(x, torch.full((), largest, dtype=x.dtype, device=x.device))
    return x.clamp(max=largest)


def log_sigmoid(y: Tensor) -> Tensor:
    """``log sigmoid(y)``, in a form that stays accurate when exported, where torch's own may underflow."""
    if torch.compiler.is_exporting():
        return torch.minimum(y, y.new_zeros(())) - (-y.abs()).exp().log1p()
    return softplus(y, beta=-1, threshold=40) if on_accelerator(y) else logsigmoid(y)


def check_logits(logits: Tensor, dim: int = -1) -> None:
    """Raise unless ``logits`` is a plain floating tensor with a label axis ``dim``."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        # `LinearLogits` provides its own hint.
        raise TypeError(f"`logits` must be a floating tensor; got {kind}{getattr(logits, 'refusal', '')}.")
    if is_dtensor(logits):
        raise TypeError(
            "`logits` must be a plain tensor; got a DTensor, which this function does not accept: call its "
            "`full_tensor()` (`shortlist losses` lists the losses that accept one)."
        )
    check_axis(logits, dim)


def check_axis(x: Tensor, dim: int, *, name: str = "logits") -> None:
    """Raise for a 0-dimensional tensor or one without the dimension ``dim``."""
    if x.ndim == 0:
        raise ValueError(f"`{name}` must have a label axis; got a tensor without dimensions.")
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"`dim` must lie in [{-x.ndim}, {x.ndim - 1}]; got {dim}.")


def check_temperature(temperature: float) -> float:
    """``temperature`` as a positive finite float."""
    if isinstance(temperature, Tensor):
        raise TypeError("`temperature` must be a number; divide the logits by a tensor to learn one.")
    if not 0 < temperature < math.inf:
        raise ValueError(f"`temperature` must be positive and finite; got {temperature}.")
    return float(temperature)


def check_number(name: str, value: float, *, at_least: float = -math.inf, below: float = math.inf) -> float:
    """``value`` as a finite float, checked to lie in [``at_least``, ``below``)."""
    if not isinstance(value, Real | torch.SymInt | torch.SymFloat):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}.")
    if not at_least <= value < below or value == -math.inf:
        if below < math.inf:
            rule = f"lie in [{at_least:g}, {below:g})" if at_least > -math.inf else f"be below {below:g}"
        else:
            rule = f"be finite and at least {at_least:g}" if at_least > -math.inf else "be finite"
        raise ValueError(f"`{name}` must {rule}; got {value}.")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """``value`` as a positive finite float."""
    if check_number(name, value) <= 0:
        raise ValueError(f"`{name}` must be positive; got {value}.")
    return float(value)


def whole_k(k: int, n: int, *, lowest: int = 1, name: str = "k") -> int:
    """``k`` as a whole number in [lowest, n]."""
    if not isinstance(k, Integral | torch.SymInt) or isinstance(k, bool):
        raise TypeError(f"`{name}` must be a whole number; got {k!r}.")
    if not lowest <= k <= n:
        raise ValueError(f"`{name}` must lie in [{lowest}, {n}]; got {k}.")
    return int(k) if isinstance(k, int) else k


def as_written(number: float) -> Fraction:
    """The decimal that a float prints as, so that 0.1 is a tenth and not the nearest float.

    Example:
        >>> as_written(0.29) * 100
        Fraction(29, 1)
    """
    return Fraction(repr(float(number)))


def check_size(name: str, value: int, *, at_least: int = 1, error: type[Exception] | None = None) -> int:
    """``value`` as a whole number of at least ``at_least``; else TypeError or ValueError, or ``error`` for both."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise (error or TypeError)(f"`{name}` must be a whole number; got {value!r}.")
    if value < at_least:
        raise (error or ValueError)(f"`{name}` must be at least {at_least}; got {value}.")
    return int(value)

"""Operators with derivatives of their own: for autograd, ``torch.func`` and the compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

from shortlist.label_axis.once_differentiable import once_differentiable
from shortlist.label_axis.processes import all_sum
from shortlist.tensors import wide


class RowFunction(Function):
    """Base of operators on the last axes of their tensors, such as ``x`` ``(..., n)`` and ``k`` ``(..., 1)``.

    A subclass defines ``forward``, ``setup_context``, ``backward`` and ``tangent`` (the forward-mode derivative), all
    with axes counted from the last. The compiler takes the class itself. Its variant ``everywhere`` adds the rules for
    forward mode and batching, which the compiler does not accept; outside of ``torch.func`` transforms its variant
    ``quick`` halves the overhead of a call. In ``forward`` every tensor is plain, so numpy can read it.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]
    quick: ClassVar[type[Function]]

    @classmethod
    def run(cls, *arguments: Any) -> Any:
        """Apply the operator, in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(*arguments)
        if torch.compiler.is_compiling():
            return cls.apply(*arguments)
        return (cls.everywhere if _under_transforms() else cls.quick).apply(*arguments)

    def __init_subclass__(cls) -> None:
        """Make the variants, once per operator."""
        if "tangent" not in vars(cls):
            return
        # `apply` reads the signature at every call; cached, it is free.
        cls.forward.__signature__ = inspect.signature(cls.forward)

        class Everywhere(cls):
            @staticmethod
            def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
                return cls.tangent(ctx, *tangents)

            @staticmethod
            def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
                result = Everywhere.apply(
                    *(
                        _batched(argument, dim, info.batch_size) if isinstance(argument, Tensor) else argument
                        for argument, dim in zip(arguments, in_dims, strict=True)
                    )
                )
                return result, (0,) * len(result) if isinstance(result, tuple) else 0

        class Quick(Function):
            @staticmethod
            def forward(ctx: Any, *arguments: Any) -> Any:
                output = cls.forward(*arguments)
                cls.setup_context(ctx, arguments, output)
                return output

            backward = staticmethod(cls.backward)
            jvp = staticmethod(cls.tangent)

        cls.everywhere, cls.quick = Everywhere, Quick


def _under_transforms() -> bool:
    return torch._C._are_functorch_transforms_active()


def _batched(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def remember_k(ctx: Any, k: Tensor | float) -> tuple[Tensor, ...]:
    """Keep the shape of ``k``, or the number that it is; a column is returned, to be saved where it is needed."""
    ctx.number, ctx.k_shape = (k, ()) if not isinstance(k, Tensor) else (None, k.shape)
    return () if not isinstance(k, Tensor) else (k,)


def save_projection(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """The ``setup_context`` of an operator ``x, k, T, shards -> p`` whose derivatives need p alone."""
    _, k, ctx.temperature, shards = inputs
    ctx.group = None if shards is None else shards.group
    remember_k(ctx, k)
    ctx.save_for_backward(output)
    ctx.save_for_forward(output)


def projection_gradient(
    ctx: Any, weights: Tensor, gradient: Tensor, binds: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """The gradients of a projection with the Jacobian ``(diag(w) - w w^T / sum w) / T`` in x and ``w / sum w`` in k.

    With a process group, p and the weights are those of the local labels, and it can be differentiated once.

    Args:
        ctx: what `save_projection` saved.
        weights: ``w``.
        gradient: that of p.
        binds: ``(..., 1)``, whether k constrains a row; if not, its Jacobian is ``diag(w) / T`` and 0.
    """
    if ctx.group is None:
        return _projection_gradient(ctx, weights, gradient, binds)
    once = once_differentiable(lambda ctx, gradient: _projection_gradient(ctx, weights, gradient, binds))
    return once(ctx, gradient)


def _projection_gradient(
    ctx: Any, weights: Tensor, gradient: Tensor, binds: Tensor | None
) -> tuple[Tensor | None, ...]:
    weighted = weights * gradient
    mean = _mean(ctx, weights, weighted)
    mean = mean if binds is None else mean * binds
    to_k = mean.sum_to_size(ctx.k_shape) if ctx.needs_input_grad[1] else None
    if torch.is_grad_enabled():
        to_x = weighted - weights * mean
        return to_x if ctx.temperature == 1 else to_x / ctx.temperature, to_k, None, None
    to_x = weighted.addcmul_(weights, mean, value=-1)
    return to_x if ctx.temperature == 1 else to_x.div_(ctx.temperature), to_k, None, None


def projection_tangent(
    ctx: Any, weights: Tensor, x: Tensor | None, k: Tensor | None, binds: Tensor | None = None
) -> Tensor:
    """The forward-mode derivative of such a projection."""
    moved = torch.zeros_like(weights)
    if x is not None:
        mean = _mean(ctx, weights, weights * x)
        moved = weights * (x - (mean if binds is None else mean * binds)) / ctx.temperature
    return moved if k is None else moved + weights * (k / _positive(weights.sum(-1, keepdim=True)))


def _mean(ctx: Any, weights: Tensor, weighted: Tensor) -> Tensor:
    """The sum of ``weighted`` values over that of their ``weights``."""
    weighted, total = weighted.sum(-1, keepdim=True), weights.sum(-1, keepdim=True)
    if ctx.group is not None:
        both = all_sum(torch.cat([weighted, total], -1).to(wide(weights)), ctx.group)
        weighted, total = both.to(weights.dtype).split(1, dim=-1)
    return weighted / _positive(total)


def _positive(total: Tensor) -> Tensor:
    """``total``, or the smallest normal number where it has underflowed: the quotient is then multiplied by 0."""
    return total.clamp(min=torch.finfo(total.dtype).tiny)


def opaque(
    name: str,
    schema: str,
    function: Callable[..., Any],
    shape_like: Callable[..., Any],
    *,
    devices: Sequence[str] = ("cpu",),
) -> Callable[..., Any]:
    """``function`` as the operator ``shortlist::name``, which the compiler calls without tracing it.

    Args:
        name: of the operator.
        schema: its arguments and results, in the syntax of ``torch.library.define``.
        function: of plain tensors, without a derivative of its own.
        shape_like: like ``function``, but only the shapes of its results matter.
        devices: where it runs.
    """
    torch.library.define(f"shortlist::{name}", schema)
    torch.library.impl(f"shortlist::{name}", tuple(devices), function)
    torch.library.register_fake(f"shortlist::{name}", shape_like)
    return getattr(torch.ops.shortlist, name).default

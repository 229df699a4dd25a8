"""How an operator on logits and label masks, with its own derivative, meets autograd and the compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

BLOCK = 1 << 16
"""Entries that one thread works on at a time, so that the steps of an operator stay in its cache."""


class LabelFunction(Function):
    """Base of the operators ``(x, present, absent, *options) -> (value, ..., slope)`` with their own derivative.

    A subclass defines ``forward``, ``setup_context``, ``backward`` and ``tangent`` (the forward derivative), all
    counting axes from the last. The slope is an output only to be kept for the backward pass. The compiler takes the
    class as it is; elsewhere its twin ``everywhere`` adds the forward-mode and batching rules, which the compiler
    does not accept.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]

    @classmethod
    def run(cls, x: Tensor, present: Tensor, absent: Tensor, *options: Any) -> Any:
        """Apply the operator in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(x, present, absent, *options)
        operator = cls if torch.compiler.is_compiling() else cls.everywhere
        return operator.apply(x, present, absent, *options)

    def __init_subclass__(cls) -> None:
        """Make the twin, once per operator."""
        if "tangent" not in vars(cls):
            return
        # `apply` asks for the signature at every call; kept here, the answer costs nothing.
        cls.forward.__signature__ = inspect.signature(cls.forward)

        class Everywhere(cls):
            @staticmethod
            def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
                return cls.tangent(ctx, *tangents)

            @staticmethod
            def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
                batched = (
                    tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
                    for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)
                )
                result = Everywhere.apply(*batched, *inputs[3:])
                return result, (0,) * len(result)

        cls.everywhere = Everywhere

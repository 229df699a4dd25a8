"""How a row-wise operator with its own derivative meets autograd, ``torch.func`` and the compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function


class RowFunction(Function):
    """Base of the operators ``(x, k, *options) -> rows``, with ``x`` ``(..., n)`` and ``k`` ``(..., 1)``.

    A subclass defines ``forward``, ``setup_context``, ``backward`` and ``tangent`` (the forward derivative). The
    compiler takes the class as it is; elsewhere its twin ``everywhere`` adds the forward-mode and batching rules,
    which the compiler does not accept.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]

    @classmethod
    def run(cls, x: Tensor, k: Tensor, *options: Any) -> Any:
        """Apply the operator in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(x, k, *options)
        if torch.compiler.is_compiling():
            return cls.apply(x, k, *options)
        return cls.everywhere.apply(x, k, *options)

    def __init_subclass__(cls) -> None:
        """Make the twin, once per operator."""
        if "tangent" not in vars(cls):
            return
        # `apply` asks for the signature at every call; kept here, the answer costs nothing.
        cls.forward.__signature__ = inspect.signature(cls.forward)

        class Everywhere(cls):
            @staticmethod
            def jvp(ctx: Any, x_tangent: Tensor | None, k_tangent: Tensor | None, *_: None) -> Any:
                return cls.tangent(ctx, x_tangent, k_tangent)

            @staticmethod
            def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, k: Tensor, *options: Any) -> Any:
                x_dim, k_dim = in_dims[:2]
                x = x.expand(info.batch_size, *x.shape) if x_dim is None else x.movedim(x_dim, 0)
                k = k.unsqueeze(0) if k_dim is None else k.movedim(k_dim, 0)
                result = Everywhere.apply(x, k, *options)
                return result, (0,) * len(result) if isinstance(result, tuple) else 0

        cls.everywhere = Everywhere

"""How an operator with its own derivative meets autograd, ``torch.func`` and the compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function


class RowFunction(Function):
    """Base of the operators along the last axes of their tensors, such as ``x`` ``(..., n)`` and ``k`` ``(..., 1)``.

    A subclass defines ``forward``, ``setup_context``, ``backward`` and ``tangent`` (the forward derivative), all
    counting axes from the last. The compiler takes the class as it is; elsewhere its twin ``everywhere`` adds the
    forward-mode and batching rules, which the compiler does not accept. In ``forward`` every tensor is plain, so that
    numpy may look at it.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]

    @classmethod
    def run(cls, *arguments: Any) -> Any:
        """Apply the operator in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(*arguments)
        operator = cls if torch.compiler.is_compiling() else cls.everywhere
        return operator.apply(*arguments)

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
            def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
                result = Everywhere.apply(
                    *(
                        _batched(argument, dim, info.batch_size) if isinstance(argument, Tensor) else argument
                        for argument, dim in zip(arguments, in_dims, strict=True)
                    )
                )
                return result, (0,) * len(result) if isinstance(result, tuple) else 0

        cls.everywhere = Everywhere


def _batched(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

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
    forward-mode and batching rules, which the compiler does not accept, and outside the transforms of ``torch.func``
    its twin ``quick`` saves half of the time of a call. In ``forward`` every tensor is plain, so that numpy may look at
    it.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]
    quick: ClassVar[type[Function]]

    @classmethod
    def run(cls, *arguments: Any) -> Any:
        """Apply the operator in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(*arguments)
        if torch.compiler.is_compiling():
            return cls.apply(*arguments)
        return (cls.everywhere if _under_transforms() else cls.quick).apply(*arguments)

    def __init_subclass__(cls) -> None:
        """Make the twins, once per operator."""
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

"""The base class of losses and projections: a module that stores the options of a function and calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn


class FunctionModule(nn.Module):
    """Stores the options of ``function``; tensors become buffers, which move with ``.to()`` and are saved."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self) -> None:
        super().__init__()
        self.options: tuple[str, ...] = ()

    def add_options(self, **options: Any) -> None:
        """Store options ahead of those already stored; called by the constructors of subclasses."""
        self.options = (*options, *self.options)
        for name, value in options.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the function."""
        return {name: getattr(self, name) for name in self.options}

    def extra_repr(self) -> str:
        """The options, for ``repr``; tensors are shown by shape."""
        shown = ((name, value) for name, value in self.arguments().items() if value is not None)
        return ", ".join(
            f"{name}=tensor{tuple(value.shape)}" if isinstance(value, Tensor) else f"{name}={value!r}"
            for name, value in shown
        )

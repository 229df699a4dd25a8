"""What the loss modules share: options as attributes, tensors as buffers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from shortlist.functional.reduction import Reduction, check_reduction


class Loss(nn.Module):
    """Base of the losses: stores the options of the function it delegates to.

    Tensors among them are buffers, so that they move with ``.to()`` and are saved with the state.
    """

    def __init__(self, *, weight: Tensor | None, reduction: Reduction, **options: Any) -> None:
        super().__init__()
        check_reduction(reduction)
        self.options = (*options, "weight", "reduction")
        for name, value in {**options, "weight": weight, "reduction": reduction}.items():
            if isinstance(value, Tensor) or name == "weight":
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def arguments(self) -> dict[str, Any]:
        """The options by name, as the function takes them."""
        return {name: getattr(self, name) for name in self.options}

    def extra_repr(self) -> str:
        """The options, for ``repr``; a tensor by its shape."""
        shown = ((name, value) for name, value in self.arguments().items() if value is not None)
        return ", ".join(
            f"{name}=tensor{tuple(value.shape)}" if isinstance(value, Tensor) else f"{name}={value!r}"
            for name, value in shown
        )

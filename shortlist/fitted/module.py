"""Modules whose buffers are fitted values: of any length, and of a precision that conversions leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self


class FittedModule(nn.Module):
    """A module that loads buffers of any shape from a state, and keeps their dtype when it moves."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Only the saved state knows the number of fitted values.
        for name, buffer in list(self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if buffer is not None and isinstance(saved, Tensor) and saved.shape != buffer.shape:
                self._buffers[name] = torch.empty_like(saved, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Fitted values move with the model to another device, but ``model.half()`` must not round them.
        for part in self.children() if recurse else ():
            part._apply(fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = buffer.to(fn(buffer).device)
        return self

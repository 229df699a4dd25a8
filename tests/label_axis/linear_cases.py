"""A linear layer with labels, and every loss that takes its logits unheld: what the tests of ``LinearLogits`` share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from shortlist.functional import LinearLogits
from shortlist.targets import to_index_lists, to_sparse
from tests.contracts_losses import LOSSES as ALL_LOSSES

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}

LOSSES = {str(loss): loss for loss in ALL_LOSSES if loss.module.takes_linear_logits}
"""By name, each called with logits, labels and k."""
ONE_CLASS = {name for name, loss in LOSSES.items() if loss.one_class}


@dataclass
class Layer:
    """Features, weight and bias that want gradients."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def draw(cls, *rows: int, n: int, d: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0) -> "Layer":
        """Logits of about the size of a few."""
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((*rows, d), (n, d), (n,))]
        return cls(*(part.to(dtype).requires_grad_() for part in parts))

    @property
    def parts(self) -> list[Tensor]:
        return [part for part in (self.features, self.weight, self.bias) if part is not None]

    def dense(self) -> Tensor:
        return linear(self.features, self.weight, self.bias)

    def unheld(self, label_block: int | None = None) -> LinearLogits:
        return LinearLogits(self.features, self.weight, self.bias, label_block=label_block)


def draw_hot(*rows: int, n: int, one: bool, unknown: bool, seed: int = 1) -> Tensor:
    """A multi-hot with one positive per row, or several and sometimes none; a fifth of the rest unknown or not."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(*rows, n, generator=generator, dtype=torch.float64)
    hot = (scores >= scores.amax(-1, keepdim=True)).double() if one else (scores > 0.7).double()
    unclear = (torch.rand(*rows, n, generator=generator) < 0.2) & (hot == 0)
    return hot.masked_fill(unclear, -1.0) if unknown else hot


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "multi-hot": lambda hot: hot,
    "bool": lambda hot: hot > 0,
    "lists": lambda hot: to_index_lists(hot, hot.shape[-1], row_dims=hot.ndim - 1),
    "COO": lambda hot: to_sparse(hot, hot.shape[-1]),
    "CSR": lambda hot: to_sparse(hot, hot.shape[-1], layout=torch.sparse_csr),
}
"""A multi-hot in other forms; bool and lists cannot say that a label is unknown, and sparse ones have one row axis."""


@dataclass
class Outcome:
    """A loss and the gradients of the layer."""

    value: Tensor
    gradients: list[Tensor] = field(default_factory=list)

    def misses(self, other: "Outcome", tolerance: float) -> list[str]:
        """Where the two differ by more than the tolerance, by the size of the largest gradient."""
        found = []
        if not torch.allclose(self.value, other.value, rtol=tolerance, atol=tolerance):
            found.append(f"value {self.value} instead of {other.value}")
        scale = max([1e-3, *(g.abs().max().item() for g in other.gradients if g.numel())])
        for name, ours, theirs in zip(("features", "weight", "bias"), self.gradients, other.gradients, strict=False):
            worst = (ours - theirs).abs().max().item() if ours.numel() else 0.0
            if not worst <= tolerance * scale:
                found.append(f"gradient in {name} off by {worst} of {scale}")
        return found


def outcome(layer: Layer, loss: Callable[[Any], Tensor], logits: Any) -> Outcome:
    """Forward and backward; values of several rows are weighed differently."""
    for part in layer.parts:
        part.grad = None
    value = loss(logits)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    (value * weights).sum().backward()
    return Outcome(value.detach(), [part.grad for part in layer.parts if part.grad is not None])

"""A model: an encoder and a head, with one way to score and one to train."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from shortlist.nn import TwoHead


class SetModel(nn.Module):
    """Encoder and head in a row.

    Args:
        encoder: from a batch of inputs to features ``(B, out_features)``.
        head: from features to logits ``(B, n)``; a `TwoHead` gives two.

    Example:
        >>> import torch
        >>> from shortlist.train import Plain, SetModel
        >>> model = SetModel(Plain((4,)), TwoHead.linear(4, 10))
        >>> model(torch.zeros(2, 4)).shape, len(model.outputs(torch.zeros(2, 4)))
        (torch.Size([2, 10]), 2)
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, inputs: Any) -> Tensor:
        """The logits that predict."""
        features = self.encoder(inputs)
        return self.output_layer(features)

    def outputs(self, inputs: Any) -> tuple[Tensor, ...]:
        """All that the head gives, in the order in which losses take it."""
        outputs = self.head(self.encoder(inputs))
        return outputs if isinstance(outputs, tuple) else (outputs,)

    @property
    def output_layer(self) -> nn.Module:
        """The layer that predicts, which an audit is made of."""
        return self.head.prediction if isinstance(self.head, TwoHead) else self.head

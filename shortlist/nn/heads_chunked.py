"""An output layer for more labels than a batch of logits has room for: its logits are computed block by block."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.nn.heads import check_features, check_size

__all__ = ["ChunkedHead"]


class ChunkedHead(nn.Module):
    """Linear output layer that gives :class:`shortlist.functional.LinearLogits`, in training and after.

    ``loss(head(features), target)`` trains it with :class:`LMLNLL`, :class:`BCE`, :class:`TwoWay`,
    :class:`TruncatedTopKEntropy` and :class:`MultilabelTruncatedTopKEntropy`, in the memory of one block of labels and
    its own parameters. For answers, ``head(features).topk(k)`` gives the best labels without all logits, and
    ``head(features).dense()`` all logits as a tensor. Parameters, their names and their first values are those of
    ``nn.Linear``, and so a state of either fits the other.

    Args:
        in_features: d.
        num_labels: n.
        bias: whether there is one.
        label_block: how many labels are computed at a time; by default a good number for the batch.
        device: where the parameters are made.
        dtype: their dtype.

    Example:
        >>> head, features, target = ChunkedHead(16, 1000), torch.zeros(4, 16), torch.tensor([3, 1, 4, 15])
        >>> LMLNLL(5)(head(features), target).backward()
        >>> head.weight.grad.shape, head(features).topk(5).labels.shape
        (torch.Size([1000, 16]), torch.Size([4, 5]))
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        bias: bool = True,
        label_block: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_labels = check_size("in_features", in_features), check_size("num_labels", num_labels)
        self.label_block = None if label_block is None else check_size("label_block", label_block)
        self.weight = nn.Parameter(torch.empty(self.num_labels, self.in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(self.num_labels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, features: Tensor) -> LinearLogits:
        """Logits ``(..., n)`` of ``features`` ``(..., in_features)``, which are not held."""
        check_features(features, self.in_features)
        return LinearLogits(features, self.weight, self.bias, label_block=self.label_block)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        block = "" if self.label_block is None else f", label_block={self.label_block}"
        bias = self.bias is not None
        return f"in_features={self.in_features}, num_labels={self.num_labels}, bias={bias}{block}"

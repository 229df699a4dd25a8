"""Heads that begin with what the frequencies of the labels say, so that training need not learn it first."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.nn import BottleneckHead, DFTHead, TwoHead


@torch.no_grad()
def start_at_frequencies(head: nn.Module, counts: Tensor, num_rows: int) -> None:
    r"""Set parameters so that logits of features at 0 are the log-odds of the labels' frequencies.

    .. math:: z_j = \log \frac{c_j + 1/2}{N - c_j + 1/2}

    A linear head gets them as its bias. A bottleneck and the slack of a DFT head give one of their columns to them,
    with a projection that is constant at first (the other biases of a bottleneck start at 0). Heads that have no room
    for them (cosines, a DFT head without slack) stay as they are. Both parts of a `TwoHead` are set.

    With many rare labels this decides what a short training comes to: from equal logits, hundreds of steps go into
    finding out that most labels are rare.

    Args:
        head: a head of :mod:`shortlist.nn` or an ``nn.Linear``; changed in place.
        counts: ``(n,)``, in how many training rows each label is.
        num_rows: N, how many training rows.

    Example:
        >>> head = BottleneckHead(8, 3, bottleneck=2)
        >>> start_at_frequencies(head, torch.tensor([50, 10, 1]), 100)
        >>> head(torch.zeros(1, 8)).sigmoid().detach()
        tensor([[0.5000, 0.1040, 0.0149]])
    """
    for part in (head.prediction, head.proposal) if isinstance(head, TwoHead) else (head,):
        counts = counts.to(torch.float64)
        odds = ((counts + 0.5) / (num_rows - counts + 0.5)).log()
        _start(part, odds)


def _start(head: nn.Module, logits: Tensor) -> None:
    if isinstance(head, nn.Linear) and head.bias is not None:
        head.bias.copy_(logits)
    elif isinstance(head, BottleneckHead):
        head.projection.bias.zero_()
        _give_column(head.projection, 0, head.weight[:, 0], logits)
    elif isinstance(head, DFTHead) and head.slack_weight is not None:
        before = head(torch.zeros(1, head.in_features, dtype=head.slack_weight.dtype))[0]
        _give_column(head.projection, head.projection.out_features - 1, head.slack_weight[:, -1], logits - before)


def _give_column(projection: nn.Linear, row: int, column: Tensor, logits: Tensor) -> None:
    """Make ``column`` times what the projection gives for it the logits; half of the scale in each of the two."""
    scale = float(logits.square().mean().sqrt().clamp(min=1e-6).sqrt())
    projection.weight[row].zero_()
    projection.bias[row] = scale
    column.copy_(logits / scale)

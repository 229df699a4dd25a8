"""Heads that start at the label frequencies, so that training need not learn them first."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from shortlist.nn import BottleneckHead, ClusterHead, DFTHead, TwoHead
from shortlist.train.model.sparse_layers import SparseLinear


@torch.no_grad()
def start_at_frequencies(head: nn.Module, counts: Tensor, num_rows: int, *, relative: bool = False) -> None:
    r"""Initialize a head so that features of 0 give the log-odds of the label frequencies.

    .. math:: z_j = \log \frac{c_j + 1/2}{N - c_j + 1/2}

    A linear head gets them as its bias. A bottleneck head and the slack of a DFT head use one of their columns, with a
    projection that starts constant (the other biases of a bottleneck start at 0). A head of clusters has them for all
    candidates. Heads that cannot represent them
    (cosine heads, a DFT head without slack) stay as they are. Both heads of a `TwoHead` are set.

    With many rare labels this decides the outcome of a short training: from equal logits, hundreds of steps go into
    learning that most labels are rare.

    Args:
        head: a head of :mod:`shortlist.nn` or an ``nn.Linear``; changed in place.
        counts: ``(n,)``, the number of training rows with each label.
        num_rows: N, the number of training rows.
        relative: whether to add log(n - 1), so that a label of frequency 1 / n starts at 0.

    Example:
        >>> head = BottleneckHead(8, 3, bottleneck=2)
        >>> start_at_frequencies(head, torch.tensor([50, 10, 1]), 100)
        >>> head(torch.zeros(1, 8)).sigmoid().detach()
        tensor([[0.5000, 0.1040, 0.0149]])
    """
    counts = counts.to(torch.float64)
    log_odds = ((counts + 0.5) / (num_rows - counts + 0.5)).log()
    if relative:
        log_odds += math.log(len(counts) - 1)
    for each in (head.prediction, head.proposal) if isinstance(head, TwoHead) else (head,):
        _initialize(each, log_odds)


def _initialize(head: nn.Module, logits: Tensor) -> None:
    if isinstance(head, nn.Linear | SparseLinear) and head.bias is not None:
        head.bias.copy_(logits)
    elif isinstance(head, BottleneckHead):
        head.projection.bias.zero_()
        _set_column(head.projection, 0, head.weight[:, 0], logits)
    elif isinstance(head, DFTHead) and head.slack_weight is not None:
        before = head(torch.zeros(1, head.in_features, dtype=head.slack_weight.dtype))[0]
        _set_column(head.projection, head.projection.out_features - 1, head.slack_weight[:, -1], logits - before)
    elif isinstance(head, ClusterHead):
        _initialize_clusters(head, logits)


def _initialize_clusters(head: ClusterHead, logits: Tensor) -> None:
    """Give clusters the log-odds of having a label if labels were independent, and labels what is then missing."""
    of_members = logits[head.members.clamp(min=0)]
    present = head.members >= 0
    # S = -log P(no label); the log-odds of 1 - exp(-S) are S + log(1 - exp(-S)).
    none = torch.where(present, -logsigmoid(-of_members), 0.0).sum(1).clamp(min=1e-6)
    of_clusters = none + torch.log(-torch.expm1(-none))
    head.clusters.bias.copy_(of_clusters)
    head.labels.bias.copy_(torch.where(present, of_members - logsigmoid(of_clusters).unsqueeze(1), 0.0))


def _set_column(projection: nn.Linear, row: int, column: Tensor, logits: Tensor) -> None:
    """Make ``column`` times its constant output of the projection the logits, with half of the scale in each."""
    scale = float(logits.square().mean().sqrt().clamp(min=1e-6).sqrt())
    projection.weight[row].zero_()
    projection.bias[row] = scale
    column.copy_(logits / scale)

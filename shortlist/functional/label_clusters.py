"""Clusters of labels with similar rows, and the logits of the labels in a few clusters per row."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from shortlist.tensors import check_size

__all__ = ["balanced_clusters", "cluster_sizes", "clustered_logits"]

_ITERATIONS = 10
_SAMPLE = 1 << 14
"""From this many vectors the centers of a split are found; all vectors are then assigned to them."""


def cluster_sizes(num_labels: int, largest: int) -> tuple[int, int]:
    """The number of clusters, a power of two, and the size of the largest one, at most ``largest``.

    Example:
        >>> cluster_sizes(10_851, 100)
        (128, 85)
    """
    check_size("num_labels", num_labels)
    check_size("largest", largest)
    number = 1 << max(0, math.ceil(num_labels / largest) - 1).bit_length()
    return number, -(-num_labels // number)


def balanced_clusters(vectors: Tensor, largest: int, *, seed: int = 0) -> Tensor:
    r"""Cluster vectors by direction into :math:`2^m` clusters whose sizes differ by at most one.

    Balanced spherical 2-means splits all vectors into two halves, each half again, and so on: a step sorts the vectors
    of a node by :math:`\langle v, c_1 - c_0 \rangle`, assigns the first half to :math:`c_1`, and moves both centers to
    the normalized means of their halves, until nothing changes. With vectors of labels that are means of the inputs
    of their rows, labels that occur in similar rows share a cluster.

    Args:
        vectors: ``(n, d)``, floating; a vector of zeros, such as that of a label without rows, may be anywhere.
        largest: the size that no cluster exceeds.
        seed: for the initial centers, a vector of the node and the one least like it.

    Returns:
        ``(clusters, size)`` int64, the members of each cluster in ascending order; -1 at the end pads smaller clusters.

    Example:
        >>> balanced_clusters(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.2, 1.0], [1.0, 0.2]]), 3)
        tensor([[ 0,  2,  4],
                [ 1,  3, -1]])

    References:
        Prabhu et al., "Parabel: Partitioned label trees for extreme classification", 2018, section 4.
    """
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise ValueError(f"`vectors` must be a floating matrix; got {vectors.dtype} of shape {tuple(vectors.shape)}.")
    number, _ = cluster_sizes(len(vectors), largest)
    unit = normalize(vectors, dim=1)
    generator = torch.Generator().manual_seed(seed)
    groups = [torch.arange(len(vectors), device=vectors.device)]
    while len(groups) < number:
        groups = [half for group in groups for half in _halves(group, unit, generator)]
    return pad_sequence([group.sort().values for group in groups], batch_first=True, padding_value=-1)


def _halves(group: Tensor, unit: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randperm(len(group), generator=generator)[:_SAMPLE].to(group.device)
    vectors, half = unit[group], (len(group) + 1) // 2
    if len(group) < 2:
        return group, group[:0]
    axis = _axis(vectors[drawn])
    order = (vectors @ axis).argsort(descending=True, stable=True)
    return group[order[:half]], group[order[half:]]


def _axis(vectors: Tensor) -> Tensor:
    """The difference of the centers of two balanced clusters, which start at a vector and the one least like it."""
    half, total = (len(vectors) + 1) // 2, vectors.sum(0)
    axis = vectors[0] - vectors[(vectors @ vectors[0]).argmin()]
    inside = None
    for _ in range(_ITERATIONS):
        order = (vectors @ axis).argsort(descending=True, stable=True)
        before, inside = inside, torch.zeros_like(vectors[:, 0])
        inside[order[:half]] = 1
        if before is not None and bool((before == inside).all()):
            break
        first = inside @ vectors
        axis = normalize(first, dim=0) - normalize(total - first, dim=0)
    return axis


def clustered_logits(features: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, clusters: Tensor) -> Tensor:
    r"""The logits of all labels of a cluster, for pairs of a row and a cluster.

    .. math:: z_{pj} = \langle w_{c_p j}, x_{r_p} \rangle + b_{c_p j}

    Time and memory are those of the pairs, not of all labels: the gradients of weight and bias are sparse tensors with
    the clusters that occur. It can be differentiated once.

    Args:
        features: ``(B, d)``, floating.
        weight: ``(C, M, d)``: M labels in each of C clusters.
        bias: ``(C, M)``.
        rows: ``(P,)`` int64, the row of each pair.
        clusters: ``(P,)`` int64, its cluster.

    Returns:
        ``(P, M)``.

    Example:
        >>> features, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]])
        >>> clustered_logits(features, weight, torch.zeros(3, 1), torch.tensor([0, 0]), torch.tensor([2, 0]))
        tensor([[3.],
                [1.]])
    """
    if features.ndim != 2 or weight.ndim != 3 or features.shape[1] != weight.shape[2]:
        raise ValueError(
            "`features` must have shape (B, d) and `weight` (C, M, d); "
            f"got {tuple(features.shape)} and {tuple(weight.shape)}."
        )
    if bias.shape != weight.shape[:2]:
        raise ValueError(f"`bias` must have shape {tuple(weight.shape[:2])} like `weight`; got {tuple(bias.shape)}.")
    if rows.ndim != 1 or rows.shape != clusters.shape:
        raise ValueError(
            f"`rows` and `clusters` must be one list of pairs; got {tuple(rows.shape)}, {tuple(clusters.shape)}."
        )
    return _ClusteredLogits.apply(features, weight, bias, rows, clusters)


class _ClusteredLogits(Function):
    """Groups the pairs by cluster, so that each cluster's weight is read once and multiplied with all of its rows."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, clusters: Tensor) -> Tensor:
        order = clusters.argsort(stable=True)
        found, counts = clusters[order].unique_consecutive(return_counts=True)
        inputs = features[rows[order]]
        grouped = inputs.new_empty(len(rows), weight.shape[1])
        for cluster, some in _groups(found, counts):
            torch.addmm(bias[cluster], inputs[some], weight[cluster].T, out=grouped[some])
        ctx.save_for_backward(weight, inputs, rows[order], order, found, counts)
        ctx.num_rows = len(features)
        return torch.empty_like(grouped).index_copy_(0, order, grouped)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, inputs, rows, order, found, counts = ctx.saved_tensors
        grouped = gradient[order]
        of_inputs = torch.empty_like(inputs)
        of_weight = weight.new_empty(len(found), *weight.shape[1:])
        of_bias = weight.new_empty(len(found), weight.shape[1])
        for place, (cluster, some) in enumerate(_groups(found, counts)):
            torch.mm(grouped[some], weight[cluster], out=of_inputs[some])
            torch.mm(grouped[some].T, inputs[some], out=of_weight[place])
            torch.sum(grouped[some], 0, out=of_bias[place])
        of_features = inputs.new_zeros(ctx.num_rows, inputs.shape[1]).index_add_(0, rows, of_inputs)
        at, sizes = found.unsqueeze(0), weight.shape
        return (
            of_features,
            torch.sparse_coo_tensor(at, of_weight, sizes, is_coalesced=True, check_invariants=False),
            torch.sparse_coo_tensor(at, of_bias, sizes[:2], is_coalesced=True, check_invariants=False),
            None,
            None,
        )


def _groups(clusters: Tensor, counts: Tensor) -> list[tuple[int, slice]]:
    ends = counts.cumsum(0).tolist()
    return [(c, slice(end - n, end)) for c, n, end in zip(clusters.tolist(), counts.tolist(), ends, strict=True)]

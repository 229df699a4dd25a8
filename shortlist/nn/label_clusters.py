"""Output layer for 10⁴ to 10⁶ labels: a layer of clusters proposes candidates, and only their logits are computed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, pad

from shortlist.functional.label_clusters import balanced_clusters, cluster_sizes, clustered_logits
from shortlist.labels import list_labels
from shortlist.nn.heads import check_features
from shortlist.targets import TargetForm, target_form
from shortlist.tensors import check_size

__all__ = ["CandidateLogits", "ClusterHead"]


class CandidateLogits(NamedTuple):
    """The logits of some labels of each row; all other labels are absent, with logit -inf."""

    values: Tensor  # (B, m)
    labels: Tensor  # (B, m) int64, different in each row; -1 and logit -inf pad rows with fewer candidates
    num_labels: int

    def dense(self) -> Tensor:
        """The logits ``(B, n)``, with -inf for labels that are no candidates.

        Example:
            >>> CandidateLogits(torch.tensor([[2.0, 1.0]]), torch.tensor([[3, 0]]), 4).dense()
            tensor([[1., -inf, -inf, 2.]])
        """
        # Padding is written to a column of its own.
        logits = self.values.new_full((len(self.values), self.num_labels + 1), -math.inf)
        return logits.scatter(1, self.labels.remainder(self.num_labels + 1), self.values)[:, :-1]

    def renumbered(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and target with the candidates as labels, on which losses and metrics of rows have the same value.

        Positives that are no candidates are appended with the logit -inf, so they count as missed.

        Args:
            target: labels in any form.

        Returns:
            Logits ``(B, m')``, and class indices ``(B,)`` if that is the form of the target, else a multi-hot
            ``(B, m')`` with 1 for present, 0 for absent and -1 for unknown labels.

        Example:
            >>> candidates = CandidateLogits(torch.tensor([[2.0, 1.0]]), torch.tensor([[3, 0]]), 4)
            >>> candidates.renumbered(torch.tensor([[0, 1]]))
            (tensor([[2., 1., -inf]]), tensor([[0., 1., 1.]]))
        """
        entries = list_labels(target, self.num_labels, check=False)
        rows, labels = entries.pairs()
        present = entries.values > 0
        found, places = (self.labels[rows] == labels.unsqueeze(1)).max(1)
        missed = ~found & present
        number = torch.zeros(len(self.values), dtype=torch.int64, device=rows.device)
        number.index_add_(0, rows[missed], torch.ones_like(rows[missed]))
        # Entries are in the order of the rows, so the missed ones of a row are consecutive.
        first = (number.cumsum(0) - number)[rows[missed]]
        width = self.values.shape[1]
        places[missed] = width + torch.arange(len(first), device=rows.device) - first
        logits = pad(self.values, (0, int(number.max()) if len(number) else 0), value=-math.inf)
        if target_form(target, self.num_labels) is TargetForm.CLASS_INDICES:
            return logits, places
        hot = torch.zeros_like(logits, requires_grad=False)
        counted = found | missed
        hot[rows[counted], places[counted]] = entries.values[counted].to(hot.dtype)
        return logits, hot


class ClusterHead(nn.Module):
    r"""Linear output layer that computes only the logits of labels in a few clusters of each row.

    .. math:: z_j = \langle w_j, e \rangle + b_j + \log \sigma(\langle u_c, e \rangle + a_c), \quad j \in c

    A row's candidates are the labels of the ``beam`` clusters c with the largest logits
    :math:`\langle u_c, e \rangle + a_c`; all others are absent. In training, clusters with a true label are added,
    the loss is that of the candidates' logits, and a binary cross-entropy teaches the clusters. A step takes time for
    the candidates and the clusters, not for all labels: the gradients of the labels' parameters are sparse.

    Args:
        in_features: d, the size of e.
        num_labels: n.
        cluster_size: the largest size of a cluster; the number of clusters is a power of two.
        beam: how many clusters of a row are searched; all, if there are fewer.
        device: the device of the parameters.
        dtype: their dtype.

    Example:
        >>> head = ClusterHead(2, 4, cluster_size=2, beam=1)
        >>> head.cluster(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]))
        >>> head.members.tolist()
        [[0, 2], [1, 3]]
        >>> head(torch.zeros(3, 2)).isfinite().sum(1)
        tensor([2, 2, 2])

    References:
        Prabhu et al., "Parabel", 2018; You et al., "AttentionXML", 2019; Jiang et al., "LightXML", 2021.
    """

    members: Tensor
    place: Tensor

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        cluster_size: int = 100,
        beam: int = 10,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_labels = check_size("in_features", in_features), check_size("num_labels", num_labels)
        self.cluster_size = check_size("cluster_size", cluster_size)
        number, size = cluster_sizes(self.num_labels, self.cluster_size)
        self.beam = min(check_size("beam", beam), number)
        self.clusters = nn.Linear(self.in_features, number, device=device, dtype=dtype)
        self.labels = LabelVectors(number, size, self.in_features, device=device, dtype=dtype)
        # Until labels are clustered, clusters are ranges of labels of sizes that differ by at most one.
        ends = [self.num_labels * end // number for end in range(number + 1)]
        ranges = [torch.arange(ends[i], ends[i + 1], device=device) for i in range(number)]
        padded = nn.utils.rnn.pad_sequence(ranges, batch_first=True, padding_value=-1)
        self.register_buffer("members", padded)
        self.register_buffer("place", _places(padded, self.num_labels), persistent=False)
        self.register_load_state_dict_post_hook(_update_places)

    def cluster(self, vectors: Tensor, *, seed: int = 0) -> None:
        """Cluster the labels; before training, because parameters of labels stay where they are.

        Args:
            vectors: ``(n, any)``, one per label, such as the mean of its rows' inputs.
            seed: of the initial centers.
        """
        if len(vectors) != self.num_labels:
            raise ValueError(f"`vectors` must have one row for each of {self.num_labels} labels; got {len(vectors)}.")
        self.members.copy_(balanced_clusters(vectors, self.cluster_size, seed=seed))
        _update_places(self, None)

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(B, n)`` of ``features`` ``(B, in_features)``, with -inf for labels that are no candidates."""
        return self.candidates(features).dense()

    def candidates(self, features: Tensor) -> CandidateLogits:
        """The logits of the labels in each row's best clusters."""
        check_features(features, self.in_features)
        of_clusters = self.clusters(features)
        return self._scored(features, of_clusters, self._best(of_clusters))

    def training_logits(self, features: Tensor, target: Tensor) -> tuple[CandidateLogits, Tensor]:
        """The candidates of a training step, which include all true labels, and the loss of the clusters.

        Args:
            features: ``(B, in_features)``.
            target: labels in any form.

        Returns:
            The logits, and the binary cross-entropy of the clusters, summed over them and averaged over rows.
        """
        check_features(features, self.in_features)
        of_clusters = self.clusters(features)
        entries = list_labels(target, self.num_labels, check=False)
        rows, labels = (each[entries.values > 0] for each in entries.pairs())
        true = torch.zeros_like(of_clusters, dtype=torch.bool, requires_grad=False)
        true[rows, self.place[labels] // self.members.shape[1]] = True
        loss = binary_cross_entropy_with_logits(of_clusters, true.to(of_clusters.dtype), reduction="sum")
        return self._scored(features, of_clusters, self._best(of_clusters) | true), loss / max(len(features), 1)

    def _best(self, of_clusters: Tensor) -> Tensor:
        best = of_clusters.detach().topk(self.beam, dim=1).indices
        return torch.zeros_like(of_clusters, dtype=torch.bool, requires_grad=False).scatter_(1, best, True)

    def _scored(self, features: Tensor, of_clusters: Tensor, chosen: Tensor) -> CandidateLogits:
        rows, clusters = chosen.nonzero(as_tuple=True)
        labels = self.members[clusters]
        weight, bias = self.labels.weight, self.labels.bias
        logits = clustered_logits(features.to(weight.dtype), weight, bias, rows, clusters)
        logits = logits + logsigmoid(of_clusters[rows, clusters]).unsqueeze(1)
        logits = logits.masked_fill(labels < 0, -math.inf)
        counts = chosen.sum(1)
        ranks = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        shape = (len(features), int(counts.max()) if len(counts) else 0, labels.shape[1])
        values = logits.new_full(shape, -math.inf).index_put((rows, ranks), logits)
        names = labels.new_full(shape, -1).index_put((rows, ranks), labels)
        return CandidateLogits(values.flatten(1), names.flatten(1), self.num_labels)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        number, size = self.members.shape
        return (
            f"in_features={self.in_features}, num_labels={self.num_labels}, clusters={number}×{size}, beam={self.beam}"
        )


class LabelVectors(nn.Module):
    """The parameters of the labels, cluster by cluster; their gradients are sparse tensors of the clusters that occur.

    Args:
        clusters: number of clusters.
        size: labels per cluster.
        in_features: size of a vector.
        device: the device of the parameters.
        dtype: their dtype.
    """

    sparse = True
    """Whether gradients are sparse, as of ``nn.EmbeddingBag``."""

    def __init__(
        self,
        clusters: int,
        size: int,
        in_features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(clusters, size, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(clusters, size, device=device, dtype=dtype))
        bound = 1 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound, bound)


def _places(members: Tensor, num_labels: int) -> Tensor:
    """The place of each label in the flattened members, ``(n,)`` int64."""
    places = members.new_empty(num_labels + 1)
    # Padding is written to an entry of its own.
    places[members.flatten()] = torch.arange(members.numel(), device=members.device)
    return places[:-1].clone()


def _update_places(head: ClusterHead, _: object) -> None:
    head.place.copy_(_places(head.members, head.num_labels))

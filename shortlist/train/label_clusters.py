"""Training with a head of label clusters: its clusters from the training rows, and the loss of their candidates."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from shortlist.data import Dataset
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError
from shortlist.factory import LOSSES
from shortlist.fit_options import FitOptions
from shortlist.nn import ClusterHead, Loss
from shortlist.train.inputs import row_batches
from shortlist.train.model.encoders import as_floats

# Wider inputs are projected at random to this many columns, which keeps angles up to about 1/16.
_COLUMNS = 256


def check_cluster_run(head: ClusterHead, loss: Loss, options: FitOptions) -> None:
    """Raise InputError unless the loss takes candidates and the options suit a head of clusters."""
    if not loss.takes_candidates:
        known = ", ".join(name for name, each in LOSSES.items() if each.takes_candidates)
        raise InputError(
            f"`loss` must act on the candidates of a row with `head` 'clusters': {known}; got {loss.name!r}."
        )
    if any(len(each) == head.num_labels for each in loss.buffers() if each.ndim):
        raise InputError("`loss_options` must not have a value per label with `head` 'clusters'.")
    if options.optimizer != "adamw" or options.precision == "16-mixed":
        given = f"{options.optimizer!r} and {options.precision!r}"
        raise InputError(
            f"`optimizer` and `precision` must be adamw and not 16-mixed with `head` 'clusters'; got {given}."
        )
    if options.processes * options.nodes > 1:
        raise InputError("`processes` and `nodes` must be 1 with `head` 'clusters'.")
    fewest = head.beam * (head.num_labels // len(head.members))
    if fewest < max(options.k, min(5, head.num_labels)):
        raise InputError(
            f"`head_options` must give a row more candidates than `k` {options.k:g} and 5, the sizes of its sets; "
            f"got {fewest} of {head.beam} clusters."
        )


@torch.no_grad()
def cluster_labels(head: ClusterHead, train: Dataset, *, seed: int) -> None:
    """Cluster the labels of a head by the mean of the inputs of their rows, scaled to unit length.

    Args:
        head: changed in place.
        train: training rows, with features or sparse features.
        seed: of the projection of wide inputs, and of the clusters.
    """
    width = int(torch.Size(train.inputs.shape).numel())  # pyright: ignore[reportAttributeAccessIssue]
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(width, _COLUMNS, generator=generator) if width > _COLUMNS else None
    sums = torch.zeros(head.num_labels, min(width, _COLUMNS))
    for rows in row_batches(len(train), 1024):
        batch = train.batch(rows)
        values = batch.inputs
        if values.layout == torch.strided:
            values = as_floats(values, torch.float32).flatten(1)
        values = values.to_dense() if projection is None else values.float() @ projection
        at, labels, present = label_pairs(batch.targets, head.num_labels)
        sums.index_add_(0, labels[present], normalize(values.float(), dim=1)[at[present]])
    head.cluster(sums, seed=seed)


def candidate_loss(loss: nn.Module, head: ClusterHead, features: Tensor, target: Tensor) -> Tensor:
    """The loss of the logits of a row's candidates, plus the cross-entropy of the clusters on the same scale.

    Args:
        loss: of :mod:`shortlist.nn`, with reduction ``mean`` or ``sum``.
        head: the head.
        features: ``(B, in_features)``.
        target: labels in any form.
    """
    candidates, of_clusters = head.training_logits(features, target)
    logits, labels = candidates.renumbered(target)
    if getattr(loss, "reduction", "mean") == "sum":
        of_clusters = of_clusters * len(features)
    elif getattr(loss, "mean_over", "rows") == "known entries":
        of_clusters = of_clusters / logits.shape[1]
    return loss(logits, labels) + of_clusters

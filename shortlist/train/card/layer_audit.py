"""Audit which label sets of some rows a model's output layer can never rank first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs
from shortlist.extras import MissingExtraError, require
from shortlist.nn import ClusterHead, CosineHead
from shortlist.train.model.plan import SetModel

if TYPE_CHECKING:
    from shortlist.audit import AuditReport

# Deciding a set takes time in proportion to the entries of the layer; these bounds keep an audit within a moment. They
# count work instead of seconds, so that a resumed run audits the same sets.
_MOST_ENTRIES, _MOST_WORK, _MOST_SETS = 1 << 20, 1 << 24, 100


class LayerAudit(NamedTuple):
    """The report, or the ``reason`` why there is none; ``distinct`` counts the sets of which some were audited."""

    report: AuditReport | None
    distinct: int
    reason: str | None = None


def audit_layer(model: SetModel, rows: Dataset, *, most_sets: int | None = None) -> LayerAudit:
    """Audit the label sets of some rows; rows without labels and rows with unknown labels do not count.

    Args:
        model: whose output layer is audited. Whether the labels of a set can be the top ones matters for all losses,
            thresholds and set rules.
        rows: with true labels.
        most_sets: of more distinct sets a sample is audited, without looking at the cost; by default as many sets as
            are decided in a moment, and none of a large layer.
    """
    layer = audited_layer(model.output_layer)
    if layer is None:
        return LayerAudit(None, 0, "its head of clusters has no matrix of all labels")
    sets = distinct_sets(rows)
    if not sets and most_sets is None:
        return LayerAudit(None, 0, "no row that was evaluated has labels")
    entries = _entries(layer)
    if most_sets is None and entries > _MOST_ENTRIES:
        return LayerAudit(None, len(sets), f"a layer of {entries:,} numbers takes longer than a moment")
    most = min(_MOST_SETS, _MOST_WORK // entries) if most_sets is None else most_sets
    chosen = sorted(Draws(0, "audited sets").order(len(sets))[:most].tolist())
    how: dict[str, Any] = {"mode": "top-k", "radius": False, "jobs": 1, "names": rows.label_names}
    try:
        auditing = require("shortlist.audit", extra="audit")
        return LayerAudit(auditing.audit(layer, [sets[index] for index in chosen], **how), len(sets))
    except MissingExtraError:
        if most_sets is not None:
            raise
        return LayerAudit(None, len(sets), "the extra `audit` is not installed")


def audited_layer(head: nn.Module) -> nn.Module | Tensor | None:
    """What `shortlist.audit.audit` takes for an output layer; None for a head of clusters, which has no such matrix."""
    if isinstance(head, ClusterHead):
        return None
    # Cosines depend on the directions of the rows alone.
    return normalize(head.weight.detach()) if isinstance(head, CosineHead) else head


def _entries(layer: nn.Module | Tensor) -> int:
    """How many numbers an audit reads; of a large layer, how many it learns, without computing its weight."""
    if isinstance(layer, Tensor):
        return layer.numel()
    learned = sum(parameter.numel() for parameter in layer.parameters())
    weight: Any = None if learned > _MOST_ENTRIES else getattr(layer, "weight", None)
    return learned if weight is None else weight.numel()


def distinct_sets(rows: Dataset) -> list[list[int]]:
    """The distinct label sets of the rows without unknown labels, in ascending order."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    has_unknown = torch.zeros(len(rows), dtype=torch.bool)
    has_unknown[at[~present]] = True
    known = present & ~has_unknown[at]
    sets: dict[int, list[int]] = {}
    for row, label in zip(at[known].tolist(), labels[known].tolist(), strict=True):
        sets.setdefault(row, []).append(label)
    return [list(each) for each in sorted({tuple(sorted(labels)) for labels in sets.values()})]

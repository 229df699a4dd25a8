"""The rows worth labeling next: those whose unknown labels the model is least sure of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.doctor.scored_rows import read_held_out, read_rows
from shortlist.labels import LabelsLike, Numbers
from shortlist.sets.scores import Link


class UncertainRows(NamedTuple):
    """Rows with something to learn, most first.

    Attributes:
        rows: ``(m,)`` int64.
        bits: ``(m,)`` float64, what labeling the row is expected to tell.
        unknown: ``(m,)`` int64, how many labels of the row are unknown.
    """

    rows: Tensor
    bits: Tensor
    unknown: Tensor


@torch.no_grad()
def rows_to_label(
    scores: Numbers,
    labels: LabelsLike | None = None,
    *,
    from_logits: bool,
    one_class: bool,
    link: Link | None = None,
) -> UncertainRows:
    r"""Rank rows by the entropy of what is unknown about them.

    For one class per row, the rows without a class by :math:`-\sum_l p_l \log_2 p_l`. For label sets, by the sum over
    the unknown labels of :math:`-p_l \log_2 p_l - (1 - p_l) \log_2 (1 - p_l)`. Rows of which everything is known are
    left out. The measure trusts the model: what it is wrongly sure of comes last, so label some rows at random, too.

    Args:
        scores: ``(N, n)``; read in blocks.
        labels: what is known, in any form of ``shortlist.targets``; None if nothing is.
        from_logits: whether scores are logits rather than probabilities.
        one_class: whether every row has one true label, or a set of them.
        link: how logits become probabilities; softmax for one class and sigmoid for sets by default.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.6, 0.4]])
        >>> labels = torch.tensor([[-1], [-1], [0]])
        >>> rows_to_label(probs, labels, from_logits=False, one_class=True).rows
        tensor([0, 1])
    """
    source, read = (read_held_out(scores), None) if labels is None else read_rows(scores, labels)
    used = (link or ("softmax" if one_class else "sigmoid")) if from_logits else None
    bits, unknown, start = [], [], 0
    for block in source.blocks(used):
        values = block.values
        p, asked = values.clamp(0.0, 1.0), block.scores > -torch.inf
        if read is not None:
            part = read[start : start + len(values)]
            if one_class:
                asked = asked & (part.positives().counts == 0).unsqueeze(-1)
            else:
                rows, columns = part.only(part.values < 0).pairs()
                hidden = torch.zeros_like(asked)
                hidden[rows, columns] = True
                asked = asked & hidden
        start += len(values)
        entropy = torch.special.entr(p) + (0.0 if one_class else torch.special.entr(1 - p))
        bits.append(torch.where(asked, entropy, 0.0).sum(-1) / torch.log(torch.tensor(2.0)))
        unknown.append(asked.sum(-1))
    value, count = torch.cat(bits), torch.cat(unknown)
    order = count.nonzero()[:, 0]
    order = order[value[order].argsort(descending=True, stable=True)]
    return UncertainRows(order, value[order], count[order])

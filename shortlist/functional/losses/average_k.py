"""Average-K with two heads: one proposes likely labels over the whole batch, the other learns to accept them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shortlist.functional.losses.binary import binary_terms, weighted_terms
from shortlist.functional.losses.labeled_logits import Reduction, check_second_logits, check_weight, read_plain
from shortlist.functional.losses.softmax import log1pexp, rival_excess
from shortlist.labels import Labels
from shortlist.tensors import check_number, is_plain

__all__ = ["average_k"]

_GROUP = 32
"""Entries of which only the largest is looked at first."""


def average_k(
    logits: Tensor,
    proposals: Tensor,
    target: Tensor,
    k: float,
    *,
    alpha: float = 1.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Loss of two heads for sets of ``k`` labels on average, from one class per row.

    .. math:: \ell = -\log \operatorname{softmax}(z)_y - \log \sigma(x_y)
              - \frac{\alpha}{k - 1} \sum_{j \in C} \log \sigma(x_j)
              - \frac{\alpha}{n - k} \sum_{j \notin C \cup \{y\}} \log(1 - \sigma(x_j))

    where z are the proposals and C the candidates of the row. All rows together have ``round((k - 1) * rows)``
    candidates: the entries, other than true ones, with the largest softmax of the proposals over the whole batch; the
    first ones of ties. The choice has no gradient. Only ``logits`` are used to predict.

    Args:
        logits: x, ``(*rows, n)``, floating; ``-inf`` marks an absent label.
        proposals: z, shaped like ``logits``; a label at ``-inf`` is never a candidate.
        target: one class per row, in any form of :mod:`shortlist.targets`. Rows without a class propose nothing and
            are left out; unknown labels are neither candidates nor negatives.
        k: how many labels a prediction holds on average; a number in [1, n), whole or not. With 1 there are no
            candidates.
        alpha: weight of candidates and negatives relative to the true class; at least 0.
        weight: ``(n,)``, multiplies the cross-entropy by that of the true class, and each binary term by that of its
            label.
        reduction: ``"mean"`` over the rows that have a class, ``"sum"`` or ``"none"``.

    Returns:
        One number, or one value per row; float32 or float64.

    Example:
        >>> logits = torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]])
        >>> average_k(logits, logits, torch.tensor([0, 1]), 1.5, reduction="none")
        tensor([2.3160, 1.8721])

    References:
        Garcin, Servajean, Joly, Salmon, "A Two-Head Loss Function for Deep Average-K Classification", 2023.
    """
    check_second_logits("proposals", proposals, logits)
    n = logits.shape[-1]
    k, alpha = check_number("k", k, at_least=1, below=n), check_number("alpha", alpha, at_least=0)
    labeled = read_plain(logits, target)
    data, x = labeled.with_logits(proposals).classes(), labeled.classes().tensor
    z, share, weight = data.tensor, data.class_share, check_weight(weight, x)
    index = data.labels.pairs()[1].unsqueeze(-1)
    entropy = log1pexp(rival_excess(data))
    # The softmax of the true class is exp(-entropy), and gives that of all others.
    log_p = z.detach() - (z.detach().gather(-1, index) + entropy.detach().unsqueeze(-1))
    log_p = log_p.scatter_(-1, index, -math.inf)
    chosen, other = alpha / (k - 1) if k > 1 else 0.0, alpha / (n - k)
    most, wanted = round((k - 1) * len(log_p)), None
    if share is not None:
        log_p = torch.where((share > 0).reshape(-1, 1), log_p, -math.inf)
        wanted = ((k - 1) * (share > 0).sum().double()).round().long()
    if weight is not None:
        entropy = entropy * weight[index.squeeze(-1)]
    if is_plain(x) and is_plain(log_p):
        indices = _first_largest(log_p.numpy().reshape(-1), most if wanted is None else int(wanted))
        positives = _with_classes(indices, data.labels, chosen)
        binary = binary_terms(x, positives, background=other, weight=weight)
    else:
        # Candidates depend on the proposals, so their mask is no larger than these are.
        mask = _first_largest_mask(log_p.reshape(-1), most, wanted).to(x.dtype).reshape(x.shape)
        present, absent = (chosen * mask).scatter(-1, index, 1), (other * (1 - mask)).scatter(-1, index, 0)
        if weight is not None:
            present, absent = present * weight, absent * weight
        binary = weighted_terms(x, present, absent)
    return data.reduce_classes(entropy + binary, reduction)


def _with_classes(indices: np.ndarray, classes: Labels, chosen: float) -> Labels:
    """The candidates, which count ``chosen`` each, and the true classes, as positives."""
    rows, labels = (torch.from_numpy(part) for part in np.divmod(indices, classes.num_labels))
    values = classes.values.new_ones(len(indices) + len(classes.values))
    values[: len(indices)] = chosen
    true_rows, true_labels = classes.pairs()
    rows, labels = torch.cat([rows, true_rows]), torch.cat([labels, true_labels])
    return Labels(classes.row_shape, classes.num_labels, rows, labels, values)


def _first_largest(values: np.ndarray, count: int) -> np.ndarray:
    """The indices of the ``count`` largest values above -inf, the first ones of ties."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    bound = np.finfo(values.dtype).min
    if len(values) >= count * _GROUP:
        # At least `count` values reach the count-th largest of the maxima of groups, and few others do.
        whole = len(values) // _GROUP * _GROUP
        bound = max(_largest(values[:whole].reshape(_GROUP, -1).max(0), count), bound)
    indices = np.flatnonzero(values >= bound)
    extra = len(indices) - count
    if extra <= 0:
        return indices
    threshold = _largest(values[indices], count)
    indices = indices[values[indices] >= threshold]
    tied = np.flatnonzero(values[indices] == threshold)
    return np.delete(indices, tied[len(tied) - (len(indices) - count) :])


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """The count-th largest value."""
    return np.partition(values, len(values) - count)[len(values) - count]


def _first_largest_mask(values: Tensor, most: int, wanted: Tensor | None) -> Tensor:
    """The same as a mask, without reading values: the ``wanted`` largest, at most ``most``."""
    if most == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    wanted = torch.full((), most, device=values.device) if wanted is None else wanted.clamp(0, most)
    threshold = values.topk(most).values.gather(0, (wanted - 1).clamp(min=0).unsqueeze(0))
    above, tied = values > threshold, values == threshold
    room = wanted - above.sum()
    return (above | (tied & (tied.cumsum(0) <= room))) & (values > -math.inf) & (wanted > 0)

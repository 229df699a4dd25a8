"""Wrong classes, by confident learning: rows that a held-out model confidently assigns to another class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from shortlist.doctor.label_issues import LabelIssues, check_names
from shortlist.doctor.scored_rows import read_rows
from shortlist.labels import LabelsLike, Numbers
from shortlist.sets.scores import Link, Scores


@torch.no_grad()
def find_wrong_classes(
    scores: Numbers,
    labels: LabelsLike,
    *,
    from_logits: bool,
    link: Link = "softmax",
    names: Sequence[str] | None = None,
) -> LabelIssues:
    r"""Rows whose class is probably wrong, the least credible first.

    A class is given with confidence to the rows where its probability reaches the average that it has in rows that are
    labeled with it,

    .. math:: t_j = \operatorname{mean}_{i : y_i = j} p_j(x_i), \qquad
              \hat y_i = \operatorname{argmax}_{j : p_j(x_i) \ge t_j} p_j(x_i).

    Rows with :math:`\hat y_i \ne y_i` are listed. Their quality is :math:`p_y / (p_y + \max_{j \ne y} p_j)`, which
    ranks better than the difference of the two if a model is too sure of itself. Of the rows of a class that have a
    :math:`\hat y`, the share whose :math:`\hat y` is another class estimates how many of its rows are wrong; a model
    that is often confidently wrong makes this estimate too large.

    Args:
        scores: ``(N, n)``, out of fold: the model must not have been trained on the row that it scores. Read in blocks.
        labels: one class per row, in any form of ``shortlist.targets``; rows without a class are left out.
        from_logits: whether scores are logits rather than probabilities.
        link: how logits become probabilities.
        names: of the labels, for `LabelIssues.to_list`.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
        >>> issues = find_wrong_classes(probs, torch.tensor([0, 0, 1, 1, 0]), from_logits=False, names=["cat", "dog"])
        >>> [(each["row"], each["label"], each["suggested"]) for each in issues.to_list()]
        [(4, 'cat', 'dog')]

    References:
        Northcutt, Jiang, Chuang, "Confident learning", 2021.
    """
    source, read = read_rows(scores, labels)
    read.refuse_unknown("the class of a row")
    n, (rows, classes) = source.shape[1], read.pairs()
    if (read.counts > 1).any():
        row = int(read.counts.argmax())
        raise ValueError(f"`labels` must name one class per row; row {row} has {int(read.counts[row])}.")
    if not len(rows):
        raise ValueError("`labels` must hold at least one class.")
    used, given = link if from_logits else None, torch.full((len(source),), -1).scatter(0, rows, classes)
    own = torch.cat([_own(values, part) for values, part in _blocks(source, given, used)])
    counts = torch.bincount(classes, minlength=n)
    # A class without rows has no threshold, and nothing is assigned to it.
    thresholds = torch.zeros(n, dtype=torch.float64).index_add(0, classes, own[rows]) / counts
    thresholds[counts == 0] = torch.inf
    found, best_other = [], []
    for values, part in _blocks(source, given, used):
        confident = torch.where((values >= thresholds) & (values > 0), values, -torch.inf).max(-1)
        found.append(torch.where((confident.values > -torch.inf) & (part >= 0), confident.indices, -1))
        others = values.scatter(-1, part.clamp(min=0).unsqueeze(-1), 0.0)
        best_other.append(others.amax(-1).clamp(min=0))
    assigned, rival = torch.cat(found), torch.cat(best_other)
    wrong = ((assigned >= 0) & (assigned != given)).nonzero()[:, 0]
    quality = own[wrong] / (own[wrong] + rival[wrong])  # the assigned class has a positive probability
    order = quality.argsort(stable=True)
    wrong, quality = wrong[order], quality[order]
    none_missing = torch.zeros(len(wrong), dtype=torch.bool)
    expected = _expected(given, assigned, counts)
    return LabelIssues(wrong, given[wrong], none_missing, assigned[wrong], quality, *expected, check_names(names, n))


def _blocks(source: Scores, given: Tensor, link: Link | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Probabilities, -inf for absent labels, with the class of each row."""
    start = 0
    for block in source.blocks(link):
        yield block.marked(), given[start : start + len(block.values)]
        start += len(block.values)


def _own(values: Tensor, classes: Tensor) -> Tensor:
    """The probability of each row's class; 0 where the class is absent or there is none."""
    return values.gather(-1, classes.clamp(min=0).unsqueeze(-1)).squeeze(-1).clamp(min=0)


def _expected(given: Tensor, assigned: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """How many rows of each class are wrong, and how many of other classes are of this one."""
    n, sure = len(counts), assigned >= 0
    given, assigned = given[sure], assigned[sure]
    total = torch.bincount(given, minlength=n).clamp(min=1)
    weight = (counts / total)[given] * (assigned != given)
    zero = torch.zeros(n, dtype=torch.float64)
    return zero.index_add(0, given, weight.double()), zero.index_add(0, assigned, weight.double())

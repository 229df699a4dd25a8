"""Wrong and missing labels in label sets, by confident learning for every label on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.doctor.label_issues import LabelIssues, check_names, mean_with_prior
from shortlist.doctor.scored_rows import read_rows
from shortlist.labels import Labels, LabelsLike, Numbers
from shortlist.sets.scores import Link, Scores
from shortlist.tensors import check_number


@torch.no_grad()
def find_label_issues(
    scores: Numbers,
    labels: LabelsLike,
    *,
    from_logits: bool,
    link: Link = "sigmoid",
    prior: float = 5.0,
    names: Sequence[str] | None = None,
) -> LabelIssues:
    r"""Labels that are probably wrong or missing in sets of labels, the least credible first.

    For every label, :math:`t^1_l` is the average probability where the label is given and :math:`t^0_l` the average of
    one minus the probability where it is not. A label that is not given is probably missing if :math:`p_l \ge t^1_l`,
    and one that is given is probably wrong if :math:`1 - p_l \ge t^0_l`; if both hold, the larger of :math:`p_l` and
    :math:`1 - p_l` decides. Unknown labels are neither. The quality of an annotation is the probability that it is
    right, so probabilities should be calibrated.

    Args:
        scores: ``(N, n)``, out of fold: the model must not have been trained on the row that it scores. Read in blocks.
        labels: in any form of ``shortlist.targets``; unknown ones are left out.
        from_logits: whether scores are logits rather than probabilities.
        link: how logits become probabilities.
        prior: both averages of a label are drawn towards those of all labels, as if it had this many more rows; without
            it, the one row of a rare label would set its own threshold.
        names: of the labels, for `LabelIssues.to_list`.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.7], [0.1, 0.9], [0.9, 0.2], [0.05, 0.9]])
        >>> labels = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
        >>> issues = find_label_issues(probs, labels, from_logits=False, prior=0.0)
        >>> [(each["row"], each["label"], each["issue"]) for each in issues.to_list()]
        [(4, 0, 'wrong'), (3, 0, 'missing')]

    References:
        Northcutt, Jiang, Chuang, "Confident learning", 2021; Thyagarajan et al., "Identifying incorrect annotations in
        multi-label classification data", 2022.
    """
    prior = check_number("prior", prior, at_least=0.0)
    source, read = read_rows(scores, labels)
    if not len(read.positives().values):
        raise ValueError("`labels` must hold at least one true label.")
    n, used = source.shape[1], link if from_logits else None
    sums = torch.zeros(2, n, dtype=torch.float64)
    counts = torch.zeros(2, n, dtype=torch.float64)
    for block in _blocks(source, read, used):
        for side, (mask, p) in enumerate(((block.negative, 1 - block.p), (block.positive, block.p))):
            sums[side] += torch.where(mask, p, 0.0).sum(0)
            counts[side] += mask.sum(0)
    absent, present = (mean_with_prior(sums[side], counts[side], prior=prior) for side in (0, 1))
    found: list[tuple[Tensor, ...]] = []
    confident = torch.zeros(2, 2, n, dtype=torch.float64)  # given, assigned, label
    for block in _blocks(source, read, used):
        as_present, as_absent = block.p >= present, 1 - block.p >= absent
        likelier = block.p > 1 - block.p
        as_present, as_absent = as_present & (likelier | ~as_absent), as_absent & ~(as_present & likelier)
        for given, mask in enumerate((block.negative, block.positive)):
            for assigned, sure in enumerate((as_absent, as_present)):
                confident[given, assigned] += (mask & sure).sum(0)
        missing, wrong = block.negative & as_present, block.positive & as_absent
        rows, labels_ = (missing | wrong).nonzero(as_tuple=True)
        lacks, p = missing[rows, labels_], block.p[rows, labels_]
        found.append((rows + block.start, labels_, lacks, torch.where(lacks, 1 - p, p)))
    rows, labels_, missing, quality = (torch.cat(column) for column in zip(*found, strict=True))
    order = quality.argsort(stable=True)
    share = confident / confident.sum(1, keepdim=True).clamp(min=1)
    return LabelIssues(
        rows[order],
        labels_[order],
        missing[order],
        torch.full_like(rows, -1),
        quality[order],
        share[1, 0] * counts[1],
        share[0, 1] * counts[0],
        check_names(names, n),
    )


class _Block(NamedTuple):
    start: int
    p: Tensor
    positive: Tensor
    negative: Tensor


def _blocks(source: Scores, labels: Labels, link: Link | None) -> Iterator[_Block]:
    """Probabilities with masks of the labels that are given and of those that are not; absent labels are in neither."""
    start = 0
    for block in source.blocks(link):
        values, scores = block.values, block.scores
        part = labels[start : start + len(values)]
        rows, columns = part.pairs()
        present = scores > -torch.inf
        positive = torch.zeros(values.shape, dtype=torch.bool)
        positive[rows, columns] = part.values > 0
        negative = torch.ones(values.shape, dtype=torch.bool)
        negative[rows, columns] = False
        yield _Block(start, values.clamp(0.0, 1.0), positive & present, negative & present)
        start += len(values)

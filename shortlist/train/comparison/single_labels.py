"""What a report shows about single labels: recall, the size of the sets of their rows, and what outranks them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shortlist.comparison_document import Confusion, LabelRows, LabelSets
from shortlist.data import Dataset
from shortlist.sets import AverageK
from shortlist.train.comparison.findings import positive_pairs, probabilities, unknown_pairs
from shortlist.train.evaluation import Evaluation

_MOST_LABELS = 1000
# Wrong labels are counted among this many best of a row.
_MOST_WRONG = 10
_MOST_CONFUSIONS = 3


def shown_labels(rows: Dataset) -> Tensor:
    """Return the labels that occur in the rows, the most frequent first, at most 1,000."""
    counts = torch.bincount(positive_pairs(rows)[1], minlength=rows.num_labels)
    order = counts.argsort(descending=True, stable=True)
    return order[counts[order] > 0][:_MOST_LABELS]


def label_rows(dataset: Dataset, part: str) -> list[LabelRows]:
    """Return the names of `shown_labels`, and how many rows have them."""
    rows, training = dataset.part(part), dataset.label_counts("train")
    evaluated = torch.bincount(positive_pairs(rows)[1], minlength=rows.num_labels)
    return [
        LabelRows(str(rows.label_names[label]), int(training[label]), int(evaluated[label]))
        for label in shown_labels(rows).tolist()
    ]


def label_sets(evaluation: Evaluation, rows: Dataset, rules: Mapping[float, AverageK]) -> LabelSets:
    """Summarize the sets of the rows of each shown label.

    Args:
        evaluation: scores and link.
        rows: the evaluated rows.
        rules: one for each K, of `fitted_rules`.
    """
    shown, n = shown_labels(rows), rows.num_labels
    at, labels = positive_pairs(rows)
    probs = probabilities(evaluation.logits, evaluation.rule.link)
    seen = torch.bincount(labels, minlength=n)[shown]
    recall, size = [], []
    for rule in rules.values():
        sets = rule(probs)
        hits, sizes = sets[at, labels].double(), sets.sum(-1).double()
        recall.append(_short(torch.bincount(labels, hits, minlength=n)[shown] / seen))
        size.append(_short(torch.bincount(labels, sizes[at], minlength=n)[shown] / seen))
    return LabelSets(recall, size, _confusions(evaluation.logits, rows, shown, seen))


def _short(values: Tensor) -> list[float]:
    """Three decimals, which is more than a table shows."""
    return [round(value, 3) for value in values.tolist()]


def _confusions(logits: Tensor, rows: Dataset, shown: Tensor, seen: Tensor) -> list[list[Confusion]]:
    """Count which wrong labels are among the best of a row and before a true one."""
    n = rows.num_labels
    at, labels = positive_pairs(rows)
    possible = logits.index_put((at, labels), torch.tensor(-torch.inf, dtype=logits.dtype))
    possible = possible.index_put(unknown_pairs(rows), torch.tensor(-torch.inf, dtype=logits.dtype))
    wrong = possible.topk(min(_MOST_WRONG, n), dim=-1)
    before = wrong.values[at] > logits[at, labels][:, None]
    pairs = (labels[:, None] * n + wrong.indices[at])[before]
    keys, counts = pairs.unique(return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    found: dict[int, list[tuple[int, int]]] = {}
    for key, count in zip(keys[order].tolist(), counts[order].tolist(), strict=True):
        others = found.setdefault(key // n, [])
        if len(others) < _MOST_CONFUSIONS:
            others.append((key % n, count))
    names = rows.label_names
    return [
        [Confusion(str(names[other]), round(count / total, 3)) for other, count in found.get(label, [])]
        for label, total in zip(shown.tolist(), seen.tolist(), strict=True)
    ]

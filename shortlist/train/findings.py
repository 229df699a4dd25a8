"""What a report shows of one set of scores: errors against sizes, sizes by frequency, classes, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.comparison_document import (
    Answer,
    Calibration,
    CalibrationBin,
    ClassAccuracy,
    ErrorCurves,
    SetFindings,
    SizeResult,
)
from shortlist.data import Dataset
from shortlist.data.target_rows import label_pairs, sparse_targets
from shortlist.sets import AverageK, tradeoff
from shortlist.train.evaluation import Evaluation

_FEW, _MANY = 20, 100
# Finer where most labels are: nearly impossible ones.
_EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MOST_SIZES = 10
_MOST_SHOWN = 20


class Shots(NamedTuple):
    """Labels by how often they were seen: ``names`` and, of each label, which of them it is, ``(n,)``."""

    names: tuple[str, ...]
    about: tuple[str, ...]
    of_label: Tensor

    @classmethod
    def of_counts(cls, counts: Tensor) -> Shots:
        """Many, medium and few: above 100, from 20 on, and below 20 training rows, as the literature has it.

        Example:
            >>> Shots.of_counts(torch.tensor([500, 100, 20, 19])).of_label
            tensor([0, 1, 1, 2])
        """
        about = (f"more than {_MANY}", f"{_FEW} to {_MANY}", f"fewer than {_FEW}")
        which = torch.where(counts > _MANY, 0, torch.where(counts >= _FEW, 1, 2))
        return cls(("many", "medium", "few"), tuple(f"{each} training rows" for each in about), which)


def size_grid(k: float, num_labels: int) -> list[float]:
    """Sizes to look at besides ``k``: ten whole numbers, evenly up to ten or to twice ``k``.

    Example:
        >>> size_grid(2.5, 89), size_grid(3, 4), size_grid(80, 9000)[:4]
        ([1, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4], [1, 19, 36, 54])
    """
    end = min(num_labels, max(10, round(2 * k)))
    steps = min(end, _MOST_SIZES)
    whole = {max(1, round(1 + (end - 1) * step / max(steps - 1, 1))) for step in range(steps)}
    return sorted(whole | {int(k) if k == int(k) else k})


def fitted_rules(evaluation: Evaluation, ks: Sequence[float]) -> dict[float, AverageK]:
    """The rules of several average sizes, with thresholds of the validation scores; they take probabilities."""
    chances = probabilities(evaluation.val_logits, evaluation.rule.link)
    rules = {size: AverageK(size, link=evaluation.rule.link) for size in ks}
    for rule in rules.values():
        rule.fit(chances, from_logits=False)
    return rules


def set_findings(
    evaluation: Evaluation, rows: Dataset, counts: Tensor, rules: Mapping[float, AverageK], *, k: float
) -> SetFindings:
    """Summarize the sets that scores make.

    Args:
        evaluation: scores and link.
        rows: the rows that were evaluated.
        counts: ``(n,)``, in how many training rows each label is.
        rules: of `fitted_rules`.
        k: the requested average size, one of the keys of ``rules``.
    """
    n, ks = rows.num_labels, list(rules)
    chances = probabilities(evaluation.logits, evaluation.rule.link)
    at, labels = true_pairs(rows)
    shots = Shots.of_counts(counts)
    known = sparse_targets(at, labels, len(rows), n)
    curve = tradeoff(chances, known, from_logits=False, sizes=_curve_sizes(ks))
    # Unknown labels are in no ranking, as in the metrics.
    ranked = evaluation.logits.index_put(unknown_pairs(rows), torch.tensor(-torch.inf, dtype=evaluation.logits.dtype))
    best = ranked.topk(max(int(size) for size in ks), dim=-1).indices
    by_k, classes = [], torch.full((n,), torch.nan)
    for size, rule in rules.items():
        inside = rule(chances)
        hit = inside[at, labels]
        # In the order of the scores, so that the answers with k labels are the first columns.
        top = (best[at, : int(size)] == labels[:, None]).any(-1) if size == int(size) else None
        by_k.append(_at_size(inside, hit, top, at, labels, shots))
        if size == k:
            seen = torch.bincount(labels, minlength=n)
            classes = torch.bincount(labels, hit.double(), minlength=n) / seen  # NaN where none was seen.
    errors = {name: rounded(errors) for name, errors in curve.errors.items()}
    return SetFindings(
        ErrorCurves(curve.sizes.tolist(), errors),
        by_k,
        ClassAccuracy(counts.tolist(), rounded(classes)),
        _calibration(chances, rows),
    )


def answers(
    evaluation: Evaluation, positions: Tensor, names: Sequence[str], rules: Mapping[float, AverageK]
) -> list[Answer]:
    """Return the best labels of some rows with their scores, and the size of the set that each rule makes."""
    chances = probabilities(evaluation.logits[positions], evaluation.rule.link)
    best = chances.topk(min(_MOST_SHOWN, chances.shape[1]), dim=-1)
    sizes = [rule(chances).sum(-1).tolist() for rule in rules.values()]
    return [
        Answer(
            [str(names[label]) for label in best.indices[row].tolist()],
            rounded(best.values[row]),
            [of_size[row] for of_size in sizes],
        )
        for row in range(len(positions))
    ]


def true_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """The row and the label of every true label, known ones only."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[present], labels[present]


def unknown_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """The row and the label of every label that is not known to be true or false."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[~present], labels[~present]


def rarest_shot(shots: Shots, at: Tensor, labels: Tensor, num_rows: int) -> Tensor:
    """Of each row the shot of its rarest true label, ``(rows,)``; -1 where it has none."""
    found = torch.full((num_rows,), -1)
    return found.scatter_reduce(0, at, shots.of_label[labels], "amax")


def probabilities(logits: Tensor, link: str) -> Tensor:
    """As the set rules read logits."""
    return logits.softmax(-1) if link == "softmax" else logits.sigmoid()


def rounded(values: Tensor) -> list[float | None]:
    """Six digits, which no figure shows more of; None for NaN, which JSON has no word for."""
    return [None if value != value else float(f"{value:.6g}") for value in values.tolist()]


def _curve_sizes(ks: Sequence[float]) -> list[float]:
    """The sizes, and those half way between them."""
    between = [(a + b) / 2 for a, b in pairwise(ks)]
    return sorted({*ks, *between})


def _at_size(inside: Tensor, hit: Tensor, top: Tensor | None, at: Tensor, labels: Tensor, shots: Shots) -> SizeResult:
    # numpy counts bits ten times as fast as torch adds them.
    sizes = torch.from_numpy(np.count_nonzero(inside.numpy(), axis=-1))
    shot = shots.of_label[labels]
    of_row = rarest_shot(shots, at, labels, len(inside))
    longest = int(sizes.max()) + 1 if len(sizes) else 1
    present = [(name, code) for code, name in enumerate(shots.names) if bool((shot == code).any())]

    def by_shot(found: Tensor) -> dict[str, float | None]:
        return {name: 1 - float(found[shot == code].double().mean()) for name, code in present}

    return SizeResult(
        average_size=float(sizes.double().mean()),
        empty=float((sizes == 0).double().mean()),
        error=_missing(hit, at, len(inside)),
        top_error=None if top is None else _missing(top, at, len(inside)),
        error_by_shot=by_shot(hit),
        top_error_by_shot={} if top is None else by_shot(top),
        histogram={
            "all": torch.bincount(sizes, minlength=longest).tolist(),
            **{name: torch.bincount(sizes[of_row == code], minlength=longest).tolist() for name, code in present},
        },
    )


def _missing(hit: Tensor, at: Tensor, num_rows: int) -> float:
    """The share of a row's true labels that is missing, averaged over rows with any."""
    true = torch.bincount(at, minlength=num_rows).double()
    found = torch.bincount(at, hit.double(), minlength=num_rows)
    return float(1 - (found[true > 0] / true[true > 0]).mean())


def _calibration(chances: Tensor, rows: Dataset) -> Calibration:
    """Labels in bins of their probability: what was promised, and how often it was so; unknown ones count for nothing.

    The error is half the sum over bins of the gap between both, for each true label: 0.1 says that of ten true labels
    the probabilities place one in a wrong bin.
    """
    edges, last = torch.tensor(_EDGES[1:-1], dtype=chances.dtype), len(_EDGES) - 1
    pairs, promised = torch.zeros(2, last, dtype=torch.float64)
    unsure, unsure_labels = unknown_pairs(rows)
    for start in range(0, len(chances), 1024):
        values = chances[start : start + 1024]
        bins = torch.bucketize(values, edges, right=True)
        here = (unsure >= start) & (unsure < start + 1024)
        bins[unsure[here] - start, unsure_labels[here]] = last  # a bin that is left out
        bins = bins.flatten()
        pairs += torch.bincount(bins, minlength=last + 1)[:last]
        promised += torch.bincount(bins, values.flatten().double(), minlength=last + 1)[:last]
    observed = torch.bincount(torch.bucketize(chances[true_pairs(rows)], edges, right=True), minlength=last).double()
    bins = [
        CalibrationBin(float(p / count), float(o / count), int(count))
        for count, p, o in zip(pairs, promised, observed, strict=True)
        if count
    ]
    return Calibration(bins, float((promised - observed).abs().sum() / observed.sum().clamp(min=1) / 2))

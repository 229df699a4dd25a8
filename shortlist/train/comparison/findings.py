"""What a report shows about the scores of a run: errors by set size, sizes by frequency, single labels, rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.calibration import TemperatureScaling
from shortlist.comparison_document import (
    Answer,
    Calibration,
    CalibrationBin,
    ClassAccuracy,
    Confusion,
    ErrorControl,
    ErrorCurves,
    GroupAnswers,
    LabelRows,
    LabelSets,
    RuleAdvice,
    RuleFigures,
    SetFindings,
    SizeResult,
)
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs, sparse_targets, take_rows
from shortlist.functional import hierarchical_precision, hierarchical_recall, reliability
from shortlist.metrics import AdaptiveCalibrationError, BrierScore, CalibrationError
from shortlist.metrics.accuracy import FEW, MANY
from shortlist.sets import (
    AverageError,
    AverageK,
    DeepestNode,
    MissGoal,
    RecallControl,
    SizeGoal,
    choose_rule,
    expand,
    tradeoff,
)
from shortlist.targets import to_class_indices
from shortlist.taxonomy import Taxonomy
from shortlist.train.evaluation import Evaluation
from shortlist.train.inputs import is_one_class

_MOST_SIZES = 100
_MOST_SHOWN = 20
_MOST_LABELS = 1000
# Wrong labels are counted among this many best of a row.
_MOST_WRONG = 10
_MOST_CONFUSIONS = 3
# Finer at low probabilities, where most labels are.
_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ROWS = 1024
_ALPHA = 0.1
# A rule is chosen on as many validation rows as have this many scores.
_MOST_SCORES = 1 << 22


class Shots(NamedTuple):
    """Groups of labels by training frequency: their names, descriptions, and the group of each label, ``(n,)``."""

    names: tuple[str, ...]
    about: tuple[str, ...]
    of_label: Tensor

    @classmethod
    def of_counts(cls, counts: Tensor) -> Shots:
        """Group labels into many, medium and few shot: more than 100, 20 to 100, and fewer than 20 training rows.

        Example:
            >>> Shots.of_counts(torch.tensor([500, 100, 20, 19])).of_label
            tensor([0, 1, 1, 2])
        """
        about = (f"more than {MANY}", f"{FEW} to {MANY}", f"fewer than {FEW}")
        which = torch.where(counts > MANY, 0, torch.where(counts >= FEW, 1, 2))
        return cls(("many", "medium", "few"), tuple(f"{each} training rows" for each in about), which)


def size_grid(k: float, num_labels: int) -> list[float]:
    """Return ``k`` and the integers up to ten or to twice ``k``; of more than 100, that many at even distances.

    Example:
        >>> size_grid(2.5, 89), size_grid(3, 4), size_grid(80, 9000)[:4]
        ([1, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4], [1, 3, 4, 6])
    """
    end = min(num_labels, max(10, round(2 * k)))
    steps = min(end, _MOST_SIZES)
    whole = {max(1, round(1 + (end - 1) * step / max(steps - 1, 1))) for step in range(steps)}
    return sorted(whole | {int(k) if k == int(k) else k})


def fitted_rules(evaluation: Evaluation, ks: Sequence[float]) -> dict[float, AverageK]:
    """Fit the rules of several average sizes to the validation scores; they take probabilities."""
    probs = probabilities(evaluation.val_logits, evaluation.rule.link)
    rules = {size: AverageK(size, link=evaluation.rule.link) for size in ks}
    for rule in rules.values():
        rule.fit(probs, from_logits=False)
    return rules


def set_findings(
    evaluation: Evaluation, rows: Dataset, val: Dataset, counts: Tensor, rules: Mapping[float, AverageK], *, k: float
) -> SetFindings:
    """Summarize the sets that scores make.

    Args:
        evaluation: scores and link.
        rows, val: the evaluated rows and the validation rows.
        counts: ``(n,)``, the training rows of each label.
        rules: of `fitted_rules`.
        k: the requested average size, one of the keys of ``rules``.
    """
    n, ks = rows.num_labels, list(rules)
    probs = probabilities(evaluation.logits, evaluation.rule.link)
    at, labels = positive_pairs(rows)
    shots = Shots.of_counts(counts)
    known = sparse_targets(at, labels, len(rows), n)
    curve = tradeoff(probs, known, from_logits=False, sizes=_curve_sizes(ks))
    # Unknown labels are left out of the ranking, as in the metrics.
    ranked = evaluation.logits.index_put(unknown_pairs(rows), torch.tensor(-torch.inf, dtype=evaluation.logits.dtype))
    best = ranked.topk(max(int(size) for size in ks), dim=-1).indices
    shown, seen = shown_labels(rows), torch.bincount(labels, minlength=n)
    by_label = LabelSets([], [], _confusions(evaluation.logits, rows, shown))
    by_k, classes = [], torch.full((n,), torch.nan)
    for size, rule in rules.items():
        sets = rule(probs)
        hit = sets[at, labels]
        # Columns are sorted by score, so the top k are the first k.
        top = (best[at, : int(size)] == labels[:, None]).any(-1) if size == int(size) else None
        # NumPy counts booleans ten times as fast as torch sums them.
        sizes = torch.from_numpy(np.count_nonzero(sets.numpy(), axis=-1))
        by_k.append(_at_size(sizes, hit, top, at, labels, shots))
        recall = torch.bincount(labels, hit.double(), minlength=n) / seen  # NaN for labels without rows.
        by_label.recall.append(_short(recall[shown]))
        by_label.size.append(_short((torch.bincount(labels, sizes[at].double(), minlength=n) / seen)[shown]))
        if size == k:
            classes = recall
    errors = {name: rounded(errors) for name, errors in curve.errors.items()}
    return SetFindings(
        ErrorCurves(curve.sizes.tolist(), errors),
        by_k,
        ClassAccuracy(counts.tolist(), rounded(classes)),
        label_reliability(probs, rows),
        error_control(evaluation, rows, val),
        by_label,
        recalibrated(evaluation, rows, val),
        rule_advice(evaluation, val),
        group_answers(evaluation, rows, val, rules[k]),
    )


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


def answers(
    evaluation: Evaluation, positions: Tensor, names: Sequence[str], rules: Mapping[float, AverageK]
) -> list[Answer]:
    """Return the best labels of some rows with their scores, and the size of the set that each rule makes."""
    probs = probabilities(evaluation.logits[positions], evaluation.rule.link)
    best = probs.topk(min(_MOST_SHOWN, probs.shape[1]), dim=-1)
    sizes = [rule(probs).sum(-1).tolist() for rule in rules.values()]
    return [
        Answer(
            [str(names[label]) for label in best.indices[row].tolist()],
            rounded(best.values[row]),
            [of_size[row] for of_size in sizes],
        )
        for row in range(len(positions))
    ]


def rarest_shot(shots: Shots, at: Tensor, labels: Tensor, num_rows: int) -> Tensor:
    """Return for each row the group of its rarest true label, ``(rows,)``; -1 without labels."""
    found = torch.full((num_rows,), -1)
    return found.scatter_reduce(0, at, shots.of_label[labels], "amax")


def rounded(values: Tensor) -> list[float | None]:
    """Round to six digits, more than any chart shows; None for NaN, which JSON does not have."""
    return [None if value != value else float(f"{value:.6g}") for value in values.tolist()]


def _curve_sizes(ks: Sequence[float]) -> list[float]:
    """Return the sizes and the midpoints between them."""
    between = [(a + b) / 2 for a, b in pairwise(ks)]
    return sorted({*ks, *between})


def _at_size(sizes: Tensor, hit: Tensor, top: Tensor | None, at: Tensor, labels: Tensor, shots: Shots) -> SizeResult:
    shot = shots.of_label[labels]
    of_row = rarest_shot(shots, at, labels, len(sizes))
    longest = int(sizes.max()) + 1 if len(sizes) else 1
    present = [(name, code) for code, name in enumerate(shots.names) if bool((shot == code).any())]

    def by_shot(found: Tensor) -> dict[str, float | None]:
        return {name: 1 - float(found[shot == code].double().mean()) for name, code in present}

    return SizeResult(
        average_size=float(sizes.double().mean()),
        empty=float((sizes == 0).double().mean()),
        error=missed_share(hit, at, len(sizes)),
        top_error=None if top is None else missed_share(top, at, len(sizes)),
        error_by_shot=by_shot(hit),
        top_error_by_shot={} if top is None else by_shot(top),
        histogram={
            "all": torch.bincount(sizes, minlength=longest).tolist(),
            **{name: torch.bincount(sizes[of_row == code], minlength=longest).tolist() for name, code in present},
        },
    )


def _short(values: Tensor) -> list[float]:
    """Three decimals, which is more than a table shows."""
    return [round(value, 3) for value in values.tolist()]


def _confusions(logits: Tensor, rows: Dataset, shown: Tensor) -> list[list[Confusion]]:
    """Count which wrong labels are among the best of a row and before a true one."""
    n = rows.num_labels
    at, labels = positive_pairs(rows)
    seen = torch.bincount(labels, minlength=n)[shown]
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


def label_reliability(probs: Tensor, rows: Dataset) -> Calibration:
    """Compare predicted probability and observed frequency of labels in bins; unknown labels do not count.

    The error is half the sum of the gaps over bins, divided by the number of true labels: 0.1 means that probabilities
    put one in ten true labels into a wrong bin.
    """
    edges, found = torch.tensor(_EDGES, dtype=probs.dtype), []
    measures = CalibrationError(), AdaptiveCalibrationError(), BrierScore()
    for start in range(0, len(probs), _ROWS):
        values = probs[start : start + _ROWS]
        true = take_rows(rows.true_targets, torch.arange(start, start + len(values)))
        found.append(reliability(values, true, events="labels", bins=edges))
        for measure in measures:
            measure.update(values, true)
    counts, predicted, observed = (torch.stack(sums).sum(0) for sums in zip(*found, strict=True))
    bins = [
        CalibrationBin(float(p / count), float(o / count), int(count))
        for count, p, o in zip(counts, predicted, observed, strict=True)
        if count
    ]
    error = float((predicted - observed).abs().sum() / observed.sum().clamp(min=1) / 2)
    usual = [value if math.isfinite(value := float(measure.compute())) else None for measure in measures]
    return Calibration(bins, error, *usual)


def recalibrated(evaluation: Evaluation, rows: Dataset, val: Dataset) -> Calibration | None:
    """Return the reliability after temperature scaling on the validation rows.

    None if these have no true label, or several per row while the link is softmax, whose probabilities are of one.
    """
    link = evaluation.rule.link
    if not len(positive_pairs(val)[0]) or (link == "softmax" and not is_one_class(val)):
        return None
    scaling = TemperatureScaling(link=link).fit(evaluation.val_logits, val.true_targets)
    return label_reliability(scaling.predict(evaluation.logits), rows)


def error_control(evaluation: Evaluation, rows: Dataset, val: Dataset) -> ErrorControl | None:
    """Calibrate conformal sets on the validation rows; None if these have no true label."""
    link, true = evaluation.rule.link, true_labels(val)
    if true is None:
        return None
    rule = (AverageError if true.ndim == 1 else RecallControl)(_ALPHA, link=link)
    probs = probabilities(evaluation.logits, link)
    sets = rule.fit(probabilities(evaluation.val_logits, link), true, from_logits=False)(probs)
    at, labels = positive_pairs(rows)
    size = np.count_nonzero(sets.numpy()) / max(len(sets), 1)
    return ErrorControl(_ALPHA, missed_share(sets[at, labels], at, len(sets)), size)


def rule_advice(evaluation: Evaluation, val: Dataset) -> list[RuleAdvice]:
    """Recommend a rule for the size, and one for the error, on the validation rows alone; none without true labels."""
    rule, n = evaluation.rule, val.num_labels
    order = Draws(0, "rows for the choice of a rule").order(len(val))
    chosen = torch.from_numpy(order)[: max(_MOST_SCORES // n, 2)].sort().values
    true = true_labels(val.subset(chosen))
    if true is None or len(chosen) < 2:
        return []
    probs = probabilities(evaluation.val_logits[chosen], rule.link)
    found = []
    for goal in (SizeGoal(rule.k), MissGoal(_ALPHA)):
        choice = choose_rule(probs, true, goal=goal, from_logits=False, one_class=true.ndim == 1, link=rule.link)
        figures = [
            RuleFigures(each.name, each.size, each.missed, each.worst_class and each.worst_class.missed)
            for each in choice.figures
        ]
        found.append(RuleAdvice(str(goal), choice.best, choice.reason, figures))
    return found


def group_answers(evaluation: Evaluation, rows: Dataset, val: Dataset, rule: AverageK) -> GroupAnswers | None:
    """Answer with groups of labels where single ones are too unsure; None without nested groups of one class per row.

    Args:
        evaluation: scores and link.
        rows, val: the evaluated rows and the validation rows.
        rule: for the requested average size; takes probabilities.
    """
    taxonomy, true = _taxonomy(rows), true_labels(val)
    if taxonomy is None or true is None or true.ndim > 1:
        return None
    link = rule.link
    deepest = DeepestNode(_ALPHA, taxonomy, link=link)
    deepest.fit(probabilities(evaluation.val_logits, link), true, from_logits=False)
    probs = probabilities(evaluation.logits, link)
    nodes = deepest.predict_nodes(probs, generator=torch.Generator().manual_seed(0))
    inside = expand(nodes, taxonomy).to_mask()
    at, labels = positive_pairs(rows)
    depth = taxonomy.depths[nodes.labels]
    named = {
        "one label": nodes.labels < taxonomy.num_labels,
        "a group": (nodes.labels >= taxonomy.num_labels) & (depth > 0),
        "anything": depth == 0,
    }
    sets, truth = rule(probs), rows.true_targets
    return GroupAnswers(
        groups=list(rows.label_groups),
        alpha=_ALPHA,
        error=missed_share(inside[at, labels], at, len(inside)),
        named={what: float(mask.double().mean()) for what, mask in named.items()},
        precision=float(hierarchical_precision(sets, truth, taxonomy)),
        recall=float(hierarchical_recall(sets, truth, taxonomy)),
    )


def _taxonomy(rows: Dataset) -> Taxonomy | None:
    """The labels below their groups; None if there are none, or if they are not inside each other."""
    try:
        return rows.taxonomy() if rows.label_groups else None
    except ValueError:
        return None


def probabilities(logits: Tensor, link: str) -> Tensor:
    """Apply the link, as the set rules do."""
    return logits.softmax(-1) if link == "softmax" else logits.sigmoid()


def positive_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return row and label of every known positive."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[present], labels[present]


def unknown_pairs(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return row and label of every unknown label."""
    at, labels, present = label_pairs(rows.true_targets, rows.num_labels)
    return at[~present], labels[~present]


def true_labels(rows: Dataset) -> Tensor | None:
    """Return classes or a sparse multi-hot, as rules read them, without unknown labels; None if no label is true."""
    at, labels = positive_pairs(rows)
    if not len(at):
        return None
    if is_one_class(rows):
        return to_class_indices(rows.true_targets, rows.num_labels)
    return sparse_targets(at, labels, len(rows), rows.num_labels)


def missed_share(hit: Tensor, at: Tensor, num_rows: int) -> float:
    """Return the fraction of a row's true labels that is missing, averaged over rows with labels."""
    true = torch.bincount(at, minlength=num_rows).double()
    found = torch.bincount(at, hit.double(), minlength=num_rows)
    return float(1 - (found[true > 0] / true[true > 0]).mean())

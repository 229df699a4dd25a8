"""How good scores are, and the sets that a rule makes of them: measured block by block with the library's metrics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.data.summary import Tally
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.predict.scores import Scores
from shortlist.predict.true_labels import labels_of
from shortlist.sets import SetRule

# Up to this many scores, mean average precision is exact, for which it must keep them all.
_MOST_KEPT = 1 << 26
_MOST_BINS, _FEWEST_BINS = 1000, 20


class ScoreMetrics(NamedTuple):
    """Metrics of scores.

    Attributes:
        at_k: by name, a value for each k.
        single: by name, a single value.
        absent: how many labels occur in no row.
    """

    at_k: dict[str, list[float]]
    single: dict[str, float]
    absent: int


class SetMetrics(NamedTuple):
    """Size and coverage of prediction sets.

    Attributes:
        sizes: how often each size occurs.
        one_class: whether rows have one true class; None without labels.
        coverage: the fraction of a row's true labels inside its set, averaged over rows that have some: for one class,
            how often it is inside; for sets, recall. None without labels.
        macro_coverage: averaged over the classes that occur; one class only.
        smallest_coverage: the smallest coverage of sets of similar size; empty sets are a group of their own.
        micro_f1, macro_f1: of the sets as predictions; sets of labels only.
        rows_without_labels: rows that coverage leaves out.
    """

    sizes: Tally
    one_class: bool | None = None
    coverage: float | None = None
    macro_coverage: float | None = None
    smallest_coverage: float | None = None
    micro_f1: float | None = None
    macro_f1: float | None = None
    rows_without_labels: int = 0

    @property
    def empty(self) -> int:
        """How many sets have no label."""
        return dict(zip(self.sizes.values, self.sizes.times, strict=True)).get(0, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the metrics by name, as plain values; those that do not apply are left out."""
        sizes = {str(size): times for size, times in zip(self.sizes.values, self.sizes.times, strict=True)}
        content: dict[str, Any] = {
            "average_size": self.sizes.mean,
            "median_size": self.sizes.median,
            "largest_size": self.sizes.maximum,
            "empty": self.empty,
            "sizes": sizes,
        }
        if self.one_class is not None:
            content["coverage" if self.one_class else "recall"] = json_number(self.coverage)
            content["error"] = None if self.coverage is None else json_number(1 - self.coverage)
            content["smallest_coverage_by_size"] = json_number(self.smallest_coverage)
            content["rows_without_labels"] = self.rows_without_labels
            if self.one_class:
                content["macro_coverage"] = json_number(self.macro_coverage)
            else:
                content |= {"micro_f1": json_number(self.micro_f1), "macro_f1": json_number(self.macro_f1)}
        return content


def evaluate_scores(
    scores: Scores,
    target: Tensor,
    ks: list[int],
    *,
    link: str = "softmax",
    threshold: float | None = None,
    progress: bool = False,
) -> ScoreMetrics:
    """Measure scores against true labels.

    Args:
        scores: of all rows.
        target: their labels: one class per row, or sets; see `read_true_labels`.
        ks: the numbers of labels to measure at.
        link: for one class, how logits become probabilities that can be compared between rows.
        threshold: for sets, the probability from which a label counts as predicted in F1; 0.5 by default.
        progress: whether to show the progress on standard error.

    Returns:
        For one class top-k and average-k accuracy; for sets precision, recall, F1 and nDCG at k, F1 at the threshold,
        and mean average precision.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> scores = tensor_scores(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]), from_logits=False)
        >>> evaluate_scores(scores, torch.tensor([0, 1]), [1, 2]).at_k["top_k_accuracy_micro"]
        [0.5, 1.0]
    """
    if target.ndim == 1:
        if threshold is not None:
            raise InputError("a threshold applies to sets of labels, and these rows have one class each.")
        return _evaluate_classes(scores, target, ks, link, progress)
    if threshold is not None and not math.isfinite(threshold):
        raise InputError(f"the threshold must be finite; got {threshold}.")
    return _evaluate_label_sets(scores, target, ks, 0.5 if threshold is None else threshold, progress)


def evaluate_sets(
    scores: Scores, rule: SetRule, target: Tensor | None = None, *, seed: int = 0, progress: bool = False
) -> SetMetrics:
    """Predict the sets of all rows and measure them.

    Args:
        scores: of all rows.
        rule: fitted.
        target: their true labels, in a form of ``shortlist.targets``; None to measure sizes only.
        seed: of the random numbers that break ties at a conformal threshold.
        progress: whether to show the progress on standard error.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> from shortlist.sets import TopK
        >>> probs = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
        >>> rule = TopK(1).fit(probs, from_logits=False)
        >>> found = evaluate_sets(tensor_scores(probs, from_logits=False), rule, torch.tensor([0, 1]))
        >>> found.sizes.mean, found.coverage
        (1.0, 0.5)
    """
    from shortlist.metrics import MacroF1, MicroF1, SetCoverage, SetSize, SizeStratifiedCoverage

    n = scores.num_labels
    size, coverage, stratified = SetSize(n), SetCoverage(), SizeStratifiedCoverage()
    one_class = None if target is None else target.ndim == 1
    by_class = SetCoverage(average="macro", num_labels=n)
    f1 = (MicroF1(threshold=0.5), MacroF1(n, threshold=0.5))
    generator = torch.Generator().manual_seed(seed)
    with scores.progress("measuring sets", shown=progress) as blocks:
        for block in blocks:
            # Labels that the rule does not know are in no set.
            known = block.scores[:, : rule.num_labels]
            sets = replace(rule.predict(known, generator=generator, **block.given), num_labels=n)
            size.update(sets)
            if target is None:
                continue
            labels = labels_of(target, block)
            coverage.update(sets, labels)
            stratified.update(sets, labels)
            if one_class:
                by_class.update(sets, labels)
            else:
                # With scores 0 and 1, any threshold in between predicts the set itself.
                inside = sets.to_mask().float()
                for metric in f1:
                    metric.update(inside, labels)
    sizes = size.histogram.nonzero().squeeze(-1)
    tally = Tally(tuple(sizes.tolist()), tuple(size.histogram[sizes].tolist()))
    if target is None:
        return SetMetrics(tally)
    return SetMetrics(
        tally,
        one_class,
        float(coverage.compute()),
        float(by_class.compute()) if one_class else None,
        float(stratified.compute()),
        None if one_class else float(f1[0].compute()),
        None if one_class else float(f1[1].compute()),
        int(coverage.rows_without_positives),
    )


def json_number(value: float | None) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if value is None or value != value else value


def _evaluate_classes(scores: Scores, target: Tensor, ks: list[int], link: str, progress: bool) -> ScoreMetrics:
    from shortlist.metrics import AverageKAccuracy, TopKAccuracy

    torchmetrics = require("torchmetrics", extra="metrics")
    micro, macro = TopKAccuracy(ks), TopKAccuracy(ks, average="macro", num_labels=scores.num_labels)
    # Both averages of one k share a state, which the collection keeps once.
    averages = [
        torchmetrics.MetricCollection(
            {name: AverageKAccuracy(k=k, num_rows=scores.num_rows, average=name) for name in ("micro", "macro")}
        )
        for k in ks
    ]
    with scores.progress("measuring scores", shown=progress) as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            micro.update(block.scores, labels)
            macro.update(block.scores, labels)
            # One threshold for all rows compares scores between rows; only probabilities allow that.
            probs = _probabilities(block.scores, link) if scores.from_logits else block.scores
            for average in averages:
                average.update(probs, labels)
    found = [average.compute() for average in averages]
    # torchmetrics returns a single value without its axis.
    at_k = {
        "top_k_accuracy_micro": micro.compute().reshape(-1).tolist(),
        "top_k_accuracy_macro": macro.compute().reshape(-1).tolist(),
        "average_k_accuracy_micro": [float(values["micro"]) for values in found],
        "average_k_accuracy_macro": [float(values["macro"]) for values in found],
    }
    return ScoreMetrics(at_k, {}, len(macro.absent))


def _evaluate_label_sets(
    scores: Scores, target: Tensor, ks: list[int], threshold: float, progress: bool
) -> ScoreMetrics:
    from shortlist.metrics import MacroF1, MeanAveragePrecision, MicroF1, RankingMetrics

    n = scores.num_labels
    ranking, by_row, by_label = RankingMetrics(ks), MeanAveragePrecision("sample"), _precision_by_label(scores)
    micro, macro = MicroF1(threshold=threshold), MacroF1(n, threshold=threshold)
    with scores.progress("measuring scores", shown=progress) as blocks:
        for block in blocks:
            labels = labels_of(target, block)
            for metric in (ranking, by_row, by_label):
                metric.update(block.scores, labels)
            probs = _probabilities(block.scores, "sigmoid") if scores.from_logits else block.scores
            micro.update(probs, labels)
            macro.update(probs, labels)
    values = {name: float(value) for name, value in ranking.compute().items()}
    at_k = {name: [values[f"{name}@{k}"] for k in ks] for name in ("precision", "recall", "f1", "ndcg")}
    single = {
        "micro_f1": float(micro.compute()),
        "macro_f1": float(macro.compute()),
        "map_of_rows": float(by_row.compute()),
        "map_of_labels": float(by_label.compute()),
    }
    if not isinstance(by_label, MeanAveragePrecision):
        low, high = by_label.bounds
        single |= {"map_of_labels_at_least": float(low), "map_of_labels_at_most": float(high)}
    return ScoreMetrics(at_k, single, len(macro.absent))


def _precision_by_label(scores: Scores) -> Any:
    """Return a metric of mean average precision over labels: exact, or with bounds if there are too many scores."""
    from shortlist.metrics import BinnedMeanAveragePrecision, MeanAveragePrecision

    if scores.num_rows * scores.num_labels <= _MOST_KEPT:
        return MeanAveragePrecision()
    bins = max(_FEWEST_BINS, min(_MOST_BINS, (_MOST_KEPT // 2) // scores.num_labels))
    return BinnedMeanAveragePrecision(scores.num_labels, bins=bins, limits=None if scores.from_logits else (0.0, 1.0))


def _probabilities(logits: Tensor, link: str) -> Tensor:
    """Read logits as the rules of ``shortlist.sets`` do: -inf stays, and is in no set."""
    work = logits.double() if logits.dtype == torch.float64 else logits.float()
    values = work.softmax(-1) if link == "softmax" else work.sigmoid()
    return torch.where(work == -torch.inf, -torch.inf, values)

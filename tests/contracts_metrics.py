"""Every public metric: its class, its function, its reference, and one way to call them all."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist import metrics as M
from shortlist.taxonomy import taxonomy_from_groups
from tests import reference_metrics as reference
from tests.contracts_losses import label_sets

N = 5
"""Labels of the small batches that the shared tests draw."""
PROPENSITIES = torch.tensor([0.5, 0.25, 1.0, 0.125, 0.75], dtype=torch.float64)
COUNTS = torch.tensor([500, 101, 100, 20, 19])
KS = (1, 2, 5)


@dataclass(frozen=True, eq=False, repr=False)
class MetricCase:
    """A metric for rows of ``N`` labels, called as ``(scores, target)`` with the rest filled in.

    Sets are the labels with a positive score; for scene graphs each row is an image of its own.
    """

    metric: Callable[[], M.base.SumMetric]
    function: Callable[..., Tensor] | None
    reference: Callable[..., object]
    option: str = ""
    one_class: bool = False
    takes_mask: bool = True
    takes_sets: bool = False
    takes_target: bool = True
    on_a_taxonomy: bool = False
    """Whether it is made for ``N`` labels; unknown labels are then taken out of the sets."""
    is_graph: bool = False
    takes_probs: bool = False
    rank_only: bool = True
    """Whether the same order of scores gives the same value."""

    def __str__(self) -> str:
        return type(self.metric()).__name__ + self.option

    __repr__ = __str__

    def update(self, metric, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Call the metric's update."""
        metric.update(*self.arguments(scores, target), **({} if mask is None else {"mask": mask}))

    def arguments(self, scores: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of update for these rows."""
        first = scores > 0 if self.takes_sets else probabilities(scores) if self.takes_probs else scores
        if self.is_graph:
            return first, target, torch.arange(len(scores), device=scores.device)
        return (first, target) if self.takes_target else (first,)

    def expected(self, scores: Tensor, hot: Tensor) -> list[float]:
        """Return the value of the reference as a flat list."""
        positives, unknown = label_sets(hot)
        rows = (probabilities(scores) if self.takes_probs else scores).double().tolist()
        if self.takes_sets:
            rows = [{j for j, score in enumerate(row) if score > 0} for row in rows]
            true = [positives, unknown] if self.on_a_taxonomy else [positives]
            value = self.reference(rows, *true) if self.takes_target else self.reference(rows)
        else:
            value = self.reference(rows, positives, unknown)
        return [float(one) for one in (value if isinstance(value, list) else [value])]


def probabilities(scores: Tensor) -> Tensor:
    """The scores that are drawn, moved into [0, 1], exactly in every precision; absent labels stay -inf."""
    return (scores + 4) / 8 if scores.is_floating_point() else scores


def flat(value: Tensor | dict[str, Tensor]) -> list[float]:
    """The value of a metric as a flat list."""
    values = value.values() if isinstance(value, dict) else [value]
    return [number for one in values for number in one.reshape(-1).tolist()]


def _all_rankings(*rows) -> list:
    functions = (reference.precision_at_k, reference.recall_at_k, reference.f1_at_k, reference.ndcg_at_k)
    return [function(*rows, k) for function in functions for k in KS]


def _shots(rows, positives, unknown) -> list:
    groups = [COUNTS < 20, (COUNTS >= 20) & (COUNTS <= 100), COUNTS > 100]
    values = []
    for group in groups:
        inside = [i for i, y in enumerate(positives) if y and group[min(y)]]
        chosen = [[lines[i] for i in inside] for lines in (rows, positives, unknown)]
        values.append(reference.topk_accuracy(*chosen, 2, "macro"))
    return values


def _at_ks(metric: type, function: Callable[..., Tensor], wanted: Callable[..., object], **options) -> MetricCase:
    """A metric that takes all of ``KS`` at once."""
    return MetricCase(
        lambda: metric(KS),
        lambda *a, **o: function(*a, KS, **o),
        lambda *rows: [wanted(*rows, k) for k in KS],
        **options,
    )


def _average_k(option: str = "", *, num_rows: int | None = None, **options) -> MetricCase:
    return MetricCase(
        lambda: M.AverageKAccuracy(**options, num_rows=num_rows),
        lambda *a, **o: F.average_k_accuracy(*a, **options, **o),
        lambda *rows: reference.average_k_accuracy(*rows, **options),
        option,
        one_class=True,
        rank_only="threshold" not in options,
    )


def _calibration(metric: type, events: str, binning: str) -> MetricCase:
    """A calibration error with three bins."""
    options = {"bins": 3, "events": events}
    return MetricCase(
        lambda: metric(**options),
        lambda probs, *a, **o: F.calibration_error(probabilities(probs), *a, **options, binning=binning, **o),
        lambda *rows: reference.calibration_error(*rows, **options, binning=binning),
        f"-{events}",
        takes_probs=True,
        rank_only=False,
    )


def _scene_graph(option: str = "", *, constrained: bool = False, **options) -> MetricCase:
    options["constrained"] = constrained
    return MetricCase(
        lambda: M.SceneGraphRecall(KS, **options, num_labels=N if "average" in options else None),
        lambda scores, target: F.scene_graph_recall(
            scores, target, torch.arange(len(scores), device=scores.device), KS, **options
        ),
        lambda rows, *sets: [reference.scene_graph_recall(rows, *sets, range(len(rows)), k, **options) for k in KS],
        option,
        takes_mask=False,
        is_graph=True,
    )


TREE = taxonomy_from_groups("abcde", {"half": ["x", "x", "y", "y", "z"], "pair": ["p", "p", "q", "q", None]})
ABOVE = {j: set(names.split()) for j, names in enumerate(("x p", "x p", "y q", "y q", "z"))}


def _hierarchical(metric: type, function: Callable[..., Tensor] | None, part: str) -> MetricCase:
    return MetricCase(
        lambda: metric(TREE),
        None if function is None else lambda sets, target, **o: function(sets > 0, target, TREE, **o),
        lambda sets, positives, unknown: reference.hierarchical(sets, positives, unknown, ABOVE, part),
        takes_sets=True,
        on_a_taxonomy=True,
        rank_only=False,
    )


THRESHOLDS = (0.5, 1.0, -1.0, 0.0, 2.0)
LIMITS = {"bins": 16, "limits": (-8.5, 7.5)}
"""Bins of one whole number each: exact for the scores that the shared tests draw."""

METRICS = [
    MetricCase(lambda: M.RankingMetrics(KS), None, _all_rankings),
    _at_ks(M.PrecisionAtK, F.precision_at_k, reference.precision_at_k),
    _at_ks(M.RecallAtK, F.recall_at_k, reference.recall_at_k),
    _at_ks(M.F1AtK, F.f1_at_k, reference.f1_at_k),
    _at_ks(M.NDCGAtK, F.ndcg_at_k, reference.ndcg_at_k),
    _at_ks(M.TopKAccuracy, F.topk_accuracy, reference.topk_accuracy, one_class=True),
    MetricCase(
        lambda: M.PropensityScoredPrecisionAtK(PROPENSITIES, KS),
        lambda *a, **o: F.propensity_scored_precision_at_k(*a, PROPENSITIES, KS, **o),
        lambda *rows: [reference.propensity_scored_precision_at_k(*rows, PROPENSITIES.tolist(), k) for k in KS],
    ),
    MetricCase(
        lambda: M.PropensityScoredPrecisionAtK(PROPENSITIES, 2, normalized=False),
        lambda *a, **o: F.propensity_scored_precision_at_k(*a, PROPENSITIES, 2, normalized=False, **o),
        lambda *rows: reference.propensity_scored_precision_at_k(*rows, PROPENSITIES.tolist(), 2, False),
        "-plain",
    ),
    MetricCase(
        lambda: M.TopKAccuracy(2, average="macro", num_labels=N),
        lambda *a, **o: F.topk_accuracy(*a, 2, average="macro", **o),
        lambda *rows: reference.topk_accuracy(*rows, 2, "macro"),
        "-macro",
        one_class=True,
    ),
    MetricCase(lambda: M.ShotAccuracy(COUNTS, 2), None, _shots, one_class=True),
    _average_k(k=1.5),
    _average_k("-bounded", k=2.3, average="macro", num_rows=12),
    _average_k("-threshold", threshold=0.5),
    MetricCase(M.MeanAveragePrecision, F.average_precision, reference.average_precision),
    MetricCase(
        lambda: M.MeanAveragePrecision(by="sample"),
        lambda *a, **o: F.average_precision(*a, by="sample", **o),
        lambda *rows: reference.average_precision(*rows, by="sample"),
        "-sample",
    ),
    MetricCase(
        lambda: M.BinnedMeanAveragePrecision(N, **LIMITS),
        lambda *a, **o: F.binned_average_precision(*a, **LIMITS, **o).value,
        reference.average_precision,
        rank_only=False,
    ),
    MetricCase(
        lambda: M.MicroF1(threshold=0.5),
        lambda *a, **o: F.f1_score(*a, threshold=0.5, **o),
        lambda *rows: reference.f1_score(*rows, 0.5),
        rank_only=False,
    ),
    MetricCase(
        lambda: M.MicroF1(k=2),
        lambda *a, **o: F.f1_score(*a, k=2, **o),
        lambda *rows: reference.f1_score(*rows, k=2),
        "-k",
    ),
    MetricCase(
        lambda: M.MacroF1(N, threshold=torch.tensor(THRESHOLDS)),
        lambda *a, **o: F.f1_score(*a, threshold=torch.tensor(THRESHOLDS), average="macro", **o),
        lambda rows, *sets: reference.f1_score(
            [[x - t for x, t in zip(row, THRESHOLDS, strict=True)] for row in rows], *sets, 0.0, average="macro"
        ),
        rank_only=False,
    ),
    MetricCase(
        lambda: M.MacroF1(N, k=2),
        lambda *a, **o: F.f1_score(*a, k=2, average="macro", **o),
        lambda *rows: reference.f1_score(*rows, k=2, average="macro"),
        "-k",
    ),
    MetricCase(M.SetCoverage, None, reference.set_coverage, takes_sets=True, rank_only=False),
    MetricCase(
        lambda: M.SetSize(N),
        None,
        lambda sets: sum(map(len, sets)) / len(sets) if sets else math.nan,
        takes_sets=True,
        takes_target=False,
        rank_only=False,
    ),
    MetricCase(
        lambda: M.SizeStratifiedCoverage((0, 2, 3)),
        None,
        lambda *rows: reference.size_stratified_coverage(*rows, (0, 2, 3)),
        takes_sets=True,
        rank_only=False,
    ),
    _hierarchical(M.HierarchicalPrecision, F.hierarchical_precision, "precision"),
    _hierarchical(M.HierarchicalRecall, F.hierarchical_recall, "recall"),
    _hierarchical(M.HierarchicalF1, None, "f1"),
    _calibration(M.CalibrationError, "top", "width"),
    _calibration(M.CalibrationError, "labels", "width"),
    _calibration(M.AdaptiveCalibrationError, "top", "mass"),
    _calibration(M.AdaptiveCalibrationError, "labels", "mass"),
    MetricCase(
        M.BrierScore,
        lambda probs, *a, **o: F.brier_score(probabilities(probs), *a, **o),
        reference.brier_score,
        takes_probs=True,
        rank_only=False,
    ),
    MetricCase(M.AreaUnderRiskCoverage, F.area_under_risk_coverage, reference.area_under_risk_coverage),
    _scene_graph(),
    _scene_graph("-constrained", constrained=True),
    _scene_graph("-predicate", average="predicate"),
]

FUNCTIONS = [
    F.area_under_risk_coverage,
    F.average_k_accuracy,
    F.average_precision,
    F.binned_average_precision,
    F.brier_score,
    F.calibration_error,
    F.f1_at_k,
    F.f1_counts,
    F.f1_score,
    F.hierarchical_counts,
    F.hierarchical_precision,
    F.hierarchical_recall,
    F.hits_at_k,
    F.ndcg_at_k,
    F.precision_at_k,
    F.propensities,
    F.propensity_scored_precision_at_k,
    F.recall_at_k,
    F.reliability,
    F.risk_coverage,
    F.scene_graph_recall,
    F.topk_accuracy,
]
METRIC_RESULTS = [F.BinnedAveragePrecision, F.F1Counts, F.HierarchicalCounts, F.Reliability, F.RiskCoverage]
"""Metrics as functions, and the tuples that some of them return."""
NOT_METRICS = [M.LabelSets, M.sampler_mask]
"""Exports of shortlist.metrics that are not metrics."""


def draw(
    case: MetricCase, rows: int, seed: int, *, unknown: float = 0.25, absent: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Rows with many ties, some absent labels and, in the multi-hot, unknown labels and rows without positives."""
    generator = torch.Generator().manual_seed(seed)
    levels = int(torch.randint(1, 8, (), generator=generator))
    scores = torch.randint(levels, (rows, N), generator=generator).double() - levels // 2
    scores = scores.masked_fill(torch.rand(rows, N, generator=generator) < absent, -math.inf)
    chosen = torch.rand(rows, N, generator=generator)
    sizes = torch.randint(0, 2 if case.one_class else N, (rows, 1), generator=generator)
    hot = (chosen.argsort(-1).argsort(-1) < sizes).double()
    unclear = (torch.rand(rows, N, generator=generator) < unknown) & (hot == 0)
    return scores, hot.masked_fill(unclear, -1.0)

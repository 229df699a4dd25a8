"""Metrics that accumulate over batches and processes; they require the extra ``metrics``.

All metrics follow the same rules. Only the order of scores matters unless a threshold is given, and nothing is inferred
from their values. Ties count by their expected value under a random order; in average precision, equal scores form one
threshold, as in scikit-learn. Labels with score ``-inf`` are never predicted. Unknown labels are left out of the
ranking. Rows without a known positive are left out of means over rows, but counted. Macro averages run over the classes
that occur. An empty average is NaN.
"""

from shortlist.extras import import_failure as _import_failure

try:
    import torchmetrics  # noqa: F401  # pyright: ignore[reportUnusedImport]
except Exception as error:
    raise _import_failure("torchmetrics", error, extra="metrics") from error

from shortlist.metrics.accuracy import AverageKAccuracy, ShotAccuracy, TopKAccuracy
from shortlist.metrics.average_precision import BinnedMeanAveragePrecision, MeanAveragePrecision
from shortlist.metrics.base import sampler_mask
from shortlist.metrics.calibration import (
    AdaptiveCalibrationError,
    AreaUnderRiskCoverage,
    BrierScore,
    CalibrationError,
)
from shortlist.metrics.f1 import MacroF1, MicroF1
from shortlist.metrics.hierarchy import HierarchicalF1, HierarchicalPrecision, HierarchicalRecall
from shortlist.metrics.ranking import (
    F1AtK,
    NDCGAtK,
    PrecisionAtK,
    PropensityScoredPrecisionAtK,
    RankingMetrics,
    RecallAtK,
)
from shortlist.metrics.scene_graph import SceneGraphRecall
from shortlist.metrics.sets import LabelSets, SetCoverage, SetSize, SizeStratifiedCoverage

__all__ = [
    "AdaptiveCalibrationError",
    "AreaUnderRiskCoverage",
    "AverageKAccuracy",
    "BinnedMeanAveragePrecision",
    "BrierScore",
    "CalibrationError",
    "F1AtK",
    "HierarchicalF1",
    "HierarchicalPrecision",
    "HierarchicalRecall",
    "LabelSets",
    "MacroF1",
    "MeanAveragePrecision",
    "MicroF1",
    "NDCGAtK",
    "PrecisionAtK",
    "PropensityScoredPrecisionAtK",
    "RankingMetrics",
    "RecallAtK",
    "SceneGraphRecall",
    "SetCoverage",
    "SetSize",
    "ShotAccuracy",
    "SizeStratifiedCoverage",
    "TopKAccuracy",
    "sampler_mask",
]

"""Prediction sets for any number of rows: scores from files or models, read in blocks; sets written to files.

Example:
    >>> import torch
    >>> from shortlist.predict import calibrate, evaluate_sets, iterate_sets, tensor_scores
    >>> from shortlist.sets import AverageK
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.5, 1.0]])
    >>> scores = tensor_scores(logits, from_logits=True)  # or open_scores("val.npy", from_logits=True)
    >>> rule = calibrate(scores, AverageK(1.5))
    >>> evaluate_sets(scores, rule).sizes.mean
    1.3333333333333333
    >>> [sets.sizes.tolist() for block, sets in iterate_sets(scores, rule)]
    [[1, 1, 2]]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shortlist.predict.calibration import (
    CALIBRATORS,
    RULES,
    RuleKind,
    calibrate,
    estimate_ratios,
    fit_calibrator,
    make_rule,
    update_rule,
)
from shortlist.predict.evaluation import ScoreMetrics, SetMetrics, evaluate_scores, evaluate_sets
from shortlist.predict.files.label_files import read_label_sets, read_names
from shortlist.predict.prediction import PredictionSummary, iterate_sets, predict_sets, read_rule
from shortlist.predict.restricted_scores import with_allowed_labels
from shortlist.predict.row_values import with_row_values
from shortlist.predict.scores import ScoreBlock, Scores, open_scores, tensor_scores
from shortlist.predict.true_labels import read_true_labels

if TYPE_CHECKING:
    from shortlist.predict.model_folder import (
        audit_model,
        calibrate_model,
        find_rule,
        recalibrate_model,
        save_calibrator,
        save_rule,
    )
    from shortlist.predict.model_scores import open_model
    from shortlist.predict.onnx_model import OnnxModel

__all__ = [
    "CALIBRATORS",
    "RULES",
    "OnnxModel",
    "PredictionSummary",
    "RuleKind",
    "ScoreBlock",
    "ScoreMetrics",
    "Scores",
    "SetMetrics",
    "audit_model",
    "calibrate",
    "calibrate_model",
    "estimate_ratios",
    "evaluate_scores",
    "evaluate_sets",
    "find_rule",
    "fit_calibrator",
    "iterate_sets",
    "make_rule",
    "open_model",
    "open_scores",
    "predict_sets",
    "read_label_sets",
    "read_names",
    "read_rule",
    "read_true_labels",
    "recalibrate_model",
    "save_calibrator",
    "save_rule",
    "tensor_scores",
    "update_rule",
    "with_allowed_labels",
    "with_row_values",
]


# These need the extra ``train``, which the rest does not.
_OF_MODELS = {
    "OnnxModel": "onnx_model",
    "audit_model": "model_folder",
    "calibrate_model": "model_folder",
    "find_rule": "model_folder",
    "open_model": "model_scores",
    "recalibrate_model": "model_folder",
    "save_calibrator": "model_folder",
    "save_rule": "model_folder",
}


def __getattr__(name: str) -> Any:
    if name in _OF_MODELS:
        return getattr(import_module(f"shortlist.predict.{_OF_MODELS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

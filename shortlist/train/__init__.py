"""Training of models that predict sets; needs the extra ``train``."""

from shortlist.comparison_document import write_comparison
from shortlist.extras import import_failure

try:
    import lightning  # noqa: F401  # pyright: ignore[reportUnusedImport]
except Exception as error:
    raise import_failure("lightning", error, extra="train") from error

from shortlist.fit_options import FitOptions
from shortlist.train.classifier import SetClassifier
from shortlist.train.comparison import Comparison, Interval, compare, comparison_document
from shortlist.train.evaluation import Evaluation
from shortlist.train.fit import Fitted, evaluate, fit
from shortlist.train.inputs import SetBatches
from shortlist.train.model.encoders import MLP, DenseNet, Plain, SmallCNN, Standardised
from shortlist.train.model.plan import ModelPlan, SetModel, build_model
from shortlist.train.model.sparse_layers import Bag, SparseLinear
from shortlist.train.saved_model import SavedModel, export_onnx, load_model, save_model
from shortlist.train.tuning import Tuned, tune

__all__ = [
    "MLP",
    "Bag",
    "Comparison",
    "DenseNet",
    "Evaluation",
    "FitOptions",
    "Fitted",
    "Interval",
    "ModelPlan",
    "Plain",
    "SavedModel",
    "SetBatches",
    "SetClassifier",
    "SetModel",
    "SmallCNN",
    "SparseLinear",
    "Standardised",
    "Tuned",
    "build_model",
    "compare",
    "comparison_document",
    "evaluate",
    "export_onnx",
    "fit",
    "load_model",
    "save_model",
    "tune",
    "write_comparison",
]

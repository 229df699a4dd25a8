"""Time the set rules and calibrators of other libraries: a process of its own, in an environment of its own.

``python set_rules_peer.py FOLDER`` reads what `benchmarks.set_rules` wrote into the folder (``scores.npy`` with
probabilities, ``classes.npy``) and writes ``seconds.json``: by rule and library, the processor seconds per row of
fitting and of predicting, or why there are none. Libraries that are not installed are left out. Only numpy and these
libraries are imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHA = 0.1
FEW_ROWS = 200
"""Rules that are slow, or that need much memory for each row, run on so many rows; times are scaled."""
MOST_LABELS = 2000
"""RC3P of TorchCP takes the square of the number of labels in Python, so it is not run beyond these."""

Step = Callable[[Any], object]
Rule = tuple[Step, Step]
"""Fit and predict, both on probabilities."""


def torchcp_split(score: str, **options: Any) -> Callable[[Any, Any], Rule]:
    """A split conformal predictor of TorchCP."""

    def make(torch: Any, classes: np.ndarray) -> Rule:
        scores = importlib.import_module("torchcp.classification.score")
        predictors = importlib.import_module("torchcp.classification.predictor")
        rule = predictors.SplitPredictor(getattr(scores, score)(score_type="identity", **options))
        labels = torch.from_numpy(classes)
        return lambda x: rule.calculate_threshold(x, labels[: len(x)], ALPHA), rule.predict_with_logits

    return make


def torchcp_by_class(kind: str) -> Callable[[Any, Any], Rule]:
    """A class-conditional predictor of TorchCP."""

    def make(torch: Any, classes: np.ndarray) -> Rule:
        score = importlib.import_module("torchcp.classification.score").LAC(score_type="identity")
        rule = getattr(importlib.import_module("torchcp.classification.predictor"), kind)(score)
        labels = torch.from_numpy(classes)

        def fit(x: Any) -> None:
            rule.num_classes = x.shape[1]
            rule.calculate_threshold(x, labels[: len(x)], ALPHA)

        return fit, rule.predict_with_logits

    return make


def mapie_split(score: str) -> Callable[[Any, Any], Rule]:
    """A split conformal classifier of MAPIE, around a model that returns the given probabilities."""

    def make(classification: Any, classes: np.ndarray) -> Rule:
        rule = classification.SplitConformalClassifier(Given(classes.max() + 1), ALPHA, score, prefit=True)

        def fit(x: Any) -> None:
            rule.estimator = rule._estimator = Given(x.shape[1])
            rule.conformalize(x, classes[: len(x)])

        return fit, rule.predict_set

    return make


class Given:
    """A fitted classifier of scikit-learn whose features are its probabilities."""

    def __init__(self, labels: int) -> None:
        self.classes_ = np.arange(labels)
        self.n_features_in_ = labels

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Any, y: Any) -> Given:
        """Nothing."""
        return self

    def predict_proba(self, x: Any) -> Any:
        """The features."""
        return x

    def predict(self, x: Any) -> Any:
        """The best label."""
        return x.argmax(-1)


def crepes_p_values(crepes: Any, classes: np.ndarray) -> Rule:
    """P-values of crepes."""
    rule = crepes.ConformalClassifier()
    return (
        lambda x: rule.fit(1 - x[np.arange(len(x)), classes[: len(x)]]),
        lambda x: rule.predict_p(1 - x, smoothing=False),
    )


def mapie_recall(control: Any, classes: np.ndarray) -> Rule:
    """Conformal risk control of the recall, by MAPIE."""
    rule = control.MultiLabelClassificationController(lambda x: x, risk="recall", method="crc", target_level=1 - ALPHA)
    return lambda x: rule.calibrate(x, one_hot(classes[: len(x)], x.shape[1])), rule.predict


def mapie_precision(control: Any, classes: np.ndarray) -> Rule:
    """Learn-then-Test of the precision, by MAPIE."""
    rule = control.MultiLabelClassificationController(
        lambda x: x, risk="precision", method="ltt", target_level=0.5, confidence_level=0.9
    )
    return lambda x: rule.calibrate(x, one_hot(classes[: len(x)], x.shape[1])), rule.predict


def one_hot(classes: np.ndarray, labels: int) -> np.ndarray:
    """A row of zeros and one for each class."""
    found = np.zeros((len(classes), labels), dtype=np.int64)
    found[np.arange(len(classes)), classes] = 1
    return found


def sklearn_isotonic(isotonic: Any, classes: np.ndarray) -> Rule:
    """scikit-learn's isotonic regression of all entries."""
    rule = isotonic.IsotonicRegression(out_of_bounds="clip")
    return (
        lambda x: rule.fit(x.ravel(), one_hot(classes[: len(x)], x.shape[1]).ravel()),
        lambda x: rule.predict(x.ravel()),
    )


PEERS: dict[str, dict[str, tuple[str, Callable[[Any, Any], Rule], bool]]] = {
    "AverageError": {
        "torchcp": ("torch", torchcp_split("LAC"), False),
        "mapie": ("mapie.classification", mapie_split("lac"), True),
    },
    "PointwiseError": {
        "torchcp": ("torch", torchcp_split("APS"), False),
        "mapie": ("mapie.classification", mapie_split("aps"), True),
    },
    "SplitConformal, SAPS": {"torchcp": ("torch", torchcp_split("SAPS", weight=0.1), False)},
    "SplitConformal, Margin": {"torchcp": ("torch", torchcp_split("Margin"), False)},
    "ClassConditional": {"torchcp": ("torch", torchcp_by_class("ClassConditionalPredictor"), False)},
    "RankCalibrated": {"torchcp": ("torch", torchcp_by_class("RC3PPredictor"), True)},
    "PValues": {"crepes": ("crepes", crepes_p_values, True)},
    "RecallControl": {"mapie": ("mapie.risk_control", mapie_recall, True)},
    "RiskControl, wrong labels": {"mapie": ("mapie.risk_control", mapie_precision, True)},
    "IsotonicCalibration": {"sklearn": ("sklearn.isotonic", sklearn_isotonic, False)},
}
"""By rule and library: the module, the rule, and whether it runs on few rows."""


def measured(scores: np.ndarray, classes: np.ndarray) -> dict[str, dict[str, Any]]:
    """Seconds per row of all rules, or why there are none."""
    found: dict[str, dict[str, Any]] = {}
    for rule, libraries in PEERS.items():
        for library, (module, make, few) in libraries.items():
            try:
                importlib.import_module(library)
                imported = importlib.import_module(module)
            except ImportError:
                continue
            if rule == "RankCalibrated" and scores.shape[1] > MOST_LABELS:
                continue
            rows = scores[:FEW_ROWS].copy() if few else scores.copy()  # TorchCP's Margin writes into them
            given = imported.from_numpy(rows) if module == "torch" else rows
            try:
                fit, predict = make(imported, classes)
                seconds = []
                for step in (fit, predict):
                    start = time.process_time()
                    step(given)
                    seconds.append((time.process_time() - start) / len(rows))
            except Exception as error:  # another library may fail in any way, and the others are still wanted
                found.setdefault(rule, {})[library] = f"{type(error).__name__}: {error}"[:200]
                continue
            found.setdefault(rule, {})[library] = {"fit": seconds[0], "predict": seconds[1], "rows": len(rows)}
    return found


def main() -> None:
    """Read, measure, write."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    with contextlib.suppress(ImportError):
        importlib.import_module("torch").set_num_threads(1)
    content = measured(np.load(folder / "scores.npy"), np.load(folder / "classes.npy"))
    (folder / "seconds.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()

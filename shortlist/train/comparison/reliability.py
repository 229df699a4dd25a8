"""Predicted probabilities beside observed frequencies: of a model as it is, and after temperature scaling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.calibration import TemperatureScaling
from shortlist.comparison_document import Calibration, CalibrationBin
from shortlist.data import Dataset
from shortlist.data.target_rows import take_rows
from shortlist.functional import reliability
from shortlist.metrics import AdaptiveCalibrationError, BrierScore, CalibrationError
from shortlist.train.comparison.scored_rows import positive_pairs
from shortlist.train.evaluation import Evaluation
from shortlist.train.inputs import is_one_class

# Finer at low probabilities, where most labels are.
_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ROWS = 1024


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

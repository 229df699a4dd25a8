"""Calibrated probabilities: maps from logits to logits, fitted on held-out rows, for softmax and for sigmoid scores."""

from shortlist.calibration.beta import BetaCalibration
from shortlist.calibration.calibrator import Calibrator, load_calibrator
from shortlist.calibration.isotonic import IsotonicCalibration
from shortlist.calibration.scaling import TemperatureScaling, VectorScaling

__all__ = [
    "BetaCalibration",
    "Calibrator",
    "IsotonicCalibration",
    "TemperatureScaling",
    "VectorScaling",
    "load_calibrator",
]

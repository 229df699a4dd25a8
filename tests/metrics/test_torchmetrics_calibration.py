"""Calibration errors equal those of torchmetrics, which has them for one class per row and for binary labels."""

import pytest
import torch
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from shortlist.metrics import CalibrationError


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("labels", [2, 7])
def test_the_error_of_the_best_label_is_that_of_torchmetrics(bins, labels):
    generator = torch.Generator().manual_seed(labels)
    probs = (3 * torch.randn(500, labels, generator=generator)).softmax(-1)
    target = torch.randint(labels, (500,), generator=generator)
    metric = CalibrationError(bins=bins)
    for rows in range(0, 500, 200):
        metric.update(probs[rows : rows + 200], target[rows : rows + 200])
    theirs = multiclass_calibration_error(probs, target, labels, n_bins=bins)
    assert float(metric.compute()) == pytest.approx(float(theirs), abs=1e-6)


@pytest.mark.parametrize("bins", [10, 15])
def test_the_error_of_every_label_is_that_of_torchmetrics_over_all_pairs(bins):
    generator = torch.Generator().manual_seed(bins)
    probs = torch.rand(300, 6, generator=generator)
    target = (torch.rand(300, 6, generator=generator) < probs**2).float()
    ours = CalibrationError(bins=bins, events="labels")(probs, target)
    theirs = binary_calibration_error(probs.flatten(), target.flatten().long(), n_bins=bins)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-6)

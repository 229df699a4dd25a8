"""Metrics have the same values by the code of accelerators, with ties, absent labels, masks and all forms of labels."""

import math

import pytest
import torch

from shortlist import targets
from tests.contracts_metrics import METRICS, N, flat

pytestmark = pytest.mark.cpu_only  # compares two kinds of code on CPU tensors


@pytest.mark.parametrize("case", METRICS, ids=str)
def test_values_are_the_same(case, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        scores = torch.randint(0, 4, (7, N), generator=generator) / 2 - 0.6
        scores[0, 0] = -math.inf
        hot = torch.rand(7, N, generator=generator) < 0.4
        if case.one_class:
            hot = torch.eye(N, dtype=torch.bool)[torch.randint(0, N, (7,), generator=generator)]
        forms = [hot.float(), hot, hot.float().to_sparse(), targets.to_index_lists(hot, N)]
        forms += [targets.to_class_indices(hot, N)] if case.one_class else []
        masks = [None, torch.rand(7, generator=generator) < 0.7] if case.takes_mask else [None]
        for target, mask in ((target, mask) for target in forms for mask in masks):
            found = []
            for kernels in ("on", "device"):
                monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
                metric = case.metric()
                case.update(metric, scores, target, mask)
                found.append(torch.tensor(flat(metric.compute()), dtype=torch.float64))
            torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11, equal_nan=True)

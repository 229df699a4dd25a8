"""The tests of this folder start from the same seed, and kernels take rows however few they are."""

import pytest
import torch

from shortlist.kernels import chooser


@pytest.fixture(autouse=True)
def _kernels_for_small_inputs(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)


@pytest.fixture
def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(0)

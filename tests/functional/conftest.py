"""The tests of this folder start from the same seed, and compiled loops take rows however few they are."""

import pytest
import torch

from shortlist.kernels import chooser


@pytest.fixture(autouse=True)
def _loops_for_all(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)


@pytest.fixture
def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(0)

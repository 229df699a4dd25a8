"""Randomness for the tests of this folder: each starts from the same seed."""

import pytest
import torch


@pytest.fixture
def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(0)

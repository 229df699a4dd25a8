"""What the tests of several packages use."""

import os

# Triton reads this when a kernel is defined. Tests that compile kernels for a card start a process without it.
os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch


@pytest.fixture
def fresh() -> torch.Generator:
    """Randomness from a fixed seed."""
    return torch.Generator().manual_seed(0)

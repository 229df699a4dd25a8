"""What the tests of several packages use."""

import pytest
import torch


@pytest.fixture
def fresh() -> torch.Generator:
    """Randomness from a fixed seed."""
    return torch.Generator().manual_seed(0)

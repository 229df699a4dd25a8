"""What the tests of several packages use, and the device that they run on."""

import os
from collections.abc import Iterator

import pytest
import torch

from tests.report.browser import CHROMIUM, Browser

DEVICE = os.environ.get("SHORTLIST_DEVICE", "cpu")
"""Where tensors are made: `make test DEVICE=cuda` runs the tests of functional, nn, sets and metrics there."""

if DEVICE == "cpu":
    # Triton reads this when a kernel is defined. Tests that compile kernels for a card start a process without it.
    os.environ["TRITON_INTERPRET"] = "1"


class _Generator(torch.Generator):
    """A generator of the device under test unless it is told another one: torch's own default is always the CPU."""

    def __new__(cls, device: str | torch.device = DEVICE) -> torch.Generator:
        return super().__new__(cls, "cpu" if torch.device(device).type == "meta" else device)  # meta draws nothing


if DEVICE != "cpu":
    # At once and not in a fixture, since modules of tests hold tensors.
    torch.set_default_device(DEVICE)
    torch.Generator = _Generator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what holds for the CPU alone."""
    for item in items:
        if DEVICE != "cpu" and item.get_closest_marker("cpu_only"):
            item.add_marker(pytest.mark.skip(reason=f"for the CPU; this run is on {DEVICE}"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window, for pages that are files or sites."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    found = Browser()
    yield found
    found.close()


@pytest.fixture
def device() -> torch.device:
    """The device under test."""
    return torch.device(DEVICE)


@pytest.fixture
def fresh(device: torch.device) -> torch.Generator:
    """Randomness from a fixed seed."""
    return torch.Generator(device).manual_seed(0)

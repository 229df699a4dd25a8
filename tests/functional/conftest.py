"""The tests of operators choose the code that runs, and kernels take rows however few they are."""

import pytest
import torch

from shortlist.kernels import chooser
from tests.functional.paths import CHOICES


@pytest.fixture(autouse=True)
def _kernels_for_small_inputs(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)


@pytest.fixture
def dtype(request, monkeypatch) -> torch.dtype:
    """The dtype of a path such as ``"float32-tensors"``; see `tests.functional.paths`."""
    name, _, path = request.param.partition("-")
    monkeypatch.setenv("SHORTLIST_KERNELS", CHOICES.get(path, "on"))
    return getattr(torch, name)


@pytest.fixture(params=list(CHOICES))
def _every_path(request, monkeypatch) -> None:
    monkeypatch.setenv("SHORTLIST_KERNELS", CHOICES[request.param])


def pytest_collection_modifyitems(items) -> None:
    """Interpreted Triton kernels take a second a row; `tests/kernels/gpu` has a short form of what they run here."""
    for item in items:
        if "triton" in item.name.partition("[")[2]:
            item.add_marker(pytest.mark.slow)

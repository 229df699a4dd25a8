"""What every doctest sees, torch and the public names; and how garbage is collected in long runs."""

from __future__ import annotations

import gc
import os

# Triton reads this when it is imported. Tests that compile kernels for a card start a process without it.
os.environ["TRITON_INTERPRET"] = "1"

from importlib.util import find_spec

import pytest
import torch

import shortlist
from shortlist import functional, nn

# Nothing in the tests may ask the Hub; the library reads this when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
# Each file of integrations imports its library, and so do its tests.
collect_ignore_glob = [
    pattern
    for library in ("sklearn", "transformers", "datasets")
    if find_spec(library) is None
    for pattern in (f"shortlist/integrations/{library}.py", f"tests/integrations/test_{library}.py")
]


@pytest.fixture(autouse=True, scope="session")
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, shortlist=shortlist)
    for module in (functional, nn):
        doctest_namespace.update({name: getattr(module, name) for name in module.__all__})


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end, so the collector need not look at them again and again."""
    gc.freeze()

"""What every doctest sees: torch and the public names."""

from __future__ import annotations

import pytest
import torch

import shortlist
from shortlist import functional, nn


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, shortlist=shortlist)
    for module in (functional, nn):
        doctest_namespace.update({name: getattr(module, name) for name in module.__all__})

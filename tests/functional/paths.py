"""The code that computes an operator.

In float32: numba kernels, the tensor operations of the CPU, those of accelerators, and Triton kernels (interpreted).
"""

from collections.abc import Iterable
from typing import Any

import pytest

PATHS = ["float32-kernels", "float32-tensors", "float32-device", "float32-triton", "float64"]
CHOICES = {"kernels": "on", "tensors": "off", "device": "device", "triton": "triton"}
"""The value of SHORTLIST_KERNELS that takes each path."""

HALVES = ["float16", "bfloat16"]

each_path = pytest.mark.parametrize("dtype", PATHS, indirect=True)
every_path = pytest.mark.usefixtures("_every_path")
"""For tests in float32 alone."""


def on_each_path(name: str, cases: Iterable[Any], paths: Iterable[str] = PATHS) -> pytest.MarkDecorator:
    """Parametrize the argument ``name`` by cases and ``dtype`` by paths; cases that no kernel serves have one less."""
    pairs = [
        pytest.param(case, path, id=f"{case}-{path}")
        for case in cases
        for path in paths
        if case.has_kernel or path != "float32-tensors"
    ]
    return pytest.mark.parametrize((name, "dtype"), pairs, indirect=["dtype"])

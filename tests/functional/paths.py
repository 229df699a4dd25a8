"""The code that computes an operator: kernels in float32 where numba is installed, otherwise tensor operations."""

from collections.abc import Iterable
from typing import Any

import pytest

PATHS = ["float32-kernels", "float32-tensors", "float64"]
HALVES = ["float16", "bfloat16"]

each_path = pytest.mark.parametrize("dtype", PATHS, indirect=True)
both_paths = pytest.mark.usefixtures("_both_paths")
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

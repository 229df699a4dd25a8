"""``torch.compile`` as the tests use it."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

# Torch makes machine code with a C++ compiler; without one its graphs can be captured and differentiated all the same.
BACKEND = "inductor" if shutil.which(os.environ.get("CXX", "g++")) else "aot_eager"

each_backend = pytest.mark.parametrize("backend", ["aot_eager", pytest.param(BACKEND, marks=pytest.mark.slow)])
"""For what is made of plain operators: the graph always, the machine code, which takes seconds, in the slow tests."""


def whole_graph(function: Callable[..., Any], backend: str = BACKEND) -> Callable[..., Any]:
    """The function or module as one compiled graph, for tensors of the shapes that it meets."""
    return torch.compile(function, fullgraph=True, dynamic=False, backend=backend)

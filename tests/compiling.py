"""``torch.compile`` as the tests use it."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch

# Torch makes machine code with a C++ compiler; without one its graphs can be captured and differentiated all the same.
BACKEND = "inductor" if shutil.which(os.environ.get("CXX", "g++")) else "aot_eager"


def whole_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function or module as one compiled graph, for tensors of the shapes that it meets."""
    return torch.compile(function, fullgraph=True, dynamic=False, backend=BACKEND)

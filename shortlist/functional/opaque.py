"""Functions that a compiler calls without looking into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def opaque(name: str, schema: str, function: Callable[..., Any], shape_like: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as the operator ``shortlist::name``, which has no derivative of its own.

    Args:
        name: of the operator.
        schema: its arguments and results, as ``torch.library.define`` reads them.
        function: of plain tensors on the CPU.
        shape_like: as ``function``, but only the shapes of its results count.
    """
    torch.library.define(f"shortlist::{name}", schema)
    torch.library.impl(f"shortlist::{name}", "CPU", function)
    torch.library.register_fake(f"shortlist::{name}", shape_like)
    return getattr(torch.ops.shortlist, name).default

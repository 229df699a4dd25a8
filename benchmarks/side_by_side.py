"""Timing of alternatives side by side in one process, on a machine whose speed drifts."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from shortlist.kernels.chooser import can_compile
from shortlist.timing import Step
from shortlist.timing import median_seconds as medians

__all__ = [
    "PEAK_RESET",
    "RETURNED_FROM",
    "Step",
    "forward_backward",
    "machine",
    "medians",
    "peak_copies",
    "resident",
    "write_json",
]

PEAK_RESET = Path("/proc/self/clear_refs")
"""Linux: writing 5 here lets the peak of the resident memory start anew. Without it there is no measuring of peaks."""

RETURNED_FROM = 1 << 16
"""Bytes from which a freed block goes back to the system, so that no call finds room left over by an earlier one."""


def forward_backward(
    op: Callable[..., torch.Tensor], *inputs: torch.Tensor, upstream: torch.Tensor | None = None
) -> Step:
    """One call and its gradient; ``upstream`` is needed unless the result is a scalar."""

    def step() -> None:
        for x in inputs:
            x.grad = None
        op(*inputs).backward(upstream)

    return step


def peak_copies(module: str, *arguments: str | int) -> float:
    """Peak memory of a step above its start, in copies of its input, in a process of its own.

    ``module.peak_step(*arguments)`` returns the step and the input.
    """
    code = (
        f"from {module} import peak_step; from benchmarks.side_by_side import print_peak; "
        f"print_peak(*peak_step{arguments!r})"
    )
    limits = {name: str(RETURNED_FROM) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | limits).stdout)


def print_peak(step: Step, x: torch.Tensor) -> None:
    """The body of ``peak_copies``: the first call loads what stays loaded, the second is measured."""
    step()
    x.grad = None
    ctypes.CDLL(None).malloc_trim(0)  # else the second finds room that the compiler of the first has left
    PEAK_RESET.write_text("5")
    before = resident("VmRSS")
    step()
    print((resident("VmHWM") - before) / (x.numel() * x.element_size()))


def resident(field: str) -> int:
    """Bytes of resident memory: now (``VmRSS``) or at its peak (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write the whole result or nothing."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    partial.replace(path)


def machine() -> dict[str, str | int]:
    """What the measurements depend on."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": os.cpu_count() or 1,
        "simd": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": importlib.metadata.version("numba") if can_compile() else "not used",
    }


def colored(text: str, met: bool | None) -> str:
    """``text`` in green if its goal is met, in red if it is missed, dim without a goal."""
    return f"[{'dim' if met is None else 'green' if met else 'red'}]{text}[/]"

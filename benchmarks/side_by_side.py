"""Timing of alternatives side by side in one process, on a machine whose speed drifts."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

Step = Callable[[], object]


def medians(steps: dict[str, Step], *, seconds: float = 0.4, rounds: int = 60) -> dict[str, float]:
    """Median seconds of each step, the steps taking turns so that drift meets all of them alike.

    Stops after ``rounds`` turns, or once ``seconds`` per step have been spent and five turns are done.
    """
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    begin = time.perf_counter()
    for turn in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
        if turn >= 4 and time.perf_counter() - begin > seconds * len(steps):
            break
    return {name: statistics.median(values) for name, values in times.items()}


def forward_backward(op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, upstream: torch.Tensor) -> Step:
    """One call and its gradient."""

    def step() -> None:
        x.grad = None
        op(x).backward(upstream)

    return step


def machine() -> dict[str, str | int]:
    """What the figures depend on."""
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
    }

"""Timing of alternatives side by side in one process, on a machine whose speed drifts."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

Step = Callable[[], object]

_SHORT = 0.02  # Seconds below which the state of the caches makes a difference.
# Once a block of so many floats has been freed, glibc keeps smaller ones for the next call. Before that, the first
# steps of a process would pay for new pages each time, and later ones would not.
_LARGE_BLOCK = 1 << 22


def median_seconds(
    steps: Mapping[str, Step],
    *,
    rounds: int = 60,
    seconds: float = 0.4,
    progress: Callable[[str], object] | None = None,
) -> dict[str, float]:
    """Return the median seconds of each step; steps take turns, so that drift affects all of them alike.

    A short step runs twice in its turn and the second run counts, so that none pays for what another one left in the
    caches. Before the first turn every step runs twice, which loads and compiles what the first call needs.

    Args:
        steps: what to time.
        rounds: how many turns at most.
        seconds: per step, after which no more turns are taken, but at least five.
        progress: called with the name of each step after its turn.

    Example:
        >>> found = median_seconds({"sum": lambda: sum(range(10))}, rounds=3)
        >>> found["sum"] > 0
        True
    """
    torch.empty(_LARGE_BLOCK)  # Freed at once.
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    begin = time.perf_counter()
    for turn in range(rounds):
        for name, step in steps.items():
            elapsed = _seconds(step)
            times[name].append(_seconds(step) if elapsed < _SHORT else elapsed)
            if progress is not None:
                progress(name)
        if turn >= 4 and time.perf_counter() - begin > seconds * len(steps):
            break
    return {name: statistics.median(values) for name, values in times.items()}


class Timing(NamedTuple):
    """Median seconds of one call, or the reason why there are none."""

    seconds: float | None
    reason: str = ""


def time_steps(
    makers: Mapping[str, Callable[[], Step]], *, rounds: int, progress: Callable[[str], object] | None = None
) -> dict[str, Timing]:
    """Time steps that may turn out to be impossible.

    Args:
        makers: each makes a step; one that cannot be made or called is left out, with the reason.
        rounds: how many turns.
        progress: called with the name of each step that was made, and after each of its turns.

    Example:
        >>> found = time_steps({"sum": lambda: lambda: sum(range(10)), "none": lambda: lambda: 1 // 0}, rounds=3)
        >>> found["sum"].seconds > 0, found["none"].reason[:16]
        (True, 'integer division')
    """
    steps: dict[str, Step] = {}
    failed: dict[str, Timing] = {}
    for name, make in makers.items():
        try:
            steps[name] = make()
            steps[name]()
        except (ValueError, TypeError, RuntimeError, MemoryError, ArithmeticError) as error:
            steps.pop(name, None)
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
            failed[name] = Timing(None, message.split(". ")[0].rstrip("."))
        if progress is not None:
            progress(name)
    found = median_seconds(steps, rounds=rounds, seconds=math.inf, progress=progress)
    return {name: failed[name] if name in failed else Timing(found[name]) for name in makers}


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Let torch use ``count`` threads in the block, or as many as before for None; yield their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def free_memory() -> int | None:
    """Return the free bytes of the machine, or of what this process may use of it; None if unknown."""
    found = [_free_on_machine(), _free_in_container()]
    return min((size for size in found if size is not None), default=None)


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _free_on_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _free_in_container() -> int | None:
    """Return what a limit on this group of processes leaves; files that the system may evict count as used."""
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text() for name in ("memory.max", "memory.current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):  # No limit, which reads "max".
        return None

"""Timing of steps side by side: they take turns, so that a machine whose speed drifts is fair to all."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

# A turn lasts at least this long, by as many calls as it takes: clocks and caches are coarse.
_TURN_SECONDS = 0.002
_MOST_CALLS = 1000


class Timing(NamedTuple):
    """Median seconds of one call; or why there are none."""

    seconds: float | None
    reason: str = ""


def take_turns(
    makers: dict[str, Callable[[], Callable[[], object]]],
    *,
    repeat: int,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Timing]:
    """Median time of each step over ``repeat`` turns.

    Args:
        makers: each gives a step. One that cannot be made or called is left out, and says why.
        repeat: how many turns.
        progress: called with the name of each step that was made or took its turn: ``repeat + 1`` times for each, and
            once for those that cannot.

    Example:
        >>> found = take_turns({"sum": lambda: lambda: sum(range(10)), "none": lambda: lambda: 1 // 0}, repeat=3)
        >>> found["sum"].seconds > 0, found["none"]
        (True, Timing(seconds=None, reason='integer division or modulo by zero'))
    """
    told = progress or (lambda name: None)
    steps, calls, failed = {}, {}, {}
    for name, make in makers.items():
        try:
            step = make()
            step()  # Loads, compiles and warms up what the first call does.
            begin = time.perf_counter()
            step()
        except (ValueError, TypeError, RuntimeError, MemoryError, ArithmeticError) as error:
            failed[name] = Timing(None, _first_line(error))
        else:
            steps[name] = step
            once = max(time.perf_counter() - begin, 1e-9)
            calls[name] = max(1, min(_MOST_CALLS, math.ceil(_TURN_SECONDS / once)))
        told(name)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeat):
        for name, step in steps.items():
            begin = time.perf_counter()
            for _ in range(calls[name]):
                step()
            times[name].append((time.perf_counter() - begin) / calls[name])
            told(name)
    return {name: failed[name] if name in failed else Timing(statistics.median(times[name])) for name in makers}


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Let torch use so many threads, or as many as it does anyway; gives their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def free_memory() -> int | None:
    """Bytes of memory that are free: of the machine, or of what this process may use of it; None if unknown."""
    found = [_of_machine(), _of_container()]
    return min((size for size in found if size is not None), default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_container() -> int | None:
    """What a limit on this group of processes leaves; files that the system may forget count as used."""
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text() for name in ("memory.max", "memory.current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):  # No such limit, or "max".
        return None


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].split(". ")[0].rstrip(".")

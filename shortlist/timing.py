"""Time alternatives side by side in one process, on a machine whose speed drifts."""

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

from shortlist.errors import reason

Step = Callable[[], object]

_SHORT = 0.02  # Below this many seconds, the state of the caches matters.
# After a block of this many floats has been freed, glibc reuses smaller blocks. Before that, the first steps of a
# process would pay for new pages every time, and later ones would not.
_LARGE_BLOCK = 1 << 22


def median_seconds(
    steps: Mapping[str, Step],
    *,
    rounds: int = 60,
    seconds: float = 0.4,
    progress: Callable[[str], object] | None = None,
) -> dict[str, float]:
    """Return the median seconds of each step; steps take turns, so that drift affects all of them equally.

    A short step runs twice per turn and only the second run counts, so that no step pays for the cache state another
    one left. Before the first turn, every step runs twice as a warm-up, which loads and compiles code.

    Args:
        steps: the functions to time.
        rounds: maximum number of turns.
        seconds: time budget per step, after which turns stop; at least five turns are taken.
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
    """Median seconds of one call, or the reason why it could not be timed."""

    seconds: float | None
    reason: str = ""


def time_steps(
    makers: Mapping[str, Callable[[], Step]], *, rounds: int, progress: Callable[[str], object] | None = None
) -> dict[str, Timing]:
    """Time steps, some of which may fail.

    Args:
        makers: each creates a step; a step that cannot be created or called is reported with the reason.
        rounds: number of turns.
        progress: called with the name of each step after it is created and after each of its turns.

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
            failed[name] = Timing(None, reason(error))
        if progress is not None:
            progress(name)
    found = median_seconds(steps, rounds=rounds, seconds=math.inf, progress=progress)
    return {name: failed[name] if name in failed else Timing(found[name]) for name in makers}


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Let torch use ``count`` threads in the block (unchanged for None); yield their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def free_memory() -> int | None:
    """Return the free memory of the machine, or of this process's limit, in bytes; None if unknown."""
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
    """Return the memory left under the control group's limit; evictable file caches count as used."""
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text() for name in ("memory.max", "memory.current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):  # Without a limit, the file contains "max".
        return None

"""Run tasks and yield results as they come; tasks that are lost with their worker are repeated."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from threading import Lock, Thread
from typing import Any, TypeVar

from shortlist.cluster.address import check_cluster, read_address
from shortlist.cluster.engines import Call, SharedValue, open_engine

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")
# How many rounds in a row may finish no task; what a scheduler repeats by itself does not count.
_FRUITLESS_ROUNDS = 3
_POLL_SECONDS = 1.0
_one_at_a_time = Lock()


def run_tasks(
    work: Callable[[Common, Task], Result],
    common: Common,
    tasks: Iterable[Task],
    *,
    cluster: str = "local",
    jobs: int | None = None,
    exclusive: bool = False,
    advice: str = "finished tasks are kept",
) -> Iterator[tuple[int, Result]]:
    """Call ``work(common, task)`` for every task, on the processes of this machine or on a cluster.

    Tasks whose worker is killed or lost are repeated, on Dask and Ray first by their own schedulers. An exception in a
    task is raised here and ends the others.

    Args:
        work: a function of a module; its result must depend on nothing but its arguments.
        common: sent to every worker once.
        tasks: small.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine.
        jobs: how many tasks at a time; None for all workers of a cluster. On this machine None means 1, and 1 means
            this process.
        exclusive: whether a process may run only one task at a time, for tasks that use state that threads share, such
            as torch's random generator.
        advice: the end of the message when tasks were lost too often.

    Yields:
        Index of the task and its result, in the order in which tasks finish.

    Raises:
        ChildProcessError: if workers were lost several times while no task finished.
        ConnectionError: if the cluster does not answer or has no workers.
        ImportError: if its workers have no shortlist or another release.

    Example:
        >>> dict(run_tasks(divmod, 17, [5, 3]))
        {0: (3, 2), 1: (5, 2)}
    """
    waiting = dict(enumerate(tasks))
    if not waiting:
        return
    address = read_address(cluster)
    if address.engine == "local" and jobs in (None, 1):
        yield from ((index, work(common, task)) for index, task in waiting.items())
        return
    check_cluster(cluster)
    fruitless = 0
    with open_engine(address, jobs) as engine:
        while waiting and fruitless <= _FRUITLESS_ROUNDS:
            before, started = len(waiting), set[int]()
            arguments = work, engine.share(common), exclusive, os.getpid()
            for index, result in engine.results(_calls(list(waiting.items()), arguments, started)):
                del waiting[index]
                yield index, result
            fruitless = fruitless + 1 if len(waiting) == before else 0
            # Lost tasks last: one that kills its process must not keep the others from finishing.
            waiting = dict(sorted(waiting.items(), key=lambda item: item[0] in started))
    if waiting:
        raise ChildProcessError(
            f"worker processes were killed, perhaps for lack of memory, {fruitless} times before any task finished; "
            f"{advice}."
        )


def worker_threads() -> int | None:
    """Return how many threads a Dask worker was given for its tasks; None elsewhere."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_worker().state.nthreads
    except (ValueError, AttributeError):  # Not a worker, or distributed is still being imported.
        return None


def _calls(tasks: list[tuple[int, Any]], arguments: tuple[Any, ...], started: set[int]) -> Iterator[Call]:
    for index, task in tasks:  # Engines take the next one when a worker is idle.
        started.add(index)
        yield _call, (index, task, *arguments)


def _call(index: int, task: Any, work: Callable[..., Any], shared: Any, exclusive: bool, caller: int) -> Any:
    """Run one task, in a worker."""
    if os.getppid() == caller:
        exit_with_parent(caller)
    common = shared.value() if isinstance(shared, SharedValue) else shared
    with _one_at_a_time if exclusive else nullcontext():
        return index, work(common, task)


@cache  # A process runs many tasks.
def exit_with_parent(parent: int) -> None:
    """End this process soon after its parent was killed, which when restarted repeats the same work."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()

"""Run tasks, yield results as they finish, and retry tasks that are lost with their worker."""

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
from shortlist.cluster.engines import Call, SharedValue, open_engine, silence_tracker

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")
# How many consecutive rounds may finish no task; a scheduler's own retries do not count.
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
    """Call ``work(common, task)`` for every task, on local processes or on a cluster.

    Tasks whose worker is killed or lost are retried; on Dask and Ray, their own schedulers retry first. An exception in
    a task propagates and cancels the others.

    Args:
        work: a module-level function; its result must depend only on its arguments.
        common: sent to every worker once.
        tasks: small values, one per call.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine.
        jobs: number of concurrent tasks; None uses all workers of a cluster. Locally, None means 1, and 1 runs in this
            process.
        exclusive: run only one task at a time per process, for tasks that use state shared by threads, such as torch's
            random generator.
        advice: the end of the error message if tasks are lost too often.

    Yields:
        The index and the result of each task, in order of completion.

    Raises:
        ChildProcessError: if workers were lost several times while no task finished.
        ConnectionError: if the cluster does not respond or has no workers.
        ImportError: if its workers do not have shortlist or have another release.

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
            # Retry lost tasks last: a task that kills its process must not keep the others from finishing.
            waiting = dict(sorted(waiting.items(), key=lambda item: item[0] in started))
    if waiting:
        raise ChildProcessError(
            f"worker processes were killed, perhaps for lack of memory, {fruitless} times before any task finished; "
            f"{advice}."
        )


def worker_threads() -> int | None:
    """Return the number of threads of a Dask worker; None elsewhere."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_worker().state.nthreads
    except (ValueError, AttributeError):  # Not a worker, or distributed is still being imported.
        return None


def _calls(tasks: list[tuple[int, Any]], arguments: tuple[Any, ...], started: set[int]) -> Iterator[Call]:
    for index, task in tasks:  # Engines pull the next task when a worker is idle.
        started.add(index)
        yield _call, (index, task, *arguments)


def _call(index: int, task: Any, work: Callable[..., Any], shared: Any, exclusive: bool, caller: int) -> Any:
    """Run one task in a worker."""
    if os.getppid() == caller:
        exit_with_parent(caller)
        silence_tracker()
    common = shared.value() if isinstance(shared, SharedValue) else shared
    with _one_at_a_time if exclusive else nullcontext():
        return index, work(common, task)


@cache  # A process runs many tasks.
def exit_with_parent(parent: int) -> None:
    """Exit soon after the parent is killed; once restarted, the parent repeats the same work."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()

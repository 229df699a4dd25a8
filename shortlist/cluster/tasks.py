"""Tasks handed out and results given as they come; what was lost with its worker is handed out again."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Lock
from typing import Any, TypeVar

from shortlist.cluster.address import check_cluster, read_address
from shortlist.cluster.ending import end_with
from shortlist.cluster.engine import Engine, Lost
from shortlist.cluster.held import Sent
from shortlist.cluster.local_engine import local_engine
from shortlist.extras import require

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")
# How often lost tasks are handed out again in vain; what a scheduler repeats by itself is not counted.
RETRIES = 3
_one_at_a_time = Lock()


def run_tasks(
    work: Callable[[Common, Task], Result],
    common: Common,
    tasks: Iterable[Task],
    *,
    cluster: str = "local",
    jobs: int | None = None,
    exclusive: bool = False,
    advice: str = "what is finished stays",
) -> Iterator[tuple[int, Result]]:
    """Call ``work(common, task)`` for every task, on the processes of this machine or on a cluster.

    Tasks whose worker is killed or lost are done again; on Dask and Ray by their own schedulers first. What a task
    raises is raised here, and ends the others.

    Args:
        work: a function of a module; what it gives may depend on nothing but its arguments.
        common: sent to every worker once.
        tasks: small.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine.
        jobs: how many tasks at a time; None for all workers of a cluster, and for one on this machine, which is then
            this process.
        exclusive: whether a process may do one task at a time only, for those that use what its threads share, as
            random numbers of torch.
        advice: what to say when tasks were lost too often.

    Yields:
        Place among ``tasks``, and result, in the order in which they are finished.

    Raises:
        ChildProcessError: workers were lost several times, and nothing was finished in between.
        ConnectionError: the cluster does not answer, or has no workers.
        ImportError: its workers have no shortlist, or another release.

    Example:
        >>> dict(run_tasks(divmod, 17, [5, 3]))
        {0: (3, 2), 1: (5, 2)}
    """
    waiting = dict(enumerate(tasks))
    if not waiting:
        return
    address = read_address(cluster)
    if address.engine == "local" and jobs in (None, 1):
        yield from ((place, work(common, task)) for place, task in waiting.items())
        return
    in_vain = 0
    check_cluster(cluster)
    with _engine(address, jobs) as engine:
        while waiting and in_vain <= RETRIES:
            left, handed = len(waiting), set[int]()
            arguments = work, engine.send(common), exclusive, os.getpid()
            for place, result in _round(engine, waiting, handed, arguments):
                del waiting[place]
                yield place, result
            in_vain = in_vain + 1 if len(waiting) == left else 0
            # Last what was lost: a task that ends its process must not keep the others from being done.
            waiting = dict(sorted(waiting.items(), key=lambda item: item[0] in handed))
    if waiting:
        raise ChildProcessError(
            f"processes were ended from outside, perhaps for want of memory, {in_vain} times before any task was "
            f"finished; {advice}."
        )


def _engine(address: Any, jobs: int | None) -> AbstractContextManager[Engine]:
    if address.engine == "dask":
        from shortlist.cluster.dask_engine import dask_engine

        return dask_engine(address, jobs)
    if address.engine == "ray":
        from shortlist.cluster.ray_engine import ray_engine

        return ray_engine(address, jobs)
    return local_engine(jobs or 1)


def _round(
    engine: Engine, waiting: dict[int, Any], handed: set[int], arguments: tuple[Any, ...]
) -> Iterator[tuple[int, Any]]:
    """Hand out all tasks once; those that were lost give nothing."""
    joblib = require("joblib", extra="audit")
    tasks = list(waiting.items())

    def calls() -> Iterator[Any]:
        for place, task in tasks:  # Joblib asks for them as workers become idle, from threads of its own.
            handed.add(place)
            yield joblib.delayed(_call)(place, task, *arguments)

    parallel = joblib.Parallel(
        n_jobs=engine.jobs,
        backend=engine.backend(),
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=engine.pre_dispatch,
    )
    with suppress(*engine.broken), _closed_quietly(parallel(calls())) as results:
        for result in results:
            if not isinstance(result, Lost):
                yield result


@contextmanager
def _closed_quietly(results: Any) -> Iterator[Any]:
    """End what is under way; joblib would tell how many tasks are given up, which is what was asked for."""
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


def _call(place: int, task: Any, work: Callable[..., Any], sent: Any, exclusive: bool, caller: int) -> tuple[int, Any]:
    if os.getppid() == caller:
        end_with(caller)
    common = sent.value() if isinstance(sent, Sent) else sent
    with _one_at_a_time if exclusive else nullcontext():
        return place, work(common, task)


def worker_threads() -> int | None:
    """How many threads a worker of Dask was given for its tasks; None elsewhere."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_worker().state.nthreads
    except (ValueError, AttributeError):  # No worker, or one that is still being imported.
        return None

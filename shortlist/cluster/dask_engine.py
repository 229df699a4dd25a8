"""Tasks on a Dask cluster, through joblib's own backend for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from queue import Empty, Queue
from threading import Thread
from typing import Any

from shortlist.cluster.address import Address, unreachable
from shortlist.cluster.engine import FEWEST_JOBS, Engine, Lost, refuse_other_versions
from shortlist.extras import require

_SECONDS_TO_ANSWER = 10
_SECONDS_TO_RETURN = 60
_SECONDS_BETWEEN_LOOKS = 0.2


@contextmanager
def dask_engine(address: Address, jobs: int | None) -> Iterator[Engine]:
    """Connect to a scheduler, or start one with a worker for each core.

    Args:
        address: of the scheduler; without host, one is started and ended.
        jobs: how many tasks at a time; None for all that the workers take.

    Raises:
        ConnectionError, ImportError: in one sentence, if nobody answers or workers have another shortlist.
    """
    distributed = require("distributed", extra="cluster")
    with _silence(), _connected(distributed, address, jobs) as client:
        _wait_for_workers(client, address, _SECONDS_TO_ANSWER)
        # A function of the standard library, which workers without this package know as well.
        versions = client.run(resolve_name, "shortlist:__version__", on_error="return")
        refuse_other_versions(address, versions)

        def send(common: Any) -> Any:
            _wait_for_workers(client, address, _SECONDS_TO_RETURN)
            return client.scatter([common], broadcast=True, hash=False, timeout=_SECONDS_TO_RETURN)[0]

        backend = _backend_class()
        # The scheduler, which knows how many workers come and go, is given all tasks.
        yield Engine(FEWEST_JOBS, jobs or "all", lambda: backend(client=client), send, (_DisconnectedError,))


@contextmanager
def _connected(distributed: Any, address: Address, jobs: int | None) -> Iterator[Any]:
    if address.host is None:
        with (
            distributed.LocalCluster(
                n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    with _client(distributed, address) as client:
        yield client


def _client(distributed: Any, address: Address) -> Any:
    """A client of a scheduler; asked for in a thread, for one that another server puzzles may wait for ever."""

    class Client(distributed.Client):
        def __del__(self) -> None:
            """One that found no scheduler has nothing to say goodbye to, and would wait for an answer."""

    host = f"[{address.host}]" if ":" in str(address.host) else address.host
    found: Queue[Any] = Queue()

    def connect() -> None:
        with suppress(Exception):  # Whatever else listens there may answer anything.
            found.put(Client(f"tcp://{host}:{address.port}", timeout=_SECONDS_TO_ANSWER, set_as_default=False))
            return
        found.put(None)

    Thread(target=connect, daemon=True).start()
    try:
        client = found.get(timeout=_SECONDS_TO_ANSWER + 2)
    except Empty:
        client = None
    if client is None:
        raise unreachable(address, "no Dask scheduler answers")
    return client


def _wait_for_workers(client: Any, address: Address, seconds: float) -> None:
    """Workers that were killed may be started again; a client looks for a scheduler that it has lost, and closes."""
    while client.status == "connecting":
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError as error:
        raise ConnectionError(f"`{address.text}` has no workers.") from error
    except Exception as error:
        raise unreachable(address, "its scheduler is gone") from error


class _DisconnectedError(Exception):
    """The scheduler is gone, or was for a moment, and with it all tasks that it was given."""


def _backend_class() -> type:
    """Joblib's backend, which waits for ever for tasks that are lost, made to give them up."""
    parent = require("joblib._dask", extra="cluster").DaskDistributedBackend

    class Backend(parent):
        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(FEWEST_JOBS, super().effective_n_jobs(n_jobs))

        def start_call(self) -> None:
            super().start_call()
            self._waiting: dict[Any, Callable[[Any], Any]] = {}
            Thread(target=self._watch, daemon=True).start()

        def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Any:
            future = super().submit(func, callback)
            if callback is not None:
                self._waiting[future] = callback
                future.add_done_callback(self._tell_loss)
            return future

        def _tell_loss(self, future: Any) -> None:
            callback, error = self._waiting.pop(future), future.exception()
            if error is not None:
                callback(error)

        def _watch(self) -> None:
            connection = self.client.scheduler_comm
            while self._continue:
                if self._waiting and (self.client.scheduler_comm is not connection or self.client.status != "running"):
                    next(iter(self._waiting.values()))(_DisconnectedError())
                    return
                time.sleep(_SECONDS_BETWEEN_LOOKS)

        def retrieve_result_callback(self, out: Any) -> Any:
            return [Lost()] if isinstance(out, _losses()) else super().retrieve_result_callback(out)

    return Backend


def _losses() -> tuple[type[BaseException], ...]:
    """What comes for a task whose workers were killed, one after the other, or all that had the common data."""
    distributed = require("distributed", extra="cluster")
    return distributed.KilledWorker, distributed.comm.CommClosedError, futures.CancelledError, asyncio.CancelledError


@contextmanager
def _silence() -> Iterator[None]:
    """Dask tells of every worker and connection that is lost, at length; what matters is raised here."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

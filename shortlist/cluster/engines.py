"""Execution engines: joblib processes on this machine, a Dask cluster, or a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from queue import Empty, Queue
from threading import Thread
from typing import Any
from uuid import uuid4

import numpy as np

from shortlist.cluster.address import Address, check_versions, unreachable
from shortlist.errors import InputError
from shortlist.extras import require

_CONNECT_SECONDS = 10
_WORKERS_RETURN_SECONDS = 60
_POLL_SECONDS = 0.2
# Share larger buffers between local processes; joblib memory-maps arrays from this size on.
_SHARED_BYTES = 2**20
# Ray itself retries a task once when its process is lost; after that, the next round does.
_RAY_RETRIES = 1

Call = tuple[Callable[..., Any], tuple[Any, ...]]
_unpacked: dict[str, Any] = {}


class Engine(ABC):
    """Runs rounds of calls. A call whose worker is lost yields no result and is left to the next round."""

    @abstractmethod
    def share(self, common: Any) -> Any:
        """Send a value to all workers once; pass the returned reference as an argument of calls."""

    @abstractmethod
    def results(self, calls: Iterable[Call]) -> Iterator[Any]:
        """Run all calls and yield results as they finish; exceptions in calls propagate."""


def open_engine(address: Address, jobs: int | None) -> AbstractContextManager[Engine]:
    """Connect to an engine, or start it.

    Args:
        address: the engine's address; for Dask and Ray without a host, a local cluster is started and shut down
            afterwards.
        jobs: maximum number of concurrent calls; None for as many as the workers of a cluster accept.

    Raises:
        ConnectionError, ImportError: if the cluster does not respond, or workers have another release of shortlist.
    """
    return {"local": _local, "dask": _dask, "ray": _ray}[address.engine](address, jobs)


class SharedValue(ABC):
    """A reference to a large value; travels with calls in its place, and each process unpacks it once."""

    @abstractmethod
    def value(self) -> Any:
        """Return the value in the process that runs the call."""


def _unpack_once(token: str, unpack: Callable[[], Any]) -> Any:
    """Return the result of ``unpack`` and cache it for the next call; caches only one, because values are large."""
    if token not in _unpacked:
        _unpacked.clear()
        _unpacked[token] = unpack()
    return _unpacked[token]


# Local


class MappedValue(SharedValue):
    """A value whose large arrays joblib writes to a shared-memory file that all processes map read-only.

    Args:
        value: anything that cloudpickle can serialize.
    """

    def __init__(self, value: Any) -> None:
        self._token, self._value = uuid4().hex, value
        self._pickled: list[np.ndarray] = []

    def __getstate__(self) -> tuple[str, list[np.ndarray]]:
        """Pickle on the first send; joblib recognizes arrays that it has seen before."""
        if not self._pickled:
            large: list[np.ndarray] = []

            def is_in_band(buffer: pickle.PickleBuffer) -> bool:
                raw = buffer.raw()
                if raw.nbytes >= _SHARED_BYTES:
                    large.append(np.frombuffer(raw, dtype=np.uint8))
                return raw.nbytes < _SHARED_BYTES

            cloudpickle = require("cloudpickle", extra="audit")
            content = cloudpickle.dumps(self._value, protocol=5, buffer_callback=is_in_band)
            self._pickled = [np.frombuffer(content, dtype=np.uint8), *large]
        return self._token, self._pickled

    def __setstate__(self, state: tuple[str, list[np.ndarray]]) -> None:
        """Restore without unpickling the value."""
        self._token, self._pickled = state

    def value(self) -> Any:
        """Return the value itself, or this process's cached copy."""
        if hasattr(self, "_value"):
            return self._value
        content, *large = self._pickled
        return _unpack_once(self._token, lambda: pickle.loads(content.data, buffers=large))


class _LocalEngine(Engine):
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def share(self, common: Any) -> MappedValue:
        return MappedValue(common)

    def results(self, calls: Iterable[Call]) -> Iterator[Any]:
        joblib = require("joblib", extra="audit")
        silence_tracker()
        parallel = joblib.Parallel(n_jobs=self._jobs, return_as="generator_unordered", batch_size=1)
        with warnings.catch_warnings():
            # joblib replaces processes whose memory has grown, and Python its own tracker; this needs no warning.
            warnings.filterwarnings("ignore", message="resource_tracker: process died")
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
            # When one process is killed, joblib abandons all of them.
            with suppress(BrokenProcessPool), _closing(parallel(_delayed(joblib, calls))) as results:
                yield from results


def _delayed(joblib: Any, calls: Iterable[Call]) -> Iterator[Any]:
    for function, arguments in calls:
        yield joblib.delayed(function)(*arguments)


@contextmanager
def _closing(results: Any) -> Iterator[Any]:
    """Cancel the remaining calls on exit and suppress joblib's warning about abandoned tasks."""
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


@cache
def silence_tracker() -> None:
    """Keep joblib's tracker of shared resources, a process of its own, from writing to this one's standard error.

    If something kills the tracker, the next one prints a traceback for every resource that it was never told of, and
    this process warns. Nothing is lost: processes release their resources themselves, the tracker only what remains.
    Call it in workers, too, because any of them may start the next tracker. Workers of a cluster may have no joblib.
    """
    if find_spec("joblib") is None:
        return
    tracker = require("joblib.externals.loky.backend.resource_tracker", extra="audit")._resource_tracker
    kind: Any = type(tracker)

    class QuietTracker(kind):
        def _teardown_dead_process(self) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super()._teardown_dead_process()

        def _launch(self) -> None:
            with _silent_descriptor(2):  # New processes inherit it.
                super()._launch()

    tracker.__class__ = QuietTracker


@contextmanager
def _silent_descriptor(number: int) -> Iterator[None]:
    """Let a file descriptor lead nowhere for a moment."""
    try:
        before = os.dup(number)
    except OSError:  # It is closed already.
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), number)
        yield
    finally:
        os.dup2(before, number)
        os.close(before)


@contextmanager
def _local(address: Address, jobs: int | None) -> Iterator[Engine]:
    """Use joblib's processes, or the backend that the user chose with ``joblib.parallel_config``."""
    yield _LocalEngine(jobs or 1)


# Dask and Ray


class _FutureEngine(Engine):
    """Submits calls to a scheduler and keeps at most ``limit`` of them pending."""

    lost: tuple[type[BaseException], ...]

    def __init__(self, limit: int | None) -> None:
        self._limit = limit or float("inf")

    @abstractmethod
    def submit(self, call: Call) -> Any:
        """Return a future with ``add_done_callback``."""

    def fetch(self, future: Any) -> Any:
        """Return the result of a finished future."""
        return future.result()

    @property
    def is_connected(self) -> bool:
        """Whether pending futures may still finish."""
        return True

    def results(self, calls: Iterable[Call]) -> Iterator[Any]:
        waiting, pending = iter(calls), set[Any]()
        finished: Queue[tuple[Any, Any, BaseException | None]] = Queue()

        def collect(future: Any) -> None:
            # Fetch results immediately, so that a worker killed later loses none.
            try:
                finished.put((future, self.fetch(future), None))
            except BaseException as error:
                finished.put((future, None, error))

        while True:
            while len(pending) < self._limit and (call := next(waiting, None)) is not None:
                future = self.submit(call)
                pending.add(future)
                future.add_done_callback(collect)
            if not pending:
                return
            try:
                future, result, error = finished.get(timeout=_POLL_SECONDS)
            except Empty:
                if self.is_connected:
                    continue
                return
            pending.discard(future)
            if error is None:
                yield result
            elif not isinstance(error, self.lost):
                raise error


class _DaskEngine(_FutureEngine):
    def __init__(self, client: Any, address: Address, limit: int | None) -> None:
        super().__init__(limit)
        distributed = require("distributed", extra="cluster")
        self._client, self._address = client, address
        # Raised for a task that killed several workers, or when all workers with the shared value are gone.
        self.lost = distributed.KilledWorker, distributed.comm.CommClosedError, futures.CancelledError
        self.lost += (asyncio.CancelledError,)

    def share(self, common: Any) -> Any:
        _wait_for_workers(self._client, self._address, _WORKERS_RETURN_SECONDS)
        return self._client.scatter([common], broadcast=True, hash=False, timeout=_WORKERS_RETURN_SECONDS)[0]

    def submit(self, call: Call) -> Any:
        function, arguments = call
        return self._client.submit(function, *arguments, pure=False)

    @property
    def is_connected(self) -> bool:
        return self._client.status in ("running", "connecting")


@contextmanager
def _dask(address: Address, jobs: int | None) -> Iterator[Engine]:
    distributed = require("distributed", extra="cluster")
    with _silent_dask(), _dask_client(distributed, address, jobs) as client:
        _wait_for_workers(client, address, _CONNECT_SECONDS)
        # Use a standard-library function, because workers may not have this package.
        check_versions(address, client.run(resolve_name, "shortlist:__version__", on_error="return"))
        yield _DaskEngine(client, address, jobs)


@contextmanager
def _dask_client(distributed: Any, address: Address, jobs: int | None) -> Iterator[Any]:
    if address.host is not None:
        with _connect_to_dask(distributed, address) as client:
            yield client
        return
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        distributed.LocalCluster(n_workers=jobs, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _connect_to_dask(distributed: Any, address: Address) -> Any:
    """Connect in a thread, because a server that is not a scheduler can make the client wait forever."""

    class Client(distributed.Client):
        def __del__(self) -> None:
            """Do nothing; without a scheduler, closing would wait for a response."""

    host = f"[{address.host}]" if ":" in str(address.host) else address.host
    found: Queue[Any] = Queue()

    def connect() -> None:
        with suppress(Exception):  # Another kind of server may respond with anything.
            found.put(Client(f"tcp://{host}:{address.port}", timeout=_CONNECT_SECONDS, set_as_default=False))
            return
        found.put(None)

    Thread(target=connect, daemon=True).start()
    try:
        client = found.get(timeout=_CONNECT_SECONDS + 2)
    except Empty:
        client = None
    if client is None:
        raise unreachable(address, "no Dask scheduler responds")
    return client


def _wait_for_workers(client: Any, address: Address, seconds: float) -> None:
    """Wait for a worker; killed ones may be restarted, and the client may reconnect to its scheduler."""
    while client.status == "connecting":
        time.sleep(_POLL_SECONDS)
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError as error:
        raise ConnectionError(f"`{address.text}` has no workers.") from error
    except Exception as error:
        raise unreachable(address, "its scheduler is gone") from error


@contextmanager
def _silent_dask() -> Iterator[None]:
    """Silence Dask's logs about lost workers and connections; errors that matter are raised."""
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


class _RayValue(SharedValue):
    """A value in Ray's object store; each process reads it once."""

    def __init__(self, ref: Any) -> None:
        self._ref = ref

    def value(self) -> Any:
        return _unpack_once(self._ref.hex(), lambda: require("ray", extra="cluster").get(self._ref))


class _RayEngine(_FutureEngine):
    def __init__(self, ray: Any, limit: int | None) -> None:
        super().__init__(limit)
        self._ray, self.lost = ray, (ray.exceptions.RayError,)
        self._call = ray.remote(num_cpus=1, max_retries=_RAY_RETRIES)(_apply)

    def share(self, common: Any) -> _RayValue:
        return _RayValue(self._ray.put(common))

    def submit(self, call: Call) -> Any:
        return self._call.remote(*call).future()

    def fetch(self, future: Any) -> Any:
        try:
            return future.result()
        except self._ray.exceptions.RayTaskError as error:  # A RayError that wraps what the call raised.
            raise error.cause from None


def _apply(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


@contextmanager
def _ray(address: Address, jobs: int | None) -> Iterator[Engine]:
    ray = _import_ray()
    with _ray_connection(ray, address, jobs):
        check_versions(address, _ray_versions(ray))
        yield _RayEngine(ray, jobs)


def _import_ray() -> Any:
    """Import Ray, which logs lost processes to standard output unless this variable is set first."""
    name = "RAY_DEDUP_LOGS_SKIP_REGEX"
    before = os.environ.get(name)
    os.environ[name] = before or ".*"
    try:
        return require("ray", extra="cluster")
    finally:
        if before is None:
            del os.environ[name]


@contextmanager
def _ray_connection(ray: Any, address: Address, jobs: int | None) -> Iterator[None]:
    if ray.is_initialized():
        if address.host is not None:
            raise InputError(f"`cluster` must be ray:// in a process that uses Ray already; got {address.text!r}.")
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if address.host is None:
                ray.init(address="local", num_cpus=jobs, include_dashboard=False, **quiet)
            else:
                ray.init(address=address.text, **quiet)
    except Exception as error:
        raise unreachable(address, error) from error
    try:
        yield
    finally:
        ray.shutdown()


def _ray_versions(ray: Any) -> dict[str, object]:
    """Return each machine's release of shortlist, or the exception that the query raised."""
    strategy = require("ray.util.scheduling_strategies", extra="cluster").NodeAffinitySchedulingStrategy
    ask = ray.remote(resolve_name)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = {
        node: ask.options(num_cpus=0, scheduling_strategy=strategy(node, soft=False)).remote("shortlist:__version__")
        for node in nodes
    }
    return {node: _ray_answer(ray, ref) for node, ref in asked.items()}


def _ray_answer(ray: Any, ref: Any) -> object:
    try:
        return ray.get(ref)
    except Exception as error:
        return getattr(error, "cause", error)

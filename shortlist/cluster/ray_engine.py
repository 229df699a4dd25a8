"""Tasks on a Ray cluster, through a backend of joblib that leaves placing and repeating to Ray.

The backend of `ray.util.joblib` gives tasks to its processes in turn, whether they are idle or not, holds results back
until all are there, and changes joblib's pools for the rest of the process.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pkgutil import resolve_name
from typing import Any

from shortlist.cluster.address import Address, unreachable
from shortlist.cluster.engine import FEWEST_JOBS, Engine, Lost, refuse_other_versions
from shortlist.cluster.held import Sent, unpacked_once
from shortlist.extras import require

_SECONDS_TO_ANSWER = 10
# Ray repeats a task whose process was lost at once, and then leaves it to the next round.
_RETRIES_OF_RAY = 1


@contextmanager
def ray_engine(address: Address, jobs: int | None) -> Iterator[Engine]:
    """Connect to a Ray cluster, or start one on this machine.

    Args:
        address: of the head's client server; without host, the Ray of this process is used, or one is started and
            ended.
        jobs: how many tasks at a time; None for one on each core of the cluster.

    Raises:
        ConnectionError, ImportError: in one sentence, if nobody answers or workers have another shortlist.
    """
    ray = _quiet_ray()
    with _connected(ray, address, jobs):
        refuse_other_versions(address, _versions(ray))
        backend = _backend_class(ray)
        yield Engine(FEWEST_JOBS, jobs or "all", backend, lambda common: _Put(ray.put(common)))


def _quiet_ray() -> Any:
    """Import Ray, which writes of lost processes on standard output unless this variable is there before."""
    hidden = "RAY_DEDUP_LOGS_SKIP_REGEX"
    before = os.environ.get(hidden)
    os.environ[hidden] = before or ".*"
    try:
        return require("ray", extra="cluster")
    finally:
        if before is None:
            del os.environ[hidden]


@contextmanager
def _connected(ray: Any, address: Address, jobs: int | None) -> Iterator[None]:
    if ray.is_initialized():
        if address.host is not None:
            raise ValueError(f"`cluster` must be ray:// in a process that has a Ray already; got {address.text!r}.")
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


def _versions(ray: Any) -> dict[str, object]:
    """The release of shortlist on each machine."""
    strategy = require("ray.util.scheduling_strategies", extra="cluster").NodeAffinitySchedulingStrategy
    ask = ray.remote(resolve_name)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = {
        node: ask.options(num_cpus=0, scheduling_strategy=strategy(node, soft=False)).remote("shortlist:__version__")
        for node in nodes
    }
    return {node: _answer(ray, ref) for node, ref in asked.items()}


def _answer(ray: Any, ref: Any) -> object:
    try:
        return ray.get(ref)
    except Exception as error:
        return getattr(error, "cause", error)


class _Put(Sent):
    """What all tasks share, in the object store of Ray, from which a process reads it once."""

    def __init__(self, ref: Any) -> None:
        self._ref = ref

    def value(self) -> Any:
        return unpacked_once(self._ref.hex(), lambda: require("ray", extra="cluster").get(self._ref))


def _backend_class(ray: Any) -> Callable[[], Any]:
    joblib = require("joblib.parallel", extra="cluster")
    call = ray.remote(num_cpus=1, max_retries=_RETRIES_OF_RAY)(_call)

    class Backend(joblib.ParallelBackendBase):
        supports_retrieve_callback = True

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(FEWEST_JOBS, int(ray.cluster_resources().get("CPU", 0)))

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            self.parallel = parallel
            # What follows a result, the next task included, must not keep Ray's own threads.
            self._following = ThreadPoolExecutor(1)
            return self.effective_n_jobs(n_jobs)

        def terminate(self) -> None:
            self._following.shutdown(wait=False, cancel_futures=True)

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Any:
            future = call.remote(func).future()
            if callback is not None:
                future.add_done_callback(partial(self._follow, callback))
            return future

        def _follow(self, callback: Callable[[Any], Any], future: Any) -> None:
            with suppress(RuntimeError):  # The round is over.
                self._following.submit(callback, future)

        def retrieve_result_callback(self, out: Any) -> Any:
            try:
                return out.result()
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError:
                return [Lost()]

    return Backend


def _call(batch: Callable[[], Any]) -> Any:
    return batch()

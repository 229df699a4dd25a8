"""Where answers are computed: in a thread of the service, or in processes that share the mapped parameters."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from shortlist.errors import InputError
from shortlist.serve.answers import Answer, PredictionRequest, answer
from shortlist.serve.batching import WorkerDiedError
from shortlist.serve.models import Engine, ServedModel

# A process may still be loading its models.
_STARTING = 60.0


class ThreadRunner:
    """Answers in a thread of the service's own process.

    Args:
        models: by name.
    """

    slots, replaced = 1, 0

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")

    async def run(self, slot: int, model: str, requests: Sequence[PredictionRequest]) -> list[Answer]:
        """Answer the requests of a batch."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, answer, self._models[model], requests)

    async def close(self) -> None:
        """Wait for the batch that is being computed."""
        self._thread.shutdown(wait=True)


class ProcessRunner:
    """Answers in several processes, each with its share of the cores; one that dies or hangs is replaced.

    All map the same files of parameters, so these are in memory once.

    Args:
        models: by name.
        workers: how many processes.
        engine: as of `ServedModel`.
        seconds: after which a process that has not answered is killed.
    """

    def __init__(
        self, models: Mapping[str, ServedModel], workers: int, *, engine: Engine = "auto", seconds: float = 60.0
    ) -> None:
        self.slots, self.replaced, self._seconds = workers, 0, seconds + _STARTING
        self._folders = {name: model.folder for name, model in models.items()}
        self._engine: Engine = engine
        self._threads = max(1, (os.cpu_count() or 1) // workers)
        self._context = _context()
        self._waiting = ThreadPoolExecutor(workers, thread_name_prefix="workers")
        self._workers = [self._start() for _ in range(workers)]

    @property
    def process_ids(self) -> list[int]:
        """Of the present workers."""
        return [process.pid or 0 for process, _ in self._workers]

    async def run(self, slot: int, model: str, requests: Sequence[PredictionRequest]) -> list[Answer]:
        """Answer the requests of a batch; WorkerDiedError if the process died, which a new one replaces."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, self._ask, slot, model, requests)

    async def close(self) -> None:
        """Stop the processes, after the batches that they work on."""
        self._waiting.shutdown(wait=True)
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            process.join(5)
            if process.is_alive():
                process.kill()

    def _start(self) -> tuple[BaseProcess, Connection]:
        here, there = self._context.Pipe()
        given = (there, self._folders, self._engine, self._threads)
        process = self._context.Process(target=_work, args=given, daemon=True)  # pyright: ignore[reportAttributeAccessIssue]
        process.start()
        there.close()
        return process, here

    def _ask(self, slot: int, model: str, requests: Sequence[PredictionRequest]) -> list[Answer]:
        process, connection = self._workers[slot]
        try:
            # Plain pickle: that of multiprocessing would pass a file descriptor for every tensor.
            connection.send_bytes(pickle.dumps((model, list(requests)), protocol=pickle.HIGHEST_PROTOCOL))
            if not connection.poll(self._seconds):
                raise EOFError
            found: Any = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            connection.close()
            process.kill()
            process.join()
            self._workers[slot] = self._start()
            self.replaced += 1
            raise WorkerDiedError("the process that computed this answer died; another one took its place.") from error
        if isinstance(found, Exception):
            raise found
        return found


def _context() -> BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # So that a replacement need not import torch.
    return context


def _work(connection: Connection, folders: Mapping[str, Path], engine: Engine, threads: int) -> None:
    """Answer until the service closes the connection or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the service stops us.
    torch.set_num_threads(threads)
    models = {name: ServedModel(name, folder, engine=engine) for name, folder in folders.items()}
    with contextlib.suppress(EOFError, OSError):
        while True:
            model, requests = pickle.loads(connection.recv_bytes())
            try:
                found: Any = answer(models[model], requests)
            except InputError as error:
                found = error
            except Exception as error:
                found = RuntimeError(f"{type(error).__name__}: {error}")
            connection.send_bytes(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))

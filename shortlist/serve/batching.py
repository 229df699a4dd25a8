"""Micro-batches: requests that wait for one model are answered by one pass through its network, in a bounded queue."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shortlist.errors import InputError
from shortlist.serve.answers import Answer, PredictionRequest


class QueueFullError(Exception):
    """More requests wait than the queue holds; ``retry_after`` is the number of seconds after which it may be free."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too many requests are waiting: send this one again later.")
        self.retry_after = retry_after


class WorkerDiedError(Exception):
    """The process that computed an answer died."""


class Runner(Protocol):
    """What computes the answers of one batch at a time in each of its slots.

    Attributes:
        slots: how many batches at a time.
        replaced: how many processes died and were replaced.
    """

    slots: int
    replaced: int

    async def run(self, slot: int, model: str, requests: Sequence[PredictionRequest]) -> list[Answer]:
        """Answer the requests of a batch; WorkerDiedError if its process died, which another one replaces."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


@dataclass(eq=False)
class _Waiting:
    model: str
    key: Hashable
    request: PredictionRequest
    answer: asyncio.Future[Answer]
    attempts: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def rows(self) -> int:
        return len(self.request.inputs)


class Batcher:
    """Requests in the order in which they came; whenever a slot is free, it takes the oldest and all that go with it.

    So a request never waits for a batch to fill up: batches grow with the load.

    Args:
        runner: computes the answers.
        most_rows: of a batch; a larger request is a batch of its own.
        most_waiting: requests that wait; further ones are refused.
    """

    def __init__(self, runner: Runner, *, most_rows: int = 64, most_waiting: int = 256) -> None:
        self._runner, self._most_rows, self._most_waiting = runner, most_rows, most_waiting
        self._waiting: deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.batches = self.rows = 0
        self._seconds = 0.01

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to take requests from the queue."""
        self._tasks = [asyncio.create_task(self._serve(slot)) for slot in range(self._runner.slots)]

    async def close(self) -> None:
        """Stop; requests that still wait are cancelled."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for waiting in self._waiting:
            waiting.answer.cancel()
        await self._runner.close()

    async def ask(self, model: str, key: Hashable, request: PredictionRequest) -> Answer:
        """Queue a request and wait for its answer; one that is cancelled is dropped from the queue.

        Args:
            model: the name of the model.
            key: equal for requests whose rows can be in one batch.
            request: the request.

        Raises:
            QueueFullError: if too many wait.
            InputError: if the rows do not suit the model.
            WorkerDiedError: if the processes that worked on it died twice.
        """
        if len(self._waiting) >= self._most_waiting:
            raise QueueFullError(1 + int(self._seconds * len(self._waiting) / self._runner.slots))
        waiting = _Waiting(model, key, request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._filled.set()
        return await waiting.answer

    async def _serve(self, slot: int) -> None:
        while True:
            await self._filled.wait()
            batch = self._take()
            if batch:
                await self._run(slot, batch)

    def _take(self) -> list[_Waiting]:
        """The oldest request and those that go with it, in order; a request that killed a worker is taken alone."""
        batch: list[_Waiting] = []
        left: deque[_Waiting] = deque()
        rows = 0
        for each in self._waiting:
            if each.answer.done():  # Its client has gone, or its time is over.
                continue
            first = batch[0] if batch else each
            fits = not batch or (rows + each.rows <= self._most_rows and not each.attempts and not first.attempts)
            if fits and (each.model, each.key) == (first.model, first.key):
                batch.append(each)
                rows += each.rows
            else:
                left.append(each)
        self._waiting = left
        if not left:
            self._filled.clear()
        return batch

    async def _run(self, slot: int, batch: list[_Waiting]) -> None:
        begun = time.monotonic()
        try:
            answers = await self._runner.run(slot, batch[0].model, [each.request for each in batch])
        except WorkerDiedError as error:
            self._again(batch, error)
            return
        except InputError as error:
            if len(batch) > 1:  # One request must not spoil the others.
                for each in batch:
                    await self._run(slot, [each])
                return
            _fail(batch, error)
            return
        except Exception as error:
            _fail(batch, error)
            return
        for each, answer in zip(batch, answers, strict=True):
            if not each.answer.done():
                each.answer.set_result(answer)
        self.batches += 1
        self.rows += sum(each.rows for each in batch)
        self._seconds += 0.1 * ((time.monotonic() - begun) / len(batch) - self._seconds)

    def _again(self, batch: list[_Waiting], error: WorkerDiedError) -> None:
        """Queue what a dead worker had, once, for whichever is free first."""
        for each in reversed(batch):
            each.attempts += 1
            if each.attempts > 1:
                _fail([each], error)
            else:
                self._waiting.appendleft(each)
                self._filled.set()


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for each in batch:
        if not each.answer.done():
            each.answer.set_exception(error)

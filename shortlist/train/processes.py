"""Work that several processes do together: started here, ended together, with one error if there is any."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist

from shortlist.train.nodes import Place

# What is said to users in one sentence; anything else is a fault, and keeps its traceback.
_SAID = (ValueError, TypeError, ImportError, OSError, MemoryError)
# A process that lost another one tells so at once; the other's end, which is the reason, may be seen a little later.
_SECONDS_FOR_THE_REASON = 5.0

Tell = Callable[[float], object]


def in_processes(work: Callable[[Tell], object], place: Place, *, tell: Tell | None = None) -> None:
    """Call ``work`` in new processes that find each other, and those of other nodes, as Lightning and torch expect it.

    They are started from scratch and get ``work`` pickled, so that it does not matter what this process has done
    before; a script that comes here must guard its start with ``if __name__ == "__main__"``. Threads are shared out.

    Args:
        work: called with a function that passes numbers on to ``tell``.
        place: which of the processes to start here.
        tell: called in this process with what the others tell.

    Raises:
        ValueError, TypeError, ImportError, OSError, MemoryError: what one of them raised; the others are ended.
        ChildProcessError: one of them was killed.
        ConnectionError: one of them does not find or lost the others, as when another node is gone.
        RuntimeError: with the traceback of a fault in one of them.
    """
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // len(place.starts))
    port = _free_port() if place.port is None else place.port
    workers: list[_Worker] = []
    try:
        for rank in place.starts:
            # A pipe for each: what a killed process leaves half written in one must not keep others waiting.
            here, there = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_run, args=(rank, place, port, threads, work, there))
            try:
                with _quiet_library():
                    process.start()
            except BrokenPipeError:
                raise ChildProcessError(f"process {rank} of {place.per_node} was ended when it began.") from None
            there.close()
            workers.append(_Worker(rank, process, here))
        _supervise(workers, place, tell)
    finally:
        for worker in workers:
            if worker.process.is_alive():
                worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.messages.close()


@dataclass(eq=False)
class _Worker:
    """A process, and how it ended as far as it has told."""

    rank: int
    process: Any
    messages: Any
    code: int | None = None
    ended: dict[str, Any] = field(default_factory=dict)

    def look(self, tell: Tell | None) -> None:
        """See whether it has ended, and pass on what it has told; what ends it is kept."""
        self.code = self.process.exitcode  # First, so that all that an ended process has told is read.
        while message := self._next():
            kind, content = message
            if kind != "share":
                self.ended[kind] = content
            elif tell is not None:
                tell(content)

    def _next(self) -> tuple[str, Any] | None:
        try:
            return self.messages.recv() if self.messages.poll() else None
        except (EOFError, OSError):  # It is gone, maybe in the middle of a message.
            return None

    @property
    def reason(self) -> str:
        """What ended it: error, fault or lost, as it told, or end if it told nothing; empty if it has not failed."""
        if self.code in (None, 0):
            return ""
        return next(iter(self.ended), "end")


def _supervise(workers: list[_Worker], place: Place, tell: Tell | None) -> None:
    """Wait until all have ended well; raise for the one that explains why the others did not."""
    deadline: float | None = None
    while True:
        # Looked at before they are waited for: an end that is seen between the two would be waited for again.
        for worker in workers:
            worker.look(tell)
        alive = [worker for worker in workers if worker.code is None]
        reasons = {worker.reason for worker in workers}
        if "lost" in reasons and deadline is None:
            deadline = time.monotonic() + _SECONDS_FOR_THE_REASON
        if not alive or reasons & {"error", "end", "fault"} or (deadline and time.monotonic() > deadline):
            break
        wait_for = [source for worker in alive for source in (worker.process.sentinel, worker.messages)]
        connection.wait(wait_for, None if deadline is None else max(0.0, deadline - time.monotonic()))
    for kind in ("error", "end", "fault", "lost"):
        for worker in workers:
            if worker.reason == kind:
                raise _explanation(worker, kind, place) from None


def _explanation(worker: _Worker, kind: str, place: Place) -> BaseException:
    which = f"process {worker.rank} of {place.per_node}" + (f" of node {place.node}" if place.nodes > 1 else "")
    if kind == "error":
        return worker.ended["error"]
    if kind == "end":
        code = worker.code or 0
        how = f"by {_signal_name(-code)}" if code < 0 else f"with code {code}"
        return ChildProcessError(f"{which} was ended {how}; the run goes on when it is started again.")
    if kind == "lost":
        whom = "it is" if place.is_alone else "all nodes are"
        told = f"{which} cannot reach the others ({worker.ended['lost']})"
        return ConnectionError(f"{told}; the run goes on when {whom} started again.")
    return RuntimeError(f"{which} failed:\n{worker.ended['fault']}")


def _run(rank: int, place: Place, port: int, threads: int, work: Callable[[Tell], object], messages: Any) -> None:
    """What a new process does; it ends without a word on the standard error, for its parent speaks."""
    os.environ.update(
        MASTER_ADDR=place.address,
        MASTER_PORT=str(port),
        NODE_RANK=str(place.node),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(place.processes),
    )
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(lambda share: messages.send(("share", share)))
    except KeyboardInterrupt:
        os._exit(130)
    except _SAID as error:
        messages.send(("error", _sendable(error)))
    except BaseException as error:
        lost = _is_lost_connection(error)
        messages.send(("lost", _first_sentence(error)) if lost else ("fault", traceback.format_exc()))
    else:
        return
    os._exit(1)


@contextmanager
def _quiet_library() -> Iterator[None]:
    """For processes that start: of a connection that fails torch would write pages, and one sentence is said."""
    name = "TORCH_CPP_LOG_LEVEL"
    if name in os.environ:  # as the user wants it
        yield
        return
    os.environ[name] = "FATAL"
    try:
        yield
    finally:
        del os.environ[name]


def _sendable(error: Exception) -> Exception:
    """The error, or what it says if it is of a type that cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ValueError(str(error))
    return error


def _is_lost_connection(error: BaseException) -> bool:
    """Whether it says that another process does not answer: gloo has no type of its own for that."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _first_sentence(error: BaseException) -> str:
    """What it says, without the place in the source where it says it, and without advice."""
    line = str(error).strip().partition("\n")[0]
    line = re.sub(r"^\[[^\]]*\] *", "", line)
    return re.split(r"\.(?:\s|$)", line)[0] or type(error).__name__


def _end_with_parent() -> None:
    """A process whose parent was killed must not go on to write where the next run writes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

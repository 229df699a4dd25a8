"""Work that several processes do together: started here, ended together, with one error if there is any."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing import connection
from threading import Thread
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

_SECONDS_BETWEEN_LOOKS = 0.1
# What is said to users in one sentence; anything else is a fault, and keeps its traceback.
_SAID = (ValueError, TypeError, ImportError, OSError)

Tell = Callable[[float], object]


def in_processes(work: Callable[[Tell], object], processes: int, *, tell: Tell | None = None) -> None:
    """Call ``work`` in several new processes that find each other as Lightning and torch expect it.

    They are started from scratch and get ``work`` pickled, so that it does not matter what this process has done
    before; a script that comes here must guard its start with ``if __name__ == "__main__"``. Threads are shared out.

    Args:
        work: called with a function that passes numbers on to ``tell``.
        processes: how many.
        tell: called in this process with what the first of the others tells.

    Raises:
        ValueError, TypeError, ImportError, OSError: what one of them raised; the others are ended.
        ChildProcessError: one of them was killed.
    """
    messages: Any = multiprocessing.get_context("spawn").SimpleQueue()
    threads = max(1, torch.get_num_threads() // processes)
    arguments = (processes, _free_port(), threads, work, messages)
    errors: list[Exception] = []

    def read() -> None:
        while not messages.empty():
            message = messages.get()
            if isinstance(message, Exception):
                errors.append(message)
            elif tell is not None:
                tell(message)

    # It would tell of processes that are ended because another one failed, which is what is raised.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    started: Any = start_processes(_worker, arguments, processes, join=False, start_method="spawn")
    try:
        while not started.join(_SECONDS_BETWEEN_LOOKS):
            read()
        read()
    except ProcessRaisedException:
        read()
        if errors:
            raise errors[0] from None
        raise
    except ProcessExitedException as error:
        read()
        if errors:
            raise errors[0] from None
        code = error.exit_code
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        raise ChildProcessError(
            f"process {error.error_index} of {processes} was ended {how}; the run goes on when it is started again."
        ) from None
    finally:
        for process in started.processes:
            if process.is_alive():
                process.kill()


def _worker(rank: int, processes: int, port: int, threads: int, work: Callable[[Tell], object], messages: Any) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        NODE_RANK="0",
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(processes),
    )
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(messages.put)
    except _SAID as error:
        messages.put(error)
        raise


def _end_with_parent() -> None:
    """A process whose parent was killed must not go on to write where the next run writes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

"""Which processes of a training this command starts, and how it starts, watches and ends them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from shortlist.cluster.tasks import exit_with_parent
from shortlist.errors import InputError
from shortlist.fit_options import FitOptions

_VARIABLES = {
    "MASTER_ADDR": "the address of node 0",
    "MASTER_PORT": "a free port of node 0",
    "NODE_RANK": "the rank of this node",
}
# Raised again in this process as they are; any other exception is a bug and keeps its traceback.
_FORWARDED = (InputError, ImportError, OSError, MemoryError)
# A process that lost its peer waits this long before it exits, so that the peer, which is the reason, is seen first.
_LOST_SECONDS = 5.0
_POLL_SECONDS = 0.1

Report = Callable[[float], object]


@dataclass(frozen=True)
class Topology:
    """Nodes and processes of a training, and which of them this command starts.

    Args:
        nodes: number of machines.
        processes_per_node: number of processes on each machine.
        node_rank: rank of this machine.
        local_ranks: the processes of this machine that the command starts.
        master_addr, master_port: where rank 0 waits for the others; without a port, a free one on this machine.
    """

    nodes: int = 1
    processes_per_node: int = 1
    node_rank: int = 0
    local_ranks: tuple[int, ...] = (0,)
    master_addr: str = "127.0.0.1"
    master_port: int | None = None

    @classmethod
    def of(cls, options: FitOptions) -> Topology:
        """Read the options and the environment: all processes, those of one node, or the one torchrun started.

        Raises:
            InputError: if a variable is missing or invalid, or the strategy needs several processes.
        """
        if int(_torchrun_variable("WORLD_SIZE")) > 1:
            found = cls._of_torchrun(options)
        elif options.nodes > 1:
            address = _address(options.nodes)
            port = _number("MASTER_PORT", 1, 65535, options.nodes)
            node = _number("NODE_RANK", 0, options.nodes - 1, options.nodes)
            found = cls(options.nodes, options.processes, node, tuple(range(options.processes)), address, port)
        else:
            found = cls(1, options.processes, 0, tuple(range(options.processes)))
        if options.strategy == "fsdp" and found.world_size == 1:
            raise InputError("`strategy` 'fsdp' must have several `processes` or `nodes` to shard over; got 1.")
        return found

    @classmethod
    def _of_torchrun(cls, options: FitOptions) -> Topology:
        """Under torchrun, a command is one of the processes."""
        world_size, per_node = int(_torchrun_variable("WORLD_SIZE")), int(_torchrun_variable("LOCAL_WORLD_SIZE"))
        nodes = world_size // per_node
        for name, asked, given in (("processes", options.processes, per_node), ("nodes", options.nodes, nodes)):
            if asked not in (1, given):
                raise InputError(f"`{name}` must be left to torchrun, which says {given}; got {asked}.")
        node, rank = int(_torchrun_variable("GROUP_RANK")), int(_torchrun_variable("LOCAL_RANK"))
        return cls(nodes, per_node, node, (rank,), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

    @property
    def world_size(self) -> int:
        """The number of processes on all nodes."""
        return self.nodes * self.processes_per_node

    @property
    def is_first(self) -> bool:
        """Whether this command starts rank 0; it evaluates and writes."""
        return self.node_rank == 0 and 0 in self.local_ranks

    @property
    def is_alone(self) -> bool:
        """Whether this command starts all processes."""
        return len(self.local_ranks) == self.world_size

    @property
    def accelerator(self) -> str:
        """GPUs if every process of a machine can have one, else CPUs; a single process takes what there is."""
        if self.world_size == 1:
            return "auto"
        return "cuda" if torch.cuda.device_count() >= self.processes_per_node else "cpu"


def run_processes(work: Callable[[Report], object], topology: Topology, *, report: Report | None = None) -> None:
    """Call ``work`` in new processes, with the environment in which Lightning finds their peers on all nodes.

    Processes are spawned and receive ``work`` pickled, so a script must guard its start with
    ``if __name__ == "__main__"``. They share this process's threads evenly.

    Args:
        work: called with a function that passes numbers on to ``report``.
        topology: which processes to start here.
        report: called in this process with the numbers.

    Raises:
        InputError, ImportError, OSError, MemoryError: raised by one of them; the others are ended.
        ChildProcessError: if one of them was killed.
        ConnectionError: if one of them cannot reach its peers, as when another node is gone.
        RuntimeError: with the traceback of any other exception in one of them.
    """
    ranks = topology.local_ranks
    port = topology.master_port or _free_port()
    threads = max(1, torch.get_num_threads() // len(ranks))
    # One pipe per process: a killed process may leave half a message, which must not block the others.
    pipes = [multiprocessing.Pipe(duplex=False) for _ in ranks]
    before = set(multiprocessing.active_children())
    try:
        with _quiet_torch():
            arguments = (topology, port, threads, work, [sender for _, sender in pipes])
            context: Any = spawn(_run, arguments, nprocs=len(ranks), join=False)
            _watch(context, topology, [receiver for receiver, _ in pipes], report)
    except BrokenPipeError:
        raise ChildProcessError("a process was killed while it started; start the run again.") from None
    finally:
        started = set(multiprocessing.active_children()) - before
        for process in started:
            process.kill()
        for process in started:
            process.join()
        for end in (end for pipe in pipes for end in pipe):
            end.close()


def _watch(context: Any, topology: Topology, receivers: list[Any], report: Report | None) -> None:
    """Wait until all processes have succeeded; raise for the first that has not."""
    errors: dict[int, tuple[str, Any]] = {}

    def relay() -> None:
        for index, receiver in enumerate(receivers):
            while (message := _receive(receiver)) is not None:
                kind, content = message
                if kind != "progress":
                    errors[index] = message
                elif report is not None:
                    report(content)

    done = False
    try:
        while not done:
            done = context.join(timeout=_POLL_SECONDS, grace_period=0)
            relay()
    except ProcessRaisedException as failure:
        raise RuntimeError(f"{_describe(failure.error_index, topology)} failed:{failure}") from None
    except ProcessExitedException as failure:
        relay()
        kind, content = errors.get(failure.error_index, ("killed", None))
        which = _describe(failure.error_index, topology)
        if kind == "error":
            raise content from None
        if kind == "lost":
            restarted = "it is" if topology.is_alone else "all nodes are"
            reason = f"{which} cannot reach the others ({content})"
            raise ConnectionError(f"{reason}; the run continues when {restarted} started again.") from None
        how = f"by {failure.signal_name}" if failure.signal_name else f"with exit code {failure.exit_code}"
        raise ChildProcessError(f"{which} was ended {how}; the run continues when it is started again.") from None


def _receive(receiver: Any) -> tuple[str, Any] | None:
    try:
        return receiver.recv() if receiver.poll() else None
    except (EOFError, OSError):  # The process is gone, perhaps in the middle of a message.
        return None


def _describe(index: int, topology: Topology) -> str:
    node = f" of node {topology.node_rank}" if topology.nodes > 1 else ""
    return f"process {topology.local_ranks[index]} of {topology.processes_per_node}{node}"


def _run(
    index: int, topology: Topology, port: int, threads: int, work: Callable[[Report], object], pipes: list[Any]
) -> None:
    """Run ``work`` in a new process; errors are reported to the parent, which prints them."""
    os.environ.update(
        MASTER_ADDR=topology.master_addr,
        MASTER_PORT=str(port),
        NODE_RANK=str(topology.node_rank),
        LOCAL_RANK=str(topology.local_ranks[index]),
        WORLD_SIZE=str(topology.world_size),
    )
    torch.set_num_threads(threads)
    exit_with_parent(os.getppid())  # The next run writes to the same files.
    messages = pipes[index]
    try:
        work(lambda share: messages.send(("progress", share)))
    except KeyboardInterrupt:
        os._exit(130)
    except _FORWARDED as error:
        messages.send(("error", _picklable(error)))
        os._exit(1)
    except Exception as error:
        if not _is_lost_connection(error):
            raise  # torch passes the traceback on.
        messages.send(("lost", _first_sentence(error)))
        time.sleep(_LOST_SECONDS)
        os._exit(1)


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Keep torch from writing pages about a failed connection, and about processes that it ends."""
    name, logger = "TORCH_CPP_LOG_LEVEL", getLogger("torch.multiprocessing.spawn")
    logger.disabled = True
    is_set = name in os.environ  # By the user.
    os.environ.setdefault(name, "FATAL")
    try:
        yield
    finally:
        logger.disabled = False
        if not is_set:
            del os.environ[name]


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")  # a bug must not look like bad input
    return error


def _is_lost_connection(error: BaseException) -> bool:
    """Return whether a peer does not answer; gloo has no exception type of its own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _first_sentence(error: BaseException) -> str:
    """Return the first sentence, without the source location at its start."""
    line = re.sub(r"^\[[^\]]*\] *", "", str(error).strip().partition("\n")[0])
    return re.split(r"\.(?:\s|$)", line)[0] or type(error).__name__


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _torchrun_variable(name: str) -> str:
    """Return a variable of torchrun; without torchrun, the value for a single process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return "1" if name.endswith("SIZE") else "0"
    return os.environ[name]


def _variable(name: str, nodes: int) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputError(f"{name} must be set in the environment with `nodes` {nodes}: {_VARIABLES[name]}.")
    return value


def _address(nodes: int) -> str:
    value = _variable("MASTER_ADDR", nodes)
    try:
        socket.getaddrinfo(value, None)
    except (OSError, UnicodeError) as error:  # UnicodeError for names that no address can have.
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"MASTER_ADDR must be the address of node 0; got {value!r}: {reason}.") from error
    return value


def _number(name: str, low: int, high: int, nodes: int) -> int:
    value = _variable(name, nodes)
    if not (value.isdecimal() and value.isascii() and low <= int(value) <= high):
        raise InputError(f"{name} must be {_VARIABLES[name]}, an integer in [{low}, {high}]; got {value!r}.")
    return int(value)

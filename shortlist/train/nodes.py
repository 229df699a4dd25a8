"""Which processes of a training this command starts: all, those of one machine, or the one that it stands for."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import torch

from shortlist.train.options import FitOptions

_MEANING = {
    "MASTER_ADDR": "the address of node 0",
    "MASTER_PORT": "a free port of node 0",
    "NODE_RANK": "which node this is",
}


@dataclass(frozen=True)
class Place:
    """Where a command stands among those that train together.

    Args:
        nodes: how many machines there are.
        per_node: how many processes each machine has.
        node: which machine this is, from 0.
        starts: which processes of this machine the command starts.
        address, port: where the first process waits for the others; without a port a free one of this machine.
    """

    nodes: int = 1
    per_node: int = 1
    node: int = 0
    starts: tuple[int, ...] = (0,)
    address: str = "127.0.0.1"
    port: int | None = None

    @classmethod
    def here(cls, options: FitOptions) -> Place:
        """The place of this command, by its options and its environment.

        Raises:
            ValueError: in one sentence, if a variable is missing or makes no sense, or if the strategy needs several
                processes and there is one.
        """
        if int(_launched("WORLD_SIZE")) > 1:
            place = cls._of_launcher(options)
        elif options.nodes > 1:
            address = _address(options.nodes)
            port = _number("MASTER_PORT", 1, 65535, options.nodes)
            node = _number("NODE_RANK", 0, options.nodes - 1, options.nodes)
            place = cls(options.nodes, options.processes, node, tuple(range(options.processes)), address, port)
        else:
            place = cls(1, options.processes, 0, tuple(range(options.processes)))
        if options.strategy == "fsdp" and place.processes == 1:
            raise ValueError("`strategy` 'fsdp' must have several `processes` or `nodes` to share parameters; got 1.")
        return place

    @classmethod
    def _of_launcher(cls, options: FitOptions) -> Place:
        """As torchrun says, which starts a command for each process."""
        processes, per_node = int(_launched("WORLD_SIZE")), int(_launched("LOCAL_WORLD_SIZE"))
        nodes = processes // per_node
        for name, asked, given in (("processes", options.processes, per_node), ("nodes", options.nodes, nodes)):
            if asked not in (1, given):
                raise ValueError(f"`{name}` must be left to torchrun, which says {given}; got {asked}.")
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        node, process = int(_launched("GROUP_RANK")), int(_launched("LOCAL_RANK"))
        return cls(nodes, per_node, node, (process,), address, port)

    @property
    def processes(self) -> int:
        """How many processes there are in all."""
        return self.nodes * self.per_node

    @property
    def is_first(self) -> bool:
        """Whether the first process of all is started here: its command evaluates and writes."""
        return self.node == 0 and 0 in self.starts

    @property
    def is_alone(self) -> bool:
        """Whether no other command takes part."""
        return len(self.starts) == self.processes

    @property
    def accelerator(self) -> str:
        """Graphics cards where each process of a machine can have one, else CPUs; for one process what there is."""
        if self.processes == 1:
            return "auto"
        return "cuda" if torch.cuda.device_count() >= self.per_node else "cpu"


def _launched(name: str) -> str:
    """A variable of torchrun; the value for one process if torchrun has not started this command."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return "1" if name.endswith("SIZE") else "0"
    return os.environ[name]


def _variable(name: str, nodes: int) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ValueError(f"{name} must be set in the environment with `nodes` {nodes}: {_MEANING[name]}.")
    return value


def _address(nodes: int) -> str:
    value = _variable("MASTER_ADDR", nodes)
    try:
        socket.getaddrinfo(value, None)
    except (OSError, UnicodeError) as error:  # the latter for names that no address can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"MASTER_ADDR must be the address of node 0; got {value!r}: {reason}.") from error
    return value


def _number(name: str, least: int, most: int, nodes: int) -> int:
    value = _variable(name, nodes)
    if not (value.isdecimal() and value.isascii() and least <= int(value) <= most):
        raise ValueError(f"{name} must be {_MEANING[name]}, a whole number in [{least}, {most}]; got {value!r}.")
    return int(value)

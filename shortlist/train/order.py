"""The order of training rows: a function of the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class EpochBatches(Sampler[list[int]]):
    """Batches of shuffled rows; epoch e of seed s is the same whether or not the epochs before it were run here.

    Processes share an epoch: process r of w takes rows r, r + w, ... of each global batch, so that the global batches
    are those of one process. Rows at the end that fill no batch form a smaller one; if they are fewer than the
    processes, some have an empty share of it.

    Args:
        num_rows: how many rows; at least one for each process.
        batch_size: of the global batch; at least one for each process.
        seed: of the order.
        process, processes: which process this is, of how many.

    Example:
        >>> batches = EpochBatches(5, 2, seed=0)
        >>> [len(batch) for batch in batches], sorted(row for batch in batches for row in batch)
        ([2, 2, 1], [0, 1, 2, 3, 4])
    """

    def __init__(self, num_rows: int, batch_size: int, *, seed: int, process: int = 0, processes: int = 1) -> None:
        if not 0 <= process < processes:
            raise ValueError(f"`process` must lie in [0, {processes}), the number of processes; got {process}.")
        # With less some process would never have a row.
        for name, value in (("batch_size", batch_size), ("num_rows", num_rows)):
            if value < processes:
                raise ValueError(f"`{name}` must be at least the number of processes, {processes}; got {value}.")
        self.num_rows, self.batch_size, self.seed = num_rows, batch_size, seed
        self.process, self.processes = process, processes
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return -(-self.num_rows // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Rows of this process, batch by batch."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(self.num_rows, generator=generator)
        for number in range(len(self)):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield batch[self.process :: self.processes].tolist()

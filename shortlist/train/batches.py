"""The Lightning data module: training rows in the order of an epoch, validation rows once each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lightning import LightningDataModule
from torch.utils.data import DataLoader

from shortlist.data import Dataset
from shortlist.train.order import EpochBatches


class SetBatches(LightningDataModule):
    """Batches of a dataset's parts.

    Args:
        train: rows to learn from.
        val: rows to watch.
        batch_size: of a step, over all processes.
        seed: of the order.
        workers: processes that read ahead; 0 reads when asked.
    """

    def __init__(self, train: Dataset, val: Dataset, *, batch_size: int, seed: int, workers: int = 0) -> None:
        super().__init__()
        self.train, self.val = train, val
        self.batch_size, self.seed, self.workers = batch_size, seed, workers

    def train_dataloader(self) -> Any:
        """Shuffled rows; made anew for every epoch, so that the order is that of the epoch."""
        process, processes = self._place()
        order = EpochBatches(len(self.train), self.batch_size, seed=self.seed, process=process, processes=processes)
        order.set_epoch(0 if self.trainer is None else self.trainer.current_epoch)
        return DataLoader(self.train, sampler=order, batch_size=None, num_workers=self.workers)  # pyright: ignore

    def val_dataloader(self) -> Any:
        """Each row once: process r of w takes every w-th row, and no row is repeated to fill up."""
        batches = validation_batches(len(self.val), *self._place())
        return DataLoader(self.val, sampler=batches, batch_size=None)  # pyright: ignore

    def _place(self) -> tuple[int, int]:
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)


def validation_batches(num_rows: int, process: int = 0, processes: int = 1, *, most: int = 1024) -> list[list[int]]:
    """The rows that one of several processes measures: each row is in one batch of one process.

    All have equally many batches, for sharded parameters are gathered by all at once; so a process without rows has
    an empty one.

    Args:
        num_rows: how many rows there are.
        process, processes: which process this is, of how many.
        most: rows of a batch.

    Example:
        >>> validation_batches(5, 0, 2, most=2), validation_batches(5, 1, 2, most=2)
        ([[0, 2], [4]], [[1], [3]])
        >>> validation_batches(1, 1, 2)
        [[]]
    """
    rows = range(process, num_rows, processes)
    longest = -(-num_rows // processes)
    count = max(1, -(-longest // most))
    # Full batches as one process has them, but so that a row is left for each batch to come.
    starts = [max(0, min(number * most, len(rows) - count + number)) for number in range(count)]
    return [list(rows[start:end]) for start, end in pairwise([*starts, len(rows)])]

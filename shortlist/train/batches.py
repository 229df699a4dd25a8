"""The Lightning data module: training rows in the order of an epoch, validation rows once each."""

from __future__ import annotations

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
        process, processes = self._place()
        rows = range(process, len(self.val), processes)
        batches = [rows[start : start + 1024] for start in range(0, len(rows), 1024)]
        return DataLoader(self.val, sampler=[list(batch) for batch in batches], batch_size=None)  # pyright: ignore

    def _place(self) -> tuple[int, int]:
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

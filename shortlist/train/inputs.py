"""Inputs of a model: which data can be used, text and images as features, and batches of training rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from shortlist.data import Dataset, Inputs, frozen_encoder, frozen_features
from shortlist.data.encoders.pretrained import FrozenEncoder
from shortlist.errors import InputError
from shortlist.fit_options import FitOptions, SettledOptions
from shortlist.progress import progress_bar
from shortlist.targets import TargetForm, target_form
from shortlist.train.model.plan import MANY_LABELS, ModelPlan, text_rows

_ROWS = 1024
# A few rows at a time, so that the activations of a network for images stay in the processor's caches.
_ENCODED_ROWS = 8
_SHIFT = 4


def is_one_class(dataset: Dataset) -> bool:
    """Return whether rows have one class each, by the form of the labels."""
    return target_form(dataset.targets, dataset.num_labels) is TargetForm.CLASS_INDICES


def check_parts(dataset: Dataset, parts: Sequence[str], *, name: str = "dataset") -> None:
    """Raise InputError if a part does not exist, has no rows or no labels.

    Args:
        dataset: the data.
        parts: the parts that are needed.
        name: what messages call the dataset, such as its file.
    """
    existing = () if dataset.split is None else dataset.split.names
    for part in parts:
        if part not in existing:
            raise InputError(f"`{name}` must have a part {part!r}; it has {', '.join(existing) or 'no parts'}.")
        if not len(dataset.part_rows(part)):
            raise InputError(f"`{name}` must have rows in the part {part!r}; it has none.")
        if not int(dataset.label_counts(part).sum()):
            raise InputError(f"`{name}` must have labels in the part {part!r}; no row has one.")


def check_rows(dataset: Dataset, parts: Sequence[str], *, name: str = "dataset") -> None:
    """Check parts as `check_parts` does, and read all their rows: raise InputError if a feature is not finite."""
    check_parts(dataset, parts, name=name)
    if dataset.inputs.kind not in ("features", "sparse features"):
        return
    for part in parts:
        for rows in dataset.part_rows(part).split(_ROWS):
            row = _first_not_finite(dataset.inputs.batch(rows))
            if row is not None:
                raise InputError(f"`{name}` must have finite features; those of row {int(rows[row])} are not.")


def _first_not_finite(inputs: Tensor) -> int | None:
    if inputs.layout == torch.sparse_csr:
        entries = (~inputs.values().isfinite()).nonzero().flatten()
        first = torch.searchsorted(inputs.crow_indices(), entries[:1], right=True) - 1
    else:
        first = (~inputs.flatten(1).isfinite().all(1)).nonzero().flatten()[:1]
    return int(first[0]) if len(first) else None


def settle(options: FitOptions, dataset: Dataset) -> SettledOptions:
    """Return the options with none left open, for the inputs and the number of training rows of a dataset."""
    has_train = dataset.split is not None and "train" in dataset.split.names
    kind = dataset.inputs.kind
    # Thousands of labels take more steps, with words as with other sparse features.
    kind = "sparse features" if kind == "text" and dataset.num_labels >= MANY_LABELS else kind
    return options.settled(kind, len(dataset.part_rows("train")) if has_train else 0)


def row_batches(num_rows: int, size: int = _ROWS) -> Iterator[Tensor]:
    """Yield row indices in order, in batches."""
    yield from torch.arange(num_rows).split(size) if num_rows else ()


def prepare_inputs(
    dataset: Dataset, plan: ModelPlan, *, on_demand: PlannedEncoder | None = None, progress: bool = False
) -> Dataset:
    """Return the dataset with the inputs that the model of a plan takes.

    Args:
        dataset: raw inputs, or prepared ones, which are kept.
        plan: its ``frozen`` and ``words`` say what to do.
        on_demand: computes features when they are read and keeps none, as for new rows; without it they are computed
            now and cached on disk, where the next run finds them by their content.
        progress: whether to show a progress bar.

    Raises:
        InputError: if the frozen encoder takes other inputs, or is not the one of the training.
    """
    kind = dataset.inputs.kind
    if plan.frozen is None:
        return text_rows(dataset, plan.words) if plan.words is not None and kind == "text" else dataset
    if kind == plan.kind:
        return dataset
    encoder = on_demand or PlannedEncoder(plan)
    if kind != encoder.takes:
        raise InputError(f"`frozen` {encoder.key!r} takes {encoder.takes}; the dataset has {kind}.")
    if on_demand is not None:
        return replace(dataset, inputs=EncodedRows(dataset.inputs, encoder))
    with progress_bar(f"features of {encoder.key}", unit="rows", shown=progress) as bar:
        return frozen_features(dataset, encoder, batch_size=_ENCODED_ROWS, progress=bar.update)


def prepare_parts(dataset: Dataset, plan: ModelPlan, parts: Sequence[str], *, progress: bool = False) -> Dataset:
    """Return some parts with the inputs that the model of a plan takes: text of other parts is not read.

    Frozen features are those of all parts, because the cache finds them by their content as a whole.
    """
    if plan.words is not None and plan.frozen is None and dataset.inputs.kind == "text":
        dataset = dataset.subset(torch.cat([dataset.part_rows(part) for part in parts]).unique())
    return prepare_inputs(dataset, plan, progress=progress)


class PlannedEncoder:
    """The frozen encoder of a plan, built when there is something to encode.

    Args:
        plan: with ``frozen``.
    """

    def __init__(self, plan: ModelPlan) -> None:
        frozen = plan.frozen or {}
        self.key, self.takes, self.name = frozen.get("encoder", ""), frozen.get("takes", ""), frozen.get("name", "")
        self.dim, self._options = plan.shape[0], frozen.get("options", {})
        self._encoder: FrozenEncoder | None = None

    def __call__(self, inputs: object) -> Tensor:
        """Return features ``(B, dim)``."""
        if self._encoder is None:
            self._encoder = frozen_encoder(self.key, self._options)
            if self._encoder.name != self.name:
                rule = f"`frozen` {self.key!r} must be {self.name!r} as in training"
                raise InputError(f"{rule}; got {self._encoder.name!r}.")
        return self._encoder(inputs)


class EncodedRows:
    """Features that an encoder computes when rows are read.

    Args:
        inputs: of the kind that the encoder takes.
        encoder: the encoder.
    """

    kind = "features"

    def __init__(self, inputs: Inputs, encoder: PlannedEncoder) -> None:
        self.inputs, self.encoder = inputs, encoder

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (self.encoder.dim,)

    def batch(self, rows: Tensor) -> Tensor:
        """Return ``(B, dim)`` float32."""
        few = rows.split(_ENCODED_ROWS) if len(rows) else ()
        parts = [self.encoder(self.inputs.batch(some)).to(torch.float32) for some in few]
        return torch.cat(parts) if parts else torch.empty(0, self.encoder.dim)

    def take(self, rows: Tensor) -> EncodedRows:
        """Return some of the rows."""
        return EncodedRows(self.inputs.take(rows), self.encoder)

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Return those of the raw inputs."""
        return self.inputs.fingerprints(rows)


class EpochBatches(Sampler[list[int]]):
    """Batches of shuffled rows, a function of seed and epoch alone.

    Process r of w takes rows r, r + w, ... of each global batch, so the global batches are those of one process. The
    last batch of an epoch may be smaller; if it has fewer rows than there are processes, some get an empty part. A
    single last row joins the batch before it, because batch normalization cannot normalize one row.

    Args:
        num_rows: number of rows; at least one per process.
        batch_size: of the global batch; at least one per process.
        seed: of the order.
        process, processes: rank of this process and number of processes.

    Example:
        >>> batches = EpochBatches(8, 3, seed=0)
        >>> [len(batch) for batch in batches], sorted(row for batch in batches for row in batch)
        ([3, 3, 2], [0, 1, 2, 3, 4, 5, 6, 7])
        >>> [len(batch) for batch in EpochBatches(7, 3, seed=0)]
        [3, 4]
    """

    def __init__(self, num_rows: int, batch_size: int, *, seed: int, process: int = 0, processes: int = 1) -> None:
        if not 0 <= process < processes:
            raise ValueError(f"`process` must lie in [0, {processes}), the number of processes; got {process}.")
        # With fewer, some process would never have a row.
        for name, value in (("batch_size", batch_size), ("num_rows", num_rows)):
            if value < processes:
                raise InputError(f"`{name}` must be at least the number of processes, {processes}; got {value}.")
        self.num_rows, self.batch_size, self.seed = num_rows, batch_size, seed
        self.process, self.processes = process, processes
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        full, rest = divmod(self.num_rows, self.batch_size)
        return max(1, full + (rest > 1))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of this process, batch by batch."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(self.num_rows, generator=generator)
        starts = [number * self.batch_size for number in range(len(self))]
        for start, end in pairwise([*starts, self.num_rows]):
            yield order[start:end][self.process :: self.processes].tolist()


def validation_batches(num_rows: int, process: int = 0, processes: int = 1, *, most: int = _ROWS) -> list[list[int]]:
    """Return the rows that one of several processes validates: each row is in one batch of one process.

    All processes have the same number of batches, because sharded parameters are gathered by all at once; a process
    without rows has an empty batch.

    Args:
        num_rows: number of rows.
        process, processes: rank of this process and number of processes.
        most: the largest batch.

    Example:
        >>> validation_batches(5, 0, 2, most=2), validation_batches(5, 1, 2, most=2)
        ([[0, 2], [4]], [[1], [3]])
        >>> validation_batches(1, 1, 2)
        [[]]
    """
    rows = range(process, num_rows, processes)
    longest = -(-num_rows // processes)
    count = max(1, -(-longest // most))
    # Full batches as with one process, but leaving a row for each batch that follows.
    starts = [max(0, min(number * most, len(rows) - count + number)) for number in range(count)]
    return [list(rows[start:end]) for start, end in pairwise([*starts, len(rows)])]


class SetBatches(LightningDataModule):
    """The Lightning data module: training rows in the order of the epoch, validation rows once each.

    Args:
        train: training rows.
        val: validation rows.
        batch_size: of a step, over all processes.
        seed: of the order.
        workers: processes that read ahead; 0 reads in this process.
    """

    def __init__(self, train: Dataset, val: Dataset, *, batch_size: int, seed: int, workers: int = 0) -> None:
        super().__init__()
        self.train, self.val = train, val
        self.batch_size, self.seed, self.workers = batch_size, seed, workers

    def train_dataloader(self) -> Any:
        """Return shuffled batches; created for every epoch, so that the order is that of the epoch."""
        process, processes = self._rank()
        order = EpochBatches(len(self.train), self.batch_size, seed=self.seed, process=process, processes=processes)
        order.set_epoch(0 if self.trainer is None else self.trainer.current_epoch)
        return DataLoader(self.train, sampler=order, batch_size=None, num_workers=self.workers)  # pyright: ignore

    def val_dataloader(self) -> Any:
        """Return each row once: process r of w takes every w-th row, and none is repeated as padding."""
        batches = validation_batches(len(self.val), *self._rank())
        return DataLoader(self.val, sampler=batches, batch_size=None)  # pyright: ignore

    def _rank(self) -> tuple[int, int]:
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)


def crop_flip(images: Tensor) -> Tensor:
    """Pad each image with 4 black pixels, crop it at random to its own size, and mirror it with probability 1/2.

    Every image has its own draws, from torch's generator of the images' device.

    Args:
        images: ``(B, channels, H, W)``, of any dtype in which 0 is black.

    Returns:
        Same shape, dtype and device.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> images = torch.full((16, 3, 32, 32), 255, dtype=torch.uint8)
        >>> changed = crop_flip(images)
        >>> changed.shape, changed.dtype, bool((changed[:, :, 4:-4, 4:-4] == 255).all())
        (torch.Size([16, 3, 32, 32]), torch.uint8, True)
    """
    if images.dim() != 4:
        raise ValueError(f"`images` must have shape (B, channels, H, W); got {tuple(images.shape)}.")
    number, channels, height, width = images.shape
    device, border = images.device, 2 * _SHIFT
    padded = torch.nn.functional.pad(images, (_SHIFT, _SHIFT, _SHIFT, _SHIFT))
    top, left = torch.randint(border + 1, (2, number, 1), device=device)
    mirrored = torch.randint(2, (number, 1), device=device, dtype=torch.bool)
    rows = top + torch.arange(height, device=device)
    columns = left + torch.arange(width, device=device)
    columns = torch.where(mirrored, columns.flip(-1), columns)
    # One index per pixel, the same in all channels: a gather is several times as fast as indexing with four tensors.
    pixels = (rows.unsqueeze(2) * (width + border) + columns.unsqueeze(1)).flatten(1)
    return padded.flatten(2).gather(2, pixels.unsqueeze(1).expand(-1, channels, -1)).view(images.shape)

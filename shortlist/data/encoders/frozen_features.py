"""Features of a frozen encoder: computed once, cached on disk, resumed after an interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.inputs import Features, Inputs
from shortlist.errors import InputError
from shortlist.files import cache_folder
from shortlist.fingerprint import Digest
from shortlist.tensors import check_size

try:
    import fcntl
except ImportError:  # Windows has no advisory locks; two runs at once may compute the same rows twice.
    fcntl = None

_ROWS_BETWEEN_SYNCS = 1024


class Encoder(Protocol):
    """Maps a batch of inputs to features that do not depend on the rest of the batch."""

    @property
    def name(self) -> str:
        """Identifies the features: model, version and settings; part of the cache key."""
        ...

    @property
    def dim(self) -> int:
        """The number of features."""
        ...

    def __call__(self, inputs: Any, /) -> Tensor:
        """Encode what `Inputs.batch` returns; ``(B, dim)``, floating."""
        ...


def frozen_features(
    dataset: Dataset,
    encoder: Encoder,
    *,
    batch_size: int = 64,
    cache: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Dataset:
    """Replace the inputs by their features from an encoder.

    The features are cached as a float32 ``.npy`` file under the encoder's name and the content of the inputs, and
    memory-mapped. A run that is killed keeps the rows that it finished, and the next run continues from there.

    Args:
        dataset: inputs of a kind that the encoder accepts.
        encoder: see `Encoder`.
        batch_size: rows to encode at a time.
        cache: a folder; by default `cache_folder` of the user.
        progress: called with the number of rows done and of all rows.

    Returns:
        The dataset with inputs of kind ``features``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.data import Dataset, Texts, frozen_features
        >>> class Lengths:
        ...     name, dim = "text lengths", 1
        ...
        ...     def __call__(self, texts):
        ...         return torch.tensor([[float(len(text))] for text in texts])
        >>> texts = Dataset(Texts(["rose", "daisy"]), torch.tensor([0, 1]), ("a", "b"))
        >>> with TemporaryDirectory() as folder:
        ...     frozen_features(texts, Lengths(), cache=folder).inputs.batch(torch.tensor([1, 0]))
        tensor([[5.],
                [4.]])
    """
    for name in ("name", "dim"):
        if not hasattr(encoder, name):
            raise TypeError(f"`encoder` must have a {name}; {type(encoder).__name__} has none.")
    check_size("batch_size", batch_size)
    folder = (cache_folder() if cache is None else Path(cache)) / "features"
    path = folder / f"{_key(dataset.inputs, encoder)}.npy"
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"`{folder}` cannot be created: {error.strerror}; `cache` or SHORTLIST_CACHE can name another folder."
            ) from error
        _compute(dataset.inputs, encoder, path, batch_size, progress)
    return replace(dataset, inputs=Features(np.load(path, mmap_mode="r", allow_pickle=False)))


def _key(inputs: Inputs, encoder: Encoder) -> str:
    digest = Digest(f"{encoder.name}\0{encoder.dim}\0{len(inputs)}\0")
    for rows in torch.arange(len(inputs)).split(1024):
        for each in inputs.fingerprints(rows):
            digest.update(each)
    return digest.hex()


def _compute(
    inputs: Inputs, encoder: Encoder, path: Path, batch_size: int, progress: Callable[[int, int], object] | None
) -> None:
    """Append features to a partial file, whose size says how many rows are done, and rename it when it is complete."""
    partial = path.with_suffix(".partial")
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (len(inputs), encoder.dim)}
    )
    with _locked(partial) as file:
        if path.is_file():  # Another run finished while this one waited.
            return
        done = _rows_done(file, header.getvalue(), encoder.dim)
        unsynced = 0
        for rows in torch.arange(done, len(inputs)).split(batch_size) if done < len(inputs) else ():
            file.write(_encoded(inputs, encoder, rows))
            done, unsynced = done + len(rows), unsynced + len(rows)
            if unsynced >= _ROWS_BETWEEN_SYNCS:
                _sync(file)
                unsynced = 0
            if progress is not None:
                progress(done, len(inputs))
        _sync(file)
        partial.replace(path)


def _encoded(inputs: Inputs, encoder: Encoder, rows: Tensor) -> bytes:
    with torch.no_grad():
        features = encoder(inputs.batch(rows))
    if features.shape != (len(rows), encoder.dim):
        raise ValueError(
            f"`encoder` must return shape {(len(rows), encoder.dim)} for {len(rows)} rows; got {tuple(features.shape)}."
        )
    features = features.detach().to("cpu", torch.float32)
    finite = features.isfinite().all(-1)
    if not finite.all():
        raise ValueError(f"`encoder` returned a feature that is not finite for row {int(rows[~finite][0])}.")
    return features.contiguous().numpy().tobytes()


def _rows_done(file: BinaryIO, header: bytes, dim: int) -> int:
    """The number of complete rows of a partial file; positions the file after them, or starts a new one."""
    file.seek(0)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < len(header) or file.read(len(header)) != header:
        file.seek(0)
        file.truncate()
        file.write(header)
        return 0
    done = (size - len(header)) // (4 * dim)
    file.seek(len(header) + done * 4 * dim)
    file.truncate()
    return done


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file to continue it, with an exclusive lock."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file

"""Matrices in files, read a few rows at a time into memory of our own, so that a large file never fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.errors import InputError, reason
from shortlist.extras import require

ARRAYS = (".npy", ".npz", ".safetensors")
HDF = (".h5", ".hdf5")
_FLOATING = (np.float16, np.float32, np.float64)


class Matrix(NamedTuple):
    """A floating-point matrix that has not been read yet.

    Attributes:
        location: names the file and the array, for errors.
        shape: rows and columns.
        read: takes the first row and the block size, and yields the rows from there on in blocks.
    """

    location: str
    shape: tuple[int, int]
    read: Callable[[int, int], Iterator[Tensor]]


def open_array_file(path: Path, key: str | None, option: str = "key") -> tuple[ArrayFile, str]:
    """Open the arrays of a file, and return them with the name of the chosen one.

    Args:
        path: ``.npy``, ``.npz`` or ``.safetensors``.
        key: the array's name; needed if there are several.
        option: what the caller calls ``key``, for errors.
    """
    if path.suffix == ".npy":
        if key is not None:
            raise InputError(f"`{path}` is a single array, so there is none called {key!r}: leave out {option}.")
        # The arrays of a folder are opened on demand, so only this one is read.
        return open_arrays(path.parent), path.stem
    file = open_arrays(path)
    return file, _chosen(path, list(file.openers), key, option)


def open_matrix(path: Path, key: str | None, option: str = "key") -> Matrix:
    """Open a matrix in ``.npy``, ``.npz``, ``.safetensors`` or HDF5.

    Everything is read in blocks except a member of a compressed ``.npz``, which is decompressed as a whole.

    Raises:
        InputError: if there is no such array, or it is not a floating-point matrix.
    """
    if path.suffix in HDF:
        return _open_hdf(path, key, option)
    file, name = open_array_file(path, key, option)
    stored = file.stored(name)
    location = f"`{path}`" if path.suffix == ".npy" else file.location(name)
    bfloat16 = name in file.bfloat16
    shape = _checked(stored.shape, None if bfloat16 else stored.dtype, location)
    if not isinstance(stored, np.memmap):
        return Matrix(location, shape, lambda start, step: _array_blocks(stored, bfloat16, start, step))
    # Mapped pages count as memory of the process, and truncating a mapped file would kill it: read it instead.
    layout = _Layout(path, location, stored.offset, stored.dtype, shape, not stored.flags.c_contiguous, bfloat16)
    return Matrix(location, shape, layout.blocks)


class _Layout(NamedTuple):
    """Where the numbers of a matrix are in a file."""

    path: Path
    location: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, int]
    by_column: bool
    bfloat16: bool

    def blocks(self, start: int, step: int) -> Iterator[Tensor]:
        with self.path.open("rb", buffering=0) as file:
            for first in range(start, self.shape[0], step):
                last = min(first + step, self.shape[0])
                block = self._columns(file, first, last) if self.by_column else self._rows(file, first, last)
                yield _tensor(block, self.bfloat16)

    def _rows(self, file: BinaryIO, first: int, last: int) -> np.ndarray:
        block = np.empty((last - first, self.shape[1]), self.dtype)
        begin = self.offset + first * self.shape[1] * self.dtype.itemsize
        self._fill(file, block, begin)
        if hasattr(os, "posix_fadvise"):
            # The system fetches the next block while this one is processed.
            os.posix_fadvise(file.fileno(), begin + block.nbytes, block.nbytes, os.POSIX_FADV_WILLNEED)
        return block

    def _columns(self, file: BinaryIO, first: int, last: int) -> np.ndarray:
        block = np.empty((self.shape[1], last - first), self.dtype)
        for column in range(self.shape[1]):
            begin = self.offset + (column * self.shape[0] + first) * self.dtype.itemsize
            self._fill(file, block[column], begin)
        return block.T

    def _fill(self, file: BinaryIO, block: np.ndarray, begin: int) -> None:
        file.seek(begin)
        room = memoryview(block).cast("B")  # pyright: ignore[reportArgumentType]
        while len(room):
            # One call reads at most 2 GB on some systems.
            count = file.readinto(room)  # pyright: ignore[reportAttributeAccessIssue]
            if not count:
                raise InputError(f"{self.location} was truncated while it was being read.")
            room = room[count:]


def _array_blocks(array: np.ndarray, bfloat16: bool, start: int, step: int) -> Iterator[Tensor]:
    for first in range(start, len(array), step):
        yield _tensor(np.array(array[first : first + step]), bfloat16)


def _tensor(block: np.ndarray, bfloat16: bool) -> Tensor:
    """Return the same numbers in row-major order and native byte order."""
    native = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("="))
    return torch.from_numpy(native).view(torch.bfloat16) if bfloat16 else torch.from_numpy(native)


def _checked(shape: tuple[int, ...], dtype: np.dtype | None, location: str) -> tuple[int, int]:
    if dtype is not None and dtype.newbyteorder("=") not in _FLOATING:
        raise InputError(f"{location} must hold floating-point scores; got {dtype}.")
    if len(shape) != 2 or shape[1] == 0:
        raise InputError(f"{location} must have shape (rows, labels); got {tuple(shape)}.")
    return shape[0], shape[1]


def _chosen(path: Path, names: list[str], key: str | None, option: str) -> str:
    if key is None and len(names) != 1:
        found = ", ".join(map(repr, names)) or "none"
        raise InputError(f"`{path}` must hold one array, or {option} must choose one; it holds {found}.")
    return names[0] if key is None else key


def _open_hdf(path: Path, key: str | None, option: str) -> Matrix:
    h5py = require("h5py", extra="data")
    try:
        with h5py.File(path, "r") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = _chosen(path, names, key, option)
            if name.strip("/") not in names:
                found = ", ".join(map(repr, names)) or "none"
                raise InputError(f"`{path}` has no array {name!r}; it has {found}.")
            array: Any = file[name]
            location = f"`{path}` {name!r}"
            shape = _checked(array.shape or (), array.dtype, location)
            rows_per_chunk = array.chunks[0] if array.chunks else 1
    except OSError as error:
        raise InputError(f"`{path}` is not an HDF5 file: {reason(error)}.") from error

    def read(start: int, step: int) -> Iterator[Tensor]:
        # A chunk is decompressed as a whole, and only once if blocks hold whole chunks.
        step = max(1, step // rows_per_chunk) * rows_per_chunk if rows_per_chunk <= 4 * step else step
        try:
            with h5py.File(path, "r") as file:
                first = start
                while first < shape[0]:
                    last = min(first + step - first % step, shape[0])
                    yield _tensor(file[name][first:last], False)
                    first = last
        except OSError as error:
            raise InputError(f"{location} is damaged: {reason(error)}.") from error

    return Matrix(location, shape, read)

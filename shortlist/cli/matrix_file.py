"""A matrix in a file, read some rows at a time into memory of our own, so that no more than these are ever held."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.array_files import ArrayFile, open_arrays
from shortlist.extras import require

ARRAYS = (".npy", ".npz", ".safetensors")
HDF = (".h5", ".hdf5")
_FLOATING = (np.float16, np.float32, np.float64)


class Matrix(NamedTuple):
    """A floating matrix that is not read yet.

    Attributes:
        place: names the file and the array, for an error.
        shape: rows and columns.
        read: gives the rows from a number on, as many at a time as is said; the last block may have fewer.
    """

    place: str
    shape: tuple[int, int]
    read: Callable[[int, int], Iterator[Tensor]]


def open_array_file(path: Path, key: str | None, option: str) -> tuple[ArrayFile, str]:
    """The arrays of a file and the name of the chosen one; ``option`` is the one that chooses, for an error."""
    if path.suffix == ".npy":
        if key is not None:
            raise ValueError(f"`{path}` is one array and has none called {key!r}; leave {option} out.")
        # A folder's arrays are opened when they are asked for, so that none but this one is looked at.
        return open_arrays(path.parent), path.stem
    file = open_arrays(path)
    return file, _chosen(path, list(file.openers), key, option)


def open_matrix(path: Path, key: str | None) -> Matrix:
    """Open a matrix of `.npy`, `.npz`, `.safetensors` or HDF5.

    All but a member of a compressed `.npz`, which is unpacked as a whole, are read in parts.

    Raises:
        ValueError: for what is no floating matrix.
    """
    if path.suffix in HDF:
        return _open_hdf(path, key)
    file, name = open_array_file(path, key, "--key")
    stored = file.stored(name)
    place = f"`{path}`" if path.suffix == ".npy" else file.place(name)
    half = name in file.bfloat16
    shape = _checked(stored.shape, None if half else stored.dtype, place)
    if not isinstance(stored, np.memmap):
        return Matrix(place, shape, lambda start, step: _held_blocks(stored, half, start, step))
    # Mapped pages count as memory of the process, and a file that is cut while it is mapped would kill it.
    layout = _Layout(path, place, stored.offset, stored.dtype, shape, not stored.flags.c_contiguous, half)
    return Matrix(place, shape, layout.blocks)


class _Layout(NamedTuple):
    """Where the numbers of a matrix stand in a file."""

    path: Path
    place: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, int]
    by_column: bool
    half: bool

    def blocks(self, start: int, step: int) -> Iterator[Tensor]:
        with self.path.open("rb", buffering=0) as file:
            for first in range(start, self.shape[0], step):
                last = min(first + step, self.shape[0])
                part = self._columns(file, first, last) if self.by_column else self._rows(file, first, last)
                yield _tensor(part, self.half)

    def _rows(self, file: BinaryIO, first: int, last: int) -> np.ndarray:
        part = np.empty((last - first, self.shape[1]), self.dtype)
        begin = self.offset + first * self.shape[1] * self.dtype.itemsize
        self._fill(file, part, begin)
        if hasattr(os, "posix_fadvise"):
            # The system fetches the next block while this one is worked on.
            os.posix_fadvise(file.fileno(), begin + part.nbytes, part.nbytes, os.POSIX_FADV_WILLNEED)
        return part

    def _columns(self, file: BinaryIO, first: int, last: int) -> np.ndarray:
        part = np.empty((self.shape[1], last - first), self.dtype)
        for column in range(self.shape[1]):
            begin = self.offset + (column * self.shape[0] + first) * self.dtype.itemsize
            self._fill(file, part[column], begin)
        return part.T

    def _fill(self, file: BinaryIO, part: np.ndarray, begin: int) -> None:
        file.seek(begin)
        room = memoryview(part).cast("B")  # pyright: ignore[reportArgumentType]
        while len(room):
            # The system reads at most 2 GB at a time.
            count = file.readinto(room)  # pyright: ignore[reportAttributeAccessIssue]
            if not count:
                raise ValueError(f"{self.place} was cut short while it was read.")
            room = room[count:]


def _held_blocks(array: np.ndarray, half: bool, start: int, step: int) -> Iterator[Tensor]:
    for first in range(start, len(array), step):
        yield _tensor(np.array(array[first : first + step]), half)


def _tensor(part: np.ndarray, half: bool) -> Tensor:
    """The same numbers, row after row and in the byte order of this machine."""
    native = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("="))
    return torch.from_numpy(native).view(torch.bfloat16) if half else torch.from_numpy(native)


def _checked(shape: tuple[int, ...], dtype: np.dtype | None, place: str) -> tuple[int, int]:
    if dtype is not None and dtype.newbyteorder("=") not in _FLOATING:
        raise ValueError(f"{place} must hold floating scores; got {dtype}.")
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(f"{place} must have shape (rows, labels); got {tuple(shape)}.")
    return shape[0], shape[1]


def _chosen(path: Path, names: list[str], key: str | None, option: str) -> str:
    if key is None and len(names) != 1:
        told = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"`{path}` must hold one array, or {option} must choose; it holds {told}.")
    return names[0] if key is None else key


def _open_hdf(path: Path, key: str | None) -> Matrix:
    h5py = require("h5py", extra="data")
    try:
        with h5py.File(path, "r") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = _chosen(path, names, key, "--key")
            if name.strip("/") not in names:
                told = ", ".join(map(repr, names)) or "none"
                raise ValueError(f"`{path}`: has no array {name!r}; it has {told}.")
            array: Any = file[name]
            place = f"`{path}` {name!r}"
            shape = _checked(array.shape or (), array.dtype, place)
            rows_per_chunk = array.chunks[0] if array.chunks else 1
    except OSError as error:
        raise ValueError(f"`{path}` is not an HDF5 file: {_first_line(error)}.") from error

    def read(start: int, step: int) -> Iterator[Tensor]:
        # A chunk is unpacked as a whole, once if the blocks hold whole chunks.
        step = max(1, step // rows_per_chunk) * rows_per_chunk if rows_per_chunk <= 4 * step else step
        try:
            with h5py.File(path, "r") as file:
                first = start
                while first < shape[0]:
                    last = min(first + step - first % step, shape[0])
                    yield _tensor(file[name][first:last], False)
                    first = last
        except OSError as error:
            raise ValueError(f"{place} is damaged: {_first_line(error)}.") from error

    return Matrix(place, shape, read)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")

"""Named arrays in `.npz`, `.npy` and `.safetensors` files, mapped into memory and never unpickled."""

from __future__ import annotations

import json
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.text_files import need_file

# bfloat16 has no type in numpy: its bits are read as uint16, and `ArrayFile` knows which arrays these are.
SAFETENSORS = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "BF16": "<u2",
    "F32": "<f4",
    "F64": "<f8",
}
_MOST_DIMENSIONS, _MOST_BYTES = 32, 2**48


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by name, each opened when it is asked for.

    Args:
        path: for errors.
        openers: gives an array for each name: mapped where the file allows it, else read.
        notes: texts by name, which safetensors files may hold.
        bfloat16: the names of arrays that are opened as uint16 and hold the bits of bfloat16.
    """

    path: Path
    openers: Mapping[str, Callable[[], np.ndarray]]
    notes: Mapping[str, str] = field(default_factory=dict)
    bfloat16: frozenset[str] = frozenset()

    def __contains__(self, key: str) -> bool:
        """Whether there is an array of this name."""
        return key in self.openers

    def place(self, key: str) -> str:
        """Name the file and the array, for an error."""
        return f"`{self.path}` {key!r}"

    def array(self, key: str) -> np.ndarray | Tensor:
        """Open an array; a tensor in memory for bfloat16, else of numpy."""
        stored = self.stored(key)
        return torch.from_numpy(np.array(stored)).view(torch.bfloat16) if key in self.bfloat16 else stored

    def stored(self, key: str) -> np.ndarray:
        """Open an array; of bfloat16, the bits."""
        if key not in self.openers:
            raise ValueError(f"`{self.path}`: has no array {key!r}; it has {self.names()}.")
        return self.openers[key]()

    def names(self) -> str:
        """The names of the arrays, for an error."""
        return ", ".join(map(repr, self.openers)) or "none"


def open_arrays(path: str | Path) -> ArrayFile:
    """Open a `.npz`, a `.safetensors`, or a folder of `.npy` files, whose names are the keys.

    Raises:
        ValueError: for a file that is damaged or of another format; arrays are looked at only when they are opened.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise ValueError(f"`{path}` holds no `.npy` files.")
        return ArrayFile(path, {file.stem: lambda file=file: _npy(file) for file in files})
    path = need_file(path)
    if path.suffix.lower() == ".npz":
        return _open_npz(path)
    if path.suffix.lower() == ".safetensors":
        return _open_safetensors(path)
    raise ValueError(f"`{path}` must end in .npz, .npy or .safetensors.")


def _npy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return _mapped_npy(path, file, 0, path.stat().st_size, f"`{path}`")


def _mapped_npy(path: Path, file: BinaryIO, offset: int, size: int, place: str) -> np.ndarray:
    """Map the array whose `.npy` header stands at an offset of a file, and must fit into a size."""
    file.seek(offset)
    dtype, shape, order = _npy_header(file, place)
    begin = file.tell()
    return _mapped(path, dtype, begin, shape, order, offset + size - begin, place)


def _npy_header(file: Any, place: str) -> tuple[np.dtype, tuple[int, ...], Any]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"version {version} of the format is not one of {', '.join(map(str, readers))}")
        with warnings.catch_warnings():  # Headers of Python 2 are read all the same.
            warnings.filterwarnings("ignore", message="Reading `.npy` or `.npz` file required additional header")
            shape, fortran, dtype = readers[version](file)
    except (ValueError, EOFError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise ValueError(f"{place} is not an array of numpy: {_reason(error)}.") from error
    _refuse_type(dtype, place)
    return dtype, shape, "F" if fortran else "C"


def _mapped(
    path: Path, dtype: np.dtype, begin: int, shape: tuple[int, ...], order: Any, room: int, place: str
) -> np.ndarray:
    need = _bytes_needed(shape, dtype, place)
    if need > room:
        raise ValueError(f"{place} is cut short: shape {shape} of {dtype} needs {need} bytes; got {room}.")
    if need == 0:
        return np.zeros(shape, dtype)  # An empty part of a file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r", offset=begin, shape=shape, order=order)


def _bytes_needed(shape: tuple[int, ...], dtype: np.dtype, place: str) -> int:
    """How many bytes an array takes; ValueError for a shape that no array has."""
    # A dimension of 0 must not hide others that numpy cannot count.
    stated = math.prod(max(length, 1) for length in shape) * dtype.itemsize
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0 or stated > _MOST_BYTES:
        rule = f"must have up to {_MOST_DIMENSIONS} dimensions from 0 and 2^48 bytes"
        raise ValueError(f"{place} {rule}; got shape {shape!s:.80} of {dtype}.")
    if not dtype.itemsize:
        raise ValueError(f"{place} must hold numbers or texts; got {dtype}, which has no content.")
    return math.prod(shape) * dtype.itemsize


def _open_npz(path: Path) -> ArrayFile:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    except (zipfile.BadZipFile, OSError, struct.error, UnicodeDecodeError, NotImplementedError) as error:
        raise ValueError(f"`{path}` is not a whole `.npz` file: {_reason(error)}.") from error
    return ArrayFile(path, {info.filename[:-4]: lambda info=info: _npz_member(path, info) for info in members})


def _npz_member(path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    """Map a member that is stored as it is; read one that is compressed."""
    place = f"`{path}` {info.filename[:-4]!r}"
    if info.flag_bits & 1:
        raise ValueError(f"{place} must not be encrypted.")
    if info.compress_type == zipfile.ZIP_STORED:
        size = os.path.getsize(path)
        with path.open("rb") as file:
            # The directory tells where the member's own header stands; the lengths in it tell where its data begins.
            inside = 0 <= info.header_offset <= size
            file.seek(info.header_offset if inside else size)
            header = file.read(30)
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise ValueError(f"{place} is damaged: its header is not where the directory of the file says.")
            begin = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
            return _mapped_npy(path, file, begin, min(info.file_size, size - begin), place)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(info) as member:
            dtype, shape, order = _npy_header(member, place)
            need = _bytes_needed(shape, dtype, place)
            # Before anything is unpacked, because a few bytes can be packed zeros that fill the memory.
            _refuse_length(need, info.file_size - member.tell(), shape, dtype, place)
            content = member.read(need)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"{place} is damaged: {_reason(error)}.") from error
    _refuse_length(need, len(content), shape, dtype, place)  # The directory of the file may have been wrong.
    if need == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(content, dtype).reshape(shape, order=order)


def _refuse_length(need: int, got: int, shape: tuple[int, ...], dtype: np.dtype, place: str) -> None:
    if got != need:
        what = "is cut short" if got < need else "is too long"
        raise ValueError(f"{place} {what}: shape {shape} of {dtype} needs {need} bytes; got {got}.")


def _open_safetensors(path: Path) -> ArrayFile:
    size = os.path.getsize(path)
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8 or length > 10**8:
            raise ValueError(f"`{path}` is not a whole safetensors file: its header does not fit into {size} bytes.")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"`{path}` is not a safetensors file: its header is not JSON.") from error
    if not isinstance(header, dict):
        raise ValueError(f"`{path}` is not a safetensors file: its header is not an object with keys.")
    notes = header.pop("__metadata__", None) or {}
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise ValueError(f"`{path}` '__metadata__' must hold texts by name.")
    openers = {key: lambda key=key: _safetensor(path, key, header[key], 8 + length, size) for key in header}
    bits = frozenset(key for key, entry in header.items() if isinstance(entry, dict) and entry.get("dtype") == "BF16")
    return ArrayFile(path, openers, notes, bits)


def _safetensor(path: Path, key: str, entry: Any, begin: int, size: int) -> np.ndarray:
    place = f"`{path}` {key!r}"
    try:
        kind, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = all(type(number) is int and number >= 0 for number in (*shape, first, last))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place} must have dtype, shape and data_offsets in the header; got {entry!r:.60}."
        ) from error
    if kind not in SAFETENSORS:
        raise ValueError(f"{place} must have one of the types {', '.join(SAFETENSORS)}; got {kind!r}.")
    dtype = np.dtype(SAFETENSORS[kind])
    if not numbers or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{place}: shape {shape} of {kind} does not fit its data_offsets {first} and {last}.")
    return _mapped(path, dtype, begin + first, shape, "C", size - begin - first, place)


def _refuse_type(dtype: np.dtype, place: str) -> None:
    if dtype.hasobject:
        raise ValueError(f"{place} must hold numbers or texts; got Python objects, which are not unpickled.")
    if dtype.names is not None or dtype.kind not in "?biufUS":
        raise ValueError(f"{place} must hold numbers or texts; got {dtype}.")


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")

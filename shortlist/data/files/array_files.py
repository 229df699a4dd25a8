"""Named arrays in `.npz`, `.npy` and `.safetensors` files, memory-mapped where possible and never unpickled."""

from __future__ import annotations

import json
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.text_files import need_file
from shortlist.errors import InputError, reason
from shortlist.limits import check_unpacked

# numpy has no bfloat16: its bits are read as uint16, and `ArrayFile` knows which arrays these are.
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
_MAX_DIMENSIONS, _MAX_BYTES = 32, 2**48  # What numpy can hold, and what a file system can.
_PIECE = 2**20


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by name, each opened on request.

    Args:
        path: for errors.
        openers: a function for each name that maps the array where the file allows it, and else reads it.
        notes: texts by name, which safetensors files may hold.
        bfloat16: names of the arrays that are opened as uint16 and hold the bits of bfloat16.
        compressed: functions for the names that are stored compressed, which describe the array without reading it.
    """

    path: Path
    openers: Mapping[str, Callable[[], np.ndarray]]
    notes: Mapping[str, str] = field(default_factory=dict)
    bfloat16: frozenset[str] = frozenset()
    compressed: Mapping[str, Callable[[], CompressedArray]] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        """Whether there is an array of this name."""
        return key in self.openers

    def location(self, key: str) -> str:
        """The file and the array, for an error."""
        return f"`{self.path}` {key!r}"

    def array(self, key: str) -> np.ndarray | Tensor:
        """Open an array: a tensor in memory for bfloat16, else a numpy array."""
        stored = self.stored(key)
        return torch.from_numpy(np.array(stored)).view(torch.bfloat16) if key in self.bfloat16 else stored

    def stored(self, key: str) -> np.ndarray:
        """Open an array; of bfloat16, the bits."""
        self._check(key)
        return self.openers[key]()

    def lazy(self, key: str) -> np.ndarray | CompressedArray:
        """Open an array like `stored`, but read a compressed one only when its first rows are requested."""
        self._check(key)
        return self.compressed[key]() if key in self.compressed else self.openers[key]()

    def names(self) -> str:
        """The names of the arrays, for an error."""
        return ", ".join(map(repr, self.openers)) or "none"

    def _check(self, key: str) -> None:
        if key not in self.openers:
            raise InputError(f"`{self.path}`: has no array {key!r}; it has {self.names()}.")


class CompressedArray:
    """A compressed array of a `.npz`, read when its first rows are requested; other processes read it again."""

    def __init__(self, path: Path, info: zipfile.ZipInfo) -> None:
        self._path, self._info, self._content = path, info, None
        with _opened_member(path, info) as (dtype, shape, _, _):
            self.dtype, self.shape, self.ndim = dtype, shape, len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if self._content is None:
            self._content = _read_member(self._path, self._info)
        return self._content[rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_content": None}


def open_arrays(path: str | Path) -> ArrayFile:
    """Open a `.npz`, a `.safetensors`, or a folder of `.npy` files, whose names are the keys.

    Raises:
        InputError: for a file that is damaged or of another format; arrays are checked only when they are opened.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise InputError(f"`{path}` holds no `.npy` files.")
        return ArrayFile(path, {file.stem: partial(_map_npy, file) for file in files})
    path = need_file(path)
    if path.suffix.lower() == ".npz":
        return _open_npz(path)
    if path.suffix.lower() == ".safetensors":
        return _open_safetensors(path)
    raise InputError(f"`{path}` must end in .npz, .npy or .safetensors.")


def _map_npy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return _map_array(path, file, 0, path.stat().st_size, f"`{path}`")


def _map_array(path: Path, file: BinaryIO, offset: int, size: int, where: str) -> np.ndarray:
    """Map the array whose `.npy` header begins at an offset; header and content must fit into ``size`` bytes."""
    file.seek(offset)
    dtype, shape, order = _npy_header(file, where)
    begin = file.tell()
    return _mapped(path, dtype, begin, shape, order, offset + size - begin, where)


def _npy_header(file: Any, where: str) -> tuple[np.dtype, tuple[int, ...], Literal["C", "F"]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"version {version} of the format is not one of {', '.join(map(str, readers))}")
        with warnings.catch_warnings():  # Headers written by Python 2 are fine.
            warnings.filterwarnings("ignore", message="Reading `.npy` or `.npz` file required additional header")
            shape, fortran, dtype = readers[version](file)
    except (ValueError, EOFError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise InputError(f"{where} is not a numpy array: {reason(error)}.") from error
    if dtype.hasobject:
        raise InputError(f"{where} must hold numbers or texts; got Python objects, which are never unpickled.")
    if dtype.names is not None or dtype.kind not in "?biufUS":
        raise InputError(f"{where} must hold numbers or texts; got {dtype}.")
    return dtype, shape, "F" if fortran else "C"


def _mapped(
    path: Path,
    dtype: np.dtype,
    begin: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    available: int,
    where: str,
) -> np.ndarray:
    need = _bytes_needed(shape, dtype, where)
    if need > available:
        raise InputError(f"{where} is cut short: shape {shape} of {dtype} needs {need} bytes; got {available}.")
    if need == 0:
        return np.zeros(shape, dtype)  # An empty range of a file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r", offset=begin, shape=shape, order=order)


def _bytes_needed(shape: tuple[int, ...], dtype: np.dtype, where: str) -> int:
    """The size of an array in bytes; InputError for a shape that no array can have."""
    # A dimension of 0 must not hide others that numpy cannot count.
    stated = math.prod(max(length, 1) for length in shape) * dtype.itemsize
    if len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0 or stated > _MAX_BYTES:
        rule = f"must have at most {_MAX_DIMENSIONS} dimensions, none negative, and 2^48 bytes"
        raise InputError(f"{where} {rule}; got shape {shape!s:.80} of {dtype}.")
    if not dtype.itemsize:
        raise InputError(f"{where} must hold numbers or texts; got {dtype}, which has no content.")
    return math.prod(shape) * dtype.itemsize


def _open_npz(path: Path) -> ArrayFile:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename[:-4]: info for info in archive.infolist() if info.filename.endswith(".npy")}
    except (zipfile.BadZipFile, OSError, struct.error, UnicodeDecodeError, NotImplementedError) as error:
        raise InputError(f"`{path}` is not a complete `.npz` file: {reason(error)}.") from error
    stored = {key for key, info in members.items() if info.compress_type == zipfile.ZIP_STORED}
    return ArrayFile(
        path,
        {key: partial(_map_member if key in stored else _read_member, path, info) for key, info in members.items()},
        compressed={key: partial(CompressedArray, path, info) for key, info in members.items() if key not in stored},
    )


def _map_member(path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    """Map a member that is stored uncompressed."""
    where = _check_member(path, info)
    size = os.path.getsize(path)
    with path.open("rb") as file:
        # The archive's directory says where the member's own header is; the lengths in it say where its data begin.
        file.seek(info.header_offset if 0 <= info.header_offset <= size else size)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise InputError(f"{where} is damaged: its header is not where the archive's directory says.")
        begin = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        return _map_array(path, file, begin, min(info.file_size, size - begin), where)


def _read_member(path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    """Read a compressed member."""
    where = f"`{path}` {info.filename[:-4]!r}"
    with _opened_member(path, info) as (dtype, shape, order, member):
        content = np.empty(_bytes_needed(shape, dtype, where), np.uint8)
        filled = 0
        # In pieces, straight into place: the archive would hold all pieces and their sum at once.
        while filled < len(content) and (got := member.read(min(_PIECE, len(content) - filled))):
            content[filled : filled + len(got)] = np.frombuffer(got, np.uint8)
            filled += len(got)
    _check_length(len(content), filled, shape, dtype, where)  # The archive's directory may have been wrong.
    return content.view(dtype).reshape(shape, order=order) if len(content) else np.zeros(shape, dtype)


@contextmanager
def _opened_member(
    path: Path, info: zipfile.ZipInfo
) -> Iterator[tuple[np.dtype, tuple[int, ...], Literal["C", "F"], Any]]:
    """Open a compressed member behind its checked header: dtype, shape, order and the file."""
    where = _check_member(path, info)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(info) as member:
            dtype, shape, order = _npy_header(member, where)
            # Before anything is decompressed: a few bytes can be compressed zeros that fill the memory.
            _check_length(_bytes_needed(shape, dtype, where), info.file_size - member.tell(), shape, dtype, where)
            check_unpacked(info.file_size, min(info.compress_size, os.path.getsize(path)), where)
            yield dtype, shape, order, member
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{where} is damaged: {reason(error)}.") from error


def _check_member(path: Path, info: zipfile.ZipInfo) -> str:
    where = f"`{path}` {info.filename[:-4]!r}"
    if info.flag_bits & 1:
        raise InputError(f"{where} must not be encrypted.")
    return where


def _check_length(need: int, got: int, shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    if got != need:
        problem = "is cut short" if got < need else "is too long"
        raise InputError(f"{where} {problem}: shape {shape} of {dtype} needs {need} bytes; got {got}.")


def _open_safetensors(path: Path) -> ArrayFile:
    size = os.path.getsize(path)
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8 or length > 10**8:
            raise InputError(f"`{path}` is not a complete safetensors file: its header does not fit into {size} bytes.")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise InputError(f"`{path}` is not a safetensors file: its header is not JSON.") from error
    if not isinstance(header, dict):
        raise InputError(f"`{path}` is not a safetensors file: its header is not an object with keys.")
    notes = header.pop("__metadata__", None) or {}
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise InputError(f"`{path}` '__metadata__' must hold texts by name.")
    _check_offsets(path, header, size - 8 - length)
    openers = {key: partial(_map_tensor, path, key, header[key], 8 + length, size) for key in header}
    bits = frozenset(key for key, entry in header.items() if isinstance(entry, dict) and entry.get("dtype") == "BF16")
    return ArrayFile(path, openers, notes, bits)


def _check_offsets(path: Path, header: dict[str, Any], size: int) -> None:
    """Refuse arrays that overlap, leave holes or do not end with the file: hidden bytes, or one array in another."""
    spans = []
    for key, entry in header.items():
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(place) is int for place in offsets):
            raise _bad_entry(f"`{path}` {key!r}", entry)
        spans.append((*offsets, key))
    end = 0
    for first, last, key in sorted(spans):
        if first != end or last < first:
            raise InputError(f"`{path}` {key!r} must begin where the array before it ends, at {end}; got {first}.")
        end = last
    if end < size:
        raise InputError(f"`{path}` must end with its last array, after {end} bytes of data; got {size}.")


def _bad_entry(where: str, entry: Any) -> InputError:
    return InputError(f"{where} must have dtype, shape and data_offsets in the header; got {entry!r:.60}.")


def _map_tensor(path: Path, key: str, entry: Any, begin: int, size: int) -> np.ndarray:
    where = f"`{path}` {key!r}"
    try:
        kind, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        valid = isinstance(entry["shape"], list)
        valid = valid and all(type(number) is int and number >= 0 for number in (*shape, first, last))
    except (KeyError, TypeError, ValueError) as error:
        raise _bad_entry(where, entry) from error
    if not isinstance(kind, str) or kind not in SAFETENSORS:
        raise InputError(f"{where} must have one of the types {', '.join(SAFETENSORS)}; got {kind!r}.")
    dtype = np.dtype(SAFETENSORS[kind])
    if not valid or last - first != math.prod(shape) * dtype.itemsize:
        raise InputError(f"{where}: shape {shape} of {kind} does not match its data_offsets {first} and {last}.")
    return _mapped(path, dtype, begin + first, shape, "C", size - begin - first, where)

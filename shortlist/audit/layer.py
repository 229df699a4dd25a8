"""Read the inputs of an audit: a layer (a matrix, a module or a file) and label sets."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.audit.system import Array, Indices, Mode, System
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.labels import LabelsLike, Numbers, read_numbers
from shortlist.limits import check_unpacked
from shortlist.targets import to_index_lists

Layer = Numbers | nn.Module | str | Path
LabelSets = LabelsLike | Sequence[Iterable[int]]


def read_system(layer: Layer, bias: Numbers | None, *, mode: Mode, key: str | None, dft: int | None) -> System:
    """Read and check weight and bias.

    Raises:
        ValueError: for a wrong shape, a row that is not finite, or columns that are not the Fourier matrix.
        InputError: for a file that cannot be read.
    """
    if mode not in ("sign", "top-k"):
        raise InputError(f'`mode` must be "sign" or "top-k"; got {mode!r}.')
    if key is not None and not isinstance(layer, str | Path):
        raise InputError(f"`key` chooses among the arrays of a file, but `weight` is not a file; got {key!r}.")
    if dft is not None and (not isinstance(dft, int) or dft < 0):
        raise InputError(f"`dft` must be an integer, at least 0; got {dft!r}.")
    if isinstance(layer, str | Path):
        weight = _read_numbers("weight", read_array(layer, key), 2)
    elif isinstance(layer, nn.Module):
        degree = getattr(layer, "dft_degree", None)
        dft = degree if dft is None else dft
        weight = _read_numbers("weight", _module_weight(layer), 2)
        bias = getattr(layer, "bias", None) if bias is None else bias
    else:
        weight = _read_numbers("weight", layer, 2)
    if min(weight.shape) == 0:
        raise InputError(f"`weight` must have at least one label and one feature; got shape {weight.shape}.")
    offset = None if bias is None else _read_numbers("bias", bias, 1)
    if offset is not None and len(offset) != len(weight):
        raise InputError(f"`bias` must have one entry per label, {len(weight)}; got {len(offset)}.")
    system = System(weight, offset, mode, dft)
    if dft is not None and not system.is_fourier:
        raise InputError(
            f"`dft` is {dft}, but the first {2 * dft + 1} columns of `weight` are not that Fourier matrix."
        )
    return system


def _module_weight(module: nn.Module) -> Tensor:
    explicit: Callable[[torch.dtype], Tensor] | None = getattr(module, "explicit_weight", None)
    if explicit is not None:
        return explicit(torch.float64)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"`weight` must be a matrix or a module that has one; {type(module).__name__} has no `weight`.")
    return weight


def _read_numbers(name: str, values: Any, dims: int) -> Array:
    dense = getattr(values, "toarray", None)  # of scipy, where a weight that is not stored is 0
    x = read_numbers(values if dense is None else dense(), name=name).detach().cpu()
    # numpy has no bfloat16, and float64 holds every floating type exactly.
    array = (x.double() if x.is_floating_point() else x).numpy()
    if array.ndim != dims:
        raise InputError(f"`{name}` must have {dims} dimension{'s' * (dims > 1)}; got shape {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must hold real numbers; got {array.dtype}.")
    array = array.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, dims))))
    if len(wrong):
        raise InputError(f"`{name}` must be finite; row {wrong[0]} is not ({len(wrong)} in all).")
    return array


def read_array(path: str | Path, key: str | None) -> Any:
    """One array of a ``.safetensors``, ``.npz`` or ``.npy`` file; without ``key``, its only matrix."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"`{path}` is not a file.")
    try:
        if path.suffix == ".safetensors":
            return _from_safetensors(path, key)
        if path.suffix in (".npz", ".npy"):
            return _from_numpy(path, key)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"`{path}` cannot be read: {error}.") from error
    raise InputError(f"`{path}` must end in .safetensors, .npz or .npy.")


def array_names(path: str | Path) -> list[str]:
    """Names of the arrays in a ``.safetensors`` or ``.npz`` file; empty for other files."""
    path = Path(path)
    if path.suffix == ".safetensors":
        with require("safetensors", extra="audit").safe_open(path, framework="pt") as file:
            return list(file.keys())
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as loaded:
            return list(loaded.files)
    return []


def _from_safetensors(path: Path, key: str | None) -> Tensor:
    safetensors = require("safetensors", extra="audit")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            dims = {name: len(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
            return file.get_tensor(_choose(path, dims, key))
    except safetensors.SafetensorError as error:
        raise InputError(f"`{path}` cannot be read: {error}.") from error


# What numpy and zipfile raise for damaged files.
_DAMAGED = (ValueError, KeyError, NotImplementedError, RuntimeError, SyntaxError, TypeError)
_DAMAGED += (zlib.error, tokenize.TokenError, struct.error, OverflowError)


def _from_numpy(path: Path, key: str | None) -> np.ndarray:
    try:
        if not zipfile.is_zipfile(path):
            if key is not None:
                raise InputError(f"`{path}` is a single array, without one named {key!r}.")
            return np.array(np.lib.format.open_memmap(path, mode="r"))
        # Open the file here, because numpy leaks the handle of a file that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            members = {info.filename.removesuffix(".npy"): info for info in loaded.zip.infolist()}
            shapes = {name: _shape(loaded.zip, info) for name, info in members.items()}
            name = _choose(path, {name: len(shape) for name, shape in shapes.items() if shape is not None}, key)
            check_unpacked(members[name].file_size, members[name].compress_size, f"`{path}` {name!r}")
            return loaded[name]
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}.") from error


def _shape(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[int, ...] | None:
    """Of an array in a ``.npz``, from its header, which numpy would believe; None for a member of another kind."""
    if not info.filename.endswith(".npy"):
        return None
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if math.prod(shape) * dtype.itemsize != info.file_size - file.tell():
            raise ValueError(f"{info.filename} does not have the size of its shape {shape}")
        return shape


def _choose(path: Path, dims: dict[str, int], key: str | None) -> str:
    names = ", ".join(sorted(dims)) or "no array"
    if key is not None:
        if key not in dims:
            raise InputError(f"`{path}` has no array {key!r}; it holds {names}.")
        return key
    matrices = [name for name, dim in dims.items() if dim == 2]
    if len(matrices) != 1:
        raise InputError(f"`{path}` must hold exactly one matrix unless a key is given; it holds {names}.")
    return matrices[0]


def read_label_sets(label_sets: LabelSets, num_labels: int) -> list[Indices]:
    """Each set as sorted label indices.

    Raises:
        ValueError: if a label is out of range or repeated; the message names the set.
    """
    if isinstance(label_sets, Sequence):
        return [_one_set(position, labels, num_labels) for position, labels in enumerate(label_sets)]
    lists = to_index_lists(label_sets, num_labels, name="label_sets").cpu().numpy()
    return [np.sort(row[row >= 0]) for row in lists]


def _one_set(position: int, labels: object, num_labels: int) -> Indices:
    if not isinstance(labels, Iterable):
        raise TypeError(f"`label_sets` must hold sequences of labels; set {position} is {labels!r}.")
    values = np.asarray(list(labels))
    if values.size == 0:
        return np.empty(0, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise TypeError(f"`label_sets` must hold integers; set {position} does not.")
    values = np.sort(values.astype(np.int64))
    outside = values[(values < 0) | (values >= num_labels)]
    if len(outside):
        raise InputError(f"`label_sets` must hold labels in [0, {num_labels - 1}]; set {position} has {outside[0]}.")
    twice = values[1:][values[1:] == values[:-1]]
    if len(twice):
        raise InputError(f"`label_sets` must hold a label once per set; set {position} has {twice[0]} twice.")
    return values

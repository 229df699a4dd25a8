"""CIFAR-10 and CIFAR-100: the published folders of pickles, read without unpickling, and npz files."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_keys
from shortlist.data.files.text_files import need_file
from shortlist.data.files.vocabularies import number_names
from shortlist.data.formats.restricted_pickle import read_plain_pickle
from shortlist.data.groups import Groups
from shortlist.data.images import ImageArray

_FOLDERS = ("cifar-100-python", "cifar-10-batches-py")
_PIXELS = 3 * 32 * 32


class _Part(NamedTuple):
    """Some rows, of one file or of some arrays of it."""

    place: str  # how errors call it
    split: str
    images: Any  # (N, H, W, 3) uint8
    fine: np.ndarray  # (N,) int64
    coarse: np.ndarray | None


class _Source(NamedTuple):
    """What a folder or a file holds."""

    parts: list[_Part]
    fine_names: tuple[str, ...]
    coarse_names: tuple[str, ...]
    fine_to_coarse: np.ndarray | None


def read_cifar(path: str | Path, *, labels: str = "fine") -> Dataset:
    """Read CIFAR-100 or CIFAR-10.

    Layouts::

        cifar-100-python/     train, test: dict of data (N, 3072) uint8, fine_labels, coarse_labels
                              meta: dict of fine_label_names, coarse_label_names
        cifar-10-batches-py/  data_batch_1, ..., data_batch_5, test_batch: dict of data, labels
                              batches.meta: dict of label_names
        *.npz                 x_train, y_train, x_test, y_test with x (N, H, W, 3) uint8; if there are any, also x_val,
                              y_val, fine_names, coarse_names, fine_to_coarse (n,), y_coarse_train, y_coarse_test;
                              parts may be spelled otherwise, as in `part_names`

    The pickles are read by `read_plain_pickle`, which executes nothing. Pixels stay on the disk; those of an npz are
    read as a whole with the first batch.

    Args:
        path: one of the folders, a folder that holds one of them, or an npz file.
        labels: ``fine`` for the classes, ``coarse`` for the superclasses of CIFAR-100.

    Returns:
        Images with class indices, split into train and test; with fine labels of CIFAR-100,
        ``label_groups["superclass"]``.

    Raises:
        ValueError: names the file and the row; also where two rows of one fine label differ in the coarse label.

    Example:
        >>> import pickle
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> names = {"fine_label_names": ["beaver", "dolphin", "trout"], "coarse_label_names": ["mammals", "fish"]}
        >>> rows = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [2, 0], "coarse_labels": [1, 0]}
        >>> with TemporaryDirectory() as folder:
        ...     for name, content in (("meta", names), ("train", rows), ("test", rows)):
        ...         _ = Path(folder, name).write_bytes(pickle.dumps(content))
        ...     cifar = read_cifar(folder)
        ...     cifar[0].labels, cifar.label_groups["superclass"].index, len(cifar.part("test"))
        (('trout',), tensor([ 0, -1,  1]), 2)

    References:
        Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(f"`labels` must be 'fine' or 'coarse'; got {labels!r}.")
    source = _read_npz(need_file(path)) if Path(path).suffix == ".npz" else _read_folder(Path(path))
    superclass = _superclasses(source)
    if labels == "coarse" and superclass is None:
        raise ValueError(f"`{path}` has no coarse labels, so `labels` must be 'fine'; got 'coarse'.")
    targets = np.concatenate([part.fine for part in source.parts])
    names, groups = source.fine_names, {}
    if superclass is not None:
        groups = {"superclass": Groups(torch.from_numpy(superclass), source.coarse_names)}
        if labels == "coarse":
            names, groups = source.coarse_names, {}
            for part in source.parts:
                bad = np.flatnonzero(superclass[part.fine] < 0)
                if len(bad):
                    raise ValueError(f"{part.place} row {bad[0]}: fine label {part.fine[bad[0]]} has no coarse label.")
            targets = superclass[targets]
    return Dataset(
        ImageArray([part.images for part in source.parts]),
        torch.from_numpy(targets),
        names,
        label_groups=groups,
        split=Groups.of((part.split for part in source.parts for _ in part.fine), order=PARTS),
        name=f"CIFAR-{len(source.fine_names)}",
    )


def _superclasses(source: _Source) -> np.ndarray | None:
    """The coarse label of each fine label, -1 where no row tells; None if nothing is said of coarse labels."""
    if source.fine_to_coarse is None and all(part.coarse is None for part in source.parts):
        return None
    known = source.fine_to_coarse
    table = np.full(len(source.fine_names), -1, dtype=np.int64) if known is None else known.copy()
    for part in source.parts:
        if part.coarse is None:
            continue
        fresh, rows = np.unique(part.fine, return_index=True)
        open_ = table[fresh] < 0
        table[fresh[open_]] = part.coarse[rows[open_]]
        wrong = np.flatnonzero(table[part.fine] != part.coarse)
        if len(wrong):
            row = wrong[0]
            raise ValueError(
                f"{part.place} row {row}: coarse label must be {table[part.fine[row]]}, as elsewhere for fine label "
                f"{part.fine[row]}; got {part.coarse[row]}."
            )
    return table


def _read_folder(path: Path) -> _Source:
    inner = [path / name for name in _FOLDERS if (path / name).is_dir()]
    path = inner[0] if len(inner) == 1 else path
    if (path / "batches.meta").is_file():
        meta = path / "batches.meta"
        fine = _names(_value(_read_dict(meta), "label_names", meta), f"`{meta}`: 'label_names'")
        files = [("train", path / f"data_batch_{number}") for number in range(1, 6)] + [("test", path / "test_batch")]
        return _Source([_read_batch(file, split, ("labels",), (len(fine),)) for split, file in files], fine, (), None)
    if (path / "meta").is_file():
        meta = path / "meta"
        content, keys = _read_dict(meta), ("fine_label_names", "coarse_label_names")
        fine, coarse = (_names(_value(content, key, meta), f"`{meta}`: {key!r}") for key in keys)
        keys, counts = ("fine_labels", "coarse_labels"), (len(fine), len(coarse))
        parts = [_read_batch(path / split, split, keys, counts) for split in ("train", "test")]
        return _Source(parts, fine, coarse, None)
    if not path.exists():
        raise ValueError(f"`{path}` is not there.")
    raise ValueError(
        f"`{path}` must be an npz file, or a folder with `meta` of CIFAR-100 or `batches.meta` of CIFAR-10."
    )


def _read_dict(file: Path) -> dict[Any, Any]:
    content = read_plain_pickle(file)
    if not isinstance(content, dict):
        raise ValueError(f"`{file}` must hold a dict; got {type(content).__name__}.")
    return content


def _value(content: dict[Any, Any], key: str, file: Path) -> Any:
    """The value of a key, which Python 2 wrote as bytes."""
    for spelling in (key.encode(), key):
        if spelling in content:
            return content[spelling]
    raise ValueError(f"`{file}` has no {key!r}.")


def _read_batch(file: Path, split: str, keys: Sequence[str], counts: Sequence[int]) -> _Part:
    content = _read_dict(file)
    pixels = _value(content, "data", file)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        shown = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(f"`{file}`: 'data' must be a uint8 array (N, {_PIXELS}); got {shown}.")
    columns = [
        _labels(_value(content, key, file), len(pixels), count, f"`{file}`: {key!r}")
        for key, count in zip(keys, counts, strict=True)
    ]
    # Stored as three planes of rows: red, green, blue.
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _Part(f"`{file}`", split, images, columns[0], columns[1] if len(columns) > 1 else None)


def _labels(values: Any, num_rows: int, num_labels: int | None, place: str) -> np.ndarray:
    """Labels as int64 ``(N,)``, checked to lie below ``num_labels``."""
    if isinstance(values, list):
        odd = next((row for row, value in enumerate(values) if type(value) is not int), None)
        if odd is not None:
            raise ValueError(f"{place} row {odd}: a label must be a whole number; got {type(values[odd]).__name__}.")
        if any(abs(value) > 2**31 for value in values):
            raise ValueError(f"{place} must be labels; got numbers above 2^31.")
        values = np.array(values, dtype=np.int64)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        shown = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise ValueError(f"{place} must be whole numbers; got {shown}.")
    if values.shape not in ((num_rows,), (num_rows, 1)):
        raise ValueError(f"{place} must have one label for each of {num_rows} images; got shape {values.shape}.")
    values = values.reshape(num_rows).astype(np.int64)
    bad = np.flatnonzero((values < 0) | (values >= (2**31 if num_labels is None else num_labels)))
    if len(bad):
        raise ValueError(f"{place} row {bad[0]}: label must lie in [0, {num_labels}); got {values[bad[0]]}.")
    return values


def _names(values: Any, place: str) -> tuple[str, ...]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list) or not all(isinstance(name, (str, bytes)) for name in values):
        raise ValueError(f"{place} must be a list of names.")
    names = tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in values)
    if len(set(names)) < len(names):
        number, name = next((number, name) for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"{place} row {number}: a name must not come twice; got {name!r}.")
    return names


def _read_npz(path: Path) -> _Source:
    arrays = _Arrays(path)
    found = arrays.parts("x")
    if "train" not in found:
        raise ValueError(f"`{path}` has no array 'x_train'.")
    fine_names, coarse_names = (
        _names(arrays.read(key), f"`{path}`: {key!r}") if key in arrays.keys else None
        for key in ("fine_names", "coarse_names")
    )
    images = {split: _LateImages(arrays, key) for split, key in found.items()}
    columns: dict[str, dict[str, np.ndarray]] = {"y": {}, "y_coarse": {}}
    for stem, names in (("y", fine_names), ("y_coarse", coarse_names)):
        keys = arrays.parts(stem)
        for split in dict.fromkeys([*(found if stem == "y" else ()), *keys]):
            key, count = keys.get(split, f"{stem}_{split}"), None if names is None else len(names)
            if split not in found:
                raise ValueError(f"`{path}` has {key!r} but no images of the part {split!r}.")
            columns[stem][split] = _labels(arrays.read(key), len(images[split]), count, f"`{path}`: {key!r}")
    table = arrays.read("fine_to_coarse") if "fine_to_coarse" in arrays.keys else None
    if fine_names is None:
        known = np.arange(0 if table is None else table.size)
        fine_names = _numbered([*columns["y"].values(), known], f"`{path}`")
    if table is not None:
        count = None if coarse_names is None else len(coarse_names)
        table = _labels(table, len(fine_names), count, f"`{path}`: 'fine_to_coarse'")
    if coarse_names is None:
        used = list(columns["y_coarse"].values())
        coarse_names = _numbered(used if table is None else [*used, table], f"`{path}`")
    parts = [
        _Part(f"`{path}`: part {split!r}", split, images[split], columns["y"][split], columns["y_coarse"].get(split))
        for split in found
    ]
    return _Source(parts, fine_names, coarse_names, table)


def _numbered(columns: Sequence[np.ndarray], place: str) -> tuple[str, ...]:
    """Numbers for names, where a file has none."""
    return number_names(max((int(column.max()) + 1 for column in columns if len(column)), default=0), place)


class _Arrays:
    """The arrays of an npz file, read one by one and never as pickles."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.keys = {name.removesuffix(".npy") for name in archive.namelist()}
        except (OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"`{path}` is not an npz file: {error}.") from error

    def parts(self, stem: str) -> dict[str, str]:
        """The keys of a stem for each part that there is."""
        try:
            return part_keys(sorted(self.keys), stem)
        except ValueError as error:
            raise ValueError(f"`{self.path}`: {error}") from None

    def read(self, key: str) -> np.ndarray:
        """The array of a key."""
        return self._open(key, content=True)[2]

    def header(self, key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the array of a key; its content is not read."""
        return self._open(key, content=False)[:2]

    def _open(self, key: str, *, content: bool) -> tuple[tuple[int, ...], np.dtype[Any], np.ndarray]:
        if key not in self.keys:
            raise ValueError(f"`{self.path}` has no array {key!r}.")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{key}.npy") as member:
                version = np.lib.format.read_magic(member)
                reader = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, fortran, dtype = reader(member)
                # What the header promises is checked before memory is asked for.
                wanted, there = (
                    math.prod(shape) * dtype.itemsize,
                    archive.getinfo(f"{key}.npy").file_size - member.tell(),
                )
                if dtype.hasobject or wanted != there:
                    raise ValueError(f"{wanted} bytes of plain numbers or texts were promised, {there} are there")
                data = member.read() if content else b""
        except Exception as error:  # Of a damaged header, numpy raises what its parsers raise, tokenize's errors too.
            raise ValueError(
                f"`{self.path}`: array {key!r} cannot be read: {' '.join(str(error).split()).rstrip('.')}."
            ) from error
        if not content or not wanted:
            return shape, dtype, np.empty(shape if not wanted else 0, dtype)
        return shape, dtype, np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


class _LateImages:
    """Images of an npz file, which are read when the first are asked for."""

    def __init__(self, arrays: _Arrays, key: str) -> None:
        self.arrays, self.key, self.pixels = arrays, key, None
        self.shape, self.dtype = arrays.header(key)
        self.ndim = len(self.shape)
        if self.dtype != np.uint8 or self.ndim != 4 or self.shape[3] != 3:
            raise ValueError(
                f"`{arrays.path}`: {key!r} must be a uint8 array (N, H, W, 3); got {self.dtype} {self.shape}."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if self.pixels is None:
            self.pixels = self.arrays.read(self.key)
        return self.pixels[rows]

    def __getstate__(self) -> dict[str, Any]:
        """Send no pixels to another process, which reads them again."""
        return {**self.__dict__, "pixels": None}

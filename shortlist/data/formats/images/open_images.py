"""Open Images: image labels verified by people or proposed by machines, from CSV files of millions of lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import compress, islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import by_part, part_name
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.files.vocabularies import distinct_names
from shortlist.data.groups import Groups
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.limits import limit

# The name of each part in files and folders; V7 says "val" where the others say "validation".
PARTS = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
DESCRIPTIONS = (
    "oidv7-class-descriptions.csv",
    "oidv6-class-descriptions.csv",
    "class-descriptions.csv",
    "oidv7-class-descriptions-boxable.csv",
    "class-descriptions-boxable.csv",
)
COLUMNS = ("ImageID", "LabelName", "Confidence")
BLOCK = 2**16
NAME_LENGTHS = range(1, 256)

# What a line says about a label; if lines differ, the greater counts, so people overrule machines.
NOTHING, MACHINE_YES, HUMAN_NO, HUMAN_YES = range(4)


def read_open_images(
    path: str | Path,
    *,
    names_file: str | Path | None = None,
    images: str | Path | None = None,
    unlisted: Literal["absent", "unknown"] = "absent",
    min_confidence: float | None = None,
    split: str | None = None,
    size: int | tuple[int, int] | None = None,
) -> Dataset:
    r"""Read image-level labels of Open Images (V4 to V7).

    The layout is ``oidv6-train-annotations-human-imagelabels.csv`` and its like for validation and test, with the
    header ``ImageID,Source,LabelName,Confidence`` and confidence 1 for a label that people verified to be present, 0
    for one verified to be absent; ``...-machine-imagelabels.csv`` with fractions; and
    ``oidv6-class-descriptions.csv`` with the name of each label. Without files of labels, those of boxes
    (``oidv6-train-annotations-bbox.csv``) say what is present. Images are ``train/{ImageID}.jpg`` and so on.

    People verified a few labels of each image. Labels that no line lists are really unknown; by default they count as
    absent, as is common.

    Rows are the images in the order in which the files first name them: train, val, then test. Labels are those of the
    descriptions in their order, then labels without a description, sorted, under their code. Repeated names get the
    code appended. If lines differ, people overrule machines, and present overrules absent.

    Args:
        path: the folder of these files, one with them in ``annotations/``, or one CSV file of labels.
        names_file: the CSV file of the descriptions, with or without a header; by default the one beside the labels.
        images: the folder with ``train``, ``validation`` and ``test``, or the folder of the images itself; by default
            the folder of the labels.
        unlisted: what labels are that no line lists. With ``unknown`` the targets are dense.
        min_confidence: the least confidence, in (0, 1], at which a label proposed by a machine is present; below it,
            the label counts as not listed. None reads no labels of machines.
        split: for a file, the part of its images, if its name does not say so; for a folder, the only part to read.
        size: as in `ImageFiles`.

    Returns:
        Images with sparse targets, or with dense ones (float32, -1 for unknown), and the split.

    Raises:
        InputError: names the file and the line that breaks a rule; also for dense targets of more than 2^31 entries.

    Example:
        >>> import tempfile
        >>> lines = ["ImageID,Source,LabelName,Confidence", "0001eeaf4aed83f9,verification,/m/0cmf2,1"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "validation-annotations-human-imagelabels.csv").write_text("\n".join(lines))
        ...     _ = Path(folder, "class-descriptions.csv").write_text("/m/0cmf2,Airplane\n/m/0k4j,Car\n")
        ...     planes = read_open_images(folder, unlisted="unknown")
        >>> planes.label_names, planes.targets
        (('Airplane', 'Car'), tensor([[ 1., -1.]]))

    References:
        Kuznetsova et al., "The Open Images dataset V4", IJCV 2020;
        https://storage.googleapis.com/openimages/web/download_v7.html.
    """
    if unlisted not in ("absent", "unknown"):
        raise InputError(f"`unlisted` must be 'absent' or 'unknown'; got {unlisted!r}.")
    if min_confidence is not None and not 0 < min_confidence <= 1:
        raise InputError(f"`min_confidence` must lie in (0, 1]; got {min_confidence}.")
    split = None if split is None else part_name(split)
    files = _label_files(Path(path), split, machines=min_confidence is not None)
    described = _descriptions(names_file, files[0].path.parent)
    label_codes = _LabelCodes({code: number for number, code in enumerate(described)})
    keep_all = unlisted == "unknown" or min_confidence is not None
    base = files[0].path.parent if images is None else Path(images)
    if images is None and base.name == "annotations":
        base = base.parent
    parts: dict[str | None, _Lines] = {}
    for part in dict.fromkeys(file.part for file in files):
        own = [_read_lines(file, label_codes, min_confidence, keep_all) for file in files if file.part == part]
        parts[part] = _by_image(own)
    _check_disjoint(path, parts)
    lines = _joined(list(parts.values()))
    codes, rank = _label_order(list(label_codes), len(described))
    lines = lines._replace(labels=rank[lines.labels])
    folders = [_image_folder(base, part, given=images is not None) for part in parts]
    names_in = zip(folders, parts.values(), strict=True)
    paths = PathList((str(folder), names) for folder, one in names_in for names in one.file_names())
    counts = [len(one.images) for one in parts.values()]
    called = [part for part in parts if part is not None]
    return Dataset(
        ImageFiles(paths, size=size),
        _dense_targets(lines, len(codes)) if unlisted == "unknown" else _sparse_targets(lines, len(codes)),
        distinct_names([described.get(code) or code for code in codes], codes),
        split=Groups.of_sizes(counts, called) if called else None,
        name="Open Images",
    )


class _File(NamedTuple):
    path: Path
    part: str | None
    machine: bool
    boxes: bool = False


class _Lines(NamedTuple):
    """Lines of label files: image, label, and what the line says about it."""

    images: np.ndarray  # names as bytes
    rows: np.ndarray  # int64, positions in images
    labels: np.ndarray  # int32
    said: np.ndarray  # int8

    def file_names(self) -> Iterator[list[str]]:
        """The file names of the images, one block at a time, because there may be nine million."""
        for first in range(0, len(self.images), BLOCK):
            yield [f"{image.decode()}.jpg" for image in self.images[first : first + BLOCK].tolist()]


class _LabelCodes(dict[str, int]):
    """Labels, numbered as they come."""

    def __missing__(self, code: str) -> int:
        if not code:
            raise _BadValueError("LabelName must not be empty")
        self[code] = number = len(self)
        return number


class _BadValueError(Exception):
    """Why a value is refused; its line is not known yet."""


class _Meanings(dict[str, int]):
    """What a confidence means; each text is parsed once."""

    def __init__(self, machine: bool, min_confidence: float | None) -> None:
        super().__init__()
        self.machine, self.min_confidence = machine, min_confidence

    def __missing__(self, text: str) -> int:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise _BadValueError(f"Confidence must lie in [0, 1]; got {text!r:.60}")
        if value in (0, 1) and not self.machine:
            said = HUMAN_YES if value == 1 else HUMAN_NO
        elif self.min_confidence is None:
            raise _BadValueError(
                f"Confidence {text} is that of a machine, so `min_confidence` must be a number; got None"
            )
        else:
            said = MACHINE_YES if value >= self.min_confidence else NOTHING
        self[text] = said
        return said


def _file_of_name(path: Path) -> _File | None:
    pattern = (
        r"(?:^|-)(?:(train|validation|val|test)-)?annotations-(?:(human|machine)-imagelabels(?:-boxable)?|bbox)"
        r"\.csv(?:\.gz)?$"
    )
    found = re.search(pattern, path.name)
    if not found:
        return None
    part = next((part for part, names in PARTS.items() if found[1] in names), None)
    return _File(path, part, found[2] == "machine", boxes=found[2] is None)


def _label_files(path: Path, split: str | None, *, machines: bool) -> list[_File]:
    """The files to read, by part, people before machines."""
    if not path.is_dir():
        file = _file_of_name(need_file(path)) or _File(path, None, False)
        return [file._replace(part=split or file.part)]
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    found = [file for file in map(_file_of_name, sorted(folder.iterdir())) if file is not None]
    # Boxes name fewer labels than the labels of images.
    labeled = [file for file in found if not file.boxes]
    found = labeled or found
    if split is None and len(found) == 1 and found[0].part is None:
        return found
    if split is not None and split not in PARTS:
        raise InputError(f"`split` must be one of {', '.join(PARTS)} for a folder; got {split!r}.")
    kinds = [
        by_part(((file.part or "", file.path) for file in found if file.machine == machine), f"`{folder}`")
        for machine in ((False, True) if machines else (False,))
    ]
    parts = PARTS if split is None else (split,)
    files = [
        _File(own[part], part, bool(machine)) for part in parts for machine, own in enumerate(kinds) if part in own
    ]
    if not files:
        raise InputError(f"`{folder}` must hold `{split or 'train'}-annotations-human-imagelabels.csv`; it does not.")
    return files


def _csv_row(path: Path, number: int, line: str) -> list[str]:
    """The fields of one line; none for a blank line."""
    try:
        return next(csv.reader([line], strict=True), []) if line.strip() else []
    except csv.Error as error:
        raise InputError(f"`{path}` line {number} is not CSV: {error}.") from error


def _descriptions(names: str | Path | None, folder: Path) -> dict[str, str]:
    """The name of each code; empty if no file is given or found."""
    found = [folder / name for name in DESCRIPTIONS if (folder / name).is_file()]
    path = found[0] if names is None and found else names
    if path is None:
        return {}
    path = need_file(path)
    described: dict[str, str] = {}
    for number, line in text_lines(path):
        row = _csv_row(path, number, line)
        if not row or (number == 1 and row == ["LabelName", "DisplayName"]):
            continue
        if len(row) != 2 or not row[0]:
            raise InputError(f"`{path}` line {number}: must be LabelName,DisplayName; got {','.join(row)!r:.60}.")
        if row[0] in described:
            raise InputError(f"`{path}` line {number}: LabelName {row[0]!r} must be described once.")
        described[row[0]] = row[1].strip()
    return described


def _read_lines(file: _File, label_codes: _LabelCodes, min_confidence: float | None, keep_all: bool) -> _Lines:
    """Read a file by blocks of lines; without ``keep_all``, only present labels are kept."""
    lines = map(itemgetter(1), text_lines(file.path))
    header = [name.strip() for name in _csv_row(file.path, 1, next(lines, ""))]
    if not set(COLUMNS) <= set(header):
        got = ",".join(header)
        raise InputError(f"`{file.path}` line 1: must be ImageID,Source,LabelName,Confidence; got {got!r:.60}.")
    meanings = _Meanings(file.machine, min_confidence)
    blocks = [_Lines(np.empty(0, "S1"), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int8))]
    first, runs, last = 2, 0, ""
    while block := list(islice(lines, BLOCK)):
        numbered, fields = _fields(file.path, range(first, first + len(block)), block, len(header))
        first += len(block)
        if not fields:
            continue
        names, labels, confidences = (fields[header.index(name) :: len(header)] for name in COLUMNS)
        _check_names(file.path, numbered, names)
        images = np.array(names)
        # A file usually lists an image in one run of lines, so there are few runs, made unique at the end.
        new = np.concatenate([[names[0] != last], images[1:] != images[:-1]])
        run, last = np.cumsum(new) + (runs - 1), names[-1]
        runs = int(run[-1]) + 1
        said = _looked_up(file.path, numbered, confidences, meanings, np.int8)
        listed = said != NOTHING
        if not listed.all():  # Labels of low confidence count only if another line has them.
            numbered, labels = list(compress(numbered, listed)), list(compress(labels, listed))
            run, said = run[listed], said[listed]
        label = _looked_up(file.path, numbered, labels, label_codes, np.int32)
        kept = slice(None) if keep_all else said == HUMAN_YES
        blocks.append(_Lines(np.char.encode(images[new], "utf-8"), run[kept], label[kept], said[kept]))
    return _Lines(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))


def _fields(path: Path, numbered: range, lines: list[str], width: int) -> tuple[Sequence[int], list[str]]:
    """The fields of all lines in one list; a list per line would keep the garbage collector busy.

    Returns:
        The numbers of the nonblank lines, and ``width`` fields for each.
    """
    text = ",".join(lines)
    if '"' not in text and set(map(str.count, lines, repeat(","))) == {width - 1}:
        return numbered, text.split(",")
    filled, fields = [], []
    for number, line in zip(numbered, lines, strict=True):
        row = _csv_row(path, number, line)
        if row and len(row) != width:
            raise InputError(f"`{path}` line {number}: must have {width} fields; got {len(row)}.")
        filled += [number] if row else []
        fields += row
    return filled, fields


def _check_names(path: Path, numbered: Sequence[int], names: Sequence[str]) -> None:
    """One name of a megabyte would make an array of names fill the memory; a slash would leave the folder."""
    if set(map(len, names)).issubset(NAME_LENGTHS) and "/" not in "".join(names):
        return
    wrong = next(i for i, name in enumerate(names) if len(name) not in NAME_LENGTHS or "/" in name)
    rule = f"must have 1 to {NAME_LENGTHS[-1]} characters and no slash; got {names[wrong]!r:.60}"
    raise InputError(f"`{path}` line {numbered[wrong]}: ImageID {rule}.")


def _looked_up(
    path: Path, numbered: Sequence[int], texts: Sequence[str], table: dict[str, int], dtype: type
) -> np.ndarray:
    try:
        return np.fromiter(map(table.__getitem__, texts), dtype=dtype, count=len(texts))
    except _BadValueError as error:
        wrong = next(i for i, text in enumerate(texts) if text not in table)
        raise InputError(f"`{path}` line {numbered[wrong]}: {error}.") from error


def _joined(parts: Sequence[_Lines]) -> _Lines:
    """All lines, one part after the other."""
    starts = np.cumsum([0] + [len(part.images) for part in parts])
    rows = [part.rows + start for part, start in zip(parts, starts[:-1], strict=True)]
    images, _, labels, said = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _Lines(images, np.concatenate(rows), labels, said)


def _by_image(files: Sequence[_Lines]) -> _Lines:
    """The lines of a part, with each image once, in the order of their first lines."""
    lines = _joined(files)
    if (lines.images[1:] > lines.images[:-1]).all():
        return lines
    images, first, inverse = np.unique(lines.images, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return lines._replace(images=images[order], rows=rank[inverse[lines.rows]])


def _check_disjoint(path: str | Path, parts: dict[str | None, _Lines]) -> None:
    called = list(parts)
    for position, later in enumerate(called):
        for earlier in called[:position]:
            shared = np.intersect1d(parts[earlier].images, parts[later].images, assume_unique=True)
            if len(shared):
                image = shared[0].decode()
                raise InputError(f"`{path}`: image {image!r} must be in one part; got {earlier} and {later}.")


def _label_order(codes: list[str], described: int) -> tuple[list[str], np.ndarray]:
    """Codes with the undescribed ones sorted, and the new position of each."""
    order = [*range(described), *sorted(range(described, len(codes)), key=codes.__getitem__)]
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes))
    return [codes[number] for number in order], rank


def _sparse_targets(lines: _Lines, num_labels: int) -> Tensor:
    rows, labels, said = lines.rows, lines.labels, lines.said
    if (said != HUMAN_YES).any():
        pairs = rows * num_labels + labels
        order = np.lexsort((said, pairs))
        strongest = np.append(pairs[order][1:] != pairs[order][:-1], True)  # The last one of each pair.
        rows, labels, said = (values[order][strongest] for values in (rows, labels, said))
    present = (said == HUMAN_YES) | (said == MACHINE_YES)
    return sparse_targets(rows[present], labels[present], len(lines.images), num_labels)


def _dense_targets(lines: _Lines, num_labels: int) -> Tensor:
    entries = len(lines.images) * num_labels
    if entries > limit("entries"):
        raise InputError(
            f"`unlisted` must be 'absent' for more than {limit('entries')} entries; got {len(lines.images)} images of "
            f"{num_labels} labels."
        )
    targets = torch.full((len(lines.images), num_labels), -1.0)
    for said, value in ((MACHINE_YES, 1.0), (HUMAN_NO, 0.0), (HUMAN_YES, 1.0)):
        which = lines.said == said
        targets[torch.from_numpy(lines.rows[which]), torch.from_numpy(lines.labels[which])] = value
    return targets


def _image_folder(base: Path, part: str | None, *, given: bool) -> Path:
    own = [base / name for name in PARTS.get(part or "", ())]
    existing = [folder for folder in own if folder.is_dir()]
    return existing[0] if existing else own[0] if own and not given else base

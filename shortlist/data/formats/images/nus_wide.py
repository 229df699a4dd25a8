"""NUS-WIDE: 81 concepts in Flickr pictures, from one file of zeros and ones per concept."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.files.text_files import need_file, need_folder, text_lines
from shortlist.data.groups import Groups, first_repeat
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError

PARTS = {"train": "Train", "test": "Test"}


def read_nus_wide(
    root: str | Path, *, images: str | Path | None = None, size: int | tuple[int, int] | None = None
) -> Dataset:
    r"""Read the ground truth of NUS-WIDE.

    The layout is ``ConceptsList/Concepts81.txt`` (or ``Concepts81.txt``) with one concept per line, and
    ``ImageList/{Train,Test}Imagelist.txt`` with one image per line, such as ``actor\0001_2124494179.jpg``; line i of
    each ``Groundtruth/TrainTestLabels/Labels_{concept}_{Train,Test}.txt``, 0 or 1, belongs to the image of line i. If
    this folder is missing, ``ImageList/Imagelist.txt`` goes with ``Groundtruth/AllLabels/Labels_{concept}.txt``, and
    the other lists only give the split. The user tags in ``NUS_WID_Tags`` are not ground truth and are not read.

    Args:
        root: the folder with these files.
        images: the folder that the image lists refer to; by default ``Flickr`` in ``root``.
        size: as in `ImageFiles`.

    Returns:
        Images with sparse targets, in the order of the lists, with the split into train and test.

    Raises:
        InputError: names the file and the line that breaks a rule, or two files whose lines do not agree.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, lines in {
        ...         "ConceptsList/Concepts81.txt": ["airport", "animal"],
        ...         "ImageList/Imagelist.txt": ["actor\\0001_1.jpg", "zoo\\0002_2.jpg", "zoo\\0003_3.jpg"],
        ...         "Groundtruth/AllLabels/Labels_airport.txt": ["0", "0", "0"],
        ...         "Groundtruth/AllLabels/Labels_animal.txt": ["0", "1", "1"],
        ...     }.items():
        ...         Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        ...         _ = Path(folder, name).write_text("\n".join(lines) + "\n")
        ...     pictures = read_nus_wide(folder)
        >>> pictures.label_counts().tolist(), pictures.inputs.path(1).name
        ([0, 2], '0002_2.jpg')

    References:
        Chua et al., "NUS-WIDE: a real-world web image database from National University of Singapore", CIVR 2009.
    """
    root = need_folder(root)
    listing = root / "ConceptsList" / "Concepts81.txt"
    concepts = _distinct_lines(listing if listing.is_file() else root / "Concepts81.txt", "concept")
    truth = root / "Groundtruth"
    by_part = truth / "TrainTestLabels"
    lists = {part: root / "ImageList" / f"{called}Imagelist.txt" for part, called in PARTS.items()}
    listed = {part: _distinct_lines(file, "image") for part, file in lists.items() if file.is_file()}
    _check_disjoint(lists, listed)
    if by_part.is_dir():
        if not listed:
            raise InputError(
                f"`{root / 'ImageList'}` must hold `TrainImagelist.txt` or `TestImagelist.txt`; it does not."
            )
        names = [name for part in listed.values() for name in part]
        parts: list[str | None] = [part for part, own in listed.items() for _ in own]
        blocks = [
            (lists[part], len(own), [by_part / f"Labels_{concept}_{PARTS[part]}.txt" for concept in concepts])
            for part, own in listed.items()
        ]
    else:
        every = need_file(root / "ImageList" / "Imagelist.txt")
        names = _distinct_lines(every, "image")
        part_of = {name: part for part, own in listed.items() for name in own}
        parts = [part_of.get(name) for name in names]
        folder = need_folder(truth / "AllLabels")
        blocks = [(every, len(names), [folder / f"Labels_{concept}.txt" for concept in concepts])]
    rows, labels, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for image_list, count, files in blocks:
        for label, file in enumerate(files):
            present = _present(file, count, image_list)
            rows.append(present + first)
            labels.append(np.full(len(present), label))
        first += count
    folder = Path(images) if images is not None else root / "Flickr"
    return Dataset(
        ImageFiles(PathList.of(f"{folder}/{name}" for name in names), size=size),
        sparse_targets(np.concatenate(rows), np.concatenate(labels), len(names), len(concepts)),
        tuple(concepts),
        split=Groups.of(parts, order=tuple(PARTS)) if listed else None,
        name="NUS-WIDE",
    )


def _lines(file: Path) -> list[str]:
    """Stripped lines; blank lines are allowed only at the end of the file."""
    lines = [line.strip() for _, line in text_lines(file)]
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise InputError(f"`{file}` line {lines.index('') + 1}: must not be blank.")
    return lines


def _distinct_lines(file: Path, what: str) -> list[str]:
    lines = _lines(file)
    if what == "image":  # These lists were written on Windows.
        lines = [line.replace("\\", "/") for line in lines]
    repeat = first_repeat(lines)
    if repeat is not None:
        first, second = repeat
        raise InputError(
            f"`{file}` line {second + 1}: {what} {lines[second]!r} must differ from that of line {first + 1}."
        )
    return lines


def _check_disjoint(lists: dict[str, Path], listed: dict[str, list[str]]) -> None:
    if len(listed) < 2:
        return
    train = set(listed["train"])
    for number, name in enumerate(listed["test"], start=1):
        if name in train:
            raise InputError(f"`{lists['test']}` line {number}: image {name!r} must not also be in `{lists['train']}`.")


def _present(file: Path, count: int, image_list: Path) -> np.ndarray:
    """Indices of the lines that are 1, in a file of ``count`` lines that are 0 or 1."""
    text = need_file(file).read_bytes().replace(b"\r\n", b"\n")
    codes = np.frombuffer(text if text.endswith(b"\n") else text + b"\n", dtype=np.uint8)
    if len(codes) == 2 * count and (codes[1::2] == ord("\n")).all() and (codes[::2] | 1 == ord("1")).all():
        return np.flatnonzero(codes[::2] == ord("1"))
    lines = _lines(file)  # Blanks around the digits, or a mistake, which the slow way names.
    for number, line in enumerate(lines, start=1):
        if line not in ("0", "1"):
            raise InputError(f"`{file}` line {number}: must be 0 or 1; got {line!r:.60}.")
    if len(lines) != count:
        raise InputError(f"`{file}` must have as many lines as `{image_list}`: {count}; got {len(lines)}.")
    return np.flatnonzero(np.array(lines, dtype="U1") == "1")

"""From a path to a dataset: the format is told from the layout, or named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.data.dataset import Dataset
from shortlist.data.digits import digits
from shortlist.data.formats import (
    read_arff,
    read_arrays,
    read_bioasq,
    read_cifar,
    read_coco,
    read_extreme_text,
    read_image_folder,
    read_mimic,
    read_nus_wide,
    read_open_images,
    read_table,
    read_visual_genome,
    read_voc,
)
from shortlist.data.pubmed import pubmed


class Format(NamedTuple):
    """How a format is called, told and read."""

    about: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Dataset]


def open_dataset(path: str | Path, *, format: str | None = None, **options: Any) -> Dataset:
    """Open whatever lies at a path.

    Args:
        path: a file or a folder; or ``pubmed`` or ``digits``, which come inside packages.
        format: one of `FORMATS`; None tells it from names, endings and first lines.
        options: for the reader of the format.

    Returns:
        The dataset, named after the path unless its format gives a name.

    Raises:
        TypeError: for an option that the reader does not take.
        ValueError: if nothing is there, if no format fits, or if the file is not what its name says.
    """
    path = Path(path)
    if format is None:
        format, path = _tell(path)
    elif format not in FORMATS:
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}; got {format!r}.")
    read = FORMATS[format].read
    return read(**options) if format in BUILT_IN else read(path, **options)


def _recognised(path: Path) -> bool:
    return any(format.recognises(path) for format in FORMATS.values())


def _tell(path: Path) -> tuple[str, Path]:
    """The format, and the file or folder that has it."""
    if not path.exists():
        if str(path) in BUILT_IN:
            return str(path), path
        raise ValueError(f"`{path}` is not there.")
    for name, format in FORMATS.items():
        if format.recognises(path):
            return name, path
    if path.is_dir():
        inside = [file for file in sorted(path.iterdir()) if file.is_file() and _recognised(file)]
        if len(inside) == 1:  # A folder with one file of data, and perhaps a note about it.
            return _tell(inside[0])
    raise ValueError(f"`{path}` is of no known format; `format` may be one of {', '.join(FORMATS)}.")


def _has(*names: str) -> Callable[[Path], bool]:
    """A folder with all of these in it; names may hold ``*``."""
    return lambda path: path.is_dir() and all(any(True for _ in path.glob(name)) for name in names)


def _ends(*endings: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.name.lower().endswith(endings)


def _starts(pattern: bytes, endings: Iterable[str]) -> Callable[[Path], bool]:
    """A file with one of these endings, whose first kilobytes match."""
    endings = tuple(endings)

    def recognises(path: Path) -> bool:
        if not _ends(*endings)(path):
            return False
        with path.open("rb") as file:
            return re.search(pattern, file.read(65536)) is not None

    return recognises


def _either(*tests: Callable[[Path], bool]) -> Callable[[Path], bool]:
    return lambda path: any(test(path) for test in tests)


def _classes_of_images(path: Path) -> bool:
    return path.is_dir() and any(entry.is_dir() for entry in path.iterdir())


def _never(path: Path) -> bool:
    return False


BUILT_IN = ("pubmed", "digits")

# The first that recognises a path reads it, so the general ones come last.
FORMATS: dict[str, Format] = {
    "cifar": Format(
        "CIFAR-100 and CIFAR-10, the pickled batches",
        _either(_has("meta", "train", "test"), _has("batches.meta")),
        read_cifar,
    ),
    "visual-genome": Format(
        "scene graphs of Visual Genome: VG-SGG.h5 and its dictionary",
        _either(_has("VG-SGG.h5"), _ends(".h5", ".hdf5")),
        read_visual_genome,
    ),
    "voc": Format(
        "Pascal VOC: Annotations, ImageSets, JPEGImages",
        _either(_has("ImageSets/Main"), _has("VOC*/ImageSets/Main"), _has("VOCdevkit/VOC*/ImageSets/Main")),
        read_voc,
    ),
    "coco": Format(
        "COCO instances JSON",
        _either(
            _has("annotations/instances_*.json"),
            _has("instances_*.json"),
            _starts(rb'"(images|annotations|categories|licenses)"\s*:', [".json"]),
        ),
        read_coco,
    ),
    "nus-wide": Format("NUS-WIDE: ImageList and Groundtruth", _has("ImageList", "Groundtruth"), read_nus_wide),
    "open-images": Format(
        "Open Images: image labels and class descriptions",
        _either(_has("*imagelabels*.csv*"), _starts(rb"^(\xef\xbb\xbf)?ImageID,Source,LabelName", [".csv"])),
        read_open_images,
    ),
    "mimic": Format(
        "MIMIC-III notes and codes after the CAML preprocessing",
        _either(_has("train_full.csv"), _has("train_50.csv"), _has("notes_labeled.csv")),
        read_mimic,
    ),
    "arff": Format("Mulan and MEKA ARFF", _either(_has("*.arff"), _ends(".arff")), read_arff),
    "extreme-text": Format(
        "the text format of the Extreme Classification Repository",
        _either(_has("*train.txt*"), _starts(rb"^\d+ \d+ \d+\s*\n", [".txt"]), _ends(".txt.gz")),
        read_extreme_text,
    ),
    "bioasq": Format(
        "BioASQ articles with MeSH headings, JSON",
        _starts(rb'"(articles|meshMajor)"\s*:', [".json", ".jsonl"]),
        read_bioasq,
    ),
    "arrays": Format(
        "features and labels as .npz, .npy or .safetensors", _ends(".npz", ".npy", ".safetensors"), read_arrays
    ),
    "table": Format(
        "tables: CSV, TSV, JSON lines, Parquet",
        _ends(".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".tsv.gz", ".jsonl.gz", ".jsonl.xz"),
        read_table,
    ),
    "image-folder": Format("a folder of images for each class; Pl@ntNet-300K", _classes_of_images, read_image_folder),
    "pubmed": Format("PubMed with MeSH headings, from a package", _never, pubmed),
    "digits": Format("handwritten digits, from scikit-learn", _never, digits),
}

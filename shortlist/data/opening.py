"""From a path to a dataset: the format is recognized or named, and options are checked against the reader's types."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from shortlist.data import formats
from shortlist.data.checks import check_share
from shortlist.data.dataset import Dataset
from shortlist.data.formats.images.image_folder import IMAGE_ENDINGS
from shortlist.data.formats.images.visual_genome import FILES as GRAPH_FILES
from shortlist.data.formats.tables import table_roles
from shortlist.data.packaged import digits, pubmed
from shortlist.data.procedures.label_noise import label_noise
from shortlist.data.worlds import AmbiguousWorld
from shortlist.errors import InputError
from shortlist.typed_values import read_value


class Format(NamedTuple):
    """How a format is described, recognized and read."""

    about: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Dataset]


def open_dataset(path: str | Path, *, format: str | None = None, **options: Any) -> Dataset:
    """Open the dataset at a path.

    Args:
        path: a file or a folder; or ``pubmed``, ``digits`` or ``ambiguous``, which need no file.
        format: one of `FORMATS`; None recognizes it from names, endings and first lines.
        options: for the reader of the format.

    Returns:
        The dataset, named after the path unless its format gives a name.

    Raises:
        TypeError: for an option that the reader does not have.
        InputError: if the path does not exist, no format matches, or the file is not what its name says.
    """
    format, path = recognize_format(path, format)
    read = FORMATS[format].read
    known = option_names(read)
    for name in options:
        if name not in known:
            raise TypeError(f"`{path}`: {format} has no option {name!r}; it has {', '.join(known) or 'none'}.")
    if format not in BUILT_IN:
        return read(path, **options)
    if str(path) != format:
        raise InputError(f"`path` must be {format!r} for this format; got {str(path)!r}.")
    return read(**options)


def option_names(read: Callable[..., Any]) -> list[str]:
    """Return the names of the options of a reader: its keyword-only arguments."""
    return [name for name, each in signature(read).parameters.items() if each.kind is each.KEYWORD_ONLY]


def reader_options(given: Mapping[str, Any], read: Callable[..., Any], *, known: Sequence[str] = ()) -> dict[str, Any]:
    """Return options as a reader takes them.

    Text is read as JSON or YAML where the reader takes such a value: a list becomes a tuple. It stays text where the
    reader takes text, such as a column named 5, and becomes a list of one text where it takes only lists.

    Args:
        given: the values by name.
        read: the reader; the types of its keyword arguments say what it takes.
        known: the allowed names; by default those of the reader.

    Raises:
        InputError: names the option that the reader does not have, or whose value it does not take.

    Example:
        >>> def read(path, *, size: int | tuple[int, int] | None = None, text: str | None = None): ...
        >>> reader_options({"size": "[8, 8]", "text": "5"}, read)
        {'size': (8, 8), 'text': '5'}
        >>> reader_options({"size": "wide"}, read)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        shortlist.errors.InputError: reader option `size` must be a whole number or a list of 2, ...; got 'wide'.
    """
    known, hints = known or option_names(read), get_type_hints(read)
    for name in given:
        if name not in known:
            raise InputError(f"reader options must be among {', '.join(known) or 'none'}; got {name!r}.")
    return {name: read_value(value, hints.get(name, Any), f"reader option `{name}`") for name, value in given.items()}


def open_data(
    path: str | Path, *, format: str | None, reader: Mapping[str, Any], tell: Callable[[str], object] | None = None
) -> Dataset:
    """Open a dataset with options that a user gave.

    Args:
        path, format: as in `open_dataset`.
        reader: options of the reader, as in `reader_options`.
        tell: called with a sentence if something was assumed about a table.

    Raises:
        InputError: for options that the reader does not take.
    """
    name, location = recognize_format(path, format)
    options = reader_options(reader, FORMATS[name].read)
    remark = table_roles(location, **options).remark if name == "table" and tell is not None else ""
    if remark and tell is not None:
        tell(remark)
    return open_dataset(location, format=name, **options)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # No file can have this name: it is too long or contains a zero byte.
        return False


def recognize_format(path: str | Path, format: str | None = None) -> tuple[str, Path]:
    """The format of the data at a path, and the file or folder that has it: a folder may contain one data file.

    Args:
        path: as in `open_dataset`.
        format: one of `FORMATS`, which is then not looked for; None recognizes it.

    Raises:
        InputError: if the format is unknown, the path does not exist, or no format matches.
    """
    path = Path(path)
    if format is not None:
        if format not in FORMATS:
            raise InputError(f"`format` must be one of {', '.join(FORMATS)}; got {format!r}.")
        return format, path
    if not _exists(path):
        if str(path) in BUILT_IN:
            return str(path), path
        raise InputError(f"`{path}` does not exist.")
    for name, form in FORMATS.items():
        if form.recognises(path):
            return name, path
    if path.is_dir():
        # Images alone are no dataset, and there may be very many.
        names = (file for file in sorted(path.iterdir()) if not file.name.lower().endswith(IMAGE_ENDINGS))
        known = [form.recognises for form in FORMATS.values()]
        inside = [file for file in names if file.name[0] != "." and file.is_file() and _either(*known)(file)]
        if len(inside) == 1:  # A folder with one data file, and perhaps a note about it.
            return recognize_format(inside[0])
    raise InputError(f"`{path}` has no known format; `format` can be one of {', '.join(FORMATS)}.")


def _has(*names: str) -> Callable[[Path], bool]:
    """A folder with all of these entries; names may contain ``*``."""

    def holds(path: Path, name: str) -> bool:
        return any(True for _ in path.glob(name)) if "*" in name else (path / name).exists()

    return lambda path: path.is_dir() and all(holds(path, name) for name in names)


def _has_files(*names: str) -> Callable[[Path], bool]:
    """A folder with all of these files; folders of the same name do not count."""
    return lambda path: all((path / name).is_file() for name in names)


def _has_one(name: str, test: Callable[[Path], bool]) -> Callable[[Path], bool]:
    """A folder with a file of this name, which may contain ``*``, that passes a test."""
    return lambda path: path.is_dir() and any(map(test, path.glob(name)))


def _ends(*endings: str) -> Callable[[Path], bool]:
    return lambda path: path.name.lower().endswith(endings) and path.is_file()


def _starts(pattern: bytes, endings: Iterable[str]) -> Callable[[Path], bool]:
    """A file with one of these endings, optionally followed by ``.gz``, whose first kilobytes match."""
    fits = _ends(*(ending + packing for ending in endings for packing in ("", ".gz")))
    return lambda path: fits(path) and re.search(pattern, _head(path)) is not None


def _head(path: Path) -> bytes:
    """The first kilobytes, decompressed as far as possible, without a byte order mark."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if path.suffix.lower() == ".gz":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            return b""
    return head.removeprefix(b"\xef\xbb\xbf")


def _either(*tests: Callable[[Path], bool]) -> Callable[[Path], bool]:
    return lambda path: any(test(path) for test in tests)


def _cifar_arrays(path: Path) -> bool:
    """An npz of RGB images with names or coarse labels like CIFAR-100, some of which `read_arrays` would ignore."""
    if not _ends(".npz")(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            keys = {name.removesuffix(".npy") for name in archive.namelist()}
            if not {"x_train", "y_train"} <= keys or keys.isdisjoint(_CIFAR_KEYS):
                return False
            with archive.open("x_train.npy") as file:
                return re.search(rb"'\|u1'.*\(\d+, \d+, \d+, 3\)", file.read(256)) is not None
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return False  # The reader of arrays says what is wrong.


def _array_folder(path: Path) -> bool:
    """A folder of arrays without folders; one `.npy` beside folders of images does not count."""
    return _has("*.npy")(path) and not any(entry.is_dir() for entry in path.glob("[!.]*"))


def _images_by_class(path: Path) -> bool:
    """A folder with an image where `read_image_folder` expects one; other formats have nested folders too."""
    layouts = ("[!.]*/*", "[!.]*/[!.]*/*", "images/*/*/*")
    return path.is_dir() and any(
        file.name.lower().endswith(IMAGE_ENDINGS) for layout in layouts for file in path.glob(layout)
    )


@wraps(formats.read_mimic)
def _read_mimic(path: Path, **options: Any) -> Dataset:
    if _has("train_50.csv")(path) and not _either(_has("train_full.csv"), _has("notes_labeled.csv"))(path):
        options.setdefault("version", "50")
    return formats.read_mimic(path, **options)


def _never(path: Path) -> bool:
    return False


def _ambiguous(*, rows: int = 20_000, noise: float = 0.0, seed: int = 0) -> Dataset:
    """Rows of the default world; ``noise`` is the share of training rows whose label is redrawn within its group."""
    data, share = AmbiguousWorld().sample(rows, seed=seed), check_share("noise", noise)
    return label_noise(data, share, seed=seed) if share else data


BUILT_IN = ("pubmed", "digits", "ambiguous")

_HEAD = 1 << 16
_CIFAR_KEYS = {"fine_names", "coarse_names", "fine_to_coarse", "y_coarse_train"}

# Three numbers; or, in the older layout, labels and at least one feature.
_EXTREME = _starts(rb"^(?:[ \t]*\d+[ \t]+\d+[ \t]+\d+|[\d,]*(?:[ \t]+\d+:[-+.\deE]+)+)[ \t\r]*(?:\n|\Z)", [".txt"])

# A list of records, plain or under the key `data`, or one record per line.
_RECORDS = _starts(rb'\A\s*(?:\[\s*\{|\{\s*"data"\s*:\s*\[\s*\{|\{[^\n]*\}[ \t\r]*\n\s*\{)', [".json"])

# The first one that recognizes a path reads it, so the general ones come last.
FORMATS: dict[str, Format] = {
    "cifar": Format(
        "CIFAR-100 and CIFAR-10, the pickled batches or npz",
        _either(
            _has_files("meta", "train", "test"),
            _has_files("batches.meta"),
            _has_files("cifar-100-python/meta"),
            _has_files("cifar-10-batches-py/batches.meta"),
            _cifar_arrays,
        ),
        formats.read_cifar,
    ),
    "visual-genome": Format(
        "Visual Genome scene graphs: VG-SGG.h5 and its dictionary",
        _either(*(_has_files(name) for name in GRAPH_FILES), lambda path: path.name in GRAPH_FILES and path.is_file()),
        formats.read_visual_genome,
    ),
    "voc": Format(
        "Pascal VOC: Annotations, ImageSets, JPEGImages",
        _either(
            *(
                _has(above + inner)
                for above in ("", "VOC*/", "VOCdevkit/VOC*/")
                for inner in ("ImageSets/Main", "Annotations/*.xml")
            )
        ),
        formats.read_voc,
    ),
    "coco": Format(
        "COCO instances JSON",
        _either(
            *(
                _has(f"{folder}{kind}_*.json")
                for folder in ("annotations/", "")
                for kind in ("instances", "person_keypoints")
            ),
            _starts(rb'\A\s*\{[\s\S]*"(images|annotations|categories|licenses)"\s*:', [".json"]),
        ),
        formats.read_coco,
    ),
    "nus-wide": Format("NUS-WIDE: ImageList and Groundtruth", _has("ImageList", "Groundtruth"), formats.read_nus_wide),
    "open-images": Format(
        "Open Images: image labels and class descriptions",
        _either(
            _has("*imagelabels*.csv*"),
            _has("annotations/*imagelabels*.csv*"),
            _has("*annotations-bbox*.csv*"),
            _has("annotations/*annotations-bbox*.csv*"),
            _starts(rb"^ImageID,Source,LabelName", [".csv"]),
        ),
        formats.read_open_images,
    ),
    "mimic": Format(
        "MIMIC-III notes and codes from the CAML preprocessing",
        _either(_has("train_full.csv"), _has("train_50.csv"), _has("notes_labeled.csv")),
        _read_mimic,
    ),
    "arff": Format(
        "Mulan and MEKA ARFF",
        _either(_has("*.arff"), _has("*.arff.gz"), _ends(".arff", ".arff.gz")),
        formats.read_arff,
    ),
    "extreme-text": Format(
        "the text format of the Extreme Classification Repository",
        _either(
            _has_one("*[Tt]rain*.txt*", _EXTREME), _has_one("*_data.txt*", _EXTREME), _has("trn_X_Y.txt*"), _EXTREME
        ),
        formats.read_extreme_text,
    ),
    "bioasq": Format(
        "BioASQ articles with MeSH headings, JSON",
        _starts(rb'"(articles|meshMajor)"\s*:', [".json", ".jsonl"]),
        formats.read_bioasq,
    ),
    "arrays": Format(
        "features and labels as .npz, .npy or .safetensors",
        _either(_ends(".npz", ".npy", ".safetensors"), _array_folder),
        formats.read_arrays,
    ),
    "table": Format(
        "tables: CSV, TSV, JSON lines or a list of records, Parquet",
        _either(
            _ends(
                ".parquet",
                *(kind + packing for kind in (".csv", ".tsv", ".jsonl", ".ndjson") for packing in ("", ".gz", ".xz")),
            ),
            _RECORDS,
        ),
        formats.read_table,
    ),
    "image-folder": Format(
        "one folder of images per class; Pl@ntNet-300K", _images_by_class, formats.read_image_folder
    ),
    "pubmed": Format("PubMed with MeSH headings, from a package", _never, pubmed),
    "digits": Format("handwritten digits, from scikit-learn", _never, digits),
    "ambiguous": Format("a synthetic world of look-alikes with a known optimum", _never, _ambiguous),
}

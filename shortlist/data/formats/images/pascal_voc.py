"""Pascal VOC: the classes that occur in each image, from one XML file per image or from class lists."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET
from array import array
from pathlib import Path

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS
from shortlist.data.files.text_files import need_folder, text_lines
from shortlist.data.groups import Groups
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.limits import read_whole

SUPERCLASSES = {
    "person": ("person",),
    "animal": ("bird", "cat", "cow", "dog", "horse", "sheep"),
    "vehicle": ("aeroplane", "bicycle", "boat", "bus", "car", "motorbike", "train"),
    "indoor": ("bottle", "chair", "diningtable", "pottedplant", "sofa", "tvmonitor"),
}
SUPERCLASS_OF = {name: above for above, names in SUPERCLASSES.items() for name in names}
_TRAINVAL = "trainval"


def read_voc(root: str | Path, *, size: int | tuple[int, int] | None = None) -> Dataset:
    """Read Pascal VOC: a label is present if one of its objects is not difficult, and unknown if all of them are.

    The layout is ``Annotations/{image}.xml``, ``ImageSets/Main/{train,val,test}.txt`` with one image per line, and
    ``JPEGImages/{image}.jpg``. A part whose images have no XML files is read from
    ``ImageSets/Main/{class}_{part}.txt``, with 1 for present, -1 for absent and 0 for difficult; a test part without
    these, such as that of VOC2012, has labels that are not public, so all of them are unknown. If neither ``train.txt``
    nor ``val.txt`` exists, the images of ``trainval.txt`` are for training.

    Rows are the images of train, val and test in the order of the lists, or all annotated images by name if there are
    no lists. Labels are the 20 published names in alphabetical order, or the sorted names that occur if any other name
    does.

    Args:
        root: the folder ``VOC2012`` or another year, or ``VOCdevkit`` if it holds a single year.
        size: as in `ImageFiles`.

    Returns:
        Images with sparse targets, ``label_groups["superclass"]`` if the names are the published ones, and the split.

    Raises:
        InputError: names the file and the line or object that breaks a rule.

    Example:
        >>> import tempfile
        >>> xml = "<annotation><object><name>cow</name><difficult>0</difficult></object></annotation>"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "Annotations").mkdir()
        ...     _ = Path(folder, "Annotations", "2007_000464.xml").write_text(xml)
        ...     voc = read_voc(folder)
        ...     voc.num_labels, voc.label_names[int(voc.targets.col_indices())]
        (20, 'cow')

    References:
        Everingham et al., "The Pascal visual object classes challenge", IJCV 2010;
        http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html.
    """
    root = _voc_folder(need_folder(root))
    annotated = {file.stem for file in (root / "Annotations").glob("*.xml")}
    lists = root / "ImageSets" / "Main"
    listed = _listed_images(lists) or {None: sorted(annotated)}
    labels = _Labels()
    first = 0
    for listing, images in listed.items():
        if listing is None or not annotated.isdisjoint(images):
            _read_part_xml(root, lists / f"{listing}.txt", images, annotated, first, labels)
        else:
            _read_class_lists(lists, listing, images, first, labels)
        first += len(images)
    names, targets = labels.targets(first)
    folder = str(root / "JPEGImages")
    paths = PathList.of(f"{folder}/{image}.jpg" for images in listed.values() for image in images)
    parts = ["train" if listing == _TRAINVAL else listing for listing, images in listed.items() for _ in images]
    published = set(names) == set(SUPERCLASS_OF)
    return Dataset(
        ImageFiles(paths, size=size),
        targets,
        names,
        label_groups={"superclass": Groups.of([SUPERCLASS_OF[name] for name in names])} if published else {},
        split=None if None in listed else Groups.of(parts, order=PARTS),
        name=f"Pascal {root.resolve().name}" if root.resolve().name.startswith("VOC") else "Pascal VOC",
    )


class _Labels:
    """Labels of all images, collected before all names are known."""

    def __init__(self) -> None:
        self.code_of: dict[str, int] = {}
        self.rows, self.labels, self.present = array("q"), array("q"), array("b")
        self.unknown_rows: list[range] = []  # whose labels are not public

    def add(self, row: int, name: str, *, present: bool) -> None:
        self.rows.append(row)
        self.labels.append(self.code_of.setdefault(name, len(self.code_of)))
        self.present.append(present)

    def targets(self, num_rows: int) -> tuple[tuple[str, ...], torch.Tensor]:
        published = set(self.code_of) <= set(SUPERCLASS_OF)
        names = tuple(sorted(SUPERCLASS_OF if published else self.code_of))
        position = np.array([names.index(name) for name in self.code_of], dtype=np.int64)
        unknown = np.concatenate([np.empty(0, np.int64), *(np.arange(r.start, r.stop) for r in self.unknown_rows)])
        rows = np.concatenate([np.array(self.rows), np.repeat(unknown, len(names))])
        labels = np.concatenate([position[np.array(self.labels)], np.tile(np.arange(len(names)), len(unknown))])
        present = np.concatenate([np.array(self.present, dtype=bool), np.zeros(len(labels) - len(self.rows), bool)])
        return names, sparse_targets(rows, labels, num_rows, len(names), present=present)


def _voc_folder(root: Path) -> Path:
    """The folder itself, or the only year inside it."""

    def is_year(folder: Path) -> bool:
        return (folder / "Annotations").is_dir() or (folder / "ImageSets" / "Main").is_dir()

    if is_year(root):
        return root
    years = sorted(folder for folder in root.glob("VOC*") if is_year(folder))
    if len(years) == 1:
        return years[0]
    if years:
        raise InputError(
            f"`{root}` must hold one year; got {', '.join(folder.name for folder in years)}: pass one of them."
        )
    inner = root / "VOCdevkit"
    if inner.is_dir():
        return _voc_folder(inner)
    raise InputError(f"`{root}` must hold `Annotations` or `ImageSets/Main`; it does not.")


def _listed_images(lists: Path) -> dict[str | None, list[str]]:
    """The images of each part's list."""
    listed: dict[str | None, list[str]] = {}
    seen: dict[str, tuple[str, str]] = {}
    again: list[str] = []
    names = [name for name in (*PARTS, _TRAINVAL) if (lists / f"{name}.txt").is_file()]
    if _TRAINVAL in names and not {"train", "val"}.isdisjoint(names):
        names.remove(_TRAINVAL)
    for name in sorted(names, key=(_TRAINVAL, *PARTS).index):
        file = lists / f"{name}.txt"
        images = listed[name] = []
        for number, image in _lines(file):
            where = f"`{file}` line {number}"
            if image in seen and seen[image][0] == name:
                raise InputError(f"{where}: image {image!r} must be listed once; it is also in {seen[image][1]}.")
            if image in seen:
                again.append(f"{where}: image {image!r} is also in {seen[image][1]}")
            seen[image] = name, where
            images.append(image)
    if again:
        count = f"; so are {len(again) - 1:,} more" if len(again) > 1 else ""
        warnings.warn(f"{again[0]}{count}. Each is a row of both parts, so figures are too good.", stacklevel=3)
    return listed


def _lines(file: Path) -> list[tuple[int, str]]:
    """Number and content of the nonblank lines."""
    lines = [(number, line.strip()) for number, line in text_lines(file)]
    return [(number, line) for number, line in lines if line]


def _read_part_xml(
    root: Path, listing: Path, images: list[str], annotated: set[str], first: int, labels: _Labels
) -> None:
    for row, image in enumerate(images, start=first):
        file = root / "Annotations" / f"{image}.xml"
        if image not in annotated:
            _refuse_unannotated(listing, image, file)
        annotation = _read_xml(file)
        if annotation.tag != "annotation":
            raise InputError(f"`{file}`: must hold an <annotation>; got <{annotation.tag}>.")
        # Body parts and the owner have names too, so only direct children count.
        for number, thing in enumerate(annotation.findall("object"), start=1):
            name, difficult = (thing.findtext("name") or "").strip(), thing.findtext("difficult", "0").strip().lower()
            if not name:
                raise InputError(f"`{file}` object {number}: has no name.")
            if difficult not in ("0", "1", "unspecified"):
                raise InputError(f"`{file}` object {number}: difficult must be 0 or 1; got {difficult!r:.60}.")
            labels.add(row, name, present=difficult != "1")


def _refuse_unannotated(listing: Path, image: str, file: Path) -> None:
    number = next(number for number, line in _lines(listing) if line == image)
    raise InputError(f"`{listing}` line {number}: image {image!r} has no `{file}`.")


class _PlainTree(ET.TreeBuilder):
    """A tree without a DOCTYPE, hence without entities that expand to gigabytes or include other files."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError("it must not have a DOCTYPE")


def _read_xml(file: Path) -> ET.Element:
    parser = ET.XMLParser(target=_PlainTree())
    try:
        parser.feed(read_whole(file))
        return parser.close()
    except (ET.ParseError, LookupError, ValueError) as error:  # An unknown encoding is a LookupError.
        raise InputError(f"`{file}` cannot be read as XML: {error}.") from error


def _read_class_lists(lists: Path, part: str, images: list[str], first: int, labels: _Labels) -> None:
    files = sorted(lists.glob(f"*_{part}.txt"))
    if not files and part == "test":
        labels.unknown_rows.append(range(first, first + len(images)))
        return
    if not files and images:
        raise InputError(f"`{lists / f'{part}.txt'}` lists images that have neither XML files nor class lists.")
    row_of = {image: row for row, image in enumerate(images, start=first)}
    for file in files:
        name = file.stem.removesuffix(f"_{part}")
        labels.code_of.setdefault(name, len(labels.code_of))  # A class may have no image.
        listed: set[int] = set()
        for number, line in _lines(file):
            image, value = line.rsplit(maxsplit=1) if len(line.split()) > 1 else (line, "")
            row = row_of.get(image)
            if value not in ("1", "0", "-1"):
                raise InputError(f"`{file}` line {number}: must be an image and 1, 0 or -1; got {line!r:.60}.")
            if row is None or row in listed:
                rule = "be listed once" if row is not None else f"be one of `{part}.txt`"
                raise InputError(f"`{file}` line {number}: image {image!r} must {rule}.")
            listed.add(row)
            if value != "-1":
                labels.add(row, name, present=value == "1")
        if len(listed) != len(images):
            raise InputError(f"`{file}` must list the {len(images)} images of `{part}.txt`; got {len(listed)}.")

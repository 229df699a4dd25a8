"""A small sample of every format in its published layout, with what its reader must find."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shortlist.data import AmbiguousWorld
from shortlist.data.opening import BUILT_IN
from tests.data.formats.small_files import (
    EXTREME,
    PLANTNET,
    PREDICATES,
    VOC_NAMES,
    arrays,
    articles,
    cifar_10,
    cifar_100,
    cifar_npz,
    citations,
    coco,
    coco_file,
    extreme_folder,
    image_folder,
    lines,
    meka,
    mimic,
    mulan,
    npy_folder,
    nus_wide,
    open_images,
    open_images_file,
    plantnet,
    put,
    safetensors,
    table,
    visual_genome,
    voc,
)


class Sample(NamedTuple):
    """A dataset in its published layout, and what a reader must find in it."""

    write: Callable[[Path], Any]  # writes it into an empty folder and returns the path to open
    format: str
    kind: str
    labels: dict[str, int]  # the number of rows of each label, in order
    parts: dict[Any, int]  # the number of rows of each part; None without a split
    unknown: int = 0

    rows = property(lambda self: sum(self.parts.values()))


CIFAR = "cifar", "images", {"apple": 1, "bear": 3, "cattle": 1}, {"train": 3, "test": 2}
CIFAR_10 = "cifar", "images", {"airplane": 3, "automobile": 3}, {"train": 5, "test": 1}
RELATIONS = dict(zip(PREDICATES, (2, 2, 1, 2), strict=True))
GRAPHS = "visual-genome", "object pairs", RELATIONS, {"train": 10, "test": 2}
VOC_COUNTS = {name: {"cow": 2, "dog": 1, "person": 1}.get(name, 0) for name in VOC_NAMES}
VOC_PARTS = "voc", "images", VOC_COUNTS, {"train": 2, "val": 1}, 1
COCO = "coco", "images", {"person": 1, "car": 1, "dog": 1}, {"train": 2, "val": 1}
PEOPLE = "open-images", "images", {"Cat": 1, "Cat, big": 2}, {"train": 2, "test": 1}
PEOPLE_FILE = "open-images", "images", {"Cat": 1, "Cat, big": 1}, {None: 2}
MIMIC = "mimic", "text", {"38.93": 1, "401.9": 2, "E880.9": 1}, {"train": 2, "val": 1, "test": 1}
MEKA = "arff", "sparse features", {"sad": 1, "calm": 1}, {"train": 1, "test": 1}
XMC = "extreme-text", "sparse features", {"0": 1, "1": 0, "2": 1}, {None: 2}
XMC_PARTS = "extreme-text", "sparse features", {"0": 1, "1": 0, "2": 2}, {"train": 2, "test": 1}
MESH = "bioasq", "text", {"Humans": 2, "Mice": 1}, {None: 2}
TREES = "arrays", "features", {"elm": 1, "oak": 2}, {"train": 2, "test": 1}
PLANTS = "table", "text", {"oak": 1, "red": 1, "rose": 1}, {"train": 2, "val": 1}
SPECIES = dict(zip(PLANTNET.values(), (3, 2, 2, 0), strict=True))
DIGITS = dict(zip("0123456789", [178, 182, 177, 183, 181, 182, 181, 179, 174, 180], strict=True))
WORLD = dict(zip((a := AmbiguousWorld().sample(20_000)).label_names, a.label_counts().tolist(), strict=True))
BY_PART = "train/daisy/1.jpg train/rose/2.jpg valid/rose/3.jpg"

SAMPLES = {
    "CIFAR-100": Sample(cifar_100, *CIFAR),
    "above CIFAR-100": Sample(lambda p: cifar_100(p).parent, *CIFAR),
    "CIFAR npz": Sample(cifar_npz, *CIFAR),
    "CIFAR-10": Sample(cifar_10, *CIFAR_10),
    "VG-SGG": Sample(visual_genome, *GRAPHS),
    "VG-SGG.h5": Sample(lambda p: visual_genome(p) / "VG-SGG.h5", *GRAPHS),
    "VOC2012": Sample(voc, *VOC_PARTS),
    "VOCdevkit": Sample(lambda p: voc(p).parent, *VOC_PARTS),
    "above VOCdevkit": Sample(lambda p: voc(p).parent.parent, *VOC_PARTS),
    "VOC without lists": Sample(lambda p: voc(p, lists=False), "voc", "images", VOC_COUNTS, {None: 3}, 1),
    "COCO root": Sample(coco, *COCO),
    "COCO annotations": Sample(lambda p: coco(p) / "annotations", *COCO),
    "COCO file": Sample(coco_file, "coco", "images", {"person": 1, "car": 2, "dog": 0}, {"val": 2}),
    "NUS-WIDE": Sample(nus_wide, "nus-wide", "images", {"airport": 1, "animal": 3}, {"train": 2, "test": 1}),
    "Open Images": Sample(open_images, *PEOPLE),
    "Open Images root": Sample(lambda p: open_images(p, "annotations"), *PEOPLE),
    "Open Images CSV": Sample(open_images_file, *PEOPLE_FILE),
    "Open Images CSV gz": Sample(lambda p: open_images_file(p, ".csv.gz"), *PEOPLE_FILE),
    "MIMIC full": Sample(mimic, *MIMIC),
    "MIMIC 50": Sample(lambda p: mimic(p, "50"), *MIMIC),
    "Mulan": Sample(mulan, "arff", "features", {"sad": 2, "calm": 2}, {"train": 2, "test": 1}, 1),
    "MEKA": Sample(meka, *MEKA),
    "MEKA gz": Sample(lambda p: meka(p, ".arff.gz"), *MEKA),
    "extreme": Sample(lambda p: lines(p / "x.txt", *EXTREME), *XMC),
    "extreme gz": Sample(lambda p: lines(p / "x.txt.gz", *EXTREME), *XMC),
    "extreme Windows": Sample(lambda p: put(p / "x.txt", "\ufeff" + "\r\n".join(EXTREME)), *XMC),
    "extreme folder": Sample(extreme_folder, *XMC_PARTS),
    "BioASQ": Sample(lambda p: articles(p, '{"articles":[\n{}\n]}'), *MESH),
    "BioASQ gz": Sample(lambda p: articles(p, '{"articles": [{}]}', name="a.json.gz"), *MESH),
    "BioASQ list": Sample(lambda p: articles(p, "[{}]"), *MESH),
    "BioASQ lines": Sample(lambda p: articles(p, "{}\n", "\n", "a.jsonl"), *MESH),
    "BioASQ lines gz": Sample(lambda p: articles(p, "{}\n", "\n", "a.jsonl.gz"), *MESH),
    "npz": Sample(arrays, *TREES),
    "npy": Sample(lambda p: npy_folder(p) / "F.npy", *TREES),
    "npy folder": Sample(npy_folder, *TREES),
    "safetensors": Sample(safetensors, *TREES),
    "CSV": Sample(table, *PLANTS),
    "TSV gz": Sample(lambda p: table(p, ".tsv.gz"), *PLANTS),
    "JSON lines": Sample(lambda p: table(p, ".jsonl"), *PLANTS),
    "JSON lines xz": Sample(lambda p: table(p, ".jsonl.xz"), *PLANTS),
    "ndjson": Sample(lambda p: table(p, ".ndjson"), *PLANTS),
    "Parquet": Sample(lambda p: table(p, ".parquet"), *PLANTS),
    "images by class": Sample(image_folder, "image-folder", "images", {"daisy": 1, "rose": 2}, {None: 3}),
    "images by part": Sample(
        lambda p: image_folder(p, BY_PART), "image-folder", "images", {"daisy": 1, "rose": 2}, {"train": 2, "val": 1}
    ),
    "Pl@ntNet": Sample(plantnet, "image-folder", "images", SPECIES, {"train": 4, "val": 2, "test": 1}),
    "PubMed": Sample(citations, "pubmed", "text", {"Mice": 14}, {"train": 12, "val": 1, "test": 1}),
    "digits": Sample(lambda p: "digits", "digits", "images", DIGITS, {"train": 1248, "val": 185, "test": 364}),
    "world": Sample(lambda p: "ambiguous", "ambiguous", "features", WORLD, {"train": 12000, "val": 4000, "test": 4000}),
}
OUTSIDE = [name for name, sample in SAMPLES.items() if sample.format not in BUILT_IN]


def place(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a sample and return its path; the packaged citations are replaced by a small file."""
    module = importlib.import_module("shortlist.data.packaged")  # By name, for the function hides its module.
    monkeypatch.setenv("SHORTLIST_CACHE", str(folder.parent / "cache"))
    monkeypatch.setattr(module, "_packaged_file", lambda: folder / "package.xml.gz")
    return SAMPLES[name].write(folder)

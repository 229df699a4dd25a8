"""A small sample of every format in its published layout, with what its reader must find."""

import csv
import gzip
import importlib
import io
import json
import lzma
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from safetensors.numpy import save_file

from shortlist.data import AmbiguousWorld
from shortlist.data.opening import BUILT_IN
from tests.data.files.pickles import WRITERS

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress}
DECOMPRESS = {".gz": gzip.decompress, ".xz": lzma.decompress}


class Sample(NamedTuple):
    """A dataset in its published layout, and what a reader must find in it."""

    write: Callable[[Path], Any]  # writes it into an empty folder and returns the path to open
    format: str
    kind: str
    labels: dict[str, int]  # the number of rows of each label, in order
    parts: dict[Any, int]  # the number of rows of each part; None without a split
    unknown: int = 0

    rows = property(lambda self: sum(self.parts.values()))


def put(path: Path, content: str | bytes = b"") -> Path:
    """Write a file, compressed as its ending says, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(content))
    return path


def lines(path: Path, *content: str) -> Path:
    return put(path, "".join(f"{line}\n" for line in content))


def picture(path: Path) -> Path:
    """A small image whose color is derived from its name, so no two are equal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), tuple(zlib.crc32(path.name.encode()).to_bytes(4, "big")[:3])).save(path)
    return path


def pixels(rows: int, first: int = 0) -> np.ndarray:
    return (np.arange(rows * 3072).reshape(rows, 3072) % 251 + first).astype(np.uint8)


def batch(rows: int, first: int = 0, **labels: list[int]) -> dict[str, Any]:
    """Rows as published: a row holds the red plane, then the green, then the blue."""
    names = [f"image_{row}.png" for row in range(rows)]
    return {"data": pixels(rows, first), "filenames": names, "batch_label": "batch", **labels}


Write = Callable[[Any], bytes]
AS_PUBLISHED = WRITERS["python 2, protocol 2"]


def cifar_100(folder: Path, write: Write = AS_PUBLISHED, **changes: Any) -> Path:
    """A file may have other values under some keys, None for no such key, or another content altogether."""
    root = folder / "cifar-100-python"
    contents: dict[str, Any] = {
        "train": batch(3, fine_labels=[0, 2, 1], coarse_labels=[1, 0, 0]),
        "test": batch(2, 4, fine_labels=[1, 1], coarse_labels=[0, 0]),
        "meta": {"fine_label_names": ["apple", "bear", "cattle"], "coarse_label_names": ["large", "fruit"]},
    }
    for name, content in contents.items():
        change = changes.get(name, {})
        if isinstance(change, dict):
            change = {key: value for key, value in (content | change).items() if value is not None}
        put(root / name, change if isinstance(change, bytes) else write(change))
    return root


def cifar_10(folder: Path, write: Write = AS_PUBLISHED) -> Path:
    root = folder / "cifar-10-batches-py"
    for number in range(1, 6):
        put(root / f"data_batch_{number}", write(batch(1, number, labels=[number % 2])))
    put(root / "test_batch", write(batch(1, 9, labels=[0])))
    meta = {"label_names": ["airplane", "automobile"], "num_cases_per_batch": 1, "num_vis": 3072}
    put(root / "batches.meta", write(meta))
    return root


def cifar_npz(folder: Path, **changes: Any) -> Path:
    """Arrays may be others, or None for none."""
    images = pixels(5).reshape(5, 32, 32, 3)
    arrays: dict[str, Any] = {"x_train": images[:3], "y_train": [0, 2, 1], "y_coarse_train": [1, 0, 0]}
    arrays |= {"x_test": images[3:], "y_test": [1, 1], "y_coarse_test": [0, 0]}
    arrays |= {"fine_names": ["apple", "bear", "cattle"], "coarse_names": ["large", "fruit"], **changes}
    np.savez_compressed(folder / "cifar.npz", **{key: array for key, array in arrays.items() if array is not None})
    return folder / "cifar.npz"


OBJECTS = ("d'or bell", "man", "tree trunk", "Überzug")
PREDICATES = ("above", "has", 'on "top" of', "wearing")

# Of each image: id, width, height, split, objects (class, x, y, w, h in pixels from 1), relations.
IMAGES = [
    (
        61,
        800,
        600,
        0,
        [(1, 1, 1, 80, 61), (3, 401, 301, 21, 30), (1, 101, 1, 40, 40)],
        [(0, 1, 1), (0, 1, 3), (2, 0, 0)],
    ),
    (7, 600, 800, 0, [(0, 1, 1, 600, 800), (2, 11, 21, 31, 41)], [(1, 0, 2), (1, 0, 2)]),
    (8, 500, 500, 0, [(1, 1, 1, 20, 20), (1, 51, 51, 20, 20)], []),
    (9, 500, 500, 2, [], []),
    (5, 1024, 768, 2, [(2, 1, 1, 10, 10), (1, 5, 5, 3, 3)], [(0, 1, 0)]),
    (4, 512, 512, 0, [(3, 1, 1, 10, 10), (0, 5, 5, 3, 3)], [(1, 0, 3), (0, 1, 1)]),
]


def encoded(box: list[int], width: int, height: int, scale: int) -> list[int]:
    """A box as the published converter writes it, without its clamps: centre and size at the longer side's scale."""
    x, y, w, h = box
    factor = scale / max(width, height)
    x, y, w, h = (
        math.floor(factor * (x - 1)),
        math.floor(factor * (y - 1)),
        math.ceil(factor * w),
        math.ceil(factor * h),
    )
    return [x + w // 2, y + h // 2, w, h]


def scene_graphs(images: list = IMAGES, scales: tuple[int, ...] = (512, 1024)) -> dict[str, np.ndarray]:
    """The arrays of ``VG-SGG.h5``."""
    found = {"labels": [], "relationships": [], "predicates": [], "split": [part for _, _, _, part, _, _ in images]}
    found |= {f"boxes_{scale}": [] for scale in scales}
    found |= {f"img_to_{end}_{what}": [] for end in ("first", "last") for what in ("box", "rel")}
    for _, width, height, _, objects, relations in images:
        first = len(found["labels"])
        for name, size, what in (("labels", len(objects), "box"), ("predicates", len(relations), "rel")):
            start = len(found[name])
            found[f"img_to_first_{what}"].append(start if size else -1)
            found[f"img_to_last_{what}"].append(start + size - 1 if size else -1)
        for kind, *box in objects:
            found["labels"].append([kind + 1])
            for scale in scales:
                found[f"boxes_{scale}"].append(encoded(box, width, height, scale))
        for subject, other, predicate in relations:
            found["relationships"].append([first + subject, first + other])
            found["predicates"].append([predicate + 1])
    widths = {"labels": 1, "predicates": 1, "relationships": 2, **{f"boxes_{scale}": 4 for scale in scales}}
    dtypes = {"labels": np.int64, "predicates": np.int64}
    return {
        key: np.array(values, dtype=dtypes.get(key, np.int32)).reshape((-1, widths[key]) if key in widths else -1)
        for key, values in found.items()
    }


def visual_genome(folder: Path, images: list = IMAGES, graphs: dict | None = None, *, sizes: bool = True) -> Path:
    """Images with their objects and relations; ``graphs`` are other arrays, and sizes of images may be missing."""
    with h5py.File(folder / "VG-SGG.h5", "w") as file:
        for key, values in (scene_graphs(images) if graphs is None else graphs).items():
            file.create_dataset(key, data=values)
    book = {"object_count": dict.fromkeys(OBJECTS, 9), "predicate_count": dict.fromkeys(PREDICATES, 9)}
    for kind, words in (("label", OBJECTS), ("predicate", PREDICATES)):
        book[f"{kind}_to_idx"] = {word: i for i, word in enumerate(words, start=1)}
        book[f"idx_to_{kind}"] = {str(i): word for i, word in enumerate(words, start=1)}
    put(folder / "VG-SGG-dicts.json", json.dumps(book))
    if sizes:
        about = [
            {"image_id": i, "width": w, "height": h, "url": f"https://x/{i}.jpg", "coco_id": None, "flickr_id": 1}
            for i, w, h, *_ in images
        ]
        put(folder / "image_data.json", json.dumps(about))
    return folder


VOC = "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant"
VOC_NAMES = [*VOC.split(), "sheep", "sofa", "train", "tvmonitor"]


def thing(name: str, difficult: str | None = "0", inner: str = "") -> str:
    """An object of an annotation of Pascal VOC."""
    mark = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    box = "<bndbox><xmin>174</xmin><ymin>101</ymin><xmax>349</xmax><ymax>351</ymax></bndbox>"
    return f"<object><name>{escape(name)}</name><pose>Left</pose><truncated>0</truncated>{mark}{box}{inner}</object>"


def annotate(root: Path, image: str, *things: str) -> Path:
    head = f"<folder>VOC2012</folder><filename>{image}.jpg</filename><owner><name>Jinky</name></owner>"
    size = "<size><width>486</width><height>500</height><depth>3</depth></size><segmented>0</segmented>"
    content = f"<annotation>\n{head}{size}{''.join(things)}\n</annotation>\n"
    return put(root / f"Annotations/{image}.xml", content)


def voc(folder: Path, *, lists: bool = True) -> Path:
    root = folder / "VOCdevkit" / "VOC2012"
    shown = {
        "2008_1": [thing("cow"), thing("dog", "1")],
        "2008_2": [thing("dog")],
        "2008_3": [thing("cow"), thing("person")],
    }
    for image, things in shown.items():
        annotate(root, image, *things)
        picture(root / f"JPEGImages/{image}.jpg")
    if lists:
        lines(root / "ImageSets/Main/train.txt", "2008_1", "2008_2")
        lines(root / "ImageSets/Main/val.txt", "2008_3")
        lines(root / "ImageSets/Main/trainval.txt", *shown)
        lines(root / "ImageSets/Main/cow_train.txt", "2008_1  1", "2008_2 -1")
    return root


def instances(path: Path, first: int, labels: list[list[int]]) -> Path:
    """A file of COCO with the images beside it; keys in the order of the published ones."""
    images, annotations = [], []
    for image, own in enumerate(labels, start=first):
        file = picture(path.parent.parent / path.stem.partition("_")[2] / f"{image:012}.jpg").name
        images.append({"license": 4, "file_name": file, "height": 8, "width": 8, "id": image})
        for label in own:
            place = {"segmentation": [[1, 1, 2, 2, 1, 2]], "area": 1.0, "iscrowd": 0, "bbox": [1, 1, 1, 1]}
            annotations.append({**place, "image_id": image, "category_id": label, "id": len(annotations) + 100 * first})
    kinds = [(1, "person", "person"), (18, "dog", "animal"), (3, "car", "vehicle")]
    categories = [{"supercategory": above, "id": i, "name": name} for i, name, above in kinds]
    head = {"info": {"year": 2017}, "licenses": [{"url": "https://x", "id": 4, "name": "Attribution License"}]}
    return put(path, json.dumps({**head, "images": images, "annotations": annotations, "categories": categories}))


def coco(folder: Path) -> Path:
    instances(folder / "annotations/instances_train2017.json", 1, [[1, 1, 18], []])
    instances(folder / "annotations/instances_val2017.json", 7, [[3]])
    put(folder / "annotations/captions_val2017.json", json.dumps({"images": [], "annotations": []}))
    return folder


def coco_file(folder: Path) -> Path:
    return instances(folder / "annotations/instances_val2017.json", 7, [[3], [1, 3]])


def nus_wide(folder: Path) -> Path:
    lines(folder / "ConceptsList/Concepts81.txt", "airport", "animal")
    lines(folder / "ImageList/TrainImagelist.txt", r"actor\0001_21.jpg", r"zoo\0002_22.jpg")
    lines(folder / "ImageList/TestImagelist.txt", r"zoo\0003_23.jpg")
    lines(folder / "ImageList/Imagelist.txt", r"actor\0001_21.jpg", r"zoo\0002_22.jpg", r"zoo\0003_23.jpg")
    for concept, train, test in (("airport", "10", "0"), ("animal", "11", "1")):
        lines(folder / f"Groundtruth/TrainTestLabels/Labels_{concept}_Train.txt", *train)
        lines(folder / f"Groundtruth/TrainTestLabels/Labels_{concept}_Test.txt", *test)
        lines(folder / f"Groundtruth/AllLabels/Labels_{concept}.txt", *train, *test)
    image_folder(folder / "Flickr", "actor/0001_21.jpg zoo/0002_22.jpg zoo/0003_23.jpg")
    return folder


OPEN_IMAGES = "ImageID,Source,LabelName,Confidence"


def open_images(folder: Path, inner: str = "") -> Path:
    lines(folder / inner / "oidv6-class-descriptions.csv", "LabelName,DisplayName", "/m/01,Cat", '/m/02,"Cat, big"')
    train = [OPEN_IMAGES, "aa1,verification,/m/01,1", "aa1,verification,/m/02,0", "aa2,crowdsource,/m/02,1"]
    lines(folder / inner / "oidv6-train-annotations-human-imagelabels.csv", *train)
    test = [OPEN_IMAGES, "bb1,verification,/m/02,1"]
    lines(folder / inner / "test-annotations-human-imagelabels.csv", *test)
    return image_folder(folder, "train/aa1.jpg train/aa2.jpg test/bb1.jpg")


def open_images_file(folder: Path, ending: str = ".csv") -> Path:
    open_images(folder)
    content = (folder / "oidv6-train-annotations-human-imagelabels.csv").read_bytes()
    image_folder(folder, "aa1.jpg aa2.jpg")
    return put(folder / f"labels{ending}", b"\xef\xbb\xbf" + content)


MIMIC_COLUMNS = "SUBJECT_ID,HADM_ID,TEXT,LABELS,length"


def mimic(folder: Path, version: str = "full") -> Path:
    train = "1,11,chest pain,401.9;38.93,2", '2,12,"fever, cough",,2'
    lines(folder / f"train_{version}.csv", MIMIC_COLUMNS, *train)
    lines(folder / f"dev_{version}.csv", MIMIC_COLUMNS, "3,13,old fall,E880.9,2")
    lines(folder / f"test_{version}.csv", MIMIC_COLUMNS, "4,14,high pressure,401.9,2")
    return folder


def mulan(folder: Path) -> Path:
    header = [
        "@relation emotions",
        "@attribute tempo numeric",
        "@attribute sad {0,1}",
        "@attribute calm {0,1}",
        "@data",
    ]
    lines(folder / "emotions-train.arff", *header, "60.5,1,1", "72,1,0")
    lines(folder / "emotions-test.arff", *header, "80,?,1")
    listed = "".join(f'<label name="{name}"></label>' for name in ("sad", "calm"))
    put(folder / "emotions.xml", f'<labels xmlns="http://mulan.sourceforge.net/labels">{listed}</labels>')
    return folder


def meka(folder: Path, ending: str = ".arff") -> Path:
    head = ["@relation 'Music: -C 2 -split-number 1'", "@attribute sad {0,1}", "@attribute calm {0,1}"]
    return lines(folder / f"Music{ending}", *head, "@attribute tempo numeric", "@data", "{1 1,2 60}", "{0 1,2 72}")


SCENE = """% Scene, as Mulan publishes it
@RELATION scene

@Attribute Att1 numeric
@attribute\t'Att 2'\tREAL   % a remark
@attribute kind {indoor, 'out door', "d\\'or"}
@attribute Beach {0,1}
@attribute 'Fall Foliage' {0, 1}

@DATA
"""
SCENE_LABELS = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="Beach"></label>
<label name="Fall Foliage"/>
</labels>"""
MUSIC = """@relation 'Music: -C 2 %'
@attribute sad {0,1}
@attribute calm {0,1}
@attribute tempo integer
@attribute pitch numeric
@data
1,0,60,1
0,1,70,2
?,1,80,3
"""


def scene(folder: Path, *rows: str) -> Path:
    put(folder / "scene.xml", SCENE_LABELS)
    return put(folder / "scene.arff", SCENE + "".join(f"{row}\n" for row in rows))


EXTREME = ("2 4 3", "0,2 1:0.5 3:2", " 0:1e0")


def extreme_folder(folder: Path) -> Path:
    lines(folder / "eurlex_train.txt", *EXTREME)
    lines(folder / "eurlex_test.txt", "1 4 3", "2 2:7")
    return folder


def articles(folder: Path, layout: str = "{}", joint: str = ",\n", name: str = "allMeSH.json") -> Path:
    """Articles of BioASQ; the text has words that are keys of other formats."""
    contents = [("Cell", '"images": of "categories": in mice.', ["Mice", "Humans"]), ("Gut", "On men.", ["Humans"])]
    records = [
        {"journal": j, "abstractText": a, "meshMajor": m, "pmid": str(i), "title": f"Title {i}", "year": "2008"}
        for i, (j, a, m) in enumerate(contents)
    ]
    return put(folder / name, layout.replace("{}", joint.join(map(json.dumps, records))))


FEATURES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


def arrays(folder: Path) -> Path:
    np.savez(
        folder / "a.npz", features=FEATURES, labels=[1, 0, 1], label_names=["elm", "oak"], split=np.array([0, 0, 1])
    )
    return folder / "a.npz"


def npy_folder(folder: Path) -> Path:
    for key, values in {"F": FEATURES, "y": [1, 0, 1], "class_names": ["elm", "oak"], "split": [0, 0, 1]}.items():
        np.save(folder / f"{key}.npy", values)
    return folder


def safetensors(folder: Path) -> Path:
    content = {"features": FEATURES, "labels": np.array([1, 0, 1]), "split": np.array([0, 0, 1])}
    save_file(content, folder / "a.safetensors", metadata={"label_names": '["elm", "oak"]'})
    return folder / "a.safetensors"


Rows = list[dict[str, Any]]
PLANT_ROWS: Rows = [
    {"text": "red rose", "labels": ["rose", "red"], "split": "train"},
    {"text": "old, oak", "labels": ["oak"], "split": "dev"},
    {"text": "", "labels": [], "split": "train"},
]


def table(folder: Path, ending: str = ".csv", rows: Rows = PLANT_ROWS) -> Path:
    """The same rows in each kind of table."""
    path = folder / f"plants{ending}"
    if ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    if ending.startswith((".jsonl", ".ndjson")):
        return lines(path, *map(json.dumps, rows))
    if "json" in ending:  # a list of records, and one within an object
        return put(path, json.dumps(rows if ending == ".json" else {"version": 1, "data": rows, "license": None}))
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if ending.startswith(".tsv") else ",", lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([";".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows)
    return put(path, text.getvalue())


def image_folder(folder: Path, names: str = "daisy/1.jpg rose/2.PNG rose/3.jpeg") -> Path:
    for name in names.split():
        picture(folder / name)
    put(folder / "README.md", "# Flowers")
    return folder


# Identifiers and names as published with Pl@ntNet-300K; file names are SHA-1 in hexadecimal there.
PLANTNET = {
    "1355868": "Lactuca virosa L.",
    "1355936": "Cirsium arvense (L.) Scop.",
    "1355937": "Cirsium vulgare (Savi) Ten.",
    "1355990": "Pelargonium capitatum (L.) L'Hér.",
}
PLANTNET_IMAGES: dict[str, dict[str, list[str]]] = {
    "train": {"1355868": ["0a" * 20, "1b" * 20], "1355936": ["2c" * 20], "1355937": ["3d" * 20], "1355990": []},
    "val": {"1355868": ["4e" * 20], "1355937": ["5f" * 20]},
    "test": {"1355936": ["6a" * 20]},
}


def plantnet(
    folder: Path, layout: str = "images/{split}/{species}", names: str = "plantnet300K_species_id_2_name.json"
) -> Path:
    """The published folder; ``layout`` differs between its packings."""
    root, metadata = folder / "plantnet_300K", {}
    for split, classes in PLANTNET_IMAGES.items():
        for species, images in classes.items():
            place = root / layout.format(split=split, species=species)
            place.mkdir(parents=True, exist_ok=True)
            for image in images:
                picture(place / f"{image}.jpg")
                about = {"species_id": species, "author": f"Author {len(metadata) % 2}", "split": split}
                metadata[image] = {**about, "organ": "flower" if split == "train" else "leaf"}
    put(root / names, json.dumps(PLANTNET))
    put(root / "plantnet300K_metadata.json", json.dumps(metadata))
    return root


MEDLINE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2019//EN"
 "http://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_190101.dtd">
<PubmedArticleSet>
"""


def article(
    pmid: int = 1,
    *,
    date: str = "<Year>1977</Year><Month>Jun</Month>",
    title: str = "A title.",
    abstract: str = "",  # its parts
    headings: str = "",
) -> str:
    """A citation as the National Library of Medicine lays it out, with years and numbers that are not meant."""
    return f"""  <PubmedArticle>
    <MedlineCitation Status="MEDLINE" Owner="NLM">
      <PMID Version="1">{pmid}</PMID>
      <DateCompleted><Year>1999</Year><Month>11</Month><Day>20</Day></DateCompleted>
      <Article PubModel="Print">
        <Journal>
          <ISSN IssnType="Print">1019-9128</ISSN>
          <JournalIssue CitedMedium="Print"><Volume>50</Volume><PubDate>{date}</PubDate></JournalIssue>
          <Title>Journal of Tests and Trials</Title>
          <ISOAbbreviation>J. Tests</ISOAbbreviation>
        </Journal>
        <ArticleTitle>{title}</ArticleTitle>
        {f"<Abstract>{abstract}<CopyrightInformation>Theirs.</CopyrightInformation></Abstract>" if abstract else ""}
        <Language>eng</Language>
        <ArticleDate DateType="Electronic"><Year>2001</Year><Month>01</Month><Day>02</Day></ArticleDate>
      </Article>
      <MedlineJournalInfo><Country>England</Country><MedlineTA>J Tests Trials</MedlineTA></MedlineJournalInfo>
      <CommentsCorrectionsList>
        <CommentsCorrections RefType="Cites"><PMID Version="1">99</PMID></CommentsCorrections>
      </CommentsCorrectionsList>
      {f"<MeshHeadingList>{headings}</MeshHeadingList>" if headings else ""}
      <OtherAbstract Type="Publisher" Language="fre"><AbstractText>Autre.</AbstractText></OtherAbstract>
    </MedlineCitation>
    <PubmedData><History><PubMedPubDate PubStatus="pubmed"><Year>2002</Year></PubMedPubDate></History></PubmedData>
  </PubmedArticle>
"""


def abstract_text(text: str) -> str:
    return f"<AbstractText>{text}</AbstractText>"


def mesh(name: str, major: str = "N", *qualifiers: tuple[str, str]) -> str:
    inside = "".join(
        f'<QualifierName UI="Q1" MajorTopicYN="{flag}">{text}</QualifierName>' for text, flag in qualifiers
    )
    return f'<MeshHeading><DescriptorName UI="D1" MajorTopicYN="{major}">{name}</DescriptorName>{inside}</MeshHeading>'


def medline(path: Path, *articles: str) -> Path:
    return put(path, f"{MEDLINE}{''.join(articles)}</PubmedArticleSet>\n")


def citations(folder: Path) -> str:
    """A small version of the packaged citations; see `place`."""
    years = [1976] * 12 + [1978, 1979]
    written = [
        article(i, date=f"<Year>{year}</Year>", abstract=abstract_text("Mice."), headings=mesh("Mice"))
        for i, year in enumerate(years)
    ]
    medline(folder / "package.xml.gz", *written)
    return "pubmed"


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

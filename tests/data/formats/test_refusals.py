"""What the readers of text refuse: a wrong piece in a small file, and the sentence that says where it is."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from shortlist.data.opening import FORMATS
from shortlist.errors import InputError
from tests.data.formats.samples import (
    EXTREME,
    MIMIC_COLUMNS,
    MUSIC,
    OPEN_IMAGES,
    SCENE,
    articles,
    coco_file,
    image_folder,
    lines,
    mimic,
    nus_wide,
    open_images,
    put,
    scene,
    visual_genome,
    voc,
)


class Place(NamedTuple):
    """Where a file can be wrong."""

    format: str
    sample: Callable[[Path], Path]  # writes what is good and returns what to open
    file: str
    around: str = "{}"  # the content around a wrong piece
    option: str | None = None  # which option names the file


def alone(name: str) -> Callable[[Path], Path]:
    """No files but the wrong one."""
    return lambda folder: folder / name


def extreme(*others: str) -> Callable[[Path], Path]:
    """Rows in one file; others beside it."""

    def write(folder: Path) -> Path:
        for name in others:
            lines(folder / name, "1")
        return lines(folder / "Bibtex_data.txt", *EXTREME).parent

    return write


def matrices(folder: Path) -> Path:
    """Features and labels of two parts, with names."""
    lines(folder / "trn_X_Xf.txt", "2 3", "0:0.5 2:1", "")
    lines(folder / "trn_X_Y.txt", "2 4", "1:1.0 3:1", "0:1.000000")
    lines(folder / "tst_X_Xf.txt", "1 3", "1:2")
    lines(folder / "tst_X_Y.txt", "1 4", "2:1 0:0")
    return lines(folder / "Y.txt", "red", "blue", "red", "été").parent


def listed(folder: Path) -> Path:
    """Images for training, without XML."""
    return lines(folder / "ImageSets/Main/train.txt", "1", "2").parents[2]


PLACES = {
    "NUS-WIDE, labels": Place("nus-wide", nus_wide, "Groundtruth/TrainTestLabels/Labels_animal_Train.txt"),
    "NUS-WIDE, training images": Place("nus-wide", nus_wide, "ImageList/TrainImagelist.txt"),
    "NUS-WIDE, test images": Place("nus-wide", nus_wide, "ImageList/TestImagelist.txt"),
    "NUS-WIDE, concepts": Place("nus-wide", nus_wide, "ConceptsList/Concepts81.txt"),
    "Open Images, header": Place("open-images", alone("mine.csv"), "mine.csv"),
    "Open Images, lines": Place("open-images", alone("mine.csv"), "mine.csv", OPEN_IMAGES + "\nx,v,a,1\n{}"),
    "Open Images, names": Place("open-images", open_images, "oidv6-class-descriptions.csv"),
    "VOC, class lists": Place("voc", listed, "ImageSets/Main/car_train.txt"),
    "VOC, XML": Place("voc", voc, "VOCdevkit/VOC2012/Annotations/2008_1.xml"),
    "COCO": Place("coco", coco_file, "annotations/instances_val2017.json"),
    "Pl@ntNet, names": Place("image-folder", image_folder, "beside.json", option="names_file"),
    "Pl@ntNet, metadata": Place("image-folder", image_folder, "beside.json", option="metadata"),
    "VG-SGG, names": Place("visual-genome", visual_genome, "VG-SGG-dicts.json"),
    "VG-SGG, images": Place("visual-genome", visual_genome, "image_data.json"),
    "MIMIC": Place("mimic", mimic, "dev_full.csv"),
    "ARFF, rows": Place("arff", scene, "scene.arff", SCENE + "0.5,-1e-3,indoor,1,0\n{}"),
    "ARFF, sparse rows": Place("arff", scene, "scene.arff", SCENE + "{0 1}\n{}"),
    "ARFF, header": Place("arff", alone("bad.arff"), "bad.arff"),
    "ARFF, list of labels": Place("arff", scene, "scene.xml"),
    "extreme text, lines": Place("extreme-text", alone("bad.txt"), "bad.txt", "3 4 3\n1 0:1\n{}\n2 1:1\n"),
    "extreme text, file": Place("extreme-text", alone("bad.txt"), "bad.txt"),
    "extreme text, split": Place("extreme-text", extreme("bibtex_tstSplit.txt"), "bibtex_trSplit.txt"),
    "extreme text, test rows": Place("extreme-text", extreme("bibtex_trSplit.txt"), "bibtex_tstSplit.txt"),
    "extreme text, matrix of labels": Place("extreme-text", matrices, "trn_X_Y.txt"),
    "extreme text, matrix of test labels": Place("extreme-text", matrices, "tst_X_Y.txt"),
    "extreme text, matrix of features": Place("extreme-text", matrices, "trn_X_Xf.txt"),
    "extreme text, names": Place("extreme-text", matrices, "Y.txt"),
    "BioASQ": Place("bioasq", lambda folder: articles(folder, '{"articles":[\n{}\n]}'), "allMeSH.json"),
    "CSV": Place("table", alone("a.csv"), "a.csv"),
    "JSON lines": Place("table", alone("a.jsonl"), "a.jsonl"),
    "JSON records": Place("table", alone("a.json"), "a.json"),
}
WRONG: dict[str, dict[str | tuple[str, str], str]] = {
    "NUS-WIDE, labels": {
        "0\n": " must have as many lines as `ImageList/TrainImagelist.txt`: 2; got 1.",
        "0\n1\n0\n": " must have as many lines as `ImageList/TrainImagelist.txt`: 2; got 3.",
        "": " must have as many lines as `ImageList/TrainImagelist.txt`: 2; got 0.",
        "0\n2\n": " line 2: must be 0 or 1; got '2'.",
        "0 1\n0 1\n": " line 1: must be 0 or 1; got '0 1'.",
        "0\n\n1\n": " line 2: must not be blank.",
        "0\n\r\r": " must have as many lines as `ImageList/TrainImagelist.txt`: 2; got 1.",
    },
    "NUS-WIDE, training images": {
        "a\\1.jpg\nb\nA\na/1.jpg\n": " line 4: image 'a/1.jpg' must differ from that of line 1.",
    },
    "NUS-WIDE, test images": {
        "a\\1.jpg\nzoo\\0002_22.jpg\n": " line 2: image 'zoo/0002_22.jpg' must not also be in…",
    },
    "NUS-WIDE, concepts": {
        "sky\nsea\nsky\n": " line 3: concept 'sky' must differ from that of line 1.",
    },
    "Open Images, header": {
        "x,v,a,1\n": " line 1: must be ImageID,Source,LabelName,Confidence; got 'x,v,a,1'.",
        "": " line 1: must be ImageID,Source,LabelName,Confidence; got ''.",
        "ImageID,Source,LabelName,XMin\n": " line 1: must be …; got 'ImageID,Source,LabelName,XMin'.",
    },
    "Open Images, lines": {
        "y,v,a": " line 3: must have 4 fields; got 3.",
        "y,v,a\ny,v,a,1,1": " line 3: must have 4 fields; got 3.",
        "\ny,v,a,2": " line 4: Confidence must lie in [0, 1]; got '2'.",
        "x,v,a,yes": " line 3: Confidence must lie in [0, 1]; got 'yes'.",
        "x,v,a,nan": " line 3: Confidence must lie in [0, 1]; got 'nan'.",
        "x,v,a,0.7": " line 3: Confidence 0.7 is that of a machine, so `min_confidence` must be a …; got None.",
        "x,v,,1": " line 3: LabelName must not be empty.",
        ",v,a,1": " line 3: ImageID must have 1 to 255 characters and no slash; got ''.",
        f"{'x' * 256},v,a,1": " line 3: ImageID must have 1 to 255 characters and no slash; got …",
        "../x,v,a,1": " line 3: ImageID must have 1 to 255 characters and no slash; got '../x'.",
        'y,v,"a,1': " line 3 is not CSV: unexpected end of data.",
    },
    "Open Images, names": {
        "/m/a,A\n/m/b\n": " line 2: must be LabelName,DisplayName; got '/m/b'.",
        "/m/a,A\n,B\n": " line 2: must be LabelName,DisplayName; got ',B'.",
        "/m/a,A\n/m/b,B\n/m/a,C\n": " line 3: LabelName '/m/a' must be described once.",
    },
    "VOC, class lists": {
        "1 1": " must list the 2 images of `train.txt`; got 1.",
        "1 1\n1 -1": " line 2: image '1' must be listed once.",
        "1 1\n3 -1": " line 2: image '3' must be one of `train.txt`.",
        "1 1\n2 yes": " line 2: must be an image and 1, 0 or -1; got '2 yes'.",
        "1\n2": " line 1: must be an image and 1, 0 or -1; got '1'.",
    },
    "VOC, XML": {
        '<!DOCTYPE a [<!ENTITY b "&a;&a;">]><annotation>&b;</annotation>': " cannot be read as XML: it must not…",
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>': " cannot be read as XML: it must not have a…",
        "<annotation>&x;</annotation>": " cannot be read as XML: undefined entity…",
        "<annotation><object><na": " cannot be read as XML: unclosed token…",
        '<?xml version="1.0" encoding="klingon"?><a/>': " cannot be read as XML: unknown encoding…",
        "<html><object/></html>": ": must hold an <annotation>; got <html>.",
        "<annotation><object><name>cow</name></object><object/></annotation>": " object 2: has no name.",
        "<annotation><object><name>  </name></object></annotation>": " object 1: has no name.",
        ("<difficult>0", "<difficult>x"): " object 1: difficult must be 0 or 1; got 'x'.",
    },
    "COCO": {
        ('"image_id": 8', '"image_id": 4'): " annotation with id 701: image_id must be an id of the images; got 4.",
        ('"category_id": 1,', '"category_id": 2,'): " annotation with id 701: category_id must be an id …; got 2.",
        ('"category_id": 1, ', ""): " annotation with id 701: has no 'category_id'.",
        ('"category_id": 1,', '"category_id": true,'): " annotation with id 701: 'category_id' must …; got True.",
        (', "id": 701', ""): " annotation number 1: has no 'id'.",
        ('"id": 701', '"id": 700'): " annotation number 1: id 700 is also that of number 0.",
        ('"width": 8, "id": 8', '"width": 8, "id": 7'): " image number 1: id 7 is also that of number 0.",
        ('"width": 8, "id": 7', '"width": 8, "id": "7"'): " image number 0: 'id' must be int; got '7'.",
        ('"file_name": "000000000007.jpg", ', ""): " image with id 7: has no 'file_name'.",
        ('"000000000008.jpg"', '"../../secret.jpg"'): " image 1: `file_name` must lie …; got '../../secret.jpg'.",
        ('"000000000008.jpg"', '"a/../../b.jpg"'): " image 1: `file_name` must lie in the …; got 'a/../../b.jpg'.",
        ('"000000000008.jpg"', '"/etc/passwd"'): " image 1: `file_name` must lie in the …; got '/etc/passwd'.",
        ('"000000000008.jpg"', '"..\\\\b.jpg"'): " image 1: `file_name` must lie in the …; got '..\\\\b.jpg'.",
        ('"000000000008.jpg"', '"\\ud800.jpg"'): " image with id 8: file_name '\\ud800.jpg' must be whole…",
        ('"id": 18, "name"', '"id": 3, "name"'): " category number 2: id 3 is also that of number 1.",
        ('"name": "dog"', '"name": "person"'): " category number 1: name 'person' is also that of number 0.",
        ('"supercategory": "animal"', '"supercategory": 3'): " category with id 18: 'supercategory' must …; got 3.",
        '{"images": 3, "annotations": [], "categories": []}': ": 'images' must be list; got 3.",
        '{"images": [[1]], "annotations": [], "categories": []}': " image number 0: must be an object …; got list.",
        '{"images": [], "categories": []}': " holds no labels: it lists images without annotations, like files of…",
        "[1, 2]": ": must be an object with keys; got list.",
        '{\n"images": [': " line 2 is not JSON…",
        "[" * 200_000: " is nested too deeply to be read.",
    },
    "Pl@ntNet, names": {
        '["Rosa"]': " must hold a JSON object; got list.",
        '{"rose": 3}': ": the name of 'rose' must be a text; got 3.",
        '{"b": "Rosa"}': " names none of the class folders, such as 'daisy'.",
    },
    "Pl@ntNet, metadata": {
        "nothing": " line 1 is not JSON…",
        "3": " must hold a JSON object; got int.",
        '{"1": "Ann"}': ": image '1' must be described by an object; got 'Ann'.",
        '{"1": {"organ": ["leaf"]}}': ": 'organ' of image '1' must be a text; got ['leaf'].",
        '{"7": {"organ": "leaf"}}': " describes none of the images in `FOLDER` by its name.",
    },
    "VG-SGG, names": {
        "{}": ": has no 'idx_to_label'.",
        "[1]": ": must be an object with keys; got list.",
        ('"idx_to_predicate": {"1"', '"idx_to_predicate": {"0"'): " idx_to_predicate: has no '1'.",
        ('"idx_to_label": {"1": "d\'or bell"', '"idx_to_label": {"1": 7'): " idx_to_label: '1' must be str; got 7.",
        (
            '"label_to_idx": {"d\'or bell": 1, ',
            '"label_to_idx": {',
        ): ' label_to_idx: "d\'or bell" must be 1, as…; got None.',
        ('"2": "has"', '"2": "above"'): " predicate_to_idx: 'above' must be 2, as in idx_to_predicate; got 1.",
    },
    "VG-SGG, images": {
        "{}": " must be a list of images; got dict.",
        '[{"image_id": 1, "width": 8, "height": 6}]': " must list the 6 images of `VG-SGG.h5`; got 1.",
        '[{"image_id": 1, "height": 6}]': " image 0: has no 'width'.",
        "[[1, 2]]": " image 0: must be an object with keys; got list.",
        ('"height": 600, "url": "https://x/61.jpg"', '"height": "4"'): " image 0: 'height' must be int; got '4'.",
        ('"height": 600, "url": "https://x/61.jpg"', '"height": 0'): " image 0: id, width and …; got [61, 800, 0].",
        ('"image_id": 61', f'"image_id": {2**70}'): " image 0: id, width and height must be above 0 and below…",
        ('"image_id": 61', '"image_id": 7'): ": each image must be listed once; 'image_id' 7 is repeated.",
    },
    "MIMIC": {
        "": " is empty.",
        "SUBJECT_ID,HADM_ID,TEXT\n": " line 1: must name the columns SUBJECT_ID, HADM_ID, TEXT, LABELS; LABELS is…",
        MIMIC_COLUMNS + "\n1,2,x,401.9,1\n3,4,x,401.9\n": " line 3: must have 5 cells, like the header; got 4.",
        MIMIC_COLUMNS + "\n1,two,x,401.9,1\n": " line 2: HADM_ID must be an integer; got 'two'.",
        MIMIC_COLUMNS + "\n,2,x,401.9,1\n": " line 2: SUBJECT_ID must be an integer; got ''.",
        MIMIC_COLUMNS + "\n1,2,x,401.9,1\n1,2,y,401.9,1\n": " line 3: HADM_ID 2 must occur once; it is also at…",
        MIMIC_COLUMNS + "\n6,11,x,401.9,1\n": " line 2: HADM_ID 11 must occur once; it is also at…",
    },
    "ARFF, rows": {
        "1,2,indoor,1": " line 12: a row must have 5 values; got 4.",
        "1,2,indoor,1,0,{3}": " line 12: a row must have 5 values; got 6.",
        "1,,indoor,1,0": " line 12: a row must have 5 values; got 4.",
        "1,x,indoor,1,0": " line 12: attribute 'Att 2' must be a number; got 'x'.",
        "1,1_0,indoor,1,0": " line 12: attribute 'Att 2' must be a number; got '1_0'.",
        "1,٣,indoor,1,0": " line 12: attribute 'Att 2' must be a number; got '٣'.",
        "1,nan,indoor,1,0": " line 12: attribute 'Att 2' must be a finite float32; got nan.",
        "1,1e39,indoor,1,0": " line 12: attribute 'Att 2' must be a finite float32; got 1e+39.",
        "1,2,garden,1,0": " line 12: attribute 'kind' must be one of indoor, out door, d'or; got 'garden'.",
        "1,2,'indoor,1,0": ' line 12: quotes must open and close around a whole value; got ",\'indoor,1,0".',
        "1,2,indoor,2,0": " line 12: attribute 'Beach' must be 0, 1 or ?; got '2'.",
        "{0 1}": " line 12: either all rows must be in braces or none; got '{0 1}'.",
    },
    "ARFF, sparse rows": {
        "{0 1": " line 12: a row must end with its brace, without a weight; got '{0 1'.",
        "{0 1}, {2}": " line 12: a row must end with its brace, without a weight; got '{0 1}, {2}'.",
        "{0 1, 2}": " line 12: values in braces must be written as number value; got '2'.",
        "{0 1,}": " line 12: values in braces must be written as number value; got ''.",
        "{x 1}": " line 12: values in braces must be written as number value; got 'x 1'.",
        "{5 1}": " line 12: attribute 5 must lie in [0, 5).",
        "{0 1,0 2}": " line 12: attribute 0 must occur once; got it twice.",
        "{0 inf}": " line 12: attribute 'Att1' must be a finite float32; got inf.",
        "{3 5}": " line 12: attribute 'Beach' must be 0, 1 or ?; got '5'.",
    },
    "ARFF, header": {
        "": " ends at line 0 without @data, so it is not a complete ARFF file.",
        "@relation x\n@attribute a numeric\n": " ends at line 2 without @data, so it is not a complete ARFF file.",
        "@relation x\n@data\n1\n": " line 2: data must come after at least one attribute; got none.",
        "a,b\n1,2\n": " line 1: must be @relation, @attribute or @data; got 'a,b'.",
        "@attribute a\n@data\n": " line 1: attribute 'a' must be numeric, real, integer, string, date …; got ''.",
        "@attribute a relational\n": " line 1: attribute 'a' must be numeric, real, integer, …; got 'relational'.",
        "@attribute\n": " line 1: an attribute must be written as @attribute name kind; got '@attribute'.",
        "@attribute a {0,1\n": " line 1: the values of attribute 'a' must end with a brace; got '{0,1'.",
        "@attribute a {0,0}\n": " line 1: the values of attribute 'a' must differ; got '{0,0}'.",
        "@attribute a real\n@attribute 'a' real\n": " line 2: attribute 'a' must be declared once; got it twice.",
        "@relation 'x: -C 3'\n@attribute a real\n@data\n": ": -C in the relation must name 1 to 1 …; got 3.",
        "@relation x\n@attribute a real\n@data\n": " states no labels: give `labels`, or put an XML file of the…",
        "@relation 'x: -C 1'\n@attribute a {0,2}\n@data\n": ": label 'a' must be declared {0,1} or numeric; got…",
        "@relation 'x: -C 1'\n@attribute a string\n@data\n": ": label 'a' must be declared {0,1} or …; got string.",
        MUSIC.replace("%", "-split-number 4"): " has 3 rows; its relation says 4 of them are for training.",
        MUSIC.replace("integer", "string"): ": attribute 'tempo' must be numeric or nominal, or a …; got string.",
        MUSIC.replace("numeric", "date 'yyyy'"): ": attribute 'pitch' must be numeric or nominal, or …; got date.",
    },
    "ARFF, list of labels": {
        "": " line 1 is not XML: no element found.",
        "<labels>\n<label": " line 2 is not XML: unclosed token.",
        "<a/>": " line 1: must be a list <labels> of <label>; got <a>.",
        "<labels><tag/></labels>": " line 1: must be a list <labels> of <label>; got <tag>.",
        "<labels>\n<label/></labels>": " line 2: a label must have a name.",
        "<labels/>": " must list at least one label.",
        '<labels><label name="a"/>\n<label name="a"/></labels>': " line 2: label 'a' must be …; got it twice.",
        '<labels><label name="Sea"/></labels>': ": label 'Sea' must be an attribute of `scene.arff`.",
        '<!DOCTYPE labels [<!ENTITY a "b">]>\n<labels><label name="&a;"/></labels>': " line 1: must not declare a…",
    },
    "extreme text, lines": {
        "3 0:1": " line 3: label '3' must be an integer in [0, 3).",
        "x 0:1": " line 3: label 'x' must be an integer in [0, 3).",
        "1,,2 0:1": " line 3: label '' must be an integer in [0, 3).",
        "1, 2 0:1": " line 3: label '' must be an integer in [0, 3).",
        "-1 0:1": " line 3: label '-1' must be an integer in [0, 3).",
        "1.0 0:1": " line 3: label '1.0' must be an integer in [0, 3).",
        "99999999999999999999 0:1": " line 3: label '99999999999999999999' must be an integer in [0, 3).",
        "2,0,2 0:1": " line 3: label 2 must occur once; got it twice.",
        "1 4:1": " line 3: feature '4' must be an integer in [0, 4).",
        "1 -1:1": " line 3: feature '-1' must be an integer in [0, 4).",
        "1 3:1 0:2 3:1": " line 3: feature 3 must occur once; got it twice.",
        "1 0:1 2": " line 3: a feature must be written as index:value; got '2'.",
        "1 0:1 qid": " line 3: a feature must be written as index:value; got 'qid'.",
        " 1 0:1": " line 3: a feature must be written as index:value; got '1'.",
        "1 2:": " line 3: the value of feature 2 must be a finite float32; got ''.",
        "1 2: 3:4": " line 3: the value of feature 2 must be a finite float32; got ''.",
        "1 2:nan": " line 3: the value of feature 2 must be a finite float32; got 'nan'.",
        "1 2:-inf": " line 3: the value of feature 2 must be a finite float32; got '-inf'.",
        "1 2:1e39": " line 3: the value of feature 2 must be a finite float32; got '1e39'.",
        "1 2:1.2.3": " line 3: the value of feature 2 must be a finite float32; got '1.2.3'.",
        "1 2:1:3": " line 3: the value of feature 2 must be a finite float32; got '1:3'.",
        "1 2:.": " line 3: the value of feature 2 must be a finite float32; got '.'.",
        "1 2:1e": " line 3: the value of feature 2 must be a finite float32; got '1e'.",
        "1 2:--1": " line 3: the value of feature 2 must be a finite float32; got '--1'.",
        "1 2:1_0": " line 3: the value of feature 2 must be a finite float32; got '1_0'.",
        "1 2:0x10": " line 3: the value of feature 2 must be a finite float32; got '0x10'.",
        "1 2:٣": " line 3: the value of feature 2 must be a finite float32; got '\\\\xd9\\\\xa3'.",
        "1 2:1\0": " line 3: the value of feature 2 must be a finite float32; got '1\\x00'.",
    },
    "extreme text, file": {
        "": " is empty.",
        "\ufeff": " is empty.",
        "3 4 3\n1 0:1\n": " ends after 1 rows; its first line says 3.",
        "1 4 3\n1 0:1\n\n2 0:1\n\n": " line 4: the first line says 1 rows; got more.",
        "2 4 3\n1 0:1\n2 0:1 1": " line 3: a feature must be written as index:value; got '1'.",
        "\x01PNG\r\n\x1a\n": " line 1 must be three integers, of rows, features and labels, …; got '\\x01PNG'.",
        "a,b\n1,2\n": " line 1 must be three integers, of rows, features and labels, unless …; got 'a,b'.",
        "3 4\n1 0:1\n": " line 1 must be three integers, of rows, features and labels, unless …; got '3 4'.",
        "-3 4 3\n": " line 1 must be three integers, of rows, features and labels, unless …; got '-3 4 3'.",
    },
    "extreme text, split": {
        "2 1\n2\n": " line 2: must have 2 numbers, like the lines before; got 1.",
        "2 1\n0 2\n": " line 2: must be the number of a row, in [1, 2]; got '0'.",
        "3 1\n": " line 1: must be the number of a row, in [1, 2]; got '3'.",
        "x 1\n": " line 1: must be the number of a row, in [1, 2]; got 'x'.",
        "2 1\n2 2\n": " line 2: row 2 must be listed once; it is also in `bibtex_trSplit.txt`.",
    },
    "extreme text, test rows": {
        "2\n1\n": " line 2: row 1 must be listed once; it is also in `bibtex_trSplit.txt`.",
    },
    "extreme text, matrix of labels": {
        "2 4\n1:1\n0:2.5\n": " line 3: label 0 must have the value 1 or 0; got 2.5.",
        "2 4\n1:1\n9:1\n": " line 3: feature '9' must be an integer in [0, 4).",
        "3 4\n1:1\n\n\n": " line 1 says 3 rows; it must be 2.",
    },
    "extreme text, matrix of test labels": {
        "1 5\n1:1\n": " line 1 says 5 columns; it must be 4.",
        "2 4\n1:1\n": " line 1 says 2 rows; it must be 1.",
    },
    "extreme text, matrix of features": {
        "2 3\n0:1\n": " ends after 1 rows; its first line says 2.",
        "": " is empty.",
        "1 3 4\n1:1\n": " line 1 must be two integers, of rows and columns; got '1 3 4'.",
    },
    "extreme text, names": {
        "red\n": " must have a line for each of 4 labels; got 1.",
    },
    "BioASQ": {
        "": " is empty.",
        " \n": " is empty.",
        ("\n]}", ""): " article 2 must be followed by ','; got the end of the file.",
        ("\n]}", "\n]"): " article 2 must be followed by '}'; got the end of the file.",
        ('"2008"}\n]}', '"20'): " article 2 is not JSON: the file ends in it.",
        '{"articles":[\n{"journal": "Cell", "abstract': " article 1 is not JSON: the file ends in it.",
        ('"pmid": "1"', '"pmid": one'): " article 2 is not JSON: Expecting value.",
        ("},\n{", "}\n{"): ' article 1 must be followed by \',\'; got \'{"journal": "Gut", "\'.',
        ("\n]}", "\n]}more"): ": nothing may follow the list; got 'more'.",
        "[1]": " article 1: must be an object with keys; got '1]'.",
        "PK\x03\x04 a zip": " article 1: must be an object with keys; got 'PK\\x03\\x04 a zip'.",
        '{"documents": []}': " article 1: has no 'meshMajor'.",
        ('["Mice", "Humans"]', '"Mice"'): " article 1 (pmid 0): 'meshMajor' must be list; got 'Mice'.",
        ('["Humans"]', "[7]"): " article 2 (pmid 1): 'meshMajor' must hold names of headings; got 7.",
        ('"Title 0"', '["x"]'): " article 1 (pmid 0): 'title' must be text; got ['x'].",
        '{"source": "x", "articles": []': " article 0 must be followed by '}'; got the end of the file.",
        '{"source": "x", "articles": [], ': " article 0: a key and a value must follow …; got the end of the file.",
        '{"articles": [], "a": tru}': " article 0: a key and a value must follow the list; got '\"a\": tru}'.",
        '{"source": "x", "art': " article 1 is not JSON: the file ends in it.",
        '{"source": "x"}': " article 1: has no 'meshMajor'.",
    },
    "CSV": {
        "": " is empty.",
        "x,label\n1,a\n2\n": " line 3: must have 2 cells, like the header; got 1.",
        "x,label\n1,a\n2,b,c\n": " line 3: must have 2 cells, like the header; got 3.",
        'x,label\n1,"a\n': " line 2 is not CSV: unexpected end of data.",
        "x,label\n1,a\n2, \n": " line 3: 'label' must name a class; got an empty cell: such rows can be left out.",
        "x,label\n1,a\n,b\n": " line 3: 'x' must be a finite number; got ''.",
        "x,label\nnan,a\n": " line 2: 'x' must be a finite number; got 'nan'.",
        "x,label\n1e39,a\n": " line 2: 'x' must be a finite number; got '1e39'.",
        "x,label\n1_000,a\n": " line 2: 'x' must be a finite number; got '1_000'.",
        "x,x,label\n1,2,a\n": ": `columns` must differ; positions 0 and 1 are both 'x'.",
        "label\na\n": ": has no column of text or features; it has 'label'.",
    },
    "JSON lines": {
        "\n": " is empty.",
        '{"x": 1, "label": "a"}\n{"x": 2, "label"': " line 2 is not JSON…",
        '{"x": 1, "label": "a"}\n[1]': " line 2: must be an object with keys; got list.",
        '{"x": 1, "label": "a"}\n{"x": 2}': " line 2: 'label' must name a class; got an empty cell…",
        '{"x": 1, "label": "a"}\n{"x": "two", "label": "a"}': " line 2: 'x' must be a finite number; got 'two'.",
        '{"x": [1, 2], "label": "a"}\n{"x": [1], "label": "a"}': " line 2: 'x' must be 2 numbers, like …; got [1].",
        '{"x": [1, 2], "label": "a"}\n{"x": [1, null], "label": "a"}': " line 2: 'x' must be a …; got [1, None].",
        '{"text": 7, "label": "a"}': " line 1: 'text' must be text; got 7.",
        '{"x": 1' + "0" * 400 + ', "label": "a"}': " line 1: 'x' must be a finite number; got …",
        '{"x": [[1], [2]], "label": "a"}\n{"x": [[1], 2], "label": "a"}': " line 1: 'x' must be …; got [[1], [2]].",
        '{"label": "x", "a": 1}\n{"label": "y", "a": 2, "b": 3}': " line 1: 'b' must be a finite number; got None.",
    },
    "JSON records": {
        '[{"x": 1, "label": "a"}, {"x": "b", "label": "a"}]': " record 2: 'x' must be a finite number; got 'b'.",
        '[{"x": 1, "label": "a"}, 7]': " record 2: must be an object with keys; got '7]'.",
        '[{"x": 1, "label": "a"}': " record 1 must be followed by ','; got the end of the file.",
        "[]": " is empty.",
    },
}
"""The sentence, after the file, for each wrong content of a place, or for each piece that is replaced.

An ellipsis stands for any text.
"""
CASES = [(name, wrong) for name in PLACES for wrong in WRONG[name]]


def refusal(place: Place, wrong: str | tuple[str, str], folder: Path) -> str:
    """The sentence in which a file with a wrong piece is refused, with paths below the folder."""
    path = place.sample(folder)
    file, options = folder / place.file, {}
    if isinstance(wrong, tuple):
        before = file.read_text(encoding="utf-8")
        assert wrong[0] in before
        put(file, before.replace(*wrong, 1))
    else:
        put(file, place.around.replace("{}", wrong))
    if place.option is not None:
        options[place.option] = file
    with pytest.raises(InputError) as caught:
        FORMATS[place.format].read(path, **options)
    return str(caught.value).replace(f"{folder}/", "").replace(str(folder), "FOLDER")


@pytest.mark.parametrize(("name", "wrong"), CASES, ids=[f"{name}: {str(wrong)[:40]}" for name, wrong in CASES])
def test_a_wrong_piece_of_a_file_is_refused_with_its_place(tmp_path, name, wrong):
    place = PLACES[name]
    pattern = re.escape(f"`{place.file}`{WRONG[name][wrong]}").replace("…", ".*")
    assert re.fullmatch(pattern, refusal(place, wrong, tmp_path))

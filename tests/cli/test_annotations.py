"""Annotation files as they are published, before any image was downloaded."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import command

run, _ = command("data")
LABELS = "".join(f"{row:016x},verification,/m/0{row % 3},1\n" for row in range(20))
BOXES = "".join(f"{row:016x},xclick,/m/0{row % 3},1,0,1,0,1\n" * 2 for row in range(20))


def keypoints() -> str:
    images = [{"id": row, "file_name": f"{row}.jpg"} for row in range(30)]
    annotations = [{"id": row, "image_id": row, "category_id": 1, "keypoints": [0] * 51} for row in range(20)]
    return json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "person"}]})


FILES = {
    "annotations/person_keypoints_val2017.json": (keypoints(), 30, "COCO 2017: 30 rows of images, 1 label"),
    "oidv6-train-annotations-bbox.csv": (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n" + BOXES,
        20,
        "Open Images: 20 rows of images, 3 labels",
    ),
    "annotations-human-imagelabels-boxable.csv": (
        "ImageID,Source,LabelName,Confidence\n" + LABELS,
        20,
        "Open Images: 20 rows of images, 3 labels",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_labels_are_summarized_without_images(tmp_path, monkeypatch, capsys, name):
    content, rows, heading = FILES[name]
    monkeypatch.chdir(tmp_path)
    Path("data", name).parent.mkdir(parents=True)
    Path("data", name).write_text(content)
    code, out, err = run(capsys, "inspect", "data")
    assert code == 0
    said = rf"{rows} of {rows} images are missing, such as `.*\.jpg`, so only labels are summarized\.\n"
    assert re.fullmatch(said, err)
    offered = "\nNext, once the images are there: shortlist compare data " in out
    assert offered != heading.endswith(" 1 label")
    assert out.startswith(heading)
    assert "random row" not in out

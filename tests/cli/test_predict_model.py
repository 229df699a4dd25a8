"""``shortlist predict`` with a model: new data laid out like those of training, with labels or without."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from shortlist.data import read_image_folder, read_table
from shortlist.predict import model_scores
from shortlist.sets import TopK
from shortlist.train import load_model
from tests.cli.command import command
from tests.cli.trained import DATA, NAMES, PARTS, VALUES, write_table

run, refused = command("predict")


pytestmark = pytest.mark.usefixtures("model_folder")


def answers(capsys, *arguments: str) -> list[dict]:
    code, out, err = run(capsys, *arguments, "--seed", "0")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def expected(model: str, dataset) -> list[list[str]]:
    saved = load_model(model)
    sets = saved.rule.predict(saved.scores(dataset), names=saved.label_names)
    return [[label for label, _ in row] for row in sets]


def test_every_layout_of_the_same_features_gives_the_same_sets(capsys):
    wanted = expected("parts", DATA)
    write_table("new.csv")
    write_table("new.tsv", delimiter="\t")
    write_table("labelled.csv", species=["zebra"] * len(NAMES), part=PARTS)
    Path("turned.csv").write_text(
        "note,d,c,b,a\n" + "".join(f"n,{row[3]!r},{row[2]!r},{row[1]!r},{row[0]!r}\n" for row in VALUES.tolist())
    )
    Path("new.jsonl").write_text(
        "".join(json.dumps(dict(zip("abcd", row, strict=True))) + "\n" for row in VALUES.tolist())
    )
    np.save("new.npy", VALUES)
    np.savez("new.npz", VALUES)
    for path in ("new.csv", "new.tsv", "labelled.csv", "turned.csv", "new.jsonl", "new.npy", "new.npz", "arrays.npz"):
        found = answers(capsys, "parts", "--data", path)
        assert [row["labels"] for row in found] == wanted, path
        assert [row["row"] for row in found] == list(range(len(NAMES)))


def test_how_data_were_read_is_kept_with_the_model():
    about = {name: load_model(name).about["source"] for name in ("parts", "texts", "photos-model", "arrays")}
    assert about["parts"]["format"] == "table"
    assert about["parts"]["reader"] == {"label": "species", "split": "part"}
    assert about["parts"]["columns"] == {"features": ["a", "b", "c", "d"]}
    assert about["texts"]["columns"] == {"text": ["words"]}
    assert (about["texts"]["kind"], about["photos-model"]["kind"], about["arrays"]["kind"]) == (
        "text",
        "images",
        "features",
    )
    assert about["photos-model"]["reader"] == {"size": [4, 6]}


def test_a_column_can_hold_the_ids_of_rows(capsys):
    write_table("named.csv", plot=[f"p{row}" for row in range(len(NAMES))])
    found = answers(capsys, "parts", "--data", "named.csv", "--id", "plot")
    assert [row["id"] for row in found] == [f"p{row}" for row in range(len(NAMES))]
    assert "has no column 'zzz'" in refused(capsys, "parts", "--data", "named.csv", "--id", "zzz")
    assert "has no id column 'zzz'" in refused(capsys, "parts", "--data", "arrays.npz", "--id", "zzz")


def test_a_part_has_the_numbers_of_its_rows_even_if_training_drew_it(capsys):
    found = answers(capsys, "parts", "--data", "parts.csv", "--part", "test")
    rows = [row for row, part in enumerate(PARTS) if part == "test"]
    assert [row["row"] for row in found] == rows
    everything = answers(capsys, "parts", "--data", "parts.csv")
    assert [row["labels"] for row in found] == [everything[row]["labels"] for row in rows]
    assert len(answers(capsys, "plain", "--data", "plain.csv", "--part", "test")) == 24
    assert len(answers(capsys, "arrays", "--data", "arrays.npz", "--part", "val")) == 24


def test_texts_come_from_tables_and_line_by_line(capsys):
    Path("new.txt").write_text("an owl\n\na hare and a fox\n")
    Path("new-texts.csv").write_text("number,words\n1,an owl\n2,\n3,a hare and a fox\n")
    Path("other.csv").write_text('body\nan owl\n""\na hare and a fox\n')
    found = answers(capsys, "texts", "--data", "new.txt")
    assert [row["row"] for row in found] == [0, 1, 2]
    assert answers(capsys, "texts", "--data", "new-texts.csv") == found
    assert answers(capsys, "texts", "--data", "other.csv", "--reader", "{text: body}") == found


def test_images_come_from_folders_of_any_depth_or_alone(capsys):
    from PIL import Image

    by_class = answers(capsys, "photos-model", "--data", "photos")
    assert by_class[10]["id"] == "owl/0.png"
    assert [row["labels"] for row in by_class] == expected("photos-model", read_image_folder("photos", size=(4, 6)))
    Path("flat").mkdir(exist_ok=True)
    for name in ("daisy/3", "rose/7"):
        image = Image.open(f"photos/{name}.png")
        image.save(f"flat/{name.replace('/', '-')}.png")
    Path("flat/notes.csv").write_text("a,b\n1,2\n")
    found = answers(capsys, "photos-model", "--data", "flat")
    assert [row["id"] for row in found] == ["daisy-3.png", "rose-7.png"]
    assert [row["labels"] for row in found] == [by_class[3]["labels"], by_class[27]["labels"]]
    assert answers(capsys, "photos-model", "--data", "flat/rose-7.png") == found[1:]
    assert len(answers(capsys, "photos-model", "--data", "photos", "--part", "test")) == 3


def test_options_of_the_reader_come_before_those_of_training(capsys):
    write_table("renamed.csv")
    text = Path("renamed.csv").read_text().replace("a,b,c,d", "x1,x2,x3,x4")
    Path("renamed.csv").write_text(text)
    found = answers(capsys, "parts", "--data", "renamed.csv", "--reader", "{features: x*}")
    assert [row["labels"] for row in found] == expected("parts", DATA)
    table = read_table("parts.csv", label="species", features=["a", "b", "c", "d"])
    assert [row["labels"] for row in found] == expected("parts", table)


def test_a_given_rule_is_used_if_it_fits(capsys):
    TopK(3).fit(load_model("parts").scores(DATA), from_logits=True).save("three.json")
    TopK(1).fit(load_model("photos-model").scores(read_image_folder("photos", size=(4, 6))), from_logits=True).save(
        "few.json"
    )
    assert {len(row["labels"]) for row in answers(capsys, "parts", "--data", "parts.csv", "--rule", "three.json")} == {
        3
    }
    sentence = refused(capsys, "parts", "--data", "parts.csv", "--rule", "few.json")
    assert (
        sentence == "`few.json` is for 3 labels, but `parts.csv` has 7 (is the column 'group 1 label 1' one of ids?)."
    )


@pytest.mark.parametrize(("model", "data"), [("parts", "parts.csv"), ("arrays", "arrays.npz"), ("texts", "texts.csv")])
def test_an_interrupted_model_resumes_and_scores_no_row_twice(model, data, capsys, monkeypatch):
    arguments = (model, "--data", data, "--seed", "0", "-o")
    assert run(capsys, *arguments, "whole.jsonl")[0] == 0
    answer, batches = model_scores._model_scores, []

    def counted(saved, inputs, *rest):
        if len(batches) == 1:
            batches.append(0)
            raise KeyboardInterrupt
        batches.append(len(inputs))
        return answer(saved, inputs, *rest)

    monkeypatch.setattr(model_scores, "_model_scores", counted)
    # The model's own folder may be the place of the output, too.
    command = ("shortlist predict", *arguments, f"{model}/sets.jsonl")
    told = run(capsys, *command[1:])
    assert told == (130, "", f"\nshortlist: interrupted; 40 rows are kept; to go on: {' '.join(command)}\n")
    assert run(capsys, *arguments, f"{model}/sets.jsonl", "--resume")[0] == 0
    assert Path(f"{model}/sets.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert sum(batches) == len(Path("whole.jsonl").read_bytes().splitlines())
    for path in ("whole.jsonl", f"{model}/sets.jsonl"):
        os.remove(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"source": {"kind": 3}}, "`damaged/model.json` is damaged: its `source` is not what was written."),
        ({"source": 5}, "`damaged/model.json` is damaged: its `source` is not what was written."),
        ("format", "`damaged/model.json` is damaged: 'zzz' is not a data format."),
    ],
)
def test_an_edited_source_is_one_sentence(capsys, change, sentence):
    Path("damaged").mkdir(exist_ok=True)
    for file in Path("parts").glob("*.*"):
        Path("damaged", file.name).write_bytes(file.read_bytes())
    document = json.loads(Path("parts/model.json").read_text())
    if change == "format":
        document["about"]["source"]["format"] = "zzz"
    else:
        document["about"] |= change
    Path("damaged/model.json").write_text(json.dumps(document))
    assert refused(capsys, "damaged", "--data", "parts.csv") == sentence


def test_a_model_that_says_nothing_of_its_data_takes_the_usual_columns(capsys):
    Path("plain-model").mkdir(exist_ok=True)
    for file in Path("parts").glob("*.*"):
        Path("plain-model", file.name).write_bytes(file.read_bytes())
    document = json.loads(Path("parts/model.json").read_text())
    del document["about"]["source"]
    Path("plain-model/model.json").write_text(json.dumps(document))
    write_table("usual.csv", label=NAMES, split=PARTS)
    assert [row["labels"] for row in answers(capsys, "plain-model", "--data", "usual.csv")] == expected("parts", DATA)

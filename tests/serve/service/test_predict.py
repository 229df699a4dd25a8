"""``POST /predict``: the answers of `shortlist predict`, and one sentence for what cannot be answered."""

import base64
import io
import json

import pytest
from PIL import Image

from shortlist.predict import find_rule, iterate_sets, open_model, read_rule
from shortlist.predict.files.set_files import text_lines
from shortlist.predict.prediction import set_rows
from tests.cli.trained import VALUES
from tests.serve.service.conftest import running, sentence


def written(model, *, rule=None, **rows) -> list[dict]:
    """What `shortlist predict` writes."""
    scores = open_model(model, **rows).scores
    names, lines = scores.names, []
    for block, sets in iterate_sets(scores, read_rule(find_rule(model, rule), scores), seed=0):
        lines += "".join(text_lines("jsonl", names).lines(set_rows(block, sets))).splitlines()
    return [json.loads(line) for line in lines]


def rows_of(found) -> list[dict]:
    (answer,) = found["answers"]
    return answer["rows"]


def png(size=(4, 4), color=(200, 10, 0), kind="PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, kind)
    return file.getvalue()


def test_features_get_the_answers_of_the_command_one_by_one_and_together(asked, folder, tmp_path):
    from numpy import save

    save(tmp_path / "rows.npy", VALUES[:8])
    wanted = written(folder / "parts", data=str(tmp_path / "rows.npy"))
    values = VALUES[:8].astype(float).tolist()
    assert rows_of(asked.post("/predict", model="parts", features=values)) == wanted
    for row, expected in zip(values, wanted, strict=True):
        assert rows_of(asked.post("/predict", model="parts", features=[row])) == [{**expected, "row": 0}]


def test_texts_get_the_answers_of_the_command(asked, folder):
    texts = ["owl is a word", "", "a fox and a hare é\u0000"]
    assert rows_of(asked.post("/predict", model="texts", texts=texts)) == written(folder / "texts", texts=texts)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_images_get_the_answers_of_the_command_as_base64_and_as_a_form(asked, folder, tmp_path, kind):
    content = png((9, 7), kind=kind)
    (tmp_path / f"photo.{kind.lower()}").write_bytes(content)
    (wanted,) = written(folder / "photos-model", data=str(tmp_path / f"photo.{kind.lower()}"))
    wanted = {"row": 0, "labels": wanted["labels"], "scores": wanted["scores"]}
    coded = base64.b64encode(content).decode()
    assert rows_of(asked.post("/predict", images=[coded])) == [wanted]
    assert rows_of(asked.post("/predict", images=[f"data:image/png;base64,{coded}"])) == [wanted]
    form = asked.client.post("/predict", files={"image": ("../../x.png", content)}, data={"request": '{"top": 2}'})
    (found,) = rows_of(form.json())
    assert {name: found[name] for name in wanted} == wanted
    assert len(found["top"]) == 2


def test_without_a_name_all_models_that_take_such_rows_answer(asked):
    answers = asked.post("/predict", features=[[0.1, 0.2, 0.3, 0.4]])["answers"]
    assert [answer["model"] for answer in answers] == ["parts", "sets"]
    assert [answer["model"] for answer in asked.post("/predict", texts=["owl"])["answers"]] == ["texts"]


def test_a_held_out_row_is_answered_like_its_content(asked):
    (row,) = asked.get("/models/parts/rows", limit=1)["rows"]
    answers = asked.post("/predict", model="parts", row=row["row"], top=3)["answers"]
    assert answers[0]["rows"][0]["labels"] == row["answers"]["parts"]["labels"]
    same = rows_of(asked.post("/predict", model="parts", features=[row["input"]["values"]]))
    assert same[0]["labels"] == row["answers"]["parts"]["labels"]


def test_a_rule_may_come_with_the_request(asked):
    def sizes(**rule):
        return [len(row["labels"]) for row in rows_of(asked.post("/predict", model="sets", features=rows, rule=rule))]

    rows = VALUES[:4].astype(float).tolist()
    assert sizes(kind="top-k", options={"k": 2}) == [2] * 4
    strict = sizes(kind="recall-control", options={"alpha": 0.01})
    loose = sizes(kind="recall-control", options={"alpha": 0.9})
    assert sum(strict) > sum(loose)
    assert sizes(kind="average-k") == sizes(kind="average-k", options={})


def test_top_lists_the_best_labels_whether_in_the_set_or_not(asked):
    (row,) = rows_of(asked.post("/predict", model="parts", features=VALUES[:1].astype(float).tolist(), top=1000))
    scores = [each["score"] for each in row["top"]]
    assert scores == sorted(scores, reverse=True)
    assert {each["label"] for each in row["top"] if each["in_set"]} == set(row["labels"])
    assert len(row["top"]) > len(row["labels"])


@pytest.mark.parametrize(
    ("status", "content", "part"),
    [
        (422, {}, "one of texts, features, images and row must be given; got none"),
        (422, {"texts": ["a"], "features": [[1.0]]}, "texts and features"),
        (422, {"texts": []}, "`texts`"),
        (422, {"texts": "a"}, "`texts`"),
        (422, {"texts": [1]}, "`texts.0`"),
        (422, {"model": "parts", "texts": ["a"]}, "`parts` takes features, not texts."),
        (422, {"model": "texts", "features": [[1.0]]}, "`texts` takes text, not features."),
        (422, {"model": "parts", "features": [[1.0, 2.0]]}, "4 numbers per row; row 0 has 2"),
        (422, {"model": "parts", "features": [[1.0, 2.0, 3.0, 1e300]]}, "features must be finite; got inf"),
        (404, {"model": "../parts", "features": [[1.0]]}, "there is no model '../parts'"),
        (413, {"texts": ["a"] * 9}, "at most 8 rows; got 9"),
        (422, {"texts": ["a"], "top": -1}, "`top`"),
        (422, {"texts": ["a"], "rule": {"kind": "best"}}, "`kind` must be one of top-k"),
        (422, {"texts": ["a"], "rule": {"kind": "top-k", "options": {"k": 0}}}, "`k` must"),
        (422, {"texts": ["a"], "rule": {"kind": "top-k", "options": {"k": 100}}}, "at most the number of labels"),
        (422, {"texts": ["a"], "rule": {"kind": "top-k", "options": {"k": "x"}}}, "`k` must be a number; got 'x'"),
        (422, {"texts": ["a"], "rule": {"kind": "top-k", "options": {"size": 1}}}, "must be among k; got 'size'"),
        (422, {"texts": ["a"], "rule": {"kind": "deepest-node", "options": {"alpha": 0.1}}}, "taxonomy"),
        (422, {"model": "sets", "row": 1, "rule": {"kind": "average-error", "options": {"alpha": 0.1}}}, ""),
        (422, {"model": "parts", "row": 10**9}, "`row` must be the number of a held-out row"),
        (422, {"images": ["!"]}, "`images` must be files in base64; image 0 is not"),
        (422, {"images": [base64.b64encode(png((100, 100))).decode()]}, "image 0 has too many pixels"),
        (422, {"extra": 1}, "`extra`"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_one_sentence(asked, status, content, part):
    assert part in asked.refused(status, "/predict", **content)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"texts": ["\\ud800"]}', b"\xff\xfe", b"[" * 5000])
def test_a_body_that_is_not_a_request_is_refused(asked, body):
    sentence(asked.client.post("/predict", content=body, headers={"content-type": "application/json"}), 422)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-Infinity"])
def test_numbers_that_are_not_finite_are_refused(asked, number):
    body = f'{{"model": "parts", "features": [[1, 2, 3, {number}]]}}'
    sentence(asked.client.post("/predict", content=body, headers={"content-type": "application/json"}), 422)


def test_other_types_of_bodies_are_refused(asked):
    for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
        answer = asked.client.post("/predict", content=b'{"texts": ["a"]}', headers={"content-type": kind})
        assert "application/json" in sentence(answer, 415)


def test_a_model_without_a_rule_asks_for_one(folder, tmp_path):
    import shutil

    copy = shutil.copytree(folder / "texts", tmp_path / "bare")
    document = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps({**document, "has_rule": False}))
    with running(copy) as asked:
        assert "`bare` has no rule of its own" in asked.refused(422, "/predict", texts=["owl"])
        found = rows_of(asked.post("/predict", texts=["owl"], rule={"kind": "top-k", "options": {"k": 1}}))
        assert len(found[0]["labels"]) == 1

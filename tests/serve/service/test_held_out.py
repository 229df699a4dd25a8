"""Held-out rows over HTTP: curves, rows, labels, audits, and rules that are saved."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from shortlist.audit import audit
from shortlist.predict import calibrate_model, evaluate_sets, open_model
from shortlist.predict.scores import Scores
from shortlist.predict.true_labels import as_task
from shortlist.serve.browse import find_rows
from shortlist.serve.curves import SLIDERS
from shortlist.serve.service import Service
from shortlist.sets import load_rule
from shortlist.train import load_model
from shortlist.train.data_source import note_place
from tests.serve.service.conftest import running, sentence


def test_models_say_what_they_take_and_what_is_held_out(asked):
    for name in ("parts", "sets", "texts", "photos-model"):
        asked.get(f"/models/{name}/rows")  # Opens the held-out rows.
    found = {model["name"]: model for model in asked.get("/models")["models"]}
    assert [found[name]["kind"] for name in found] == ["features", "features", "text", "images"]
    assert found["parts"]["columns"] == ["a", "b", "c", "d"]
    assert found["photos-model"]["shape"] == [3, 4, 6]
    assert (found["parts"]["task"], found["sets"]["task"]) == ("one class", "sets")
    assert {model["held_out_state"] for model in found.values()} == {"ready"}
    assert all(model["rule"]["text"] == "2 labels on average" for model in found.values())
    kinds = {kind["kind"] for kind in found["sets"]["kinds"]}
    assert "recall-control" in kinds
    assert "average-error" not in kinds


@pytest.mark.parametrize(("name", "kind"), [
    ("parts", kind) for kind in ("top-k", "average-k", "average-error", "pointwise-error", "class-conditional")
] + [("sets", kind) for kind in ("top-k", "per-label", "recall-control", "risk-control")])  # fmt: skip
def test_a_curve_is_that_of_rules_fitted_on_validation_rows_and_measured_on_test_rows(asked, folder, name, kind):
    found = asked.get(f"/models/{name}/curve", kind=kind)
    lengths = {len(found[part]) for part in ("values", "size", "error", "empty")}
    assert lengths == {len(found["worst_class"]["label"])}
    data = str(folder / ("parts.csv" if name == "parts" else "sets.npz"))
    option, fixed = SLIDERS[kind]
    at = len(found["values"]) // 2
    copy = shutil.copytree(folder / name, folder / "copies" / f"{name}-{kind}")
    rule = calibrate_model(copy, data, kind, **{**fixed, option: found["values"][at]})
    test = open_model(folder / name, data, labelled=True, part="test")
    measured = evaluate_sets(test.scores, rule, as_task(test.target, test.scores.num_labels, None, data), seed=0)
    assert found["size"][at] == pytest.approx(measured.sizes.mean)
    assert found["error"][at] == pytest.approx(1 - measured.coverage, abs=1e-6)
    assert found["empty"][at] == pytest.approx(measured.empty / test.scores.num_rows)


def test_rows_do_not_wait_for_a_curve(folder, monkeypatch):
    service, begun, end = Service([folder / "parts"]), threading.Event(), threading.Event()
    rows = service.need_held_out("parts")

    def long_curve(*_):
        begun.set()
        assert end.wait(60)
        return {}

    monkeypatch.setattr("shortlist.serve.service.curve", long_curve)
    with ThreadPoolExecutor(2) as threads:
        drawing = threads.submit(service.curve, "parts", "top-k")
        try:
            assert begun.wait(60)
            assert threads.submit(service.need_held_out, "parts").result(60) is rows
        finally:
            end.set()
        assert drawing.result(60) == b"{}"


def test_a_curve_of_a_rule_for_another_task_is_refused(asked):
    assert "recall-control is for sets" in sentence(asked.client.get("/models/parts/curve?kind=recall-control"), 422)
    assert "`kind`" in sentence(asked.client.get("/models/parts/curve?kind=expected-f"), 422)


def test_rows_show_their_content_labels_and_every_models_answer(asked, folder):
    found = asked.get("/models/parts/rows", limit=3, offset=1)
    assert found["total"] > 3
    row = found["rows"][0]
    lines = (folder / "parts.csv").read_text().splitlines()
    cells = lines[1 + row["row"]].split(",")
    assert row["input"]["values"] == pytest.approx([float(cell) for cell in cells[:4]], rel=1e-6)
    assert row["true"] == [cells[4]]
    answer = row["answers"]["parts"]
    assert answer["missed"] == [label for label in row["true"] if label not in answer["labels"]]
    (photo,) = asked.get("/models/photos-model/rows", limit=1)["rows"]
    assert photo["input"]["png"].startswith("iVBOR")
    (text,) = asked.get("/models/texts/rows", limit=1)["rows"]
    assert text["input"]["text"].endswith("is a word")


def test_filters_find_what_they_are_named_for(asked):
    for name in ("parts", "sets"):
        every = asked.get(f"/models/{name}/rows", limit=200)["rows"]
        sizes = {row["row"]: len(row["answers"][name]["labels"]) for row in every}
        missed = {row["row"] for row in every if row["answers"][name]["missed"]}
        label = every[0]["true"][0]

        def rows(name=name, **given):
            return {row["row"] for row in asked.get(f"/models/{name}/rows", limit=200, **given)["rows"]}

        assert rows(show="missed") == missed
        assert rows(show="empty") == {row for row, size in sizes.items() if size == 0}
        assert rows(show="huge") <= set(sizes)
        assert rows(show="label", label=label) == {row["row"] for row in every if label in row["true"]}
        assert rows(show="rare") <= set(sizes)
        assert rows(show="disagree") == set()  # There is no other model of the same rows.
        none = asked.get(f"/models/{name}/rows", show="missed", kind="top-k", value=3 if name == "parts" else 4)
        assert none["total"] <= len(missed)
    assert "`label`" in sentence(asked.client.get("/models/parts/rows?show=label&label=zebra"), 422)
    assert "`show`" in sentence(asked.client.get("/models/parts/rows?show=best"), 422)


def test_models_of_the_same_rows_are_compared(folder, tmp_path):
    other = shutil.copytree(folder / "parts", tmp_path / "other")
    calibrate_model(other, str(folder / "parts.csv"), "top-k", k=1)
    with running(folder / "parts", other) as asked:
        found = asked.get("/models/parts/rows", limit=200)["rows"]
        sets = {row["row"]: [set(answer["labels"]) for answer in row["answers"].values()] for row in found}
        differ = [row for row, (first, second) in sets.items() if first != second]
        assert [row["row"] for row in asked.get("/models/parts/rows", limit=200, show="disagree")["rows"]] == differ
        assert [answer["model"] for answer in asked.post("/predict", row=found[0]["row"])["answers"]] == [
            "parts",
            "other",
        ]


def test_labels_can_be_searched_sorted_and_opened(asked):
    found = asked.get("/models/parts/labels", sort="name", order="asc")
    names = [label["label"] for label in found["labels"]]
    assert names == sorted(names)
    assert found["total"] == len(names)
    assert asked.get("/models/parts/labels", search=names[0].upper())["labels"][0]["label"] == names[0]
    recalls = [label["recall"] for label in asked.get("/models/parts/labels", sort="recall")["labels"]]
    assert recalls == sorted((each for each in recalls if each is not None), reverse=True) + [None] * recalls.count(
        None
    )
    page = asked.get(f"/models/parts/labels/{names[0]}")
    every = asked.get("/models/parts/rows", show="label", label=names[0], limit=200)["rows"]
    assert page["support"] == len(every) == len(page["examples"])
    hits = sum(names[0] in row["answers"]["parts"]["labels"] for row in every)
    assert page["recall"] == pytest.approx(hits / len(every))
    assert asked.get(f"/models/parts/labels/{page['index']}") == page
    with_others = {other for row in every for other in row["answers"]["parts"]["labels"] if other != names[0]}
    assert {each["label"] for each in page["confused"]} == with_others
    sentence(asked.client.get("/models/parts/labels/zebra"), 422)


def test_an_audit_gives_the_verdict_of_the_auditor_with_its_proof_in_words(asked, folder):
    head = load_model(folder / "sets").model.output_layer
    names = load_model(folder / "sets").label_names
    for labels in ([0], [0, 1], list(range(len(names)))):
        found = asked.post("/audit", model="sets", labels=[names[label] for label in labels])
        assert found["verdict"] == audit(head, [labels], mode="top-k", radius=False).verdicts[0]
        assert found["certificate"]["verified"]
        assert len(found["certificate"]["words"].split()) > 20
    (row,) = asked.get("/models/sets/rows", limit=1)["rows"]
    assert sorted(asked.post("/audit", model="sets", row=row["row"])["labels"]) == sorted(row["true"])


@pytest.mark.parametrize(("status", "content"), [
    (404, {"model": "nobody", "labels": []}), (422, {"model": "sets"}), (422, {"model": "sets", "labels": ["zebra"]}),
    (422, {"model": "sets", "labels": ["0", "0"]}), (422, {"model": "sets", "row": 10**8}),
    (422, {"model": "sets", "labels": [], "mode": "best"}),
])  # fmt: skip
def test_an_audit_of_what_is_not_there_is_refused(asked, status, content):
    asked.refused(status, "/audit", **content)


def test_a_rule_is_saved_as_the_command_saves_it_and_the_old_one_is_kept(folder, tmp_path):
    model = shutil.copytree(folder / "parts", tmp_path / "model")
    same = shutil.copytree(folder / "parts", tmp_path / "same")
    data, before = str(folder / "parts.csv"), (model / "rule.json").read_text()
    given = {"model": "model", "kind": "average-error", "options": {"alpha": 0.2}}
    with running(model) as asked:
        shown = asked.post("/rules", **given, dry_run=True)
        assert shown["command"] == f"shortlist calibrate {model} --data {data} --rule average-error --alpha 0.2"
        assert (model / "rule.json").read_text() == before
        assert "`replace`" in asked.refused(409, "/rules", **given)
        saved = asked.post("/rules", **given, replace=True)
        calibrate_model(same, data, "average-error", alpha=0.2)
        assert json.loads((model / "rule.json").read_text()) == json.loads((same / "rule.json").read_text())
        assert load_rule(saved["kept"]).options()["k"] == 2
        again = asked.post("/rules", **{**given, "options": {"alpha": 0.3}}, replace=True)
        assert load_rule(again["kept"]).options()["alpha"] == 0.2
        assert asked.get("/models")["models"][0]["rule"]["options"] == {"alpha": 0.3}
        assert asked.get("/models/model/curve", kind="average-k")["current"]["rule"]["kind"] == "average-error"
        files = sorted(file.name for file in (model / "rules").iterdir())
        asked.refused(422, "/rules", **{**given, "options": {"alpha": 7}}, replace=True)
        asked.refused(404, "/rules", **{**given, "model": "../model"}, replace=True)
        assert sorted(file.name for file in (model / "rules").iterdir()) == files
    exec(shown["python"].replace(str(model), str(same)), {})
    assert load_rule(same / "rule.json").options()["alpha"] == 0.2


def test_a_service_that_may_only_read_saves_nothing(folder):
    with running(folder / "parts", read_only=True) as asked:
        given = {"kind": "top-k", "options": {"k": 1}, "replace": True}
        assert "--read-only" in asked.refused(403, "/rules", model="parts", **given)
        assert not asked.get("/models")["models"][0]["can_save"]


@pytest.mark.parametrize("known", [True, False], ids=["moved", "trained elsewhere"])
def test_a_model_whose_data_are_gone_still_answers_and_audits(folder, tmp_path, monkeypatch, known):
    model = shutil.copytree(folder / "parts", tmp_path / "gone")
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    document = json.loads((model / "model.json").read_text())
    if known:
        note_place(document["about"]["source"]["place"], tmp_path / "gone.csv", {})
    with running(model) as asked:
        found = sentence(asked.client.get("/models/gone/curve"), 422)
        assert ("/gone.csv`" if known else "`parts.csv`, its data, are: --data names a file") in found
        assert asked.get("/models")["models"][0]["held_out"] is None
        assert asked.post("/predict", features=[[1, 2, 3, 4]])["answers"]
        assert asked.post("/audit", model="gone", labels=["fox"] if "fox" in document["label_names"] else ["0"])
        asked.refused(422, "/rules", model="gone", kind="top-k", options={"k": 1}, replace=True)
    with running(model, data=str(folder / "plain.csv")) as asked:  # Other data, without parts, are halved.
        found = asked.get("/models/gone/curve", kind="top-k")
        assert found["measured_on"] == "the other half"
        assert found["rows"] + found["fitted_on"]["rows"] == len((folder / "plain.csv").read_text().splitlines()) - 1


def test_other_data_in_the_place_of_the_training_data_are_not_shown(folder, tmp_path, monkeypatch):
    model = shutil.copytree(folder / "parts", tmp_path / "moved")
    lines = (folder / "parts.csv").read_text().splitlines()
    (tmp_path / "secret.csv").write_text("\n".join(lines[:-1]) + "\n")
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    document = json.loads((model / "model.json").read_text())
    note_place(document["about"]["source"]["place"], tmp_path / "secret.csv", {})
    with running(model) as asked:
        assert "is not what" in sentence(asked.client.get("/models/moved/rows"), 422)


def test_a_huge_set_is_one_much_larger_than_the_average(asked):
    held_out = asked.service.need_held_out("parts")
    rule = asked.service.rule("parts", "top-k", {"k": 1})
    assert len(find_rows(held_out, "huge", {held_out: rule})) == 0
    assert isinstance(held_out.scores(torch.tensor([0])), Scores)
    assert np.isfinite(held_out.measure(rule).size)

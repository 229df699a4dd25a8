"""A model's folder has a card that the Hub reads, that people can use, and that says what the folder holds."""

import ast
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image

from shortlist.audit import AuditReport
from shortlist.cli import main
from shortlist.data import Dataset, Features, Groups
from shortlist.errors import InputError
from shortlist.extras import MissingExtraError, require
from shortlist.predict import audit_model, calibrate_model, recalibrate_model
from shortlist.sets import TopK
from shortlist.train import FitOptions, compare, evaluate, fit, load_model, save_model
from shortlist.train.card import layer_audit
from shortlist.train.card.facts import measured, share_interval
from shortlist.train.card.folder import write_card
from shortlist.train.card.page import KEPT, markdown, plain_text
from tests.train.small_data import ENCODERS, KINDS, classes, features, label_sets, quick

HOSTILE = (
    "---",
    "a\n---\nlicense: evil\n---\n",
    "| a | b |",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "`rm -rf /` **bold** [x](javascript:y)",
    KEPT,
    "\ud800 lone \x00\x1b[31m\u202e",
    "x" * 10_000,
    "- !!python/object/apply:os.system ['true']",
    "&lt; &amp;",
    "  ",
)


def saved(folder: Path, data: Dataset, **options) -> Path:
    """A model of the data with its rule and its card."""
    fitted = fit(data, quick(**options))
    found = evaluate(fitted, data)
    return save_model(fitted, folder, rule=found.rule, measured=measured(fitted.model, data, found))


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("card") / "model", classes())


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """A copy to change, and data to calibrate it on, beside it."""
    data = classes()
    names = np.array(data.label_names)
    np.savez(tmp_path / "rows.npz", x=features(data).numpy(), y=data.targets.numpy(), label_names=names)
    return Path(shutil.copytree(original, tmp_path / "model"))


def card(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def section(folder: Path, title: str) -> str:
    return card(folder).split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def hostile_classes() -> Dataset:
    """One class per row, whose names, parts and dataset would break a careless page; one class is never trained on."""
    data = classes()
    names = (*HOSTILE[: data.num_labels - 1], HOSTILE[-2])
    data = replace(data, label_names=names, name=HOSTILE[1])
    rows = data.part_rows("train")
    wanted = data.targets[rows] != 0
    return data.subset(torch.cat([rows[wanted], data.part_rows("val"), data.part_rows("test")]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_card_of_every_kind_of_data_is_read_by_the_hub(kind, tmp_path):
    folder = saved(tmp_path / "model", KINDS[kind](), encoder_options=ENCODERS[kind])
    found = ModelCard.load(folder / "README.md")
    values = evaluate(fit(KINDS[kind](), quick(encoder_options=ENCODERS[kind])), KINDS[kind]()).values
    figures = {each.metric_type: each.metric_value for each in found.data.eval_results}
    assert figures == pytest.approx(values, rel=1e-5)
    assert found.data.library_name == "shortlist"
    for each in found.data.eval_results:
        if each.metric_type != "average_size":
            assert each.metric_args["low"] <= each.metric_value <= each.metric_args["high"]
        assert (each.dataset_name, each.dataset_split) == ("ambiguous world", "test")


def test_the_card_of_label_sets_has_all_metrics_and_measures_the_rule(tmp_path):
    data = label_sets()
    folder = saved(tmp_path / "model", data)
    results = ModelCard.load(folder / "README.md").data.eval_results
    assert {each.metric_type for each in results} >= {"recall@2", "precision@1", "ndcg@2", "map"}
    fitted = load_model(folder)
    rows = data.part("test")
    sets, true = fitted.rule(fitted.scores(rows)), rows.targets > 0
    coverage = ((sets & true).sum(-1) / true.sum(-1)).mean()
    assert f"cover {100 * coverage:.1f}% of a row's true labels" in section(folder, "Set rule")
    assert f"hold {sets.sum(-1).double().mean():.3g} labels on average" in section(folder, "Set rule")


def test_the_interval_of_a_share_is_exact_and_never_empty():
    assert share_interval(0.0, 10) == (0.0, pytest.approx(1 - 0.025**0.1))
    assert share_interval(1.0, 10) == (pytest.approx(0.025**0.1), 1.0)
    low, high = share_interval(0.3, 1_000)
    draws = torch.distributions.Binomial(1_000, torch.tensor([low, high])).sample((20_000,))
    assert (draws[:, 0] >= 300).double().mean() == pytest.approx(0.025, abs=0.006)
    assert (draws[:, 1] <= 300).double().mean() == pytest.approx(0.025, abs=0.006)
    assert share_interval(1 + 1e-12, 3)[1] == 1.0


def write_rows(kind: str) -> None:
    """New rows in the file that the card of such a model names, in the current folder."""
    if kind == "features":
        np.save("rows.npy", features(classes())[:3].numpy())
    elif kind == "sparse features":
        rows = scipy.sparse.csr_matrix(features(classes())[:3].numpy())
        parts = {"indptr": rows.indptr, "indices": rows.indices, "data": rows.data, "shape": rows.shape}
        np.savez("rows.npz", **{f"features_{name}": part for name, part in parts.items()})
    elif kind == "text":
        Path("rows.txt").write_text("word1 and others\nword2\nnothing known\n")
    else:
        Image.new("RGB", (8, 8), (200, 10, 10)).save("photo.png")


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_and_the_code_of_the_card_run_in_the_folder(kind, tmp_path, monkeypatch, capsys):
    folder = saved(tmp_path / "model", KINDS[kind](), encoder_options=ENCODERS[kind])
    monkeypatch.chdir(folder)
    write_rows(kind)
    exec(re.search(r"```python\n(.*?)```", card(folder), re.DOTALL)[1], {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == (1 if kind == "images" else 3)
    assert {name for line in printed for name in ast.literal_eval(line)} <= set(classes().label_names)
    (command,) = re.findall(r"```sh\nshortlist (.*?)\n```", card(folder))
    assert main(command.split()) == 0
    assert len(Path("sets.jsonl").read_text().splitlines()) == len(printed)


def test_the_code_of_a_card_without_a_rule_runs_too(tmp_path, monkeypatch, capsys):
    fitted = fit(classes(), quick())
    folder = save_model(fitted, tmp_path / "model")
    monkeypatch.chdir(folder)
    np.save("rows.npy", features(classes())[:3].numpy())
    exec(re.search(r"```python\n(.*?)```", card(folder), re.DOTALL)[1], {})
    assert capsys.readouterr().out.startswith("tensor(")
    assert "No figures were recorded" in card(folder)
    assert "adds one" in section(folder, "Set rule")
    assert ModelCard.load(folder / "README.md").data.eval_results is None


def test_hostile_names_change_neither_the_structure_nor_the_front_matter(tmp_path):
    data = hostile_classes()
    folder = saved(tmp_path / "model", data)
    text = card(folder)
    found = ModelCard.load(folder / "README.md").data.to_dict()
    assert set(found) == {"library_name", "pipeline_tag", "tags", "model-index"}
    assert found["model-index"][0]["results"][0]["dataset"]["name"] == "a --- license: evil ---"
    plain = card(saved(tmp_path / "plain", classes()))
    structure = re.compile(r"^(#+ |---$|```).*", re.MULTILINE)
    titles = [line[0] for line in structure.finditer(text)]
    assert titles[:2] == ["---", "---"]
    assert [line for line in titles if "cross_entropy" not in line] == [
        line[0] for line in structure.finditer(plain) if "cross_entropy" not in line[0]
    ]
    assert text.count(KEPT) == 1
    assert "<script" not in text
    assert "such as “" in section(folder, "Limits")
    assert "\x1b" not in text


@pytest.mark.parametrize("name", HOSTILE)
def test_an_escaped_name_is_one_short_line_that_markdown_shows_as_it_is(name):
    text = markdown(name)
    assert "\n" not in text
    assert len(plain_text(name)) <= 80
    assert not re.search(r"(?<!\\)[|`\[\]]|<|>", text)
    text.encode()  # No lone surrogates.
    assert yaml.safe_load(yaml.safe_dump({"name": plain_text(name)})) == {"name": plain_text(name)}


def test_a_new_rule_takes_the_place_of_the_old_one_and_its_figures(folder):
    assert "AverageK (k=2, link=softmax)" in section(folder, "Set rule")
    assert "95% interval" in section(folder, "Set rule")
    calibrate_model(folder, str(folder.parent / "rows.npz"), "average-error", alpha=0.2)
    now = section(folder, "Set rule")
    assert "AverageError (alpha=0.2, link=softmax)" in now
    assert "95% interval" not in now
    assert "were not measured on other rows" in now
    assert "AverageK" not in card(folder)


def test_a_calibration_is_named_and_the_figures_are_marked(folder):
    recalibrate_model(folder, str(folder.parent / "rows.npz"), "temperature")
    assert "| scores calibrated by | TemperatureScaling |" in card(folder)
    assert "before they were calibrated" in section(folder, "Figures")
    assert "The model has no rule" in section(folder, "Set rule")


def test_the_card_states_the_audit_and_its_certificates_can_be_checked(folder, capsys):
    report = AuditReport.load(folder / "audit.json")
    assert report.verify() == []
    assert report.digest() in section(folder, "Argmaxability")
    assert main(["audit", "--verify", str(folder / "audit.json")]) == 0
    assert f"Digest: {report.digest()}" in capsys.readouterr().out


def test_an_audit_of_the_folder_takes_the_place_of_the_first_one(folder):
    before = section(folder, "Argmaxability")
    report = audit_model(folder, str(folder.parent / "rows.npz"), mode="sign")
    now = section(folder, "Argmaxability")
    assert now != before
    assert report.digest() in now
    assert "in rows" in now
    assert AuditReport.load(folder / "audit.json").digest() == report.digest()
    assert load_model(folder).about["card"]["audit"]["mode"] == "sign"


def test_impossible_sets_are_counted_and_named(tmp_path):
    # Three directions on a line: the middle one can never be first.
    folder = saved(tmp_path / "model", label_sets(), head="bottleneck", head_options={"bottleneck": 1})
    audit = load_model(folder).about["card"]["audit"]
    assert audit["unargmaxable"] > 0
    assert audit["argmaxable"] + audit["unargmaxable"] + audit["undecided"] == audit["sets"] <= audit["distinct"]
    assert section(folder, "Argmaxability").count("- impossible: “") == len(audit["impossible"]) > 0


def test_what_the_user_wrote_below_the_card_stays_and_a_page_of_the_user_is_left_alone(folder):
    data = str(folder.parent / "rows.npz")
    (folder / "README.md").write_text(card(folder) + "\nTrained by **us**.\n")
    calibrate_model(folder, data, "top-k", k=2)
    assert card(folder).endswith(f"{KEPT}\n\nTrained by **us**.\n")
    assert "TopK (k=2" in card(folder)
    calibrate_model(folder, data, "top-k", k=1)
    assert card(folder).endswith(f"{KEPT}\n\nTrained by **us**.\n")
    (folder / "README.md").write_text("my own page\n")
    calibrate_model(folder, data, "top-k", k=3)
    assert card(folder) == "my own page\n"


def test_a_new_model_in_the_folder_has_no_figures_of_the_old_one(folder):
    fitted = fit(classes(), quick(seed=3))
    save_model(fitted, folder, rule=TopK(1).fit(torch.eye(7), from_logits=False))
    assert "No figures were recorded" in section(folder, "Figures")
    assert not (folder / "audit.json").exists()
    document = json.loads((folder / "model.json").read_text())
    assert document["parameters"] in card(folder)


def test_figures_of_other_parameters_are_not_shown(folder):
    document = json.loads((folder / "model.json").read_text())
    document["about"]["card"]["parameters"] = "0" * 32
    (folder / "model.json").write_text(json.dumps(document))
    write_card(folder)
    assert "No figures were recorded" in card(folder)


def test_a_model_that_was_loaded_keeps_its_figures_when_it_is_saved_elsewhere(folder, tmp_path):
    model = load_model(folder)
    copy = save_model(model, tmp_path / "copy", rule=model.rule)
    text = card(folder).replace("`shortlist audit --verify audit.json` checks them again and prints the digest.\n", "")
    assert card(copy) == text


def test_a_folder_of_an_earlier_version_loads_and_gets_a_card_once_it_changes(folder):
    document = json.loads((folder / "model.json").read_text())
    del document["about"]["card"]
    (folder / "model.json").write_text(json.dumps(document))
    (folder / "README.md").unlink()
    (folder / "audit.json").unlink()
    assert load_model(folder).rule is not None
    audit_model(folder, str(folder.parent / "rows.npz"))
    assert not (folder / "README.md").exists()
    calibrate_model(folder, str(folder.parent / "rows.npz"), "top-k", k=2)
    assert "The data were not recorded" in card(folder)


def test_a_damaged_record_is_refused_in_one_sentence(folder):
    document = json.loads((folder / "model.json").read_text())
    document["about"]["card"]["figures"][0]["value"] = "much"
    (folder / "model.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"model\.json` is damaged: figures\[0\]\.value must be a finite number"):
        write_card(folder)


def test_runs_of_a_comparison_have_cards_that_do_not_depend_on_how_often_it_was_started(tmp_path):
    data, ways = classes(), {"plain": quick(), "bce": quick(loss="bce")}
    for name in ("once", "again"):
        compare(data, {"plain": ways["plain"]} if name == "again" else ways, seeds=[0], folder=tmp_path / name)
    compare(data, ways, seeds=[0], folder=tmp_path / "again")
    for run in ("plain-0", "bce-0"):
        assert card(tmp_path / "once" / run) == card(tmp_path / "again" / run)
        assert (tmp_path / "once" / run / "audit.json").read_bytes() == (
            tmp_path / "again" / run / "audit.json"
        ).read_bytes()
        assert len(ModelCard.load(tmp_path / "once" / run / "README.md").data.eval_results) == 4


def test_a_layer_that_would_take_long_is_not_audited_and_the_card_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.train.card.layer_audit._MOST_ENTRIES", 10)
    folder = saved(tmp_path / "model", classes())
    assert "takes longer than a moment" in section(folder, "Argmaxability")
    assert not (folder / "audit.json").exists()


def test_without_the_extra_for_audits_there_is_a_card_all_the_same(tmp_path, monkeypatch):
    def refuse(module, *, extra):
        if extra == "audit":
            raise MissingExtraError("no", name="scipy", extra="audit")
        return require(module, extra=extra)

    monkeypatch.setattr(layer_audit, "require", refuse)
    folder = saved(tmp_path / "model", classes())
    assert "was not audited: the extra `audit` is not installed" in section(folder, "Argmaxability").replace("\\", "")


def test_rows_that_training_used_are_said_to_flatter(tmp_path):
    data = classes()
    fitted = fit(data, quick())
    found = evaluate(fitted, data, part="val")
    folder = save_model(fitted, tmp_path, rule=found.rule, measured=measured(fitted.model, data, found, part="val"))
    assert "flatter the model" in section(folder, "Figures")


def test_rows_without_labels_give_a_card_without_figures_about_them(tmp_path):
    hot = torch.zeros(60, 3)
    hot[torch.arange(40), torch.arange(40) % 3] = 1.0
    split = Groups.of(["train"] * 20 + ["val"] * 20 + ["test"] * 20, order=("train", "val", "test"))
    data = Dataset(Features(torch.eye(60)), hot, ("a", "b", "c"), split=split)
    fitted = fit(data, FitOptions(epochs=1, k=1, encoder="linear"))
    found = evaluate(fitted, data.subset(range(60)), part="val")
    facts = measured(fitted.model, data, found, part="test")
    assert facts.facts.audit is None
    assert facts.facts.not_audited == "no row that was evaluated has labels"

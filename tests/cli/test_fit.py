"""``shortlist fit``: a model that loads, metrics as JSON, options from YAML and flags, and runs that resume."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from shortlist import train
from shortlist.cli import main
from shortlist.data import open_dataset
from shortlist.train import FitOptions, SetClassifier, checkpoints, evaluate, fit, load_model, tuning
from shortlist.train.data_source import open_training_data
from tests.cli.command import command
from tests.cli.trained import NAMES, PARTS, QUICK, reader, write_images, write_table

run, refused = command("fit")

FULL = "`model` cannot be written: No space left on device."


def test_a_model_is_trained_evaluated_and_saved_as_the_library_does(capsys, training_files):
    code, out, err = run(capsys, "parts.csv", *reader(split="part"), *QUICK, "--output", "model", "--json")
    assert (code, err) == (0, "")
    figures = json.loads(out)
    data = open_dataset("parts.csv", label="species", features=["a", "b", "c", "d"], split="part")
    fitted = fit(data, FitOptions(epochs=1, k=2.0, encoder_options={"hidden": [8]}))
    wanted = evaluate(fitted, data)
    assert figures == {"best_epoch": 0, "epochs": 1, **wanted.values}
    saved = load_model("model")
    test = data.part("test")
    assert torch.equal(saved.rule(saved.scores(test)).sum(-1), wanted.sizes)
    assert saved.label_names == data.label_names
    assert saved.about["options"]["epochs"] == 1
    assert sorted(path.name for path in Path("model").iterdir()) == [
        "README.md",
        "audit.json",
        "checkpoints",
        "model.json",
        "model.safetensors",
        "rule.json",
    ]


def test_one_label_per_row_is_a_class_and_the_command_says_so(capsys, training_files):
    rows = [{"text": f"word{row % 3} and others", "labels": [f"label{row % 3}"]} for row in range(60)]
    Path("lists.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, err = run(capsys, "lists.jsonl", *QUICK[:4], "--output", "model", "--json")
    assert code == 0
    assert err.startswith("Every row has exactly one label, which is taken as its class; --multi-label")
    assert "top1_error" in json.loads(out)
    code, out, err = run(capsys, "lists.jsonl", *QUICK[:4], "--output", "sets", "--json", "--multi-label")
    assert (code, "taken as its class" in err, "Only 6 test rows" in err) == (0, False, True)
    assert "recall@1" in json.loads(out)


def test_a_table_and_the_folder_are_printed(capsys, training_files):
    code, out, err = run(capsys, "parts.csv", *reader(split="part"), *QUICK, "--output", "[model]")
    assert (code, err) == (0, "")
    for word in ("parts", "cross_entropy", "top1_error", "average2_error", "best_epoch", "Model: [model]"):
        assert word in out
    assert load_model("[model]").rule is not None


def data_of(path: str, seed: int = 0, **more: str):
    options = {"label": "species", "features": ["a", "b", "c", "d"], **more}
    return open_training_data(path, format=None, reader=options, seed=seed)


def test_a_dataset_without_parts_gets_a_tenth_each_for_validation_and_test(capsys, training_files):
    data = data_of("plain.csv")
    assert data.split.names == ("train", "val", "test")
    assert data.split.counts().tolist() == [192, 24, 24]
    code, out, _ = run(capsys, "plain.csv", *reader(), *QUICK, "--output", "model", "--json")
    assert code == 0
    assert json.loads(out)["epochs"] == 1


def test_a_dataset_without_validation_rows_gives_a_tenth_of_its_training_rows(capsys, training_files):
    write_table("no_val.csv", species=NAMES, part=["test" if part == "test" else "train" for part in PARTS])
    given = data_of("parts.csv", split="part")
    data = data_of("no_val.csv", split="part")
    assert data.split.counts().tolist() == [192 - 20, 20, 48]
    assert torch.equal(data.part_rows("test"), given.part_rows("test"))  # Nothing is tuned on the test rows.
    assert torch.equal(data_of("no_val.csv", split="part").split.index, data.split.index)
    other = data_of("no_val.csv", seed=1, split="part")
    assert not torch.equal(other.split.index, data.split.index)
    assert run(capsys, "no_val.csv", *reader(split="part"), *QUICK, "--output", "model")[0] == 0


def test_a_k_that_nobody_gave_is_less_than_the_number_of_labels(capsys, training_files):
    said = "K is 1, because there are 2 labels; --k chooses another.\n"
    write_table("two.csv", species=["owl" if name == NAMES[0] else "other" for name in NAMES])
    quick = ["two.csv", *reader(), "--epochs", "1", "--tune", "0", "--output", "two"]
    code, _, err = run(capsys, *quick)
    assert (code, said in err) == (0, True)
    assert load_model("two").about["options"]["k"] == 1
    code, _, err = run(capsys, *quick[:-1], "other", "--k", "2")
    assert (code, said in err) == (0, False)
    assert load_model("other").about["options"]["k"] == 2


def test_images_of_different_sizes_offer_one(capsys, training_files):
    write_images("album", count=12, size=(9, 8))
    write_images("album", count=6, size=(8, 10))
    quick = ["album", "--epochs", "1", "--tune", "0", "--k", "1", "--encoder-options", "width=2", "--output", "m"]
    code, _, err = run(capsys, *quick)
    assert (code, "pass `size` to read them into one batch." in err) == (2, True)
    offered = err.splitlines()[-1]
    assert offered == f"  shortlist fit {shlex.join(quick)} --reader size=8"
    assert run(capsys, *shlex.split(offered)[2:])[0] == 0
    assert main(["data", "inspect", "album"]) == 0
    assert "shortlist compare album --reader size=8 --losses" in capsys.readouterr().out.splitlines()[-1]


def test_options_come_from_yaml_with_flags_over_them(capsys, training_files):
    Path("run.yaml").write_text(
        "epochs: 3\nk: 2\nloss: lml_nll\nlearning_rate: 0.01\npatience: 0\nencoder_options: {hidden: [8]}\n"
        "reader: {label: species, features: [a, b, c, d], split: part}\n"
    )
    code, out, _ = run(capsys, "parts.csv", "--config", "run.yaml", "--epochs", "2", "--output", "model", "--json")
    assert code == 0
    assert json.loads(out)["epochs"] == 2
    options = load_model("model").about["options"]
    assert (options["epochs"], options["loss"], options["learning_rate"], options["batch_size"]) == (
        2,
        "lml_nll",
        0.01,
        16,  # of 144 training rows
    )
    assert options["encoder_options"] == {"hidden": [8]}


def test_the_learning_rate_is_tuned_by_default_and_trials_are_not_repeated(capsys, training_files, monkeypatch):
    seen: list[int] = []
    tune = train.tune

    def few(dataset, options, *, trials, **more):
        seen.append(trials)
        return tune(dataset, options, trials=2, **more)

    monkeypatch.setattr(train, "tune", few)
    arguments = ["parts.csv", *reader(split="part"), "--epochs", "1", "--k", "2", "--output", "model"]
    code, out, _ = run(capsys, *arguments, "--json")
    assert (code, seen) == (0, [12])
    found, options = json.loads(out), load_model("model").about["options"]
    assert (found["learning_rate"], found["weight_decay"]) == (options["learning_rate"], options["weight_decay"])
    assert len({trial["learning_rate"] for trial in json.loads(Path("model/tuning.json").read_text())["trials"]}) == 2
    monkeypatch.setattr("shortlist.train.tuning.fit", None)
    code, out, _ = run(capsys, *arguments, "--resume")
    assert code == 0
    assert re.search(rf"learning_rate +{found['learning_rate']:g}", out.replace("│", " "))


def test_a_run_that_was_killed_while_tuning_resumes(capsys, training_files, monkeypatch):
    arguments = ["parts.csv", *reader(split="part"), "--epochs", "1", "--k", "2", "--tune", "2", "--output", "model"]
    fit, count = tuning.fit, iter(range(9))

    def dies(*asked, **more):
        if next(count) == 2:
            raise KeyboardInterrupt
        return fit(*asked, **more)

    assert "holds no run to resume" in refused(capsys, *arguments, "--resume")
    monkeypatch.setattr(tuning, "fit", dies)
    assert run(capsys, *arguments)[0] == 130
    assert run(capsys, *arguments, "--resume")[0] == 0
    trials = json.loads(Path("model/tuning.json").read_text())["trials"]
    assert [trial["rows"] for trial in trials] == [64, 64, 144, 144]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "-1"], "--tune must be at least 0; got -1."),
        (["--tune", "few"], "--tune must be a whole number; got 'few'."),
        (["--tune", "3", "--learning_rate", "0.1"], "--tune must be 0 if --learning-rate is given; got 3."),
        (["--recipe", "best"], "`recipe` must be one of adamw, paper; got 'best'."),
        (["--keep", "first"], "`keep` must be one of best, last; got 'first'."),
    ],
)
def test_recipes_and_trials_that_make_no_sense_are_refused(capsys, training_files, options, message):
    arguments = ["parts.csv", *reader(split="part"), "--output", "model", *options]
    assert refused(capsys, *arguments) == message


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_unreadable_image_is_one_sentence_and_a_test_row_comes_first(capsys, training_files, monkeypatch, part):
    from PIL import Image

    for place, (where, name) in enumerate(
        (where, name) for where in ("train", "val", "test") for name in ("owl", "rose")
    ):
        for number in range(3):
            path = Path("photos", where, name, f"{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (40 * place, number, 0)).save(path)
    bad = Path("photos", part, "rose", "1.png")
    bad.write_bytes(b"no image")
    if part == "test":
        monkeypatch.setattr(SetClassifier, "training_step", None)
    arguments = ["photos", "--epochs", "1", "--k", "1", "--encoder_options", "{width: 2}", "--output", "m"]
    assert refused(capsys, *arguments).startswith(f"`{bad}` is not an image that can be read")
    assert not Path("m/model.json").exists()
    assert refused(capsys, *arguments, "--loss", "zzz").startswith("`loss` must be one of")


def test_resume_continues_the_same_run_and_no_other(capsys, training_files, monkeypatch):
    arguments = ["parts.csv", *reader(split="part"), *QUICK, "--epochs", "3", "--json", "--output"]
    wanted = run(capsys, *arguments, "whole")
    steps, step = [], SetClassifier.training_step

    def training_step(self, batch, index):
        steps.append(self.current_epoch)
        if self.current_epoch == 2 and len(steps) < 30:
            raise OSError(28, "No space left on device")
        return step(self, batch, index)

    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    assert refused(capsys, *arguments, "model") == FULL
    steps = list(range(30))  # nothing is full any more
    sentence = refused(capsys, *arguments, "model", "--resume", "--learning_rate", "0.5")
    assert sentence == "`model` holds another run (learning_rate was 0.001 and is 0.5); choose another folder."
    assert run(capsys, *arguments, "model", "--resume") == wanted
    assert set(steps[30:]) == {2}
    assert run(capsys, *arguments, "model", "--resume") == wanted
    Path("model/checkpoints").rename("elsewhere")
    assert refused(capsys, *arguments, "model", "--resume") == "`model` holds no run to resume."


def test_a_node_that_is_not_the_first_says_where_the_model_is(capsys, training_files, monkeypatch):
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("NODE_RANK", "1")):
        monkeypatch.setenv(name, value)
    arguments = ["parts.csv", *reader(split="part"), *QUICK, "--output", "model"]
    assert run(capsys, *arguments)[0] == 0
    written = {path: path.stat().st_mtime_ns for path in Path("model").rglob("*")}
    # The run has ended, so that no process is started.
    assert run(capsys, *arguments, "--nodes", "2") == (0, "Node 0 writes the model: model\n", "")
    assert run(capsys, *arguments, "--nodes", "2", "--json") == (0, '{\n "model": "model"\n}\n', "")
    assert {path: path.stat().st_mtime_ns for path in Path("model").rglob("*")} == written


def test_a_full_disk_is_one_sentence(capsys, training_files, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    arguments = ["parts.csv", *reader(split="part"), *QUICK, "--output", "model"]
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.torch, "save", full)
        assert refused(capsys, *arguments) == FULL
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert refused(capsys, *arguments) == FULL
    assert not Path("model/model.json").exists()
    assert run(capsys, *arguments)[0] == 0
    assert load_model("model").rule is not None


def test_a_folder_of_other_files_is_refused_and_left_alone(capsys, training_files):
    Path("thesis").mkdir()
    Path("thesis/chapter1.tex").write_text("mine")
    Path("thesis/.git").mkdir()
    message = "`thesis` holds other files, such as 'chapter1.tex'; give a new or empty folder."
    assert refused(capsys, "parts.csv", *reader(split="part"), *QUICK, "--output", "thesis") == message
    assert sorted(path.name for path in Path("thesis").iterdir()) == [".git", "chapter1.tex"]
    Path("thesis/chapter1.tex").unlink()
    assert run(capsys, "parts.csv", *reader(split="part"), *QUICK, "--output", "thesis", "--json")[0] == 0


def test_two_runs_do_not_write_to_one_folder(capsys, training_files, monkeypatch):
    arguments = ("parts.csv", *reader(split="part"), *QUICK, "--output", "model", "--json")
    evaluate_once, told = train.evaluate, []

    def second(*given, **options):
        told.append(run(capsys, *arguments))
        return evaluate_once(*given, **options)

    monkeypatch.setattr(train, "evaluate", second)
    assert run(capsys, *arguments)[0] == 0
    assert told == [(2, "", "shortlist: `model` is being written by another process.\n")]
    assert load_model("model").rule is not None
    assert not list(Path("model").rglob("*lock"))


def test_an_interruption_names_the_command_that_goes_on(capsys, training_files, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SetClassifier, "training_step", interrupt)
        arguments = ("parts.csv", *reader(split="part"), *QUICK, "--output", "my model")
        code, out, err = run(capsys, *arguments)
    assert (code, out) == (130, "")
    assert err == f"\nshortlist: interrupted; to go on: {shlex.join(('shortlist', 'fit', *arguments))}\n"

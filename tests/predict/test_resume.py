"""``shortlist predict`` resumes after interrupts, kills and bad rows, and never mixes the rows of two tasks."""

import csv
import fcntl
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

from shortlist.predict import scores as scores_module
from shortlist.predict.files import resumable_output
from shortlist.predict.files.resumable_output import PartialOutput
from shortlist.predict.files.set_files import shortest_decimals
from shortlist.sets import AverageError, AverageK, SetRule, TopK
from tests.cli.command import command

run, _ = command("predict")

# Scores of few values, so that many tie and random numbers decide.
LOGITS = torch.randint(0, 3, (50, 4), generator=torch.Generator().manual_seed(0)).float()
NAMES = ["owl", "red fox", "hare, brown", "Łoś"]
RULES = {
    "top": TopK(2).fit(LOGITS, from_logits=True),
    "average": AverageK(1.37).fit(LOGITS, from_logits=True),
    "random": AverageError(0.3).fit(LOGITS, torch.arange(50) % 4, from_logits=True),
}

BUSY = "shortlist: `sets.jsonl` is being written by another process.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Scores in three forms and several rules; each block is kept as soon as it is finished."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 4 * 8)
    monkeypatch.setattr(resumable_output, "_SECONDS", 0.0)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # No power fails here, and disks are slow.
    np.save("scores.npy", LOGITS.numpy())
    Path("names.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    with open("scores.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["image", *NAMES], *([f"i{row}", *x] for row, x in enumerate(LOGITS.tolist()))])
    for name, rule in RULES.items():
        rule.save(f"{name}.json")


def content(path: str):
    """What a file says; of Parquet, its rows and their types."""
    if not path.endswith(".parquet"):
        return Path(path).read_bytes()
    table = parquet.read_table(path)
    return table.schema, table.to_pylist()


def interrupt(monkeypatch, after: int, error: BaseException) -> None:
    """Raise ``error`` when a rule is asked for the block after so many."""
    predict, calls = SetRule.predict, []

    def counted(rule, *arguments, **options):
        calls.append(rule)
        if len(calls) > after:
            raise error
        return predict(rule, *arguments, **options)

    monkeypatch.setattr(SetRule, "predict", counted)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("source", ["scores.npy --names names.txt", "scores.csv --id image"])
def test_a_killed_run_resumes_and_gives_what_an_uninterrupted_one_does(form, rule, source, capsys, monkeypatch):
    arguments = [*source.split(), "--logits", "--rule", f"{rule}.json", "--seed", "5", "-o"]
    finish_rows, copies = PartialOutput.finish_rows, []

    def copied(partial, *counts):
        finish_rows(partial, *counts)
        target = f"copy{len(copies)}"
        shutil.copytree(f"whole.{form}.partial", target)
        with open(f"{target}/rows", "ab") as file:  # What was written when the power went.
            file.write(b'{"row": 99, "lab')
        copies.append(target)

    with monkeypatch.context() as patch:
        patch.setattr(PartialOutput, "finish_rows", copied)
        assert run(capsys, *arguments, f"whole.{form}")[0] == 0
    whole = content(f"whole.{form}")
    assert len(copies) == 7
    for number in (1, 4, 7):
        copy = copies[number - 1]
        shutil.copytree(copy, f"whole.{form}.partial")
        code, out, err = run(capsys, *arguments, f"whole.{form}", "--resume")
        assert (code, err) == (0, "")
        assert out.startswith(f"50 sets ({min(8 * number, 50)} of them resumed), ")
        assert content(f"whole.{form}") == whole
        assert not Path(f"whole.{form}.partial").exists()


@pytest.mark.parametrize("source", ["scores.npy", "scores.csv --id image"])
def test_blocks_give_the_sets_of_one_call(source, capsys, monkeypatch):
    for name, rule in RULES.items():
        monkeypatch.setattr(scores_module, "BLOCK_SCORES", 4 * 8)
        found = run(capsys, *source.split(), "--logits", "--rule", f"{name}.json", "--seed", "5")[1]
        logits = LOGITS.double() if "csv" in source else LOGITS
        sets = rule.predict(logits, generator=torch.Generator().manual_seed(5))
        labels = [json.loads(line)["labels"] for line in found.splitlines()]
        if "csv" in source:
            labels = [[NAMES.index(label) for label in row] for row in labels]
        assert labels == [[label for label, _ in row] for row in sets]
        if name == "average" and "npy" in source:
            assert sum(map(len, labels)) == int(1.37 * 50)


def test_an_interruption_says_how_to_resume(capsys, monkeypatch):
    arguments = ("scores.npy", "--logits", "--rule", "random.json", "-o", "sets.jsonl")
    with monkeypatch.context() as patch:
        interrupt(patch, 3, KeyboardInterrupt())
        code, out, err = run(capsys, *arguments)
    assert (code, out) == (130, "")
    command = " ".join(("shortlist predict", *arguments))
    assert err == f"\nshortlist: interrupted; 24 rows are kept; to go on: {command}\n"
    assert not Path("sets.jsonl").exists()
    with monkeypatch.context() as patch:
        interrupt(patch, 0, KeyboardInterrupt())
        assert run(capsys, *arguments) == (130, "", err)
    assert run(capsys, *arguments)[1].startswith("50 sets (24 of them resumed), ")
    with monkeypatch.context() as patch:
        interrupt(patch, 0, KeyboardInterrupt())
        assert run(capsys, *arguments, "--seed", "1") == (130, "", "\nshortlist: interrupted.\n")
    assert not Path("sets.jsonl.partial").exists()


def test_a_wrong_row_in_the_middle_is_named_and_what_is_finished_stays(capsys):
    broken = LOGITS.clone()
    broken[33, 2] = float("nan")
    np.save("broken.npy", broken.numpy())
    Path("sets.jsonl").write_text("before")
    arguments = ("broken.npy", "--logits", "--rule", "top.json", "-o", "sets.jsonl")
    for _ in range(2):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        rule = "scores must not be NaN or infinite; that of label 2 is nan"
        assert err == f"shortlist: `broken.npy` row 33: {rule}.\n"
        assert Path("sets.jsonl").read_text() == "before"
        lines = Path("sets.jsonl.partial/rows").read_text().splitlines()
        assert [json.loads(line)["row"] for line in lines] == list(range(32))
    np.save("broken.npy", LOGITS.numpy())
    os.utime("broken.npy", ns=(0, 0))
    sentence = "shortlist: `sets.jsonl` cannot be resumed: the partial output is of another task: changed was "
    assert run(capsys, *arguments, "--resume")[2].startswith(sentence)
    assert Path("sets.jsonl.partial/rows").exists()
    code, out, _ = run(capsys, *arguments)
    assert (code, out) == (0, "50 sets, 2 labels on average, none empty: sets.jsonl\n")


@pytest.mark.parametrize(
    "change",
    [
        "--seed 6",
        "--format csv",
        "--names names.txt",
        "--rule average.json",
        "age",
        "size",
        "rule",
        "progress",
        "rows",
        "version",
    ],
)
def test_another_task_starts_anew(change, capsys, monkeypatch):
    arguments = ["-o", "sets.jsonl", "scores.npy", "--logits", "--rule", "top.json", "--seed", "5"]
    with monkeypatch.context() as patch:
        interrupt(patch, 3, KeyboardInterrupt())
        assert run(capsys, *arguments)[0] == 130
    if change == "age":
        os.utime("scores.npy", ns=(0, 0))
    elif change == "size":
        np.save("scores.npy", LOGITS[:49].numpy())
    elif change == "rule":
        RULES["average"].save("top.json")
    elif change == "progress":
        Path("sets.jsonl.partial/progress.json").write_text("{")
    elif change == "rows":
        os.truncate("sets.jsonl.partial/rows", 10)
    elif change == "version":
        monkeypatch.setattr("shortlist.fingerprint.__version__", "0.0.0")
    else:
        arguments += change.split()
    assert run(capsys, *arguments, "--resume")[0] == 2
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "resumed" not in out
    assert run(capsys, "-o", "other.jsonl", *arguments[2:])[0] == 0
    assert Path("sets.jsonl").read_bytes() == Path("other.jsonl").read_bytes()


def test_a_task_that_was_killed_early_leaves_no_rows_to_the_one_before(capsys, monkeypatch):
    arguments = ["scores.npy", "--logits", "--rule", "top.json", "-o", "sets.jsonl"]
    with monkeypatch.context() as patch:
        interrupt(patch, 3, KeyboardInterrupt())
        assert run(capsys, *arguments)[0] == 130
    finish_rows = PartialOutput.finish_rows

    def copied(partial, *counts):
        finish_rows(partial, *counts)
        shutil.copytree("sets.jsonl.partial", "killed", dirs_exist_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(resumable_output, "_SECONDS", 1e9)
        patch.setattr(PartialOutput, "finish_rows", copied)
        assert run(capsys, *arguments, "--names", "names.txt")[0] == 0
    shutil.copytree("killed", "sets.jsonl.partial")
    assert run(capsys, *arguments)[1] == "50 sets, 2 labels on average, none empty: sets.jsonl\n"
    labels = [json.loads(line)["labels"] for line in Path("sets.jsonl").read_text().splitlines()]
    assert labels == [[label for label, _ in row] for row in RULES["top"].predict(LOGITS)]


def test_two_processes_do_not_write_the_same_output(capsys):
    Path("sets.jsonl.partial").mkdir()
    Path("sets.jsonl.partial/rows").write_bytes(b"of another process")
    with open("sets.jsonl.partial/lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, out, err = run(capsys, "scores.npy", "--logits", "--rule", "top.json", "-o", "sets.jsonl")
    assert (code, out, err) == (2, "", BUSY)
    assert Path("sets.jsonl.partial/rows").read_bytes() == b"of another process"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_second_command_is_refused_until_the_output_is_in_place(form, moment, capsys, monkeypatch):
    arguments = ["scores.npy", "--logits", "--rule", "top.json", "-o", f"sets.{form}"]
    assert run(capsys, *arguments)[0] == 0
    whole = content(f"sets.{form}")
    replace, told = Path.replace, []

    def second(source, target):
        if Path(target).name != f"sets.{form}":
            return replace(source, target)
        if moment == "after":
            replace(source, target)
        # Another task, which would discard the rows of this one.
        told.append(run(capsys, *arguments, "--rule", "random.json", "--seed", "9"))
        return replace(source, target) if moment == "before" else Path(target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", second)
        assert run(capsys, *arguments)[0] == 0
    assert told == [(2, "", BUSY.replace("jsonl", form))]
    assert content(f"sets.{form}") == whole
    assert not Path(f"sets.{form}.partial").exists()


def test_a_lock_that_its_owner_just_removed_is_not_taken_for_one(capsys, monkeypatch):
    flock, calls = fcntl.flock, []

    def late(handle, kind):
        calls.append(handle)
        if len(calls) == 1:
            shutil.rmtree("sets.jsonl.partial")
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    assert run(capsys, "scores.npy", "--logits", "--rule", "top.json", "-o", "sets.jsonl")[0] == 0
    assert len(calls) == 2
    assert len(Path("sets.jsonl").read_text().splitlines()) == 50
    assert not Path("sets.jsonl.partial").exists()


def test_nothing_of_others_is_removed_from_a_folder_of_the_same_name(capsys):
    Path("sets.jsonl.partial").mkdir()
    Path("sets.jsonl.partial/mine.txt").write_text("mine")
    assert run(capsys, "scores.npy", "--logits", "--rule", "top.json", "-o", "sets.jsonl")[0] == 0
    assert os.listdir("sets.jsonl.partial") == ["mine.txt"]


@pytest.mark.parametrize("names", [[], ["--names", "names.txt"]])
def test_parquet_has_the_rows_of_json_lines(names, capsys):
    for source, kind in (("scores.npy", "float"), ("scores.csv --id image", "double")):
        calibration = LOGITS.double() if kind == "double" else LOGITS
        AverageK(0.3).fit(calibration, from_logits=True).save("few.json")
        arguments = [*source.split(), "--logits", "--rule", "few.json", "-o"]
        arguments = [*names, *arguments]
        assert run(capsys, *arguments, "sets.parquet")[0] == run(capsys, *arguments, "sets.jsonl")[0] == 0
        table = parquet.read_table("sets.parquet")
        assert str(table.schema.field("scores").type) == f"list<element: {kind}>"
        assert table.schema.names[0] == ("row" if kind == "float" else "id")
        records = [json.loads(line) for line in Path("sets.jsonl").read_text(encoding="utf-8").splitlines()]
        found = [
            {**row, "scores": shortest_decimals(np.array(row["scores"], dtype=np.float32))} for row in table.to_pylist()
        ]
        if kind == "double":
            found = table.to_pylist()
        assert found == records
        assert [] in [row["labels"] for row in records]


def test_numbers_have_the_fewest_digits_that_read_back_the_same():
    generator = np.random.default_rng(0)
    scores = np.concatenate(
        [
            generator.random(2000, dtype=np.float32),
            10 ** generator.uniform(-45, 38, 2000),
            [0, -0.0, 1, 0.5, 1e-13, 9.999999, 10, -0.1, 3.4e38, 1e-45, 1 / 3],
        ]
    ).astype(np.float32)
    assert shortest_decimals(scores) == scores.astype(str).astype(float).tolist()
    assert shortest_decimals(scores.astype(np.float64)) == scores.astype(np.float64).tolist()
    assert shortest_decimals(scores[:0]) == []

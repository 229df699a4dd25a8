"""``shortlist predict``: the sets of the library, row by row, and whole files or none."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.predict import scores as scores_module
from shortlist.predict.files.set_files import CsvLines, SetRows
from shortlist.sets import AverageError, AverageK, CovariateShift, GroupConditional, PredictionSets, TopK
from tests.cli.command import command

run, _ = command("predict")

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(50, 4, generator=GENERATOR)
PROBS = LOGITS.softmax(-1)
CLASSES = torch.arange(50) % 4
NAMES = ["owl", "red fox", "hare, brown", "Łoś"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Scores of both kinds, a rule for each, read in several blocks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 4 * 20)
    np.save("logits.npy", LOGITS.numpy())
    np.save("probs.npy", PROBS.numpy())
    Path("names.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    with open("probs.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", *NAMES])
        writer.writerows([f"i{row}.jpg", *values] for row, values in enumerate(PROBS.tolist()))
    AverageK(1.5).fit(LOGITS, from_logits=True).save("logits.json")
    AverageK(1.5).fit(PROBS, from_logits=False).save("probs.json")
    return tmp_path


def expected_sets(names: list[str] | None = None) -> PredictionSets:
    return AverageK(1.5).fit(LOGITS, from_logits=True).predict(LOGITS, names=names)


def check_lines(lines: list[str], sets: PredictionSets, key: str = "row", ids: list | None = None) -> None:
    """Every line is a row of the library's answer; scores read back the same in their own precision."""
    assert len(lines) == len(sets)
    for row, line in enumerate(lines):
        record = json.loads(line)
        assert list(record) == [key, "labels", "scores"]
        assert record[key] == (row if ids is None else ids[row])
        assert record["labels"] == [label for label, _ in sets[row]]
        assert np.float32(record["scores"]).tolist() == [score for _, score in sets[row]]


def test_standard_output_has_a_json_object_per_row(folder, capsys):
    code, out, err = run(capsys, "logits.npy", "--logits", "--rule", "logits.json")
    assert (code, err) == (0, "")
    check_lines(out.splitlines(), expected_sets())


def test_labels_have_names_and_rows_have_ids(folder, capsys):
    code, out, _ = run(capsys, "logits.npy", "--logits", "--rule", "logits.json", "--names", "names.txt", "-o", "-")
    assert code == 0
    check_lines(out.splitlines(), expected_sets(NAMES))
    assert "Łoś" in out
    code, out, _ = run(capsys, "probs.csv", "--probabilities", "--id", "image", "--rule", "probs.json")
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == [f"i{row}.jpg" for row in range(50)]
    assert [json.loads(line)["labels"] for line in out.splitlines()] == [
        [label for label, _ in row] for row in expected_sets(NAMES)
    ]


def test_a_file_of_json_lines_is_written_whole_and_summarised(folder, capsys):
    code, out, err = run(capsys, "logits.npy", "--logits", "--rule", "logits.json", "-o", "out/sets.jsonl")
    assert (code, err) == (0, "")
    assert out == "50 sets, 1.5 labels on average, none empty: out/sets.jsonl\n"
    check_lines(Path("out/sets.jsonl").read_text().splitlines(), expected_sets())
    assert os.listdir("out") == ["sets.jsonl"]
    code, out, _ = run(capsys, "logits.npy", "--logits", "--rule", "logits.json", "-o", "sets.jsonl", "--json")
    assert json.loads(out) == {"rows": 50, "average_size": 1.5, "empty": 0, "output": "sets.jsonl"}


@pytest.mark.parametrize("output", [["-o", "sets.csv"], ["--format", "csv"], ["-o", "sets.txt", "--format", "csv"]])
def test_csv_has_a_line_per_row_and_separates_labels_by_semicolons(folder, capsys, output):
    code, out, _ = run(capsys, "logits.npy", "--logits", "--rule", "logits.json", "--names", "names.txt", *output)
    assert code == 0
    text = Path(output[1]).read_text(encoding="utf-8") if output[0] == "-o" else out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["row", "size", "labels", "scores"]
    sets = expected_sets(NAMES)
    assert [int(row["row"]) for row in rows] == list(range(50))
    assert [int(row["size"]) for row in rows] == sets.sizes.tolist()
    assert [row["labels"].split(";") if row["labels"] else [] for row in rows] == [
        [label for label, _ in row] for row in sets
    ]
    scores = [np.float32(row["scores"].split(";")).tolist() if row["scores"] else [] for row in rows]
    assert scores == [[score for _, score in row] for row in sets]


@pytest.mark.parametrize("output", [["-o", "sets.csv"], ["--format", "csv"]])
def test_line_ends_in_names_and_ids_do_not_end_a_record_of_csv(folder, capsys, output):
    names, ids = ["a\rb", "c\nd", "e\r\re", 'f "g"\r,'], ["i\r", "\ri\n", "plain"]
    with open("odd.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["image", *names], *([name, *x] for name, x in zip(ids, PROBS.tolist(), strict=False))])
    TopK(4).fit(PROBS, from_logits=False).save("all.json")
    code, out, _ = run(capsys, "odd.csv", "--probabilities", "--id", "image", "--rule", "all.json", *output)
    assert code == 0
    text = Path(output[1]).read_bytes().decode() if output[0] == "-o" else out
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["id", "size", "labels", "scores"]
    assert [row[0] for row in rows] == ids
    orders = PROBS[:3].argsort(-1, descending=True).tolist()
    assert [row[2].split(";") for row in rows] == [[names[label] for label in order] for order in orders]
    assert text.startswith("id,size,labels,scores\n")
    # Line ends of two characters, too, which a table that is read does not keep.
    sets = PredictionSets.from_mask(torch.tensor([[True, True], [False, False]]))
    (text,) = CsvLines(["a\r\nb", "c"]).lines(SetRows("id", ["\r\ni", "plain"], sets))
    assert text == '"\r\ni",2,"a\r\nb;c",1.0;1.0\nplain,0,,\n'


def test_empty_sets_are_rows_too(folder, capsys):
    AverageK(0.5).fit(LOGITS, from_logits=True).save("few.json")
    code, out, _ = run(capsys, "logits.npy", "--logits", "--rule", "few.json", "-o", "sets.jsonl")
    empty = int((AverageK(0.5).fit(LOGITS, from_logits=True).predict(LOGITS).sizes == 0).sum())
    assert code == 0
    assert f"{empty} empty ({100 * empty / 50:.3g}%)" in out
    assert sum(json.loads(line)["labels"] == [] for line in Path("sets.jsonl").read_text().splitlines()) == empty


@pytest.mark.parametrize(
    ("rule", "need"),
    [
        (lambda: CovariateShift(0.2).fit(LOGITS, CLASSES, from_logits=True, weights=torch.ones(50)), "weights"),
        (lambda: GroupConditional(0.2).fit(LOGITS, CLASSES, from_logits=True, groups=CLASSES % 2), "groups"),
    ],
    ids=["weights", "groups"],
)
def test_a_rule_that_needs_more_than_scores_is_refused(folder, capsys, rule, need):
    rule().save("needs.json")
    code, _, shown = run(capsys, "logits.npy", "--logits", "--rule", "needs.json")
    assert code == 2
    assert f"`needs.json` needs --{need}: {need} of the rows, one per line." in shown


def test_a_seed_decides_ties_for_good(folder, capsys):
    ties = torch.full((200, 2), 0.5)
    np.save("ties.npy", ties.numpy())
    AverageError(0.3).fit(ties, torch.zeros(200, dtype=torch.int64), from_logits=False).save("ties.json")
    arguments = ("ties.npy", "--probabilities", "--rule", "ties.json", "--seed")
    first, again, other = (run(capsys, *arguments, seed)[1] for seed in ("1", "1", "2"))
    assert first == again != other


def test_a_reader_that_has_seen_enough_ends_the_command_quietly_and_scores_need_no_training_library(folder):
    np.save("many.npy", np.zeros((20000, 4), dtype=np.float32))
    TopK(2).fit(LOGITS, from_logits=True).save("two.json")
    without_lightning = """
import sys
sys.modules["lightning"] = None
from shortlist.__main__ import main
sys.exit(main())
"""
    command = [sys.executable, "-c", without_lightning, "predict", "many.npy", "--logits", "--rule", "two.json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(scores_module.__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["row"] == 0
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141

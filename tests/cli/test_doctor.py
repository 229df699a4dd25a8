"""``shortlist doctor``: what the library finds, printed and written."""

import csv
import json

import pytest
import torch

from shortlist.doctor import find_label_issues, find_wrong_classes
from tests.cli.command import command
from tests.cli.score_files import CLASSES, HOT, LOGITS, ROWS

run, refused = command("doctor")


def test_it_prints_the_least_credible_classes_first(capsys, score_files):
    code, out, err = run(capsys, "logits.npy", "y.txt", "--logits", "--top", "3")
    issues = find_wrong_classes(LOGITS, CLASSES, from_logits=True)
    first, header, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert first == f"{len(issues)} labels probably wrong and 0 probably missing in {ROWS} rows."
    assert header.split() == ["row", "label", "issue", "suggested", "quality"]
    assert [line.split()[0] for line in lines[:3]] == [str(row) for row in issues.rows[:3].tolist()]
    assert lines[3] == f"... and {len(issues) - 3} more; --output FILE writes all of them."


def test_all_issues_of_label_sets_are_written(capsys, score_files):
    code, _, err = run(capsys, "logits.npy", "hot.npy", "--logits", "--output", "issues.csv")
    issues = find_label_issues(LOGITS, HOT, from_logits=True).to_list()
    with open("issues.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert (code, err) == (0, "Written to issues.csv.\n")
    assert [(int(each["row"]), int(each["label"]), each["issue"]) for each in written] == [
        (each["row"], each["label"], each["issue"]) for each in issues
    ]


def test_rows_and_labels_have_their_names(capsys, score_files):
    lines = ["image,daisy,rose", "a.png,0.9,0.1", "b.png,0.8,0.2", "c.png,0.1,0.9", "d.png,0.2,0.8", "e.png,0.1,0.9"]
    (score_files / "scores.csv").write_text("\n".join(lines) + "\n")
    (score_files / "names.txt").write_text("daisy\nrose\n")
    (score_files / "labels.txt").write_text("daisy\ndaisy\nrose\nrose\ndaisy\n")
    arguments = ["scores.csv", "labels.txt", "--probabilities", "--id", "image", "--json"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert json.loads(out) == [
        {"row": "e.png", "label": "daisy", "issue": "wrong", "suggested": "rose", "quality": pytest.approx(0.1)}
    ]


def test_a_model_is_asked_about_its_test_rows(capsys, model_folder):
    code, out, _ = run(capsys, "parts", "--data", "parts.csv")
    assert code == 0
    assert "probably wrong" in out


def test_mistakes_are_one_sentence(capsys, score_files):
    assert "LABELS must be given" in refused(capsys, "logits.npy", "--logits")
    (score_files / "none.json").write_text(json.dumps([[]] * ROWS))
    message = "`labels` must hold at least one true label."
    assert message in refused(capsys, "logits.npy", "none.json", "--logits", "--multi-label")
    torch.save([], "x.pt")
    assert "must end in one of" in refused(capsys, "x.pt", "y.txt", "--logits")

"""Six users' stories from their own file to what they want in hand, through the command line."""

import csv
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shortlist.cli import main
from tests.cli.trained import write_images
from tests.report.browser import CHROMIUM, Browser

QUICK = ["--tune", "0", "--epochs", "2", "--encoder-options", "hidden=[8]"]
KINDS = ("Möbel", "Garten", "Küche")


@pytest.fixture
def user(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder and gives its exit code, its output and its messages."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def texts(rows: int) -> list[tuple[str, str]]:
    """Texts and their kinds: three words of the kind among common ones."""
    draw = random.Random(0)
    found = []
    for _ in range(rows):
        kind = draw.choice(KINDS)
        own = [f"{kind.lower()}{draw.randrange(6)}" for _ in range(3)]
        found.append((" ".join([*own, f"wort{draw.randrange(20)}", f"wort{draw.randrange(20)}"]), kind))
    return found


def test_texts_from_a_csv_become_a_report_and_an_answer(user):
    with open("items.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("definition", "category"), *texts(200)])
    code, out, err = user("data", "inspect", "items.csv")
    assert code == 0
    assert err == "`items.csv` is read as: text from 'definition', class from 'category'.\n"
    last = out.splitlines()[-1]
    assert last.startswith("Next: shortlist compare items.csv ")
    command = shlex.split(last.removeprefix("Next: shortlist "))
    code, out, err = user(*command, *QUICK, "--seeds", "1")
    assert (code, "Only 20 test rows" in err, "use --seeds 5" in out) == (0, True, True)
    assert user("report", "items-comparison")[0] == 0
    model = next(Path("items-comparison").rglob("model.json")).parent
    code, out, _ = user("predict", str(model), "--text", "möbel1 möbel2 wort3")
    assert (code, json.loads(out)["labels"][0]) == (0, "Möbel")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_commands_of_a_report_in_the_browser_answer_new_texts(user):
    with open("items.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *texts(200)])
    losses = ("--losses", "cross_entropy", "lml_nll")
    assert user("compare", "items.csv", *losses, *QUICK, "--seeds", "1", "--k", "2", "--output", "items")[0] == 0
    assert user("report", "items")[0] == 0
    browser = Browser()
    try:
        browser.open(Path("items/report.html"), width=1440)
        command = browser.run(
            "[...document.querySelectorAll('code')].map(each => each.textContent)"
            ".find(text => text.startsWith('shortlist predict'))"
        )
        assert (browser.complaints, [url for url in browser.requests if url.startswith("http")]) == ([], [])
    finally:
        browser.close()
    Path("new.csv").write_text("text\nmöbel1 möbel2 wort3\n", encoding="utf-8")
    words = [word.replace("NEW.csv", "new.csv") for word in shlex.split(command)[1:]]
    assert user(*words)[0] == 0
    answers = Path(words[words.index("--output") + 1]).read_text(encoding="utf-8")
    assert json.loads(answers.splitlines()[0])["labels"][0] == "Möbel"


def test_a_table_of_a_german_spreadsheet_works_at_once(user):
    draw = np.random.default_rng(0)
    lines = ["Nr;Größe;Breite;Art;Datum"]
    for row in range(300):
        kind = row % 3
        size, width = draw.normal(3 * kind, 1), draw.normal(-2 * kind, 1)
        lines.append(f"{row};{size:.3f};{width:.3f};{KINDS[kind]};2024-01-{row % 28 + 1:02}".replace(".", ","))
    Path("arten.csv").write_text("\n".join(lines), encoding="latin-1")
    code, _, err = user("fit", "arten.csv", *QUICK, "--k", "1", "--learning_rate", "0.05", "--output", "model")
    assert code == 0
    assert err.startswith(
        "`arten.csv` is read as: numbers from 'Größe', 'Breite', class from 'Art', delimiter ';', "
        "encoding cp1252, because it is not UTF-8. Not used: 'Nr', 'Datum'.\n"
    )
    code, out, _ = user("calibrate", "model", "--data", "arten.csv", "--rule", "average_error", "--alpha", "0.1")
    assert (code, out.splitlines()[-1]) == (0, "Rule: model/rules/average-error.json")
    assert user("predict", "model", "--data", "arten.csv", "--id", "Nr", "--output", "sets.csv")[0] == 0
    rows = list(csv.DictReader(Path("sets.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in rows] == list(map(str, range(300)))
    assert np.mean([KINDS[at % 3] in row["labels"].split(";") for at, row in enumerate(rows)]) > 0.85


def test_labels_that_the_model_never_saw_count_as_missed(user):
    def write(name: str, extra: str | None) -> None:
        with open(name, "w", encoding="utf-8") as file:
            for text, kind in texts(200):
                tags = [kind, "alt" if "wort1" in text else "neu", *([] if extra is None else [extra])]
                file.write(json.dumps({"document": text, "tags": tags}) + "\n")

    write("old.jsonl", None)
    write("new.jsonl", "Zebra")
    code, _, err = user("fit", "old.jsonl", *QUICK, "--loss", "bce", "--k", "2", "--output", "model")
    assert (code, "labels from 'tags'" in err) == (0, True)
    recalls = {}
    for name in ("old.jsonl", "new.jsonl"):
        code, out, err = user("evaluate", "model", "--data", name, "--json")
        assert code == 0
        recalls[name] = json.loads(out)["sets"]["recall"]
    assert "does not know 1 label of the data" in err
    assert "'Zebra' (200)" in err
    # Of three labels one is always missed.
    assert recalls["new.jsonl"] <= 2 / 3 + 1e-9 < recalls["old.jsonl"] + 0.3
    code, _, err = user("evaluate", "model", "--data", "new.jsonl", "--strict")
    assert (code, "which `model` does not know" in err) == (2, True)
    Path("allowed.txt").write_text("Möbel, neu\nGarten\n", encoding="utf-8")
    code, out, _ = user("predict", "model", "--text", "küche1 küche2", "--text", "küche1", "--allowed", "allowed.txt")
    answers = [json.loads(line)["labels"] for line in out.splitlines()]
    assert code == 0
    assert set(answers[0]) <= {"Möbel", "neu"}
    assert set(answers[1]) <= {"Garten"}


def test_a_folder_of_photos_gives_a_model_that_answers_one_photo(user):
    write_images("photos", count=12)
    options = ["--tune", "0", "--epochs", "1", "--k", "1", "--encoder-options", "width=2", "--reader", "size=[8, 8]"]
    assert user("fit", "photos", *options, "--output", "model")[0] == 0
    code, out, _ = user("predict", "model", "--data", "photos/owl/3.png")
    assert (code, json.loads(out)["id"]) == (0, "3.png")
    code, out, _ = user("audit", "model", "--data", "photos", "--json")
    assert json.loads(out)["argmaxable"] == 3


def test_scores_from_elsewhere_become_conformal_sets(user):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 5, 2000)
    logits = draw.normal(size=(2000, 5)).astype(np.float32)
    logits[np.arange(2000), labels] += 2
    for name, rows in (("val", slice(0, 1000)), ("test", slice(1000, 2000))):
        np.save(f"{name}.npy", logits[rows])
        Path(f"{name}.txt").write_text("\n".join(map(str, labels[rows])) + "\n")
    rule = ["--rule", "average-error", "--alpha", "0.1", "--output", "rule.json"]
    assert user("calibrate", "val.npy", "val.txt", "--logits", *rule)[0] == 0
    code, out, _ = user("evaluate", "test.npy", "test.txt", "--logits", "--rule", "rule.json", "--json")
    # Three binomial deviations of 1000 test rows, and those of as many calibration rows.
    assert (code, abs(json.loads(out)["sets"]["coverage"] - 0.9) < 0.04) == (0, True)
    assert user("predict", "test.npy", "--logits", "--rule", "rule.json", "--output", "sets.jsonl")[0] == 0
    assert len(Path("sets.jsonl").read_text().splitlines()) == 1000


@pytest.mark.slow
def test_a_killed_comparison_goes_on_where_it_was(tmp_path):
    with open(tmp_path / "items.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("definition", "category"), *texts(400)])
    words = ["compare", "items.csv", "--losses", "cross_entropy", "lml_nll", "average_k", "--seeds", "2", *QUICK]
    command = [sys.executable, "-m", "shortlist", *words, "--k", "1", "--output", "out"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("out/**/model.json")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/**/model.safetensors")}
    assert done
    assert not (tmp_path / "out" / "comparison.json").exists()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "out" / "comparison.json").is_file()
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())

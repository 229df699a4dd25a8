"""``shortlist report``: a page, who won in a table or as JSON, charts, and one sentence for mistakes."""

import json
import sys

import pytest

from shortlist.report.chart_matplotlib import new_figure
from shortlist.report.comparison.page import _template
from tests.cli.command import command
from tests.report.comparisons import HOSTILE, document

run, refused = command("report")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def write(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(content))
    return str(folder)


def test_the_table_names_the_winner_by_each_metric_and_where_the_page_is(capsys, tmp_path):
    first = write(tmp_path / "a", document(seeds=3, optimum=True))
    second = write(tmp_path / "b", document(sets=True, audit=True, k=5))
    code, out, err = run(capsys, first, second)
    assert (code, err) == (0, "")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    distance = "5.0 points above 5.0%"
    assert ["average-3 error (target)", "cross_entropy", "10.0 ± 1.0%", "lml", distance] in cells
    assert ["recall@5 (target)", "cross_entropy", "10.0%"] in cells
    assert ["mean average precision", "cross_entropy", "10.0%"] in cells
    assert "cross_entropy: 15 of 45 distinct label sets in the test rows can never be output" in out
    page = tmp_path / "a" / "report.html"
    assert out.splitlines()[-1] == f"Report: {page}"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert [entry.name for entry in (tmp_path / "b").iterdir()] == ["comparison.json"]


def test_json_holds_the_same_and_nothing_else(capsys, tmp_path):
    folder = write(tmp_path / "a", document(seeds=3, optimum=True, audit=True))
    page = tmp_path / "deep" / "page.html"
    code, out, err = run(capsys, f"{folder}/comparison.json", "--output", str(page), "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["report"] == str(page)
    assert page.is_file()
    assert found["figures"] == []
    job = found["jobs"][0]
    assert job["file"] == f"{folder}/comparison.json"
    assert job["target"] == "average3_error"
    winner = job["winners"][0]
    assert winner.pop("gap") == pytest.approx(0.05)
    assert winner == {
        "figure": "average3_error", "better": "lower", "name": "cross_entropy", "mean": 0.1, "half_width": 0.01,
        "ties": ["lml"], "optimum": 0.05,
    }  # fmt: skip
    assert job["audits"]["cross_entropy"]["unargmaxable"] == 15


def test_figures_are_drawn_for_each_job(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.report.comparison.charts.draw_chart", lambda chart: new_figure(1, 1))
    folders = [write(tmp_path / name, document(names=("lml",))) for name in "ab"]
    code, out, _ = run(capsys, *folders, "--figures", str(tmp_path / "figures"), "--output", str(tmp_path / "r.html"))
    assert code == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {f"{job}-flowers-watched-metric.{kind}" for job in (1, 2) for kind in ("png", "svg")} <= names
    assert f"Figures: {tmp_path / 'figures'} ({len(names)} files)" in out


def test_names_with_markup_are_printed_as_they_are(capsys, tmp_path):
    names = tuple(name for name in HOSTILE if "\ud800" not in name and "long" not in name)
    folder = write(tmp_path / "a", document(names=names[2:], audit=True, seeds=2))
    code, out, _ = run(capsys, folder)
    assert code == 0
    assert "_$x_1$ {braces} %{x} [bold]" in out


def test_bad_input_is_one_sentence_and_nothing_is_written(capsys, tmp_path):
    good = write(tmp_path / "good", document())
    damaged = write(tmp_path / "damaged", {**document(), "ks": []})
    assert "does not exist" in refused(capsys, str(tmp_path / "nowhere"))
    assert "holds no comparison.json" in refused(capsys, str(tmp_path))
    assert "damaged/comparison.json` is damaged: ks must have at least 1 entry." in refused(capsys, good, damaged)
    assert "cannot be its output" in refused(capsys, good, "--output", f"{good}/comparison.json")
    assert "is a folder" in refused(capsys, good, "--output", str(tmp_path))
    assert "it is not a folder" in refused(capsys, good, "--figures", f"{good}/comparison.json")
    assert "required: FOLDER" in refused(capsys)
    assert [entry.name for entry in (tmp_path / "good").iterdir()] == ["comparison.json"]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_page(capsys, tmp_path, monkeypatch):
    folder = write(tmp_path / "a", document())
    page = tmp_path / "a" / "report.html"
    page.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    assert "report.html` cannot be written: No space left on device." in refused(capsys, folder)
    assert page.read_text() == "old"
    assert {entry.name for entry in page.parent.iterdir()} == {"comparison.json", "report.html"}


def test_without_jinja_the_extra_is_named(capsys, tmp_path, monkeypatch):
    folder = write(tmp_path / "a", document())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    _template.cache_clear()
    assert ".[cli]" in refused(capsys, folder)

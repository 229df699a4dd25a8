"""``shortlist data`` on samples of several formats, with the real readers; `test_contract` of data reads them all."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shortlist.data.opening import FORMATS
from tests.cli.command import command
from tests.data.formats.samples import place
from tests.data.formats.small_files import lines, picture, table

run, refused = command("data")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a sample and gives what to open; the current folder is an empty one."""
    for name in ("sample", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "100")
    return lambda name: str(place(name, tmp_path / "sample", monkeypatch))


TEXTS = {
    "COCO root": ["COCO 2017: 3 rows of images, 3 labels", "train 2 (1 labels per row), val 1 (1 labels per row)"],
    "MIMIC 50": ["mimic-50: 4 rows of text, 3 labels", "401.9 (2), 38.93 (1), E880.9 (1)", "high pressure"],
    "npz": ["a: 3 rows of features (2), 2 labels", "3: train 2, test 1", "oak (2), elm (1)"],
    "VG-SGG": ["Visual Genome: 12 rows of object pairs, 4 labels", "above (2), has (2), wearing (2)"],
    "extreme": ["x: 2 rows of sparse features (4), 3 labels", "1 row without a label", "1 label: 1"],
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_table_shows_the_statistics_of_a_sample(name, written, capsys):
    code, out, err = run(capsys, "inspect", written(name), "--no-figure")
    assert (code, err) == (0, "")
    for part in TEXTS[name]:
        assert part in out
    assert "random row" in out
    assert "cannot be read" not in out
    assert not list(Path().iterdir())


def test_formats_are_those_that_can_be_read(capsys):
    code, out, err = run(capsys, "formats")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        [name, form.about] for name, form in FORMATS.items()
    ]


def test_images_are_counted_even_if_the_library_that_reads_them_is_missing(written, capsys, monkeypatch):
    path = written("COCO root")
    for module in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    code, out, err = run(capsys, "inspect", path, "--no-figure")
    assert (code, err) == (0, "")
    assert "3 rows of images" in out
    told = "".join(out.split())
    assert told.count("isnotinstalled:run`pipinstall'.[data]'`inacheckoutofshortlist.") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], f"`.` has no known format; `format` can be one of {', '.join(FORMATS)}."),
        (["PATH", "--format", "digits"], "`path` must be 'digits' for this format; got 'PATH'."),
        (["PATH", "--reader", "label=color"], "`PATH`: has no column 'color' for `label`; it has "),
        (["PATH", "--format", "voc"], "`PATH` is a file, not a folder."),
    ],
)
def test_data_of_another_kind_are_refused_in_one_sentence(arguments, message, written, capsys):
    path = written("CSV")
    given = [argument.replace("PATH", path) for argument in arguments]
    assert refused(capsys, "inspect", *given, "--no-figure").startswith(message.replace("PATH", path))


def test_a_text_column_that_is_not_there_is_answered_with_commands_that_work(written, capsys):
    code, _, err = run(capsys, "inspect", written("CSV"), "--reader", "text=5", "--no-figure")
    sentence, *offered = err.splitlines()
    assert code == 2
    assert "has no column '5' for `text`; it has " in sentence
    assert any(run(capsys, *shlex.split(line)[2:])[0] == 0 for line in offered)


def test_labels_are_summarized_without_images_that_are_missing(tmp_path, capsys):
    lines(tmp_path / "labels.csv", "ImageID,Source,LabelName,Confidence", "a,x,/m/1,1", "b,x,/m/1,1")
    picture(tmp_path / "a.jpg")
    arguments = ("inspect", str(tmp_path / "labels.csv"), "--json")
    code, out, err = run(capsys, *arguments)
    assert (code, json.loads(out)["rows"]) == (0, 2)
    lost = tmp_path / "b.jpg"
    assert err == f"1 of 2 images are missing, such as `{lost}`, so only labels are summarized.\n"


def test_the_installed_command_prints_json_and_nothing_else(tmp_path):
    command = [str(Path(sys.executable).with_name("shortlist")), "data", "inspect", "--json", "--no-figure"]
    done = subprocess.run([*command, str(table(tmp_path))], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 3


def test_a_choice_that_names_thousands_of_columns_is_not_offered_as_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({f"k{i}": 1, "label": "a"}) for i in range(500)]
    Path("keys.jsonl").write_text("\n".join(lines) + "\n")
    sentence = refused(capsys, "inspect", "keys.jsonl")
    assert sentence.endswith("'k0' must be a finite number; got None.")

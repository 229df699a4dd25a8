"""``shortlist data``: what is printed, drawn and written as JSON, and one sentence for every mistake."""

import errno
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.cli.data_tables import _bins
from shortlist.data import Dataset, Features, Groups, Texts, opening
from shortlist.data.summary import Tally, summarise
from shortlist.errors import InputError
from shortlist.report.dataset_examples import example_rows
from tests.cli.command import command

run, refused = command("data")

PARTS = ("train", "val", "test")


def flowers() -> Dataset:
    """Texts of flowers: one label never seen, one only tested, one unknown, one hidden, two equal rows that leak."""
    target = torch.tensor(
        [[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, -1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    )
    clean = target.clone()
    clean[5, 1] = 1
    return Dataset(
        Texts(["a rose", "a [red] rose", "two roses", "a rose", "a \x1b[31mfern", "", "roses"]),
        target,
        ("rose", "[bold]daisy", "fern", "oak"),
        label_groups={"genus": Groups.of(["Rosa", "Bellis", "Fern", None])},
        row_groups={"source": Groups.of(["x", "x", "x", "y", "y", "y", "y"])},
        split=Groups.of(["train", "train", "train", "test", "test", "train", "val"], order=PARTS),
        clean_targets=clean,
        name="flowers",
    )


DATASETS = {
    "flowers": flowers,
    "empty": lambda: Dataset(Features(torch.zeros(0, 2)), torch.zeros(0, dtype=torch.int64), ()),
    "odd/name here.csv": lambda: Dataset(Texts(["a"]), torch.tensor([0]), ("used", "never")),
    "tested": lambda: Dataset(Texts(["a"]), torch.tensor([0]), ("only",), split=Groups.of(["test"])),
    "broken": lambda: Dataset(Broken(["a"]), torch.tensor([0]), ("only",)),
    "large": lambda: Dataset(Features(torch.full((7400, 1), 3700.0)), torch.arange(7400) % 2, ("oak", "elm")),
}


class Broken(Texts):
    """Texts that cannot be read, for one reason or another."""

    error: Exception = InputError("`broken.txt` row 1: is damaged.")

    def batch(self, rows):
        raise self.error


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Files in the current folder that a format of their own reads, and remembers how."""
    monkeypatch.chdir(tmp_path)
    for name in DATASETS:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    calls = []

    def read(
        path: Path,
        *,
        size: int | tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        text: str | None = None,
    ) -> Dataset:
        given = {"size": size, "columns": columns, "text": text}
        calls.append({name: value for name, value in given.items() if value is not None})
        return DATASETS[path.as_posix()]()

    formats = {
        "sample": opening.Format("Samples", lambda path: path.as_posix() in DATASETS, read),
        "table": opening.Format("CSV files", lambda path: False, lambda path, *, text=None: DATASETS[str(path)]()),
    }
    monkeypatch.setattr(opening, "FORMATS", formats)
    monkeypatch.setenv("COLUMNS", "100")
    return calls


def new_files() -> list[str]:
    """What was written into the current folder."""
    return sorted({path.name for path in Path().iterdir()} - {Path(name).parts[0] for name in DATASETS})


def table(out: str) -> dict[str, str]:
    """Rows of the table of statistics, wrapped lines joined."""
    rows: dict[str, str] = {}
    name = ""
    for line in out.split("\n\n")[0].splitlines()[1:]:
        head, text = line[:16].strip(), line[16:].strip()
        name = head or name
        rows[name] = f"{rows[name]} {text}" if not head else text
    return rows


def test_the_table_shows_all_statistics(opened, capsys):
    code, out, err = run(capsys, "inspect", "flowers", "--no-figure")
    assert (code, err) == (0, "")
    assert out.startswith("flowers: 7 rows of text, 4 labels")
    assert table(out) == {
        "rows": "7: train 4 (1.25 labels per row), val 1 (1 labels per row), test 2 (1 labels per row)",
        "targets": "multi-hot",
        "labels per row": "mean 1.14, median 1, from 0 to 2; density 28.6%; 1 row without a label",
        "label sets": "4 different",
        "rows per label": "mean 2, median 1.5, from 0 to 5",
        "most frequent": "rose (5), [bold]daisy (2), fern (1)",
        "least frequent": "fern (1), [bold]daisy (2), rose (5)",
        "tail": "the rarest 50% hold 12.5%, 80% hold 50%, 90% hold 75% of all label entries; Gini 0.500",
        "head": "half of all label entries belong to the most frequent label",
        "never seen": "1 label: oak",
        "never in train": "2 labels: fern, oak",
        "only in test": "1 label: fern",
        "imbalance": "1.5 : 1, most to least frequent label of train",
        "genus": "3 groups of 1 label (mean 1), 1 to 5 rows each; largest Bellis (1), Fern (1), Rosa (1); "
        "1 label in none",
        "source": "2 groups of 3 to 4 rows (mean 3.5); largest y (4), x (3); 1 in several parts",
        "unknown labels": "1 entry (3.57% of all) in 1 row",
        "changed labels": "1 row: 0 labels added, 1 removed or hidden",
        "equal inputs": "2 rows in 1 group (such as 0 = 3); 1 group across parts, 1 row outside of train also inside; "
        "0 groups with different labels",
    }


def test_bars_and_examples_are_printed(opened, capsys):
    _, out, _ = run(capsys, "inspect", "flowers", "--no-figure")
    lines = [line.split() for line in out.splitlines()]
    assert ["1", "█" * 20, "4", "medium:", "20-100", "0"] in lines
    assert ["few:", "<", "20", "█" * 20, "4"] in [line[-5:] for line in lines]
    assert "5 random rows" in out
    shown = example_rows(7, 12)
    texts = [line for line in lines[-7:-2] if line]
    assert [int(line[0]) for line in texts] == [shown[place * 7 // 5] for place in range(5)]
    _, out, _ = run(capsys, "inspect", "flowers", "--no-figure", "--examples", "0")
    assert "random rows" not in out


def test_names_and_texts_bring_neither_markup_nor_control_codes(opened, capsys):
    _, out, _ = run(capsys, "inspect", "flowers", "--no-figure", "--examples", "7", "--seed", "3")
    assert "[bold]daisy (2)" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["empty", "tested", "odd/name here.csv"])
def test_datasets_of_nearly_nothing_are_described_too(opened, capsys, name):
    code, out, err = run(capsys, "inspect", name, "--no-figure")
    assert (code, err) == (0, "")
    assert table(out)["equal inputs"] == "none"
    assert ("the split has no part `train`" in out) == (name == "tested")
    assert ("by training examples" in out) == (name.startswith("odd"))


def test_json_is_all_that_is_printed_and_equals_that_of_the_library(opened, capsys):
    code, out, err = run(capsys, "inspect", "flowers", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == summarise(flowers()).to_json()
    assert not new_files()
    _, out, _ = run(capsys, "inspect", "flowers", "--json", "--no-duplicates")
    assert json.loads(out)["duplicates"] is None


def test_nothing_is_drawn_unless_asked_for_and_the_last_line_is_the_next_command(opened, capsys):
    code, out, _ = run(capsys, "inspect", "odd/name here.csv", "--examples", "0", "--reader", "text=a b")
    assert code == 0
    assert out.splitlines()[-1] == (
        "Next: shortlist compare 'odd/name here.csv' --reader 'text=a b' --losses cross_entropy lml_nll average_k "
        "--k 1 --output name-here-comparison"
    )
    nothing = "No comparison: a model needs at least 2 labels, and these rows have 1."
    assert run(capsys, "inspect", "tested")[1].splitlines()[-1] == nothing
    assert "--losses bce lml_nll two_way --k 1 " in run(capsys, "inspect", "flowers")[1].splitlines()[-1]
    assert new_files() == []


def test_the_former_name_of_reader_options_works_and_says_so(opened, capsys):
    code, _, err = run(capsys, "inspect", "flowers", "--json", "--option", "size=8", "--reader", "text=5")
    assert (code, err) == (0, "shortlist: --option is called --reader now.\n")
    assert opened == [{"size": 8, "text": "5"}]


def test_a_picture_that_was_asked_for_is_drawn_with_json_too(opened, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "shortlist.report.dataset.draw_dataset", lambda *given, **options: drawn.append(options) or "figure"
    )
    monkeypatch.setattr("shortlist.report.chart_matplotlib.save_figure", lambda figure, path: Path(path))
    _, out, _ = run(capsys, "inspect", "flowers", "--json", "--figure", "out/a.pdf", "--examples", "3", "--seed", "5")
    assert json.loads(out)["rows"] == 7
    assert drawn == [{"examples": 3, "seed": 5}]
    _, out, _ = run(capsys, "inspect", "flowers", "--figure", "out/a.svg")
    assert f"Picture: {Path('out/a.svg')}\n" in out


def test_options_reach_the_reader_with_their_types(opened, capsys):
    given = ["--reader", "size=[64, 32]", "--reader", "columns=3", "--reader", "text=a=NaN"]
    assert run(capsys, "inspect", "flowers", "--json", "--format", "sample", *given)[0] == 0
    assert run(capsys, "inspect", "flowers", "--json", "--reader", "text=5", "--reader", "size=8")[0] == 0
    assert opened == [{"size": (64, 32), "columns": ("3",), "text": "a=NaN"}, {"text": "5", "size": 8}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["flowers", "--reader", "size=true"],
            "reader option `size` must be a whole number or a list of 2, each a whole number or null; got 'true'.",
        ),
        (["flowers", "--reader", "color=red"], "reader options must be among size, columns, text; got 'color'."),
        (["flowers", "--format", "coco"], "`format` must be one of sample, table; got 'coco'."),
        (["broken", "--no-figure"], "`broken.txt` row 1: is damaged."),
    ],
)
def test_options_and_rows_that_the_reader_refuses_are_one_sentence(opened, capsys, arguments, message):
    assert refused(capsys, "inspect", *arguments) == message
    assert not new_files()


LONG = f"`{'a long way/' * 12}b.jpg` cannot be read: it is damaged."


def test_a_row_that_cannot_be_read_shows_the_whole_reason(opened, capsys, monkeypatch):
    monkeypatch.setattr(Broken, "error", ValueError(LONG))
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, "inspect", "broken", "--no-figure", "--no-duplicates")
    assert (code, err) == (0, "")
    assert "cannotberead:" + "".join(LONG.split()) in "".join(out.split())
    assert table(out)["equal inputs"] == "not looked for"


def test_large_numbers_have_commas_and_no_exponents(opened, capsys):
    code, out, _ = run(capsys, "inspect", "large", "--no-figure", "--no-duplicates")
    assert code == 0
    assert table(out)["rows per label"] == "mean 3,700, median 3,700, from 3,700 to 3,700"
    assert "e+0" not in out
    assert ["3700", "oak"] in [line.split()[-2:] for line in out.splitlines()]


def test_a_folder_without_permission_is_reported_by_the_name_of_the_picture(opened, capsys, monkeypatch):
    def refuse(figure, path):
        raise PermissionError(errno.EACCES, "Permission denied", f".{path}.17.partial")

    monkeypatch.setattr("shortlist.report.dataset.draw_dataset", lambda *given, **options: "figure")
    monkeypatch.setattr("shortlist.report.chart_matplotlib.save_figure", refuse)
    code, _, err = run(capsys, "inspect", "flowers", "--figure", "a.png")
    assert (code, err) == (2, "shortlist: `a.png` cannot be written: Permission denied.\n")


@pytest.mark.parametrize(
    "times", [(3,), (500, 200, 90, 40, 20, 9, 4, 2, 1, 1, 1, 1, 1), (1,) * 40, (1000, *[0] * 60, 1)]
)
def test_bars_cover_every_number_once_and_a_long_tail_shares_one(times):
    tally = Tally.of(np.repeat(np.arange(len(times)), times))
    bins = _bins(tally)
    assert len(bins) <= 10
    assert (bins[0][0], bins[-1][1]) == (tally.minimum, tally.maximum)
    assert [first for first, _, _ in bins[1:]] == [last + 1 for _, last, _ in bins[:-1]]
    assert [count for _, _, count in bins] == [sum(times[first : last + 1]) for first, last, _ in bins]
    if len(times) == 13:
        assert bins[:2] == [(0, 0, 500), (1, 1, 200)]

"""The overview of a dataset: what its panels show, examples of every kind, and names that break fonts and markup."""

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from shortlist.data import Dataset, Features, Groups, SparseRows, Texts
from shortlist.data.object_pairs import ObjectPairs
from shortlist.data.summary import summarise
from shortlist.data.target_rows import sparse_targets
from shortlist.report import draw_dataset
from shortlist.report.chart_matplotlib import drawable, new_figure, save_figure, shorten, wrap
from shortlist.report.dataset_examples import (
    describe_input,
    describe_labels,
    draw_examples,
    example_rows,
    read_example,
)

ODD_NAMES = ("$x_1$ costs $5", "漢字 [bold]", "line\nend\ttab", "WIDE LETTERS " * 20, "\\frac{", "")


class Images(Features):
    """Pixels with one damaged row."""

    kind = "images"

    def batch(self, rows):
        if 3 in rows.tolist():
            raise ValueError("`broken.jpg` is damaged.")
        return super().batch(rows)


def multi_label(rows=80, labels=40, **more):
    rng = np.random.default_rng(0)
    number = rng.integers(0, 6, rows)
    row = np.repeat(np.arange(rows), number)
    label = (labels * rng.random(len(row)) ** 3).astype(np.int64)
    target = sparse_targets(row, label, rows, labels, present=rng.random(len(row)) > 0.1)
    names = tuple(f"label {place}" for place in range(labels))
    return Dataset(Features(rng.standard_normal((rows, 5))), target, names, name="many", **more)


def texts(count=30):
    words = ["a [word] with $5 and 漢字\n" * 40, "", "short"] * count
    return Dataset(Texts(words[:count]), torch.arange(count) % len(ODD_NAMES), ODD_NAMES, name="odd $ [names]")


def object_pairs():
    boxes = torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 8], [5, 5, 5, 5]])
    sizes = torch.tensor([[10.0, 8.0]])
    inputs = ObjectPairs(torch.tensor([0, 1, 1]), boxes, torch.tensor([0, 3]), sizes, object_names=("man", "horse"))
    return Dataset(inputs, torch.zeros(6, dtype=torch.int64), ("rides",))


def sparse_features():
    inputs = SparseRows(torch.tensor([0, 2, 2]), torch.tensor([1, 900]), torch.tensor([1.0, -2.0]), 1000)
    return Dataset(inputs, torch.tensor([0, 1]), ("a", "b"), split=Groups.of(["test", "test"]))


DATASETS = {
    "images": lambda: Dataset(Images(torch.zeros(5, 1, 8, 8, dtype=torch.uint8)), torch.arange(5), tuple("abcde")),
    "color": lambda: Dataset(Images(torch.zeros(3, 3, 900, 7, dtype=torch.uint8)), torch.arange(3), tuple("abc")),
    "multi-label": multi_label,
    "texts": texts,
    "matrices": lambda: Dataset(Features(torch.randn(4, 6, 5)), torch.zeros(4, dtype=torch.int64), ("only",)),
    "not finite": lambda: Dataset(Features(torch.full((3, 2), torch.nan)), torch.arange(3), tuple("abc")),
    "half": lambda: Dataset(Features(torch.ones(2, 700, dtype=torch.bfloat16)), torch.arange(2), ("a", "b")),
    "sparse": sparse_features,
    "pairs": object_pairs,
    "no rows": lambda: Dataset(Features(torch.zeros(0, 3)), torch.zeros(0, dtype=torch.int64), ("a", "b")),
    "no labels": lambda: Dataset(Texts(["a", "b"]), torch.zeros(2, 0), ()),
}


def drawn(dataset, **options):
    return draw_dataset(summarise(dataset, duplicates=False), dataset, **options)


def axes_by_title(figure):
    return {axis.get_title(): axis for axis in figure.get_axes()}


def texts_of(axis):
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("name", [name for name, make in DATASETS.items() if len(make())])
def test_examples_of_every_kind_are_drawn(name):
    dataset = DATASETS[name]()
    figure = new_figure(4, 2)
    draw_examples(figure, dataset, [0, len(dataset) - 1], columns=2)
    figure.set(layout_engine="none", dpi=30)
    FigureCanvasAgg(figure).draw()
    first, last = figure.get_axes()
    assert last.get_title() == f"row {len(dataset) - 1}" + (" · test" if dataset.split is not None else "")
    assert first.images or first.patches or texts_of(first)
    assert first.get_xlabel()


@pytest.mark.parametrize("name", ["no rows", "no labels", "texts"])
def test_panels_of_odd_datasets_are_drawn(name):
    figure = draw_dataset(summarise(DATASETS[name]()))
    figure.set(layout_engine="none", dpi=30)
    FigureCanvasAgg(figure).draw()
    assert len(figure.get_axes()) == 6


def test_a_picture_is_written_and_opens_well(tmp_path):
    path = save_figure(draw_dataset(summarise(multi_label())), tmp_path / "many.png")
    height, width, _ = matplotlib.image.imread(path).shape
    assert (width, height) == (2025, 1110)


def test_captions_of_neighbours_do_not_overlap():
    dataset = Dataset(
        Features(torch.randn(12, 4)),
        torch.arange(12) // 2,
        ("WIDE LETTERS AND WORDS " * 9, "NAME WITH CAPITALS " * 9, *"abcd"),
    )
    figure = new_figure(13.5, 1.9)
    draw_examples(figure, dataset, list(range(6)), columns=6)
    figure.set_dpi(50)
    FigureCanvasAgg(figure).draw()
    captions = [axis.xaxis.label for axis in figure.get_axes() if axis.get_title().startswith("row ")]
    boxes = [caption.get_window_extent() for caption in captions]
    assert max(box.width for box in boxes) > 40
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_panels_show_the_figures_of_the_summary():
    parts = Groups.of(["train"] * 60 + ["test"] * 20, order=("train", "test"))
    dataset = multi_label(split=parts, label_groups={"genus": Groups.of([f"g{place % 4}" for place in range(40)])})
    summary = summarise(dataset)
    axes = axes_by_title(draw_dataset(summary))
    assert set(axes) == {
        "Labels per row",
        "Label frequencies",
        "Lorenz curve",
        "Rows by part",
        "Labels by training rows",
        "genus: 4 groups",
    }
    heights = [bar.get_height() for bar in axes["Labels per row"].patches]
    assert [height for height in heights if height] == list(summary.labels_per_row.times)
    curve = axes["Lorenz curve"].lines[1].get_xydata()
    np.testing.assert_allclose(curve, 100 * np.array(summary.lorenz))
    assert f"Gini {summary.gini:.3f}" in texts_of(axes["Lorenz curve"])
    frequencies = axes["Label frequencies"].lines[0].get_xydata()
    assert frequencies[0].tolist() == [1, summary.rows_per_label.maximum]
    assert [bar.get_width() for bar in axes["Rows by part"].patches] == [60, 20]
    assert summary.training is not None
    widths = [bar.get_width() for bar in axes["Labels by training rows"].patches]
    assert widths[:3] == [shot.labels for shot in summary.training.shots]
    assert [bar.get_width() for bar in axes["genus: 4 groups"].patches] == [10, 10, 10, 10]
    assert all(axis.get_xlabel() for axis in axes.values())


def test_several_partitions_share_a_panel_and_without_any_the_commonest_labels_are_named():
    groups = {"genus": Groups.of(range(40)), "$order$": Groups.of([0] * 40)}
    axis = axes_by_title(draw_dataset(summarise(multi_label(label_groups=groups))))["Group sizes"]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        "genus: 40 groups of labels",
        r"\$order\$: 1 group of labels",
    ]
    axis = axes_by_title(draw_dataset(summarise(texts())))["Most frequent labels"]
    assert axis.get_yticklabels()[0].get_text() == "$x_1$ costs $5"


def test_labels_never_seen_and_a_missing_training_part_are_said():
    axes = axes_by_title(draw_dataset(summarise(DATASETS["no rows"]())))
    assert texts_of(axes["Label frequencies"]) == ["2 labels never seen"]
    axes = axes_by_title(draw_dataset(summarise(sparse_features())))
    assert texts_of(axes["Labels by training rows"]) == ["the split has no part `train`"]


def test_a_row_that_cannot_be_read_is_shown_with_the_reason():
    axes = axes_by_title(drawn(DATASETS["images"]()))
    assert texts_of(axes["row 3"]) == ["cannot be read: `broken.jpg` is\ndamaged."]
    assert axes["row 4"].get_xlabel() == "e"
    assert axes["row 4"].images[0].get_array().shape == (8, 8)


def test_the_seed_chooses_the_rows_and_the_number_is_kept():
    assert example_rows(1000, 5) == example_rows(1000, 5)
    assert example_rows(1000, 5) != example_rows(1000, 5, seed=1)
    for count, rows in ((0, 9), (5, 9), (9, 9), (20, 9), (3, 0)):
        chosen = example_rows(rows, count)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == min(count, rows)
        assert all(0 <= row < rows for row in chosen)
    shown = [title for title in axes_by_title(drawn(multi_label(), examples=3, seed=2)) if title.startswith("row ")]
    assert shown == [f"row {row}" for row in example_rows(80, 3, seed=2)]


def test_wrong_numbers_of_examples_are_refused():
    with pytest.raises(ValueError, match=r"`examples` must be at least 0; got -1\."):
        draw_dataset(summarise(texts()), examples=-1)
    with pytest.raises(ValueError, match=r"`count` must be at least 0; got -2\."):
        example_rows(3, -2)


def test_texts_are_cut_to_what_can_be_drawn():
    assert drawable("a\tb\n漢\x1b c") == "a b ▯ c"
    assert shorten("a long name", 6) == "a lon…"
    assert shorten("short", 5) == "short"
    lines = wrap("word " * 50, 12, 3).splitlines()
    assert lines == ["word word", "word word", "word word …"]


def test_inputs_and_labels_are_described_in_one_line():
    described = {name: describe_input(make(), make()[0]) for name, make in DATASETS.items() if len(make())}
    assert described["images"] == "8 × 8 pixels, grayscale"
    assert described["color"] == "7 × 900 pixels, color"
    assert described["sparse"] == "2 of 1,000 features are nonzero"
    assert described["pairs"] == "man → horse"
    assert described["half"] == "1, 1, 1, 1, 1, 1, …"
    assert describe_input(texts(), texts()[1]) == "(empty text)"
    values = torch.tensor([[3700.0, -12345.6, 1e9, 0.25, 1e-7, float("nan")]])
    numbers = Dataset(Features(values), torch.tensor([0]), ("a",))
    assert describe_input(numbers, numbers[0]) == "3700, -12346, 1e+09, 0.25, 1e-07, nan"
    target = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    dataset = Dataset(Texts(["a", "b"]), target, ("rose", "fern", "oak"))
    assert [describe_labels(dataset[row]) for row in (0, 1)] == ["rose, fern?", "(no label)"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ImportError("`PIL` is not installed."), "`PIL` is not installed."),
        (ValueError("damaged"), "damaged"),
        (OSError("odd"), "odd"),
        (PermissionError(13, "Permission denied", "b.jpg"), "`b.jpg`: Permission denied."),
    ],
)
def test_the_reason_why_a_row_cannot_be_read_is_shown_in_its_cell(error, reason, monkeypatch):
    def refuse(self, rows):
        raise error

    data = texts(3)
    monkeypatch.setattr(Texts, "batch", refuse)
    assert read_example(data, 1) == (1, None, reason)
    figure = new_figure(6, 2)
    draw_examples(figure, data, [1], columns=2)
    assert figure.axes[0].texts[0].get_text() == f"cannot be read: {reason}"

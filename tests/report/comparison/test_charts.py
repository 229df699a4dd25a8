"""The charts of a comparison: what they show, in the page and in files."""

import json

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from shortlist.comparison_document import ComparisonDocument
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import draw_chart
from shortlist.report.comparison.charts import (
    audit_panel,
    calibration_panel,
    comparison_panels,
    draw_figures,
    error_panel,
    shot_panel,
    size_panel,
    training_panels,
)
from shortlist.report.comparison.page import chart_data
from tests.report.comparisons import DOCUMENTS, comparison, document

PANELS = {"error-versus-size", "set-sizes", "accuracy-by-count", "calibration", "training-loss", "watched-metric"}


def series(chart, name, kind):
    return next(one for one in chart.series if (one.name, one.kind) == (name, kind))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_panel_has_a_description_and_plain_json_charts_for_every_k(name):
    content = comparison(name)
    panels = {panel.name: panel for panel in comparison_panels(content)}
    expected = PANELS | ({"error-by-shot"} if len(content.data.shots) > 1 else set())
    expected |= {"audit"} if next(iter(content.candidates.values())).audit else set()
    expected |= {"learning-rates"} if next(iter(content.candidates.values())).tuning else set()
    assert set(panels) == expected
    for panel in panels.values():
        assert panel.about.endswith(".")
        follows_k = panel.name in ("error-versus-size", "set-sizes", "error-by-shot", "accuracy-by-count")
        assert {len(charts) for charts in panel.charts.values()} == {len(content.ks) if follows_k else 1}
        drawn = json.loads(json.dumps(chart_data([content], [[panel]]), allow_nan=False))
        for one in drawn["series"]:
            assert len(drawn["lists"][one["x"]]) == len(drawn["lists"][one["y"]])


def test_a_candidate_has_one_color_in_all_charts_and_both_renderers():
    content = comparison(seeds=2, audit=True, optimum=True)
    for panel in comparison_panels(content):
        for charts in panel.charts.values():
            for one in charts[0].series:
                indices = [index for index, name in enumerate(content.candidates) if one.name.startswith(name)]
                assert one.style.color == (candidate_style(indices[0]).color if indices else INK)
    chart = calibration_panel(content).charts["as trained"][0]
    lines = draw_chart(chart).axes[0].lines
    assert lines[0].get_color() == candidate_style(0).color


def test_twelve_candidates_have_twelve_styles():
    assert len({candidate_style(index) for index in range(12)}) == 12


def test_the_error_is_the_mean_over_seeds_and_the_band_spans_them():
    content = comparison(seeds=3, optimum=True)
    chart = error_panel(content).charts["average-K"][1]
    curves = [run.sets.curves.errors["average-k"] for run in content.candidates["lml"].runs]
    assert series(chart, "lml", "line").y == pytest.approx(np.mean(curves, axis=0))
    band = series(chart, "lml", "band")
    assert (list(band.y), list(band.high)) == (np.min(curves, 0).tolist(), np.max(curves, 0).tolist())
    assert series(chart, "optimum", "line").style.color == INK
    assert chart.references[0].x == content.ks[1]
    assert series(chart, "lml", "points").x == pytest.approx([1.01 * 2])
    assert "band" not in {one.kind for one in error_panel(comparison()).charts["average-K"][0].series}


def test_the_chart_of_all_rules_has_one_legend_entry_per_candidate():
    panel = error_panel(comparison())
    assert list(panel.charts) == ["average-K", "top-K", "APS", "all"]
    chart = panel.charts["all"][0]
    assert [one.name for one in chart.series if one.in_legend] == ["cross_entropy", "lml"]
    assert {one.style.dash for one in chart.series} == {"solid", "dash", "dot"}
    assert chart.note == "Lines: average-K solid, top-K dashed, APS dotted."


def test_histograms_are_fractions_of_rows_and_follow_k():
    panel = size_panel(comparison(seeds=2))
    assert list(panel.charts) == ["all", "many", "few"]
    first, last = (panel.charts["all"][k_index].series[0] for k_index in (0, -1))
    assert first.kind == "bars"
    assert sum(first.y) == pytest.approx(1)
    assert first.y[:3] == pytest.approx([0, 0.2, 0.4])
    assert last.y[3:6] == pytest.approx([0, 0.2, 0.4])
    assert panel.charts["all"][0].x.words[1] == "1 label"


def test_a_long_tail_of_sizes_does_not_squeeze_the_chart():
    content = document(names=("lml",))
    for entry in content["candidates"]["lml"]["runs"][0]["sets"]["by_k"]:
        entry["histogram"]["all"] = [10] * 100 + [0] * 5000 + [1]
    chart = size_panel(ComparisonDocument.from_json(content)).charts["all"][0]
    bars = chart.series[0]
    assert len(bars.x) <= 32
    assert max(bars.x) < 100
    assert sum(bars.y) == pytest.approx(1)
    assert (chart.x.words[0], chart.x.words[-1]) == ("0 to 3 labels", "96 labels or more")


def test_error_by_shot_needs_two_shots_and_says_when_k_is_not_whole():
    assert shot_panel(comparison(shots=("many",))) is None
    panel = shot_panel(comparison(k=2.5, ks=(1, 2.5)))
    assert panel is not None
    average, top = panel.charts["average-K"][1], panel.charts["top-K"][1]
    assert average.x.names == ("all", "many", "few")
    assert average.series[0].y == pytest.approx([0.3 / 2.5, 0.1, 0.2])
    assert top.series[0].y == (None, None, None)
    assert top.note == "The top-K rule needs a whole K; 2.5 is not."


def test_the_calibration_legend_shows_the_mean_error_and_lines_skip_empty_bins():
    content = document(seeds=2)
    runs = content["candidates"]["lml"]["runs"]
    runs[0]["sets"]["calibration"]["bins"].append({"predicted": None, "observed": None, "pairs": 0})
    for run, error in zip(runs, (0.05, 0.07), strict=True):
        run["sets"]["calibration"]["error"] = error
    chart = calibration_panel(ComparisonDocument.from_json(content)).charts["as trained"][0]
    assert chart.series[1].name == "lml: 0.06"
    assert len(chart.series[1].x) == 3


def test_calibration_after_temperature_scaling_is_a_second_chart_where_it_is_known():
    content = document(seeds=2)
    panel = calibration_panel(ComparisonDocument.from_json(content))
    assert list(panel.charts) == ["as trained", "after temperature scaling"]
    assert panel.charts["after temperature scaling"][0].series[0].name == "cross_entropy: 0.0263"
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            run["sets"]["recalibrated"] = None
    assert list(calibration_panel(ComparisonDocument.from_json(content)).charts) == ["as trained"]


def test_training_curves_mark_the_best_epoch_and_may_have_gaps():
    content = document(seeds=2)
    content["candidates"]["lml"]["runs"][0]["history"][1]["train_loss"] = None
    loss, metric = (panel.charts["all"][0] for panel in training_panels(ComparisonDocument.from_json(content)))
    assert series(loss, "lml", "line").x == (0.0, 2.0, 3.0)
    assert metric.y.label == "average-3 accuracy"
    assert series(metric, "lml", "points").x == (2.0,)
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            run.update(history=[], monitor=None, best_epoch=None)
    assert training_panels(ComparisonDocument.from_json(content)) == []


def test_the_audit_shows_fractions_by_size_unless_every_set_can_be_output():
    panel = audit_panel(comparison(audit=True))
    assert panel is not None
    assert panel.charts["all"][0].series[0].y == pytest.approx([1 / 3] * 3)
    assert audit_panel(comparison()) is None
    harmless = document(audit=True)
    harmless["candidates"]["cross_entropy"]["audit"] = harmless["candidates"]["lml"]["audit"]
    assert audit_panel(ComparisonDocument.from_json(harmless)) is None


def test_every_chart_is_written_as_png_and_svg(tmp_path):
    content = document(ks=(3,), shots=(), names=("lml",))
    curves = content["candidates"]["lml"]["runs"][0]["sets"]["curves"]["errors"]
    curves.pop("top-k"), curves.pop("aps")
    names = []
    read = ComparisonDocument.from_json(content)
    written = draw_figures({"flowers": read}, tmp_path / "new", progress=names.append)
    assert {path.name for path in written} == {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in written)
    calibrations = {"calibration-as-trained", "calibration-after-temperature-scaling"}
    assert set(names) == PANELS - {"calibration"} | calibrations
    for path in written:
        if path.suffix == ".png":
            assert np.ptp(matplotlib.image.imread(path)[..., :3]) > 0.5
        else:
            assert path.read_text().rstrip().endswith("</svg>")


def test_charts_with_odd_names_are_drawn_without_a_warning():
    for panel in comparison_panels(comparison("hostile names")):
        FigureCanvasAgg(draw_chart(panel.at(next(iter(panel.charts)), 0))).draw()

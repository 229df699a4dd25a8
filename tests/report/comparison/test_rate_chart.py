"""The chart of scores by learning rate, and what it says about robustness."""

from dataclasses import replace

import pytest

from shortlist.comparison_document import Trial, Tuning
from shortlist.report.chart_matplotlib import draw_chart
from shortlist.report.comparison.rate_chart import good_range, rate_panel, tuning_sentence
from tests.report.comparisons import comparison


def tuning(*scores: float | None, decay: float = 0.0) -> Tuning:
    """First trials with these scores at 0.001, 0.01, ..."""
    return Tuning("map", 0.001, 0.0, [Trial(10.0 ** (at - 3), decay, 90, 1, score) for at, score in enumerate(scores)])


def test_lines_are_the_better_decay_of_each_rate_and_the_chosen_rate_is_marked():
    panel = rate_panel(comparison(tuned=True))
    assert panel is not None
    assert list(panel.charts) == ["all rates", "better half", "last two"]
    (chart,) = panel.charts["all rates"]
    assert chart.x.scale == "log"
    lines = {series.name: series for series in chart.series if series.kind == "line"}
    assert lines["cross_entropy"].x == (0.0001, 0.0003, 0.001, 0.003, 0.01)
    assert lines["cross_entropy"].y == pytest.approx([0.788, 0.792, 0.796, 0.8, 0.796], abs=1e-5)
    assert lines["lml"].y[-1] is None
    assert chart.note == "Each trial: 2 epochs of 600 rows. lml diverges at 0.01."
    marks = {series.name: (series.x, series.y[0]) for series in chart.series if series.kind == "points"}
    assert marks["lml"] == ((0.003,), pytest.approx(0.8, abs=1e-5))
    (last,) = panel.charts["last two"]
    assert [len(series.x) for series in last.series] == [1, 1], "one rate, and another was chosen"
    assert last.note == "Each trial: 16 epochs of 600 rows."
    assert "cross_entropy: 0.0003 to 0.01 or more, a factor of 33; lml: 0.001 to 0.003, a factor of 3." in panel.about


def test_the_rates_are_drawn_on_a_logarithmic_axis():
    panel = rate_panel(comparison(tuned=True, names=("a", "b", "c")))
    assert panel is not None
    (chart,) = panel.charts["all rates"]
    assert len(chart.series) == 6
    (axis,) = draw_chart(chart).axes
    assert axis.get_xscale() == "log"


def test_candidates_with_given_rates_are_left_out_and_without_any_there_is_no_chart():
    assert rate_panel(comparison()) is None
    assert tuning_sentence(comparison()) == ""
    content = comparison(tuned=True)
    some = {**content.candidates, "lml": replace(content.candidates["lml"], tuning=None)}
    panel = rate_panel(replace(content, candidates=some))
    assert panel is not None
    assert "lml" not in panel.about
    assert tuning_sentence(replace(content, candidates=some)) == (
        "Learning rates, found on validation rows by 10 trials each: cross_entropy 0.003."
    )


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((0.5, 0.8, 0.795, 0.5), "0.01 to 0.1, a factor of 10"),
        ((0.5, 0.8, 0.78), "0.01 alone"),
        ((0.799, 0.8, 0.799), "0.001 or less to 0.1 or more, a factor of 100"),
        ((0.8, 0.7, 0.8), "0.001 or less"),
        ((0.7, 0.8), "0.01 or more"),
        ((0.7,), "0.001, the only one tried"),
        ((None, 0.7, 0.701), "0.01 to 0.1 or more, a factor of 10"),
        ((None, None), "None"),
    ],
)
def test_the_good_range_is_connected_and_open_at_the_ends_of_the_grid(scores, words):
    assert str(good_range(tuning(*scores))) == words

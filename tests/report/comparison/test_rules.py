"""Advice on rules, answers by group, and measures of calibration on the page."""

from shortlist.comparison_document import ComparisonDocument
from shortlist.report.comparison.page import report_page
from shortlist.report.comparison.rules import group_table, rule_tables
from shortlist.report.comparison.tables import calibration_table
from tests.report.comparisons import comparison, document


def test_the_recommended_rule_stands_out_and_columns_without_figures_are_left_out():
    content = document()
    content["candidates"]["lml"]["runs"][0]["sets"]["advice"][0]["rules"][1]["worst_class"] = 0.25
    read = ComparisonDocument.from_json(content)
    with_worst, without = (rule_tables(read, name)[0] for name in ("lml", "cross_entropy"))
    assert without.columns == ["rule", "labels per row", "missed"]
    assert with_worst.columns == [*without.columns, "worst class"]
    assert [row[-1] for row in with_worst.rows] == ["–", "25.0%"]
    assert with_worst.best == "average-k"
    page = report_page([read])
    assert page.count("<small>recommended</small>") == 1
    assert 'href="#job-1-rules"' in page


def test_answers_by_group_are_means_over_seeds():
    content = document(seeds=2)
    for run, error in zip(content["candidates"]["lml"]["runs"], (0.08, 0.1), strict=True):
        run["sets"]["groups"].update(error=error, precision=None)
    table = group_table(ComparisonDocument.from_json(content))
    assert table is not None
    assert "family or genus" in table.about
    lml = next(row for row in table.rows if row[0] == "lml")
    assert dict(zip(["candidate", *table.columns], lml, strict=True)) == {
        "candidate": "lml", "missed": "9.0%", "one label": "60.0%", "a group": "30.0%", "anything": "10.0%",
        "hierarchical precision": "–", "hierarchical recall": "75.0%",
    }  # fmt: skip


def test_calibration_is_measured_before_and_after_as_means_over_seeds():
    content = document(seeds=2)
    for run, error in zip(content["candidates"]["lml"]["runs"], (0.2, 0.4), strict=True):
        run["sets"]["calibration"].update(top_error=error)
        run["sets"]["recalibrated"] = None
    read = ComparisonDocument.from_json(content)
    table = calibration_table(read)
    assert table is not None
    assert table.columns == ["ECE", "adaptive ECE", "Brier score"]
    rows = {name: cells for name, *cells in table.rows}
    assert rows["cross_entropy"] == ["0.2 → 0.1", "0.25 → 0.15", "0.04 → 0.02"]
    assert rows["lml"] == ["0.3 → –", "0.25 → –", "0.04 → –"]
    assert "0.25 → 0.15" in report_page([read])
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            for key in ("calibration", "recalibrated"):
                run["sets"][key] = {"bins": [], "error": None}
    older = ComparisonDocument.from_json(content)
    assert calibration_table(older) is None
    assert "adaptive ECE" not in report_page([older])


def test_names_of_groups_cannot_put_markup_on_the_page():
    content = document()
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            run["sets"]["groups"]["groups"] = ["<b>genus</b>"]
    assert "<b>genus" not in report_page([ComparisonDocument.from_json(content)])


def test_data_without_groups_have_no_such_section():
    content = document()
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            run["sets"].update(groups=None, advice=[])
    read = ComparisonDocument.from_json(content)
    assert group_table(read) is None
    page = report_page([read])
    assert "Answers by group" not in page
    assert "Rules for a goal" not in page
    assert group_table(comparison()) is not None

"""The page: complete, escaped, self-contained, and small."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from shortlist.comparison_document import ComparisonDocument
from shortlist.report.comparison.charts import comparison_panels
from shortlist.report.comparison.highlights import highlight_panel, highlights_by_k
from shortlist.report.comparison.page import chart_data, report_page, write_report
from shortlist.report.comparison.tables import calibration_table, group_table, rule_tables
from shortlist.report.comparison.winners import MetricFormat, audit_sentence, main_metrics, summary_sentence, winners
from tests.report.comparisons import DOCUMENTS, HOSTILE, PIXEL, comparison, document

SECTIONS = (
    "at-k", "comparison", "error-versus-size", "set-sizes", "accuracy-by-count", "labels", "calibration", "examples",
    "reproduce",
)  # fmt: skip
VOID = {"meta", "input", "img", "br", "wbr", "path"}


class Reader(HTMLParser):
    """Elements with their attributes and text; fails if elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif not (self._open and self._open[-1] == "style"):
            self.texts.append(data)

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    def text(self):
        return " ".join(" ".join(self.texts).split())

    def data(self):
        return json.loads(next(script for script in self.scripts if script.startswith('{"ink"')))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sections_anchors_and_chart_data_agree(name):
    content = comparison(name)
    panels = [*map(highlight_panel, highlights_by_k(content)), *comparison_panels(content)]
    reader = Reader(report_page([content]))
    ids = reader.ids()
    assert len(ids) == len(set(ids))
    assert {f"job-1-{section}" for section in SECTIONS} <= set(ids)
    assert {f"job-1-{panel.name}" for panel in panels} <= set(ids)
    links = [attributes["href"].removeprefix("#") for tag, attributes in reader.elements if tag == "a"]
    assert set(links) <= set(ids)
    found = reader.data()
    assert found == json.loads(json.dumps(chart_data([content], [panels])))
    job = found["jobs"][0]
    assert job["ks"][job["start"]] == content.k
    for panel in panels:
        kept = job["panels"][panel.name]
        assert kept["choices"] == json.loads(json.dumps(list(panel.charts)))
        for numbers, charts in zip(kept["charts"], panel.charts.values(), strict=True):
            chart = found["charts"][numbers[-1]]
            drawn = [found["series"][number] for number in chart["series"]]
            assert [found["looks"][one["look"]]["color"] for one in drawn] == [
                one.style.color for one in charts[-1].series
            ]
            assert [len(found["lists"][one["y"]]) for one in drawn] == [len(one.y) for one in charts[-1].series]


def test_the_page_fetches_nothing():
    page = report_page([comparison(kind="images", seeds=2), comparison(sets=True, kind="text", audit=True)])
    reader = Reader(page)
    for tag, attributes in reader.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert tag != "script" or "src" not in attributes
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", f"data:image/png;base64,{PIXEL[:8]}"))
    policy = next(attributes["content"] for _, attributes in reader.elements if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")
    addresses = set(re.findall(r"(?:https?:)?//[a-z][^\"'\s]*\.[^\"'\s]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # an XML namespace, not an address
    assert "@import" not in page
    assert "url(" not in page


def test_names_of_users_are_shown_and_never_run(tmp_path):
    content = DOCUMENTS["hostile names"]()
    attack = "<img src=x onerror=alert(1)>"
    content["data"]["name"] = content["commands"][0] = content["made"]["torch"] = attack
    path = write_report([ComparisonDocument.from_json(content)], tmp_path / "page.html")
    reader = Reader(path.read_text(encoding="utf-8"))
    assert sum(tag == "script" for tag, _ in reader.elements) == 5
    assert not any(tag == "img" for tag, _ in reader.elements)
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    for name in HOSTILE[:6]:
        assert " ".join(name.split()) in reader.text()
    assert f"{attack} · shortlist report" in reader.text()


def test_the_embedded_json_cannot_end_its_element():
    reader = Reader(report_page([comparison("hostile names")]))
    embedded = next(script for script in reader.scripts if script.startswith('{"ink"'))
    assert not set("<>&\u2028") & set(embedded)


def test_an_image_that_is_not_base64_cannot_leave_its_attribute():
    content = document(kind="images")
    content["examples"][0]["input"]["png"] = 'AAAA" onload="alert(1)'
    reader = Reader(report_page([ComparisonDocument.from_json(content)]))
    images = [attributes for tag, attributes in reader.elements if tag == "img"]
    assert set(images[0]) == {"alt", "src"}


def test_the_table_marks_the_best_its_ties_and_the_optimum():
    page = report_page([comparison(seeds=3, optimum=True)])
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    first, second, last = rows[5:8]
    assert '<strong>10.0 ± 1.0</strong> <span role="img" aria-label="best">★' in first
    assert "<small>+5.0</small>" in first
    assert (
        '<strong>12.0 ± 1.0</strong> <span role="img" aria-label="not significantly different from the best">☆'
        in second
    )
    assert 'class="optimum"' in last
    assert "<td>5.0</td>" in last
    assert "★" not in report_page([comparison(names=("lml",))])


def test_sets_at_k_show_achieved_sizes_and_errors_at_equal_size_for_every_k():
    content = comparison(seeds=2, optimum=True)
    page = report_page([content])
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)[1:4]
    cells = [re.findall(r'<td data-by-k="(.*?)">(.*?)</td>', row) for row in rows]
    texts, shown = cells[0][0]
    assert json.loads(html.unescape(texts)) == ["1.01", "2.02", "3.03", "5.05"]
    assert shown == "3.03"
    curves = [run.sets.curves for run in content.candidates["cross_entropy"].runs]
    equal = [curve.errors["average-k"][curve.sizes.index(3)] for curve in curves]
    assert cells[0][2][1] == f"{100 * sum(equal) / 2:.1f}"
    assert len(cells[2]) == 5


def test_settings_that_differ_stand_side_by_side():
    content = comparison()
    table = re.findall(r'<table class="differing">.*?</table>', report_page([content]), re.DOTALL)[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', table) == ["loss"]
    assert "&#34;cross_entropy&#34;" in table
    assert '<table class="differing">' not in report_page([comparison(names=("lml",))])


def test_large_comparisons_make_a_page_below_a_megabyte_and_a_half():
    labels = tuple(f"a label with a long name {number}" for number in range(1200))
    ks = tuple(range(1, 21))
    large = comparison(sets=True, kind="text", k=10, ks=ks, labels=labels, names=("a", "b", "c", "d"), seeds=2)
    assert len(report_page([large] * 3)) < 1_500_000


def test_the_page_names_the_recipes_and_whose_each_is_where_they_differ():
    page = report_page([comparison()])
    assert "<dt>recipes</dt><dd>adamw, paper</dd>" in page
    assert "<small><bdi>recipe paper</bdi></small>" in page
    page = report_page([comparison(names=("lml",))])
    assert "<dt>recipe</dt><dd>adamw</dd>" in page
    assert "<small><bdi>recipe" not in page


def test_the_summary_names_the_winner_and_its_ties():
    assert summary_sentence(comparison(seeds=3, optimum=True)) == (
        "cross_entropy has the lowest average-3 error: 10.0 ± 1.0% over 3 seeds, 5.0 points above the optimum of 5.0%. "
        "It does not differ significantly from lml."
    )
    assert summary_sentence(comparison(sets=True, k=5)) == (
        "cross_entropy has the highest recall@5: 10.0% with one seed. "
        "A single seed cannot separate skill from luck: use --seeds 5."
    )
    assert summary_sentence(comparison(names=("lml",))) == "The average-3 error of lml is 10.0% with one seed."
    assert winners(comparison(sets=True, k=5, optimum=True))[0].gap == pytest.approx(0.85)


def test_metrics_of_a_short_table_are_those_at_the_requested_k():
    content = document(sets=True, k=8, ks=(5, 8))
    content["figures"] = [{"name": name, "better": "higher"} for name in ("recall@8", "recall@1", "map", "f1@5")]
    content["target"], content["best"] = "f1@5", {"f1@5": ["lml"]}
    for candidate in content["candidates"].values():
        candidate["intervals"] = {each["name"]: {"mean": 0.2512, "half_width": 0.0103} for each in content["figures"]}
    read = ComparisonDocument.from_json(content)
    assert main_metrics(read) == ["recall@8", "map", "f1@5"]
    assert MetricFormat(read, "map").with_unit(0.2512, 0.0103) == "25.1 ± 1.0%"


def test_the_audit_says_what_can_never_be_output():
    content = comparison(audit=True)
    page = Reader(report_page([content])).text()
    impossible = "15 of 45 distinct label sets in the test rows can never be output by this layer for any input."
    assert impossible in page
    assert "The layer has 6 labels and 2 features." in page
    assert "All 30 distinct label sets in the test rows can be output by this layer." in page
    audit = document(audit=True)["candidates"]["lml"]["audit"] | {"mode": "top-k", "undecided": 2}
    changed = document(audit=True)
    changed["candidates"]["lml"]["audit"] = audit
    found = ComparisonDocument.from_json(changed).candidates["lml"].audit
    assert found is not None
    assert audit_sentence(found) == (
        "28 of the 30 distinct label sets in the test rows can be ranked first by this layer; 2 could not be decided."
    )


def test_examples_show_the_set_at_k_with_true_and_missed_labels():
    content = comparison()
    page = report_page([content])
    answers = re.findall(r'<div class="answer".*?</ul>', page, re.DOTALL)
    assert len(answers) == 2 * len(content.examples)
    assert '<span class="size">2 labels</span>' in answers[0]
    shown = re.findall(r'<li class="chip( hit)?">.*?<bdi>(.*?)</bdi>', answers[0])
    assert shown == [("", "rose"), (" hit", "daisy")]
    assert '<li class="chip missed" data-rank="-1"><bdi>moss</bdi>' in answers[0]
    assert '<li class="chip missed" data-rank="1" hidden><bdi>daisy</bdi>' in answers[0]


def test_a_set_larger_than_the_listed_labels_does_not_call_the_rest_missed():
    content = document(names=("lml",))
    content["examples"] = content["examples"][:1]
    content["examples"][0]["answers"]["lml"]["sizes"] = [9] * 4
    page = report_page([ComparisonDocument.from_json(content)])
    assert "and 4 more that are not listed" in page
    assert 'data-rank="-1" hidden' in page
    assert '<div class="misses" hidden>' in page


def test_several_jobs_are_sections_of_one_page():
    reader = Reader(report_page([comparison(), comparison(sets=True)]))
    assert {"job-1", "job-2"} <= set(reader.ids())
    assert "Job 2 of 2" in reader.text()
    assert len(reader.data()["jobs"]) == 2
    with pytest.raises(ValueError, match="at least one comparison"):
        report_page([])


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

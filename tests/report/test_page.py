"""The page: complete, escaped, without a reference to anything elsewhere; in a browser, without complaints."""

import json
import re
from html.parser import HTMLParser

import pytest

from shortlist.report.chart_plotly import plotly_chart
from shortlist.report.comparison_panels import comparison_panels
from shortlist.report.page import embedded_json, page_data, report_page, write_report
from shortlist.report.winners import audit_sentence, summary_sentence, winners
from tests.report.browser import CHROMIUM, Browser
from tests.report.comparisons import DOCUMENTS, HOSTILE, PIXEL, document

SECTIONS = ("comparison", "error-versus-size", "set-sizes", "accuracy-by-count", "calibration", "examples", "reproduce")
VOID = {"meta", "input", "img", "br", "wbr", "rect"}


class Reader(HTMLParser):
    """Elements with their attributes, and whether all were closed in order."""

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
        return [facts["id"] for _, facts in self.elements if "id" in facts]

    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(autouse=True)
def short_library(monkeypatch, request):
    """A few letters in the place of five megabytes, which take long to parse; but for the browser."""
    if "browser" not in request.fixturenames:
        monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "const library = '</script>';")


def data_of(reader):
    return json.loads(next(script for script in reader.scripts if script.startswith('{"ink"')))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_section_is_there_and_every_anchor_and_chart_has_its_place(name):
    content = DOCUMENTS[name]()
    reader = Reader(report_page([content]))
    ids = reader.ids()
    assert len(ids) == len(set(ids))
    assert {f"job-1-{section}" for section in SECTIONS} <= set(ids)
    assert {f"job-1-{panel.name}" for panel in comparison_panels(content)} <= set(ids)
    for tag, facts in reader.elements:
        if tag == "a":
            assert facts["href"].removeprefix("#") in ids


def test_the_page_fetches_nothing():
    page = report_page([document(kind="images", seeds=2), document(sets=True, kind="text", audit=True)])
    reader = Reader(page)
    for tag, facts in reader.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert tag != "script" or "src" not in facts
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = facts.get(name, "#")
            assert value.startswith(("#", f"data:image/png;base64,{PIXEL[:8]}"))
    policy = next(facts["content"] for _, facts in reader.elements if "http-equiv" in facts)
    assert policy.startswith("default-src 'none'")
    addresses = set(re.findall(r"(?:https?:)?//[a-z][^\"'\s]*\.[^\"'\s]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a language, not an address
    assert "@import" not in page
    assert "url(" not in page


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_embedded_data_are_json_and_draw_the_charts(name):
    content = DOCUMENTS[name]()
    panels = comparison_panels(content)
    found = data_of(Reader(report_page([content])))
    assert found == json.loads(json.dumps(page_data([content], [panels])))
    job = found["jobs"][0]
    assert job["ks"][job["start"]] == content["k"]
    for panel in panels:
        kept = job["panels"][panel.name]
        assert kept["choices"] == json.loads(json.dumps(list(panel.charts)))
        for numbers, charts in zip(kept["charts"], panel.charts.values(), strict=True):
            chart = found["charts"][numbers[-1]]
            drawn = plotly_chart(charts[-1])
            assert [found["traces"][number] for number in chart["data"]] == json.loads(json.dumps(drawn["data"]))
            assert found["layouts"][chart["layout"]] == drawn["layout"]


def test_embedded_json_cannot_end_its_element_and_holds_no_nan():
    text = embedded_json({"a": "</script><!-- & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}
    with pytest.raises(ValueError, match="JSON"):
        embedded_json([float("nan")])


def test_names_of_users_are_shown_and_never_run(tmp_path):
    content = DOCUMENTS["hostile names"]()
    content["data"]["name"] = content["commands"][0] = content["made"]["torch"] = "<img src=x onerror=alert(1)>"
    path = write_report([content], tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    reader = Reader(page)
    assert sum(tag == "script" for tag, _ in reader.elements) == 3
    assert not any(tag == "img" for tag, _ in reader.elements)
    assert not any(name.startswith("on") for _, facts in reader.elements for name in facts)
    for name in HOSTILE[:6]:
        assert " ".join(name.split()) in reader.text()
    assert "<img src=x onerror=alert(1)> · shortlist report" in reader.text()


def test_the_library_cannot_end_its_element():
    reader = Reader(report_page([document()]))
    assert any("<\\/script>" in script for script in reader.scripts)


def test_an_image_that_is_not_base64_cannot_leave_its_attribute():
    content = document(kind="images")
    content["examples"][0]["input"]["png"] = 'AAAA" onload="alert(1)'
    images = [facts for tag, facts in Reader(report_page([content])).elements if tag == "img"]
    assert set(images[0]) == {"alt", "src"}


def test_the_table_marks_the_best_what_equals_it_and_the_optimum():
    page = report_page([document(seeds=3, optimum=True)])
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    first, second, last = rows[1:4]
    assert '<strong>10.0 ± 1.0</strong> <span aria-label="best">★' in first
    assert "<small>+5.0</small>" in first
    assert '<strong>12.0 ± 1.0</strong> <span aria-label="cannot be told from the best">☆' in second
    assert 'class="optimum"' in last
    assert "<td>5.0</td>" in last
    alone = report_page([document(names=("lml",))])
    assert "★" not in alone


def test_the_summary_says_who_wins_and_who_cannot_be_told_apart():
    assert summary_sentence(document(seeds=3, optimum=True)) == (
        "cross_entropy has the lowest average-3 error: 10.0 ± 1.0 % over 3 seeds, 5.0 points above the optimum of 5.0 "
        "%. It cannot be told apart from lml."
    )
    assert summary_sentence(document(sets=True, k=5)) == (
        "cross_entropy has the highest recall@5: 10.0 % with one seed. One seed cannot tell skill from luck."
    )
    assert summary_sentence(document(names=("lml",))) == "The average-3 error of lml is 10.0 % with one seed."
    best = winners(document(sets=True, k=5, optimum=True))[0]
    assert best.gap == pytest.approx(0.85)


def test_the_audit_says_what_can_never_be_output():
    content = document(audit=True)
    page = Reader(report_page([content])).text()
    assert (
        "15 of 45 distinct label sets of the test rows can never be output by this layer, whatever its input." in page
    )
    assert "The layer has 6 labels and 2 features." in page
    assert "All 30 distinct label sets of the test rows can be output by this layer." in page
    found = content["candidates"]["lml"]["audit"] | {"mode": "top-k", "undecided": 2}
    assert audit_sentence("lml", found) == (
        "lml: 28 of 30 distinct label sets of the test rows can be ranked first by this layer; 2 could not be decided."
    )


def test_examples_show_the_set_at_k_with_true_and_missed_labels():
    content = document()
    page = report_page([content])
    answers = re.findall(r'<div class="answer".*?</div></div>', page, re.DOTALL)
    assert len(answers) == 2 * len(content["examples"])
    assert '<span class="size">2 labels</span>' in answers[0]
    shown = re.findall(r'<li class="chip( hit)?">.*?<bdi>(.*?)</bdi>', answers[0])
    assert shown == [("", "rose"), (" hit", "daisy")]
    assert '<li class="chip missed" data-place="-1"><bdi>moss</bdi>' in answers[0]
    assert '<li class="chip missed" data-place="1" hidden><bdi>daisy</bdi>' in answers[0]


def test_a_set_larger_than_what_is_listed_does_not_call_the_rest_missed():
    content = document(names=("lml",))
    content["examples"] = content["examples"][:1]
    content["examples"][0]["answers"]["lml"]["sizes"] = [9] * 4
    page = report_page([content])
    assert "and 4 more that are not listed" in page
    assert 'data-place="-1" hidden' in page


def test_several_jobs_are_sections_of_one_page():
    page = report_page([document(), document(sets=True)])
    reader = Reader(page)
    assert {"job-1", "job-2"} <= set(reader.ids())
    assert "Job 2 of 2" in reader.text()
    assert len(data_of(reader)["jobs"]) == 2
    with pytest.raises(ValueError, match="at least one comparison"):
        report_page([])


def test_a_report_that_cannot_be_made_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(OSError, match="No space"):
        write_report([document()], path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


@pytest.fixture
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    found = Browser()
    yield found
    found.close()


@pytest.mark.slow
def test_a_browser_shows_the_page_without_complaint_or_sideways_scroll(browser, tmp_path):
    wide = document(
        sets=True, kind="text", audit=True, k=5, seeds=3, names=tuple(f"way {place}" for place in range(12))
    )
    path = write_report([document(optimum=True), wide, DOCUMENTS["hostile names"]()], tmp_path / "page.html")
    for width, dark in ((390, False), (1280, True)):
        browser.open(path, width=width, height=60_000, dark=dark)
        charts = "[...document.querySelectorAll('.chart')]"
        browser.wait(f"{charts}.every((chart) => chart.querySelector('svg.main-svg'))")
        assert browser.complaints == []
        assert [url for url in browser.requests if not url.startswith(("data:", "blob:"))] in (
            [path.as_uri()],
            ["about:blank", path.as_uri()],
        )
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_the_slider_the_address_and_the_buttons_move_what_is_shown(browser, tmp_path):
    path = write_report([document()], tmp_path / "page.html")
    browser.open(path, width=1280, height=8000)
    drawn = "document.querySelectorAll('.js-plotly-plot').length === document.querySelectorAll('.chart').length"
    browser.wait(drawn)
    heights = "JSON.stringify(document.querySelector('#job-1-set-sizes .chart').data[0].y)"
    labels = "document.querySelectorAll('.answer')[0].querySelectorAll('.labels > li:not([hidden])').length"
    before = browser.run(heights), browser.run(labels)
    browser.run(
        "{ const k = document.querySelector('.slider input'); k.value = 0; k.dispatchEvent(new Event('input')); }"
    )
    assert browser.run("location.hash") == "#k=1"
    assert browser.run("document.querySelector('.slider output').textContent") == "K = 1"
    assert browser.run(heights) != before[0]
    assert browser.run(labels) == 0
    assert before[1] == 2
    browser.open(path, width=1280, height=8000, hash="#k=4.8")
    browser.wait(drawn)
    assert browser.run("document.querySelector('.slider output').textContent") == "K = 5"
    error = "document.querySelector('#job-1-error-versus-size')"
    browser.run(f"{error}.querySelector('[data-scale][value=log]').click()")
    browser.run(f"{error}.querySelectorAll('[data-choice]')[1].click()")
    assert browser.run(f"{error}.querySelector('.chart').layout.yaxis.type") == "log"
    browser.run(f"{error}.querySelector('.legend button').click()")
    assert browser.run(f"{error}.querySelector('.chart').data.map((trace) => trace.visible).includes(false)")
    assert browser.complaints == []

"""The page in Chromium: no complaint, no request, nothing serious for axe; and everything it can do."""

import json
import os
import shlex
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.report.comparison.page import write_report
from tests.report.comparisons import comparison

pytestmark = [pytest.mark.slow, pytest.mark.browser]
AXE = os.environ.get("SHORTLIST_AXE")
DRAW_ALL = "dispatchEvent(new Event('beforeprint'))"
ALL_DRAWN = "[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('svg'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    names = tuple(f"way {number}" for number in range(12))
    wide = comparison(sets=True, kind="text", audit=True, k=5, seeds=3, names=names, tuned=True)
    contents = [comparison(optimum=True), wide, comparison("hostile names"), comparison(kind="images")]
    contents.append(comparison("baseline"))
    return write_report(contents, tmp_path_factory.mktemp("page") / "page.html")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1440, False), (1440, True)])
def test_the_page_is_shown_without_complaint_request_or_horizontal_scrolling(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    browser.run(DRAW_ALL)
    assert browser.run(ALL_DRAWN)
    words = browser.run("[...document.querySelectorAll('.chart text')].map((text) => text.textContent)")
    assert not {"undefined", "NaN", "null"} & set(words)
    assert browser.complaints == []
    asked = [url for url in browser.requests if not url.startswith(("data:", "blob:"))]
    assert asked in ([page.as_uri()], ["about:blank", page.as_uri()])
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1440, False), (1440, True)])
def test_axe_finds_nothing_serious(browser, page, width, dark):
    if AXE is None:
        pytest.skip("no axe-core here; `make test-browser` brings it")
    browser.open(page, width=width, dark=dark)
    browser.run(DRAW_ALL)
    browser.run(Path(AXE).read_text())
    findings = "axe.run().then(({ violations }) => JSON.stringify(violations.map(({ id, impact, nodes }) => "
    findings += "({ id, impact, first: nodes[0].html }))))"
    found = json.loads(browser.run(findings))
    assert [each for each in found if each["impact"] in ("serious", "critical")] == []


@pytest.fixture
def one_job(browser, tmp_path):
    path = write_report([comparison(seeds=2)], tmp_path / "page.html")
    browser.open(path, width=1280, height=12_000)
    browser.wait(ALL_DRAWN)
    yield path
    assert browser.complaints == []


def text(browser, selector):
    return browser.run(f"document.querySelector({json.dumps(selector)}).textContent")


def set_k(browser, place):
    move = f"k.value = {place}; k.dispatchEvent(new Event('input'));"
    browser.run(f"{{ const k = document.querySelector('.slider input'); {move} }}")


def test_one_k_moves_the_card_the_tables_the_charts_and_the_examples(browser, one_job):
    def shown():
        return [
            text(browser, ".result dd"),
            text(browser, "#job-1-highlight-rule .caption"),
            text(browser, "#job-1-at-k td"),
            text(browser, "#job-1-labels tbody td:nth-child(4)"),
            text(browser, ".answer .size"),
            *(
                browser.run(f"document.querySelector('#job-1-{panel} .chart').innerHTML")
                for panel in ("highlight-rule", "error-versus-size", "set-sizes", "error-by-shot", "accuracy-by-count")
            ),
        ]

    before = shown()
    set_k(browser, 0)
    assert browser.run("location.hash") == "#k=1"
    assert text(browser, ".slider output") == "K = 1"
    after = shown()
    assert [one for one, other in zip(before, after, strict=True) if one == other and "svg" not in one] == []
    assert before[2:4] == ["3.03", "75"]
    assert after[2:4] == ["1.01", "25"]
    assert before[6] != after[6]
    browser.open(one_job, width=1280, height=12_000, hash="#k=4.8")
    assert text(browser, ".slider output") == "K = 5"


def test_charts_have_a_choice_a_scale_a_legend_and_names_on_hover(browser, one_job):
    error = "document.querySelector('#job-1-error-versus-size')"
    drawn = f"{error}.querySelector('.chart').innerHTML"
    before = browser.run(drawn)
    for control in (
        "querySelector('[data-scale][value=log]')",
        "querySelectorAll('[data-choice]')[1]",
        "querySelector('.legend button')",
    ):
        browser.run(f"{error}.{control}.click()")
        assert browser.run(drawn) != before
        before = browser.run(drawn)
    assert browser.run(f"{error}.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
    browser.run(
        """{
        const chart = document.querySelector('#job-1-accuracy-by-count .chart');
        const mark = chart.querySelector('path[opacity="0.65"]').getBoundingClientRect();
        const place = { clientX: mark.x + mark.width / 2, clientY: mark.y + mark.height / 2 };
        chart.dispatchEvent(new PointerEvent('pointermove', place));
        }"""
    )
    assert "rose" in text(browser, "#job-1-accuracy-by-count .tooltip")


def test_the_table_of_labels_sorts_searches_and_leads_to_examples(browser, one_job):
    def names():
        rows = "[...document.querySelectorAll('#job-1-labels tbody th')]"
        return browser.run(f"{rows}.map((row) => row.textContent)")

    assert names() == ["rose", "daisy", "clover", "tulip", "iris"]
    browser.run("document.querySelector('#job-1-labels [data-sort=recall]').click()")
    assert names()[0] == "iris"
    browser.run("document.querySelector('#job-1-labels [data-sort=name]').click()")
    assert names() == sorted(names())
    search = "document.querySelector('#job-1-labels [data-search]')"
    browser.run(f"{{ {search}.value = 'DAI'; {search}.dispatchEvent(new Event('input')); }}")
    assert names() == ["daisy"]
    assert text(browser, "#job-1-labels .labels-count") == "1 of 1 labels"
    assert "weed 25%" in text(browser, "#job-1-labels tbody tr")
    browser.run("document.querySelector('#job-1-labels tbody .link').click()")
    assert browser.run("document.querySelector('#job-1-examples [data-label]').value") == "daisy"


def test_examples_are_filtered_by_kind_and_by_label(browser, one_job):
    def count(kind):
        browser.run(f"document.querySelector('#job-1-examples [data-filter][value={kind}]').click()")
        return text(browser, "#job-1-examples .filter-about").split(" examples")[0]

    assert count("all") == "4 of 6"
    assert count("missed") == "4 of 6"
    assert count("rare") == "1 of 1"
    disabled = "document.querySelector('#job-1-examples [data-filter][value={}]').disabled"
    assert browser.run(disabled.format("disagreeing"))
    assert browser.run(disabled.format("empty"))
    set_k(browser, 0)  # Sets of every second row are empty.
    assert count("empty") == "3 of 3"
    count("all")
    label = "document.querySelector('#job-1-examples [data-label]')"
    browser.run(f"{{ {label}.value = 'nothing'; {label}.dispatchEvent(new Event('input')); }}")
    assert text(browser, "#job-1-examples .filter-about").startswith("0 of 0")


def test_tables_that_do_not_fit_say_that_they_scroll(browser, page):
    hints = "[...document.querySelectorAll('#job-2-comparison .scroll-hint')].map((hint) => hint.hidden)"
    browser.open(page, width=1440)
    assert browser.run(hints) == [True]
    browser.open(page, width=390)
    browser.wait(f"!{hints}[0]")


def test_a_comparison_of_ones_own_texts_ends_in_answers_by_a_command_of_its_page(
    browser, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ("red", "green", "blue", "white", "black", "grey", "pink", "gold")
    rows = [(words[i % 8], words[(i * 3 + 1) % 8]) for i in range(240)]
    Path("colors.csv").write_text("text,label\n" + "\n".join(f"{a} {b} thing,{a}" for a, b in rows) + "\n")
    Path("NEW.csv").write_text("text\nred thing\nblue gold thing\n")
    losses = ["cross_entropy", "lml_nll"]
    fast = ["--k", "2", "--seeds", "2", "--epochs", "2", "--tune", "0"]
    assert main(["compare", "colors.csv", "--losses", *losses, *fast, "--output", "out/colors"]) == 0
    assert main(["report", "out/colors"]) == 0
    browser.open(tmp_path / "out" / "colors" / "report.html", width=1440)
    commands = browser.run("[...document.querySelectorAll('.result code')].map((code) => code.textContent)")
    command = next(each for each in commands if each.startswith("shortlist predict") and "rule.json" not in each)
    assert main(shlex.split(command)[1:]) == 0
    assert len(Path("sets.jsonl").read_text().splitlines()) == 2
    assert browser.complaints == []
    capsys.readouterr()

"""The page of `shortlist serve` when something is missing or wrong; and its widths, colors and keyboard."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.serve.page_models import HOSTILE, serving

api = pytest.importorskip("playwright.sync_api")
expect = api.expect
pytestmark = [pytest.mark.slow, pytest.mark.browser]

AXE = os.environ.get("SHORTLIST_AXE")
TOKEN = "a token of sixteen".replace(" ", "-")
VIEWS = {
    "a text": "try?model=wide-0&input=text&text=word1+word2",
    "a row": "try?model=narrow-0&input=row&row=9",
    "no features yet": "try?model=features&input=features",
    "wrong features": "try?model=features&input=features&features=1,2",
    "no image yet": "try?model=digits&input=image",
    "an image row": "try?model=digits&input=row",
    "a rule": "rule?model=wide-0&kind=average-k&value=3",
    "all rows": "rows?model=wide-0",
    "rows of a label": "rows?model=wide-0&show=label",
    "labels": "labels?model=narrow-0",
    "no label found": "labels?model=narrow-0&search=purple",
    "a label": "label?model=wide-0&label=gold",
    "a set": "audit?model=narrow-0&labels=%5B%22red%22%2C%22green%22%5D",
    "the set of a row": "audit?model=wide-0&of=row&row=9",
}


def settled(page):
    expect(page.locator("#main .view")).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1440, False), (1440, True)])
def test_every_view_fits_its_width_and_has_nothing_serious_for_axe(visit, served, width, dark):
    page = visit(width=width, dark=dark)
    for name, state in VIEWS.items():
        page.goto("about:blank")
        page.goto(f"{served}/#{state}")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        # One pass per color and per width is enough for axe, which takes most of the time.
        if AXE is not None and (width < 600) != dark:
            page.evaluate(Path(AXE).read_text())
            found = page.evaluate(
                """axe.run().then(({ violations }) =>
                    violations.map(({ id, impact, nodes }) => [id, impact, nodes[0].html]))"""
            )
            assert [each for each in found if each[1] in ("serious", "critical")] == [], name


def test_only_the_service_is_asked_and_the_policy_allows_no_inline_script(visit, served):
    asked = []
    page = visit("about")
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(f"{served}/")
    settled(page)
    assert all(url.startswith((served, "data:")) for url in asked)
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_the_token_is_asked_for_until_it_is_right_and_kept_for_a_reload(visit, models):
    with serving(models[1], token=TOKEN) as (address, _):
        page = visit("labels", address=address, allow="401")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("textbox", name="Token").fill("a-wrong-token-here")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("dialog").locator(".wrong")).to_have_text("The service refuses this token.")
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.get_by_role("textbox", name="Token").press("Enter")
        expect(page.locator(".labels-table tbody tr")).to_have_count(4)
        page.reload()
        expect(page.locator(".labels-table tbody tr")).to_have_count(4)
        expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_service_that_has_stopped_is_named_and_asked_again(visit, models):
    with serving(models[1]) as (address, process):
        page = visit("rows", address=address, allow="ERR_CONNECTION_REFUSED")
        settled(page)
        process.terminate()
        process.wait()
        page.locator(".choice input[value=missed]").check()
        error = page.locator(".cards [role=alert]")
        expect(error).to_contain_text("The service does not answer. Is `shortlist serve` still running?")
        page.route("**/rows?*", lambda route: route.fulfill(json={"offset": 0, "total": 0, "rows": []}))
        error.get_by_role("button", name="Try again").click()
        expect(page.locator(".cards .notice")).to_have_text("No row fits.")


def test_a_full_queue_is_waited_for_and_named_if_it_stays_full(visit, served):
    tries = []

    def full(route):
        tries.append(route.request.url)
        route.fulfill(status=429, headers={"Retry-After": "0"}, json={"error": "256 requests wait already."})

    page = visit("labels?model=wide-0", allow="429")
    settled(page)
    page.route("**/predict", lambda route: full(route) if not tries else route.continue_())
    page.goto(f"{served}/#try?model=digits&input=row")
    expect(page.locator(".column .held").first).to_be_visible()
    assert len(tries) == 1
    page.unroute("**/predict")
    page.route("**/predict", full)
    page.get_by_role("button", name="Next row").click()
    expect(page.locator(".column [role=alert]")).to_contain_text("256 requests wait already.")
    assert len(tries) == 4
    page.unroute("**/predict")
    page.locator(".column [role=alert] button").click()
    expect(page.locator(".column .held").first).to_be_visible()


def test_what_the_service_refuses_is_shown_as_its_sentence(visit):
    page = visit("label?model=wide-0&label=purple", allow="422")
    expect(page.locator(".about-label [role=alert]")).to_contain_text("purple")
    page = visit("rule?model=wide-0&kind=class-conditional&value=0.1", allow="422")
    expect(page.locator(".figures-note")).to_contain_text("class-conditional")
    page = visit("audit?model=wide-0&labels=%5B%22purple%22%5D", allow="422")
    expect(page.locator(".verdict-place [role=alert]")).to_contain_text("purple")


def test_a_state_that_makes_no_sense_shows_the_nearest_view(visit):
    page = visit("nothing?model=none&show=strange&offset=-3&kind=average-k&value=none&cost_miss=much")
    settled(page)
    expect(page.locator("#views [aria-current]")).to_have_text("Try")
    page = visit("audit?model=wide-0&labels=not-json")
    expect(page.locator(".verdict-place")).to_have_text("Choose at least one label.")


def test_an_answer_that_comes_after_its_view_was_left_changes_nothing(visit, served):
    waiting = []
    page = visit("labels?model=wide-0")
    settled(page)
    page.route("**/rows?*", lambda route: waiting.append(route) if not waiting else route.continue_())
    page.goto(f"{served}/#try?model=wide-0&input=row")
    expect(page.locator(".row-picture")).to_have_attribute("aria-busy", "true")
    page.goto(f"{served}/#try?model=digits&input=row")
    expect(page.locator(".column .held").first).to_be_visible()
    settled(page)
    shown, url = page.locator("#main").inner_text(), page.url
    with page.expect_response("**/rows?*"):
        waiting[0].continue_()
    settled(page)
    assert (page.locator("#main").inner_text(), page.url) == (shown, url)


def test_held_out_rows_are_waited_for_and_missed_where_there_are_none(visit, served):
    document = {}

    def without(route):
        document.update(route.fetch().json() if not document else {})
        state = "opening" if len(opened) < 2 else "gone"
        opened.append(state)
        note = "`roses.csv` is not there any more." if state == "gone" else None
        models = [{**model, "held_out": None, "held_out_state": state, "note": note} for model in document["models"]]
        route.fulfill(json={"models": models})

    opened = []
    page = visit()
    page.route("**/models", without)
    for view in ("rows", "labels", "rule", "label?label=gold"):
        opened.clear()
        page.goto("about:blank")
        page.goto(f"{served}/#{view}")
        expect(page.locator("#main .notice")).to_have_text("The held-out rows of this model are being read …")
        expect(page.locator("#main .notice")).to_contain_text("`roses.csv` is not there any more.")
    page.goto(f"{served}/#try?model=wide-0")
    expect(page.locator(".sources label")).to_have_text(["Text"])
    page.locator("#text").fill("word1")
    expect(page.locator(".column .held").first).to_be_visible()


def test_many_labels_are_paged_and_long_names_stay_in_their_place(visit):
    names = [f"{'a very long name of a label ' * 4}{number}" for number in range(25)]
    rows = [{"label": name, "support": 10_000, "recall": 0.5, "size": 12.25} for name in names]
    page = visit("labels?model=wide-0", width=390)
    settled(page)
    page.route("**/labels?*", lambda route: route.fulfill(json={"total": 10_000, "labels": rows}))
    page.get_by_role("searchbox").fill("a")
    expect(page.locator(".pager")).to_contain_text("1–25 of 10,000 labels")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".pager")).to_contain_text("26–50 of 10,000 labels")
    assert "offset=25" in page.url


def test_large_sets_are_shown_in_part_first(visit, served):
    labels = [f"label {number}" for number in range(300)]
    scores = [1 - number / 300 for number in range(300)]

    def huge(route):
        rows = [{"row": 0, "labels": labels, "scores": scores, "top": []}]
        rule = {"kind": "average-k", "options": {"k": 300}, "text": "300 labels on average", "guarantee": ""}
        route.fulfill(json={"answers": [{"model": "digits", "rule": rule, "rows": rows}]})

    page = visit()
    page.route("**/predict", huge)
    page.goto(f"{served}/#try?model=digits&input=row")
    expect(page.locator(".column .held")).to_have_count(12)
    expect(page.locator(".column .sides")).to_contain_text("300 labels")
    page.get_by_role("button", name="Show 288 more labels").click()
    expect(page.locator(".column .held")).to_have_count(300)


def test_everything_is_within_reach_of_the_keyboard_and_the_focus_is_seen(visit):
    page = visit("try?model=features&input=features")
    settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
                const one = document.activeElement;
                const drawn = one.type === "radio" ? one.nextElementSibling : one;
                const { outlineStyle, outlineWidth } = getComputedStyle(drawn);
                const name = one.id || one.textContent.trim() || one.value;
                return [name, outlineStyle !== "none" && outlineWidth !== "0px"];
            }"""
        )
        if page.evaluate("document.activeElement === document.body"):
            break
        seen.append(focused)
    names = [name for name, _ in seen]
    assert names[:5] == ["Try", "Rule", "Rows", "Labels", "Can it answer?"]
    assert {"model", "rule-kind", "rule-slider", "rule-value", "features"} <= set(names)
    assert [name for name, drawn in seen if not drawn] == []


def test_the_arrows_move_the_slider_and_the_choices(visit):
    page = visit("rows?model=wide-0&kind=average-k&value=2")
    settled(page)
    page.locator("#rule-slider").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#rule-value")).to_have_value("2.5")
    assert page.locator("#rule-slider").get_attribute("aria-valuetext") == "K = 2.5"
    assert page.evaluate("document.activeElement.id") == "rule-slider"
    page.locator(".choice input[value=all]").focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("show=missed"))
    assert page.evaluate("document.activeElement.value") == "missed"


def test_answers_do_not_move_when_the_slider_does(visit):
    page = visit("try?model=wide-0&input=row&row=9&kind=average-k&value=2")
    settled(page)
    places = (
        "all => all.map(row => [row.querySelector('bdi').textContent, Math.round(row.getBoundingClientRect().top)])"
    )
    before = page.locator(".score-bars li").evaluate_all(places)
    for place in (0, 5, 9):
        page.locator("#rule-slider").evaluate(
            "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }", place
        )
        settled(page)
        assert page.locator(".score-bars li").evaluate_all(places) == before


def test_a_hostile_model_name_and_rule_are_text(visit, served):
    page = visit()
    document = json.loads(page.request.get(f"{served}/models").text())
    for model in document["models"]:
        model["rule"] = {**model["rule"], "text": HOSTILE}
    page.route("**/models", lambda route: route.fulfill(json=document))
    page.reload()
    settled(page)
    expect(page.locator("#rule-kind")).to_contain_text(HOSTILE)
    assert page.locator("img[src=x]").count() == 0

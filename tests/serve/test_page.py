"""Every control of the page of `shortlist serve`, in real Chromium and against a real service."""

import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.serve.page_models import HOSTILE, WORDS, serving

api = pytest.importorskip("playwright.sync_api")
expect = api.expect
pytestmark = [pytest.mark.slow, pytest.mark.browser]

FIGURES = (".figures div:nth-child(1) dd", ".figures div:nth-child(2) dd", ".figures div:nth-child(4) dd")


def settled(page):
    """Once the first answer is there, and nothing else is on its way."""
    expect(page.locator("#main .view")).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


def texts(page, selector):
    return [each.strip() for each in page.locator(selector).all_text_contents()]


def held(page, column):
    """The labels of the set of one answer."""
    return texts(page, f".column:nth-child({column}) .held .label bdi")


def move(page, place):
    page.locator("#rule-slider").evaluate(
        "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }", place
    )


def digit() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.kron(np.eye(4), np.ones((2, 2))).astype("uint8") * 255).save(file, "PNG")
    return file.getvalue()


def drop(page, selector, content, event="drop"):
    """A file dropped onto an element or pasted into it, as a browser would say it."""
    page.locator(selector).evaluate(
        """(target, [content, event]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(content)], "one.png", { type: "image/png" }));
            const fact = event === "drop" ? { dataTransfer: data } : { clipboardData: data };
            const made = event === "drop" ? DragEvent : ClipboardEvent;
            target.dispatchEvent(new made(event, { ...fact, bubbles: true, cancelable: true }));
        }""",
        [list(content), event],
    )


def test_a_typed_text_gets_the_sets_of_all_models_as_the_service_gives_them(visit, served):
    page = visit("try?model=wide-0&input=text")
    expect(page.locator(".results .notice")).to_have_text(re.compile("Type or paste a text"))
    page.locator("#text").fill("word1 word1 word8 thing")
    expect(page.locator(".column")).to_have_count(2)
    expect(page.locator(".column .held").first).to_be_visible()
    settled(page)
    for column, name in enumerate(texts(page, ".column h3"), 1):
        body = {"model": name, "texts": ["word1 word1 word8 thing"], "seed": 0}
        row = page.request.post(f"{served}/predict", data=body).json()["answers"][0]["rows"][0]
        assert sorted(held(page, column)) == sorted(row["labels"])
        shown = texts(page, f".column:nth-child({column}) .held .score")
        assert sorted(map(float, shown)) == pytest.approx(sorted(row["scores"]), abs=5e-4)
    widths = page.locator(".column").first.locator(".bar span").evaluate_all("all => all.map(bar => bar.offsetWidth)")
    assert widths == sorted(widths, reverse=True)
    assert "text=word1" in page.url


def test_an_image_is_chosen_dropped_or_pasted(visit):
    page = visit("try?model=digits&input=image")
    settled(page)
    page.set_input_files("#image", {"name": "one.png", "mimeType": "image/png", "buffer": digit()})
    expect(page.locator(".preview img")).to_be_visible()
    expect(page.locator(".column .held").first).to_be_visible()
    chosen = held(page, 1)
    for event, selector in (("drop", ".drop"), ("paste", "body")):
        page = visit("try?model=digits&input=image")
        settled(page)
        drop(page, selector, digit(), event)
        expect(page.locator(".column .held").first).to_be_visible()
        assert held(page, 1) == chosen
    page.reload()
    expect(page.locator(".preview img")).to_be_visible()
    expect(page.locator(".column .held").first).to_be_visible()
    assert held(page, 1) == chosen


def test_what_is_no_image_is_refused_in_one_sentence(visit):
    page = visit("try?model=digits&input=image", allow="422")
    page.set_input_files("#image", {"name": "one.png", "mimeType": "image/png", "buffer": b"not an image"})
    expect(page.locator(".column [role=alert]")).to_contain_text("image 0")
    expect(page.locator(".column [role=alert] button")).to_have_text("Try again")


def test_a_pasted_row_of_features_is_answered_and_a_wrong_one_is_explained(visit):
    page = visit("try?model=features&input=features")
    page.locator("#features").fill("1, 2, 3")
    expect(page.locator(".input .wrong")).to_have_text("This model takes 4 numbers; this row has 3.")
    page.locator("#features").fill("1, 2, three, 4")
    expect(page.locator(".input .wrong")).to_have_text("Each cell must be a number; cell 3 is “three”.")
    for row in ("0, 5, 0, 0", "0\t5\t0\t0", "0 5 0 0"):
        page.locator("#features").fill(row)
        expect(page.locator(".input .wrong")).to_be_hidden()
        expect(page.locator(".column .label bdi").first).to_have_text("kind 1")


def test_a_held_out_row_shows_its_truth_and_leads_to_the_next_one_and_to_a_copy(visit, served):
    page = visit("try?model=wide-0&input=row")
    settled(page)
    rows = page.request.get(f"{served}/models/wide-0/rows?limit=40").json()["rows"]
    assert texts(page, ".truth bdi") == rows[0]["true"]
    page.get_by_role("button", name="Next row").click()
    expect(page.locator("#row")).to_have_value(str(rows[1]["row"]))
    settled(page)
    assert texts(page, ".truth bdi") == rows[1]["true"]
    assert set(texts(page, ".column:nth-child(1) .right .label bdi")) <= set(rows[1]["true"])
    page.get_by_role("button", name="Previous row").click()
    page.get_by_role("button", name="Previous row").click()
    expect(page.locator("#row")).to_have_value(str(rows[-1]["row"]))
    page.get_by_role("button", name="Random row").click()
    page.locator("#row").fill(str(rows[3]["row"]))
    page.locator("#row").press("Enter")
    expect(page.locator(".row-picture .text")).to_have_text(rows[3]["input"]["text"])
    page.get_by_role("link", name="Can the layer answer this set?").click()
    expect(page.locator("#audit-row")).to_have_value(str(rows[3]["row"]))
    page.go_back()
    page.get_by_role("button", name="Edit a copy").click()
    expect(page.locator("#text")).to_have_value(rows[3]["input"]["text"])


def test_a_row_that_is_not_held_out_is_refused_in_one_sentence(visit):
    page = visit("try?model=wide-0&input=row&row=9999", allow="422")
    expect(page.locator(".row-picture [role=alert]")).to_contain_text("9999")


def test_the_slider_moves_the_figures_and_the_sets(visit, served):
    page = visit("try?model=wide-0&input=row&kind=average-k&value=2")
    settled(page)
    curve = page.request.get(f"{served}/models/wide-0/curve?kind=average-k").json()
    place = curve["values"].index(5)
    before = [texts(page, figure) for figure in FIGURES], len(held(page, 2))
    move(page, place)
    expect(page.locator("#rule-value")).to_have_value("5")
    settled(page)
    expect(page.locator(FIGURES[0])).to_contain_text(f"{curve['size'][place]:.2f}")
    expect(page.locator(FIGURES[1])).to_have_text(f"{100 * curve['error'][place]:.1f}%")
    cost = curve["size"][place] + 10 * curve["misses"][place]
    expect(page.locator(FIGURES[2])).to_contain_text(f"{cost:.2f}")
    expect(page.locator(".column").nth(1).locator(".held")).not_to_have_count(before[1])
    assert [texts(page, figure) for figure in FIGURES] != before[0]
    assert "value=5" in page.url


def test_the_box_takes_a_value_between_the_steps_and_none_that_cannot_be(visit, served):
    page = visit("rule?model=wide-0&kind=average-k&value=2")
    settled(page)
    page.locator("#rule-value").fill("2.2")
    page.locator("#rule-value").press("Enter")
    point = page.request.get(f"{served}/models/wide-0/figures?kind=average-k&value=2.2").json()
    expect(page.locator(FIGURES[0])).to_contain_text(f"{point['size']:.2f}")
    page.locator("#rule-value").fill("11")
    page.locator("#rule-value").press("Enter")
    assert page.locator("#rule-value").evaluate("box => box.validity.rangeOverflow")
    assert "value=2.2" in page.url


@pytest.mark.parametrize("model", ["wide-0", "features"])
def test_every_kind_of_rule_that_is_offered_has_figures_and_a_guarantee(visit, model):
    page = visit(f"rule?model={model}")
    settled(page)
    kinds = page.locator("#rule-kind option").evaluate_all("all => all.map(option => option.value).filter(Boolean)")
    assert {"top-k", "average-k"} < set(kinds)
    for kind in kinds:
        page.select_option("#rule-kind", kind)
        expect(page).to_have_url(re.compile(f"kind={kind}&"))
        settled(page)
        assert all(re.search(r"\d", words) for figure in FIGURES for words in texts(page, figure)), kind
        expect(page.locator(".guarantee")).not_to_be_empty()
        letter = page.locator(".slider .letter").text_content()
        assert letter == ("K" if kind in ("top-k", "average-k", "per-label") else "Alpha")
    page.select_option("#rule-kind", "")
    expect(page).not_to_have_url(re.compile("kind="))


def test_the_chart_follows_its_choice_and_the_slider(visit):
    page = visit("rule?model=wide-0&kind=average-k&value=2")
    settled(page)
    drawn = {page.locator(".chart svg").inner_html()}
    assert len(texts(page, ".legend li")) == 2
    for words in ("Size", "Worst class", "Empty sets", "Cost", "Error"):
        page.locator(".choice label", has_text=re.compile(f"^{words}$")).click()
        drawn.add(page.locator(".chart svg").inner_html())
    assert len(drawn) == 5
    move(page, 8)
    expect(page.locator(".chart svg")).to_contain_text(f"K = {page.locator('#rule-value').input_value()}")
    assert page.locator(".chart svg").inner_html() not in drawn


def test_costs_move_the_cost_and_name_the_cheapest_value(visit, served):
    page = visit("rule?model=wide-0&kind=average-k&value=2&plot=cost")
    settled(page)
    page.locator("#cost_label").fill("3")
    page.locator("#cost_miss").fill("4")
    curve = page.request.get(f"{served}/models/wide-0/curve?kind=average-k").json()
    costs = [3 * size + 4 * misses for size, misses in zip(curve["size"], curve["misses"], strict=True)]
    place = costs.index(min(costs))
    expect(page.locator(".cheapest")).to_contain_text(f"K = {curve['values'][place]:g}, {costs[place]:.2f} per row.")
    expect(page.locator(FIGURES[2])).to_contain_text(f"{costs[curve['values'].index(2)]:.2f}")
    page.locator(".cheapest button").click()
    expect(page.locator("#rule-value")).to_have_value(f"{curve['values'][place]:g}")
    expect(page.locator(FIGURES[2])).to_contain_text(f"{costs[place]:.2f}")


@pytest.mark.parametrize("show", ["missed", "disagree", "empty", "huge", "rare"])
def test_filters_show_the_rows_that_the_service_finds(visit, served, show):
    page = visit("rows?model=narrow-0")
    settled(page)
    page.locator(f".choice input[value={show}]").check()
    expect(page).to_have_url(re.compile(f"show={show}"))
    settled(page)
    found = page.request.get(f"{served}/models/narrow-0/rows?show={show}&limit=10").json()
    assert texts(page, ".card > div > h3") == [f"Row {row['row']}" for row in found["rows"]]
    if found["total"]:
        expect(page.locator(".pager").first).to_contain_text(f"of {found['total']} row")
        missed = [names for row in found["rows"] for names in row["answers"]["narrow-0"]["missed"]]
        assert set(texts(page, ".answer:nth-child(1) .missed bdi")) == set(missed)
    else:
        expect(page.locator(".cards .notice")).to_have_text("No row fits.")


def test_rows_are_paged_and_lead_to_a_try(visit):
    page = visit("rows?model=wide-0")
    settled(page)
    first = texts(page, ".card > div > h3")
    assert page.get_by_role("button", name="Previous").first.is_disabled()
    page.get_by_role("button", name="Next").first.click()
    expect(page.locator(".pager").first).to_contain_text("11–20 of 40 rows")
    assert not set(first) & set(texts(page, ".card > div > h3"))
    page.go_back()
    expect(page.locator(".pager").first).to_contain_text("1–10 of 40 rows")
    page.locator(".card h3 a").first.click()
    settled(page)
    assert f"Row {page.locator('#row').input_value()}" == first[0]


def test_rows_of_a_label_are_found_by_typing_a_part_of_its_name(visit, served):
    page = visit("rows?model=wide-0")
    page.locator(".choice input[value=label]").check()
    expect(page.locator(".cards .notice")).to_have_text("Choose a label.")
    page.get_by_role("combobox").last.fill("TEA")
    page.get_by_role("option", name="teal").click()
    settled(page)
    rows = page.request.get(f"{served}/models/wide-0/rows?show=label&label=teal&limit=10").json()["rows"]
    assert texts(page, ".card > div > h3") == [f"Row {row['row']}" for row in rows]
    page.get_by_role("link", name="About this label").click()
    expect(page.locator("#main h2")).to_have_text("teal")


def test_labels_are_searched_and_sorted(visit):
    page = visit("labels?model=wide-0")
    settled(page)

    def column(place):
        return texts(page, f".labels-table tbody tr > :nth-child({place})")

    rows = [int(cell) for cell in column(2)]
    assert rows == sorted(rows, reverse=True)
    page.get_by_role("button", name="Label").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Label")
    settled(page)
    assert column(1) == sorted(WORDS)
    for words, place in (("Recall", 3), ("Set size", 4), ("Rows", 2)):
        for order in ("descending", "ascending"):
            page.locator("thead button", has_text=words).click()
            expect(page.locator(f"th[aria-sort={order}]")).to_contain_text(words)
            settled(page)
            values = [float(cell.rstrip("%")) for cell in column(place) if cell != "–"]
            assert values == sorted(values, reverse=order == "descending")
    page.get_by_role("searchbox").fill("GR")
    expect(page.locator(".labels-table tbody tr")).to_have_count(2)
    assert sorted(column(1)) == ["gray", "green"]
    expect(page.locator(".pager")).to_contain_text("1–2 of 2 labels")
    page.get_by_role("searchbox").fill("purple")
    expect(page.locator(".below .notice")).to_have_text("No label has this in its name.")
    expect(page.locator(".labels-table")).to_be_hidden()


def test_the_page_of_a_label_tells_what_the_service_knows_and_leads_to_its_rows(visit, served):
    page = visit("labels?model=narrow-0")
    page.get_by_role("link", name="pink").click()
    settled(page)
    about = page.request.get(f"{served}/models/narrow-0/labels/pink").json()
    facts = texts(page, ".facts dd")
    assert facts[0] == str(about["support"])
    assert facts[1] == str(about["train_support"])
    assert facts[2].startswith(f"{100 * about['recall']:.1f}%")
    assert facts[3].startswith(f"{about['size']:.2f}")
    assert texts(page, ".confused .label bdi") == [each["label"] for each in about["confused"]]
    assert texts(page, ".row-links a") == [f"row {row}" for row in about["examples"]]
    expect(page.locator(".card")).to_have_count(3)
    other = about["confused"][0]["label"]
    page.locator(".confused a").first.click()
    expect(page.locator("#main h2")).to_have_text(other)
    page.go_back()
    expect(page.locator("#main h2")).to_have_text("pink")
    page.get_by_role("link", name="Browse").click()
    expect(page.locator(".pager").first).to_contain_text(f"of {about['support']} rows")
    page.go_back()
    page.locator(".row-links a").first.click()
    expect(page.locator("#row")).to_have_value(str(about["examples"][0]))


def test_a_set_is_typed_with_completion_and_its_nearest_set_is_checked(visit, served):
    page = visit("audit?model=narrow-0")
    field = page.get_by_role("combobox", name="Add a label")
    for name in ("red", "green"):
        field.fill(name[:3])
        expect(page.get_by_role("option", name=name)).to_be_visible()
        field.press("Enter")
        expect(page.locator(".chosen")).to_contain_text(name)
    settled(page)
    body = {"model": "narrow-0", "labels": ["red", "green"]}
    found = page.request.post(f"{served}/audit", data=body).json()
    assert found["verdict"] == "unargmaxable"
    expect(page.locator(".verdict .short")).to_contain_text("No.")
    expect(page.locator(".verdict")).to_contain_text(found["certificate"]["words"])
    assert texts(page, ".nearest .chip") == found["nearest"]["labels"]
    page.get_by_role("button", name="Check this set").click()
    expect(page.locator(".verdict .short")).to_contain_text("Yes.")
    assert sorted(texts(page, ".chosen bdi")) == sorted(found["nearest"]["labels"])
    page.go_back()
    expect(page.locator(".verdict .short")).to_contain_text("No.")
    page.get_by_role("button", name="Remove red").click()
    assert texts(page, ".chosen bdi") == ["green"]
    field.press("Backspace")
    expect(page.locator(".verdict-place")).to_have_text("Choose at least one label.")


def test_the_true_set_of_a_row_is_audited_in_either_sense(visit, served):
    page = visit("audit?model=narrow-0")
    page.locator(".choice input[value=row]").check()
    expect(page.locator(".verdict-place")).to_have_text("Choose a held-out row.")
    row = page.request.get(f"{served}/models/narrow-0/rows?limit=1").json()["rows"][0]
    page.locator("#audit-row").fill(str(row["row"]))
    page.locator("#audit-row").press("Enter")
    words = {"argmaxable": "Yes.", "unargmaxable": "No."}
    for mode in ("top-k", "sign"):
        page.locator(f".choice input[value={mode}]").check()
        settled(page)
        body = {"model": "narrow-0", "row": row["row"], "mode": mode}
        verdict = page.request.post(f"{served}/audit", data=body).json()["verdict"]
        expect(page.locator(".verdict .short strong")).to_have_text(words[verdict])
    assert sorted(texts(page, ".verdict > .chips bdi")) == sorted(row["true"])


def test_suggestions_are_walked_with_the_arrows_and_closed_with_escape(visit):
    page = visit("audit?model=wide-0")
    field = page.get_by_role("combobox", name="Add a label")
    field.press("ArrowDown")
    expect(page.locator("[role=listbox] li")).to_have_count(8)
    field.press("ArrowDown")
    field.press("ArrowDown")
    second = page.locator("[role=listbox] li").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    assert field.get_attribute("aria-activedescendant") == second.get_attribute("id")
    field.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    field.fill("purple")
    expect(page.locator("[role=listbox]")).to_have_text("No label has this in its name.")
    field.press("Enter")
    expect(page.locator(".chosen li")).to_have_count(0)


def test_a_rule_is_saved_only_when_asked_for_and_the_old_one_is_kept(visit, own_model):
    before = (own_model / "rule.json").read_text()
    with serving(own_model) as (address, _):
        page = visit("rule?kind=class-conditional&value=0.2", address=address)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        settled(page)
        page.get_by_role("button", name="Use this rule").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator("pre").first).to_contain_text("--rule class-conditional")
        page.get_by_role("button", name="Copy the command").click()
        expect(page.get_by_role("button", name="Copy the command")).to_have_text("Copied")
        assert (
            page.evaluate("navigator.clipboard.readText()")
            == dialog.locator("code", has_text="calibrate ").first.text_content()
        )
        page.get_by_role("button", name="Cancel").click()
        expect(dialog).to_be_hidden()
        assert (own_model / "rule.json").read_text() == before
        page.get_by_role("button", name="Use this rule").click()
        page.get_by_role("button", name="Save").click()
        expect(dialog.locator("h2")).to_have_text("Saved")
        expect(dialog.locator("pre").nth(1)).to_contain_text("calibrate_model(")
        assert json.loads((own_model / "rule.json").read_text()) != json.loads(before)
        assert json.loads((own_model / "rules" / "average-k.json").read_text()) == json.loads(before)
        page.keyboard.press("Escape")
        page.select_option("#rule-kind", "")
        expect(page.locator("#rule-kind option:checked")).to_contain_text("20%")
        expect(page.get_by_role("button", name="Use this rule")).to_be_disabled()


@pytest.mark.parametrize(
    "state",
    [
        "try?model=wide-0&input=text&text=word1+word2&kind=top-k&value=2",
        "try?model=narrow-0&input=row&row=9",
        "rule?model=features&kind=average-error&value=0.1&plot=size&cost_label=2&cost_miss=5",
        "rows?model=narrow-0&show=missed&offset=10",
        "rows?model=wide-0&show=label&label=gold&kind=average-k&value=3",
        "labels?model=wide-0&search=e&sort=recall&order=asc",
        "label?model=wide-0&label=gold",
        "audit?model=narrow-0&labels=%5B%22red%22%2C%22green%22%5D",
        "audit?model=narrow-0&of=row&row=9&mode=sign",
    ],
)
def test_a_link_gives_the_same_view_again(visit, state):
    def seen(page):
        settled(page)
        controls = page.locator("input, select, textarea").evaluate_all(
            "all => all.map(one => one.type === 'radio' ? one.checked : one.value)"
        )
        return page.locator("#rule-bar").inner_text(), page.locator("#main").inner_text(), controls

    page = visit(state)
    first = seen(page)
    page.reload()
    assert seen(page) == first
    assert seen(visit(page.url.split("#")[1])) == first


def test_names_of_labels_are_text_never_markup(visit):
    asked = []
    states = (
        "try?model=wide-0&input=row&row={row}",
        "rows?model=wide-0&show=label&label={label}",
        "labels?model=wide-0",
    )
    quoted = HOSTILE.replace(" ", "+").replace("=", "%3D")
    for state in (*states, "label?model=wide-0&label={label}", "audit?model=wide-0&labels=%5B%22{label}%22%5D"):
        page = visit(state.format(row=9, label=quoted))
        page.on("request", lambda request: asked.append(request.url))
        settled(page)
        expect(page.locator("body")).to_contain_text(HOSTILE)
        assert page.locator("img[src=x], img[onerror]").count() == 0
    assert not [url for url in asked if url.endswith("/x")]

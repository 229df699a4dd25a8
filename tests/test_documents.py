"""README and docs: examples print what pages show, notebooks are those of their pages, links and figures are right."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from shortlist import nn, sets
from website.examples import NOTEBOOKS, alike, examples, executed, in_one_session, notebook, printed_by, run_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BESIDE = [ROOT / name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")]
NEEDS = {"trainer.md": "transformers"}
RESULTS = ROOT / "experiments" / "results" / "small"

ALONE = [
    pytest.param(example, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    if not in_one_session(page)
    for number, example in enumerate(each for each in examples(page.read_text()) if each.language == "python")
]
SESSIONS = [page for page in PAGES if in_one_session(page) and examples(page.read_text())]
WITH_COMMANDS = [
    page
    for page in PAGES
    if not in_one_session(page) and any(each.language == "sh" for each in examples(page.read_text()))
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("example", ALONE)
def test_an_example_runs_and_prints_what_the_page_shows(example, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # Some write files.
    printed = printed_by(example, {"__name__": "__main__"}, tmp_path)
    assert example.shown is None or alike(printed, example.shown), printed


@pytest.mark.slow
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom_and_prints_what_it_shows(page, tmp_path):
    if find_spec(NEEDS.get(page.name, "torch")) is None:
        pytest.skip(f"{NEEDS[page.name]} is not installed")
    for example, printed in run_page(page, tmp_path):
        assert example.shown is None or alike(printed, example.shown), f"{example.code}\nprints\n{printed}"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = examples((DOCS / "start" / "csv.md").read_text())[0]
    printed_by(first, {"__name__": "__main__"}, tmp_path)  # writes the tables that commands read
    for example in examples(page.read_text()):
        if example.language == "sh":
            printed = printed_by(example, {}, tmp_path)
            assert example.shown is None or alike(printed, example.shown), printed


def test_what_differs_in_words_or_by_much_is_not_alike():
    assert alike("error 10.1%, 3.0 labels", "error 10.2%,  3.0 labels")
    assert not alike("error 10.1%, 3.0 labels", "error 12.1%, 3.0 labels")
    assert not alike("error 10.1%", "miss 10.1%")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_that_of_its_page_and_was_executed(name):
    pytest.importorskip("jupytext")
    page = DOCS / "start" / f"{name}.md"
    stored = json.loads(page.with_suffix(".ipynb").read_text())
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]
    assert cells == [(cell.cell_type, cell.source) for cell in notebook(page).cells], "run `make examples`"
    texts = ["".join(each["text"]) for cell in stored["cells"] for each in cell.get("outputs", [])]
    shown = [example.shown for example in examples(page.read_text()) if example.shown]
    assert len(texts) == len(shown)
    assert all(alike(*each) for each in zip(texts, shown, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    pytest.importorskip("ipykernel")
    book = executed(notebook(DOCS / "start" / f"{name}.md"), tmp_path)
    assert all(cell.execution_count for cell in book.cells if cell.cell_type == "code")


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(page):
    targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_is_one_screen_and_names_what_exists():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    table = text.partition("| you have |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Z]\w+)", table)) - {"DTensor"}
    assert len(named) > 10
    assert named <= {*dir(nn), *dir(sets)}


def test_every_figure_that_a_page_quotes_is_one_of_a_result():
    quoted = 0
    for page in PAGES:
        if page.name != "evidence.md":
            for name, figure in re.findall(r"`([a-z-]+-[\d.]+)`: ([^|;]+?)(?= \||;|\.(?:\s|$))", page.read_text()):
                assert " ".join(figure.split()) in (RESULTS / f"{name}.json").read_text(), f"{page}: {name}: {figure}"
                quoted += 1
    assert quoted > 40


@pytest.mark.slow
def test_the_pictures_are_those_of_the_script(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    pinned = re.search(r"^matplotlib==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    if matplotlib.__version__ != pinned:
        pytest.skip("drawn by another version of matplotlib")
    from website.pictures import PICTURES, draw

    draw(tmp_path)
    for name in PICTURES:
        assert (tmp_path / f"{name}.svg").read_text() == (DOCS / "understand" / f"{name}.svg").read_text(), name

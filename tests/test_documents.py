"""README and docs: every example runs and prints what the page shows, every link leads somewhere."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from shortlist import nn, sets

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
"""Python, and the output shown directly below it; not an excerpt, which says so behind the word python."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


EXAMPLES = [
    pytest.param(*match.groups(), id=f"{page.name}-{number}")
    for page in PAGES
    for number, match in enumerate(EXAMPLE.finditer(page.read_text()))
]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
def test_an_example_runs_and_prints_what_the_page_shows(code, shown, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # Some write files.
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    if shown is not None:
        # The words are the same everywhere; the last digits of a trained model are not.
        assert NUMBER.sub("#", printed.getvalue()).split() == NUMBER.sub("#", shown).split()
        wanted = [pytest.approx(float(number), rel=0.06, abs=0.006) for number in NUMBER.findall(shown)]
        assert [float(number) for number in NUMBER.findall(printed.getvalue())] == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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

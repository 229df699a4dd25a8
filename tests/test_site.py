"""The site: every page is reached, the reference is complete, nothing is loaded from elsewhere, the filter filters."""

import importlib
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

import shortlist

# MkDocs, its theme and its plugins warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INTERNAL = {"cli", "fitted"}
"""Packages with exports that are for the others."""
SHOWN = ["index", "start/csv", "choosing", "understand/lml", "api/functional", "evidence", "scale"]


def public_packages() -> set[str]:
    """Packages with exports, ``targets`` and ``errors``, and every file of integrations."""
    package = Path(shortlist.__file__).parent
    found = {path.parent.name for path in package.glob("*/__init__.py") if "__all__" in path.read_text()}
    integrations = {f"integrations.{path.stem}" for path in (package / "integrations").glob("[!_]*.py")}
    return (found | integrations | {"targets", "errors"}) - INTERNAL


def test_every_public_package_has_a_page_of_the_reference():
    pages = {path.stem for path in (DOCS / "api").glob("*.md")} - {"index"}
    assert pages == public_packages()
    navigation = (ROOT / "mkdocs.yml").read_text()
    for name in pages:
        assert f"<!-- names: shortlist.{name} -->" in (DOCS / "api" / f"{name}.md").read_text()
        assert f"({name}.md)" in (DOCS / "api" / "index.md").read_text()
        assert f": api/{name}.md\n" in navigation


def test_every_page_of_the_docs_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} <= set(re.findall(r"[\w./-]+\.md", navigation))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for name in ("material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(name)
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.mark.slow
def test_the_reference_documents_every_export(site):
    for name in sorted(public_packages()):
        if name.startswith("integrations.") and find_spec(name.rpartition(".")[2]) is None and name[13:] != "heads":
            continue
        module = importlib.import_module(f"shortlist.{name}")
        listed = getattr(module, "__all__", None)
        if listed is None:
            own = vars(module).items()
            listed = [each for each, value in own if getattr(value, "__module__", None) == module.__name__]
        anchors = set(re.findall(r'id="shortlist\.([\w.]+)"', (site / "api" / f"{name}.html").read_text()))
        missing = {each for each in listed if not each.startswith("_") and f"{name}.{each}" not in anchors}
        assert not missing, f"{name} lacks {missing}"


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    loads = re.compile(r'<(?:script|link|img|iframe|source|video)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"')
    for page in site.rglob("*.html"):
        # The address of a page itself is no request.
        found = [url for url in loads.findall(page.read_text()) if 'rel="canonical"' not in url]
        assert found == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_formula_of_the_site_is_mathml(site):
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert sum(text.count("<math ") for text in pages) > 150
    assert not any('class="arithmatex"' in text for text in pages)


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not print what it is asked for."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1440, False), (1440, True)])
@pytest.mark.parametrize("page", SHOWN)
def test_a_page_is_shown_without_complaint_outside_request_or_horizontal_scrolling(browser, address, page, width, dark):
    browser.open(f"{address}/{page}.html", width=width, dark=dark)
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith((address, "data:", "blob:", "about:"))] == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@pytest.mark.browser
def test_the_claims_are_filtered_by_words_and_by_verdict(browser, address):
    browser.open(f"{address}/evidence.html", width=1440)
    first = "document.querySelector('.filter').parentNode.querySelector('.filter ~ * tbody, .filter ~ table tbody')"
    shown = f"[...{first}.rows].filter((row) => !row.hidden).map((row) => row.textContent)"
    everything = browser.run(shown)
    assert len(everything) > 100
    change = "field.value = {value!r}; field.dispatchEvent(new Event({event!r}))"
    browser.run("var field = document.querySelector('.filter input'); " + change.format(value="ldam", event="input"))
    found = browser.run(shown)
    assert 0 < len(found) < len(everything)
    assert all("ldam" in text.lower() for text in found)
    browser.run("field = document.querySelector('.filter select'); " + change.format(value="✘", event="change"))
    assert all("✘" in text for text in browser.run(shown))
    browser.run("field = document.querySelector('.filter input'); " + change.format(value="", event="input"))
    failing = browser.run(shown)
    assert len(found) < len(failing) < len(everything)
    assert browser.run("document.querySelector('.filter [role=status]').textContent") == (
        f"{len(failing)} of {len(everything)} statements"
    )

"""The page of `shortlist serve` in Chromium: models trained once, one service, a fresh browser context per test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import CHROMIUM
from tests.serve.page_models import serving, train


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> list[Path]:
    return train(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served(models) -> Iterator[str]:
    """The address of a service with all models, whose held-out rows are read."""
    with serving(*models) as (address, _):
        yield address


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, served) -> Iterator[Callable[..., Any]]:
    """Opens a view in a browser context of its own; at the end, the console must be silent.

    ``expected`` are parts of complaints that a test provokes, such as the status of a refused request.
    """
    contexts, complaints, expected = [], [], []

    def opened(state: str = "", *, address: str = served, width: int = 1440, dark: bool = False, allow: str = ""):
        size = {"width": width, "height": 900}
        context = chromium.new_context(viewport=size, color_scheme="dark" if dark else "light")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if allow:
            expected.append(allow)
        page.goto(f"{address}/#{state}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [said for said in complaints if not any(part in said for part in expected)] == []


@pytest.fixture
def own_model(models, tmp_path) -> Path:
    """A copy of a model whose rules a test may replace."""
    return Path(shutil.copytree(models[1], tmp_path / "flowers"))

"""The report as one HTML file that needs no network."""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from shortlist import __version__
from shortlist.extras import require
from shortlist.files import replacing
from shortlist.report.chart import INK, Panel
from shortlist.report.chart_plotly import plotly_chart
from shortlist.report.comparison_panels import comparison_panels
from shortlist.report.figure_words import k_words, shown_name
from shortlist.report.page_examples import examples_html
from shortlist.report.page_parts import audits_html, heading_html, panel_html, reproduce_html, slider_html
from shortlist.report.page_table import table_html

# Nothing may be fetched, not even by a script: the page must look the same without a network and tell nobody of it.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_TITLES = {
    "comparison": "Comparison",
    "error-versus-size": "Error versus size",
    "set-sizes": "Set sizes",
    "error-by-shot": "Error by shot",
    "accuracy-by-count": "Single labels",
    "calibration": "Calibration",
    "examples": "Examples",
    "audits": "Audit",
    "training": "Training",
    "reproduce": "How to reproduce",
}


def write_report(documents: list[dict[str, Any]], path: str | Path) -> Path:
    """Write the report of comparisons.

    Args:
        documents: of `shortlist.report.comparison_document.read_comparison`; each is a section of the page.
        path: the file; written whole or not at all.

    Returns:
        ``path``, once the file is complete.

    Raises:
        ValueError: if there is no comparison.
        ImportError: if plotly is not installed.
    """
    path = Path(path)
    page = report_page(documents)
    with replacing(path) as partial:
        # JSON can hold halves of letters, which no file can.
        partial.write_bytes(page.encode("utf-8", "replace"))
    return path


def report_page(documents: list[dict[str, Any]]) -> str:
    """The page as text; see `write_report`."""
    if not documents:
        raise ValueError("`documents` must hold at least one comparison.")
    panels = [comparison_panels(document) for document in documents]
    names = [shown_name(document["data"]["name"]) for document in documents]
    sections = [
        _job_html(document, found, number, len(documents))
        for number, (document, found) in enumerate(zip(documents, panels, strict=True), start=1)
    ]
    links = [f'<a href="#job-{number}"><bdi>{escape(name)}</bdi></a>' for number, name in enumerate(names, start=1)]
    nav = f'<nav aria-label="Jobs">{"".join(links)}</nav>' if len(links) > 1 else ""
    return _PAGE.format(
        policy=_POLICY,
        title=escape(f"{', '.join(names)} · shortlist report"),
        style=_resource("page.css"),
        nav=nav,
        sections="\n".join(sections),
        version=escape(__version__),
        data=embedded_json(page_data(documents, panels)),
        # The library holds no such text today; were it to, the rest of it would be shown instead of run.
        plotly=require("plotly.offline", extra="report").get_plotlyjs().replace("</script", "<\\/script"),
        script=_resource("page.js"),
    )


def page_data(documents: list[dict[str, Any]], panels: list[list[Panel]]) -> dict[str, Any]:
    """What the script of the page draws, of plain JSON.

    Charts of neighbouring K share most of their traces, which stand once.

    Returns:
        ``jobs``: for each comparison its ``ks``, their ``names``, the place ``start`` of the K that was asked for, and
        by panel the ``choices`` and the numbers of their ``charts``. ``charts``: numbers of ``data`` among ``traces``
        and of ``layout`` among ``layouts``, and a ``note``.
    """
    traces, layouts = _Pool(), _Pool()
    charts: list[dict[str, Any]] = []
    jobs = []
    for document, found in zip(documents, panels, strict=True):
        places: dict[str, Any] = {}
        for panel in found:
            numbers = []
            for choice in panel.charts.values():
                numbers.append(list(range(len(charts), len(charts) + len(choice))))
                for chart in choice:
                    drawn = plotly_chart(chart)
                    data = [traces.number(trace) for trace in drawn["data"]]
                    charts.append({"data": data, "layout": layouts.number(drawn["layout"]), "note": chart.note})
            places[panel.name] = {"choices": list(panel.charts), "charts": numbers}
        ks = document["ks"]
        jobs.append({"ks": ks, "names": [k_words(k) for k in ks], "start": ks.index(document["k"]), "panels": places})
    return {"ink": INK, "jobs": jobs, "charts": charts, "traces": traces.members, "layouts": layouts.members}


class _Pool:
    """Members that are equal stand once and have one number."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, member: Any) -> int:
        found = self._numbers.setdefault(json.dumps(member), len(self.members))
        if found == len(self.members):
            self.members.append(member)
        return found


def embedded_json(content: Any) -> str:
    r"""JSON that can stand in a script element: nothing in it can end the element or begin a comment.

    Raises:
        ValueError: if a number is not finite.

    Example:
        >>> embedded_json({"name": "</script><!--"})
        '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _job_html(document: dict[str, Any], panels: list[Panel], number: int, jobs: int) -> str:
    job = f"job-{number}"
    drawn = {panel.name: panel_html(panel, job) for panel in panels}
    pair = [drawn[name] for name in ("set-sizes", "error-by-shot") if name in drawn]
    examples = examples_html(document)
    audits = audits_html(document)
    training = "".join(drawn[name] for name in ("training-loss", "watched-metric") if name in drawn)
    body = [
        f'<section class="part" id="{job}-comparison">{table_html(document)}</section>',
        '<div class="moving">',
        slider_html(document, job),
        drawn.get("error-versus-size", ""),
        f'<div class="pair">{"".join(pair)}</div>' if len(pair) > 1 else "".join(pair),
        drawn["accuracy-by-count"],
        drawn["calibration"],
        f'<section class="part" id="{job}-examples">{examples}</section>' if examples else "",
        "</div>",
        f'<section class="part" id="{job}-audits">{audits}{drawn.get("audit", "")}</section>' if audits else "",
        f'<div class="pair" id="{job}-training">{training}</div>' if training else "",
        f'<section class="part" id="{job}-reproduce">{reproduce_html(document)}</section>',
    ]
    text = "\n".join(part for part in body if part)
    contents = [
        f'<a href="#{job}-{name}">{title}</a>' for name, title in _TITLES.items() if f'id="{job}-{name}"' in text
    ]
    heading = heading_html(document, number, jobs)
    nav = f'<nav class="contents" aria-label="Sections">{"".join(contents)}</nav>'
    return f'<section class="job" id="{job}">{heading}{nav}\n{text}\n</section>'


def _resource(name: str) -> str:
    return resources.files("shortlist.report").joinpath(name).read_text(encoding="utf-8")


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header class="top"><div class="page"><h1>shortlist report</h1>{nav}</div></header>
<main class="page">
<noscript><p class="note">The charts need JavaScript; tables and examples do not.</p></noscript>
{sections}
</main>
<div class="page"><footer>
Made with shortlist {version}. This file is complete: it loads nothing from elsewhere.
</footer></div>
<script type="application/json" id="charts">{data}</script>
<script>{plotly}</script>
<script>
{script}</script>
</body>
</html>
"""

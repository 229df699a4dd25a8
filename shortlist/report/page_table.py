"""The table of the report: candidates by figures, with intervals, the best and the optimum."""

from __future__ import annotations

from html import escape
from typing import Any

from shortlist.report.figure_words import FigureWords, figure_title, shown_name
from shortlist.report.page_parts import swatch_html

_BEST = '<span aria-label="best">★</span>'
_TIE = '<span aria-label="cannot be told from the best">☆</span>'


def table_html(document: dict[str, Any]) -> str:
    """Heading, sentence and table."""
    figures = [figure["name"] for figure in document["figures"]]
    words = {name: FigureWords(document, name) for name in figures}
    heads = "".join(_head(figure, words[figure["name"]], document["target"]) for figure in document["figures"])
    rows = [_row(document, place, name, words) for place, name in enumerate(document["candidates"])]
    if document["optimum"] is not None:
        rows.append(_optimum_row(document, words))
    return (
        f'<h3>Comparison</h3><p class="about">{escape(_about(document))}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Comparison table"><table>'
        f'<thead><tr><th scope="col">candidate</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _about(document: dict[str, Any]) -> str:
    seeds = max(len(candidate["runs"]) for candidate in document["candidates"].values())
    told = "Mean over seeds ± half of its 95% interval. " if seeds > 1 else "One seed for each candidate. "
    told += (
        f"Measured on {document['data']['parts'][document['data']['evaluated']]:,} rows that no model was trained on. "
    )
    if len(document["candidates"]) > 1:
        ties = any(len(names) > 1 for names in document["best"].values())
        told += "★ is the best of a column" + ("; ☆ cannot be told from it. " if ties else ". ")
    aims = {figure["better"] for figure in document["figures"]}
    arrows = {"lower": "↓ lower is better", "higher": "↑ higher is better"}
    told += "".join(f"{words}. " for aim, words in arrows.items() if aim in aims)
    if document["optimum"] is not None:
        told += "Small numbers: the distance to the optimum, which knows the exact probabilities."
    return told.strip()


def _head(figure: dict[str, Any], words: FigureWords, target: str) -> str:
    name = escape(figure_title(figure["name"]))
    marked = ' class="target"' if figure["name"] == target else ""
    aim = {"lower": "↓", "higher": "↑", None: ""}[figure["better"]]
    unit = words.unit or ("labels" if figure["name"] == "average_size" else "")
    parts = ["target"] if figure["name"] == target else []
    below = " · ".join([*parts, *([f"{unit} {aim}".strip()] if unit or aim else [])])
    return f'<th scope="col"{marked}><button type="button">{name}</button><small>{below}</small></th>'


def _row(document: dict[str, Any], place: int, name: str, words: dict[str, FigureWords]) -> str:
    candidate = document["candidates"][name]
    cells = []
    for figure in document["figures"]:
        key = figure["name"]
        interval = candidate["intervals"][key]
        best = document["best"].get(key, [])
        text = escape(words[key].interval(interval))
        if len(document["candidates"]) > 1 and name in best:
            text = f"<strong>{text}</strong> {_BEST if name == best[0] else _TIE}"
        value = "" if interval["mean"] is None else repr(float(interval["mean"]))
        cells.append(f'<td data-value="{value}">{text}{_distance(document, key, interval["mean"], words[key])}</td>')
    about = shown_name(candidate["about"])
    small = f"<small><bdi>{escape(about)}</bdi></small>" if about.removeprefix("loss ") != shown_name(name) else ""
    return f'<tr><th scope="row">{swatch_html(place)}<bdi>{_breakable(name)}</bdi>{small}</th>{"".join(cells)}</tr>'


def _breakable(name: str) -> str:
    """Long names may break after underscores rather than anywhere."""
    return escape(shown_name(name)).replace("_", "_<wbr>")


def _distance(document: dict[str, Any], figure: str, value: float | None, words: FigureWords) -> str:
    optimum = None if document["optimum"] is None else document["optimum"]["values"].get(figure)
    if optimum is None or value is None or figure == "average_size":
        return ""
    return f"<small>{escape(words.difference(value - optimum))}</small>"


def _optimum_row(document: dict[str, Any], words: dict[str, FigureWords]) -> str:
    values = document["optimum"]["values"]
    cells = [
        f"<td>{escape(words[figure['name']].value(values.get(figure['name'])))}</td>" for figure in document["figures"]
    ]
    name = '<span class="swatch"></span>optimum<small>exact probabilities</small>'
    return f'<tr class="optimum"><th scope="row">{name}</th>{"".join(cells)}</tr>'

"""Parts of the page: heading, slider, panels with their controls, audits, how to reproduce."""

from __future__ import annotations

import json
from datetime import datetime
from html import escape
from typing import Any

from shortlist.formatting import format_count, format_number
from shortlist.report.chart import Panel, candidate_style
from shortlist.report.figure_words import k_words, shown_name
from shortlist.report.winners import audit_sentence, summary_sentence

_PARTS = {"train": "training rows", "val": "validation rows", "test": "test rows"}
_MOST_BUTTONS = 5


def heading_html(document: dict[str, Any], number_of_job: int, jobs: int) -> str:
    """Name of the data, who wins, and the facts."""
    data = document["data"]
    facts = {_PARTS.get(part, f"{shown_name(part)} rows"): f"{rows:,}" for part, rows in data["parts"].items()}
    facts |= {"labels": f"{data['labels']:,}", "labels per row": format_number(data["labels_per_row"])}
    facts["K asked for"] = k_words(document["k"])
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    task = "one true label per row" if data["task"] == "one class" else "several labels per row"
    words = ([f"Job {number_of_job} of {jobs}"] if jobs > 1 else []) + [shown_name(data["kind"]), task]
    return (
        f'<p class="eyebrow">{escape(" · ".join(words))}</p><h2><bdi>{escape(shown_name(data["name"]))}</bdi></h2>'
        f'<p class="lead">{escape(summary_sentence(document))}</p><dl class="facts">{listed}</dl>'
    )


def swatch_html(place: int) -> str:
    """The colour of a candidate as a small square; hatched where colours come again."""
    style = candidate_style(place)
    again = "" if style.dash == "solid" else " again"
    return f'<span class="swatch{again}" style="background-color:{style.colour}"></span>'


def slider_html(document: dict[str, Any], job: str) -> str:
    """The control of K; nothing when there is only one."""
    ks = [k_words(k) for k in document["ks"]]
    place = document["ks"].index(document["k"])
    if len(ks) < 2:
        return ""
    return (
        f'<form class="slider"><label for="{job}-k"><output for="{job}-k">K = {ks[place]}</output> '
        "labels per answer, on average</label>"
        f'<div class="ends"><span>{ks[0]}</span><input type="range" id="{job}-k" min="0" max="{len(ks) - 1}" step="1" '
        f'value="{place}" aria-valuetext="K = {ks[place]}"><span>{ks[-1]}</span></div></form>'
    )


def panel_html(panel: Panel, job: str) -> str:
    """Heading, sentence, controls and the place of a chart."""
    identity = f"{job}-{panel.name}"
    controls = _choice_html(panel, identity) if len(panel.charts) > 1 else ""
    first = next(iter(panel.charts.values()))[0]
    if panel.log:
        first_scale = "log" if first.y.scale == "log" else "linear"
        controls += _buttons(
            "Scale", {"linear": "linear", "log": "log"}, f"{identity}-scale", "data-scale", first_scale
        )
    square = any(reference.x is None for reference in first.references)
    shape = " square" if square else " wide" if panel.wide else ""
    form = f'<form class="controls">{controls}</form>' if controls else ""
    return (
        f'<section class="part panel{shape}" id="{identity}"><h3>{escape(panel.title)}</h3>'
        f'<p class="about">{escape(panel.about)}</p>{form}'
        f'<div class="chart" role="img" aria-label="{escape(first.title)}"></div>'
        '<ul class="legend"></ul><p class="note"></p></section>'
    )


def _choice_html(panel: Panel, identity: str) -> str:
    choices = {str(place): shown_name(choice) for place, choice in enumerate(panel.charts)}
    if len(choices) <= _MOST_BUTTONS:
        return _buttons(panel.choose, choices, f"{identity}-choice", "data-choice", "0")
    options = "".join(f'<option value="{value}">{escape(_cut(name))}</option>' for value, name in choices.items())
    return (
        f'<fieldset><legend id="{identity}-legend">{escape(panel.choose)}</legend>'
        f'<select data-choice aria-labelledby="{identity}-legend">{options}</select></fieldset>'
    )


def _buttons(legend: str, choices: dict[str, str], group: str, mark: str, chosen: str) -> str:
    buttons = "".join(
        f'<label title="{escape(name)}"><input type="radio" name="{group}" value="{value}" {mark}'
        f"{' checked' if value == chosen else ''}><span>{escape(name)}</span></label>"
        for value, name in choices.items()
    )
    return f"<fieldset><legend>{escape(legend)}</legend>{buttons}</fieldset>"


def _cut(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"


def audits_html(document: dict[str, Any]) -> str:
    """A sentence for each audited layer, and sets that it can never output."""
    blocks = []
    for place, (name, candidate) in enumerate(document["candidates"].items()):
        audit = candidate["audit"]
        if audit is None:
            continue
        title = f"{swatch_html(place)}<bdi>{escape(shown_name(name))}</bdi>"
        says = audit_sentence("", audit).partition(": ")[2]
        layer = (
            f"The layer has {format_count(audit['labels'], 'label')} and {format_count(audit['features'], 'feature')}."
        )
        sets = _worst_html(audit["worst"]) if audit["worst"] else ""
        blocks.append(
            f'<div class="audit"><h4>{title}</h4><p class="says">{escape(says[:1].upper() + says[1:])}</p>'
            f'<p class="note">{layer}</p>{sets}</div>'
        )
    if not blocks:
        return ""
    about = (
        "A layer with fewer features than labels has label sets that no input can bring out. Each verdict was proved "
        "for the trained layer of the first seed, on the label sets of the test rows (at most 10,000 of them, of rows "
        "whose labels are all known). What cannot be ranked first, no threshold can output either."
    )
    return f'<h3>Audit of the output layers</h3><p class="about">{about}</p><div class="audits">{"".join(blocks)}</div>'


def _worst_html(worst: list[list[str]]) -> str:
    """One set in view, the others to be opened."""
    rest = "".join(_chips(labels) for labels in worst[1:])
    more = f"<details><summary>{format_count(len(worst) - 1, 'more set')}</summary>{rest}</details>" if rest else ""
    return f'<p class="sides">Such a set</p>{_chips(worst[0])}{more}'


def _chips(labels: list[str]) -> str:
    chips = "".join(f'<li class="chip"><bdi>{escape(shown_name(label))}</bdi></li>' for label in labels)
    return f'<ul class="chips">{chips}</ul>'


def reproduce_html(document: dict[str, Any]) -> str:
    """Commands, options, versions, time."""
    made = document["made"]
    commands = escape("\n".join(document["commands"]))
    options = "".join(
        f"<details><summary><bdi>{escape(shown_name(name))}</bdi>: options and seeds</summary>"
        f"{_options(candidate)}</details>"
        for name, candidate in document["candidates"].items()
    )
    versions = f"shortlist {made['shortlist']}, torch {made['torch']}, Python {made['python']}"
    threads = f", {format_count(made['threads'], 'thread')}" if isinstance(made.get("threads"), int) else ""
    when = f"Made on {_date(made['date'])} in {_duration(made['seconds'])} with {versions}{threads}."
    copy = '<button type="button" class="copy">Copy</button>'
    code = f'<div class="commands"><pre><code>{commands}</code></pre>{copy}</div>' if commands else ""
    about = "The same commands with the same versions on the same machine give the same numbers."
    return f'<h3>How to reproduce</h3><p class="about">{about}</p>{code}<p class="note">{escape(when)}</p>{options}'


def _options(candidate: dict[str, Any]) -> str:
    rows = {name: json.dumps(value, ensure_ascii=False) for name, value in candidate["options"].items()}
    rows["seeds"] = ", ".join(str(run["seed"]) for run in candidate["runs"])
    seconds = [run["seconds"] for run in candidate["runs"] if run["seconds"] is not None]
    if seconds:
        rows["time of training"] = _duration(sum(seconds))
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td><code>{escape(value)}</code></td></tr>'
        for name, value in rows.items()
    )
    return f'<table class="options"><tbody>{body}</tbody></table>'


def _date(date: str) -> str:
    """Day, minute and zone.

    Example:
        >>> _date("2026-11-16T10:00:00+00:00"), _date("yesterday")
        ('2026-11-16 10:00 UTC', 'yesterday')
    """
    try:
        return datetime.fromisoformat(date).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return shown_name(date)


def _duration(seconds: float) -> str:
    """Seconds, or minutes and hours where there are many.

    Example:
        >>> _duration(51.2), _duration(200), _duration(9000)
        ('51.2 s', '3.3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

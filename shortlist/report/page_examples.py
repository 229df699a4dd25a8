"""Examples in the page: an input, its true labels, and the set of every candidate at the K of the slider."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise
from typing import Any

from shortlist.report.figure_words import k_words, shown_name
from shortlist.report.page_parts import swatch_html

_AT_ONCE = 4
_LETTERS = 600
_MOST_BARS = 160


def examples_html(document: dict[str, Any]) -> str:
    """Heading, sentence and cards; empty without examples."""
    examples = document["examples"]
    if not examples:
        return ""
    about = (
        f"Rows of the {escape(shown_name(document['data']['evaluated']))} part and what each candidate answers at K = "
        f'<span class="k-now">{k_words(document["k"])}</span>, best label first with its score. '
        "✓ marks true labels; missed ones have a dashed frame."
    )
    cards = [_card(document, example) for example in examples]
    rest = len(cards) - _AT_ONCE
    more = f"<details><summary>{rest} more</summary>{''.join(cards[_AT_ONCE:])}</details>" if rest > 0 else ""
    return f'<h3>Examples</h3><p class="about">{about}</p><div class="cards">{"".join(cards[:_AT_ONCE])}{more}</div>'


def _card(document: dict[str, Any], example: dict[str, Any]) -> str:
    place = document["ks"].index(document["k"])
    truth = "".join(f'<li class="chip hit">✓ <bdi>{escape(shown_name(label))}</bdi></li>' for label in example["truth"])
    answers = "".join(
        _answer(number, name, example["answers"][name], example["truth"], place)
        for number, name in enumerate(document["candidates"])
        if name in example["answers"]
    )
    true = f'<p class="row">true labels</p><ul class="chips">{truth or "<li>none</li>"}</ul>'
    return (
        f'<article class="card"><div><p class="row">row {example["row"]:,}</p>{_input(example["input"])}{true}</div>'
        f'<div class="answers">{answers}</div></article>'
    )


def _answer(number: int, name: str, answer: dict[str, Any], truth: list[str], place: int) -> str:
    """All listed labels stand in the page; those beyond the set are hidden, and the script moves the border."""
    size, labels = answer["sizes"][place], answer["labels"]
    listed = "".join(
        _label(label, score, label in truth, hidden=rank >= size)
        for rank, (label, score) in enumerate(zip(labels, answer["scores"], strict=True))
    )
    missed = [_missed(label, labels.index(label) if label in labels else -1, size, len(labels)) for label in truth]
    any_missed = any(" hidden" not in chip for chip in missed)
    beyond = size - len(labels)
    words = "no label" if size == 0 else "1 label" if size == 1 else f"{size} labels"
    return (
        f'<div class="answer" data-sizes="{answer["sizes"]}">'
        f'<h4>{swatch_html(number)}<bdi>{escape(shown_name(name))}</bdi><span class="size">{words}</span></h4>'
        f'<ol class="chips labels">{listed}</ol>'
        f'<p class="sides more"{"" if beyond > 0 else " hidden"}>and {beyond} more that are not listed</p>'
        f'<div class="misses"{"" if any_missed else " hidden"}><p class="sides">missed</p>'
        f'<ul class="chips">{"".join(missed)}</ul></div></div>'
    )


def _label(label: str, score: float | None, true: bool, *, hidden: bool) -> str:
    mark = '<span aria-label="true">✓</span> ' if true else ""
    shown = "" if score is None else f" <small>{escape(_score(score))}</small>"
    kind = "chip hit" if true else "chip"
    return f'<li class="{kind}"{" hidden" if hidden else ""}>{mark}<bdi>{escape(shown_name(label))}</bdi>{shown}</li>'


def _missed(label: str, rank: int, size: int, listed: int) -> str:
    # What lies beyond the listed labels is not known to be missed.
    hidden = rank < size if rank >= 0 else size > listed
    attributes = f'data-place="{rank}"{" hidden" if hidden else ""}'
    return f'<li class="chip missed" {attributes}><bdi>{escape(shown_name(label))}</bdi></li>'


def _score(score: float) -> str:
    """Two decimals.

    Example:
        >>> _score(0.614), _score(0.0004), _score(-3.14159), _score(1234.5)
        ('0.61', '< 0.01', '-3.14', '1234')
    """
    if 0 < score < 0.01:
        return "< 0.01"
    return f"{score:.2f}" if abs(score) < 1000 else f"{score:.0f}"


def _input(content: dict[str, Any]) -> str:
    if content["kind"] == "text":
        return _text(content["text"])
    if content["kind"] == "image":
        # Whatever is not base64 could leave the attribute.
        pixels = re.sub(r"[^A-Za-z0-9+/=]", "", content["png"])
        return f'<img alt="input" src="data:image/png;base64,{pixels}">'
    return _bars(content["values"])


def _text(text: str) -> str:
    text = text.strip()
    if len(text) <= _LETTERS:
        return f'<p class="text" dir="auto">{escape(text) or "(empty text)"}</p>'
    cut = text.rfind(" ", _LETTERS - 80, _LETTERS)
    cut = cut if cut > 0 else _LETTERS
    return (
        f'<p class="text" dir="auto">{escape(text[:cut])} …</p>'
        f'<details><summary>more</summary><p class="text" dir="auto">… {escape(text[cut:].strip())}</p></details>'
    )


def _bars(values: list[float | None]) -> str:
    """Features as bars about 0; of many, the furthest from 0 in each stretch."""
    known = [0.0 if value is None else value for value in values]
    if len(known) > _MOST_BARS:
        ends = [len(known) * place // _MOST_BARS for place in range(_MOST_BARS + 1)]
        known = [max(known[first:last], key=abs) for first, last in pairwise(ends)]
    if not known:
        return '<p class="text">(no features)</p>'
    low, high = min(0.0, *known), max(0.0, *known)
    span = (high - low) or 1.0
    bars = "".join(
        f'<rect x="{place + 0.1:.1f}" width="0.8" y="{100 * (high - max(value, 0)) / span:.1f}" '
        f'height="{max(100 * abs(value) / span, 0.5):.1f}"/>'
        for place, value in enumerate(known)
    )
    words = f"{len(values):,} features from {min(known):.3g} to {max(known):.3g}"
    return (
        f'<svg class="bars" viewBox="0 0 {len(known)} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}">{bars}</svg><p class="row">{words}</p>'
    )

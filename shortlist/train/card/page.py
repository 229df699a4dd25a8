"""The text of a model card: YAML that the Hugging Face Hub reads, and Markdown for people, with all names escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from unicodedata import category

from shortlist.extras import require
from shortlist.formatting import format_count, format_percent
from shortlist.sets.rule_file import RuleDocument
from shortlist.train.card.facts import CardFacts, DataFacts, Figure

KEPT = "<!-- What stands below this line is kept when the card is written again. -->"
"""The end of a card; a README.md without this line is the user's own and is left alone."""

_LONGEST_NAME = 80
# What Markdown gives a meaning within a line, formulas, links and mentions of the Hub included. Names never start one.
_SPECIAL = re.compile(r"([\\`*\[\]|~$@]|:(?=//)|(?<!\w)_|_(?!\w))")
_PIPELINES = {"text": "text-classification", "images": "image-classification", "features": "tabular-classification"}
_ROWS_FILES = {"text": "rows.txt", "images": "photo.png", "features": "rows.npy", "sparse features": "rows.npz"}
_PLAIN = (int, float, str)


class _Safe(str):
    """Text that is printed as it is."""


@dataclass(frozen=True)
class CardSubject:
    """What a card is about, as the model's folder holds it.

    Args:
        document: the content of ``model.json``.
        facts: what was measured; None if nothing was, or if the parameters are others by now.
        rule: the rule that the model answers with, and the digest of its file; None if it has none.
        calibration: the kind of the calibration of its scores, or None.
        audit_file: whether the folder holds the certificates of the audit.
    """

    document: Mapping[str, Any]
    facts: CardFacts | None
    rule: tuple[RuleDocument, str] | None
    calibration: str | None
    audit_file: bool

    @property
    def plan(self) -> Mapping[str, Any]:
        """The parts of the model."""
        return self.document["plan"]

    @property
    def options(self) -> Mapping[str, Any]:
        """How it was trained; empty if that is not recorded."""
        found = self.document.get("about", {}).get("options")
        return found if isinstance(found, Mapping) else {}

    @property
    def kind(self) -> str:
        """The inputs that it takes."""
        frozen = self.plan.get("frozen")
        return frozen["takes"] if frozen else "text" if self.plan.get("words") else self.plan["kind"]

    @property
    def encoder(self) -> str:
        """Its encoder."""
        return self.plan["encoder"]

    @property
    def name(self) -> str:
        """Its loss, and its data if they are known; not the folder, which may be moved."""
        return self.plan["loss"] if self.facts is None else f"{self.plan['loss']} on {plain_text(self.facts.data.name)}"


def card_text(subject: CardSubject) -> str:
    """The card, without what the user wrote below it."""
    yaml = require("yaml", extra="train")
    header = yaml.safe_dump(front_matter(subject), sort_keys=False, allow_unicode=True, width=float("inf"))
    facts = subject.facts
    sets = facts.sets if facts is not None and subject.rule and facts.sets else None
    current = sets is not None and subject.rule is not None and sets.rule == subject.rule[1]
    page = _template().render(
        subject=subject,
        facts=facts,
        data=None if facts is None else facts.data,
        rule=None if subject.rule is None else subject.rule[0],
        sets=sets if current else None,
        former=sets is not None and not current,
        audit=None if facts is None else facts.audit,
    )
    return f"---\n{header}---\n{page}\n{KEPT}\n"


def front_matter(subject: CardSubject) -> dict[str, Any]:
    """What the Hub reads: library, tags, task, and the figures as a model index."""
    facts = subject.facts
    content: dict[str, Any] = {"library_name": "shortlist"}
    pipeline = _PIPELINES.get(subject.kind)
    if pipeline is not None:
        content["pipeline_tag"] = pipeline
    content["tags"] = ["shortlist", "pytorch", "set-valued-classification"]
    if facts is None:
        return content
    content["tags"].append("multi-class-classification" if facts.data.one_class else "multi-label-classification")
    if facts.figures:
        result = {
            "task": {"type": pipeline or "tabular-classification"},
            "dataset": {
                "name": plain_text(facts.data.name),
                "type": _slug(facts.data),
                "split": plain_text(facts.part),
            },
            "metrics": [_metric(figure) for figure in facts.figures],
        }
        content["model-index"] = [{"name": subject.name, "results": [result]}]
    return content


def plain_text(value: str) -> str:
    r"""A name as one short line without control characters, which could end a line, a table or a document.

    Example:
        >>> plain_text("a\n--- b"), plain_text("x" * 200)[-3:]
        ('a --- b', 'xx…')
    """
    line = " ".join("".join("\ufffd" if _is_control(letter) else letter for letter in value).split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"


def markdown(value: Any) -> str:
    r"""Escape a name, so that Markdown and HTML show it as it is.

    Example:
        >>> print(markdown("<b>a|b</b>"), markdown("[x](y)"))
        &lt;b&gt;a\|b&lt;/b&gt; \[x\](y)
    """
    text = _SPECIAL.sub(r"\\\1", plain_text(str(value)))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_control(letter: str) -> bool:
    return category(letter)[0] == "C" and letter not in "\n\r\t"


def _metric(figure: Figure) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": figure.name, "name": figure.name, "value": _short(figure.value)}
    if figure.low is not None and figure.high is not None:
        entry["args"] = {"confidence": 0.95, "low": _short(figure.low), "high": _short(figure.high)}
    return entry


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _slug(data: DataFacts) -> str:
    """The name as the Hub wants the type of a dataset."""
    return re.sub(r"[^a-z0-9]+", "-", plain_text(data.name).lower()).strip("-") or "data"


def _number(figure: Figure) -> _Safe:
    is_size = figure.name == "average_size"
    return _Safe(f"{figure.value:.3g}" if is_size else format_percent(figure.value, decimals=1))


def _interval(figure: Figure) -> _Safe:
    if figure.low is None or figure.high is None:
        return _Safe("")
    low, high = (format_percent(end, decimals=1) for end in (figure.low, figure.high))
    return _Safe(f"{low} to {high}")


def rule_text(rule: RuleDocument) -> str:
    """The rule with its options, and what fitting achieved, in two sentences of Markdown."""
    options = _options(rule.options)
    named = f"{markdown(rule.kind)} ({markdown(options)})" if options else markdown(rule.kind)
    return f"The model answers with the rule {named}. {_evidence(rule.evidence)}"


def _options(options: Mapping[str, Any]) -> str:
    """The options of a rule that are single values and not off; a taxonomy would fill pages."""
    plain = {name: value for name, value in options.items() if isinstance(value, _PLAIN) and value}
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in plain.items()
    )


def _evidence(evidence: Mapping[str, Any]) -> str:
    count, constraint = evidence.get("rows"), str(evidence.get("constraint", "aim"))
    rows = format_count(count, "row") if isinstance(count, int) else "held-out rows"
    wanted, achieved = evidence.get("wanted"), evidence.get("achieved")
    if not isinstance(wanted, int | float) or not isinstance(achieved, int | float):
        return f"It was fitted on {rows}."
    show = (lambda value: f"{value:.4g}") if "size" in constraint else format_percent
    return f"It was fitted on {rows} ({markdown(constraint)}: {show(wanted)} wanted, {show(achieved)} reached)."


@cache
def _template() -> Any:
    """The template; everything that it prints is escaped, unless it is a number or one of the sentences above."""
    jinja = require("jinja2", extra="train")
    environment = jinja.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined, finalize=_printed, autoescape=False
    )
    environment.filters.update(
        count=lambda value, noun: _Safe(format_count(value, noun)),
        short=lambda value: _Safe(f"{value:,}" if isinstance(value, int) else f"{value:.3g}"),
        percent=lambda value: _Safe(format_percent(value, decimals=1)),
        number=_number,
        interval=_interval,
        rows=lambda parts: _Safe(", ".join(f"{count:,} {markdown(part)}" for part, count in parts.items())),
        labels=lambda names: _Safe(", ".join(f"“{markdown(name)}”" for name in names)),
        rule=lambda rule: _Safe(rule_text(rule)),
        rows_file=lambda subject: _Safe(_ROWS_FILES.get(subject.kind, "FILE")),
    )
    return environment.from_string(files("shortlist.train.card").joinpath("card.md.jinja").read_text(encoding="utf-8"))


def _printed(value: Any) -> str:
    return value if isinstance(value, _Safe) else markdown(value)

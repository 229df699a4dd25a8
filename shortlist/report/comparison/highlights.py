"""What a page says first: a number and a chart for each question that its comparisons answer.

The questions are those of a user: which rule makes sets of the scores, which loss trains them, which output layer? All
numbers come from the documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shortlist.comparison_document import AuditSummary, Candidate, ComparisonDocument, Question, SetFindings, SizeResult
from shortlist.formatting import format_percent
from shortlist.report.chart import OPTIMUM, Axis, Chart, Panel, Reference, Series, candidate_style
from shortlist.report.comparison.winners import (
    AUDITED,
    MetricFormat,
    comparison_title,
    listed,
    metric_title,
    shown_name,
    winners,
)

_HEADINGS: dict[Question, str] = {"rule": "Which rule?", "loss": "Which loss?", "head": "Which output layer?"}
# Candidates that share these differ in nothing but the loss and how it is trained.
_MODEL_OPTIONS = ("encoder", "encoder_options", "head", "head_options", "frozen", "frozen_options")


@dataclass(frozen=True)
class Highlight:
    """The answer of one comparison to one question.

    Attributes:
        question: which.
        heading: the question in words.
        source: the title of the comparison.
        before, after: the number of the usual choice and that of the other; ``after`` is empty if it is no better.
        caption: what the numbers are.
        text: more numbers, and what they depend on.
        chart: one figure.
    """

    question: Question
    heading: str
    source: str
    before: str
    after: str
    caption: str
    text: str
    chart: Chart

    @property
    def numbers(self) -> str:
        """Both numbers, such as ``"17.4% → 12.6%"``."""
        return f"{self.before} → {self.after}" if self.after else self.before

    def to_json(self) -> dict[str, Any]:
        """Return the words and numbers, without the chart."""
        content = asdict(replace(self, chart=Chart("", Axis(""), Axis(""), ())))
        del content["chart"]
        return content


def highlights(document: ComparisonDocument) -> list[Highlight]:
    """The answers of a comparison to its ``questions``, or to all that it can answer, in the order of the questions."""
    found = {"rule": rule_highlight, "loss": loss_highlight, "head": head_highlight}
    asked = document.questions or list(found)
    answers = [found[question](document) for question in found if question in asked]
    return [answer for answer in answers if answer is not None]


def highlights_by_k(document: ComparisonDocument) -> list[list[Highlight]]:
    """For each of `highlights` one entry, or one for each K of the slider if the answer depends on it."""
    found = []
    for answer in highlights(document):
        by_k = [rule_highlight(document, at) or answer for at in range(len(document.ks))]
        found.append(by_k if answer.question == "rule" else [answer])
    return found


def highlight_panel(by_k: Sequence[Highlight]) -> Panel:
    """The charts of a highlight as a panel."""
    first = by_k[0]
    return Panel(
        f"highlight-{first.question}", first.heading, first.caption, {"all": tuple(each.chart for each in by_k)}
    )


def rule_highlight(document: ComparisonDocument, k_index: int | None = None) -> Highlight | None:
    """Sets of K labels each, sets of K on average and conformal sets, all of one model.

    Args:
        document: the comparison.
        k_index: the position of K; by default that of the requested one.

    Returns:
        None if K is not whole.
    """
    name = document.baseline or winners(document)[0].name
    seeds = [run.sets for run in document.candidates[name].runs]
    at = document.ks.index(document.k) if k_index is None else k_index
    k = f"{document.ks[at]:g}"
    top, average = _errors([sets.by_k[at] for sets in seeds])
    if top is None:
        return None
    size = _mean([sets.by_k[at].average_size for sets in seeds])
    text = (
        "The model and its scores are the same. Under the average-K rule, clear rows get short answers and ambiguous "
        f"rows long ones; the average is {size:.2f} labels."
    )
    text += _conformal_sentence(seeds)
    if document.optimum is not None:
        least = document.optimum.sets
        best_top, best_average = _errors([least.by_k[at]])
        text += f" The exact probabilities would miss {_percent(best_top)} and {_percent(best_average)}"
        control = least.error_control
        text += f", and need {control.average_size:.1f} labels." if control is not None else "."
    return Highlight(
        "rule",
        _HEADINGS["rule"],
        comparison_title(document),
        _percent(top),
        _percent(average),
        f"of true labels missed by one {shown_name(name)} model: {k} labels in every answer → {k} on average",
        text,
        _rule_chart(document, seeds, document.ks[at]),
    )


def _errors(results: Sequence[SizeResult]) -> tuple[float | None, float]:
    """Mean errors of the top-K and of the average-K rule."""
    top = [each.top_error for each in results]
    return None if None in top else _mean(top), _mean([each.error for each in results])  # pyright: ignore[reportArgumentType]


def _conformal_sentence(seeds: Sequence[SetFindings]) -> str:
    controls = [sets.error_control for sets in seeds if sets.error_control is not None]
    if not controls:
        return ""
    error, size = (_mean([getattr(control, key) for control in controls]) for key in ("error", "average_size"))
    return (
        f" Conformal sets that may miss {controls[0].alpha:.0%} have {size:.1f} labels on average and miss "
        f"{_percent(error)} of the test labels."
    )


def _rule_chart(document: ComparisonDocument, seeds: Sequence[SetFindings], k: float) -> Chart:
    series = []
    for rule, color in {"top-k": 1, "average-k": 0}.items():
        curves = [sets.curves.errors[rule] for sets in seeds]
        means = tuple(None if None in column else _mean(column) for column in zip(*curves, strict=True))
        title = {"top-k": "the same size for every row", "average-k": "one threshold for all rows"}[rule]
        style = candidate_style(color)
        series.append(Series(title, "line", tuple(seeds[0].curves.sizes), means, style, marked=True))
        if document.optimum is not None:
            curve = document.optimum.sets.curves
            best = replace(style, dash="dot", marker="none")
            line = Series(f"{title}, optimum", "line", tuple(curve.sizes), tuple(curve.errors[rule]), best)
            series.append(line)
    controls = [sets.error_control for sets in seeds if sets.error_control is not None]
    if controls:
        x, y = _mean([each.average_size for each in controls]), _mean([each.error for each in controls])
        note = f"{x:.2f} labels on average, {_percent(y)} missing"
        name = f"conformal, {controls[0].alpha:.0%}"
        series.append(Series(name, "points", (x,), (y,), replace(OPTIMUM, marker="diamond"), notes=(note,)))
    x, y = Axis("labels per answer, on average"), Axis("true labels missing", percent=True)
    return Chart("Error versus set size", x, y, tuple(series), (Reference(f"K = {k:g}", x=k),))


def loss_highlight(document: ComparisonDocument) -> Highlight | None:
    """The best other loss against cross-entropy or BCE in the same model; None without one of each."""
    rivals = _rivals(document)
    if document.baseline is None or not rivals:
        return None
    metric, baseline = document.target, document.candidates[document.baseline]
    wording = MetricFormat(document, metric)
    lower = _is_lower(document, metric)
    best = min(rivals, key=lambda name: (1 if lower else -1) * (document.candidates[name].intervals[metric].mean or 0))
    usual = shown_name(document.baseline)
    sentence = loss_sentence(document) or ""
    text = f"{sentence[:1].upper()}{sentence[1:]} {_seeds(baseline)}"
    better = best in _better(document)
    caption = (
        f"{metric_title(metric)}: {usual} → {shown_name(best)}" if better else f"{metric_title(metric)} of {usual}"
    )
    return Highlight(
        "loss",
        _HEADINGS["loss"],
        comparison_title(document),
        wording.with_unit(baseline.intervals[metric].mean),
        wording.with_unit(document.candidates[best].intervals[metric].mean) if better else "",
        caption,
        text,
        _metric_chart(document, _same_model(document)),
    )


def loss_sentence(document: ComparisonDocument) -> str | None:
    """Whether cross-entropy or BCE is enough, in words; None if the comparison has no other loss beside it."""
    rivals, better = _rivals(document), _better(document)
    if document.baseline is None or not rivals:
        return None
    usual, metric = shown_name(document.baseline), metric_title(document.target)
    if not better:
        reason = f"{listed(rivals, 'and')} {'is' if len(rivals) == 1 else 'are'} not significantly better"
        value = f"{_value(document, document.baseline)} {metric}"
        if len(_same_model(document)) < len(document.candidates):  # Another model may be much better.
            return f"with the same model, {reason} than {usual} ({value})."
        return f"{usual} is enough, with {value}: {reason}."
    gains = listed([f"{shown_name(name)} ({_difference(document, name)})" for name in better], "and")
    sentence = f"better than {usual} ({_value(document, document.baseline)} {metric}): {gains}."
    others = [name for name in _same_model(document) if name != document.baseline and name not in rivals]
    if others:
        values = [f"{shown_name(name)} ({_value(document, name)})" for name in others]
        sentence += f" With the usual loss, but trained otherwise: {listed(values, 'and')}."
    return sentence


def _same_model(document: ComparisonDocument) -> list[str]:
    """The candidates with encoder and head of the baseline, the baseline included."""
    usual = document.candidates[document.baseline or next(iter(document.candidates))].options
    same = [usual.get(key) for key in _MODEL_OPTIONS]
    return [
        name
        for name, candidate in document.candidates.items()
        if [candidate.options.get(key) for key in _MODEL_OPTIONS] == same
    ]


def _rivals(document: ComparisonDocument) -> list[str]:
    """The candidates that differ from the baseline in the loss, and not in the model."""
    if document.baseline is None:
        return []
    usual = document.candidates[document.baseline].options.get("loss")
    return [name for name in _same_model(document) if document.candidates[name].options.get("loss") != usual]


def _better(document: ComparisonDocument) -> list[str]:
    """The rivals that are significantly better than the baseline; with one seed, none."""
    lower, found = _is_lower(document, document.target), []
    for name in _rivals(document):
        difference = document.candidates[name].differences.get(document.target)
        if difference is None or difference.mean is None or difference.half_width is None:
            continue
        if (-difference.mean if lower else difference.mean) > difference.half_width:
            found.append(name)
    return found


def _is_lower(document: ComparisonDocument, metric: str) -> bool:
    return next(each.better for each in document.metrics if each.name == metric) == "lower"


def _value(document: ComparisonDocument, name: str) -> str:
    return MetricFormat(document, document.target).with_unit(document.candidates[name].intervals[document.target].mean)


def _difference(document: ComparisonDocument, name: str) -> str:
    wording, found = MetricFormat(document, document.target), document.candidates[name].differences[document.target]
    width = "" if found.half_width is None else f" ± {wording.value(found.half_width)}"
    return f"{wording.difference(found.mean or 0.0)}{width}{' points' if wording.is_fraction else ''}"


def _seeds(candidate: Candidate) -> str:
    seeds = len(candidate.runs)
    return f"Differences are paired by seed, with 95% intervals over {seeds} seeds." if seeds > 1 else "One seed."


def _metric_chart(document: ComparisonDocument, names: Sequence[str]) -> Chart:
    """The target metric of some candidates, with intervals and the optimum."""
    metric, series, wording = document.target, [], MetricFormat(document, document.target)
    order = list(document.candidates)
    for x, name in enumerate(names):
        interval, style = document.candidates[name].intervals[metric], candidate_style(order.index(name))
        if interval.mean is None:
            continue
        shown, width = shown_name(name), interval.half_width or 0.0
        value = wording.with_unit(interval.mean, interval.half_width)
        at = (float(x),)
        ends = interval.mean - width, interval.mean + width
        series.append(Series(shown, "line", at * 2, ends, style, notes=(value,) * 2, in_legend=False))
        legend = f"{shown}: {value}"
        series.append(Series(legend, "points", at, (interval.mean,), style, notes=(value,), group=shown))
    least = None if document.optimum is None else document.optimum.values.get(metric)
    if least is not None:
        ends = -0.4, len(names) - 0.6
        legend = f"optimum: {wording.with_unit(least)}"
        series.append(Series(legend, "line", ends, (least, least), replace(OPTIMUM, dash="dash")))
    # The legend names them; names below the points would need more room than a narrow page has.
    x = Axis("", scale="names", names=("",) * len(names))
    return Chart(metric_title(metric), x, Axis(metric_title(metric), percent=wording.is_fraction), tuple(series))


def head_highlight(document: ComparisonDocument) -> Highlight | None:
    """Label sets that an output layer can never rank first, and the smallest layer of its loss with fewest of them.

    None if no layer has any, or no other layer is audited.
    """
    audits = {name: each.audit for name, each in document.candidates.items() if each.audit is not None}
    worst = max(audits, key=lambda name: audits[name].unargmaxable, default=None)
    if worst is None or audits[worst].unargmaxable == 0:
        return None
    if document.baseline in audits and audits[document.baseline].unargmaxable:
        worst = document.baseline
    loss = document.candidates[worst].options.get("loss")
    others = [name for name in audits if name != worst and document.candidates[name].options.get("loss") == loss]
    if not others:
        return None
    best = min(others, key=lambda name: (audits[name].unargmaxable, audits[name].parameters or 0))
    act = AUDITED[audits[worst].mode]
    return Highlight(
        "head",
        _HEADINGS["head"],
        comparison_title(document),
        f"{audits[worst].unargmaxable:,}",
        f"{audits[best].unargmaxable:,}",
        f"of {audits[worst].sets:,} label sets in the test rows can never be {act}, whatever the input: "
        f"{shown_name(worst)} → {shown_name(best)}",
        _head_text(document, audits, worst, best),
        _head_chart(document, audits),
    )


def _head_text(document: ComparisonDocument, audits: dict[str, AuditSummary], worst: str, best: str) -> str:
    """What the guarantee does to the metric, and what a larger layer achieves."""
    metric = metric_title(document.target)
    text = f"The {metric} goes from {_value(document, worst)} to {_value(document, best)}"
    small, sizes = _parameters(audits[best]), {name: _parameters(audit) for name, audit in audits.items()}
    sign = 1 if _is_lower(document, document.target) else -1

    def rank(name: str) -> float:
        return sign * (document.candidates[name].intervals[document.target].mean or 0.0)

    affordable = [name for name in audits if sizes[name] <= small and audits[name].unargmaxable == 0]
    leader = min(affordable, key=rank, default=best)
    text += "." if leader == best else f"; {shown_name(leader)} has {_value(document, leader)}."
    wider = [name for name in audits if small and sizes[name] > 1.5 * small and audits[name].unargmaxable == 0]
    if wider:
        values = [f"{shown_name(name)}, {_value(document, name)}" for name in wider]
        times = f"{sizes[wider[0]] / small:.1f}"
        text += f" Layers of {times} times the parameters have none, either: {'; '.join(values)}."
        if min(map(rank, wider)) <= rank(leader):
            text += " The constrained layer pays when its width has to be small; otherwise a wide one is enough."
    return text


def _parameters(audit: AuditSummary) -> int:
    return audit.parameters or 0


def _head_chart(document: ComparisonDocument, audits: dict[str, AuditSummary]) -> Chart:
    """The target metric by the parameters of the output layer, with the number of impossible sets in the legend."""
    wording, order = MetricFormat(document, document.target), list(document.candidates)
    known = all(audit.parameters is not None for audit in audits.values())
    series = []
    for name, audit in audits.items():
        interval = document.candidates[name].intervals[document.target]
        size = _parameters(audit) if known else audit.features
        note = f"{wording.with_unit(interval.mean, interval.half_width)}, {audit.unargmaxable:,} impossible sets"
        legend = f"{shown_name(name)}: {audit.unargmaxable:,} impossible, {wording.with_unit(interval.mean)}"
        style = candidate_style(order.index(name))
        series.append(Series(legend, "points", (float(size),), (interval.mean,), style, notes=(note,)))
    x = Axis("learned parameters of the output layer" if known else "features of the output layer", whole=True)
    return Chart("Output layers", x, Axis(metric_title(document.target), percent=wording.is_fraction), tuple(series))


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else format_percent(fraction, 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

"""Each candidate's validation score by learning rate: how well it is tuned, and how much a wrong rate costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from shortlist.comparison_document import ComparisonDocument, Trial, Tuning
from shortlist.formatting import format_count, format_percent
from shortlist.report.chart import Axis, Chart, Panel, Series, candidate_style
from shortlist.report.comparison.winners import listed, metric_title, shown_name

_LEVELS = ("all rates", "better half", "last two")
_POINT = 0.01
_CHOSEN_SIZE = 15.0

Tuned = tuple[int, str, Tuning]
"""The index of a candidate, its shown name, and how it was tuned."""


class GoodRange(NamedTuple):
    """The rates around the best whose score is within one point of it; open where the grid ends."""

    low: float
    high: float
    open_low: bool
    open_high: bool

    def __str__(self) -> str:
        if self.low == self.high:
            ends = {(True, False): " or less", (False, True): " or more", (True, True): ", the only one tried"}
            return f"{self.low:g}{ends.get((self.open_low, self.open_high), ' alone')}"
        low = f"{self.low:g}{' or less' if self.open_low else ''}"
        high = f"{self.high:g}{' or more' if self.open_high else ''}"
        return f"{low} to {high}, a factor of {self.high / self.low:.0f}"


def good_range(tuning: Tuning) -> GoodRange | None:
    """The range of rates in which the first trials are within one point of the best of them; None if all diverge.

    Example:
        >>> trials = [Trial(rate, 0.0, 500, 1, score) for rate, score in ((0.01, 0.7), (0.03, 0.79), (0.1, 0.795))]
        >>> str(good_range(Tuning("top1_accuracy", 0.1, 0.0, trials)))
        '0.03 to 0.1 or more, a factor of 3'
    """
    by_rate = _best_by_rate(_levels(tuning)[0])
    rates, scores = list(by_rate), [trial.score for trial in by_rate.values()]
    best = max((score for score in scores if score is not None), default=None)
    if best is None:
        return None
    good = [score is not None and score >= best - _POINT for score in scores]
    first = last = scores.index(best)
    while first > 0 and good[first - 1]:
        first -= 1
    while last < len(rates) - 1 and good[last + 1]:
        last += 1
    return GoodRange(rates[first], rates[last], open_low=first == 0, open_high=last == len(rates) - 1)


def tuning_sentence(document: ComparisonDocument) -> str:
    """The learning rates that were found, in words; empty if all were given."""
    tuned = {name: each.tuning for name, each in document.candidates.items() if each.tuning is not None}
    if not tuned:
        return ""
    rates = listed([f"{shown_name(name)} {found.learning_rate:g}" for name, found in tuned.items()])
    trials = max(len(_levels(found)[0]) for found in tuned.values())
    return f"Learning rates, found on validation rows by {format_count(trials, 'trial')} each: {rates}."


def rate_panel(document: ComparisonDocument) -> Panel | None:
    """Score by learning rate in trials of each length; None if no rate was tuned."""
    tuned = [
        (index, shown_name(name), candidate.tuning)
        for index, (name, candidate) in enumerate(document.candidates.items())
        if candidate.tuning is not None
    ]
    if not tuned:
        return None
    monitors = {tuning.monitor for _, _, tuning in tuned}
    metric = metric_title(monitors.pop()) if len(monitors) == 1 else "monitored metric"
    scores = [trial.score for _, _, tuning in tuned for trial in tuning.trials if trial.score is not None]
    percent = all(0 <= score <= 1 for score in scores)
    y = Axis(metric, percent=percent)
    charts = {
        choice: (chart,) for level, choice in enumerate(_LEVELS) if (chart := _rate_chart(tuned, level, y)) is not None
    }
    return Panel("learning-rates", "Learning rates", _about(tuned, metric), charts, choose="Trials", wide=True)


def _rate_chart(tuned: Sequence[Tuned], level: int, y: Axis) -> Chart | None:
    """The chart of trials of one length; None if there are none."""
    series, lengths = [], []
    for index, name, tuning in tuned:
        levels = _levels(tuning)
        if level >= len(levels):
            continue
        style, best = candidate_style(index), _best_by_rate(levels[level])
        lengths.append(_length(levels[level][0]))
        notes = {rate: _note(trial, y) for rate, trial in best.items()}
        scores = tuple(trial.score for trial in best.values())
        series.append(Series(name, "line", tuple(best), scores, style, notes=tuple(notes.values()), marked=True))
        chosen = best.get(tuning.learning_rate)
        if chosen is not None and chosen.score is not None:
            x, note = chosen.learning_rate, f"chosen: {notes[chosen.learning_rate]}"
            look = {"sizes": (_CHOSEN_SIZE,), "notes": (note,), "in_legend": False}
            series.append(Series(name, "points", (x,), (chosen.score,), style, **look))
    if not series:
        return None
    notes = [f"Each trial: {listed(list(dict.fromkeys(lengths)), 'or')}."]
    notes += [
        f"{name} diverges at {trial.learning_rate:g}."
        for _, name, tuning in tuned
        if level == 0
        for trial in _best_by_rate(_levels(tuning)[0]).values()
        if trial.score is None
    ]
    y = replace(y, limits=_limits([score for each in series for score in each.y if score is not None]))
    title = f"Score by learning rate, {_LEVELS[level]}"
    return Chart(title, Axis("learning rate", scale="log"), y, tuple(series), note=" ".join(notes))


def _about(tuned: Sequence[Tuned], metric: str) -> str:
    ranges = [f"{name}: {good_range(tuning) or 'none'}" for _, name, tuning in tuned]
    return (
        f"The {metric} on the validation rows in short trainings with each learning rate, at the better weight decay; "
        "test rows were not used. The large marker is the rate that was chosen, by the longest trials. A loss whose "
        "line stays near its top forgives a badly chosen rate; longer runs prefer somewhat lower rates than these. "
        "Rates within one point of the best: "
        f"{'; '.join(ranges)}."
    )


def _levels(tuning: Tuning) -> list[list[Trial]]:
    """The trials by length, in the order in which they ran."""
    levels: dict[tuple[int, int], list[Trial]] = {}
    for trial in tuning.trials:
        levels.setdefault((trial.rows, trial.epochs), []).append(trial)
    return list(levels.values())


def _best_by_rate(trials: Sequence[Trial]) -> dict[float, Trial]:
    """The best trial of each rate, over weight decays, by ascending rate."""
    best: dict[float, Trial] = {}
    for trial in trials:
        other = best.setdefault(trial.learning_rate, trial)
        if trial.score is not None and (other.score is None or trial.score > other.score):
            best[trial.learning_rate] = trial
    return dict(sorted(best.items()))


def _length(trial: Trial) -> str:
    return f"{format_count(trial.epochs, 'epoch')} of {format_count(trial.rows, 'row')}"


def _note(trial: Trial, y: Axis) -> str:
    if trial.score is None:
        return f"{trial.learning_rate:g}: diverges"
    score = format_percent(trial.score, 1) if y.percent else f"{trial.score:.4g}"
    return f"{trial.learning_rate:g}, weight decay {trial.weight_decay:g}: {score} after {_length(trial)}"


def _limits(scores: Sequence[float]) -> tuple[float, float] | None:
    """Around the scores: an axis from 0 would hide the differences."""
    if not scores or min(scores) == max(scores):
        return None
    room = 0.08 * (max(scores) - min(scores))
    return min(scores) - room, max(scores) + room

"""The winner of a comparison in words: metric names and values, the best candidate, ties, the gap to the optimum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shortlist.comparison_document import AuditSummary, ComparisonDocument, MeanInterval

_TITLES = {"map": "mean average precision", "average_size": "average size"}
_SHORT = {"ndcg": "nDCG", "f1": "F1"}
AUDITED = {"sign": "output", "top-k": "ranked first"}
"""What an audit checks for a label set, by its mode."""


def shown_name(name: str) -> str:
    r"""A user's name in one line; an empty one becomes ``"(no name)"``.

    Example:
        >>> shown_name(" red\n rose "), shown_name("")
        ('red rose', '(no name)')
    """
    return " ".join(name.split()) or "(no name)"


def comparison_title(document: ComparisonDocument) -> str:
    """The name of a comparison: the user's, or that of its data."""
    return shown_name(document.data.name if document.title is None else document.title)


def listed(names: Sequence[str], conjunction: str = "") -> str:
    """A list of names in words, separated by semicolons if one of them contains a comma.

    Args:
        names: as the user wrote them.
        conjunction: the word before the last name, such as ``"and"``.

    Example:
        >>> listed(["bce", "lml", "rml"], "and"), listed(["bce, wide", "lml"]), listed(["bce, wide", "lml"], "and")
        ('bce, lml and rml', 'bce, wide; lml', 'bce, wide; and lml')
    """
    shown = [shown_name(name) for name in names]
    commas = any("," in name for name in shown)
    separator = "; " if commas else ", "
    if not conjunction or len(shown) < 2:
        return separator.join(shown)
    return f"{separator.join(shown[:-1])}{';' if commas else ''} {conjunction} {shown[-1]}"


def metric_title(name: str) -> str:
    """The name of a metric in a sentence.

    Example:
        >>> [metric_title(name) for name in ("average2.5_error", "top1_error", "ndcg@5", "map", "my_metric")]
        ['average-2.5 error', 'top-1 error', 'nDCG@5', 'mean average precision', 'my metric']
    """
    if name in _TITLES:
        return _TITLES[name]
    match = re.fullmatch(r"(average|top)([0-9.]+)_(error|accuracy)", name)
    if match is not None:
        return f"{match[1]}-{match[2]} {match[3]}"
    family, at, size = name.partition("@")
    return shown_name(f"{_SHORT.get(family, family)}{at}{size}".replace("_", " "))


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """The mean over seeds of the values that are known; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class MetricFormat:
    """Formats the values of one metric, with the same number of decimals for all candidates.

    Fractions are written as percentages, other values with about three digits. Percentages have one decimal, or two if
    an interval would otherwise round to 0.

    Args:
        document: the comparison.
        name: the metric.

    Attributes:
        is_fraction: whether values are written as percentages.
        unit: ``"%"`` for fractions, else empty.
    """

    def __init__(self, document: ComparisonDocument, name: str) -> None:
        intervals = [candidate.intervals[name] for candidate in document.candidates.values()]
        values = [interval.mean for interval in intervals]
        if document.optimum is not None:
            values.append(document.optimum.values.get(name))
        known = [value for value in values if value is not None]
        self.is_fraction = name != "average_size" and all(0 <= value <= 1 for value in known)
        self.unit = "%" if self.is_fraction else ""
        if self.is_fraction:
            widths = [interval.half_width for interval in intervals if interval.half_width]
            self._decimals = 2 if widths and min(widths) < 0.0005 else 1
        else:
            largest = max(map(abs, known), default=0.0)
            self._decimals = 2 if largest < 10 else 1 if largest < 100 else 0

    def value(self, value: float | None) -> str:
        """A value without its unit; a dash if there is none."""
        return "–" if value is None else f"{100 * value if self.is_fraction else value:.{self._decimals}f}"

    def interval(self, mean: float | None, half_width: float | None) -> str:
        """A mean and the half-width of its interval, without the unit."""
        return self.value(mean) + ("" if half_width is None or mean is None else f" ± {self.value(half_width)}")

    def with_unit(self, mean: float | None, half_width: float | None = None) -> str:
        """A mean, the half-width of its interval, and the unit."""
        return f"{self.interval(mean, half_width)}{self.unit}"

    def difference(self, difference: float) -> str:
        """A signed difference; in percentage points for fractions."""
        return ("+" if difference >= 0 else "−") + self.value(abs(difference))


@dataclass(frozen=True)
class Winner:
    """The best candidate by one metric.

    Args:
        metric: its name in the document.
        better: ``"lower"`` or ``"higher"``.
        name: the best candidate.
        interval: its mean over seeds.
        ties: the candidates that do not differ significantly from it.
        optimum: the value that the true probabilities achieve; None if unknown.
        gap: how much worse than the optimum the winner is; negative if it happens to be better on these rows.
    """

    metric: str
    better: str | None
    name: str
    interval: MeanInterval
    ties: tuple[str, ...]
    optimum: float | None
    gap: float | None


def winners(document: ComparisonDocument) -> list[Winner]:
    """The winner by each metric that has a better direction; the target metric comes first."""
    found = []
    for metric in sorted(document.metrics, key=lambda metric: metric.name != document.target):
        names = document.best.get(metric.name)
        if not names:
            continue
        interval = document.candidates[names[0]].intervals[metric.name]
        optimum = None if document.optimum is None else document.optimum.values.get(metric.name)
        gap = None
        if optimum is not None and interval.mean is not None:
            gap = (interval.mean - optimum) * (-1 if metric.better == "higher" else 1)
        found.append(Winner(metric.name, metric.better, names[0], interval, tuple(names[1:]), optimum, gap))
    return found


def main_metrics(document: ComparisonDocument) -> list[str]:
    """The metrics of a short table: the target, those without a size, and those at the requested K."""
    requested = f"@{max(1, round(document.k))}"
    names = [metric.name for metric in document.metrics]
    chosen = [name for name in names if name == document.target or "@" not in name or name.endswith(requested)]
    # With fewer labels than K, no metric has that size.
    return chosen if any("@" in name for name in chosen) or not any("@" in name for name in names) else names


def summary_sentence(document: ComparisonDocument) -> str:
    """The winner by the target metric, in words."""
    best = winners(document)[0]
    wording = MetricFormat(document, best.metric)
    seeds = len(document.candidates[best.name].runs)
    over = f" over {seeds} seeds" if seeds > 1 else " with one seed"
    gap = gap_words(best, wording, "the optimum of ")
    value = wording.with_unit(best.interval.mean, best.interval.half_width) + over + (f", {gap}" if gap else "")
    title = metric_title(best.metric)
    if len(document.candidates) == 1:
        return f"The {title} of {shown_name(best.name)} is {value}."
    superlative = {"lower": "lowest", "higher": "highest"}.get(best.better or "", "best")
    sentences = [f"{shown_name(best.name)} has the {superlative} {title}: {value}."]
    if best.ties:
        sentences.append(f"It does not differ significantly from {listed(best.ties, 'and')}.")
    elif seeds > 1:
        sentences.append("Every other candidate is significantly worse (95% intervals, paired by seed).")
    if seeds == 1:
        sentences.append("A single seed cannot separate skill from luck: use --seeds 5.")
    return " ".join(sentences)


def summary_of(document: ComparisonDocument) -> dict[str, Any]:
    """The winners and the audits of a comparison as plain JSON."""
    audits = {name: candidate.audit for name, candidate in document.candidates.items()}
    keys = ("mode", "sets", "argmaxable", "unargmaxable", "undecided", "labels", "features")
    return {
        "data": document.data.name,
        "k": document.k,
        "target": document.target,
        "winners": [
            {
                "figure": winner.metric,
                "better": winner.better,
                "name": winner.name,
                **asdict(winner.interval),
                "ties": list(winner.ties),
                "optimum": winner.optimum,
                "gap": winner.gap,
            }
            for winner in winners(document)
        ],
        "audits": {
            name: {key: getattr(audit, key) for key in keys} for name, audit in audits.items() if audit is not None
        },
    }


def gap_words(winner: Winner, wording: MetricFormat, optimum_words: str = "") -> str:
    """The distance to the optimum, such as ``"1.7 points above 10.3%"``; empty if the optimum is unknown."""
    if winner.optimum is None or winner.interval.mean is None:
        return ""
    side = "above" if winner.interval.mean >= winner.optimum else "below"
    distance = wording.value(abs(winner.interval.mean - winner.optimum))
    unit = " points" if wording.is_fraction else ""
    return f"{distance}{unit} {side} {optimum_words}{wording.with_unit(winner.optimum)}"


def audit_sentence(audit: AuditSummary) -> str:
    """What a layer can never output, in words; see `AUDITED`."""
    act = f"be {AUDITED[audit.mode]} by this layer"
    rest = f"; {audit.undecided:,} could not be decided" if audit.undecided else ""
    total = f"{audit.sets:,} distinct label sets in the test rows"
    if audit.unargmaxable:
        return f"{audit.unargmaxable:,} of {total} can never {act} for any input{rest}."
    some = f"{audit.sets - audit.undecided:,} of the" if audit.undecided else "All"
    return f"{some} {total} can {act}{rest}."

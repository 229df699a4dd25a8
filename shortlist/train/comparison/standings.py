"""Who is best in the target of a comparison, at every K that a report can show, and what cannot be told from it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from shortlist.comparison_document import MeanInterval, Standing, Tie
from shortlist.train.comparison.candidates import Comparison
from shortlist.train.comparison.intervals import Interval, best_candidates, better, seeds_to_tell

_ERROR_AT_K = re.compile(r"(average|top)[0-9.]+_error")
_ERROR_FIELDS = {"average": "error", "top": "top_error"}


def standings(comparison: Comparison, target: str, k: float, ks: Sequence[float]) -> list[Standing]:
    """Rank the candidates by the target.

    Args:
        comparison: the runs.
        target: the deciding metric.
        k, ks: the requested size, and all that were evaluated.

    Returns:
        One entry for each of ``ks`` if the target is the error of a rule at ``k``, otherwise one in all.
    """
    match = _ERROR_AT_K.fullmatch(target)
    if match is None or not target.startswith(f"{match[1]}{k:g}_"):
        return [_standing(_values(comparison, target), target)]
    found = []
    for at, size in enumerate(ks):
        if size == k:
            found.append(_standing(_values(comparison, target), target))
            continue
        values = {
            name: {seed: getattr(run.sets.by_k[at], _ERROR_FIELDS[match[1]]) for seed, run in runs.items()}
            for name, runs in comparison.details.items()
        }
        found.append(_standing(values, f"{match[1]}{size:g}_error"))
    return found


def mean_interval(found: Interval) -> MeanInterval:
    """Return an interval as it stands in a document, with None for NaN."""
    return MeanInterval(found.mean, None if math.isnan(found.half_width) else found.half_width)


def _values(comparison: Comparison, metric: str) -> dict[str, dict[int, float]]:
    return {name: {seed: run[metric] for seed, run in runs.items()} for name, runs in comparison.runs.items()}


def _standing(values: Mapping[str, Mapping[int, float]], metric: str) -> Standing:
    best, *others = best_candidates(values, lower=better(metric) == "lower")
    ties = []
    for name in others:
        gap = Interval.of([values[name][seed] - values[best][seed] for seed in values[best]])
        ties.append(Tie(name, mean_interval(gap), seeds_to_tell(gap, len(values[best]))))
    return Standing(metric, best, mean_interval(Interval.of(list(values[best].values()))), ties)

"""Several ways to train, each with several seeds, on the same data: a table with intervals, and what wins."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist.data import Dataset
from shortlist.files import read_document, replacing
from shortlist.train.evaluation import evaluate
from shortlist.train.fit import fit, make_run, run_identity
from shortlist.train.options import FitOptions
from shortlist.train.scores import refuse_missing

_FORMAT = "shortlist comparison run"
_VERSION = 1

# Two-sided 95% quantiles of Student's law for 1, 2, ... degrees of freedom; beyond, a series about the normal law.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_LOWER_IS_BETTER = "error"
_NO_AIM = "average_size"  # Neither more nor less of it is better.


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95% interval; NaN with one seed, which tells nothing of it."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Student's interval of independent values.

        Example:
            >>> found = Interval.of([1.0, 2.0, 3.0])
            >>> found.mean, round(found.half_width, 3)
            (2.0, 2.484)
        """
        count = len(values)
        mean = math.fsum(values) / count
        if count < 2:
            return cls(mean, math.nan)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        quantile = _STUDENT[count - 2] if count - 2 < len(_STUDENT) else 1.95996 + 2.3723 / (count - 1)
        return cls(mean, quantile * deviation / math.sqrt(count))


@dataclass(frozen=True, eq=False)
class Comparison:
    """The figures of every run: ``runs[name][seed]`` is a dict of them."""

    runs: dict[str, dict[int, dict[str, float]]]

    def figures(self) -> list[str]:
        """The names of the figures."""
        return sorted({figure for seeds in self.runs.values() for values in seeds.values() for figure in values})

    def interval(self, name: str, figure: str) -> Interval:
        """Mean and interval of one figure of one way to train."""
        return Interval.of([values[figure] for values in self.runs[name].values()])

    def best(self, figure: str) -> list[str]:
        """The ways to train whose figure cannot be told from the best, the best first.

        Those whose interval of the difference to the best, paired by seed, holds 0; with one seed, the best alone.
        """
        sign = 1 if figure.endswith(_LOWER_IS_BETTER) else -1
        if figure not in self.figures() or figure == _NO_AIM:
            known = ", ".join(name for name in self.figures() if name != _NO_AIM)
            raise ValueError(f"`figure` must be one of {known}; got {figure!r}.")
        order = sorted(self.runs, key=lambda name: sign * self.interval(name, figure).mean)
        first = self.runs[order[0]]
        ties = [order[0]]
        for name in order[1:]:
            seeds = [seed for seed in first if seed in self.runs[name]]
            gap = Interval.of([self.runs[name][seed][figure] - first[seed][figure] for seed in seeds])
            if gap.half_width >= abs(gap.mean):  # False for NaN.
                ties.append(name)
        return ties


def compare(
    dataset: Dataset,
    candidates: Mapping[str, FitOptions],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path | None = None,
    part: str = "test",
    progress: Callable[[int, int, str], object] | None = None,
) -> Comparison:
    """Train every candidate with every seed and evaluate it.

    Args:
        dataset: with parts ``train``, ``val`` and ``part``.
        candidates: options by name; their seeds are replaced.
        seeds: each candidate is trained with each, so that differences can be paired.
        folder: where finished runs are kept; a comparison with the same folder does not train them again, and goes on
            in the middle of the one that was interrupted.
        part: what to evaluate on.
        progress: called with the number of finished runs, of all runs, and the name of the next one.

    Returns:
        The figures of all runs.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, compare
        >>> data = AmbiguousWorld().sample(2000, seed=0)
        >>> ways = {loss: FitOptions(loss=loss, epochs=1) for loss in ("cross_entropy", "lml")}
        >>> comparison = compare(data, ways, seeds=[0])
        >>> sorted(comparison.runs), comparison.figures()
        (['cross_entropy', 'lml'], ['average3_error', 'average_size', 'top1_error', 'top3_error'])
    """
    if not candidates or not seeds:
        raise ValueError("`candidates` and `seeds` must not be empty.")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must differ; got {list(seeds)}.")
    refuse_missing(dataset, (part,))
    for options in candidates.values():  # All of them before the work, which may take hours.
        make_run(dataset, options)
    todo = [(name, seed) for seed in seeds for name in candidates]
    runs: dict[str, dict[int, dict[str, float]]] = {name: {} for name in candidates}
    for done, (name, seed) in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), name)
        place = None if folder is None else Path(folder) / f"{name}-{seed}"
        runs[name][seed] = _run(dataset, replace(candidates[name], seed=seed), place, part)
    if progress is not None:
        progress(len(todo), len(todo), "")
    return Comparison(runs)


def _run(dataset: Dataset, options: FitOptions, place: Path | None, part: str) -> dict[str, float]:
    asked = {**run_identity(dataset, options), "part": part}
    result = None if place is None else place / "result.json"
    if result is not None and result.is_file():
        document = read_document(result, kind=_FORMAT, version=_VERSION)
        if document.get("asked") != asked:
            raise ValueError(f"`{result}` is of other data or options; choose another folder.")
        values = document.get("values")
        if not isinstance(values, dict) or not all(isinstance(value, int | float) for value in values.values()):
            raise ValueError(f"`{result}` is damaged: it holds no figures.")
        return values
    values = evaluate(fit(dataset, options, folder=place), dataset, part=part).values
    if result is not None:
        with replacing(result) as partial:
            content = {"format": _FORMAT, "version": _VERSION, "asked": asked, "values": values}
            partial.write_text(json.dumps(content, indent=1))
    return values

"""Find the learning rate and the weight decay of a loss on validation rows, by successive halving.

Every loss gets the same number of trials on the same rows. Three quarters of the rates or more form a fixed grid around
the rate of the recipe. The others are chosen one after the other: beyond the grid while the best rate is at its edge,
else next to the best. The first trials take an eighth of a full run, or less if there are many rows. Half of the rates
are tried again at a quarter of the length of a run. The best of these meets the recipe's own rate at full length, so
that on small data tuning cannot lose on the validation rows. Twelve trials take as long as four full runs.

Short runs prefer higher rates than long ones: of the rates above the best none survives while there is one below.

References:
    Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shortlist.comparison_document import Trial, Tuning
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.errors import InputError
from shortlist.files import read_document, replacing
from shortlist.fingerprint import check_same
from shortlist.fit_options import RECIPES, TRIALS, FitOptions, SettledOptions
from shortlist.progress import progress_bar
from shortlist.train.checkpoints import run_fingerprint
from shortlist.train.classifier import DivergedError
from shortlist.train.fit import Progress, Report, fit, make_run, monitor_of
from shortlist.train.inputs import prepare_inputs, settle
from shortlist.typed_json import Record, decode, encode

_FORMAT = "shortlist tuning"
_VERSION = 1
# Of each round, the share of a full run that a trial takes, and how many rows it may read in all its epochs.
_LENGTHS = ((1 / 8, 10_000), (1 / 4, 20_000), (1, 40_000))
_MOST_VAL_ROWS = 5_000
_FEWEST_ROWS = 64
# Fewer trials than twice this try one weight decay only.
_FEWEST_RATES = 3


class Tuned(NamedTuple):
    """The options with the learning rate and the weight decay that were found, and the trials that found them."""

    options: SettledOptions
    tuning: Tuning


def tune(
    dataset: Dataset,
    options: FitOptions | None = None,
    *,
    trials: int = TRIALS,
    decays: Sequence[float] | None = None,
    file: str | Path | None = None,
    progress: Progress = False,
    data_name: str = "dataset",
) -> Tuned:
    """Find the learning rate and, unless it is given, the weight decay on the part ``val``.

    Args:
        dataset: with parts ``train`` and ``val``; others are not read. Of many rows, a random subset is used, the same
            for all options with the same seed.
        options: how to train; its ``learning_rate`` is the center of the grid.
        trials: how many pairs of rate and decay to try; below 6 only one decay.
        decays: the weight decays to try; by default that of ``options``, or those of the recipe if it is None.
        file: where finished trials are kept; a search with the same file does not repeat them.
        progress: whether to show a progress bar; or a function that is called with the fraction that is done.
        data_name: what messages call the dataset, such as its file.

    Returns:
        The options and the trials.

    Raises:
        InputError: if data or options do not fit, the file holds another search, or all trials diverge.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, tune
        >>> data = AmbiguousWorld().sample(400, seed=0)
        >>> found = tune(data, FitOptions(epochs=2, recipe="paper"), trials=3)
        >>> sorted({trial.learning_rate for trial in found.tuning.trials})
        [0.03, 0.1, 0.3]
        >>> found.options.learning_rate == found.tuning.learning_rate
        True
    """
    if trials < 1:
        raise InputError(f"`trials` must be at least 1; got {trials}.")
    options = options or FitOptions()
    decays = decays or tried_decays(options)
    settled = settle(options, dataset)
    _, plan = make_run(dataset, settled, data_name=data_name)
    kept = KeptTrials.of_search(dataset, settled, trials, decays, file)
    # Text is hashed and frozen features are computed once for all trials.
    dataset = prepare_inputs(dataset, plan, progress=progress is True)
    with progress_bar("tuning the learning rate", 1.0, shown=progress is True) as bar:
        search = _Search(dataset, settled, kept, progress if callable(progress) else bar.update)
        best = search.run(decays[: max(1, trials // _FEWEST_RATES)], trials)
    found = {"learning_rate": best.learning_rate, "weight_decay": best.weight_decay}
    return Tuned(replace(settled, **found), Tuning(monitor_of(dataset, settled), **found, trials=search.trials))


def tried_decays(options: FitOptions) -> tuple[float, ...]:
    """Return the weight decays to try: the given one, or else those of the recipe."""
    return RECIPES[options.recipe].decays if options.weight_decay is None else (options.weight_decay,)


class _Point(NamedTuple):
    """A learning rate, as steps of the grid from that of the options, and a weight decay."""

    step: float
    decay: float


class _Rung(NamedTuple):
    """The length of a trial."""

    rows: int
    epochs: int


class _Search:
    """The trials of one loss, in order.

    Args:
        dataset: with the inputs that the model takes.
        options: of the run.
        kept: finished trials.
        progress: called with the fraction of the search that is done.
    """

    def __init__(self, dataset: Dataset, options: SettledOptions, kept: KeptTrials, progress: Report) -> None:
        # Inputs are prepared, and short trials need no further processes.
        plain: dict[str, Any] = {"frozen": "", "frozen_options": {}, "processes": 1, "nodes": 1, "strategy": "ddp"}
        self.dataset, self.options = dataset, replace(options, **plain)
        self.kept, self.progress = kept, progress
        self.trials: list[Trial] = []
        self._done = self._total = 0.0

    def run(self, decays: Sequence[float], count: int) -> Trial:
        """Try ``count`` points, half of the rates at greater length, and the best against the recipe's own at the end.

        Returns:
            The better one of the last trials.
        """
        rows = len(self.dataset.part_rows("train"))
        rungs, rates = _rungs(rows, self.options.epochs), count // len(decays)
        _, half, two = _trial_counts(rates, len(decays))
        self._total = rows_to_train(rows, self.options.epochs, count, len(decays))
        data, results = self._rows_of(rungs[0]), dict[_Point, Trial]()
        steps = _first_steps(rates)
        for index in range(rates):
            step = steps[index] if index < len(steps) else _next_step(results)
            for decay in decays:
                results[_Point(step, decay)] = self._trial(data, _Point(step, decay), rungs[0])
        data = self._rows_of(rungs[1])
        results = {point: self._trial(data, point, rungs[1]) for point in _survivors(results)[:half]}
        data, ranked = self._rows_of(rungs[2]), _survivors(results)
        rivals = [_Point(0, decays[0]), *ranked[1:]] if ranked[0] != (0, decays[0]) else ranked[1:]
        results = {point: self._trial(data, point, rungs[2]) for point in [ranked[0], *rivals][:two]}
        best = results[_ranked(results)[0]]
        if best.score is None:
            rates_tried = ", ".join(f"{rate:g}" for rate in sorted({trial.learning_rate for trial in self.trials}))
            raise InputError(f"`learning_rate`: the loss diverges at all rates that were tried, {rates_tried}.")
        self.progress(1.0)
        return best

    def _trial(self, data: Dataset, point: _Point, rung: _Rung) -> Trial:
        """Train with a point, unless the trial is kept from before."""
        rate, cost = _rate(self.options.learning_rate, point.step), rung.rows * rung.epochs
        found = self.kept.find(rate, point.decay, rung)
        if found is None:
            given: dict[str, Any] = {"learning_rate": rate, "weight_decay": point.decay, "epochs": rung.epochs}

            def report(fraction: float) -> None:
                self.progress((self._done + fraction * cost) / self._total)

            try:
                fitted = fit(data, replace(self.options, **given), progress=report)
                score = fitted.history[fitted.best_epoch][fitted.monitor]
            except DivergedError:
                score = None
            found = Trial(rate, point.decay, rung.rows, rung.epochs, score)
            self.kept.add(found)
        self._done += cost
        self.progress(self._done / self._total)
        self.trials.append(found)
        return found

    def _rows_of(self, rung: _Rung) -> Dataset:
        """Return training rows for a rung, which contain those of the rung before, and validation rows."""
        chosen = []
        for part, count in (("train", rung.rows), ("val", _MOST_VAL_ROWS)):
            rows = self.dataset.part_rows(part)
            order = torch.from_numpy(Draws(self.options.seed, f"{part} rows of trials").order(len(rows)))
            chosen.append(rows[order[:count]].sort().values)
        return self.dataset.subset(torch.cat(chosen))


def _rungs(rows: int, epochs: int) -> list[_Rung]:
    """Return the lengths of trials; the last are full runs, unless these read too many rows.

    Example:
        >>> _rungs(1_000, 20)
        [_Rung(rows=1000, epochs=2), _Rung(rows=1000, epochs=5), _Rung(rows=1000, epochs=20)]
        >>> _rungs(20_000, 20)
        [_Rung(rows=10000, epochs=1), _Rung(rows=20000, epochs=1), _Rung(rows=20000, epochs=2)]
    """
    passes = [min(share * rows * epochs, most) for share, most in _LENGTHS]
    return [
        _Rung(rows, round(each / rows)) if each >= rows else _Rung(max(int(each), min(rows, _FEWEST_ROWS)), 1)
        for each in passes
    ]


def _trial_counts(rates: int, decays: int) -> tuple[int, int, int]:
    """Return the number of trials of each length."""
    two = min(rates, 2)
    return rates * decays, max(two, (rates + 1) // 2), two


def rows_to_train(rows: int, epochs: int, trials: int, decays: int) -> int:
    """Return how many rows the trials of a search read, each as often as they read it.

    Args:
        rows: of the part ``train``.
        epochs: of a full run.
        trials: see `tune`.
        decays: how many weight decays are to be tried.

    Example:
        >>> rows_to_train(1_000, 20, 12, 2)
        79000
    """
    decays = min(decays, max(1, trials // _FEWEST_RATES))
    counts = _trial_counts(trials // decays, decays)
    lengths = _rungs(rows, epochs)
    return sum(count * rung.rows * rung.epochs for count, rung in zip(counts, lengths, strict=True))


def _first_steps(rates: int) -> list[int]:
    """Return the steps of the fixed grid, three quarters of all rates or more, around 0.

    Example:
        >>> _first_steps(6), _first_steps(3), _first_steps(1)
        ([-2, -1, 0, 1, 2], [-1, 0, 1], [0])
    """
    fixed = rates - rates // 4
    return list(range(-(fixed // 2), fixed - fixed // 2))


def _next_step(results: Mapping[_Point, Trial]) -> float:
    """Return the step beyond the edge if the best is at the edge, else halfway to the farther or better neighbor.

    Example:
        >>> def results(*scores):
        ...     return {_Point(step, 0.0): Trial(1.0, 0.0, 1, 1, score) for step, score in enumerate(scores)}
        >>> _next_step(results(0.1, 0.2, 0.3)), _next_step(results(0.1, 0.4, 0.3)), _next_step(results(None, None))
        (3, 1.5, -1)
    """
    ranked = list(dict.fromkeys(point.step for point in _ranked(results)))
    low, high, best = min(ranked), max(ranked), ranked[0]
    if best == low or all(trial.score is None for trial in results.values()):
        return low - 1
    if best == high:
        return high + 1
    sides = max(step for step in ranked if step < best), min(step for step in ranked if step > best)
    return (best + max(sides, key=lambda step: (abs(step - best), -ranked.index(step)))) / 2


def _survivors(results: Mapping[_Point, Trial]) -> list[_Point]:
    """Return the better decay of each rate: those at or below the best rate by score, then those above."""
    ranked = _ranked(results)
    first = {point.step: point for point in reversed(ranked)}
    return sorted(
        (point for point in ranked if point == first[point.step]), key=lambda each: each.step > ranked[0].step
    )


def _ranked(results: Mapping[_Point, Trial]) -> list[_Point]:
    """Return the points, the best first; of equal ones that nearest to the options' own rate, then the earliest."""

    def key(point: _Point) -> tuple[float, float]:
        score = results[point].score
        return (math.inf if score is None else -score, abs(point.step))

    return sorted(results, key=key)


def _rate(center: float, step: float) -> float:
    """Return a rate of the grid, two of which are a decade, in round numbers.

    Example:
        >>> [_rate(0.001, step) for step in (-2, -1, -0.5, 0, 1, 2)]
        [0.0001, 0.0003, 0.0006, 0.001, 0.003, 0.01]
    """
    factor = float(f"{10 ** (step / 2):.1g}")
    return float(f"{center * factor:.6g}")


@dataclass(frozen=True)
class _TrialFile(Record):
    trials: list[Trial]


class KeptTrials:
    """Finished trials, in a file if there is one.

    Args:
        file: the file; None to keep nothing beyond this process.
        fingerprint: what identifies the search, as plain values.

    Raises:
        InputError: if the file is damaged or holds another search.
    """

    def __init__(self, file: Path | None, fingerprint: dict[str, Any]) -> None:
        self.file, self.fingerprint = file, fingerprint
        self.trials: list[Trial] = []
        if file is not None and file.is_file():
            document = read_document(file, kind=_FORMAT, version=_VERSION)
            check_same(document.get("asked"), fingerprint, path=file, what="another search")
            self.trials = decode(_TrialFile, document, file=file).trials

    @classmethod
    def of_search(
        cls, dataset: Dataset, options: FitOptions, trials: int, decays: Sequence[float], file: str | Path | None
    ) -> KeptTrials:
        """Return the trials of a search with these arguments of `tune`; read them if there is a file."""
        fingerprint = {**run_fingerprint(dataset, options), "trials": trials, "decays": list(decays)}
        return cls(None if file is None else Path(file), fingerprint)

    def find(self, rate: float, decay: float, rung: _Rung) -> Trial | None:
        """Return a trial; None if it is not finished."""
        wanted = (rate, decay, *rung)
        for trial in self.trials:
            if (trial.learning_rate, trial.weight_decay, trial.rows, trial.epochs) == wanted:
                return trial
        return None

    def add(self, trial: Trial) -> None:
        """Keep a trial."""
        self.trials.append(trial)
        if self.file is not None:
            content = {"format": _FORMAT, "version": _VERSION, "asked": self.fingerprint, "trials": encode(self.trials)}
            with replacing(self.file) as partial:
                partial.write_text(json.dumps(content, allow_nan=False))

"""The trials of a study: run in parallel, cached when finished, and used to choose hyperparameters."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from shortlist.cluster import run_tasks
from shortlist.errors import InputError
from shortlist.files import read_document, replacing
from shortlist.fingerprint import digest_values
from shortlist.train.classifier import DivergedError

Trial = Callable[[dict[str, Any], Path], dict[str, Any]]
_FORMAT = "shortlist trial"
_VERSION = 1


@dataclass(eq=False)
class Lab:
    """Runs the trials of one experiment.

    Args:
        data_root: the folder of the data.
        figures: a folder for the experiment's figures.
        kept: the cache folder of finished trials. All experiments share it, so a trial used by two experiments runs
            once.
        data: fingerprints of the data, which are part of a trial's cache key.
        jobs: how many trials to run at a time, each in a single-threaded process; None runs one at a time, or uses all
            workers of a cluster.
        since: trials that finished before this time (in seconds since 1970) run again.
        tell: called with the fraction of planned trials that is done and the fraction that was run in this call.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``. Its workers read the same data under
            ``data_root`` and send their results back; only this process writes ``kept``.
        sources: the folder from which workers import the package of the trials; None if it is installed there.
    """

    data_root: Path
    figures: Path
    kept: Path
    data: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None
    since: float = 0.0
    tell: Callable[[float, float], object] | None = None
    cluster: str = "local"
    sources: Path | None = None
    planned: int = 0
    done: int = 0
    fresh: int = 0
    seconds: float = 0.0

    def plan(self, trials: int) -> None:
        """Set the total number of trials over all calls, for estimating the remaining time."""
        self.planned = trials

    def trials(
        self, trial: Trial, settings: Sequence[Mapping[str, Any]], *, alone: bool = False
    ) -> list[dict[str, Any]]:
        """Run a trial for each of several settings.

        Args:
            trial: a module-level function from settings and the data root to plain values. Its result must depend only
                on these.
            settings: plain values for each trial. Finished trials are read from the cache.
            alone: run one at a time, in this process with all threads; for timings.

        Returns:
            The results, in the order of ``settings``.

        Raises:
            DivergedError: if a training run diverged. The outcome is cached, because the trial would diverge again.
        """
        found = self.attempts(trial, settings, alone=alone)
        for each, asked in zip(found, settings, strict=True):
            if each is None:
                raise DivergedError(f"the training of a trial diverged: {json.dumps(dict(asked))}.")
        return [each for each in found if each is not None]

    def attempts(
        self, trial: Trial, settings: Sequence[Mapping[str, Any]], *, alone: bool = False
    ) -> list[dict[str, Any] | None]:
        """Like `trials`, but with None for trials that diverged."""
        todo = [json.loads(json.dumps(dict(each))) for each in settings]
        identities = [self._identity(trial, each) for each in todo]
        paths = [self.kept / f"{digest_values(identity)}.json" for identity in identities]
        self.planned = max(self.planned, self.done + len(todo))
        found = {
            path: _read(path, identity, since=self.since) for path, identity in zip(paths, identities, strict=True)
        }
        missing = {path: each for path, each in zip(paths, todo, strict=True) if found[path] is None}
        self._count(len(todo) - len(missing))
        if alone:
            run = self._run_here(trial, missing)
        elif self.cluster == "local" and (self.jobs in (None, 1) or torch.accelerator.is_available()):
            # One run keeps the accelerator busy, and all processes share it.
            run = self._run_here(trial, missing, threads=1)
        else:
            run = self._run_in_parallel(trial, missing)
        for path, document in run:
            _keep(path, document)
            found[path] = _read(path, document["asked"])
            self.fresh += 1
            self._count(1)
        documents = [found[path] or {} for path in paths]
        self.seconds += sum(document["seconds"] for document in documents)
        return [document["found"] for document in documents]

    def _count(self, trials: int) -> None:
        self.done += trials
        if self.tell is not None:
            self.tell(self.done / max(self.planned, 1), self.fresh / max(self.planned, 1))

    def _identity(self, trial: Trial, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"trial": f"{trial.__module__}:{trial.__qualname__}", "settings": settings, "data": dict(self.data)}

    def _run_here(
        self, trial: Trial, todo: Mapping[Path, dict[str, Any]], *, threads: int | None = None
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Run sequentially, with one thread as in parallel jobs, because sums depend on the number of threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads or before)
        try:
            for path, settings in todo.items():
                yield path, _run((trial, self.data_root), (settings, self._identity(trial, settings)))
        finally:
            torch.set_num_threads(before)

    def _run_in_parallel(
        self, trial: Trial, todo: Mapping[Path, dict[str, Any]]
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        paths = list(todo)
        tasks = [(settings, self._identity(trial, settings)) for settings in todo.values()]
        local = self.cluster == "local"
        function = trial if local or self.sources is None else ImportedTrial(trial, self.sources)
        finished = run_tasks(
            _run_with_one_thread,
            (function, self.data_root.resolve()),
            tasks,
            cluster=self.cluster,
            jobs=self.jobs,
            exclusive=not local,
            advice=f"finished trials are kept{', fewer --jobs need less memory' if local else ''}",
        )
        for index, document in finished:
            yield paths[index], document


class ImportedTrial:
    """A trial that cluster workers import by name when they call it.

    Args:
        trial: a module-level function.
        sources: the folder of its package, the same on all machines.
    """

    def __init__(self, trial: Trial, sources: Path) -> None:
        self._module, self._name, self._sources = trial.__module__, trial.__qualname__, str(sources.resolve())

    def __call__(self, *arguments: Any) -> Any:
        """Import and call the function."""
        if self._sources not in sys.path:
            sys.path.insert(0, self._sources)
        try:
            trial = attrgetter(self._name)(importlib.import_module(self._module))
        except (ModuleNotFoundError, AttributeError) as error:
            raise InputError(
                f"`{self._sources}` must contain {self._module}:{self._name} on every worker: {error}."
            ) from error
        return trial(*arguments)


def _run_with_one_thread(common: tuple[Trial, Path], asked: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return _run(common, asked)


def _run(common: tuple[Trial, Path], asked: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Run a trial, given as settings and identity; returns its document."""
    (trial, root), (settings, identity) = common, asked
    began = time.process_time()
    try:
        found = trial(settings, root)
    except DivergedError:
        found = None
    seconds = round(time.process_time() - began, 3)
    return {"format": _FORMAT, "version": _VERSION, "asked": identity, "seconds": seconds, "found": found}


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    with replacing(path) as partial:
        partial.write_text(json.dumps(without_nan(document), allow_nan=False))


def without_nan(value: Any) -> Any:
    """Plain values with None for numbers that are not finite, which JSON cannot represent.

    Example:
        >>> without_nan({"a": [1.0, float("nan")]})
        {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(path: Path, identity: Mapping[str, Any], *, since: float = 0.0) -> dict[str, Any] | None:
    """A finished trial; None if the file is missing, damaged, too old, or of a different trial."""
    if not path.is_file() or path.stat().st_mtime < since:
        return None
    try:
        document = read_document(path, kind=_FORMAT, version=_VERSION)
    except InputError:
        return None
    return document if document.get("asked") == identity else None


@dataclass(frozen=True)
class Choice:
    """The hyperparameters chosen for a candidate.

    Args:
        options: the best of those tried.
        tried: all options tried, with their validation scores.
    """

    options: Mapping[str, Any]
    tried: Sequence[tuple[Mapping[str, Any], float]]

    def edges(self) -> list[str]:
        """The options whose chosen value is the smallest or largest one tried; a wider grid might do better.

        Example:
            >>> points = [{"learning_rate": rate, "k": 5} for rate in (0.1, 0.2, 0.3)]
            >>> Choice(points[2], [(point, 0.5) for point in points]).edges()
            ['learning_rate']
        """
        found = []
        for name, value in self.options.items():
            values = {point[name] for point, _ in self.tried if isinstance(point[name], int | float)}
            if len(values) > 1 and value in (min(values), max(values)):
                found.append(name)
        return found


def tuned(
    lab: Lab,
    trial: Trial,
    grids: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Callable[[str, Mapping[str, Any], int], Mapping[str, Any]],
    *,
    figure: str,
    seeds: Sequence[int],
) -> dict[str, Choice]:
    """Try every point of every candidate's grid and choose the one with the highest validation score.

    Nothing runs if every grid has a single point, for example because a paper states its choice.

    Args:
        lab: runs the trials.
        trial: returns at least ``figure``, measured on validation rows; it must not use the test rows.
        grids: the options to try, by candidate; all grids must have the same size, so that all candidates get the same
            budget.
        settings: maps candidate, options and seed to the settings of the trial.
        figure: the score to maximize, averaged over ``seeds``; a trial that diverges or returns NaN loses.
        seeds: preferably not those of the final runs.
    """
    sizes = {len(grid) for grid in grids.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"`grids` must have the same number of points for each candidate; got {sorted(sizes)}.")
    if sizes == {1}:
        return {name: Choice(grid[0], []) for name, grid in grids.items()}
    asked = [(name, at, seed) for name, grid in grids.items() for at in range(len(grid)) for seed in seeds]
    found = lab.attempts(trial, [settings(name, grids[name][at], seed) for name, at, seed in asked])
    scores: dict[tuple[str, int], list[float]] = {}
    for (name, at, _), values in zip(asked, found, strict=True):
        value = None if values is None else values[figure]
        scores.setdefault((name, at), []).append(-math.inf if value is None or math.isnan(value) else value)
    choices = {}
    for name, grid in grids.items():
        means = [sum(scores[name, at]) / len(seeds) for at in range(len(grid))]
        best = max(range(len(grid)), key=means.__getitem__)
        choices[name] = Choice(grid[best], list(zip(grid, means, strict=True)))
    return choices

"""Where a study works: it runs trials, several at a time, and keeps each one that is finished."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shortlist.cluster import run_tasks
from shortlist.evidence.trial_name import NamedTrial
from shortlist.files import read_document, replacing
from shortlist.train.classifier import DivergedError

Trial = Callable[[dict[str, Any], Path], dict[str, Any]]
_FORMAT = "shortlist trial"
_VERSION = 1


@dataclass(eq=False)
class Lab:
    """Runs the trials of one experiment.

    Args:
        data_root: where data are.
        figures: a folder for the pictures of the experiment.
        kept: a folder of finished trials, which all experiments share: what two of them ask for is computed once.
        data: what tells these data from others, which is part of what a trial is.
        jobs: how many trials at a time, each in a process with one thread; None for one, or for all workers of a
            cluster.
        since: trials that were finished before this time, in seconds since 1970, are run again.
        tell: called with the share of the planned trials that is done, and with the share that was not kept before.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``. Its workers read the same data below
            ``data_root``, and give their results back: ``kept`` is written here.
        sources: the folder that the package of the trials is in, which workers import them from; None where they are
            installed.
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
        """Say how many trials there will be, all calls of `trials` together, so that the time left can be told."""
        self.planned = trials

    def trials(
        self, trial: Trial, settings: Sequence[Mapping[str, Any]], *, alone: bool = False
    ) -> list[dict[str, Any]]:
        """Run a trial for each of several settings.

        Args:
            trial: a function of a module, from settings and the data root to plain values. What it gives may depend on
                nothing else.
            settings: plain values for each trial; those that were finished before are read, not run.
            alone: one at a time, in this process with all its threads; for what measures time.

        Returns:
            What each trial gave, in the order of ``settings``.

        Raises:
            DivergedError: if a training diverged, which the trial keeps: it would again.
        """
        found = self.attempts(trial, settings, alone=alone)
        for each, asked in zip(found, settings, strict=True):
            if each is None:
                raise DivergedError(f"the training of a trial diverged: {json.dumps(dict(asked))}.")
        return [each for each in found if each is not None]

    def attempts(
        self, trial: Trial, settings: Sequence[Mapping[str, Any]], *, alone: bool = False
    ) -> list[dict[str, Any] | None]:
        """As `trials`, with None for those that diverged."""
        todo = [json.loads(json.dumps(dict(each))) for each in settings]
        paths = [self._path(trial, each) for each in todo]
        self.planned = max(self.planned, self.done + len(todo))
        found = {
            path: _read(path, self._identity(trial, each), since=self.since)
            for path, each in zip(paths, todo, strict=True)
        }
        missing = {path: each for path, each in zip(paths, todo, strict=True) if found[path] is None}
        self._count(len(todo) - len(missing))
        if alone:
            run = self._alone(trial, missing)
        elif self.cluster == "local" and (self.jobs in (None, 1) or torch.accelerator.is_available()):
            # A graphics card is one for all processes, and one run keeps it busy.
            run = self._in_turn(trial, missing)
        else:
            run = self._at_once(trial, missing)
        for path, document in run:
            _keep(path, document)
            found[path] = _read(path, self._identity(trial, missing[path]))
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

    def _path(self, trial: Trial, settings: Mapping[str, Any]) -> Path:
        text = json.dumps(self._identity(trial, settings), sort_keys=True)
        return self.kept / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def _alone(self, trial: Trial, todo: Mapping[Path, dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path, settings in todo.items():
            yield path, _run((trial, self.data_root), (settings, self._identity(trial, settings)))

    def _in_turn(self, trial: Trial, todo: Mapping[Path, dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """With one thread, as the processes of several jobs have: sums depend on the number of threads."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from self._alone(trial, todo)
        finally:
            torch.set_num_threads(threads)

    def _at_once(self, trial: Trial, todo: Mapping[Path, dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any]]]:
        paths = list(todo)
        tasks = [(settings, self._identity(trial, settings)) for settings in todo.values()]
        local = self.cluster == "local"
        finished = run_tasks(
            _in_process,
            (trial if local or self.sources is None else NamedTrial(trial, self.sources), self.data_root.resolve()),
            tasks,
            cluster=self.cluster,
            jobs=self.jobs,
            exclusive=not local,
            advice=f"finished trials stay{', fewer --jobs need less' if local else ''}",
        )
        for place, document in finished:
            yield paths[place], document


def _in_process(common: tuple[Trial, Path], asked: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return _run(common, asked)


def _run(common: tuple[Trial, Path], asked: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """The document of a trial, by settings and identity."""
    (trial, root), (settings, identity) = common, asked
    began = time.monotonic()
    try:
        found = trial(settings, root)
    except DivergedError:
        found = None
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "asked": identity,
        "seconds": round(time.monotonic() - began, 3),
        "found": found,
    }


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    with replacing(path) as partial:
        partial.write_text(json.dumps(without_nan(document), allow_nan=False))


def without_nan(value: Any) -> Any:
    """Plain values, with None for what is no finite number, which JSON has no word for.

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
    """A finished trial; None if there is none, an old one, or one of something else."""
    if not path.is_file() or path.stat().st_mtime < since:
        return None
    try:
        document = read_document(path, kind=_FORMAT, version=_VERSION)
    except ValueError:
        return None
    return document if document.get("asked") == identity else None

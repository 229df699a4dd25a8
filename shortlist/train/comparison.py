"""Several ways to train, each with several seeds, on the same data: figures with intervals, and what wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unicodedata import category

import torch

from shortlist.cluster import check_cluster, run_tasks
from shortlist.comparison_document import Better, RunDetails
from shortlist.data import Dataset, hashed_words
from shortlist.train.compared_run import Asked, compared_run, kept_run
from shortlist.train.distant_run import distant_run, keep_files
from shortlist.train.fit import make_run
from shortlist.train.options import FitOptions
from shortlist.train.scores import refuse_missing

# Two-sided 95% quantiles of Student's law for 1, 2, ... degrees of freedom; beyond, a series about the normal law.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_LOWER_IS_BETTER = "error"
NO_AIM = "average_size"  # Neither more nor less of it is better.
# File systems allow 255 bytes; a seed and the files of a run come behind the name.
_LONGEST_NAME = 200

Progress = Callable[[float, int, str], object]


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
        quantile = _STUDENT[count - 2] if count - 2 < len(_STUDENT) else _student_tail(count - 1)
        return cls(mean, quantile * deviation / math.sqrt(count))


def _student_tail(freedom: int) -> float:
    return 1.95996 + 2.3723 / freedom + 2.8225 / freedom**2


@dataclass(frozen=True, eq=False)
class Comparison:
    """The figures of every run, ``runs[name][seed]``; ``details[name][seed]`` is what a report shows besides."""

    runs: dict[str, dict[int, dict[str, float]]]
    details: dict[str, dict[int, RunDetails]] = field(default_factory=dict)

    def figures(self) -> list[str]:
        """The names of the figures."""
        return sorted({figure for seeds in self.runs.values() for values in seeds.values() for figure in values})

    def interval(self, name: str, figure: str) -> Interval:
        """Mean and interval of one figure of one way to train."""
        return Interval.of([values[figure] for values in self.runs[name].values()])

    def best(self, figure: str) -> list[str]:
        """The ways to train whose figure cannot be told from the best, the best first.

        Those whose interval of the difference to the best, paired by seed, holds 0; with one seed, those that equal it.
        """
        sign = 1 if better(figure) == "lower" else -1
        if figure not in self.figures() or better(figure) is None:
            known = ", ".join(name for name in self.figures() if better(name) is not None)
            raise ValueError(f"`figure` must be one of {known}; got {figure!r}.")
        order = sorted(self.runs, key=lambda name: sign * self.interval(name, figure).mean)
        first = self.runs[order[0]]
        ties = [order[0]]
        for name in order[1:]:
            seeds = [seed for seed in first if seed in self.runs[name]]
            gap = Interval.of([self.runs[name][seed][figure] - first[seed][figure] for seed in seeds])
            if gap.mean == 0 or gap.half_width >= abs(gap.mean):  # The latter is False for NaN.
                ties.append(name)
        return ties


def better(figure: str) -> Better | None:
    """Whether ``lower`` or ``higher`` values of a figure are better; None if neither is.

    Example:
        >>> better("top3_error"), better("recall@8"), better("average_size")
        ('lower', 'higher', None)
    """
    return None if figure == NO_AIM else "lower" if figure.endswith(_LOWER_IS_BETTER) else "higher"


def compare(
    dataset: Dataset,
    candidates: Mapping[str, FitOptions],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path | None = None,
    part: str = "test",
    audit: bool = False,
    jobs: int | None = None,
    cluster: str = "local",
    source: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train every candidate with every seed and evaluate it.

    Args:
        dataset: with parts ``train``, ``val`` and ``part``.
        candidates: options by name; their seeds are replaced.
        seeds: each candidate is trained with each, so that differences can be paired.
        folder: where finished runs and their models are kept; a comparison with the same folder does not train them
            again, and goes on in the middle of the one that was interrupted.
        part: what to evaluate on.
        audit: whether to ask of the layers of the first seed which label sets of ``part`` they can never rank first.
        jobs: how many runs at a time, each in a process with its share of the cores; by default one, and on a cluster
            as many as its workers take.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine. Workers need this release of shortlist, and files that the inputs are read from
            as they are needed, as images are, under the same paths; ``folder`` is written here. What is lost with a
            worker is done again. A worker does one run at a time, with as many threads as it has.
        source: how the data were read, which is kept with the models.
        progress: called with the number of finished runs, the unfinished one counting by its share; with that of all
            runs; and with the name of a run under way.

    Returns:
        The figures of all runs.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, compare
        >>> data = AmbiguousWorld().sample(2000, seed=0)
        >>> ways = {loss: FitOptions(loss=loss, epochs=1) for loss in ("cross_entropy", "lml_nll")}
        >>> comparison = compare(data, ways, seeds=[0])
        >>> sorted(comparison.runs), comparison.figures()
        (['cross_entropy', 'lml_nll'], ['average3_error', 'average_size', 'top1_error', 'top3_error'])
    """
    if not candidates or not seeds:
        raise ValueError("`candidates` and `seeds` must not be empty.")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must differ; got {list(seeds)}.")
    _refuse_names(candidates, folders=folder is not None)
    if jobs is not None and jobs < 1:
        raise ValueError(f"`jobs` must be at least 1; got {jobs}.")
    check_cluster(cluster)
    for name, options in candidates.items() if cluster != "local" else ():
        if options.processes * options.nodes > 1:  # Workers may not start processes.
            raise ValueError(f"`candidates` must have one process on a cluster; {name!r} has several.")
    refuse_missing(dataset, (part,))
    dataset = _hashed_once(dataset, candidates)
    for options in candidates.values():  # All of them before the work, which may take hours.
        make_run(dataset, options)
    todo = [
        Asked(
            name,
            replace(options, seed=seed),
            None if folder is None else Path(folder) / f"{name}-{seed}",
            part,
            audit=audit and seed == seeds[0],
            source=source,
        )
        for seed in seeds
        for name, options in candidates.items()
    ]
    for asked in todo:  # A folder of another comparison must not be found out when half of it is trained.
        kept_run(dataset, asked)
    details: dict[str, dict[int, RunDetails]] = {name: {} for name in candidates}
    if cluster == "local" and jobs in (None, 1):
        finished = _in_turn(dataset, todo, progress)
    else:
        finished = _at_once(dataset, todo, jobs, cluster, progress)
    for asked, found in finished:
        details[asked.name][asked.options.seed] = found
    # Runs that go on at once end in any order.
    details = {name: {seed: by_seed[seed] for seed in seeds} for name, by_seed in details.items()}
    runs = {name: {seed: found.values for seed, found in by_seed.items()} for name, by_seed in details.items()}
    return Comparison(runs, details)


def _refuse_names(names: Iterable[Any], *, folders: bool) -> None:
    """Names are texts; those of folders must also be apart where capitals and small letters are the same."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`candidates` must have texts as names; got {name!r}.")
        if not folders:
            continue
        # Neither control characters nor halves of letters.
        plain = not any(category(letter) in ("Cc", "Cs") for letter in name)
        if not name or not plain or Path(name).name != name or len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"`candidates` must have names that a folder can have; got {name!r:.60}.")
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(f"`candidates` must differ in more than capital letters; got {other!r} and {name!r}.")


def _hashed_once(dataset: Dataset, candidates: Mapping[str, FitOptions]) -> Dataset:
    """Texts as the words that all candidates hash them to; as they are where candidates differ."""
    sizes = {0 if options.frozen else options.words for options in candidates.values()}
    if dataset.inputs.kind != "text" or len(sizes) > 1 or 0 in sizes:
        return dataset
    return hashed_words(dataset, num_features=sizes.pop())


def _in_turn(dataset: Dataset, todo: Sequence[Asked], progress: Progress | None) -> Iterator[tuple[Asked, RunDetails]]:
    tell = progress or (lambda *_: None)
    for done, asked in enumerate(todo):

        def step(share: float, done: int = done, name: str = asked.name) -> None:
            tell(done + share, len(todo), name)

        step(0.0)
        yield asked, compared_run(dataset, asked, progress=step)
    tell(len(todo), len(todo), "")


def _at_once(
    dataset: Dataset, todo: Sequence[Asked], jobs: int | None, cluster: str, progress: Progress | None
) -> Iterator[tuple[Asked, RunDetails]]:
    """Finished runs, those that are kept first; where they run, nobody tells how far a run has come."""
    tell = progress or (lambda *_: None)
    found = [(asked, kept_run(dataset, asked)) for asked in todo]
    kept = [(asked, details) for asked, details in found if details is not None]
    left = [asked for asked, details in found if details is None]
    yield from kept
    at_a_time = f"{min(jobs, len(left))} at a time" if jobs else "on a cluster"
    tell(len(kept), len(todo), at_a_time if left else "")
    run = _runs_here(dataset, left, jobs or 1) if cluster == "local" else _runs_there(dataset, left, jobs, cluster)
    for done, (asked, details) in enumerate(run, start=len(kept) + 1):
        yield asked, details
        tell(done, len(todo), asked.name if done < len(todo) else "")


def _runs_here(dataset: Dataset, left: Sequence[Asked], jobs: int) -> Iterator[tuple[Asked, RunDetails]]:
    common = dataset, max(1, torch.get_num_threads() // jobs)
    advice = "finished runs are kept, fewer `jobs` need less"
    for place, details in run_tasks(_in_process, common, left, jobs=jobs, advice=advice):
        yield left[place], details


def _in_process(common: tuple[Dataset, int], asked: Asked) -> RunDetails:
    dataset, threads = common
    torch.set_num_threads(threads)
    return compared_run(dataset, asked)


def _runs_there(
    dataset: Dataset, left: Sequence[Asked], jobs: int | None, cluster: str
) -> Iterator[tuple[Asked, RunDetails]]:
    """Runs whose files come back with their figures, for workers may have other disks."""
    runs = run_tasks(
        distant_run, dataset, left, cluster=cluster, jobs=jobs, exclusive=True, advice="finished runs are kept"
    )
    for place, (details, files) in runs:
        asked = left[place]
        if asked.place is not None:
            keep_files(asked.place, files)
        yield asked, details

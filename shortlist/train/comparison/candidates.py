"""Train several candidates with several seeds each on the same data, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import category

import torch

from shortlist.cluster import check_cluster, run_tasks
from shortlist.comparison_document import RunDetails, Tuning, run_folder
from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.files import locked
from shortlist.fit_options import FitOptions, SettledOptions
from shortlist.timing import threads
from shortlist.train.comparison.intervals import Interval, best_candidates, better
from shortlist.train.comparison.runs import RunSpec, finished_run, is_finished, run, run_on_worker, write_files
from shortlist.train.comparison.tunings import Report, SearchSpec, tune_candidates
from shortlist.train.estimate import duration_sentence, estimate_seconds
from shortlist.train.fit import make_run
from shortlist.train.inputs import check_rows, settle
from shortlist.train.model.plan import fit_words, text_rows
from shortlist.train.tuning import tried_decays

# File systems allow 255 bytes; a seed and the files of a run follow the name.
_LONGEST_NAME = 200

Progress = Callable[[float, int, str], object]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The metrics of every run, ``runs[name][seed]``, and everything else about it, ``details[name][seed]``.

    ``options`` has the settled options of each candidate, ``tunings`` how its learning rate was found, if it was.
    """

    runs: dict[str, dict[int, dict[str, float]]]
    details: dict[str, dict[int, RunDetails]] = field(default_factory=dict)
    options: dict[str, SettledOptions] = field(default_factory=dict)
    tunings: dict[str, Tuning] = field(default_factory=dict)

    def figures(self) -> list[str]:
        """Return the names of the metrics."""
        return sorted({metric for seeds in self.runs.values() for values in seeds.values() for metric in values})

    def interval(self, name: str, figure: str) -> Interval:
        """Return mean and interval of a candidate's metric."""
        return Interval.of([values[figure] for values in self.runs[name].values()])

    def best(self, figure: str) -> list[str]:
        """Return the candidates that do not differ significantly from the best in a metric, the best first.

        The interval of the difference to the best, paired by seed, contains 0; with one seed, the values are equal.
        """
        if figure not in self.figures() or better(figure) is None:
            known = ", ".join(name for name in self.figures() if better(name) is not None)
            raise ValueError(f"`figure` must be one of {known}; got {figure!r}.")
        values = {name: {seed: run[figure] for seed, run in seeds.items()} for name, seeds in self.runs.items()}
        return best_candidates(values, lower=better(figure) == "lower")


def compare(
    dataset: Dataset,
    candidates: Mapping[str, FitOptions],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path | None = None,
    part: str = "test",
    trials: int = 0,
    audit: bool = False,
    jobs: int | None = None,
    cluster: str = "local",
    source: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], object] | None = None,
    data_name: str = "dataset",
) -> Comparison:
    """Train every candidate with every seed and evaluate it.

    Args:
        dataset: with parts ``train``, ``val`` and ``part``.
        candidates: options by name; their seeds are replaced.
        seeds: each candidate is trained with each, so that differences can be paired.
        folder: where finished runs and their models are kept; a comparison with the same folder does not repeat them,
            and continues an interrupted one.
        part: the part to evaluate on.
        trials: how many pairs of learning rate and weight decay to try for each candidate whose learning rate is None,
            with the first seed, see `tune`; 0 takes those of the recipe.
        audit: whether to audit which label sets of ``part`` the models of the first seed can never rank first.
        jobs: how many runs at a time, each in a process with its share of the cores; by default 1, and on a cluster as
            many as its workers take.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine. Workers need this release of shortlist, and files that are read lazily, such as
            images, under the same paths; ``folder`` is written here. Runs that are lost with a worker are repeated. A
            worker runs one at a time, with all its threads.
        source: how the data were read, which is saved with the models.
        progress: called with the number of finished runs (an unfinished one counts by its fraction), the number of all
            runs, and the name of a current one. The search for the learning rate of a candidate counts as a run.
        tell: called before the work with a sentence that says how long it will take, if that is more than a minute.
        data_name: what messages call the dataset, such as its file.

    Returns:
        The metrics of all runs.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, compare
        >>> data = AmbiguousWorld().sample(2000, seed=0)
        >>> ways = {loss: FitOptions(loss=loss, epochs=1) for loss in ("cross_entropy", "lml_nll")}
        >>> comparison = compare(data, ways, seeds=[0])
        >>> sorted(comparison.runs), comparison.figures()
        (['cross_entropy', 'lml_nll'], ['average3_error', 'average_size', 'top1_error', 'top3_error'])
    """
    _check_request(candidates, seeds, jobs=jobs, cluster=cluster, folders=folder is not None)
    if trials < 0:
        raise InputError(f"`trials` must be at least 0; got {trials}.")
    # Before text is hashed, because the recipe depends on the kind of the inputs.
    settled = {name: settle(options, dataset) for name, options in candidates.items()}
    dataset = _encode_text_once(dataset, settled, data_name=data_name)
    for name, options in settled.items():  # Before the work, which may take hours.
        make_run(dataset, options, data_name=data_name)
        if audit and options.head == "clusters":
            raise InputError(f"`audit` must be off for {name!r}: a head of clusters has no matrix of all labels.")
    check_rows(dataset, ("train", "val", part), name=data_name)
    to_tune = {name: tried_decays(options) for name, options in candidates.items() if options.learning_rate is None}
    searches = [
        SearchSpec(name, replace(settled[name], seed=seeds[0]), trials, decays, _file(folder, f"tuning/{name}.json"))
        for name, decays in (to_tune if trials else {}).items()
    ]
    total = len(searches) + len(settled) * len(seeds)

    def report(done: float, name: str) -> None:
        if progress is not None:
            progress(done, total, name)

    def folder_of(name: str, seed: int) -> Path | None:
        return _file(folder, run_folder(name, seed))

    with nullcontext() if folder is None else locked(Path(folder) / ".lock", folder):
        if tell is not None and cluster == "local":
            left = {name: [seed for seed in seeds if not is_finished(folder_of(name, seed))] for name in settled}
            _tell_duration(dataset, settled, left, {spec.name: spec for spec in searches}, jobs=jobs or 1, tell=tell)
        tunings = tune_candidates(dataset, searches, jobs=jobs, cluster=cluster, report=report)
        for name, found in tunings.items():
            rates = {"learning_rate": found.learning_rate, "weight_decay": found.weight_decay}
            settled[name] = replace(settled[name], **rates)
        specs = [
            RunSpec(
                name,
                replace(options, seed=seed),
                folder_of(name, seed),
                part,
                audit=audit and seed == seeds[0],
                source=source,
            )
            for seed in seeds
            for name, options in settled.items()
        ]
        for spec in specs:  # Notice the folder of another comparison before half of this one is trained.
            finished_run(dataset, spec)
        run_all = _in_sequence if cluster == "local" and jobs in (None, 1) else partial(_in_parallel, jobs, cluster)
        results = run_all(dataset, specs, lambda done, name: report(len(searches) + done, name))
        done = {(spec.name, spec.options.seed): details for spec, details in results}
    details = {name: {seed: done[name, seed] for seed in seeds} for name in candidates}
    runs = {name: {seed: each.values for seed, each in by_seed.items()} for name, by_seed in details.items()}
    return Comparison(runs, details, settled, tunings)


def _file(folder: str | Path | None, name: str) -> Path | None:
    return None if folder is None else Path(folder) / name


def _tell_duration(
    dataset: Dataset,
    candidates: Mapping[str, SettledOptions],
    seeds: Mapping[str, Sequence[int]],
    searches: Mapping[str, SearchSpec],
    *,
    jobs: int,
    tell: Callable[[str], object],
) -> None:
    """Say how long the searches and the runs of the given seeds will take, if that is long."""
    seconds = []
    with threads(max(1, torch.get_num_threads() // jobs)):  # as each job will have
        for name, options in candidates.items():
            search, runs = searches.get(name), len(seeds[name])
            about = {"trials": search.trials, "decays": search.decays, "file": search.file} if search else {}
            seconds.append(estimate_seconds(dataset, search.options if search else options, runs=runs, **about))
    sentence = duration_sentence(seconds, jobs=jobs)
    if sentence is not None:
        tell(sentence)


def _check_request(
    candidates: Mapping[str, FitOptions], seeds: Sequence[int], *, jobs: int | None, cluster: str, folders: bool
) -> None:
    if not candidates or not seeds:
        raise InputError("`candidates` and `seeds` must not be empty.")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"`seeds` must differ; got {list(seeds)}.")
    _check_names(candidates, folders=folders)
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` must be at least 1; got {jobs}.")
    check_cluster(cluster)
    for name, options in candidates.items() if cluster != "local" else ():
        if options.processes * options.nodes > 1:  # Workers may not start processes.
            raise InputError(f"`candidates` must have one process on a cluster; {name!r} has several.")


def _check_names(names: Iterable[Any], *, folders: bool) -> None:
    """Check names; those of folders must also differ on file systems that ignore case."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"`candidates` must have text as names; got {name!r}.")
        if not folders:
            continue
        # No control characters and no lone surrogates.
        plain = not any(category(letter) in ("Cc", "Cs") for letter in name)
        if not name or not plain or Path(name).name != name or len(name.encode()) > _LONGEST_NAME:
            raise InputError(f"`candidates` must have names that a folder can have; got {name!r:.60}.")
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"`candidates` must differ in more than capital letters; got {other!r} and {name!r}.")


def _encode_text_once(dataset: Dataset, candidates: Mapping[str, FitOptions], *, data_name: str) -> Dataset:
    """Turn text into sparse features once, if all candidates do that in the same way."""
    first, *others = candidates.values()
    same = all((each.text, each.text_options) == (first.text, first.text_options) for each in others)
    if dataset.inputs.kind != "text" or not same or any(each.frozen for each in candidates.values()):
        return dataset
    return text_rows(dataset, fit_words(dataset, first, data_name=data_name))


def _in_sequence(dataset: Dataset, specs: Sequence[RunSpec], report: Report) -> Iterator[tuple[RunSpec, RunDetails]]:
    for done, spec in enumerate(specs):

        def step(fraction: float, done: int = done, name: str = spec.name) -> None:
            report(done + fraction, name)

        step(0.0)
        yield spec, run(dataset, spec, progress=step)
    report(len(specs), "")


def _in_parallel(
    jobs: int | None, cluster: str, dataset: Dataset, specs: Sequence[RunSpec], report: Report
) -> Iterator[tuple[RunSpec, RunDetails]]:
    """Yield finished runs first, then others as they finish; the progress within a run is unknown."""
    found = [(spec, finished_run(dataset, spec)) for spec in specs]
    finished = [(spec, details) for spec, details in found if details is not None]
    left = [spec for spec, details in found if details is None]
    yield from finished
    current = f"{min(jobs, len(left))} at a time" if jobs else "on a cluster"
    report(len(finished), current if left else "")
    if cluster == "local":
        results = _on_this_machine(dataset, left, jobs or 1)
    else:
        results = _on_cluster(dataset, left, jobs, cluster)
    for done, (spec, details) in enumerate(results, start=len(finished) + 1):
        yield spec, details
        report(done, spec.name if done < len(specs) else "")


def _on_this_machine(dataset: Dataset, specs: Sequence[RunSpec], jobs: int) -> Iterator[tuple[RunSpec, RunDetails]]:
    common = dataset, max(1, torch.get_num_threads() // jobs)
    advice = "finished runs are kept, fewer `jobs` need less memory"
    for index, details in run_tasks(_run_in_process, common, specs, jobs=jobs, advice=advice):
        yield specs[index], details


def _run_in_process(common: tuple[Dataset, int], spec: RunSpec) -> RunDetails:
    dataset, count = common
    torch.set_num_threads(count)
    return run(dataset, spec)


def _on_cluster(
    dataset: Dataset, specs: Sequence[RunSpec], jobs: int | None, cluster: str
) -> Iterator[tuple[RunSpec, RunDetails]]:
    """Run on workers, which may have other disks: files come back with the result."""
    options: dict[str, Any] = {"cluster": cluster, "jobs": jobs, "exclusive": True}
    for index, (details, files) in run_tasks(run_on_worker, dataset, specs, advice="finished runs are kept", **options):
        folder = specs[index].folder
        if folder is not None:
            write_files(folder, files)
        yield specs[index], details

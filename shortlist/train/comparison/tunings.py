"""Find the learning rates of the candidates of a comparison, one search per candidate, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from shortlist.cluster import run_tasks
from shortlist.cluster.tasks import worker_threads
from shortlist.comparison_document import Tuning
from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.files import replacing
from shortlist.fit_options import SettledOptions
from shortlist.train.tuning import KeptTrials, tune

_ADVICE = "finished searches are kept, fewer `jobs` need less memory"

Report = Callable[[float, str], object]


@dataclass(frozen=True)
class SearchSpec:
    """A search: the name of its candidate, the arguments of `shortlist.train.tune`, and the file of its trials."""

    name: str
    options: SettledOptions
    trials: int
    decays: tuple[float, ...]
    file: Path | None


def tune_candidates(
    dataset: Dataset, specs: Sequence[SearchSpec], *, jobs: int | None, cluster: str, report: Report
) -> dict[str, Tuning]:
    """Run all searches, as many at a time as there may be runs.

    Args:
        dataset: of the comparison.
        specs: the searches.
        jobs, cluster: as in `shortlist.train.compare`.
        report: called with the number of finished searches (an unfinished one counts by its fraction) and the name of
            a current one.

    Returns:
        What was found, by candidate.

    Raises:
        InputError: if a file holds another search or a damaged one; or for an error in a search, naming the candidate.
    """
    for spec in specs:  # Before the work, which may take hours.
        KeptTrials.of_search(dataset, spec.options, spec.trials, spec.decays, spec.file)
    if cluster == "local" and jobs in (None, 1):
        results = _in_sequence(dataset, specs, report)
    elif cluster == "local":
        common = dataset, max(1, torch.get_num_threads() // (jobs or 1))
        results = run_tasks(_search_in_process, common, specs, jobs=jobs, advice=_ADVICE)
    else:
        results = _on_cluster(dataset, specs, jobs, cluster)
    found: dict[str, Tuning] = {}
    for index, tuning in results:
        found[specs[index].name] = tuning
        report(len(found), f"tuning {specs[index].name}")
    return {spec.name: found[spec.name] for spec in specs}


def _search(
    dataset: Dataset, spec: SearchSpec, file: Path | None, progress: Callable[[float], object] | bool = False
) -> Tuning:
    try:
        found = tune(dataset, spec.options, trials=spec.trials, decays=spec.decays, file=file, progress=progress)
    except InputError as error:
        raise InputError(f"candidate {spec.name!r}: {error}") from error
    return found.tuning


def _in_sequence(dataset: Dataset, specs: Sequence[SearchSpec], report: Report) -> Iterator[tuple[int, Tuning]]:
    for index, spec in enumerate(specs):

        def step(fraction: float, done: int = index, name: str = spec.name) -> None:
            report(done + fraction, f"tuning {name}")

        step(0.0)
        yield index, _search(dataset, spec, spec.file, step)


def _search_in_process(common: tuple[Dataset, int], spec: SearchSpec) -> Tuning:
    dataset, threads = common
    torch.set_num_threads(threads)
    return _search(dataset, spec, spec.file)


def _on_cluster(
    dataset: Dataset, specs: Sequence[SearchSpec], jobs: int | None, cluster: str
) -> Iterator[tuple[int, Tuning]]:
    """Run on workers, which may have other disks: files go there and come back as bytes."""
    kept = [spec.file.read_bytes() if spec.file is not None and spec.file.is_file() else b"" for spec in specs]
    tasks = list(zip(specs, kept, strict=True))
    options = {"cluster": cluster, "jobs": jobs, "exclusive": True, "advice": _ADVICE}
    for index, (tuning, content) in run_tasks(_search_on_worker, dataset, tasks, **options):
        file = specs[index].file
        if file is not None:
            with replacing(file) as partial:
                partial.write_bytes(content)
        yield index, tuning


def _search_on_worker(dataset: Dataset, task: tuple[SearchSpec, bytes]) -> tuple[Tuning, bytes]:
    spec, kept = task
    threads = worker_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "trials.json"
        if kept:
            file.write_bytes(kept)
        return _search(dataset, spec, file), file.read_bytes()

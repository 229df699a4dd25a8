"""One run of a comparison: train, evaluate, summarize and keep the result; here, or on a worker of a cluster."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from shortlist.cluster.tasks import worker_threads
from shortlist.comparison_document import AuditCounts, AuditSummary, RunDetails
from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.files import cache_folder, locked, read_document, replacing
from shortlist.fingerprint import check_same, digest_values
from shortlist.fit_options import FitOptions
from shortlist.train.card.facts import Measured, impossible_sets, measured
from shortlist.train.checkpoints import run_fingerprint
from shortlist.train.comparison.examples import example_rows
from shortlist.train.comparison.findings import answers, fitted_rules, set_findings, size_grid
from shortlist.train.evaluation import Evaluation
from shortlist.train.fit import Fitted, evaluate, fit
from shortlist.train.model.plan import SetModel
from shortlist.train.saved_model import save_model
from shortlist.typed_json import decode, encode

if TYPE_CHECKING:
    from shortlist.audit import AuditReport

_FORMAT = "shortlist comparison run"
_VERSION = 3
_RESULT_FILE = "result.json"
# Of more sets a sample is audited: an audit of all might take longer than the training.
_MOST_AUDITED = 10_000
_MOST_NAMED = 5

Files = dict[str, bytes]


@dataclass(frozen=True)
class RunSpec:
    """A run: the name of its candidate, its options, its folder, the evaluated part, and whether it is audited.

    ``source`` says how the data were read, and is saved with the model.
    """

    name: str
    options: FitOptions
    folder: Path | None
    part: str
    audit: bool
    source: Mapping[str, Any] | None = None


def run(dataset: Dataset, spec: RunSpec, *, progress: Callable[[float], object] | None = None) -> RunDetails:
    """Train and evaluate, or read the result if the run is finished.

    Args:
        dataset: of the comparison.
        spec: which run.
        progress: called with the fraction of the training that is done.

    Raises:
        InputError: if the folder holds another run or a damaged one; or for an error in the run, naming it.
    """
    found = finished_run(dataset, spec)
    if found is not None:
        return found
    began = time.monotonic()
    try:
        fitted = fit(dataset, spec.options, folder=spec.folder, progress=progress or False)
    except InputError as error:
        raise InputError(f"candidate {spec.name!r}, seed {spec.options.seed}: {error}") from error
    evaluation = evaluate(fitted, dataset, part=spec.part)
    found, audit = _measured(dataset, spec, fitted, evaluation)
    details = _details(dataset, spec, fitted, evaluation, audit, began)
    if spec.folder is not None:
        save_model(fitted, spec.folder, rule=evaluation.rule, source=spec.source, measured=found)
        fingerprint = spec_fingerprint(dataset, spec)
        content = {"format": _FORMAT, "version": _VERSION, "asked": fingerprint, "details": encode(details)}
        with replacing(spec.folder / _RESULT_FILE) as partial:
            partial.write_text(json.dumps(content, allow_nan=False))
        # Checkpoints serve to resume a run, and this one is finished.
        shutil.rmtree(spec.folder / "checkpoints", ignore_errors=True)
    return details


def is_finished(folder: Path | None) -> bool:
    """Return whether the folder of a run holds its result, without reading it."""
    return folder is not None and (folder / _RESULT_FILE).is_file()


def finished_run(dataset: Dataset, spec: RunSpec) -> RunDetails | None:
    """Read a finished run; None if it is not. Raise InputError if the folder holds another run or a damaged one."""
    if spec.folder is None or not is_finished(spec.folder):
        return None
    path = spec.folder / _RESULT_FILE
    document = read_document(path, kind=_FORMAT, version=_VERSION)
    check_same(document.get("asked"), spec_fingerprint(dataset, spec), path=path)
    return decode(RunDetails, document.get("details"), file=path)


def spec_fingerprint(dataset: Dataset, spec: RunSpec) -> dict[str, Any]:
    """Return what identifies a run of a comparison, as plain values."""
    return {**run_fingerprint(dataset, spec.options), "part": spec.part, "audit": spec.audit}


def run_on_worker(dataset: Dataset, spec: RunSpec) -> tuple[RunDetails, Files]:
    """Run on a worker of a cluster, which may not see the folder of the comparison.

    Returns:
        The result, and the contents of the files that belong into the folder of the run, if it has one.
    """
    threads = worker_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    with _worker_folder(spec_fingerprint(dataset, spec)) as folder:
        details = run(dataset, replace(spec, folder=folder))
        files = () if spec.folder is None else folder.iterdir()
        return details, {path.name: path.read_bytes() for path in files if path.is_file()}


def write_files(folder: Path, files: Files) -> None:
    """Write the files of `run_on_worker`, the result last: if it exists, the others do."""
    for name in sorted(files, key=lambda name: name == _RESULT_FILE):
        with replacing(folder / name) as partial:
            partial.write_bytes(files[name])
    # Those of the same run, started here and finished elsewhere.
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


@contextmanager
def _worker_folder(fingerprint: dict[str, Any]) -> Iterator[Path]:
    """Give a folder in the worker's cache, in which a run that was killed there continues."""
    folder = cache_folder() / "runs" / digest_values(fingerprint)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder.with_suffix(".lock"), folder))
        except (InputError, OSError):
            # Another process may be at the same run, because the scheduler believes it lost or because its caller was
            # killed; or nothing can be written there.
            folder = Path(stack.enter_context(TemporaryDirectory()))
        try:
            yield folder
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # If the run was interrupted, the folder is left to the next process.
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    dataset: Dataset, spec: RunSpec, fitted: Fitted, evaluation: Evaluation
) -> tuple[Measured | None, AuditSummary | None]:
    """What the card of the model states, and the audit that was asked for; None without a folder or the request."""
    if spec.folder is None and not spec.audit:
        return None, None
    began, most = time.monotonic(), _MOST_AUDITED if spec.audit else None
    found = measured(fitted.model, dataset, evaluation, part=spec.part, most_sets=most)
    if not spec.audit or found.report is None:
        return found, None
    return found, _audit_summary(found.report, fitted.model, time.monotonic() - began)


def _details(
    dataset: Dataset,
    spec: RunSpec,
    fitted: Fitted,
    evaluation: Evaluation,
    audit: AuditSummary | None,
    began: float,
) -> RunDetails:
    rows, k = dataset.part(spec.part), spec.options.k
    rules = fitted_rules(evaluation, size_grid(k, dataset.num_labels))
    return RunDetails(
        values=evaluation.values,
        best_epoch=fitted.best_epoch,
        monitor=fitted.monitor,
        loss=fitted.plan.loss,
        history=[dict(row) for row in fitted.history],
        sets=set_findings(evaluation, rows, dataset.part("val"), dataset.label_counts("train"), rules, k=k),
        answers=answers(evaluation, example_rows(len(rows)), dataset.label_names, rules),
        audit=audit,
        seconds=round(time.monotonic() - began, 2),
    )


def _audit_summary(report: AuditReport, model: SetModel, seconds: float) -> AuditSummary:
    return AuditSummary(
        mode="top-k",
        sets=len(report),
        **report.counts(),
        labels=report.system.num_labels,
        features=int(report.system.weight.shape[1]),
        seconds=round(seconds, 2),
        parameters=sum(parameter.numel() for parameter in model.output_layer.parameters() if parameter.requires_grad),
        by_size=[AuditCounts(row.size, row.argmaxable, row.unargmaxable, row.undecided) for row in report.table()],
        worst=impossible_sets(report, _MOST_NAMED),
    )

"""Run an audit: decide every distinct label set once, on all cores or on a cluster, and resume after interruption."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.audit.certificates import Decision, decode_decision, encode_decision
from shortlist.audit.decide import decide
from shortlist.audit.layer import LabelSets, Layer, read_label_sets, read_system
from shortlist.audit.report import AuditReport, measure_survival
from shortlist.audit.system import Mode, System
from shortlist.cluster import check_cluster, run_tasks
from shortlist.errors import InputError, reason
from shortlist.extras import require
from shortlist.files import locked
from shortlist.fingerprint import digest, first_difference
from shortlist.labels import Numbers
from shortlist.progress import progress_bar

# Below this much work (label sets times layer entries), starting processes costs more time than it saves.
_WORTH_PROCESSES = 3e8
_LARGEST_CHUNK = 64
# Cluster workers come and go; make chunks small enough for this many workers.
_CLUSTER_WORKERS = 64

_RESUME_FORMAT = "shortlist audit progress"
# Version 1 could hold false proofs about layers with entries of very different magnitude; version 2 had no proofs of
# the upper bounds on radii.
_RESUME_VERSION = 3

Key = tuple[int, ...]


def audit(
    weight: Layer,
    label_sets: LabelSets,
    bias: Numbers | None = None,
    *,
    mode: Mode = "sign",
    radius: bool = True,
    jobs: int | None = None,
    cluster: str = "local",
    key: str | None = None,
    dft: int | None = None,
    names: Sequence[str] | None = None,
    resume: str | Path | None = None,
    progress: bool = False,
) -> AuditReport:
    r"""Decide for each label set, with proof, whether the layer can ever output it.

    A set is argmaxable when some feature vector :math:`v` gives logits :math:`Wv + b` that are positive on the set and
    negative elsewhere (``mode="sign"``), or larger on the set than elsewhere (``mode="top-k"``, the same problem with a
    free threshold). Every verdict carries a certificate that was verified without a solver: a vector whose signs hold
    despite rounding, or a positive combination of signed rows that vanishes, for this layer and for every layer within
    rounding of it. Where float64 can represent neither, exact arithmetic decides about the layer as stored, for up to
    39 features. What remains is ``"undecided"``, with the reason.

    Features are the vectors that the weight multiplies; for a head with a projection, its outputs.

    Args:
        weight: ``(n, d)`` matrix (a tensor, or of numpy, scipy, pandas, polars or Python), an ``nn.Linear``, a head of
            ``shortlist.nn`` with one weight, or a file that ends in ``.safetensors``, ``.npz`` or ``.npy``. The bias of
            a module is used too.
        label_sets: labels in a form of ``shortlist.targets``, as a tensor or of numpy, scipy, pandas or polars, or a
            sequence of sequences of label indices. Empty and repeated sets are allowed.
        bias: ``(n,)``, added to the logits.
        mode: ``"sign"`` or ``"top-k"``.
        radius: also compute the exact Chebyshev radius by linear programming; otherwise report only the bounds that
            come with the certificate.
        jobs: number of processes; by default all cores if there is enough work, or the setting of
            ``joblib.parallel_config``. On a cluster, the number of concurrent tasks; by default as many as its workers
            accept.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine. Workers need the same release of shortlist but no files. Each worker receives the
            layer once, and tasks lost with a worker are retried.
        key: name of the array in the file.
        dft: declares that the first ``2 dft + 1`` columns are the truncated Fourier matrix (checked); set automatically
            for a ``DFTHead``.
        names: label names for the report.
        resume: a file of finished verdicts from which an interrupted audit resumes.
        progress: show a progress bar.

    Returns:
        An :class:`AuditReport`, in the order of ``label_sets``.

    Example:
        >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> report = audit(weight, [[0, 2], [2], []])
        >>> print(*report.verdicts)
        argmaxable unargmaxable argmaxable
        >>> report.certificates[1].rows  # minus the first, minus the second, plus the third: they cancel
        array([2, 0, 1])
        >>> report.verify()  # positions of certificates that fail
        []

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification",
        2024, sections 2 and 3.
    """
    if jobs is not None and (not isinstance(jobs, int) or jobs == 0):
        raise ValueError(f"`jobs` must be a nonzero integer, negative to count back from all cores; got {jobs!r}.")
    if cluster != "local" and jobs is not None and jobs < 1:
        raise ValueError(f"`jobs` must be at least 1 on a cluster; got {jobs}.")
    check_cluster(cluster)
    system = read_system(weight, bias, mode=mode, key=key, dft=dft)
    sets = read_label_sets(label_sets, system.num_labels)
    if names is not None and len(names) != system.num_labels:
        raise ValueError(f"`names` must have one entry per label, {system.num_labels}; got {len(names)}.")
    keys: list[Key] = [tuple(labels.tolist()) for labels in sets]
    distinct = dict.fromkeys(keys)
    with nullcontext() if resume is None else locked(_lock_file(resume), resume):
        store = None if resume is None else ResumeFile(resume, _fingerprint(system, radius))
        finished = {} if store is None else store.finished
        waiting = [key for key in distinct if key not in finished]
        done_before = len(distinct) - len(waiting)
        with progress_bar("auditing", len(distinct), completed=done_before, unit="label sets", shown=progress) as bar:
            for done in _decide_all(system, waiting, radius, jobs, cluster):
                finished.update(done)
                if store is not None:
                    store.append(done)
                bar.advance(len(done))
    decisions = [finished[key] for key in keys]
    survives = measure_survival(system, sets, decisions)
    return AuditReport(system, sets, decisions, None if names is None else list(names), survives)


def _lock_file(resume: str | Path) -> Path:
    return Path(resume).with_name(f".{Path(resume).name}.lock")


def _decide_all(
    system: System, waiting: list[Key], radius: bool, jobs: int | None, cluster: str
) -> Iterator[dict[Key, Decision]]:
    if not waiting:
        return
    system.prepare()
    if cluster == "local":
        jobs = _num_jobs(jobs, len(waiting) * system.weight.size)
    chunks = _chunks(waiting, jobs or _CLUSTER_WORKERS)
    advice = (
        "fewer `jobs` need less memory" if cluster == "local" else "finished sets are in the file `resume`, if given"
    )
    for _, done in run_tasks(_decide_chunk, (system, radius), chunks, cluster=cluster, jobs=jobs, advice=advice):
        yield done


def _decide_chunk(common: tuple[System, bool], chunk: list[Key]) -> dict[Key, Decision]:
    system, radius = common
    with single_threaded():
        return {key: decide(system, np.array(key, dtype=np.int64), radius=radius) for key in chunk}


def single_threaded() -> Any:
    """A context in which matrix products take one thread: they are too small, and threads would only wait."""
    return _thread_limits().limit(limits=1, user_api="blas")


@functools.cache
def _thread_limits() -> Any:
    """The thread-pool controller, cached: finding the linear algebra libraries takes longer than a small audit."""
    if importlib.util.find_spec("scipy") is not None:
        importlib.import_module("scipy.linalg")  # loads a library of its own
    return require("threadpoolctl", extra="audit").ThreadpoolController()


def _num_jobs(jobs: int | None, work: float) -> int:
    if jobs == 1:  # Inside a Dask task, joblib would report more.
        return 1
    joblib = require("joblib", extra="audit")
    if jobs is not None:
        return joblib.effective_n_jobs(jobs)
    chosen = joblib.effective_n_jobs(None)
    if chosen != 1:
        return chosen
    return joblib.effective_n_jobs(-1) if work > _WORTH_PROCESSES else 1


def _chunks(waiting: list[Key], jobs: int) -> Iterable[list[Key]]:
    """Chunks small enough that all processes finish together and a killed audit loses little work."""
    size = max(1, min(_LARGEST_CHUNK, len(waiting) // (8 * jobs)))
    return (waiting[start : start + size] for start in range(0, len(waiting), size))


def _fingerprint(system: System, radius: bool) -> dict[str, Any]:
    """The properties that an audit must share with the file that it resumes from."""
    return {
        "mode": system.mode,
        "dft": system.dft,
        "radius": radius,
        "shape": list(system.weight.shape),
        "weight": digest(system.weight.tobytes()),
        "bias": None if system.bias is None else digest(system.bias.tobytes()),
    }


class ResumeFile:
    """A file of finished verdicts, one JSON line each; the first line identifies the audit.

    Args:
        path: the file; created if it does not exist.
        fingerprint: fingerprint of the audit.

    Raises:
        InputError: if the file has another format or belongs to another audit; the file is left unchanged.
    """

    def __init__(self, path: str | Path, fingerprint: dict[str, Any]) -> None:
        self._path = Path(path)
        self.finished: dict[Key, Decision] = {}
        if self._path.exists() and self._path.stat().st_size:
            self._read(fingerprint)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        header = {"format": _RESUME_FORMAT, "version": _RESUME_VERSION, "audit": fingerprint}
        self._path.write_text(json.dumps(header) + "\n")

    def append(self, decisions: dict[Key, Decision]) -> None:
        """Write finished sets and flush them to the operating system."""
        lines = [json.dumps({"labels": key, **encode_decision(decision)}) for key, decision in decisions.items()]
        with self._path.open("a") as file:
            file.write("".join(line + "\n" for line in lines))

    def _read(self, fingerprint: dict[str, Any]) -> None:
        data = self._path.read_bytes()
        # A killed process may leave a partial last line. Truncate it and decide its set again.
        complete = data.rfind(b"\n") + 1
        lines = data[:complete].decode("utf-8", errors="replace").splitlines()
        self._check_header(lines[0] if lines else "", fingerprint)
        self.finished = dict(self._decode(number, line) for number, line in enumerate(lines[1:], start=2))
        if complete < len(data):
            with self._path.open("rb+") as file:
                file.truncate(complete)

    def _decode(self, number: int, line: str) -> tuple[Key, Decision]:
        try:
            value = json.loads(line)
            return tuple(value["labels"]), decode_decision(value)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"`{self._path}` line {number} is damaged: {reason(error)}.") from error

    def _check_header(self, line: str, fingerprint: dict[str, Any]) -> None:
        try:
            header: Any = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("format") != _RESUME_FORMAT:
            raise InputError(f"`{self._path}` is not a file of finished verdicts.")
        if header.get("version") != _RESUME_VERSION:
            raise InputError(
                f"`{self._path}` has version {header.get('version')}; this release reads {_RESUME_VERSION}."
            )
        difference = first_difference(header.get("audit"), fingerprint)
        if difference is not None:
            raise InputError(f"`{self._path}` belongs to another audit: {difference}.")

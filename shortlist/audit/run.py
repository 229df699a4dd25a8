"""The audit: every distinct label set once, on all cores or on a cluster, resumable."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from shortlist.audit.certificates import Witness, is_witness
from shortlist.audit.decide import Decision, decide
from shortlist.audit.fourier import decide_by_fourier
from shortlist.audit.layer import LabelSets, Layer, read_label_sets, read_system
from shortlist.audit.progress import Key, Progress, fingerprint
from shortlist.audit.radius import largest_ball
from shortlist.audit.report import AuditReport
from shortlist.audit.survival import measure_survival
from shortlist.audit.system import Indices, Mode, System
from shortlist.cluster import check_cluster, run_tasks
from shortlist.extras import require

# Below this much work (label sets times entries of the layer) starting processes takes longer than it saves.
_WORTH_PROCESSES = 3e8
_LARGEST_CHUNK = 64
# Workers of a cluster come and go; chunks are small enough for this many.
_WORKERS_OF_A_CLUSTER = 64


def audit(
    weight: Layer,
    label_sets: LabelSets,
    bias: Tensor | np.ndarray | None = None,
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
    r"""Say of each label set, with proof, whether the layer can ever output it.

    A set is argmaxable when some feature vector :math:`v` gives logits :math:`Wv + b` that are positive on the set and
    negative elsewhere (``mode="sign"``), or larger on the set than elsewhere (``mode="top-k"``, the same question with
    a free threshold). Every verdict carries a certificate that was checked without a solver: a vector whose signs hold
    beyond rounding, or a positive combination of signed rows that vanishes, for this layer and for every layer
    within rounding of it. Where float64 holds neither, the verdict is ``"undecided"``, with the reason.

    The features are those that the weight multiplies: for a head with a projection, the ones after it.

    Args:
        weight: ``(n, d)`` matrix, an ``nn.Linear``, a head of ``shortlist.nn`` with one weight, or a file that ends in
            ``.safetensors``, ``.npz`` or ``.npy``. A module brings its bias along.
        label_sets: labels in a form of ``shortlist.targets``, or a sequence of sequences of label indices. The
            empty set and repeated sets are valid questions.
        bias: ``(n,)``, added to the logits.
        mode: ``"sign"`` or ``"top-k"``.
        radius: also find the exact Chebyshev radius, by linear programming; else only the bounds that come with the
            certificate.
        jobs: processes; by default all cores when the work is worth it, or what ``joblib.parallel_config`` says. On a
            cluster, how many tasks at a time; by default as many as its workers take.
        cluster: ``"local"``, ``"dask://HOST:PORT"`` or ``"ray://HOST:PORT"``; without host and port, Dask or Ray is
            started on this machine. Workers need this release of shortlist, and no files. What is lost with a worker
            is computed again, and the layer is sent to each worker once.
        key: which array of the file.
        dft: the first ``2 dft + 1`` columns are the truncated Fourier matrix (checked). A ``DFTHead`` says so itself.
        names: names of the labels, for the report.
        resume: a file of finished verdicts; an audit that was interrupted goes on from it.
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
        raise ValueError(f"`jobs` must be a whole number, negative to count back from all cores, not 0; got {jobs!r}.")
    if cluster != "local" and jobs is not None and jobs < 1:
        raise ValueError(f"`jobs` must be at least 1 on a cluster; got {jobs}.")
    check_cluster(cluster)
    system = read_system(weight, bias, mode=mode, key=key, dft=dft)
    sets = read_label_sets(label_sets, system.num_labels)
    if names is not None and len(names) != system.num_labels:
        raise ValueError(f"`names` must have one entry per label, {system.num_labels}; got {len(names)}.")
    store = None if resume is None else Progress(resume, fingerprint(system, radius))
    finished = {} if store is None else store.finished
    keys: list[Key] = [tuple(labels.tolist()) for labels in sets]
    waiting = [key for key in dict.fromkeys(keys) if key not in finished]
    with _bar(progress, len(set(keys)), len(set(keys)) - len(waiting)) as advance:
        for done in _examine_all(system, waiting, radius, jobs, cluster):
            finished.update(done)
            if store is not None:
                store.append(done)
            advance(len(done))
    decisions = [finished[key] for key in keys]
    return AuditReport(
        system, sets, decisions, list(names) if names is not None else None, measure_survival(system, sets, decisions)
    )


def examine(system: System, active: Indices, radius: bool) -> Decision:
    """Verdict, certificate and, if asked for, the exact radius of one set."""
    decision = decide(system, active)
    if decision.verdict == "undecided" and system.dft is not None:
        decision = decide_by_fourier(system, active, system.dft, decision)
    if not radius or not isinstance(decision.certificate, Witness):
        return decision
    signs = system.signs(active)
    ball = largest_ball(system, signs, decision.certificate.vector)
    high = min(decision.high, ball.high)
    if not is_witness(system, signs, ball.centre):
        return decision._replace(high=high)
    return decision._replace(certificate=Witness(ball.centre), low=ball.low, high=max(ball.low, high))


def _examine_chunk(common: tuple[System, bool], chunk: list[Key]) -> dict[Key, Decision]:
    system, radius = common
    # The products are too small to share among threads, which only wait for each other.
    with _linear_algebra().limit(limits=1, user_api="blas"):
        return {key: examine(system, np.array(key, dtype=np.int64), radius) for key in chunk}


@functools.cache
def _linear_algebra() -> Any:
    """What limits the threads of linear algebra. To find its libraries takes milliseconds, longer than small audits."""
    if importlib.util.find_spec("scipy") is not None:
        importlib.import_module("scipy.linalg")  # which brings a library of its own
    return require("threadpoolctl", extra="audit").ThreadpoolController()


def _examine_all(
    system: System, waiting: list[Key], radius: bool, jobs: int | None, cluster: str
) -> Iterator[dict[Key, Decision]]:
    if not waiting:
        return
    system.prepare()
    if cluster == "local":
        jobs = _jobs(jobs, len(waiting) * system.weight.size)
    chunks = _chunks(waiting, jobs or _WORKERS_OF_A_CLUSTER)
    advice = "fewer `jobs` need less" if cluster == "local" else "what is finished is in the file `resume`, if any"
    for _, done in run_tasks(_examine_chunk, (system, radius), chunks, cluster=cluster, jobs=jobs, advice=advice):
        yield done


def _jobs(jobs: int | None, work: float) -> int:
    if jobs == 1:  # Within a task of Dask, joblib would say that there are more.
        return 1
    joblib = require("joblib", extra="audit")
    if jobs is not None:
        return joblib.effective_n_jobs(jobs)
    chosen = joblib.effective_n_jobs(None)
    if chosen != 1:
        return chosen
    return joblib.effective_n_jobs(-1) if work > _WORTH_PROCESSES else 1


def _chunks(waiting: list[Key], jobs: int) -> Iterable[list[Key]]:
    """Small enough that all processes end together and a killed audit loses little."""
    size = max(1, min(_LARGEST_CHUNK, len(waiting) // (8 * jobs)))
    return (waiting[start : start + size] for start in range(0, len(waiting), size))


@contextmanager
def _bar(shown: bool, total: int, done: int) -> Iterator[Any]:
    """A progress bar on standard error, or nothing."""
    if not shown:
        yield lambda count: None
        return
    rich = require("rich.progress", extra="audit")
    console = require("rich.console", extra="audit").Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console) as bar:
        task = bar.add_task("label sets", total=total, completed=done)
        yield lambda count: bar.advance(task, count)

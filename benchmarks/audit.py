"""Speed of the auditor against the full linear program: ``python -m benchmarks.audit``.

Ratios of scipy's HiGHS on all rows, set by set, to one call of ``audit`` divided by its number of sets, with the goal
beside each result; then how long 10,000 sets take with two workers. Prints tables, writes
``benchmarks/results/audit.json``. Ratios are of processor time, which other programs disturb least; the time of many
sets is wall-clock time. The full program takes seconds per set at the larger size, so it gets only a few sets of each
verdict there; ``--full`` gives it all.
"""

from __future__ import annotations

import os

# One thread for the linear algebra of both sides, set before it is loaded; workers inherit it.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse  # noqa: E402
import statistics  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Literal, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.random import Generator  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402
from scipy.optimize import linprog  # noqa: E402

from benchmarks.audit_report import ratio_table, throughput_table  # noqa: E402
from benchmarks.side_by_side import machine, write_json  # noqa: E402
from shortlist.audit import audit  # noqa: E402

RESULTS = Path(__file__).parent / "results"
VERDICTS = ("argmaxable", "unargmaxable")
SETS, REPEATS, MANY = 30, 3, 10_000
THROUGHPUT_LABELS, SECONDS = 8921, {50: 180.0, 100: 360.0}


class Size(NamedTuple):
    """A layer's shape, the goals for the speedup over the full program, and how many sets that program gets."""

    n: int
    d: int
    verdict_goal: float
    radius_goal: float
    asked: int


SIZES = [Size(2000, 50, 30, 8, SETS), Size(8921, 100, 80, 20, 6)]


def gaussian(rng: Generator, n: int, d: int) -> np.ndarray:
    """Independent entries."""
    return rng.standard_normal((n, d))


def trained(rng: Generator, n: int, d: int) -> np.ndarray:
    """Clusters of low rank, norms with a long tail, near duplicates, and a first direction that all labels avoid."""
    centres = rng.standard_normal((n // 20, d // 4)) @ rng.standard_normal((d // 4, d)) / (d // 4) ** 0.5
    weight = centres[rng.integers(len(centres), size=n)] + 0.7 * rng.standard_normal((n, d))
    weight[:, 0] = -1 - np.abs(weight[:, 0])
    twins = rng.choice(n, size=(2, n // 50), replace=False)
    weight[twins[0]] = weight[twins[1]] + 1e-3 * rng.standard_normal((n // 50, d))
    return weight * np.exp(rng.normal(0, 0.7, (n, 1)))


class Question(NamedTuple):
    """How a layer is made, the mode of the audit, and whether its argmaxable sets have half of all labels or few."""

    layer: Callable[[Generator, int, int], np.ndarray]
    mode: Literal["sign", "top-k"]
    half: bool


QUESTIONS = {
    "gaussian, half of the labels": Question(gaussian, "sign", True),
    "gaussian, top-k": Question(gaussian, "top-k", False),
    "trained-like": Question(trained, "sign", False),
}
MANY_QUESTIONS = ("gaussian, top-k", "trained-like")


def reachable(rng: Generator, weight: np.ndarray, question: Question, labels: int) -> list[int]:
    """The largest logits of some vector."""
    vector = rng.standard_normal(weight.shape[1])
    if question.half:
        return np.flatnonzero(weight @ vector > 0).tolist()
    if question.mode == "top-k":
        return np.argpartition(-(weight @ vector), labels)[:labels].tolist()
    # Where each logit vanishes as the vector moves along the direction that all labels avoid.
    crossings = np.sort(-(weight[:, 1:] @ vector[1:]) / weight[:, 0])
    vector[0] = (crossings[-labels] + crossings[-labels - 1]) / 2
    return np.flatnonzero(weight @ vector > 0).tolist()


def candidates(rng: Generator, weight: np.ndarray, question: Question, count: int) -> list[list[int]]:
    """Argmaxable sets, such sets with one or two labels flipped, and sets of random labels, in turn."""
    n, sets = len(weight), []
    for i in range(count):
        labels = reachable(rng, weight, question, int(rng.integers(1, 16)))
        turned = rng.choice(n, size=1 + i % 2, replace=False).tolist()
        # Layers this wide can output most sets of few labels; both verdicts occur only for larger sets.
        drawn = rng.choice(n, size=int(rng.integers(1, 61)), replace=False).tolist()
        sets.append(sorted([labels, set(labels) ^ set(turned), drawn][i % 3]))
    return sets


def chosen(rng: Generator, weight: np.ndarray, question: Question) -> dict[str, list[list[int]]]:
    """The sets of each verdict that are measured."""
    sets = candidates(rng, weight, question, 6 * SETS)
    verdicts = audit(weight, sets, mode=question.mode, jobs=1, radius=False).verdicts
    picked = {verdict: [sets[i] for i in np.flatnonzero(verdicts == verdict)[:SETS]] for verdict in VERDICTS}
    for verdict, some in picked.items():
        if len(some) < SETS:
            raise RuntimeError(f"only {len(some)} of {len(sets)} sets are {verdict}; {SETS} are needed")
    return picked


def full_program(weight: np.ndarray, labels: list[int], mode: str) -> tuple[float, float]:
    """Seconds and radius of the program as published, with the solver's own tolerances."""
    if mode == "top-k":
        weight = np.hstack([weight, np.ones((len(weight), 1))])
    n, d = weight.shape
    y = np.full(n, -1.0)
    y[labels] = 1.0
    rows = np.hstack([-y[:, None] * weight, np.linalg.norm(weight, axis=1)[:, None]])
    cost, bounds = np.append(np.zeros(d), -1.0), [(-1e4, 1e4)] * d + [(0, None)]
    start = time.process_time()
    answer = linprog(cost, A_ub=rows, b_ub=np.zeros(n), bounds=bounds, method="highs")
    return time.process_time() - start, float(answer.x[-1]) if answer.status == 0 else float("nan")


def per_set(weight: np.ndarray, sets: list[list[int]], mode: str, *, radius: bool) -> tuple[float, list[float]]:
    """Seconds of one call per set, including the preparation of the layer, and the radii."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        report = audit(weight, sets, mode=mode, jobs=1, radius=radius)
        times.append((time.process_time() - start) / len(sets))
    return statistics.median(times), report.radii.tolist()


def measure(size: Size, kind: str, progress: Progress, *, full: bool) -> list[dict[str, Any]]:
    """One layer, both verdicts, with and without the radius."""
    question = QUESTIONS[kind]
    rng = np.random.default_rng(size.n + size.d)
    weight = question.layer(rng, size.n, size.d)
    asked = SETS if full else size.asked
    task = progress.add_task(f"{kind} {size.n} × {size.d}", total=2 * (asked + 2))
    records = []
    for verdict, sets in chosen(rng, weight, question).items():
        verdict_seconds, _ = per_set(weight, sets, question.mode, radius=False)
        progress.advance(task)
        radius_seconds, radii = per_set(weight, sets, question.mode, radius=True)
        progress.advance(task)
        programs = []
        for labels in sets[:asked]:
            programs.append(full_program(weight, labels, question.mode))
            progress.advance(task)
        seconds = statistics.median(some for some, _ in programs)
        says = sum((radius > 1e-8) == (verdict == "argmaxable") for _, radius in programs)
        close = sum(bool(np.isclose(a, b, rtol=1e-6, atol=1e-8)) for (_, a), b in zip(programs, radii, strict=False))
        records.append(
            {
                "layer": kind,
                "labels": size.n,
                "dimensions": size.d,
                "verdict": verdict,
                "sets": len(sets),
                "median_set_size": statistics.median(map(len, sets)),
                "full_program_sets": asked,
                "full_program_milliseconds": 1000 * seconds,
                "same_verdicts": says,
                "same_radii": close,
                "verdict_milliseconds": 1000 * verdict_seconds,
                "radius_milliseconds": 1000 * radius_seconds,
                "verdict_ratio": seconds / verdict_seconds,
                "verdict_goal": size.verdict_goal,
                "radius_ratio": seconds / radius_seconds,
                "radius_goal": size.radius_goal,
            }
        )
    return records


def throughput(kind: str, d: int, progress: Progress) -> dict[str, Any]:
    """Seconds for many sets of few labels, with certificates, by two workers."""
    question = QUESTIONS[kind]
    rng = np.random.default_rng(d)
    weight = question.layer(rng, THROUGHPUT_LABELS, d)
    sets = candidates(rng, weight, question, MANY)
    task = progress.add_task(f"{MANY} sets, {kind}, d = {d}", total=1)
    start = time.perf_counter()
    report = audit(weight, sets, mode=question.mode, jobs=2, radius=False)
    seconds = time.perf_counter() - start
    progress.advance(task)
    counts = {verdict: int((report.verdicts == verdict).sum()) for verdict in (*VERDICTS, "undecided")}
    start = time.perf_counter()
    failures = len(report.verify())
    return {
        "layer": kind,
        "labels": THROUGHPUT_LABELS,
        "dimensions": d,
        "sets": MANY,
        "jobs": 2,
        "seconds": seconds,
        "goal_seconds": SECONDS[d],
        "verdicts": counts,
        "verify_seconds": time.perf_counter() - start,
        "certificates_that_fail": failures,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="give every set to the full program (ten minutes)")
    full = parser.parse_args().full
    torch.set_num_threads(1)
    console = Console(width=150)
    # Compiles what is compiled at first use.
    audit(gaussian(np.random.default_rng(0), 300, 20), [[0], [1, 2]], jobs=1)
    with Progress(console=console, transient=True) as progress:
        ratios = [entry for size in SIZES for kind in QUESTIONS for entry in measure(size, kind, progress, full=full)]
        console.print(ratio_table(ratios))
        rates = [throughput(kind, d, progress) for d in SECONDS for kind in MANY_QUESTIONS]
        console.print(throughput_table(rates))
    goals = [entry[f"{what}_ratio"] >= entry[f"{what}_goal"] for entry in ratios for what in ("verdict", "radius")]
    goals += [entry["seconds"] <= entry["goal_seconds"] for entry in rates]
    console.print(f"goals met: {sum(goals)} of {len(goals)}")
    setting = {"sets_of_each_verdict": SETS, "threads": 1, "all_sets_to_the_full_program": full}
    if hasattr(os, "getloadavg"):
        setting["load_average"] = os.getloadavg()[1]
    result = {"machine": machine(), "setting": setting, "ratios": ratios, "throughput": rates}
    write_json(result, RESULTS / "audit.json")
    console.print(f"written: {RESULTS / 'audit.json'}")


if __name__ == "__main__":
    main()

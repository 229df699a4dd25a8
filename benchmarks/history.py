"""What past runs of ``make bench`` measured: ``python -m benchmarks.history`` writes ``results/history.csv``.

Results are committed, so their history is that of the repository: one row per figure and commit that changed it, with
the least and the largest value over the sizes that were measured. Machines differ; compare rows of one machine.
"""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
HISTORY = RESULTS / "history.csv"
COLUMNS = ("date", "commit", "file", "figure", "low", "high", "simd", "torch", "numba")


def _projections(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["records"]:
        if record["labels"] >= 1000:
            yield from record["ratios"].items()


def _losses(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["records"]:
        yield f"{record['loss']} / cross-entropy, k = {record['k']}", record["ratio"]


def _audit(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["ratios"]:
        yield "linear program / verdict", record["verdict_ratio"]
        yield "linear program / radius", record["radius_ratio"]


def _sets(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["records"]:
        yield "full sort / AverageK.fit", record["times_faster"]["AverageK.fit"]


def _metrics(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["at_k"]:
        yield "metrics at k / topk", record["ratio"]
    for record in content["average_precision"]:
        yield "torchmetrics / average precision", record["ratio"]


def _data(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for record in content["reading"]:
        yield "scikit-learn / extreme text", record["times_faster"]["shortlist"]


FIGURES: dict[str, Callable[[Mapping[str, Any]], Iterator[tuple[str, float]]]] = {
    "projections.json": _projections,
    "losses.json": _losses,
    "audit.json": _audit,
    "sets.json": _sets,
    "metrics.json": _metrics,
    "data.json": _data,
}


def ranges(file: str, content: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of every figure of a result file; none if it has the form of an older version."""
    found: dict[str, list[float]] = {}
    try:
        for name, value in FIGURES[file](content):
            found.setdefault(name, []).append(value)
    except (KeyError, TypeError):
        return {}
    return {name: (min(values), max(values)) for name, values in found.items()}


def rows() -> Iterator[tuple[str, ...]]:
    """The history of all result files, oldest first."""
    for file in FIGURES:
        path = f"benchmarks/results/{file}"
        for line in _git("log", "--reverse", "--format=%ad %h", "--date=short", "--", path).splitlines():
            date, commit = line.split()
            content = json.loads(_git("show", f"{commit}:{path}"))
            machine = [str(content.get("machine", {}).get(key, "")) for key in ("simd", "torch", "numba")]
            for name, (low, high) in ranges(file, content).items():
                yield (date, commit, file, name, f"{low:.3g}", f"{high:.3g}", *machine)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(RESULTS.parents[1]), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write the file anew."""
    with HISTORY.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(rows())


if __name__ == "__main__":
    main()

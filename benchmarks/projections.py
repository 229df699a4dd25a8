"""Speed and memory of the projections as ratios: ``make bench``.

Prints a table with the goal beside each result, writes ``benchmarks/results/projections.json`` and draws time
against k, against the number of labels and against the number of entries.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.published import BracketingLML, SortedSparseTop
from benchmarks.side_by_side import (
    PEAK_RESET,
    Step,
    colored,
    forward_backward,
    machine,
    medians,
    peak_copies,
    write_json,
)
from shortlist.functional import lml, sparse_top

RESULTS = Path(__file__).parent / "results"
SHAPES = [(256, 100, 5), (256, 1000, 5), (256, 1000, 100), (8, 19_000, 20), (256, 10_000, 20)]
SCALES = (1, 3, 10)
GOALS: dict[str, tuple[str, float]] = {
    "lml / softmax": ("≤", 8.0),
    "Algorithm 1 / lml": ("≥", 20.0),
    "compiled lml / softmax": ("≤", 3.5),
    "sparse_top / softmax": ("≤", 6.0),
    "sort-and-scan / sparse_top": ("≥", 3.0),
}
GOALS_FROM = 100_000
"""Rows x labels from which ratios have a goal: below, the fixed cost of a call dominates."""

Op = Callable[[torch.Tensor], torch.Tensor]


def softmax(x: torch.Tensor) -> torch.Tensor:
    """The yardstick."""
    return torch.softmax(x, -1)


def ops_for(k: int) -> dict[str, Op]:
    """All alternatives for one k; the compiled one, if torch has a C++ compiler, is compiled anew."""
    ops: dict[str, Op] = {
        "softmax": softmax,
        "lml": lambda x: lml(x, k),
        "Algorithm 1": lambda x: BracketingLML.apply(x, k),
        "sparse_top": lambda x: sparse_top(x, k),
        "sort-and-scan": lambda x: SortedSparseTop.apply(x, k),
    }
    if shutil.which(os.environ.get("CXX", "g++")):
        ops["compiled lml"] = torch.compile(lambda x: lml(x, k), fullgraph=True, dynamic=False)
    return ops


def measure(shape: tuple[int, int, int], scale: int, ops: dict[str, Op]) -> dict[str, Any]:
    """Median milliseconds, forward plus backward, and the ratios that have goals."""
    rows, labels, k = shape
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(rows, labels, generator=generator) * scale).requires_grad_()
    upstream = torch.randn(rows, labels, generator=generator)
    times = medians({name: forward_backward(op, x, upstream=upstream) for name, op in ops.items()})
    pairs = {name: name.split(" / ") for name in GOALS}
    ratios = {
        name: times[ours] / times[other] for name, (ours, other) in pairs.items() if {ours, other} <= times.keys()
    }
    return {
        "rows": rows,
        "labels": labels,
        "k": k,
        "scale": scale,
        "threads": torch.get_num_threads(),
        "milliseconds": {name: 1000 * seconds for name, seconds in times.items()},
        "ratios": ratios,
    }


def grid(progress: Progress) -> list[dict[str, Any]]:
    """Every shape, scale and thread count."""
    counts = sorted({1, os.cpu_count() or 1})
    task = progress.add_task("side by side", total=len(counts) * len(SHAPES) * len(SCALES))
    records = []
    for threads in counts:
        torch.set_num_threads(threads)
        for shape in SHAPES:
            torch.compiler.reset()
            ops = ops_for(shape[2])
            for scale in SCALES:
                records.append(measure(shape, scale, ops))
                progress.advance(task)
    return records


def scaling(progress: Progress) -> dict[str, list[dict[str, float]]]:
    """Milliseconds against k at 64 x 10,000, against the labels at 1,000,000 entries, against rows of 1,000 labels."""
    ops: dict[str, Callable[[int], Op]] = {
        "softmax": lambda k: softmax,
        "lml": lambda k: lambda x: lml(x, k),
        "sparse_top": lambda k: lambda x: sparse_top(x, k),
        "sort-and-scan": lambda k: lambda x: SortedSparseTop.apply(x, k),
        "Algorithm 1": lambda k: lambda x: BracketingLML.apply(x, k),
    }
    against_k = [(64, 10_000, k) for k in (1, 3, 10, 30, 100, 300, 1000, 3000)]
    against_n = [(max(1, 1_000_000 // n), n, 20) for n in (100, 1000, 10_000, 100_000, 1_000_000)]
    against_rows = [(rows, 1000, 20) for rows in (10, 100, 1000, 10_000)]
    task = progress.add_task("scaling", total=len(against_k) + len(against_n) + len(against_rows))
    result: dict[str, list[dict[str, float]]] = {}
    for name, shapes in {"k": against_k, "labels": against_n, "rows": against_rows}.items():
        points = []
        for rows, labels, k in shapes:
            generator = torch.Generator().manual_seed(0)
            x = (torch.randn(rows, labels, generator=generator) * 3).requires_grad_()
            upstream = torch.randn(rows, labels, generator=generator)
            steps = {op: forward_backward(make(k), x, upstream=upstream) for op, make in ops.items()}
            times = medians(steps, seconds=0.2, rounds=20)
            points.append({"rows": rows, "labels": labels, "k": k} | {op: 1000 * t for op, t in times.items()})
            progress.advance(task)
        result[name] = points
    return result


def peak_step(op: str, rows: int, labels: int) -> tuple[Step, torch.Tensor]:
    """Forward plus backward of one op, and its input."""
    ops: dict[str, Op] = {
        "softmax": softmax,
        "lml": lambda x: lml(x, 20),
        "sparse_top": lambda x: sparse_top(x, 20),
    }
    x = torch.randn(rows, labels).requires_grad_()
    return forward_backward(ops[op], x, upstream=torch.randn(rows, labels)), x


def has_goal(record: dict[str, Any]) -> bool:
    """Ratios have goals from 256 x 1000 (or as many labels) on."""
    return record["rows"] * record["labels"] > GOALS_FROM


def met(ratio: str, value: float) -> bool:
    """Whether a ratio meets its goal."""
    sign, goal = GOALS[ratio]
    return value <= goal if sign == "≤" else value >= goal


def table(records: list[dict[str, Any]]) -> Table:
    """One line per measurement; missed goals are red."""
    view = Table(title="forward + backward, float32, medians side by side", title_justify="left")
    for name in ("threads", "rows", "labels", "k", "scale", "softmax ms"):
        view.add_column(name, justify="right")
    for name, (sign, goal) in GOALS.items():
        view.add_column(f"{name}\ngoal {sign} {goal:g}", justify="right")
    for record in records:
        cells = [str(record[name]) for name in ("threads", "rows", "labels", "k", "scale")]
        cells.append(f"{record['milliseconds']['softmax']:.3f}")
        for name in GOALS:
            value = record["ratios"].get(name)
            goal_met = None if value is None or not has_goal(record) else met(name, value)
            cells.append(colored("-" if value is None else f"{value:.1f}", goal_met))
        view.add_row(*cells)
    return view


def draw(points: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Time against k, labels and rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ["Algorithm 1", "sort-and-scan", "sparse_top", "lml", "softmax"]
    colors = ["#b5651d", "#c9a227", "#2a9d8f", "#264653", "#888888"]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4), constrained_layout=True)
    panels = [
        ("k", "k, labels wanted", "64 rows × 10,000 labels"),
        ("labels", "labels", "1,000,000 entries, k = 20"),
        ("rows", "rows", "1,000 labels, k = 20"),
    ]
    for axis, (key, label, title) in zip(axes, panels, strict=True):
        for name, color in zip(names, colors, strict=True):
            axis.plot([p[key] for p in points[key]], [p[name] for p in points[key]], "o-", color=color, label=name)
        axis.set(xscale="log", yscale="log", xlabel=label, title=title)
        axis.grid(alpha=0.25, which="major")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("milliseconds, forward + backward, one thread")
    axes[2].legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, print, write, draw."""
    console = Console(width=150)
    with Progress(console=console, transient=True) as progress:
        records = grid(progress)
        torch.set_num_threads(1)
        points = scaling(progress)
        copies = {}
        if PEAK_RESET.exists():
            copies = {
                op: peak_copies("benchmarks.projections", op, 256, 262_144) for op in ("softmax", "lml", "sparse_top")
            }
    console.print(table(records))
    shown = ", ".join(f"{name} {value:.2f}" for name, value in copies.items())
    console.print(f"peak memory beyond the input, output included, in copies of the input (goal ≤ 3): {shown}")
    for name, (sign, goal) in GOALS.items():
        found = [record["ratios"][name] for record in records if has_goal(record) and name in record["ratios"]]
        shown = f"{min(found):.1f} to {max(found):.1f}" if found else "not measured: there is no C++ compiler"
        console.print(f"{name}: {shown}, goal {sign} {goal:g}")
    goals = [(name, v) for record in records for name, v in record["ratios"].items() if has_goal(record)]
    console.print(f"goals met: {sum(met(*goal) for goal in goals)} of {len(goals)}")
    result = {"machine": machine(), "records": records, "scaling": points, "peak_copies": copies}
    write_json(result, RESULTS / "projections.json")
    draw(points, RESULTS / "projections.png")
    console.print(f"written: {RESULTS / 'projections.json'} and projections.png")


if __name__ == "__main__":
    main()

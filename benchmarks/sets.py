"""Speed and memory of set rules as ratios: ``python -m benchmarks.sets``.

``AverageK.fit`` against Algorithm 1 of the paper, which flattens all scores and sorts them. Prints a table and writes
``benchmarks/results/sets.json``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from benchmarks.side_by_side import PEAK_RESET, Step, colored, machine, medians, peak_copies, write_json
from shortlist.sets import AverageK

RESULTS = Path(__file__).parent / "results"
ROWS, LABELS = 31_118, 1_081
KS = (5, 20)
BATCH = 512
SPEED_GOAL, MEMORY_GOAL = 8.0, 1 / 5
"""The full sort takes at least so many times longer; of its peak memory, at most this share."""


def probabilities(rows: int = ROWS, labels: int = LABELS) -> Tensor:
    """Softmax of a model that is confident in some rows and not in others."""
    generator = torch.Generator().manual_seed(0)
    sharpness = 1 + 4 * torch.rand(rows, 1, generator=generator)
    return torch.randn(rows, labels, generator=generator).mul_(sharpness).softmax(-1)


def algorithm_1(scores: Tensor, k: int) -> Tensor:
    """Flatten, sort all, take the midpoint."""
    ordered = scores.flatten().sort(descending=True).values
    place = k * len(scores)
    return (ordered[place - 1] + ordered[place]) / 2


def fit(scores: Tensor, k: int) -> AverageK:
    """All rows at once."""
    return AverageK(k).fit(scores, from_logits=False)


def stream(scores: Tensor, k: int) -> AverageK:
    """Batch by batch, as from a model."""
    rule = AverageK(k)
    for batch in scores.split(BATCH):
        rule.partial_fit(batch, from_logits=False)
    rule.finish()
    return rule


ALTERNATIVES: dict[str, Callable[[Tensor, int], object]] = {
    "full sort": algorithm_1,
    "AverageK.fit": fit,
    "AverageK in batches": stream,
}


def agree(scores: Tensor, k: int) -> None:
    """All alternatives find the same labels, before anything is timed."""
    expected = (scores >= algorithm_1(scores, k)).sum()
    found = fit(scores, k).predict(scores).sizes.sum()
    # Algorithm 1 rounds the midpoint of two neighboring floats to one of them.
    if abs(int(expected) - int(found)) > 1 or found != k * len(scores):
        raise ArithmeticError(f"{int(found)} labels instead of {k * len(scores)}; the full sort gives {int(expected)}")


def peak_step(alternative: str, k: int) -> tuple[Step, Tensor]:
    """One fit, and the scores."""
    scores = probabilities()
    return lambda: ALTERNATIVES[alternative](scores, k), scores


def measured(k: int, scores: Tensor) -> dict[str, Any]:
    """Times and peaks of all alternatives, and their ratios to the full sort."""
    agree(scores, k)
    times = medians({name: lambda fit=fit: fit(scores, k) for name, fit in ALTERNATIVES.items()}, rounds=7)
    record: dict[str, Any] = {
        "k": k,
        "milliseconds": {name: 1000 * seconds for name, seconds in times.items()},
        "times_faster": {name: times["full sort"] / seconds for name, seconds in times.items()},
    }
    if PEAK_RESET.exists():
        copies = {name: peak_copies("benchmarks.sets", name, k) for name in ALTERNATIVES}
        record["copies"] = copies
        record["share_of_memory"] = {name: value / copies["full sort"] for name, value in copies.items()}
    return record


def table(records: list[dict[str, Any]]) -> Table:
    """One line per k and alternative."""
    view = Table(title=f"AverageK on {ROWS:,} × {LABELS:,} float32 scores, one thread", title_justify="left")
    view.add_column("k", justify="right")
    view.add_column("alternative")
    for name in ("milliseconds", "times faster", "copies of the scores", "share of memory"):
        view.add_column(name, justify="right")
    for record in records:
        for name in ALTERNATIVES:
            goal = name == "AverageK.fit"
            faster, share = record["times_faster"][name], record.get("share_of_memory", {}).get(name, math.nan)
            view.add_row(
                str(record["k"]),
                name,
                f"{record['milliseconds'][name]:.0f}",
                colored(f"{faster:.1f}", faster >= SPEED_GOAL if goal else None),
                f"{record.get('copies', {}).get(name, math.nan):.3f}",
                colored(f"{share:.3f}", share <= MEMORY_GOAL if goal else None),
            )
        view.add_section()
    return view


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    console = Console(width=120)
    scores = probabilities()
    with Progress(console=console, transient=True) as progress:
        records = [measured(k, scores) for k in progress.track(KS, description="side by side")]
    console.print(table(records))
    console.print(f"goals of AverageK.fit: at least {SPEED_GOAL:g} times faster, at most {MEMORY_GOAL:g} of the memory")
    setting = {"rows": ROWS, "labels": LABELS, "batch": BATCH, "threads": torch.get_num_threads()}
    goals = {"times_faster": SPEED_GOAL, "share_of_memory": MEMORY_GOAL}
    write_json({"machine": machine(), "setting": setting, "goals": goals, "records": records}, RESULTS / "sets.json")
    console.print(f"written: {RESULTS / 'sets.json'}")


if __name__ == "__main__":
    main()

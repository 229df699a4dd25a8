"""Speed of the metrics as ratios: ``make bench``.

All metrics at k in one pass relative to one ``torch.topk``, and exact average precision by class relative to
torchmetrics.
Prints a table and writes ``benchmarks/results/metrics.json``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torchmetrics.classification import MultilabelAveragePrecision

from benchmarks.label_lists import label_lists
from benchmarks.side_by_side import Step, machine, medians, write_json
from shortlist import functional as F
from shortlist.metrics import MeanAveragePrecision, RankingMetrics

RESULTS = Path(__file__).parent / "results"
KS, POSITIVES = (1, 3, 5, 8, 10), 20
RANKING_SHAPE, RANKING_GOAL = (10_000, 8_921), 1.5
PRECISION_SHAPE, PRECISION_GOAL = (5_000, 1_000), 5.0
SHARES = (0.002, 0.02, 0.2)
"""Of labels that are positive."""


def ranking_step(scores: Tensor, target: Tensor) -> Step:
    """One update of all metrics at all ks, and their values."""

    def step() -> dict[str, Tensor]:
        metric = RankingMetrics(KS)
        metric.update(scores, target)
        return metric.compute()

    return step


def labels_in_forms(rows: int, labels: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The same labels as index lists, as multi-hots and as a sparse tensor."""
    lists = label_lists(rows, labels, POSITIVES, generator)
    hot = torch.zeros(rows, labels, dtype=torch.bool).scatter(1, lists, True)
    return {"index lists": lists, "bool": hot, "float32": hot.float(), "sparse": hot.float().to_sparse_coo()}


def rankings(progress: Progress) -> list[dict[str, Any]]:
    """All metrics at k, in units of one top-10."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(*RANKING_SHAPE, generator=generator)
    targets = labels_in_forms(*RANKING_SHAPE, generator)
    tied = (4 * scores).round()
    cases = [(name, "no ties", scores, target) for name, target in targets.items()]
    cases.append(("index lists", "ties in every row", tied, targets["index lists"]))
    task = progress.add_task("metrics at k", total=len(cases))
    records = []
    for form, kind, x, target in cases:
        times = medians({"topk": lambda x=x: x.topk(max(KS)), "ours": ranking_step(x, target)})
        records.append(
            {
                "labels": form,
                "scores": kind,
                "milliseconds": 1000 * times["ours"],
                "topk_milliseconds": 1000 * times["topk"],
                "ratio": times["ours"] / times["topk"],
                "goal": RANKING_GOAL if kind == "no ties" else None,
            }
        )
        progress.advance(task)
    return records


def precision_steps(scores: Tensor, target: Tensor) -> dict[str, Step]:
    """Mean average precision by class as a metric, in both packages."""

    def ours() -> Tensor:
        metric = MeanAveragePrecision()
        metric.update(scores, target)
        return metric.compute()

    def theirs() -> Tensor:
        metric = MultilabelAveragePrecision(scores.shape[-1], thresholds=None)
        metric.update(scores, target.long())
        return metric.compute()

    return {"ours": ours, "theirs": theirs, "binned": lambda: F.binned_average_precision(scores, target)}


def precisions(progress: Progress) -> list[dict[str, Any]]:
    """The speedup over torchmetrics; checks first that both agree."""
    task = progress.add_task("average precision", total=len(SHARES))
    records = []
    for share in SHARES:
        generator = torch.Generator().manual_seed(0)
        scores = torch.rand(*PRECISION_SHAPE, generator=generator)
        target = torch.rand(*PRECISION_SHAPE, generator=generator) < share
        target[0] = True  # torchmetrics counts a class without positives as 0, we leave it out
        steps = precision_steps(scores, target)
        difference = abs(float(steps["ours"]()) - float(steps["theirs"]()))
        times = medians(steps, rounds=5)
        records.append(
            {
                "share_of_positives": share,
                "milliseconds": 1000 * times["ours"],
                "torchmetrics_milliseconds": 1000 * times["theirs"],
                "binned_milliseconds": 1000 * times["binned"],
                "ratio": times["theirs"] / times["ours"],
                "goal": PRECISION_GOAL,
                "difference": difference,
            }
        )
        progress.advance(task)
    return records


def ranking_table(records: list[dict[str, Any]]) -> Table:
    """One line per form of the labels."""
    rows, labels = RANKING_SHAPE
    table = Table(title=f"P, R, F1, nDCG at k = {KS} on {rows:,} × {labels:,}, one thread; ratios to torch.topk(10)")
    for name in ("labels", "scores", "ms", "topk ms", "ratio", "goal"):
        table.add_column(name, justify="left" if name in ("labels", "scores") else "right")
    for entry in records:
        goal = "" if entry["goal"] is None else f"≤ {entry['goal']}"
        times = (f"{entry['milliseconds']:.0f}", f"{entry['topk_milliseconds']:.0f}", f"{entry['ratio']:.2f}")
        table.add_row(entry["labels"], entry["scores"], *times, goal)
    return table


def precision_table(records: list[dict[str, Any]]) -> Table:
    """One line per share of positives."""
    rows, labels = PRECISION_SHAPE
    table = Table(title=f"exact mAP by class on {rows:,} × {labels:,}, one thread; torchmetrics over ours")
    for name in ("positives", "ms", "torchmetrics ms", "ratio", "goal", "difference", "binned ms"):
        table.add_column(name, justify="right")
    for entry in records:
        table.add_row(
            f"{entry['share_of_positives']:.1%}",
            f"{entry['milliseconds']:.0f}",
            f"{entry['torchmetrics_milliseconds']:.0f}",
            f"{entry['ratio']:.1f}",
            f"≥ {entry['goal']}",
            f"{entry['difference']:.0e}",
            f"{entry['binned_milliseconds']:.0f}",
        )
    return table


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torchmetrics announces that it keeps all scores
    console = Console(width=150)
    with Progress(console=console, transient=True) as progress:
        ranked, precise = rankings(progress), precisions(progress)
    console.print(ranking_table(ranked))
    console.print(precision_table(precise))
    goals = [entry["ratio"] <= entry["goal"] for entry in ranked if entry["goal"] is not None]
    goals += [entry["ratio"] >= entry["goal"] and entry["difference"] <= 1e-6 for entry in precise]
    console.print(f"goals met: {sum(goals)} of {len(goals)}")
    result = {"machine": machine(), "threads": torch.get_num_threads(), "at_k": ranked, "average_precision": precise}
    write_json(result, RESULTS / "metrics.json")
    console.print(f"written: {RESULTS / 'metrics.json'}")


if __name__ == "__main__":
    main()

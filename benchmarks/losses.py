"""Speed and memory of the losses as ratios: ``make bench``.

Times are ratios to PyTorch's cross-entropy, with the goal beside each result. Prints a table, writes
``benchmarks/results/losses.json`` and draws the ratios against k.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from benchmarks import published_losses as published
from benchmarks.losses_report import draw, peak_table, speed_table
from benchmarks.side_by_side import PEAK_RESET, Step, forward_backward, machine, medians, peak_copies, write_json
from shortlist import functional as F

RESULTS = Path(__file__).parent / "results"
ROWS, LABELS, POSITIVES = 256, 1000, 5
SCALES, KS = (1, 3), (5, 20, 100)
YARDSTICK = "torch cross_entropy"

Loss = Callable[..., Tensor]


class Rival(NamedTuple):
    """A loss of a class and k, its published implementation, and the goals for its ratio to cross-entropy at each k."""

    name: str
    ours: Loss
    published: Loss
    goals: tuple[float, float, float]


RIVALS = [
    Rival("lml_nll", F.lml_nll, published.bracketing_lml_nll, (10, 10, 10)),
    Rival("truncated_topk_entropy", F.truncated_topk_entropy, published.sorted_truncated_entropy, (5, 6, 12)),
    Rival("noised_topk, 10 samples", F.noised_topk, published.dense_noised_topk, (15, 20, 35)),
    Rival("smooth_topk_svm", F.smooth_topk_svm, published.log_space_smooth_svm, (12, 30, 120)),
]
GOALS = {"two_way": 6.0, "asymmetric": 6.0, "average_k": 6.0}
AT_K = {"average_k": 5, "topk_hinge, calibrated": 5, "multilabel_truncated_topk_entropy": 20}
PEAK_GOAL = 4.0
PEAK_SHAPES, PEAK_SAMPLES = [(256, 1000), (64, 10_000)], (10, 100)


class Batch(NamedTuple):
    """Logits of two heads, a class per row, and several positives per row as a float multi-hot."""

    logits: Tensor
    proposals: Tensor
    classes: Tensor
    positives: Tensor


def batch(scale: int) -> Batch:
    """The same numbers at every scale."""
    generator = torch.Generator().manual_seed(0)
    logits, proposals = torch.randn(2, ROWS, LABELS, generator=generator).mul(scale).unbind()
    chosen = torch.rand(ROWS, LABELS, generator=generator).topk(POSITIVES).indices
    return Batch(
        logits.clone().requires_grad_(),
        proposals.clone().requires_grad_(),
        torch.randint(LABELS, (ROWS,), generator=generator),
        torch.zeros(ROWS, LABELS).scatter(-1, chosen, 1),
    )


def steps_without_rival(data: Batch) -> dict[str, Step]:
    """Losses measured at one k or without k; only ``average_k`` has two inputs with gradients."""
    x, z, y, positives = data
    of_class: dict[str, Loss] = {
        "cross_entropy": F.cross_entropy,
        "focal": F.focal,
        "topk_hinge, calibrated": lambda x, y: F.topk_hinge(x, y, AT_K["topk_hinge, calibrated"]),
        "sparsemax_loss": F.sparsemax_loss,
        "assume_negative": F.assume_negative,
        "expected_positive": lambda x, y: F.expected_positive(x, y, POSITIVES),
    }
    of_set: dict[str, Loss] = {
        "two_way": F.two_way,
        "asymmetric": F.asymmetric,
        "bce": F.bce,
        "sparse_top_loss": F.sparse_top_loss,
        "warp": F.warp,
        "rml": F.rml,
        "multilabel_truncated_topk_entropy": lambda x, positives: F.multilabel_truncated_topk_entropy(
            x, positives, AT_K["multilabel_truncated_topk_entropy"]
        ),
    }
    steps = {name: loss_step(loss, x, positives) for name, loss in of_set.items()}
    steps["average_k"] = forward_backward(lambda x, z: F.average_k(x, z, y, AT_K["average_k"]), x, z)
    return steps | {name: loss_step(loss, x, y) for name, loss in of_class.items()}


def loss_step(loss: Loss, x: Tensor, target: Tensor, *options: int) -> Step:
    """Forward and backward of a loss of one input."""
    return forward_backward(lambda x: loss(x, target, *options), x)


def yardstick_step(data: Batch) -> dict[str, Step]:
    """The denominator of all ratios."""
    return {YARDSTICK: loss_step(torch.nn.functional.cross_entropy, data.logits, data.classes)}


def record(name: str, k: int | None, scale: int, goal: float | None, times: dict[str, float]) -> dict[str, Any]:
    """One measurement relative to the yardstick of the same turns."""
    return {
        "loss": name,
        "k": k,
        "scale": scale,
        "milliseconds": 1000 * times[name],
        "cross_entropy_milliseconds": 1000 * times[YARDSTICK],
        "ratio": times[name] / times[YARDSTICK],
        "goal": goal,
    }


def against_published(rival: Rival, data: Batch, k: int) -> dict[str, float]:
    """The speedup over the published implementation, in few turns because it is slow; checks first that both agree."""
    x, y = data.logits, data.classes
    torch.testing.assert_close(rival.ours(x, y, k), rival.published(x, y, k), rtol=0.01, atol=0)
    steps = {"ours": loss_step(rival.ours, x, y, k), "published": loss_step(rival.published, x, y, k)}
    times = medians(steps, rounds=5)
    slowness = times["published"] / times["ours"]
    return {"published_milliseconds": 1000 * times["published"], "published_over_ours": slowness}


def side_by_side(progress: Progress) -> list[dict[str, Any]]:
    """Every loss at every scale, and at every k if it has a rival."""
    task = progress.add_task("side by side", total=len(SCALES) * (len(KS) + 1))
    records = []
    for scale in SCALES:
        data = batch(scale)
        yardstick = yardstick_step(data)
        for i, k in enumerate(KS):
            for rival in RIVALS:
                times = medians(yardstick | {rival.name: loss_step(rival.ours, data.logits, data.classes, k)})
                entry = record(rival.name, k, scale, rival.goals[i], times)
                records.append(entry | against_published(rival, data, k))
            progress.advance(task)
        for name, step in steps_without_rival(data).items():
            times = medians(yardstick | {name: step})
            records.append(record(name, AT_K.get(name), scale, GOALS.get(name), times))
        progress.advance(task)
    return records


def peak_step(rows: int, labels: int, k: int, samples: int) -> tuple[Step, Tensor]:
    """The forward pass of ``noised_topk``, and its input."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, labels, generator=generator).requires_grad_()
    y = torch.randint(labels, (rows,), generator=generator)
    return lambda: F.noised_topk(x, y, k, samples=samples), x


def peaks(progress: Progress) -> list[dict[str, Any]]:
    """Peak memory of ``noised_topk``, in copies of the logits; empty if it cannot be measured."""
    cases = [(*shape, k, samples) for shape in PEAK_SHAPES for k in KS[::2] for samples in PEAK_SAMPLES]
    task = progress.add_task("memory", total=len(cases))
    found = []
    for case in cases if PEAK_RESET.exists() else []:
        copies = peak_copies("benchmarks.losses", *case)
        place = dict(zip(("rows", "labels", "k", "samples"), case, strict=True))
        found.append(place | {"copies": copies, "goal": PEAK_GOAL})
        progress.advance(task)
    return found


def main() -> None:
    """Measure, print, write, draw."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    console = Console(width=150)
    with Progress(console=console, transient=True) as progress:
        records = side_by_side(progress)
        alone = 1000 * medians(yardstick_step(batch(1)))[YARDSTICK]
        found = peaks(progress)
    view = speed_table(records)
    view.title = f"forward + backward, float32, {ROWS} × {LABELS}, one thread; ratios to PyTorch's cross-entropy"
    console.print(view)
    turns = sorted(entry["cross_entropy_milliseconds"] for entry in records)
    # A step takes longer after another one than after itself, so the ratios depend on taking turns.
    console.print(f"{YARDSTICK}: {turns[0]:.2f} to {turns[-1]:.2f} ms in turns, {alone:.2f} ms repeated alone")
    if found:
        console.print(peak_table(found))
    goals = [entry["ratio"] <= entry["goal"] for entry in records if entry["goal"] is not None]
    goals += [case["copies"] <= case["goal"] for case in found]
    console.print(f"goals met: {sum(goals)} of {len(goals)}")
    setting = {"rows": ROWS, "labels": LABELS, "positives": POSITIVES, "threads": torch.get_num_threads()}
    result = {"machine": machine(), "setting": setting, "cross_entropy_alone_milliseconds": alone}
    result |= {"records": records, "noised_topk_peak": found}
    write_json(result, RESULTS / "losses.json")
    draw(records, RESULTS / "losses.png")
    console.print(f"written: {RESULTS / 'losses.json'} and losses.png")


if __name__ == "__main__":
    main()

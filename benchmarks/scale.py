"""Memory and time of losses over many labels, plain and chunked: ``python -m benchmarks.scale``.

A linear layer and its loss, forward and backward. Plain: the logits are a tensor. Chunked: ``LinearLogits`` computes
them a block of labels at a time. Each peak is measured in a process of its own; the times take turns in another one.
Prints a table and writes ``benchmarks/results/scale.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.label_lists import label_lists
from benchmarks.side_by_side import PEAK_RESET, RETURNED_FROM, colored, forward_backward, machine, resident, write_json
from shortlist import functional as F
from shortlist.memory import estimate_memory
from shortlist.timing import free_memory

RESULTS = Path(__file__).parent / "results"
ROWS, LABELS, FEATURES, POSITIVES, K = 256, 1_000_000, 256, 5, 20
MEMORY_GOAL, TIME_GOAL = 1 / 8, 2.0
"""Of the memory of the plain path, at most this share; at most so many times its time."""

Logits = Callable[[Tensor, Tensor, Tensor], Any]
HEADS: dict[str, Logits] = {"plain": linear, "chunked": F.LinearLogits}
CLOCKS = {"seconds": time.perf_counter, "processor_seconds": time.process_time}
LOSSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "lml_nll": lambda logits, target: F.lml_nll(logits, target, K),
    "bce": F.bce,
    "two_way": F.two_way,
    "truncated_topk_entropy": lambda logits, target: F.truncated_topk_entropy(logits, target[:, 0], K),
    "multilabel_truncated_topk_entropy": lambda logits, target: F.multilabel_truncated_topk_entropy(logits, target, K),
}


def layer(labels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, weight and bias, all with gradients; logits of about unit size."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, FEATURES, generator=generator)
    weight = torch.randn(labels, FEATURES, generator=generator).mul_(FEATURES**-0.5)
    return features.requires_grad_(), weight.requires_grad_(), torch.zeros(labels, requires_grad=True)


def targets(labels: int) -> Tensor:
    """Index lists."""
    return label_lists(ROWS, labels, POSITIVES, torch.Generator().manual_seed(1))


def loss_of(name: str, head: str, labels: int) -> Callable[..., Tensor]:
    """The loss as a function of the layer."""
    target = targets(labels)
    return lambda *parts: LOSSES[name](HEADS[head](*parts), target)


def print_peak(name: str, head: str, labels: int, threads: int) -> None:
    """The body of ``peak``: after a small step, which loads what stays loaded, one step of full size is measured."""
    torch.set_num_threads(threads)
    forward_backward(loss_of(name, head, 2_000), *layer(2_000))()
    PEAK_RESET.write_text("5")
    before = resident("VmRSS")
    parts = layer(labels)
    forward_backward(loss_of(name, head, labels), *parts)()
    whole = resident("VmHWM") - before
    # Parameters, features and the gradients of all of them.
    needed = 2 * sum(part.numel() * part.element_size() for part in parts)
    print(json.dumps({"whole": whole, "beyond": whole - needed}))


def print_times(name: str, labels: int, threads: int, rounds: int) -> None:
    """Median seconds of each step in turns; also in processor time, which does not depend on other programs."""
    torch.set_num_threads(threads)
    parts = layer(labels)
    steps = {head: forward_backward(loss_of(name, head, labels), *parts) for head in HEADS}
    times: dict[str, dict[str, list[float]]] = {clock: {head: [] for head in HEADS} for clock in CLOCKS}
    for head in HEADS:  # a small step loads what stays loaded
        forward_backward(loss_of(name, head, 2_000), *layer(2_000))()
    for _ in range(rounds):
        for head, step in steps.items():
            begin = {clock: read() for clock, read in CLOCKS.items()}
            step()
            for clock, read in CLOCKS.items():
                times[clock][head].append(read() - begin[clock])
    found = {clock: {head: statistics.median(values) for head, values in of.items()} for clock, of in times.items()}
    print(json.dumps(found))


def in_a_process(call: str) -> dict[str, Any]:
    """What a function of this module prints in a process of its own that returns freed memory."""
    limits = {name: str(RETURNED_FROM) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}
    # Times are measured in an ordinary process.
    environment = os.environ | limits if call.startswith("print_peak") else os.environ
    command = [sys.executable, "-c", f"from benchmarks import scale; scale.{call}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def measured(name: str, labels: int, threads: int, rounds: int, advance: Callable[[], None]) -> dict[str, Any]:
    """Peaks and times of one loss, chunked over plain."""
    record: dict[str, Any] = {"loss": name}
    if PEAK_RESET.exists():
        peaks = {}
        for head in HEADS:
            peaks[head] = in_a_process(f"print_peak({name!r}, {head!r}, {labels}, {threads})")
            advance()
        record["peak_bytes"] = peaks
        for part in ("beyond", "whole"):
            record[f"share_{part}"] = peaks["chunked"][part] / peaks["plain"][part]
    times = in_a_process(f"print_times({name!r}, {labels}, {threads}, {rounds})")
    advance()
    record |= times
    for clock, name in (("seconds", "times_longer"), ("processor_seconds", "times_longer_of_processor")):
        record[name] = times[clock]["chunked"] / times[clock]["plain"]
    return record


def fitting(labels: int) -> int:
    """``labels``, or as many as fit into free memory."""
    free = free_memory()
    while free is not None and labels > 1000:
        needs = (
            estimate_memory(rows=ROWS, labels=labels, features=FEATURES, loss=loss, optimizer="sgd").total
            for loss in LOSSES
        )
        if max(needs) * 1.2 < free:
            break
        labels //= 2
    return labels


def table(records: list[dict[str, Any]]) -> Table:
    """One line per loss."""
    view = Table(title_justify="left")
    view.add_column("loss")
    names = [
        "MB beyond\nplain",
        "MB beyond\nchunked",
        f"share\n≤ {MEMORY_GOAL:g}",
        "MB in all\nplain",
        "MB in all\nchunked",
    ]
    names += ["share", "seconds\nplain", "seconds\nchunked", f"ratio\n≤ {TIME_GOAL:g}", "of the\nprocessor"]
    for name in names:
        view.add_column(name, justify="right")
    for record in records:
        cells = [record["loss"]]
        for part in ("beyond", "whole"):
            if "peak_bytes" not in record:
                cells += ["", "", ""]
                continue
            cells += [f"{record['peak_bytes'][head][part] / 1e6:,.0f}" for head in HEADS]
            share = record[f"share_{part}"]
            cells.append(colored(f"{share:.3f}", share <= MEMORY_GOAL) if part == "beyond" else f"{share:.2f}")
        cells += [f"{record['seconds'][head]:.2f}" for head in HEADS]
        cells.append(colored(f"{record['times_longer']:.2f}", record["times_longer"] <= TIME_GOAL))
        cells.append(f"{record['times_longer_of_processor']:.2f}")
        view.add_row(*cells)
    return view


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="Many labels, plain and chunked.")
    parser.add_argument("--labels", type=int, default=LABELS, help=f"default {LABELS:,}, or what fits into the memory")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each time (default 3)")
    parser.add_argument("--output", type=Path, default=RESULTS / "scale.json", help="where the result is written")
    options = parser.parse_args()
    labels = fitting(options.labels)
    console = Console(width=150)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("plain and chunked", total=3 * len(LOSSES))
        records = [
            measured(name, labels, options.threads, options.rounds, lambda: progress.advance(task)) for name in LOSSES
        ]
    view = table(records)
    view.title = (
        f"forward + backward of a linear layer and its loss, float32, {ROWS} × {labels:,} labels, {FEATURES} features, "
        f"threads: {options.threads}"
    )
    console.print(view)
    console.print(
        "Peak memory in MB: beyond parameters, features and the gradients of both, which each way needs alike; and in "
        "all, but for what Python and torch take."
    )
    if labels < options.labels:
        console.print(f"{options.labels:,} labels do not fit into the free memory; measured with {labels:,}")
    goals = [record["times_longer"] <= TIME_GOAL for record in records]
    goals += [record["share_beyond"] <= MEMORY_GOAL for record in records if "peak_bytes" in record]
    console.print(f"goals met: {sum(goals)} of {len(goals)}")
    setting = {"rows": ROWS, "labels": labels, "features": FEATURES, "positives": POSITIVES, "k": K}
    setting |= {"threads": options.threads, "rounds": options.rounds}
    goal = {"share_beyond": MEMORY_GOAL, "times_longer": TIME_GOAL}
    write_json({"machine": machine(), "setting": setting, "goals": goal, "records": records}, options.output)
    console.print(f"written: {options.output}")


if __name__ == "__main__":
    main()

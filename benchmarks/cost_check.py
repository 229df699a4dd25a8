"""The cost model of ``benchmarks.cost_model`` beside measurements: ``make bench``.

One size calibrates, the others check. Prints tables and writes ``benchmarks/results/cost.json``.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.cost_model import LOSSES, Rates, Step
from benchmarks.label_lists import label_lists
from benchmarks.side_by_side import Step as Work
from benchmarks.side_by_side import machine, medians, write_json
from shortlist import functional as F
from shortlist.functional import LinearLogits

RESULTS = Path(__file__).parent / "results"
K, POSITIVES = 20, 5
CALIBRATION = (128, 20_000, 128)
CHECKS = ((64, 50_000, 64), (128, 40_000, 256), (32, 200_000, 64))
HEADS = ("plain", "chunked")
SHARDED = Step(64, 50_000, 64, "lml_nll")
PROCESSES = (1, 2, 4)
MESSAGES = 200


def layer(rows: int, labels: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features and weight, both with gradients, and the labels of each row."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, features, generator=generator).requires_grad_()
    weight = (torch.randn(labels, features, generator=generator) * features**-0.5).requires_grad_()
    return inputs, weight, label_lists(rows, labels, POSITIVES, generator)


def work(step: Step) -> Work:
    """Forward and backward of a step in this process."""
    inputs, weight, target = layer(step.rows, step.labels, step.features)
    losses = {
        "lml_nll": lambda x: F.lml_nll(x, target, K),
        "bce": lambda x: F.bce(x, target),
        "two_way": lambda x: F.two_way(x, target),
        "truncated_topk_entropy": lambda x: F.truncated_topk_entropy(x, target[:, 0], K),
    }

    def run() -> None:
        inputs.grad = weight.grad = None
        logits = linear(inputs, weight) if step.head == "plain" else LinearLogits(inputs, weight)
        losses[step.loss](logits).backward()

    return run


def products(rows: int, labels: int, features: int) -> Work:
    """The three matrix products of a plain step, a block of labels at a time."""
    inputs, weight, _ = layer(rows, labels, features)
    inputs, weight = inputs.detach(), weight.detach()
    block = max(64, (1 << 21) // rows)
    logits = torch.empty(rows, block)

    def run() -> None:
        for start in range(0, labels, block):
            part = weight[start : start + block]
            x = logits[:, : len(part)]
            torch.mm(inputs, part.T, out=x)
            x.T @ inputs
            x @ part

    return run


def operations_per_second(sizes: tuple[int, int, int]) -> float:
    """The rate of matrix products at some sizes."""
    rows, labels, features = sizes
    return 6.0 * rows * labels * features / medians({"": products(*sizes)}, seconds=0.4, rounds=5)[""]


def calibrated() -> Rates:
    """The rates of this machine and the constants of the losses, from one size."""
    rate = operations_per_second(CALIBRATION)
    steps = [Step(*CALIBRATION, loss, head) for loss in LOSSES for head in HEADS]
    per_logit = {}
    for step in steps:
        seconds = medians({"": work(step)}, seconds=0.4, rounds=5)[""]
        per_logit[f"{step.loss} {step.head}"] = max(0.0, (seconds - step.operations / rate) / step.logits)
    return Rates(rate, per_logit)


def checked(rates: Rates, progress: Progress) -> list[dict[str, Any]]:
    """Measured and predicted seconds at the other sizes; products at their own rate, which depends on the size."""
    task = progress.add_task("one process", total=len(CHECKS) * len(LOSSES) * len(HEADS))
    records = []
    for sizes in CHECKS:
        here = replace(rates, operations=operations_per_second(sizes))
        for loss in LOSSES:
            for head in HEADS:
                step = Step(*sizes, loss, head)
                seconds = medians({"": work(step)}, seconds=0, rounds=5)[""]
                records.append({**asdict(step), "seconds": seconds, "predicted": here.seconds(step)})
                progress.advance(task)
    return records


def sharded(rank: int, processes: int, port: int, folder: str) -> None:
    """One process of a sharded step; the first writes what it measured."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (processes,))
    inputs, weight, target = layer(SHARDED.rows, SHARDED.labels, SHARDED.features)
    weight = weight.detach().chunk(processes)[rank].clone().requires_grad_()
    sent: list[int] = []
    reduce = dist.all_reduce

    def counting(values: Tensor, *rest: Any, **options: Any) -> Any:
        sent.append(values.numel() * values.element_size())
        return reduce(values, *rest, **options)

    def step() -> None:
        inputs.grad = weight.grad = None
        logits = DTensor.from_local(linear(inputs, weight), mesh, [Shard(1)], run_check=False)
        F.lml_nll(logits, target, K).backward()
        dist.all_reduce(inputs.grad)

    step()
    dist.all_reduce = counting
    step()
    dist.all_reduce = reduce
    times, waits = [], []
    for _ in range(7):
        dist.barrier()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    few = torch.zeros(SHARDED.rows, 3, dtype=torch.float64)
    dist.barrier()
    for _ in range(MESSAGES):
        began = time.perf_counter()
        reduce(few)
        waits.append(time.perf_counter() - began)
    if rank == 0:
        found = {
            "processes": processes,
            "seconds": statistics.median(times),
            "messages": len(sent) if processes > 1 else 0,
            "message_bytes": sum(sent) if processes > 1 else 0,
            "seconds_per_message": statistics.median(waits),
            "operations_per_second": operations_per_second(
                (SHARDED.rows, SHARDED.labels // processes, SHARDED.features)
            ),
        }
        torch.save(found, folder)
    dist.barrier()  # a process that leaves earlier takes the threads of the others' connections with it
    dist.destroy_process_group()


def over_processes(progress: Progress) -> list[dict[str, Any]]:
    """Steps with the labels over 1, 2 and 4 processes of one thread each."""
    records = []
    task = progress.add_task("several processes", total=len(PROCESSES))
    for processes in PROCESSES:
        with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port, path = probe.getsockname()[1], f"{folder}/found"
            probe.close()
            multiprocessing.spawn(sharded, (processes, port, path), nprocs=processes)
            records.append(torch.load(path, weights_only=True))
        progress.advance(task)
    return predicted_over_processes(records)


def predicted_over_processes(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds to the measurements what one process and the messages predict; processes beyond the cores share them."""
    alone, cores = records[0], os.cpu_count() or 1
    rate = alone["operations_per_second"]
    per_logit = (alone["seconds"] - SHARDED.operations / rate) / SHARDED.logits
    for record in records:
        step = replace(SHARDED, processes=record["processes"])
        crowd = max(1.0, record["processes"] / cores)
        rates = Rates(rate / crowd, {"lml_nll plain": per_logit * crowd}, record["seconds_per_message"])
        record["predicted"] = rates.seconds(step)
        record["predicted_messages"], record["predicted_bytes"] = step.messages, step.message_bytes
    return records


def main() -> None:
    """Measure, print, write."""
    console = Console()
    torch.set_num_threads(1)  # More would wait for each other whenever the machine does something else.
    with Progress(console=console, transient=True) as progress:
        rates = calibrated()
        one, several = checked(rates, progress), over_processes(progress)
    result = {
        "machine": machine(),
        "calibration": CALIBRATION,
        "rates": asdict(rates),
        "checks": one,
        "sharded": several,
    }
    write_json(result, RESULTS / "cost.json")
    table = Table("rows", "labels", "features", "loss", "head", "s", "predicted", "ratio", title="cost of a step")
    for record in one:
        sizes = (f"{record[name]:,}" for name in ("rows", "labels", "features"))
        ratio = record["predicted"] / record["seconds"]
        figures = f"{record['seconds']:.3f}", f"{record['predicted']:.3f}", f"{ratio:.2f}"
        table.add_row(*sizes, record["loss"], record["head"], *figures)
    console.print(table)
    table = Table("processes", "s", "predicted", "messages", "predicted", "bytes", "predicted", title="labels sharded")
    for record in several:
        figures = f"{record['seconds']:.3f}", f"{record['predicted']:.3f}", f"{record['messages']}"
        sizes = f"{record['predicted_messages']}", f"{record['message_bytes']:,}", f"{record['predicted_bytes']:,.0f}"
        table.add_row(str(record["processes"]), *figures, *sizes)
    console.print(table)


if __name__ == "__main__":
    main()

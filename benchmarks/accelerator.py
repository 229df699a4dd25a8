"""What every operator and loss costs on an accelerator, counted without one: ``python -m benchmarks.accelerator``.

Kernels, bytes (as multiples of softmax, forward and backward), float64 kernels on wide tensors and host reads: of
tensor operations on the meta device, and of Triton kernels by their own loads and stores. Then the kernels are compiled
for four targets, and a roofline forecast for two cards is computed. Prints tables with the goal beside each result,
writes ``benchmarks/results/accelerator.json`` and the forecast in ``docs/scale.md``. With ``--device cuda`` it also
measures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined: before anything imports one

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.progress import track

from benchmarks import accelerator_report, published, roofline, scale_tables
from benchmarks.device_cases import CASES, PUBLISHED, PUBLISHED_SAMPLES, SOFTMAX, Batch, Case
from benchmarks.device_cost import Cost
from benchmarks.device_rules import rules_and_metrics
from benchmarks.gpu_compile import compile_table
from benchmarks.side_by_side import machine, write_json
from shortlist.kernels.chooser import has_triton

RESULTS = Path(__file__).parent / "results"
ROWS, LABELS = 256, 1000
INTERPRETED_ROWS = 32
"""Rows of the interpreted kernels: bytes are proportional to rows, and so are those of softmax."""

QUOTED = {"operator": "lml", "kernels": 122, "multiple": 214, "float64": 0, "host_reads": 13}
"""The authors' LML in its CUDA branch, counted before; the plain version in `benchmarks.published` is shorter."""


@contextmanager
def path(choice: str) -> Iterator[None]:
    """Let CPU tensors take one of the codes of accelerators: ``"device"`` or ``"triton"``."""
    with mock.patch.dict(os.environ, SHORTLIST_KERNELS=choice):
        yield


def record(case: Case, cost: Cost, unit: int, **more: Any) -> dict[str, Any]:
    """A line of the table; ``unit`` is what softmax moves at the same size."""
    return {
        "operator": case.name,
        "kind": case.kind,
        "option": case.option,
        "target": case.target,
        "kernels": cost.kernels,
        "launches": cost.launches,
        "multiple": cost.bytes / unit,
        "float64": cost.wide_float64,
        "host_reads": cost.host_reads,
        "uploads": cost.uploads,
        **more,
    }


def attempt(case: Case, batch: Batch, unit: int, **goals: float | None) -> dict[str, Any]:
    """A line of the table, or the reason why the step cannot run."""
    try:
        return record(case, case.cost(batch), unit, **goals)
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        names = {"operator": case.name, "kind": case.kind, "option": case.option, "target": case.target}
        return names | {"error": reason}


def eager() -> list[dict[str, Any]]:
    """Tensor operations of accelerators, on the meta device."""
    batch = Batch(ROWS, LABELS)
    unit = SOFTMAX.cost(batch).bytes
    return [
        attempt(case, batch, unit, kernels_goal=case.eager_kernels, goal=case.eager_bytes)
        for case in track(CASES, "tensor operations", transient=True)
    ]


def interpreted() -> list[dict[str, Any]]:
    """Triton kernels, interpreted; steps that launch none are left out."""
    batch = Batch(INTERPRETED_ROWS, LABELS, "cpu")
    unit = SOFTMAX.cost(batch).bytes
    with path("triton"):
        found = [
            attempt(case, batch, unit, kernels_goal=case.triton_kernels, goal=case.triton_bytes)
            for case in track(CASES, "Triton kernels", transient=True)
        ]
    return [entry for entry in found if entry.get("launches", 1)]


def published_code() -> list[dict[str, Any]]:
    """Plain versions of the published algorithms: on the CPU, since their loops depend on values."""
    batch = Batch(INTERPRETED_ROWS, LABELS, "cpu")
    unit = SOFTMAX.cost(batch).bytes
    with mock.patch.object(published, "SAMPLES", PUBLISHED_SAMPLES):
        return [record(case, case.cost(batch), unit) for case in PUBLISHED]


def measured(device: str) -> list[dict[str, Any]]:
    """Times on a card, in a process whose kernels are compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.accelerator_times", device]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"measuring on {device} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    """Count, compile, forecast, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="also measure the steps on this device (default: count only)")
    options = parser.parse_args()
    torch.manual_seed(0)
    console = Console(width=150)
    result: dict[str, Any] = {
        "machine": machine(),
        "setting": {"rows": ROWS, "labels": LABELS, "interpreted_rows": INTERPRETED_ROWS},
        "eager": eager(),
        "triton": interpreted() if has_triton() else [],
        "published": published_code(),
        "quoted": QUOTED,
        "rules": rules_and_metrics(ROWS, LABELS),
        "compiled": compile_table() if has_triton() else [],
    }
    result["forecast"] = roofline.counts()
    if options.device != "cpu":
        result["measured"] = measured(options.device)
    accelerator_report.show(console, result)
    write_json(result, RESULTS / "accelerator.json")
    scale_tables.DOCUMENT.write_text(scale_tables.filled(scale_tables.DOCUMENT.read_text()))
    console.print(f"written: {RESULTS / 'accelerator.json'} and the forecast in {scale_tables.DOCUMENT.name}")


if __name__ == "__main__":
    main()

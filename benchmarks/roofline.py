"""A forecast for graphics cards: launches times 4 µs plus bytes over bandwidth. Computed, not measured.

Tensor operations are counted on the meta device at each size. Kernels are interpreted with few rows, and their bytes
grow with the rows; rows wider than a program holds are read once per pass, which the interpreter counts as it happens.
The published code is counted at 1000 labels, and its bytes grow with the logits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from benchmarks import published
from benchmarks.device_cases import CASES, PUBLISHED, PUBLISHED_SAMPLES, SOFTMAX, Batch, Case
from shortlist.kernels.chooser import has_triton

SIZES = [(256, 1000), (256, 10_000), (4096, 32_000), (64, 1_000_000)]
LAUNCH = 4e-6
BANDWIDTH = {"A100": 2.0e12, "H100": 3.35e12}
"""Bytes per second: A100 with 80 GB, H100 SXM."""
NAMES = ("lml", "sparse_top", "lml_nll")
"""What the forecast shows: two projections, and a loss of index lists (of one class in the published code)."""


def counts() -> list[dict[str, Any]]:
    """Kernels and bytes of every operator of the forecast, at every size and in every code."""
    return [*_eager(), *(_interpreted() if has_triton() else ()), *_published()]


def cases() -> list[Case]:
    """The cases of the forecast, softmax first, with k as a number."""
    shown = (case for case in CASES if case.name in NAMES and case.target in ("", "lists") and not case.option)
    return [SOFTMAX, *shown]


def seconds(entry: dict[str, Any], card: str) -> float:
    """The time that the formula predicts."""
    return LAUNCH * entry["kernels"] + entry["bytes"] / BANDWIDTH[card]


def _eager() -> Iterator[dict[str, Any]]:
    for rows, labels in SIZES:
        for case in cases():
            cost = case.cost(Batch(rows, labels))
            yield _entry(case, "tensor operations", rows, labels, cost.kernels, cost.bytes)


def _interpreted() -> Iterator[dict[str, Any]]:
    with mock.patch.dict(os.environ, SHORTLIST_KERNELS="triton"):
        for rows, labels in SIZES:
            few = max(1, 16_000 // labels)
            for case in cases():
                cost = case.cost(Batch(few, labels, "cpu"))
                if cost.launches:
                    yield _entry(case, "Triton", rows, labels, cost.kernels, cost.bytes * rows // few)


def _published() -> Iterator[dict[str, Any]]:
    few = Batch(16, 1000, "cpu")
    with mock.patch.object(published, "SAMPLES", PUBLISHED_SAMPLES):
        for case in PUBLISHED:
            if case.name in NAMES:
                cost = case.cost(few)
                for rows, labels in SIZES:
                    size = cost.bytes * rows * labels // (few.rows * few.labels)
                    yield _entry(case, "published", rows, labels, cost.kernels, size)


def _entry(case: Case, code: str, rows: int, labels: int, kernels: int, size: int) -> dict[str, Any]:
    return {"operator": case.name, "code": code, "rows": rows, "labels": labels, "kernels": kernels, "bytes": size}

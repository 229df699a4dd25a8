"""Times of the counted steps on a card, beside what the roofline predicts; none without a card."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import torch

from benchmarks import roofline
from benchmarks.device_cases import Batch
from benchmarks.side_by_side import medians

WARM_UP = 3


def measured(device: str) -> list[dict[str, Any]]:
    """Median seconds of every operator of the forecast at every size that fits, with and without kernels.

    Run in a process without ``TRITON_INTERPRET``: an interpreted kernel would copy its tensors to the host.
    """
    found = []
    for rows, labels in roofline.SIZES:
        for code, choice in (("Triton", "on"), ("tensor operations", "off")):
            with mock.patch.dict(os.environ, SHORTLIST_KERNELS=choice):
                found += [_measured(case, code, Batch(rows, labels, device)) for case in roofline.cases()]
    return found


def _measured(case: Any, code: str, batch: Batch) -> dict[str, Any]:
    entry = {"operator": case.name, "code": code, "rows": batch.rows, "labels": batch.labels}
    try:
        step = case.make(batch)
        wait = getattr(torch, torch.device(batch.device).type).synchronize

        def finished() -> None:
            step()
            wait()

        for _ in range(WARM_UP):  # compiles the kernel
            finished()
        return entry | {"seconds": medians({case.name: finished})[case.name]}
    except torch.OutOfMemoryError:
        return entry | {"seconds": None}


def main() -> None:
    """Measure on the device of the first argument and print JSON."""
    import json
    import sys

    print(json.dumps(measured(sys.argv[1])))


if __name__ == "__main__":
    main()

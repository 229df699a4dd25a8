"""Run a function of a test on several processes that talk by gloo, and get back what each of them returns.

The processes are forked from a fresh one, which imports everything once: to fork one with threads may lock it up.
"""

import importlib
import json
import multiprocessing
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.python_process import run_python


def on_processes(work: Callable[..., object], *calls: tuple) -> list[list[Any]]:
    """For each call ``(world, *arguments)``, what ``work(*arguments)`` returns on each of the processes."""
    run = run_python("-m", "tests.process_group", work.__module__, work.__name__, json.dumps(calls))
    return json.loads(run.stdout)


def differing(cases: Mapping[str, Callable[[DeviceMesh], Iterable[str]]]) -> dict[str, list[str]]:
    """What each case finds wrong on this process; an error in one does not keep the others from running."""
    mesh, found = init_device_mesh("cpu", (dist.get_world_size(),)), {}
    for name, case in cases.items():
        try:
            found[name] = list(case(mesh))
        except Exception:  # noqa: PERF203
            found[name] = [traceback.format_exc()]
    return found


def _work(work: Callable[..., object], rank: int, world: int, arguments: list, folder: str) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    wait = timedelta(seconds=60)  # for one that died or asks for something else
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=wait)
    Path(folder, f"{rank}.json").write_text(json.dumps(work(*arguments)))
    dist.destroy_process_group()


def _together(work: Callable[..., object], world: int, *arguments: object) -> list[Any]:
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [fork.Process(target=_work, args=(work, rank, world, arguments, folder)) for rank in range(world)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


if __name__ == "__main__":
    function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    sys.stdout.write(json.dumps([_together(function, *call) for call in json.loads(sys.argv[3])]))

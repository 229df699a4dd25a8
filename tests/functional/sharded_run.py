"""Run by test_sharded.py as a program: all cases of sharded labels, in processes that talk by gloo."""

import json
import multiprocessing
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # loaded by the first DTensor: here once for all processes
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.functional.sharded_cases import CASES
from tests.functional.sharded_rules import RULES


def work(rank: int, world: int, folder: str) -> None:
    """One process: what each case found wrong."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    wait = timedelta(seconds=60)  # for one that died or asks for something else
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=wait)
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    for name, case in (CASES | RULES).items():
        try:
            found[name] = case(mesh)
        except Exception:  # noqa: PERF203  (the others go on, and so does this one)
            found[name] = [traceback.format_exc()]
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def together(world: int) -> list[dict[str, list[str]]]:
    """What each of so many processes found."""
    fork = multiprocessing.get_context("fork")  # what is imported once serves all
    with tempfile.TemporaryDirectory() as folder:
        processes = [fork.Process(target=work, args=(rank, world, folder)) for rank in range(world)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(together(int(sys.argv[1]))))

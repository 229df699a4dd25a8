"""Run by test_processes.py: every metric on shares of the same rows, in processes that talk by gloo."""

import json
import multiprocessing
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from tests.contracts_metrics import METRICS, draw, flat

ROWS = 12
SHARES = {1: [[12]], 2: [[7, 5], [0, 12]], 3: [[5, 0, 7], [4, 4, 4]], 4: [[1, 0, 11, 0], [0, 2, 3, 7]]}
"""How many of the rows each process gets, for each number of processes."""
DTYPES = [torch.float64, torch.float32]


def share_of(case, shares: list[int], rank: int, dtype: torch.dtype) -> list[float]:
    """The value that a process computes together with the others; who has no rows never updates."""
    scores, hot = draw(case, ROWS, 7)
    start = sum(shares[:rank])
    metric = case.metric()
    if shares[rank]:
        middle, end = start + shares[rank] // 2, start + shares[rank]
        for part in (slice(start, middle), slice(middle, end)):
            case.update(metric, scores[part].to(dtype), hot[part])
    return flat(metric.compute())


def work(rank: int, world: int, folder: str) -> None:
    """One process: all metrics, all ways to share."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    found = {
        f"{case} {shares} {dtype}": share_of(case, shares, rank, dtype)
        for case in METRICS
        for shares in SHARES[world]
        for dtype in DTYPES
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def together(world: int) -> list[dict[str, list[float]]]:
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
    sys.stdout.write(json.dumps({world: together(int(world)) for world in sys.argv[1:]}))

"""Metrics on several processes, with uneven and empty shares, have the value of one process with all rows."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DistributedSampler

from shortlist.metrics import sampler_mask
from tests.contracts_metrics import METRICS, draw, flat
from tests.metrics.shares import DTYPES, ROWS, SHARES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("worlds", [(1, 2), pytest.param((3, 4), marks=pytest.mark.slow)], ids=str)
def test_any_share_among_processes_gives_the_same_value(worlds):
    command = [sys.executable, "-m", "tests.metrics.shares", *map(str, worlds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(run.stdout)
    for case in METRICS:
        metric = case.metric()
        case.update(metric, *draw(case, ROWS, 7))
        wanted = flat(metric.compute())
        for world, shares, dtype in [(w, s, d) for w in worlds for s in SHARES[w] for d in DTYPES]:
            for mine in found[str(world)]:
                got = mine[f"{case} {shares} {dtype}"]
                pairs = zip(got, wanted, strict=True)
                assert all(math.isclose(a, b, rel_tol=1e-12) or (a != a and b != b) for a, b in pairs), (case, shares)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_rows", [1, 5, 8, 13])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_example_counts_once_with_the_mask_of_a_sampler(world, num_rows, shuffle):
    counted = []
    for rank in range(world):
        sampler = DistributedSampler(range(num_rows), world, rank, shuffle=shuffle, seed=3)
        mine = torch.tensor(list(sampler))
        for start in range(0, len(mine), 2):
            batch = mine[start : start + 2]
            mask = sampler_mask(num_rows, rank=rank, world_size=world, start=start, count=len(batch))
            counted += batch[mask].tolist()
    assert sorted(counted) == list(range(num_rows))


def test_the_mask_of_a_sampler_wants_numbers_that_make_sense():
    with pytest.raises(ValueError, match=r"`rank` must lie in \[0, 1\]; got 2."):
        sampler_mask(5, rank=2, world_size=2, start=0, count=1)
    with pytest.raises(ValueError, match=r"`world_size` must lie in"):
        sampler_mask(5, rank=0, world_size=0, start=0, count=1)
    with pytest.raises(ValueError, match=r"`start` must lie in"):
        sampler_mask(5, rank=0, world_size=2, start=-1, count=1)

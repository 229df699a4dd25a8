"""Metrics on several processes, with uneven and empty shares, have the value of one process with all rows."""

import math
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from shortlist.metrics import sampler_mask
from tests.contracts_metrics import METRICS, draw, flat
from tests.process_group import on_processes

pytestmark = pytest.mark.cpu_only

ROWS = 12
SHARES = {1: [[12]], 2: [[7, 5], [0, 12]], 3: [[5, 0, 7], [4, 4, 4]], 4: [[1, 0, 11, 0], [0, 2, 3, 7]]}
"""How many of the rows each process gets, for each number of processes."""
DTYPES = [torch.float64, torch.float32]


def value_of_share(case, shares: list[int], dtype: torch.dtype) -> list[float]:
    """The value that this process computes together with the others; who has no rows never updates."""
    scores, hot = draw(case, ROWS, 7)
    rank = dist.get_rank()
    start, metric = sum(shares[:rank]), case.metric()
    if shares[rank]:
        middle, end = start + shares[rank] // 2, start + shares[rank]
        for part in (slice(start, middle), slice(middle, end)):
            case.update(metric, scores[part].to(dtype), hot[part])
    return flat(metric.compute())


def values_of_shares() -> dict[str, list[float]]:
    """All metrics, in all ways to share."""
    warnings.filterwarnings("ignore", "The ``compute`` method of metric .* was called before the ``update`` method")
    every = [(case, shares, dtype) for case in METRICS for shares in SHARES[dist.get_world_size()] for dtype in DTYPES]
    return {f"{case} {shares} {dtype}": value_of_share(case, shares, dtype) for case, shares, dtype in every}


@pytest.mark.parametrize("worlds", [(1, 2), pytest.param((3, 4), marks=pytest.mark.slow)], ids=str)
def test_any_share_among_processes_gives_the_same_value(worlds):
    found = dict(zip(worlds, on_processes(values_of_shares, *((world,) for world in worlds)), strict=True))
    for case in METRICS:
        metric = case.metric()
        case.update(metric, *draw(case, ROWS, 7))
        wanted = flat(metric.compute())
        for world, shares, dtype in [(w, s, d) for w in worlds for s in SHARES[w] for d in DTYPES]:
            for mine in found[world]:
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

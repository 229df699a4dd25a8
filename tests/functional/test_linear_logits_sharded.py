"""Layers whose labels are on several processes, each computed block by block, do what one process does."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.linear_shards_run import CASES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow  # sharded and chunked labels are tested in the fast suite one without the other


@functools.cache
def found(world: int) -> list[dict[str, list[str]]]:
    """What each process found wrong, by case."""
    command = [sys.executable, "-m", "tests.functional.linear_shards_run", str(world)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_do_what_one_does(name):
    assert [mine[name] for mine in found(2)] == [[]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 3, 4])
def test_other_numbers_of_processes_do_what_one_does(world):
    assert [{name: wrong for name, wrong in mine.items() if wrong} for mine in found(world)] == [{}] * world

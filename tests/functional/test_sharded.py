"""Labels sharded over 2 to 4 processes, unevenly and with empty shards, give what one process gives."""

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shortlist.tensors import is_dtensor
from tests.functional.sharded_cases import CASES
from tests.functional.sharded_rules import RULES

ROOT = Path(__file__).parents[2]


@functools.cache
def found(processes: int) -> list[dict[str, list[str]]]:
    """What each process found wrong, by case."""
    command = [sys.executable, "-m", "tests.functional.sharded_run", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CASES | RULES)
def test_two_processes_do_what_one_does(name):
    assert [mine[name] for mine in found(2)] == [[]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("processes", [3, 4])
def test_three_and_four_processes_do_all_that_one_does(processes):
    for mine in found(processes):
        assert set(mine) == set(CASES | RULES)
        assert not any(mine.values())


def test_the_package_loads_the_code_of_sharded_tensors_only_when_there_is_one():
    for path in (path for part in ("functional", "nn", "sets") for path in (ROOT / "shortlist" / part).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not any(name.startswith("torch.distributed.tensor") for name in [module, *names]), path


@pytest.mark.parametrize("thing", [None, 1.0, "logits", [1.0]])
def test_what_is_no_tensor_is_not_sharded(thing):
    assert not is_dtensor(thing)


@pytest.mark.slow
def test_a_million_labels_are_trained_on_two_processes():
    command = [sys.executable, "examples/sharded_labels.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    lines = [line.replace(",", "").split() for line in run.stdout.splitlines()]
    one, two = ([float(cell) for cell in line] for line in lines[1:3])
    assert [one[0], one[1], two[1]] == [1e6, 1, 2]
    assert abs(one[2] - two[2]) < 0.01
    assert abs(one[3] - two[3]) < 0.01
    assert two[3] < two[2] / 4
    assert two[5] == pytest.approx(one[5] / 2)
    assert two[6] < 0.7 * one[6]
    assert two[7] < 50_000

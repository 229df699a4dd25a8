"""Labels sharded over 1 to 4 processes, unevenly and with empty shards, give what one process gives."""

import ast
import functools
from collections.abc import Callable

import pytest

from shortlist.tensors import is_dtensor
from tests.label_axis import sharded_layers, sharded_rules
from tests.process_group import on_processes
from tests.python_process import ROOT, run_python

RULES = dict.fromkeys(sharded_rules.CASES | sharded_rules.RULES, sharded_rules.find_differences)
LAYERS = dict.fromkeys(sharded_layers.CASES, sharded_layers.find_differences)
"""Labels that are sharded and computed block by block: the fast tests have one without the other."""


@functools.cache
def found(find_differences: Callable[[], dict[str, list[str]]], world: int) -> list[dict[str, list[str]]]:
    """What each process found wrong, by case."""
    return on_processes(find_differences, (world,))[0]


@pytest.mark.parametrize(
    ("find_differences", "name"),
    [
        *(pytest.param(find, name, id=name) for name, find in RULES.items()),
        *(pytest.param(find, name, id=f"layers: {name}", marks=pytest.mark.slow) for name, find in LAYERS.items()),
    ],
)
def test_two_processes_do_what_one_does(find_differences, name):
    assert [mine[name] for mine in found(find_differences, 2)] == [[]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "world"),
    [(RULES, 3), (RULES, 4), (LAYERS, 1), (LAYERS, 3), (LAYERS, 4)],
    ids=["tensors-3", "tensors-4", "layers-1", "layers-3", "layers-4"],
)
def test_other_numbers_of_processes_do_all_that_one_does(cases, world):
    (find_differences,) = set(cases.values())
    assert found(find_differences, world) == [{name: [] for name in cases}] * world


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
    run = run_python("examples/sharded_labels.py")
    lines = [line.replace(",", "").split() for line in run.stdout.splitlines()]
    one, two = ([float(cell) for cell in line] for line in lines[1:3])
    assert [one[0], one[1], two[1]] == [1e6, 1, 2]
    assert abs(one[2] - two[2]) < 0.01
    assert abs(one[3] - two[3]) < 0.01
    assert two[3] < two[2] / 4
    assert two[5] == pytest.approx(one[5] / 2)
    assert two[6] < 0.7 * one[6]
    assert two[7] < 50_000

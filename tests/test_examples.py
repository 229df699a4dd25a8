"""Every example runs as it is, and prints the result that it promises."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
PRINTED = {
    "pytorch_loop": r"(2\.\d\d|3\.\d\d) labels on average contain the true one in [5-9]\d% of the rows\n",
    "lightning_module": r"recall at 3: 0\.\d\d\nsets of \d+\.\d tags find (8[5-9]|9\d)% of the true ones; .*\n",
    "hf_trainer": r"(\{'.*\}\n)*recall at 3: 0\.\d\d; sets of (2\.[5-9]|3\.[0-5]) labels on average\n",
    "sklearn_pipeline": r"conformal: coverage (0\.9\d|1\.00), 1\.\d\d answers on average\nbest loss: .* -> \[.*'.*\n",
    "conformal_scores": r"AverageError: misses (9|10|11)\.\d%, on hard .*\nPointwiseError: misses (9|10|11)\.\d%, .*\n"
    r"ClassConditional: misses (9|10|11)\.\d%, on hard classes (8|9|10|11|12)\.\d%; .*\n",
}
NEEDS = {"hf_trainer": "transformers", "sklearn_pipeline": "sklearn"}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_its_result(name, capsys):
    if find_spec(NEEDS.get(name, "torch")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.fullmatch(PRINTED[name], printed), printed


def test_every_example_is_run_here_or_elsewhere():
    elsewhere = {"tour", "sharded_labels"}  # a tour of pictures, and several processes
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PRINTED, *elsewhere}

"""``shortlist predict`` needs as much memory for many rows as for few, whatever the form of scores and sets."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import shortlist
from shortlist.sets import AverageK

LABELS, FEW, MANY = 5_000, 2_000, 20_000
CODE = """
import sys
from shortlist.cli import main
code = main(sys.argv[1:])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
sys.stderr.write(peak)
raise SystemExit(code)
"""


def write(ending: str, rows: int) -> str:
    path = f"{rows}{ending}"
    block = torch.randn(1_000, LABELS, generator=torch.Generator().manual_seed(0))
    if ending == ".npy":
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, LABELS))
        for start in range(0, rows, len(block)):
            array[start : start + len(block)] = block.numpy()
    elif ending == ".h5":
        with h5py.File(path, "w") as file:
            array = file.create_dataset("x", (rows, LABELS), np.float16)
            for start in range(0, rows, len(block)):
                array[start : start + len(block)] = block.numpy()
    else:
        save_file({"x": block.bfloat16().repeat(rows // len(block), 1)}, path)
    return path


def peak(path: str, output: str) -> float:
    """The most memory that the command had at a time, in MB; mapped pages count."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(shortlist.__file__).parents[1])}
    command = [sys.executable, "-c", CODE, "predict", path, "--logits", "--rule", "rule.json", "-o", output]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stderr) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells no peak of memory")
@pytest.mark.parametrize(("ending", "output"), [(".npy", "jsonl"), (".safetensors", "parquet"), (".h5", "csv")])
def test_memory_does_not_grow_with_the_rows(ending, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    AverageK(5).fit(torch.randn(500, LABELS, generator=torch.Generator().manual_seed(0)), from_logits=True).save(
        "rule.json"
    )
    few, many = (peak(write(ending, rows), f"{rows}.{output}") for rows in (FEW, MANY))
    assert many < 1.1 * few
    assert many < 800  # of which libraries take about 590 with every extra installed

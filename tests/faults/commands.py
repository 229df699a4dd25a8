"""Five commands on small data, each with what it should have made in the end, for `tests.faults`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist.sets import TopK
from tests.evidence.toy_experiments import STUDY, write_experiments

ROOT = Path(__file__).parents[2]
QUICK = ("--learning_rate", "0.01", "--epochs", "4", "--batch_size", "64", "--encoder_options", "{hidden: [8]}")


@dataclass(frozen=True)
class Command:
    """A command line that reads from ``../data`` and writes to the present folder.

    Attributes:
        name: the command.
        arguments: of the command.
        parallel: more arguments, with which it starts workers; empty if it has none.
        result: what must be equal whatever happened on the way, read from the folder.
        codes: its exit codes.
    """

    name: str
    arguments: tuple[str, ...]
    parallel: tuple[str, ...]
    result: Callable[[Path], Any]
    codes: tuple[int, ...] = (0,)

    def start(self, folder: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "shortlist", self.name, *self.arguments, *more],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def _fitted(folder: Path) -> Any:
    document = json.loads((folder / "out/model.json").read_text())
    return document["parameters"], document["about"]["history"], (folder / "out/rule.json").read_text()


def _compared(folder: Path) -> Any:
    candidates = json.loads((folder / "out/comparison.json").read_text())["candidates"]
    return {name: [(run["seed"], run["values"]) for run in each["runs"]] for name, each in candidates.items()}


def _reproduced(folder: Path) -> Any:
    return json.loads((folder / "out/small/lml-table-2.json").read_text())["outcome"]


COMMANDS = {
    command.name: command
    for command in (
        Command("fit", ("../data/classes.npz", *QUICK, "--output", "out"), ("--processes", "2"), _fitted),
        Command(
            "compare",
            ("../data/classes.npz", "--losses", "cross_entropy", "bce", "--seeds", "2", *QUICK, "--output", "out"),
            ("--jobs", "2"),
            _compared,
        ),
        Command(
            "predict",
            (
                "../data/scores.npy",
                "--logits",
                "--rule",
                "../data/rule.json",
                "--seed",
                "0",
                "--output",
                "out/sets.jsonl",
            ),
            (),
            lambda folder: (folder / "out/sets.jsonl").read_bytes(),
        ),
        Command(
            "audit",
            ("../data/layer.npz", "../data/sets.json", "--json", "out/audit.json"),
            ("--jobs", "2"),
            lambda folder: (folder / "out/audit.json").read_bytes(),
            (1,),
        ),
        Command(
            "reproduce",
            (
                *("lml-table-2", "--experiments", "../data/toys", "--data-root", "../data/data"),
                *("--output", "out", "--kept", "out/trials", "--jobs", "1"),
            ),
            ("--jobs", "2"),
            _reproduced,
        ),
    )
}


def write_data(folder: Path) -> None:
    """What the commands read."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    features, classes = rng.standard_normal((1500, 8)).astype(np.float32), rng.integers(0, 5, 1500)
    features[np.arange(1500), classes] += 2
    np.savez(folder / "classes.npz", features=features, labels=classes)
    logits = rng.standard_normal((100_000, 20)).astype(np.float32)
    np.save(folder / "scores.npy", logits)
    TopK(2).fit(torch.from_numpy(logits[:100]), from_logits=True).save(folder / "rule.json")
    np.savez(folder / "layer.npz", weight=rng.standard_normal((60, 8)))
    sets = [sorted(rng.choice(60, rng.integers(1, 6), replace=False).tolist()) for _ in range(1500)]
    (folder / "sets.json").write_text(json.dumps(sets))
    toys = write_experiments(folder)
    # Trials that take some time, and leave the data alone.
    slow = STUDY.replace(
        '    with open(root / "calls.txt", "a") as file:\n        file.write(f"{settings[\'seed\']}\\n")\n', ""
    )
    (toys / "toy.py").write_text(
        "import time\n" + slow.replace("    if settings", "    time.sleep(0.2)\n    if settings", 1)
    )

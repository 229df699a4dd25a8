"""Five commands on small data, each with what it should have made in the end, for `tests.faults`."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

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
        sums_differ: whether workers round sums in another order, so that its numbers are equal with as many alone.
    """

    name: str
    arguments: tuple[str, ...]
    parallel: tuple[str, ...]
    result: Callable[[Path], Any]
    codes: tuple[int, ...] = (0,)
    sums_differ: bool = False

    def start(self, folder: Path, *more: str, fresh: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Start the command in a process group of its own: a fresh Python, or a copy of this one, which is quicker."""
        line = [sys.executable, "-m", "shortlist", self.name, *self.arguments, *more]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        sys.stdout.flush()
        return subprocess.Popen(
            line,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # What ends workers runs at the exit of a whole Python.
            preexec_fn=None if fresh or more else lambda: _run_here(line[2:], environment),
        )


def import_commands() -> None:
    """Import what commands import, so that copies of this process start at once."""
    for package in ("audit", "cli", "data", "evidence", "predict", "report", "sets", "train"):
        module = importlib.import_module(f"shortlist.{package}")
        for each in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            # Workers and optional libraries.
            with suppress(ImportError):
                importlib.import_module(each.name)


def _run_here(line: list[str], environment: dict[str, str]) -> NoReturn:
    """Run a module in this process, which was forked, as Python would, and leave."""
    os.closerange(3, 256)  # One of these tells subprocess that the new program runs.
    os.environ.update(environment)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # As Python does when it starts.
    sys.argv = line
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    code: Any = 1
    try:
        for path in environment["PYTHONPATH"].split(os.pathsep):
            with suppress(FileNotFoundError):
                runpy.run_path(f"{path}/sitecustomize.py")
        runpy.run_module(line[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
        Command(
            "fit", ("../data/classes.npz", *QUICK, "--output", "out"), ("--processes", "2"), _fitted, sums_differ=True
        ),
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
            ("../data/layer.npz", "../data/sets.json", "--output", "out/audit.json"),
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

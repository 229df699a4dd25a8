"""Tasks that leave traces, sent to other processes by tests."""

import os
import signal
import time
from pathlib import Path

import numpy as np


class Common:
    """What tasks share; every time that it arrives in a process, it leaves a line."""

    def __init__(self, folder: Path, values: np.ndarray) -> None:
        self.folder, self.values = folder, values

    def __reduce__(self):
        return _arrived, (self.folder, self.values)


def _arrived(folder: Path, values: np.ndarray) -> Common:
    _leave(folder / "arrivals", str(os.getpid()))
    return Common(folder, values)


def _leave(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"{text}\n")


def traces(folder: Path, name: str) -> list[str]:
    """The lines of a file of traces."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


def work(common: Common, task: str) -> float:
    """Sum the values; a task may be slow, wrong, or the end of its process, once or always."""
    first = task not in traces(common.folder, "started")
    _leave(common.folder / "started", task)
    if task == "wrong":
        raise ValueError("this task is wrong.")
    if task == "deadly" or (task == "deadly-once" and first):
        time.sleep(0.3)  # What the process has finished before has arrived by now.
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    _leave(common.folder / "ended", task)
    return float(common.values.sum())


def trial(settings, root: Path) -> dict[str, int]:
    """A trial of an experiment."""
    _leave(root / "trials", str(settings["seed"]))
    return {"twice": 2 * settings["seed"]}


def elsewhere(settings, root: Path) -> dict[str, int]:
    """A trial whose module no worker has."""
    return trial(settings, root)


elsewhere.__module__, elsewhere.__qualname__ = "nowhere", "trial"

"""``shortlist fit`` in processes of its own, for tests that kill some of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.train.small_data import classes, features

ROOT = Path(__file__).parents[3]
MAIN = "import sys; from shortlist.cli import main; sys.exit(main())"


def command(folder: Path, output: str, *more: str) -> list[str]:
    """A run on data that it writes to the folder; options that come later win."""
    data = classes()
    np.savez(folder / "data.npz", features=features(data).numpy(), labels=data.targets.numpy())
    options = ["--epochs", "12", "--patience", "0", "--k", "2", "--batch_size", "32", "--learning_rate", "0.02"]
    encoder = ["--encoder_options", "{hidden: [16], dropout: 0.0}", "--loss", "average_k"]
    return [sys.executable, "-c", MAIN, "fit", "data.npz", *options, *encoder, "--json", "--output", output, *more]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def run(folder: Path, output: str, *more: str) -> dict[str, float]:
    """The metrics that a command prints."""
    line = command(folder, output, *more)
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    return json.loads(done.stdout)


def without_progress(shown: str) -> str:
    """What a command writes besides its progress, a line every half minute, and its note about few test rows."""
    others = ("training: ", "training, epoch ", "Note: Only ")
    return "".join(line for line in shown.splitlines(keepends=True) if not line.startswith(others))


def finish(process: subprocess.Popen) -> tuple[str, str]:
    """Outputs of a command at its end, without its progress."""
    out, err = process.communicate()
    return out, without_progress(err)


def start(folder: Path, output: str, *more: str, **variables: str) -> subprocess.Popen:
    """A command that goes on while a test does, with a group of processes of its own."""
    line, pipe = command(folder, output, *more), subprocess.PIPE
    settings = environment(**variables)
    return subprocess.Popen(line, cwd=folder, env=settings, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def trainers(process: subprocess.Popen) -> list[int]:
    """The processes that a command has started for its training, the first one first."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has asked about yet is still listed."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def history(folder: Path) -> list[dict[str, float]]:
    return json.loads((folder / "model.json").read_text())["about"]["history"]

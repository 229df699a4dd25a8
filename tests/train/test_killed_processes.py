"""A command of which something is killed ends with one sentence, and goes on to the same figures with ``--resume``."""

import os
import signal
import time

import pytest

from shortlist.train.checkpoints import AtomicCheckpoints
from tests.train.commands import history, is_gone, run, start, trainers

pytestmark = pytest.mark.slow
OPTIONS = ("--epochs", "60", "--processes", "2")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run, left alone."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder, "model", *OPTIONS), history(folder / "model")


@pytest.mark.parametrize(
    ("victim", "kill", "strategy"),
    [
        (0, signal.SIGKILL, "ddp"),
        (1, signal.SIGKILL, "fsdp"),
        (1, signal.SIGTERM, "ddp"),
        ("command", signal.SIGKILL, "fsdp"),
    ],
)
def test_what_is_killed_ends_the_run_and_it_goes_on_with_resume(tmp_path, whole, victim, kill, strategy):
    options = (*OPTIONS, "--strategy", strategy)
    command = start(tmp_path, "model", *options)
    last = tmp_path / "model" / "checkpoints" / "last.ckpt"
    while not last.exists() and command.poll() is None:
        time.sleep(0.001)
    processes = trainers(command)
    assert len(processes) == 2
    os.kill(command.pid if victim == "command" else processes[victim], kill)
    out, err = command.communicate()
    if victim == "command":
        assert (command.returncode, out, err) == (-kill, "", "")
    else:
        sentence = f"process {victim} of 2 was ended by {kill.name}; the run continues when it is started again."
        assert (command.returncode, out, err) == (2, "", f"shortlist: {sentence}\n")
    while not all(map(is_gone, processes)):  # else this test never ends
        time.sleep(0.01)
    assert AtomicCheckpoints().load_checkpoint(last)["epoch"] < 59
    assert not (tmp_path / "model" / "model.json").exists()
    figures, epochs = whole
    assert run(tmp_path, "model", *options, "--resume") == pytest.approx(figures, rel=1e-5, abs=1e-5)
    for mine, wanted in zip(history(tmp_path / "model"), epochs, strict=True):
        assert mine == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    if strategy == "ddp":
        assert history(tmp_path / "model") == epochs

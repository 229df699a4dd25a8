"""Processes are started and ended together, with one error; a killed run continues to the same results."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shortlist.train import fit
from shortlist.train.checkpoints import AtomicCheckpoints
from shortlist.train.distributed.processes import Topology, run_processes
from tests.train.distributed.commands import environment, finish, history, is_gone, run, start, trainers
from tests.train.small_data import classes, quick

pytestmark = pytest.mark.slow


TWO = Topology(processes_per_node=2, local_ranks=(0, 1))


def test_progress_is_reported_to_the_parent():
    told: list[float] = []
    fit(classes(), quick(epochs=2, processes=2), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1


def test_a_loss_that_is_not_finite_is_the_same_error(capfd):
    with pytest.raises(ValueError, match=r"^the loss is (nan|inf) in epoch 0, batch 1\.$"):
        fit(classes(), quick(processes=2, learning_rate=1e30, epochs=3))
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_a_batch_with_too_few_rows_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(sys.modules["shortlist.train.fit"], "run_processes", None)
    with pytest.raises(ValueError, match=r"^`batch_size` must be at least the number of processes, 2; got 1\.$"):
        fit(classes(), quick(processes=2, batch_size=1))


def _killed(tell) -> None:
    if os.environ["LOCAL_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def _waits(tell) -> None:
    Path(os.environ["SHORTLIST_TEST_FOLDER"], os.environ["LOCAL_RANK"]).write_text(str(os.getpid()))
    time.sleep(600)


def _exits(tell) -> None:
    os._exit(7)


def _fails(tell) -> None:
    if os.environ["LOCAL_RANK"] == "1":
        raise OSError(28, "No space left on device", "model")
    time.sleep(600)


def test_a_process_that_ends_ends_the_others_and_is_named():
    for work, how in (
        (_killed, "process 1 of 2 was ended by SIGKILL"),
        (_exits, r"process \d of 2 was ended with exit code 7"),
    ):
        with pytest.raises(ChildProcessError, match=rf"^{how}; the run continues when it is started again\.$"):
            run_processes(work, TWO)


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path):
    code = "from tests.train.distributed.test_processes import TWO, _waits, run_processes; run_processes(_waits, TWO)"
    settings = {**environment(), "SHORTLIST_TEST_FOLDER": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=settings, stderr=subprocess.DEVNULL)
    files = [tmp_path / "0", tmp_path / "1"]
    while not all(file.exists() and file.read_text() for file in files) and parent.poll() is None:
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    for file in files:
        while Path("/proc", file.read_text()).exists():  # else this test never ends
            time.sleep(0.01)


def test_an_error_of_one_process_is_raised_as_it_was():
    with pytest.raises(OSError, match="No space left on device") as caught:
        run_processes(_fails, TWO)
    assert (caught.value.errno, caught.value.filename) == (28, "model")


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
def test_a_killed_process_ends_the_run_which_continues_with_resume(tmp_path, whole, victim, kill, strategy):
    options = (*OPTIONS, "--strategy", strategy)
    command = start(tmp_path, "model", *options)
    last = tmp_path / "model" / "checkpoints" / "last.ckpt"
    while not last.exists() and command.poll() is None:
        time.sleep(0.001)
    processes = trainers(command)
    assert len(processes) == 2
    os.kill(command.pid if victim == "command" else processes[victim], kill)
    out, err = finish(command)
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

"""Whole runs in several processes: the numbers of one process, one answer, one sentence, nothing lost when killed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shortlist.train import fit
from shortlist.train.distributed.processes import Topology, run_processes
from tests.train.commands import command, environment, run
from tests.train.small_data import classes, images, label_sets, quick

pytestmark = pytest.mark.slow
TWO = Topology(processes_per_node=2, local_ranks=(0, 1))
PLAIN = {"encoder_options": {"hidden": [16], "dropout": 0.0}, "learning_rate": 0.01}
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "average_k": (classes, {"loss": "average_k"}),
    "two_way": (label_sets, {"loss": "two_way"}),
    "lml_nll": (label_sets, {"loss": "lml_nll"}),
    "bce": (label_sets, {"loss": "bce"}),
    "role": (label_sets, {"loss": "role"}),
    "batch norms": (images, {"encoder": "cnn", "encoder_options": {"width": 4}}),
    "half precision": (classes, {"precision": "bf16-mixed"}),
    "early stopping": (classes, {"epochs": 60, "patience": 2, "learning_rate": 0.05}),
}


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_what_one_does(name):
    data, options = RUNS[name]
    alone = quick(**{"epochs": 3, "patience": 0, **PLAIN, **options})
    wanted, found = fit(data(), alone), fit(data(), replace(alone, processes=2))
    tolerance = 0.01 if name == "half precision" else 1e-4
    assert len(found.history) == len(wanted.history)
    for one, other in zip(wanted.history, found.history, strict=True):
        assert other == pytest.approx(one, rel=tolerance, abs=tolerance)
    assert found.best_epoch == wanted.best_epoch
    for key, value in wanted.model.state_dict().items():
        assert torch.allclose(found.model.state_dict()[key], value, rtol=tolerance, atol=tolerance), key
    if name == "early stopping":
        assert len(found.history) == found.best_epoch + 1 + alone.patience < 60


def test_the_share_of_steps_is_told_to_the_process_that_asked():
    told: list[float] = []
    fit(classes(), quick(epochs=2, processes=2), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1


def test_a_loss_that_is_not_finite_is_the_same_sentence(capfd):
    with pytest.raises(ValueError, match=r"^the loss is (nan|inf) in epoch 0, batch 1\.$"):
        fit(classes(), quick(processes=2, learning_rate=1e30, epochs=3))
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_a_batch_with_too_few_rows_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr("shortlist.train.fit.run_processes", None)
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
        (_exits, r"process \d of 2 was ended with code 7"),
    ):
        with pytest.raises(ChildProcessError, match=rf"^{how}; the run continues when it is started again\.$"):
            run_processes(work, TWO)


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path):
    code = "from tests.train.test_several_processes import TWO, _waits, run_processes; run_processes(_waits, TWO)"
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


def test_the_command_gives_one_answer_and_goes_on_to_it_after_its_processes_were_killed(tmp_path):
    wanted = run(tmp_path, "whole", "--processes", "2")
    alone = run(tmp_path, "alone")
    assert wanted == pytest.approx(alone, rel=1e-3, abs=0.05)  # a row at the threshold may change sides
    process = subprocess.Popen(
        command(tmp_path, "killed", "--processes", "2"),
        cwd=tmp_path,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoint = tmp_path / "killed" / "checkpoints" / "last.ckpt"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.json").exists()
    assert run(tmp_path, "killed", "--processes", "2") == wanted
    histories = [
        json.loads((tmp_path / name / "model.json").read_text())["about"]["history"] for name in ("whole", "killed")
    ]
    assert histories[0] == histories[1]

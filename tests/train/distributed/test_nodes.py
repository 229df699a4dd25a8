"""The same command on two nodes, which are two commands here: one answer, one sentence, one run that goes on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.train.distributed.commands import command, environment, finish, history, run, start

pytestmark = pytest.mark.slow
OPTIONS = ("--nodes", "2", "--epochs", "40")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def both(folder: Path, *more: str, outputs: tuple[str, str] = ("model", "model")) -> list[subprocess.Popen]:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [
        start(folder, output, *OPTIONS, *more, NODE_RANK=str(node), **meeting) for node, output in enumerate(outputs)
    ]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_nodes_train_what_one_process_does_and_the_first_writes_the_model(tmp_path, strategy):
    nodes = both(tmp_path, "--strategy", strategy)
    (figures, *shown), other = (finish(node) for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0]
    assert shown == [""]
    assert (json.loads(other[0]), other[1]) == ({"model": "model"}, "")
    wanted = run(tmp_path, "alone", "--epochs", "40")
    assert json.loads(figures) == pytest.approx(wanted, rel=1e-3, abs=0.05)  # a row at the threshold may change sides
    for mine, one in zip(history(tmp_path / "model"), history(tmp_path / "alone"), strict=True):
        assert mine["train_loss"] == pytest.approx(one["train_loss"], rel=1e-4)
    assert {file.name for file in (tmp_path / "model" / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_node_that_dies_ends_the_other_and_both_go_on(tmp_path, victim):
    nodes = both(tmp_path)
    last = tmp_path / "model" / "checkpoints" / "last.ckpt"
    while not last.exists() and all(node.poll() is None for node in nodes):
        time.sleep(0.001)
    os.killpg(nodes[victim].pid, signal.SIGKILL)
    out, err = finish(nodes[1 - victim])
    assert (nodes[1 - victim].returncode, out) == (2, "")
    assert err.startswith(f"shortlist: process 0 of 1 of node {1 - victim} cannot reach the others (")
    assert err.endswith("); the run continues when all nodes are started again.\n")
    assert err.count("\n") == 1
    finish(nodes[victim])
    again = both(tmp_path, "--resume")
    said = [finish(node) for node in again]
    assert [node.returncode for node in again] == [0, 0], said
    wanted = run(tmp_path, "alone", "--epochs", "40")
    assert json.loads(said[0][0]) == pytest.approx(wanted, rel=1e-3, abs=0.05)


def test_nodes_that_find_checkpoints_of_different_epochs_are_refused(tmp_path):
    run(tmp_path, "one", "--epochs", "40")
    nodes = both(tmp_path, outputs=("one", "one"))  # has ended, and is only read
    assert [finish(node)[1] for node in nodes] == ["", ""]
    assert [node.returncode for node in nodes] == [0, 0]
    part = tmp_path / "part" / "checkpoints" / "last.ckpt"
    alone = start(tmp_path, "part", "--epochs", "40")
    while not part.exists() and alone.poll() is None:
        time.sleep(0.001)
    alone.kill()
    finish(alone)
    nodes = both(tmp_path, outputs=("new", "part"))
    said = [finish(node)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [2, 2]
    assert any("all nodes must see one folder.\n" in each for each in said), said


def test_torchrun_starts_the_processes_where_it_is_used(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys\nfrom shortlist.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    _, _, _, *arguments = command(tmp_path, "model", "--strategy", "fsdp")
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), *arguments]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    second = '{\n "model": "model"\n}\n'
    assert second in done.stdout
    wanted = run(tmp_path, "alone")
    assert json.loads(done.stdout.replace(second, "")) == pytest.approx(wanted, rel=1e-3, abs=0.05)

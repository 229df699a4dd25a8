"""Whole runs in 2 and 4 processes, with all parameters in each or a part of them, come to what one process does."""

import json
import re
from pathlib import Path

import pytest
import torch

from shortlist.train import Fitted, fit
from shortlist.train.checkpoints import AtomicCheckpoints
from tests.python_process import run_python
from tests.train.distributed.forked_runs import EPOCHS, KILLED, RUNS, own_size
from tests.train.small_data import classes

WAYS = [
    pytest.param(name, world, strategy, marks=[pytest.mark.slow] * run.slow, id=f"{name}, {world} {strategy}")
    for name, run in RUNS.items()
    for world, strategy in run.ways
]


def forked(folder: Path, which: str) -> tuple[Path, str]:
    run = run_python("-m", "tests.train.distributed.forked_runs", str(folder), which)
    assert run.stderr == ""
    return folder, run.stdout


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> tuple[Path, str]:
    return forked(tmp_path_factory.mktemp("few"), "few")


@pytest.fixture(scope="module")
def more(tmp_path_factory) -> tuple[Path, str]:
    return forked(tmp_path_factory.mktemp("more"), "more")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, tuple[Fitted, Path]]:
    """The runs that were asked for so far, in one process."""
    return {}


@pytest.fixture
def pair(request, alone, tmp_path_factory, name, world, strategy) -> tuple[Fitted, Path, Path]:
    """A run in one process with its folder, and the folder of the same in several."""
    folder, _ = request.getfixturevalue("more" if RUNS[name].slow else "few")
    if name not in alone:
        own = tmp_path_factory.mktemp("alone")
        alone[name] = fit(RUNS[name].data(), RUNS[name].options, folder=own), own
    return *alone[name], folder / name / f"{world} {strategy}"


def last(folder: Path) -> dict:
    return AtomicCheckpoints().load_checkpoint(folder / "checkpoints" / "last.ckpt")


def assert_close(found: dict, wanted: dict, tolerance: float) -> None:
    """Two checkpoints say the same: parameters, states of the optimiser, rates, and what Lightning goes on from."""
    assert found["state_dict"].keys() == wanted["state_dict"].keys()
    for key, value in wanted["state_dict"].items():
        other = found["state_dict"][key]
        assert (type(other), other.dtype, other.shape) == (torch.Tensor, value.dtype, value.shape), key
        assert torch.allclose(other, value, rtol=tolerance, atol=tolerance), key
    (before,), (after,) = wanted["optimizer_states"], found["optimizer_states"]
    assert after["param_groups"] == before["param_groups"]
    assert after["state"].keys() == before["state"].keys()
    for index, state in before["state"].items():
        assert after["state"][index].keys() == state.keys()
        for name, value in state.items():
            assert type(after["state"][index][name]) is torch.Tensor
            assert torch.allclose(after["state"][index][name], value, rtol=tolerance, atol=tolerance), name
    for name in ("lr_schedulers", "epoch", "global_step", "asked", "stopped"):
        assert found[name] == wanted[name], name


@pytest.mark.parametrize(("name", "world", "strategy"), WAYS)
def test_several_processes_train_and_measure_what_one_does(pair, name):
    fitted, own, place = pair
    best, history = json.loads((place / "fitted.json").read_text())
    tolerance = 0.01 if name == "half precision" else 1e-5
    assert best == fitted.best_epoch
    assert len(history) == len(fitted.history)
    # Before differences of the last bit have grown.
    assert history[0] == pytest.approx(fitted.history[0], rel=tolerance / 10, abs=tolerance / 10)
    for mine, wanted in zip(history, fitted.history, strict=True):
        assert mine == pytest.approx(wanted, rel=tolerance, abs=tolerance)
    assert_close(last(place), last(own), tolerance)
    assert {file.name for file in (place / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.parametrize(("name", "world", "strategy"), WAYS)
def test_every_validation_row_is_measured_once_an_epoch(pair, name, world):
    fitted, _, place = pair
    data = RUNS[name].data()
    seen = [json.loads((place / f"rows{rank}.json").read_text()) for rank in range(world)]
    for epoch in range(len(fitted.history)):
        rows = [row for mine in seen for at, batch in mine if at == epoch for row in batch]
        assert sorted(rows) == list(range(len(data.part("val"))))
    assert len({len(mine) for mine in seen}) == 1
    if name == "average_k" and world == 4:
        assert [len(batch) for mine in seen for _, batch in mine[:1]] == [1, 1, 1, 0]


@pytest.mark.parametrize(("name", "world", "strategy"), WAYS)
def test_sharded_processes_keep_their_part_and_others_all(pair, name, world, strategy):
    fitted, own, place = pair
    if len(fitted.history) < EPOCHS:
        return
    kept = [json.loads((place / f"{rank}.json").read_text()) for rank in range(world)]
    (optimizer,) = last(own)["optimizer_states"]
    states = own_size(value for state in optimizer["state"].values() for value in state.values() if value.dim())
    estimates = [value for key, value in last(own)["state_dict"].items() if key == "loss.estimates"]
    for what, whole in (("parameters", own_size([*fitted.model.parameters(), *estimates])), ("states", states)):
        found = [mine[what] for mine in kept]
        if strategy == "ddp":
            assert found == [whole] * world
        else:
            assert whole <= sum(found) <= whole + 4 * world  # one number of four bytes may be everywhere
            assert max(found) < 0.8 * whole


def test_a_killed_process_is_named_and_the_run_goes_on_however_many_there_are(few, tmp_path):
    folder, said = few
    assert json.loads(said)[0] == [
        "process 1 of 2 was ended by SIGKILL; the run continues when it is started again.",
        "process 0 of 4 was ended by SIGKILL; the run continues when it is started again.",
        "process 1 of 2 was ended by SIGKILL; the run continues when it is started again.",
    ]
    assert last(folder / "killed")["epoch"] == 3
    found, wanted = (
        fit(classes(), KILLED, folder=folder / "killed", resume=True),
        fit(classes(), KILLED, folder=tmp_path),
    )
    assert found.best_epoch == wanted.best_epoch
    for mine, other in zip(found.history, wanted.history, strict=True):
        assert mine == pytest.approx(other, rel=1e-5, abs=1e-5)
    assert_close(last(folder / "killed"), last(tmp_path), 1e-5)


def test_processes_end_together_and_the_first_cause_is_told(few):
    lost = "process 0 of 2 was ended by SIGKILL; the run continues when it is started again."
    wanted = {
        "fails": {("OSError", "[Errno 28] No space left on device: 'model'")},
        "ends": {("", "")},
        "loses": {("ChildProcessError", lost)},
    }
    found = json.loads(few[1])[1]
    for work, ends in wanted.items():
        assert {(kind, said) for name, kind, said in found if name == work} == ends
    assert len(found) == 31
    name, kind, said = found[-1]
    assert (name, kind) == ("faults", "RuntimeError")
    assert re.fullmatch(r"process [01] of 2 failed:.*Traceback .*KeyError: 'what nobody has thought of'\n", said, re.S)

"""A Dask cluster of two workers, one of which is killed in the middle: the same results, and nothing done twice."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shortlist.audit import audit
from shortlist.audit.run import ResumeFile
from shortlist.cluster import run_tasks
from shortlist.evidence import Lab
from shortlist.train import compare, load_model
from shortlist.train.comparison import candidates
from tests.audit.layers import make_case
from tests.audit.reports import assert_same
from tests.cluster.traced_work import Common, elsewhere, traces, trial, work
from tests.train.small_data import classes, quick

distributed = pytest.importorskip("distributed")

# Workers in the place of killed ones import what they need again, so the tests that need much come first.
TASKS = [f"task{number}" for number in range(20)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    options = {"n_workers": 2, "processes": True, "threads_per_worker": 1, "dashboard_address": ":0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHORTLIST_CACHE", str(tmp_path_factory.mktemp("cache")))
        with distributed.LocalCluster(**options, silence_logs=60) as started:
            yield started


@pytest.fixture
def address(cluster) -> str:
    return cluster.scheduler_address.replace("tcp://", "dask://")


def kill_one(cluster) -> None:
    """End a worker of this very cluster; its nanny starts another one."""
    os.kill(next(nanny.pid for nanny in cluster.workers.values() if nanny.pid), signal.SIGKILL)


def test_what_a_task_raises_is_raised_and_not_tried_again(address, tmp_path):
    with pytest.raises(ValueError, match=r"^this task is wrong\.$"):
        list(run_tasks(work, Common(tmp_path, np.ones(3)), ["wrong"], cluster=address))
    assert traces(tmp_path, "started") == ["wrong"]


def test_trials_on_a_cluster_are_kept_here_and_run_once(address, tmp_path):
    for sources in (None, Path(__file__).parents[2]):
        lab = Lab(tmp_path, tmp_path / "figures", tmp_path / "kept", cluster=address, sources=sources)
        found = lab.trials(trial, [{"seed": seed} for seed in range(5)])
        assert found == [{"twice": 2 * seed} for seed in range(5)]
        assert sorted(traces(tmp_path, "trials")) == ["0", "1", "2", "3", "4"]
    lost = Lab(tmp_path, tmp_path / "figures", tmp_path / "others", cluster=address, sources=tmp_path)
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(tmp_path))}` must contain nowhere:trial"):
        lost.trials(elsewhere, [{"seed": 1}])


@pytest.mark.slow
def test_a_comparison_with_a_killed_worker_gives_the_figures_of_one_process(cluster, address, tmp_path, monkeypatch):
    ways = {"plain": quick(), "fast": quick(learning_rate=0.05)}
    told, asked = [], []

    def kill_in_the_middle(done: float, total: int, name: str) -> None:
        told.append((done, total))
        if done == 1:
            kill_one(cluster)

    found = compare(classes(), ways, seeds=[0, 1], folder=tmp_path, cluster=address, progress=kill_in_the_middle)
    assert found.runs == compare(classes(), ways, seeds=[0, 1]).runs
    assert told == [(done, 4) for done in range(5)]
    assert {path.name for path in tmp_path.glob("*/*")} == {
        "README.md",
        "audit.json",
        "model.json",
        "model.safetensors",
        "rule.json",
        "result.json",
    }
    assert load_model(tmp_path / "fast-1").about["options"]["learning_rate"] == 0.05
    assert not (Path(os.environ["SHORTLIST_CACHE"]) / "runs").exists()
    monkeypatch.setattr(candidates, "run_tasks", lambda work, common, tasks, **_: asked.extend(tasks) or iter(()))
    assert compare(classes(), ways, seeds=[0, 1], folder=tmp_path, cluster=address).runs == found.runs
    assert not asked
    several = {"plain": replace(quick(), processes=2)}
    with pytest.raises(ValueError, match=r"^`candidates` must have one process on a cluster; 'plain' has several\.$"):
        compare(classes(), several, seeds=[0], cluster=address)


@pytest.mark.slow
def test_an_audit_with_a_killed_worker_gives_the_report_of_one_process(cluster, address, tmp_path, monkeypatch):
    case = make_case("trained", 120, 8, biased=True, mode="sign", seed=0)
    rng = np.random.default_rng(1)
    sets = [sorted(rng.choice(120, size, replace=False).tolist()) for size in (1, 2, 3, 10) for _ in range(20)]
    written, append = [], ResumeFile.append

    def kill_in_the_middle(self, decisions):
        append(self, decisions)
        written.extend(decisions)
        if len(written) == len(decisions):
            kill_one(cluster)

    monkeypatch.setattr(ResumeFile, "append", kill_in_the_middle)
    path = tmp_path / "finished.jsonl"
    report = audit(case.weight, sets, case.bias, cluster=address, resume=path)
    assert_same(audit(case.weight, sets, case.bias, jobs=1), report)
    assert len(written) == len(set(written)) == len(path.read_text().splitlines()) - 1
    before = path.read_bytes()
    assert_same(report, audit(case.weight, sets, case.bias, cluster=address, resume=path))
    assert path.read_bytes() == before


def test_what_a_killed_worker_had_finished_is_not_done_again(address, tmp_path, capfd):
    common = Common(tmp_path, np.ones(200_000))
    tasks = [*TASKS[:6], "deadly-once", *TASKS[6:]]
    found = dict(run_tasks(work, common, tasks, cluster=address))
    assert found == dict.fromkeys(range(len(tasks)), 200_000.0)
    assert sorted(traces(tmp_path, "ended")) == sorted(tasks)
    # On a worker of one thread, nothing else was under way.
    assert sorted(traces(tmp_path, "started")) == sorted([*tasks, "deadly-once"])
    # Each of the two workers, and the one in the place of the killed one.
    assert len(traces(tmp_path, "arrivals")) <= 3
    assert capfd.readouterr() == ("", "")

"""A local Ray: the same results, and a killed worker costs what it was at."""

from importlib.util import find_spec

import numpy as np
import pytest

from shortlist.audit import audit
from shortlist.cluster import run_tasks
from shortlist.train import compare
from tests.audit.reports import assert_same
from tests.cluster.traced_work import Common, traces, work
from tests.train.small_data import classes, quick

# Not imported here: Ray is made quiet before it is imported.
absent = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), absent]


def test_what_a_killed_worker_had_finished_is_not_done_again(tmp_path, capfd):
    tasks = [*(f"task{number}" for number in range(20)), "deadly-once"]
    found = dict(run_tasks(work, Common(tmp_path, np.ones(200_000)), tasks, cluster="ray://", jobs=2))
    assert found == dict.fromkeys(range(len(tasks)), 200_000.0)
    assert sorted(traces(tmp_path, "ended")) == sorted(tasks)
    assert len(traces(tmp_path, "started")) == len(tasks) + 1
    assert len(traces(tmp_path, "arrivals")) <= 4
    assert capfd.readouterr() == ("", "")


def test_what_a_task_raises_is_raised_and_not_tried_again(tmp_path):
    with pytest.raises(ValueError, match=r"^this task is wrong\.$"):
        list(run_tasks(work, Common(tmp_path, np.ones(3)), ["wrong"], cluster="ray://"))
    assert traces(tmp_path, "started") == ["wrong"]


def test_audits_and_comparisons_are_those_of_one_process(tmp_path):
    weight, sets = np.random.default_rng(0).standard_normal((40, 5)), [[0], [1, 2], [3, 4, 5], []]
    assert_same(audit(weight, sets, jobs=1), audit(weight, sets, cluster="ray://"))
    ways = {"plain": quick(), "fast": quick(learning_rate=0.05)}
    found = compare(classes(), ways, seeds=[0], folder=tmp_path, cluster="ray://")
    assert found.runs == compare(classes(), ways, seeds=[0]).runs
    assert len(list(tmp_path.glob("*/model.json"))) == 2

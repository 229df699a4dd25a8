"""Tasks in this process, and in processes of this machine that are killed."""

import pickle

import numpy as np
import pytest

from shortlist.cluster import run_tasks
from shortlist.cluster.held import Held
from tests.cluster.traced_work import Common, traces, work


def test_one_job_is_this_process_and_results_come_in_turn(tmp_path):
    common = Common(tmp_path, np.ones(3))
    results = run_tasks(work, common, ["a", "b", "c"], jobs=1)
    assert next(results) == (0, 3.0)
    assert traces(tmp_path, "started") == ["a"]
    assert list(results) == [(1, 3.0), (2, 3.0)]
    assert not traces(tmp_path, "arrivals")


def test_what_is_held_travels_in_shared_parts_and_is_unpacked_once(tmp_path):
    large, small = np.arange(2.0**18), np.arange(4.0)
    held = Held((Common(tmp_path, large), small))
    assert held.value()[1] is small
    parcel = held.__getstate__()[1]
    assert [part.nbytes >= large.nbytes for part in parcel] == [False, True]
    assert held.__getstate__()[1] is parcel
    sent = pickle.loads(pickle.dumps(held))
    common, other = sent.value()
    np.testing.assert_array_equal(common.values, large)
    assert other.flags.writeable  # As it would be without other processes; large ones are shared.
    assert pickle.loads(pickle.dumps(held)).value() is sent.value()
    assert len(traces(tmp_path, "arrivals")) == 1


@pytest.mark.slow
def test_a_killed_process_takes_nothing_with_it(tmp_path):
    tasks = [f"task{number}" for number in range(12)]
    found = dict(run_tasks(work, Common(tmp_path, np.ones(300_000)), ["deadly-once", *tasks], jobs=2))
    assert found == dict.fromkeys(range(13), 300_000.0)
    assert set(traces(tmp_path, "ended")) == {"deadly-once", *tasks}
    # Joblib ends both processes with the one; what they were at is done again.
    assert len(traces(tmp_path, "started")) <= len(tasks) + 3
    assert len(traces(tmp_path, "arrivals")) <= 4


@pytest.mark.slow
def test_a_task_that_always_ends_its_process_is_told_when_the_others_are_done(tmp_path):
    tasks = ["deadly", *(f"task{number}" for number in range(6))]
    results = run_tasks(work, Common(tmp_path, np.ones(3)), tasks, jobs=2, advice="fewer jobs need less")
    found = {}
    with pytest.raises(ChildProcessError, match=r"ended from outside, .*, 4 times before .*; fewer jobs need less\.$"):
        found.update(results)
    assert set(traces(tmp_path, "ended")) == set(tasks[1:])

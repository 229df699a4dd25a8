"""Tasks in this process, and in processes of this machine that are killed."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shortlist.cluster import run_tasks
from shortlist.cluster import tasks as cluster_tasks
from shortlist.cluster.engines import MappedValue
from tests.cluster.traced_work import Common, traces, work


def test_one_job_is_this_process_and_results_come_in_turn(tmp_path):
    common = Common(tmp_path, np.ones(3))
    results = run_tasks(work, common, ["a", "b", "c"], jobs=1)
    assert next(results) == (0, 3.0)
    assert traces(tmp_path, "started") == ["a"]
    assert list(results) == [(1, 3.0), (2, 3.0)]
    assert not traces(tmp_path, "arrivals")


def test_large_arrays_of_a_shared_value_are_pickled_out_of_band_and_unpacked_once(tmp_path):
    large, small = np.arange(2.0**18), np.arange(4.0)
    shared = MappedValue((Common(tmp_path, large), small))
    assert shared.value()[1] is small
    pickled = shared.__getstate__()[1]
    assert [part.nbytes >= large.nbytes for part in pickled] == [False, True]
    assert shared.__getstate__()[1] is pickled
    sent = pickle.loads(pickle.dumps(shared))
    common, other = sent.value()
    np.testing.assert_array_equal(common.values, large)
    assert other.flags.writeable  # Small arrays are copied; large ones are shared, read-only.
    assert pickle.loads(pickle.dumps(shared)).value() is sent.value()
    assert len(traces(tmp_path, "arrivals")) == 1


@pytest.mark.slow
def test_the_work_of_a_killed_process_is_repeated(tmp_path):
    tasks = [f"task{number}" for number in range(12)]
    found = dict(run_tasks(work, Common(tmp_path, np.ones(300_000)), ["deadly-once", *tasks], jobs=2))
    assert found == dict.fromkeys(range(13), 300_000.0)
    assert set(traces(tmp_path, "ended")) == {"deadly-once", *tasks}
    # joblib ends both processes with the killed one; their current tasks are repeated, and what it had not handed over.
    assert len(traces(tmp_path, "started")) < 2 * len(tasks)
    assert len(traces(tmp_path, "arrivals")) <= 4


_KILLED_TRACKER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from joblib.externals.loky.backend.resource_tracker import _resource_tracker
from shortlist.cluster import run_tasks
from tests.cluster.traced_work import Common, work

tasks = [f"task{number}" for number in range(40)]
results = run_tasks(work, Common(Path(sys.argv[1]), np.ones(300_000)), tasks, jobs=2)
next(results)
os.kill(_resource_tracker._pid, signal.SIGKILL)
print(len(list(results)))
"""


@pytest.mark.slow
def test_nothing_is_printed_when_the_tracker_of_resources_is_killed(tmp_path):
    command = [sys.executable, "-W", "error", "-c", _KILLED_TRACKER, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "39\n", "")


@pytest.mark.slow
def test_a_task_that_always_kills_its_process_is_reported_when_the_others_are_done(tmp_path):
    tasks = ["deadly", *(f"task{number}" for number in range(6))]
    results = run_tasks(work, Common(tmp_path, np.ones(3)), tasks, jobs=2, advice="fewer jobs need less")
    found = {}
    with pytest.raises(ChildProcessError, match=r"were killed, .*, 4 times before .*; fewer jobs need less\.$"):
        found.update(results)
    assert set(traces(tmp_path, "ended")) == set(tasks[1:])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_ends_when_its_caller_was_killed(monkeypatch):
    monkeypatch.setattr(cluster_tasks, "_POLL_SECONDS", 0.01)
    alive, writing = os.pipe()
    caller = os.fork()
    if not caller:
        if not os.fork():
            cluster_tasks.exit_with_parent(os.getppid())
            os.write(writing, b"here")
            time.sleep(60)
            os.write(writing, b"still")
            os._exit(0)
        time.sleep(0.1)
        os._exit(0)
    os.close(writing)
    os.waitpid(caller, 0)
    with os.fdopen(alive, "rb") as told:
        assert told.read() == b"here"

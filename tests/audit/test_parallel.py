"""Many workers, a cluster or an interruption: the report is the same."""

import joblib
import numpy as np
import pytest

from shortlist.audit import AuditReport, audit
from shortlist.errors import InputError
from shortlist.files import locked
from tests.audit.layers import Case, make_case
from tests.audit.reports import assert_same


def questions() -> Case:
    """About a hundred sets of one layer, with both verdicts, some of them twice."""
    cases = [make_case("trained", 120, 8, biased=True, mode="sign", seed=0)]
    rng = np.random.default_rng(1)
    sets = [sorted(rng.choice(120, size, replace=False).tolist()) for size in (1, 2, 3, 10) for _ in range(20)]
    sets += [np.flatnonzero(cases[0].weight @ rng.standard_normal(8) > 0).tolist() for _ in range(10)]
    return cases[0]._replace(label_sets=cases[0].label_sets + sets + cases[0].label_sets)


CASE = questions()


def run(jobs: int | None = 1, **options) -> AuditReport:
    return audit(CASE.weight, CASE.label_sets, CASE.bias, jobs=jobs, **options)


@pytest.fixture(scope="module")
def alone() -> AuditReport:
    report = run()
    assert {"argmaxable", "unargmaxable"} <= set(report.verdicts)
    return report


def test_two_workers_give_the_report_of_one(alone):
    assert_same(alone, run(jobs=2))


def test_the_number_of_workers_may_be_left_to_joblib(alone):
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert_same(alone, run(jobs=None))


def test_a_dask_cluster_gives_the_report_of_one_process(alone):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        assert_same(alone, run(jobs=None))


def test_a_resume_file_does_not_change_the_report(alone, tmp_path):
    path = tmp_path / "finished.jsonl"
    assert_same(alone, run(resume=path))
    assert path.stat().st_size > 0
    before = path.read_bytes()
    assert_same(alone, run(resume=path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("cut", [0, 1, 25])
def test_an_interrupted_audit_continues_where_it_stopped(alone, tmp_path, cut, jobs):
    path = tmp_path / "finished.jsonl"
    run(resume=path)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) >= 40, "verdicts are written as they come"
    kept = b"".join(lines[: len(lines) // 2])
    path.write_bytes(kept + lines[len(lines) // 2][:cut])
    assert_same(alone, run(resume=path, jobs=jobs))
    assert path.read_bytes().startswith(kept)
    assert len(path.read_bytes().splitlines()) >= len(lines)
    assert_same(alone, run(resume=path))


def test_more_sets_may_be_asked_with_the_same_file(alone, tmp_path):
    path = tmp_path / "finished.jsonl"
    audit(CASE.weight, CASE.label_sets[:30], CASE.bias, jobs=1, resume=path)
    assert_same(alone, run(resume=path))


OTHERS = {
    "weight": {"weight": CASE.weight + np.eye(120, 8) * 1e-12},
    "bias": {"bias": CASE.bias * 2},
    "no bias": {"bias": None},
    "mode": {"mode": "top-k"},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_resume_file_of_another_layer_is_refused_and_kept(tmp_path, other):
    path = tmp_path / "finished.jsonl"
    arguments = {"weight": CASE.weight, "bias": CASE.bias, "label_sets": CASE.label_sets[:5], "jobs": 1}
    audit(**arguments, resume=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"finished\.jsonl"):
        audit(**(arguments | OTHERS[other]), resume=path)
    assert path.read_bytes() == before


def test_a_resume_file_of_something_else_is_refused_and_kept(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a resume file\n")
    with pytest.raises(ValueError, match=r"notes\.txt"):
        run(resume=path)
    assert path.read_text() == "not a resume file\n"


def test_forged_lines_of_a_resume_file_fail_verification(tmp_path):
    path = tmp_path / "finished.jsonl"
    run(resume=path)
    text = path.read_text()
    assert '"argmaxable"' in text
    path.write_text(
        text.replace('"unargmaxable"', '"?"').replace('"argmaxable"', '"unargmaxable"').replace('"?"', '"argmaxable"')
    )
    assert run(resume=path).verify() == list(range(len(CASE.label_sets)))


def test_an_error_in_the_labels_loses_nothing(alone, tmp_path):
    path = tmp_path / "finished.jsonl"
    run(resume=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="120"):
        audit(CASE.weight, [*CASE.label_sets, [120]], CASE.bias, jobs=1, resume=path)
    assert path.read_bytes() == before


def test_progress_is_shown_on_the_error_stream_only(capsys):
    report = audit(np.eye(5), [[0], [1, 2]], jobs=1, progress=True)
    assert set(report.verdicts) == {"argmaxable"}
    assert capsys.readouterr().out == ""


def test_two_audits_do_not_write_to_one_file(tmp_path):
    weight, path = np.eye(3), tmp_path / "audit.progress"
    with locked(tmp_path / ".audit.progress.lock", path), pytest.raises(InputError, match="written by another process"):
        audit(weight, [[0]], jobs=1, resume=path)
    assert not path.exists()
    audit(weight, [[0]], jobs=1, resume=path)
    assert [file.name for file in tmp_path.iterdir()] == ["audit.progress"]

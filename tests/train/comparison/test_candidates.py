"""A comparison trains every candidate with every seed, once, and continues when it was interrupted."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from shortlist.errors import InputError
from shortlist.files import locked
from shortlist.train import (
    Interval,
    compare,
    evaluate,
    fit,
    load_model,
    tune,
)
from shortlist.train.comparison import runs
from shortlist.train.comparison.tunings import SearchSpec, _search_on_worker, tune_candidates
from tests.train.small_data import classes, quick, texts

WAYS = {"plain": quick(), "fast": quick(learning_rate=0.05)}


@pytest.fixture
def trained(monkeypatch) -> list[tuple[float, int]]:
    """Rate and seed of every run that is trained."""
    calls = []

    def counted(dataset, options, **more):
        calls.append((options.learning_rate, options.seed))
        return fit(dataset, options, **more)

    monkeypatch.setattr(runs, "fit", counted)
    return calls


def test_every_candidate_is_trained_with_every_seed_and_evaluated(trained):
    data = classes()
    found = compare(data, WAYS, seeds=[3, 5])
    assert trained == [(0.001, 3), (0.05, 3), (0.001, 5), (0.05, 5)]
    for name, options in WAYS.items():
        for seed in (3, 5):
            wanted = evaluate(fit(data, replace(options, seed=seed)), data).values
            assert found.runs[name][seed] == wanted
    assert found.figures() == ["average2_error", "average_size", "top1_error", "top2_error"]
    values = [found.runs["plain"][seed]["top1_error"] for seed in (3, 5)]
    assert found.interval("plain", "top1_error") == Interval.of(values)


def test_progress_is_reported_from_the_first_run_to_the_last():
    told = []
    compare(classes(), WAYS, seeds=[0, 1], progress=lambda *what: told.append(what))
    done = [share for share, _, _ in told]
    assert done == sorted(done)
    starts = [(0, "plain"), (1, "fast"), (2, "plain"), (3, "fast")]
    assert all((share, 4, name) in told for share, name in starts)
    assert told[-1] == (4, 4, "")
    assert any(0 < share < 1 for share in done)


def test_rates_that_are_not_given_are_tuned_once_with_the_first_seed(trained, tmp_path, monkeypatch):
    ways, told = {**WAYS, "lml": quick(loss="lml_nll", weight_decay=0.5)}, []
    found = compare(classes(), ways, seeds=[4, 5], trials=2, folder=tmp_path, progress=lambda *what: told.append(what))
    assert list(found.tunings) == ["plain", "lml"]
    for name, tuning in found.tunings.items():
        wanted = tune(classes(), replace(ways[name], seed=4), trials=2)
        assert tuning == wanted.tuning
        assert replace(found.options[name], seed=4) == wanted.options
    rates = [found.options[name].learning_rate for name in ways]
    assert trained == [(rate, seed) for seed in (4, 5) for rate in rates]
    assert found.options["lml"].weight_decay == 0.5
    done = [share for share, _, _ in told]
    assert done == sorted(done)
    assert {total for _, total, _ in told} == {2 + 6}
    assert told[0][2] == "tuning plain"
    assert told[-1] == (8, 8, "")
    monkeypatch.setattr("shortlist.train.tuning.fit", None)
    again = compare(classes(), ways, seeds=[4, 5], trials=2, folder=tmp_path)
    assert (again.tunings, again.runs) == (found.tunings, found.runs)
    with pytest.raises(InputError, match=r"plain.json` holds another search \(trials was 2 and is 3\)"):
        compare(classes(), ways, seeds=[4, 5], trials=3, folder=tmp_path)


def test_searches_on_other_processes_have_the_results_of_those_here(tmp_path):
    data, file = classes(), tmp_path / "trials.json"
    spec = SearchSpec("plain", quick().settled("features"), 2, (1e-4,), file)
    tuning, content = _search_on_worker(data, (spec, b""))
    assert not file.exists(), "a worker has other disks"
    here = tune_candidates(data, [spec], jobs=1, cluster="local", report=lambda *_: None)
    assert here == {"plain": tuning}
    assert json.loads(file.read_text()) == json.loads(content)
    assert _search_on_worker(data, (spec, content)) == (tuning, content)


def test_finished_runs_are_not_trained_again(trained, tmp_path):
    first = compare(classes(), WAYS, seeds=[0], folder=tmp_path)
    assert len(trained) == 2
    more = compare(classes(), WAYS, seeds=[0, 1], folder=tmp_path)
    assert trained[2:] == [(0.001, 1), (0.05, 1)]
    assert {name: seeds[0] for name, seeds in more.runs.items()} == {
        name: seeds[0] for name, seeds in first.runs.items()
    }
    assert compare(classes(), WAYS, seeds=[0, 1], folder=tmp_path).runs == more.runs
    assert len(trained) == 4


@pytest.mark.slow
def test_parallel_runs_have_the_results_of_sequential_ones(tmp_path):
    told, asked = [], {"seeds": [0, 1], "trials": 2}
    at_once = compare(classes(), WAYS, **asked, jobs=2, folder=tmp_path, progress=lambda *what: told.append(what))
    in_turn = compare(classes(), WAYS, **asked)
    assert (at_once.runs, at_once.tunings) == (in_turn.runs, in_turn.tunings)
    assert [list(seeds) for seeds in at_once.runs.values()] == [[0, 1], [0, 1]]
    assert [done for done, _, _ in told] == [1, 1, 2, 3, 4, 5], "one search and four runs"
    assert len(list(tmp_path.glob("*/model.json"))) == 4


def test_an_interrupted_comparison_continues_to_the_same_results(monkeypatch, trained, tmp_path):
    ways = {name: replace(options, epochs=3) for name, options in WAYS.items()}

    def stop(done: float, total: int, name: str) -> None:
        if done == 3 and name == "fast":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(classes(), ways, seeds=[0, 1], folder=tmp_path, progress=stop)
    assert len(list(tmp_path.glob("*/result.json"))) == 3
    found = compare(classes(), ways, seeds=[0, 1], folder=tmp_path)
    assert len(trained) == 4
    assert found.runs == compare(classes(), ways, seeds=[0, 1]).runs


def test_a_folder_of_other_options_is_refused_before_anything_is_trained(trained, tmp_path):
    compare(classes(), {"last": quick()}, seeds=[0], folder=tmp_path)
    with pytest.raises(InputError, match=r"last-0/result\.json` holds another run \(.*\); choose another folder\.$"):
        compare(classes(), {**WAYS, "last": quick(batch_size=32)}, seeds=[0], folder=tmp_path)
    assert len(trained) == 1


def test_a_damaged_result_is_refused_with_its_path(tmp_path):
    compare(classes(), {"plain": quick()}, seeds=[0], folder=tmp_path)
    path = tmp_path / "plain-0" / "result.json"
    content = json.loads(path.read_text())
    for change, message in [
        ({"values": {"top1_error": "low"}}, "values.top1_error must be a finite number; got 'low'"),
        ({"history": None}, "history must be a list; got null"),
        ({"loss": 3}, "loss must be text; got 3"),
    ]:
        path.write_text(json.dumps({**content, "details": {**content["details"], **change}}))
        with pytest.raises(InputError, match=rf"^`.*result\.json` is damaged: {re.escape(message)}\.$"):
            compare(classes(), {"plain": quick()}, seeds=[0], folder=tmp_path)


def test_an_error_in_a_run_names_the_run():
    ways = {"plain": quick(), "wild": quick(learning_rate=1e30, epochs=3)}
    with pytest.raises(InputError, match=r"^candidate 'wild', seed 7: the loss is (nan|inf) in [^\n]*\.$"):
        compare(classes(), ways, seeds=[7])


def test_a_full_disk_leaves_the_runs_before(monkeypatch, trained, tmp_path):
    write = Path.write_text

    def full(path: Path, content: str, *arguments, **options) -> int:
        if "fast-0" in str(path):
            write(path, content[:9])
            raise OSError(28, "No space left on device")
        return write(path, content, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left on device"):
            compare(classes(), WAYS, seeds=[0], folder=tmp_path)
    assert [path.parent.name for path in tmp_path.glob("*/*result*")] == ["plain-0"]
    assert compare(classes(), WAYS, seeds=[0], folder=tmp_path).runs == compare(classes(), WAYS, seeds=[0]).runs


def test_names_that_no_folder_can_have_are_refused(tmp_path):
    for name in ("a/b", "", ".", "a\0b", "a\nb", "\ud83c", "x" * 201, "🌹" * 51):
        with pytest.raises(InputError, match=r"^`candidates` must have names that a folder can have; got [^\n]*\.$"):
            compare(classes(), {"plain": quick(), name: quick()}, seeds=[0], folder=tmp_path)
    with pytest.raises(InputError, match=r"^`candidates` must differ in more than capital letters; got 'A' and 'a'\.$"):
        compare(classes(), {"A": quick(), "a": quick()}, seeds=[0], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_models_of_text_predict_from_text(tmp_path, monkeypatch):
    data = texts()
    compare(data, WAYS, seeds=[0], folder=tmp_path)
    saved = load_model(tmp_path / "plain-0")
    assert saved.plan.words.terms[:2] == ("and", "and others")
    assert saved.scores(data).shape == (len(data), data.num_labels)


def test_a_candidate_that_does_not_fit_is_refused_before_the_others_are_trained(trained):
    for options in (quick(loss="zzz"), quick(k=8), quick(monitor="zzz"), quick(encoder="cnn")):
        with pytest.raises(InputError, match=r"^`(loss|k|monitor|encoder)` .*\.$"):
            compare(classes(), {**WAYS, "wrong": options}, seeds=[0])
    assert not trained


@pytest.mark.parametrize(
    ("ways", "seeds", "options", "message"),
    [
        ({}, [0], {}, "`candidates` and `seeds` must not be empty."),
        (WAYS, [], {}, "`candidates` and `seeds` must not be empty."),
        (WAYS, [1, 0, 1], {}, "`seeds` must differ; got [1, 0, 1]."),
        (WAYS, [0], {"jobs": 0}, "`jobs` must be at least 1; got 0."),
        ({1: quick()}, [0], {}, "`candidates` must have text as names; got 1."),
        (
            {"tree": quick(head="clusters")},
            [0],
            {"audit": True},
            "`audit` must be off for 'tree': a head of clusters has no matrix of all labels.",
        ),
        (WAYS, [0], {"part": "zzz"}, "`dataset` must have a part 'zzz'; it has train, val, test."),
    ],
)
def test_requests_that_make_no_sense_are_refused(ways, seeds, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compare(classes(), ways, seeds=seeds, **options)


@pytest.mark.parametrize("lock", [".lock", "plain-0/checkpoints/.lock"], ids=["comparison", "run"])
def test_two_processes_do_not_write_to_one_folder(trained, tmp_path, lock):
    folder = tmp_path / "out"
    with locked(folder / lock, folder), pytest.raises(InputError, match="is being written by another process"):
        compare(classes(), {"plain": quick()}, seeds=[0], folder=folder)
    assert not folder.exists()
    assert compare(classes(), {"plain": quick()}, seeds=[0], folder=folder).runs

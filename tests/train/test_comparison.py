"""A comparison: intervals by hand, winners by paired differences, finished runs not trained again."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from shortlist.errors import InputError
from shortlist.train import (
    Comparison,
    FitOptions,
    Interval,
    compare,
    evaluate,
    fit,
    load_model,
)
from shortlist.train.comparison import runs
from tests.train.small_data import classes, label_sets, quick, texts, with_parts

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


def test_an_interval_is_that_of_student_by_hand():
    found = Interval.of([1.0, 2.0, 6.0])
    # Mean 3, squares 4 + 1 + 9 = 14, deviation sqrt(7), quantile 4.303 for 2 degrees of freedom.
    assert found.mean == 3
    assert found.half_width == pytest.approx(4.303 * math.sqrt(7) / math.sqrt(3), rel=1e-3)


@pytest.mark.parametrize("count", [2, 3, 10, 30, 31, 32, 33, 50, 200, 5000])
def test_intervals_agree_with_scipy_for_any_number_of_seeds(count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count)).double().tolist()
    low, high = stats.t.interval(0.95, count - 1, loc=sum(values) / count, scale=stats.sem(values))
    found = Interval.of(values)
    assert found.mean == pytest.approx(sum(values) / count)
    assert found.half_width == pytest.approx((high - low) / 2, rel=3e-4)


def test_one_value_has_no_interval_and_equal_ones_have_none_to_speak_of():
    assert Interval.of([0.25]).mean == 0.25
    assert math.isnan(Interval.of([0.25]).half_width)
    assert Interval.of([0.25] * 4) == Interval(0.25, 0.0)


def of_values(**runs: list[float]) -> Comparison:
    return Comparison({name: {seed: {"top1_error": v} for seed, v in enumerate(vs)} for name, vs in runs.items()})


def test_the_lowest_error_wins_and_the_highest_of_anything_else():
    assert of_values(a=[0.3, 0.31, 0.32], b=[0.1, 0.11, 0.12]).best("top1_error") == ["b"]
    runs = {name: {0: {"recall@5": value}} for name, value in {"a": 0.3, "b": 0.1}.items()}
    assert Comparison(runs).best("recall@5") == ["a"]


def test_a_difference_that_is_the_same_for_every_seed_tells_apart_what_varies_much():
    # Means 0.3 and 0.31 with intervals of width 0.5, yet the second loses by 0.01 for each seed.
    first = [0.1, 0.3, 0.5]
    told = of_values(a=first, b=[value + 0.01 + 1e-4 * i for i, value in enumerate(first)])
    assert told.best("top1_error") == ["a"]
    assert told.interval("a", "top1_error").half_width > 0.4


def test_what_differs_now_one_way_now_the_other_is_not_told_apart():
    tied = of_values(a=[0.10, 0.12, 0.11], b=[0.12, 0.10, 0.115], c=[0.4, 0.41, 0.42])
    # The differences 0.02, -0.02, 0.005 have mean 0.0017 and half an interval of 0.05.
    assert tied.best("top1_error") == ["a", "b"]


def test_equal_figures_tie_and_others_of_one_seed_never_do():
    assert of_values(a=[0.2, 0.3], b=[0.2, 0.3]).best("top1_error") == ["a", "b"]
    # No one has the lowest error where two have it.
    assert of_values(a=[0.2], b=[0.2], c=[0.2000001]).best("top1_error") == ["a", "b"]


def test_differences_are_paired_by_seed_even_when_seeds_come_in_another_order():
    runs = {
        "a": {0: {"top1_error": 0.1}, 1: {"top1_error": 0.3}, 2: {"top1_error": 0.5}},
        "b": {2: {"top1_error": 0.512}, 0: {"top1_error": 0.11}, 1: {"top1_error": 0.311}},
    }
    assert Comparison(runs).best("top1_error") == ["a"]


@pytest.mark.parametrize("figure", ["zzz", "average_size"])
def test_there_is_no_winner_of_what_is_not_there_or_has_no_aim(figure):
    runs = {"a": {0: {"top1_error": 0.1, "average_size": 2.0}}}
    with pytest.raises(ValueError, match=rf"^`figure` must be one of top1_error; got '{figure}'\.$"):
        Comparison(runs).best(figure)


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


def test_sets_are_compared_too():
    found = compare(label_sets(), {loss: quick(loss=loss) for loss in ("bce", "lml_nll")}, seeds=[0])
    assert {"map", "recall@2", "ndcg@5"} <= {*found.figures()}
    assert len(found.best("map")) == 1


def test_progress_goes_step_by_step_from_the_first_run_to_the_last():
    told = []
    compare(classes(), WAYS, seeds=[0, 1], progress=lambda *what: told.append(what))
    done = [share for share, _, _ in told]
    assert done == sorted(done)
    starts = [(0, "plain"), (1, "fast"), (2, "plain"), (3, "fast")]
    assert all((share, 4, name) in told for share, name in starts)
    assert told[-1] == (4, 4, "")
    assert any(0 < share < 1 for share in done)


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
def test_runs_at_once_give_what_runs_in_turn_give(tmp_path):
    told = []
    at_once = compare(classes(), WAYS, seeds=[0, 1], jobs=2, folder=tmp_path, progress=lambda *what: told.append(what))
    in_turn = compare(classes(), WAYS, seeds=[0, 1])
    assert at_once.runs == in_turn.runs
    assert [list(seeds) for seeds in at_once.runs.values()] == [[0, 1], [0, 1]]
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]
    assert len(list(tmp_path.glob("*/model.json"))) == 4


def test_an_interrupted_comparison_goes_on_to_the_same_figures(monkeypatch, trained, tmp_path):
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


OTHERS: dict[str, tuple[Callable, dict[str, FitOptions], str]] = {
    "options": (classes, {"plain": quick(batch_size=32)}, "test"),
    "rows": (lambda: classes(300), {"plain": quick()}, "test"),
    "labels": (lambda: replace(classes(), targets=(classes().targets + 1) % 7), {"plain": quick()}, "test"),
    "parts": (lambda: with_parts(classes(), "train", "val", "test"), {"plain": quick()}, "test"),
    "evaluated part": (classes, {"plain": quick()}, "val"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_other_data_or_options_is_refused(tmp_path, name):
    compare(classes(), {"plain": quick()}, seeds=[0], folder=tmp_path)
    data, ways, part = OTHERS[name]
    path = re.escape(str(tmp_path / "plain-0" / "result.json"))
    with pytest.raises(ValueError, match=rf"^`{path}` holds another run \(.*\); choose another folder\.$"):
        compare(data(), ways, seeds=[0], folder=tmp_path, part=part)


def test_a_folder_of_other_options_is_refused_before_anything_is_trained(trained, tmp_path):
    compare(classes(), {"last": quick()}, seeds=[0], folder=tmp_path)
    with pytest.raises(ValueError, match=r"last-0/result\.json` holds another run \(.*\); choose another folder\.$"):
        compare(classes(), {**WAYS, "last": quick(batch_size=32)}, seeds=[0], folder=tmp_path)
    assert len(trained) == 1


def test_a_run_that_was_interrupted_with_other_options_is_refused(tmp_path):
    def stop(done: float, total: int, name: str) -> None:
        if done > 0.9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(classes(), {"plain": quick(epochs=3)}, seeds=[0], folder=tmp_path, progress=stop)
    with pytest.raises(InputError, match=r"`.*plain-0` holds another run \(epochs was 3 and is 1\); choose another"):
        compare(classes(), {"plain": quick(batch_size=32)}, seeds=[0], folder=tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": "shortlist model", "version": 1}', '{"format": "shortlist comparison run"}'],
)
def test_a_damaged_result_is_one_sentence(tmp_path, content):
    compare(classes(), {"plain": quick()}, seeds=[0], folder=tmp_path)
    (tmp_path / "plain-0" / "result.json").write_text(content)
    with pytest.raises(ValueError, match=r"^`.*result\.json` [^\n]*\.$"):
        compare(classes(), {"plain": quick()}, seeds=[0], folder=tmp_path)


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


def test_what_goes_wrong_in_a_run_says_in_which_one():
    ways = {"plain": quick(), "wild": quick(learning_rate=1e30, epochs=3)}
    with pytest.raises(ValueError, match=r"^candidate 'wild', seed 7: the loss is (nan|inf) in [^\n]*\.$"):
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


@pytest.mark.parametrize(
    ("ways", "seeds", "sentence"),
    [
        ({}, [0], "`candidates` and `seeds` must not be empty."),
        (WAYS, [], "`candidates` and `seeds` must not be empty."),
        (WAYS, [1, 0, 1], r"`seeds` must differ; got \[1, 0, 1\]."),
    ],
)
def test_nothing_to_compare_is_one_sentence(ways, seeds, sentence):
    with pytest.raises(ValueError, match=f"^{sentence[:-1]}\\.$"):
        compare(classes(), ways, seeds=seeds)


def test_names_that_no_folder_can_have_are_refused_where_there_is_one(tmp_path):
    for name in ("a/b", "", ".", "a\0b", "a\nb", "\ud83c", "x" * 201, "🌹" * 51):
        with pytest.raises(ValueError, match=r"^`candidates` must have names that a folder can have; got [^\n]*\.$"):
            compare(classes(), {"plain": quick(), name: quick()}, seeds=[0], folder=tmp_path)
    with pytest.raises(ValueError, match=r"^`candidates` must differ in more than capital letters; got 'A' and 'a'\.$"):
        compare(classes(), {"A": quick(), "a": quick()}, seeds=[0], folder=tmp_path)
    names: Any = {1: quick()}
    with pytest.raises(InputError, match=r"^`candidates` must have text as names; got 1\.$"):
        compare(classes(), names, seeds=[0])
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"^`jobs` must be at least 1; got 0\.$"):
        compare(classes(), WAYS, seeds=[0], jobs=0)


def test_texts_are_hashed_once_and_the_models_answer_to_texts(tmp_path, monkeypatch):
    data = texts()
    compare(data, WAYS, seeds=[0], folder=tmp_path)
    saved = load_model(tmp_path / "plain-0")
    assert saved.plan.words == {"num_features": quick().words, "ngrams": 1}
    assert saved.scores(data).shape == (len(data), data.num_labels)


def test_a_candidate_that_does_not_fit_is_refused_before_the_others_are_trained(trained):
    for options in (quick(loss="zzz"), quick(k=8), quick(monitor="zzz"), quick(encoder="cnn")):
        with pytest.raises(ValueError, match=r"^`(loss|k|monitor|encoder)` .*\.$"):
            compare(classes(), {**WAYS, "wrong": options}, seeds=[0])
    with pytest.raises(ValueError, match=r"^`dataset` must have a part 'zzz'; it has train, val, test\.$"):
        compare(classes(), WAYS, seeds=[0], part="zzz")
    assert not trained

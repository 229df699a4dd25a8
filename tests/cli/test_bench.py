"""``shortlist bench``: a row for everything, with a ratio to the simplest of its kind; sizes that fit."""

import json

import pytest
import torch

from shortlist import functional, timing
from shortlist.benchmark import Batch, rules
from shortlist.factory import LOSSES
from shortlist.predict import RULES
from shortlist.timing import Timing, free_memory, threads, time_steps
from tests.cli.command import command

run, _ = command("bench")

SMALL = ["--rows", "3", "--labels", "12", "--k", "2", "--repeat", "1"]


def results(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, *SMALL, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_every_loss_and_rule_has_a_time_and_a_ratio(capsys):
    found = results(capsys)
    assert (found["rows"], found["labels"], found["k"], found["repeat"]) == (3, 12, 2, 1)
    projections, one_class, of_sets, of_rules = found["results"].values()
    assert set(one_class) == {name for name, loss in LOSSES.items() if loss.one_class}
    assert set(of_sets) == set(LOSSES) - set(one_class)
    assert set(of_rules) == {"topk", *RULES}
    assert set(projections) - {"softmax", "sigmoid"} <= set(functional.__all__)
    for group, baseline in (
        (projections, "softmax"),
        (one_class, "cross_entropy"),
        (of_sets, "bce"),
        (of_rules, "topk"),
    ):
        for row in group.values():
            assert row["milliseconds"] > 0
            assert row["ratio"] == pytest.approx(row["milliseconds"] / group[baseline]["milliseconds"])
        assert group[baseline]["ratio"] == 1


@pytest.mark.parametrize("name", ["cuda:77", "graphics", "meta"])
def test_a_device_that_is_not_there_is_refused_in_one_sentence(name, capsys):
    code, out, err = run(capsys, *SMALL, "--device", name)
    assert (code, out) == (2, "")
    assert f"--device must be a device of this machine; torch finds no '{name}'." in err


def test_the_device_is_part_of_the_result(capsys):
    assert results(capsys, "--what", "projections")["device"] == "cpu"


def test_only_what_is_asked_for_is_measured(capsys):
    assert list(results(capsys, "--what", "rules", "projections")["results"]) == [
        "projections, forward and backward",
        "set rules, from logits to sets",
    ]


def test_a_loss_that_cannot_run_says_why_in_its_row(capsys):
    arguments = ["--rows", "2", "--labels", "4", "--k", "4", "--repeat", "1", "--what", "losses"]
    code, out, _ = run(capsys, *arguments, "--json")
    row = json.loads(out)["results"]["losses of one class, forward and backward"]["average_k"]
    assert (code, row) == (0, {"milliseconds": None, "ratio": None, "reason": "`k` must lie in [1, 4); got 4.0"})
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "`k` must lie in [1, 4); got 4.0" in out


def test_tables_and_progress_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("shortlist.progress._SECONDS_BETWEEN_LINES", 0.0)
    code, out, err = run(capsys, *SMALL, "--threads", "1", "--what", "projections")
    assert code == 0
    for word in ("3 rows × 12 labels, k = 2, float32, 1 thread", "lml_budget", "÷ softmax", "ms"):
        assert word in out
    assert "softmax" not in out.splitlines()[0]
    assert err.splitlines()[-1].split(",")[0] == "timing sparse_top_budget: 18 of 18 turns"


def test_threads_and_the_random_state_are_restored(capsys):
    before, state = torch.get_num_threads(), torch.get_rng_state()
    found = results(capsys, "--threads", "2", "--what", "losses")
    assert found["threads"] == 2
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
    with threads(None) as used:
        assert used == before


def test_a_lack_of_memory_is_found_before_anything_is_allocated(capsys, monkeypatch):
    assert free_memory() is None or free_memory() > 1 << 20
    need = Batch.bytes_needed(256, 10_000, 5, ["losses"])
    assert need > 20 * 4 * 256 * 10_000
    monkeypatch.setattr(timing, "free_memory", lambda: need - 1)
    monkeypatch.setattr(Batch, "draw", None)
    code, _, err = run(capsys)
    assert code == 2
    assert err == "shortlist: --rows 256 and --labels 10000 need about 313 MiB of memory, and 313 MiB are free.\n"


def test_a_machine_that_does_not_tell_its_memory_refuses_nothing(capsys, monkeypatch):
    monkeypatch.setattr(timing, "free_memory", lambda: None)
    assert run(capsys, *SMALL, "--what", "projections")[0] == 0


def test_steps_take_turns_and_one_that_fails_does_not_stop_the_others():
    order = []

    def maker(name):
        return lambda: lambda: order.append(name)

    def broken():
        raise ValueError("`k` is wrong. And more.")

    told = []
    found = time_steps({"a": maker("a"), "x": broken, "b": maker("b")}, rounds=2, progress=told.append)
    assert "".join(order) == "ab" + "aabb" + 2 * "aabb"  # Made; warmed up; two turns, in which the second run counts.
    assert told == ["a", "x", "b", "a", "b", "a", "b"]
    assert found["x"] == Timing(None, "`k` is wrong")
    assert found["a"].seconds is not None


def test_the_rules_answer_with_about_as_many_labels_as_are_true():
    batch = Batch.draw(200, 50, 3)
    steps = rules(batch).steps
    for name in RULES:
        # A node of random groups holds many labels.
        assert 1 <= float(steps[name]()().sizes.float().mean()) <= (50 if name == "deepest-node" else 6), name

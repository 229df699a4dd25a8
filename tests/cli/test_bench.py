"""``shortlist bench``: a row for everything, with a ratio to the simplest of its kind; sizes that fit."""

import json

import pytest
import torch

from shortlist import functional
from shortlist.cli import bench_turns, main
from shortlist.cli.bench_steps import Batch, rules
from shortlist.cli.bench_turns import Timing, free_memory, take_turns, threads
from shortlist.cli.calibrate import RULES
from shortlist.recipes import LOSSES

SMALL = ["--rows", "3", "--labels", "12", "--k", "2", "--repeat", "1"]


@pytest.fixture(autouse=True)
def one_call(monkeypatch):
    """A turn is one call: nothing is measured here."""
    monkeypatch.setattr(bench_turns, "_MOST_CALLS", 1)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["bench", *arguments])
    except SystemExit as error:
        code = int(str(error.code or 0))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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


def test_people_get_tables_and_a_terminal_sees_progress(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, out, err = run(capsys, *SMALL, "--threads", "1", "--what", "projections")
    assert code == 0
    for word in ("3 rows × 12 labels, k = 2, float32, 1 thread", "lml_budget", "÷ softmax", "ms"):
        assert word in out
    assert "softmax" not in out.splitlines()[0]
    assert err


def test_threads_and_chance_are_as_before_afterwards(capsys):
    before, state = torch.get_num_threads(), torch.get_rng_state()
    found = results(capsys, "--threads", "2", "--what", "losses")
    assert found["threads"] == 2
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
    with threads(None) as used:
        assert used == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--rows 0", "--rows must be at least 1; got 0."),
        ("--labels 1", "--labels must be at least 2; got 1."),
        ("--repeat 0", "--repeat must be at least 1; got 0."),
        ("--threads 0", "--threads must be at least 1; got 0."),
        ("--k 0", "--k must lie in (0, 10000], the number of labels; got 0."),
        ("--k 11 --labels 10", "--k must lie in (0, 10], the number of labels; got 11."),
        ("--k nan", "--k must lie in (0, 10000], the number of labels; got nan."),
        ("--labels 1000000000000", "--rows 256 and --labels 1000000000000 need about "),
        ("--what zzz", "argument --what: invalid choice: 'zzz'"),
        ("--rows many", "argument --rows: invalid int value: 'many'"),
    ],
)
def test_a_size_that_cannot_be_is_one_sentence(capsys, arguments, sentence):
    code, out, err = run(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("shortlist")
    assert err.endswith(".\n")
    assert err.count("\n") == 1


def test_memory_that_is_not_there_is_told_before_it_is_taken(capsys, monkeypatch):
    assert free_memory() is None or free_memory() > 1 << 20
    need = Batch.bytes_needed(256, 10_000, 5, ["losses"])
    assert need > 20 * 4 * 256 * 10_000
    monkeypatch.setattr(bench_turns, "free_memory", lambda: need - 1)
    monkeypatch.setattr(Batch, "draw", None)
    code, _, err = run(capsys)
    assert code == 2
    assert err == "shortlist: --rows 256 and --labels 10000 need about 0.3 GiB of memory, and 0.3 GiB are free.\n"


def test_a_machine_that_does_not_tell_its_memory_refuses_nothing(capsys, monkeypatch):
    monkeypatch.setattr(bench_turns, "free_memory", lambda: None)
    assert run(capsys, *SMALL, "--what", "projections")[0] == 0


def test_steps_take_turns_and_one_that_fails_does_not_stop_the_others():
    order = []

    def maker(name):
        return lambda: lambda: order.append(name)

    def broken():
        raise ValueError("`k` is wrong. And more.")

    told = []
    found = take_turns({"a": maker("a"), "x": broken, "b": maker("b")}, repeat=2, progress=told.append)
    assert order == ["a", "a", "b", "b", "a", "b", "a", "b"]  # Two calls each to warm up, then turns.
    assert told == ["a", "x", "b", "a", "b", "a", "b"]
    assert found["x"] == Timing(None, "`k` is wrong")
    assert found["a"].seconds is not None


def test_the_rules_answer_with_about_as_many_labels_as_are_true():
    batch = Batch.draw(200, 50, 3)
    steps = rules(batch).steps
    for name in RULES:
        assert 1 <= float(steps[name]()().sizes.float().mean()) <= 6, name


def test_help_shows_examples(capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    for word in ("examples:", "shortlist bench", "--what", "--threads", "exit code"):
        assert word in out

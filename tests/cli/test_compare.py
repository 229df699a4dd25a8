"""``shortlist compare``: a table with intervals and a winner, and JSON that parses."""

import json
import re
import shlex
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.comparison_document import comparison_file, read_comparison
from shortlist.data import open_dataset
from shortlist.train import FitOptions
from shortlist.train import compare as library
from shortlist.train.comparison import runs
from tests.cli.command import command
from tests.cli.trained import QUICK, reader

run, _ = command("compare")

PARTS = ["parts.csv", *reader(split="part"), *QUICK]
TWO = ["--losses", "cross_entropy", "lml_nll"]


@pytest.fixture
def trained(monkeypatch) -> list[tuple[str, int]]:
    """Loss and seed of every run that is trained."""
    calls = []
    fit = runs.fit

    def counted(dataset, options, **more):
        calls.append((options.loss, options.seed))
        return fit(dataset, options, **more)

    monkeypatch.setattr(runs, "fit", counted)
    return calls


def test_json_holds_what_the_library_finds(capsys, training_files):
    code, out, err = run(capsys, *PARTS, *TWO, "--seeds", "2", "--seed", "4", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    data = open_dataset("parts.csv", label="species", features=["a", "b", "c", "d"], split="part")
    options = {loss: FitOptions(loss=loss, epochs=1, k=2.0, encoder_options={"hidden": [8]}) for loss in TWO[1:]}
    wanted = library(data, options, seeds=[4, 5])
    assert found["format"] == "shortlist comparison figures"
    assert found["runs"] == {
        name: {str(seed): values for seed, values in seeds.items()} for name, seeds in wanted.runs.items()
    }
    assert found["target"] == "average2_error"
    assert found["best"] == {name: wanted.best(name) for name in ("average2_error", "top1_error", "top2_error")}
    for name in options:
        for figure in wanted.figures():
            interval = wanted.interval(name, figure)
            assert found["intervals"][name][figure] == {"mean": interval.mean, "half_width": interval.half_width}


def test_one_seed_has_no_interval_and_the_json_still_parses_strictly(capsys, training_files):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    _, out, _ = run(capsys, *PARTS, *TWO, "--seeds", "1", "--json")
    found = json.loads(out, parse_constant=refuse)
    assert found["intervals"]["lml_nll"]["top1_error"]["half_width"] is None


def test_the_table_marks_the_best_and_names_the_winner(capsys, training_files):
    code, out, _ = run(capsys, *PARTS, *TWO, "--seeds", "2", "--target", "top1_error")
    assert code == 0
    assert re.search(r"^│ lml_nll  .* \d+\.\d+ ± \d+\.\d+", out, re.M)
    assert re.search(r"^(cross_entropy|lml_nll) has the lowest top-1 error: .* over 2 seeds\.", out, re.M)
    assert "Note: 2 seeds decide little: use --seeds 5.\n" in out
    best = json.loads(run(capsys, *PARTS, *TWO, "--seeds", "2", "--json")[1])["best"]
    assert out.count("*") == sum(len(names) for names in best.values())


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_numbers_keep_their_stars_in_terminals_of_any_width(capsys, training_files, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    out = run(capsys, "sets.npz", *QUICK, "--losses", "bce", "warp", "--seeds", "2")[1]
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert len(lines) == 2
    assert all(len(re.findall(r"\d ± \d+\.\d+ [* ]", line)) == 5 for line in lines)
    assert "…" not in out
    assert max(map(len, lines)) <= max(80, int(columns))


def test_a_world_of_known_probabilities_shows_the_optimum(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["ambiguous", "--reader", "{rows: 600}", *QUICK, *TWO, "--seeds", "1", "--output", "runs"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "optimum" in out
    document = json.loads(Path("runs/comparison.json").read_text())
    assert (
        document["optimum"]["values"]["average2_error"]
        < document["candidates"]["lml_nll"]["intervals"]["average2_error"]["mean"]
    )
    assert document["commands"] == ["shortlist compare " + shlex.join(arguments)]
    assert "`shortlist report runs` makes a page of it." in out


def test_candidates_have_options_of_their_own(capsys, training_files, trained):
    Path("run.yaml").write_text(
        "candidates:\n  small: {loss: lml_nll, learning_rate: 1e-2}\n  big, too: {loss: bce}\nseeds: 1\n"
    )
    code, out, _ = run(capsys, *PARTS, "--config", "run.yaml", "--json")
    assert code == 0
    assert trained == [("lml_nll", 0), ("bce", 0)]
    assert [*json.loads(out)["runs"]] == ["small", "big, too"]


def test_rates_are_tuned_unless_they_are_given_and_the_page_draws_them(capsys, training_files):
    plain = ["parts.csv", *reader(split="part"), "--epochs", "8", "--k", "2", "--encoder_options", "{hidden: [8]}"]
    Path("run.yaml").write_text("candidates:\n  fixed: {loss: bce, learning_rate: 1e-2}\nseeds: 1\ntune: 2\n")
    code, out, _ = run(capsys, *plain, *TWO, "--config", "run.yaml", "--output", "runs")
    assert code == 0
    found = read_comparison("runs").candidates
    rates = {name: each.tuning and each.tuning.learning_rate for name, each in found.items()}
    assert rates["fixed"] is None
    assert {name: each.options["learning_rate"] for name, each in found.items()} == {**rates, "fixed": 0.01}
    listed = ", ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate)
    assert f"Learning rates, found on validation rows by 2 trials each: {listed}." in " ".join(out.split())
    code, out, _ = run(capsys, *plain, *TWO, "--config", "run.yaml", "--output", "runs", "--json")
    assert {name: each["learning_rate"] for name, each in json.loads(out)["tuned"].items()} == {
        name: rate for name, rate in rates.items() if rate
    }
    assert main(["report", "runs", "--output", "page.html"]) == 0
    assert "<h3>Learning rates</h3>" in Path("page.html").read_text()


def test_candidates_may_differ_in_their_recipe(capsys, training_files):
    Path("run.yaml").write_text("candidates:\n  usual: {loss: bce}\n  long: {loss: bce, recipe: paper}\nseeds: 1\n")
    assert run(capsys, *PARTS, "--config", "run.yaml", "--output", "runs")[0] == 0
    found = read_comparison("runs").candidates
    assert {name: candidate.recipe for name, candidate in found.items()} == {"usual": "adamw", "long": "paper"}
    assert (found["long"].options["optimizer"], found["long"].options["learning_rate"]) == ("sgd", 0.1)
    code, _, err = run(capsys, *PARTS, *TWO, "--recipe", "sgd")
    assert (code, "`recipe` must be one of adamw, paper; got 'sgd'." in err) == (2, True)


def test_an_audit_counts_the_sets_that_a_layer_can_never_rank_first(capsys, training_files):
    narrow = "{narrow: {loss: bce, head: bottleneck, head_options: {bottleneck: 1}}, wide: {loss: bce}}"
    code, out, _ = run(capsys, "sets.npz", *QUICK, "--candidates", narrow, "--seeds", "1", "--audit", "true", "--json")
    assert code == 0
    audits = json.loads(out)["audits"]
    assert audits["narrow"]["unargmaxable"] > 0 == audits["wide"]["unargmaxable"]
    assert audits["narrow"]["features"] == 1
    assert sum(row["unargmaxable"] for row in audits["narrow"]["by_size"]) == audits["narrow"]["unargmaxable"]


def test_sets_are_judged_by_the_recall_that_was_asked_for(capsys, training_files):
    _, out, _ = run(capsys, "sets.npz", *QUICK, "--losses", "bce", "lml_nll", "--seeds", "1", "--json")
    found = json.loads(out)
    assert found["target"] == "recall@2"
    assert {"map", "recall@2", "ndcg@5"} <= found["best"].keys()


def test_every_model_of_a_comparison_is_evaluated_on_the_parts_it_was_trained_with(capsys, training_files):
    arguments = ["plain.csv", *reader(), *QUICK, "--losses", "lml_nll", "--seeds", "2", "--output", "runs", "--json"]
    figures = json.loads(run(capsys, *arguments)[1])["runs"]["lml_nll"]
    for seed in ("0", "1"):
        assert main(["evaluate", f"runs/lml_nll-{seed}", "--data", "plain.csv", "--k", "1", "2", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["at_k"]["top_k_accuracy_micro"]
        assert 1 - found["1"] == pytest.approx(figures[seed]["top1_error"])


def test_a_comparison_grows_in_its_folder_but_loses_nothing(capsys, training_files, trained):
    arguments = [*PARTS, "--output", "runs", "--losses"]
    assert run(capsys, *arguments, "cross_entropy", "--seeds", "1")[0] == 0
    assert run(capsys, *arguments, *TWO[1:], "--seeds", "2")[0] == 0
    assert len(trained) == len(set(trained)) == 4
    kept = comparison_file("runs").read_bytes()
    for other, lost in ((["lml_nll", "--seeds", "2"], 0), ([*TWO[1:], "--seeds", "1"], 1)):
        code, _, err = run(capsys, *arguments, *other)
        assert code == 2
        assert f"`runs` holds another comparison ('cross_entropy' with seed {lost}); compare that again, too" in err
    assert len(trained) == 4
    assert comparison_file("runs").read_bytes() == kept


def test_the_report_reads_what_a_comparison_writes_and_shows_its_config(capsys, training_files):
    Path("run.yaml").write_text("losses: [lml_nll]\nseeds: 1\n")
    assert run(capsys, *PARTS, "--config", "run.yaml", "--output", "runs")[0] == 0
    document = read_comparison(comparison_file("runs"))
    assert document.commands[1] == "# run.yaml holds:\nlosses: [lml_nll]\nseeds: 1"
    assert main(["report", "runs"]) == 0
    assert "# run.yaml holds:" in Path("runs/report.html").read_text()

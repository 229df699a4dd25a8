"""``shortlist reproduce``: results, pictures and the document are written by the runs, and nothing is run twice."""

import json
import re

import pytest

from shortlist.cli.reproduce import seconds_left
from tests.cli.command import command
from tests.evidence.toy_experiments import write_experiments


@pytest.fixture
def root(tmp_path, monkeypatch):
    write_experiments(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


reproduce, _ = command("reproduce")


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    return reproduce(capsys, "--experiments", "toys", "--jobs", "1", *arguments)


def calls(root) -> int:
    return len((root / "data" / "calls.txt").read_text().splitlines())


@pytest.fixture(autouse=True)
def same_data(monkeypatch):
    """The file that counts calls is also what the experiment reads; it must look the same after a call."""
    monkeypatch.setattr("shortlist.evidence.reproduction._data_fingerprint", lambda path: "same")


def test_one_experiment_writes_its_result_its_picture_and_the_document(root, capsys):
    code, out, err = run(capsys, "lml-table-2")
    assert code == 0
    assert "lml-table-2: ✔ holds: Ours beats the other\n    ours − other = +10.00 ± 0.00 points\n" in out
    assert "[1/1] lml-table-2: done" in err
    result = json.loads((root / "toys/results/small/lml-table-2.json").read_text())
    assert (result["trials"], result["scale"], result["outcome"]["tried"]) == (5, "small", ["Three rates."])
    assert (root / "toys/results/small/lml-table-2/chart.png").is_file()
    text = (root / "docs/evidence.md").read_text()
    assert re.search(r"\| the papers on training, tuned per loss +\| +1 \| +0 \| +0 \| +0 \| +1 \|", text)
    assert "[table 2](#lml-table-2-ours-and-the-other) | – | ✔ holds" in re.sub(" +", " ", text)
    assert "[table 10](#lml-table-10-ours-and-the-other) | … not run yet" in re.sub(" +", " ", text)
    assert "| ours | 52.0 ± 2.0 |      80.0 |" in text
    assert "(../toys/results/small/lml-table-2/chart.png)" in text
    assert "80 \\| 70" in text
    assert "[table 2](#lml-table-2-ours-and-the-other)" in text


def test_experiments_share_their_trials_and_resume(root, capsys):
    run(capsys, "--all")
    assert calls(root) == 5
    run(capsys, "--all")
    assert calls(root) == 5
    run(capsys, "lml-table-10", "--again")
    assert calls(root) == 10


def test_pictures_that_nobody_draws_any_more_are_removed(root, capsys):
    run(capsys, "lml-table-2")
    old = root / "toys/results/small/lml-table-2/old.png"
    old.write_bytes(b"old")
    run(capsys, "lml-table-2")
    assert not old.exists()


def test_another_output_has_its_own_document(root, capsys):
    code, out, _ = run(capsys, "lml-table-2", "--output", "elsewhere")
    assert code == 0
    assert "Written: elsewhere/evidence.md" in out
    assert not (root / "docs").exists()
    assert "(./small/lml-table-2/chart.png)" in (root / "elsewhere/evidence.md").read_text()


def test_the_output_can_hold_the_kept_trials(root, capsys):
    for _ in range(2):
        assert run(capsys, "lml-table-2", "--output", "out")[0] == 0
    assert any((root / "out" / "trials").glob("*.json"))


def test_missing_data_are_one_sentence(root, capsys):
    code, out, err = run(capsys, "lml-table-2", "--scale", "paper")
    assert (code, out) == (2, "")
    message = "`data/large`, which lml-table-2 reads at paper scale, is missing; --data-root says where the data are."
    assert err.splitlines()[-1] == f"shortlist: {message}"


def test_one_experiment_that_fails_does_not_end_the_others(root, capsys):
    config = root / "toys/lml-table-2.yaml"
    config.write_text(config.read_text().replace("settings: {seeds: [0, 1, 2", "settings: {broken: 2, seeds: [0, 1, 2"))
    code, out, err = run(capsys, "--all")
    assert code == 2
    assert "lml-table-2: ValueError('`seed` must not be this one.')" in err
    assert "1 of 2 experiments could not be run: lml-table-2." in err
    assert "lml-table-10: ✔ holds" in out


def test_a_result_from_other_data_does_not_stand_for_one_that_could_not_be_had(root, capsys):
    run(capsys, "--all")
    config = root / "toys/lml-table-2.yaml"
    config.write_text(config.read_text().replace("study: toy:study", "study: toy:nothing"))
    code, _, err = run(capsys, "--all")
    assert code == 2
    assert "lml-table-2: `toy:nothing`, the study of lml-table-2, cannot be found" in err
    text = re.sub(" +", " ", (root / "docs/evidence.md").read_text())
    assert "[table 10](#lml-table-10-ours-and-the-other) | – | ✔ holds" in text
    assert "[table 2](#lml-table-2-ours-and-the-other) | … not run yet" in text


def test_a_result_of_other_settings_is_not_shown(root, capsys):
    run(capsys, "--all")
    config = root / "toys/lml-table-2.yaml"
    config.write_text(config.read_text().replace("seeds: [0, 1, 2, 3, 4]", "seeds: [5, 6, 7, 8, 9]"))
    run(capsys, "lml-table-10")
    text = re.sub(" +", " ", (root / "docs/evidence.md").read_text())
    assert "[table 2](#lml-table-2-ours-and-the-other) | … not run yet" in text


def test_an_experiment_that_cannot_decide_says_why_and_is_not_run(root, capsys):
    (root / "toys/lml-table-3.yaml").write_text(
        "title: Features\npublication: lml\nitem: table 3\nclaim: 1\nnot_decidable: The data are not available.\n"
        "claims: [{text: Features are better., published: '80'}]\n"
    )
    code, _, err = run(capsys, "lml-table-3")
    assert code == 2
    assert err.splitlines()[-1] == "shortlist: lml-table-3 cannot be run: The data are not available."
    run(capsys, "lml-table-2")
    text = (root / "docs/evidence.md").read_text()
    assert "| Features are better. | 80 | **? not decidable**<br>The data are not available." in re.sub(" +", " ", text)


def test_verdicts_and_the_list_are_printed_as_json_and_nothing_else(root, capsys):
    name = json.loads(run(capsys, "--list", "--json")[1])[0]["experiment"]
    code, out, _ = run(capsys, name, "--json")
    found = json.loads(out)
    assert (code, found["failed"]) == (0, [])
    assert {each["experiment"] for each in found["verdicts"]} == {name}
    assert (root / found["document"]).is_file()


def test_the_list_names_every_experiment_and_runs_none(root, capsys):
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["experiment", "lml-table-2", "lml-table-10"]
    assert calls(root) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the experiments to run, or give --all"),
        (["--all", "lml-table-2"], "name the experiments to run, or give --all"),
        (["lml-table-3"], "NAME must be one of the 2 experiments that --list shows; got 'lml-table-3'"),
        (["--all", "--jobs", "0"], "argument --jobs: must be at least 1; got 0"),
        (["--all", "--cluster", "slurm"], "`cluster` must be local, dask://HOST:PORT or ray://HOST:PORT"),
        (["--all", "--cluster", "dask://127.0.0.1:1"], "`dask://127.0.0.1:1` cannot be reached: "),
    ],
)
def test_mistakes_are_answered_in_one_sentence(root, capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"shortlist: {message}[^\n]*\.\n", err)


def test_the_time_left_follows_the_pace_of_trials_that_ran_now():
    minutes = {"a": 2.0, "b": 4.0}
    assert seconds_left(minutes, {}, 0.0) == 360
    assert seconds_left(minutes, {"a": (1.0, 0.0)}, 10.0) == 240  # Kept trials say nothing about the pace.
    assert seconds_left(minutes, {"a": (1.0, 1.0)}, 240.0) == pytest.approx(480)

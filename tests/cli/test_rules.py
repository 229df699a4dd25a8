"""``shortlist rules``: the list, and the rule that it recommends for scores and a goal."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.predict import RULES
from shortlist.sets import MissGoal, SizeGoal, choose_rule, load_rule
from tests.cli.command import command
from tests.cli.score_files import CLASSES, HOT, LOGITS, PROBS

run, refused = command("rules")


def test_every_rule_has_one_line_that_says_what_it_guarantees_and_needs(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    _, *lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    assert "--alpha" in next(line for line in lines if line.startswith("average-error"))
    code, out, _ = run(capsys, "--json")
    assert json.loads(out)[0]["guarantee"] == "every set has k labels"


@pytest.mark.parametrize(
    ("arguments", "scores", "labels", "goal"),
    [
        (("probabilities.npy", "y.txt", "--probabilities", "--k", "2"), PROBS, CLASSES, SizeGoal(2)),
        (("logits.npy", "y.txt", "--logits", "--alpha", "0.2"), LOGITS, CLASSES, MissGoal(0.2)),
        (("logits.npy", "hot.npy", "--logits", "--k", "1.5"), LOGITS, HOT, SizeGoal(1.5)),
    ],
)
def test_it_prints_and_saves_what_the_library_recommends(capsys, score_files, arguments, scores, labels, goal):
    code, out, err = run(capsys, *arguments, "--output", "rule.json")
    from_logits, one_class = "--logits" in arguments, labels is CLASSES
    choice = choose_rule(scores, labels, goal=goal, from_logits=from_logits, one_class=one_class)
    assert (code, err, out) == (0, "", f"{choice}\nRule: rule.json\n")
    saved = load_rule("rule.json")
    assert saved.options() == choice.rule.options()
    first, second = (rule.predict(scores, generator=torch.Generator().manual_seed(0)) for rule in (saved, choice.rule))
    assert torch.equal(first.labels, second.labels)


def test_json_holds_the_figures_of_every_rule(capsys, score_files):
    code, out, _ = run(capsys, "logits.npy", "y.txt", "--logits", "--k", "2", "--json")
    found = json.loads(out)
    assert (code, list(found)) == (0, ["best", "reason", "rules", "groups", "output"])
    assert [each["name"] for each in found["rules"]] == ["top-k", "average-k"]
    assert found["rules"][0]["size"] == 2


def test_the_worst_group_of_rows_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probs = torch.rand(400, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    # Rows from the south have their least likely label.
    classes = [int((row.argmin if at % 4 == 3 else row.argmax)()) for at, row in enumerate(probs)]
    np.save("scores.npy", probs.numpy())
    Path("y.txt").write_text("\n".join(map(str, classes)))
    Path("places.txt").write_text("\n".join("south" if at % 4 == 3 else "north" for at in range(400)))
    code, out, _ = run(capsys, "scores.npy", "y.txt", "--probabilities", "--k", "2", "--groups", "places.txt")
    assert code == 0
    assert "worst group" in out.splitlines()[0]
    assert "Its worst group is 'south', with " in out
    Path("places.txt").write_text("south\n")
    message = refused(capsys, "scores.npy", "y.txt", "--probabilities", "--k", "2", "--groups", "places.txt")
    assert message == "`places.txt` must have one group per row of scores, 400; it has 1."


def test_a_model_brings_its_scores_and_link(capsys, model_folder):
    code, out, _ = run(capsys, "parts", "--data", "parts.csv", "--k", "2")
    assert code == 0
    assert "top-k" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("logits.npy", "y.txt", "--logits"), "the goal must be given: --k labels per row, or --alpha"),
        (("logits.npy", "--logits", "--k", "2"), "LABELS must be given"),
        (("--k", "2"), "SCORES must be given: a file of scores or a model, for which a rule is recommended."),
        (("logits.npy", "y.txt", "--logits", "--alpha", "2"), "`alpha` must lie strictly between 0 and 1; got 2.0."),
        (("logits.npy", "hot.npy", "--logits", "--alpha", "0.1", "--per-class"), "`goal` must have per_class=False"),
        (("logits.npy", "y.txt", "--k", "2"), "either --logits or --probabilities must say what the scores are."),
    ],
)
def test_mistakes_are_one_sentence(capsys, score_files, arguments, message):
    assert message in refused(capsys, *arguments)

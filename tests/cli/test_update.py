"""``shortlist update``: the stream of the library, and one sentence for what follows none."""

import json

import numpy as np
import pytest

from shortlist.cli import main
from shortlist.sets import AdaptiveConformal, OnlineAverageK, OnlineConformal, ShiftAlarm, load_rule
from tests.cli.command import command
from tests.cli.score_files import CLASSES, LOGITS

run, refused = command("update")
CASES = {
    "adaptive-conformal": (["--alpha", "0.2", "--step", "0.1"], AdaptiveConformal(0.2, step=0.1)),
    "online-conformal": (["--alpha", "0.2"], OnlineConformal(0.2)),
    "online-average-k": (["--k", "2"], OnlineAverageK(2)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stream_in_two_parts_is_that_of_the_library(score_files, capsys, name):
    arguments, rule = CASES[name]
    labels = ["y.txt"] if rule.needs_labels else []
    assert main(["calibrate", "logits.npy", *labels, "--logits", "--rule", name, *arguments, "-o", "rule.json"]) == 0
    capsys.readouterr()
    rule.fit(LOGITS, CLASSES if labels else None, from_logits=True)
    for times in (1, 2):
        code, out, err = run(capsys, "logits.npy", *labels, "--logits", "--rule", "rule.json", "--json")
        assert (code, err) == (0, "")
        found = rule.update(LOGITS, CLASSES) if labels else rule.update(LOGITS)
        told = json.loads(out)
        key, whole = ("error", rule.error) if labels else ("average_size", rule.average_size)
        assert told[key] == pytest.approx(float(found.double().mean()))
        assert told[f"{key}_of_stream"] == pytest.approx(whole)
        assert told["threshold"] == float(rule.threshold) == float(load_rule("rule.json").threshold)
        assert int(load_rule("rule.json").steps) == times * len(LOGITS)
    code, out, _ = run(capsys, "logits.npy", *labels, "--logits", "--rule", "rule.json", "-o", "other.json")
    assert out.endswith("Rule: other.json\n")
    assert int(load_rule("rule.json").steps) == 2 * len(LOGITS)


def test_the_alarm_watches_the_stream_and_is_kept_beside_the_rule(score_files, capsys):
    line = ("logits.npy", "y.txt", "--logits")
    for name, goal in (("adaptive-conformal", ["--alpha", "0.2"]), ("online-conformal", ["--alpha", "0.2"])):
        assert main(["calibrate", *line, "--rule", name, *goal, "-o", f"{name}.json"]) == 0
    capsys.readouterr()
    line = (*line, "--rule", "adaptive-conformal.json", "--alarm", "alarm.json")
    code, out, _ = run(capsys, *line, "--json")
    assert (code, json.loads(out)["alarm_raised_at"]) == (0, None)  # the calibration rows themselves
    assert ShiftAlarm.load("alarm.json").steps == len(LOGITS)
    np.save("logits.npy", -LOGITS.numpy())  # the true label is among the worst
    code, out, _ = run(capsys, *line)
    alarm = ShiftAlarm.load("alarm.json")
    assert code == 0
    assert alarm.raised_at is not None
    assert len(LOGITS) < alarm.raised_at < alarm.steps == 2 * len(LOGITS)
    assert f"The alarm is raised at row {alarm.raised_at} of the stream, from 0: alarm.json\n" in out
    other = ("logits.npy", "y.txt", "--logits", "--rule", "online-conformal.json", "--alarm", "alarm.json")
    assert "--alarm is for adaptive-conformal" in refused(capsys, *other)
    assert "`adaptive-conformal.json`" in refused(capsys, *line[:-1], "adaptive-conformal.json")


def test_what_follows_no_stream_is_refused(score_files, capsys):
    line = ("logits.npy", "y.txt", "--logits")
    for name, arguments in (("average-error", ["--alpha", "0.2"]), ("adaptive-conformal", ["--alpha", "0.2"])):
        assert main(["calibrate", *line, "--rule", name, *arguments, "-o", f"{name}.json"]) == 0
    capsys.readouterr()
    assert "--rule must name" in refused(capsys, *line)
    assert "holds AverageError, which follows no stream" in refused(capsys, *line, "--rule", "average-error.json")
    early = refused(capsys, "missing.npy", "y.txt", "--logits", "--rule", "average-error.json")
    assert "follows no stream" in early  # before any scores are read
    assert "LABELS must be given" in refused(capsys, "logits.npy", "--logits", "--rule", "adaptive-conformal.json")
    assert "was calibrated on logits" in refused(
        capsys, "probabilities.npy", "y.txt", "--probabilities", "--rule", "adaptive-conformal.json"
    )

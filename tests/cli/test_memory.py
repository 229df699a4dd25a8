"""``shortlist memory``: a table or bytes as JSON, and nothing is allocated."""

import json

from shortlist.memory import estimate_memory
from tests.cli.command import command

run, refused = command("memory")

SIZE = ["--labels", "1000000", "--features", "256", "--rows", "256"]


def test_plain_and_chunked_stand_side_by_side(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run(capsys, *SIZE, "--loss", "lml_nll")
    assert (code, err) == (0, "")
    assert "256 rows × 1,000,000 labels, 256 features, lml_nll, adam, float32, 1 process" in out
    lines = [line for line in out.splitlines() if "peak" in line or "plain" in line]
    assert lines[0].split()[1::2] == ["plain", "chunked"] or "plain" in lines[0]
    assert lines[1].count("GiB") == 2
    assert "free on this machine" in out


def test_one_of_them_can_be_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    out = run(capsys, *SIZE, "--loss", "bce", "--chunked", "--processes", "4", "--dtype", "bfloat16")[1]
    assert "plain" not in out
    assert "bfloat16, 4 processes" in out


def test_programs_get_the_bytes_of_the_function(capsys):
    arguments = ("--processes", "2", "--optimizer", "sgd", "--label-block", "512", "--json")
    code, out, err = run(capsys, *SIZE, "--loss", "two_way", *arguments)
    assert (code, err) == (0, "")
    found = json.loads(out)
    setting = {"rows": 256, "labels": 10**6, "features": 256, "loss": "two_way", "processes": 2, "optimizer": "sgd"}
    for head in ("plain", "chunked"):
        expected = estimate_memory(**setting, label_block=512, head=head)
        assert found["bytes"][head] == {**vars(expected), "peak": expected.total}
    assert {name: found[name] for name in setting} == setting

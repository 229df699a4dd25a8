"""``shortlist memory``: a table for people, bytes for programs, one sentence for mistakes, and nothing allocated."""

import json

import pytest

from shortlist.cli import main
from shortlist.memory import OPTIMIZERS, estimate_memory

SIZE = ["--labels", "1000000", "--features", "256", "--rows", "256"]


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["memory", *arguments])
    except SystemExit as error:
        code = int(str(error.code or 0))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "hinge"], "--loss must be one of truncated_topk_entropy, bce, lml_nll,"),
        (["--loss", "lml_nll", "--rows", "0"], "--rows must be at least 1; got 0."),
        (["--loss", "lml_nll", "--label-block", "-3"], "--label-block must be at least 1; got -3."),
        (["--loss", "lml_nll", "--dtype", "int8"], "--dtype must be one of"),
        (["--loss", "lml_nll", "--optimizer", "lion"], "--optimizer must be one of"),
        (["--loss", "lml_nll", "--rows", "many"], "argument --rows: invalid int value: 'many'"),
        ([], "the following arguments are required: --loss"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(capsys, arguments, message):
    code, out, err = run(capsys, *SIZE, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_names_every_optimizer_and_where_losses_are_listed(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "examples:" in out
    assert all(name in out for name in (*OPTIMIZERS, "`shortlist losses`"))

"""``shortlist audit``: tables, exit codes, one sentence for every mistake, and work that is never lost."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shortlist.audit import AuditReport, audit
from tests.cli.command import command

run, _ = command("audit")

WEIGHT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A layer of three labels, four sets in text (the last one empty), and names."""
    monkeypatch.chdir(tmp_path)
    save_file({"head.weight": WEIGHT, "head.bias": torch.tensor([0.5, -0.5, 0.25])}, "layer.safetensors")
    np.savez("layer.npz", weight=WEIGHT.numpy(), other=np.zeros((2, 2)))
    Path("sets.txt").write_text("0 2\n2\n0, 1, 2\n\n")
    Path("names.txt").write_text("red fox\nowl\nred deer\n")
    return tmp_path


def test_a_table_counts_verdicts_by_set_size_and_the_worst_sets_are_named(folder, capsys):
    code, out, err = run(capsys, "layer.safetensors", "sets.txt", "--names", "names.txt", "--worst", "1")
    assert code == 1
    assert err == ""
    assert "3 of 4 sets can be output by this layer of 3 labels × 2 features." in out
    assert "set 1: unargmaxable, no input gives it (the rows of red deer, red fox, owl exclude it): red deer" in out
    assert "set 0" not in out
    cells = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row[:4]] for row in cells] == [
        ["0", "1", "·", "·"],
        ["1", "·", "1", "·"],
        ["2", "1", "·", "·"],
        ["3", "1", "·", "·"],
    ]


def test_a_row_of_zeros_is_named_as_the_reason(folder, capsys):
    np.save("zero.npy", np.array([[1.0, 2.0], [0.0, 0.0]]))
    Path("sets.txt").write_text("0\n")
    code, out, _ = run(capsys, "zero.npy", "sets.txt")
    assert code == 1
    assert "set 0: unargmaxable, no input gives it (the row of 1 is zero): 0" in out


def test_the_exit_code_is_zero_when_every_set_can_be_output(folder, capsys):
    Path("sets.txt").write_text("0 2\n1 2\n")
    assert run(capsys, "layer.safetensors", "sets.txt")[0] == 0


def test_json_is_a_switch_and_its_former_meaning_still_works(folder, capsys):
    code, out, err = run(capsys, "layer.safetensors", "sets.txt", "--json")
    assert (code, err, json.loads(out)["output"]) == (1, "", None)
    _, _, err = run(capsys, "layer.safetensors", "sets.txt", "--json", "report.json")
    assert err == "shortlist: --json FILE of audit is called --output FILE now; --json prints.\n"
    assert len(AuditReport.load("report.json")) == 4


def test_the_report_is_saved_verified_and_equal_to_that_of_the_library(folder, capsys):
    code, out, _ = run(capsys, "layer.safetensors", "sets.txt", "--output", "out/report.json")
    assert code == 1
    assert "out/report.json" in out
    assert [path.name for path in Path("out").iterdir()] == ["report.json"]
    saved, direct = AuditReport.load("out/report.json"), audit(WEIGHT, [[0, 2], [2], [0, 1, 2], []])
    assert saved.verdicts.tolist() == direct.verdicts.tolist()
    assert saved.radii.tolist() == direct.radii.tolist()
    assert run(capsys, "--verify", "out/report.json")[:2] == (
        0,
        f"All 4 certificates hold; 0 sets are undecided and have none.\nDigest: {saved.digest()}\n",
    )


def test_a_forged_certificate_is_found_and_named(folder, capsys):
    run(capsys, "layer.safetensors", "sets.txt", "--output", "report.json")
    content = json.loads(Path("report.json").read_text())
    content["sets"][2]["certificate"]["vector"][0] *= -1
    Path("report.json").write_text(json.dumps(content))
    assert run(capsys, "--verify", "report.json")[:2] == (1, "1 of 4 certificates fail: set 2.\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--bias", "head.bias"], audit(WEIGHT, [[0, 2], [2], [0, 1, 2], []], torch.tensor([0.5, -0.5, 0.25]))),
        (["--mode", "top-k"], audit(WEIGHT, [[0, 2], [2], [0, 1, 2], []], mode="top-k")),
        (["--no-radius"], audit(WEIGHT, [[0, 2], [2], [0, 1, 2], []], radius=False)),
        (["--jobs", "1", "--key", "head.weight"], audit(WEIGHT, [[0, 2], [2], [0, 1, 2], []])),
    ],
    ids=["bias", "top-k", "no radius", "jobs and key"],
)
def test_every_option_asks_what_the_library_asks(folder, capsys, arguments, expected):
    run(capsys, "layer.safetensors", "sets.txt", "--output", "report.json", *arguments)
    saved = AuditReport.load("report.json")
    assert saved.verdicts.tolist() == expected.verdicts.tolist()
    np.testing.assert_array_equal(saved.radius_bounds, expected.radius_bounds)


@pytest.mark.parametrize("ending", ["json", "npz", "csv", "names"])
def test_label_sets_come_in_many_files(folder, capsys, ending):
    path = f"sets.{ending}"
    if ending == "json":
        Path(path).write_text("[[0, 2], [2], [0, 1, 2], []]")
    elif ending == "npz":
        np.savez(path, labels=np.array([[0, 2, -1], [2, -1, -1], [0, 1, 2], [-1, -1, -1]]))
    elif ending == "csv":
        Path(path).write_text("0,2\n2\n0;1;2\n\n")
    else:
        Path(path).write_text("red fox, red deer\nred deer\nowl\tred fox\tred deer\n\n")
    run(capsys, "layer.safetensors", path, "--names", "names.txt", "--output", "report.json")
    assert [labels.tolist() for labels in AuditReport.load("report.json").label_sets] == [[0, 2], [2], [0, 1, 2], []]


def test_an_interrupted_audit_resumes_from_its_file(folder, capsys, monkeypatch):
    from shortlist.audit import run as engine

    original, calls = engine.decide, []

    def interrupted(system, active, *, radius):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(active.tolist())
        return original(system, active, radius=radius)

    monkeypatch.setattr(engine, "decide", interrupted)
    code, _, err = run(capsys, "layer.safetensors", "sets.txt", "--output", "report.json", "--jobs", "1")
    assert code == 130
    assert err.count("\n") <= 2
    assert not Path("report.json").exists()
    assert len(Path("report.json.progress").read_text().splitlines()) == 3
    monkeypatch.setattr(
        engine, "decide", lambda *given, **more: calls.append(given[1].tolist()) or original(*given, **more)
    )
    assert run(capsys, "layer.safetensors", "sets.txt", "--output", "report.json", "--jobs", "1")[0] == 1
    assert sorted(calls) == [[], [0, 1, 2], [0, 2], [2]]
    assert not Path("report.json.progress").exists()


def test_a_bias_that_is_left_out_is_mentioned(folder, capsys):
    assert run(capsys, "layer.safetensors", "sets.txt", "--key", "head.weight")[2] == (
        "shortlist: the bias is ignored; use --bias head.bias to add it.\n"
    )
    assert run(capsys, "layer.safetensors", "sets.txt", "--key", "head.weight", "--bias", "head.bias")[2] == ""

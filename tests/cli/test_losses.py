"""The table of losses follows from the classes."""

import json
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.factory import LOSSES


@pytest.fixture
def table(capsys) -> list[str]:
    assert main(["losses", "--options"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_every_loss_has_an_aligned_row_and_a_summary(table):
    header, rows = table[0], [line for line in table[1:] if line.partition(" ")[0] in LOSSES]
    assert [row.split()[0] for row in rows] == list(LOSSES)
    for row, loss in zip(rows, LOSSES.values(), strict=True):
        assert row[header.index("takes") :].startswith("one class" if loss.one_class else "sets")
        assert row[header.index("link") :].startswith(loss.link)
    for loss in LOSSES.values():
        assert f"    {loss.describe()['summary']}" in table


def test_a_row_shows_head_blocks_and_options(table):
    found = {line.split()[0]: " ".join(line.split()) for line in table if line.partition(" ")[0] in LOSSES}
    assert found["average_k"] == "average_k one class softmax 2 × linear - k, alpha=1.0"
    assert found["ldam"] == "ldam one class softmax cosine - margin, scale=30.0"
    assert found["bce"] == "bce sets sigmoid linear LinearLogits, DTensor -"


def test_json_holds_the_facts_of_every_class(capsys):
    assert main(["losses", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps([loss.describe() for loss in LOSSES.values()]))
    assert next(loss for loss in found if loss["name"] == "average_k")["num_heads"] == 2


def test_every_loss_has_one_line_that_says_for_what_and_at_what_cost(capsys):
    assert main(["losses"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(LOSSES)
    for line, loss in zip(lines, LOSSES.values(), strict=True):
        assert loss.purpose
        assert line.endswith(loss.purpose)
        assert line[header.index("cost") :].startswith(f"{loss.cost}×")


def test_the_costs_are_those_of_the_benchmark():
    records = json.loads((Path(__file__).parents[2] / "benchmarks/results/losses.json").read_text())["records"]
    measured = {each["loss"].partition(",")[0]: each["ratio"] for each in records if each["k"] in (None, 5)}
    assert len(measured) > 12
    for name, ratio in measured.items():
        assert 0.6 * ratio < LOSSES[name].cost < 1.6 * ratio, name

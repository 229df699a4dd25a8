"""The document of results: numbers keep their units, and negatives their reasons."""

from shortlist.evidence import Claim, Finding, Outcome, Table
from shortlist.evidence.document import evidence
from shortlist.train.comparison import Interval

ABOUT = {"claims": {"1": "Widths"}, "papers": {"dft": "A paper"}}


def page(*tables: Table, mechanisms: dict[str, str] | None = None) -> str:
    outcome = Outcome("Nothing was trained.", [Claim("It wins.", "by far", Finding("does not hold", "−1"))], tables)
    result = {"name": "dft-table-1", "title": "Widths", "text": "dft", "item": "table 1", "claim": 1, "scale": "small"}
    cost = {"trials": 1, "core_seconds": 60.0, "minutes": 3.0}
    return evidence(
        [{**result, **cost, "mechanisms": mechanisms or {}, "outcome": outcome.to_json()}], ABOUT, "results"
    )


def test_a_width_in_a_table_of_percentages_is_a_count():
    table = Table("F1, in percent", ["layer", "d", "F1"], [["DFT", 25, 0.5], ["DFT", 200, Interval(0.5, 0.01)]], True)
    lines = [" ".join(line.split()) for line in page(table).splitlines()]
    assert "| DFT | 25 | 50.0 |" in lines
    assert "| DFT | 200 | 50.0 ± 1.0 |" in lines


def test_a_statement_that_does_not_hold_is_followed_by_its_reason():
    assert "Why not, or not everywhere:\n\n- *It wins.* It is slow.\n" in page(mechanisms={"It wins.": "It is slow."})
    assert "Why not, or not everywhere:" not in page()


def test_minutes_are_those_of_the_designs():
    assert "in about 3 minutes on two\ncores" in page()

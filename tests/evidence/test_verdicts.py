"""Verdicts: an interval on one side decides; one that covers both sides does not."""

import pytest

from shortlist.evidence import Finding, alike, all_of, at_least, at_most, beats, grows

HIGH = [0.84, 0.85, 0.86, 0.85, 0.84]
LOW = [0.80, 0.82, 0.82, 0.81, 0.80]
NAMES = ("a", "b")


WIDE = [0.80, 0.90, 0.70, 0.95, 0.85]
NEAR = [0.8385, 0.8515, 0.8595, 0.8495, 0.8395]
"""Like ``HIGH`` up to a tenth of a point, more or less."""


@pytest.mark.parametrize(
    ("judge", "ours", "other", "options", "verdict"),
    [
        (beats, HIGH, LOW, {}, "holds"),
        (beats, LOW, HIGH, {}, "does not hold"),
        (beats, HIGH, NEAR, {"worth": 0.01}, "does not hold"),
        (beats, WIDE, LOW, {}, "not decidable"),
        (alike, HIGH, NEAR, {"within": 0.01}, "holds"),
        (alike, HIGH, LOW, {"within": 0.01}, "does not hold"),
        (alike, WIDE, LOW, {}, "not decidable"),
    ],
)
def test_an_interval_on_one_side_of_the_bound_decides(judge, ours, other, options, verdict):
    assert judge(ours, other, names=NAMES, **options).verdict == verdict


def test_seeds_are_paired():
    """The spread over seeds is large, and the same for both."""
    ours = [0.1, 0.5, 0.9, 0.3, 0.7]
    other = [value - 0.01 for value in ours]
    assert beats(ours, other, names=NAMES) == Finding("holds", "a − b = +1.00 ± 0.00 points")


@pytest.mark.parametrize(("bound", "verdict"), [(0.8, "holds"), (0.9, "does not hold"), (0.85, "not decidable")])
def test_a_bound_is_met_missed_or_within_the_interval(bound, verdict):
    assert at_least(HIGH, bound, name="coverage").verdict == verdict
    negated = at_most([-value for value in HIGH], -bound, name="coverage")
    assert negated.verdict == verdict


def test_the_unit_decides_how_numbers_are_written():
    values = [0.25, 0.25]
    assert at_least(values, 0.2, name="a").why == "a = 25.00 ± 0.00% (at least 20)"
    assert at_least(values, 0.2, name="a", unit="points").why == "a = +25.00 ± 0.00 points (at least 20)"
    assert at_most(values, 2, name="a", unit="labels").why == "a = 0.25 ± 0.00 labels (at most 2)"


def test_growth_is_the_slope_of_each_seed():
    gaps = {0.0: [0.0, 0.01, 0.0], 0.2: [0.02, 0.03, 0.02], 0.4: [0.05, 0.06, 0.05]}
    assert grows(gaps, name="gap", along="p").verdict == "holds"
    assert grows({-place: values for place, values in gaps.items()}, name="gap", along="p").verdict == "does not hold"


HELD, FAILED, UNCLEAR = Finding("holds", "a"), Finding("does not hold", "b"), Finding("not decidable", "c")


@pytest.mark.parametrize(
    ("parts", "verdict", "headline"),
    [
        ([HELD, HELD], "holds", "holds in 2 of 2"),
        ([HELD, FAILED, UNCLEAR], "holds in part", "holds in 1 of 3 (1 undecided)"),
        ([FAILED, FAILED], "does not hold", "holds in 0 of 2"),
        ([FAILED, UNCLEAR], "not decidable", "holds in 0 of 2 (1 undecided)"),
        ([HELD], "holds", "holds"),
    ],
)
def test_a_statement_about_several_conditions_says_in_how_many_it_holds(parts, verdict, headline):
    found = all_of(parts)
    assert (found.verdict, found.headline, found.conditions) == (verdict, headline, tuple(parts))
    assert found.why == "; ".join(part.why for part in parts)


def test_parts_of_parts_are_counted_alike():
    assert all_of([all_of([HELD, FAILED]), HELD]).headline == "holds in 2 of 3"
    with pytest.raises(ValueError, match="must not be empty"):
        all_of([])


def test_different_numbers_of_seeds_are_refused():
    with pytest.raises(ValueError, match="got 5 and 4"):
        beats(HIGH, LOW[:4], names=NAMES)
    with pytest.raises(ValueError, match="at least 2 seeds; got 1 and 1"):
        alike([0.5], [0.5], names=NAMES)

"""Conformal p-values against counting in fractions; their sets; uniform when smoothed; files."""

import json
import math
from fractions import Fraction

import pytest
import torch

from shortlist.errors import InputError
from shortlist.sets import APS, AverageError, Margin, PValues, load_rule
from tests.sets.worlds import TIE_KINDS, classified, seeded, tied_scores

each_kind = pytest.mark.parametrize("kind", TIE_KINDS)


def counted(calibration: list[float], value: float, share: Fraction = Fraction(1)) -> Fraction:
    """The definition."""
    below = sum(other < value for other in calibration)
    equal = sum(other == value for other in calibration)
    return (below + share * (1 + equal)) / (len(calibration) + 1)


@each_kind
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("rows", [1, 40])
def test_p_values_are_the_counts_of_their_definition(kind, by_class, rows):
    scores, fresh = (tied_scores(kind, count, 5, seeded(count), torch.float64) for count in (rows, 12))
    classes = torch.arange(rows) % 4  # the last label has no calibration rows
    rule = PValues(0.2, by_class=by_class).fit(scores, classes, from_logits=False)
    true = scores[torch.arange(rows), classes].tolist()
    found = rule.predict_p(fresh)
    for i, row in enumerate(fresh.tolist()):
        for label, value in enumerate(row):
            own = [s for s, c in zip(true, classes.tolist(), strict=True) if not by_class or c == label]
            assert found[i, label] == float(counted(own, value)), (i, label)


@each_kind
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("score", [Margin(), APS()], ids=str)
@pytest.mark.parametrize("alpha", [0.05, 0.2, 1 / 3, 0.5])
def test_the_set_is_the_labels_with_a_p_value_above_alpha(kind, by_class, score, alpha):
    scores, fresh = (tied_scores(kind, count, 5, seeded(count)) for count in (59, 40))
    rule = PValues(alpha, by_class=by_class, score=score).fit(scores, torch.arange(59) % 5, from_logits=False)
    # As fractions: p is a multiple of 1 / (N + 1), and alpha the decimal that it is written as.
    count = torch.bincount(torch.arange(59) % 5) if by_class else torch.full((5,), 59)
    numerator = (rule.predict_p(fresh) * (count + 1)).round().long()
    expected = [
        [Fraction(n, int(c) + 1) > Fraction(repr(alpha)) for n, c in zip(row, count, strict=True)]
        for row in numerator.tolist()
    ]
    assert rule(fresh).tolist() == expected
    if not by_class:
        assert not (rule.predict(fresh).to_mask() & ~rule(fresh)).any()


def test_the_sets_are_those_of_average_error():
    probs, classes = classified("good", 300, 5, seeded(0))
    mine, theirs = (make(0.2).fit(probs, classes, from_logits=False) for make in (PValues, AverageError))
    assert mine.predict(probs, generator=seeded(1)) == theirs.predict(probs, generator=seeded(1))


@pytest.mark.parametrize("kind", ["good", "constant", "one-hot"])
@pytest.mark.parametrize("by_class", [False, True])
def test_smoothed_p_values_of_true_labels_are_uniform(kind, by_class):
    found = []
    for repetition in range(100):
        scores, classes = classified(kind, 80, 3, seeded(repetition))
        rule = PValues(0.1, by_class=by_class).fit(scores[:40], classes[:40], from_logits=False)
        p = rule.predict_p(scores[40:], smoothed=True, generator=seeded(repetition + 1000))
        found.append(p[torch.arange(40), classes[40:]])
    values = torch.cat(found)
    # Rows of one repetition share their calibration, which adds to the variance.
    for level in (0.05, 0.2, 0.5, 0.9):
        spread = math.sqrt(level * (1 - level) * (1 / 10 + 1 / 40) / 100)
        assert abs(float((values <= level).double().mean()) - level) < 4 * spread


def test_absent_labels_have_p_value_0_and_absent_true_labels_rank_lowest():
    logits = torch.randn(20, 4, generator=seeded(0))
    logits[:, 3] = -math.inf
    rule = PValues(0.1).fit(logits, torch.tensor([3, 3, 3, 3] + 16 * [0]), from_logits=True)
    p = rule.predict_p(logits)
    assert (p[:, 3] == 0).all()
    assert (p[:, :3] >= 5 / 21).all()
    assert rule.predict_p(logits[:0]).shape == (0, 4)


def test_p_values_are_saved_to_the_last_bit_and_hostile_files_are_refused(tmp_path):
    scores, classes = classified("good", 60, 4, seeded(0))
    rule = PValues(0.1, by_class=True).fit(scores, classes, from_logits=False)
    rule.save(tmp_path / "rule.json")
    loaded = load_rule(tmp_path / "rule.json")
    assert isinstance(loaded, PValues)
    assert torch.equal(loaded.predict_p(scores), rule.predict_p(scores))
    text = (tmp_path / "rule.json").read_text()
    for name, change in (
        ("values", lambda values: values[::-1]),
        ("places", lambda values: values[:-1]),
        ("places", lambda values: [10**9, *values[1:]]),
        ("ends", lambda values: values[:-1]),
        ("ends", lambda values: [0] * len(values)),
        ("values", lambda values: []),
    ):
        content = json.loads(text)
        buffer = content["fitted"][name]
        buffer["values"] = change(buffer["values"])
        buffer["shape"] = [len(buffer["values"])]
        (tmp_path / "bad.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"bad\.json"):
            load_rule(tmp_path / "bad.json")


def test_a_rule_that_is_not_fitted_says_so():
    with pytest.raises(ValueError, match="PValues must be fitted before it predicts"):
        PValues(0.1).predict_p(torch.rand(2, 3))

"""Rules for covariate shift and label shift against the definition of weighted p-values, and in shifted worlds."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.sets import (
    APS,
    LAC,
    AverageError,
    CovariateShift,
    GroupConditional,
    LabelShift,
    Margin,
    SplitConformal,
    density_ratio,
    label_ratios,
    load_rule,
)
from tests.nn.test_onnx import export_all
from tests.nn.test_onnx import pytestmark as exporter_warnings
from tests.sets.worlds import TIE_KINDS, ambiguous_probs, draw, overconfident, seeded, tied_scores

pytestmark = exporter_warnings


def inside(true: list[float], weights: list[float], value: float, own: float, alpha: float) -> bool:
    """Whether the weighted p-value of a label is above alpha, in fractions."""
    upto = sum((Fraction(w) for s, w in zip(true, weights, strict=True) if s <= value), Fraction(own))
    return upto > Fraction(repr(alpha)) * (sum(map(Fraction, weights)) + Fraction(own))


@pytest.mark.parametrize("kind", TIE_KINDS)
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("rows", [1, 30])
def test_sets_under_weights_are_those_of_the_definition(kind, alpha, rows):
    scores, fresh = (tied_scores(kind, count, 4, seeded(count), torch.float64) for count in (rows, 25))
    classes = torch.arange(rows) % 4
    weights, own = (torch.randint(0, 9, (count,), generator=seeded(count)).double() / 4 for count in (rows, 25))
    weights[0] = 1.0
    rule = CovariateShift(alpha).fit(scores, classes, from_logits=False, weights=weights)
    true = scores[torch.arange(rows), classes].tolist()
    expected = [
        [inside(true, weights.tolist(), value, w, alpha) for value in row]
        for row, w in zip(fresh.tolist(), own.tolist(), strict=True)
    ]
    assert rule(fresh, own).tolist() == expected
    assert not (rule.predict(fresh, weights=own).to_mask() & ~rule(fresh, own)).any()
    ratios = [0.5, 2.0, 0.0, 3.25]
    by_label = LabelShift(alpha, ratios=ratios).fit(scores, classes, from_logits=False)
    weights = [ratios[c] for c in classes.tolist()]
    expected = [
        [inside(true, weights, value, w, alpha) for value, w in zip(row, ratios, strict=True)] for row in fresh.tolist()
    ]
    assert by_label(fresh).tolist() == expected


@pytest.mark.parametrize("score", [LAC(), Margin(), APS()], ids=str)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_equal_weights_are_split_conformal(score, alpha):
    probs = ambiguous_probs(400, seeded(0))
    classes = draw(probs, seeded(1))
    plain = SplitConformal(alpha, score=score).fit(probs[:199], classes[:199], from_logits=False)
    some = {"weights": torch.full((199,), 3.0)}
    one = CovariateShift(alpha, score=score).fit(probs[:199], classes[:199], from_logits=False, **some)
    other = LabelShift(alpha, score=score).fit(probs[:199], classes[:199], from_logits=False)
    assert torch.equal(one(probs, torch.full((400,), 3.0)), plain(probs))
    assert torch.equal(other(probs), plain(probs))


def test_ties_are_taken_as_often_as_their_smoothed_p_value_is_above_alpha():
    """All scores tie, so a label is in with probability 1 - alpha whatever the weights."""
    scores, classes = torch.full((40, 2), 0.5), torch.arange(40) % 2
    weights = torch.rand(40, generator=seeded(0)) + 0.1
    rule = CovariateShift(0.3).fit(scores, classes, from_logits=False, weights=weights)
    sets = rule.predict(torch.full((8000, 2), 0.5), weights=torch.rand(8000, generator=seeded(1)), generator=seeded(2))
    assert abs(float(sets.to_mask().double().mean()) - 0.7) < 4 * math.sqrt(0.21 / 16_000)


def shifted(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ambiguous rows, their classes, and weights that make hard rows more frequent."""
    probs = ambiguous_probs(rows, seeded(seed))
    return probs, draw(probs, seeded(seed + 100_000)), 5 * (1 - probs.amax(-1)) ** 2 + 0.05


def foggy(rows: int, seed: int, *, new: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with visibility v in [0, 1], of density 1 before the shift and 3 (1 - v)^2 after it: the exact weight."""
    generator = seeded(seed)
    visibility = torch.rand(rows, generator=generator)
    visibility = 1 - visibility ** (1 / 3) if new else visibility
    probs, classes = overconfident(4 * visibility, 5, generator)
    return probs, classes, 3 * (1 - visibility) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("score", [LAC(), APS(), Margin()], ids=str)
def test_known_weights_cover_hard_rows_that_become_frequent_and_no_weights_do_not(score):
    alpha, repetitions, count = 0.2, 300, 100
    missed, plain, effective = [], [], []
    for repetition in range(repetitions):
        probs, classes, weights = foggy(count, repetition, new=False)
        fresh, truth, own = foggy(100, repetition + 100_000, new=True)
        rule = CovariateShift(alpha, score=score).fit(probs, classes, from_logits=False, weights=weights)
        effective.append(rule.evidence["effective_rows"])
        sets = rule.predict(fresh, weights=own, generator=seeded(repetition))
        missed.append(1 - float(sets.contains(truth).double().mean()))
        naive = SplitConformal(alpha, score=score).fit(probs, classes, from_logits=False)
        plain.append(1 - float(naive.predict(fresh, generator=seeded(repetition)).contains(truth).double().mean()))
    spread = 4 * math.sqrt(0.16 * (1 / min(effective) + 1 / 100) / repetitions)
    assert alpha - 0.03 - spread < sum(missed) / repetitions < alpha + spread
    assert sum(plain) / repetitions > alpha + 2 * spread


@pytest.mark.slow
def test_known_ratios_cover_classes_that_become_frequent_and_no_ratios_do_not():
    alpha, repetitions, labels, count = 0.2, 300, 5, 100
    ratios = torch.tensor([4.0, 2.0, 0.4, 0.2, 0.2])
    before = torch.full((labels,), 0.2)
    after = ratios * before / (ratios * before).sum()
    signal = torch.linspace(0.5, 4, labels)  # the classes that become frequent are the hard ones
    missed, plain, estimated = [], [], []
    for repetition in range(repetitions):
        generator = seeded(repetition)

        def world(shares: Tensor, rows: int) -> tuple[Tensor, Tensor]:
            classes = torch.multinomial(shares, rows, replacement=True, generator=generator)  # noqa: B023
            logits = torch.randn(rows, labels, generator=generator)  # noqa: B023
            logits[torch.arange(rows), classes] += signal[classes]
            return logits, classes

        old, known = world(before, 2000)
        logits, classes = world(before, count)
        fresh, truth = world(after, 500)
        confusion = torch.zeros(labels, labels).index_put((old.argmax(-1), known), torch.ones(2000), accumulate=True)
        found = label_ratios(confusion, torch.bincount(fresh.argmax(-1), minlength=labels))
        rules = (LabelShift(alpha, ratios=ratios), LabelShift(alpha), LabelShift(alpha, ratios=found))
        for rule, errors in zip(rules, (missed, plain, estimated), strict=True):
            sets = rule.fit(logits, classes, from_logits=True).predict(fresh, generator=generator)
            errors.append(1 - float(sets.contains(truth).double().mean()))
    spread = 4 * math.sqrt(0.16 * (1 / 40 + 1 / 500) / repetitions)
    for errors in (missed, estimated):
        assert alpha - 0.05 - spread < sum(errors) / repetitions < alpha + spread
    assert sum(plain) / repetitions > alpha + 2 * spread


def test_ratios_are_recovered_from_exact_shares_and_stay_1_where_nothing_is_known():
    joint = torch.tensor([[0.30, 0.05, 0.0], [0.10, 0.35, 0.0], [0.05, 0.15, 0.0]], dtype=torch.float64)
    truth = torch.tensor([0.5, 1.0 + 0.45 * 0.5 / 0.55, 1.0], dtype=torch.float64)
    torch.testing.assert_close(label_ratios(joint * 1000, joint @ truth * 77), truth)
    useless = torch.ones(3, 3)  # predictions that say nothing
    torch.testing.assert_close(label_ratios(useless, torch.ones(3)), torch.ones(3, dtype=torch.float64))
    assert label_ratios(np.eye(2), np.array([1.0, 0.0])).tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("confusion", "predicted", "match"),
    [
        (torch.ones(2, 3), torch.ones(2), r"`confusion` must have shape \(n, n\)"),
        (torch.ones(2, 2), torch.ones(3), r"`predicted` \(n,\)"),
        (-torch.eye(2), torch.ones(2), "`confusion` must hold counts"),
        (torch.eye(2), torch.zeros(2), "`predicted` must hold counts"),
    ],
)
def test_counts_that_are_none_are_refused(confusion, predicted, match):
    with pytest.raises(ValueError, match=match):
        label_ratios(confusion, predicted)


def test_a_ratio_of_densities_of_gaussians_is_found():
    old = torch.randn(20_000, 3, generator=seeded(0), dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1])
    shift = torch.tensor([1.0, -2.5, 0.0])
    ratio = density_ratio(old, torch.randn(10_000, 3, generator=seeded(1)) * torch.tensor([1.0, 5.0, 0.1]) + shift)
    exact = (old[:, 0] - 0.5 + (-2.5 * old[:, 1] - 2.5**2 / 2) / 25).exp()
    assert float((ratio(old).log() - exact.log()).abs().mean()) < 0.05
    assert abs(float(ratio(old).mean()) - 1) < 0.05
    assert torch.equal(ratio(old.numpy()), ratio(old))
    again = density_ratio(old[:10], old[10:20])
    again.load_state_dict(ratio.state_dict())
    assert torch.equal(again(old), ratio(old))


def test_a_ratio_where_the_two_are_separable_and_a_feature_is_constant_stays_finite():
    old, new = torch.zeros(50, 2), torch.zeros(50, 2)
    new[:, 0] = 1.0
    ratio = density_ratio(old, new)
    assert ratio(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1e9, 0.0]])).isfinite().all()
    assert ratio(new).mean() > 5 * ratio(old).mean()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: density_ratio(torch.zeros(3), torch.zeros(3, 1)), r"`old` must have shape \(rows, features\)"),
        (lambda: density_ratio(torch.zeros(3, 1), torch.zeros(0, 1)), "`new` must have shape"),
        (lambda: density_ratio(torch.zeros(3, 1), torch.zeros(3, 2)), "`new` must have as many columns as `old`, 1"),
        (lambda: density_ratio(torch.full((3, 1), math.nan), torch.zeros(3, 1)), "`old` must be finite"),
        (lambda: density_ratio(torch.zeros(3, 1), torch.zeros(3, 1), penalty=0), "`penalty` must be above 0"),
        (lambda: density_ratio(torch.zeros(3, 1), torch.ones(3, 1))(torch.zeros(2, 2)), "`features` must have 1 col"),
    ],
)
def test_features_that_are_none_are_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


SCORES, CLASSES = torch.rand(6, 3, generator=seeded(0)), torch.arange(6) % 3


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (torch.zeros(6), "`weights` must have a positive sum"),
        ([1, 1, math.inf, 1, 1, 1], "`weights` must be finite and not negative; row 2 has inf"),
        ([1, 1, 1, -1, 1, 1], "`weights` must be finite and not negative; row 3 has -1"),
        ([math.nan] * 6, "`weights` must be finite and not negative; row 0 has nan"),
        (torch.ones(5), "`weights` must have one entry per row of scores, 6"),
        (torch.ones(6, 1), "`weights` must have one entry per row of scores, 6"),
    ],
)
def test_weights_that_are_none_are_refused(weights, match):
    with pytest.raises(ValueError, match=match):
        CovariateShift(0.2).fit(SCORES, CLASSES, from_logits=False, weights=weights)


def test_weights_are_given_always_or_never():
    rule = CovariateShift(0.2).fit(SCORES, CLASSES, from_logits=False, weights=torch.ones(6))
    for call in (lambda: rule.predict(SCORES), lambda: rule(SCORES)):
        with pytest.raises(ValueError, match="`weights` must be given, as in `fit`"):
            call()
    with pytest.raises(ValueError, match="`weights` must be None, as in `fit`"):
        CovariateShift(0.2).fit(SCORES, CLASSES, from_logits=False).predict(SCORES, weights=torch.ones(6))
    started = CovariateShift(0.2).partial_fit(SCORES, CLASSES, from_logits=False, weights=torch.ones(6))
    with pytest.raises(ValueError, match="`weights` must be given with all batches or with none"):
        started.partial_fit(SCORES, CLASSES, from_logits=False)
    with pytest.raises(ValueError, match="`scores` must have at least one row"):
        CovariateShift(0.2).fit(SCORES[:0], CLASSES[:0], from_logits=False, weights=torch.ones(0))


@pytest.mark.parametrize(
    ("ratios", "match"),
    [
        ([1.0, -1.0, 1.0], "`ratios` must be finite and not negative"),
        ([1.0, math.inf, 1.0], "`ratios` must be finite and not negative"),
        ([1.0, 1.0], "`ratios` must have one entry per label, 3; got 2"),
        ([0.0, 0.0, 0.0], "`ratios` must be positive for a class of the calibration rows"),
    ],
)
def test_ratios_that_are_none_are_refused(ratios, match):
    with pytest.raises(ValueError, match=match):
        LabelShift(0.2, ratios=ratios).fit(SCORES, CLASSES, from_logits=False)


def test_weights_come_in_batches_from_numpy_and_back_from_a_file(tmp_path):
    probs, classes, weights = shifted(300, 5)
    whole = CovariateShift(0.1, score=APS()).fit(probs, classes, from_logits=False, weights=weights)
    parts = CovariateShift(0.1, score=APS())
    for rows in torch.arange(300).split(77):
        some = {"weights": weights[rows].numpy()}
        parts.partial_fit(probs[rows].numpy(), classes[rows].numpy(), from_logits=False, **some)
    parts.finish().save(tmp_path / "rule.json")
    loaded = load_rule(tmp_path / "rule.json")
    assert isinstance(loaded, CovariateShift)
    assert torch.equal(loaded(probs, weights), whole(probs, weights))
    first, second = (rule.predict(probs, weights=weights, generator=seeded(0)) for rule in (whole, loaded))
    assert first == second
    assert len(loaded.values) < 60, "only the lowest scores are kept"
    content = json.loads((tmp_path / "rule.json").read_text())
    for name, values in (("cumulative", [1.0]), ("values", [3.0, 2.0]), ("total", [0.0]), ("total", ["inf"])):
        bad = json.loads(json.dumps(content))
        bad["fitted"][name] |= {"values": values, "shape": [len(values)] if name != "total" else []}
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        with pytest.raises(InputError, match=r"bad\.json"):
            load_rule(tmp_path / "bad.json")


def test_an_exported_rule_takes_the_weights_as_its_second_input():
    probs, classes, weights = shifted(200, 6)
    rule = CovariateShift(0.2).fit(probs.float(), classes, from_logits=False, weights=weights)
    fresh, _, own = shifted(64, 7)
    run = export_all(rule.eval(), fresh.float(), own.float())
    for rows in (64, 9, 1):
        (found,) = run(fresh[:rows].float(), own[:rows].float())
        assert torch.equal(torch.from_numpy(found), rule(fresh[:rows].float(), own[:rows].float()))


def test_average_error_is_unchanged_by_a_class_of_ratio_0_that_does_not_occur():
    probs = ambiguous_probs(100, seeded(0))
    classes = draw(probs, seeded(1)) % 29
    ratios = [1.0] * 29 + [0.0]
    rule = LabelShift(0.2, ratios=ratios).fit(probs, classes, from_logits=False)
    plain = AverageError(0.2).fit(probs, classes, from_logits=False)
    assert torch.equal(rule(probs)[:, :29], plain(probs)[:, :29])


def test_weights_whose_sum_is_infinite_are_one_sentence():
    probs, weights = torch.rand(40, 3, generator=seeded(0)), torch.full((40,), 1e308, dtype=torch.float64)
    rule = CovariateShift(0.2)
    with pytest.raises(ValueError, match="`weights` must have a finite sum; divide them by the largest"):
        rule.fit(probs, torch.arange(40) % 3, from_logits=False, weights=weights)
    rule.fit(probs, torch.arange(40) % 3, from_logits=False, weights=weights / 1e8)
    assert rule.evidence["effective_rows"] == pytest.approx(40)


def test_groups_may_be_names():
    probs, classes = torch.rand(60, 3, generator=seeded(0)), torch.arange(60) % 3
    names = ["north", "south", "Süd"] * 20
    named = GroupConditional(0.3).fit(probs, classes, from_logits=False, groups=names)
    numbered = GroupConditional(0.3).fit(probs, classes, from_logits=False, groups=torch.arange(60) % 3)
    one, other = (
        rule.predict(probs, groups=groups, generator=seeded(1))
        for rule, groups in ((named, names), (numbered, torch.arange(60) % 3))
    )
    assert torch.equal(one.sizes, other.sizes)
    with pytest.raises(ValueError, match="row 1 has 'west', which had no calibration row"):
        named.predict(probs[:2], groups=["north", "west"])

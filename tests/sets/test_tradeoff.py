"""The curves of ``tradeoff`` are what each rule gives at each size."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from shortlist.sets import AverageK, TopK, tradeoff
from tests import reference_sets as reference
from tests.sets.test_conformal_thresholds import dyadic
from tests.sets.worlds import ambiguous_probs, draw, multilabel, seeded

SIZES = [0.5, 1, 1.25, 2, 3, 4.5]


def missed(mask: Tensor, hot: Tensor) -> float:
    """Mean share of positives outside, over rows that have some."""
    wanted = hot.sum(-1)
    share = 1 - (mask & hot).sum(-1).double() / wanted
    return float(share[wanted > 0].mean())


def by_mass(probs: Tensor, size: float) -> Tensor:
    """The ``size`` N entries with the least mass down to and including their label."""
    mass = torch.tensor([[float(m) for m in reference.mass_scores(row)] for row in probs.tolist()], dtype=torch.float64)
    cut = mass.flatten().sort().values[math.floor(size * len(probs)) - 1]
    return mass <= cut


def one_hot(classes: Tensor, labels: int) -> Tensor:
    return torch.nn.functional.one_hot(classes, labels).bool()


def test_every_curve_is_its_rule_at_each_size():
    probs = (2 * torch.randn(200, 8, generator=seeded(0), dtype=torch.float64)).softmax(-1)
    classes = draw(probs, seeded(1))
    curves = tradeoff(probs, classes, from_logits=False, sizes=SIZES)
    hot = one_hot(classes, probs.shape[1])
    assert curves.sizes.tolist() == pytest.approx(SIZES)
    assert set(curves.errors) == {"top-k", "average-k", "aps"}
    for i, size in enumerate(SIZES):
        average = AverageK(size).fit(probs, from_logits=False).predict(probs).to_mask()
        assert curves.errors["average-k"][i] == pytest.approx(missed(average, hot), abs=1e-9)
        assert curves.errors["aps"][i] == pytest.approx(missed(by_mass(probs, size), hot), abs=1e-9)
        low, part = math.floor(size), size - math.floor(size)
        ends = [missed(TopK(k).fit(probs, from_logits=False)(probs), hot) if k else 1.0 for k in (low, low + 1)]
        assert curves.errors["top-k"][i] == pytest.approx((1 - part) * ends[0] + part * ends[1], abs=1e-9)


def test_several_positives_and_rows_without_any_are_counted_as_shares():
    logits, hot = multilabel(300, 9, seeded(2), rate=0.2)
    assert (~hot.any(-1)).any()
    curves = tradeoff(logits, hot, from_logits=True, link="sigmoid", sizes=[1, 2, 4])
    for i, size in enumerate((1, 2, 4)):
        top = TopK(size, link="sigmoid").fit(logits, from_logits=True)(logits)
        average = AverageK(size, link="sigmoid").fit(logits, from_logits=True).predict(logits).to_mask()
        assert curves.errors["top-k"][i] == pytest.approx(missed(top, hot), abs=1e-9)
        assert curves.errors["average-k"][i] == pytest.approx(missed(average, hot), abs=1e-9)


def test_constant_scores_are_no_better_than_chance():
    """Ties are decided on average, so that labels which come first win nothing."""
    classes = torch.zeros(50, dtype=torch.int64)
    curves = tradeoff(torch.full((50, 10), 0.1), classes, from_logits=False, sizes=[1, 2.5, 5, 10])
    for name in ("top-k", "average-k"):
        assert curves.errors[name].tolist() == pytest.approx([0.9, 0.75, 0.5, 0.0], abs=1e-9), name


def test_ties_count_as_the_share_of_them_that_fits():
    probs = dyadic(80, 6, 3)
    classes = draw(probs, seeded(4))
    curve = tradeoff(probs, classes, from_logits=False, sizes=[1.5]).errors["average-k"]
    values = reference.descending(probs.tolist())
    last = values[119]
    above, tied = sum(v > last for v in values), sum(v == last for v in values)
    own = [probs[i, y].item() for i, y in enumerate(classes.tolist())]
    hits = sum(v > last for v in own) + Fraction(120 - above, tied) * sum(v == last for v in own)
    assert float(curve) == pytest.approx(1 - float(hits) / 80, abs=1e-9)


def test_all_labels_miss_nothing_and_few_labels_shorten_the_default():
    many = ambiguous_probs(50, seeded(5))
    assert tradeoff(many, draw(many, seeded(6)), from_logits=False).sizes.tolist() == pytest.approx(list(range(1, 21)))
    probs = ambiguous_probs(50, seeded(7), groups=2, group_size=3)
    curves = tradeoff(probs, draw(probs, seeded(8)), from_logits=False)
    assert curves.sizes.tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    assert all((errors.diff() <= 1e-12).all() for errors in curves.errors.values())
    assert all(errors[-1] == pytest.approx(0, abs=1e-12) for errors in curves.errors.values())


@pytest.mark.parametrize("sizes", [[0.0], [-1], [math.nan], []])
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(ValueError, match="`sizes`"):
        tradeoff(torch.ones(3, 4), torch.tensor([0, 1, 2]), from_logits=False, sizes=sizes)


def test_nan_is_named_with_its_row():
    scores = torch.ones(5, 4)
    scores[3, 1] = math.nan
    with pytest.raises(ValueError, match="3"):
        tradeoff(scores, torch.zeros(5, dtype=torch.int64), from_logits=False)

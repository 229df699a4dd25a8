"""A batch counts as a whole or not at all, and what cannot be meant is refused."""

import pytest
import torch

from shortlist.sets import AverageK, ClassConditional, PointwiseError, PredictionSets, TopK, tradeoff


def test_a_batch_that_was_refused_leaves_no_trace():
    generator = torch.Generator().manual_seed(0)
    bad, good = torch.rand(3000, 1000, generator=generator), torch.rand(200, 1000, generator=generator)
    bad[2500, 3] = torch.nan
    rule = AverageK(1)
    with pytest.raises(ValueError, match="`scores` must not be NaN or infinite; row 2500"):
        rule.partial_fit(bad, from_logits=False)
    rule.partial_fit(good, from_logits=False).finish()
    assert int(rule.predict(good).sizes.sum()) == 200
    assert rule.evidence["rows"] == 200


def test_a_rule_that_refused_too_few_labels_accepts_enough():
    rule = TopK(5)
    with pytest.raises(ValueError, match="`k` must be at most the number of labels, 3; got 5"):
        rule.fit(torch.rand(2, 3), from_logits=False)
    assert rule.fit(torch.rand(2, 10), from_logits=False).predict(torch.rand(1, 10)).sizes.tolist() == [5]


def test_probabilities_must_not_be_negative():
    with pytest.raises(ValueError, match="`scores` must be probabilities, not negative; row 1"):
        PointwiseError(0.1).fit(torch.tensor([[0.5], [-0.1]]), torch.tensor([0, 0]), from_logits=False)


def test_a_small_alpha_takes_no_time_to_count():
    rule = ClassConditional(1e-9).fit(torch.rand(20, 3), torch.arange(20) % 3, from_logits=False)
    assert rule.predict(torch.rand(4, 3)).sizes.tolist() == [3] * 4


def test_sets_with_other_names_do_not_mix():
    mask = torch.ones(1, 2, dtype=torch.bool)
    first, second = (PredictionSets.from_mask(mask, names=names) for names in (["a", "b"], ["b", "a"]))
    for combine in (lambda: first | second, lambda: first & second, lambda: PredictionSets.cat([first, second])):
        with pytest.raises(ValueError, match="same label names"):
            combine()
    assert (first | PredictionSets.from_mask(mask)).names == ("a", "b")


@pytest.mark.parametrize("rows", [0, 3])
def test_a_curve_without_true_labels_is_refused(rows):
    with pytest.raises(ValueError, match=f"`labels` must hold at least one true label; got none in {rows} rows"):
        tradeoff(torch.rand(rows, 4), torch.full((rows, 1), -1), from_logits=False)

"""The selected labels are those of the dense mask, and several calls answer like one."""

import pytest
import torch

from shortlist.sets import AverageK, TopK
from shortlist.sets.rule import Draw
from shortlist.sets.scores import select_reaching, select_top, select_where, top_mask
from tests.sets.worlds import seeded


def scores_with_ties(rows: int = 60, labels: int = 7) -> torch.Tensor:
    """Few distinct values and some absent labels; one row has none."""
    scores = torch.randint(0, 4, (rows, labels), generator=seeded(0)).float()
    scores[torch.rand(rows, labels, generator=seeded(1)) < 0.1] = -torch.inf
    scores[3] = -torch.inf
    return scores


def mask_of(selection, shape) -> torch.Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[selection.rows, selection.labels] = True
    assert int(mask.sum()) == len(selection.rows)
    return mask


@pytest.mark.parametrize("k", [1, 3, 6, 7])
def test_the_top_labels_are_those_of_the_top_mask(k):
    scores = scores_with_ties()
    found = select_top(scores, k)
    assert torch.equal(mask_of(found, scores.shape), top_mask(scores, k) & (scores > -torch.inf))
    assert torch.equal(found.values, scores[found.rows, found.labels])


@pytest.mark.parametrize(
    "threshold", [torch.tensor(2.0), torch.tensor(-torch.inf), torch.tensor([0.0, 1, 2, 3, 4, 1, 0])]
)
def test_labels_that_reach_a_threshold_are_selected_but_absent_ones_never(threshold):
    scores = scores_with_ties()
    found = select_reaching(scores, threshold.double())
    assert torch.equal(mask_of(found, scores.shape), (scores >= threshold) & (scores > -torch.inf))
    assert torch.equal(found.rows, found.rows.sort().values)


def test_a_union_has_each_label_once():
    scores = scores_with_ties()
    first, second = select_where(scores == 3, scores), select_top(scores, 2)
    both = first.union(second, scores.shape[1])
    expected = mask_of(first, scores.shape) | mask_of(second, scores.shape)
    assert torch.equal(mask_of(both, scores.shape), expected)


def test_calls_that_share_a_draw_answer_as_one_call():
    scores = torch.randint(0, 3, (50, 4), generator=seeded(2)).float()
    rule = AverageK(1.37).fit(scores, from_logits=False)
    whole = rule.predict(scores)
    draw = Draw()
    parts = [rule.predict(part, draw=draw) for part in scores.split(7)]
    assert [row for part in parts for row in part] == list(whole)
    assert len(whole.labels) == 68
    alone = [rule.predict(part) for part in scores.split(7)]
    assert [row for part in alone for row in part] != list(whole)
    with pytest.raises(ValueError, match=r"`generator` must be None if `draw` is given"):
        rule.predict(scores, draw=draw, generator=seeded(0))


def test_a_min_size_above_k_is_kept():
    scores = scores_with_ties()
    rule = TopK(2, min_size=4).fit(scores, from_logits=False)
    assert torch.equal(rule.predict(scores).to_mask(), rule(scores))

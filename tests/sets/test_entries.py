"""The few entries inside are those of the whole mask, and rows in several calls are answered as in one."""

import pytest
import torch

from shortlist.sets import AverageK, TopK
from shortlist.sets.entries import either, entries_of, entries_reaching, first_labels, top_entries
from shortlist.sets.rule import Draw


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scores_with_ties(rows: int = 60, labels: int = 7) -> torch.Tensor:
    """Few values, many of them equal, and some labels absent; one row has none."""
    scores = torch.randint(0, 4, (rows, labels), generator=seeded(0)).float()
    scores[torch.rand(rows, labels, generator=seeded(1)) < 0.1] = -torch.inf
    scores[3] = -torch.inf
    return scores


def mask_of(entries, shape) -> torch.Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[entries.rows, entries.labels] = True
    assert int(mask.sum()) == len(entries.rows)
    return mask


@pytest.mark.parametrize("k", [1, 3, 6, 7])
def test_top_entries_are_the_mask_of_the_first_labels(k):
    scores = scores_with_ties()
    found = top_entries(scores, k)
    assert torch.equal(mask_of(found, scores.shape), first_labels(scores, k) & (scores > -torch.inf))
    assert torch.equal(found.values, scores[found.rows, found.labels])


@pytest.mark.parametrize("floor", [torch.tensor(2.0), torch.tensor(-torch.inf), torch.tensor([0.0, 1, 2, 3, 4, 1, 0])])
def test_entries_reaching_a_floor_are_found_and_absent_labels_never(floor):
    scores = scores_with_ties()
    found = entries_reaching(scores, floor.double())
    assert torch.equal(mask_of(found, scores.shape), (scores >= floor) & (scores > -torch.inf))
    assert torch.equal(found.rows, found.rows.sort().values)


def test_either_has_each_entry_once():
    scores = scores_with_ties()
    first, second = entries_of(scores == 3, scores), top_entries(scores, 2)
    both = either(first, second, scores.shape[1])
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
    with pytest.raises(ValueError, match=r"`generator` must be None beside it\.$"):
        rule.predict(scores, draw=draw, generator=seeded(0))


def test_a_larger_smallest_size_than_k_is_kept():
    scores = scores_with_ties()
    rule = TopK(2, min_size=4).fit(scores, from_logits=False)
    assert torch.equal(rule.predict(scores).to_mask(), rule(scores))

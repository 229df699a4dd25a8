"""Random ties are drawn anew: guarantees hold over refits, and for rows that come one at a time."""

import pytest
import torch
from torch.nn.functional import one_hot

from shortlist.sets import AverageError, AverageK, ClassConditional, PointwiseError, load_rule
from shortlist.sets.conformal.row_uniforms import row_uniforms
from shortlist.sets.rule import Draw
from tests.sets.worlds import seeded


@pytest.mark.parametrize("kind", [AverageError, PointwiseError])
def test_a_rule_loaded_anew_for_every_row_covers_what_was_promised(kind, tmp_path):
    generator = torch.Generator().manual_seed(0)
    scores, classes = torch.full((1000, 2), 0.5), torch.randint(2, (1000,), generator=generator)
    kind(0.2).fit(scores, classes, from_logits=False).save(tmp_path / "rule.json")
    hits = [
        bool(load_rule(tmp_path / "rule.json").predict(scores[:1]).contains(classes[row : row + 1]))
        for row in range(600)
    ]
    assert abs(sum(hits) / 600 - 0.8) < 4 * (0.16 / 600) ** 0.5


def test_the_same_row_always_gets_the_same_set_where_scores_do_not_tie():
    scores = torch.randn(500, 7, generator=torch.Generator().manual_seed(1)).softmax(-1)
    classes = scores.multinomial(1, generator=torch.Generator().manual_seed(2))[:, 0]
    rule = PointwiseError(0.2).fit(scores, classes, from_logits=False)
    together = rule.predict(scores[::2] * 0.99 + 0.01 / 7)
    order = torch.randperm(250, generator=torch.Generator().manual_seed(3))
    shuffled = rule.predict((scores[::2] * 0.99 + 0.01 / 7)[order])
    assert torch.equal(together.to_mask()[order], shuffled.to_mask())


def test_rows_are_hashed_to_uniform_numbers_that_forget_the_order_of_nothing():
    values = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0))
    numbers = row_uniforms(values)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert (torch.histc(numbers, 10, 0, 1) - 2000).abs().max() < 5 * 2000**0.5
    assert not torch.equal(numbers, row_uniforms(values.flip(-1)))
    assert torch.equal(row_uniforms(torch.tensor([[0.0, 1.0]])), row_uniforms(torch.tensor([[-0.0, 1.0]])))


def test_clusters_do_not_depend_on_the_order_in_which_classes_come():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(2000) % 10
    logits = torch.randn(2000, 10, generator=generator) + 3 * one_hot(classes, 10)
    sizes = []
    for order in (torch.arange(2000), torch.randperm(2000, generator=generator)):
        rule = ClassConditional(0.1, clusters=3).fit(logits[order], classes[order], from_logits=True)
        assert torch.isfinite(rule.thresholds).all()
        sizes.append(rule.predict(logits).sizes.double().mean())
    assert abs(sizes[0] - sizes[1]) < 0.3


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

"""RecallControl keeps the expected share of missed positives at α or below, and not far below."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.sets import RecallControl
from shortlist.targets import to_index_lists, to_sparse
from tests import reference_sets as reference
from tests.sets.worlds import multilabel, seeded, tied_scores

quick = settings(derandomize=True, deadline=None, max_examples=80)
SCORES = ("good", "bad", "constant", "one-hot")


def sets_of(mask: Tensor) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in mask]


def world(kind: str, rows: int, labels: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores of a kind, and a multi-hot that they know much or nothing of."""
    logits, hot = multilabel(rows, labels, seeded(seed), rate=0.25)
    if kind == "bad":
        return torch.rand(rows, labels, generator=seeded(seed + 1)), hot
    if kind == "constant":
        return torch.full((rows, labels), 0.5), hot
    if kind == "one-hot":
        return torch.zeros(rows, labels).scatter(-1, logits.argmax(-1, keepdim=True), 1.0), hot
    return logits.sigmoid(), hot


@quick
@given(
    kind=st.sampled_from(["distinct", "constant", "quantised", "one-hot", "duplicated rows"]),
    rows=st.integers(1, 40),
    labels=st.integers(1, 8),
    alpha=st.sampled_from([0.01, 0.05, 0.1, 0.3, 0.5, 0.7]),
    seed=st.integers(0, 500),
)
def test_the_threshold_is_the_largest_that_the_definition_allows(kind, rows, labels, alpha, seed):
    generator = seeded(seed)
    scores = tied_scores(kind, rows, labels, generator, torch.float64)
    hot = torch.rand(rows, labels, generator=generator) < 0.4
    hot[0, 0] = True
    rule = RecallControl(alpha).fit(scores, hot, from_logits=False)
    threshold = reference.recall_control(scores.tolist(), sets_of(hot), alpha)
    expected = reference.threshold_sets(scores.tolist(), threshold)
    assert sets_of(rule.predict(scores).to_mask()) == expected
    assert sets_of(rule(scores)) == expected
    kept = int(hot.any(-1).sum())
    missed = reference.misses(expected, sets_of(hot))
    assert threshold == -math.inf or (missed * kept + 1) / (kept + 1) <= reference.decimal(alpha)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize(("alpha", "count"), [(0.3, 20), (0.1, 100)])
def test_the_expected_share_of_missed_positives_is_controlled(kind, alpha, count):
    repetitions, fresh, losses = 80, 200, []
    for seed in range(repetitions):
        scores, hot = world(kind, count + fresh, 8, 2 * seed)
        rule = RecallControl(alpha).fit(scores[:count], hot[:count], from_logits=False)
        sets, own = rule.predict(scores[count:]), hot[count:]
        wanted = own.sum(-1)
        losses.append((1 - sets.count_hits(own) / wanted)[wanted > 0].double().mean())
    losses = torch.stack(losses)
    tolerance = 4 * float(losses.std()) / math.sqrt(repetitions)
    assert losses.mean() <= alpha + tolerance
    if kind in ("good", "bad"):
        # Without ties the risk cannot fall below α - 2/(N + 1); N is the number of rows with positives.
        assert losses.mean() >= alpha - 2 / (0.85 * count + 1) - tolerance


def test_rows_without_positives_are_left_out():
    scores, hot = world("good", 200, 6, 1)
    kept = hot.any(-1)
    assert 0 < (~kept).sum() < 100
    whole = RecallControl(0.2).fit(scores, hot, from_logits=False)
    assert torch.equal(whole(scores), RecallControl(0.2).fit(scores[kept], hot[kept], from_logits=False)(scores))


def test_no_row_with_a_positive_is_an_error():
    with pytest.raises(ValueError, match="positive"):
        RecallControl(0.2).fit(torch.rand(5, 4, generator=seeded(2)), torch.zeros(5, 4), from_logits=False)


def test_all_forms_of_labels_are_the_same():
    scores, hot = world("good", 100, 6, 3)
    forms = [hot, hot.float(), to_index_lists(hot, 6), to_sparse(hot, 6)]
    masks = [RecallControl(0.2).fit(scores, form, from_logits=False)(scores) for form in forms]
    assert all(torch.equal(mask, masks[0]) for mask in masks)

"""Every method of PredictionSets against a dense mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.side_by_side import PEAK_RESET, resident
from shortlist.sets import AverageK, PredictionSets, TopK
from shortlist.targets import to_index_lists, to_sparse
from tests.sets.worlds import seeded

quick = settings(derandomize=True, deadline=None, max_examples=60)
SHAPES = st.tuples(st.integers(0, 9), st.integers(1, 8), st.floats(0, 1), st.integers(0, 500))


def dense(rows: int, labels: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """A mask, and scores with ties."""
    generator = seeded(seed)
    mask = torch.rand(rows, labels, generator=generator) < share
    return mask, (8 * torch.rand(rows, labels, generator=generator)).round() / 8


def pairs(mask_row: Tensor, score_row: Tensor) -> list[tuple[int, float]]:
    """Labels and scores of a set, in its order."""
    inside = mask_row.nonzero().flatten().tolist()
    return sorted(((j, score_row[j].item()) for j in inside), key=lambda pair: (-pair[1], pair[0]))


@quick
@given(shape=SHAPES)
def test_a_mask_comes_back_with_its_sizes_rows_and_order(shape):
    mask, scores = dense(*shape)
    sets = PredictionSets.from_mask(mask, scores)
    assert len(sets) == len(mask)
    assert torch.equal(sets.to_mask(), mask)
    assert torch.equal(sets.sizes, mask.sum(-1))
    assert sets.sizes.dtype == torch.int64
    expected = [pairs(*row) for row in zip(mask, scores, strict=True)]
    assert list(sets) == expected
    assert [sets[i] for i in range(len(sets))] == expected
    assert [sets[i - len(sets)] for i in range(len(sets))] == expected
    assert sets.labels.tolist() == [label for row in expected for label, _ in row]
    assert sets.scores.tolist() == [score for row in expected for _, score in row]
    assert sets.indptr.tolist() == [0, *mask.sum(-1).cumsum(0).tolist()]
    csr = sets.to_csr()
    assert (csr.layout, csr.shape) == (torch.sparse_csr, mask.shape)
    assert torch.equal(csr.to_dense(), scores * mask)


@quick
@given(shape=SHAPES.filter(lambda shape: shape[0] > 0))
def test_membership_of_one_class_and_of_sets_of_positives(shape):
    mask, scores = dense(*shape)
    sets, n = PredictionSets.from_mask(mask, scores), mask.shape[1]
    classes = torch.randint(n, (len(mask),), generator=seeded(1))
    assert torch.equal(sets.contains(classes), mask[torch.arange(len(mask)), classes])
    assert torch.equal(sets.count_hits(classes), mask[torch.arange(len(mask)), classes].long())
    hot = torch.rand(len(mask), n, generator=seeded(2)) < 0.3
    for target in (hot, hot.float(), to_index_lists(hot, n), to_sparse(hot, n)):
        assert torch.equal(sets.contains(target), (mask | ~hot).all(-1))
        hits = sets.count_hits(target)
        assert torch.equal(hits, (mask & hot).sum(-1))
        assert hits.dtype == torch.int64


@quick
@given(shape=SHAPES, start=st.integers(-10, 10), stop=st.integers(-10, 10), step=st.sampled_from([1, 2, 3]))
def test_slices_are_sets_of_those_rows(shape, start, stop, step):
    mask, scores = dense(*shape)
    part = PredictionSets.from_mask(mask, scores)[start:stop:step]
    assert isinstance(part, PredictionSets)
    assert torch.equal(part.to_mask(), mask[range(*slice(start, stop, step).indices(len(mask)))].reshape(-1, shape[1]))
    assert list(part) == [pairs(*row) for row in zip(mask, scores, strict=True)][start:stop:step]


@quick
@given(shape=SHAPES, share=st.floats(0, 1))
def test_union_and_intersection_are_those_of_the_masks(shape, share):
    mask, scores = dense(*shape)
    other = torch.rand(mask.shape, generator=seeded(3)) < share
    a, b = PredictionSets.from_mask(mask, scores), PredictionSets.from_mask(other, scores)
    for sets, expected in ((a | b, mask | other), (a & b, mask & other)):
        assert torch.equal(sets.to_mask(), expected)
        assert list(sets) == [pairs(*row) for row in zip(expected, scores, strict=True)]


@quick
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), labels=st.integers(1, 6))
def test_parts_put_together_are_the_whole(sizes, labels):
    mask, scores = dense(sum(sizes), labels, 0.4, 4)
    parts = [PredictionSets.from_mask(*both) for both in zip(mask.split(sizes), scores.split(sizes), strict=True)]
    whole = PredictionSets.cat(parts)
    assert torch.equal(whole.to_mask(), mask)
    assert list(whole) == list(PredictionSets.from_mask(mask, scores))


def test_a_mask_without_scores_is_enough():
    mask, _ = dense(6, 5, 0.5, 5)
    sets = PredictionSets.from_mask(mask)
    assert torch.equal(sets.to_mask(), mask)
    assert [[label for label, _ in row] for row in sets] == [row.nonzero().flatten().tolist() for row in mask]


def test_names_take_the_place_of_labels():
    scores = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    sets = TopK(2).fit(scores, from_logits=False).predict(scores, names=["oak", "elm", "ash"])
    assert [name for name, _ in sets[0]] == ["elm", "ash"]
    assert [[name for name, _ in row] for row in sets] == [["elm", "ash"], ["oak", "ash"]]
    assert [name for name, _ in sets[1:][0]] == ["oak", "ash"]
    assert sets[0][0][1] == pytest.approx(0.5)
    both = PredictionSets.cat([sets, sets])
    assert [name for name, _ in both[3]] == ["oak", "ash"]
    assert [name for name, _ in (sets & sets)[0]] == ["elm", "ash"]


def test_predicted_scores_are_those_of_the_labels_in_order():
    scores = torch.rand(50, 9, generator=seeded(6))
    sets = AverageK(2.5).fit(scores, from_logits=False).predict(scores)
    assert list(sets) == [pairs(*row) for row in zip(sets.to_mask(), scores, strict=True)]


def test_a_row_beyond_the_last_is_an_index_error():
    sets = PredictionSets.from_mask(torch.eye(3, dtype=torch.bool))
    for row in (3, -4, 100):
        with pytest.raises(IndexError):
            sets[row]


def test_sets_that_do_not_fit_each_other_are_refused():
    small, wide, long = (
        PredictionSets.from_mask(torch.zeros(shape, dtype=torch.bool)) for shape in ((2, 3), (2, 4), (3, 3))
    )
    with pytest.raises(ValueError, match="labels"):
        small | wide
    with pytest.raises(ValueError, match="rows"):
        small & long
    with pytest.raises(ValueError, match="labels"):
        PredictionSets.cat([small, wide])
    with pytest.raises(ValueError, match="empty"):
        PredictionSets.cat([])


def test_wrong_arguments_are_named():
    scores = torch.rand(4, 3, generator=seeded(7))
    rule = TopK(1).fit(scores, from_logits=False)
    with pytest.raises(ValueError, match="names"):
        rule.predict(scores, names=["one", "two"])
    sets = rule.predict(scores)
    with pytest.raises(ValueError, match="3"):
        sets.contains(torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="4"):
        sets.contains(torch.tensor([0, 1, 2]))
    with pytest.raises((TypeError, ValueError), match="mask"):
        PredictionSets.from_mask(scores)
    with pytest.raises(ValueError, match="scores"):
        PredictionSets.from_mask(torch.ones(4, 3, dtype=torch.bool), scores[:2])


ROWS = LABELS = 100_000
BLOCK = 50
LIMIT = 200 << 20
"""Bytes: the dense mask has 10 GB, three labels and scores for each row 4 MB."""


def large_block() -> PredictionSets:
    scores = torch.rand(BLOCK, LABELS, generator=seeded(0))
    rule = TopK(3).fit(scores, from_logits=False)
    return rule.predict(scores)


def test_a_hundred_thousand_rows_stay_small_through_every_operation():
    part = large_block()
    rolled = PredictionSets.from_mask(part.to_mask().roll(1, -1))
    if PEAK_RESET.exists():
        PEAK_RESET.write_text("5")
        before = resident("VmRSS")
    sets = PredictionSets.cat([part] * (ROWS // BLOCK))
    other = PredictionSets.cat([rolled] * (ROWS // BLOCK))
    assert len(sets) == ROWS
    assert sets.sizes.sum() == 3 * ROWS
    union, both = sets | other, sets & other
    assert torch.equal(union.sizes + both.sizes, sets.sizes + other.sizes)
    assert [label for label, _ in sets[BLOCK * 1000 + 7]] == [label for label, _ in part[7]]
    assert len(sets[1000:90_000]) == 89_000
    assert sum(len(row) for row in sets[::1000]) == 300
    best = torch.tensor([row[0][0] for row in part]).repeat(ROWS // BLOCK)
    assert sets.contains(best).all()
    assert sets.count_hits(best[:, None]).sum() == ROWS
    assert sets.to_csr().shape == (ROWS, LABELS)
    stored = sum(values.numel() * values.element_size() for values in (sets.indptr, sets.labels, sets.scores))
    assert stored < 10 << 20
    if PEAK_RESET.exists():
        assert resident("VmHWM") - before < LIMIT


@pytest.mark.slow
@pytest.mark.skipif(not PEAK_RESET.exists(), reason="the peak of memory cannot be measured here")
def test_predicting_batch_by_batch_needs_the_memory_of_one_batch():
    rule = TopK(3).fit(torch.rand(BLOCK, LABELS, generator=seeded(0)), from_logits=False)
    PEAK_RESET.write_text("5")
    before = resident("VmRSS")
    parts = [rule.predict(torch.rand(BLOCK, LABELS, generator=seeded(seed))) for seed in range(60)]
    assert len(PredictionSets.cat(parts)) == 60 * BLOCK
    assert resident("VmHWM") - before < 12 * BLOCK * LABELS * 4

"""100,000 rows of 100,000 labels are as cheap as the three labels that each set holds."""

import pytest
import torch

from benchmarks.side_by_side import PEAK_RESET, resident
from shortlist.sets import PredictionSets, TopK
from tests.sets.worlds import seeded

ROWS = LABELS = 100_000
BLOCK = 50
LIMIT = 200 << 20
"""Bytes: the dense mask has 10 GB, three labels and scores for each row 4 MB."""


def block() -> PredictionSets:
    scores = torch.rand(BLOCK, LABELS, generator=seeded(0))
    rule = TopK(3).fit(scores, from_logits=False)
    return rule.predict(scores)


def test_a_hundred_thousand_rows_stay_small_through_every_operation():
    part = block()
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

"""What operators and losses cost on an accelerator without kernels: counts on the meta device, which never vary."""

import pytest
import torch

from benchmarks.device_cases import CASES, EAGER_ANY, EAGER_KERNELS, EAGER_PROJECTION, SOFTMAX, Batch
from benchmarks.device_cost import count
from shortlist import functional
from shortlist.factory import LOSSES
from tests.contracts import PROJECTIONS
from tests.contracts_losses import BUILDING_BLOCKS

BATCH = Batch(256, 1000)
UNIT = SOFTMAX.cost(BATCH).bytes


ABOVE_GOAL = {
    "lml, learned k": {"kernels": 182, "bytes": 22.4 * UNIT},
    "log_lml, learned k": {"kernels": 200, "bytes": 24.3 * UNIT},
    "lml_dual, learned k": {"kernels": 200, "bytes": 20.2 * UNIT},
}
"""Goals that are not met yet, with today's cost, which must not grow."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_stays_within_its_goals_or_below_its_known_cost(case):
    cost = case.cost(BATCH)
    limits = {
        "kernels": EAGER_KERNELS if case.kind == "projection" else None,
        "bytes": (EAGER_PROJECTION if case.kind == "projection" else EAGER_ANY) * UNIT,
        "wide_float64": 0,
        "host_reads": 0,
        "uploads": 0,
    } | ABOVE_GOAL.get(str(case), {})
    over = {
        name: getattr(cost, name) for name, most in limits.items() if most is not None and getattr(cost, name) > most
    }
    assert not over, f"{over}: {cost.bytes / UNIT:.1f} × softmax; most bytes: {cost.bytes_of.most_common(5)}"


def test_every_operator_and_loss_is_counted():
    counted = {case.name for case in CASES}
    assert {str(projection) for projection in PROJECTIONS} <= counted
    assert set(LOSSES) <= counted
    without_logits = {functional.margins_from_counts.__name__}
    assert {function.__name__ for function in BUILDING_BLOCKS} - without_logits <= counted


@pytest.mark.parametrize("loss", [functional.warp, functional.rml], ids=lambda loss: loss.__name__)
def test_ranking_losses_of_sparse_targets_need_no_wide_float64(loss, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", "device")
    batch = Batch(64, 500, "cpu")
    target = batch.target("dense").to_sparse()
    cost = count(lambda: torch.autograd.grad(loss(batch.logits, target), batch.logits), wide=batch.wide)
    assert cost.wide_float64 == 0

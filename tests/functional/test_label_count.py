"""The law of the number of labels: by angles, by the tree, and one label after the other."""

import pytest
import torch

from shortlist.functional.lml import lml_root
from shortlist.functional.symmetric_polynomials import label_count, label_count_tree
from tests.functional.test_solvers_agree import mixed_batch

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


def log_odds(x, k):
    """Log-odds under which k - 1/2 labels are expected, in the parts that the solver takes."""
    pivot, delta = lml_root(x, x.new_full((1, 1), k - 0.5), 1.0)
    return pivot, delta, (x - pivot + delta)


def one_after_the_other(p, k):
    """Probabilities of k and k - 1 labels by adding a label at a time."""
    law = torch.zeros(len(p), k + 1, dtype=p.dtype)
    law[:, 0] = 1
    for column in p.T.unsqueeze(-1):
        law = law * (1 - column) + torch.nn.functional.pad(law[:, :-1], (1, 0)) * column
    return law[:, k], law[:, k - 1]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("seed", range(24))
def test_angles_and_tree_agree_on_batches_of_unlike_rows(seed, dtype):
    x, _, _ = mixed_batch(seed)
    x = x[(x > -torch.inf).sum(-1) > 1][:, :90].to(dtype)
    x = x[(x > -torch.inf).sum(-1) > 1]
    for k in {1, 2, 7, int((x > -torch.inf).sum(-1).min())}:
        rows = x[(x > -torch.inf).sum(-1) >= k]
        pivot, delta, y = log_odds(rows, k)
        y = y.double()
        for ratio in (True, False):
            fast = label_count(rows, pivot, delta, k, ratio=ratio, derivatives=True)
            high, low, slopes = label_count_tree(y.sigmoid(), (-y).sigmoid(), k, ratio=ratio)
            torch.testing.assert_close(fast.high[:, 0].double(), high, rtol=TOLERANCE[dtype], atol=0)
            torch.testing.assert_close(fast.low[:, 0].double(), low, rtol=TOLERANCE[dtype], atol=0)
            torch.testing.assert_close(fast.slopes.double(), slopes, rtol=10 * TOLERANCE[dtype], atol=1e-30)
            if not ratio:
                none = torch.nn.functional.logsigmoid(-y).sum(-1)
                torch.testing.assert_close(fast.log_none[:, 0].double(), none, rtol=TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize(("n", "k"), [(1000, 5), (1000, 100), (1000, 995), (3000, 300), (40, 20)])
def test_many_labels_agree_with_adding_them_one_by_one(n, k, spread):
    x = spread * torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n + k))
    pivot, delta, y = log_odds(x, k)
    fast = label_count(x, pivot, delta, k, ratio=True, derivatives=True)
    high, low = one_after_the_other(y.sigmoid(), k)
    torch.testing.assert_close(fast.high[:, 0], high, rtol=1e-9, atol=0)
    torch.testing.assert_close(fast.low[:, 0], low, rtol=1e-9, atol=0)
    assert (fast.slopes >= 0).all()
    torch.testing.assert_close(fast.slopes.sum(-1), torch.ones(3, dtype=torch.float64), rtol=1e-9, atol=0)

"""The fast solvers and the sorting ones test each other, on batches of unlike rows."""

import math

import pytest
import torch

from shortlist.functional import constrained_softmax, lml, sparse_top
from shortlist.functional.projections.constrained_softmax import _capped
from shortlist.functional.projections.constrained_softmax import _exact as exact_constrained_softmax
from shortlist.functional.projections.lml import log_odds
from shortlist.functional.projections.lml_exact import exact_dual
from shortlist.functional.projections.sparse_top_solver import exact_threshold
from tests.functional.paths import PATHS, each_path


def mixed_batch(seed):
    """Rows of one kind with spreads from 0.01 to 1000, and as many labels wanted as each likes."""
    g = torch.Generator().manual_seed(seed)
    rows, n = (int(torch.randint(1, high, (), generator=g)) for high in (80, 400))
    x, chance = torch.randn(rows, n, generator=g), torch.rand(rows, n, generator=g)
    x = [x, chance, x.round(), torch.where(chance < 0.05, x + 5, 0.3 * x), x / (chance + 1e-3), x.sign()][seed % 6]
    x = x * 10 ** (5 * torch.rand(rows, 1, generator=g) - 2)
    if seed % 4 == 0:
        x = x.masked_fill(chance > 0.7, -math.inf)
    k, whole, few = torch.rand(rows, 1, generator=g) * n, *torch.rand(2, rows, 1, generator=g)
    k = torch.where(whole < 0.6, k.round(), k)
    return x, torch.where(few < 0.4, k.clamp(max=5), k), (1.0, 0.3, 2.0)[seed % 3]


@each_path
def test_fast_and_sorting_solvers_agree_on_mixed_batches(dtype):
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    for seed in range(48):
        x, k, temperature = mixed_batch(seed)
        x, k = x.to(dtype), k.to(dtype)
        wide, wide_k = x.double(), k.double()

        exact = log_odds(wide, *exact_dual(wide, wide_k, temperature), temperature).sigmoid()
        logs = exact.clamp(min=1e-300).log().abs()
        allowed = exact * (tolerance + 8 * torch.finfo(dtype).eps * logs) + 100 * torch.finfo(dtype).tiny
        assert ((lml(x, k, temperature=temperature) - exact).abs() <= allowed).all(), seed

        exact = exact_threshold(wide, wide_k, temperature).project(wide, temperature)
        assert torch.allclose(sparse_top(x, k, temperature=temperature).double(), exact, rtol=0, atol=2 * tolerance)

        exact = _capped(wide, *exact_constrained_softmax(wide, wide_k, temperature), temperature)
        answer = constrained_softmax(x, k, temperature=temperature).double()
        assert torch.allclose(answer, exact, rtol=0, atol=2 * tolerance), seed


@pytest.mark.parametrize("dtype", [path for path in PATHS if "device" in path], indirect=True)
def test_one_number_for_all_rows_gives_what_a_column_of_it_gives(dtype):
    """On accelerators a number selects the labels that it splits off, and a column an order statistic of each row."""
    for seed in range(24):
        x, columns, temperature = mixed_batch(seed)
        n = x.shape[-1]
        wide = x.double()
        for k in {0.0, 1e-3, 0.5, 1.0, columns[0].item(), n / 2, n - 1.0, n - 0.25, float(n)}:
            if not 0 <= k <= n:
                continue
            column = torch.full((len(x), 1), k).double()
            options = {"temperature": temperature}
            exact = log_odds(wide, *exact_dual(wide, column, temperature), temperature).sigmoid()
            allowed = exact * (1e-5 + 1e-6 * exact.clamp(min=1e-300).log().abs()) + 1e-36
            assert ((lml(x, k, **options) - exact).abs() <= allowed).all(), (seed, k)
            exact = exact_threshold(wide, column, temperature).project(wide, temperature)
            assert torch.allclose(sparse_top(x, k, **options).double(), exact, rtol=0, atol=2e-5), (seed, k)
            exact = _capped(wide, *exact_constrained_softmax(wide, column, temperature), temperature)
            assert torch.allclose(constrained_softmax(x, k, **options).double(), exact, rtol=0, atol=2e-5), (seed, k)

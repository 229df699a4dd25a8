"""The DFT head: its initial values, its explicit matrix in every precision, and witnesses that survive rounding."""

import itertools
import math
import re

import pytest
import torch
from torch import Tensor

from shortlist.functional import dft_logits, dft_matrix, dft_witness
from shortlist.nn import DFTHead
from tests.compiling import each_backend, whole_graph
from tests.contracts_losses import FORMS

FFT_SIZES = (1024, 90)
"""Labels and k of a head that stores no matrix."""
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16)


def head(*sizes: int, **where) -> DFTHead:
    torch.manual_seed(0)
    return DFTHead(*sizes, **where)


def rows(count: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(3)).to(dtype)


def random_sets(n: int, k: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(n + k)
    return torch.stack([torch.randperm(n, generator=generator)[:k] for _ in range(count)])


@pytest.mark.parametrize(("n", "k", "slack"), [(50, 3, 0), (9, 4, 2), (1000, 10, 30), (9000, 20, 0), (1, 0, 0)])
def test_without_features_every_label_has_probability_k_over_n(n, k, slack):
    layer = head(16, n, k, slack).double()
    layer.reset_parameters()
    probs = layer(torch.zeros(1, 16, dtype=torch.float64)).sigmoid()
    assert torch.allclose(probs, torch.full((1, n), k / n if k else 1 / (2 * n), dtype=torch.float64), rtol=1e-10)


@pytest.mark.parametrize("in_features", [16, 512])
@pytest.mark.parametrize(
    ("n", "k", "slack"), [(50, 1, 0), (50, 20, 0), (50, 2, 100), (1000, 5, 16), (9000, 20, 0), (9000, 80, 500)]
)
def test_features_of_unit_scale_start_near_probability_k_over_n(n, k, slack, in_features):
    layer = head(in_features, n, k, slack)
    probs = layer(rows(200, in_features)).sigmoid()
    assert probs.mean().item() == pytest.approx(k / n, rel=0.2)
    assert (probs.std(0) > 0).all()
    fixed, learned = layer.weight.norm(dim=0).split([2 * k + 1, slack])
    assert torch.allclose(fixed, torch.ones(2 * k + 1), atol=1e-4)
    assert (learned - 1).abs().mul(math.sqrt(n)).lt(4).all()


@pytest.mark.parametrize(("n", "k"), [(30, 4), FFT_SIZES])
@pytest.mark.parametrize("slack", [0, 3])
def test_logits_are_the_projection_times_the_explicit_weight(n, k, slack):
    layer, x = head(6, n, k, slack).double(), rows(5, 6, torch.float64)
    assert layer.weight.shape == (n, 2 * k + 1 + slack)
    assert torch.equal(layer.weight[:, : 2 * k + 1], dft_matrix(n, k, dtype=torch.float64))
    assert torch.allclose(layer(x), layer.projection(x) @ layer.weight.T, atol=1e-11)
    if slack:
        (slope,) = torch.autograd.grad(layer.weight.sum(), layer.slack_weight)
        assert (slope == 1).all()
    else:
        assert layer.slack_weight is None


def test_the_matrix_is_stored_only_where_the_product_is_cheaper_and_never_saved():
    layer = head(6, 30, 4, 2)
    assert layer.matrix is not None
    assert list(layer.state_dict()) == ["slack_weight", "projection.weight", "projection.bias"]
    assert len(list(layer.parameters())) == 3
    assert "in_features=6, num_labels=30, k=4, slack=2" in repr(layer)
    assert head(6, *FFT_SIZES).matrix is None
    assert head(6, *FFT_SIZES).double().matrix is None


def test_the_matrix_follows_the_layer_without_inheriting_its_rounding():
    layer = head(6, 30, 4)
    exact = dft_matrix(30, 4, dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        layer.to(dtype)
        assert torch.equal(layer.matrix, exact.float())
        assert layer.weight.dtype == dtype
        assert torch.equal(layer.weight, exact.to(dtype))
    layer.double()
    assert torch.equal(layer.matrix, exact)
    assert layer.to("meta").matrix.device.type == "meta"


def test_the_explicit_weight_is_exact_in_the_requested_dtype():
    layer = head(6, 30, 4, 2).bfloat16()
    wide = layer.explicit_weight(torch.float64)
    assert torch.equal(wide[:, :9], dft_matrix(30, 4, dtype=torch.float64))
    assert torch.equal(wide[:, 9:], layer.slack_weight.double())
    assert layer.explicit_weight(torch.float16).dtype == torch.float16


def test_half_precision_does_not_round_the_fixed_columns():
    layer, x = head(6, 30, 4).bfloat16(), rows(5, 6, torch.bfloat16)
    assert torch.equal(layer(x), dft_logits(layer.projection(x), 30))
    exact = layer.projection(x).double() @ dft_matrix(30, 4, dtype=torch.float64).T
    assert ((layer(x).double() - exact).abs() <= 2**-8 * exact.abs() + 1e-5).all()


@pytest.mark.parametrize("slack", [0, 2])
def test_every_set_of_at_most_k_labels_is_an_output_of_the_layer(slack):
    n, k = 9, 3
    layer = head(6, n, k, slack).double()
    hot = torch.tensor(list(itertools.product([False, True], repeat=n)))
    hot = hot[hot.sum(-1) <= k]
    witness = layer.witness(hot)
    assert witness.features.shape == (len(hot), 2 * k + 1 + slack)
    assert (witness.features[:, 2 * k + 1 :] == 0).all()
    logits = witness.features @ layer.weight.T
    assert torch.equal(logits > 0, hot)
    radius = (1e4 * logits.abs() / layer.weight.norm(dim=-1)).amin(-1)
    assert torch.allclose(witness.radius, radius, rtol=1e-9)
    assert torch.allclose(witness.log10_radius, radius.log10(), rtol=0, atol=1e-9)
    assert list(witness.survives) == list(PRECISIONS)
    assert witness.survives[torch.float64].all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_sets_that_survive_have_the_right_signs_in_that_precision(dtype):
    n, k = 200, 4
    layer, sets = head(6, n, k, 3), random_sets(200, 4, 60)
    witness = layer.witness(sets)
    hot = torch.zeros(60, n, dtype=torch.bool).scatter(1, sets, True)
    logits = witness.features.to(dtype) @ layer.explicit_weight(dtype).T.detach()
    right = (torch.where(hot, logits, -logits) > 0).all(-1)
    if dtype == torch.float64:
        assert (right | ~witness.survives[dtype]).all()
    else:
        assert torch.equal(witness.survives[dtype], right)


def test_the_shares_in_the_docstring_are_those_measured():
    lines = re.findall(r"^ +(\d+)((?: +\d+ / \d+ %){3})$", DFTHead.__doc__, re.MULTILINE)
    assert [int(n) for n, _ in lines] == [1000, 9000]
    for n, shares in lines:
        for k, pair in zip((5, 10, 20), re.findall(r"(\d+) / (\d+)", shares), strict=True):
            survives = head(8, int(n), k).witness(random_sets(int(n), k, 500)).survives
            for dtype, percent in zip(PRECISIONS, (*pair, "0"), strict=True):
                # Three standard deviations of a share of 500, at most.
                assert survives[dtype].double().mean().item() == pytest.approx(int(percent) / 100, abs=0.067)


def test_float64_survives_only_beyond_rounding():
    sets = random_sets(9000, 20, 100)
    layer = head(8, 9000, 20)
    witness = layer.witness(sets)
    survives, weight = witness.survives[torch.float64], layer.explicit_weight(torch.float64)
    logits = witness.features @ weight.T
    bound = 43 * 2**-53 * (witness.features.abs() @ weight.abs().T)
    hot = torch.zeros(100, 9000, dtype=torch.bool).scatter(1, sets, True)
    signed = torch.where(hot, logits, -logits)
    assert torch.equal(survives, (signed > bound).all(-1))
    assert 0.1 < survives.double().mean() < (signed > 0).all(-1).double().mean()


def test_a_cluster_has_a_witness_in_theory_only():
    witness = head(8, 9000, 200).witness(torch.arange(0, 400, 2)[None])
    assert witness.radius.item() == 0
    assert -700 < witness.log10_radius.item() < -400
    assert not any(kept.any() for kept in witness.survives.values())
    plain = dft_witness(torch.arange(0, 400, 2)[None], 9000, 200)
    assert witness.log10_radius.item() == pytest.approx(4 + plain.log10_radius.item())


@pytest.mark.parametrize("form", FORMS)
def test_label_sets_come_in_every_form(form):
    layer, hot = head(6, 8, 2, 1), torch.eye(8, dtype=torch.float64)
    if form != "class indices":
        hot = hot + hot.roll(3, 1)
    assert torch.equal(layer.witness(FORMS[form](hot)).features, layer.witness(hot).features)


def test_no_sets_and_the_empty_set_have_witnesses():
    layer = head(6, 8, 2, 1)
    none = layer.witness(torch.empty(0, 2, dtype=torch.int64))
    assert none.features.shape == (0, 6)
    assert all(kept.shape == (0,) for kept in none.survives.values())
    empty = layer.witness(torch.full((2, 3), -1))
    assert all(kept.all() for kept in empty.survives.values())
    assert (empty.features[:, 0] == -1).all()


def test_too_many_sign_changes_name_the_row():
    with pytest.raises(ValueError, match=r"`target` row 1: must have at most 2k = 4 cyclic sign changes; got 6\."):
        head(6, 9, 2).witness(torch.tensor([[0, 1, 2], [0, 2, 4]]))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@each_backend
def test_a_layer_that_uses_the_fft_compiles(backend):
    torch.compiler.reset()
    layer, x = head(6, *FFT_SIZES, 2), rows(3, 6)
    compiled = whole_graph(layer, backend)
    results = []
    for module in (layer, compiled):
        logits = module(x)
        results.append((logits.detach(), *torch.autograd.grad(logits.square().sum(), list(layer.parameters()))))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-4, atol=1e-4)

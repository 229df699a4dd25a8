"""The truncated DFT: its matrix and products with it, sign changes of label sets, and witnesses of label sets."""

import itertools
import math
import sys
from functools import cache

import pytest
import torch
from torch import Tensor

from shortlist.functional import dft_logits, dft_matrix, dft_witness, sign_changes
from shortlist.functional.dft import active_labels, active_runs, fft_is_cheaper
from tests.compiling import each_backend, whole_graph
from tests.contracts_losses import FORMS
from tests.multiprecision import MP

# The forward derivatives and the compiler of torch use what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


METHODS = ["fft", "matmul", None]


SIZES = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (8, 3), (9, 1), (9, 4), (30, 7), (101, 50)]


each_method = pytest.mark.parametrize("method", METHODS)


def features(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def exact_entry(n: int, i: int, column: int):
    if column == 0:
        return 1 / MP.sqrt(n)
    wave = MP.sin if column % 2 == 0 else MP.cos
    return MP.sqrt(MP.mpf(2) / n) * wave(2 * MP.pi * i * ((column + 1) // 2) / n)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (3, 1), (8, 3), (12, 5), (97, 48), (9000, 20), (100003, 30)])
def test_every_entry_is_right_to_three_units_in_the_last_place(n, k):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    assert matrix.shape == (n, 2 * k + 1)
    rows = sorted({*range(min(n, 12)), n // 8, n // 4, n // 3, n // 2, 7 * n // 8, n - 2, n - 1} - {-1})
    columns = sorted({*range(min(2 * k + 1, 30)), 2 * k - 1, 2 * k} - {-1})
    for i, column in itertools.product(rows, columns):
        got, exact = matrix[i, column].item(), exact_entry(n, i, column)
        assert abs(got - exact) <= 3 * 2**-52 * abs(exact) + 1e-60, (i, column)


def test_zeros_are_exact():
    matrix = dft_matrix(24, 6, dtype=torch.float64)
    zeros = [(i, c) for i in range(24) for c in range(13) if abs(exact_entry(24, i, c)) < 1e-60]
    assert len(zeros) > 20
    assert all(matrix[place] == 0 and not matrix[place].signbit() for place in zeros)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_columns_are_orthonormal(n, k):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    assert torch.allclose(matrix.T @ matrix, torch.eye(2 * k + 1, dtype=torch.float64), atol=1e-14, rtol=0)


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(3, 10) for k in range(3) if 2 * k + 1 <= n])
def test_all_maximal_minors_are_positive(n, k):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    chosen = torch.tensor(list(itertools.combinations(range(n), 2 * k + 1)))
    assert (torch.linalg.det(matrix[chosen]) > 1e-6).all()


def test_the_matrix_is_rounded_once_and_made_where_it_is_wanted():
    exact = dft_matrix(50, 4, dtype=torch.float64)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(dft_matrix(50, 4, dtype=dtype), exact.to(dtype))
    assert dft_matrix(5, 1).dtype == torch.get_default_dtype()
    assert dft_matrix(5, 1, device="meta").device.type == "meta"
    with torch.device("meta"):
        assert dft_matrix(5, 1).device.type == "meta"
        assert dft_matrix(5, 1, device="cpu").device.type == "cpu"


@each_method
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_logits_are_the_product_with_the_matrix(n, k, method):
    matrix = dft_matrix(n, k, dtype=torch.float64)
    for shape in ((), (1,), (7,), (2, 3, 4)):
        v = features(*shape, 2 * k + 1)
        z = dft_logits(v, n, method=method)
        assert z.shape == (*shape, n)
        assert torch.allclose(z, v @ matrix.T, atol=1e-13, rtol=0)
        assert torch.allclose(z, dft_logits(v, n, method=method, matrix=matrix), atol=1e-13, rtol=0)


@each_method
def test_no_rows_give_no_logits_and_no_gradient(method):
    for shape in ((0,), (3, 0)):
        v = torch.zeros(*shape, 5, requires_grad=True)
        z = dft_logits(v, 8, method=method)
        assert z.shape == (*shape, 8)
        z.sum().backward()
        assert v.grad.shape == v.shape


@pytest.mark.parametrize("method", ["fft", "matmul"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_multiplied_in_float32(dtype, method):
    v = features(6, 21, dtype=torch.float32).to(dtype)
    z = dft_logits(v, 100, method=method)
    assert z.dtype == dtype
    exact = v.double() @ dft_matrix(100, 10, dtype=torch.float64).T
    # Half a unit in the last place, and what float32 may have added.
    assert ((z.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 1e-6).all()


@each_method
def test_autocast_does_not_round_the_matrix(method):
    v = features(6, 21, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        z = dft_logits(v, 100, method=method)
        short = dft_logits(v.bfloat16(), 100, method=method)
    assert z.dtype == torch.float32
    assert torch.equal(z, dft_logits(v, 100, method=method))
    assert torch.equal(short, dft_logits(v.bfloat16(), 100, method=method))


@each_method
@pytest.mark.parametrize(("n", "k"), [(1, 0), (6, 0), (7, 3), (8, 3), (12, 2)])
def test_derivatives_of_every_order_and_mode_are_right(n, k, method):
    v = features(2, 2 * k + 1).requires_grad_()
    run = lambda x: dft_logits(x, n, method=method)
    assert torch.autograd.gradcheck(run, v, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: run(x) ** 3, v)
    upstream = features(2, n)
    (slope,) = torch.autograd.grad(run(v), v, upstream)
    assert torch.allclose(slope, upstream @ dft_matrix(n, k, dtype=torch.float64), atol=1e-13)


@each_method
def test_rows_may_be_mapped_over(method):
    v = features(3, 4, 7)
    run = lambda x: dft_logits(x, 20, method=method)
    assert torch.allclose(torch.func.vmap(run)(v), run(v), atol=1e-14)
    assert torch.allclose(torch.func.vmap(torch.func.vmap(run), in_dims=1, out_dims=1)(v), run(v), atol=1e-14)
    jacobian = torch.func.vmap(torch.func.jacrev(run))(v[0])
    assert torch.allclose(jacobian, dft_matrix(20, 3, dtype=torch.float64).expand(4, 20, 7), atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@each_backend
@each_method
def test_the_compiled_operator_agrees_with_the_eager_one(method, backend):
    torch.compiler.reset()
    v = features(3, 11, dtype=torch.float32).requires_grad_()
    run = lambda x: dft_logits(x, 40, method=method).square()
    results = []
    for function in (run, whole_graph(run, backend)):
        z = function(v)
        results.append((z.detach(), *torch.autograd.grad(z.sum(), v)))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-5, atol=1e-5)


def test_the_operators_of_the_compiler_are_sound():
    v, z = features(3, 7).requires_grad_(), features(3, 12).requires_grad_()
    torch.library.opcheck(torch.ops.shortlist.dft_synthesis.default, (v, 12))
    torch.library.opcheck(torch.ops.shortlist.dft_analysis.default, (z, 7))


def test_the_cheaper_way_is_taken_and_forced_ones_are_obeyed():
    for n, k, rows in ((1000, 3, 2000), (1024, 200, 1), (1009, 200, 500)):
        v = features(rows, 2 * k + 1, dtype=torch.float32)
        by_fft, by_product = (dft_logits(v, n, method=method) for method in ("fft", "matmul"))
        assert not torch.equal(by_fft, by_product)
        assert torch.equal(dft_logits(v, n), by_fft if fft_is_cheaper(n, k, rows) else by_product)
        kept = dft_logits(v, n, matrix=dft_matrix(n, k))
        assert torch.equal(kept, by_fft if fft_is_cheaper(n, k, None) else by_product)


def test_the_rule_favours_the_fft_for_many_columns_few_rows_and_smooth_sizes():
    assert not fft_is_cheaper(9000, 20, None)
    assert fft_is_cheaper(9000, 100, None)
    assert not fft_is_cheaper(8923, 100, None)
    assert fft_is_cheaper(9000, 20, 1)
    assert not fft_is_cheaper(9000, 20, 10_000)
    assert isinstance(fft_is_cheaper(9000, 20, 0), bool)


@pytest.mark.parametrize(
    ("n", "k", "error", "text"),
    [
        (10, 5, ValueError, r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 10 labels; got 5\."),
        (10, -1, ValueError, r"`k` must lie in \[0, 4\], .*; got -1\."),
        (0, 0, ValueError, r"`num_labels` must be at least 1; got 0\."),
        (10, 1.5, TypeError, r"`k` must be a whole number; got float\."),
        (10.0, 1, TypeError, r"`num_labels` must be a whole number; got float\."),
    ],
)
def test_a_wrong_size_is_named(n, k, error, text):
    with pytest.raises(error, match=text):
        dft_matrix(n, k)


def test_other_wrong_arguments_are_named():
    with pytest.raises(TypeError, match=r"`dtype` must be floating; got torch\.int64\."):
        dft_matrix(5, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"`features` must have an odd last size, 2k \+ 1; got shape \(3, 4\)\."):
        dft_logits(torch.zeros(3, 4), 10)
    with pytest.raises(ValueError, match=r"`features` must have an odd last size, 2k \+ 1; got shape \(\)\."):
        dft_logits(torch.tensor(1.0), 10)
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 10 labels; got 5\."):
        dft_logits(torch.zeros(3, 11), 10)
    with pytest.raises(TypeError, match=r"`features` must be a floating tensor; got torch\.int64\."):
        dft_logits(torch.zeros(3, 3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match=r"`method` must be 'fft', 'matmul' or None; got 'fast'\."):
        dft_logits(torch.zeros(3, 3), 10, method="fast")
    with pytest.raises(ValueError, match=r"`matrix` must have shape \(10, 3\); got \(3, 10\)\."):
        dft_logits(torch.zeros(3, 3), 10, matrix=torch.zeros(3, 10))


def counted(row: list[bool], *, cyclic: bool) -> int:
    n = len(row)
    return sum(row[i] != row[(i + 1) % n] for i in range(n if cyclic else n - 1))


def all_sets(n: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product([False, True], repeat=n)))


@pytest.mark.parametrize("cyclic", [True, False])
@pytest.mark.parametrize("n", range(1, 11))
def test_changes_are_those_that_one_counts(n, cyclic):
    hot = all_sets(n)
    assert sign_changes(hot, n, cyclic=cyclic).tolist() == [counted(row, cyclic=cyclic) for row in hot.tolist()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cyclic", [True, False])
def test_every_form_of_labels_has_the_same_changes(form, cyclic):
    hot = torch.eye(6, dtype=torch.float64) if form == "class indices" else all_sets(6).double()
    expected = [counted(row, cyclic=cyclic) for row in hot.bool().tolist()]
    answer = sign_changes(FORMS[form](hot), 6, cyclic=cyclic)
    assert answer.dtype == torch.int64
    assert answer.tolist() == expected


def test_the_order_of_an_index_list_does_not_matter():
    assert sign_changes(torch.tensor([[4, 0, 2, -1], [3, 2, 1, 0]]), 6).tolist() == [6, 2]


def test_a_set_of_k_labels_changes_at_most_2k_times():
    for n in range(1, 11):
        hot = all_sets(n)
        assert (sign_changes(hot, n) <= 2 * hot.sum(-1)).all()


def test_the_number_of_labels_costs_nothing():
    n = 10**15
    assert sign_changes(torch.tensor([[0, 5, 6, n - 1], [7, -1, -1, -1]]), n).tolist() == [4, 2]
    assert sign_changes(torch.tensor([[0, 5, 6, n - 1]]), n, cyclic=False).tolist() == [4]


def test_no_rows_and_empty_sets_are_fine():
    assert sign_changes(torch.empty(0, dtype=torch.int64), 5).shape == (0,)
    assert sign_changes(torch.empty(0, 3, dtype=torch.int64), 5, cyclic=False).shape == (0,)
    assert sign_changes(torch.full((2, 3), -1), 5).tolist() == [0, 0]
    assert sign_changes(torch.empty(2, 0, dtype=torch.int64), 5, cyclic=False).tolist() == [0, 0]


def test_runs_cover_exactly_the_active_labels():
    n = 7
    hot = all_sets(n)
    runs = active_runs(*active_labels(hot, n), n)
    covered = hot.all(-1, keepdim=True).repeat(1, n)  # a full circle has no run
    for row, first, last in zip(*(part.tolist() for part in runs[1:]), strict=True):
        for label in range(first, first + (last - first) % n + 1):
            assert not covered[row, label % n]
            covered[row, label % n] = True
    assert torch.equal(covered, hot)
    assert torch.equal(2 * runs.counts(), sign_changes(hot, n))


def test_wrong_labels_are_named_with_their_row():
    with pytest.raises(ValueError, match=r"`target` row 1: label 5 must lie in \[0, 5\)\."):
        sign_changes(torch.tensor([[0, 1], [5, -1]]), 5)
    with pytest.raises(ValueError, match=r"`target` row 0: label 1 must not occur twice\."):
        sign_changes(torch.tensor([[1, 1]]), 5)
    with pytest.raises(ValueError, match=r"`target` row 0: label 2 must not be unknown"):
        sign_changes(torch.tensor([[1.0, 0.0, -1.0]]), 3)


def has_signs(features: Tensor, hot: Tensor, k: int) -> Tensor:
    logits = features @ dft_matrix(hot.shape[-1], k, dtype=torch.float64).T
    return (torch.where(hot, logits, -logits) > 0).all(-1)


def random_sets(n: int, k: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(n + k)
    return torch.stack([torch.randperm(n, generator=generator)[:k] for _ in range(rows)])


def hot_of(sets: Tensor, n: int) -> Tensor:
    return torch.zeros(len(sets), n, dtype=torch.bool).scatter(1, sets, True)


def exact_witness(labels: set[int], n: int, k: int) -> tuple[list, object]:
    """Coefficients with largest magnitude 1 and the log10 of the radius, from the roots, in many digits."""
    roots = []
    for label in labels:
        before, after = (label - 1) % n in labels, (label + 1) % n in labels
        if not before:
            roots.append((label, -MP.mpf(1) / 2 if after else -1 / MP.sqrt(2)))
        if not after:
            roots.append((label, MP.mpf(1) / 2 if before else 1 / MP.sqrt(2)))

    @cache
    def factor(steps: int, offset):
        return abs(2 * MP.sin(MP.pi * (steps - offset) / n))

    values = []
    for i in range(n):
        size = MP.fprod(factor((i - label) % n, offset) for label, offset in roots)
        values.append(size if i in labels else -size)
    cos = [MP.cos(2 * MP.pi * m / n) for m in range(n)]
    sin = [MP.sin(2 * MP.pi * m / n) for m in range(n)]
    found = [sum(values) / MP.sqrt(n)]
    found += [
        MP.sqrt(MP.mpf(2) / n) * sum(z * wave[i * j % n] for i, z in enumerate(values))
        for j in range(1, k + 1)
        for wave in (cos, sin)
    ]
    largest = max(abs(x) for x in found)
    radius = min(abs(z) for z in values) / largest / MP.sqrt(MP.mpf(2 * k + 1) / n)
    return [x / largest for x in found], MP.log10(radius)


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 11) for k in range(4) if 2 * k + 1 <= n])
def test_every_set_with_few_sign_changes_has_its_signs_and_its_radius(n, k):
    hot = torch.tensor(list(itertools.product([False, True], repeat=n)))
    possible = sign_changes(hot, n) <= 2 * k
    assert possible[hot.sum(-1) <= k].all()
    hot = hot[possible]
    features, log10_radius = dft_witness(hot, n, k)
    assert features.dtype == log10_radius.dtype == torch.float64
    assert (features.abs().amax(-1) == 1).all()
    assert has_signs(features, hot, k).all()
    smallest = (features @ dft_matrix(n, k, dtype=torch.float64).T).abs().amin(-1)
    expected = (smallest / math.sqrt((2 * k + 1) / n)).log10()
    assert torch.allclose(log10_radius, expected, rtol=0, atol=1e-11)


CLUSTERED = {
    "every second label": set(range(0, 20, 2)),
    "around zero": {(3 * i - 12) % 200 for i in range(10)},
    "runs and single labels": {0, 1, 2, 4, 7, 8, 11, 13, 15, 16, 17, 18, 20, 199},
    "two clusters": {10, 12, 14, 16, 18, 110, 112, 114, 116, 118},
    "one label": {57},
    "all but one": set(range(200)) - {3},
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_the_radius_of_a_cluster_has_the_digits_of_the_exact_polynomial(name):
    labels, n, k = CLUSTERED[name], 200, 10
    features, log10_radius = dft_witness(torch.tensor([sorted(labels)]), n, k)
    exact, exact_radius = exact_witness(labels, n, k)
    assert abs(log10_radius.item() - exact_radius) < 1e-11
    assert max(abs(x - y) for x, y in zip(features[0].tolist(), exact, strict=True)) < 1e-14


@pytest.mark.slow
def test_the_radius_is_known_where_the_values_underflow():
    n, k = 4000, 120
    labels = torch.arange(0, 2 * k, 2)
    _, log10_radius = dft_witness(labels[None], n, k)
    _, exact = exact_witness(set(labels.tolist()), n, k)
    assert exact < math.log10(sys.float_info.min)
    assert abs(log10_radius.item() - exact) < 1e-9


def test_the_empty_and_the_full_set_are_constants():
    for hot, sign in ((torch.zeros(1, 9, dtype=torch.bool), -1), (torch.ones(1, 9, dtype=torch.bool), 1)):
        features, log10_radius = dft_witness(hot, 9, 2)
        assert features.tolist() == [[sign, 0, 0, 0, 0]]
        assert log10_radius.item() == pytest.approx(math.log10((1 / 3) / math.sqrt(5 / 9)))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_labels_has_the_same_witness(form):
    hot = torch.eye(8, dtype=torch.float64)
    if form != "class indices":
        hot = hot + hot.roll(3, 1)
    for got, expected in zip(dft_witness(FORMS[form](hot), 8, 2), dft_witness(hot, 8, 2), strict=True):
        assert torch.equal(got, expected)


def test_rows_do_not_depend_on_their_batch():
    sets = random_sets(9000, 20, 70)  # more than one block
    together = dft_witness(sets, 9000, 20)
    alone = [dft_witness(row[None], 9000, 20) for row in sets[::23]]
    assert torch.equal(together.log10_radius[::23], torch.cat([w.log10_radius for w in alone]))
    assert torch.allclose(together.features[::23], torch.cat([w.features for w in alone]), rtol=0, atol=1e-15)


def test_a_frequency_above_the_number_of_runs_is_not_used():
    features, _ = dft_witness(torch.tensor([[5, 6, 40]]), 100, 7)
    assert (features[0, 5:] == 0).all()
    assert (features[0, 3:5] != 0).all()


def test_random_sets_keep_their_signs_in_float64_and_many_lose_them_in_float32():
    n, k = 1000, 5
    sets = random_sets(n, k, 300)
    hot, features = hot_of(sets, n), dft_witness(sets, n, k).features
    assert has_signs(features, hot, k).all()
    logits = features.float() @ dft_matrix(n, k, dtype=torch.float32).T
    share = (torch.where(hot, logits, -logits) > 0).all(-1).double().mean()
    assert 0.3 < share < 0.8


def test_other_row_norms_measure_the_same_polynomial():
    n, k = 30, 3
    sets, norms = random_sets(n, k, 5), torch.linspace(0.5, 2, n)
    features, log10_radius = dft_witness(sets, n, k, row_norms=norms)
    assert torch.equal(features, dft_witness(sets, n, k).features)
    logits = features @ dft_matrix(n, k, dtype=torch.float64).T
    assert torch.allclose(log10_radius, (logits.abs() / norms.double()).amin(-1).log10(), rtol=0, atol=1e-10)


def test_no_rows_have_no_witness():
    features, log10_radius = dft_witness(torch.empty(0, 3, dtype=torch.int64), 9, 2)
    assert features.shape == (0, 5)
    assert log10_radius.shape == (0,)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`target` row 1: must have at most 2k = 4 cyclic sign changes; got 6\."):
        dft_witness(torch.tensor([[0, 1, 2], [0, 2, 4]]), 9, 2)
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 9 labels; got 5\."):
        dft_witness(torch.tensor([[0, 1]]), 9, 5)
    with pytest.raises(ValueError, match=r"`row_norms` must have shape \(9,\); got \(8,\)\."):
        dft_witness(torch.tensor([[0, 1]]), 9, 2, row_norms=torch.ones(8))
    with pytest.raises(ValueError, match=r"`target` row 0: label 9 must lie in \[0, 9\)\."):
        dft_witness(torch.tensor([[0, 9]]), 9, 2)

"""Kernels of projections agree with tensor operations, whatever the shape, the threads and the rows."""

import math

import pytest
import torch

from shortlist.functional import lml, lml_dual, log_lml, sparse_top
from shortlist.kernels import threads

PROJECTIONS = [lml, log_lml, lml_dual, sparse_top]
each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda op: op.__name__)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def by_tensors(monkeypatch):
    """Call an operator as if numba were not installed."""

    def call(operator, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setenv("SHORTLIST_KERNELS", "off")
            return operator(*arguments, **options)

    return call


@pytest.fixture
def unsettled(monkeypatch):
    """How many rows each call leaves to the solver that sorts."""
    counts, run = [], threads.run

    def counted(*arguments, **options):
        counts.append(run(*arguments, **options))
        return counts[-1]

    monkeypatch.setattr(threads, "run", counted)
    return counts


def value_and_gradient(projection, logits, k, **options):
    logits = logits.clone().requires_grad_()
    value = projection(logits, k, **options)
    upstream = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    value.backward(torch.where(value.detach().isfinite(), upstream, 0))
    return value.detach(), logits.grad


@pytest.mark.parametrize(
    ("rows", "labels", "k", "scale"),
    [
        pytest.param(*shape, scale, marks=[pytest.mark.slow] * (i > 0 and (i + j) % 2))
        for i, shape in enumerate([(256, 100, 5), (40, 1000, 100), (3, 40_000, 20)])
        for j, scale in enumerate([0.01, 1, 10, 100])
    ],
)
def test_ordinary_rows_are_settled_by_the_kernel_and_as_by_tensors(
    rows, labels, k, scale, unsettled, by_tensors, two_threads, fresh
):
    logits = scale * torch.randn(rows, labels, generator=fresh)
    for projection in PROJECTIONS:
        loop, tensors = (
            value_and_gradient(projection, logits, k),
            by_tensors(value_and_gradient, projection, logits, k),
        )
        for mine, theirs in zip(loop, tensors, strict=True):
            assert torch.allclose(mine, theirs, rtol=2e-5, atol=2e-5 * scale if projection is lml_dual else 2e-6)
    assert unsettled, "the kernels were not called"
    assert not any(unsettled)


@each_projection
def test_rows_of_many_axes_in_any_memory_order_are_solved_where_they_are(projection, by_tensors, two_threads, fresh):
    logits = torch.randn(30, 7, 200, 3, generator=fresh).transpose(0, 3)
    k = 1 + 10 * torch.rand(3, 7, 30, generator=fresh)
    k = k.transpose(0, 2).contiguous().transpose(0, 2)
    value = projection(logits, k, dim=2, temperature=0.7)
    assert torch.allclose(value, by_tensors(projection, logits, k, dim=2, temperature=0.7), rtol=1e-4, atol=1e-5)


@each_projection
def test_a_row_has_the_same_answer_in_every_batch_and_on_any_number_of_threads(projection, two_threads, fresh):
    logits, k = 5 * torch.randn(300, 500, generator=fresh), 1 + 20 * torch.rand(300, generator=fresh)
    together = projection(logits, k)
    torch.set_num_threads(1)
    assert torch.equal(together, projection(logits, k))
    assert torch.equal(together[17:27], projection(logits[17:27], k[17:27]))


@pytest.mark.parametrize("mask_value", [-math.inf, -1e4, -1e9, torch.finfo(torch.float32).min])
def test_rows_that_are_mostly_masked_are_settled_by_the_kernel(mask_value, unsettled, fresh):
    logits = torch.randn(64, 1000, generator=fresh)
    absent = torch.rand(64, 1000, generator=fresh) < 0.9
    for projection in (lml, sparse_top):
        p = projection(logits.masked_fill(absent, mask_value), 5.5)
        assert (p[absent] == 0).all()
        assert torch.allclose(p.sum(-1), torch.tensor(5.5))
    assert unsettled == [0, 0]


@pytest.mark.parametrize("projection", [lml, sparse_top], ids=lambda op: op.__name__)
def test_a_row_with_nan_or_an_impossible_k_spoils_no_other(projection, fresh):
    logits = torch.randn(6, 1000, generator=fresh)
    logits[1, 700], logits[3, 20] = math.nan, math.inf
    k = torch.tensor([5, 5, -1, 5, 2000, math.nan])
    p = projection(logits, k)
    assert p.isnan().all(-1).tolist() == [False, True, True, False, True, True]
    assert p[3, 20] == 1
    assert torch.allclose(p[[0, 3]].sum(-1), torch.tensor(5.0))
    _, gradient = value_and_gradient(projection, logits, k)
    assert gradient[[0, 3]].isfinite().all()


def test_a_gradient_that_is_one_number_repeated_is_read_as_such(fresh):
    logits = torch.randn(64, 300, generator=fresh, requires_grad=True)
    for projection in (lml, sparse_top):
        (gradient,) = torch.autograd.grad(projection(logits, 5).sum(), logits)
        assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("projection", [lml, sparse_top], ids=lambda op: op.__name__)
def test_without_openmp_a_pool_of_threads_does_the_same(projection, two_threads, monkeypatch, fresh):
    logits = torch.randn(100, 1000, generator=fresh)
    answer = value_and_gradient(projection, logits, 5)
    monkeypatch.setattr(threads, "_openmp", lambda: None)
    for mine, theirs in zip(value_and_gradient(projection, logits, 5), answer, strict=True):
        assert torch.equal(mine, theirs)


def test_threads_of_the_user_may_project_at_the_same_time(two_threads, fresh):
    from concurrent.futures import ThreadPoolExecutor

    batches = [torch.randn(100, 1000, generator=fresh) for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for answer, batch in zip(pool.map(lambda batch: lml(batch, 5), batches), batches, strict=True):
            assert torch.equal(answer, lml(batch, 5))


@each_projection
def test_a_k_on_another_device_is_refused(projection):
    with pytest.raises(ValueError, match=r"`k` must be on the device of `logits`, cpu; got meta\."):
        projection(torch.randn(8, 1000), torch.full((8,), 5.0, device="meta"))


@pytest.mark.parametrize("temperature", [1e-39, 1e-30, 1e-3, 1e30])
@pytest.mark.parametrize("projection", [lml, sparse_top], ids=lambda op: op.__name__)
def test_gradients_of_any_size_at_any_temperature_are_those_of_tensors(projection, temperature, by_tensors, fresh):
    logits, upstream = torch.randn(64, 64, generator=fresh).requires_grad_(), torch.linspace(0, 1, 4096).view(64, 64)

    def run(size):
        return torch.autograd.grad(projection(logits, 5, temperature=temperature), logits, size * upstream)[0]

    for size in (1.0, 1e9, 1e33):
        mine, theirs = run(size), by_tensors(run, size)
        finite = theirs.isfinite()
        assert mine[finite].isfinite().all()
        assert torch.allclose(mine[finite], theirs[finite], rtol=1e-4, atol=1e-5 * size)

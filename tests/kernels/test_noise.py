"""A seed draws the same noise on every path: numba, tensor operations of the CPU and of accelerators, and Triton."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from shortlist.functional import noise as drawing
from shortlist.functional import noised_kth_largest, noised_topk
from shortlist.kernels import chooser
from tests.functional.paths import CHOICES

INF, NAN = math.inf, math.nan
ON_DEVICES = ["device", "triton"]


@pytest.fixture(autouse=True)
def _kernels_for_small_inputs(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)


def value_and_gradient(x: Tensor, k: int, function=noised_kth_largest, seed: int = 5, **options):
    x = x.clone().requires_grad_()
    value = function(x, k, generator=torch.Generator().manual_seed(seed), **options)
    return value.detach(), torch.autograd.grad(value.sum(), x)[0]


def on_path(monkeypatch, path: str, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setenv("SHORTLIST_KERNELS", CHOICES[path])
        return value_and_gradient(*arguments, **options)


SMALL = [((5, 2, 50), 3, 20.0), ((2, 300), 300, 1.0), ((2, 65), 40, 1.0), ((3, 1), 1, 1.0), ((7,), 1, 0.5)]
LARGE = [((40, 1000), 6, 1.0), ((9, 3001), 21, 0.1)]


@pytest.mark.parametrize(
    ("shape", "k", "epsilon", "path"),
    [(*case, path) for case in SMALL for path in CHOICES]
    # Interpreted kernels take seconds.
    + [pytest.param(*case, path, marks=[pytest.mark.slow] * (path == "triton")) for case in LARGE for path in CHOICES],
)
def test_a_seed_gives_the_same_noise_on_every_path_as_in_double_precision(path, shape, k, epsilon, fresh, monkeypatch):
    x = torch.randn(shape, generator=fresh)
    value, slope = on_path(monkeypatch, path, x, k, epsilon=epsilon)
    expected, shares = on_path(monkeypatch, "tensors", x.double(), k, epsilon=epsilon)
    assert torch.allclose(value.double(), expected, rtol=1e-6, atol=1e-6 * epsilon)
    assert torch.allclose(slope.double(), shares, atol=1e-6)


def hard_rows() -> Tensor:
    rows = torch.randn(10, 60, generator=torch.Generator().manual_seed(2))
    rows[0] *= 1e4
    rows[1] *= 1e38
    rows[2, :3] = 3e38
    rows[3, 3:] = -3e38
    rows[4] = 0.0  # ties
    rows[5, 20:] = -INF
    rows[6] = -INF
    rows[7, :2] = INF
    rows[8, 7] = NAN
    return rows


@pytest.mark.parametrize("path", CHOICES)
@pytest.mark.parametrize("k", [1, 3, 30, 60])
def test_hard_rows_are_drawn_alike_and_a_row_with_a_nan_is_nan(path, k, monkeypatch):
    x = hard_rows()
    value, slope = on_path(monkeypatch, path, x, k, samples=2)
    expected, shares = on_path(monkeypatch, "tensors", x.double(), k, samples=2)
    assert torch.allclose(value.double(), expected, rtol=1e-6, atol=1e-5, equal_nan=True)
    assert value.isnan().nonzero().flatten().tolist() == [8]
    assert torch.allclose(slope.sum(-1), torch.ones(10))
    settled = expected.abs() < 1e3  # noise vanishes beside giants, and any of equal ones may be the k-th
    assert torch.allclose(slope[settled].double(), shares[settled], atol=1e-6)


@pytest.mark.parametrize("k", [1, 5])
def test_the_size_of_blocks_does_not_change_what_is_drawn(k, fresh, monkeypatch):
    from shortlist.kernels.gpu import noise as gpu

    x = torch.randn(4, 150, generator=fresh)
    x[1] = 0
    x[2, 5:] = -INF
    x[3, 120] = NAN
    expected, shares = on_path(monkeypatch, "tensors", x.double(), k, samples=2)
    for row, block in [(128, 64), (64, 32)]:  # Elsewhere in these tests, a row is one block.
        monkeypatch.setattr(gpu, "LARGEST_ROW", row)
        monkeypatch.setattr(gpu, "LARGEST_BLOCK", block)
        assert gpu.fits(150, k, 2)
        value, slope = on_path(monkeypatch, "triton", x, k, samples=2)
        assert torch.allclose(value.double(), expected, rtol=1e-6, atol=1e-6, equal_nan=True)
        assert torch.allclose(slope.double()[:3], shares[:3], atol=1e-6)
    for entries in (1, 4000):
        monkeypatch.setattr(drawing, "_DEVICE_ENTRIES", entries)
        value, _ = on_path(monkeypatch, "device", x, k, samples=2)
        assert torch.allclose(value.double(), expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_long_rows_with_a_large_k_are_left_to_tensor_operations(fresh, monkeypatch):
    from shortlist.kernels.gpu import noise as gpu

    monkeypatch.setattr(gpu, "LARGEST_ROW", 64)
    monkeypatch.setattr(gpu, "LARGEST_BLOCK", 32)
    assert not gpu.fits(300, 150, 10)
    x = torch.randn(3, 300, generator=fresh)
    found = [on_path(monkeypatch, path, x, 150) for path in ("triton", "tensors")]
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-6)


@pytest.mark.parametrize("path", CHOICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_draws_what_float32_draws_and_adds_gradients_in_float32(path, dtype, fresh, monkeypatch):
    x = torch.randn(2, 50, generator=fresh).to(dtype)
    value, slope = on_path(monkeypatch, path, x, 3, samples=200)
    expected, shares = on_path(monkeypatch, "tensors", x.float(), 3, samples=200)
    assert (value.dtype, slope.dtype) == (torch.float32, dtype)
    assert torch.allclose(value, expected, rtol=1e-6)
    assert torch.allclose(slope, shares.to(dtype), rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("path", CHOICES)
def test_the_loss_and_its_gradient_are_those_of_double_precision(path, fresh, monkeypatch):
    x, y = torch.randn(3, 4, 50, generator=fresh), torch.randint(50, (3, 4), generator=fresh)

    def loss(x, k, **options):
        return noised_topk(x, y, k, reduction="none", margin=torch.linspace(0, 2, 50), **options)

    value, slope = on_path(monkeypatch, path, x, 5, loss)
    expected, slopes = on_path(monkeypatch, "tensors", x.double(), 5, loss)
    assert torch.allclose(value.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.allclose(slope.double(), slopes, atol=1e-6)


@pytest.mark.parametrize("path", CHOICES)
def test_vmap_and_no_rows_and_strides_draw_as_the_batch_does(path, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", CHOICES[path])
    x = torch.randn(40, 5, generator=fresh).mT
    with torch.random.fork_rng():
        torch.manual_seed(3)
        mapped = vmap(lambda row: noised_kth_largest(row, 3))(x)
        torch.manual_seed(3)
        assert torch.equal(mapped, noised_kth_largest(x.contiguous(), 3))
        torch.manual_seed(3)
        assert torch.equal(mapped, noised_kth_largest(x.mT, 3, dim=0))
    assert noised_kth_largest(x[:0], 3).shape == (0,)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("path", CHOICES)
def test_forward_mode_agrees_with_the_gradient(path, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", CHOICES[path])
    x, direction = torch.randn(2, 3, 30, generator=fresh)

    def drawn(x):
        return noised_kth_largest(x, 3, generator=torch.Generator().manual_seed(1))

    _, slope = jvp(drawn, (x,), (direction,))
    (share,) = vjp(drawn, x)[1](torch.ones(3))
    assert torch.allclose(slope, (share * direction).sum(-1), atol=1e-6)


def test_a_generator_of_the_cpu_serves_every_device():
    generator = torch.Generator().manual_seed(1)
    assert noised_kth_largest(torch.zeros(3, 30, device="meta"), 3, generator=generator).shape == (3,)


# The compiler of torch uses what torch deprecates: it instantiates autograd functions and scripts modules.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_compiled_code_draws_what_it_draws_without_the_compiler(fresh):
    torch.compiler.reset()
    x, y = torch.randn(6, 40, generator=fresh), torch.randint(40, (6,), generator=fresh)
    found = []
    for call in (noised_topk, torch.compile(noised_topk, backend="aot_eager", fullgraph=True)):
        inputs = x.clone().requires_grad_()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            loss = call(inputs, y, 5)
        found.append((loss, *torch.autograd.grad(loss, inputs)))
    for mine, theirs in zip(*found, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-6)


def test_the_operator_of_the_compiler_has_the_shapes_that_it_promises(fresh):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(6, 40, generator=fresh).to(dtype)
        torch.library.opcheck(drawing._cpu_op, (x, 3, 1.0, 4, torch.tensor(7)))


@pytest.mark.parametrize("path", ON_DEVICES)
def test_the_gradient_of_the_entries_can_be_differentiated(path, fresh, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", CHOICES[path])
    x = torch.randn(4, 30, generator=fresh, requires_grad=True)
    value = noised_kth_largest(x, 3, generator=fresh)
    (slope,) = torch.autograd.grad((value**2).sum() / 2, x, create_graph=True)
    weights = torch.randn(4, 30, generator=fresh)
    (again,) = torch.autograd.grad((slope * weights).sum(), x)
    (share,) = torch.autograd.grad(noised_kth_largest(x, 3, generator=fresh).sum(), x)
    assert again.shape == share.shape
    shares = (slope / value.unsqueeze(-1)).detach()
    assert torch.allclose(again, shares * (shares * weights).sum(-1, keepdim=True), rtol=1e-4, atol=1e-6)


def test_the_number_of_threads_does_not_change_what_is_drawn(fresh):
    x = torch.randn(64, 3000, generator=fresh)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(value_and_gradient(x, 5))
    finally:
        torch.set_num_threads(before)
    for one, several in zip(*found, strict=True):
        assert torch.equal(one, several)


def drawn_bits(rows: int, n: int, seed: int = 11) -> Tensor:
    """The bits of one sample of each row, from the definition."""
    word = torch.tensor(seed)
    factors, terms = drawing._label_words(word, n)
    return (factors * drawing._multipliers(word, torch.arange(rows), 1) + terms) % 2**32


@pytest.mark.parametrize("shape", [(30, 40_000), (40_000, 30)], ids=["over labels", "over draws"])
def test_draws_are_normal_and_not_correlated_and_neither_are_labels(shape):
    noise = drawing._normal(drawn_bits(*shape))
    noise = noise if shape[0] < shape[1] else noise.mT
    count = noise.shape[-1]
    for part in (noise, noise**2, noise.abs() > 2):
        spread = torch.corrcoef(part.double()) - torch.eye(len(noise))
        assert spread.abs().max() <= 5 / math.sqrt(count)
    levels = noise.sort(-1).values
    expected = (torch.arange(count) + 0.5) / count
    # Kolmogorov-Smirnov: once in 100,000 times, for each of 30.
    assert (torch.special.ndtr(levels) - expected).abs().max() <= 2.47 / math.sqrt(count)


def test_pairs_of_draws_fill_the_square_evenly():
    """The leading bits of two draws, and of a draw and its neighbour, over many labels: a chi-squared test."""
    bits, cells = drawn_bits(8, 200_000) >> 27, 32 * 32
    expected = bits.shape[1] / cells
    for first, second in [(0, 1), (0, 7), (3, 4)]:
        counts = torch.bincount(32 * bits[first] + bits[second], minlength=cells).double()
        statistic = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(statistic - (cells - 1)) <= 5 * math.sqrt(2 * (cells - 1))


def test_no_label_has_infinite_noise():
    bits = drawn_bits(50, 5000)
    assert (bits % 2 == 1).all()
    assert drawing._normal(torch.tensor([1, 2**32 - 1])).isfinite().all()

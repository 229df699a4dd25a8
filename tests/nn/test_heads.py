"""Every head: any leading dimensions and precision, saved, copied, compiled, under LML; cosines in particular."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from shortlist.nn import LML, AverageK, BottleneckHead, CosineHead, DFTHead, TwoHead
from tests.compiling import each_backend, whole_graph
from tests.contracts import HEADS

IN, N = 5, 9
each_head = pytest.mark.parametrize("head", HEADS, ids=str)


def features(*rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*rows, IN, generator=torch.Generator().manual_seed(1)).to(dtype)


def outputs(layer: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The logits of a head, or of both."""
    result = layer(*inputs)
    return result if isinstance(result, tuple) else (result,)


def is_close(first: nn.Module, second: nn.Module, x: Tensor, **tolerance: float) -> bool:
    return all(torch.allclose(a, b, **tolerance) for a, b in zip(outputs(first, x), outputs(second, x), strict=True))


@each_head
def test_any_leading_dimensions_give_the_logits_of_their_rows(head):
    layer, x = head(), features(2, 3)
    whole = outputs(layer, x)
    for shape in ((), (6,), (2, 3), (0,), (2, 0), (1, 2, 3)):
        rows = x[0, 0] if not shape else features(*shape)
        for logits in outputs(layer, rows):
            assert logits.shape == (*shape, N)
            logits.sum().backward()
    for logits, one in zip(whole, outputs(layer, x[1, 2]), strict=True):
        assert torch.allclose(logits[1, 2], one, atol=1e-6)


@each_head
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_head_works_in_every_precision(head, dtype):
    wide, layer, x = head().double(), head().to(dtype), features(4)
    for exact, logits in zip(outputs(wide, x.double()), outputs(layer, x.to(dtype)), strict=True):
        assert logits.dtype == dtype
        assert torch.allclose(logits.double(), exact, rtol=0, atol=40 * torch.finfo(dtype).eps)
        logits.sum().backward(retain_graph=True)
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    made = head(dtype=dtype)
    assert all(parameter.dtype == dtype for parameter in made.parameters())
    assert all(logits.isfinite().all() for logits in outputs(made, x.to(dtype)))


@each_head
def test_a_head_trains_under_autocast(head):
    layer, x = head(), features(4)
    with torch.autocast("cpu", torch.bfloat16):
        short = outputs(layer, x)
    for exact, logits in zip(outputs(layer, x), short, strict=True):
        assert torch.allclose(logits.float(), exact, rtol=0, atol=0.1)
    sum(logits.float().square().sum() for logits in short).backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in layer.parameters())


@each_head
def test_the_same_state_gives_the_same_logits(head):
    layer, other, x = head(), head(), features(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(0.5)
    assert not is_close(other, layer, x)
    other.load_state_dict(layer.state_dict())
    assert is_close(other, layer, x, rtol=0, atol=0)
    assert set(layer.state_dict()) == {name for name, _ in layer.named_parameters()}


@each_head
def test_a_head_created_on_the_meta_device_can_be_loaded_later(head):
    source, x = head(), features(3)
    layer = head(device="meta").to_empty(device="cpu")
    layer.load_state_dict(source.state_dict())
    assert is_close(layer, source, x, rtol=0, atol=0)


@each_head
def test_vmap_over_rows(head):
    layer, x = head().double(), features(4, dtype=torch.float64)
    mapped = outputs(torch.func.vmap(layer), x)
    assert all(torch.allclose(one, logits) for one, logits in zip(mapped, outputs(layer, x), strict=True))


@each_head
def test_gradients_are_right(head):
    layer, x = head().double(), features(3, dtype=torch.float64).requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(rows: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        state = dict(zip(names, parameters, strict=True))
        result = torch.func.functional_call(layer, state, (rows,))
        return result if isinstance(result, tuple) else (result,)

    assert torch.autograd.gradcheck(run, (x, *values))
    assert torch.autograd.gradgradcheck(run, (x, *values))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@each_backend
@each_head
def test_the_compiled_head_agrees_with_the_eager_one(head, backend):
    torch.compiler.reset()
    layer, x = head(), features(4)
    results = []
    for module in (layer, whole_graph(layer, backend)):
        logits = torch.cat(outputs(module, x))
        slopes = torch.autograd.grad(logits.square().sum(), list(layer.parameters()))
        results.append((logits.detach(), *slopes))
    for eager, fused in zip(*results, strict=True):
        assert torch.allclose(eager, fused, rtol=1e-4, atol=1e-5)


@each_head
def test_a_head_composes_with_lml(head):
    layer = head()
    probs = [LML(k=2)(logits) for logits in outputs(layer, features(6))]
    assert all(torch.allclose(p.sum(-1), torch.full((6,), 2.0)) for p in probs)
    sum((p * torch.arange(9.0)).sum() for p in probs).backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_a_bottleneck_is_two_products():
    layer, x = BottleneckHead(IN, N, 3), features(4)
    assert layer.weight.shape == (N, 3)
    assert layer.projection.out_features == 3
    assert torch.allclose(layer(x), layer.projection(x) @ layer.weight.T)
    assert torch.linalg.matrix_rank(layer(features(50)), tol=1e-4) == 3
    assert not hasattr(layer, "dft_degree")


def test_two_heads_return_logits_in_the_order_of_average_k():
    torch.manual_seed(0)
    prediction, proposal = DFTHead(IN, N, 2), CosineHead(IN, N)
    layer, x, target = TwoHead(prediction, proposal), features(4), torch.tensor([0, 3, 8, 3])
    logits, proposals = layer(x)
    assert torch.equal(logits, prediction(x))
    assert torch.equal(proposals, proposal(x))
    assert AverageK(3)(*layer(x), target) == AverageK(3)(prediction(x), proposal(x), target)


@pytest.mark.parametrize("head", [head for head in HEADS if head.module is not TwoHead], ids=str)
def test_features_of_another_size_are_refused(head):
    with pytest.raises(ValueError, match=r"`features` must have last size 5; got shape \(2, 4\)\."):
        head()(torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: BottleneckHead(0, 9, 3), ValueError, r"`in_features` must be at least 1; got 0\."),
        (lambda: BottleneckHead(5, 0, 3), ValueError, r"`num_labels` must be at least 1; got 0\."),
        (lambda: BottleneckHead(5, 9, 0), ValueError, r"`bottleneck` must be at least 1; got 0\."),
        (lambda: BottleneckHead(5, 9, 2.5), TypeError, r"`bottleneck` must be a whole number; got 2.5\."),
        (lambda: DFTHead(5, 9, 5), ValueError, r"`k` must lie in \[0, 4\], so that 2k \+ 1 <= 9 labels; got 5\."),
        (lambda: DFTHead(5, 9, 2, -1), ValueError, r"`slack` must be at least 0; got -1\."),
        (lambda: DFTHead(0, 9, 2), ValueError, r"`in_features` must be at least 1; got 0\."),
        (lambda: CosineHead(5, 9, scale=0), ValueError, r"`scale` must be positive; got 0\."),
        (lambda: TwoHead(nn.Linear(2, 3), None), TypeError, r"`proposal` must be a torch.nn.Module; got NoneType\."),
    ],
)
def test_wrong_sizes_are_refused_by_name(make, error, text):
    with pytest.raises(error, match=text):
        make()


PRECISIONS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def cosine() -> CosineHead:
    torch.manual_seed(0)
    return CosineHead(IN, 20)


def test_logits_are_the_scaled_cosines(cosine):
    expected = cosine_similarity(features(6)[:, None], cosine.weight, dim=-1)
    assert torch.allclose(cosine(features(6)), expected, atol=1e-6)
    assert cosine(features(1000)).abs().max() <= 1 + 1e-6
    larger = CosineHead(IN, 20, scale=30.0)
    larger.load_state_dict(cosine.state_dict())
    assert torch.allclose(larger(features(6)), 30 * expected, atol=3e-5)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_norms_do_not_matter_even_where_squares_overflow_or_underflow(cosine, dtype):
    cosine.to(dtype)
    x = features(6).to(dtype)
    factors = [2.0**-10, 2.0**10] if dtype == torch.float16 else [2.0**-60, 2.0**100]
    for factor in factors:
        y = (x * factor).requires_grad_()
        logits = cosine(y)
        assert torch.allclose(logits, cosine(x), rtol=0, atol=2 * torch.finfo(dtype).eps)
        logits.sum().backward()
        assert y.grad.isfinite().all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_zero_features_have_logits_zero_and_a_finite_gradient(cosine, dtype):
    cosine.to(dtype)
    with torch.no_grad():
        cosine.weight[3] = 0
    x = torch.zeros(2, IN, dtype=dtype)
    x[1, 2] = 1
    x.requires_grad_()
    logits = cosine(x)
    assert (logits[0] == 0).all()
    assert (logits[:, 3] == 0).all()
    logits.square().sum().backward()
    (cosine(x) * torch.arange(20)).sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[0] != 0).any()
    assert cosine.weight.grad.isfinite().all()


def test_a_one_hot_vector_has_the_exact_derivative(cosine):
    cosine.double()
    x = torch.zeros(1, IN, dtype=torch.float64)
    x[0, 4] = 2
    assert torch.autograd.gradcheck(cosine, x.requires_grad_())


def test_a_scale_is_learned_only_on_request():
    fixed, learned = CosineHead(IN, 20, scale=16.0), CosineHead(IN, 20, scale=16.0, learn_scale=True)
    assert [name for name, _ in fixed.named_parameters()] == ["weight"]
    assert sorted(name for name, _ in learned.named_parameters()) == ["scale", "weight"]
    learned.load_state_dict({"weight": fixed.weight.detach(), "scale": torch.tensor(16.0)})
    assert torch.equal(fixed(features(6)), learned(features(6)))
    learned(features(6)).square().sum().backward()
    assert learned.scale.grad > 0
    learned.reset_parameters()
    assert learned.scale == 16
    assert "scale=16.0" in repr(fixed)
    assert "scale=learned" in repr(learned)

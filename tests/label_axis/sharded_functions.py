"""Run by test_processes.py: functions of sharded labels beside the same ones on one process.

Each process has the whole problem, so that it computes the plain answer, too, and reports where the other one differs.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._dynamo  # loaded by the first DTensor: here once for all processes
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from shortlist import functional as F
from shortlist import nn, targets

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-2}
SHAPES = [(3, 12), (4, 7), (5, 3), (2, 1), (2, 2, 9), (6,), (0, 5), (2, 101)]
"""Of logits: among them labels that do not divide, fewer labels than processes, and no rows."""
PROJECTIONS = [F.lml, F.log_lml, F.lml_dual, F.sparse_top]
LOSSES: dict[str, Callable[..., Tensor]] = {
    "lml_nll": lambda x, target, **options: F.lml_nll(x, target, 0.6 * x.shape[-1], temperature=1.3, **options),
    "bce": F.bce,
    "asymmetric": F.asymmetric,
    "two_way": lambda x, target, **options: F.two_way(x, target, margin=0.3, **options),
    "two_way by rows": lambda x, target, **options: F.two_way(x, target, kind="sample", **options),
    "two_way by classes": lambda x, target, **options: F.two_way(x, target, kind="class", **options),
}
Case = Callable[[Any], list[str]]


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def own(x: Tensor, mesh: Any, dim: int = -1) -> Tensor:
    """The part of ``x`` that this process has when its labels are along ``dim``: torch gives the first ones more."""
    step = math.ceil(x.shape[dim] / mesh.size())
    first = min(mesh.get_local_rank() * step, x.shape[dim])
    return x.narrow(dim, first, min(step, x.shape[dim] - first))


def shard(x: Tensor, mesh: Any, dim: int = -1) -> DTensor:
    """What ``distribute_tensor`` gives, without a message."""
    local = own(x.detach(), mesh, dim).clone()
    return DTensor.from_local(local, mesh, [Shard(dim % x.ndim)], shape=x.shape, stride=x.contiguous().stride())


def whole(x: Tensor) -> Tensor:
    """All of a result, on every process."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def compared(what: str, got: Tensor, wanted: Tensor, mesh: Any, tolerance: float) -> list[str]:
    """Say where the part of ``got`` on this process is not that of ``wanted``."""
    if not isinstance(got, DTensor):
        return differences(what, got, wanted, tolerance)
    if got.shape != wanted.shape:
        return [f"{what}: {tuple(got.shape)} instead of {tuple(wanted.shape)}"]
    part = own(wanted, mesh, got.placements[0].dim) if got.placements[0].is_shard() else wanted
    return differences(what, got.to_local(), part, tolerance)


def differences(what: str, got: Tensor, wanted: Tensor, tolerance: float) -> list[str]:
    """Say where two tensors are not the same."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return [f"{what}: {got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"]
    got, wanted = got.detach().double(), wanted.detach().double()
    if what.startswith("gradient"):  # of rows that are NaN
        got = got.masked_fill(wanted.isnan(), math.nan)
    if torch.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True):
        return []
    off = torch.where((got == wanted) | (got.isnan() & wanted.isnan()), 0, got - wanted).abs().nan_to_num(nan=math.inf)
    place = int(off.reshape(-1).argmax())
    return [f"{what}: {got.reshape(-1)[place].item()} instead of {wanted.reshape(-1)[place].item()} at {place}"]


def unless_refused(call: Callable[[], Any], text: str) -> list[str]:
    try:
        call()
    except (TypeError, ValueError, RuntimeError) as error:
        return [] if text in str(error) else [f"{error} instead of {text}"]
    return [f"nothing instead of {text}"]


def beside(
    mesh: Any, run: Callable[..., Tensor], x: Tensor, *others: Tensor, dim: int = -1, tolerance: float | None = None
) -> list[str]:
    """Values and gradients of ``run(x, *others)`` with ``x`` sharded along ``dim``, and with it whole."""
    tolerance = TOLERANCE[x.dtype] if tolerance is None else tolerance
    plain = [part.clone().requires_grad_() for part in (x, *others)]
    mine = [shard(x, mesh, dim).requires_grad_(), *(part.clone().requires_grad_() for part in others)]
    wanted, got = run(*plain), run(*mine)
    if not isinstance(got, DTensor):
        return ["the result is no DTensor"]
    found = compared("value", got, wanted, mesh, tolerance)
    finite = wanted.detach().isfinite()
    upstream = torch.where(finite, numbers(*wanted.shape, seed=99, dtype=wanted.dtype), 0)
    torch.where(finite, wanted, 0).backward(upstream)
    got.to_local().backward(own(upstream, mesh, got.placements[0].dim) if got.placements[0].is_shard() else upstream)
    for i, (a, b) in enumerate(zip(mine, plain, strict=True)):
        found += compared(f"gradient {i}", a.grad, b.grad, mesh, tolerance)
    return found


def per_row(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A k for each row, between 0 and n."""
    generator = torch.Generator().manual_seed(5)
    return (torch.rand(shape[:-1], generator=generator, dtype=torch.float64) * shape[-1]).to(dtype)


def projected(op: Callable[..., Tensor], mesh: Any) -> list[str]:
    found = []
    for shape in SHAPES:
        run = lambda x, k: op(x, k, temperature=0.7)
        found += beside(mesh, run, numbers(*shape), per_row(shape, torch.float64))
    for k in (0, 1, 2.5, 7):
        found += beside(mesh, partial(op, k=k), numbers(3, 7))
    return found


def projected_in_other_ways(op: Callable[..., Tensor], mesh: Any) -> list[str]:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        found += beside(mesh, op, numbers(4, 11, dtype=dtype), per_row((4, 11), dtype))
    x, mask = numbers(3, 5, 4), numbers(3, 5, 1, seed=3) > -1
    for dim, k in ((0, 1.3), (1, 2.2), (-2, torch.full((3, 1, 4), 1.7))):
        found += beside(mesh, partial(op, k=k, dim=dim), x, dim=dim)
        found += beside(mesh, partial(op, k=k, dim=dim, mask=mask), x, dim=dim)

    def masked_alike(x: Tensor) -> Tensor:
        both = mask.expand(3, 5, 4)
        return op(x, 1.7, dim=1, mask=shard(both, mesh, 1) if isinstance(x, DTensor) else both)

    return found + beside(mesh, masked_alike, x, dim=1)


INF = math.inf
EXTREMES = {
    "a gap of a thousand": [1000.0, 0.0, 0.2, -1000.0, 3.0, 4.1],
    "an offset of a million": [1e6 + 1, 1e6, 1e6 - 1, 1e6 + 3, 1e6 + 0.5, 1e6],
    "equal": [2.0] * 6,
    "in two groups": [1e3, 1e3, 1e3, 0.0, 0.0, 0.0],
    "some absent": [1.0, -INF, 2.0, -INF, 0.1, 0.6],
    "few present": [1.0, -INF, -INF, -INF, -INF, 0.0],
    "none present": [-INF] * 6,
    "a certain one": [INF, 1.0, 0.0, 2.0, -1.0, -INF],
    "not a number": [1.0, 2.0, math.nan, 0.0, 1.0, 2.0],
    "huge": [1e30, 0.0, 5.0, 6.0, 7.0, -1e30],
}


def projected_extremes(op: Callable[..., Tensor], mesh: Any) -> list[str]:
    found = []
    # Logits of 500 in float32 have 5 digits after the point, and so have the shares of the gradient.
    for dtype, tolerance, ks in ((torch.float64, 1e-7, (1.7, 6.0)), (torch.float32, 1e-4, (0.0, 2.6, 5.5))):
        x = torch.tensor(list(EXTREMES.values()), dtype=dtype)
        for k in ks:
            found += beside(mesh, op, x, torch.full((len(x),), k, dtype=dtype), tolerance=tolerance)
    broken = torch.tensor([-1.0, 7.0, math.nan, 1.5])
    return found + beside(mesh, partial(op, k=broken), numbers(4, 6))


def forms(n: int, *, one_class: bool = False) -> dict[str, Tensor]:
    """Labels of five rows in every form; the first has none, the last many, and two have unknown ones."""
    generator = torch.Generator().manual_seed(n)
    hot = torch.rand(5, n, generator=generator) < 0.3
    hot[0], hot[1, 0], hot[4] = False, True, True
    hot[4, n // 3] = n == 1
    known = hot.double()
    known[3, n // 2], known[2] = -1, known[2].masked_fill(torch.rand(n, generator=generator) < 0.3, -1)
    return {
        "class indices": torch.tensor([0, n - 1, n // 2, 0, n - 1]),
        "index lists": targets.to_index_lists(hot, n),
        "bool multi-hot": hot,
        "multi-hot": known,
        "soft multi-hot": 0.7 * known,
        "sparse COO": targets.to_sparse(known, n),
        "sparse CSR": targets.to_sparse(known, n, layout=torch.sparse_csr),
        "sparse bool": targets.to_sparse(hot, n, dtype=torch.bool),
    }


def loss_of_forms(name: str, mesh: Any) -> list[str]:
    found, reductions = [], ["mean", "sum", "none"]
    for n in (13, 3):
        x, weight = numbers(5, n), torch.rand(n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        for i, (form, target) in enumerate(forms(n).items()):
            options = {"reduction": reductions[(i + n) % 3], "weight": weight if i % 2 else None}
            wrong = beside(mesh, partial(LOSSES[name], target=target, **options), x)
            found += [f"{form}, {options['reduction']}, {n} labels: {each}" for each in wrong]
    return found


def loss_in_other_ways(name: str, mesh: Any) -> list[str]:
    loss, target = LOSSES[name], forms(9)["multi-hot"]
    weight = torch.rand(9, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1

    def alike(x: Tensor, weight: Tensor) -> Tensor:
        if not isinstance(x, DTensor):
            return loss(x, target, weight=weight, reduction="sum")
        return loss(x, shard(target, mesh), weight=weight, reduction="sum")

    found = beside(mesh, alike, numbers(5, 9), weight)  # weights that learn
    sharded_weight = shard(weight, mesh)
    pick = lambda x: sharded_weight if isinstance(x, DTensor) else weight
    found += beside(mesh, lambda x: loss(x, target, weight=pick(x)), numbers(5, 9))
    for dtype in (torch.float32, torch.bfloat16):
        x = numbers(5, 9, dtype=dtype)
        found += beside(mesh, lambda x: loss(x, target), x, tolerance=TOLERANCE[dtype])
    x = numbers(2, 3, 9)
    found += beside(mesh, lambda x: loss(x, torch.tensor([[[1, 8], [0, -1], [-1, -1]], [[3, 4], [5, 2], [8, -1]]])), x)
    found += beside(mesh, lambda x: loss(x, torch.zeros(0, 9)), numbers(0, 9))
    x = numbers(5, 9)
    x[1, 2], x[2, 0], x[3, 8] = -INF, 500.0, -INF
    found += beside(mesh, lambda x: loss(x, forms(9)["index lists"]), x)
    x[0, 4] = math.nan
    return found + beside(mesh, lambda x: loss(x, forms(9)["index lists"], reduction="sum"), x)


def learned_k(mesh: Any) -> list[str]:
    x, k = numbers(5, 9), per_row((5, 9), torch.float64).clamp(min=0.5)
    found = beside(mesh, lambda x, k: F.lml_nll(x, forms(9)["index lists"], k), x, k)
    return found + beside(
        mesh, lambda x, k: F.lml_nll(x, torch.tensor([0, 1, 8, 3, 3]), k), x, torch.tensor(2.0).double()
    )


def a_process_without_labels(mesh: Any) -> list[str]:
    """One label in all: backwards the process that has it would wait for the others, if they had nothing to add."""
    x, k, weight, found = numbers(5, 1), per_row((5, 1), torch.float64), torch.tensor([0.7]).double(), []
    for form, target in forms(1).items():
        for name, loss in LOSSES.items():
            run = lambda x, weight, loss=loss, target=target: loss(x, target, weight=weight)
            wrong = beside(mesh, run, x, weight)
            found += [f"{name}, {form}: {each}" for each in wrong]
        learned = lambda x, k, weight, target=target: F.lml_nll(x, target, k, weight=weight)
        found += beside(mesh, learned, x, k, weight)
    return found


def modules(mesh: Any) -> list[str]:
    x, target, found = numbers(5, 9), forms(9)["sparse COO"], []
    for module in (nn.LMLNLL(2), nn.TwoWay(), nn.BCE(weight=torch.rand(9)), nn.Asymmetric()):
        found += beside(mesh, partial(module, target=target), x)
    for module in (nn.LML(2), nn.LogLML(2), nn.SparseTop(2.5), nn.Sparsemax()):
        found += beside(mesh, module, x)
    return found


def backward_as_always(mesh: Any) -> list[str]:
    """What a training does with a loss."""
    x, target = numbers(4, 9), torch.tensor([0, 8, 3, 3])
    plain, sharded = x.clone().requires_grad_(), shard(x, mesh).requires_grad_()
    loss = F.lml_nll(sharded, target, 2) + 0.5 * F.two_way(sharded, target)
    wanted = F.lml_nll(plain, target, 2) + 0.5 * F.two_way(plain, target)
    wanted.backward()
    loss.backward()
    off = [] if abs(loss.item() - wanted.item()) < 1e-9 else [f"{loss.item()} instead of {wanted.item()}"]
    placed = [] if sharded.grad.placements == sharded.placements else ["the gradient is placed otherwise"]
    return off + placed + differences("gradient", whole(sharded.grad), plain.grad, 1e-9)


CASES: dict[str, Case] = {}
for _op in PROJECTIONS:
    _name = _op.__name__
    CASES[f"{_name}: any shape, any k"] = lambda mesh, op=_op: projected(op, mesh)
    CASES[f"{_name}: other dtypes, axes and masks"] = lambda mesh, op=_op: projected_in_other_ways(op, mesh)
    CASES[f"{_name}: extreme rows"] = lambda mesh, op=_op: projected_extremes(op, mesh)
for _loss in LOSSES:
    CASES[f"{_loss}: every form of labels"] = lambda mesh, name=_loss: loss_of_forms(name, mesh)
    CASES[f"{_loss}: weights, dtypes, shapes, infinite logits"] = lambda mesh, name=_loss: loss_in_other_ways(
        name, mesh
    )
CASES["lml_nll: a k that learns"] = learned_k
CASES["a weight learns where a process has no labels"] = a_process_without_labels
CASES["modules of projections and losses"] = modules
CASES["a sum of losses goes backward"] = backward_as_always

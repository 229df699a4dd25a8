"""Run by test_processes.py: set rules and output layers of sharded labels, what crosses the wire, what is refused."""

import copy
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from shortlist import functional as F
from shortlist import nn, targets
from shortlist.sets import AverageError, AverageK, SetRule, TopK
from shortlist.sets.rule import Draw
from tests.label_axis.sharded_functions import CASES, Case, differences, forms, numbers, shard, unless_refused, whole
from tests.process_group import differing

ROWS = 24


def scores(kind: str, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    if kind == "ties":
        return torch.randint(4, (ROWS, n), generator=generator) / 4
    x = 3 * torch.randn(ROWS, n, generator=generator)
    x[3], x[5, 0] = -math.inf, -math.inf
    return x


def same_rule(make: Callable[[], SetRule], x: Tensor, mesh: Any, *, batch: int, from_logits: bool) -> list[str]:
    """A rule fitted and asked on sharded scores beside the same one on plain scores."""
    plain, mine = make(), make()
    for start in range(0, len(x), batch):
        plain.partial_fit(x[start : start + batch], from_logits=from_logits)
        mine.partial_fit(shard(x[start : start + batch], mesh), from_logits=from_logits)
    plain.finish()
    mine.finish()
    found = [] if plain.evidence == mine.evidence else [f"{mine.evidence} instead of {plain.evidence}"]
    for (name, a), b in zip(mine.named_buffers(), plain.buffers(), strict=True):
        found += differences(name, a, b, 1e-6 if from_logits else 0.0)
    first, second = Draw(), Draw()
    for start in range(0, len(x), 9):  # ties go on from call to call
        part = x[start : start + 9]
        wanted, got = plain.predict(part, draw=first), mine.predict(shard(part, mesh), draw=second)
        found += differences("labels", got.labels, wanted.labels, 0.0)
        found += differences("ends", got.indptr, wanted.indptr, 0.0)
        found += differences("scores", got.scores, wanted.scores, 1e-6)
    if first.seen != second.seen:
        found.append(f"{second.seen} ties instead of {first.seen}")
    three = x.reshape(4, 6, -1)
    return found + differences("mask", whole(mine(shard(three, mesh))), plain(three), 0.0)


def rules(make: Callable[[int], SetRule], mesh: Any) -> list[str]:
    found = []
    for n, kind, link, batch in ((13, "ties", "sigmoid", 7), (3, "ties", "softmax", 24), (9, "logits", "softmax", 5)):
        with_link = lambda n=n, link=link: make(n, link=link)
        found += same_rule(with_link, scores(kind, n), mesh, batch=batch, from_logits=kind == "logits")
    one_sided = same_rule(
        lambda: make(7, link="sigmoid"), scores("logits", 7).double(), mesh, batch=24, from_logits=True
    )
    return found + one_sided + same_rule(lambda: make(5), scores("logits", 5), mesh, batch=8, from_logits=False)


@contextmanager
def listening() -> Iterator[list[int]]:
    """How many numbers each message to other processes holds."""
    sizes: list[int] = []
    reduce, gather = dist.all_reduce, dist.all_gather

    def all_reduce(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        sizes.append(tensor.numel())
        return reduce(tensor, *arguments, **options)

    def all_gather(parts: list[Tensor], tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        sizes.append(tensor.numel())
        return gather(parts, tensor, *arguments, **options)

    dist.all_reduce, dist.all_gather = all_reduce, all_gather
    try:
        yield sizes
    finally:
        dist.all_reduce, dist.all_gather = reduce, gather


def wire(mesh: Any) -> list[str]:
    """A few numbers per row and round, and few rounds, forward and backward."""
    rows, n = 8, 3000
    x, target = numbers(rows, n, dtype=torch.float32), torch.arange(rows * 3).view(rows, 3) * 125
    runs: dict[str, Callable[[Tensor], Tensor]] = {
        "lml": lambda x: F.lml(x, 5),
        "log_lml": lambda x: F.log_lml(x, 5),
        "sparse_top": lambda x: F.sparse_top(x, 5),
        "lml_nll": lambda x: F.lml_nll(x, target, 5),
        "two_way": lambda x: F.two_way(x, target),
        "bce": lambda x: F.bce(x, target),
    }
    found = []
    for name, run in runs.items():
        with listening() as sizes:
            result = run(shard(x, mesh).requires_grad_())
            result.to_local().sum().backward()
        if not sizes or max(sizes) > 6 * rows or len(sizes) > 12:
            found.append(f"{name}: {len(sizes)} rounds, up to {max(sizes)} numbers")
    rule = TopK(5).fit(shard(x, mesh), from_logits=True)
    with listening() as sizes:
        rule.predict(shard(x, mesh))
    if max(sizes) > 3 * 5 * rows or len(sizes) > 4:  # score, label and probability
        found.append(f"TopK: {len(sizes)} rounds, up to {max(sizes)} numbers")
    with listening() as sizes:
        AverageK(5).fit(shard(x, mesh), from_logits=True)
    return found if max(sizes) <= 2 * rows else [*found, f"AverageK: up to {max(sizes)} numbers"]


def refused(mesh: Any) -> list[str]:
    """One sentence, the same on every process."""
    x, target = shard(numbers(4, 9), mesh), torch.tensor([0, 1, 2, 3])
    rows = distribute_tensor(numbers(4, 9), mesh, [Shard(0)])
    copies = distribute_tensor(numbers(4, 9), mesh, [Replicate()])
    square = init_device_mesh("cpu", (1, mesh.size()))
    on_square = distribute_tensor(numbers(4, 9), square, [Replicate(), Shard(1)])
    uneven = [9 - mesh.size() + 1] + [1] * (mesh.size() - 1)
    own = numbers(4, uneven[mesh.get_local_rank()])
    other = DTensor.from_local(own, mesh, [Shard(1)], shape=torch.Size((4, 9)), stride=(9, 1))
    head = nn.ColumnParallelHead(5, 9, mesh)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: F.lml(rows, 2), "`logits` must be sharded along its labels, Shard(1); got Shard(dim=0)"),
        (lambda: F.sparse_top(copies, 2), "`logits` must be sharded along its labels, Shard(1); got Replicate()"),
        (lambda: F.lml(x, 2, dim=0), "`logits` must be sharded along its labels, Shard(0); got Shard(dim=1)"),
        (lambda: F.lml_nll(on_square, target, 2), "Take the sub-mesh of the labels."),
        (lambda: F.lml(other, 2), "must be sharded as by `distribute_tensor`"),
        (lambda: F.lml(x, 10), "`k` must lie in [0, 9]; got 10."),
        (lambda: F.lml(x, 2, dim=2), "`dim` must lie in [-2, 1]; got 2."),
        (lambda: F.sparse_top(x, torch.ones(3)), "one value per row, shape (4,); got (3,)"),
        (lambda: F.lml(x, shard(torch.ones(4), mesh)), "`k` must be a plain tensor or replicated"),
        (lambda: F.lml(x, 2, mask=torch.ones(3, 9) > 0), "`mask` must broadcast to the shape of `logits` (4, 9)"),
        (lambda: F.lml(x, 2, mask=shard(torch.ones(9) > 0, mesh)), "a sharded `mask` must have the shape of `logits`"),
        (lambda: F.log_lml(x, 2, temperature=0), "`temperature` must be positive and finite; got 0."),
        (lambda: F.lml_nll(x, target, 0), "`k` must be positive for a likelihood; got 0."),
        (lambda: F.lml_nll(x, target + 7, 2), "`target` row 2: labels must lie in [0, 9)"),
        (lambda: F.two_way(x, target[:3]), "`target` must have the rows of `logits`, (4,)"),
        (lambda: F.bce(x, shard(numbers(4, 8), mesh)), "a sharded `target` must have the shape of `logits` (4, 9)"),
        (lambda: F.bce(x, target, weight=torch.ones(5)), "`weight` must have one value per label, shape (9,)"),
        (lambda: F.two_way(x, target, reduction="max"), '`reduction` must be "mean", "sum" or "none"'),
        (lambda: AverageError(0.1).fit(x, target, from_logits=True), "only AverageK and TopK take scores whose labels"),
        (lambda: TopK(2).fit(rows, from_logits=True), "`scores` must be sharded along its labels"),
        (lambda: TopK(2).fit(shard(x_with_nan(), mesh), from_logits=True), "NaN or infinite; row 2 violates this."),
        (lambda: AverageK(2).partial_fit(whole(x), from_logits=True).partial_fit(x, from_logits=True), "or in none"),
        (lambda: head(numbers(2, 4, dtype=torch.float32)), "`features` must have last size 5"),
        (lambda: head(x), "`features` must be a plain tensor"),
        (lambda: nn.ColumnParallelHead(5, 9, square), "`mesh` must have one dimension"),
        *((lambda run=run: twice(run, x), "differentiated once; got a second derivative") for run in once_only(target)),
        (
            lambda: F.cross_entropy(x, target),
            "`logits` must be a plain tensor; got a DTensor, which this function does not accept",
        ),
        (
            lambda: F.sparse_top_loss(x, target),
            "`logits` must be a plain tensor; got a DTensor, which this function does not accept",
        ),
    ]
    return [wrong for call, text in calls for wrong in unless_refused(call, text)]


def x_with_nan() -> Tensor:
    x = numbers(4, 9)
    x[2, 8] = math.nan
    return x


def once_only(target: Tensor) -> list[Callable[[Tensor], Tensor]]:
    projections = [lambda x, op=op: op(x, 2) for op in (F.lml, F.log_lml, F.lml_dual, F.sparse_top)]
    return [*projections, lambda x: F.lml_nll(x, target, 2), lambda x: F.two_way(x, target)]


def twice(run: Callable[[Tensor], Tensor], x: Tensor) -> None:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(run(x).to_local().square().sum(), x, create_graph=True)
    torch.autograd.grad(gradient.to_local().square().sum(), x)


def layer(mesh: Any) -> list[str]:
    """A head and a layer below it learn what they learn on one process, and so does torch's own layer."""
    features, target, found = numbers(6, 5, dtype=torch.float32), forms(11)["index lists"][[0, 1, 2, 3, 4, 0]], []
    torch.manual_seed(1)
    head, below = nn.ColumnParallelHead(5, 11, mesh), torch.nn.Linear(5, 5)
    plain, plain_below = torch.nn.Linear(5, 11), copy.deepcopy(below)
    plain.load_state_dict({name: whole(value.detach()) for name, value in head.state_dict().items()})
    torch_head = parallelize_module(
        copy.deepcopy(plain), mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    )
    found += differences("torch's own", whole(torch_head(features)), plain(features), 1e-6)
    models = [(head, below), (plain, plain_below)]
    for model in models:
        optimizer = torch.optim.Adam([p for part in model for p in part.parameters()], lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            logits = model[0](model[1](features))
            (F.lml_nll(logits, target, 3) + F.two_way(logits, target)).backward()
            optimizer.step()
    for mine, wanted in zip(models[0], models[1], strict=True):
        for (name, a), b in zip(mine.named_parameters(), wanted.parameters(), strict=True):
            found += differences(name, whole(a.detach()), b.detach(), 1e-5)
    return found + kept(head, mesh)


def kept(head: nn.ColumnParallelHead, mesh: Any) -> list[str]:
    """Saved and loaded, whole and in parts; begun alike for any number of processes."""
    found, other = [], nn.ColumnParallelHead(5, 11, mesh)
    other.load_state_dict({name: whole(value.detach()) for name, value in head.state_dict().items()})
    found += differences("loaded", whole(other.weight.detach()), whole(head.weight.detach()), 0.0)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    checkpoint.save(head.state_dict(), checkpoint_id=folder[0])
    other.reset_parameters()
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=folder[0])
    other.load_state_dict(state)
    found += differences("read", whole(other.bias.detach()), whole(head.bias.detach()), 0.0)
    dist.barrier()
    shutil.rmtree(folder[0], ignore_errors=True)
    torch.manual_seed(7 if mesh.get_local_rank() == 0 else 8)
    start = nn.ColumnParallelHead(3, 9000, mesh, bias=False).weight.full_tensor().detach()
    torch.manual_seed(7)
    seed = int(torch.randint(1 << 62, (1,)))
    blocks = [(4096, seed), (4096, seed + 1), (9000 - 8192, seed + 2)]
    drawn = [torch.rand(size, 3, generator=torch.Generator().manual_seed(each)) for size, each in blocks]
    return found + differences("start", start, (torch.cat(drawn) * 2 - 1) / math.sqrt(3), 1e-6)


def sparse_forms_stay_sparse(mesh: Any) -> list[str]:
    """Each process picks its labels from lists and sparse rows without a table of all labels."""
    from shortlist.functional.losses.labeled_logits import read_labeled

    x, found = shard(numbers(5, 1000, dtype=torch.float32), mesh), []
    for form in ("class indices", "index lists", "sparse COO", "sparse CSR"):
        target = forms(1000)[form]
        stored = target.numel() if target.layout == torch.strided else len(targets.stored_entries(target)[0])
        entries = read_labeled(x, target).labels.values.numel()
        if entries > stored:
            found.append(f"{form}: {entries} entries")
    return found


RULES: dict[str, Case] = {
    "TopK answers": lambda mesh: rules(lambda n, **link: TopK(min(2, n), **link), mesh),
    "TopK answers with a least size": lambda mesh: rules(lambda n, **link: TopK(1, min_size=min(3, n), **link), mesh),
    "AverageK answers": lambda mesh: rules(lambda n, **link: AverageK(1.37, **link), mesh),
    "AverageK answers with a least size": lambda mesh: rules(lambda n, **link: AverageK(0.3, min_size=1, **link), mesh),
    "AverageK with none and with all labels": lambda mesh: (
        rules(lambda n, **link: AverageK(0, **link), mesh) + rules(lambda n, **link: AverageK(n, **link), mesh)
    ),
    "an output layer learns, is saved and begins alike": layer,
    "only a few numbers per row cross the wire": wire,
    "what is not sharded along its labels is refused": refused,
    "labels of index and sparse forms stay few": sparse_forms_stay_sparse,
}


def find_differences() -> dict[str, list[str]]:
    return differing(CASES | RULES)

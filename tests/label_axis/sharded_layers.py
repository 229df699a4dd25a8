"""Run by test_processes.py: layers whose labels are on several processes, each computed block by block.

Each process has the whole problem, too, and reports where its part of the sharded answer differs from the plain one.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from shortlist.functional import LinearLogits
from tests.label_axis.linear_cases import FORMS, LOSSES, ONE_CLASS, Layer, draw_hot
from tests.label_axis.sharded_functions import differences, shard, unless_refused, whole
from tests.process_group import differing

SHAPES = [((4,), 23), ((2, 3), 9), ((3,), 2), ((0,), 5)]
"""Rows and labels: among them labels that do not divide, fewer labels than processes, and no rows."""
K = 3


def shards(layer: Layer, mesh: Any) -> list[Tensor]:
    """Weight and bias with their labels over the processes."""
    return [shard(part, mesh, 0).requires_grad_() for part in (layer.weight, layer.bias)]


def sharded(layer: Layer, mesh: Any, block: int | None) -> tuple[LinearLogits, list[Tensor]]:
    """The same layer with its labels over the processes, and what wants a gradient of it."""
    parts = [layer.features.detach().clone().requires_grad_(), *shards(layer, mesh)]
    return LinearLogits(*parts, label_block=block), parts


def compare_loss(name: str, mesh: Any) -> Iterator[str]:
    """Values and gradients of all shapes, forms, reductions and weights."""
    for i, (rows, n) in enumerate(SHAPES):
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
            layer = Layer.draw(*rows, n=n, dtype=dtype)
            hot = draw_hot(*rows, n=n, one=name in ONE_CLASS, unknown=i % 2 == 0)
            form = ["COO", "multi-hot", "lists", "multi-hot"][i]
            target = FORMS[form](hot)
            weight = torch.linspace(0.5, 2, n, dtype=dtype) if dtype == torch.float64 else None
            for reduction in ("mean", "sum") if LOSSES[name].entrywise else ("mean", "sum", "none"):
                options = {"weight": weight, "reduction": reduction}
                yield from compare(name, layer, target, options, mesh, tolerance)


def compare(
    name: str, layer: Layer, target: Tensor, options: dict[str, Any], mesh: Any, tolerance: float
) -> Iterator[str]:
    k = min(K, layer.weight.shape[0])
    logits, parts = sharded(layer, mesh, 4)
    value = LOSSES[name](logits, target, k, **options)
    wanted = LOSSES[name](layer.dense(), target, k, **options)
    about = f"{tuple(layer.features.shape)} {len(layer.weight)} {layer.weight.dtype} {options['reduction']}"
    yield from differences(f"{about} value", whole(value), wanted, tolerance)
    for part in layer.parts:
        part.grad = None
    value.sum().backward()
    wanted.sum().backward()
    for label, part, plain in zip(("features", "weight", "bias"), parts, layer.parts, strict=True):
        yield from differences(f"{about} gradient in {label}", whole(part.grad), plain.grad, tolerance)


def best_labels(mesh: Any) -> Iterator[str]:
    """Ties and absent labels, too."""
    for rows, n in SHAPES:
        layer = Layer.draw(*rows, n=n)
        with torch.no_grad():
            for part in layer.parts:
                part.round_()
            layer.bias[::4] = -math.inf
        logits, _ = sharded(layer, mesh, 4)
        values, labels = layer.dense().detach().sort(dim=-1, descending=True, stable=True)
        for k in (0, 1, n):
            best = logits.topk(k)
            if not torch.equal(best.labels, labels[..., :k]) or not torch.equal(best.values, values[..., :k]):
                yield f"{rows} {n} {k}: {best} instead of {values[..., :k]} {labels[..., :k]}"
        yield from differences("dense", whole(logits.dense()), layer.dense(), 1e-12)


def learned_k(mesh: Any) -> Iterator[str]:
    """One k per row, with a gradient; among them one for all labels, and saturated rows."""
    layer, hot = Layer.draw(4, n=23), draw_hot(4, n=23, one=False, unknown=False)
    with torch.no_grad():
        layer.weight[5:9] += 900
    results = []
    for logits in (sharded(layer, mesh, 4)[0], layer.dense()):
        k = torch.tensor([1.0, 2.5, 22.0, 23.0], dtype=torch.float64, requires_grad=True)
        value = LOSSES["lml_nll"](logits, hot, k)
        value.backward()
        results.append((value, k.grad))
    for what, got, wanted in zip(("value", "gradient in k"), *results, strict=True):
        yield from differences(what, whole(got), wanted, 1e-9)


def refusals(mesh: Any) -> Iterator[str]:
    """What cannot be understood is refused in one sentence, on every process."""
    layer = Layer.draw(4, n=8)
    features, (weight, bias) = layer.features, shards(layer, mesh)
    copies = DTensor.from_local(layer.weight.detach(), mesh, [Replicate()])
    hot = shard(torch.zeros(4, 8), mesh, 0)
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("`weight` must be sharded along its labels, Shard(0)", lambda: LinearLogits(features, copies)),
        ("`bias` must be sharded like `weight`", lambda: LinearLogits(features, layer.weight, bias)),
        (
            "`features` must be a plain tensor or replicated",
            lambda: LinearLogits(shard(features, mesh, 0), weight, bias),
        ),
        (
            "`target` must be a plain tensor or replicated",
            lambda: LOSSES["bce"](LinearLogits(features, weight), hot, K),
        ),
    ]
    for said, call in wrong:
        yield from unless_refused(call, said)


CASES: dict[str, Callable[[Any], Iterator[str]]] = {
    **{name: lambda mesh, name=name: compare_loss(name, mesh) for name in LOSSES},
    "the best labels": best_labels,
    "a k that learns": learned_k,
    "what is refused": refusals,
}


def find_differences() -> dict[str, list[str]]:
    return differing(CASES)

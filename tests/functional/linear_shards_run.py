"""Run by test_linear_logits_sharded.py as a program: layers whose labels are on several processes, block by block.

Each process has the whole problem, too, and reports where its part of the sharded answer differs from the plain one.
"""

import json
import math
import multiprocessing
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from shortlist.functional import LinearLogits
from tests.functional.linear_cases import FORMS, LOSSES, ONE_CLASS, Layer, draw_hot

SHAPES = [((4,), 23), ((2, 3), 9), ((3,), 2), ((0,), 5)]
"""Rows and labels: among them labels that do not divide, fewer labels than processes, and no rows."""
K = 3


def shard(x: Tensor, mesh: Any) -> DTensor:
    """The rows of ``x`` over the processes; wants a gradient."""
    step = math.ceil(len(x) / mesh.size())
    first = min(mesh.get_local_rank() * step, len(x))
    local = x.detach()[first : first + step].clone()
    return DTensor.from_local(local, mesh, [Shard(0)], shape=x.shape, stride=x.stride()).requires_grad_()


def sharded(layer: Layer, mesh: Any, block: int | None) -> tuple[LinearLogits, list[Tensor]]:
    """The same layer with its labels over the processes, and what wants a gradient of it."""
    parts = [layer.features.detach().clone().requires_grad_(), shard(layer.weight, mesh), shard(layer.bias, mesh)]
    return LinearLogits(*parts, label_block=block), parts


def differences(what: str, got: Tensor, wanted: Tensor, tolerance: float) -> list[str]:
    """Say where two are not the same; a gathered tensor is compared as a whole."""
    got = got.full_tensor() if isinstance(got, DTensor) else got
    if got.shape != wanted.shape:
        return [f"{what}: {tuple(got.shape)} instead of {tuple(wanted.shape)}"]
    if torch.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True):
        return []
    return [f"{what}: off by {(got - wanted).abs().max().item()}"]


def compare_loss(name: str, mesh: Any) -> Iterator[str]:
    """Values and gradients of all shapes, forms, reductions and weights."""
    for i, (rows, n) in enumerate(SHAPES):
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
            layer = Layer.draw(*rows, n=n, dtype=dtype)
            hot = draw_hot(*rows, n=n, one=name in ONE_CLASS, unknown=i % 2 == 0)
            form = ["COO", "multi-hot", "lists", "multi-hot"][i]
            target = FORMS[form](hot)
            weight = torch.linspace(0.5, 2, n, dtype=dtype) if dtype == torch.float64 else None
            for reduction in ("mean", "sum", "none"):
                if name in ("bce", "asymmetric") and reduction == "none":
                    continue
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
    yield from differences(f"{about} value", value, wanted, tolerance)
    for part in layer.parts:
        part.grad = None
    value.sum().backward()
    wanted.sum().backward()
    for label, part, plain in zip(("features", "weight", "bias"), parts, layer.parts, strict=True):
        yield from differences(f"{about} gradient in {label}", part.grad, plain.grad, tolerance)


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
        yield from differences("dense", logits.dense(), layer.dense(), 1e-12)


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
        yield from differences(what, got, wanted, 1e-9)


def refusals(mesh: Any) -> Iterator[str]:
    """What cannot be understood is refused in one sentence, on every process."""
    layer = Layer.draw(4, n=8)
    features, weight, bias = layer.features, shard(layer.weight, mesh), shard(layer.bias, mesh)
    whole = DTensor.from_local(layer.weight.detach(), mesh, [Replicate()])
    hot = shard(torch.zeros(4, 8), mesh)
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("`weight` must be sharded along its labels, Shard(0)", lambda: LinearLogits(features, whole)),
        ("`bias` must be sharded like `weight`", lambda: LinearLogits(features, layer.weight, bias)),
        ("`features` must be a plain tensor or replicated", lambda: LinearLogits(shard(features, mesh), weight, bias)),
        (
            "`target` must be a plain tensor or replicated",
            lambda: LOSSES["bce"](LinearLogits(features, weight), hot, K),
        ),
    ]
    for said, call in wrong:
        if said not in (answer := refusal(call)):
            yield f"{answer!r} instead of {said}"


def refusal(call: Callable[[], object]) -> str:
    """What is said, or nothing."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


CASES: dict[str, Callable[[Any], Iterator[str]]] = {
    **{name: lambda mesh, name=name: compare_loss(name, mesh) for name in LOSSES},
    "the best labels": best_labels,
    "a k that learns": learned_k,
    "what is refused": refusals,
}


def work(rank: int, world: int, folder: str) -> None:
    """One process: what each case found wrong."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=wait)
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    for name, case in CASES.items():
        try:
            found[name] = list(case(mesh))
        except Exception:  # noqa: PERF203  (the others go on, and so does this one)
            found[name] = [traceback.format_exc()]
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def together(world: int) -> list[dict[str, list[str]]]:
    """What each of so many processes found."""
    fork = multiprocessing.get_context("fork")  # what is imported once serves all
    with tempfile.TemporaryDirectory() as folder:
        processes = [fork.Process(target=work, args=(rank, world, folder)) for rank in range(world)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(together(int(sys.argv[1]))))

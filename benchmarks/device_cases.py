"""Every operator and loss as a step on any device, with the goals for what it may cost there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks import published, published_losses
from benchmarks.device_cost import Cost, count
from shortlist import functional as F
from shortlist.factory import LOSSES, make_loss
from shortlist.nn import Task

Step = Callable[[], object]
Kind = Literal["projection", "order statistic", "loss", "published"]

K, POSITIVES, SAMPLES = 5, 5, 10
EAGER_KERNELS, EAGER_PROJECTION, EAGER_ANY = 130, 15.0, 25.0
"""Goals without kernels: launches and bytes (as multiples of softmax) of projections, and bytes of anything."""

TRITON_KERNELS = {"lml": 4}
TRITON_BYTES: dict[str, float] = {
    "lml": 1.6,
    "lml_nll": 2.5,
    "sparse_top": 2.5,
    "sparse_top_loss": 2.5,
    "two_way": 2.5,
    "asymmetric": 2.5,
    "bce": 2.5,
    "noised_topk": 4.0,
    "smooth_topk_svm": 6.0,
}
"""Goals with kernels, as multiples of softmax."""


@dataclass(frozen=True)
class Batch:
    """Logits of two heads, a gradient, a class per row, and several positives per row as lists and as a multi-hot."""

    rows: int
    labels: int
    device: str = "meta"

    def normal(self) -> Tensor:
        """Numbers of the shape of the logits; on the meta device, their shape alone."""
        return torch.randn(self.rows, self.labels, device=self.device)

    @cached_property
    def logits(self) -> Tensor:
        return self.normal().requires_grad_()

    @cached_property
    def proposals(self) -> Tensor:
        return self.normal().requires_grad_()

    @cached_property
    def upstream(self) -> Tensor:
        return self.normal()

    @cached_property
    def lists(self) -> Tensor:
        if self.device == "meta":
            return torch.empty(self.rows, POSITIVES, dtype=torch.int64, device="meta")
        return torch.rand(self.rows, min(self.labels, 1000), device=self.device).topk(POSITIVES).indices

    def target(self, form: str) -> Tensor:
        """The labels as ``"class"``, ``"lists"`` or ``"dense"``."""
        if form == "class":
            return self.lists[:, 0].contiguous()
        if form == "lists":
            return self.lists
        return torch.zeros(self.rows, self.labels, device=self.device).scatter(-1, self.lists, 1)

    @property
    def wide(self) -> int:
        """Entries from which a tensor counts as wide: those of a quarter of the logits."""
        return self.rows * self.labels // 4


@dataclass(frozen=True)
class Case:
    """A step to count: forward and backward of an operator or loss."""

    name: str
    kind: Kind
    make: Callable[[Batch], Step]
    target: str = ""
    option: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.name, self.option, self.target)))

    def cost(self, batch: Batch) -> Cost:
        """What the step costs on the device of the batch, not the first time, when constants are copied there."""
        step = self.make(batch)
        if batch.device == "meta":
            step()
        return count(step, wide=batch.wide)

    @property
    def eager_bytes(self) -> float:
        """The goal for the bytes without kernels, in multiples of softmax."""
        return EAGER_PROJECTION if self.kind == "projection" else EAGER_ANY

    @property
    def eager_kernels(self) -> int | None:
        """The goal for the launches without kernels."""
        return EAGER_KERNELS if self.kind == "projection" else None

    @property
    def triton_bytes(self) -> float | None:
        """The goal for the bytes with kernels, in multiples of softmax."""
        return TRITON_BYTES.get(self.name)

    @property
    def triton_kernels(self) -> int | None:
        """The goal for the launches with kernels."""
        return TRITON_KERNELS.get(self.name)


def _operator(op: Callable[[Tensor], Tensor], *, per_row: bool = False) -> Callable[[Batch], Step]:
    """Forward and backward of an operator of logits; ``per_row`` if it returns one number for each row."""

    def make(batch: Batch) -> Step:
        x, upstream = batch.logits, batch.upstream[:, 0] if per_row else batch.upstream
        return lambda: torch.autograd.grad(op(x), x, upstream)

    return make


def _loss(name: str, form: str, k: int, options: Mapping[str, Any]) -> Callable[[Batch], Step]:
    """Forward and backward of a loss as its module computes it in training."""

    def make(batch: Batch) -> Step:
        loss = make_loss(name, Task(batch.labels, torch.ones(batch.labels), batch.rows, k), options).to(batch.device)
        heads = [batch.logits, batch.proposals][: loss.num_heads]
        target, numbers = batch.target(form), torch.arange(batch.rows, device=batch.device)
        inputs = (*heads, target, numbers) if loss.needs_examples else (*heads, target)
        leaves = [*heads, *loss.parameters()]
        return lambda: torch.autograd.grad(loss(*inputs), leaves)

    return make


SOFTMAX = Case("softmax", "projection", _operator(lambda x: x.softmax(-1)))
"""The yardstick: it reads and writes 5 tensors of the size of the logits."""

PROJECTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "lml": lambda x: F.lml(x, K),
    "log_lml": lambda x: F.log_lml(x, K),
    "lml_budget": lambda x: F.lml_budget(x, K),
    "sparse_top": lambda x: F.sparse_top(x, K),
    "sparse_top_budget": lambda x: F.sparse_top_budget(x, K),
    "sparsemax": F.sparsemax,
    "constrained_softmax": lambda x: F.constrained_softmax(x, K),
}
PER_ROW: dict[str, Callable[[Tensor], Tensor]] = {
    "lml_dual": lambda x: F.lml_dual(x, K).reshape(len(x)),
    "kth_largest": lambda x: F.kth_largest(x, K),
    "noised_kth_largest": lambda x: F.noised_kth_largest(x, K, samples=SAMPLES),
    "log_elementary_symmetric": lambda x: F.log_elementary_symmetric(x, K),
}
LEARNED_K = (F.lml, F.log_lml, F.lml_dual, F.sparse_top)
LOSS_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "smooth_topk_svm": [{}, {"k": 20}],
    "noised_topk": [{"samples": SAMPLES}],
    "topk_hinge": [{"kind": kind} for kind in ("calibrated", "convex", "plain")],
    "two_way": [{"kind": kind} for kind in ("two-way", "sample", "class")],
}


def _learned(op: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Batch], Step]:
    """Forward and backward of a projection whose k is a tensor, one number for each row, and learned."""

    def make(batch: Batch) -> Step:
        x = batch.logits
        k = torch.full((batch.rows, 1), float(K), device=batch.device, requires_grad=True)
        upstream = batch.upstream[:, 0] if op is F.lml_dual else batch.upstream
        return lambda: torch.autograd.grad(op(x, k), (x, k), upstream)

    return make


def _operators() -> list[Case]:
    cases = [Case(name, "projection", _operator(op)) for name, op in PROJECTIONS.items()]
    cases += [Case(op.__name__, "projection", _learned(op), option="learned k") for op in LEARNED_K]
    for name, op in PER_ROW.items():
        kind: Kind = "projection" if name == "lml_dual" else "order statistic"
        cases.append(Case(name, kind, _operator(op, per_row=True)))
    return cases


def _losses() -> list[Case]:
    cases = []
    for name, loss in LOSSES.items():
        for options in LOSS_OPTIONS.get(name, [{}]):
            option = ", ".join(
                str(value) if isinstance(value, str) else f"{key} = {value}" for key, value in options.items()
            )
            forms = ("class",) if loss.one_class else ("lists", "class", "dense")
            cases += [Case(name, "loss", _loss(name, form, K, options), form, option) for form in forms]
    return cases


CASES = [SOFTMAX, *_operators(), *_losses()]
"""All operators and losses; a test fails when an export of `shortlist.functional` is missing."""


def _published_loss(loss: Callable[..., Tensor], k: int) -> Callable[[Batch], Step]:
    def make(batch: Batch) -> Step:
        x, y = batch.logits, batch.target("class")
        return lambda: torch.autograd.grad(loss(x, y, k), x)

    return make


PUBLISHED = [
    Case("lml", "published", _operator(lambda x: published.BracketingLML.apply(x, K))),
    Case("sparse_top", "published", _operator(lambda x: published.SortedSparseTop.apply(x, K))),
    Case("lml_nll", "published", _published_loss(published_losses.bracketing_lml_nll, K)),
    Case("truncated_topk_entropy", "published", _published_loss(published_losses.sorted_truncated_entropy, K)),
    Case("noised_topk", "published", _published_loss(published_losses.dense_noised_topk, K)),
    Case("smooth_topk_svm", "published", _published_loss(published_losses.log_space_smooth_svm, 20), option="k = 20"),
]
"""Plain versions of the published algorithms; their loops depend on values, so they are counted on the CPU."""
PUBLISHED_SAMPLES = 100
"""Samples a round of LML's CUDA branch."""

"""Labels sharded over processes: whose they are, and the few numbers per row that processes tell each other.

All processes run the same code on their own labels. What they must agree on is reduced over the process group, and
they decide by reduced values only: else one of them would wait for the others for ever.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from shortlist.functional.rows import HALF, as_rows, is_sharded, moved, solvable
from shortlist.functional.rows import wide as wide

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class OwnLabels(NamedTuple):
    """The labels that this process holds: ``count`` of ``total``, from ``first`` on."""

    mesh: DeviceMesh
    group: Any
    first: int
    count: int
    total: int

    def take(self, values: Tensor, dim: int = -1) -> Tensor:
        """The own part of a plain tensor that has all labels along ``dim``, or size 1 there, on every process."""
        if values.shape[dim] == 1 and self.total != 1:
            return values
        # Each process differentiates its own part alone.
        values = shared(values, self.group) if values.requires_grad else values
        return values.narrow(dim, self.first, self.count)

    def wrap(self, local: Tensor, dim: int) -> Tensor:
        """A tensor sharded like the logits, of the own part of each process."""
        from torch.distributed.tensor import DTensor, Shard

        shape = list(local.shape)
        shape[dim] = self.total
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            local.contiguous(), self.mesh, [Shard(dim)], run_check=False, shape=torch.Size(shape), stride=stride
        )

    def replicate(self, value: Tensor) -> Tensor:
        """What all processes computed alike, as torch's own losses of sharded logits return it."""
        from torch.distributed.tensor import DTensor, Replicate

        return DTensor.from_local(value, self.mesh, [Replicate()], run_check=False)


def own_labels(x: Tensor, dim: int = -1, *, name: str = "logits") -> OwnLabels:
    """Read which labels of the DTensor ``x`` are here; refuse what is not sharded along its labels alone."""
    mesh, placements = x.device_mesh, x.placements  # pyright: ignore[reportAttributeAccessIssue]
    if x.ndim == 0:
        raise ValueError(f"`{name}` must have a label axis; got a tensor without dimensions.")
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"`dim` must lie in [{-x.ndim}, {x.ndim - 1}]; got {dim}.")
    if mesh.ndim != 1:
        raise ValueError(
            f"`{name}` must be sharded along its labels on a one-dimensional mesh; got placements {placements} on a "
            f"mesh of {mesh.ndim} dimensions. Take the sub-mesh of the labels."
        )
    if not _is_shard_of(placements[0], dim % x.ndim):
        raise ValueError(
            f"`{name}` must be sharded along its labels, Shard({dim % x.ndim}); got {placements[0]!r}. `full_tensor()` "
            "gives a plain tensor of all of it, `to_local()` one of the part that is here, and "
            "`redistribute()` shards it otherwise."
        )
    labels = labels_here(mesh, x.shape[dim])
    with torch.no_grad():
        here = local_part(x).shape[dim]
    if here != labels.count:
        raise ValueError(
            f"`{name}` must be sharded as `distribute_tensor` does, with {labels.count} of {labels.total} labels on "
            f"process {mesh.get_local_rank()}; got {here}."
        )
    return labels


def labels_here(mesh: DeviceMesh, total: int) -> OwnLabels:
    """Which of so many labels this process has when they are sharded over a mesh of one dimension."""
    step = math.ceil(total / mesh.size())
    first = min(mesh.get_local_rank() * step, total)
    return OwnLabels(mesh, mesh.get_group(), first, min(step, total - first), total)


class OwnRows(NamedTuple):
    """Logits of the own labels, the label axis last and in a precision fit for solving, and ``k`` beside them."""

    labels: OwnLabels
    logits: Tensor
    k: Tensor

    def restore(self, result: Tensor, like: Tensor, dim: int) -> Tensor:
        """Bring ``result`` back to the axis order, dtype and sharding of ``like``."""
        return self.labels.wrap(moved(result, -1, dim).to(like.dtype), dim % like.ndim)


def as_own_rows(logits: Tensor, k: float | Tensor, *, dim: int, mask: Tensor | None) -> OwnRows:
    """Check the arguments that all projections share, as ``as_rows`` does, and take the own labels of them."""
    labels = own_labels(logits, dim)
    k = replicated(k, "k") if isinstance(k, Tensor) else k
    # All checks are of shapes, so a tensor without memory stands for what no process has.
    whole = torch.empty(logits.shape, dtype=logits.dtype, device="meta")
    shape = torch.empty(mask.shape, dtype=mask.dtype, device="meta") if isinstance(mask, Tensor) else mask
    column = as_rows(whole, k, dim=dim, mask=shape).k
    local = local_part(logits)
    if mask is not None:
        local = local.masked_fill(~own_part(mask, labels, dim, like=logits, name="mask"), -math.inf)
    rows = solvable(moved(local, dim, -1))
    if not isinstance(k, Tensor):
        column = rows.new_full(column.shape, k)
    elif column.is_meta:  # a number that was a tensor
        column = k.to(rows).reshape(column.shape)
    return OwnRows(labels, rows, column)


def own_part(values: Tensor, labels: OwnLabels, dim: int, *, like: Tensor, name: str) -> Tensor:
    """Own labels of ``values``: a plain tensor that every process has, or a DTensor sharded as ``like`` is."""
    if not is_sharded(values):
        axis = dim % like.ndim - like.ndim
        return values if values.ndim < -axis else labels.take(values, axis)
    if values.shape != like.shape:
        raise ValueError(
            f"a sharded `{name}` must have the shape of `logits` {tuple(like.shape)}; got {tuple(values.shape)}."
        )
    if own_labels(values, dim, name=name)[0] != labels.mesh:
        raise ValueError(f"`{name}` must be on the mesh of `logits`, {labels.mesh}; got another one.")
    return local_part(values)


def local_part(x: Tensor) -> Tensor:
    """The part of a DTensor that is on this process, differentiable."""
    return x.to_local()  # pyright: ignore[reportAttributeAccessIssue]


def replicated(values: Tensor, name: str) -> Tensor:
    """``values`` as a plain tensor, which every process has."""
    if not is_sharded(values):
        return values
    placements = values.placements  # pyright: ignore[reportAttributeAccessIssue]
    if not all(placement.is_replicate() for placement in placements):
        raise ValueError(f"`{name}` must be a plain tensor or replicated; got placements {placements}.")
    return local_part(values)


def all_sum(values: Tensor, group: Any) -> Tensor:
    """The sum over the processes, the same on each. All of them go on alike, so its gradient is passed on as it is."""
    return _AllSum.apply(values, group)


def shared(values: Tensor, group: Any) -> Tensor:
    """``values``, which all processes have, for use on the own labels: the gradients of all processes are added up."""
    return _Shared.apply(values, group)


def all_max(values: Tensor, group: Any) -> Tensor:
    """The maximum over the processes, the same on each; no gradient, and NaN is not seen for certain."""
    result = values.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(result, dist.ReduceOp.MAX, group=group)
    return result


def _reduced(values: Tensor, group: Any) -> Tensor:
    # Half precision would lose digits with every process.
    result = values.detach().to(torch.float32 if values.dtype in HALF else values.dtype, copy=True)
    result = result.contiguous()
    dist.all_reduce(result, group=group)
    return result.to(values.dtype)


class _AllSum(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _reduced(values, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return shared(gradient, ctx.group) if torch.is_grad_enabled() else gradient, None


class _Shared(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return all_sum(gradient, ctx.group), None


def _is_shard_of(placement: Any, dim: int) -> bool:
    from torch.distributed.tensor import Shard

    return type(placement) is Shard and placement.dim == dim

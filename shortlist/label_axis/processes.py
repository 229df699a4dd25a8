"""The processes that share the labels of each row: one with all labels, or several with a shard each.

Every process runs the same code on its local labels. Values that must agree are reduced over the process group, and
control flow may depend only on reduced values; otherwise processes could wait for each other forever.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from shortlist.labels import Labels
from shortlist.tensors import HALF, check_axis, is_dtensor, wide

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class OneProcess:
    """This process holds all labels."""

    first = 0
    group = None

    def total_labels(self, local: int) -> int:
        """The total number of labels over all processes, given the local number."""
        return local

    def local_labels(self, labels: Labels) -> Labels:
        """The entries of the local labels, with label indices relative to the first one."""
        return labels

    def local_values(self, values: Tensor, dim: int = -1) -> Tensor:
        """The local part of a replicated tensor with all labels (or size 1) along ``dim``."""
        return values

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same on each. The gradient passes through unchanged."""
        return values

    def max(self, values: Tensor) -> Tensor:
        """The maximum over the processes, without a gradient."""
        return values

    def copy(self, values: Tensor) -> Tensor:
        """Replicated values for use with local labels: gradients are summed over the processes."""
        return values

    def gather_columns(self, values: Tensor) -> Tensor:
        """The columns of all processes, concatenated, without a gradient."""
        return values

    def replicate(self, values: Tensor) -> Tensor:
        """Wrap a replicated result for the user."""
        return values

    def shard(self, values: Tensor, dim: int = -1) -> Tensor:
        """Wrap a result with local labels along ``dim`` for the user."""
        return values


ONE_PROCESS = OneProcess()


class ProcessShards(NamedTuple):
    """This process holds ``count`` of ``total`` labels, starting at ``first``. Same methods as `OneProcess`."""

    mesh: DeviceMesh
    group: Any
    first: int
    count: int
    total: int

    def total_labels(self, local: int) -> int:
        return self.total

    def local_labels(self, labels: Labels) -> Labels:
        return labels.label_range(self.first, self.count)

    def local_values(self, values: Tensor, dim: int = -1) -> Tensor:
        if values.shape[dim] == 1 and self.total != 1:
            return values
        # Each process differentiates only its own part.
        values = self.copy(values) if values.requires_grad else values
        return values.narrow(dim, self.first, self.count)

    def sum(self, values: Tensor) -> Tensor:
        return all_sum(values.to(wide(values)), self.group).to(values.dtype)

    def max(self, values: Tensor) -> Tensor:
        return all_max(values, self.group)

    def copy(self, values: Tensor) -> Tensor:
        return copy_to_group(values, self.group)

    def gather_columns(self, values: Tensor) -> Tensor:
        shards = [torch.empty_like(values) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(shards, values.contiguous(), group=self.group)
        return torch.cat(shards, -1)

    def replicate(self, values: Tensor) -> Tensor:
        """A replicated DTensor, like the results of torch's own losses on sharded logits."""
        from torch.distributed.tensor import DTensor, Replicate

        return DTensor.from_local(values, self.mesh, [Replicate()], run_check=False)

    def shard(self, values: Tensor, dim: int = -1) -> Tensor:
        """A DTensor sharded along ``dim``."""
        from torch.distributed.tensor import DTensor, Shard

        dim %= values.ndim
        shape = list(values.shape)
        shape[dim] = self.total
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            values.contiguous(), self.mesh, [Shard(dim)], run_check=False, shape=torch.Size(shape), stride=stride
        )


Processes = OneProcess | ProcessShards


def processes_of(x: Tensor, dim: int = -1, *, name: str = "logits") -> Processes:
    """The processes that hold the labels of ``x`` along ``dim``: several for a DTensor, one for any other tensor."""
    return shards_of(x, dim, name=name) if is_dtensor(x) else ONE_PROCESS


def shards_of(x: Tensor, dim: int = -1, *, name: str = "logits") -> ProcessShards:
    """The local labels of the DTensor ``x``. Raises unless it is sharded along the labels only."""
    mesh, placements = x.device_mesh, x.placements  # pyright: ignore[reportAttributeAccessIssue]
    check_axis(x, dim, name=name)
    if mesh.ndim != 1:
        raise ValueError(
            f"`{name}` must be sharded along its labels on a one-dimensional mesh; got placements {placements} on a "
            f"mesh of {mesh.ndim} dimensions. Take the sub-mesh of the labels."
        )
    if not _is_shard_of(placements[0], dim % x.ndim):
        raise ValueError(
            f"`{name}` must be sharded along its labels, Shard({dim % x.ndim}); got {placements[0]!r}. `full_tensor()` "
            "returns the whole tensor, `to_local()` the local part, and `redistribute()` changes the sharding."
        )
    shards = shards_on(mesh, x.shape[dim])
    with torch.no_grad():
        here = to_local(x).shape[dim]
    if here != shards.count:
        raise ValueError(
            f"`{name}` must be sharded as by `distribute_tensor`, with {shards.count} of {shards.total} labels on "
            f"process {mesh.get_local_rank()}; got {here}."
        )
    return shards


def shards_on(mesh: DeviceMesh, total: int) -> ProcessShards:
    """The labels of this process if ``total`` labels are sharded over a one-dimensional mesh."""
    step = math.ceil(total / mesh.size())
    first = min(mesh.get_local_rank() * step, total)
    return ProcessShards(mesh, mesh.get_group(), first, min(step, total - first), total)


def to_local(x: Tensor) -> Tensor:
    """The local part of a DTensor, differentiable."""
    return x.to_local()  # pyright: ignore[reportAttributeAccessIssue]


def local_part(values: Tensor, shards: ProcessShards, dim: int, *, like: Tensor, name: str) -> Tensor:
    """Local labels of ``values``: a plain replicated tensor, or a DTensor sharded like ``like``."""
    if not is_dtensor(values):
        axis = dim % like.ndim - like.ndim
        return values if values.ndim < -axis else shards.local_values(values, axis)
    if values.shape != like.shape:
        raise ValueError(
            f"a sharded `{name}` must have the shape of `logits` {tuple(like.shape)}; got {tuple(values.shape)}."
        )
    if shards_of(values, dim, name=name).mesh != shards.mesh:
        raise ValueError(f"`{name}` must be on the mesh of `logits`, {shards.mesh}; got another one.")
    return to_local(values)


def is_replicated(values: Tensor) -> bool:
    """Whether a DTensor is replicated."""
    return all(placement.is_replicate() for placement in values.placements)  # pyright: ignore[reportAttributeAccessIssue]


def replicated(values: Tensor, name: str) -> Tensor:
    """``values`` as a plain replicated tensor."""
    if not is_dtensor(values):
        return values
    if not is_replicated(values):
        placements = values.placements  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(f"`{name}` must be a plain tensor or replicated; got placements {placements}.")
    return to_local(values)


def all_sum(values: Tensor, group: Any) -> Tensor:
    """The sum over the processes, the same on each. All continue identically, so the gradient passes unchanged."""
    return values if group is None else _AllSum.apply(values, group)


def copy_to_group(values: Tensor, group: Any) -> Tensor:
    """Replicated values for use with local labels: the backward pass sums gradients over the processes."""
    return values if group is None else _CopyToGroup.apply(values, group)


def all_max(values: Tensor, group: Any) -> Tensor:
    """The maximum over the processes, the same on each. It has no gradient and may hide NaN."""
    if group is None:
        return values
    result = values.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(result, dist.ReduceOp.MAX, group=group)
    return result


def _reduced(values: Tensor, group: Any) -> Tensor:
    # In half precision, every process would add rounding error.
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
        return copy_to_group(gradient, ctx.group) if torch.is_grad_enabled() else gradient, None


class _CopyToGroup(Function):
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

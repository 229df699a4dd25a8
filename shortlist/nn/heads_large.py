"""Output layers for very many labels: computed in blocks of labels, or sharded over processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import linear

from shortlist.functional import LinearLogits
from shortlist.label_axis.processes import ProcessShards, copy_to_group, shards_of, shards_on, to_local
from shortlist.nn.heads import check_features
from shortlist.tensors import check_size, is_dtensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["ChunkedHead", "ColumnParallelHead"]

_BLOCK = 4096
"""Labels per random generator, so that initial weights do not depend on which process holds a label."""


class ChunkedHead(nn.Linear):
    """Linear output layer that returns :class:`shortlist.functional.LinearLogits`, in training and in evaluation.

    ``loss(head(features), target)`` trains it with any loss that accepts such logits (``takes_linear_logits``), using
    only the memory of its parameters and one block of logits. For predictions, ``head(features).topk(k)`` gives the
    best labels without materializing all logits, and ``head(features).dense()`` gives all logits as a tensor.
    Parameters, their names and their initial values are those of ``nn.Linear``, so state dicts are interchangeable.

    Args:
        in_features: d.
        num_labels: n.
        bias: whether to add a bias.
        label_block: how many labels to compute at a time; by default chosen from the batch size.
        device: the device of the parameters.
        dtype: their dtype.

    Example:
        >>> head, features, target = ChunkedHead(16, 1000), torch.zeros(4, 16), torch.tensor([3, 1, 4, 15])
        >>> LMLNLL(5)(head(features), target).backward()
        >>> head.weight.grad.shape, head(features).topk(5).labels.shape
        (torch.Size([1000, 16]), torch.Size([4, 5]))
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        bias: bool = True,
        label_block: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = check_size("in_features", in_features), check_size("num_labels", num_labels)
        super().__init__(*sizes, bias, device, dtype)
        self.num_labels = self.out_features
        self.label_block = None if label_block is None else check_size("label_block", label_block)

    def forward(self, features: Tensor) -> LinearLogits:
        """Logits ``(..., n)`` of ``features`` ``(..., in_features)``, computed on use."""
        check_features(features, self.in_features)
        return LinearLogits(features, self.weight, self.bias, label_block=self.label_block)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        block = "" if self.label_block is None else f", label_block={self.label_block}"
        bias = self.bias is not None
        return f"in_features={self.in_features}, num_labels={self.num_labels}, bias={bias}{block}"


class ColumnParallelHead(nn.Module):
    r"""Linear output layer sharded over processes: each holds only the rows of its own labels.

    .. math:: z = W e + b

    All processes pass the same features and get the logits as a ``DTensor`` sharded along the labels. Losses with
    ``takes_dtensor``, the projections :class:`LML`, :class:`LogLML`, :class:`SparseTop` and :class:`Sparsemax`, and the
    set rules ``TopK`` and ``AverageK`` accept it directly. The backward pass sums the gradient of the features over the
    processes, so the layers below get the same gradient on each of them.

    The initial weights are drawn like those of ``nn.Linear``, from a seed that the first process draws from torch's
    generator. After ``torch.manual_seed``, they are the same for any number of processes.

    Torch can do the same: ``parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Shard(-1),
    use_local_output=False)})`` shards an ``nn.Linear``, but the whole layer must exist first.

    To save it, pass ``state_dict()`` to ``torch.distributed.checkpoint``, which writes the shard of each process, or
    use ``weight.full_tensor()`` if it fits into one process. ``load_state_dict`` also accepts plain tensors with all
    labels, such as those of an ``nn.Linear``, and keeps the local rows.

    Optimizers accept its parameters together with plain ones. Torch rejects ``foreach=True`` and ``fused=True`` for a
    mixture, so put the two kinds into separate parameter groups; not every optimizer has a fused kernel for shards.
    ``clip_grad_norm_`` rejects a mixture, too. Clip each kind separately, or both by their common norm::

        norms = [get_total_norm([p.grad for p in module.parameters()]) for module in (encoder, head)]
        norm = torch.stack([norms[0], norms[1].full_tensor()]).norm()
        for module in (encoder, head):
            clip_grads_with_norm_(module.parameters(), 1.0, norm)

    Args:
        in_features: size of e.
        num_labels: n, the rows of ``weight`` over all processes.
        mesh: the processes that share the labels, a ``DeviceMesh`` of one dimension.
        bias: whether to add b.
        device: the device of the local shard; by default that of the mesh.
        dtype: the dtype of the parameters.

    Example:
        >>> import tempfile, torch.distributed as dist
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> rendezvous = tempfile.NamedTemporaryFile()
        >>> dist.init_process_group("gloo", init_method=f"file://{rendezvous.name}", rank=0, world_size=1)
        >>> head = ColumnParallelHead(16, 1000, init_device_mesh("cpu", (1,)))
        >>> logits = head(torch.zeros(2, 3, 16))
        >>> logits.shape, logits.placements
        (torch.Size([2, 3, 1000]), (Shard(dim=2),))
        >>> dist.destroy_process_group()
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        mesh: DeviceMesh,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_labels = check_size("in_features", in_features), check_size("num_labels", num_labels)
        if mesh.ndim != 1:
            raise ValueError(f"`mesh` must have one dimension, the labels; got {mesh.ndim}. Use a sub-mesh.")
        labels = shards_on(mesh, self.num_labels)
        where: dict[str, Any] = {"device": mesh.device_type if device is None else device, "dtype": dtype}
        self.weight = nn.Parameter(labels.shard(torch.empty(labels.count, self.in_features, **where), 0))
        self.bias = nn.Parameter(labels.shard(torch.empty(labels.count, **where), 0)) if bias else None
        self.reset_parameters()

    @property
    def labels(self) -> ProcessShards:
        """The labels of this process: ``labels.count`` of them, starting at ``labels.first``."""
        return shards_of(self.weight, 0, name="weight")

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize all parameters like ``nn.Linear``; all processes must call it."""
        local, labels = [to_local(parameter) for parameter in self.parameters()], self.labels
        if local[0].is_meta:
            return
        seed = torch.randint(1 << 62, (1,)).to(local[0].device)
        dist.broadcast(seed, group=labels.group, group_src=0)
        bound, start, end = 1 / math.sqrt(self.in_features), labels.first, labels.first + labels.count
        width = self.in_features + (self.bias is not None)
        for block in range(start // _BLOCK, math.ceil(end / _BLOCK)):
            generator = torch.Generator().manual_seed(int(seed) + block)
            rows = min(_BLOCK, self.num_labels - block * _BLOCK)
            drawn = torch.empty(rows, width).uniform_(-bound, bound, generator=generator)
            here = slice(max(start - block * _BLOCK, 0), min(end - block * _BLOCK, rows))
            own = slice(block * _BLOCK + here.start - start, block * _BLOCK + here.stop - start)
            local[0][own] = drawn[here, : self.in_features].to(local[0])
            if self.bias is not None:
                local[1][own] = drawn[here, -1].to(local[1])

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(..., n)``, sharded along the labels, of ``features`` ``(..., in_features)``."""
        if is_dtensor(features):
            raise TypeError("`features` must be a plain tensor, the same on every process; got a DTensor.")
        check_features(features, self.in_features)
        bias, labels = None if self.bias is None else to_local(self.bias), self.labels
        logits = linear(copy_to_group(features, labels.group), to_local(self.weight), bias)
        return labels.shard(logits, logits.ndim - 1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        labels = self.labels
        for name, parameter in self.named_parameters():
            whole = state_dict.get(prefix + name)
            if isinstance(whole, Tensor) and not is_dtensor(whole) and whole.shape == parameter.shape:
                own = whole.narrow(0, labels.first, labels.count)
                state_dict[prefix + name] = labels.shard(own, 0)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        own = f"own={self.labels.first}:{self.labels.first + self.labels.count}"
        return f"in_features={self.in_features}, num_labels={self.num_labels}, {own}, bias={self.bias is not None}"

"""An output layer whose labels are sharded over processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import linear

from shortlist.label_axis.processes import ProcessShards, copy_to_group, shards_of, shards_on, to_local
from shortlist.nn.heads import check_features, check_size
from shortlist.tensors import is_dtensor

__all__ = ["ColumnParallelHead"]

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_BLOCK = 4096
"""Labels that are drawn by one generator: which process has them makes no difference."""


class ColumnParallelHead(nn.Module):
    r"""Linear output layer of which each process holds the rows of its own labels, and nothing else.

    .. math:: z = W e + b

    All processes give the same features, and get the logits as a ``DTensor`` that is sharded along its labels. The
    losses :class:`LMLNLL`, :class:`TwoWay`, :class:`BCE` and :class:`Asymmetric`, the projections :class:`LML`,
    :class:`LogLML`, :class:`SparseTop` and :class:`Sparsemax`, and the set rules ``TopK`` and ``AverageK`` take it as
    it is. Backwards the gradient of the features is added up over the processes, so that layers below learn the same
    on each of them.

    The start is drawn as ``nn.Linear`` does, by a seed that the first process takes from torch's generator: after
    ``torch.manual_seed`` it is the same for any number of processes.

    Torch's own way does the same: ``parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Shard(-1),
    use_local_output=False)})`` turns an ``nn.Linear`` into one, but the whole layer must be made first.

    To save, give ``state_dict()`` to ``torch.distributed.checkpoint``, which writes each process's part, or take
    ``weight.full_tensor()`` where one process can hold it. ``load_state_dict`` also takes plain tensors of all labels,
    such as those of an ``nn.Linear``, and keeps the own rows.

    Optimisers take its parameters beside plain ones as they come. With ``foreach=True`` or ``fused=True``, which torch
    refuses over both kinds, give the two as two parameter groups; not every optimiser has a fused kernel for shards.
    ``clip_grad_norm_`` refuses both kinds together, too. Clip each for itself, or both by their common norm::

        norms = [get_total_norm([p.grad for p in part.parameters()]) for part in (encoder, head)]
        norm = torch.stack([norms[0], norms[1].full_tensor()]).norm()
        for part in (encoder, head):
            clip_grads_with_norm_(part.parameters(), 1.0, norm)

    Args:
        in_features: size of e.
        num_labels: n, rows of ``weight``, of all processes together.
        mesh: the processes that share the labels, a ``DeviceMesh`` of one dimension.
        bias: whether there is b, which starts at random as in ``nn.Linear``.
        device: where the own part is; by default what the mesh is of.
        dtype: of the parameters.

    Example:
        >>> import tempfile, torch.distributed as dist
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> meeting = tempfile.NamedTemporaryFile()
        >>> dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
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
            raise ValueError(f"`mesh` must have one dimension, the labels; got {mesh.ndim}. Take a sub-mesh.")
        labels = shards_on(mesh, self.num_labels)
        where: dict[str, Any] = {"device": mesh.device_type if device is None else device, "dtype": dtype}
        self.weight = nn.Parameter(labels.shard(torch.empty(labels.count, self.in_features, **where), 0))
        self.bias = nn.Parameter(labels.shard(torch.empty(labels.count, **where), 0)) if bias else None
        self.reset_parameters()

    @property
    def labels(self) -> ProcessShards:
        """Those of this process: ``labels.count`` of them from ``labels.first`` on."""
        return shards_of(self.weight, 0, name="weight")

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters anew, as ``nn.Linear`` does; all processes must call it."""
        parts, labels = [to_local(parameter) for parameter in self.parameters()], self.labels
        if parts[0].is_meta:
            return
        seed = torch.randint(1 << 62, (1,)).to(parts[0].device)
        dist.broadcast(seed, group=labels.group, group_src=0)
        bound, start, end = 1 / math.sqrt(self.in_features), labels.first, labels.first + labels.count
        width = self.in_features + (self.bias is not None)
        for block in range(start // _BLOCK, math.ceil(end / _BLOCK)):
            generator = torch.Generator().manual_seed(int(seed) + block)
            rows = min(_BLOCK, self.num_labels - block * _BLOCK)
            drawn = torch.empty(rows, width).uniform_(-bound, bound, generator=generator)
            here = slice(max(start - block * _BLOCK, 0), min(end - block * _BLOCK, rows))
            own = slice(block * _BLOCK + here.start - start, block * _BLOCK + here.stop - start)
            parts[0][own] = drawn[here, : self.in_features].to(parts[0])
            if self.bias is not None:
                parts[1][own] = drawn[here, -1].to(parts[1])

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
        labels = self.labels
        own = f"own={labels.first}:{labels.first + labels.count}"
        return f"in_features={self.in_features}, num_labels={self.num_labels}, {own}, bias={self.bias is not None}"

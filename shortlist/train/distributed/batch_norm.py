"""Batch normalization over the global batch, so that several processes normalize as one does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# torch's own layer of this kind, SyncBatchNorm, refuses to run on CPUs.
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def use_global_batch_norm(module: nn.Module) -> None:
    """Replace the batch norms of a module in place; parameters, statistics and their names stay.

    Subclasses by other libraries may compute something else; they are kept and use the rows of their process.
    """
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) in _NORMS:
                setattr(parent, name, GlobalBatchNorm.of(child))


class GlobalBatchNorm(nn.BatchNorm2d):
    """``(x - mean) / sqrt(variance + eps)`` for each channel, with moments over the rows of all processes.

    Gradients reach the rows of other processes through the moments. As everywhere in training, a process's gradients
    are those of the global loss times the number of processes, because DDP averages them.
    """

    @classmethod
    def of(cls, norm: Any) -> GlobalBatchNorm:
        """Return the same layer over all processes, sharing parameters and statistics."""
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made, name, getattr(norm, name))
        return made.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"`input` must have rows and channels; got shape {tuple(input.shape)}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(B, channels, ...)``."""
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        dims = [0, *range(2, input.dim())]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        count = values.new_tensor(values.numel() / values.shape[1])
        # Divided by the total number, so that the sum over processes is a mean however rows are distributed.
        dist.all_reduce(count)
        mean = _AllSum.apply(values.sum(dims) / count)
        centered = values - mean.reshape(shape)
        # Squares about the mean do not cancel, as E[x²] - E[x]² would.
        variance = _AllSum.apply(centered.square().sum(dims) / count)
        self._update_statistics(mean.detach(), (variance * (count / (count - 1))).detach())
        normal = centered * (variance + self.eps).rsqrt().reshape(shape)
        if self.affine:
            normal = normal * self.weight.reshape(shape) + self.bias.reshape(shape)
        return normal.to(input.dtype)

    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        weight = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance.to(self.running_var.dtype), weight)


class _AllSum(torch.autograd.Function):
    """Sum over processes; its gradient is the sum of the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total

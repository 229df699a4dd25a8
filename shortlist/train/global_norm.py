"""Batch normalisation over the batch of all processes, so that several normalise as one process does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# torch's own layer of this kind, SyncBatchNorm, refuses to run on CPUs.
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def normalise_globally(module: nn.Module) -> None:
    """Replace the batch norms inside of a module, in place; parameters, statistics and their names stay.

    Classes that other libraries derive from torch's own compute something else besides; they are left alone and go by
    the rows of their process.
    """
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) in _NORMS:
                setattr(parent, name, GlobalBatchNorm.of(child))


class GlobalBatchNorm(nn.BatchNorm2d):
    r"""``(x - mean) / sqrt(variance + eps)`` for each channel, with moments over the rows of all processes.

    Gradients reach the rows of the other processes through the moments. As everywhere in training, a process's
    gradients are those of the whole loss times the number of processes, whose mean DDP takes.
    """

    @classmethod
    def of(cls, norm: Any) -> GlobalBatchNorm:
        """The same layer over all processes; shares parameters and statistics."""
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made, name, getattr(norm, name))
        return made.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"`input` must have rows and channels; got shape {tuple(input.shape)}.")

    def forward(self, input: Tensor) -> Tensor:
        """Same shape and dtype as ``input``, ``(B, channels, ...)``."""
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        dims = [0, *range(2, input.dim())]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        count = values.new_tensor(values.numel() / values.shape[1])
        # The total number first: moments by it are means of all rows, however they are shared.
        dist.all_reduce(count)
        mean = _AllSum.apply(values.sum(dims) / count)
        centred = values - mean.reshape(shape)
        # Squares about the mean do not cancel, as their difference to the mean's square would.
        variance = _AllSum.apply(centred.square().sum(dims) / count)
        self._remember(mean.detach(), (variance * (count / (count - 1))).detach())
        normal = centred * (variance + self.eps).rsqrt().reshape(shape)
        if self.affine:
            normal = normal * self.weight.reshape(shape) + self.bias.reshape(shape)
        return normal.to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class _AllSum(torch.autograd.Function):
    """The sum over processes; what depends on it in any of them counts for the gradient of all."""

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

"""Fully sharded training: each process stores a shard of parameters, gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from shortlist.nn import TwoHead
from shortlist.train.model.plan import SetModel


def shard(model: SetModel, loss: nn.Module, mesh: Any) -> None:
    """Shard every parameter in place; encoder and head are gathered while they compute.

    A parameter is sharded along its first axis, the labels of an output layer. As under DDP, its gradient is the mean
    over the processes. A scalar cannot be sharded and is replicated.

    Args:
        model: with its initial parameters.
        loss: its parameters, if it has any, are sharded too.
        mesh: the processes, in one dimension.
    """
    scalars = {p for each in (model, loss) for p in each.parameters() if p.dim() == 0}
    head = model.head
    # Both halves of a `TwoHead` by themselves, because validation calls only the one for prediction.
    parts = (model.encoder, *((head.prediction, head.proposal) if isinstance(head, TwoHead) else (head,)), loss)
    for part in parts:
        if any(p.dim() for p in part.parameters()):
            fully_shard(part, mesh=mesh, ignored_params=scalars)
    fully_shard(model, mesh=mesh, ignored_params=scalars)
    register_fsdp_forward_method(model, "outputs")
    for scalar in scalars:
        if scalar.requires_grad:
            scalar.register_post_accumulate_grad_hook(_average_gradient)


def broadcast_buffers(module: nn.Module) -> None:
    """Broadcast the buffers of the first process, as DDP does: statistics that a layer takes from its own rows."""
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy with FSDP over all processes, on CPUs too, and with the checkpoints of one process.

    A checkpoint is one file with unsharded tensors that is read without unpickling, so a run can continue with another
    number of processes and another strategy.

    Args:
        processes: number of processes.
        timeout: how long processes wait for each other.
    """

    def __init__(self, processes: int, *, timeout: timedelta) -> None:
        super().__init__(processes, 1, save_distributed_checkpoint=False, timeout=timeout)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Let Lightning restore optimizer states one by one, as with one process."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return unsharded parameters and buffers in the first process, nothing in the others; collective."""
        return self._unsharded(self._module.state_dict())

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the unsharded state in the first process, nothing in the others; collective."""
        state = (optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer).state_dict()
        states = {index: self._unsharded(values) for index, values in state["state"].items()}
        # The kernel that one process uses.
        groups = [{**group, "fused": True, "foreach": None} for group in state["param_groups"]]
        return {"state": states, "param_groups": groups} if self.is_global_zero else {}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the whole file; each process takes its shard afterwards."""
        return self.checkpoint_io.load_checkpoint(checkpoint_path, weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load this process's shard of the parameters."""
        own = self._module.state_dict()
        shards = {name: _shard_like(value, own.get(name)) for name, value in checkpoint["state_dict"].items()}
        self._module.load_state_dict(shards, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load this process's shard of the states."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            shards = {
                index: {name: _shard_like(value, parameters[index]) for name, value in values.items()}
                for index, values in state["state"].items()
            }
            kernels = [{name: group[name] for name in ("fused", "foreach")} for group in optimizer.param_groups]
            groups = [{**group, **own} for group, own in zip(state["param_groups"], kernels, strict=True)]
            optimizer.load_state_dict({"state": shards, "param_groups": groups})

    @property
    def _module(self) -> nn.Module:
        if self.lightning_module is None:
            raise RuntimeError("a strategy has no state before its trainer sets a module.")
        return self.lightning_module

    def _unsharded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kept = {}
        for name, value in values.items():
            # One after the other, so that the other processes never hold more than one unsharded tensor.
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                kept[name] = full.cpu() if isinstance(full, Tensor) else full
        return kept


def _shard_like(value: Any, like: Any) -> Any:
    """Return this process's shard of a tensor, if ``like`` is sharded and has its shape."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _average_gradient(scalar: Tensor) -> None:
    if scalar.grad is not None:
        dist.all_reduce(scalar.grad)
        scalar.grad /= dist.get_world_size()

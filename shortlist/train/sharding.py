"""Fully sharded training: each process keeps a part of parameters, gradients and states of the optimiser."""

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
from shortlist.train.model import SetModel


def shard(model: SetModel, loss: nn.Module, mesh: Any) -> None:
    """Leave to each process its part of every parameter, in place; encoder and head become whole while they compute.

    A parameter is cut along its first axis, the labels of an output layer. As under DDP, the gradient of a parameter
    is the mean over the processes. A parameter that is one number cannot be cut and stays whole.

    Args:
        model: with its parameters as they start.
        loss: its parameters, if it learns any, are cut as well.
        mesh: the processes, in one dimension.
    """
    numbers = {p for each in (model, loss) for p in each.parameters() if p.dim() == 0}
    head = model.head
    # The parts of a pair of heads, for the one that predicts is called alone in validation.
    parts = (model.encoder, *((head.prediction, head.proposal) if isinstance(head, TwoHead) else (head,)), loss)
    for part in parts:
        if any(p.dim() for p in part.parameters()):
            fully_shard(part, mesh=mesh, ignored_params=numbers)
    fully_shard(model, mesh=mesh, ignored_params=numbers)
    register_fsdp_forward_method(model, "outputs")
    for number in numbers:
        if number.requires_grad:
            number.register_post_accumulate_grad_hook(_average_gradient)


def own_bytes(module: nn.Module) -> int:
    """Bytes of parameters that this process keeps between steps."""
    parts = (p.to_local() if isinstance(p, DTensor) else p for p in module.parameters())
    return sum(part.numel() * part.element_size() for part in parts)


def share_buffers(module: nn.Module) -> None:
    """Give the buffers of the first process to all, as DDP does: statistics that a layer takes of its own rows."""
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)


class Sharded(ModelParallelStrategy):
    """Lightning's strategy with FSDP over all processes, on CPUs too, and with checkpoints as one process has them.

    They are whole, in one file that is read without unpickling, so that a run goes on whatever the number of processes
    and the strategy.

    Args:
        processes: how many there are in all.
        timeout: how long to wait for each other.
    """

    def __init__(self, processes: int, *, timeout: timedelta) -> None:
        super().__init__(processes, 1, save_distributed_checkpoint=False, timeout=timeout)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Lightning asks for the states of optimisers one by one, as it does of one process."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Whole parameters and buffers in the first process, nothing in the others; all must call it."""
        return self._whole(self._module.state_dict())

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The whole state in the first process, nothing in the others; all must call it."""
        state = (optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer).state_dict()
        whole = {index: self._whole(values) for index, values in state["state"].items()}
        groups = [{**group, "fused": True, "foreach": None} for group in state["param_groups"]]  # as one process has
        return {"state": whole, "param_groups": groups} if self.is_global_zero else {}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the file as it is; each process takes its part of it afterwards."""
        return self.checkpoint_io.load_checkpoint(checkpoint_path, weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Take this process's part of the parameters."""
        own = self._module.state_dict()
        parts = {name: _part(value, own.get(name)) for name, value in checkpoint["state_dict"].items()}
        self._module.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Take this process's part of the states."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            parts = {
                index: {name: _part(value, parameters[index]) for name, value in values.items()}
                for index, values in state["state"].items()
            }
            kernels = [{name: group[name] for name in ("fused", "foreach")} for group in optimizer.param_groups]
            groups = [{**group, **own} for group, own in zip(state["param_groups"], kernels, strict=True)]
            optimizer.load_state_dict({"state": parts, "param_groups": groups})

    @property
    def _module(self) -> nn.Module:
        if self.lightning_module is None:
            raise RuntimeError("a strategy has no state before its trainer has given it a module.")
        return self.lightning_module

    def _whole(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kept = {}
        for name, value in values.items():
            # One after the other, so that all but the first process never hold more than one whole tensor.
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                kept[name] = whole.cpu() if isinstance(whole, Tensor) else whole
        return kept


def _part(value: Any, like: Any) -> Any:
    """This process's part of a tensor, if the one that it belongs to is cut and of the same shape."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _average_gradient(number: Tensor) -> None:
    if number.grad is not None:
        dist.all_reduce(number.grad)
        number.grad /= dist.get_world_size()

"""The loss of the global batch: each process learns from its own rows as if one process had all of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shortlist.data.target_rows import csr, label_pairs
from shortlist.errors import InputError
from shortlist.nn import Loss
from shortlist.targets import TargetForm, stored_entries, target_form


def batch_loss(loss: nn.Module, outputs: tuple[Tensor, ...], target: Tensor, rows: Tensor) -> Tensor:
    """The loss of the batch of all processes.

    Its value is the same in every process. Its gradients are scaled so that their mean over the processes, which DDP
    takes, is the gradient that one process would compute from the whole batch, however many rows each process has.

    Args:
        loss: a loss of :mod:`shortlist.nn` with reduction ``mean`` or ``sum``, or a module that takes outputs and
            labels and returns the mean over the rows.
        outputs: the outputs of the head.
        target: labels in any form.
        rows: the indices of the training rows, for losses that learn something about each of them.
    """
    needs_examples = getattr(loss, "needs_examples", False)
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return loss(*outputs, target, rows) if needs_examples else loss(*outputs, target)
    num_labels = outputs[0].shape[-1]
    if not getattr(loss, "couples_rows", False):
        return _weighted_mean(loss(*outputs, target), _divisor(loss, target, num_labels))
    all_outputs = [gather_rows(output) for output in outputs]
    targets = gather_targets(target, num_labels)
    # Parameters of the loss get the gradient of the whole batch in every process, which is also the mean of them.
    return loss(*all_outputs, targets, gather_rows(rows)) if needs_examples else loss(*all_outputs, targets)


class RowWeighted(nn.Module):
    """A loss whose training rows count differently: the mean over rows of weight times loss.

    The weights are divided by their mean over all training rows, so that batches of any rows give unbiased gradients.

    Args:
        loss: a loss of :mod:`shortlist.nn` that is a mean over rows or entries.
        weights: one per training row, at least 0 and not all 0.

    Raises:
        InputError: for a loss that couples rows or knows them by their index, or for other weights.

    Example:
        >>> loss = RowWeighted(CrossEntropy(), torch.tensor([1.0, 3.0]))
        >>> logits, target = torch.tensor([[0.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 1])
        >>> loss(logits, target, torch.tensor([0, 1]))
        tensor(3.9283)
    """

    # The rows of all processes are gathered, because the weights are those of rows, wherever they are.
    needs_examples = couples_rows = True
    weights: Tensor

    def __init__(self, loss: Loss, weights: Tensor) -> None:
        super().__init__()
        if loss.couples_rows or loss.needs_examples or loss.reduction != "mean":
            raise InputError(f"`row_weights` need a loss that is a mean over rows; {loss.name!r} is not.")
        # Not `not (weights < 0)`, which NaN would pass.
        if not bool((weights >= 0).all()) or not bool(weights.isfinite().all()) or not float(weights.sum()) > 0:
            raise InputError("`row_weights` must be finite, at least 0, and not all 0.")
        self.loss = copy.deepcopy(loss)
        self.loss.reduction = "none"
        self.register_buffer("weights", (weights.double() / weights.double().mean()).float(), persistent=False)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Take what the loss takes, then the indices of the training rows."""
        *given, rows = inputs
        values = self.loss(*given)
        return (values.flatten(1).mean(1) if values.ndim > 1 else values).mul(self.weights[rows]).mean()


def gather_rows(values: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks; only this process's rows carry a gradient.

    If every process computes the loss of the global batch from them, the gradients of the parameters sum to those of
    one process. DDP averages, so the gradient is multiplied by the number of processes.
    """
    sizes = _sizes(values)
    return torch.cat([rows[:size] for rows, size in zip(_Gathered.apply(values, max(sizes)), sizes, strict=True)])


def gather_targets(target: Tensor, num_labels: int) -> Tensor:
    """The labels of all processes, in their own form; sparse ones become CSR."""
    form = target_form(target, num_labels)
    if form is TargetForm.SPARSE:
        return _gather_sparse(target, num_labels)
    if form is TargetForm.INDEX_LISTS:
        # Lists are as wide as their longest row, which may belong to another process.
        missing = max(_sizes(target.T)) - target.shape[1]
        target = nn.functional.pad(target, (0, missing), value=-1)
    return gather_rows(target)


def _gather_sparse(target: Tensor, num_labels: int) -> Tensor:
    rows, labels, values = stored_entries(target)
    order = rows.argsort(stable=True)
    counts = gather_rows(torch.bincount(rows, minlength=target.shape[0]))
    starts = nn.functional.pad(counts.cumsum(0), (1, 0))
    return csr(starts, gather_rows(labels[order]), gather_rows(values[order]), num_labels)


def _divisor(loss: nn.Module, target: Tensor, num_labels: int) -> Tensor | None:
    """What the mean of these rows was divided by; None for a sum."""
    if getattr(loss, "reduction", "mean") == "sum":
        return None
    mean_over = loss.mean_over if isinstance(loss, Loss) else "rows"
    if mean_over == "known entries":
        unknown = (~label_pairs(target, num_labels).present).sum()
        return (target.shape[0] * num_labels - unknown).double()
    if mean_over == "class weights":
        _, labels, present = label_pairs(target, num_labels)
        weight = loss.weight
        return present.sum().double() if weight is None else weight[labels[present]].sum().double()  # pyright: ignore
    return torch.tensor(float(target.shape[0]), dtype=torch.float64, device=target.device)


def _weighted_mean(own: Tensor, divisor: Tensor | None) -> Tensor:
    """The loss of all rows; its gradient is this process's share of it, times the number of processes."""
    share = torch.ones((), dtype=torch.float64, device=own.device) if divisor is None else divisor
    sums = torch.stack([own.detach().double() * share, share])
    dist.all_reduce(sums)
    # The mean of nothing is 0.
    whole = torch.ones_like(share) if divisor is None else torch.where(sums[1] > 0, sums[1], 1)
    own = own * (dist.get_world_size() * share / whole).to(own.dtype)
    return own + ((sums[0] / whole).to(own.dtype) - own).detach()


class _Gathered(torch.autograd.Function):
    """``values, longest -> the rows of every process, padded with zeros``."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, longest: int) -> tuple[Tensor, ...]:
        ctx.rows = len(values)
        padded = values.new_zeros((longest, *values.shape[1:]))
        padded[: len(values)] = values
        received = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
        dist.all_gather(received, padded)
        return tuple(received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return dist.get_world_size() * gradients[dist.get_rank()][: ctx.rows], None


def _sizes(values: Tensor) -> list[int]:
    """The number of rows of each process."""
    sizes = [torch.zeros(1, dtype=torch.int64, device=values.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(values)], device=values.device))
    return [int(size) for size in sizes]

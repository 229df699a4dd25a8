"""Layers on sparse rows, such as the words of texts: their cost follows the entries that a batch stores."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from shortlist.data.target_rows import csr
from shortlist.kernels.chooser import use_kernel_backward
from shortlist.kernels.sparse_rows import used_gradient

# Rows of unit length then give features of this deviation: small against what training adds to the vectors of the words
# that occur, so a word that it rarely sees hardly changes a score.
_DEVIATION = 0.01
_WEIGHT_SCALE = 20.0


class Bag(nn.Module):
    """Weighted sum of one vector per stored column of a sparse row, such as the words of a text.

    With ``vectors.sparse`` the gradient is a sparse tensor that holds the vectors of the batch alone.

    Args:
        width: number of columns.
        out_features: size of the vectors.

    Example:
        >>> from shortlist.data import SparseRows
        >>> rows = SparseRows(torch.tensor([0, 1, 1]), torch.tensor([1]), torch.tensor([2.0]), 3)
        >>> Bag(3, 5)(rows.batch(torch.tensor([0, 1]))).shape
        torch.Size([2, 5])
    """

    def __init__(self, width: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        # torch would draw vectors of deviation 1, which takes seconds if there are many.
        self.vectors = nn.EmbeddingBag(width, out_features, mode="sum", _weight=torch.empty(width, out_features))
        nn.init.normal_(self.vectors.weight, std=_DEVIATION)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a sparse CSR batch ``(B, width)`` to ``(B, out_features)``."""
        if inputs.layout != torch.sparse_csr:
            raise TypeError(f"`inputs` must be a sparse CSR tensor; got layout {inputs.layout}.")
        if inputs.shape[1] != self.vectors.num_embeddings:
            raise ValueError(f"`inputs` must have {self.vectors.num_embeddings} columns; got {inputs.shape[1]}.")
        crow, columns, vectors = inputs.crow_indices(), inputs.col_indices(), self.vectors.weight
        values = inputs.values().to(vectors.dtype)
        if self.vectors.sparse and torch.is_grad_enabled():
            return _SparseGradient.apply(vectors, crow, columns, values)
        return embedding_bag(columns, vectors, crow[:-1], mode="sum", per_sample_weights=values)


class _SparseGradient(torch.autograd.Function):
    """Sums of weighted vectors whose gradient is a coalesced sparse tensor with a row per column that occurs."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, crow: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(crow, columns, values)
        ctx.shape = vectors.shape
        return embedding_bag(columns, vectors, crow[:-1], mode="sum", per_sample_weights=values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        crow, columns, values = ctx.saved_tensors
        (gradient,) = gradients
        if use_kernel_backward(1.0, values, gradient):
            used, sums = used_gradient(crow, columns, values, gradient, ctx.shape[0])
        else:
            used, place = columns.unique(return_inverse=True)
            row = torch.repeat_interleave(torch.arange(len(crow) - 1, device=crow.device), crow.diff())
            shape = (len(used), len(gradient))
            sums = torch.sparse_coo_tensor(torch.stack([place, row]), values, shape, check_invariants=False) @ gradient
        found = torch.sparse_coo_tensor(used.unsqueeze(0), sums, ctx.shape, is_coalesced=True, check_invariants=False)
        return found, None, None, None


class UnitRows(nn.Module):
    """Sparse rows scaled to unit length, as a linear model needs them: its head is a `SparseLinear`.

    Args:
        width: number of columns.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a sparse CSR batch ``(B, width)`` to another one; empty rows stay."""
        crow, values = inputs.crow_indices(), inputs.values()
        row = torch.repeat_interleave(torch.arange(len(inputs), device=values.device), crow.diff())
        squares = values.new_zeros(len(inputs)).index_add_(0, row, values.square())
        return csr(crow, inputs.col_indices(), values * squares.rsqrt()[row], inputs.shape[1])


class SparseLinear(nn.Module):
    """A linear layer on sparse rows: one weight per column and label, and a bias per label, all of which start at 0.

    The weights of rows of unit length must become large, so they are kept as a twentieth of themselves: then the
    learning rate that suits networks on such rows suits this layer, too.

    Args:
        width: number of columns.
        num_labels: n.

    Example:
        >>> from shortlist.data import SparseRows
        >>> rows = SparseRows(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([2.0]), 3)
        >>> SparseLinear(3, 4)(rows.batch(torch.tensor([0])))
        tensor([[0., 0., 0., 0.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, width: int, num_labels: int) -> None:
        super().__init__()
        self.columns = Bag(width, num_labels)
        self.bias = nn.Parameter(torch.zeros(num_labels))
        nn.init.zeros_(self.columns.vectors.weight)

    @property
    def weight(self) -> Tensor:
        """The weights as those of ``nn.Linear``, ``(n, width)``."""
        return _WEIGHT_SCALE * self.columns.vectors.weight.T

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a sparse CSR batch ``(B, width)`` to logits ``(B, n)``."""
        return _WEIGHT_SCALE * self.columns(inputs) + self.bias


class _DenseBag(nn.Module):
    def __init__(self, bag: Bag) -> None:
        super().__init__()
        self.weight = nn.Parameter(bag.vectors.weight.detach(), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


class _DenseUnitRows(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * inputs.square().sum(1, keepdim=True).clamp(min=torch.finfo(inputs.dtype).tiny).rsqrt()


def with_dense_inputs(model: nn.Module) -> nn.Module:
    """Return a copy of a model that takes the same rows as dense tensors, as exporters need it.

    Example:
        >>> layer = SparseLinear(3, 4)
        >>> with_dense_inputs(layer)(torch.eye(3)).shape
        torch.Size([3, 4])
    """
    model = deepcopy(model)
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Bag):
                setattr(parent, name, _DenseBag(layer))
            elif isinstance(layer, UnitRows):
                setattr(parent, name, _DenseUnitRows())
    return model


def has_sparse_layers(model: nn.Module) -> bool:
    """Return whether a model has a layer on sparse rows."""
    return any(isinstance(module, Bag) for module in model.modules())


def use_sparse_gradients(model: nn.Module) -> None:
    """Let all layers on sparse rows have sparse gradients, which only some optimizers take."""
    for module in model.modules():
        if isinstance(module, Bag):
            module.vectors.sparse = True

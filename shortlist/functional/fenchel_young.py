"""Fenchel-Young losses: each projection trains by "prediction - target"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.lml import lml_dual
from shortlist.functional.sparse_top import sparse_top
from shortlist.targets import sum_over_positives, unknown_mask


class Potential(Protocol):
    """Convex map ``(..., n) -> (...)`` whose gradient is the prediction that it trains."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """The largest value of ``logits . p + entropy(p)`` over the predictions ``p``."""
        ...


def fenchel_young_loss(logits: Tensor, target: Tensor, potential: Potential) -> Tensor:
    r"""The loss whose gradient is prediction minus target.

    .. math:: \ell(x, y) = \Omega^*(x) - x \cdot y, \qquad \nabla_x \ell = \nabla \Omega^*(x) - y

    It is convex; with the potentials of this module and a target that they can predict it is non-negative, and zero
    only where the prediction is the target (for soft targets up to the target's own entropy, which is left out).

    Args:
        logits: ``(*rows, n)``, floating.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels leave the problem, as if absent. A
            floating multi-hot may hold soft targets in [0, 1].
        potential: :class:`SoftmaxPotential`, :class:`LMLPotential`, ... or any convex function of the logits.

    Returns:
        One value per row, ``(*rows,)``.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0, -1.0]])
        >>> fenchel_young_loss(logits, torch.tensor([0]), SoftmaxPotential())
        tensor([0.3490])
        >>> fenchel_young_loss(logits, torch.tensor([[0, 1]]), LMLPotential(2))
        tensor([0.7390])

    References:
        Blondel, Martins, Niculae, "Learning with Fenchel-Young Losses", 2020.
    """
    unknown = unknown_mask(target, logits.shape[-1], row_dims=logits.ndim - 1)
    known = logits if unknown is None else logits.masked_fill(unknown, -torch.inf)
    return potential(known) - sum_over_positives(logits, target)


@dataclass(frozen=True)
class SigmoidPotential:
    """``sum_j log(1 + exp x_j)``: independent labels; the loss is binary cross-entropy."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return softplus(_solvable(logits)).sum(-1).to(logits.dtype)


@dataclass(frozen=True)
class SoftmaxPotential:
    """``log sum_j exp x_j``: one label; the loss is cross-entropy."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return _solvable(logits).logsumexp(-1).to(logits.dtype)


@dataclass(frozen=True)
class LMLPotential:
    """``k`` labels by binary entropy: its gradient is :func:`shortlist.functional.lml`."""

    k: float | Tensor

    def __call__(self, logits: Tensor, /) -> Tensor:
        r"""``sum_j log(1 + exp(x_j + nu)) - k nu``, one value per row."""
        x = _solvable(logits)
        peak = x.detach().amax(-1, keepdim=True)
        peak = torch.where(peak.isfinite(), peak, 0)
        centred = x - peak  # large offsets would drown the digits of nu
        nu = lml_dual(centred, self.k)
        inner = nu.isfinite()
        nu = torch.where(inner, nu, 0)
        value = softplus(centred + nu.unsqueeze(-1)).sum(-1) + self.k * (peak.squeeze(-1) - nu)
        return torch.where(inner, value, _all_or_nothing(x, self.k)).to(logits.dtype)


@dataclass(frozen=True)
class SparseTopPotential:
    """``k`` labels by the Gini entropy: its gradient is :func:`shortlist.functional.sparse_top`."""

    k: float | Tensor

    def __call__(self, logits: Tensor, /) -> Tensor:
        r"""``x . p + sum_j p_j (1 - p_j) / 2`` at the projection ``p``, one value per row."""
        x = _solvable(logits)
        p = sparse_top(x, self.k)
        present = torch.where(p > 0, x, 0)  # -inf times 0
        return (present * p + p * (1 - p) / 2).sum(-1).to(logits.dtype)


@dataclass(frozen=True)
class SparsemaxPotential:
    """One label by the Gini entropy: its gradient is :func:`shortlist.functional.sparsemax`."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """One value per row."""
        return SparseTopPotential(1)(logits)


def _solvable(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _all_or_nothing(x: Tensor, k: float | Tensor) -> Tensor:
    """The potential where every present label is taken, or none."""
    wanted = torch.as_tensor(k, dtype=x.dtype, device=x.device)
    return torch.where(x > -torch.inf, x, 0).sum(-1) * (wanted > 0)

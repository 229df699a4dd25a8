"""The DFT output layer, which by construction can output every set of at most k labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from shortlist import functional as F
from shortlist.functional.dft import check_degree, fft_is_cheaper
from shortlist.nn.heads import check_features
from shortlist.targets import to_index_lists, to_multi_hot
from shortlist.tensors import check_size

__all__ = ["DFTHead", "HeadWitness"]

BOX = 1e4
"""Half the side length of the feature box in which the papers measure radii."""
_BLOCK = 1 << 20
"""Number of logits that the sign check computes at a time."""


class HeadWitness(NamedTuple):
    """Features for which a :class:`DFTHead` outputs given label sets, one row per set, and how robustly.

    ``features``, ``(rows, d)`` float64, are outputs of ``projection``: d = 2k + 1 + slack, where the slack features are
    0 and the largest magnitude is 1. ``radius``, ``(rows,)`` float64, is ``min_i |z_i| / ||w_i||`` for 10⁴ times the
    features, the convention of the papers; it belongs to the exact polynomial, and ``log10_radius`` is valid even where
    it underflows to 0. ``survives`` says for float64, float32 and bfloat16 which rows keep all their signs when
    features and weight are rounded to that dtype and multiplied in it; for float64, by more than any rounding error.
    """

    features: Tensor
    radius: Tensor
    log10_radius: Tensor
    survives: dict[torch.dtype, Tensor]


class DFTHead(nn.Module):
    r"""Low-rank output layer that can output every set of at most ``k`` labels.

    .. math:: z = [F \; S] (P e + b)

    where F is the fixed :func:`shortlist.functional.dft_matrix` with ``2k + 1`` columns and the columns of S are
    learned.

    *This holds in exact arithmetic.* The regions of many sets are too thin for floating point, and get thinner with
    more labels, a larger k, and labels of a set that are closer together. The table shows the share of 5000 random sets
    of k labels whose `witness` keeps all its signs in float64 (beyond rounding error) / in float32, without slack. In
    bfloat16 none did:

    ========  ===========  ===========  ==========
    n         k = 5        k = 10       k = 20
    ========  ===========  ===========  ==========
    1000      100 / 57 %   95 / 17 %    62 / 1 %
    9000      99 / 15 %    83 / 1 %     31 / 0 %
    ========  ===========  ===========  ==========

    Slack columns widen the regions, but the witness does not use them; :mod:`shortlist.audit` finds the best features
    for given sets.

    Args:
        in_features: size of e. If it is less than ``2k + 1``, the projection cannot reach all features. The guarantee
            and the verdicts of an audit are about all features, reachable or not.
        num_labels: n.
        k: the largest size of a set; ``2k + 1 <= n``. Also stored as ``dft_degree``.
        slack: the number of columns of S. The paper compares the layer with a bottleneck of this width: F guarantees
            which sets are possible, S learns which labels go together.
        device: the device of the parameters.
        dtype: their dtype.

    The layer has ``projection`` (P and b, an ``nn.Linear`` to 2k + 1 + slack) and ``slack_weight`` (S, or None); F is
    neither learned nor saved. Initially every label has probability k / n (for k = 0, 1 / 2n): exactly for features of
    0, approximately for features of unit scale. The columns of S start with the norm of those of F, about 1. In half
    precision and under autocast, the product with F is computed in float32, without rounding F further.

    Example:
        >>> head = DFTHead(16, 1000, 5)
        >>> head(torch.zeros(3, 16)).sigmoid().mean().detach()
        tensor(0.0050)
        >>> head.witness(torch.tensor([[3, 14, 159, 265, 358]])).survives[torch.float64]
        tensor([True])

    References:
        Grivas, Vergari, Lopez, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification",
        2024.
    """

    slack_weight: nn.Parameter | None
    matrix: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        k: int,
        slack: int = 0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_degree(num_labels, k)
        self.in_features, self.num_labels = check_size("in_features", in_features), int(num_labels)
        self.dft_degree = k = int(k)
        self.slack = check_size("slack", slack, at_least=0)
        self.projection = nn.Linear(self.in_features, 2 * k + 1 + self.slack, device=device, dtype=dtype)
        columns = torch.empty(num_labels, self.slack, device=device, dtype=dtype) if self.slack else None
        self.register_parameter("slack_weight", None if columns is None else nn.Parameter(columns))
        self.register_buffer("matrix", None, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters, and F if it is stored."""
        self.projection.reset_parameters()
        n, k, fixed = self.num_labels, self.dft_degree, 2 * self.dft_degree + 1
        start = k / n if k else 1 / (2 * n)
        nn.init.zeros_(self.projection.bias)
        with torch.no_grad():
            self.projection.bias[0] = math.sqrt(n) * math.log(start / (1 - start))
            if self.slack_weight is not None:
                nn.init.normal_(self.slack_weight, std=1 / math.sqrt(n))
                # Even many slack columns together change the logits no more than F does.
                self.projection.weight[fixed:] *= math.sqrt(min(1, fixed / self.slack))
        self._make_matrix()

    @property
    def weight(self) -> Tensor:
        """``[F S]``, ``(n, 2k + 1 + slack)``, in the dtype of the parameters; differentiable in S."""
        return self.explicit_weight(self.projection.weight.dtype)

    def explicit_weight(self, dtype: torch.dtype) -> Tensor:
        """``[F S]`` in ``dtype``: F is computed in float64 and then rounded."""
        fixed = F.dft_matrix(self.num_labels, self.dft_degree, dtype=dtype, device=self.projection.weight.device)
        return fixed if self.slack_weight is None else torch.cat([fixed, self.slack_weight.to(dtype)], -1)

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(..., n)`` of ``features`` ``(..., in_features)``."""
        check_features(features, self.in_features)
        inner, fixed = self.projection(features), 2 * self.dft_degree + 1
        method = "fft" if self.matrix is None and not torch.compiler.is_exporting() else "matmul"
        logits = F.dft_logits(inner[..., :fixed], self.num_labels, method=method, matrix=self.matrix)
        return logits if self.slack_weight is None else logits + linear(inner[..., fixed:], self.slack_weight)

    @torch.no_grad()
    def witness(self, label_sets: Tensor) -> HeadWitness:
        """Features whose logits have the signs of each label set, by :func:`shortlist.functional.dft_witness`.

        Args:
            label_sets: one set per row in any form of :mod:`shortlist.targets`, with at most 2k cyclic sign changes, as
                every set of at most k labels has.

        Returns:
            :class:`HeadWitness`, on the device of the layer.

        Example:
            >>> witness = DFTHead(16, 9000, 20).witness(torch.arange(0, 40, 2)[None])
            >>> witness.radius, witness.survives[torch.float64]
            (tensor([1.7882e-100], dtype=torch.float64), tensor([False]))
        """
        device = self.projection.weight.device
        lists = to_index_lists(label_sets, self.num_labels).to(device)
        weight = self.explicit_weight(torch.float64)
        found = F.dft_witness(lists, self.num_labels, self.dft_degree, row_norms=weight.norm(dim=-1))
        log10_radius = found.log10_radius + math.log10(BOX)
        features = nn.functional.pad(found.features, (0, self.slack))
        survives = {
            dtype: _survives(features, weight, lists, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)
        }
        return HeadWitness(features, 10**log10_radius, log10_radius, survives)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        sizes = f"in_features={self.in_features}, num_labels={self.num_labels}"
        return f"{sizes}, k={self.dft_degree}, slack={self.slack}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        # Recompute F instead of converting it: a rounded F would stay rounded, and `to_empty` leaves nothing to
        # convert.
        self._make_matrix()
        return self

    def _make_matrix(self) -> None:
        """Store F if multiplying by it is cheaper than an FFT."""
        if fft_is_cheaper(self.num_labels, self.dft_degree, None):
            return
        like = self.projection.weight
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.matrix = F.dft_matrix(self.num_labels, self.dft_degree, dtype=dtype, device=like.device)


def _survives(features: Tensor, weight: Tensor, lists: Tensor, dtype: torch.dtype) -> Tensor:
    """Whether each row has exactly the signs of its label set when computed in ``dtype``."""
    n, d = weight.shape
    rounded, matrix = features.to(dtype), weight.to(dtype).T
    right = []
    for start in range(0, max(1, len(features)), max(1, _BLOCK // n)):
        rows = slice(start, start + max(1, _BLOCK // n))
        hot = to_multi_hot(lists[rows], n, dtype=torch.bool)
        logits = rounded[rows] @ matrix
        margin = 0.0
        if dtype == torch.float64:
            margin = (d + 2) * torch.finfo(dtype).eps / 2 * (rounded[rows].abs() @ matrix.abs())
        right.append((torch.where(hot, logits, -logits) > margin).all(-1))
    return torch.cat(right)

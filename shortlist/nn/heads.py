"""Output layers: with a bottleneck, with cosine logits, or a pair of heads for average-K."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from shortlist.tensors import check_positive, check_size, solvable

__all__ = ["BottleneckHead", "CosineHead", "TwoHead"]


def check_features(features: Tensor, in_features: int) -> None:
    """Raise unless the last dimension of ``features`` matches the layer."""
    if features.ndim == 0 or features.shape[-1] != in_features:
        raise ValueError(f"`features` must have last size {in_features}; got shape {tuple(features.shape)}.")


class BottleneckHead(nn.Module):
    r"""Linear output layer of low rank.

    .. math:: z = W (P e + b)

    With fewer columns than labels, most sign patterns are impossible for *every* input. Training does not reveal which;
    :mod:`shortlist.audit` does. :class:`DFTHead` avoids the problem for sets of at most k labels.

    Args:
        in_features: size of e.
        num_labels: n, rows of W (``weight``, a parameter).
        bottleneck: d, columns of W and outputs of ``projection``, an ``nn.Linear``.
        device: the device of the parameters.
        dtype: their dtype.

    Example:
        >>> head = BottleneckHead(16, 1000, 8)
        >>> head(torch.zeros(2, 3, 16)).shape
        torch.Size([2, 3, 1000])
        >>> head.weight.shape
        torch.Size([1000, 8])
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        bottleneck: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_labels = check_size("in_features", in_features), check_size("num_labels", num_labels)
        self.bottleneck = check_size("bottleneck", bottleneck)
        self.projection = nn.Linear(self.in_features, self.bottleneck, device=device, dtype=dtype)
        self.weight = nn.Parameter(torch.empty(self.num_labels, self.bottleneck, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters like ``nn.Linear``."""
        self.projection.reset_parameters()
        bound = 1 / math.sqrt(self.bottleneck)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(..., n)`` of ``features`` ``(..., in_features)``."""
        check_features(features, self.in_features)
        return linear(self.projection(features), self.weight)

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        return f"in_features={self.in_features}, num_labels={self.num_labels}, bottleneck={self.bottleneck}"


class CosineHead(nn.Module):
    r"""Cosine between the features and one direction per label.

    .. math:: z_i = s \, \frac{w_i}{\|w_i\|} \cdot \frac{e}{\|e\|}

    For losses with margins: :class:`LDAM` and :class:`NoisedTopK` apply their own scale, so the default scale is 1 and
    the logits lie in [-1, 1] up to rounding. Other losses need a larger scale to separate labels.

    Args:
        in_features: size of e. A zero vector has logits 0 and a finite gradient, as if its norm were 1. Norms are
            computed in float32 or higher precision and neither overflow nor underflow.
        num_labels: n, rows of ``weight``.
        scale: s, positive.
        learn_scale: whether ``scale`` is a parameter with this initial value.
        device: the device of the parameters.
        dtype: their dtype.

    Example:
        >>> head = CosineHead(2, 2)
        >>> head.load_state_dict({"weight": torch.tensor([[2.0, 0.0], [1.0, 1.0]])})
        <All keys matched successfully>
        >>> head(torch.tensor([5.0, 0.0])).detach()
        tensor([1.0000, 0.7071])
    """

    scale: float | Tensor

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        scale: float = 1.0,
        learn_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_labels = check_size("in_features", in_features), check_size("num_labels", num_labels)
        self.initial_scale = check_positive("scale", scale)
        self.weight = nn.Parameter(torch.empty(self.num_labels, self.in_features, device=device, dtype=dtype))
        self.scale = nn.Parameter(torch.empty((), device=device, dtype=dtype)) if learn_scale else self.initial_scale
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw random directions and reset a learned scale to its initial value."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if isinstance(self.scale, Tensor):
            nn.init.constant_(self.scale, self.initial_scale)

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(..., n)`` of ``features`` ``(..., in_features)``."""
        check_features(features, self.in_features)
        cosines = linear(_unit(features), _unit(self.weight))
        return cosines if isinstance(self.scale, float) and self.scale == 1 else cosines * self.scale

    def explicit_weight(self, dtype: torch.dtype) -> Tensor:
        """The unit vectors of the labels, ``(n, in_features)`` in ``dtype``."""
        return _unit(self.weight.detach().to(dtype))

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        scale = "learned" if isinstance(self.scale, Tensor) else self.scale
        return f"in_features={self.in_features}, num_labels={self.num_labels}, scale={scale}"


class TwoHead(nn.Module):
    """Two heads on the same features; returns their logits in the order that :class:`AverageK` expects.

    Any two modules that map features to logits work. Only ``prediction`` is used for predictions and audits;
    ``proposal`` is needed only in training.

    Args:
        prediction: the head that predicts.
        proposal: the head that proposes candidates.

    Example:
        >>> head = TwoHead(BottleneckHead(16, 100, 8), torch.nn.Linear(16, 100))
        >>> features, target = torch.randn(4, 16), torch.tensor([3, 1, 4, 15])
        >>> AverageK(5)(*head(features), target).shape
        torch.Size([])
        >>> head.prediction(features).shape
        torch.Size([4, 100])
    """

    def __init__(self, prediction: nn.Module, proposal: nn.Module) -> None:
        super().__init__()
        for name, head in (("prediction", prediction), ("proposal", proposal)):
            if not isinstance(head, nn.Module):
                raise TypeError(f"`{name}` must be a torch.nn.Module; got {type(head).__name__}.")
        self.prediction, self.proposal = prediction, proposal

    @classmethod
    def linear(
        cls,
        in_features: int,
        num_labels: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> TwoHead:
        """Two ``nn.Linear`` layers, as in the published method.

        Example:
            >>> [logits.shape for logits in TwoHead.linear(16, 100)(torch.zeros(4, 16))]
            [torch.Size([4, 100]), torch.Size([4, 100])]
        """
        sizes = check_size("in_features", in_features), check_size("num_labels", num_labels)
        return cls(*(nn.Linear(*sizes, device=device, dtype=dtype) for _ in range(2)))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """``(logits, proposals)``, each ``(..., n)``."""
        return self.prediction(features), self.proposal(features)


def _unit(vectors: Tensor) -> Tensor:
    """Rows of norm 1; zeros stay zeros."""
    rows = solvable(vectors)
    largest = rows.detach().abs().amax(-1, keepdim=True)
    # After division by its largest entry, a vector has a norm of at least 1, so squaring is safe. The divisor is
    # detached because it cancels in the derivative. A vector too small to divide by counts as zero.
    rows = rows / torch.where(largest > math.sqrt(torch.finfo(rows.dtype).tiny), largest, 1)
    return (rows * rows.square().sum(-1, keepdim=True).clamp(min=1).rsqrt()).to(vectors.dtype)

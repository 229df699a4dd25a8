"""The projections as modules: they store options and delegate to ``shortlist.functional``."""

from __future__ import annotations

from torch import Tensor, nn

from shortlist import functional as F


class _Projection(nn.Module):
    """Base of the projections with a number of labels ``k``: a number, or a tensor kept as a buffer."""

    k: float | Tensor

    def __init__(self, k: float | Tensor, *, dim: int = -1, temperature: float = 1.0) -> None:
        super().__init__()
        if isinstance(k, nn.Parameter):
            self.k = k
        elif isinstance(k, Tensor):
            self.register_buffer("k", k)
        else:
            self.k = k
        self.dim, self.temperature = dim, temperature

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        k = f"tensor{tuple(self.k.shape)}" if isinstance(self.k, Tensor) else self.k
        return f"k={k}, dim={self.dim}, temperature={self.temperature}"


class LML(_Projection):
    """:func:`shortlist.functional.lml` as a layer.

    Args:
        k: how many labels: a number, a tensor with one value per row (saved with the module), or a parameter to learn.
        dim: the label axis.
        temperature: a positive number.

    Example:
        >>> LML(k=2)(torch.tensor([2.0, 1.0, 0.0, -1.0]))
        tensor([0.8176, 0.6225, 0.3775, 0.1824])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.lml(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class LogLML(_Projection):
    """:func:`shortlist.functional.log_lml` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> LogLML(k=1)(torch.tensor([2.0, 0.0, -300.0]))
        tensor([  -0.3133,   -1.3133, -301.0000])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.log_lml(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class LMLBudget(_Projection):
    """:func:`shortlist.functional.lml_budget` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> LMLBudget(k=2)(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.lml_budget(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class SparseTop(_Projection):
    """:func:`shortlist.functional.sparse_top` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> SparseTop(k=2)(torch.tensor([2.0, 1.2, 0.9, -3.0]))
        tensor([1.0000, 0.6500, 0.3500, 0.0000])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.sparse_top(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class SparseTopBudget(_Projection):
    """:func:`shortlist.functional.sparse_top_budget` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> SparseTopBudget(k=2)(torch.tensor([0.75, 0.5, -1.0]))
        tensor([0.7500, 0.5000, 0.0000])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.sparse_top_budget(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class ConstrainedSoftmax(_Projection):
    """:func:`shortlist.functional.constrained_softmax` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> ConstrainedSoftmax(k=2)(torch.tensor([3.0, 1.0, 0.0, 0.0]))
        tensor([1.0000, 0.5761, 0.2119, 0.2119])
    """

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.constrained_softmax(logits, self.k, dim=self.dim, temperature=self.temperature, mask=mask)


class Sparsemax(nn.Module):
    """:func:`shortlist.functional.sparsemax` as a layer.

    Args:
        dim: the label axis.
        temperature: a positive number.

    Example:
        >>> Sparsemax()(torch.tensor([1.0, 0.6, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])
    """

    def __init__(self, *, dim: int = -1, temperature: float = 1.0) -> None:
        super().__init__()
        self.dim, self.temperature = dim, temperature

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return F.sparsemax(logits, dim=self.dim, temperature=self.temperature, mask=mask)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"dim={self.dim}, temperature={self.temperature}"

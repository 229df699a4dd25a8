"""The projections as modules: they store options and delegate to ``shortlist.functional``."""

from __future__ import annotations

from torch import Tensor

from shortlist import functional as F
from shortlist.nn.function_module import FunctionModule

__all__ = ["LML", "ConstrainedSoftmax", "LMLBudget", "LogLML", "SparseTop", "SparseTopBudget", "Sparsemax"]


class _Projection(FunctionModule):
    def __init__(self, *, dim: int = -1, temperature: float = 1.0) -> None:
        super().__init__()
        self.add_options(dim=dim, temperature=temperature)

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project ``logits``; ``mask`` is False where a label is absent."""
        return type(self).function(logits, **self.arguments(), mask=mask)


class _ProjectionOntoK(_Projection):
    k: float | Tensor

    def __init__(self, k: float | Tensor, *, dim: int = -1, temperature: float = 1.0) -> None:
        super().__init__(dim=dim, temperature=temperature)
        self.add_options(k=k)


class LML(_ProjectionOntoK):
    """:func:`shortlist.functional.lml` as a layer.

    Args:
        k: the number of labels: a number, a tensor with one value per row (saved with the module), or a parameter to
            learn.
        dim: the label axis.
        temperature: a positive number.

    Example:
        >>> LML(k=2)(torch.tensor([2.0, 1.0, 0.0, -1.0]))
        tensor([0.8176, 0.6225, 0.3775, 0.1824])
    """

    function = staticmethod(F.lml)


class LogLML(_ProjectionOntoK):
    """:func:`shortlist.functional.log_lml` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> LogLML(k=1)(torch.tensor([2.0, 0.0, -300.0]))
        tensor([  -0.3133,   -1.3133, -301.0000])
    """

    function = staticmethod(F.log_lml)


class LMLBudget(_ProjectionOntoK):
    """:func:`shortlist.functional.lml_budget` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> LMLBudget(k=2)(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    function = staticmethod(F.lml_budget)


class SparseTop(_ProjectionOntoK):
    """:func:`shortlist.functional.sparse_top` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> SparseTop(k=2)(torch.tensor([2.0, 1.2, 0.9, -3.0]))
        tensor([1.0000, 0.6500, 0.3500, 0.0000])
    """

    function = staticmethod(F.sparse_top)


class SparseTopBudget(_ProjectionOntoK):
    """:func:`shortlist.functional.sparse_top_budget` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> SparseTopBudget(k=2)(torch.tensor([0.75, 0.5, -1.0]))
        tensor([0.7500, 0.5000, 0.0000])
    """

    function = staticmethod(F.sparse_top_budget)


class ConstrainedSoftmax(_ProjectionOntoK):
    """:func:`shortlist.functional.constrained_softmax` as a layer. Arguments as for :class:`LML`.

    Example:
        >>> ConstrainedSoftmax(k=2)(torch.tensor([3.0, 1.0, 0.0, 0.0]))
        tensor([1.0000, 0.5761, 0.2119, 0.2119])
    """

    function = staticmethod(F.constrained_softmax)


class Sparsemax(_Projection):
    """:func:`shortlist.functional.sparsemax` as a layer.

    Args:
        dim: the label axis.
        temperature: a positive number.

    Example:
        >>> Sparsemax()(torch.tensor([1.0, 0.6, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])
    """

    function = staticmethod(F.sparsemax)

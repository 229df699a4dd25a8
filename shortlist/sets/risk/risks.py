"""Risks of sets: what a row loses by its set, and the facts about this loss from which a bound can be proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from shortlist.tensors import check_positive

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Risk:
    r"""The mean over rows of a loss that depends on three counts of a row.

    .. math:: R(t) = E\,\ell(h, s, m), \quad h = |Y \cap C_t(x)|, \; s = |C_t(x)|, \; m = |Y|

    Args:
        name: what is lost, in a few words; of a risk, a saved rule keeps this alone.
        loss: called with ``hits``, ``sizes`` and ``positives``, float64 tensors of one shape; returns the losses, from
            0 to ``bound``, in the same shape.
        bound: the largest loss; None for the number of labels.
        larger_sets: whether adding labels to a set can only ``"lower"`` or only ``"raise"`` the loss; None if it can do
            either. What is claimed here is checked on the held-out rows.
        of_hits: if the loss does not depend on the size: the same loss of ``hits`` and ``positives``, two integers, as
            an exact fraction. Thresholds are then exact, too, and need no candidates.
        labeled_rows: whether the mean is over the rows with at least one true label.

    Example:
        >>> no_hit = Risk("rows without a hit", lambda hits, sizes, positives: hits == 0, larger_sets="lower")
        >>> no_hit.losses(torch.tensor([0, 1]), torch.tensor([2, 2]), torch.tensor([1, 3]))
        tensor([1., 0.], dtype=torch.float64)
    """

    name: str
    loss: Loss
    bound: float | None = 1.0
    larger_sets: Literal["lower", "raise"] | None = None
    of_hits: Callable[[int, int], Fraction] | None = None
    labeled_rows: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"`name` must be a few words that say what is lost; got {self.name!r}.")
        for name, function in (("loss", self.loss), ("of_hits", self.of_hits)):
            if not callable(function) and (name == "loss" or function is not None):
                raise TypeError(f"`{name}` must be a function; got {function!r}.")
        if self.bound is not None:
            check_positive("bound", self.bound)
        if self.larger_sets not in ("lower", "raise", None):
            raise ValueError(f'`larger_sets` must be "lower", "raise" or None; got {self.larger_sets!r}.')

    def losses(self, hits: Tensor, sizes: Tensor, positives: Tensor) -> Tensor:
        """The losses in float64, checked to lie in their bounds; ``positives`` broadcasts."""
        positives = positives.double().expand(sizes.shape)
        losses = torch.as_tensor(self.loss(hits.double(), sizes.double(), positives)).double()
        if losses.shape != sizes.shape:
            raise ValueError(
                f"the loss of {self.name!r} must have shape {tuple(sizes.shape)}; got {tuple(losses.shape)}."
            )
        wrong = ~((losses >= 0) & (losses <= (torch.inf if self.bound is None else self.bound)))
        if wrong.any():
            limit = "" if self.bound is None else f" and at most {self.bound:g}"
            raise ValueError(f"the loss of {self.name!r} must be at least 0{limit}; got {losses[wrong][0].item():g}.")
        return losses

    def is_kept_by(self, alpha: float, num_labels: int, *, all_labels: bool) -> bool:
        """Whether the risk is at most ``alpha`` by definition if every set is empty, or if every set is full."""
        positives = torch.arange(int(self.labeled_rows), num_labels + 1)
        zeros = torch.zeros_like(positives)
        sizes = zeros + num_labels if all_labels else zeros
        return bool((self.losses(positives if all_labels else zeros, sizes, positives) <= alpha).all())


def forgotten(name: str) -> Risk:
    """What a rule read from a file knows of its risk: the name. No fact matters, since nothing can be fitted."""
    return Risk(name, partial(_refuse, name), bound=None, larger_sets="lower")


def _refuse(name: str, *counts: Tensor) -> Tensor:
    raise ValueError(f"a rule read from a file knows only the name of its risk, {name!r}; make a new one to fit it.")


def _missing(hits: Tensor, sizes: Tensor, positives: Tensor) -> Tensor:
    return 1 - hits / positives


def _missing_exactly(hits: int, positives: int) -> Fraction:
    return Fraction(positives - hits, positives)


def _wrong(hits: Tensor, sizes: Tensor, positives: Tensor) -> Tensor:
    return (sizes - hits) / sizes.clamp(min=1)


def _size(hits: Tensor, sizes: Tensor, positives: Tensor, *, most: float | None) -> Tensor:
    return sizes if most is None else sizes.clamp(max=most)


def _lack_of_f(hits: Tensor, sizes: Tensor, positives: Tensor, *, beta: float) -> Tensor:
    total = beta**2 * positives + sizes
    return torch.where(total > 0, 1 - (1 + beta**2) * hits / total.clamp(min=1e-300), 0.0)


false_negative_rate = Risk(
    "share of true labels missing",
    _missing,
    larger_sets="lower",
    of_hits=_missing_exactly,
    labeled_rows=True,
)
"""The share of a row's true labels that its set misses: one minus recall. Rows without true labels do not count."""

false_discovery_rate = Risk("share of wrong labels in the sets", _wrong)
"""The share of a set's labels that are wrong: one minus precision. An empty set has none."""


def f_risk(beta: float = 1.0) -> Risk:
    r"""One minus the F-beta of a row, :math:`1 - (1 + \beta^2) h / (\beta^2 m + s)`.

    The F-beta of an empty set in a row without true labels is 1.

    Example:
        >>> f_risk(1.0).name
        '1 - F1'
    """
    beta = check_positive("beta", beta)
    return Risk(f"1 - F{beta:g}", partial(_lack_of_f, beta=beta))


def set_size(most: float | None = None) -> Risk:
    """The number of labels in a set.

    Args:
        most: larger sets count as this size. A small one gives a sharper bound than the number of labels, which is the
            default.

    Example:
        >>> set_size(20).bound
        20.0
    """
    most = None if most is None else check_positive("most", most)
    return Risk("set size", partial(_size, most=most), bound=most, larger_sets="raise")

"""Long tails: training rows thinned out so that few classes have many and many have few."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Literal

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.one_class import training_classes


def long_tail_sizes(largest: int, num_classes: int, imbalance: float, *, alpha: float = math.inf) -> np.ndarray:
    r"""How many rows the classes of a long tail have, from the largest to the smallest.

    .. math:: n_r = n_0 \left(1 + \frac{r}{L - 1} (\rho^{1/\alpha} - 1)\right)^{-\alpha}
        \;\xrightarrow{\alpha \to \infty}\; n_0\, \rho^{-r / (L - 1)}

    the Pareto law of sizes over ranks r = 0, ..., L - 1, and its limit, the exponential one. Both begin with the
    largest class and end with a class :math:`\rho` times smaller.

    Args:
        largest: :math:`n_0`, a whole number from 1.
        num_classes: L.
        imbalance: :math:`\rho`, from 1.
        alpha: the power, above 0; the smaller, the faster the sizes fall at first. Infinity is exponential.

    Returns:
        ``(L,)`` int64, rounded to the nearest, and at least 1.

    Example:
        >>> long_tail_sizes(500, 5, 100)
        array([500, 158,  50,  16,   5])
        >>> long_tail_sizes(500, 5, 100, alpha=1)
        array([500,  19,  10,   7,   5])
    """
    for name, value, least in (("largest", largest, 1), ("num_classes", num_classes, 0)):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"`{name}` must be a whole number; got {value!r}.")
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.")
    for name, value in (("imbalance", imbalance), ("alpha", alpha)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"`{name}` must be a number; got {value!r}.")
    if not imbalance >= 1 or math.isinf(imbalance):
        raise ValueError(f"`imbalance` must be finite and at least 1; got {imbalance}.")
    if not alpha > 0:
        raise ValueError(f"`alpha` must be above 0; got {alpha}.")
    rank = np.arange(num_classes) / max(num_classes - 1, 1)
    if math.isinf(alpha):
        share = imbalance**-rank
    else:
        # Large powers would lose the tail in rounding, small ones overflow: a sum of two exponentials in log space does
        # neither, for 1 + r (e^x - 1) = (1 - r) + r e^x.
        rise = math.log(imbalance) / alpha
        with np.errstate(divide="ignore"):
            share = np.exp(-alpha * np.logaddexp(np.log1p(-rank), np.log(rank) + rise))
    return np.maximum(np.floor(largest * share + 0.5), 1).astype(np.int64)


def long_tail(
    dataset: Dataset,
    imbalance: float,
    *,
    alpha: float = math.inf,
    order: Literal["index", "random"] = "index",
    seed: int = 0,
) -> Dataset:
    """Thin out the training rows to a long tail of classes; other rows stay.

    Args:
        dataset: one class per row.
        imbalance, alpha: as in `long_tail_sizes`; the largest class keeps all rows that the fullest class has.
        order: which class is large and which small: ``index`` goes by label number, ``random`` by chance.
        seed: a whole number from 0; the result depends on nothing else.

    Returns:
        A subset of the rows, in their order. A class with fewer rows than its size in the tail keeps all it has.

    Example:
        >>> from shortlist.data import Dataset, Features, long_tail
        >>> even = Dataset(Features(torch.zeros(50, 1)), torch.arange(50) % 5, tuple("abcde"))
        >>> long_tail(even, 10).label_counts()
        tensor([10,  6,  3,  2,  1])
    """
    if order not in ("index", "random"):
        raise ValueError(f"`order` must be 'index' or 'random'; got {order!r}.")
    rows, classes = training_classes(dataset, "long_tail")
    counts = np.bincount(classes, minlength=dataset.num_labels)
    largest = int(counts.max()) if len(rows) else 0
    full = np.flatnonzero(counts)  # A class without rows has no place in the tail.
    ranked = long_tail_sizes(max(largest, 1), len(full), imbalance, alpha=alpha)
    draws = Draws(seed, "long tail")
    if order == "random":
        ranked = ranked[np.argsort(draws.order(len(full)))]
    sizes = np.zeros(dataset.num_labels, dtype=np.int64)
    sizes[full] = ranked
    keep = np.ones(len(dataset), dtype=bool)
    keep[rows.numpy()] = rank_within(classes, draws.raw(len(rows))) < sizes[classes]
    return dataset.subset(torch.from_numpy(np.flatnonzero(keep)))


def rank_within(classes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The place of each row among the rows of its class, ordered by key."""
    by_class = np.lexsort((keys, classes))
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(classes), dtype=np.int64)
    rank[by_class] = np.arange(len(classes)) - starts[classes[by_class]]
    return rank

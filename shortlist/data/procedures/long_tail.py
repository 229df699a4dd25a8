"""Long tails: training rows subsampled so that few classes have many rows and many classes have few."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.training_rows import rank_within, training_classes
from shortlist.tensors import check_number, check_size


def long_tail_sizes(largest: int, num_classes: int, imbalance: float, *, alpha: float = math.inf) -> np.ndarray:
    r"""The class sizes of a long tail, from the largest to the smallest.

    .. math:: n_r = n_0 \left(1 + \frac{r}{L - 1} (\rho^{1/\alpha} - 1)\right)^{-\alpha}
        \;\xrightarrow{\alpha \to \infty}\; n_0\, \rho^{-r / (L - 1)}

    the Pareto law of sizes over ranks r = 0, ..., L - 1, and its exponential limit. The last class is :math:`\rho`
    times smaller than the first.

    Args:
        largest: :math:`n_0`, an integer from 1.
        num_classes: L.
        imbalance: :math:`\rho`, from 1.
        alpha: the exponent, above 0; the smaller, the faster sizes fall at first. Infinity is exponential.

    Returns:
        ``(L,)`` int64, rounded to the nearest integer, at least 1.

    Example:
        >>> long_tail_sizes(500, 5, 100)
        array([500, 158,  50,  16,   5])
        >>> long_tail_sizes(500, 5, 100, alpha=1)
        array([500,  19,  10,   7,   5])
    """
    check_size("largest", largest)
    check_size("num_classes", num_classes, at_least=0)
    check_number("imbalance", imbalance, at_least=1.0)
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise TypeError(f"`alpha` must be a number; got {alpha!r}.")
    if not alpha > 0:
        raise ValueError(f"`alpha` must be above 0; got {alpha}.")
    rank = np.arange(num_classes) / max(num_classes - 1, 1)
    exponent = math.log(imbalance) / alpha
    if math.isinf(alpha):
        share = imbalance**-rank
    elif exponent < 1:
        # Close to the exponential limit, the logarithm must be accurate near 1: alpha multiplies its error.
        share = np.exp(-alpha * np.log1p(rank * math.expm1(exponent)))
    else:
        # 1 + r (e^x - 1) = (1 - r) + r e^x as a sum in log space cannot overflow.
        with np.errstate(divide="ignore"):
            share = np.exp(-alpha * np.logaddexp(np.log1p(-rank), np.log(rank) + exponent))
    return np.maximum(np.floor(largest * share + 0.5), 1).astype(np.int64)


def long_tail(
    dataset: Dataset,
    imbalance: float,
    *,
    alpha: float = math.inf,
    order: Literal["index", "random"] = "index",
    seed: int = 0,
) -> Dataset:
    """Subsample the training rows to a long tail of classes; other rows stay.

    Args:
        dataset: one class per row.
        imbalance, alpha: as in `long_tail_sizes`; the first size is the number of rows of the largest class.
        order: which classes are large: ``index`` for the first labels, ``random`` for a random order.
        seed: an integer from 0, which alone determines the result.

    Returns:
        A subset of the rows, in their order. A class with fewer rows than its size in the tail keeps them all.

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
    occurring = np.flatnonzero(counts)  # A class without rows has no size in the tail.
    ranked = long_tail_sizes(max(largest, 1), len(occurring), imbalance, alpha=alpha)
    draws = Draws(seed, "long tail")
    if order == "random":
        ranked = ranked[np.argsort(draws.order(len(occurring)))]
    sizes = np.zeros(dataset.num_labels, dtype=np.int64)
    sizes[occurring] = ranked
    keep = np.ones(len(dataset), dtype=bool)
    keep[rows.numpy()] = rank_within(classes, draws.raw(len(rows))) < sizes[classes]
    return dataset.subset(torch.from_numpy(np.flatnonzero(keep)))

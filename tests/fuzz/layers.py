"""Adversarial layers for the auditor, and the check of every verdict in exact arithmetic.

Entries of hugely different magnitude, ties, duplicate rows, nearly dependent rows, zeros, denormals and small
integers, alone and mixed: the inputs on which a float64 solver cannot tell a thin region from an empty one.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from tests.audit.layers import Case, labels_where

_SETS = 8


def _gaussian(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape)


def _integers(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    """Few small values: ties, zeros and exact dependencies."""
    largest = int(rng.integers(1, 4))
    return rng.integers(-largest, largest + 1, shape).astype(np.float64)


def _scales(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    """Entries, rows or columns that differ by hundreds of binary orders of magnitude."""
    n, d = shape
    widths = [(n, d), (n, 1), (1, d)]
    spread = int(rng.choice([20, 60, 300, 1000]))
    exponents = rng.integers(-spread, min(spread, 900) + 1, widths[rng.integers(3)])
    return np.ldexp(rng.standard_normal(shape), np.broadcast_to(exponents, shape))


def _denormals(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.ldexp(rng.integers(-40, 41, shape).astype(np.float64), -1074 + rng.integers(0, 30, (shape[0], 1)))


def _grid(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    """Thirds and tenths: dependent on paper, nearly dependent as stored."""
    return np.round(3 * rng.standard_normal(shape)) / rng.choice([3.0, 10.0])


BASES = (_gaussian, _integers, _scales, _denormals, _grid)


def _duplicate(rng: Generator, weight: np.ndarray) -> None:
    i, j = rng.choice(len(weight), 2, replace=False)
    weight[i] = rng.choice([-1.0, 1.0, 0.5, -2.0]) * weight[j]


def _nearly_dependent(rng: Generator, weight: np.ndarray) -> None:
    """A row that others combine to, up to a few units in the last place or up to a tiny gap."""
    target, *others = rng.permutation(len(weight))[: int(rng.integers(2, 5))]
    row = rng.standard_normal(len(others)) @ weight[others]
    gap = 10.0 ** rng.integers(-18, -8) * rng.standard_normal(weight.shape[1]) * np.abs(row).max(initial=0.0)
    weight[target] = row if rng.random() < 0.5 else row + gap


def _last_bit(rng: Generator, weight: np.ndarray) -> None:
    i, j = rng.choice(len(weight), 2, replace=False)
    weight[i] = -np.nextafter(weight[j], rng.choice([-np.inf, np.inf]))


def _zeros(rng: Generator, weight: np.ndarray) -> None:
    weight[rng.random(weight.shape) < 0.3] = 0.0


SPOILS = (_duplicate, _nearly_dependent, _last_bit, _zeros)


def adversarial_case(seed: int) -> Case:
    """One layer with up to 14 labels and 6 features, and eight label sets: near, on and far from what it can output."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 15)), int(rng.integers(1, 7))
    weight = BASES[rng.integers(len(BASES))](rng, (n, d))
    for _ in range(int(rng.integers(0, 4))):
        SPOILS[rng.integers(len(SPOILS))](rng, weight)
    bias = None
    if rng.random() < 0.5:
        bias = BASES[rng.integers(len(BASES))](rng, (n, 1))[:, 0]
        if rng.random() < 0.3:
            bias[:] = -weight @ rng.integers(-2, 3, d)  # every logit is nearly zero at one point
    weight = np.nan_to_num(weight, posinf=1e300, neginf=-1e300)
    sets = []
    for _ in range(_SETS):
        with np.errstate(over="ignore", invalid="ignore"):
            logits = weight @ rng.standard_normal(d) + (0 if bias is None else bias)
        active = logits > 0
        active[rng.choice(n, int(rng.integers(0, 3)))] ^= True
        sets.append(labels_where(active) if rng.random() < 0.8 else labels_where(rng.random(n) < 0.5))
    return Case(weight, bias, "top-k" if rng.random() < 0.3 else "sign", sets)

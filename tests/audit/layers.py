"""Layers like those that people train, and label sets that such layers can and cannot output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.random import Generator


class Case(NamedTuple):
    """A layer and label sets to audit."""

    weight: np.ndarray
    bias: np.ndarray | None
    mode: str
    label_sets: list[list[int]]


def gaussian(rng: Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def low_rank(rng: Generator, n: int, d: int) -> np.ndarray:
    """Half of the dimensions carry little."""
    rank = max(1, d // 2)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) + 0.01 * rng.standard_normal((n, d))


def long_tail(rng: Generator, n: int, d: int) -> np.ndarray:
    """Norms over six orders of magnitude."""
    return rng.standard_normal((n, d)) * 10 ** rng.uniform(-3, 3, (n, 1))


def trained(rng: Generator, n: int, d: int) -> np.ndarray:
    """Clusters around a common direction, rare labels with small norms, and some rows that nearly repeat others."""
    centres = rng.standard_normal((max(1, n // 8), d))
    weight = centres[rng.integers(len(centres), size=n)] + 0.3 * rng.standard_normal((n, d)) - 0.5
    weight *= (1 + np.arange(n))[:, None] ** -0.5
    twins = rng.choice(n, size=(2, n // 10), replace=False)
    weight[twins[0]] = weight[twins[1]] + 1e-3 * rng.standard_normal((n // 10, d))
    return weight


LAYERS = {layer.__name__: layer for layer in (gaussian, low_rank, long_tail, trained)}


def label_sets(rng: Generator, weight: np.ndarray, bias: np.ndarray | None, mode: str) -> Iterator[list[int]]:
    """Twelve sets: about a third are certainly argmaxable, the others may be anything."""
    n, d = weight.shape
    for i in range(4):
        logits = weight @ rng.standard_normal(d) + (0 if bias is None else bias)
        threshold = np.sort(logits)[-min(n, 1 + 3 * i)] if mode == "top-k" else 0
        yield labels_where(logits >= threshold)
        # With the least certain labels flipped: beyond a near boundary, or impossible for the layer.
        order = np.argsort(np.abs(logits))
        turned = logits >= threshold
        turned[order[: 1 + i]] ^= True
        yield labels_where(turned)
    for size in (1, 2, 5):
        yield sorted(rng.choice(n, size=min(n, size), replace=False).tolist())
    yield labels_where(rng.random(n) < 0.5)


def labels_where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def make_case(kind: str, n: int, d: int, *, biased: bool, mode: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    weight = LAYERS[kind](rng, n, d)
    scale = np.linalg.norm(weight, axis=1)
    bias = scale * rng.standard_normal(n) if biased else None
    return Case(weight, bias, mode, list(label_sets(rng, weight, bias, mode)))


def every_set(n: int) -> list[list[int]]:
    return [[i for i in range(n) if code >> i & 1] for code in range(1 << n)]


def save_arrays(path: Path, **arrays: np.ndarray) -> Path:
    """Write a layer file in the format of its suffix, npz or safetensors."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file = pytest.importorskip("safetensors.torch").save_file
        save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    return path

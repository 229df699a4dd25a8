"""Scores and labels to calibrate on: ties of every kind, and worlds whose probabilities are known."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

SCORE_KINDS = ("good", "bad", "constant", "one-hot", "certain")
TIE_KINDS = ("distinct", "constant", "quantised", "one-hot", "duplicated rows", "constant columns")


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def tied_scores(kind: str, rows: int, labels: int, generator: Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scores in [0, 1], all exact in ``dtype``; only those called distinct have next to no ties."""
    uniform = torch.rand(rows, labels, generator=generator, dtype=torch.float64)
    if kind == "constant":
        uniform = torch.full_like(uniform, 1 / 3)
    elif kind == "quantised":
        uniform = (4 * uniform).round() / 4
    elif kind == "one-hot":
        uniform = torch.zeros_like(uniform).scatter(-1, uniform.argmax(-1, keepdim=True), 1.0)
    elif kind == "duplicated rows":
        uniform = uniform[torch.arange(rows) // 3]
    elif kind == "constant columns":
        uniform = uniform[:1].expand(rows, -1)
    return uniform.to(dtype).clone()


def ambiguous_probs(rows: int, generator: Generator, *, groups: int = 6, group_size: int = 5) -> Tensor:
    """True probabilities ``(rows, groups * group_size)``: a row is more or less ambiguous in one group.

    Easy rows have nearly all mass on one label, hard rows share it among the labels of the group, and a little goes
    to all labels.
    """
    labels = groups * group_size
    group = torch.randint(groups, (rows,), generator=generator)
    sharpness = 8 * torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    logits = sharpness * torch.rand(rows, group_size, generator=generator, dtype=torch.float64)
    probs = torch.full((rows, labels), 0.05 / labels, dtype=torch.float64)
    places = group_size * group[:, None] + torch.arange(group_size)
    return probs.scatter_add(-1, places, 0.95 * logits.softmax(-1))


def draw(probs: Tensor, generator: Generator) -> Tensor:
    """One class for each row, by its probabilities."""
    return torch.multinomial(probs, 1, generator=generator).squeeze(-1)


def classified(kind: str, rows: int, labels: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Predicted probabilities and true classes; pairs are exchangeable for every kind."""
    truth = (2.5 * torch.randn(rows, labels, generator=generator)).softmax(-1)
    classes = draw(truth, generator)
    if kind == "good":
        return truth, classes
    if kind == "bad":
        return (3 * torch.randn(rows, labels, generator=generator)).softmax(-1), classes
    if kind == "constant":
        return torch.full((rows, labels), 1 / labels), classes
    answer = classes if kind == "certain" else truth.argmax(-1)
    return torch.zeros(rows, labels).scatter(-1, answer[:, None], 1.0), classes


def long_tailed(rows: int, labels: int, generator: Generator, *, decay: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logits and classes, class c with a share proportional to exp(-decay c) and a difficulty of its own."""
    shares = torch.exp(-decay * torch.arange(labels))
    classes = torch.multinomial(shares, rows, replacement=True, generator=generator)
    signal = torch.linspace(1, 4, labels)
    logits = torch.randn(rows, labels, generator=generator)
    logits[torch.arange(rows), classes] += signal[classes]
    return logits, classes


def overconfident(signal: Tensor, labels: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Probabilities and classes of rows with as much ``signal`` each: a model that errs more the less there is."""
    classes = torch.randint(labels, signal.shape, generator=generator)
    logits = 2 * torch.randn(len(signal), labels, generator=generator)
    logits[torch.arange(len(signal)), classes] += 2 * signal
    return logits.softmax(-1), classes


def multilabel(
    rows: int, labels: int, generator: Generator, *, rate: float = 0.1, signal: float = 2.0
) -> tuple[Tensor, Tensor]:
    """Logits and a bool multi-hot; some rows have no positive."""
    positives = torch.rand(rows, labels, generator=generator) < rate
    logits = torch.randn(rows, labels, generator=generator) + signal * positives - 2
    return logits, positives


def with_absent(logits: Tensor) -> Tensor:
    """A copy in which the third and the last label are absent everywhere, and the first in every fourth row."""
    logits = logits.clone()
    logits[:, [2, -1]] = -math.inf
    logits[::4, 0] = -math.inf
    return logits

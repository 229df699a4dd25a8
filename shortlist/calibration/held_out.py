"""Held-out logits and labels as calibration reads them: in blocks of rows, without unknown and absent labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.labels import Labels, LabelsLike, Numbers, list_labels, read_scores, read_target
from shortlist.tensors import solvable

Link = Literal["softmax", "sigmoid"]

BLOCK = 1 << 17
"""Block size in entries: what is between a block and its answer fits into the cache."""


class Block(NamedTuple):
    """A block of rows in float64, ``(rows, labels)``.

    Attributes:
        logits: finite; 0 for labels that do not count.
        true: 1 for true labels, else 0.
        counts: 1 for labels that count, 0 for unknown and absent ones.
    """

    logits: Tensor
    true: Tensor
    counts: Tensor


class HeldOut:
    """The rows of all batches; one positive per row for ``"softmax"``, any number of them for ``"sigmoid"``.

    Labels with logit -inf are absent and do not count, even if they are true. Unknown labels do not count. For
    softmax, rows without a known class are left out.

    Args:
        link: how logits become probabilities.
    """

    def __init__(self, link: Link) -> None:
        self.link: Link = link
        self.batches: list[tuple[Tensor, Labels]] = []

    def add(self, logits: Numbers, labels: LabelsLike) -> None:
        """Check and append a batch."""
        x = read_scores(logits, name="logits").detach().cpu()
        if x.ndim != 2 or x.shape[1] == 0:
            raise ValueError(f"`logits` must have shape (rows, labels); got {tuple(x.shape)}.")
        if self.batches and x.shape[1] != self.num_labels:
            raise ValueError(f"`logits` must have {self.num_labels} labels as before; got {x.shape[1]}.")
        if bool((wrong := ~(x < torch.inf).all(-1)).any()):
            raise ValueError(f"`logits` must not be NaN or infinite; row {int(wrong.nonzero()[0])} violates this.")
        target = read_target(labels, x.shape[1], name="labels").cpu()
        if len(target) != len(x):
            raise ValueError(f"`labels` must have one row per row of logits, {len(x)}; got {len(target)}.")
        entries = list_labels(target, x.shape[1], name="labels")
        positives, hidden = entries.positives(), entries.only(entries.values < 0)
        x = finite_range(solvable(x)).index_put(hidden.pairs(), torch.tensor(-torch.inf, dtype=solvable(x).dtype))
        self.batches.append(self._of_one_class(x, positives) if self.link == "softmax" else (x, positives))

    def _of_one_class(self, x: Tensor, positives: Labels) -> tuple[Tensor, Labels]:
        """The rows whose one class is known and present."""
        if bool((several := positives.counts > 1).any()):
            row = int(several.nonzero()[0])
            raise ValueError(f'`labels` must name one class per row for link="softmax"; row {row} has several.')
        rows, classes = positives.pairs()
        present = x[rows, classes] > -torch.inf
        return x[rows[present]], list_labels(classes[present], x.shape[1])

    @property
    def num_labels(self) -> int:
        """n."""
        return self.batches[0][0].shape[1]

    @property
    def num_rows(self) -> int:
        """The number of rows that count."""
        return sum(len(x) for x, _ in self.batches)

    @property
    def precise(self) -> bool:
        """Whether any logits are float64."""
        return any(x.dtype == torch.float64 for x, _ in self.batches)

    def rows(self) -> Iterator[tuple[Tensor, Labels]]:
        """Logits and positives of a block of rows; absent and unknown labels have -inf."""
        step = max(1, BLOCK // self.num_labels)
        for x, labels in self.batches:
            for start in range(0, len(x), step):
                yield x[start : start + step], labels[start : start + step]

    def blocks(self) -> Iterator[Block]:
        """Blocks of label-wise logits: the log odds of each label."""
        for x, labels in self.rows():
            counts = x > -torch.inf
            true = torch.zeros(x.shape, dtype=torch.float64)
            true[labels.pairs()] = 1.0
            yield Block(torch.where(counts, log_odds(x, self.link).double(), 0.0), true * counts, counts.double())


def finite_range(x: Tensor) -> Tensor:
    """``x`` with finite numbers so far from the largest that their differences are finite, too; -inf stays."""
    limit = torch.finfo(x.dtype).max / 2
    return torch.where(x == -torch.inf, x, x.clamp(min=-limit, max=limit))


def log_odds(logits: Tensor, link: Link) -> Tensor:
    """``log(p / (1 - p))`` of each label: the logits themselves, or of their softmax; at most 16.6 for softmax."""
    if link == "sigmoid":
        return logits
    log_probs = logits.log_softmax(-1)
    # One formula for all precisions and runtimes; no calibration can tell probabilities closer to 1 apart.
    return log_probs - (1 - log_probs.exp()).clamp(min=2.0**-24).log()

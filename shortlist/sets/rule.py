"""What all set rules share: reading scores, fitting in one go or in batches, predicting, saving."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from shortlist.functional.options import check_number
from shortlist.functional.rows import solvable
from shortlist.sets.prediction_sets import PredictionSets

Link = Literal["softmax", "sigmoid"]

# Scores are turned into probabilities and compared in blocks of about this many entries.
_BLOCK = 1 << 20


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


class Draw:
    """What a call of ``predict`` hands to its blocks: random numbers for ties, and how many rows tied so far."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        self.seen: Tensor | int = 0

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Numbers in [0, 1), in float64 so that two of them hardly ever coincide."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(fresh_seed())
        return torch.rand(*shape, dtype=torch.float64, generator=self._generator)


class SetRule(nn.Module, ABC):
    """A rule that turns scores into sets of labels; a module whose buffers hold what was fitted.

    Args:
        link: how logits become scores, ``"softmax"`` (one true label) or ``"sigmoid"`` (any number of them). Only used
            when the rule is fitted with ``from_logits=True``.
        min_size: that many labels with the best scores are in every set.
    """

    needs_labels: ClassVar[bool] = True

    def __init__(self, *, link: Link, min_size: int) -> None:
        super().__init__()
        if link not in ("softmax", "sigmoid"):
            raise ValueError(f'`link` must be "softmax" or "sigmoid"; got {link!r}.')
        if not isinstance(min_size, Integral) or isinstance(min_size, bool) or min_size < 0:
            raise ValueError(f"`min_size` must be a whole number, at least 0; got {min_size!r}.")
        self.link: Link = link
        self.min_size = int(min_size)
        self.reset()

    def reset(self) -> None:
        """Forget what was fitted."""
        self.from_logits: bool | None = None
        self.num_labels: int | None = None
        self.fitted = False
        self.evidence: dict[str, Any] = {}
        self._rows = 0
        self._expected: int | None = None
        self._clear()

    def fit(self, scores: Tensor, labels: Tensor | None = None, *, from_logits: bool) -> SetRule:
        """Fit on held-out data.

        Args:
            scores: ``(N, n)``, floating: logits, or scores that are compared as they are.
            labels: the true labels in a form of ``shortlist.targets``, none unknown; not used by rules that only
                count.
            from_logits: whether ``scores`` are logits. There is no default: it is said, never guessed. ``predict``
                reads scores in the same way.

        Returns:
            The rule itself.
        """
        self.reset()
        self._expected = len(scores) if isinstance(scores, Tensor) and scores.ndim else None
        self.partial_fit(scores, labels, from_logits=from_logits)
        return self.finish()

    def partial_fit(self, scores: Tensor, labels: Tensor | None = None, *, from_logits: bool) -> SetRule:
        """Take in one batch of held-out data; `finish` ends it."""
        if self.fitted:
            self.reset()
        self._check_reading(scores, from_logits)
        if self.needs_labels and labels is None:
            raise ValueError(f"`labels` must be given: {type(self).__name__} is fitted on true labels.")
        read = None if labels is None or not self.needs_labels else self._read_labels(labels, len(scores))
        self._check_values(scores)
        start = 0
        for block in self._blocks(scores):
            stop = start + len(block)
            self._observe(block, None if read is None else read[start:stop])
            start = stop
        self._rows += len(scores)
        return self

    def finish(self) -> SetRule:
        """Settle the rule on all batches seen."""
        if self._rows == 0:
            raise ValueError("`scores` must have at least one row.")
        self.evidence = {"rows": self._rows, "labels": self.num_labels, **self._settle()}
        self._forget()
        self.fitted = True
        return self

    @torch.no_grad()
    def predict(
        self, scores: Tensor, *, names: Sequence[str] | None = None, generator: torch.Generator | None = None
    ) -> PredictionSets:
        """The set of each row.

        Args:
            scores: ``(B, n)``, read as in ``fit``.
            names: of the labels.
            generator: decides ties at a conformal threshold; nothing else is left to chance. By default one with a
                fresh seed: one that started anew for every call would void the guarantee for rows that come one at a
                time.

        Returns:
            One set per row, best label first.
        """
        self._check_fitted()
        self._check_reading(scores, bool(self.from_logits))
        self._check_values(scores)
        draw = Draw(generator)
        parts, start = [], 0
        for block in self._blocks(scores):
            start += len(block)
            mask = self._at_least(self._select(block, draw), block)
            rows, labels = mask.nonzero(as_tuple=True)
            parts.append((rows + start - len(block), labels, block[mask]))
        if not parts:
            empty = torch.zeros(0, dtype=torch.int64)
            parts = [(empty, empty, torch.zeros(0))]
        rows, labels, values = (torch.cat(part) for part in zip(*parts, strict=True))
        return PredictionSets.from_entries(rows, labels, values, scores.shape, names=names)

    def forward(self, scores: Tensor) -> Tensor:
        """Dense bool mask of ``scores``' shape, without chance: labels that tie at a conformal threshold are inside."""
        self._check_fitted()
        self._check_width(scores)
        values = self._values(scores.reshape(-1, scores.shape[-1]))
        return self._at_least(self._select(values, None), values).reshape(scores.shape)

    def save(self, path: str | Path) -> None:
        """Write options, thresholds and evidence as JSON; `load_rule` reads it."""
        from shortlist.sets.rule_file import save_rule

        self._check_fitted()
        save_rule(self, path)

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The constructor's arguments beside ``link`` and ``min_size``."""

    @abstractmethod
    def _clear(self) -> None:
        """Make the buffers of the unfitted rule and empty what batches left."""

    @abstractmethod
    def _observe(self, values: Tensor, labels: Any) -> None:
        """Take in scores of some rows (and what `_read_labels` made of their labels)."""

    @abstractmethod
    def _settle(self) -> dict[str, Any]:
        """Set the buffers; return the constraint and the value achieved."""

    @abstractmethod
    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        """Which labels are inside, before ``min_size``; without ``draw`` no chance is involved."""

    def _forget(self) -> None:
        """Drop what batches left."""

    def _read_labels(self, labels: Tensor, rows: int) -> Any:
        """Labels in the form that `_observe` wants, one entry per row; rules that need labels say which."""
        raise NotImplementedError

    def _values(self, scores: Tensor) -> Tensor:
        work = solvable(scores)
        if not self.from_logits:
            return work
        absent = work == -torch.inf
        values = work.softmax(-1) if self.link == "softmax" else work.sigmoid()
        # A logit of -inf marks a label that cannot be in any set; its probability, 0, could.
        return torch.where(absent, -torch.inf, values)

    def _blocks(self, scores: Tensor) -> Iterator[Tensor]:
        """Values of a few rows at a time: a copy of all of them is never made."""
        rows = max(1, _BLOCK // max(1, scores.shape[-1]))
        for start in range(0, len(scores), rows):
            yield self._values(scores[start : start + rows].detach().cpu())

    def _at_least(self, mask: Tensor, values: Tensor) -> Tensor:
        if self.min_size == 0:
            return mask
        best = first_labels(values, min(self.min_size, values.shape[-1]))
        return mask | (best & (values > -torch.inf))

    def get_extra_state(self) -> dict[str, Any]:
        """What is fitted beside the buffers."""
        names = ("from_logits", "num_labels", "fitted", "evidence")
        return {name: getattr(self, name) for name in names}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_extra_state`."""
        for name, value in state.items():
            setattr(self, name, value)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Thresholds per label have a size that only the fitted rule knows.
        for name, buffer in list(self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if buffer is not None and isinstance(saved, Tensor) and saved.shape != buffer.shape:
                self._buffers[name] = torch.empty_like(saved, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SetRule:
        # Thresholds move with a model to another device, but ``model.half()`` must not round them.
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = buffer.to(fn(buffer).device)
        return self

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        shown = {**self.options(), "link": self.link, "min_size": self.min_size}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)

    def _check_reading(self, scores: Tensor, from_logits: bool) -> None:
        if not isinstance(scores, Tensor) or not scores.is_floating_point():
            kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
            raise TypeError(f"`scores` must be a floating tensor; got {kind}.")
        if scores.ndim != 2 or scores.shape[1] == 0:
            raise ValueError(f"`scores` must have shape (rows, labels); got {tuple(scores.shape)}.")
        if not isinstance(from_logits, bool):
            raise TypeError(f"`from_logits` must be True or False; got {from_logits!r}.")
        if self.from_logits is None:
            self._check_labels_count(scores.shape[1])
            self.from_logits, self.num_labels = from_logits, scores.shape[1]
        if from_logits != self.from_logits:
            raise ValueError(f"`from_logits` must stay what it was, {self.from_logits}; got {from_logits}.")
        self._check_width(scores)

    def _check_width(self, scores: Tensor) -> None:
        if scores.shape[-1:] != (self.num_labels,):
            raise ValueError(f"`scores` must have {self.num_labels} labels as before; got shape {tuple(scores.shape)}.")

    def _check_labels_count(self, num_labels: int) -> None:
        if self.min_size > num_labels:
            raise ValueError(f"`min_size` must be at most the number of labels, {num_labels}; got {self.min_size}.")

    def _check_values(self, scores: Tensor) -> None:
        """Refuse scores before any of them has been taken in: a batch counts as a whole or not at all."""
        refuse_rows(scores, lambda block: block.isnan() | (block == torch.inf), "must not be NaN or infinite")

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError(f"{type(self).__name__} must be fitted before it predicts.")


def best_first(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each row by descending score, equal scores by ascending label, and the labels in that order."""
    if torch.compiler.is_exporting():
        # ONNX has no stable sort, but its top-k takes the lower of equal labels first.
        return values.topk(values.shape[-1], dim=-1)
    return values.sort(dim=-1, descending=True, stable=True)


def first_labels(values: Tensor, k: int) -> Tensor:
    """Mask of the k best labels of each row, k at least 1; equal scores by ascending label."""
    last = values.topk(k, dim=-1).values[..., -1:]
    above, equal = values > last, values == last
    # Of those that tie for the last place, as many as are wanted still; which ones `topk` took is not defined.
    return above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))


def refuse_rows(scores: Tensor, wrong: Callable[[Tensor], Tensor], rule: str) -> None:
    """ValueError that names the first row with an entry for which ``wrong`` is true."""
    rows = max(1, _BLOCK // max(1, scores.shape[-1]))
    for start in range(0, len(scores), rows):
        found = wrong(scores[start : start + rows]).any(-1).nonzero()
        if len(found):
            raise ValueError(f"`scores` {rule}; row {start + int(found[0])} breaks that.")


def check_alpha(alpha: float) -> float:
    """An error rate strictly between 0 and 1."""
    alpha = check_number("alpha", alpha)
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must lie strictly between 0 and 1; got {alpha}.")
    return alpha

"""What all set rules share: reading scores, fitting in one go or in batches, predicting, saving."""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import torch
from torch import Tensor, nn

from shortlist.functional.options import check_number
from shortlist.sets.entries import Entries, either, entries_of, entries_reaching, first_labels, top_entries
from shortlist.sets.prediction_sets import PredictionSets, collected
from shortlist.sets.sharded_scores import ScoreShard
from shortlist.tensors import is_dtensor, solvable

Link = Literal["softmax", "sigmoid"]

# Scores are turned into probabilities and compared in blocks of about this many entries, which fit into a cache.
_BLOCK = 1 << 18


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


class Draw:
    """What a call of ``predict`` hands to its blocks: random numbers for ties, and how many rows tied so far.

    Args:
        generator: gives the numbers; by default one with a fresh seed.
        seen: how many rows tied before.
    """

    def __init__(self, generator: torch.Generator | None = None, *, seen: int = 0) -> None:
        self._generator = generator
        self.seen = seen

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Numbers in [0, 1), in float64 so that two of them hardly ever coincide."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(fresh_seed())
        return torch.rand(*shape, dtype=torch.float64, generator=self._generator)

    def state(self) -> dict[str, Any]:
        """Plain values that `from_state` goes on from."""
        state = None if self._generator is None else self._generator.get_state().numpy().tobytes()
        return {"generator": None if state is None else base64.b64encode(state).decode(), "seen": self.seen}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Draw:
        """Go on where another left off.

        Example:
            >>> draw = Draw(torch.Generator().manual_seed(0))
            >>> _ = draw.uniform((3,))
            >>> again = Draw.from_state(draw.state())
            >>> torch.equal(draw.uniform((2,)), again.uniform((2,)))
            True
        """
        if state["generator"] is None:
            return cls(seen=state["seen"])
        generator = torch.Generator()
        generator.set_state(torch.frombuffer(bytearray(base64.b64decode(state["generator"])), dtype=torch.uint8))
        return cls(generator, seen=state["seen"])


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
        if is_dtensor(scores):
            return self._partial_fit_sharded(ScoreShard(scores))
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
        self,
        scores: Tensor,
        *,
        names: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
    ) -> PredictionSets:
        """The set of each row.

        Args:
            scores: ``(B, n)``, read as in ``fit``.
            names: of the labels.
            generator: decides ties at a conformal threshold; nothing else is left to chance. By default one with a
                fresh seed: one that started anew for every call would void the guarantee for rows that come one at a
                time.
            draw: instead of ``generator``, a `Draw` for rows that come in several calls: those that share one answer as
                a single call with all rows does.

        Returns:
            One set per row, best label first.
        """
        self._check_fitted()
        self._check_reading(scores, bool(self.from_logits))
        if draw is not None and generator is not None:
            raise ValueError("`draw` has a generator of its own; `generator` must be None beside it.")
        draw = Draw(generator) if draw is None else draw
        if is_dtensor(scores):
            shard = ScoreShard(scores)
            shard.refuse()
            blocks = ((self._all_entries(block, shard, draw), len(block)) for block in shard.blocks(self))
        else:
            self._check_values(scores)
            blocks = ((self._entries(block, draw), len(block)) for block in self._blocks(scores))
        return collected(blocks, scores.shape[-1], most=_BLOCK, names=names)

    def forward(self, scores: Tensor) -> Tensor:
        """Dense bool mask of ``scores``' shape, without chance: labels that tie at a conformal threshold are inside."""
        self._check_fitted()
        self._check_width(scores)
        if is_dtensor(scores):
            shard = ScoreShard(scores)
            return shard.mask(self._own_entries(shard.values(self, shard.scores), shard, Draw()), scores.shape)
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

    def _floor(self) -> Tensor | None:
        """Scores below this, one number or one per label, are in no set; None where that depends on the row."""
        return None

    def _kept(self, found: Entries, draw: Draw) -> Tensor | None:
        """Which of the entries that reach the floor are inside; None for all. They come row by row."""
        return None

    def _entries(self, values: Tensor, draw: Draw) -> Entries:
        """The entries inside: what `_select` says, but where few reach a floor the others are looked at only once."""
        floor = self._floor()
        if floor is None:
            found = entries_of(self._select(values, draw), values)
        else:
            found = entries_reaching(values, floor)
            kept = self._kept(found, draw)
            found = found if kept is None else found.where(kept)
        if self.min_size == 0:
            return found
        return either(found, top_entries(values, min(self.min_size, values.shape[-1])), values.shape[-1])

    def _partial_fit_sharded(self, shard: ScoreShard) -> SetRule:
        shard.refuse()
        for block in shard.blocks(self):
            self._observe_own(block, shard)
        self._rows += len(shard.scores)
        return self

    def _observe_own(self, values: Tensor, shard: ScoreShard) -> None:
        """Take in scores of the own labels of some rows."""
        self._refuse_shards()

    def _own_entries(self, values: Tensor, shard: ScoreShard, draw: Draw) -> Entries:
        """The own labels that are inside, by their numbers among all labels."""
        return self._refuse_shards()

    def _all_entries(self, values: Tensor, shard: ScoreShard, draw: Draw) -> Entries:
        """The labels of all processes that are inside."""
        before = draw.seen
        found = self._own_entries(values, shard, draw)
        found, seen = shard.gather(found, draw.seen - before)
        draw.seen = before + seen
        return found

    def _refuse_shards(self) -> NoReturn:
        raise TypeError(
            f"`scores` must be a plain tensor for {type(self).__name__}: of the set rules, TopK and AverageK take "
            "labels that are sharded over processes."
        )

    def _forget(self) -> None:
        """Drop what batches left."""

    def _read_labels(self, labels: Tensor, rows: int) -> Any:
        """Labels in the form that `_observe` wants, one entry per row; rules that need labels say which."""
        raise NotImplementedError

    def _values(self, scores: Tensor, *, all_present: bool = False) -> Tensor:
        work = solvable(scores)
        if not self.from_logits:
            return work
        values = work.softmax(-1) if self.link == "softmax" else work.sigmoid()
        # A logit of -inf marks a label that cannot be in any set; its probability, 0, could.
        return values if all_present else torch.where(work == -torch.inf, -torch.inf, values)

    def _blocks(self, scores: Tensor) -> Iterator[Tensor]:
        """Values of a few rows at a time: a copy of all of them is never made."""
        rows = max(1, _BLOCK // max(1, scores.shape[-1]))
        for start in range(0, len(scores), rows):
            block = solvable(scores[start : start + rows].detach().cpu())
            yield self._values(block, all_present=float(block.amin()) > -torch.inf)

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
        refuse_rows(scores, lambda block: ~(block < torch.inf), "must not be NaN or infinite", below=torch.inf)

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError(f"{type(self).__name__} must be fitted before it predicts.")


def best_first(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each row by descending score, equal scores by ascending label, and the labels in that order."""
    if torch.compiler.is_exporting():
        # ONNX has no stable sort, but its top-k takes the lower of equal labels first.
        return values.topk(values.shape[-1], dim=-1)
    return values.sort(dim=-1, descending=True, stable=True)


def refuse_rows(scores: Tensor, wrong: Callable[[Tensor], Tensor], rule: str, *, below: float | None = None) -> None:
    """ValueError that names the first row with an entry for which ``wrong`` is true; never if all are ``below``."""
    rows = max(1, _BLOCK // max(1, scores.shape[-1]))
    for start in range(0, len(scores), rows):
        block = scores[start : start + rows].detach()
        # The largest of numbers with NaN among them is NaN, which is below nothing.
        if below is not None and float(block.amax()) < below:
            continue
        found = wrong(block).any(-1).nonzero()
        if len(found):
            raise ValueError(f"`scores` {rule}; row {start + int(found[0])} breaks that.")


def check_alpha(alpha: float) -> float:
    """An error rate strictly between 0 and 1."""
    alpha = check_number("alpha", alpha)
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must lie strictly between 0 and 1; got {alpha}.")
    return alpha

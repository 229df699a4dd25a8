"""The base class of set rules: reads scores and labels, fits at once or in batches, predicts, saves and loads."""

from __future__ import annotations

import base64
import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.files import decoding
from shortlist.fitted.module import FittedModule
from shortlist.labels import Labels, LabelsLike, Numbers, list_labels, read_scores, read_target
from shortlist.sets.prediction_sets import PredictionSets, collect_sets
from shortlist.sets.rule_file import RuleDocument, encode_option, read_rule, write_rule
from shortlist.sets.scores import (
    BLOCK,
    Block,
    Link,
    Scores,
    Selection,
    in_precision,
    select_where,
    top_mask,
)
from shortlist.targets import to_class_indices
from shortlist.tensors import check_number, is_dtensor, on_accelerator

if TYPE_CHECKING:
    from typing_extensions import Self


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


class Draw:
    """State shared by the blocks of ``predict``: random numbers for ties, and how many rows have tied so far.

    Args:
        generator: source of the random numbers; by default one with a fresh seed.
        seen: how many rows have tied before.
    """

    def __init__(self, generator: torch.Generator | None = None, *, seen: int = 0) -> None:
        self._generator = generator
        self.seen = seen

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Numbers in [0, 1), in float64 so that they hardly ever coincide."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(fresh_seed())
        return torch.rand(*shape, dtype=torch.float64, generator=self._generator)

    def state(self) -> dict[str, Any]:
        """Plain values from which `from_state` resumes."""
        state = None if self._generator is None else self._generator.get_state().numpy().tobytes()
        return {"generator": None if state is None else base64.b64encode(state).decode(), "seen": self.seen}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Draw:
        """Continue where another left off.

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


Refusal = tuple[str, Callable[[Tensor], Tensor], float | None]
"""Of a rule for scores: its wording, a mask of what violates it, and the limit below which all is fine."""
_NOT_FINITE: Refusal = ("`scores` must not be NaN or infinite", lambda block: ~(block < torch.inf), torch.inf)


def _negative(block: Tensor) -> Tensor:
    """Mask of negative scores; a single False if the least score of a block says that there are none."""
    if not on_accelerator(block) and bool(block.amin() >= 0):
        return torch.zeros(1, 1, dtype=torch.bool)
    return (block < 0) & (block > -torch.inf)


_NEGATIVE: Refusal = ("`scores` must be probabilities, not negative", _negative, None)


class SetRule(FittedModule, ABC):
    """A rule that turns scores into label sets; a module whose buffers hold the fitted values.

    Scores are compared in the precision in which the rule was fitted, float64 or float32, so the dtype of equal scores
    does not change the answer.

    Args:
        link: how logits become scores, ``"softmax"`` (one true label) or ``"sigmoid"`` (any number of them). Used only
            if the rule is fitted with ``from_logits=True``.
        min_size: every set contains at least this many labels, filled up with the best scores.
    """

    needs_labels: ClassVar[bool] = True
    needs_probabilities: bool = False
    """Whether scores that are not logits must not be negative."""

    takes_shards: ClassVar[bool] = False
    """Whether scores may be a DTensor sharded along the labels."""
    threshold_name: ClassVar[str | None] = None
    """Name of the threshold buffer (one number, or one per label); None if the threshold depends on the row."""

    row_option: ClassVar[str | None] = None
    """The keyword of ``fit`` and ``predict`` by which every row brings a value of its own, such as its group; rules
    that have one read it in `_read_rows`."""

    other_shapes: ClassVar[tuple[str, ...]] = ()
    """Buffers that are neither one number nor one per label; `_check_buffers` checks their shape in a file."""

    def __init__(self, *, link: Link, min_size: int) -> None:
        super().__init__()
        if link not in ("softmax", "sigmoid"):
            raise ValueError(f'`link` must be "softmax" or "sigmoid"; got {link!r}.')
        if not isinstance(min_size, Integral) or isinstance(min_size, bool) or min_size < 0:
            raise ValueError(f"`min_size` must be an integer, at least 0; got {min_size!r}.")
        self.link: Link = link
        self.min_size = int(min_size)
        self.reset()

    @property
    def row_argument(self) -> str | None:
        """What `predict` needs for every row besides its scores, by the name of the argument; None for nothing."""
        return None

    def reset(self) -> None:
        """Return to the unfitted state."""
        self.from_logits: bool | None = None
        self.precision: torch.dtype | None = None
        self.num_labels: int | None = None
        self.fitted = False
        self.evidence: dict[str, Any] = {}
        self._rows = 0
        self._some_present = False
        self._expected: int | None = None
        self._observed: list[tuple[Tensor, ...]] = []
        self._doubts: list[tuple[str, Tensor]] = []
        self._clear()

    def fit(self, scores: Numbers, labels: LabelsLike | None = None, *, from_logits: bool, **rows: Any) -> Self:
        """Fit on held-out data.

        Args:
            scores: ``(N, n)``, floating: logits, or scores that are compared without a link. A tensor, a numpy array, a
                table of pandas, polars or pyarrow, or a list of lists; Python's floats are float64.
            labels: the true labels in any form of ``shortlist.targets``, none unknown, as a tensor or in another
                library (also a sparse matrix of scipy, and lists of label indices that differ in length); ignored by
                rules that control only the size.
            from_logits: whether ``scores`` are logits. Required, because it is never inferred from the values.
                ``predict`` interprets scores the same way.
            rows: what rows bring besides their scores, ``(N,)``, for a rule with a `row_option`: its ``weights`` or
                ``groups``.

        Returns:
            The rule itself.
        """
        self.reset()
        scores = read_scores(scores)
        self._expected = len(scores) if scores.ndim else None
        self.partial_fit(scores, labels, from_logits=from_logits, **rows)
        return self.finish()

    def fit_blocks(self, blocks: Iterable[tuple[Numbers, LabelsLike | None]], *, rows: int, from_logits: bool) -> Self:
        """Fit on batches of scores and labels with ``rows`` rows in all; the same rule as `fit` on all of them."""
        self.reset()
        self._expected = rows
        for scores, labels in blocks:
            self.partial_fit(scores, labels, from_logits=from_logits)
        return self.finish()

    def partial_fit(self, scores: Numbers, labels: LabelsLike | None = None, *, from_logits: bool, **rows: Any) -> Self:
        """Add one batch of held-out data, with what its ``rows`` bring; call `finish` after the last one."""
        if self.fitted:
            self.reset()
        scores = read_scores(scores)
        given = self._given_rows(rows, len(scores) if scores.ndim else 0)
        self._check_reading(scores, from_logits)
        source = self._read_scores(scores, given)
        if self.needs_labels and labels is None:
            raise ValueError(f"`labels` must be given: {type(self).__name__} is fitted on true labels.")
        read = None
        if labels is not None and self.needs_labels:
            read = self._read_labels(read_target(labels, scores.shape[1], name="labels"), len(scores))
        if source.stay:
            # Reading whether scores are fit would wait for the accelerator, so `finish` does it once.
            self._doubts += self._doubts_about(source)
        else:
            self._check_values(source)
        self._begin_batch(source)
        start = 0
        for block in source.blocks(self._link_used):
            stop = start + len(block)
            # Neither known without waiting for an accelerator, nor from a part of the labels.
            self._some_present = self._some_present or source.stay or source.shards is not None
            self._some_present = self._some_present or bool((block.scores > -torch.inf).any())
            self._observed.append(self._observe(block, None if read is None else read[start:stop]))
            start = stop
        self._rows += len(source)
        return self

    def finish(self) -> Self:
        """Fit the rule to all batches seen."""
        if self._rows == 0:
            raise ValueError("`scores` must have at least one row.")
        if not self._some_present:
            raise ValueError("`scores` must leave at least one label; all are absent (-inf).")
        self._resolve_doubts()
        observed = (torch.cat(column).cpu() for column in zip(*self._observed, strict=True))
        self.evidence = {"rows": self._rows, "labels": self.num_labels, **self._settle(*observed)}
        self._observed = []
        self.fitted = True
        return self

    def _doubts_about(self, scores: Scores) -> list[tuple[str, Tensor]]:
        """Of each rule for scores: its wording, and one bool for each row, whether it violates the rule."""
        return [(rule, scores.bad_rows(wrong, below)) for rule, wrong, below in self._refusals()]

    def _resolve_doubts(self) -> None:
        """Raise for the first row, over all batches, that a batch on an accelerator could not be refused for."""
        doubts, self._doubts = self._doubts, []
        for rule in dict.fromkeys(rule for rule, _ in doubts):
            wrong = torch.cat([rows for other, rows in doubts if other == rule]).nonzero()[:1, 0].tolist()
            if wrong:
                self.reset()
                raise ValueError(f"{rule}; row {wrong[0]} violates this.")

    def predict(
        self,
        scores: Numbers,
        *,
        names: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
        **rows: Any,
    ) -> PredictionSets:
        """Predict the set of each row.

        Args:
            scores: ``(B, n)``, in the forms of ``fit`` and interpreted as there.
            rows: what rows bring besides, as in ``fit``.
            names: label names.
            generator: breaks ties at a conformal threshold; nothing else is random. By default one with a fresh seed:
                if every call used the same seed, the guarantee would not hold for rows that arrive one at a time.
            draw: instead of ``generator``, a `Draw` that several calls share; together they return the same sets as a
                single call with all rows.

        Returns:
            One set per row, best label first.
        """
        self._check_fitted()
        scores = read_scores(scores)
        given = self._given_rows(rows, len(scores) if scores.ndim else 0)
        return self._predict(scores, given, names, generator, draw)

    @torch.no_grad()
    def _predict(
        self,
        scores: Tensor,
        rows: Tensor | None,
        names: Sequence[str] | None,
        generator: torch.Generator | None,
        draw: Draw | None,
    ) -> PredictionSets:
        if any(buffer.device.type != "cpu" for buffer in self.buffers()):
            # Scores may stay where they are, but what is selected from them is compared on the CPU.
            return copy.deepcopy(self).to("cpu")._predict(scores, rows, names, generator, draw)
        self._check_reading(scores, bool(self.from_logits))
        if draw is not None and generator is not None:
            raise ValueError("`generator` must be None if `draw` is given, which has its own.")
        draw = Draw(generator) if draw is None else draw
        source = self._read_scores(scores, rows)
        screened = source.stay and self._link_used == "softmax"
        if not screened:
            self._check_values(source)
        blocks = (
            (self._select_all(self._screened(block, source) if screened else block, source, draw), len(block))
            for block in source.blocks(self._link_used)
        )
        return collect_sets(blocks, scores.shape[-1], most=BLOCK, names=names)

    def forward(self, scores: Numbers) -> Tensor:
        """Bool mask of the shape of ``scores``, deterministic: includes labels that tie at a conformal threshold."""
        return self._mask(scores, None)

    def _mask(self, scores: Numbers, per_row: Tensor | None) -> Tensor:
        self._check_fitted()
        scores = read_scores(scores)
        self._check_width(scores)
        if is_dtensor(scores):
            source = self._read_scores(scores)
            return source.local_mask(self._select_local(source.whole(self._link_used), source, Draw()))
        rows = in_precision(scores.reshape(-1, scores.shape[-1]), self.precision)
        block = Block(None, rows, per_row, self._link_used)
        mask = self._select(block, None)
        if self.min_size > 0:
            mask = mask | top_mask(rows, min(self.min_size, rows.shape[-1]))
        return mask.reshape(scores.shape)

    def save(self, path: str | Path) -> None:
        """Write options, thresholds and evidence as JSON for `load_rule`."""
        write_rule(path, self.document())

    def document(self) -> RuleDocument:
        """The contents of the rule's file."""
        self._check_fitted()
        kind, from_logits, num_labels = type(self).__name__, bool(self.from_logits), self.num_labels or 0
        buffers = dict(self.named_buffers(recurse=False))
        return RuleDocument(kind, self._arguments(), from_logits, num_labels, buffers, self.evidence, self.precision)

    def options(self) -> dict[str, Any]:
        """The constructor's arguments other than ``link`` and ``min_size``, as plain values."""
        found = {name: value for name, value in self._arguments().items() if name not in ("link", "min_size")}
        return {name: encode_option(value) if is_dataclass(value) else value for name, value in found.items()}

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments, which are all stored as attributes."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The constructor's arguments from the plain values in a file."""
        return options

    def _clear(self) -> None:
        """Create the buffers of the unfitted rule."""

    def _check_buffers(self, num_labels: int) -> None:
        """Raise ValueError for buffers from a file that no fit could have set."""

    def _begin_batch(self, scores: Scores) -> None:
        """Prepare for the blocks of a batch."""

    def _true_scores(self, block: Block, classes: Tensor) -> Tensor:
        """The value of the one true class of each row; on an accelerator, classes out of range are left to `finish`."""
        if on_accelerator(classes):
            n = block.values.shape[1]
            self._doubts.append((f"`labels` must lie in [0, {n})", (classes < 0) | (classes >= n)))
            classes = classes.clamp(0, n - 1)
        return block.at(torch.arange(len(classes)), classes)

    @abstractmethod
    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        """What fitting needs from these rows, given their scores and the result of `_read_labels`."""

    @abstractmethod
    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        """Set the buffers from the concatenated results of `_observe`; return the constraint and the value achieved."""

    def _threshold(self) -> Tensor | None:
        """What values are compared with, one number or one per label; None if that depends on the row."""
        return None if self.threshold_name is None else self.get_buffer(self.threshold_name)

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        """Mask of the selected labels, before ``min_size``; deterministic without ``draw``."""
        found = self._threshold()
        if found is None:
            raise NotImplementedError
        values, threshold = block.values, found.to(block.values.dtype)
        if values is block.scores:
            return values >= threshold.clamp(min=torch.finfo(values.dtype).min)  # one pass, and not for -inf
        return (values >= threshold) & (block.scores > -torch.inf)

    def _select_entries(self, block: Block, draw: Draw) -> Selection:
        """The labels of `_select`, row by row."""
        return select_where(self._select(block, draw), block)

    def _kept(self, found: Selection, draw: Draw) -> Tensor | None:
        """Mask of the labels to keep among those that reach the threshold, row by row; None for all."""
        return None

    def _select_local(self, block: Block, scores: Scores, draw: Draw) -> Selection:
        """The local labels in the sets of a block, as selected by `_select`; faster if there is a threshold."""
        threshold = self._threshold()
        if threshold is None:
            found = self._select_entries(block, draw)
        else:
            found = scores.select_local(block, threshold)
            kept = self._kept(found, draw)
            found = found if kept is None else found.where(kept)
        if self.min_size == 0:
            return found
        n = scores.shape[-1]
        return found.union(scores.only_local(scores.top(block, min(self.min_size, n))), n)

    def _select_all(self, block: Block, scores: Scores, draw: Draw) -> Selection:
        """The labels of all processes in the sets of a block."""
        before = draw.seen
        found, ties = scores.gather(self._select_local(block, scores, draw), draw.seen - before)
        draw.seen = before + ties
        return found

    def _read_labels(self, labels: Tensor, rows: int) -> Any:
        """Convert labels to the form that `_observe` expects, one entry per row; rules that need labels override it."""
        raise NotImplementedError

    def _read_scores(self, scores: Tensor, rows: Tensor | None = None) -> Scores:
        if is_dtensor(scores) and not self.takes_shards:
            able = " and ".join(sorted(rule.__name__ for rule in _concrete_rules() if rule.takes_shards))
            raise TypeError(
                f"`scores` must be a plain tensor for {type(self).__name__}; of the set rules, only {able} take scores "
                "whose labels are sharded over processes."
            )
        return Scores(scores, self.precision, rows)

    @property
    def _link_used(self) -> Link | None:
        """The link, or None if scores are compared directly."""
        return self.link if self.from_logits else None

    def get_extra_state(self) -> dict[str, Any]:
        """Fitted state other than the buffers."""
        names = ("from_logits", "precision", "num_labels", "fitted", "evidence")
        return {name: getattr(self, name) for name in names}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_extra_state`."""
        for name, value in state.items():
            setattr(self, name, value)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return ", ".join(f"{name}={value!r}" for name, value in self._arguments().items() if value is not None)

    def _check_reading(self, scores: Tensor, from_logits: bool) -> None:
        if scores.ndim != 2 or scores.shape[1] == 0:
            raise ValueError(f"`scores` must have shape (rows, labels); got {tuple(scores.shape)}.")
        if not isinstance(from_logits, bool):
            raise TypeError(f"`from_logits` must be True or False; got {from_logits!r}.")
        if self.from_logits is None:
            self._check_labels_count(scores.shape[1])
            self.from_logits, self.num_labels = from_logits, scores.shape[1]
            self.precision = torch.float64 if scores.dtype == torch.float64 else torch.float32
        if from_logits != self.from_logits:
            raise ValueError(f"`from_logits` must be {self.from_logits} as before; got {from_logits}.")
        self._check_width(scores)

    def _check_width(self, scores: Tensor) -> None:
        if scores.shape[-1:] != (self.num_labels,):
            raise ValueError(f"`scores` must have {self.num_labels} labels as before; got shape {tuple(scores.shape)}.")

    def _given_rows(self, rows: dict[str, Any], count: int) -> Tensor | None:
        """What blocks hold of each of ``count`` rows besides its scores."""
        if unknown := rows.keys() - {self.row_option}:
            raise TypeError(f"{type(self).__name__} takes no `{min(unknown)}`.")
        return None if self.row_option is None else self._read_rows(rows.get(self.row_option), count)

    def _read_rows(self, given: Any, count: int) -> Tensor | None:
        """Read and check what came by `row_option`, ``(count,)`` or None, of a fit or, once `fitted`, of new rows."""
        raise NotImplementedError

    def _check_labels_count(self, num_labels: int) -> None:
        if self.min_size > num_labels:
            raise ValueError(f"`min_size` must be at most the number of labels, {num_labels}; got {self.min_size}.")

    def _check_values(self, scores: Scores) -> None:
        """Reject bad scores before adding any, so that a batch counts entirely or not at all."""
        for rule, wrong, below in self._refusals():
            scores.check(wrong, rule, fine_below=below)

    def _screened(self, block: Block, scores: Scores) -> Block:
        """The block; its softmax tells whether scores must be checked: a row that is not finite has no other values."""
        if bool(block.values[:, :1].isnan().any()):
            self._check_values(scores)
        return block

    def _refusals(self) -> list[Refusal]:
        """What scores are refused for."""
        negative = self.needs_probabilities and not self.from_logits
        return [_NOT_FINITE, *([_NEGATIVE] if negative else [])]

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError(f"{type(self).__name__} must be fitted before it predicts.")


def load_rule(path: str | Path) -> SetRule:
    """Read a rule written by ``save``.

    Args:
        path: the JSON file.

    Returns:
        The fitted rule, an instance of the class that saved it.

    Raises:
        InputError: if the file is damaged, of another kind, or of another version.
    """
    document = read_rule(path)
    if document.kind not in {rule.__name__ for rule in _concrete_rules()}:
        raise InputError(f"`{path}` holds a rule of unknown kind {document.kind!r:.40}.")
    with decoding(path):
        return rule_of(document)


def rule_of(document: RuleDocument) -> SetRule:
    """The fitted rule of a document; ValueError, or what its constructor raises, if no fit could have led to it."""
    kinds = {rule.__name__: rule for rule in _concrete_rules()}
    if document.kind not in kinds:
        raise ValueError(f"there is no rule {document.kind!r}")
    kind = kinds[document.kind]
    rule = kind(**kind._read_options(document.options))
    if document.buffers.keys() != dict(rule.named_buffers(recurse=False)).keys():
        raise ValueError(f"thresholds {sorted(document.buffers)} do not belong to this kind")
    if document.num_labels < max(1, rule.min_size):
        raise ValueError(f"`num_labels` is {document.num_labels}")
    for name, buffer in document.buffers.items():
        unfitted = rule.get_buffer(name)
        if (buffer.dtype, buffer.ndim) != (unfitted.dtype, unfitted.ndim):
            raise ValueError(f"`{name}` must be {unfitted.dtype} of {unfitted.ndim} dimensions")
        if buffer.ndim and name not in rule.other_shapes and buffer.shape != (document.num_labels,):
            raise ValueError(f"`{name}` has shape {tuple(buffer.shape)} for {document.num_labels} labels")
        setattr(rule, name, buffer)
    rule._check_labels_count(document.num_labels)
    rule._check_buffers(document.num_labels)
    rule.from_logits, rule.num_labels = document.from_logits, document.num_labels
    rule.precision = document.precision
    rule.evidence, rule.fitted = document.evidence, True
    return rule


def _concrete_rules() -> Iterator[type[SetRule]]:
    waiting = [SetRule]
    while waiting:
        rule = waiting.pop()
        waiting += rule.__subclasses__()
        if not inspect.isabstract(rule):
            yield rule


def read_classes(labels: Tensor, num_rows: int, num_labels: int | None) -> Tensor:
    """Read and check the one true class of each row."""
    if on_accelerator(labels) and labels.dtype == torch.int64 and labels.ndim == 1:
        _check_rows(labels, num_rows)
        return labels  # their range is checked when the fit ends
    classes = to_class_indices(labels.cpu(), num_labels or 0, name="labels")
    _check_rows(labels, num_rows)
    return classes


def read_label_sets(labels: Tensor, num_rows: int, num_labels: int | None) -> Labels:
    """Read and check the true labels of each row in any form of ``shortlist.targets``; none may be unknown."""
    found = list_labels(labels.cpu(), num_labels or 0, name="labels")
    found.refuse_unknown("a true label")
    _check_rows(labels, num_rows)
    return found


def _check_rows(labels: Tensor, num_rows: int) -> None:
    if len(labels) != num_rows:
        raise ValueError(f"`labels` must have one row per row of scores, {num_rows}; got {len(labels)}.")


def check_alpha(alpha: float) -> float:
    """An error rate strictly between 0 and 1."""
    alpha = check_number("alpha", alpha)
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must lie strictly between 0 and 1; got {alpha}.")
    return alpha

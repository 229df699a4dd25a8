"""The base class of rules that answer some rows with the set of another rule, and abstain from the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_scores
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.rule import Draw, SetRule, rule_of
from shortlist.sets.rule_file import decode_rule, encode_rule
from shortlist.sets.scores import Block, Link
from shortlist.tensors import is_dtensor


class RejectingRule(SetRule):
    """Abstains from rows whose score, one number per row, does not exceed a threshold.

    An answered row gets the set of ``rule``, without random ties, as ``rule(scores)`` gives it. An abstained row gets
    an empty set, and ``PredictionSets.abstained`` tells it from an empty answer.

    Args:
        rule: fitted, on rows other than those of this fit; None answers with the best label.
        link: as in `SetRule`; that of ``rule`` by default.
    """

    threshold: Tensor

    def __init__(self, rule: SetRule | None, *, link: Link | None) -> None:
        if rule is not None and (not isinstance(rule, SetRule) or not rule.fitted):
            raise ValueError(f"`rule` must be a fitted set rule, or None for the best label; got {rule!r}.")
        if rule is not None and link not in (None, rule.link):
            raise ValueError(f"`link` must be that of `rule`, {rule.link!r}; got {link!r}.")
        super().__init__(link=link or (rule.link if rule is not None else "softmax"), min_size=0)
        self.rule = rule

    def predict(
        self,
        scores: Numbers,
        *,
        names: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
    ) -> PredictionSets:
        """The set of each row, empty and marked as ``abstained`` where there is no answer; see `SetRule.predict`."""
        scores = read_scores(scores)
        sets = super().predict(scores, names=names, generator=generator, draw=draw)
        return replace(sets, abstained=~self.answers(scores).cpu())

    @torch.no_grad()
    def answers(self, scores: Numbers) -> Tensor:
        """``(B,)`` bool: which rows get an answer."""
        self._check_fitted()
        scores = read_scores(scores)
        self._check_reading(scores, bool(self.from_logits))
        blocks = self._read_scores(scores).blocks(self._link_used)
        found = [self._answered(block) for block in blocks]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(torch.inf, dtype=torch.float64))

    def _arguments(self) -> dict[str, Any]:
        rule = None if self.rule is None else encode_rule(self.rule.document())
        return {name: rule if name == "rule" else value for name, value in super()._arguments().items()}

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        rule = options["rule"]
        return {**options, "rule": None if rule is None else rule_of(decode_rule(dict(rule)))}

    def extra_repr(self) -> str:
        """The options, for ``repr``; the rule is shown as a part."""
        options = super()._arguments().items()
        return ", ".join(f"{name}={value!r}" for name, value in options if name != "rule" and value is not None)

    def _check_reading(self, scores: Tensor, from_logits: bool) -> None:
        if is_dtensor(scores):
            raise TypeError(f"`scores` must be a plain tensor for {type(self).__name__}.")
        super()._check_reading(scores, from_logits)
        if self.rule is not None:
            self.rule._check_reading(scores, from_logits)

    def _check_labels_count(self, num_labels: int) -> None:
        if self.rule is not None and self.rule.num_labels != num_labels:
            raise ValueError(f"`scores` must have the {self.rule.num_labels} labels of `rule`; got {num_labels}.")

    def _answer(self, block: Block) -> Tensor:
        """The mask that is returned for rows with an answer."""
        if self.rule is not None:
            return self.rule(block.scores)
        best, at = block.scores.max(-1, keepdim=True)
        return torch.arange(block.scores.shape[-1], device=at.device) == at.masked_fill(best == -torch.inf, -1)

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        return self._answer(block) & self._answered(block).unsqueeze(-1)

    @abstractmethod
    def _answered(self, block: Block) -> Tensor:
        """``(rows,)`` bool: which rows get an answer."""

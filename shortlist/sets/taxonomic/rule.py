"""The base class of conformal rules whose sets are unions of few nodes of a taxonomy."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_scores
from shortlist.sets.conformal.split import SingleThreshold
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.sets.rule import Draw, check_alpha, read_classes
from shortlist.sets.scores import Block, Link
from shortlist.sets.taxonomic.node_sets import check_labels_of, collapse
from shortlist.taxonomy import Taxonomy


class TaxonomyRule(SingleThreshold):
    """Sets that grow with a level, nested, and are unions of nodes at every level; the level is calibrated.

    The conformity of a label is the level at which it enters the set. All labels of a node enter together, so what
    ties with the threshold is in or out for the whole row, by one random number.

    Args:
        alpha: miscoverage level, in (0, 1).
        taxonomy: of the labels.
        link, min_size: as in `SetRule`; labels that ``min_size`` adds are named on their own.
    """

    def __init__(self, alpha: float, taxonomy: Taxonomy, *, link: Link, min_size: int) -> None:
        if not isinstance(taxonomy, Taxonomy):
            raise TypeError(f"`taxonomy` must be a Taxonomy; got {type(taxonomy).__name__}.")
        self.taxonomy = taxonomy.prepare()
        self.alpha = check_alpha(alpha)
        super().__init__(link=link, min_size=min_size)

    def predict_nodes(
        self, scores: Numbers, *, generator: torch.Generator | None = None, draw: Draw | None = None
    ) -> PredictionSets:
        """Predict the nodes that name the set of each row, with the names of the taxonomy.

        Args:
            scores, generator, draw: as in ``predict``, whose labels these nodes hold. An absent label does not keep a
                node from being named.

        Returns:
            One set of nodes per row; the score of a node is the sum of the scores of its labels.
        """
        scores = read_scores(scores)
        sets = self.predict(scores, generator=generator, draw=draw)
        return collapse(sets, self.taxonomy, absent=scores.detach() == -torch.inf)

    @abstractmethod
    def _entry(self, block: Block, classes: Tensor) -> Tensor:
        """The level at which one class of each row enters the set; +inf if it is in every set."""

    @abstractmethod
    def _set_at(self, block: Block, strict: Tensor) -> Tensor:
        """Mask of the labels of the set at the threshold, or just above it for the rows ``(rows, 1)`` of ``strict``."""

    def _read_labels(self, labels: Tensor, rows: int) -> Any:
        return read_classes(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        absent = self._true_scores(block, labels) == -torch.inf
        classes = labels.to(block.values.device).clamp(0, block.values.shape[1] - 1)
        return (torch.where(absent, -torch.inf, self._entry(block, classes).to(absent.device)),)

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        strict = torch.zeros_like(block.scores[:, :1], dtype=torch.bool)
        if draw is not None and self.tie_share < 1:
            strict = (draw.uniform(strict.shape) >= self.tie_share).to(strict.device)
        return self._set_at(block, strict) & (block.scores > -torch.inf)

    def _check_labels_count(self, num_labels: int) -> None:
        super()._check_labels_count(num_labels)
        check_labels_of(self.taxonomy, num_labels)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "taxonomy": self.taxonomy.document()}

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "taxonomy": Taxonomy.from_document(options["taxonomy"])}

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        options = {**self._arguments(), "taxonomy": self.taxonomy}
        return ", ".join(f"{name}={value!r}" for name, value in options.items())

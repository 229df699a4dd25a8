"""Scene-graph recall over many batches of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from shortlist.functional.metrics.accuracy import macro_mean
from shortlist.functional.metrics.scene_graph import graph_recalls, refuse_unnamed
from shortlist.functional.metrics.scored_labels import check_choice, check_ks, like_k
from shortlist.labels import LabelsLike, Numbers
from shortlist.metrics.base import SumMetric, absent_labels, state_size


class SceneGraphRecall(SumMetric):
    """:func:`~shortlist.functional.scene_graph_recall` over many batches of whole images.

    Args:
        k: an integer of at least 1, or a sequence of them.
        constrained: whether each pair may have only one predicate; required.
        average: ``"image"``, or ``"predicate"`` for the mean recall over predicates.
        num_labels: R, the number of predicates; required for ``"predicate"``.
        torchmetrics_options: passed to `torchmetrics.Metric`.

    Example:
        >>> from shortlist.metrics import SceneGraphRecall
        >>> metric = SceneGraphRecall((1, 2), constrained=False)
        >>> scores = torch.tensor([[0.9, 0.8], [0.7, 0.1], [0.5, 0.6]])
        >>> metric(scores, torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
        tensor([0.1667, 0.8333], dtype=torch.float64)
    """

    recall_sum: Tensor
    images: Tensor

    def __init__(
        self,
        k: int | Sequence[int] = (20, 50, 100),
        *,
        constrained: bool,
        average: Literal["image", "predicate"] = "image",
        num_labels: int | None = None,
        **torchmetrics_options: Any,
    ) -> None:
        check_choice("average", average, ("image", "predicate"))
        if (average == "predicate") == (num_labels is None):
            raise ValueError(f'`num_labels` must be given if and only if `average="predicate"`; got {num_labels}.')
        ks = check_ks(k)
        super().__init__("scene graph", ks, constrained, num_labels, **torchmetrics_options)
        self.k, self._ks, self.constrained, self.average, self.num_labels = k, ks, constrained, average, num_labels
        self.add_sum("recall_sum", state_size(num_labels), len(ks))
        self.add_sum("images", state_size(num_labels), dtype=torch.int64)

    def update(self, scores: Numbers, target: LabelsLike, image: Numbers, missed: Numbers | None = None) -> None:
        """Add images: pairs ``(P, R)``, their true predicates, their images ``(P,)``, and missed relations.

        Images are numbered from 0 in every batch; an image must not be split between batches.
        """
        found = graph_recalls(scores, target, image, self._ks, constrained=self.constrained, missed=missed)
        if self.num_labels is not None:
            refuse_unnamed(found.missed)
            self.check_width(found.num_labels, self.num_labels)
            sums, images = found.by_predicate()
        else:
            sums, images = found.by_image()
        self.recall_sum = self.recall_sum + sums
        self.images = self.images + images

    def compute(self) -> Tensor:
        """One number, or one per k; NaN without relations."""
        return like_k(macro_mean(self.recall_sum, self.images), self.k)

    @property
    def absent(self) -> Tensor:
        """Predicates not seen yet on this process, ascending; on all processes inside ``sync_context()``."""
        if self.average == "image":
            raise ValueError('absent predicates are known only for `average="predicate"`; got "image".')
        return absent_labels(self.images)

"""Scene-graph recall over many batches of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from shortlist.checks import whole_k
from shortlist.functional.metrics.accuracy import macro_mean
from shortlist.functional.metrics.labels import check_choice, check_ks, like_k
from shortlist.functional.metrics.scene_graph import graph_recalls, refuse_unnamed
from shortlist.metrics.accumulated import Accumulated


class SceneGraphRecall(Accumulated):
    """:func:`~shortlist.functional.scene_graph_recall` over many batches, each of whole images.

    Args:
        k: a whole number from 1, or a sequence of them.
        constrained: whether each pair has one predicate only; must be said.
        average: ``"image"``, or ``"predicate"`` for the mean recall over predicates.
        num_labels: R, the number of predicates; needed for ``"predicate"``.
        torchmetrics_options: as `torchmetrics.Metric` takes them.

    Example:
        >>> from shortlist.metrics import SceneGraphRecall
        >>> metric = SceneGraphRecall((1, 2), constrained=False)
        >>> scores = torch.tensor([[0.9, 0.8], [0.7, 0.1], [0.5, 0.6]])
        >>> metric(scores, torch.tensor([[0, 1], [0, -1], [0, -1]]), torch.tensor([0, 0, 1]))
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
            raise ValueError(
                f'`num_labels` must be given for `average="predicate"` and for no other; got {num_labels}.'
            )
        ks = check_ks(k)
        super().__init__("scene graph", ks, constrained, num_labels, **torchmetrics_options)
        self.k, self._ks, self.constrained, self.average, self.num_labels = k, ks, constrained, average, num_labels
        size = 1 if num_labels is None else whole_k(num_labels, 1 << 62, name="num_labels")
        self.add_sum("recall_sum", size, len(ks))
        self.add_sum("images", size, dtype=torch.int64)

    def update(self, scores: Tensor, target: Tensor, image: Tensor, missed: Tensor | None = None) -> None:
        """Add images: pairs ``(P, R)``, their true predicates, their images ``(P,)``, and relations without a pair.

        Images are numbered from 0 in every batch; an image must not be split between batches.
        """
        found = graph_recalls(scores, target, image, self._ks, constrained=self.constrained, missed=missed)
        if self.average == "predicate":
            refuse_unnamed(found.missed)
            if scores.shape[-1] != self.num_labels:
                raise self._wrong_size("scores", len(self.images), scores.shape[-1])
            sums, images = found.by_predicate()
        else:
            sums, images = found.by_image()
        self.recall_sum = self.recall_sum + sums
        self.images = self.images + images

    def compute(self) -> Tensor:
        """One number, or one for each k; NaN without relations."""
        return like_k(macro_mean(self.recall_sum, self.images), self.k)

    @property
    def absent(self) -> Tensor:
        """Predicates that have not occurred so far, ascending; they are not in the average."""
        if self.average == "image":
            raise ValueError('absent predicates are known for `average="predicate"` only; got "image".')
        return (self.images == 0).nonzero().squeeze(-1)

"""Scene-graph recall: true relations among the k best (pair, predicate) triples of each image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist.functional.metrics.accuracy import macro_mean
from shortlist.functional.metrics.average_precision import ascending
from shortlist.functional.metrics.scored_labels import (
    ScoredLabels,
    check_choice,
    check_ks,
    like_k,
    read_scored_labels,
    refuse_nan,
)
from shortlist.labels import LabelsLike, Numbers, read_numbers
from shortlist.tensors import holds, solvable


class GraphRecalls(NamedTuple):
    """Expected hits and number of true relations for each (image, predicate) that occurs."""

    image: Tensor  # (cells,) int64
    predicate: Tensor  # (cells,) int64
    hits: Tensor  # (cells, len(ks)) float64
    relations: Tensor  # (cells,) int64, including missed ones of known predicate
    missed: Tensor  # (images,) int64: missed relations of unknown predicate
    num_labels: int

    def by_image(self) -> tuple[Tensor, Tensor]:
        """Sum of the recalls of images with relations ``(len(ks),)``, and the number of these images."""
        total = self.missed.index_add(0, self.image, self.relations)
        hits = self.hits.new_zeros(len(total), self.hits.shape[-1]).index_add(0, self.image, self.hits)
        return (hits / total.clamp(min=1).unsqueeze(-1)).sum(0), (total > 0).sum()

    def by_predicate(self) -> tuple[Tensor, Tensor]:
        """For each predicate, the sum of its recalls ``(R, len(ks))`` and the number of its images ``(R,)``."""
        recall = self.hits / self.relations.unsqueeze(-1)
        sums = recall.new_zeros(self.num_labels, recall.shape[-1]).index_add(0, self.predicate, recall)
        return sums, torch.bincount(self.predicate, minlength=self.num_labels)


def scene_graph_recall(
    scores: Numbers,
    target: LabelsLike,
    image: Numbers,
    k: int | Sequence[int] = (20, 50, 100),
    *,
    constrained: bool,
    missed: Numbers | None = None,
    average: Literal["image", "predicate"] = "image",
) -> Tensor:
    r"""Share of an image's true relations that are among its ``k`` best triples, averaged over images.

    .. math:: R@k = \frac{|\{\text{true (pair, predicate)}\} \cap \text{top}_k|}{|\{\text{true (pair, predicate)}\}|}

    A triple is a pair of objects with a predicate. If ``constrained``, only the best predicate of each pair competes.
    Triples that tie across rank k and predicates that tie for best of a pair count by their probability under a random
    order. Images without relations are left out. In an image with fewer than k triples, all are among the best.

    Args:
        scores: ``(P, R)``, floating: P pairs from all images and R predicates, excluding "no relation"; must be
            comparable within an image. ``-inf`` marks an absent predicate.
        target: the true predicates of each pair, in any form of :mod:`shortlist.targets`; unknown ones do not compete.
        image: ``(P,)`` int64, the image index of each pair, starting at 0.
        k: an integer of at least 1, or a sequence of them.
        constrained: whether each pair may have only one predicate; required.
        missed: number of true relations whose pair was not detected: ``(images,)``, or ``(images, R)`` by predicate,
            int64. Its length is the number of images.
        average: ``"image"``, or ``"predicate"``: for each predicate the mean over the images that have it, then the
            mean over the predicates that occur.

    Returns:
        One float64 number, or ``(len(k),)`` for a sequence; NaN without relations.

    Example:
        >>> scores = torch.tensor([[0.9, 0.8], [0.7, 0.1], [0.5, 0.6]])
        >>> target = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
        >>> image = torch.tensor([0, 0, 1])
        >>> scene_graph_recall(scores, target, image, (1, 2), constrained=False)
        tensor([0.1667, 0.8333], dtype=torch.float64)
        >>> scene_graph_recall(scores, target, image, (1, 2), constrained=True)
        tensor([0.1667, 0.3333], dtype=torch.float64)

    References:
        Xu, Zhu, Choy, Fei-Fei, "Scene Graph Generation by Iterative Message Passing", 2017; Amos, Koltun, Kolter, "The
        Limited Multi-Label Projection Layer", 2019; Tang, Zhang, Wu, Luo, Liu, "Learning to Compose Dynamic Tree
        Structures for Visual Contexts", 2019 (by predicate).
    """
    check_choice("average", average, ("image", "predicate"))
    found = graph_recalls(scores, target, image, check_ks(k), constrained=constrained, missed=missed)
    if average == "predicate":
        refuse_unnamed(found.missed)
        return like_k(macro_mean(*found.by_predicate()), k)
    sums, images = found.by_image()
    return like_k(sums / images, k)


def graph_recalls(
    scores: Numbers,
    target: LabelsLike,
    image: Numbers,
    ks: list[int],
    *,
    constrained: bool,
    missed: Numbers | None = None,
) -> GraphRecalls:
    """Expected hits of every image by predicate, at all ``ks``."""
    data = read_scored_labels(scores, target)
    refuse_nan(data.scores)
    image = _check_images(image, data.scores)
    (cells, times), unnamed = _missed(missed, image, data.num_labels)
    size = max(data.num_labels, 1)
    if data.present is not None:
        rows, labels = data.chosen()
        data = data._replace(rows=rows, labels=labels, width=None, present=None)
    probability = _probabilities(data, image, len(unnamed), torch.tensor(ks, device=image.device), constrained)
    # Store only cells that occur: a dense table of images and predicates would be as large as the scores.
    found = image[data.rows] * size + data.labels
    cells, index = torch.cat([found, cells]).unique(return_inverse=True)
    relations = torch.zeros_like(cells).index_add(0, index, torch.cat([torch.ones_like(found), times]))
    hits = probability.new_zeros(len(cells), len(ks)).index_add(0, index[: len(found)], probability)
    return GraphRecalls(cells // size, cells % size, hits, relations, unnamed, data.num_labels)


def refuse_unnamed(missed: Tensor) -> None:
    """Recall by predicate needs the predicates of missed relations."""
    if holds((missed > 0).any()):
        raise ValueError('`missed` must have the shape (images, R) for `average="predicate"`; got (images,).')


def _probabilities(data: ScoredLabels, image: Tensor, images: int, at: Tensor, constrained: bool) -> Tensor:
    """The probability that each true triple is among the k best of its image, ``(m, len(ks))``."""
    x = solvable(data.scores)
    truth = x[data.rows, data.labels]
    share = torch.ones_like(truth, dtype=torch.float64)
    if constrained and x.shape[-1]:
        best = x.amax(-1)
        share = (truth == best[data.rows]) / (x == best.unsqueeze(-1)).sum(-1)[data.rows].double()
        x = best.unsqueeze(-1)
    pairs, truths = image.argsort(stable=True), image[data.rows].argsort(stable=True)
    pair_ends = torch.bincount(image, minlength=images).cumsum(0).tolist()
    truth_ends = torch.bincount(image[data.rows], minlength=images).cumsum(0).tolist()
    probability = share.new_zeros(len(truth), len(at))
    for i in range(images):
        mine = truths[truth_ends[i - 1] if i else 0 : truth_ends[i]]
        if len(mine) == 0:
            continue
        ordered = ascending(x[pairs[pair_ends[i - 1] if i else 0 : pair_ends[i]]].reshape(-1))
        wanted = truth[mine]
        upper = torch.searchsorted(ordered, wanted, right=True)
        tied = upper - torch.searchsorted(ordered, wanted)
        ranks_left = at - (len(ordered) - upper).unsqueeze(-1)
        probability[mine] = (ranks_left / tied.clamp(min=1).double().unsqueeze(-1)).clamp(0, 1)
    return probability * (share * (truth > -math.inf)).unsqueeze(-1)


def _check_images(image: Numbers, scores: Tensor) -> Tensor:
    image = _int64(image, "image", scores.device)
    if image.shape != scores.shape[:1]:
        raise ValueError(f"`image` must have one value per pair, shape ({len(scores)},); got {tuple(image.shape)}.")
    if holds((image < 0).any()):
        raise ValueError(f"`image` must be at least 0; got {int(image.min())}.")
    return image


def _int64(values: Numbers, name: str, device: torch.device) -> Tensor:
    if isinstance(values, Tensor) and values.dtype != torch.int64:
        raise TypeError(f"`{name}` must be an int64 tensor; got {values.dtype}.")
    x = read_numbers(values, name=name)
    if x.dtype == torch.bool or x.is_floating_point():
        raise TypeError(f"`{name}` must hold integers; got {x.dtype}.")
    return x if x is values else x.to(device, torch.int64)


def _missed(missed: Numbers | None, image: Tensor, size: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Missed relations: (image, predicate) cells, the number in each, and those of unknown predicate by image."""
    least = int(image.max()) + 1 if len(image) else 0
    if missed is None:
        return (image[:0], image[:0]), image.new_zeros(least)
    missed = _int64(missed, "missed", image.device)
    if missed.ndim not in (1, 2) or missed.shape[1:] not in ((), (size,)):
        raise ValueError(f"`missed` must have the shape (images,) or (images, {size}); got {tuple(missed.shape)}.")
    if len(missed) < least:
        raise ValueError(f"`missed` must have a value for each of the {least} images; got {len(missed)}.")
    if holds((missed < 0).any()):
        raise ValueError(f"`missed` must be at least 0; got {int(missed.min())}.")
    if missed.ndim == 1:
        return (missed[:0], missed[:0]), missed
    cells = missed.reshape(-1).nonzero().squeeze(-1)
    return (cells, missed.reshape(-1)[cells]), missed.new_zeros(len(missed))

"""A world of scene graphs: images with objects whose relations have known probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.object_pairs import GEOMETRY, ObjectPairs, PairBatch, geometry
from shortlist.data.target_rows import sparse_targets
from shortlist.functional.metrics_labels import check_ks, like_k

_PARTS = ("train", "val", "test")
_BLOCK = 1 << 12  # Pairs whose probabilities are in memory at once.
_LONGER_SIDE = 1024
# Without the logarithms: what remains of the geometry is made by operations that all platforms round alike.
_DECIDING = tuple(i for i, name in enumerate(GEOMETRY) if not name.startswith("log"))


class RecallEstimate(NamedTuple):
    """An estimate from sampled images."""

    value: Tensor  # () or (len(k),) float64
    standard_error: Tensor


class SceneGraphWorld:
    r"""Images with objects of long-tailed classes, whose pairs have each predicate independently.

    .. math:: P(r \mid s, o) = \sigma\big(T_{c_s, c_o, r} + w_r \cdot g(s, o)\big)

    with the classes :math:`c` and the `geometry` :math:`g` of a pair, its logarithms left out. Half of the pairs of
    classes are poor in relations, some are rich: there, several relations of a pair are the rule. Class i is drawn in
    proportion to 1 / (i + 1), and later predicates are rarer.

    Args:
        num_objects: how many classes objects have.
        num_predicates: R, how many predicates.
        relations_per_pair: the mean number of relations of a pair; met within a few percent, as it is set on a sample.
        objects_per_image: least and greatest number of objects of an image; all between are equally likely.
        seed: decides the tables; what is drawn from the world has a seed of its own.

    Example:
        >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
        >>> world = SceneGraphWorld(num_objects=5, num_predicates=4, relations_per_pair=0.5, seed=0)
        >>> graphs = world.sample(50, seed=1)
        >>> graphs.split.names, graphs.label_names[:2], graphs.inputs.kind
        (('train', 'val', 'test'), ('predicate 0', 'predicate 1'), 'object pairs')
        >>> world.probabilities(graphs.inputs.batch(torch.arange(10))).shape
        torch.Size([10, 4])
    """

    def __init__(
        self,
        num_objects: int = 20,
        num_predicates: int = 12,
        *,
        relations_per_pair: float = 0.4,
        objects_per_image: tuple[int, int] = (2, 8),
        seed: int = 0,
    ) -> None:
        for argument, value in (("num_objects", num_objects), ("num_predicates", num_predicates)):
            _check_whole(argument, value, 1)
        low, high = objects_per_image
        if not 1 <= low <= high:
            raise ValueError(f"`objects_per_image` must rise from at least 1; got {objects_per_image}.")
        if not 0 < relations_per_pair < num_predicates:
            raise ValueError(f"`relations_per_pair` must lie in (0, {num_predicates}); got {relations_per_pair}.")
        self.num_objects, self.num_predicates, self.seed = num_objects, num_predicates, seed
        self.objects_per_image = (low, high)
        chance = Draws(seed, "scene graph world: tables")
        cells = (num_objects, num_objects, num_predicates)
        richness = chance.uniform(num_objects * num_objects).reshape(cells[:2])
        self.region = np.where(richness < 0.5, 0, np.where(richness < 0.8, 1, 2))  # poor, plain, rich
        affinity = 6.0 * chance.uniform(math.prod(cells)).reshape(cells) - 3.0
        rarity = 2.0 * np.arange(num_predicates) / num_predicates
        self.table = affinity + np.array([-3.0, 0.0, 2.5])[self.region][..., None] - rarity
        self.weights = 4.0 * chance.uniform(len(_DECIDING) * num_predicates).reshape(len(_DECIDING), -1) - 2.0
        self.table += self._shift(relations_per_pair)

    def __repr__(self) -> str:
        """Name the sizes."""
        return f"SceneGraphWorld({self.num_objects} objects, {self.num_predicates} predicates, seed={self.seed})"

    def probabilities(self, batch: PairBatch) -> Tensor:
        """The chance of each predicate for each pair, ``(P, R)`` float64; predicates of a pair are independent."""
        return torch.from_numpy(_logistic(self._logits(batch)))

    def sample(
        self, num_images: int, *, seed: int, val: float = 0.1, test: float = 0.2, missing: float = 0.0
    ) -> Dataset:
        """Draw images and their relations, in the shape that `read_visual_genome` gives: all pairs are rows.

        Args:
            num_images: how many images; those without relations stay.
            seed: decides the images and relations.
            val, test: their shares of the images, rounded down; images of a part stand together, train first.
            missing: the chance of each relation of the training part to be left out of ``targets``, where it then
                looks absent; ``clean_targets`` keep all.

        Returns:
            Targets are sparse; ``row_groups["image"]`` has the image of each pair.
        """
        _check_whole("num_images", num_images, 0)
        for argument, share in (("val", val), ("test", test), ("missing", missing)):
            if not 0 <= share <= 1:
                raise ValueError(f"`{argument}` must lie in [0, 1]; got {share}.")
        counts = [math.floor(num_images * share) for share in (val, test)]
        if sum(counts) > num_images or val + test > 1:
            raise ValueError(f"`val` and `test` must sum to at most 1; got {val} and {test}.")
        inputs = self._images(num_images, seed, "images", self.objects_per_image)
        image = inputs.images()
        rows, labels = self._relations(inputs, seed)
        clean = sparse_targets(rows, labels, len(inputs), self.num_predicates)
        ends = torch.tensor([num_images - sum(counts), num_images - counts[1]])
        part = torch.searchsorted(ends, image, right=True)
        targets = clean
        if missing:
            chance = Draws(seed, f"scene graph world {self.seed}: missing").uniform(len(rows))
            found = (chance >= missing) | (part.numpy()[rows] > 0)
            targets = sparse_targets(rows[found], labels[found], len(inputs), self.num_predicates)
        return Dataset(
            inputs,
            targets,
            tuple(f"predicate {i}" for i in range(self.num_predicates)),
            row_groups={"image": Groups(image, tuple(str(i) for i in range(num_images)))},
            split=Groups(part, _PARTS),
            clean_targets=clean if missing else None,
            name="scene graph world",
        )

    def bayes_recall(
        self, k: int | Sequence[int], *, constrained: bool, num_images: int = 1000, seed: int = 0
    ) -> RecallEstimate:
        r"""The best expected R@k that any ranking of (pair, predicate) triples can have, objects being given (PredCls).

        The recall of the set S of the k first triples of an image, averaged over images with relations, is

        .. math:: \frac{\mathbb E \sum_{c \in S} v_c}{P(N > 0)}, \quad
            v_c = \mathbb E\big[X_c / N\big] = p_c\, \mathbb E\big[1 / (1 + N - X_c)\big]

        with the number :math:`N = \sum_c X_c` of relations of the image. This is expected recall, not the expected
        number of hits; but a larger :math:`p_c` leaves fewer others, so that the order by :math:`v` is the order by
        probability, and one ranking is the best for both. Relations are not drawn: for each sampled image the value is
        exact.

        Args:
            k: a whole number from 1, or a sequence of them.
            constrained: whether each pair gets one predicate only, which then is the likeliest.
            num_images: how many images to average over, at least 2.
            seed: decides the images.

        Returns:
            The value and its standard error (over images, of the ratio), one number each or ``(len(k),)``; NaN for
            images without pairs.

        Example:
            >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
            >>> world = SceneGraphWorld(num_objects=5, num_predicates=4, objects_per_image=(3, 3))
            >>> best = world.bayes_recall([2, 24], constrained=False, num_images=20)
            >>> bool(best.value[0] < best.value[1]), round(best.value[1].item(), 9)
            (True, 1.0)
        """
        ks = check_ks(k)
        _check_whole("num_images", num_images, 2)
        inputs = self._images(num_images, seed, "Bayes recall", self.objects_per_image)
        gained = torch.zeros(num_images, len(ks), dtype=torch.float64)
        related = torch.zeros(num_images, 1, dtype=torch.float64)
        for image, probs in self._by_image(inputs):
            gain = recall_gains(probs.reshape(-1)).reshape(probs.shape)
            best = (gain.amax(-1) if constrained else gain.reshape(-1)).sort(descending=True).values.cumsum(0)
            gained[image] = best[torch.tensor(ks).clamp(max=len(best)) - 1]
            related[image] = 1 - (1 - probs).prod()
        value = gained.sum(0) / related.sum()
        spread = (gained - value * related).square().sum(0) / (num_images - 1)
        error = (spread / num_images).sqrt() / related.mean()
        return RecallEstimate(like_k(value, k), like_k(error, k))

    def _logits(self, batch: PairBatch) -> np.ndarray:
        wide = batch._replace(subject_box=batch.subject_box.double(), object_box=batch.object_box.double())
        place = geometry(wide).numpy()
        logits = self.table[batch.subject.numpy(), batch.object.numpy()]
        # One feature after the other: the order of sums in a matrix product is up to the platform.
        for feature, weights in zip(_DECIDING, self.weights, strict=True):
            logits += place[:, feature, None] * weights
        return logits

    def _shift(self, relations_per_pair: float) -> float:
        """What to add to all logits for the wanted mean, by halving, on pairs of which the classes fill a lattice."""
        count = 2048
        pairs = self._images(count, 0, "level", (2, 2))
        place = np.arange(count)
        subject, other = (self._classes((at + 0.5) / count) for at in (place, place * 795 % count))
        batch = pairs.batch(torch.from_numpy(2 * place))
        logits = self._logits(batch._replace(subject=torch.from_numpy(subject), object=torch.from_numpy(other)))
        low, high = -64.0, 64.0
        for _ in range(20):
            middle = (low + high) / 2
            # A running sum, unlike a sum, has an order that is the same everywhere.
            mean = np.cumsum(_logistic(logits + middle))[-1] / count
            low, high = (middle, high) if mean < relations_per_pair else (low, middle)
        return low

    def _classes(self, chance: np.ndarray) -> np.ndarray:
        """Classes in proportion to 1, 1/2, 1/3, ... from fractions in [0, 1)."""
        reach = np.cumsum(1.0 / np.arange(1, self.num_objects + 1))
        # A product may round up to the very end.
        return np.searchsorted(reach, chance * reach[-1], side="right").clip(max=self.num_objects - 1)

    def _images(self, num_images: int, seed: int, purpose: str, objects: tuple[int, int]) -> ObjectPairs:
        """Images with a longer side of 1024 pixels, and objects with boxes of whole pixels."""
        chance = Draws(seed, f"scene graph world {self.seed}: {purpose}")
        low, high = objects
        starts = np.zeros(num_images + 1, dtype=np.int64)
        np.cumsum(low + chance.below(np.full(num_images, high - low + 1)), out=starts[1:])
        size = np.full((num_images, 2), _LONGER_SIDE, dtype=np.int64)
        shorter = chance.below(np.full(num_images, 2))
        size[np.arange(num_images), shorter] -= chance.below(np.full(num_images, _LONGER_SIDE // 2))
        classes = self._classes(chance.uniform(int(starts[-1])))
        room = np.repeat(size, np.diff(starts), 0).reshape(-1)
        sides = room // 16 + chance.below(room // 2)
        corner = chance.below(room - sides + 1)
        boxes = np.concatenate([corner.reshape(-1, 2), (corner + sides).reshape(-1, 2)], 1)
        return ObjectPairs(
            torch.from_numpy(classes),
            torch.from_numpy(boxes.astype(np.float32)),
            torch.from_numpy(starts),
            torch.from_numpy(size.astype(np.float32)),
            object_names=tuple(f"object {i}" for i in range(self.num_objects)),
        )

    def _relations(self, inputs: ObjectPairs, seed: int) -> tuple[np.ndarray, np.ndarray]:
        chance = Draws(seed, f"scene graph world {self.seed}: relations")
        rows, labels = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(inputs), _BLOCK):
            probs = self.probabilities(inputs.batch(torch.arange(start, min(start + _BLOCK, len(inputs))))).numpy()
            row, label = (chance.uniform(probs.size).reshape(probs.shape) < probs).nonzero()
            rows.append(start + row)
            labels.append(label)
        return np.concatenate(rows), np.concatenate(labels)

    def _by_image(self, inputs: ObjectPairs) -> Iterator[tuple[int, Tensor]]:
        """The probabilities ``(pairs, R)`` of each image that has pairs."""
        starts, together = inputs.pair_starts.tolist(), 64
        for first in range(0, inputs.num_images, together):
            bounds = starts[first : first + together + 1]
            probs = self.probabilities(inputs.batch(torch.arange(bounds[0], bounds[-1])))
            for image, (start, end) in enumerate(pairwise(bounds), start=first):
                if end > start:
                    yield image, probs[start - bounds[0] : end - bounds[0]]


def recall_gains(probs: Tensor) -> Tensor:
    r"""What each of n independent labels adds to expected recall when it is answered.

    .. math:: v_c = \mathbb E\Big[\frac{X_c}{\sum_d X_d}\Big]
        = \int_0^1 p_c \prod_{d \ne c} (1 - p_d + p_d t)\, dt

    (0 / 0 counts as 0): the mean of 1 / (1 + number of the others), as :math:`\int_0^1 t^m dt = 1 / (m + 1)`. The
    integrand is a polynomial of degree n - 1, for which n / 2 Gauss-Legendre nodes are exact. Where n is large, m nodes
    leave an error of about :math:`e^{-4 m^2 / \sum p}`; so many are taken that this is below rounding.

    Args:
        probs: ``(n,)`` float64, the chance of each label.

    Returns:
        ``(n,)`` float64; sums to the chance that any label is present.

    Example:
        >>> from shortlist.data.worlds.scene_graph import recall_gains
        >>> recall_gains(torch.tensor([1.0, 0.5], dtype=torch.float64))
        tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    enough = 32 + math.ceil(math.sqrt(10 * float(probs.sum())))
    nodes, weights = _quadrature(max(1, min((len(probs) + 1) // 2, enough)))
    factors = 1 - probs.unsqueeze(-1) * (1 - nodes)  # Above 0, as all nodes are.
    return (probs.unsqueeze(-1) * factors.prod(0) / factors) @ weights


@lru_cache(maxsize=256)
def _quadrature(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1] that are exact up to degree 2 * count - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)


def _logistic(z: np.ndarray) -> np.ndarray:
    """The logistic function by operations that all platforms round alike, so that the same relations are drawn."""
    a = np.minimum(np.abs(z), 700.0)
    halvings = np.floor(a * 1.4426950408889634 + 0.5)
    rest = halvings * 0.6931471805599453 - a  # Within half of log 2, where fifteen terms reach full precision.
    power = np.zeros_like(a)
    for term in range(14, -1, -1):
        power *= rest
        power += 1.0 / math.factorial(term)
    power = np.ldexp(power, -halvings.astype(np.int32))
    return np.where(z >= 0, 1.0, power) / (1.0 + power)


def _check_whole(argument: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"`{argument}` must be a whole number from {least}; got {value!r}.")

"""A world of scene graphs: images of objects whose relations have known probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_share, check_size_pair
from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.groups import Groups
from shortlist.data.object_pairs import GEOMETRY, ObjectPairs, PairBatch, geometry
from shortlist.data.target_rows import sparse_targets
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.data.worlds.world import World, draw_labels, observed_labels, parts_in_order
from shortlist.functional.metrics.scored_labels import check_ks, like_k
from shortlist.tensors import check_number, check_size

_LONGER_SIDE = 1024
# Without the logarithms: the rest of the geometry uses operations that all platforms round alike.
_FEATURES = tuple(i for i, name in enumerate(GEOMETRY) if not name.startswith("log"))


class RecallEstimate(NamedTuple):
    """The recall of the optimal ranking, estimated from sampled images.

    Args:
        value: ``()`` for one k, ``(len(k),)`` for several; float64, NaN if there are no pairs.
        standard_error: of the estimate, in the same shape.

    Example:
        >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
        >>> world = SceneGraphWorld()
        >>> world.bayes_recall([5, 20], constrained=False, num_images=10).standard_error.shape
        torch.Size([2])
    """

    value: Tensor
    standard_error: Tensor


class SceneGraphWorld(World):
    r"""Images of objects with long-tailed classes, whose pairs have each predicate independently.

    .. math:: P(r \mid s, o) = \sigma\big(T_{c_s, c_o, r} + w_r \cdot g(s, o)\big)

    with the classes :math:`c` and the `geometry` :math:`g` of a pair, without its logarithms. A row is a pair of
    objects, a label is a predicate. Half of the pairs of classes have few relations; some have many, often several per
    pair. Class i of 1, 2, ... is drawn in proportion to 1 / i, and later predicates are rarer.

    Args:
        num_objects: the number of object classes, at least 1.
        num_predicates: R, the number of predicates, at least 1.
        relations_per_pair: the mean number of relations of a pair, in (0, R); met within a few percent, because it is
            calibrated on a sample.
        objects_per_image: the smallest and the largest number of objects of an image, at least 1; uniform between.
        seed: determines the tables, an integer from 0; samples from the world have their own seed.

    Attributes:
        num_labels: R.
        label_names: ``predicate 1``, ``predicate 2`` and so on.
        object_names: ``object 1``, ``object 2`` and so on, the object classes.
        num_objects, objects_per_image, seed: as given.
        region: ``(num_objects, num_objects)`` array by class of subject and object; 0 for few relations, 1 for some, 2
            for many.
        table: ``(num_objects, num_objects, R)`` float64 array, T.
        weights: float64 array with one row per feature of the geometry that is used and R columns, w.

    Example:
        >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
        >>> world = SceneGraphWorld(num_objects=5, num_predicates=4, relations_per_pair=0.5, seed=0)
        >>> graphs = world.sample(50, seed=1)
        >>> graphs.split.names, graphs.label_names[:2], graphs.inputs.kind
        (('train', 'val', 'test'), ('predicate 1', 'predicate 2'), 'object pairs')
        >>> world.probabilities(graphs.batch(range(10)).inputs).shape
        torch.Size([10, 4])
        >>> world.average_k_risk(1, num_samples=1000).value < world.top_k_risk(1, num_samples=1000).value
        True
    """

    kind = "scene graph world"

    def __init__(
        self,
        num_objects: int = 20,
        num_predicates: int = 12,
        *,
        relations_per_pair: float = 0.4,
        objects_per_image: tuple[int, int] = (2, 8),
        seed: int = 0,
    ) -> None:
        objects = self.num_objects = check_size("num_objects", num_objects)
        n = self.num_labels = check_size("num_predicates", num_predicates)
        self.objects_per_image = check_size_pair("objects_per_image", objects_per_image)
        if not 0 < check_number("relations_per_pair", relations_per_pair) < n:
            raise ValueError(f"`relations_per_pair` must lie between 0 and {n}; got {relations_per_pair}.")
        draws = Draws(seed, f"{self.kind}: tables")
        self.seed = int(seed)
        self.label_names = tuple(f"predicate {i + 1}" for i in range(n))
        self.object_names = tuple(f"object {i + 1}" for i in range(objects))
        richness = draws.uniform(objects * objects).reshape(objects, objects)
        self.region = np.where(richness < 0.5, 0, np.where(richness < 0.8, 1, 2))
        affinity = 6.0 * draws.uniform(objects * objects * n).reshape(objects, objects, n) - 3.0
        rarity = 2.0 * np.arange(n) / n
        self.table = affinity + np.array([-3.0, 0.0, 2.5])[self.region][..., None] - rarity
        self.weights = 4.0 * draws.uniform(len(_FEATURES) * n).reshape(len(_FEATURES), n) - 2.0
        self.table += self._shift(float(relations_per_pair))

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"SceneGraphWorld({self.num_objects} objects, {self.num_labels} predicates, seed={self.seed})"

    def probabilities(self, x: PairBatch) -> Tensor:
        """The exact probability of each predicate; those of a pair are independent.

        Args:
            x: B pairs from `ObjectPairs.batch`.

        Returns:
            ``(B, R)`` with the dtype of the boxes, computed in float64.

        Raises:
            TypeError: if ``x`` is not a `PairBatch`, or its boxes are not floating.
            ValueError: if it is a single pair, or if the world does not have the class of an object.

        Example:
            >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
            >>> world = SceneGraphWorld()
            >>> world.probabilities(world.sample(5).batch([0, 1, 2]).inputs).shape
            torch.Size([3, 12])
        """
        self._check_pairs(x)
        return torch.from_numpy(self._probabilities(x)).to(x.subject_box)

    def sample(
        self,
        num_images: int,
        *,
        seed: int = 0,
        split: tuple[float, float, float] | None = (0.6, 0.2, 0.2),
        missing: float = 0.0,
    ) -> Dataset:
        """Draw images and their relations, in the form of `read_visual_genome`: all pairs are rows.

        With the same seeds, a higher ``missing`` hides the same relations and more.

        Args:
            num_images: the number of images, from 0; those without relations are kept.
            seed: an integer from 0; another seed draws other images from the same world.
            split: shares of train, val and test of the images, in their order, so all pairs of an image are in one
                part; None if all images are for training.
            missing: the probability in [0, 1] that a relation of the training part is missing from ``targets``, where
                it then looks absent; ``clean_targets`` has all.

        Returns:
            Targets are sparse; ``row_groups["image"]`` has the image of each pair.

        Example:
            >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
            >>> graphs = SceneGraphWorld(objects_per_image=(2, 2)).sample(10, missing=1.0)
            >>> graphs.label_counts("train").sum(), graphs.split.counts().tolist()
            (tensor(0), [12, 4, 4])
        """
        num_images = check_size("num_images", num_images, at_least=0)
        missing = check_share("missing", missing)
        parts = None if split is None else parts_in_order(num_images, split)
        inputs = self._images(num_images, self._draws(seed, "images"), self.objects_per_image)
        image = inputs.images()
        truth = self._draws(seed, "relations")
        rows, labels = draw_labels(
            truth, lambda a, b: self._probabilities(inputs.batch(torch.arange(a, b))), len(inputs), self.num_labels
        )
        clean = sparse_targets(rows, labels, len(inputs), self.num_labels)
        part = None if parts is None else parts.take(image)
        targets = clean
        if missing:
            found = observed_labels(self._draws(seed, "missing"), missing, rows, part)
            targets = sparse_targets(rows[found], labels[found], len(inputs), self.num_labels)
        return Dataset(
            inputs,
            targets,
            self.label_names,
            row_groups={"image": Groups(image, tuple(f"image {i + 1}" for i in range(num_images)))},
            split=part,
            clean_targets=clean if missing else None,
            name=self.kind,
        )

    def bayes_recall(
        self, k: int | Sequence[int], *, constrained: bool, num_images: int = 1000, seed: int = 0
    ) -> RecallEstimate:
        r"""The optimal expected R@k of rankings of (pair, predicate) triples with given objects (PredCls).

        The recall of the set S of the k first triples of an image, averaged over images with relations, is

        .. math:: \frac{\mathbb E \sum_{c \in S} v_c}{P(N > 0)}, \quad
            v_c = \mathbb E\big[X_c / N\big] = p_c\, \mathbb E\big[1 / (1 + N - X_c)\big]

        with the number :math:`N = \sum_c X_c` of relations of the image. This is expected recall, not the expected
        number of hits; but a larger :math:`p_c` leaves fewer others, so the order by :math:`v` is the order by
        probability, and one ranking is optimal for both. Relations are not sampled: the value of each sampled image is
        exact.

        Args:
            k: an integer from 1, or a sequence of them.
            constrained: whether each pair gets only one predicate, the most probable one.
            num_images: the number of images to average over, at least 2.
            seed: determines the images.

        Returns:
            The value and its standard error (of the ratio, over images), one number each or ``(len(k),)``; NaN for
            images without pairs.

        Example:
            >>> from shortlist.data.worlds.scene_graph import SceneGraphWorld
            >>> world = SceneGraphWorld(num_objects=5, num_predicates=4, objects_per_image=(3, 3))
            >>> best = world.bayes_recall([2, 24], constrained=False, num_images=20)
            >>> bool(best.value[0] < best.value[1]), round(best.value[1].item(), 9)
            (True, 1.0)
        """
        ks = check_ks(k)
        num_images = check_size("num_images", num_images, at_least=2)
        inputs = self._images(num_images, self._draws(seed, "Bayes recall"), self.objects_per_image)
        gained = torch.zeros(num_images, len(ks), dtype=torch.float64)
        related = torch.zeros(num_images, 1, dtype=torch.float64)
        for image, probs in self._by_image(inputs):
            gain = expected_shares(probs.reshape(1, -1)).reshape(probs.shape)
            best = (gain.amax(-1) if constrained else gain.reshape(-1)).sort(descending=True).values.cumsum(0)
            gained[image] = best[torch.tensor(ks).clamp(max=len(best)) - 1]
            related[image] = 1 - (1 - probs).prod()
        value = gained.sum(0) / related.sum()
        spread = (gained - value * related).square().sum(0) / (num_images - 1)
        error = (spread / num_images).sqrt() / related.mean()
        return RecallEstimate(like_k(value, k), like_k(error, k))

    def _block_gains(self, rows: int, draws: Draws) -> Tensor:
        if self.objects_per_image[1] < 2:
            raise ValueError(
                f"`objects_per_image` must allow pairs, since the risk is over pairs; got {self.objects_per_image}."
            )
        # A pair does not depend on how many other objects its image has, so one pair from each image of two objects
        # is distributed like the rows of a sample, but independent, unlike the pairs of one image.
        inputs = self._images(rows, draws, (2, 2))
        return expected_shares(torch.from_numpy(self._probabilities(inputs.batch(torch.arange(0, 2 * rows, 2)))))

    def _check_pairs(self, x: PairBatch) -> None:
        if not isinstance(x, PairBatch):
            raise TypeError(f"`x` must be a PairBatch; got {type(x).__name__}.")
        if not x.subject_box.is_floating_point() or not x.object_box.is_floating_point():
            raise TypeError(f"`x` must have floating boxes; got {x.subject_box.dtype} and {x.object_box.dtype}.")
        if x.subject.dim() != 1:
            raise ValueError(f"`x` must be a batch of pairs, with classes (B,); got {tuple(x.subject.shape)}.")
        for classes in (x.subject, x.object):
            outside = classes[(classes < 0) | (classes >= self.num_objects)]
            if len(outside):
                raise ValueError(f"`x` must have classes in [0, {self.num_objects}); got {int(outside[0])}.")

    def _probabilities(self, batch: PairBatch) -> np.ndarray:
        """The probabilities in float64, the same on every platform."""
        return _logistic(self._logits(PairBatch(*(field.detach().cpu() for field in batch))))

    def _logits(self, batch: PairBatch) -> np.ndarray:
        wide = batch._replace(subject_box=batch.subject_box.double(), object_box=batch.object_box.double())
        features = geometry(wide).numpy()
        logits = self.table[batch.subject.numpy(), batch.object.numpy()]
        # One feature at a time: the order of sums in a matrix product depends on the platform.
        for feature, weights in zip(_FEATURES, self.weights, strict=True):
            logits += features[:, feature, None] * weights
        return logits

    def _shift(self, relations_per_pair: float) -> float:
        """The shift of all logits that gives the mean, by bisection, on pairs whose classes fill a lattice."""
        count = 2048
        pairs = self._images(count, self._draws(0, "level"), (2, 2))
        index = np.arange(count)
        subject, other = (self._classes((point + 0.5) / count) for point in (index, index * 795 % count))
        batch = pairs.batch(torch.from_numpy(2 * index))
        logits = self._logits(batch._replace(subject=torch.from_numpy(subject), object=torch.from_numpy(other)))
        low, high = -64.0, 64.0
        for _ in range(20):
            middle = (low + high) / 2
            # Unlike a sum, a running sum has the same order on every platform.
            mean = np.cumsum(_logistic(logits + middle))[-1] / count
            low, high = (middle, high) if mean < relations_per_pair else (low, middle)
        return low

    def _classes(self, uniform: np.ndarray) -> np.ndarray:
        """Classes in proportion to 1, 1/2, 1/3, ... from fractions in [0, 1)."""
        cumulative = np.cumsum(1.0 / np.arange(1, self.num_objects + 1))
        # The product may round up to the end.
        return np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(max=self.num_objects - 1)

    def _images(self, num_images: int, draws: Draws, objects: tuple[int, int]) -> ObjectPairs:
        """Images with a longer side of 1024 pixels, and objects with boxes of whole pixels."""
        low, high = objects
        starts = np.zeros(num_images + 1, dtype=np.int64)
        np.cumsum(low + draws.below(np.full(num_images, high - low + 1)), out=starts[1:])
        size = np.full((num_images, 2), _LONGER_SIDE, dtype=np.int64)
        shorter = draws.below(np.full(num_images, 2))
        size[np.arange(num_images), shorter] -= draws.below(np.full(num_images, _LONGER_SIDE // 2))
        classes = self._classes(draws.uniform(int(starts[-1])))
        room = np.repeat(size, np.diff(starts), 0).reshape(-1)
        sides = room // 16 + draws.below(room // 2)
        corner = draws.below(room - sides + 1)
        boxes = np.concatenate([corner.reshape(-1, 2), (corner + sides).reshape(-1, 2)], 1)
        return ObjectPairs(
            torch.from_numpy(classes),
            torch.from_numpy(boxes.astype(np.float32)),
            torch.from_numpy(starts),
            torch.from_numpy(size.astype(np.float32)),
            object_names=self.object_names,
        )

    def _by_image(self, inputs: ObjectPairs) -> Iterator[tuple[int, Tensor]]:
        """The probabilities ``(pairs, R)`` of each image with pairs."""
        starts, together = inputs.pair_starts.tolist(), 64
        for first in range(0, inputs.num_images, together):
            bounds = starts[first : first + together + 1]
            probs = torch.from_numpy(self._probabilities(inputs.batch(torch.arange(bounds[0], bounds[-1]))))
            for image, (start, end) in enumerate(pairwise(bounds), start=first):
                if end > start:
                    yield image, probs[start - bounds[0] : end - bounds[0]]


def _logistic(z: np.ndarray) -> np.ndarray:
    """The logistic function from operations that all platforms round alike, so the same relations are drawn."""
    a = np.minimum(np.abs(z), 700.0)
    halvings = np.floor(a * 1.4426950408889634 + 0.5)
    rest = halvings * 0.6931471805599453 - a  # Within half of log 2, where fifteen terms give full precision.
    power = np.zeros_like(a)
    for term in range(14, -1, -1):
        power *= rest
        power += 1.0 / math.factorial(term)
    power = np.ldexp(power, -halvings.astype(np.int32))
    return np.where(z >= 0, 1.0, power) / (1.0 + power)

"""Ordered pairs of objects of an image: the rows of scene-graph tasks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.data.groups import check_unique
from shortlist.data.inputs import compose_rows
from shortlist.fingerprint import Digest

GEOMETRY = (
    "offset x",
    "offset y",
    "offset x by size",
    "offset y by size",
    "log width ratio",
    "log height ratio",
    "intersection over union",
    "share of subject in object",
    "share of object in subject",
)
_MIN_SIDE = 1e-3  # Relative to the image; thinner boxes count as this thin, so no ratio is infinite.


class PairBatch(NamedTuple):
    """Some pairs. It unpacks into its fields, but ``batch[i]`` and ``batch[2:5]`` select pairs, like a tensor."""

    image: Tensor  # (B,) int64
    subject: Tensor  # (B,) int64, a class
    object: Tensor  # (B,) int64, a class
    subject_box: Tensor  # (B, 4) floating: x1, y1, x2, y2 in pixels
    object_box: Tensor  # (B, 4)
    image_size: Tensor  # (B, 2) floating: width, height in pixels

    def __getitem__(self, pairs: int | slice | Tensor) -> PairBatch:
        """Select pairs; one index gives a batch without the dimension B."""
        return PairBatch(*(field[pairs] for field in self))


class ObjectPairs:
    """Ordered pairs of distinct objects of one image; by default all of them, which needs memory per image only.

    Pairs are sorted by image, subject and object.

    Args:
        classes: ``(M,)`` int64, the class of each object; the objects of an image are consecutive.
        boxes: ``(M, 4)`` floating, corners x1, y1, x2, y2 in pixels with x1 <= x2 and y1 <= y2.
        starts: ``(images + 1,)`` int64, where the objects of each image begin; the last is M.
        image_size: ``(images, 2)`` floating, width and height in pixels.
        object_names: the names of the classes, all different.
        pairs: ``(P, 2)`` int64, the indices of subject and object of each row; None for all pairs.

    Example:
        >>> from shortlist.data.object_pairs import ObjectPairs
        >>> boxes = torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 8], [0, 0, 9, 9]])
        >>> pairs = ObjectPairs(
        ...     torch.tensor([0, 1, 1]),
        ...     boxes,
        ...     torch.tensor([0, 3]),
        ...     torch.tensor([[10.0, 10.0]]),
        ...     object_names=("cup", "table"),
        ... )
        >>> len(pairs), pairs.batch(torch.tensor([3])).object_box
        (6, tensor([[0., 0., 9., 9.]]))
    """

    kind = "object pairs"

    def __init__(
        self,
        classes: Tensor,
        boxes: Tensor,
        starts: Tensor,
        image_size: Tensor,
        *,
        object_names: Sequence[str],
        pairs: Tensor | None = None,
    ) -> None:
        self.object_names = tuple(object_names)
        check_unique(self.object_names, "object_names")
        self.classes, self.boxes, self.starts, self.image_size, self.pairs = classes, boxes, starts, image_size, pairs
        _check_shapes(self)
        _check_values(self)
        counts = starts.diff()
        self.pair_starts = torch.zeros_like(starts)
        torch.cumsum(counts * (counts - 1), 0, out=self.pair_starts[1:])
        self._rows: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of pairs."""
        if self._rows is not None:
            return len(self._rows)
        return int(self.pair_starts[-1]) if self.pairs is None else len(self.pairs)

    @property
    def num_images(self) -> int:
        """The number of images, including those without pairs."""
        return len(self.image_size)

    def members(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The indices of the image, the subject and the object of each row; ``(B,)`` int64 each."""
        rows = compose_rows(self._rows, rows)
        if self.pairs is not None:
            subject, other = self.pairs[rows].T.contiguous()
            return torch.searchsorted(self.starts[1:], subject, right=True), subject, other
        image = torch.searchsorted(self.pair_starts[1:], rows, right=True)
        first = self.starts[image]
        others = self.starts[image + 1] - first - 1  # Partners of a subject: the two objects of a pair are distinct.
        position = rows - self.pair_starts[image]
        subject, other = position // others, position % others
        return image, first + subject, first + other + (other >= subject)

    def images(self) -> Tensor:
        """The image of each row, ``(len(self),)`` int64; for all pairs, nothing else of this size is allocated."""
        if self.pairs is None and self._rows is None:
            return torch.repeat_interleave(self.pair_starts.diff())
        return self.members(torch.arange(len(self)))[0]

    def rows_of(self, subject: Tensor, other: Tensor) -> Tensor:
        """The rows, among all pairs, of distinct objects of one image given by their indices; inverts `members`."""
        image = torch.searchsorted(self.starts[1:], subject.contiguous(), right=True)
        first = self.starts[image]
        others = self.starts[image + 1] - first - 1
        return self.pair_starts[image] + (subject - first) * others + (other - first) - (other > subject).long()

    def batch(self, rows: Tensor) -> PairBatch:
        """Look up the classes, boxes and images of some pairs."""
        image, subject, other = self.members(rows)
        return PairBatch(
            image,
            self.classes[subject],
            self.classes[other],
            self.boxes[subject],
            self.boxes[other],
            self.image_size[image],
        )

    def take(self, rows: Tensor) -> ObjectPairs:
        """The same objects with some of the pairs; images keep their indices."""
        part = copy.copy(self)
        part._rows = compose_rows(self._rows, rows)
        return part

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Content hashes of classes, boxes and image size, but not of the image's index."""
        batch = self.batch(rows)
        classes = torch.stack([batch.subject, batch.object], -1).numpy()
        boxes = torch.cat([batch.subject_box, batch.object_box, batch.image_size.to(batch.subject_box.dtype)], -1)
        return [
            Digest(pair.tobytes() + box.tobytes()).bytes()
            for pair, box in zip(classes, boxes.contiguous().numpy(), strict=True)
        ]


def geometry(batch: PairBatch) -> Tensor:
    r"""The relative geometry of two boxes, invariant to the scale of the image and the position in it.

    With centers :math:`c`, sizes :math:`w` and areas :math:`a` of subject s and object o, in units of the longer side
    of the image, for x and then y where there are two:

    .. math:: c_o - c_s, \quad \frac{c_o - c_s}{|c_o - c_s| + (w_s + w_o)/2}, \quad \log\frac{w_o}{w_s}, \quad
        \frac{a_{so}}{a_s + a_o - a_{so}}, \quad \frac{a_{so}}{a_s}, \quad \frac{a_{so}}{a_o}

    The second is 1/2 where the boxes touch. Sides below a thousandth of the image's longer side count as that, so all
    features are finite, even for boxes that are lines or points.

    Args:
        batch: pairs, as `ObjectPairs.batch` gives them.

    Returns:
        ``(B, 9)``, named by ``GEOMETRY``, with the dtype of the boxes.

    Example:
        >>> from shortlist.data.object_pairs import PairBatch, geometry
        >>> one, box = torch.zeros(1, dtype=torch.int64), torch.tensor([[0.0, 0.0, 4.0, 4.0]])
        >>> geometry(PairBatch(one, one, one, box, box + torch.tensor([2.0, 0, 2, 0]), torch.tensor([[8.0, 8.0]])))
        tensor([[0.2500, 0.0000, 0.3333, 0.0000, 0.0000, 0.0000, 0.3333, 0.5000, 0.5000]])
    """
    dtype = batch.subject_box.dtype if batch.subject_box.is_floating_point() else torch.float32
    unit = batch.image_size.to(dtype).amax(-1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)
    subject, other = batch.subject_box.to(dtype) / unit, batch.object_box.to(dtype) / unit
    subject_size = (subject[..., 2:] - subject[..., :2]).clamp(min=_MIN_SIDE)
    object_size = (other[..., 2:] - other[..., :2]).clamp(min=_MIN_SIDE)
    offset = (other[..., :2] + other[..., 2:] - subject[..., :2] - subject[..., 2:]) / 2
    common = torch.minimum(subject[..., 2:], other[..., 2:]) - torch.maximum(subject[..., :2], other[..., :2])
    common = common.clamp(min=0)
    # Explicit products: the order of operations of `prod` depends on the platform.
    shared = (common[..., 0] * common[..., 1]).unsqueeze(-1)
    subject_area = (subject_size[..., 0] * subject_size[..., 1]).unsqueeze(-1)
    object_area = (object_size[..., 0] * object_size[..., 1]).unsqueeze(-1)
    return torch.cat(
        [
            offset,
            offset / (offset.abs() + (subject_size + object_size) / 2),
            (object_size / subject_size).log(),
            shared / (subject_area + object_area - shared),
            shared / subject_area,
            shared / object_area,
        ],
        -1,
    )


def _check_shapes(inputs: ObjectPairs) -> None:
    objects, images = len(inputs.classes), len(inputs.image_size)
    wanted = [
        ("classes", inputs.classes, (objects,), False),
        ("boxes", inputs.boxes, (objects, 4), True),
        ("starts", inputs.starts, (images + 1,), False),
        ("image_size", inputs.image_size, (images, 2), True),
    ]
    if inputs.pairs is not None:
        wanted.append(("pairs", inputs.pairs, (len(inputs.pairs), 2), False))
    for name, tensor, shape, floating in wanted:
        if tensor.is_floating_point() != floating or (not floating and tensor.dtype != torch.int64):
            raise TypeError(f"`{name}` must be {'floating' if floating else 'int64'}; got {tensor.dtype}.")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"`{name}` must have shape {shape}; got {tuple(tensor.shape)}.")


def _check_values(inputs: ObjectPairs) -> None:
    classes, boxes, starts, sizes = inputs.classes, inputs.boxes, inputs.starts, inputs.image_size
    if starts[0] != 0 or starts[-1] != len(classes) or (starts.diff() < 0).any():
        raise ValueError(f"`starts` must rise from 0 to {len(classes)}; got {starts.tolist()!r:.60}.")
    row = _first((classes < 0) | (classes >= len(inputs.object_names)))
    if row is not None:
        raise ValueError(
            f"`classes` row {row}: the class must lie in [0, {len(inputs.object_names)}); got {int(classes[row])}."
        )
    row = _first(~(boxes.isfinite().all(-1) & (boxes[:, :2] <= boxes[:, 2:]).all(-1)))
    if row is not None:
        raise ValueError(
            f"`boxes` row {row}: the box must be finite with x1 <= x2 and y1 <= y2; got {boxes[row].tolist()}."
        )
    row = _first(~(sizes.isfinite() & (sizes > 0)).all(-1))
    if row is not None:
        raise ValueError(f"`image_size` row {row}: the size must be finite and above 0; got {sizes[row].tolist()}.")
    if inputs.pairs is None:
        return
    row = _first(((inputs.pairs < 0) | (inputs.pairs >= len(classes))).any(-1))
    if row is not None:
        raise ValueError(
            f"`pairs` row {row}: objects must lie in [0, {len(classes)}); got {inputs.pairs[row].tolist()}."
        )
    image = torch.searchsorted(starts[1:], inputs.pairs.contiguous(), right=True)
    row = _first((image[:, 0] != image[:, 1]) | (inputs.pairs[:, 0] == inputs.pairs[:, 1]))
    if row is not None:
        raise ValueError(
            f"`pairs` row {row}: must be two distinct objects of one image; got {inputs.pairs[row].tolist()}."
        )


def _first(bad: Tensor) -> int | None:
    """The index of the first bad row; None if all are good."""
    return int(bad.int().argmax()) if bad.any() else None

"""A model of the predicates of object pairs, three ways to train it, and scene graphs in the files of Visual Genome."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from shortlist.data import Dataset, ObjectPairs, PairBatch, geometry
from shortlist.data.object_pairs import GEOMETRY
from shortlist.data.target_rows import label_pairs
from shortlist.extras import require
from shortlist.functional import lml_nll, multilabel_truncated_topk_entropy, scene_graph_recall

KS = (20, 50, 100)
MODES = ("constrained", "unconstrained")
_LARGEST_GRADIENT = 5.0
_PARTS = {"train": 0, "val": 1, "test": 2}
_SCALE = 1024


@dataclass(frozen=True)
class GraphFit:
    """How a model of predicates is trained.

    Args:
        loss: ``softmax`` per pair, with an extra class for "no relation"; of several relations, one is sampled at each
            step. ``lml_nll`` or ``truncated`` over all pairs and predicates of an image.
        k: the number of relations per image of the joint losses.
        learning_rate: the highest; it decays to 0 along a cosine.
        weight_decay, optimizer: ``adamw``, or ``sgd`` with momentum 0.9.
        epochs: passes over the training images.
        batch_size: images per step.
        width: of the hidden layer.
        embedding: dimensions per object class.
        watched: how many training images are evaluated after each epoch.
    """

    loss: Literal["softmax", "lml_nll", "truncated"] = "softmax"
    k: int = 20
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: Literal["adamw", "sgd"] = "adamw"
    epochs: int = 10
    batch_size: int = 8
    width: int = 128
    embedding: int = 32
    watched: int = 200


class Scenes:
    """The images of a part that have relations.

    Args:
        dataset: rows are pairs of objects, image by image.
        part: the name of the part.
        most: only the first images, at most so many.
    """

    def __init__(self, dataset: Dataset, part: str, *, most: int | None = None) -> None:
        rows = dataset.part_rows(part)
        chosen = dataset.subset(rows)
        _, image, counts = chosen.row_group("image").index.unique_consecutive(return_inverse=True, return_counts=True)
        related = torch.zeros(len(counts), dtype=torch.bool)
        related[image[label_pairs(chosen.targets, dataset.num_labels).rows]] = True
        starts = counts.cumsum(0) - counts
        kept = related.nonzero().squeeze(-1)[:most]
        self.ranges = [rows[start : start + count] for start, count in zip(starts[kept], counts[kept], strict=True)]
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.ranges)

    def batch(self, images: Sequence[int]) -> Scene:
        """The pairs of some images, which are numbered from 0."""
        chosen = [self.ranges[i] for i in images]
        image = torch.repeat_interleave(torch.tensor([len(rows) for rows in chosen]))
        inputs, targets, _ = self.dataset.batch(torch.cat(chosen))
        return Scene(inputs, targets.to_dense().clamp(min=0), image)


class Scene(NamedTuple):
    """The pairs of some images."""

    pairs: PairBatch
    hot: Tensor  # (P, R): 1 for each true predicate
    image: Tensor  # (P,)

    def to(self, device: torch.device) -> Scene:
        """Move all tensors to a device."""
        return Scene(PairBatch(*(field.to(device) for field in self.pairs)), self.hot.to(device), self.image.to(device))


class Predicates(nn.Module):
    """Logits of all predicates of a pair and of "no relation", from classes, geometry and a table by classes.

    Args:
        table: ``(objects, objects, R + 1)``, initial values of the table: log-frequencies of the training pairs.
        width, embedding: as in `GraphFit`.
    """

    def __init__(self, table: Tensor, *, width: int, embedding: int) -> None:
        super().__init__()
        self.subject, self.object = (nn.Embedding(len(table), embedding) for _ in range(2))
        self.layers = nn.Sequential(
            nn.Linear(2 * embedding + len(GEOMETRY), width), nn.ReLU(), nn.Linear(width, table.shape[-1])
        )
        self.table = nn.Parameter(table.clone())

    def forward(self, pairs: PairBatch) -> Tensor:
        """``(P, R + 1)``."""
        parts = [self.subject(pairs.subject), self.object(pairs.object), geometry(pairs)]
        return self.layers(torch.cat(parts, -1)) + self.table[pairs.subject, pairs.object]


def log_frequencies(dataset: Dataset) -> Tensor:
    """Log-frequencies of each predicate and of none in the training part, by classes, with add-one smoothing.

    Returns:
        ``(objects, objects, R + 1)``; exponentials sum to 1 along the last axis.
    """
    inputs = dataset.inputs
    if not isinstance(inputs, ObjectPairs):
        raise TypeError(f"`dataset` must have pairs of objects as inputs; got {inputs.kind}.")
    rows, size, n = dataset.part_rows("train"), len(inputs.object_names), dataset.num_labels
    at, labels, _ = label_pairs(dataset.subset(rows).targets, n)
    _, subject, other = inputs.members(rows)
    classes = inputs.classes[subject] * size + inputs.classes[other]
    empty = torch.ones(len(rows), dtype=torch.bool)
    empty[at] = False
    counts = torch.bincount(classes[at] * (n + 1) + labels, minlength=size * size * (n + 1)).view(size * size, n + 1)
    counts[:, n] = torch.bincount(classes[empty], minlength=size * size)
    shares = (counts + 1) / (counts + 1).sum(-1, keepdim=True)
    return shares.log().view(size, size, n + 1)


def graph_loss(logits: Tensor, scene: Scene, fit: GraphFit) -> Tensor:
    """The loss of some images: the mean over pairs for ``softmax``, over true relations for joint losses."""
    if fit.loss == "softmax":
        none = (scene.hot.sum(-1, keepdim=True) == 0).to(scene.hot)
        drawn = torch.multinomial(torch.cat([scene.hot, none], -1), 1).squeeze(-1)
        return cross_entropy(logits, drawn)
    joint, hot = joint_entries(logits[:, :-1], scene)
    if fit.loss == "lml_nll":
        total = lml_nll(joint, hot, min(fit.k, joint.shape[-1]), reduction="sum")
    elif fit.loss == "truncated":
        total = multilabel_truncated_topk_entropy(joint, hot, min(fit.k, joint.shape[-1]), reduction="sum")
    else:
        raise ValueError(f"`loss` must be softmax, lml_nll or truncated; got {fit.loss!r}.")
    return total / hot.sum().clamp(min=1)


def joint_entries(logits: Tensor, scene: Scene) -> tuple[Tensor, Tensor]:
    """All (pair, predicate) entries of an image in one row: logits, padded with -inf, and targets.

    Returns:
        Both ``(images, most pairs * R)``.
    """
    counts = torch.bincount(scene.image)
    slot = torch.arange(len(scene.image), device=logits.device) - (counts.cumsum(0) - counts)[scene.image]
    shape = (len(counts), int(counts.max()), logits.shape[-1])
    joint = logits.new_full(shape, -math.inf).index_put((scene.image, slot), logits)
    hot = scene.hot.new_zeros(shape).index_put((scene.image, slot), scene.hot)
    return joint.flatten(1), hot.flatten(1).to(logits.dtype)


@torch.no_grad()
def recalls(model: Predicates, scenes: Scenes, fit: GraphFit, *, together: int = 64) -> dict[str, float]:
    """R@k by names such as ``constrained_20``; NaN without images."""
    device, scores, hot, image = model.table.device, [], [], []
    for first in range(0, len(scenes), together):
        scene = scenes.batch(range(first, min(first + together, len(scenes))))
        logits = model(scene.to(device).pairs)
        found = logits.softmax(-1)[:, :-1] if fit.loss == "softmax" else logits[:, :-1]
        scores.append(found.cpu())
        hot.append(scene.hot)
        image.append(first + scene.image)
    if not scores:
        return {f"{mode}_{k}": math.nan for mode in MODES for k in KS}
    every = torch.cat(scores), torch.cat(hot), torch.cat(image)
    return {
        f"{mode}_{k}": value
        for mode in MODES
        for k, value in zip(KS, scene_graph_recall(*every, KS, constrained=mode == "constrained").tolist(), strict=True)
    }


class Epoch(NamedTuple):
    """The recalls after an epoch on the watched training images and on all validation images."""

    model: Predicates
    train: Mapping[str, float]
    val: Mapping[str, float]


def epochs(dataset: Dataset, fit: GraphFit, *, seed: int) -> Iterator[Epoch]:
    """Train, and yield after each epoch; the next epoch changes the same model object."""
    torch.manual_seed(seed)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    scenes, seen, val = Scenes(dataset, "train"), Scenes(dataset, "train", most=fit.watched), Scenes(dataset, "val")
    model = Predicates(log_frequencies(dataset), width=fit.width, embedding=fit.embedding).to(device)
    kinds: dict[str, Any] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    more = {"momentum": 0.9} if fit.optimizer == "sgd" else {}
    steps = fit.epochs * -(-len(scenes) // fit.batch_size)
    optimizer = kinds[fit.optimizer](model.parameters(), fit.learning_rate, weight_decay=fit.weight_decay, **more)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for _ in range(fit.epochs):
        for images in torch.randperm(len(scenes)).split(fit.batch_size):
            scene = scenes.batch(images.tolist()).to(device)
            optimizer.zero_grad()
            graph_loss(model(scene.pairs), scene, fit).backward()
            nn.utils.clip_grad_norm_(model.parameters(), _LARGEST_GRADIENT)
            optimizer.step()
            schedule.step()
        yield Epoch(model, recalls(model, seen, fit), recalls(model, val, fit))


def write_visual_genome(dataset: Dataset, folder: Path) -> Path:
    """Write ``VG-SGG.h5``, ``VG-SGG-dicts.json`` and ``image_data.json``.

    Args:
        dataset: rows are all object pairs of images whose longer side has 1024 pixels; boxes are whole pixels.
        folder: must exist.

    Returns:
        ``folder``; `read_visual_genome` reads all images that have relations.
    """
    inputs = dataset.inputs
    if not isinstance(inputs, ObjectPairs) or inputs.pairs is not None:
        raise TypeError(f"`dataset` must have all pairs of objects as rows; got {getattr(inputs, 'kind', inputs)}.")
    h5py = require("h5py", extra="data")
    with h5py.File(folder / "VG-SGG.h5", "w") as file:
        for name, values in _arrays(dataset, inputs).items():
            file.create_dataset(name, data=values)
    names = {**_numbered("label", inputs.object_names), **_numbered("predicate", dataset.label_names)}
    (folder / "VG-SGG-dicts.json").write_text(json.dumps(names))
    sizes = inputs.image_size.int().tolist()
    images = [{"image_id": i + 1, "width": width, "height": height} for i, (width, height) in enumerate(sizes)]
    (folder / "image_data.json").write_text(json.dumps(images))
    return folder


def _arrays(dataset: Dataset, inputs: ObjectPairs) -> dict[str, np.ndarray]:
    rows, labels, present = label_pairs(dataset.targets, dataset.num_labels)
    image, subject, other = inputs.members(rows[present])
    counts = torch.bincount(image, minlength=inputs.num_images)
    boxes = inputs.boxes.numpy().astype(np.int64)
    found = {
        "labels": inputs.classes.numpy()[:, None] + 1,
        "relationships": torch.stack([subject, other], 1).numpy().astype(np.int32),
        "predicates": labels[present].numpy()[:, None] + 1,
        "split": _split(dataset, inputs),
        f"boxes_{_SCALE}": _centered(boxes),
        f"boxes_{_SCALE // 2}": _centered(np.concatenate([boxes[:, :2] // 2, -(-boxes[:, 2:] // 2)], 1)),
    }
    for what, sizes in (("box", inputs.starts.diff()), ("rel", counts)):
        last = sizes.cumsum(0) - 1
        found[f"img_to_first_{what}"] = torch.where(sizes > 0, last - sizes + 1, -1).numpy().astype(np.int32)
        found[f"img_to_last_{what}"] = torch.where(sizes > 0, last, -1).numpy().astype(np.int32)
    return found


def _centered(corners: np.ndarray) -> np.ndarray:
    """Boxes as center and size; half sizes are rounded down, as in the published file."""
    sizes = corners[:, 2:] - corners[:, :2]
    return np.concatenate([corners[:, :2] + sizes // 2, sizes], 1).astype(np.int32)


def _split(dataset: Dataset, inputs: ObjectPairs) -> np.ndarray:
    """The part of each image; an image without pairs has no relations, so its part does not matter."""
    found = np.zeros(inputs.num_images, dtype=np.int32)
    if dataset.split is not None:
        parts = np.array([_PARTS[name] for name in dataset.split.names], dtype=np.int32)
        found[inputs.images().numpy()] = parts[dataset.split.index.numpy()]
    return found


def _numbered(kind: str, names: Sequence[str]) -> dict[str, dict[str, int] | dict[str, str]]:
    numbers = list(enumerate(names, start=1))
    return {
        f"{kind}_to_idx": {name: number for number, name in numbers},
        f"idx_to_{kind}": {str(number): name for number, name in numbers},
    }

"""Files with the shape of the real ones and a few rows, so that every experiment can be run from end to end."""

import json
import lzma
from pathlib import Path

import numpy as np

MULAN = {"bibtex": 24, "corel5k": 20, "delicious": 30, "emotions": 6, "enron": 12, "medical": 10, "scene": 6}
MULAN |= {"tmc2007": 12, "yeast": 10}
WORDS = ["axon", "bone", "cell", "duct", "fibre", "gland", "heart", "joint", "kidney", "liver", "muscle", "nerve"]


def write_data(root: Path, *, seed: int = 0) -> Path:
    """All files that experiments read at small scale."""
    rng = np.random.default_rng(seed)
    _features(root, rng)
    for name, count in MULAN.items():
        _mulan(root, name, count, rng)
    _texts(root, rng)
    return root


def _save(path: Path, **arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def _classes(rng, labels: np.ndarray, count: int, size: int) -> np.ndarray:
    """Features around a centre for each class."""
    centers = rng.normal(size=(count, size))
    return (centers[labels] + 0.8 * rng.normal(size=(len(labels), size))).astype(np.float16)


def _features(root: Path, rng) -> None:
    count = 12
    train, test = np.repeat(np.arange(count), 150), np.repeat(np.arange(count), 12)
    both = _classes(rng, np.concatenate([train, test]), count, 8)
    _save(
        root / "cifar100_effnetlite0/cifar100_effnetlite0.npz",
        F_train=both[: len(train)],
        F_test=both[len(train) :],
        y_train=train.astype(np.int16),
        y_test=test.astype(np.int16),
        fine_to_coarse=(np.arange(count) // 4).astype(np.int8),
        class_names=np.array([f"class {c}" for c in range(count)]),
    )
    _save(
        root / "cifar100/cifar100_small.npz",
        x_train=rng.integers(256, size=(len(train), 8, 8, 3), dtype=np.uint8),
        y_train=train,
        x_test=rng.integers(256, size=(len(test), 8, 8, 3), dtype=np.uint8),
        y_test=test,
        fine_to_coarse=np.arange(count) // 4,
        fine_names=np.array([f"class {c}" for c in range(count)]),
        coarse_names=np.array([f"superclass {c}" for c in range(3)]),
    )
    flowers = np.concatenate([np.full(30 + 20 * c, c) for c in range(10)])
    _save(
        root / "flowers102_effnetlite0/flowers102_effnetlite0.npz",
        F=_classes(rng, flowers, 10, 6),
        y=flowers.astype(np.int16),
        split=np.where(np.arange(len(flowers)) % 10 == 0, 1, np.where(np.arange(len(flowers)) % 10 == 1, 2, 0)).astype(
            np.uint8
        ),
        class_names=np.array([f"species {c}" for c in range(10)]),
        image_id=np.arange(len(flowers), dtype=np.int16),
    )
    rows, labels = 300, 8
    inputs = rng.normal(size=(rows, 6))
    marks = np.where(inputs @ rng.normal(size=(6, labels)) > 1.5, 1, -1)
    marks[np.arange(rows), rng.integers(labels, size=rows)] = 1
    marks[rng.random(marks.shape) < 0.03] = 0
    _save(
        root / "voc2012_effnetlite0/voc2012_effnetlite0.npz",
        F=inputs.astype(np.float16),
        L=marks.astype(np.int8),
        split=(np.arange(rows) % 2).astype(np.uint8),
        class_names=np.array([f"thing {c}" for c in range(labels)]),
        ids=np.arange(rows).astype(str),
    )


def _mulan(root: Path, name: str, count: int, rng) -> None:
    rows, size = 240, 12
    inputs = (rng.random((rows, size)) < 0.4).astype(np.uint8)
    scores = inputs @ rng.normal(size=(size, count)) + rng.normal(size=(rows, count)) - 0.05 * np.arange(count)
    held = scores >= np.sort(scores, axis=1)[:, [-min(4, count - 2)]]
    if name == "delicious":
        held[0] = False  # The real one has rows without labels.
    columns = np.nonzero(held)[1]
    shared = {
        "Y_indptr": np.concatenate([[0], np.cumsum(held.sum(1))]).astype(np.int32),
        "Y_indices": columns.astype(np.int16),
        "n_labels": np.int64(count),
        "split": (np.arange(rows) % 3 == 0).astype(np.uint8),
        "label_names": np.array([f"label {c}" for c in range(count)]),
        "feature_names": np.array([f"feature {c}" for c in range(size)]),
    }
    if name in ("emotions", "scene", "yeast"):
        _save(root / name / f"{name}.npz", X=inputs.astype(np.float32), **shared)
        return
    at, features = np.nonzero(inputs)
    _save(
        root / name / f"{name}.npz",
        X_indptr=np.concatenate([[0], np.cumsum(inputs.sum(1, dtype=np.int64))]).astype(np.int32),
        X_indices=features.astype(np.int32),
        X_data=inputs[at, features],
        X_shape=np.array([rows, size]),
        **shared,
    )


def _lines(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _texts(root: Path, rng) -> None:
    def text(labels: list[int]) -> str:
        return " ".join([WORDS[label % len(WORDS)] for label in labels] + list(rng.choice(WORDS, 4)))

    intents = [int(label) for label in np.arange(360) % 12]
    parts = ["train", "train", "train", "val", "test", "oos_test"]
    _lines(
        root / "clinc150/clinc150.jsonl.xz",
        [
            {"text": text([c]), "labels": [f"intent {c}"], "domain": "all", "split": parts[(at // 12) % len(parts)]}
            for at, c in enumerate(intents)
        ],
    )
    sets = [sorted(set(rng.zipf(1.6, size=5) % 40)) for _ in range(300)]
    _lines(
        root / "pubmed_mesh/pubmed_mesh.jsonl.xz",
        [
            {
                "pmid": at,
                "year": 1978,
                "journal": "J",
                "title": "On it",
                "text": text(labels) if at % 20 else "",
                "labels": [f"heading {c}" for c in labels],
                "major": [f"heading {labels[0]}"],
            }
            for at, labels in enumerate(sets)
        ],
    )
    _lines(
        root / "debtags/debtags.jsonl.xz",
        [
            {
                "name": f"package-{at}",
                "source": f"source-{at // 2}",
                "section": "misc",
                "text": text(labels),
                "labels": [f"tag::{c}" for c in labels],
            }
            for at, labels in enumerate(sets)
        ],
    )

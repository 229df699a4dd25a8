"""The data of the experiments.

An experiment names a loader of this module, ``data: {loader: NAME, ...}``, or anything that
`shortlist.data.open_dataset` reads, ``data: {open: PATH, format: NAME, reader: {...}}``. All paths are below the data
root. Loaders of texts hash their words, unless ``words`` is None.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.data import (
    Dataset,
    Features,
    Groups,
    SparseRows,
    Texts,
    frequent_labels,
    hashed_words,
    open_dataset,
    split_at_random,
    split_by_group,
    split_off_validation,
)
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError


def open_data(described: Mapping[str, Any], root: Path, *, seed: int) -> Dataset:
    """Open a dataset with the parts train, val and test.

    If the data have no validation rows, ``seed`` splits them off from the training rows. Test rows are the same for
    every seed.
    """
    key = json.dumps(dict(described), sort_keys=True)
    dataset = _opened(key, root)
    if dataset.split is None:
        return split_at_random(dataset, seed=0)
    if "val" not in dataset.split.names:
        return split_off_validation(dataset, val=0.1, seed=seed)
    return dataset


@cache
def _opened(key: str, root: Path) -> Dataset:
    options = json.loads(key)
    if "open" in options:
        path, format = options["open"], options.get("format")
        return open_dataset(root / path, format=format, **options.get("reader", {}))
    name = options.pop("loader")
    if name not in LOADERS:
        raise InputError(f"`loader` must be one of {', '.join(LOADERS)}; got {name!r}.")
    return LOADERS[name](root, **options)


def cifar100_features(root: Path) -> Dataset:
    """CIFAR-100 as frozen features with superclasses; parts train and test."""
    with np.load(root / "cifar100_effnetlite0" / "cifar100_effnetlite0.npz", allow_pickle=False) as file:
        inputs = np.concatenate([file["F_train"], file["F_test"]]).astype(np.float32)
        labels = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int64)
        parts = ["train"] * len(file["y_train"]) + ["test"] * len(file["y_test"])
        coarse = Groups.of([f"superclass {group}" for group in file["fine_to_coarse"].tolist()])
        names = tuple(str(name) for name in file["class_names"].tolist())
    return Dataset(
        Features(torch.from_numpy(inputs)),
        torch.from_numpy(labels),
        names,
        label_groups={"superclass": coarse},
        split=Groups.of(parts),
        name="CIFAR-100 features",
    )


def flowers102_features(root: Path) -> Dataset:
    """Flowers-102 as frozen features; parts train, val and test."""
    with np.load(root / "flowers102_effnetlite0" / "flowers102_effnetlite0.npz", allow_pickle=False) as file:
        inputs, labels, split = file["F"].astype(np.float32), file["y"].astype(np.int64), file["split"]
        names = tuple(map(str, file["class_names"].tolist()))
    parts = [("train", "val", "test")[part] for part in split.tolist()]
    return Dataset(
        Features(torch.from_numpy(inputs)), torch.from_numpy(labels), names, split=Groups.of(parts), name="Flowers-102"
    )


def voc2012_features(root: Path) -> Dataset:
    """Pascal VOC 2012 as frozen features; "difficult" labels are unknown; parts train and test (the official val)."""
    with np.load(root / "voc2012_effnetlite0" / "voc2012_effnetlite0.npz", allow_pickle=False) as file:
        inputs, marks, split = file["F"].astype(np.float32), file["L"], file["split"]
        names = tuple(map(str, file["class_names"].tolist()))
    # 1 is present, 0 is present but difficult, -1 is absent; ours are 1, -1 and 0.
    targets = np.select([marks == 1, marks == 0], [1, -1], 0).astype(np.float32)
    parts = [("train", "test")[part] for part in split.tolist()]
    return Dataset(
        Features(torch.from_numpy(inputs)), torch.from_numpy(targets), names, split=Groups.of(parts), name="VOC 2012"
    )


def mulan(root: Path, *, name: str, dense: bool = True) -> Dataset:
    """A dataset of the Mulan collection: bibtex, corel5k, delicious, emotions, enron, medical, scene, tmc2007, yeast.

    Sparse features become dense, because they are few, unless ``dense`` is False.
    """
    with np.load(root / name / f"{name}.npz", allow_pickle=False) as file:
        count = int(file["n_labels"])
        targets = _index_rows(file["Y_indptr"], file["Y_indices"], count)
        labels = tuple(map(str, file["label_names"].tolist()))
        parts = [("train", "test")[part] for part in file["split"].tolist()]
        if "X" in file:
            inputs: Any = Features(torch.from_numpy(file["X"].astype(np.float32)))
        else:
            crow, columns, values = (
                torch.from_numpy(file[f"X_{key}"].astype(kind))
                for key, kind in (("indptr", np.int64), ("indices", np.int64), ("data", np.float32))
            )
            inputs = SparseRows(crow, columns, values, int(file["X_shape"][1]))
            if dense:
                inputs = Features(inputs.batch(torch.arange(len(inputs))).to_dense())
    return Dataset(inputs, targets, labels, split=Groups.of(parts), name=name)


def clinc150(root: Path, *, words: int | None = 2**14) -> Dataset:
    """CLINC150 intents as hashed words, without out-of-scope queries; parts train, val and test."""
    rows = [row for row in _lines(root / "clinc150" / "clinc150.jsonl.xz") if not row["split"].startswith("oos")]
    names = sorted({row["labels"][0] for row in rows})
    index_of = {name: at for at, name in enumerate(names)}
    dataset = Dataset(
        Texts([row["text"] for row in rows]),
        torch.tensor([index_of[row["labels"][0]] for row in rows]),
        tuple(names),
        split=Groups.of([row["split"] for row in rows]),
        name="CLINC150",
    )
    return dataset if words is None else hashed_words(dataset, num_features=words)


def pubmed_mesh(root: Path, *, min_count: int = 1, words: int | None = 2**15, seed: int = 0) -> Dataset:
    """PubMed abstracts as hashed words, and their MeSH headings; random parts train, val and test."""
    rows = [row for row in _lines(root / "pubmed_mesh" / "pubmed_mesh.jsonl.xz") if row["text"]]
    dataset = _tagged([f"{row['title']} {row['text']}" for row in rows], [row["labels"] for row in rows], "PubMed")
    dataset = split_at_random(dataset, seed=seed)
    if min_count > 1:
        dataset = frequent_labels(dataset, min_count, part="train")
    return dataset if words is None else hashed_words(dataset, num_features=words)


def debtags(root: Path, *, min_count: int = 10, words: int | None = 2**15, seed: int = 0) -> Dataset:
    """Debian packages as hashed words of their descriptions, and their tags; source packages are never split."""
    rows = list(_lines(root / "debtags" / "debtags.jsonl.xz"))
    dataset = _tagged([row["text"] for row in rows], [row["labels"] for row in rows], "debtags")
    sources = Groups.of([row["source"] for row in rows])
    dataset = Dataset(
        dataset.inputs, dataset.targets, dataset.label_names, row_groups={"source": sources}, name="debtags"
    )
    dataset = split_by_group(dataset, by="source", seed=seed)
    if min_count > 1:
        dataset = frequent_labels(dataset, min_count, part="train")
    return dataset if words is None else hashed_words(dataset, num_features=words)


def _tagged(texts: list[str], labels: list[list[str]], name: str) -> Dataset:
    names = sorted({label for row in labels for label in row})
    index_of = {label: at for at, label in enumerate(names)}
    starts = np.concatenate([[0], np.cumsum([len(set(row)) for row in labels])])
    columns = np.array([at for row in labels for at in sorted({index_of[label] for label in row})], dtype=np.int64)
    return Dataset(Texts(texts), _index_rows(starts, columns, len(names)), tuple(names), name=name)


def _index_rows(starts: np.ndarray, columns: np.ndarray, count: int) -> Tensor:
    """Sparse labels of rows from the form of compressed rows."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return sparse_targets(rows, columns, len(starts) - 1, count)


def _lines(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LOADERS: dict[str, Callable[..., Dataset]] = {
    "cifar100_features": cifar100_features,
    "clinc150": clinc150,
    "debtags": debtags,
    "flowers102_features": flowers102_features,
    "mulan": mulan,
    "pubmed_mesh": pubmed_mesh,
    "voc2012_features": voc2012_features,
}

"""Small datasets, and the same labels in every form."""

import torch
from torch import Tensor

from shortlist.data import Dataset, Features, Groups
from shortlist.data.target_rows import csr
from shortlist.targets import to_class_indices, to_index_lists, to_sparse


def dataset_of(targets: Tensor, *, labels: int | None = None, **options) -> Dataset:
    """Rows whose only feature is their number; labels are called a, b, ... in the order of their numbers."""
    n = (int(targets.max()) + 1 if targets.dim() == 1 else targets.shape[1]) if labels is None else labels
    names = tuple("abcdefghijklmnopqrstuvwxyz"[:n]) if n <= 26 else tuple(f"label {i}" for i in range(n))
    return Dataset(Features(torch.arange(len(targets), dtype=torch.float32)[:, None]), targets, names, **options)


def rows_of(dataset: Dataset) -> list[int]:
    """The numbers of the rows in the dataset that they come from."""
    return dataset.inputs.batch(torch.arange(len(dataset))).flatten().long().tolist()


def parts_of(dataset: Dataset) -> tuple[tuple[str, ...], list[int]] | None:
    """The names of the parts and the part of each row; None without a split."""
    return None if dataset.split is None else (dataset.split.names, dataset.split.index.tolist())


def labels_of(dataset: Dataset) -> list[tuple[str, ...]]:
    """The names of the labels of each row."""
    return [dataset[row].labels for row in range(len(dataset))]


def values_of(groups: Groups) -> list[str | None]:
    """The name of the group of each member."""
    return [groups.names[i] if i >= 0 else None for i in groups.index.tolist()]


def in_all_forms(hot: Tensor) -> dict[str, Tensor]:
    """The same labels in each form that can express them; only some can express unknown ones."""
    n = hot.shape[1]
    forms = {"multi-hot": hot, "COO": to_sparse(hot, n), "CSR": to_sparse(hot, n, layout=torch.sparse_csr)}
    at = hot.nonzero().T.flip(1)
    forms["unsorted COO"] = torch.sparse_coo_tensor(at, hot[tuple(at)], hot.shape, check_invariants=True)
    rows, labels = hot.nonzero().T
    order = (rows * n + (n - 1 - labels)).argsort()
    forms["unsorted CSR"] = csr(forms["CSR"].crow_indices(), labels[order], hot[rows[order], labels[order]], n)
    if not (hot < 0).any():
        lists = to_index_lists(hot, n)
        backward = torch.tensor([sorted(row, reverse=True) for row in lists.tolist()], dtype=torch.int64)
        forms |= {"bool": hot.bool(), "lists": lists, "lists backward": backward.reshape(lists.shape)}
        if (hot.sum(1) == 1).all():
            forms["class indices"] = to_class_indices(hot, n)
    return forms

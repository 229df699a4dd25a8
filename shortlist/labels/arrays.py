"""Scores and labels from other libraries as tensors: numpy, scipy, pandas, polars, pyarrow and lists, in one place.

No library is imported here: the user's object converts itself. Rows are taken in order; an index and column names mean
nothing. Tensors pass unchanged, so this costs nothing where tensors are given, and compiles.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

_LISTS = (list, tuple, set, frozenset, np.ndarray, Tensor)


class SparseMatrix(Protocol):
    """A sparse matrix or array of scipy, in any of its formats."""

    def tocsr(self) -> Any:
        """The same in compressed sparse row format."""
        ...


Numbers = Tensor | ArrayLike
"""A tensor, a numpy array, a table or column of pandas, polars or pyarrow, or a list of numbers."""
LabelsLike = Numbers | SparseMatrix | Sequence[Any]
"""Labels in a form of `shortlist.targets`, or the same in another library; lists may differ in length."""


def read_scores(scores: Numbers, *, name: str = "scores") -> Tensor:
    """Scores as a floating tensor; lists of Python floats, which are float64, stay float64.

    Example:
        >>> read_scores([[0.5, 0.25], [1.0, 0.0]]).dtype
        torch.float64
    """
    if _is_sparse(scores) or (isinstance(scores, Tensor) and scores.layout != torch.strided):
        kind = scores.layout if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"`{name}` must be dense, because a score that is not stored may be 0 or absent; got {kind}.")
    x = read_numbers(scores, name=name)
    if not x.is_floating_point():
        raise TypeError(f"`{name}` must be a floating tensor or array; got {x.dtype}.")
    return x


def read_target(labels: LabelsLike, num_labels: int, *, name: str = "target") -> Tensor:
    """Labels in one of the four forms of `shortlist.targets`, as a tensor.

    Integers of every width become int64. Lists of label indices may differ in length and are padded with -1. A sparse
    matrix of scipy is a multi-hot, also of integers. Integers as wide as the labels stay ambiguous.

    Example:
        >>> read_target([[0, 2], [1]], 4)
        tensor([[ 0,  2],
                [ 1, -1]])
    """
    if isinstance(labels, Tensor):
        return labels
    if _is_sparse(labels):
        return _sparse_tensor(labels, name)
    array = _array(labels, name)
    if _holds_rows(array):
        array = _index_lists([np.asarray(list(row)) for row in array], num_labels, name)
    elif array.size == 0 and isinstance(labels, list | tuple):
        array = array.astype(np.int64)  # empty lists hold no number that says what they are
    x = _tensor(array, name)
    return x if x.dtype == torch.bool or x.is_floating_point() else x.long()


def read_numbers(values: Numbers, *, name: str) -> Tensor:
    """Any rectangle of numbers or bools as a tensor, without a copy where possible; never write to it.

    Example:
        >>> column = np.empty(2, dtype=object)  # a column of lists, as tables have it
        >>> column[:] = [0.5, 0.25], [1.0, 0.0]
        >>> read_numbers(column, name="scores").shape
        torch.Size([2, 2])
    """
    if isinstance(values, Tensor):
        return values
    array = _array(values, name)
    if _holds_rows(array) and len({len(row) for row in array}) == 1:
        array = np.stack([np.asarray(row) for row in array])
    return _tensor(array, name)


def _holds_rows(array: np.ndarray) -> bool:
    """Whether an entry is a row: lists that differ in length, or a column of lists of pandas, polars or pyarrow."""
    return array.dtype == object and array.ndim == 1 and all(isinstance(row, _LISTS) for row in array)


def _is_sparse(values: object) -> bool:
    module = sys.modules.get("scipy.sparse")
    return module is not None and module.issparse(values)


def _sparse_tensor(matrix: Any, name: str) -> Tensor:
    csr = matrix.tocsr()
    if not csr.has_canonical_format:  # entries at the same place add up
        csr = csr.copy()
        csr.sum_duplicates()
    values = _tensor(csr.data, name)
    if values.dtype != torch.bool and not values.is_floating_point():
        values = values.float()
    indptr, indices = (torch.from_numpy(part.astype(np.int64)) for part in (csr.indptr, csr.indices))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(indptr, indices, values, csr.shape, check_invariants=False)


def _array(values: object, name: str) -> np.ndarray:
    """As numpy has it; lists that differ in length become an object array of one dimension."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"`{name}` must not be masked, because numbers under the mask would count; got MaskedArray.")
    try:
        array = np.asarray(values)
        return _without_nullable(values, array) if array.dtype == object else array
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(values, list | tuple) and all(isinstance(row, _LISTS) for row in values):
            rows = np.empty(len(values), dtype=object)
            for i, row in enumerate(values):
                rows[i] = row
            return rows
        raise TypeError(f"`{name}` must hold numbers; got {type(values).__name__}, of which {error}.") from error


def _without_nullable(table: Any, array: np.ndarray) -> np.ndarray:
    """Numbers of pandas' own dtypes, which are objects to numpy; a missing number is NaN, or an error in integers."""
    dtypes = getattr(table, "dtypes", None)
    if dtypes is None or not hasattr(table, "iloc"):
        return array
    kinds = [getattr(dtype, "numpy_dtype", dtype) for dtype in (dtypes if table.ndim == 2 else [dtypes])]
    if not kinds or not all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds):
        return array
    return table.to_numpy(dtype=np.result_type(*kinds))


def _index_lists(rows: list[np.ndarray], num_labels: int, name: str) -> np.ndarray:
    """Rows of one length as a table, whatever they hold; others must be label indices and are padded with -1."""
    lengths = {len(row) for row in rows}
    if len(lengths) == 1 and lengths != {0}:
        return np.stack(rows)
    for i, row in enumerate(rows):
        if len(row) and (row.ndim != 1 or row.dtype.kind not in "iu"):
            raise TypeError(f"`{name}` row {i}: lists that differ in length must hold label indices; got {row.dtype}.")
    width = max(lengths, default=0)
    lists = np.full((len(rows), width + (width == num_labels)), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        lists[i, : len(row)] = row
    return lists


def _tensor(array: np.ndarray, name: str) -> Tensor:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        what = array.dtype if array.dtype != object or array.size == 0 else f"objects ({type(array.flat[0]).__name__})"
        raise TypeError(f"`{name}` must hold numbers, in rows of one length; got {what}.")
    if not array.dtype.isnative or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        # Tables are often read-only, of which torch warns; nothing here writes to its arguments.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)

"""Conversions between the forms of a target, and the few sums over positives that losses need."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from shortlist.labels.arrays import LabelsLike, read_target
from shortlist.labels.labels import Labels
from shortlist.labels.reading import TargetForm, list_labels, read_labels, stored_entries, target_form
from shortlist.tensors import holds


def from_multi_hot(target: LabelsLike, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Say that a table of any dtype is a multi-hot, such as the int64 ones of scikit-learn and Hugging Face.

    Int64 tables are index lists otherwise, and refused if they are as wide as the labels.

    Args:
        target: ``(*rows, n)``, a tensor or an array or table of another library: 1 for present, 0 for absent, negative
            for unknown; checked where reading values needs no synchronization.
        dtype: floating, or bool if no label is unknown.

    Returns:
        The same multi-hot in ``dtype``.

    Example:
        >>> from_multi_hot(torch.tensor([[1, 0, 1], [0, 1, 0]]))
        tensor([[1., 0., 1.],
                [0., 1., 0.]])
    """
    if dtype != torch.bool and not dtype.is_floating_point:
        raise TypeError(f"`dtype` must be bool or floating; got {dtype}.")
    target = read_target(target, -1)
    values = target if target.layout == torch.strided else stored_entries(target)[2]
    if values.dtype != torch.bool:
        wrong = values > 1 if dtype != torch.bool else (values != 0) & (values != 1)
        if holds(wrong.any()):
            rule = "be 0, 1 or, for unknown, negative" if dtype != torch.bool else "be 0 or 1 to become bool"
            raise ValueError(f"`target` must {rule}; got {values[wrong][0].item()}.")
    return target.to(dtype)


def from_indices(indices: LabelsLike, num_labels: int, *, row_dims: int = 1) -> Tensor:
    """Say that integers are class indices or index lists, even if they are as wide as a multi-hot.

    Args:
        indices: ``(*rows,)`` or ``(*rows, m)``, integers, a tensor or of another library; -1, only trailing, pads
            lists, and Python lists may differ in length instead.
        num_labels: n.
        row_dims: as in `target_form`.

    Returns:
        int64; lists of n columns get one more of padding, since n columns may also be a multi-hot.

    Example:
        >>> from_indices(torch.tensor([[2, 0, -1], [1, -1, -1]]), 3)
        tensor([[ 2,  0, -1, -1],
                [ 1, -1, -1, -1]])
    """
    indices = read_target(indices, num_labels, name="indices")
    if indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
        raise TypeError(f"`indices` must be integers; got {indices.dtype}.")
    indices = indices.long()
    if indices.ndim == row_dims + 1 and indices.shape[-1] == num_labels > 0:
        indices = torch.nn.functional.pad(indices, (0, 1), value=-1)
    target_form(indices, num_labels, row_dims=row_dims, name="indices")
    return indices


def check_target(target: LabelsLike, num_labels: int, *, row_dims: int = 1, name: str = "target") -> TargetForm:
    """Recognize the form of ``target`` and check its values; this synchronizes with the device.

    Rejects labels outside [0, n), a label after a -1, a duplicate label in a row, and multi-hot values other than 0, 1
    and negative numbers. Soft targets, which `sum_over_positives` treats as weights, are therefore rejected.

    Args:
        target, num_labels, row_dims, name: as in `target_form`.

    Returns:
        The form.

    Raises:
        ValueError: for an invalid value, naming its row; otherwise as `target_form`.

    Example:
        >>> check_target(torch.tensor([[2, 0], [1, -1]]), 3)
        <TargetForm.INDEX_LISTS: 'index lists'>
        >>> check_target(torch.tensor([0, 1, 2, 12]), 10)
        Traceback (most recent call last):
        ValueError: `target` row 3: label 12 must lie in [0, 10).
    """
    target = read_target(target, num_labels, name=name)
    list_labels(target, num_labels, row_dims=row_dims, name=name)
    return target_form(target, num_labels, row_dims=row_dims, name=name)


def to_class_indices(target: LabelsLike, num_labels: int, *, row_dims: int = 1, name: str = "target") -> Tensor:
    """Convert labels to class indices; raise ValueError unless each row has one positive and no unknown label.

    Args:
        target, num_labels, row_dims, name: as in `target_form`.

    Returns:
        ``(*rows,)`` int64.

    Example:
        >>> to_class_indices(torch.tensor([[False, True], [True, False]]), 2)
        tensor([1, 0])
    """
    entries = list_labels(target, num_labels, row_dims=row_dims, name=name)
    entries.refuse_unknown("class indices")
    counts = entries.counts
    wrong = (counts != 1).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"`{name}` row {entries.row_name(row)}: exactly one label must be positive; got {int(counts[row])}."
        )
    return entries.pairs()[1].reshape(entries.row_shape)


def to_pairs(target: LabelsLike, num_labels: int, *, row_dims: int = 1, name: str = "target") -> tuple[Tensor, Tensor]:
    """List all positive labels; raise ValueError if a label is unknown.

    Unlike index lists, which are as wide as their longest row, this stores each label once.

    Args:
        target, num_labels, row_dims, name: as in `target_form`.

    Returns:
        The flat row index and the label of each positive: ``(m,)`` int64, ascending by row, then by label.

    Example:
        >>> to_pairs(torch.tensor([[2, 0], [1, -1]]), 3)
        (tensor([0, 0, 1]), tensor([0, 2, 1]))
    """
    entries = list_labels(target, num_labels, row_dims=row_dims, name=name)
    entries.refuse_unknown("pairs of row and label")
    return entries.pairs()


def to_index_lists(target: LabelsLike, num_labels: int, *, row_dims: int = 1, name: str = "target") -> Tensor:
    """Convert labels to padded index lists; raise ValueError if a label is unknown.

    Args:
        target, num_labels, row_dims, name: as in `target_form`.

    Returns:
        ``(*rows, m)`` int64: ascending labels padded with -1; m is the largest number of labels in a row,
        and n + 1 if that is n: tables of n columns may be multi-hots.

    Example:
        >>> to_index_lists(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]), 3)
        tensor([[ 0,  2],
                [ 1, -1]])
    """
    entries = list_labels(target, num_labels, row_dims=row_dims, name=name)
    entries.refuse_unknown("index lists")
    return entries.index_lists()


def to_multi_hot(
    target: LabelsLike, num_labels: int, *, row_dims: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Convert labels to a dense multi-hot.

    Args:
        target, num_labels, row_dims: as in `target_form`.
        dtype: floating, or bool if no label is unknown.

    Returns:
        ``(*rows, n)``: 1 for present, 0 for absent, -1 for unknown.

    Example:
        >>> to_multi_hot(torch.tensor([[2, 0], [1, -1]]), 3)
        tensor([[1., 0., 1.],
                [0., 1., 0.]])
    """
    entries = list_labels(target, num_labels, row_dims=row_dims)
    values = _hot_values(entries, dtype)
    hot = values.new_zeros(math.prod(entries.row_shape), num_labels)
    hot[entries.pairs()] = values
    return hot.reshape(*entries.row_shape, num_labels)


def to_sparse(
    target: LabelsLike,
    num_labels: int,
    *,
    dtype: torch.dtype = torch.float32,
    layout: torch.layout = torch.sparse_coo,
) -> Tensor:
    """Convert labels to a sparse multi-hot; index forms are converted without a dense intermediate.

    Args:
        target, num_labels: as in `target_form`; there must be one row dimension.
        dtype: floating, or bool if no label is unknown.
        layout: ``torch.sparse_coo`` (then coalesced) or ``torch.sparse_csr``.

    Returns:
        ``(rows, n)``; stores only 1 for present and -1 for unknown.

    Example:
        >>> to_sparse(torch.tensor([2, 0]), 3)
        tensor(indices=tensor([[0, 1],
                               [2, 0]]),
               values=tensor([1., 1.]),
               size=(2, 3), nnz=2, layout=torch.sparse_coo)
    """
    if layout not in (torch.sparse_coo, torch.sparse_csr):
        raise TypeError(f"`layout` must be torch.sparse_coo or torch.sparse_csr; got {layout}.")
    entries = list_labels(target, num_labels)
    values = _hot_values(entries, dtype)
    indices = torch.stack(entries.pairs())
    size = (*entries.row_shape, num_labels)
    # The indices are already checked; torch would warn or check again.
    coo = torch.sparse_coo_tensor(indices, values, size, is_coalesced=True, check_invariants=False)
    if layout == torch.sparse_coo:
        return coo
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return coo.to_sparse_csr()


def _hot_values(entries: Labels, dtype: torch.dtype) -> Tensor:
    """1 for each present entry, -1 for each unknown entry."""
    if dtype != torch.bool and not dtype.is_floating_point:
        raise TypeError(f"`dtype` must be bool or floating; got {dtype}.")
    if dtype == torch.bool:
        entries.refuse_unknown("bool")
    return torch.where(entries.values > 0, 1, -1).to(dtype)


def sum_over_positives(values: Tensor, target: Tensor) -> Tensor:
    """Sum of each row's values at its positive labels, in O(labels) for index and sparse forms.

    Absent, unknown and padding labels contribute 0 regardless of their value, even if infinite, and get gradient 0.
    Floating multi-hots are weights: a soft target of 0.3 contributes 0.3 times the value. Unlike `check_target`, this
    function does not reject soft targets.

    Args:
        values: ``(*rows, n)``, floating.
        target: labels in any form, for the same rows and n.

    Returns:
        ``(*rows,)`` with the dtype of ``values``, twice differentiable in them.

    Raises:
        TypeError: if ``values`` is not floating; otherwise as `target_form`.
        ValueError: if the rows differ; otherwise as `target_form`.

    Example:
        >>> values = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, -torch.inf]])
        >>> sum_over_positives(values, torch.tensor([[2, 0], [1, -1]]))
        tensor([ 5., 16.])
        >>> sum_over_positives(values, torch.tensor([[0.5, 0.5, 0.0], [1.0, -1.0, 0.0]]))
        tensor([1.5000, 8.0000])
    """
    if not values.is_floating_point():
        raise TypeError(f"`values` must be floating; got {values.dtype}.")
    if values.dim() == 0:
        raise ValueError("`values` must have at least 1 dimension, the labels; got 0.")
    labels = read_labels(target, values.shape, dtype=values.dtype, like="values")
    own, present = labels.at(values.reshape(labels.num_rows, values.shape[-1])), labels.present
    # Replace values before multiplying, because 0 * inf is NaN.
    return labels.sum_along(torch.where(present > 0, own, 0) * present).reshape(labels.row_shape)


def count_positives(target: Tensor, num_labels: int, *, row_dims: int = 1) -> Tensor:
    """Count each row's positive labels; in soft targets, all above 0.

    Args:
        target, num_labels, row_dims: as in `target_form`.

    Returns:
        ``(*rows,)`` int64.

    Example:
        >>> count_positives(torch.tensor([[2, 0], [1, -1]]), 3)
        tensor([2, 1])
    """
    labels = _read(target, num_labels, row_dims)
    return labels.sum_along((labels.values > 0).long()).reshape(labels.row_shape)


def count_known(target: Tensor, num_labels: int, *, row_dims: int = 1) -> Tensor:
    """Count each row's known labels.

    Args:
        target, num_labels, row_dims: as in `target_form`.

    Returns:
        ``(*rows,)`` int64.

    Example:
        >>> count_known(torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 0.0]]), 3)
        tensor([2, 3])
    """
    labels = _read(target, num_labels, row_dims)
    if labels.unknown is None:
        return torch.full(labels.row_shape, num_labels, device=target.device)
    return num_labels - labels.sum_along(labels.unknown.long()).reshape(labels.row_shape)


def fill_unknown(values: Tensor, target: Tensor, fill: float) -> Tensor:
    """Replace the values of unknown labels by ``fill``; the sparse form needs no dense mask.

    Args:
        values: ``(*rows, n)``, floating.
        target: labels in any form, for the same rows and n.
        fill: the value for unknown labels; they get no gradient.

    Returns:
        Shaped like ``values``, twice differentiable in them; ``values`` itself if nothing is unknown and checking this
        needs no synchronization.

    Example:
        >>> fill_unknown(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[1.0, -1.0, 0.0]]), 0)
        tensor([[1., 0., 4.]])
        >>> fill_unknown(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[2, 0]]), 0)
        tensor([[1., 2., 4.]])
    """
    labels = read_labels(target, values.shape, dtype=torch.float32, like="values")
    unknown = labels.unknown
    if unknown is None:
        return values
    if labels.is_dense:
        return values.masked_fill(unknown.reshape(values.shape), fill)
    at = labels.pairs()
    return values.index_put(at, torch.where(unknown, fill, values[at]))


def unknown_mask(target: Tensor, num_labels: int, *, row_dims: int = 1) -> Tensor | None:
    """Return a mask of the unknown labels.

    Args:
        target, num_labels, row_dims: as in `target_form`.

    Returns:
        ``(*rows, n)`` bool, dense even for the sparse form; None if the form cannot express "unknown": class indices,
        index lists, and bool tensors of either layout.

    Example:
        >>> unknown_mask(torch.tensor([[1.0, -1.0, 0.0]]), 3)
        tensor([[False,  True, False]])
        >>> unknown_mask(torch.tensor([2, 0]), 3) is None
        True
    """
    target_form(target, num_labels, row_dims=row_dims)
    if not target.is_floating_point():
        return None
    if target.layout == torch.strided:
        return target < 0
    rows, labels, values = stored_entries(target)
    mask = torch.zeros(target.shape, dtype=torch.bool, device=target.device)
    return mask.index_put((rows, labels), values < 0)


def _read(target: Tensor, num_labels: int, row_dims: int) -> Labels:
    target_form(target, num_labels, row_dims=row_dims)
    return read_labels(target, (*target.shape[:row_dims], num_labels), dtype=torch.float32)

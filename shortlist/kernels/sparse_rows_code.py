"""Numba code for the columns of a sparse batch: torch would sort its entries and copy the vectors several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.kernels.chooser import compiled


@compiled()
def transposed(crow: Any, columns: Any, values: Any, width: int) -> Any:
    """The columns of a CSR matrix that occur, ascending; where the entries of each start; their rows and values."""
    ends = np.zeros(width, np.int64)
    for column in columns:
        ends[column] += 1
    count, entries = 0, 0
    used, starts = np.empty(len(columns), np.int64), np.empty(len(columns) + 1, np.int64)
    for column in range(width):
        if ends[column]:
            used[count], starts[count] = column, entries
            entries += ends[column]
            ends[column] = starts[count]
            count += 1
    starts[count] = entries
    rows, sorted_values = np.empty(len(columns), np.int64), np.empty(len(columns), np.float32)
    for row in range(len(crow) - 1):
        for entry in range(crow[row], crow[row + 1]):
            place = ends[columns[entry]]
            ends[columns[entry]] = place + 1
            rows[place], sorted_values[place] = row, values[entry]
    return used[:count], starts[: count + 1], rows, sorted_values


@compiled("contract")
def weighted_sums(starts: Any, rows: Any, weights: Any, vectors: Any, out: Any, start: int, stop: int) -> None:
    """``out[i]`` is the sum of ``weights[e] * vectors[rows[e]]`` for the entries e from ``starts[i]`` on."""
    for place in range(start, stop):
        row = out[place]
        row[:] = np.float32(0)
        for entry in range(starts[place], starts[place + 1]):
            weight, vector = weights[entry], vectors[rows[entry]]
            for column in range(len(row)):
                row[column] += weight * vector[column]


@compiled("contract", "reassoc")
def update(
    matrix: Any,
    rows: Any,
    values: Any,
    decay: Any,
    squares: Any,
    steps: Any,
    rate: float,
    beta2: float,
    eps: float,
    start: int,
    stop: int,
) -> None:
    """A step of `LazyAdamW` for some of the rows that have gradients, the ``values``."""
    for place in range(start, stop):
        at, value, kept = rows[place], values[place], decay[place]
        total = np.float32(0)
        for column in range(len(value)):
            total += value[column] * value[column]
        squares[at] += np.float32(1 - beta2) * (total / np.float32(max(len(value), 1)) - squares[at])
        steps[at] += np.float32(1)
        factor = np.float32(-rate / (np.sqrt(squares[at] / (1 - beta2 ** steps[at])) + eps))
        row = matrix[at]
        for column in range(len(row)):
            row[column] = kept * row[column] + factor * value[column]

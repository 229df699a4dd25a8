"""Training of one vector per column of sparse rows: gradients and updates of those that a batch uses, on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor


def used_gradient(crow: Tensor, columns: Tensor, values: Tensor, gradient: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The columns that occur, ascending, and the rows of ``A^T gradient`` that belong to them.

    Args:
        crow, columns, values: a CSR matrix A ``(B, width)``.
        gradient: ``(B, d)`` float32.
        width: number of columns of A.
    """
    from shortlist.kernels import sparse_rows_code, threads

    used, starts, rows, weights = sparse_rows_code.transposed(crow.numpy(), columns.numpy(), values.numpy(), width)
    sums = gradient.new_empty(len(used), gradient.shape[1])
    gradient, out = gradient.contiguous(), sums.numpy()

    def work(start: int, stop: int) -> None:
        sparse_rows_code.weighted_sums(starts, rows, weights, gradient.numpy(), out, start, stop)

    threads.run_parts(work, len(used), sums.numel())
    return torch.from_numpy(used), sums


def update_rows(
    matrix: Tensor,
    rows: Tensor,
    values: Tensor,
    decay: Tensor,
    state: tuple[Tensor, Tensor],
    *,
    rate: float,
    beta2: float,
    eps: float,
) -> None:
    """Take a step of `LazyAdamW` for each of the distinct rows, in place.

    Args:
        matrix: ``(m, ...)`` float32, contiguous.
        rows: ``(r,)`` distinct indices.
        values: ``(r, ...)`` float32, the gradients.
        decay: ``(r,)`` float32, what the rows are multiplied by before.
        state: the second moment and the number of steps of each row of ``matrix``, ``(m,)`` float32; updated in place.
        rate, beta2, eps: of the optimizer.
    """
    from shortlist.kernels import sparse_rows_code, threads

    flat, added = matrix.detach().reshape(len(matrix), -1).numpy(), values.reshape(len(rows), -1).numpy()
    arrays = (rows.numpy(), added, decay.numpy(), state[0].numpy(), state[1].numpy())

    def work(start: int, stop: int) -> None:
        sparse_rows_code.update(flat, *arrays, rate, beta2, eps, start, stop)

    threads.run_parts(work, len(rows), values.numel())

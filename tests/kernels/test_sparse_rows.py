"""Kernels for the vectors of sparse rows agree with dense matrices, and so do the tensor operations beside them."""

import pytest
import torch

from shortlist.data.target_rows import csr
from shortlist.kernels.sparse_rows import update_rows, used_gradient
from shortlist.train.lazy_adamw import LazyAdamW
from shortlist.train.model.sparse_layers import Bag

pytestmark = pytest.mark.cpu_only


def draw_rows(rows, width, density, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, width, generator=generator)
    return dense * (torch.rand(rows, width, generator=generator) < density)


def as_csr(dense):
    crow = torch.cat([torch.zeros(1, dtype=torch.int64), dense.ne(0).sum(1).cumsum(0)])
    row, columns = dense.nonzero(as_tuple=True)
    return csr(crow, columns, dense[row, columns], dense.shape[1])


@pytest.mark.parametrize(("rows", "width", "dim"), [(64, 300, 40), (1, 5, 3), (7, 2000, 1), (3, 4, 700)])
def test_gradient_of_used_columns_is_that_of_a_dense_product(rows, width, dim):
    dense, gradient = draw_rows(rows, width, 0.1), torch.randn(rows, dim, generator=torch.Generator().manual_seed(1))
    batch = as_csr(dense)
    used, sums = used_gradient(batch.crow_indices(), batch.col_indices(), batch.values(), gradient, width)
    assert torch.equal(used, dense.ne(0).any(0).nonzero().flatten())
    torch.testing.assert_close(sums.double(), (dense.double().T @ gradient.double())[used], rtol=1e-5, atol=1e-5)


def test_a_batch_without_entries_uses_no_column():
    batch = as_csr(torch.zeros(3, 5))
    used, sums = used_gradient(batch.crow_indices(), batch.col_indices(), batch.values(), torch.ones(3, 2), 5)
    assert used.shape == (0,)
    assert sums.shape == (0, 2)


def test_a_column_that_a_row_stores_twice_counts_twice():
    crow, columns, values = torch.tensor([0, 3]), torch.tensor([4, 1, 4]), torch.tensor([1.0, 5.0, 2.0])
    used, sums = used_gradient(crow, columns, values, torch.tensor([[10.0, -1.0]]), 6)
    assert used.tolist() == [1, 4]
    assert sums.tolist() == [[50.0, -5.0], [30.0, -3.0]]


@pytest.mark.parametrize("shape", [(20,), (20, 3), (20, 2, 4)])
def test_rows_are_updated_in_place_and_others_stay(shape):
    generator = torch.Generator().manual_seed(0)
    matrix, rows = torch.randn(shape, generator=generator), torch.tensor([17, 0, 5])
    values = torch.randn(3, *shape[1:], generator=generator)
    decay, square, steps = torch.tensor([1.0, 0.5, 0.0]), torch.rand(20, generator=generator), torch.arange(20.0)
    expected, expected_square = matrix.clone(), square.clone()
    for row, value, kept in zip(rows, values, decay, strict=True):
        expected_square[row] = 0.9 * square[row] + 0.1 * value.square().mean()
        scale = (expected_square[row] / (1 - 0.9 ** (steps[row] + 1))).sqrt() + 0.01
        expected[row] = kept * expected[row] - 0.3 * value / scale
    update_rows(matrix, rows, values, decay, (square, steps), rate=0.3, beta2=0.9, eps=0.01)
    torch.testing.assert_close(matrix, expected)
    torch.testing.assert_close(square, expected_square)
    assert steps.tolist() == [number + (number in (0, 5, 17)) for number in range(20)]


def trained(kernels, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
    torch.manual_seed(0)
    bag = Bag(500, 24)
    bag.vectors.sparse = True
    optimizer = LazyAdamW(bag.parameters(), lr=0.1, weight_decay=0.1)
    for seed in range(4):
        batch = as_csr(draw_rows(256, 500, 0.05, seed=seed))  # 6,400 entries, enough for kernels.
        optimizer.zero_grad()
        (bag(batch) - 1).square().mean().backward()
        optimizer.step()
    optimizer.catch_up()
    return bag.vectors.weight.detach()


def test_a_bag_trains_alike_with_and_without_kernels(monkeypatch):
    pair = [trained(kernels, monkeypatch) for kernels in ("on", "off")]
    torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_bag_is_that_of_its_dense_form(monkeypatch):
    dense = draw_rows(256, 500, 0.05)
    for kernels in ("on", "off"):
        monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
        bag = Bag(500, 24)
        bag.vectors.sparse = True
        bag(as_csr(dense)).square().sum().backward()
        gradient = bag.vectors.weight.grad.coalesce()
        features = dense.double() @ bag.vectors.weight.detach().double()
        torch.testing.assert_close(gradient.to_dense().double(), 2 * dense.double().T @ features, rtol=1e-4, atol=1e-4)

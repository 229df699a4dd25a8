"""Balanced clusters of vectors, and logits of the labels in some clusters of each row."""

import pytest
import torch
from torch import Tensor, nn

from shortlist.functional.label_clusters import balanced_clusters, cluster_sizes, clustered_logits


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "largest"), [(1, 1), (1, 9), (2, 1), (7, 2), (100, 100), (101, 100), (1000, 30), (5, 1)])
def test_every_label_is_in_one_cluster_and_sizes_differ_by_at_most_one(n, largest):
    members = balanced_clusters(drawn(n, 3), largest)
    assert members.shape == cluster_sizes(n, largest)
    assert sorted(members[members >= 0].tolist()) == list(range(n))
    sizes = (members >= 0).sum(1)
    assert sizes.max() <= largest
    assert sizes.max() - sizes.min() <= 1
    for row in members:
        assert row[row >= 0].tolist() == sorted(row[row >= 0].tolist())  # and padding is at the end
        assert not (row[1:] > row[:-1]).logical_and(row[:-1] < 0).any()


def test_vectors_around_the_same_direction_share_a_cluster():
    directions = torch.eye(8, dtype=torch.float64).repeat_interleave(25, 0)
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    members = balanced_clusters((directions + 0.02 * drawn(200, 8))[shuffled], 25)
    truth = torch.arange(8).repeat_interleave(25)[shuffled]
    assert all(len(truth[cluster].unique()) == 1 for cluster in members)


def test_clusters_depend_on_the_seed_and_directions_alone():
    vectors = drawn(300, 5)
    assert torch.equal(balanced_clusters(vectors, 20), balanced_clusters(vectors, 20))
    # By a power of two, so that directions are the same to the last bit.
    assert torch.equal(balanced_clusters(vectors, 20), balanced_clusters(4 * vectors, 20))
    assert not torch.equal(balanced_clusters(vectors, 20), balanced_clusters(vectors, 20, seed=1))


def test_equal_and_zero_vectors_are_split_all_the_same():
    for vectors in (torch.zeros(50, 3), torch.ones(50, 3)):
        assert balanced_clusters(vectors, 8).shape == (8, 7)


def test_a_split_of_many_vectors_is_found_from_some_of_them(monkeypatch):
    directions = torch.eye(2, dtype=torch.float64).repeat(200, 1)
    monkeypatch.setattr("shortlist.functional.label_clusters._SAMPLE", 20)
    members = balanced_clusters(directions + 0.1 * drawn(400, 2), 200)
    assert sorted(row.remainder(2).unique().tolist() for row in members) == [[0], [1]]


def test_bad_vectors_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"`vectors` must be a floating matrix; got torch.int64 of shape \(3,\)"):
        balanced_clusters(torch.arange(3), 2)
    with pytest.raises(ValueError, match="`largest` must be at least 1; got 0"):
        balanced_clusters(torch.zeros(3, 2), 0)


CASES = {"repeated": ([0, 1, 1, 3, 3, 3], [2, 0, 2, 1, 4, 2]), "one": ([2], [3]), "none": ([], [])}


@pytest.mark.parametrize(("rows", "clusters"), CASES.values(), ids=CASES)
def test_logits_and_gradients_are_those_of_all_labels(rows, clusters):
    features, weight, bias = (drawn(*shape).requires_grad_() for shape in ((4, 3), (5, 2, 3), (5, 2)))
    pairs = torch.tensor(rows, dtype=torch.int64), torch.tensor(clusters, dtype=torch.int64)
    found = clustered_logits(features, weight, bias, *pairs)
    whole = torch.einsum("bd,cmd->bcm", features, weight) + bias
    assert torch.allclose(found, whole[pairs])
    factors = drawn(*found.shape, seed=1)
    inputs = (features, weight, bias)
    gradients = torch.autograd.grad((found * factors).sum(), inputs)
    wanted = torch.autograd.grad((whole[pairs] * factors).sum(), inputs)
    for gradient, dense in zip(gradients, wanted, strict=True):
        assert torch.allclose(gradient.to_dense() if gradient.is_sparse else gradient, dense)
    touched = sorted(set(clusters))
    assert [gradient.is_sparse for gradient in gradients] == [False, True, True]
    assert gradients[1].coalesce().indices()[0].tolist() == touched


def test_the_sparse_gradient_trains_with_a_sparse_optimizer_and_leaves_other_clusters_alone():
    weight, bias = nn.Parameter(drawn(5, 2, 3)), nn.Parameter(drawn(5, 2))
    before = weight.detach().clone()
    optimizer = torch.optim.SparseAdam([weight, bias], lr=0.1)
    clustered_logits(drawn(1, 3), weight, bias, torch.tensor([0, 0]), torch.tensor([4, 1])).sum().backward()
    optimizer.step()
    assert (weight != before).flatten(1).any(1).tolist() == [False, True, False, False, True]


def test_a_second_derivative_raises():
    features, weight = drawn(1, 3).requires_grad_(), drawn(5, 2, 3)
    logits = clustered_logits(features, weight, drawn(5, 2), torch.tensor([0]), torch.tensor([1]))
    (gradient,) = torch.autograd.grad(logits.square().sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((drawn(2, 4), drawn(5, 2, 3), drawn(5, 2)), r"got \(2, 4\) and \(5, 2, 3\)"),
        ((drawn(2, 3), drawn(5, 2, 3), drawn(5)), r"`bias` must have shape \(5, 2\) like `weight`; got \(5,\)"),
    ],
)
def test_bad_shapes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        clustered_logits(*arguments, torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="must be one list of pairs"):
        clustered_logits(drawn(2, 3), drawn(5, 2, 3), drawn(5, 2), torch.tensor([0]), torch.tensor([0, 1]))

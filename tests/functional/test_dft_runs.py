"""Sign changes of label sets: counted one by one in every form, and in time by the labels that are there."""

import itertools

import pytest
import torch

from shortlist.functional import sign_changes
from shortlist.functional.dft import active_labels, active_runs
from tests.contracts_losses import FORMS


def counted(row: list[bool], *, cyclic: bool) -> int:
    n = len(row)
    return sum(row[i] != row[(i + 1) % n] for i in range(n if cyclic else n - 1))


def all_sets(n: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product([False, True], repeat=n)))


@pytest.mark.parametrize("cyclic", [True, False])
@pytest.mark.parametrize("n", range(1, 11))
def test_changes_are_those_that_one_counts(n, cyclic):
    hot = all_sets(n)
    assert sign_changes(hot, n, cyclic=cyclic).tolist() == [counted(row, cyclic=cyclic) for row in hot.tolist()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cyclic", [True, False])
def test_every_form_of_labels_has_the_same_changes(form, cyclic):
    hot = torch.eye(6, dtype=torch.float64) if form == "class indices" else all_sets(6).double()
    expected = [counted(row, cyclic=cyclic) for row in hot.bool().tolist()]
    answer = sign_changes(FORMS[form](hot), 6, cyclic=cyclic)
    assert answer.dtype == torch.int64
    assert answer.tolist() == expected


def test_the_order_of_an_index_list_does_not_matter():
    assert sign_changes(torch.tensor([[4, 0, 2, -1], [3, 2, 1, 0]]), 6).tolist() == [6, 2]


def test_a_set_of_k_labels_changes_at_most_2k_times():
    for n in range(1, 11):
        hot = all_sets(n)
        assert (sign_changes(hot, n) <= 2 * hot.sum(-1)).all()


def test_the_number_of_labels_costs_nothing():
    n = 10**15
    assert sign_changes(torch.tensor([[0, 5, 6, n - 1], [7, -1, -1, -1]]), n).tolist() == [4, 2]
    assert sign_changes(torch.tensor([[0, 5, 6, n - 1]]), n, cyclic=False).tolist() == [4]


def test_no_rows_and_empty_sets_are_fine():
    assert sign_changes(torch.empty(0, dtype=torch.int64), 5).shape == (0,)
    assert sign_changes(torch.empty(0, 3, dtype=torch.int64), 5, cyclic=False).shape == (0,)
    assert sign_changes(torch.full((2, 3), -1), 5).tolist() == [0, 0]
    assert sign_changes(torch.empty(2, 0, dtype=torch.int64), 5, cyclic=False).tolist() == [0, 0]


def test_runs_cover_exactly_the_active_labels():
    n = 7
    hot = all_sets(n)
    runs = active_runs(*active_labels(hot, n), n)
    covered = hot.all(-1, keepdim=True).repeat(1, n)  # a full circle has no run
    for row, first, last in zip(*(part.tolist() for part in runs[1:]), strict=True):
        for label in range(first, first + (last - first) % n + 1):
            assert not covered[row, label % n]
            covered[row, label % n] = True
    assert torch.equal(covered, hot)
    assert torch.equal(2 * runs.counts(), sign_changes(hot, n))


def test_wrong_labels_are_named_with_their_row():
    with pytest.raises(ValueError, match=r"`target` row 1: label 5 must lie in \[0, 5\)\."):
        sign_changes(torch.tensor([[0, 1], [5, -1]]), 5)
    with pytest.raises(ValueError, match=r"`target` row 0: label 1 must not occur twice\."):
        sign_changes(torch.tensor([[1, 1]]), 5)
    with pytest.raises(ValueError, match=r"`target` row 0: label 2 must not be unknown"):
        sign_changes(torch.tensor([[1.0, 0.0, -1.0]]), 3)

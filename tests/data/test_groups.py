"""A partition by name keeps its members, names and order."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Groups
from tests.data.datasets import values_of

examples = settings(derandomize=True, deadline=None, max_examples=60)
words = st.sampled_from(["train", "val", "test", "a", "B", "été", "two words", "", "10", "9"])
members = st.lists(st.none() | words, max_size=12)


@examples
@given(members, st.lists(words, unique=True, max_size=4))
def test_every_member_finds_its_name_again(values, order):
    groups = Groups.of(values, order=order)
    assert len(groups) == len(values)
    assert values_of(groups) == values
    first = [name for name in order if name in values]
    assert list(groups.names) == first + sorted({v for v in values if v is not None} - set(order))


@examples
@given(members)
def test_counts_and_members_agree_with_a_loop(values):
    groups = Groups.of(values)
    assert groups.counts().tolist() == [values.count(name) for name in groups.names]
    assert groups.counts().dtype == torch.int64
    for name in groups.names:
        found = groups.members(name)
        assert found.dtype == torch.int64
        assert found.tolist() == [i for i, value in enumerate(values) if value == name]


@examples
@given(members.filter(bool), st.randoms(use_true_random=False))
def test_some_members_are_taken_in_their_order_and_names_stay(values, rng):
    groups = Groups.of(values)
    rows = [rng.randrange(len(values)) for _ in range(6)]
    taken = groups.take(torch.tensor(rows))
    assert taken.names == groups.names
    assert values_of(taken) == [values[row] for row in rows]


@examples
@given(members.filter(bool), st.randoms(use_true_random=False))
def test_a_compact_partition_has_no_empty_group_and_the_same_members(values, rng):
    rows = [rng.randrange(len(values)) for _ in range(3)]
    taken = Groups.of(values, order=("val", "a")).take(torch.tensor(rows))
    compact = taken.compact()
    assert (compact.counts() > 0).all()
    assert list(compact.names) == [name for name in taken.names if name in [values[row] for row in rows]]
    assert values_of(compact) == [values[row] for row in rows]


def test_numbers_are_grouped_by_their_text():
    groups = Groups.of([1978, 1977, "1978", None])
    assert groups.names == ("1977", "1978")
    assert groups.index.tolist() == [1, 0, 1, -1]


def test_no_members_make_no_groups():
    groups = Groups.of([])
    assert len(groups) == 0
    assert groups.names == ()
    assert groups.index.dtype == torch.int64
    assert groups.counts().tolist() == []
    assert groups.compact().names == ()


def test_a_group_without_members_counts_zero():
    groups = Groups(torch.tensor([1, 1, -1]), ("a", "b", "c"))
    assert groups.counts().tolist() == [0, 2, 0]
    assert groups.members("a").tolist() == []
    assert groups.compact().names == ("b",)
    assert groups.compact().index.tolist() == [0, 0, -1]


@pytest.mark.parametrize(("index", "got"), [([0, 2], 2), ([-2, 0], -2), ([-2, 7], -2)])
def test_an_index_outside_the_names_is_refused(index, got):
    with pytest.raises(ValueError, match=rf"^`index` must lie in \[-1, 1\]; got {got}\.$"):
        Groups(torch.tensor(index), ("a", "b"))


@pytest.mark.parametrize("index", [torch.tensor([0.0]), torch.tensor([0], dtype=torch.int32), torch.tensor([[0]])])
def test_an_index_of_another_type_or_shape_is_refused(index):
    with pytest.raises(TypeError, match=r"^`index` must be int64 with 1 dimension; got .*\.$"):
        Groups(index, ("a",))


def test_a_name_that_stands_twice_is_refused_with_both_places():
    with pytest.raises(ValueError, match=r"^`names` must differ; positions 1 and 3 are both 'b'\.$"):
        Groups(torch.tensor([0]), ("a", "b", "c", "b"))


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"^`name` must be one of a, b; got 'c'\.$"):
        Groups(torch.tensor([0]), ("a", "b")).members("c")
    with pytest.raises(ValueError, match=r"^`name` must be one of no names at all; got 'c'\.$"):
        Groups.of([]).members("c")


def test_groups_travel_to_other_processes():
    back = pickle.loads(pickle.dumps(Groups.of(["b", None, "a"])))
    assert back.names == ("a", "b")
    assert back.index.tolist() == [1, -1, 0]

"""A crowd's labels by hand and by a slow loop: weights, thresholds, ties, authors, rounds that never end."""

import math
import random
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import aggregate_votes, vote_weight

examples = settings(derandomize=True, deadline=None, max_examples=80)
B0 = math.log(2.1)


def weight(n: int, b0: float = B0) -> float:
    return math.sqrt(n) - n**0.2 + b0


def reference(items, users, labels, authors, theta, b0, max_rounds):
    """The definition, round by round, with dicts."""
    num_items = len(authors) if authors is not None else max(items, default=-1) + 1
    authors = [-1] * num_items if authors is None else authors
    num_users = max([*users, *authors], default=-1) + 1
    proposed = [{label for u, label in zip(users, labels, strict=True) if u == user} for user in range(num_users)]
    seen, chosen, support, weights = [0] * num_users, [], [], []
    for _ in range(max_rounds):
        weights = [weight(len(proposed[user]) + seen[user], b0) for user in range(num_users)]
        chosen, support = [-1] * num_items, [0.0] * num_items
        for item in range(num_items):
            sums: dict[int, float] = {}
            for i, u, label in zip(items, users, labels, strict=True):
                if i == item:
                    sums[label] = sums.get(label, 0) + weights[u]
            if sums:
                best = max(sums.values())
                chosen[item] = min(label for label, total in sums.items() if total > best - 1e-9)
                support[item] = sums[chosen[item]]
        species = [set() for _ in range(num_users)]
        for item, author in enumerate(authors):
            if author >= 0 and support[item] > theta:
                species[author].add(chosen[item])
        now = [len(own) for own in species]
        if now == seen:
            return chosen, support, weights, True
        seen = now
    return chosen, support, weights, False


def random_crowd(rng: random.Random) -> tuple[list[int], list[int], list[int], list[int]]:
    num_items, num_users, num_labels = rng.randint(1, 6), rng.randint(1, 5), rng.randint(1, 4)
    pairs = [(i, u) for i in range(num_items) for u in range(num_users) if rng.random() < 0.6]
    rng.shuffle(pairs)
    labels = [rng.randrange(num_labels) for _ in pairs]
    authors = [rng.randint(-1, num_users) for _ in range(num_items)]
    return [i for i, _ in pairs], [u for _, u in pairs], labels, authors


@examples
@given(
    st.randoms(use_true_random=False),
    st.booleans(),
    st.sampled_from([0.5, 1.0, 1.37, 2.0, 3.1]),
    st.sampled_from([B0, 0.1, 2.0]),
    st.sampled_from([1, 2, 50]),
)
def test_labels_support_and_weights_agree_with_a_loop(rng, with_authors, theta, b0, max_rounds):
    items, users, labels, authors = random_crowd(rng)
    authors = authors if with_authors else None
    expected = reference(items, users, labels, authors, theta, b0, max_rounds)
    result = aggregate_votes(items, users, labels, authors=authors, theta=theta, b0=b0, max_rounds=max_rounds)
    assert result.labels.tolist() == expected[0]
    assert result.support.tolist() == pytest.approx(expected[1], abs=1e-9)
    assert result.user_weights.tolist() == pytest.approx(expected[2], abs=1e-9)
    assert result.converged == expected[3]
    for support, valid in zip(expected[1], result.valid.tolist(), strict=True):
        assert valid == (support > theta) or abs(support - theta) < 1e-9


def test_weights_follow_the_published_formula():
    n = torch.tensor([0, 1, 2, 4, 32, 1024])
    expected = [B0, B0, 2**0.5 - 2**0.2 + B0, 2 - 4**0.2 + B0, 32**0.5 - 2 + B0, 32 - 4 + B0]
    assert vote_weight(n).tolist() == pytest.approx(expected, rel=1e-14)
    assert vote_weight(n).dtype == torch.float64
    assert vote_weight(n, b0=0.0)[5] == pytest.approx(28)
    rising = vote_weight(torch.arange(1, 20_000))
    assert (rising.diff() > 0).all()


def test_beginners_with_one_label_each_weigh_b0():
    result = aggregate_votes([0, 0, 0], [0, 1, 2], [5, 5, 5])
    assert result.user_weights.tolist() == pytest.approx([B0] * 3)
    assert result.labels.tolist() == [5]
    assert result.support.item() == pytest.approx(3 * B0)
    assert result.valid.tolist() == [True]
    assert result.converged


def test_an_expert_outvotes_beginners():
    # User 0 proposed 32 labels: 5.657 - 2 + 0.742 = 4.399, more than five beginners, 3.710, less than six, 4.452.
    own_items, own_labels = list(range(1, 32)), list(range(100, 131))
    for beginners, winner in ((5, 1), (6, 2)):
        result = aggregate_votes(
            [0] + own_items + [0] * beginners,
            [0] * 32 + list(range(1, beginners + 1)),
            [1] + own_labels + [2] * beginners,
        )
        assert result.user_weights[0].item() == pytest.approx(4.3988, abs=1e-4)
        assert result.labels[0].item() == winner


def test_of_equal_support_the_smallest_label_wins():
    assert aggregate_votes([0, 0, 1, 1], [0, 1, 2, 3], [9, 4, 2, 3]).labels.tolist() == [4, 2]


def test_sums_in_another_order_are_still_equal():
    # The same three weights on each side, of which the sum in floating point depends on the order.
    w = vote_weight(torch.arange(14)).tolist()
    a, b, c = next(
        n for n in combinations(range(2, 14), 3) if w[n[0]] + w[n[1]] + w[n[2]] != w[n[2]] + w[n[1]] + w[n[0]]
    )
    rows = [(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 5, 2), (0, 4, 2), (0, 3, 2)]
    for user, labels in enumerate((a, b, c, a, b, c)):
        rows += [(20 * user + k, user, 50 + k) for k in range(1, labels)]
    for order in (rows, rows[::-1]):
        result = aggregate_votes(*([row[i] for row in order] for i in range(3)))
        assert result.labels[0].item() == 1


def test_support_that_equals_the_threshold_does_not_pass_it():
    for beginners in range(1, 13):
        votes = [0] * beginners, range(beginners), [3] * beginners
        assert not aggregate_votes(*votes, theta=beginners * B0).valid.item(), beginners
        assert aggregate_votes(*votes, theta=beginners * B0 - 1e-6).valid.item(), beginners


def test_an_author_gains_weight_from_valid_items_in_the_next_round():
    # Users 1, 2 and 3 make item 0 of user 0 valid. User 0 then has n = 2, and wins item 1 against user 4.
    items, users, labels = [0, 0, 0, 1, 1], [1, 2, 3, 0, 4], [6, 6, 6, 8, 7]
    alone = aggregate_votes(items, users, labels)
    assert alone.labels.tolist() == [6, 7]
    result = aggregate_votes(items, users, labels, authors=[0, -1])
    assert result.converged
    assert result.labels.tolist() == [6, 8]
    assert result.user_weights.tolist() == pytest.approx([weight(2), B0, B0, B0, B0])
    assert result.support[1].item() == pytest.approx(weight(2))
    first = aggregate_votes(items, users, labels, authors=[0, -1], max_rounds=1)
    assert not first.converged
    assert first.labels.tolist() == [6, 7]


def test_species_count_once_however_many_items():
    votes = [(item, user, 6) for item in (0, 1) for user in (1, 2, 3)]
    result = aggregate_votes(*([vote[i] for vote in votes] for i in range(3)), authors=[0, 0])
    # User 0 observed one species and proposed nothing: n = 1.
    assert result.user_weights[0].item() == pytest.approx(B0)
    different = [(0, 1, 6), (0, 2, 6), (0, 3, 6), (1, 1, 5), (1, 2, 5), (1, 3, 5)]
    result = aggregate_votes(*([vote[i] for vote in different] for i in range(3)), authors=[0, 0])
    assert result.user_weights.tolist() == pytest.approx([weight(2)] * 4)


def test_weights_that_chase_each_other_never_settle():
    # User 1 reaches n = 4, and with it label 1 on item 0 and label 2 on item 2, both made by user 0, are valid. That
    # lifts user 0 to n = 4 as well, a tie that gives item 2 to label 1: one species less, and item 2 falls back.
    crowd = [0, 1, 1, 2, 2], [1, 0, 1, 0, 1], [1, 0, 0, 1, 2], [0, 1, 0]
    last = []
    for max_rounds in (100, 101):
        result = aggregate_votes(*crowd[:3], authors=crowd[3], theta=1.4, max_rounds=max_rounds)
        assert not result.converged
        assert result.labels.tolist() == reference(*crowd, 1.4, B0, max_rounds)[0]
        last.append(result.labels.tolist())
    assert sorted(last) == [[1, 0, 1], [1, 0, 2]]


def test_items_without_votes_have_no_label():
    result = aggregate_votes([2], [0], [1], authors=[-1, -1, -1, 0])
    assert result.labels.tolist() == [-1, -1, 1, -1]
    assert result.support.tolist() == pytest.approx([0, 0, B0, 0])
    assert result.valid.tolist() == [False] * 4
    assert aggregate_votes([2], [0], [1]).labels.tolist() == [-1, -1, 1]


def test_no_votes_at_all():
    result = aggregate_votes([], [], [])
    assert [len(part) for part in result[:4]] == [0, 0, 0, 0]
    assert result.converged
    result = aggregate_votes([], [], [], authors=[1, -1])
    assert result.labels.tolist() == [-1, -1]
    assert result.user_weights.tolist() == pytest.approx([B0, B0])


def test_an_item_without_votes_is_not_valid_whatever_the_threshold():
    result = aggregate_votes([0], [0], [1], authors=[-1, 0], theta=-1.0)
    assert result.valid.tolist() == [True, False]
    assert result.user_weights.tolist() == pytest.approx([B0])


@pytest.mark.parametrize(
    ("votes", "text"),
    [
        (([0, 1], [0], [0, 0]), r"`items`, `users` and `labels` must have one length; got 2, 1 and 2"),
        (([0, -1], [0, 0], [0, 0]), r"`items` vote 1: must be at least 0; got -1"),
        (([0, 1], [0, -2], [0, 0]), r"`users` vote 1: must be at least 0; got -2"),
        (([0], [0], [-1]), r"`labels` vote 0: must be at least 0; got -1"),
        (([[0]], [0], [0]), r"`items` must have 1 dimension; got 2"),
        (
            ([3, 0, 3], [1, 1, 1], [0, 0, 2]),
            r"`users` must vote once per item; votes 0 and 2 are both of user 1 for item 3",
        ),
    ],
)
def test_votes_that_are_none_are_refused(votes, text):
    with pytest.raises(ValueError, match=rf"^{text}\.$"):
        aggregate_votes(*votes)


@pytest.mark.parametrize("authors", [[0], [[0, 1]]])
def test_authors_that_do_not_fit_the_items_are_refused(authors):
    with pytest.raises(ValueError, match=r"^`authors` must have an entry for each item; got shape \(.*\)\.$"):
        aggregate_votes([1], [0], [0], authors=authors)


def test_no_round_at_all_is_refused():
    with pytest.raises(ValueError, match=r"`max_rounds` must .*; got 0\.$"):
        aggregate_votes([0], [0], [0], max_rounds=0)

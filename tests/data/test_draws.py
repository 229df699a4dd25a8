"""Random numbers depend on a seed and a purpose alone, in every process, order of dicts and platform."""

from hashlib import blake2b

import numpy as np
import pytest

from shortlist.data.draws import Draws

COUNT = 40_000


def test_the_raw_words_are_those_of_philox_with_a_key_of_seed_and_purpose():
    key = int.from_bytes(blake2b(b"7 a purpose", digest_size=16).digest(), "little")
    expected = np.random.Philox(key=key).random_raw(5)
    assert Draws(7, "a purpose").raw(5).tolist() == expected.tolist()


def test_fractions_have_53_bits_and_go_on_where_the_stream_stopped():
    words, draws = Draws(0, "bits").raw(6), Draws(0, "bits")
    fractions = [*draws.uniform(2), *draws.uniform(4)]
    assert fractions == [int(word >> np.uint64(11)) / 2**53 for word in words]


def test_integers_follow_from_the_upper_half_of_each_word():
    bounds = np.array([1, 2, 3, 1000, 2**32])
    words = [int(word) for word in Draws(0, "below").raw(5)]
    expected = [((word >> 32) * int(bound)) >> 32 for word, bound in zip(words, bounds, strict=True)]
    drawn = Draws(0, "below").below(bounds)
    assert drawn.tolist() == expected
    assert drawn.dtype == np.int64
    assert (drawn < bounds).all()


def test_another_seed_or_purpose_gives_an_unrelated_stream():
    streams = [Draws(0, "a"), Draws(1, "a"), Draws(0, "b"), Draws(10, "a"), Draws(1, "0 a")]
    words = [tuple(stream.raw(4).tolist()) for stream in streams]
    assert len({word for stream in words for word in stream}) == 20
    first, second = Draws(0, "a").uniform(COUNT) - 0.5, Draws(0, "b").uniform(COUNT) - 0.5
    assert abs(12 * (first * second).mean()) < 4 / COUNT**0.5


def test_fractions_are_even():
    fractions = Draws(5, "even").uniform(COUNT)
    assert fractions.min() >= 0
    assert fractions.max() < 1
    counts = np.bincount((fractions * 20).astype(int), minlength=20)
    chi_square = ((counts - COUNT / 20) ** 2 / (COUNT / 20)).sum()
    assert abs(chi_square - 19) < 4 * 38**0.5


def test_integers_are_even():
    counts = np.bincount(Draws(5, "even").below(np.full(COUNT, 7)), minlength=7)
    assert len(counts) == 7
    chi_square = ((counts - COUNT / 7) ** 2 / (COUNT / 7)).sum()
    assert abs(chi_square - 6) < 4 * 12**0.5


def test_all_orders_are_equally_likely():
    draws = Draws(5, "orders")
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(12_000):
        order = tuple(draws.order(3).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert sorted(counts) == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert abs(sum((count - 2000) ** 2 / 2000 for count in counts.values()) - 5) < 4 * 10**0.5


def test_normal_numbers_have_the_moments_of_the_normal_law():
    normal = Draws(5, "normal").normal(COUNT)
    assert np.isfinite(normal).all()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((normal**power).mean() - moment) < 4 * (variance / COUNT) ** 0.5


def test_nothing_can_be_drawn():
    draws = Draws(0, "nothing")
    for drawn in (draws.raw(0), draws.uniform(0), draws.order(0), draws.normal(0), draws.below(np.empty(0, int))):
        assert len(drawn) == 0


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True])
def test_a_seed_that_is_no_integer_is_refused(seed):
    with pytest.raises(ValueError, match=rf"^`seed` must be an integer from 0; got {seed!r}\.$"):
        Draws(seed, "any")

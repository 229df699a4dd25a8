"""Random numbers depend on a seed and a purpose alone, in every process, order of dicts and platform."""

import json
from hashlib import blake2b

import numpy as np
import pytest
import torch

from shortlist.data import (
    Dataset,
    Features,
    Groups,
    hide_labels,
    incomplete_labels,
    label_noise,
    long_tail,
    sample_groups,
    single_positive,
    split_at_random,
    split_by_group,
    split_covering_labels,
    split_per_class,
)
from shortlist.data.draws import Draws
from shortlist.targets import to_multi_hot
from tests.python_process import run_python

COUNT = 40_000


def world(*, backwards: bool = False) -> tuple[Dataset, Dataset]:
    """A dataset of classes and one of sets; ``backwards`` writes every dict the other way round."""
    rows, n = 600, 12
    classes = torch.arange(rows) * 7 % n
    hot = ((torch.arange(rows)[:, None] * 5 + torch.arange(n)[None] * 3) % 4 == 0).float()
    hot[::7, 3] = -1
    label_groups = {
        "superclass": Groups(torch.arange(n) // 4, ("x", "y", "z")),
        "genus": Groups(torch.arange(n) // 2, tuple("uvwxyz")),
    }
    row_groups = {
        "source": Groups(torch.arange(rows) // 9, tuple(f"s{i}" for i in range(67))),
        "year": Groups.of([1970 + i % 9 for i in range(rows)]),
    }
    if backwards:
        label_groups, row_groups = (dict(reversed(list(d.items()))) for d in (label_groups, row_groups))
    split = Groups.of([("train", "train", "val", "test")[i % 4] for i in range(rows)], order=("train", "val", "test"))
    names = tuple(f"label {i}" for i in range(n))
    inputs = Features(torch.arange(rows, dtype=torch.float32)[:, None])
    kept = {"label_groups": label_groups, "row_groups": row_groups, "split": split}
    return Dataset(inputs, classes, names, **kept), Dataset(inputs, hot, names, **kept)


def digests(*, backwards: bool = False) -> dict[str, str]:
    """A digest of the result of each random procedure."""
    single, many = world(backwards=backwards)
    results = {
        "noise": label_noise(single, 0.4, seed=3),
        "noise among others": label_noise(single, 0.4, others_only=True, groups="genus", seed=3),
        "exponential tail": long_tail(single, 10, seed=3),
        "Pareto tail": long_tail(single, 10, alpha=1.5, order="random", seed=3),
        "hidden labels": hide_labels(many, 0.3, mark="unknown", seed=3),
        "incomplete labels": incomplete_labels(many, seed=3),
        "single positive": single_positive(many, seed=3),
        "groups of labels": sample_groups(many, 0.5, seed=3),
        "split per class": split_per_class(single, seed=3),
        "split at random": split_at_random(many, seed=3),
        "split by group": split_by_group(many, "source", seed=3),
        "split covering labels": split_covering_labels(many, seed=3),
    }
    return {name: digest(result) for name, result in results.items()}


def digest(dataset: Dataset) -> str:
    assert dataset.split is not None
    hot = to_multi_hot(dataset.targets, dataset.num_labels)
    inputs = dataset.inputs.batch(torch.arange(len(dataset)))
    parts = [part.to(torch.int64).numpy().astype("<i8").tobytes() for part in (hot, dataset.split.index, inputs)]
    return blake2b(b"".join(parts) + "|".join(dataset.label_names).encode(), digest_size=8).hexdigest()


PUBLISHED = {
    "noise": "6f686395aa4b34eb",
    "noise among others": "19e2a2bfd0f03ff3",
    "exponential tail": "8407b12e6f66d5e9",
    "Pareto tail": "f3aefe76e783504f",
    "hidden labels": "f3417ffb5fd1ec53",
    "incomplete labels": "01fb90b19357e795",
    "single positive": "7e43410582e56a02",
    "groups of labels": "b6da04aa39d8a704",
    "split per class": "b3cb3687b21a8ba8",
    "split at random": "5335111c82544403",
    "split by group": "41bdd63fbe02cb12",
    "split covering labels": "a12de061abbb14d7",
}


def test_every_procedure_gives_the_published_result():
    assert digests() == PUBLISHED


def test_another_process_and_another_order_of_dicts_give_the_same_results():
    # By path, for an installed package may bring a package `tests` of its own.
    code = "import json, runpy, sys; json.dump(runpy.run_path(sys.argv[1])['digests'](backwards=True), sys.stdout)"
    assert json.loads(run_python("-c", code, __file__, PYTHONHASHSEED="12345").stdout) == PUBLISHED


def test_global_seeds_play_no_part():
    torch.manual_seed(1)
    np.random.seed(1)
    first = digests()
    torch.manual_seed(2)
    np.random.seed(2)
    assert digests() == first


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

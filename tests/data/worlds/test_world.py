"""One interface for all worlds: names, dtypes, seeds, parts, probabilities and risks mean the same everywhere."""

import inspect
import itertools
import math
from hashlib import sha256

import numpy as np
import pytest
import torch

from shortlist.data import worlds
from shortlist.data.target_rows import label_pairs
from shortlist.data.worlds import AmbiguousWorld, MultiLabelWorld, SceneGraphWorld
from shortlist.data.worlds.bayes import average_k_threshold
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.data.worlds.world import World, parts_in_order
from shortlist.targets import to_multi_hot
from tests.python_process import run_python

MAKERS = {
    "AmbiguousWorld": lambda seed=0: AmbiguousWorld(4, (1, 4), dim=3, seed=seed),
    "MultiLabelWorld": lambda seed=0: MultiLabelWorld(9, dim=3, labels_per_row=1.5, seed=seed),
    "SceneGraphWorld": lambda seed=0: SceneGraphWorld(5, 6, relations_per_pair=0.8, seed=seed),
}
every_world = pytest.mark.parametrize("name", MAKERS)
ONE_LABEL = ("AmbiguousWorld",)


def entries(data):
    rows, labels, _ = label_pairs(data.true_targets, data.num_labels)
    return list(zip(rows.tolist(), labels.tolist(), strict=True))


def digest(name, world_seed, seed):
    """Of the inputs and labels of a sample."""
    data = MAKERS[name](world_seed).sample(50, seed=seed)
    inputs = data.inputs.batch(torch.arange(len(data)))
    fields = inputs if isinstance(inputs, tuple) else (inputs,)
    return sha256(b"".join(field.numpy().tobytes() for field in fields) + str(entries(data)).encode()).hexdigest()


def in_dtype(inputs, dtype):
    """Features, or the boxes of pairs, in another precision."""
    if isinstance(inputs, torch.Tensor):
        return inputs.to(dtype)
    return inputs._replace(subject_box=inputs.subject_box.to(dtype), object_box=inputs.object_box.to(dtype))


def sampled(name, size=6000):
    """Probabilities and truth of all rows of a sample, float64."""
    world = MAKERS[name]()
    data = world.sample(size, seed=6)
    probs = world.probabilities(data.inputs.batch(torch.arange(len(data)))).double()
    return world, probs, to_multi_hot(data.true_targets, world.num_labels).double()


def test_no_world_is_missing_here():
    exported = {name for name in worlds.__all__ if inspect.isclass(getattr(worlds, name)) and name.endswith("World")}
    assert exported == set(MAKERS)
    for name in exported:
        assert issubclass(getattr(worlds, name), World)


@every_world
def test_a_sample_has_the_labels_of_the_world_and_asks_for_nothing_but_a_size(name):
    world = MAKERS[name]()
    data = world.sample(40)
    assert data.label_names == world.label_names
    assert data.num_labels == world.num_labels == len(set(world.label_names))
    assert world.label_names[0].endswith(" 1")
    assert entries(data) == entries(world.sample(40, seed=0, split=(0.6, 0.2, 0.2)))
    parameters = inspect.signature(world.sample).parameters
    assert parameters["seed"].default == 0
    assert parameters["split"].default == (0.6, 0.2, 0.2)
    assert [parameters[option].kind.name for option in ("seed", "split")] == ["KEYWORD_ONLY"] * 2


@every_world
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_have_the_dtype_of_a_batch_and_only_the_answer_is_rounded(name, dtype):
    world = MAKERS[name]()
    given = world.sample(40).batch(range(30)).inputs
    inputs = in_dtype(given, dtype)
    p = world.probabilities(inputs)
    assert (p.shape, p.dtype) == ((30, world.num_labels), dtype)
    assert ((p >= 0) & (p <= 1)).all()
    assert torch.equal(p, world.probabilities(in_dtype(inputs, torch.float64)).to(dtype))
    assert world.probabilities(given).dtype == torch.float32


@every_world
def test_parts_come_in_order_and_a_split_may_be_left_out(name):
    world = MAKERS[name]()
    data = world.sample(40, split=(0.5, 0.25, 0.25))
    assert data.split.names == ("train", "val", "test")
    assert (data.split.index.diff() >= 0).all()
    assert (data.split.counts() > 0).all()
    assert world.sample(40, split=None).split is None
    assert len(world.sample(0)) == 0
    for shares in ((0.5, 0.6, 0.2), (1.2, -0.2, 0.0), (math.nan, 0.5, 0.5), (0.5, 0.5), 0.6, ("a", "b", "c")):
        with pytest.raises(ValueError, match="`split` must be three shares with sum 1; got "):
            world.sample(5, split=shares)


@every_world
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_any_integer_is_a_seed_and_a_size(name, kind):
    world, other = MAKERS[name](3), MAKERS[name](kind(3))
    assert repr(world) == repr(other)
    assert entries(world.sample(30, seed=5)) == entries(other.sample(kind(30), seed=kind(5)))
    given = {"num_samples": kind(200), "seed": kind(5)}
    for figure in ("top_k_risk", "average_k_risk", "advantage"):
        want = getattr(world, figure)(2, num_samples=200, seed=5)
        assert getattr(other, figure)(kind(2), **given) == want


@every_world
def test_seeds_of_world_and_sample_both_matter(name):
    assert len({digest(name, *seeds) for seeds in itertools.product((0, 1), (0, 1))}) == 4


@pytest.mark.slow
@every_world
def test_another_process_draws_the_same_rows(name):
    code = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['digest'](sys.argv[2], 2, 5))"
    assert run_python("-c", code, __file__, name).stdout == digest(name, 2, 5)


@every_world
def test_labels_occur_as_often_as_their_probabilities_say(name):
    _, probs, truth = sampled(name)
    surplus, variance = truth - probs, probs * (1 - probs)
    assert (surplus.sum(0).abs() < 4.5 * variance.sum(0).sqrt()).all()
    for low, high in itertools.pairwise([0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0]):
        cells = (probs >= low) & (probs < high)
        assert surplus[cells].sum().abs() <= 4.5 * variance[cells].sum().sqrt()
    if (
        name not in ONE_LABEL
    ):  # Independent given x: the number of labels has the variance of a sum of independent ones.
        assert surplus.sum(1).square().mean() == pytest.approx(float(variance.sum(1).mean()), rel=0.05)


@every_world
def test_the_best_rules_miss_the_stated_share_on_a_sample(name):
    world, probs, truth = sampled(name)
    gains = probs if name in ONE_LABEL else expected_shares(probs)
    some = truth.sum(1) > 0
    for k in (1, 2):
        top = torch.zeros_like(truth).scatter_(1, gains.topk(k).indices, 1.0)
        average = (gains >= average_k_threshold(gains, k)).double()
        for answer, risk in ((top, world.top_k_risk), (average, world.average_k_risk)):
            best = risk(k, num_samples=20_000)
            missed = 1 - (answer * truth).sum(1)[some] / truth.sum(1)[some]
            # Pairs of an image are alike, so their mean varies more than that of independent rows.
            error = math.hypot(2 * float(missed.std()) / math.sqrt(len(missed)), best.standard_error)
            assert float(missed.mean()) == pytest.approx(best.value, abs=4 * error)


@every_world
def test_risks_fall_from_all_to_nothing_and_average_k_is_never_worse(name):
    world = MAKERS[name]()
    some = {"num_samples": 2000, "seed": 1}
    top = [world.top_k_risk(k, **some).value for k in range(world.num_labels + 1)]
    average = [world.average_k_risk(k, **some).value for k in range(world.num_labels + 1)]
    assert (top[0], average[0]) == (1, 1)
    assert (top[-1], average[-1]) == pytest.approx((0, 0), abs=1e-12)
    assert (np.diff(top) <= 1e-12).all()
    for k, (higher, lower) in enumerate(zip(top, average, strict=True)):
        assert lower <= higher + 1e-12
        assert world.advantage(k, **some).value == pytest.approx(higher - lower, abs=1e-12)
    assert average[2] < world.average_k_risk(1.5, **some).value < average[1]


@every_world
def test_standard_errors_are_the_spread_of_repeated_estimates(name):
    world = MAKERS[name]()
    for figure in (world.top_k_risk, world.average_k_risk, world.advantage):
        runs = [figure(1, num_samples=300, seed=seed) for seed in range(60)]
        spread = np.std([run.value for run in runs], ddof=1)
        # 60 runs know a spread to about 9%.
        assert 0.65 < spread / np.mean([run.standard_error for run in runs]) < 1.35


@every_world
def test_requests_out_of_range_are_refused(name):
    world = MAKERS[name]()
    n = world.num_labels
    for call, message in (
        (lambda: world.top_k_risk(n + 1), rf"`k` must be an integer in \[0, {n}\]; got {n + 1}\."),
        (lambda: world.top_k_risk(1.5), rf"`k` must be an integer in \[0, {n}\]; got 1\.5\."),
        (lambda: world.average_k_risk(n + 0.5), rf"`k` must lie in \[0, {n}\]; got {n}\.5\."),
        (lambda: world.advantage(-1), "`k` must be finite and at least 0; got -1"),
        (lambda: world.top_k_risk(1, num_samples=0), "`num_samples` must be at least 1; got 0"),
        (lambda: world.sample(-1), "must be at least 0; got -1"),
        (lambda: MAKERS[name](-1), "`seed` must be an integer from 0; got -1"),
        (lambda: world.sample(3, seed=-1), "`seed` must be an integer from 0; got -1"),
        (lambda: world.advantage(1, seed=-1), "`seed` must be an integer from 0; got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"must be a whole number; got 2\.0"):
        world.sample(2.0)


HIDING = {
    "MultiLabelWorld": lambda missing, **options: MultiLabelWorld(60, missing=missing).sample(2000, seed=1, **options),
    "SceneGraphWorld": lambda missing, **options: SceneGraphWorld(6, 5).sample(2000, missing=missing, **options),
}
every_world_that_hides = pytest.mark.parametrize("name", HIDING)


def dense(target):
    return to_multi_hot(target, target.shape[1], dtype=torch.float64)


@every_world_that_hides
def test_training_labels_are_missing_at_the_asked_rate_and_all_others_are_there(name):
    data, whole = HIDING[name](0.3), HIDING[name](0.0)
    truth = dense(data.clean_targets)
    assert torch.equal(truth, dense(whole.true_targets))
    hidden = truth - dense(data.targets)
    assert ((hidden == 0) | (hidden == 1)).all()
    assert all(hidden[data.part_rows(part)].sum() == 0 for part in ("val", "test"))
    total = truth[data.part_rows("train")].sum()
    assert (hidden.sum() / total - 0.3).abs() < 4.5 * (0.21 / total).sqrt()
    everywhere = HIDING[name](0.3, split=None)
    assert torch.equal(dense(everywhere.true_targets), truth)
    assert (dense(everywhere.targets) < truth)[data.part_rows("test")].any()


@every_world_that_hides
def test_more_missing_labels_are_the_same_and_more_up_to_all(name):
    found = [HIDING[name](rate) for rate in (0.0, 0.2, 0.5, 1.0)]
    for some, more in itertools.pairwise(found):
        assert torch.equal(dense(some.true_targets), dense(more.true_targets))
        assert (dense(more.targets) <= dense(some.targets)).all()
        assert dense(more.targets).sum() < dense(some.targets).sum()
    assert torch.equal(dense(found[0].targets), dense(found[0].true_targets))
    assert found[-1].part("train").label_counts().sum() == 0
    assert HIDING[name](1.0, split=None).label_counts().sum() == 0


def test_parts_hold_their_shares_to_within_a_row():
    for rows in range(30):
        counts = parts_in_order(rows, (0.7, 0.1, 0.2)).counts()
        assert int(counts.sum()) == rows
        assert torch.allclose(counts.double(), rows * torch.tensor([0.7, 0.1, 0.2]).double(), atol=1.0)
    assert parts_in_order(5, (1.0, 0.0, 0.0)).counts().tolist() == [5, 0, 0]


WRONG: dict[type[World], list[tuple[dict, str]]] = {
    AmbiguousWorld: [
        ({"num_groups": 0}, "`num_groups` must be at least 1; got 0"),
        ({"labels_per_group": (4, 3)}, r"`labels_per_group` must have the smaller number first; got \(4, 3\)"),
        ({"dim": 0}, "`dim` must be at least 1; got 0"),
        ({"ambiguity": (2.0, 1.0)}, "`ambiguity` must be two positive numbers"),
        ({"tail": -1.0}, r"`tail` must lie in \[0, 1000\); got -1\.0"),
        ({"separation": 0.0}, "`separation` must be positive"),
    ],
    MultiLabelWorld: [
        ({"num_labels": 0}, "`num_labels` must be at least 1; got 0"),
        ({"dim": 0}, "`dim` must be at least 1; got 0"),
        ({"labels_per_row": 0.0}, r"`labels_per_row` must lie between 0 and 100; got 0\.0"),
        ({"labels_per_row": 100}, "`labels_per_row` must lie between 0 and 100; got 100"),
        ({"labels_per_row": math.nan}, "`labels_per_row` must be finite"),
        ({"tail": -0.5}, "`tail` must lie in"),
        ({"strength": 100.0}, r"`strength` must lie in \[0, 100\)"),
        ({"rarity": -1.0}, "`rarity` must be finite and at least 0"),
        ({"missing": 1.5}, r"`missing` must lie in \[0, 1\]; got 1\.5"),
        ({"missing": [0.5] * 99 + [-0.25]}, r"`missing` must lie in \[0, 1\]; got -0\.25"),
        ({"missing": math.nan}, r"`missing` must lie in \[0, 1\]; got nan"),
        ({"missing": [0.1, 0.2]}, r"`missing` must be one number or one per label, 100; got shape \(2,\)"),
    ],
    SceneGraphWorld: [
        ({"num_objects": 0}, "`num_objects` must be at least 1; got 0"),
        ({"num_predicates": 0}, "`num_predicates` must be at least 1; got 0"),
        ({"num_predicates": 2, "relations_per_pair": 2}, "`relations_per_pair` must lie between 0 and 2; got 2"),
        ({"relations_per_pair": math.nan}, "`relations_per_pair` must be finite; got nan"),
        ({"objects_per_image": (4, 2)}, r"`objects_per_image` must have the smaller .* \(4, 2\)"),
    ],
}


@pytest.mark.parametrize(("world", "options", "message"), [(w, *each) for w, cases in WRONG.items() for each in cases])
def test_wrong_options_are_refused(world, options, message):
    with pytest.raises(ValueError, match=message):
        world(**options)

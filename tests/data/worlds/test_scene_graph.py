"""A world of scene graphs: exact probabilities, and the best recall that they allow."""

import itertools
import math

import numpy as np
import pytest
import torch

from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs
from shortlist.data.worlds.scene_graph import SceneGraphWorld, _logistic
from shortlist.functional import scene_graph_recall
from shortlist.targets import count_positives, to_multi_hot

RECORDED = {
    "classes": [0, 0, 1, 0, 2, 0, 2, 1],
    "box": [123.0, 45.0, 616.0, 356.0],
    "relations": [(1, 0), (3, 0), (4, 0), (4, 2), (6, 1), (8, 0), (8, 2), (9, 2), (10, 2), (13, 0), (13, 1)],
}
WORLD = SceneGraphWorld(num_objects=6, num_predicates=5, relations_per_pair=0.8, objects_per_image=(1, 5), seed=3)


def everything(data):
    """The batch of all rows, in float64: boxes are of whole pixels, so nothing changes but the dtype of answers."""
    batch = data.inputs.batch(torch.arange(len(data)))
    return batch._replace(subject_box=batch.subject_box.double(), object_box=batch.object_box.double())


def dense(target):
    return to_multi_hot(target, target.shape[1], dtype=torch.float64)


def test_a_sample_has_the_shape_of_the_real_data():
    data = WORLD.sample(50, seed=1)
    assert data.inputs.kind == "object pairs"
    assert data.num_labels == 5
    assert data.label_names == ("predicate 1", "predicate 2", "predicate 3", "predicate 4", "predicate 5")
    assert data.inputs.object_names == tuple(f"object {i}" for i in range(1, 7))
    assert data.row_groups["image"].names[0] == "image 1"
    assert data.targets.layout == torch.sparse_csr
    assert data.split.names == ("train", "val", "test")
    assert data.clean_targets is None
    batch = everything(data)
    assert torch.equal(data.row_groups["image"].index, batch.image)
    counts = data.inputs.starts.diff()
    assert counts.min() == 1
    assert counts.max() == 5
    assert len(data) == int((counts * (counts - 1)).sum())
    for box in (batch.subject_box, batch.object_box):
        assert (box[:, :2] >= 0).all()
        assert (box[:, 2:] <= batch.image_size).all()
        assert (box[:, 2:] > box[:, :2]).all()
    assert (batch.image_size.amax(-1) == 1024).all()


def test_parts_are_whole_images_with_the_asked_shares():
    data = WORLD.sample(101, seed=1, split=(0.65, 0.25, 0.1))
    parts = [set(data.part(name).row_groups["image"].index.tolist()) for name in ("train", "val", "test")]
    assert parts[0] <= set(range(66))
    assert parts[1] <= set(range(66, 91))
    assert parts[2] <= set(range(91, 101))
    assert all(parts)
    whole = WORLD.sample(101, seed=1, split=None)
    assert whole.split is None
    assert torch.equal(dense(whole.targets), dense(data.targets))


def test_the_draws_are_the_recorded_ones():
    data = SceneGraphWorld(4, 3, relations_per_pair=1.0, objects_per_image=(2, 3), seed=0).sample(3, seed=0)
    rows, labels, _ = label_pairs(data.targets, 3)
    assert data.inputs.classes.tolist() == RECORDED["classes"]
    assert data.inputs.boxes[0].tolist() == RECORDED["box"]
    assert list(zip(rows.tolist(), labels.tolist(), strict=True)) == RECORDED["relations"]


def test_classes_are_long_tailed_in_the_stated_proportion():
    classes = WORLD.sample(8000, seed=2).inputs.classes
    share = torch.bincount(classes, minlength=6) / len(classes)
    want = torch.tensor([1 / (i + 1) for i in range(6)])
    want /= want.sum()
    assert (share - want).abs().max() < 5 * math.sqrt(0.25 / len(classes))


@pytest.mark.parametrize("mean", [0.05, 0.4, 2.0])
def test_the_mean_number_of_relations_is_the_asked_one(mean):
    world = SceneGraphWorld(num_objects=8, num_predicates=6, relations_per_pair=mean, objects_per_image=(2, 4))
    data = world.sample(4000, seed=1)
    assert world.probabilities(everything(data)).sum(-1).mean().item() == pytest.approx(mean, rel=0.06)


def test_several_relations_are_common_in_some_regions_and_rare_in_others():
    world = SceneGraphWorld()
    data = world.sample(2000, seed=0)
    batch, count = everything(data), count_positives(data.targets, data.num_labels)
    region = torch.from_numpy(world.region)[batch.subject, batch.object]
    several = [(count[region == i] > 1).double().mean().item() for i in range(3)]
    assert several[0] < 0.01
    assert several[2] > 0.3
    assert (count[region == 2] == 0).any()


def test_probabilities_depend_on_both_classes_in_order_and_on_the_geometry():
    batch = everything(WORLD.sample(30, seed=1))
    probs = WORLD.probabilities(batch)
    assert probs.dtype == torch.float64
    swapped = batch._replace(subject=batch.object, object=batch.subject)
    moved = batch._replace(object_box=batch.object_box + 100)
    for changed in (swapped, moved):
        assert not torch.allclose(probs, WORLD.probabilities(changed))
    doubled = batch._replace(
        subject_box=2 * batch.subject_box, object_box=2 * batch.object_box, image_size=2 * batch.image_size
    )
    assert torch.allclose(probs, WORLD.probabilities(doubled))
    assert torch.equal(WORLD.probabilities(batch[3:9]), probs[3:9])
    assert WORLD.probabilities(batch[:0]).shape == (0, 5)


def test_a_row_of_a_sample_is_answered_in_float32_but_drawn_by_exact_probabilities():
    data = WORLD.sample(50, seed=1)
    assert WORLD.probabilities(data.batch(range(5)).inputs).dtype == torch.float32
    assert np.array_equal(WORLD._probabilities(everything(data)), WORLD.probabilities(everything(data)).numpy())


def test_the_logistic_function_is_that_of_the_library():
    z = np.concatenate([np.linspace(-60, 60, 4001), [-1e4, 1e4, 0.0]])
    want = torch.from_numpy(z).clamp(-700, 700).sigmoid().numpy()
    np.testing.assert_allclose(_logistic(z), want, rtol=1e-13)


def test_no_answer_of_a_pair_misses_less_than_the_best_by_enumeration():
    """All outcomes and all answers of k predicates, for each sampled pair."""
    world = SceneGraphWorld(3, 4, relations_per_pair=1.0, seed=1)
    inputs = world._images(50, world._draws(0, "risk, block 0"), (2, 2))
    probs = world._probabilities(inputs.batch(torch.arange(0, 100, 2)))
    for k in (1, 2, 3):
        answers = np.array([answer for answer in itertools.product([0, 1], repeat=4) if sum(answer) == k])
        found, related = [], []
        for row in probs:
            outcomes, probability = enumerated(row)
            share = outcomes / np.maximum(1, outcomes.sum(1, keepdims=True))
            found.append((probability @ share @ answers.T).max())
            related.append(1 - probability[0])
        want = 1 - sum(found) / sum(related)
        assert world.top_k_risk(k, num_samples=50).value == pytest.approx(want, rel=1e-12)


def test_a_world_without_pairs_has_no_risk():
    with pytest.raises(ValueError, match=r"`objects_per_image` must allow .*; got \(1, 1\)\.$"):
        SceneGraphWorld(1, 1, relations_per_pair=0.5, objects_per_image=(1, 1)).top_k_risk(1)


def enumerated(probs):
    """All outcomes of the labels ``(2^n, n)`` and their probabilities."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=len(probs))), dtype=np.float64).reshape(-1, len(probs))
    return outcomes, np.where(outcomes > 0, probs, 1 - probs).prod(1)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4, 6, 100])
def test_no_answer_has_a_better_expected_recall_than_bayes_by_enumeration(k, constrained):
    """Two images with all their outcomes, and all sets of triples that may be answered."""
    world = SceneGraphWorld(3, 3, relations_per_pair=1.0, objects_per_image=(2, 2), seed=1)
    inputs = world._images(4, world._draws(0, "Bayes recall"), (2, 2))
    best, related = [], []
    for image in range(4):
        probs = world._probabilities(inputs.batch(torch.arange(2 * image, 2 * image + 2)))
        outcomes, probability = enumerated(probs.reshape(-1))
        share = outcomes / np.maximum(1, outcomes.sum(1, keepdims=True))
        answers = np.array(
            [
                answer
                for answer in itertools.product([0, 1], repeat=6)
                if sum(answer) <= k and not (constrained and max(sum(answer[:3]), sum(answer[3:])) > 1)
            ]
        )
        best.append((probability @ share @ answers.T).max())
        related.append(1 - probability[0])
    found = world.bayes_recall(k, constrained=constrained, num_images=4)
    assert found.value.item() == pytest.approx(sum(best) / sum(related), rel=1e-12)


@pytest.mark.parametrize("constrained", [False, True])
def test_true_probabilities_reach_the_bayes_recall_and_other_scores_do_not(constrained):
    ks = [1, 3, 8]
    bayes = WORLD.bayes_recall(ks, constrained=constrained, num_images=500, seed=1)
    data = WORLD.sample(1200, seed=8)
    batch = everything(data)
    probs = WORLD.probabilities(batch)
    reached = scene_graph_recall(probs, data.targets, batch.image, ks, constrained=constrained)
    related = len(batch.image[count_positives(data.targets, 5) > 0].unique())
    # The recall of an image has a standard deviation of at most 1/2.
    assert ((reached - bayes.value).abs() < 3 * (bayes.standard_error**2 + 0.25 / related).sqrt()).all()
    noise = torch.from_numpy(Draws(0, "noise").uniform(probs.numel())).reshape(probs.shape)
    worse = scene_graph_recall(probs.logit() + 8 * noise, data.targets, batch.image, ks, constrained=constrained)
    assert (worse < reached - 0.01).all()


def test_the_standard_error_is_the_spread_of_repeated_estimates():
    runs = [WORLD.bayes_recall(2, constrained=False, num_images=30, seed=seed) for seed in range(40)]
    spread = torch.stack([run.value for run in runs]).std()
    error = torch.stack([run.standard_error for run in runs]).mean()
    assert 0.7 < (spread / error).item() < 1.4  # 40 runs know a spread to about 11%.
    assert runs[0].value.shape == ()


def test_the_bayes_recall_rises_with_k_to_one_and_falls_with_the_constraint():
    free = WORLD.bayes_recall([1, 5, 20, 100], constrained=False, num_images=50)
    bound = WORLD.bayes_recall([1, 5, 20, 100], constrained=True, num_images=50)
    assert (free.value.diff() > 0).all()
    assert free.value[-1].item() == pytest.approx(1)
    assert (bound.value <= free.value + 1e-12).all()
    assert bound.value[-1] < 0.9


def test_small_worlds_work():
    lonely = SceneGraphWorld(1, 1, relations_per_pair=0.5, objects_per_image=(1, 1))
    assert len(lonely.sample(5, seed=0)) == 0
    assert lonely.bayes_recall(1, constrained=True, num_images=3).value.isnan()
    assert len(WORLD.sample(0, seed=0)) == 0
    single = WORLD.sample(1, seed=0)
    assert set(single.split.index.tolist()) <= {0}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: WORLD.sample(5, missing=1.5), r"`missing` must lie in \[0, 1\]; got 1\.5"),
        (lambda: WORLD.bayes_recall(0, constrained=True), "`k`"),
        (
            lambda: WORLD.bayes_recall(3, constrained=True, num_images=1),
            "`num_images` must be at least 2",
        ),
    ],
)
def test_bad_options_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_pairs_that_the_world_does_not_have_are_refused():
    batch = everything(WORLD.sample(5))
    with pytest.raises(TypeError, match=r"`x` must be a PairBatch; got Tensor\."):
        WORLD.probabilities(batch.subject_box)
    with pytest.raises(TypeError, match=r"`x` must have floating boxes; got torch\.int64 and torch\.float64\."):
        WORLD.probabilities(batch._replace(subject_box=batch.subject_box.long()))
    with pytest.raises(ValueError, match=r"`x` must be a batch of pairs, with classes \(B,\); got \(\)\."):
        WORLD.probabilities(batch[0])
    for classes in (-1, 6):
        with pytest.raises(ValueError, match=rf"`x` must have classes in \[0, 6\); got {classes}\."):
            WORLD.probabilities(batch._replace(object=torch.full_like(batch.object, classes)))

"""A world of scene graphs: exact probabilities, and the best recall that they allow."""

import itertools
import math

import numpy as np
import pytest
import torch

from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs
from shortlist.data.worlds.scene_graph import SceneGraphWorld, _logistic, recall_gains
from shortlist.functional import scene_graph_recall
from shortlist.targets import count_positives, to_multi_hot

RECORDED = {
    "classes": [0, 0, 1, 0, 2, 0, 2, 1],
    "box": [123.0, 45.0, 616.0, 356.0],
    "relations": [(1, 0), (3, 0), (4, 0), (4, 2), (6, 1), (8, 0), (8, 2), (9, 2), (10, 2), (13, 0), (13, 1)],
}
WORLD = SceneGraphWorld(num_objects=6, num_predicates=5, relations_per_pair=0.8, objects_per_image=(1, 5), seed=3)


def everything(data):
    """The batch of all rows."""
    return data.inputs.batch(torch.arange(len(data)))


def dense(target):
    return to_multi_hot(target, target.shape[1], dtype=torch.float64)


def test_a_sample_has_the_shape_of_the_real_data():
    data = WORLD.sample(50, seed=1)
    assert data.inputs.kind == "object pairs"
    assert data.num_labels == 5
    assert len(data.inputs.object_names) == 6
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
    data = WORLD.sample(101, seed=1, val=0.25, test=0.1)
    parts = [set(data.part(name).row_groups["image"].index.tolist()) for name in ("train", "val", "test")]
    assert parts[0] <= set(range(66))
    assert parts[1] <= set(range(66, 91))
    assert parts[2] <= set(range(91, 101))
    assert all(parts)


def test_the_same_seeds_give_the_same_world_and_others_another():
    a, b = WORLD.sample(20, seed=1), WORLD.sample(20, seed=1)
    twin = SceneGraphWorld(6, 5, relations_per_pair=0.8, objects_per_image=(1, 5), seed=3).sample(20, seed=1)
    other = SceneGraphWorld(6, 5, relations_per_pair=0.8, objects_per_image=(1, 5), seed=4).sample(20, seed=1)
    for same in (b, twin):
        assert torch.equal(same.inputs.boxes, a.inputs.boxes)
        assert torch.equal(dense(same.targets), dense(a.targets))
    for different in (WORLD.sample(20, seed=2), other):
        assert not torch.equal(different.inputs.boxes[:5], a.inputs.boxes[:5])


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


def test_relations_occur_as_often_as_the_probabilities_say():
    data = WORLD.sample(6000, seed=5)
    probs, truth = WORLD.probabilities(everything(data)), dense(data.targets)
    for low, high in itertools.pairwise([0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0]):
        cells = (probs >= low) & (probs < high)
        error = (probs * (1 - probs))[cells].sum().sqrt() / cells.sum()
        assert (truth[cells].mean() - probs[cells].mean()).abs() < 4.5 * error
    for predicate in range(5):
        p = probs[:, predicate]
        error = (p * (1 - p)).sum().sqrt()
        assert (truth[:, predicate].sum() - p.sum()).abs() < 4.5 * error


def test_predicates_of_a_pair_are_independent():
    data = WORLD.sample(6000, seed=6)
    probs, truth = WORLD.probabilities(everything(data)), dense(data.targets)
    for a, b in itertools.combinations(range(5), 2):
        both = probs[:, a] * probs[:, b]
        assert ((truth[:, a] * truth[:, b]).sum() - both.sum()).abs() < 4.5 * (both * (1 - both)).sum().sqrt()


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


def test_the_logistic_function_is_that_of_the_library():
    z = np.concatenate([np.linspace(-60, 60, 4001), [-1e4, 1e4, 0.0]])
    want = torch.from_numpy(z).clamp(-700, 700).sigmoid().numpy()
    np.testing.assert_allclose(_logistic(z), want, rtol=1e-13)


def test_missing_relations_are_those_of_the_training_part_at_the_asked_rate():
    data, full = WORLD.sample(4000, seed=7, missing=0.3), WORLD.sample(4000, seed=7)
    assert torch.equal(dense(data.clean_targets), dense(full.targets))
    assert torch.equal(data.true_targets.values(), full.targets.values())
    hidden = dense(data.clean_targets) - dense(data.targets)
    assert ((hidden == 0) | (hidden == 1)).all()
    for name in ("val", "test"):
        assert hidden[data.part_rows(name)].sum() == 0
    total = dense(data.clean_targets)[data.part_rows("train")].sum()
    assert (hidden.sum() / total - 0.3).abs() < 4.5 * (0.21 / total).sqrt()
    none = WORLD.sample(50, seed=7, missing=1.0)
    assert none.part("train").label_counts().sum() == 0


def enumerated(probs):
    """All outcomes of the labels ``(2^n, n)`` and their chances."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=len(probs))), dtype=np.float64).reshape(-1, len(probs))
    return outcomes, np.where(outcomes > 0, probs, 1 - probs).prod(1)


@pytest.mark.parametrize("size", [1, 2, 5, 10])
def test_gains_are_expected_recalls_by_enumeration(size):
    probs = Draws(size, "test").uniform(size)
    outcomes, chance = enumerated(probs)
    want = (outcomes / np.maximum(1, outcomes.sum(1, keepdims=True)) * chance[:, None]).sum(0)
    np.testing.assert_allclose(recall_gains(torch.from_numpy(probs)).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("level", [0.02, 0.5, 1.0])
def test_gains_of_many_labels_agree_with_the_law_of_the_number_of_the_others(level):
    probs = level * Draws(1, "test").uniform(600)
    probs[:3] = [0.0, 1.0, level]
    gains = recall_gains(torch.from_numpy(probs)).numpy()
    for label in (0, 1, 2, 17, 599):
        law = np.ones(1)
        for other in np.delete(probs, label):
            law = np.convolve(law, [1 - other, other])
        want = probs[label] * (law / np.arange(1, len(law) + 1)).sum()
        assert gains[label] == pytest.approx(want, rel=1e-11, abs=1e-15)
    assert gains.sum() == pytest.approx(1 - np.prod(1 - probs))


def test_gains_order_labels_as_their_probabilities_do():
    probs = torch.from_numpy(Draws(2, "test").uniform(40))
    assert torch.equal(recall_gains(probs).argsort(), probs.argsort())


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4, 6, 100])
def test_no_answer_has_a_better_expected_recall_than_bayes_by_enumeration(k, constrained):
    """Two images with all their outcomes, and all sets of triples that may be answered."""
    world = SceneGraphWorld(3, 3, relations_per_pair=1.0, objects_per_image=(2, 2), seed=1)
    inputs = world._images(4, 0, "Bayes recall", (2, 2))
    best, related = [], []
    for image in range(4):
        probs = world.probabilities(inputs.batch(torch.arange(2 * image, 2 * image + 2))).numpy()
        outcomes, chance = enumerated(probs.reshape(-1))
        share = outcomes / np.maximum(1, outcomes.sum(1, keepdims=True))
        answers = np.array(
            [
                answer
                for answer in itertools.product([0, 1], repeat=6)
                if sum(answer) <= k and not (constrained and max(sum(answer[:3]), sum(answer[3:])) > 1)
            ]
        )
        best.append((chance @ share @ answers.T).max())
        related.append(1 - chance[0])
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
        (lambda: SceneGraphWorld(0), "`num_objects` must be a whole number from 1; got 0"),
        (lambda: SceneGraphWorld(3, 2.5), "`num_predicates` must be a whole number from 1; got 2.5"),
        (lambda: SceneGraphWorld(3, 2, relations_per_pair=2), r"`relations_per_pair` must lie in \(0, 2\); got 2"),
        (lambda: SceneGraphWorld(3, 2, objects_per_image=(4, 2)), r"`objects_per_image` must rise from .*\(4, 2\)"),
        (lambda: SceneGraphWorld(seed=-1), "`seed` must be a whole number from 0; got -1"),
        (lambda: WORLD.sample(-1, seed=0), "`num_images` must be a whole number from 0; got -1"),
        (lambda: WORLD.sample(5, seed=0, missing=1.5), r"`missing` must lie in \[0, 1\]; got 1.5"),
        (lambda: WORLD.sample(5, seed=0, val=0.6, test=0.6), "`val` and `test` must sum to at most 1; got 0.6 and 0.6"),
        (lambda: WORLD.bayes_recall(0, constrained=True), "`k`"),
        (lambda: WORLD.bayes_recall(3, constrained=True, num_images=1), "`num_images` must be a whole number from 2"),
    ],
)
def test_bad_options_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()

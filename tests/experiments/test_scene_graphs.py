"""Scene graphs and timing: files round-trip, losses see the right entries, verdicts mean what they say."""

import math

import pytest
import torch

from experiments.scene_graph_model import (
    GraphFit,
    Predicates,
    Scenes,
    graph_loss,
    joint_entries,
    log_frequencies,
    write_visual_genome,
)
from experiments.scene_graphs import no_worse, open_graphs, trial
from experiments.timing import bounded, epoch_times, loss_times
from shortlist.data import Dataset, Features, SceneGraphWorld, read_visual_genome
from shortlist.data.target_rows import label_pairs
from shortlist.evidence import at_most
from shortlist.functional import lml_nll

DATA = {
    "world": {"num_objects": 4, "num_predicates": 3, "relations_per_pair": 0.5, "objects_per_image": [2, 4]},
    "images": 30,
    "test": 0.2,
    "reader": {"val_images": 5},
}
FIT = {"epochs": 2, "batch_size": 4, "width": 8, "embedding": 4, "watched": 5, "learning_rate": 0.01}


def world(seed=0):
    return SceneGraphWorld(4, 3, relations_per_pair=0.5, objects_per_image=(2, 4), seed=seed)


def described(graphs):
    """Image, classes, boxes, image size and predicate of every relation."""
    rows, labels, _ = label_pairs(graphs.targets, graphs.num_labels)
    batch = graphs.inputs.batch(rows)
    split = [graphs.split.names[part] for part in graphs.split.index[rows].tolist()]
    names = [graphs.row_groups["image"].names[i] for i in batch.image.tolist()]
    fields = (batch.subject, batch.object, batch.subject_box, batch.object_box, batch.image_size, labels)
    return list(zip(names, split, *(field.tolist() for field in fields), strict=True))


def test_a_world_comes_back_from_its_files(tmp_path):
    graphs = world().sample(40, seed=3, split=(0.5, 0.2, 0.3))
    read = read_visual_genome(write_visual_genome(graphs, tmp_path), val_images=0)
    assert read.label_names == graphs.label_names
    assert read.inputs.object_names == graphs.inputs.object_names
    expected = [(name.removeprefix("image "), *rest) for name, *rest in described(graphs)]
    assert described(read) == expected
    assert {name for _, name, *_ in expected} == {"train", "val", "test"}


def test_only_pairs_of_objects_are_written(tmp_path):
    rows = Dataset(Features(torch.zeros(2, 1)), torch.tensor([0, 1]), ("a", "b"))
    with pytest.raises(TypeError, match="`dataset` must have all pairs of objects as rows; got"):
        write_visual_genome(rows, tmp_path)


def test_every_seed_has_a_world_of_its_own(tmp_path):
    first, second = (open_graphs(DATA, tmp_path, seed=seed) for seed in (0, 1))
    assert first.split.names == ("train", "val", "test")
    assert described(first) != described(second)


def test_frequencies_count_relations_and_pairs_without_any(tmp_path):
    graphs = open_graphs(DATA, tmp_path, seed=0)
    table = log_frequencies(graphs)
    part = graphs.part("train")
    batch, hot = part.inputs.batch(torch.arange(len(part))), part.targets.to_dense()
    own = (batch.subject == 0) & (batch.object == 1)
    counts = torch.cat([hot[own].sum(0), (hot[own].sum(-1) == 0).sum().unsqueeze(0)]) + 1
    assert torch.allclose(table[0, 1].exp(), counts / counts.sum())


def test_joint_losses_see_all_entries_of_an_image_and_no_others(tmp_path):
    graphs = open_graphs(DATA, tmp_path, seed=0)
    scenes = Scenes(graphs, "train")
    scene = scenes.batch([0, 1, 2])
    torch.manual_seed(0)
    logits = torch.randn(len(scene.hot), 4)
    joint, hot = joint_entries(logits[:, :-1], scene)
    assert hot.sum() == scene.hot.sum()
    expected = 0.0
    for image in range(3):
        mine = scene.image == image
        own = logits[mine][:, :-1].reshape(1, -1)
        assert torch.equal(joint[image][joint[image] > -math.inf], own[0])
        expected += lml_nll(own, scene.hot[mine].reshape(1, -1), min(3, own.shape[-1]))
    loss = graph_loss(logits, scene, GraphFit(loss="lml_nll", k=3))
    assert torch.allclose(loss, expected / scene.hot.sum())


def test_images_without_relations_are_left_out():
    graphs = world().sample(60, seed=1)
    kept = Scenes(graphs, "train")
    assert 0 < len(kept) < 36
    assert all(kept.batch([i]).hot.sum() > 0 for i in range(len(kept)))
    assert len(Scenes(graphs, "train", most=4)) == 4


def test_an_unknown_loss_is_refused(tmp_path):
    graphs = open_graphs(DATA, tmp_path, seed=0)
    scene = Scenes(graphs, "train").batch([0])
    logits = Predicates(log_frequencies(graphs), width=4, embedding=2)(scene.pairs)
    with pytest.raises(ValueError, match="`loss` must be softmax, lml_nll or truncated; got 'hinge'"):
        graph_loss(logits, scene, GraphFit(loss="hinge"))  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["softmax", "lml_nll", "truncated"])
def test_a_trial_tells_test_figures_only_when_asked(tmp_path, loss):
    asked = {"data": DATA, "fit": {**FIT, "loss": loss, "k": 5}, "seed": 0}
    tuning, final = (trial({**asked, "part": part}, tmp_path) for part in ("val", "test"))
    assert not any(name.startswith("test") for name in tuning)
    assert 0 < final["test_constrained_20"] <= final["test_unconstrained_20"] <= 1
    assert {**tuning, **{k: v for k, v in final.items() if k.startswith("test")}} == final
    assert len(final["curves"]["val"]) == 2


def test_no_worse_allows_a_point():
    names = ("a", "b")
    assert no_worse([0.5, 0.6], [0.505, 0.605], "R@50", names).verdict == "holds"
    assert no_worse([0.5, 0.6], [0.55, 0.65], "R@50", names).verdict == "does not hold"


def test_too_large_a_share_decides_nothing_with_a_small_network():
    finding = at_most([1.3, 1.31, 1.29], 1.1, name="r", unit="")
    assert bounded(finding, small_network=False) == finding
    assert bounded(finding, small_network=True).verdict == "not decidable"


def test_times_have_a_number_for_every_loss_and_shape(tmp_path):
    names = ["cross-entropy", "LML, plain", "noised, M = 3"]
    times = loss_times({"rows": 4, "shapes": [[10, 2], [12, 3]], "losses": names, "turns": 2, "seed": 0}, tmp_path)
    assert all(0 < forward <= both for name in names for forward, both in _pairs(times, name))
    epoch = {"network": {"width": 4}, "rows": 8, "batch_size": 4, "labels": 10, "ks": [1, 2], "losses": names}
    found = epoch_times({**epoch, "seed": 0}, tmp_path)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(names, 2)


def _pairs(times, name):
    return zip(times["forward"][name], times["both"][name], strict=True)

"""Training with a head of label clusters, from the labels' clusters to predictions of a saved model."""

from dataclasses import replace

import pytest
import torch

from shortlist.data import Dataset, Features, Groups, SparseRows
from shortlist.data.target_rows import sparse_targets
from shortlist.errors import InputError
from shortlist.nn import ClusterHead
from shortlist.train import FitOptions, evaluate, export_onnx, fit, load_model, save_model
from shortlist.train.label_clusters import cluster_labels
from shortlist.train.model.starting_point import start_at_frequencies

N, WIDTH, ROWS = 64, 360, 600
CLUSTERS = {"head": "clusters", "head_options": {"cluster_size": 8, "beam": 3}}


def words(seed: int = 0) -> Dataset:
    """Rows with five words of their topic and of each of their two labels, which belong to one of eight topics."""
    generator = torch.Generator().manual_seed(seed)
    topics = torch.randint(8, (ROWS,), generator=generator)
    labels = topics[:, None] + 8 * torch.stack([torch.randperm(8, generator=generator)[:2] for _ in range(ROWS)])
    groups = torch.cat([labels.sort(1).values, N + topics[:, None]], 1)
    columns = (5 * groups[..., None] + torch.arange(5)).flatten()
    inputs = SparseRows(15 * torch.arange(ROWS + 1), columns, torch.full((15 * ROWS,), 0.25), WIDTH)
    target = sparse_targets(torch.arange(ROWS).repeat_interleave(2), labels.flatten(), ROWS, N)
    parts = Groups.of(["train", "train", "train", "val", "test"] * (ROWS // 5))
    return Dataset(inputs, target, tuple(f"label {label}" for label in range(N)), split=parts)


def options(**given) -> FitOptions:
    usual = {"encoder": "bag", "encoder_options": {"dim": 32}, "k": 2, "epochs": 12, "learning_rate": 0.03}
    return FitOptions(**{**usual, **CLUSTERS, **given})


def test_labels_that_occur_in_similar_rows_share_a_cluster():
    data = words().part("train")
    head = ClusterHead(4, N, cluster_size=8, beam=1)
    cluster_labels(head, data, seed=0)
    assert all(len(cluster.remainder(8).unique()) == 1 for cluster in head.members)
    before = head.members.clone()
    cluster_labels(head, data, seed=0)
    assert torch.equal(head.members, before)
    dense = replace(data, inputs=Features(data.inputs.batch(torch.arange(len(data))).to_dense()))
    cluster_labels(head, dense, seed=0)
    assert torch.equal(head.members, before)


def test_a_head_of_clusters_starts_at_the_label_frequencies():
    head, counts = ClusterHead(4, N, cluster_size=8, beam=3), torch.arange(N) + 1
    start_at_frequencies(head, counts, 100)
    logits = head(torch.zeros(2, 4))
    wanted = ((counts + 0.5) / (100.5 - counts)).log()
    assert torch.allclose(torch.where(logits.isfinite(), logits - wanted, 0.0), torch.zeros(2, N), atol=1e-4)
    # Of clusters of ranges, the last ones have the frequent labels.
    assert logits[0].isfinite().nonzero().flatten().tolist() == list(range(40, 64))


@pytest.mark.parametrize("loss", ["bce", "lml_nll", "multilabel_softmax"])
def test_it_learns_with_the_losses_of_the_library(loss):
    data = words()
    fitted = fit(data, options(loss=loss))
    found = evaluate(fitted, data)
    assert found.values["recall@2"] > 0.9
    assert ((found.logits > -torch.inf).sum(1) == 24).all()
    assert found.values["recall@2"] == pytest.approx(fitted.history[fitted.best_epoch]["recall@2"], abs=0.1)


def test_a_run_is_reproducible_and_a_saved_model_predicts_the_same(tmp_path):
    data, quick = words(), options(epochs=2)
    fitted, again = fit(data, quick), fit(data, quick)
    first = evaluate(fitted, data)
    assert torch.equal(first.logits, evaluate(again, data).logits)
    save_model(fitted, tmp_path / "model", rule=first.rule)
    saved = load_model(tmp_path / "model")
    assert torch.equal(saved.scores(data.part("test")), first.logits)
    assert torch.equal(saved.rule(first.logits), first.rule(first.logits))


def test_validation_during_training_is_that_of_all_labels():
    data = words()
    fitted = fit(data, options(epochs=1))
    values = evaluate(fitted, data, part="val").values
    history = fitted.history[-1]
    assert {name: history[name] for name in history if "@" in name} == pytest.approx(
        {name: value for name, value in values.items() if "@" in name}
    )


def test_dense_features_can_be_clustered_but_not_exported(tmp_path):
    data = words()
    dense = replace(data, inputs=Features(data.inputs.batch(torch.arange(ROWS)).to_dense()))
    fitted = fit(dense, options(encoder="linear", encoder_options={}, epochs=1))
    saved = load_model(save_model(fitted, tmp_path / "model"))
    assert saved.scores(dense.part("test")).isfinite().sum(1).eq(24).all()
    with pytest.raises(InputError, match="`saved` must have a head other than clusters to be exported"):
        export_onnx(saved, tmp_path / "model.onnx")


def test_one_class_per_row_is_trained_with_cross_entropy():
    data = words()
    classes = data.targets.col_indices().reshape(ROWS, 2)[:, 0]
    fitted = fit(replace(data, targets=classes), options(loss="auto", epochs=5))
    assert fitted.plan.loss == "cross_entropy"
    assert evaluate(fitted, replace(data, targets=classes)).values["top2_error"] < 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "two_way"}, "`loss` must act on the candidates of a row with `head` 'clusters': .*; got 'two_way'"),
        ({"loss_options": {"weight": torch.ones(N)}}, "`loss_options` must not have a value per label"),
        ({"optimizer": "sgd"}, "`optimizer` and `precision` must be adamw and not 16-mixed"),
        ({"processes": 2}, "`processes` and `nodes` must be 1 with `head` 'clusters'"),
        ({"k": 30}, "`head_options` must give a row more candidates than `k` 30 and 5.*got 24 of 3 clusters"),
        ({"monitor": "map"}, "`monitor` map needs the scores of all labels, which `head` 'clusters' does not compute"),
        ({"head_options": {"beams": 3}}, "`head_options` of 'clusters' must be among .*beams"),
        ({"head_options": {"beam": 0}}, "`head` 'clusters': `beam` must be at least 1; got 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(given, message):
    with pytest.raises(InputError, match=message):
        fit(words(), options(**given))

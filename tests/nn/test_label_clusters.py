"""The head of label clusters: candidates, losses and metrics on them, against the logits of all labels."""

import pytest
import torch
from torch import Tensor

from shortlist.factory import LOSSES, make_loss
from shortlist.metrics import AverageKAccuracy, RankingMetrics, TopKAccuracy
from shortlist.nn import CandidateLogits, ClusterHead, Task

N, IN, ROWS = 23, 5, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def head(**options) -> ClusterHead:
    torch.manual_seed(0)
    made = ClusterHead(IN, N, **{"cluster_size": 4, "beam": 3, **options})
    made.cluster(drawn(N, 7))
    with torch.no_grad():
        made.labels.bias.copy_(drawn(*made.labels.bias.shape))
    return made


def by_hand(layer: ClusterHead, features: Tensor, chosen: Tensor) -> Tensor:
    """The formula, label by label; ``chosen`` has the clusters of each row."""
    of_clusters = layer.clusters(features)
    logits = torch.full((len(features), layer.num_labels), -torch.inf)
    for row in range(len(features)):
        for cluster in chosen[row].tolist():
            for slot, label in enumerate(layer.members[cluster].tolist()):
                if label >= 0:
                    own = layer.labels.weight[cluster, slot] @ features[row] + layer.labels.bias[cluster, slot]
                    logits[row, label] = own + of_clusters[row, cluster].sigmoid().log()
    return logits


def test_the_candidates_are_the_labels_of_the_best_clusters():
    layer, features = head(), drawn(ROWS, IN, seed=1)
    wanted = by_hand(layer, features, layer.clusters(features).topk(3).indices)
    assert torch.allclose(layer(features), wanted, atol=1e-6)
    candidates = layer.candidates(features)
    assert candidates.values.shape == candidates.labels.shape == (ROWS, 9)
    assert torch.allclose(layer(features[:1]), wanted[:1], atol=1e-6)  # in any batch
    assert layer(features[:0]).shape == (0, N)


def test_with_a_beam_of_all_clusters_every_label_is_a_candidate():
    layer, features = head(beam=99), drawn(ROWS, IN, seed=1)
    assert layer.beam == len(layer.members) == 8
    assert layer(features).isfinite().all()


def test_training_adds_the_clusters_of_true_labels_and_teaches_the_clusters():
    layer, features = head(beam=1), drawn(ROWS, IN, seed=1)
    target = torch.tensor([[0, 1, 2], [3, -1, -1], [4, 22, -1], [5, 6, 7], [-1, -1, -1], [8, 9, -1]])
    candidates, loss = layer.training_logits(features, target)
    cluster_of = layer.place // layer.members.shape[1]
    of_clusters = layer.clusters(features)
    true = torch.zeros_like(of_clusters)
    for row, labels in enumerate(target.tolist()):
        true[row, [int(cluster_of[label]) for label in labels if label >= 0]] = 1
    chosen = [set(true[row].nonzero().flatten().tolist()) | {int(of_clusters[row].argmax())} for row in range(ROWS)]
    wanted = torch.cat([by_hand(layer, features[[i]], torch.tensor([sorted(chosen[i])])) for i in range(ROWS)])
    assert torch.allclose(candidates.dense(), wanted, atol=1e-6)
    probs = of_clusters.sigmoid()
    assert torch.allclose(loss, -(true * probs.log() + (1 - true) * (1 - probs).log()).sum() / ROWS)
    (candidates.renumbered(target)[0].exp().sum() + loss).backward()
    assert layer.labels.weight.grad.is_sparse
    touched = sorted(set().union(*chosen))
    assert layer.labels.weight.grad.coalesce().indices()[0].tolist() == touched


def some_candidates() -> CandidateLogits:
    labels = torch.stack([torch.randperm(N, generator=torch.Generator().manual_seed(row))[:9] for row in range(ROWS)])
    values = 2 * drawn(ROWS, 9)
    labels[2, -1], values[2, -1] = -1, -torch.inf
    return CandidateLogits(values, labels, N)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.takes_candidates])
def test_losses_that_take_candidates_have_the_value_of_all_labels(name):
    candidates = some_candidates()
    target = candidates.labels[:, 4] if LOSSES[name].one_class else candidates.labels[:, [1, 4, 6]]
    loss = make_loss(name, Task(N, torch.ones(N), 100, k=2), {"reduction": "sum"})
    if name == "noised_topk":  # the noise of a label depends on how many there are
        loss = make_loss(name, Task(N, torch.ones(N), 100, k=2), {"reduction": "sum", "epsilon": 1e-9})
    assert torch.allclose(loss(*candidates.renumbered(target)), loss(candidates.dense(), target), rtol=1e-5)


def test_losses_that_do_not_take_candidates_say_so():
    # They have a parameter or option per label, compare rows within a label, or depend on the number of labels.
    wanted = {"average_k", "ldam", "noised_topk_imbalanced", "assume_negative", "role", "two_way"}
    assert {name for name, loss in LOSSES.items() if not loss.takes_candidates} == wanted
    assert not LOSSES["two_way"].describe()["takes_candidates"]


def test_metrics_of_candidates_are_those_of_all_labels_with_missed_positives():
    candidates = some_candidates()
    missing = [next(label for label in range(N) if label not in row) for row in candidates.labels.tolist()]
    sets = torch.stack([candidates.labels[:, 3], torch.tensor(missing), candidates.labels[:, 0]], 1)
    sets[1, 1:] = -1
    classes = torch.where(torch.arange(ROWS) % 2 == 0, candidates.labels[:, 5], torch.tensor(missing))
    for metric, target in ((RankingMetrics((1, 3)), sets), (TopKAccuracy(3), classes), (AverageKAccuracy(2), classes)):
        found, wanted = metric(*candidates.renumbered(target)), metric(candidates.dense(), target)
        if not isinstance(found, dict):
            found, wanted = {"value": found}, {"value": wanted}
        assert {name: float(value) for name, value in found.items()} == pytest.approx(
            {name: float(value) for name, value in wanted.items()}
        )


def test_unknown_labels_stay_unknown_and_absent_ones_are_left_out():
    candidates = CandidateLogits(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[3, 0, 1]]), 5)
    target = torch.tensor([[-1.0, 1.0, -1.0, 0.0, 1.0]])
    logits, hot = candidates.renumbered(target)
    assert logits.tolist() == [[2.0, 1.0, 0.0, -torch.inf]]
    assert hot.tolist() == [[0.0, -1.0, 1.0, 1.0]]
    assert candidates.renumbered(torch.zeros(1, 5))[1].tolist() == [[0.0, 0.0, 0.0]]


def test_a_reloaded_head_has_the_same_clusters_and_logits():
    layer, features = head(), drawn(ROWS, IN)
    other = ClusterHead(IN, N, cluster_size=4, beam=3)
    assert not torch.equal(other.place, layer.place)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.place, layer.place)
    assert torch.equal(other(features), layer(features))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClusterHead(5, 9, cluster_size=0), "`cluster_size` must be at least 1; got 0"),
        (lambda: ClusterHead(5, 9, beam=0), "`beam` must be at least 1; got 0"),
        (
            lambda: ClusterHead(5, 9).cluster(torch.zeros(8, 2)),
            "`vectors` must have one row for each of 9 labels; got 8",
        ),
        (lambda: ClusterHead(5, 9)(torch.zeros(2, 4)), "`features` must have last size 5"),
    ],
)
def test_bad_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

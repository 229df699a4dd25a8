"""Hierarchical precision and recall: sets of labels and of nodes, and what is refused."""

import pytest
import torch

from shortlist.functional import hierarchical_counts, hierarchical_precision, hierarchical_recall
from shortlist.sets import PredictionSets, collapse
from shortlist.taxonomy import taxonomy_from_groups, taxonomy_from_parents

TREES = taxonomy_from_groups(
    ["robur", "ilex", "sylvatica", "excelsior"],
    {"family": ["Fagaceae"] * 3 + ["Oleaceae"], "genus": ["Quercus", "Quercus", "Fagus", "Fraxinus"]},
)
ROBUR, ILEX, SYLVATICA, EXCELSIOR = range(4)


def node(*names: str) -> torch.Tensor:
    return torch.tensor([[name in names for name in TREES.names]])


@pytest.mark.parametrize(
    ("answer", "precision", "recall"),
    [
        (("robur",), 1, 1),
        (("ilex",), 2 / 3, 2 / 3),
        (("sylvatica",), 1 / 3, 1 / 3),
        (("excelsior",), 0, 0),
        (("Quercus",), 1, 2 / 3),
        (("Fagaceae",), 1, 1 / 3),
        (("robur", "excelsior"), 1 / 2, 1),
        (("robur", "Quercus"), 1, 1),
        (("anything",), float("nan"), 0),
        ((), float("nan"), 0),
    ],
)
def test_the_closer_the_answer_the_more_it_counts(answer, precision, recall):
    target = torch.tensor([ROBUR])
    assert float(hierarchical_precision(node(*answer), target, TREES)) == pytest.approx(precision, nan_ok=True)
    assert float(hierarchical_recall(node(*answer), target, TREES)) == pytest.approx(recall)


def test_masks_of_labels_of_nodes_and_sets_with_entries_give_the_same():
    generator = torch.Generator().manual_seed(0)
    mask, target = torch.rand(50, 4, generator=generator) < 0.5, torch.rand(50, 4, generator=generator) < 0.4
    wide = torch.nn.functional.pad(mask, (0, len(TREES) - 4))
    wanted = hierarchical_counts(mask, target, TREES)
    for sets in (mask.numpy(), wide, PredictionSets.from_mask(mask), PredictionSets.from_mask(wide)):
        assert hierarchical_counts(sets, target, TREES) == wanted
    named = hierarchical_counts(collapse(PredictionSets.from_mask(mask), TREES), target, TREES)
    assert named.predicted < wanted.predicted  # a genus in place of all its species


def test_each_node_of_a_dag_counts_once():
    dag = taxonomy_from_parents({"a": ["x", "y"], "b": "y", "x": "top", "y": "top"})
    counts = hierarchical_counts(torch.tensor([[True, True]]), torch.tensor([0]), dag)
    assert [float(count) for count in counts] == [3, 4, 3]


def test_what_does_not_fit_is_one_sentence():
    sets, target = torch.ones(2, 4, dtype=torch.bool), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="`sets` must be of 4 labels or 10 nodes; got 5"):
        hierarchical_precision(torch.ones(2, 5, dtype=torch.bool), target, TREES)
    with pytest.raises(ValueError, match="`sets` must be bool"):
        hierarchical_precision(torch.ones(2, 4), target, TREES)
    with pytest.raises(ValueError, match="`target` must have the 2 rows of `sets`"):
        hierarchical_recall(sets, target[:1], TREES)
    with pytest.raises(ValueError, match="label 4 must lie in"):
        hierarchical_recall(sets, torch.tensor([0, 4]), TREES)
    with pytest.raises(TypeError, match="`taxonomy` must be a Taxonomy; got NoneType"):
        hierarchical_counts(sets, target, None)

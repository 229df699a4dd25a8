"""Sets of labels as sets of nodes and back, against all sets of nodes of small trees."""

import itertools

import pytest
import torch

from shortlist.sets import PredictionSets, collapse, expand
from shortlist.taxonomy import taxonomy_from_parents
from tests.sets.random_taxonomies import labels_below, random_taxonomy
from tests.sets.rules import DAG, LABELS, TREE
from tests.sets.worlds import seeded


def all_sets(labels: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product([False, True], repeat=labels)))


@pytest.mark.parametrize("extra", [0, 3], ids=["tree", "DAG"])
@pytest.mark.parametrize("seed", range(12))
def test_no_fewer_nodes_hold_exactly_these_labels(seed, extra):
    taxonomy = random_taxonomy(seed, 1 + seed % 5, extra=extra)
    below, masks = labels_below(taxonomy), all_sets(1 + seed % 5)
    found = collapse(PredictionSets.from_mask(masks), taxonomy)
    for i, row in enumerate(masks.tolist()):
        wanted = {label for label, inside in enumerate(row) if inside}
        nodes = found.labels[found.indptr[i] : found.indptr[i + 1]].tolist()
        assert set().union(*(below[node] for node in nodes)) == wanted
        full = [inside for inside in below if inside and inside <= wanted]
        most = {frozenset(inside) for inside in full if not any(inside < other for other in full)}
        assert {frozenset(below[node]) for node in nodes} == most, "the largest nodes that fit"
        if taxonomy.is_tree:
            assert len(nodes) == len(most)
            fewest = next(
                k for k in range(6) for some in itertools.combinations(full, k) if set().union(*some) == wanted
            )
            assert len(nodes) == fewest


@pytest.mark.parametrize("taxonomy", [TREE, DAG], ids=["tree", "DAG"])
def test_expand_takes_back_what_collapse_did(taxonomy):
    masks = all_sets(LABELS)
    sets = PredictionSets.from_mask(masks)
    assert torch.equal(expand(collapse(sets, taxonomy), taxonomy).to_mask(), masks)
    for depth in range(4):
        assert (expand(collapse(sets, taxonomy, depth=depth), taxonomy).to_mask() >= masks).all()


def test_of_nodes_with_the_same_labels_the_most_specific_is_named():
    chain = taxonomy_from_parents(
        {"robur": "Quercus", "Quercus": "Fagaceae", "ash": "Oleaceae", "Fagaceae": "all", "Oleaceae": "all"}
    )
    sets = PredictionSets.from_mask(torch.tensor([[True, False], [False, True], [True, True], [False, False]]))
    assert collapse(sets, chain).to_list() == [["robur"], ["ash"], ["all"], []]


def test_labels_that_are_absent_need_not_be_in_the_set():
    oaks = taxonomy_from_parents(
        {"robur": "Quercus", "ilex": "Quercus", "rubra": "Quercus", "ash": "tree", "Quercus": "tree"}
    )
    sets = PredictionSets.from_mask(torch.tensor([[True, True, False, False]] * 4))
    absent = torch.tensor(
        [[False] * 4, [False, False, True, False], [False, False, True, True], [False, False, False, True]]
    )
    found = collapse(sets, oaks, absent=absent).to_list()
    assert found[:3] == [["robur", "ilex"], ["Quercus"], ["Quercus"]]
    assert set(found[3]) == {"robur", "ilex"}
    assert collapse(sets, oaks, absent=absent.numpy()).to_list() == found


def test_at_a_depth_labels_that_are_nearer_to_the_root_stay():
    sets = PredictionSets.from_mask(torch.tensor([[True, False, False, True, False, True]]), torch.arange(6.0)[None])
    assert sorted(collapse(sets, TREE, depth=0).to_list()[0]) == ["root"]
    assert sorted(collapse(sets, TREE, depth=1).to_list()[0]) == ["b", "c"]
    assert sorted(collapse(sets, TREE, depth=2).to_list()[0]) == ["3", "5", "a"]
    assert dict(collapse(sets, TREE, depth=1)[0]) == {"c": 5.0, "b": 3.0}


def test_scores_of_nodes_are_sums_in_any_precision():
    masks = torch.ones(1, LABELS, dtype=torch.bool)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        sets = PredictionSets.from_mask(masks, torch.full((1, LABELS), 0.125, dtype=dtype))
        found = collapse(sets, TREE)
        assert found.scores.tolist() == [0.75]
        assert found.scores.dtype == dtype
        assert expand(found, TREE).scores.dtype == dtype


def test_many_rows_are_named_like_one_row_at_a_time():
    taxonomy = random_taxonomy(3, 40)
    masks = torch.rand(200, 40, generator=seeded(0)) < torch.rand(200, 1, generator=seeded(1))
    together = collapse(PredictionSets.from_mask(masks), taxonomy)
    alone = PredictionSets.cat([collapse(PredictionSets.from_mask(row[None]), taxonomy) for row in masks])
    assert together == alone


def test_no_rows_and_no_labels_are_fine():
    empty = PredictionSets.from_mask(torch.zeros(0, LABELS, dtype=torch.bool))
    assert len(collapse(empty, TREE)) == len(expand(collapse(empty, TREE), TREE)) == 0
    none = PredictionSets.from_mask(torch.zeros(3, LABELS, dtype=torch.bool))
    assert collapse(none, TREE).to_list() == [[], [], []]
    assert collapse(none, TREE, absent=torch.ones(3, LABELS, dtype=torch.bool)).to_list() == [[], [], []]


def test_what_does_not_fit_is_one_sentence():
    sets = PredictionSets.from_mask(torch.ones(2, LABELS, dtype=torch.bool))
    small = random_taxonomy(0, 3)
    with pytest.raises(ValueError, match="`taxonomy` must have the 6 labels of the scores; it has 3"):
        collapse(sets, small)
    with pytest.raises(TypeError, match="`taxonomy` must be a Taxonomy; got dict"):
        collapse(sets, {})
    for depth in (-1, 4, 1.0, True):
        with pytest.raises(ValueError, match=r"`depth` must be an integer in \[0, 3\]"):
            collapse(sets, TREE, depth=depth)
    with pytest.raises(ValueError, match=r"`absent` must be bool \(2, 6\)"):
        collapse(sets, TREE, absent=torch.zeros(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="`sets` must be sets of the 10 nodes; got 6"):
        expand(sets, TREE)

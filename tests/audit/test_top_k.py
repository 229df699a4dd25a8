"""The top-k mode: can exactly this set ever hold the largest logits?"""

import numpy as np
import pytest

from shortlist.audit import audit
from tests.audit.layers import every_set, labels_where
from tests.reference_audit import is_top_k


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("n", "d"), [(5, 1), (6, 2), (6, 3), (7, 2)])
def test_every_set_of_a_small_layer_is_judged_as_by_all_pairs(n, d, biased):
    rng = np.random.default_rng(n * d)
    weight, bias = rng.standard_normal((n, d)), rng.standard_normal(n) if biased else None
    sets = every_set(n)
    report = audit(weight, sets, bias, mode="top-k", jobs=1, radius=False)
    truth = [is_top_k(weight, labels, bias) for labels in sets]
    np.testing.assert_array_equal(report.verdicts, np.where(truth, "argmaxable", "unargmaxable"))
    # Sampling finds nothing more; on the line it finds everything.
    vectors = 3 * rng.standard_normal((4000, d))
    logits = vectors @ weight.T + (0 if bias is None else bias)
    for k in range(1, n):
        seen = {tuple(sorted(row)) for row in np.argsort(-logits, axis=1)[:, :k].tolist()}
        allowed = {tuple(s) for s, yes in zip(sets, truth, strict=True) if yes and len(s) == k}
        assert seen <= allowed
        if d == 1 and not biased:
            assert seen == allowed


def test_a_label_inside_the_hull_of_the_others_is_never_the_largest():
    corners = np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    weight = np.vstack([corners, corners.mean(0)])
    report = audit(weight, [[0], [1], [2], [3], [0, 3], [0, 1, 2]], mode="top-k", jobs=1)
    expected = ["argmaxable"] * 3 + ["unargmaxable", "argmaxable", "unargmaxable"]
    assert report.verdicts.tolist() == expected
    assert report.verify() == []


def test_sets_without_a_boundary_are_argmaxable_whatever_the_layer():
    weight = np.zeros((4, 3))
    report = audit(weight, [[], [0, 1, 2, 3], [0]], mode="top-k", jobs=1)
    assert report.verdicts.tolist() == ["argmaxable", "argmaxable", "unargmaxable"]


@pytest.mark.parametrize("d", [2, 5])
def test_signs_imply_ranks_but_not_the_reverse(d):
    rng = np.random.default_rng(d)
    weight = rng.standard_normal((30, d))
    sets = [labels_where(weight @ rng.standard_normal(d) > t) for t in (0.0, 0.5, 1.0, 1.5) for _ in range(5)]
    signs = audit(weight, sets, jobs=1, radius=False).verdicts == "argmaxable"
    ranks = audit(weight, sets, mode="top-k", jobs=1, radius=False).verdicts == "argmaxable"
    assert ranks.all()
    assert 5 <= signs.sum() < 20


def test_adding_one_vector_to_all_rows_keeps_the_top_k_verdicts():
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((25, 3))
    sets = [sorted(rng.choice(25, 3, replace=False).tolist()) for _ in range(20)]
    plain = audit(weight, sets, mode="top-k", jobs=1, radius=False)
    moved = audit(weight + rng.standard_normal(3), sets, mode="top-k", jobs=1, radius=False)
    np.testing.assert_array_equal(plain.verdicts, moved.verdicts)

"""The references of the losses agree with each other and with values worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import contracts_losses as losses
from tests import reference
from tests.reference import MP

ROWS = st.lists(st.floats(-6, 6, width=32), min_size=3, max_size=7)
quick = settings(derandomize=True, deadline=None, max_examples=20)


def close(left, right, digits=60):
    return abs(left - right) <= MP.mpf(10) ** -digits * max(1, abs(right))


@quick
@given(row=ROWS)
def test_subsets_and_recurrence_give_the_same_symmetric_polynomials(row):
    for k in range(len(row) + 1):
        by_subsets = reference.log_elementary_symmetric(row, k)
        assert close(by_subsets, reference.log_elementary_symmetric_by_recurrence(row, k))
        assert close(sum(reference.inclusion_probabilities(row, k)), MP.mpf(k))


@quick
@given(row=ROWS, tau=st.floats(0.1, 3), margin=st.floats(0, 2))
def test_smooth_svm_by_subsets_is_its_formula_in_symmetric_polynomials(row, tau, margin):
    for k in range(1, len(row)):
        scale = k * MP.mpf(tau)
        rest = [MP.mpf(x) / scale for x in row[1:]]
        wrong = MP.mpf(margin) / tau + reference.log_elementary_symmetric(rest, k)
        right = reference.log_elementary_symmetric(rest, k - 1) + MP.mpf(row[0]) / scale
        expected = MP.mpf(tau) * MP.log1p(MP.exp(wrong - right))
        assert close(losses.smooth_topk_svm(row, {0}, set(), k, temperature=tau, margin=margin), expected)


@quick
@given(row=ROWS)
def test_truncated_entropy_of_one_label_and_focal_loss_without_focus_are_cross_entropy(row):
    entropy = losses.cross_entropy(row, {1})
    assert close(losses.truncated_topk_entropy(row, {1}, set(), 1), entropy)
    assert close(losses.multilabel_truncated_topk_entropy(row, {1}, set(), 1), entropy)
    assert close(losses.focal(row, {1}, gamma=0), entropy)


def test_hinges_of_a_row_are_what_they_are_by_hand():
    row = [3.0, 2.5, 1.0, 0.5]
    for kind, expected in (("plain", 2.5), ("convex", 2.75), ("calibrated", 1.0)):
        assert losses.topk_hinge(row, {2}, set(), 2, kind=kind) == expected
    assert losses.topk_hinge(row, {2}, {0}, 2) == 0.5
    assert losses.smooth_topk_svm(row, {2}, set(), 2, temperature=0) == 1.75


def test_ranked_losses_of_a_row_are_what_they_are_by_hand():
    """Positive 1.0 against 3.0, 0.5 and -2.0: two violations, of 3 and ½, weighted 1 + ½."""
    row = [3.0, 1.0, 0.5, -2.0]
    assert losses.warp(row, {1}) == 1.5 * (3 + 0.5)
    assert float(losses.rml(row, {1})) == pytest.approx(1.5 * (1.8 + 0.5) + 2 * (0 + 1.8 + 1.5 + 0))
    assert losses.warp(row, {1}, {0}) == 0.5


def test_one_candidate_of_average_k_is_the_most_probable_wrong_label():
    rows, proposals = [[0.0, 0.0, 0.0]], [[5.0, 1.0, 2.0]]
    (value,) = losses.average_k(rows, proposals, [{0}], [set()], k=2)
    entropy = losses.cross_entropy(proposals[0], {0})
    assert close(value, entropy + 3 * MP.log(2))  # true, candidate 2 and rest 1, each -log ½
    assert close(
        losses.average_k([[0.0, 0.0, 4.0]], proposals, [{0}], [set()], k=2)[0],
        entropy + 2 * MP.log(2) + MP.log1p(MP.exp(-4)),
    )


def test_two_way_rows_that_all_count_average_to_the_mean():
    rows, positives, unknown = [[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]], [{0}, {1, 2}], [set(), set()]
    values = losses.two_way(rows, positives, unknown)
    assert close(sum(values) / 2, losses.two_way_mean(rows, positives, unknown))
    alone = losses.two_way(rows, positives, unknown, kind="sample")
    by_hand = MP.log1p(MP.exp(MP.log(MP.exp(MP.mpf(-0.5)) + MP.exp(MP.mpf(2))) - 1))
    assert close(alone[0], by_hand)

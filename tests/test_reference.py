"""The references agree with each other, with closed forms and with the definitions."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import contracts_losses as losses
from tests.reference import (
    HARD_ROWS,
    MP,
    constrained_softmax,
    inclusion_probabilities,
    lml,
    lml_budget,
    lml_dual,
    lml_jacobian,
    lml_potential,
    log_elementary_symmetric,
    log_elementary_symmetric_by_recurrence,
    log_lml,
    sigmoid_potential,
    softmax_potential,
    sparse_top,
    sparse_top_budget,
    sparse_top_potential,
    sparsemax,
    sparsemax_potential,
)

INF = math.inf
PROJECTIONS = [lml, sparse_top, constrained_softmax]
ROWS = st.lists(st.floats(-6, 6, width=32), min_size=3, max_size=6)
FRACTIONS = st.floats(0.05, 0.95)
quick = settings(derandomize=True, deadline=None, max_examples=20)


def close(left, right, digits=60):
    """Relative to the expected values, and absolute only where these are exactly 0."""
    left, right = (list(side) if isinstance(side, list | tuple) else [side] for side in (left, right))
    return all(
        a == b or abs(a - b) <= MP.mpf(10) ** -digits * (abs(b) or 1)
        for a, b in zip(map(MP.mpf, left), map(MP.mpf, right), strict=True)
    )


def sigmoid(z):
    return 1 / (1 + MP.exp(-z))


def binary_entropy(p):
    return sum(-v * MP.log(v) for v in (p, 1 - p) if v > 0)


OBJECTIVES = {
    lml: lambda row, p: sum(x * v + binary_entropy(v) for x, v in zip(row, p, strict=True)),
    sparse_top: lambda row, p: sum(x * v + v * (1 - v) / 2 for x, v in zip(row, p, strict=True)),
    constrained_softmax: lambda row, p: sum(x * v - v * MP.log(v) for x, v in zip(row, p, strict=True) if v > 0),
}


@pytest.mark.parametrize("projection", PROJECTIONS)
@quick
@given(row=ROWS, share=FRACTIONS)
def test_no_exchange_between_two_labels_improves_the_objective(projection, row, share):
    # Exchanges generate all feasible directions and the objectives are concave, so this is optimality.
    p = projection(row, share * len(row))
    best = OBJECTIVES[projection](row, p)
    for i, j in permutations(range(len(row)), 2):
        for size in (MP.mpf(10) ** -20, MP.mpf("0.01")):
            moved = list(p)
            moved[i], moved[j] = p[i] + size, p[j] - size
            if moved[i] <= 1 and moved[j] >= 0:
                assert OBJECTIVES[projection](row, moved) < best


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_hard_rows_sum_to_k_and_keep_their_order(projection):
    for name, row, k in HARD_ROWS:
        p = projection(row, k)
        present = sum(x > -INF for x in row)
        assert abs(MP.fsum(p) - min(MP.mpf(k), present)) < MP.mpf(10) ** -70, name
        ordered = [v for _, v in sorted(zip(row, p, strict=True))]
        assert ordered == sorted(ordered), name
        assert 0 <= ordered[0] <= ordered[-1] <= 1, name


def test_hard_rows_are_named_once_exact_in_float32_and_feasible():
    assert len({name for name, _, _ in HARD_ROWS}) == len(HARD_ROWS) >= 48
    for name, row, k in HARD_ROWS:
        assert [float(np.float32(x)) for x in row] == row, name
        assert 0 <= k <= len(row), name


def test_the_plain_sum_at_500_digits_crosses_k_at_the_dual():
    small = [case for case in HARD_ROWS if len(case[1]) <= 24 and max(case[1]) - min(case[1]) < 3000]
    crossed = [case for case in ((*each, lml_dual(*each[1:])) for each in small) if MP.isfinite(case[-1])]
    assert len(crossed) > 40
    for name, row, k, nu in crossed:
        with MP.workdps(500):
            below, above = (sum(sigmoid(x + nu + step) for x in row) for step in (-1e-45, 1e-45))
            assert below < k < above, name


@pytest.mark.parametrize("gap", [0.5, 30, 1000, 1e6])
def test_lml_of_two_labels_is_the_sigmoid_of_half_their_difference(gap):
    half = MP.mpf(gap) / 2
    for offset in (0, -1e6, 1e6):
        row = [offset + gap, offset]
        assert close(lml(row, 1), [sigmoid(half), sigmoid(-half)])
        assert close(log_lml(row, 1), [-MP.log1p(MP.exp(-half)), -half - MP.log1p(MP.exp(-half))])


def test_rows_worked_out_by_hand():
    assert all(close(projection([-1e6] * 4, 3), [0.75] * 4) for projection in PROJECTIONS)
    assert close(sparse_top([2.0, 1.2, 0.9, -3.0], 2), [1, 0.65, 0.35, 0], digits=15)
    assert close(sparsemax([0.5, 0.25, -1.0]), [0.625, 0.375, 0])
    assert close(constrained_softmax([5.0, 0.0, 0.0], 2), [1, 0.5, 0.5])
    # k = 2 at (0, 0, -g): t = e^ν is the positive root of t² - t - 2e^g.
    t = (1 + MP.sqrt(1 + 8 * MP.exp(1000))) / 2
    assert close(lml([0, 0, -1000], 2), [t / (1 + t), t / (1 + t), 2 / (1 + t)])


@quick
@given(row=ROWS, share=FRACTIONS, temperature=st.sampled_from([0.125, 0.5, 4.0]))
def test_a_temperature_divides_the_logits_and_log_lml_is_the_logarithm(row, share, temperature):
    k, cooled = share * len(row), [x / temperature for x in row]
    for function in (lml, log_lml, lml_budget):
        assert close(function(row, k, temperature), function(cooled, k))
    assert abs(lml_dual(row, k, temperature) - temperature * lml_dual(cooled, k)) < MP.mpf(10) ** -70
    assert close([MP.exp(v) for v in log_lml(row, k)], lml(row, k))


@pytest.mark.parametrize(
    ("row", "k"), [([0.3, -1.2, 2.5, 0.1], 1.7), ([30.0, -30.0, 29.0, -31.5, 28.0], 3), ([0, 0, 900.0], 1)]
)
def test_the_jacobian_and_the_gradient_of_the_potential_match_finite_differences(row, k):
    step = MP.mpf(10) ** -25
    p, jacobian = lml(row, k), lml_jacobian(row, k)
    for j in range(len(row)):
        up, down = ([x + sign * step * (i == j) for i, x in enumerate(map(MP.mpf, row))] for sign in (1, -1))
        column = [(a - b) / (2 * step) for a, b in zip(lml(up, k), lml(down, k), strict=True)]
        slope = (lml_potential(up, k) - lml_potential(down, k)) / (2 * step)
        assert all(abs(a - line[j]) < MP.mpf(10) ** -40 for a, line in zip(column, jacobian, strict=True))
        assert abs(slope - p[j]) < MP.mpf(10) ** -40


def test_the_jacobian_is_relatively_exact_on_a_plateau():
    q = sigmoid(MP.mpf(500)) * sigmoid(MP.mpf(-500))
    for k, expected in ((1, [[q / 2, -q / 2], [-q / 2, q / 2]]), (2, [[0, 0], [0, 0]])):
        assert all(map(close, lml_jacobian([1000.0, 0.0], k), expected))


@quick
@given(row=ROWS, share=FRACTIONS)
def test_potentials_are_the_maxima_of_their_objectives(row, share):
    k = share * len(row)
    nu = lml_dual(row, k)
    assert close(lml_potential(row, k), sigmoid_potential([x + nu for x in row]) - nu * k, digits=50)
    assert close(lml_potential(row, k), OBJECTIVES[lml](row, lml(row, k)), digits=50)
    assert close(sparse_top_potential(row, k), OBJECTIVES[sparse_top](row, sparse_top(row, k)), digits=50)
    assert close(sigmoid_potential(row), OBJECTIVES[lml](row, [sigmoid(x) for x in row]), digits=50)
    # For one label, sparse-top is sparsemax and constrained softmax is softmax.
    assert close(sparse_top(row, 1), sparsemax(row))
    assert close(sparse_top_potential(row, 1), sparsemax_potential(row))
    assert close(OBJECTIVES[constrained_softmax](row, constrained_softmax(row, 1)), softmax_potential(row))


@quick
@given(row=ROWS, share=FRACTIONS)
def test_a_budget_binds_only_where_the_free_answer_exceeds_it(row, share):
    k = share * len(row)
    for budget, projection, free in (
        (lml_budget, lml, [sigmoid(x) for x in row]),
        (sparse_top_budget, sparse_top, [min(max(x, 0), 1) for x in row]),
    ):
        assert close(budget(row, k), free if sum(free) <= k else projection(row, k))


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize(
    ("row", "k", "expected"),
    [
        ([1.0, -INF, 0.0], 2, [1, 0, 1]),
        ([1.0, -INF, 0.0], 3, [1, 0, 1]),
        ([1.0, -INF, 0.0], 0, [0, 0, 0]),
        ([-INF, -INF], 1, [0, 0]),
        ([INF, 0.0, 0.0], 2, [1, 0.5, 0.5]),
        ([INF, 0.0, -INF, 0.0], 1, [1, 0, 0, 0]),
        ([INF, INF, 5.0, -INF], 1, [0.5, 0.5, 0, 0]),
        ([INF, INF, 5.0, 5.0], 3.5, [1, 1, 0.75, 0.75]),
    ],
)
def test_absent_and_certain_labels_follow_the_edge_rules(projection, row, k, expected):
    assert close(projection(row, k), expected)
    if projection is lml:
        assert close(log_lml(row, k), [MP.log(p) for p in expected])


def test_edges_of_the_dual_the_budgets_and_the_potentials():
    assert lml_dual([1.0, 2.0], 0) == -INF
    assert lml_dual([1.0, -INF], 1) == INF
    assert lml_dual([INF, 3.0, -INF], 1.5) == -3
    assert lml_budget([INF, 0.0, -INF], 2) == [1, 0.5, 0]
    assert sparse_top_budget([INF, 0.25, -INF], 2) == [1, 0.25, 0]
    assert lml_potential([INF, 0.0], 1) == sparse_top_potential([INF, 0.0], 1) == INF
    assert lml_potential([1.0, -INF, 2.0], 2) == sparse_top_potential([1.0, -INF, 2.0], 2) == 3
    assert sigmoid_potential([-INF]) == 0
    assert softmax_potential([-INF, 2.0]) == 2


@quick
@given(row=ROWS)
def test_subsets_and_recurrence_give_the_same_symmetric_polynomials(row):
    for k in range(len(row) + 1):
        by_subsets = log_elementary_symmetric(row, k)
        assert close(1 + by_subsets, 1 + log_elementary_symmetric_by_recurrence(row, k))
        assert close(sum(inclusion_probabilities(row, k)), MP.mpf(k))


@quick
@given(row=ROWS, tau=st.floats(0.1, 3), margin=st.floats(0, 2))
def test_the_smooth_svm_by_subsets_is_its_formula_in_symmetric_polynomials(row, tau, margin):
    for k in range(1, len(row)):
        scale = k * MP.mpf(tau)
        rest = [MP.mpf(x) / scale for x in row[1:]]
        wrong = MP.mpf(margin) / tau + log_elementary_symmetric(rest, k)
        right = log_elementary_symmetric(rest, k - 1) + MP.mpf(row[0]) / scale
        expected = MP.mpf(tau) * MP.log1p(MP.exp(wrong - right))
        assert close(losses.smooth_topk_svm(row, {0}, set(), k, temperature=tau, margin=margin), expected)


@quick
@given(row=ROWS)
def test_truncated_entropy_at_one_and_focal_loss_without_focus_are_cross_entropy(row):
    entropy = losses.cross_entropy(row, {1})
    assert close(losses.truncated_topk_entropy(row, {1}, set(), 1), entropy)
    assert close(losses.multilabel_truncated_topk_entropy(row, {1}, set(), 1), entropy)
    assert close(losses.focal(row, {1}, gamma=0), entropy)


def test_hinges_and_ranking_losses_worked_out_by_hand():
    row = [3.0, 2.5, 1.0, 0.5]
    for kind, expected in (("plain", 2.5), ("convex", 2.75), ("calibrated", 1.0)):
        assert losses.topk_hinge(row, {2}, set(), 2, kind=kind) == expected
    assert losses.topk_hinge(row, {2}, {0}, 2) == 0.5
    assert losses.smooth_topk_svm(row, {2}, set(), 2, temperature=0) == 1.75
    # Positive 1.0 against 3.0, 0.5 and -2.0: two violations, of 3 and ½, weighted 1 + ½.
    row = [3.0, 1.0, 0.5, -2.0]
    assert losses.warp(row, {1}) == 1.5 * (3 + 0.5)
    assert float(losses.rml(row, {1})) == pytest.approx(1.5 * (1.8 + 0.5) + 2 * (0 + 1.8 + 1.5 + 0))
    assert losses.warp(row, {1}, {0}) == 0.5


def test_the_candidate_of_average_k_is_the_most_probable_wrong_label():
    proposals = [[5.0, 1.0, 2.0]]
    entropy = losses.cross_entropy(proposals[0], {0})
    for third, expected in ((0.0, 3 * MP.log(2)), (4.0, 2 * MP.log(2) + MP.log1p(MP.exp(-4)))):
        (value,) = losses.average_k([[0.0, 0.0, third]], proposals, [{0}], [set()], k=2)
        assert close(value, entropy + expected)


def test_two_way_rows_that_all_count_average_to_the_mean():
    rows, positives, unknown = [[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]], [{0}, {1, 2}], [set(), set()]
    values = losses.two_way(rows, positives, unknown)
    assert close(sum(values) / 2, losses.two_way_mean(rows, positives, unknown))
    alone = losses.two_way(rows, positives, unknown, kind="sample")
    assert close(alone[0], MP.log1p(MP.exp(MP.log(MP.exp(MP.mpf(-0.5)) + MP.exp(MP.mpf(2))) - 1)))

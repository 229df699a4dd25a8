"""The references agree with each other, with closed forms and with the definitions."""

import math
from itertools import chain, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import (
    HARD_ROWS,
    MP,
    constrained_softmax,
    lml,
    lml_budget,
    lml_dual,
    lml_jacobian,
    lml_potential,
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
OPERATORS = [lml, sparse_top, constrained_softmax]
ROWS = st.lists(st.floats(-6, 6, width=32), min_size=2, max_size=6)
FRACTIONS = st.floats(0.05, 0.95)
quick = settings(derandomize=True, deadline=None, max_examples=30)


def close(left, right, digits=60):
    """Relative to the expected value, and absolute only where that is exactly 0."""
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


@pytest.mark.parametrize("operator", OPERATORS)
@quick
@given(row=ROWS, share=FRACTIONS)
def test_no_exchange_between_two_labels_improves_the_objective(operator, row, share):
    # Exchanges generate all feasible directions and the objectives are concave, so this is optimality.
    p = operator(row, share * len(row))
    best = OBJECTIVES[operator](row, p)
    for i, j in permutations(range(len(row)), 2):
        for size in (MP.mpf(10) ** -20, MP.mpf("0.01")):
            moved = list(p)
            moved[i], moved[j] = p[i] + size, p[j] - size
            if moved[i] <= 1 and moved[j] >= 0:
                assert OBJECTIVES[operator](row, moved) < best


@pytest.mark.parametrize("operator", OPERATORS)
@quick
@given(row=ROWS, share=FRACTIONS)
def test_each_operator_is_best_on_its_own_objective(operator, row, share):
    answers = [other(row, share * len(row)) for other in OPERATORS]
    best = OBJECTIVES[operator](row, operator(row, share * len(row)))
    assert all(OBJECTIVES[operator](row, p) <= best + MP.mpf(10) ** -60 for p in answers)


@pytest.mark.parametrize("operator", OPERATORS)
def test_hard_rows_sum_to_k_and_keep_their_order(operator):
    for name, row, k in HARD_ROWS:
        p = operator(row, k)
        present = sum(x > -INF for x in row)
        assert abs(MP.fsum(p) - min(MP.mpf(k), present)) < MP.mpf(10) ** -70, name
        ordered = [v for _, v in sorted(zip(row, p, strict=True))]
        assert ordered == sorted(ordered), name
        assert 0 <= ordered[0] <= ordered[-1] <= 1, name


def test_the_plain_sum_at_500_digits_crosses_k_at_the_dual():
    small = [case for case in HARD_ROWS if len(case[1]) <= 24 and max(case[1]) - min(case[1]) < 3000]
    duals = [(*case, lml_dual(*case[1:])) for case in small]
    crossed = [case for case in duals if MP.isfinite(case[-1])]
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


@pytest.mark.parametrize("gap", [1, 100, 1000])
def test_lml_of_two_ties_over_one_label_solves_a_quadratic(gap):
    # k = 2 at (0, 0, -g): t = e^ν is the positive root of t² - t - 2e^g.
    t = (1 + MP.sqrt(1 + 8 * MP.exp(gap))) / 2
    assert close([lml_dual([0, 0, -gap], 2)], [MP.log(t)])
    assert close(lml([0, 0, -gap], 2), [t / (1 + t), t / (1 + t), 2 / (1 + t)])


def test_one_label_and_equal_labels_share_k_equally():
    for operator in OPERATORS:
        assert close(operator([3.0], 0.25), [0.25])
        assert close(operator([-1e6] * 4, 3), [0.75] * 4)


def test_hand_worked_rows():
    tenth = 1 / MP.mpf(10)
    assert close(sparse_top([2.0, 1.2, 0.9, -3.0], 2), [1, 0.65, 0.35, 0], digits=15)
    assert close(sparsemax([0.5, 0.25, -1.0]), [0.625, 0.375, 0])
    assert close(constrained_softmax([5.0, 0.0, 0.0], 2), [1, 0.5, 0.5])
    assert close(constrained_softmax([0.0, -1000.0], 1.5), [1, 0.5])
    assert close(constrained_softmax([MP.log(5), 0, MP.log(4)], 1), [5 * tenth, tenth, 4 * tenth])


@quick
@given(row=ROWS)
def test_with_one_wanted_sparse_top_is_sparsemax_and_constrained_softmax_is_softmax(row):
    weights = [MP.exp(x) for x in row]
    assert close(sparse_top(row, 1), sparsemax(row))
    assert close(constrained_softmax(row, 1), [w / MP.fsum(weights) for w in weights])
    assert close([sparse_top_potential(row, 1)], [sparsemax_potential(row)])
    assert close([OBJECTIVES[constrained_softmax](row, constrained_softmax(row, 1))], [softmax_potential(row)])


def test_sparse_top_equals_sparsemax_on_hard_rows():
    for name, row, _ in HARD_ROWS:
        assert close(sparse_top(row, 1), sparsemax(row)), name


@quick
@given(row=ROWS, share=FRACTIONS, temperature=st.sampled_from([0.125, 0.5, 4.0]))
def test_a_temperature_divides_the_logits(row, share, temperature):
    k, cooled = share * len(row), [x / temperature for x in row]
    assert close(lml(row, k, temperature), lml(cooled, k))
    assert close(log_lml(row, k, temperature), log_lml(cooled, k))
    assert close(lml_budget(row, k, temperature), lml_budget(cooled, k))
    assert abs(lml_dual(row, k, temperature) - temperature * lml_dual(cooled, k)) < MP.mpf(10) ** -70


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
    assert close(chain(*lml_jacobian([1000.0, 0.0], 1)), [q / 2, -q / 2, -q / 2, q / 2])
    assert close(chain(*lml_jacobian([1000.0, 0.0], 2)), [0] * 4)


@quick
@given(row=ROWS, share=FRACTIONS)
def test_potentials_are_the_maxima_that_duality_gives(row, share):
    k = share * len(row)
    nu = lml_dual(row, k)
    assert close([lml_potential(row, k)], [sigmoid_potential([x + nu for x in row]) - nu * k], digits=50)
    assert close([lml_potential(row, k)], [OBJECTIVES[lml](row, lml(row, k))], digits=50)
    assert close([sparse_top_potential(row, k)], [OBJECTIVES[sparse_top](row, sparse_top(row, k))], digits=50)
    assert close([sigmoid_potential(row)], [OBJECTIVES[lml](row, [sigmoid(x) for x in row])], digits=50)


@quick
@given(row=ROWS, share=FRACTIONS)
def test_a_budget_only_binds_when_the_free_answer_exceeds_it(row, share):
    k = share * len(row)
    for budget, projection, free in (
        (lml_budget, lml, [sigmoid(x) for x in row]),
        (sparse_top_budget, sparse_top, [min(max(x, 0), 1) for x in row]),
    ):
        assert close(budget(row, k), free if sum(free) <= k else projection(row, k))
        assert sum(budget(row, k)) <= k + MP.mpf(10) ** -70


@pytest.mark.parametrize("operator", OPERATORS)
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
def test_absent_and_certain_labels_follow_the_edge_rules(operator, row, k, expected):
    assert close(operator(row, k), expected)
    if operator is lml:
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


def test_log_lml_is_the_logarithm_of_lml():
    for name, row, k in HARD_ROWS[::3]:
        assert close([MP.exp(v) for v in log_lml(row, k)], lml(row, k), digits=45), name


def test_hard_rows_are_many_named_once_exact_in_float32_and_feasible():
    assert len(HARD_ROWS) >= 48
    assert len({name for name, _, _ in HARD_ROWS}) == len(HARD_ROWS)
    for name, row, k in HARD_ROWS:
        assert [float(np.float32(x)) for x in row] == row, name
        assert 0 <= k <= len(row), name

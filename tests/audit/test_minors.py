"""General position and agreeing minors: exact answers, and what they prove."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from shortlist.audit import audit, count_argmaxable, counting, in_general_position, minors_agree
from shortlist.audit.exact import echelon_form, to_integers
from shortlist.functional import dft_matrix
from tests.audit.layers import every_set


def exact_sign(rows):
    echelon = echelon_form(rows)
    return echelon.sign if len(echelon.pivots) == len(rows) else 0


def determinant(rows):
    """By cofactors, in fractions: slow and obvious."""
    if not rows:
        return Fraction(1)
    return sum(
        (-1) ** column * value * determinant([row[:column] + row[column + 1 :] for row in rows[1:]])
        for column, value in enumerate(rows[0])
    )


def minor_signs(weight):
    """Signs of all maximal minors, exactly."""
    rows = [[Fraction(value) for value in row] for row in np.asarray(weight, dtype=np.float64).tolist()]
    values = [determinant(list(chosen)) for chosen in itertools.combinations(rows, len(rows[0]))]
    return {(value > 0) - (value < 0) for value in values}


def argmaxable_assignments(weight):
    sets = every_set(len(weight))
    verdicts = audit(weight, sets, radius=False, jobs=1).verdicts
    assert "undecided" not in verdicts
    return [labels for labels, verdict in zip(sets, verdicts, strict=True) if verdict == "argmaxable"]


def integers_with_ties(rng, shape):
    return rng.integers(-2, 3, size=shape)


def almost_dependent(rng, shape):
    weight = rng.integers(-8, 9, size=shape).astype(np.float64)
    weight[-1] = weight[0] + 2 * weight[1]
    weight[-1, -1] += rng.choice([0.0, 2.0**-60, 2.0**-52, 1e-14]) * (1 + abs(weight[-1, -1]))
    return weight


def of_extreme_range(rng, shape):
    """Powers of two, from denormal numbers up: entries that floats would flush to zero still decide."""
    return np.ldexp(rng.choice([-1.0, 0.0, 1.0, 3.0], size=shape), rng.integers(-1074, 1000, size=shape))


@pytest.mark.parametrize("shape", [(4, 1), (5, 2), (6, 3), (5, 4), (4, 4)])
@pytest.mark.parametrize("kind", [integers_with_ties, almost_dependent, of_extreme_range])
@pytest.mark.parametrize("seed", range(4))
def test_small_matrices_are_decided_as_by_cofactors(kind, shape, seed):
    weight = kind(np.random.default_rng([seed, *shape]), shape)
    signs = minor_signs(weight)
    assert in_general_position(weight) == (0 not in signs)
    assert minors_agree(weight) == (signs in ({1}, {-1}))


def test_a_determinant_of_one_unit_in_the_last_place_is_not_taken_for_zero():
    third = 1 / 3
    dependent = np.array([[1.0, third], [3.0, 3 * third]])
    assert dependent[1, 1] == 1.0
    assert in_general_position(dependent)  # the float nearest to 1/3 is not 1/3
    assert not in_general_position(np.array([[1.0, third], [4.0, 4 * third]]))


def test_floating_point_never_claims_a_sign_that_exact_arithmetic_denies():
    generator = np.random.default_rng(0)
    for dim in (2, 3, 4):
        rows = generator.standard_normal((200, dim, dim))
        rows[:, -1] = rows[:, 0] - rows[:, dim // 2 - 1] * generator.choice([0, 1], size=(200, 1))
        rows[:, -1] += 10.0 ** generator.uniform(-20, -10, size=(200, dim)) * generator.choice([-1, 1], size=(200, dim))
        claimed = counting._float_signs(rows)
        exact = [exact_sign([to_integers(row) for row in block]) for block in rows]
        assert ((claimed == 0) | (claimed == exact)).all()
        assert (claimed != 0).any()
        assert (claimed == 0).any()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_exact_sign_is_that_of_cofactors_also_where_rows_change_places(size):
    generator = np.random.default_rng(size)
    seen = set()
    for _ in range(60):
        rows = generator.integers(-1, 2, size=(size, size)).tolist()
        value = determinant(rows)
        assert exact_sign(rows) == (value > 0) - (value < 0)
        seen.add((rows[0][0] == 0, exact_sign(rows)))
    assert size == 1 or {(True, 1), (True, -1), (False, 1), (False, -1)} <= seen


@pytest.mark.parametrize(("num_labels", "k"), [(3, 1), (6, 1), (9, 2), (9, 4), (12, 3), (40, 1)])
def test_minors_of_the_fourier_matrix_agree(num_labels, k):
    matrix = dft_matrix(num_labels, k, dtype=torch.float64)
    assert minors_agree(matrix)
    assert in_general_position(matrix)
    if num_labels > 2 * k + 1:
        swapped = matrix[[1, 0, *range(2, num_labels)]]
        assert not minors_agree(swapped)
        assert in_general_position(swapped)


def test_agreeing_minors_give_exactly_the_assignments_with_few_sign_changes():
    weight = np.exp(np.outer(np.linspace(-1, 1, 6), np.arange(4)))  # totally positive
    assert minors_agree(weight)
    found = argmaxable_assignments(weight)
    for labels in found:
        signs = np.isin(np.arange(6), labels)
        assert (signs[1:] != signs[:-1]).sum() <= 3
    assert len(found) == count_argmaxable(6, 4)


def number_of_regions(rows):
    """Regions that hyperplanes through the origin leave, by taking one away: those without it and those on it."""
    if not all(any(row) for row in rows):
        return 0
    if not rows:
        return 1
    *others, last = rows
    pivot = next(column for column, value in enumerate(last) if value)
    on_last = [
        [value - row[pivot] / last[pivot] * part for value, part in zip(row, last, strict=True)] for row in others
    ]
    distinct = [row for row, trace in zip(others, on_last, strict=True) if any(trace)]
    # A row along the last one cuts nothing that the last one does not cut.
    return number_of_regions(distinct) + number_of_regions([trace for trace in on_last if any(trace)])


@pytest.mark.parametrize("dependent", ["twice the same row", "three rows in a plane", "a zero row", "none"])
@pytest.mark.parametrize(("num_labels", "dim"), [(6, 3), (7, 4), (4, 4), (6, 2)])
def test_general_position_holds_exactly_where_covers_count_is_reached(num_labels, dim, dependent):
    weight = np.random.default_rng(dim).integers(-99, 100, size=(num_labels, dim)).astype(np.float64)
    if dependent == "twice the same row":
        weight[3] = 3 * weight[1]
    elif dependent == "three rows in a plane" and dim > 2:
        weight[3] = weight[0] + weight[2]
    elif dependent == "a zero row":
        weight[2] = 0
    regions = number_of_regions([[Fraction(value) for value in row] for row in weight.tolist()])
    assert in_general_position(weight) == (regions == count_argmaxable(num_labels, dim))
    assert in_general_position(weight) == (dependent == "none" or (dim == 2 and dependent == "three rows in a plane"))


def test_fewer_rows_than_columns_must_be_independent():
    weight = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], [0.0, 1.0, 0.0, 0.0]])
    assert in_general_position(weight[[0, 2]])
    assert minors_agree(weight[[0, 2]])
    assert not in_general_position(weight)
    assert not minors_agree(weight)
    assert not in_general_position(weight[:2])
    assert not in_general_position(np.zeros((1, 2)))
    assert in_general_position(np.array([[0.0, 5.0]]))


def test_a_large_layer_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"at most 1,000,000 maximal minors; got [\d,]+ choices of 50 of 2000 rows\."):
        in_general_position(torch.zeros(2000, 50))
    with pytest.raises(ValueError, match="at most 64 columns for exact minors; got 65"):
        minors_agree(torch.zeros(65, 65))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_tensors_of_every_type_are_read_without_their_gradient(dtype):
    weight = torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=dtype)
    weight = torch.nn.Parameter(weight) if weight.is_floating_point() else weight
    assert in_general_position(weight)
    assert minors_agree(weight)


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        (torch.zeros(3), r"`weight` must have 2 dimensions, neither empty; got shape \(3,\)\."),
        (torch.zeros(0, 2), r"neither empty; got shape \(0, 2\)\."),
        (torch.tensor([[0.0, 1.0], [float("nan"), 0.0]]), r"`weight` must be finite; row 1 is not\."),
        (np.array([[np.inf, 1.0]]), r"`weight` must be finite; row 0 is not\."),
        (np.array([[2**53 + 1, 1]]), r"`weight` must hold numbers that float64 represents exactly; got int64\."),
        (torch.tensor([[2**53 + 1, 1]]), r"`weight` must hold numbers that float64 represents exactly; got int64\."),
    ],
)
def test_a_matrix_that_cannot_be_judged_is_refused(weight, text):
    with pytest.raises(ValueError, match=text):
        in_general_position(weight)

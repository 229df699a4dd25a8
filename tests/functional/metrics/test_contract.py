"""The rules that all metrics share: ties, absent and unknown labels, precision, errors."""

import math

import pytest
import torch

from shortlist import functional as F
from tests.contracts_metrics import METRICS, N, draw, flat

INF = math.inf
FUNCTIONS = [case for case in METRICS if case.function]
each_function = pytest.mark.parametrize("case", FUNCTIONS, ids=str)
each_of_scores = pytest.mark.parametrize("case", [case for case in FUNCTIONS if not case.takes_sets], ids=str)


@pytest.mark.parametrize("n", [1, 2, 7, 100])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e30])
def test_a_constant_score_is_exactly_chance(n, value):
    scores = torch.full((4, n), value)
    classes = torch.tensor([0, n // 2, n - 1, 0])
    for k in {1, (n + 1) // 2, n}:
        assert F.topk_accuracy(scores, classes, k).item() == pytest.approx(k / n, rel=1e-12)
        assert F.recall_at_k(scores, classes, k).item() == pytest.approx(k / n, rel=1e-12)
        assert F.precision_at_k(scores, classes, k).item() == pytest.approx(1 / n, rel=1e-12)
        assert F.average_k_accuracy(scores, classes, k=k).item() == pytest.approx(k / n, rel=1e-12)
        assert F.f1_score(scores, classes, k=k).item() == pytest.approx(2 * k / n / (k + 1), rel=1e-12)
    assert F.average_precision(scores, classes, by="sample").item() == pytest.approx(1 / n, rel=1e-12)


def test_a_constant_score_is_chance_for_graphs():
    scores, target = torch.zeros(6, 5), torch.arange(6) % 5
    image = torch.tensor([0, 0, 0, 1, 1, 1])
    assert F.scene_graph_recall(scores, target, image, 3, constrained=False).item() == pytest.approx(3 / 15)
    assert F.scene_graph_recall(scores, target, image, 2, constrained=True).item() == pytest.approx(2 / 15)


def test_a_tie_at_the_edge_of_a_long_row_is_shared_by_all_that_tie():
    scores = torch.zeros(1, 1000)
    scores[0, :3] = torch.tensor([3.0, 2.0, 1.0])
    target = torch.tensor([[0, 500, 999]])
    wanted = [1, 1, 1, 1 + 2 / 997, 1 + 4 / 997]
    assert torch.allclose(F.hits_at_k(scores, target, range(1, 6)), torch.tensor([wanted], dtype=torch.float64))


@pytest.mark.parametrize("levels", [1, 3, 40, 10**6])
@pytest.mark.parametrize("n", [700, 1501])
def test_long_rows_count_what_stands_above_and_beside_each_positive(n, levels, fresh):
    scores = torch.randint(levels, (8, n), generator=fresh).float()
    scores[3, 5:] = -INF
    target = torch.rand(8, n, generator=fresh) < 0.01
    ks = (1, 2, 7, 10)
    above = (scores.unsqueeze(1) > scores.unsqueeze(2)).sum(-1).unsqueeze(-1)
    beside = (scores.unsqueeze(1) == scores.unsqueeze(2)).sum(-1).unsqueeze(-1)
    chance = ((torch.tensor(ks) - above) / beside.double()).clamp(0, 1)
    chance = chance * (target & (scores > -INF)).unsqueeze(-1)
    assert torch.allclose(F.hits_at_k(scores, target, ks), chance.sum(1), rtol=1e-12)
    scores[7, n - 1] = math.nan
    with pytest.raises(ValueError, match="`scores` row 7: scores must not be NaN"):
        F.hits_at_k(scores, target, ks)


@pytest.mark.parametrize("case", [case for case in FUNCTIONS if "F1" not in str(case) and case.rank_only], ids=str)
def test_an_absent_label_is_to_the_others_as_if_it_came_last(case):
    """But not for F1, which counts it as predicted, and not where its probability counts."""
    scores, hot = draw(case, 8, 3, absent=0)
    scores[:, 2], hot[:, 2] = -INF, 0
    low = scores.clone()
    low[:, 2] = -8
    absent, last = (torch.tensor(flat(case.function(x, hot))) for x in (scores, low))
    assert torch.allclose(absent, last, equal_nan=True)


@each_function
def test_unknown_labels_are_as_if_they_did_not_exist(case):
    scores, hot = draw(case, 8, 4, absent=0, unknown=0)
    hot[:, 1] = -1
    wanted = case.function(scores.index_fill(1, torch.tensor([1]), -INF), hot.clamp(min=0))
    for value in (-5.0, 0.0, 5.0):
        got = case.function(scores.index_fill(1, torch.tensor([1]), value), hot)
        assert torch.allclose(torch.tensor(flat(got)), torch.tensor(flat(wanted)), equal_nan=True)


def test_a_positive_of_score_minus_infinity_is_never_found():
    scores = torch.tensor([[-INF, -INF, -INF], [1.0, -INF, -INF]])
    target = torch.tensor([[0, 1], [0, 2]])
    assert F.recall_at_k(scores, target, (1, 3)).tolist() == [0.25, 0.25]
    assert F.average_precision(scores, target, by="sample", reduction="none").tolist() == [0, 0.5]
    assert F.average_precision(scores, target, reduction="none").tolist() == [0.5, 0, 0]
    assert F.f1_counts(scores, target, threshold=-1e30).predicted.tolist() == [1, 0, 0]
    assert F.f1_counts(scores, target, k=3).predicted.tolist() == [1, 0, 0]
    assert F.binned_average_precision(scores, target, bins=3, reduction="none").upper.tolist() == [0.5, 0, 0]


def test_infinite_scores_are_the_best():
    scores = torch.tensor([[0.0, INF, 1.0], [INF, INF, 1.0]])
    assert F.topk_accuracy(scores, torch.tensor([1, 0]), 1) == 0.75
    assert F.average_precision(scores, torch.tensor([1, 0]), by="sample") == 0.75
    assert F.average_k_accuracy(scores, torch.tensor([1, 0]), k=1).item() == pytest.approx(2 / 3)


@each_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_precision_answers_in_float64(case, dtype):
    scores, hot = draw(case, 6, 2)
    got, wanted = case.function(scores.to(dtype), hot.to(dtype)), case.function(scores, hot)
    assert got.dtype == torch.float64
    assert torch.equal(got, wanted)


@each_function
def test_scores_may_carry_a_gradient(case):
    scores, hot = draw(case, 6, 2)
    assert not case.function(scores.requires_grad_(), hot).requires_grad


@each_function
def test_inputs_are_left_alone(case):
    scores, hot = draw(case, 6, 2)
    before = scores.clone(), hot.clone()
    case.function(scores, hot)
    assert torch.equal(scores, before[0])
    assert torch.equal(hot, before[1])


@each_function
def test_scores_that_are_not_contiguous_are_read_right(case):
    scores, hot = draw(case, 6, 2)
    wide = torch.zeros(6, 2 * N, dtype=torch.float64)
    wide[:, ::2] = scores
    assert torch.allclose(case.function(wide[:, ::2], hot), case.function(scores, hot), equal_nan=True)
    assert torch.allclose(case.function(scores.T.contiguous().T, hot), case.function(scores, hot), equal_nan=True)


@each_of_scores
def test_nan_scores_are_one_clear_error(case):
    scores, hot = draw(case, 6, 2, absent=0, unknown=0)
    scores[3, 1] = math.nan
    scores[4, 2] = INF
    scores[5, 2] = -INF
    with pytest.raises(ValueError, match="`scores` row 3: scores must not be NaN"):
        case.function(scores, hot)


@each_of_scores
@pytest.mark.parametrize(
    ("scores", "target", "error", "message"),
    [
        (torch.zeros(2, N, dtype=torch.int64), torch.zeros(2, N), TypeError, "`scores` must be a floating tensor"),
        (torch.zeros(N), torch.zeros(N), ValueError, r"`scores` must have the shape \(rows, labels\); got \(5,\)"),
        (torch.zeros(2, N), torch.zeros(3, N), ValueError, "`target` must have the 2 rows of `scores`"),
        (torch.zeros(2, N), torch.zeros(2, 4), ValueError, "multi-hot `target` must have 2 dimensions"),
        (torch.zeros(2, N), torch.tensor([0, N]), ValueError, r"`target` row 1: label 5 must lie in \[0, 5\)"),
        (torch.zeros(2, N), torch.full((2, N), 0.5), ValueError, "row 0: label 0 must have value 0, 1 or negative"),
    ],
)
def test_wrong_inputs_are_named(case, scores, target, error, message):
    with pytest.raises(error, match=message):
        case.function(scores, target)


@pytest.mark.parametrize(
    "function", [F.hits_at_k, F.precision_at_k, F.recall_at_k, F.f1_at_k, F.ndcg_at_k, F.topk_accuracy]
)
def test_k_must_be_a_whole_number_of_labels(function):
    scores, target = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"`k` must lie in \[1, 3\]; got 4"):
        function(scores, target, (1, 4))
    with pytest.raises(ValueError, match=r"`k` must .* got 0"):
        function(scores, target, 0)
    with pytest.raises(TypeError, match=r"`k` must be a whole number; got 1.5"):
        function(scores, target, 1.5)
    assert function(scores, target, (3, 1)).shape[-1] == 2
    assert function(scores, target, [1]).ndim == function(scores, target, 1).ndim + 1


def test_accuracy_wants_one_class_per_row():
    with pytest.raises(ValueError, match="`target` row 1: one label must be positive for accuracy; got 2"):
        F.topk_accuracy(torch.zeros(2, 3), torch.tensor([[0, -1], [1, 2]]), 1)


@pytest.mark.parametrize("mask", [torch.ones(3).bool(), torch.ones(2)])
def test_a_mask_is_one_bool_per_row(mask):
    with pytest.raises((ValueError, TypeError), match="`mask` must"):
        F.precision_at_k(torch.zeros(2, 3), torch.tensor([0, 1]), 1, mask=mask)


def test_thresholds_are_one_or_one_per_label():
    scores, target = torch.tensor([[0.3, 0.7], [0.6, 0.4]]), torch.tensor([0, 1])
    assert F.f1_score(scores, target, threshold=0.3) == pytest.approx(2 * 2 / (4 + 2))
    assert F.f1_score(scores, target, threshold=torch.tensor([0.5, 0.3])) == pytest.approx(2 * 1 / (3 + 2))
    with pytest.raises(ValueError, match=r"one value per label, shape \(2,\); got \(3,\)"):
        F.f1_score(scores, target, threshold=torch.zeros(3))
    with pytest.raises(TypeError, match=r"`threshold` must be a floating tensor or array; got torch.int64"):
        F.f1_score(scores, target, threshold=torch.tensor([1, 2]))


def test_one_value_per_label_for_f1():
    values = F.f1_score(torch.eye(3), torch.tensor([0, 1, 1]), threshold=0.5, average="none")
    assert torch.allclose(values[:2], torch.tensor([1.0, 2 / 3]).double())
    assert values[2].isnan()

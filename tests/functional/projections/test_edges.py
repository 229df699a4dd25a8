"""Edge rules of every projection: what is absent, certain, NaN, empty or refused."""

import math
import re

import pytest
import torch

from tests.contracts import BY_NAME, EXACTLY_K, PER_LABEL, PROJECTIONS, WITH_K, Projection
from tests.functional.paths import every_path, on_each_path

INF, NAN = math.inf, math.nan
AT_MOST_K = [projection for projection in WITH_K if projection.budget]
NOT_BUDGETS = [projection for projection in WITH_K if not projection.budget]

each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
each_with_k = pytest.mark.parametrize("projection", WITH_K, ids=str)
each_per_label = pytest.mark.parametrize("projection", PER_LABEL, ids=str)


def equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.nan_to_num(nan=-77), right.nan_to_num(nan=-77))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (0, 4, 5)])
@each_projection
def test_no_rows_give_no_rows_and_an_empty_gradient(projection, shape):
    logits = torch.zeros(shape, requires_grad=True)
    result = projection(logits, 1)
    assert result.shape == (shape[:-1] if projection.is_dual else shape)
    result.sum().backward()
    assert logits.grad.shape == shape


@each_with_k
def test_no_labels_answer_only_to_no_k(projection):
    logits = torch.zeros(3, 0, requires_grad=True)
    result = projection(logits, 0)
    assert result.shape == ((3,) if projection.is_dual else (3, 0))
    result.sum().backward()
    assert logits.grad.shape == (3, 0)


@pytest.mark.parametrize("projection", [p for p in PROJECTIONS if not p.budget], ids=str)
def test_one_of_no_labels_is_refused(projection):
    with pytest.raises(ValueError, match=re.escape("`k` must lie in [0, 0]; got 1.")):
        projection(torch.zeros(3, 0), 1)


@every_path
@pytest.mark.parametrize("projection", EXACTLY_K, ids=str)
def test_a_single_label_gets_all_of_k(projection):
    for logit in (0.0, 1e4, -1e4, 3e38):
        for k in (0, 0.25, 1):
            probs = projection.probs(torch.tensor([[logit]]), k)
            assert torch.allclose(probs, torch.tensor([[float(projection.wanted(k))]]), atol=1e-6)


@every_path
@pytest.mark.parametrize("projection", NOT_BUDGETS, ids=str)
def test_no_k_takes_none_and_k_of_n_takes_all(projection, fresh):
    logits = 30 * torch.randn(4, 7, generator=fresh)
    none, everything = projection(logits, 0), projection(logits, 7)
    assert (none == (-INF if projection.is_dual or projection.is_log else 0)).all()
    assert (everything == (INF if projection.is_dual else 0 if projection.is_log else 1)).all()


@on_each_path("projection", [projection for projection in EXACTLY_K if projection.takes_k])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_k_of_n_takes_labels_that_are_as_far_apart_as_numbers_go(projection, dtype, temperature):
    most = torch.finfo(dtype).max
    for row in ([0.0, 0.5], [0.0, 1.0], [-1.0, 1.0], [-1.0, 0.0], [1.0, 0.0, -1.0], [-0.3, 0.6, -INF]):
        x = torch.tensor(row, dtype=dtype) * most
        present = x > -INF
        everything = projection.probs(x, int(present.sum()), temperature=temperature)
        assert torch.equal(everything, present.to(dtype)), row


@on_each_path("projection", EXACTLY_K)
@pytest.mark.parametrize(("n", "scale"), [(3, 1.0), (50, 0.01), (50, 3.0), (400, 1.0)])
def test_where_k_takes_every_label_nothing_moves(projection, dtype, n, scale, fresh):
    if not projection.takes_k:
        pytest.skip("takes no k")
    logits = scale * torch.randn(5, n, generator=fresh, dtype=torch.float64).to(dtype)
    for absent in (0, n // 3):
        x = logits.clone()
        x[:, :absent] = -INF
        x.requires_grad_()
        probs = projection.probs(x, n - absent)
        assert (probs[:, absent:] == 1).all()
        assert (torch.autograd.grad((probs * logits).sum(), x)[0] == 0).all()


@every_path
@each_per_label
def test_where_no_more_than_k_are_present_each_is_taken(projection):
    logits = torch.tensor([[2.0, -INF, 3.0, -INF], [-INF] * 4, [1.0, -INF, -INF, -INF]])
    probs = projection.probs(logits, 2)
    assert (probs[1] == 0).all()
    if projection.takes_k and not projection.budget:
        assert probs.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]


@on_each_path("projection", [p for p in EXACTLY_K if p.takes_k])
def test_ties_of_as_many_as_are_wanted_are_taken_whole_and_do_not_move(projection, dtype, fresh):
    tied = torch.randn(200, 1, generator=fresh, dtype=torch.float64).to(dtype).repeat(1, 3)
    for absent in (0, 7):
        logits = torch.cat([tied, tied.new_full((200, absent), -INF)], -1).requires_grad_()
        probs = projection.probs(logits, 3, temperature=0.3)
        assert (probs[:, :3] == 1).all()
        assert (torch.autograd.grad(probs.square().cumsum(-1).sum(), logits)[0] == 0).all()


@each_projection
def test_a_mask_means_minus_infinity_and_broadcasts(projection, fresh):
    logits = torch.randn(2, 3, 6, generator=fresh)
    for shape in [(2, 3, 6), (3, 6), (6,), (1, 1, 6), (2, 1, 6), (2, 3, 1), (1,)]:
        mask = torch.rand(shape, generator=fresh) > 0.3
        assert equal(projection(logits, 2, mask=mask), projection(logits.masked_fill(~mask, -INF), 2))


@each_projection
def test_what_a_mask_hides_does_not_matter(projection, fresh):
    logits = torch.randn(3, 6, generator=fresh)
    mask = torch.tensor([True, True, False, True, False, True])
    spoiled = logits.masked_fill(~mask, NAN)
    assert equal(projection(spoiled, 2, mask=mask), projection(logits, 2, mask=mask))


@every_path
@pytest.mark.parametrize("projection", EXACTLY_K, ids=str)
def test_certain_labels_are_taken_and_the_rest_share_what_is_left(projection):
    rest = torch.tensor([0.4, -1.0, 2.0, 0.1])
    logits = torch.cat([torch.tensor([INF]), rest])
    if not projection.takes_k:
        assert projection(logits, 1).tolist() == [1, 0, 0, 0, 0]
        return
    for k in (1, 1.5, 2, 3.75):
        probs = projection.probs(logits, k)
        assert probs[0] == 1
        assert torch.allclose(probs[1:], projection.probs(rest, k - 1), atol=1e-6)


@every_path
@pytest.mark.parametrize("k", [0.5, 1, 2])
@each_per_label
def test_more_certain_labels_than_k_share_it_equally(projection, k):
    logits = torch.tensor([INF, 0.0, INF, -INF, 5.0, INF])
    expected = torch.tensor([1.0, 0, 1, 0, 0, 1]) * projection.wanted(k) / 3
    assert torch.allclose(projection.probs(logits, k), expected, atol=1e-6)


@every_path
@pytest.mark.parametrize("bad", [NAN, -NAN])
@each_projection
def test_nan_spoils_its_own_row_and_no_other(projection, bad, fresh):
    logits = torch.randn(5, 40, generator=fresh)
    logits[4] *= 1e3
    logits[1, 7], logits[3] = bad, bad
    result = projection(logits, 3)
    assert result[[1, 3]].isnan().all()
    for row in (0, 2, 4):
        assert torch.allclose(result[row], projection(logits[row], 3), rtol=2e-6, atol=1e-7)


@every_path
@pytest.mark.parametrize("projection", NOT_BUDGETS, ids=str)
def test_a_k_outside_its_range_spoils_its_own_row_and_no_other(projection, fresh):
    logits = torch.randn(6, 9, generator=fresh)
    k = torch.tensor([2.0, -0.5, NAN, 9.5, INF, 3.0])
    result = projection(logits, k)
    assert result[1:5].isnan().all()
    assert torch.allclose(result[[0, 5]], projection(logits[[0, 5]], k[[0, 5]]), rtol=1e-6, atol=1e-6)


@every_path
@pytest.mark.parametrize("projection", AT_MOST_K, ids=str)
def test_a_budget_of_more_than_all_is_no_constraint(projection, fresh):
    logits = torch.randn(3, 9, generator=fresh)
    free = projection(logits, 9)
    for k in (9.5, 100, torch.tensor([9.5, 12, 1e6])):
        assert torch.equal(projection(logits, k), free)
    spoiled = projection(logits, torch.tensor([1.0, -0.5, NAN]))
    assert spoiled[1:].isnan().all()
    assert torch.allclose(spoiled[0], projection(logits[0], 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (3,), (), (2, 1), (2, 3, 1)])
@each_with_k
def test_a_tensor_k_broadcasts_over_the_rows(projection, shape, fresh):
    logits = torch.randn(2, 3, 6, generator=fresh)
    k = 1 + 4 * torch.rand(shape, generator=fresh)
    full = (k.squeeze(-1) if k.ndim == 3 else k).expand(2, 3)
    result = projection(logits, k)
    for i in range(2):
        for j in range(3):
            alone = projection(logits[i, j], full[i, j].item())
            assert torch.allclose(result[i, j], alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float16, torch.int32], ids=str)
@each_with_k
def test_a_tensor_k_of_another_dtype_is_taken_by_value(projection, dtype, fresh):
    logits = torch.randn(3, 6, generator=fresh)
    k = torch.tensor([1, 2, 3], dtype=dtype)
    result = projection(logits, k)
    assert result.dtype == torch.float32
    assert torch.equal(result, projection(logits, k.float()))


TEN = torch.zeros(2, 10)
REFUSED = {
    "k above n": (ValueError, "`k` must lie in [0, 10]; got 11.", TEN, 11, {}),
    "k just above n": (ValueError, "`k` must lie in [0, 10]; got 10.5.", TEN, 10.5, {}),
    "k below 0": (ValueError, "`k` must lie in [0, 10]; got -1.", TEN, -1, {}),
    "k NaN": (ValueError, "`k` must lie in [0, 10]; got nan.", TEN, NAN, {}),
    "k infinite": (ValueError, "`k` must lie in [0, 10]; got inf.", TEN, INF, {}),
    "k of a wrong shape": (
        ValueError,
        "`k` must be a number or have one value per row, shape (2,); got (3,).",
        TEN,
        torch.ones(3),
        {},
    ),
    "k per label": (
        ValueError,
        "`k` must be a number or have one value per row, shape (2,); got (2, 10).",
        TEN,
        torch.ones(2, 10),
        {},
    ),
    "k text": (TypeError, "`k` must be a number or a real tensor; got str.", TEN, "3", {}),
    "k missing": (TypeError, "`k` must be a number or a real tensor; got NoneType.", TEN, None, {}),
    "k bool": (
        TypeError,
        "`k` must be a number or a real tensor; got torch.bool.",
        TEN,
        torch.ones(2).bool(),
        {},
    ),
    "integer logits": (
        TypeError,
        "`logits` must be a floating tensor; got torch.int64.",
        torch.ones(4, dtype=torch.int64),
        1,
        {},
    ),
    "logits in a list": (TypeError, "`logits` must be a floating tensor; got list.", [1.0, 2.0], 1, {}),
    "logits without axes": (ValueError, "`logits` must have a label axis", torch.tensor(1.0), 1, {}),
    "dim too large": (ValueError, "`dim` must lie in [-2, 1]; got 2.", TEN, 1, {"dim": 2}),
    "dim too small": (ValueError, "`dim` must lie in [-2, 1]; got -3.", TEN, 1, {"dim": -3}),
    "mask of numbers": (
        TypeError,
        "`mask` must be a bool tensor, False where a label is absent; got torch.float32.",
        TEN,
        1,
        {"mask": torch.ones(2, 10)},
    ),
    "mask in a list": (TypeError, "`mask` must be a bool tensor", TEN, 1, {"mask": [True] * 10}),
    "mask of a wrong shape": (
        ValueError,
        "`mask` must broadcast to the shape of `logits` (2, 10); got (3,).",
        TEN,
        1,
        {"mask": torch.ones(3, dtype=torch.bool)},
    ),
    "mask with more axes": (
        ValueError,
        "`mask` must broadcast to the shape of `logits` (2, 10); got (4, 2, 10).",
        TEN,
        1,
        {"mask": torch.ones(4, 2, 10, dtype=torch.bool)},
    ),
    "temperature 0": (
        ValueError,
        "`temperature` must be positive and finite; got 0.",
        TEN,
        1,
        {"temperature": 0},
    ),
    "temperature below 0": (
        ValueError,
        "`temperature` must be positive and finite; got -1.5.",
        TEN,
        1,
        {"temperature": -1.5},
    ),
    "temperature NaN": (
        ValueError,
        "`temperature` must be positive and finite; got nan.",
        TEN,
        1,
        {"temperature": NAN},
    ),
    "temperature infinite": (
        ValueError,
        "`temperature` must be positive and finite; got inf.",
        TEN,
        1,
        {"temperature": INF},
    ),
    "temperature in a tensor": (
        TypeError,
        "`temperature` must be a number",
        TEN,
        1,
        {"temperature": torch.tensor(1.0)},
    ),
}
ALLOWED_BY_BUDGETS = {"k above n", "k just above n", "k infinite"}


def refused(projection: Projection, case: str) -> bool:
    return not case.startswith("k ") or (projection.takes_k and not (projection.budget and case in ALLOWED_BY_BUDGETS))


@pytest.mark.parametrize(
    ("projection", "case"),
    [pytest.param(p, case, id=f"{p}-{case}") for p in PROJECTIONS for case in REFUSED if refused(p, case)],
)
def test_wrong_arguments_are_named_with_their_rule(projection, case):
    error, text, logits, k, options = REFUSED[case]
    with pytest.raises(error, match=re.escape(text)):
        projection(logits, k, **options)


@each_projection
def test_nothing_is_printed(projection, capfd, fresh):
    logits = torch.randn(3, 6, generator=fresh, requires_grad=True)
    hard = torch.tensor([[1e3, 0.0, -INF], [NAN, 1.0, 2.0], [INF, INF, 0.0]])
    projection(logits, 2).sum().backward()
    projection(hard, 1)
    captured = capfd.readouterr()
    assert not captured.out
    assert not captured.err


def test_lml_at_one_label_is_not_softmax():
    logits = torch.tensor([1.0, 0.0, -1.0])
    assert (BY_NAME["lml"](logits, 1) - logits.softmax(-1)).abs().max() > 0.01

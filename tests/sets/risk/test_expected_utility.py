"""Sets of greatest expected utility are the best of all subsets."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from shortlist.sets import ExpectedF, ExpectedUtility, expected_f, f_utility, load_rule, u65, u80
from tests.nn.test_onnx import export
from tests.nn.test_onnx import pytestmark as exporter_warnings
from tests.sets.worlds import TIE_KINDS, seeded, tied_scores

pytestmark = exporter_warnings
UTILITIES = {
    "u65": u65,
    "u80": u80,
    "F1": f_utility(1.0),
    "F3": f_utility(3.0),
    "accuracy": lambda size: 1 / size,
    "any": lambda size: 1.0,
    "uneven": lambda size: [0.1, 0.9, 0.0, 2.0][size % 4],
    "none": lambda size: 0.0,
}


def subsets(n: int) -> Tensor:
    """All of them, ``(2**n, n)``, small ones first and of one size those of low labels first."""
    return torch.tensor(
        [[i in some for i in range(n)] for size in range(n + 1) for some in itertools.combinations(range(n), size)]
    )


def best_subsets(utilities: Tensor, n: int) -> Tensor:
    """The first set whose utility is the greatest, up to rounding."""
    best = utilities >= utilities.amax(-1, keepdim=True) - 1e-12
    return subsets(n)[best.int().argmax(-1)]


def utilities_of(probs: Tensor, g, worth: Tensor | None = None) -> Tensor:
    """The expected utility of every subset, ``(rows, 2**n)``, from the definition."""
    n = probs.shape[-1]
    worth = torch.eye(n, dtype=torch.float64) if worth is None else worth
    sets = subsets(n).double()
    gains = torch.tensor([0.0, *(g(size) for size in range(1, n + 1))], dtype=torch.float64)[sets.sum(-1).long()]
    return torch.einsum("ry,yl,sl->rs", probs, worth, sets) * gains


@pytest.mark.parametrize("name", UTILITIES)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_the_set_is_the_best_of_all_subsets(name, n):
    probs = torch.rand(25, n, generator=seeded(n), dtype=torch.float64).pow(4)
    probs = torch.cat([probs, torch.eye(n, dtype=torch.float64), torch.zeros(1, n, dtype=torch.float64)])
    probs = probs / probs.sum(-1, keepdim=True).clamp(min=1e-9)
    rule = ExpectedUtility(UTILITIES[name]).fit(probs, from_logits=False)
    expected = best_subsets(utilities_of(probs, UTILITIES[name]), n)
    for mask in (rule(probs), rule.predict(probs).to_mask()):
        assert torch.equal(mask, expected)


@pytest.mark.parametrize("kind", TIE_KINDS)
def test_of_equal_labels_the_lower_is_inside_and_of_equal_sets_the_smaller(kind):
    scores = tied_scores(kind, 40, 6, seeded(1), torch.float64)
    rule = ExpectedUtility(u80).fit(scores, from_logits=False)
    assert torch.equal(rule(scores), best_subsets(utilities_of(scores, u80), 6))


@pytest.mark.parametrize("g", [lambda size: 1.0, u65, f_utility(2.0)])
@pytest.mark.parametrize("n", [1, 4, 9])
def test_with_worth_the_set_is_the_best_of_all_subsets_and_may_be_empty(g, n, tmp_path):
    probs = torch.rand(60, n, generator=seeded(n), dtype=torch.float64)
    probs = probs / probs.sum(-1, keepdim=True)
    worth = torch.randn(n, n, generator=seeded(9), dtype=torch.float64) + torch.eye(n) - 0.8
    rule = ExpectedUtility(g, worth=worth).fit(probs, from_logits=False)
    expected = best_subsets(utilities_of(probs, g, worth), n)
    assert torch.equal(rule(probs), expected)
    rule.save(tmp_path / "rule.json")
    assert torch.equal(load_rule(tmp_path / "rule.json").predict(probs).to_mask(), expected)
    if n == 4:
        assert not expected.any(-1).all()
        assert torch.equal(torch.from_numpy(export(rule.eval(), probs[:5])(probs)), expected)


def test_the_identity_is_no_worth_at_all():
    probs = torch.rand(50, 7, generator=seeded(2)).softmax(-1)
    plain = ExpectedUtility(u65).fit(probs, from_logits=False)
    assert torch.equal(ExpectedUtility(u65, worth=torch.eye(7)).fit(probs, from_logits=False)(probs), plain(probs))


@pytest.mark.parametrize("g", [u65, u80, f_utility(1.0), lambda size: 1.0, lambda size: float(size == 40)])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_many_labels_give_the_set_of_a_full_sort(g, temperature):
    """Most rows are settled by their first labels; flat ones, and utilities of large sets, are not."""
    logits = torch.randn(200, 300, generator=seeded(3), dtype=torch.float64) / temperature
    logits[:20] = 0.0
    logits[20:30, 100:] = -math.inf
    rule = ExpectedUtility(g).fit(logits, from_logits=True)
    probs = logits.softmax(-1)
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    gains = torch.tensor([g(size) for size in range(1, 301)], dtype=torch.float64)
    utilities = gains * ordered.cumsum(-1)
    utilities[20:30, 200:] = -1.0
    sizes = utilities.argmax(-1) + 1
    expected = torch.zeros_like(probs, dtype=torch.bool).scatter(-1, order, torch.arange(300) < sizes[:, None])
    assert torch.equal(rule(logits), expected)
    assert torch.equal(rule.predict(logits).to_mask(), expected)


def test_u65_and_u80_are_named_for_the_worth_of_two_labels():
    assert (u65(1), u65(2), u80(1), u80(2)) == pytest.approx((1.0, 0.65, 1.0, 0.8))


def reference_f(probs: list[float], answer: tuple[bool, ...], beta: float) -> float:
    """The expectation over all outcomes."""
    total = 0.0
    for truth in itertools.product([False, True], repeat=len(probs)):
        chance = math.prod(p if one else 1 - p for p, one in zip(probs, truth, strict=True))
        both = sum(answer) + beta**2 * sum(truth)
        hits = sum(a and b for a, b in zip(answer, truth, strict=True))
        total += chance * ((1 + beta**2) * hits / both if both else 1.0)
    return total


def all_expected_f(probs: Tensor, beta: float) -> Tensor:
    """Of every subset by every outcome, ``(rows, 2**n)``."""
    sets = subsets(probs.shape[-1]).double()
    chances = (probs[:, None] * sets + (1 - probs[:, None]) * (1 - sets)).prod(-1)
    both = sets.sum(-1)[:, None] + beta**2 * sets.sum(-1)
    f = torch.where(both > 0, (1 + beta**2) * (sets @ sets.T) / both.clamp(min=1e-9), 1.0)
    return chances @ f.T


def test_the_fast_reference_is_the_slow_one():
    probs = [0.9, 0.2, 0.5, 0.0]
    found = all_expected_f(torch.tensor([probs], dtype=torch.float64), 2.0)[0]
    expected = [reference_f(probs, tuple(some), 2.0) for some in subsets(4).tolist()]
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.0, math.pi])
@pytest.mark.parametrize("n", [1, 2, 6, 10])
def test_the_set_of_greatest_expected_f_is_the_best_of_all_subsets(beta, n):
    probs = torch.rand(40, n, generator=seeded(n), dtype=torch.float64)
    probs = torch.cat([probs, probs**6, 1 - probs**6, probs.round(), torch.full((1, n), 0.5)]).double()
    utilities = all_expected_f(probs, beta)
    rule = ExpectedF(beta).fit(probs, from_logits=False)
    assert torch.equal(rule(probs), best_subsets(utilities, n))
    ordered = probs.sort(-1, descending=True).values
    prefixes = torch.stack([all_expected_f(ordered, beta)[:, index] for index in prefix_indices(n)], -1)
    torch.testing.assert_close(expected_f(ordered, beta=beta), prefixes, rtol=1e-12, atol=1e-13)


def prefix_indices(n: int) -> list[int]:
    rows = subsets(n).tolist()
    return [rows.index([i < k for i in range(n)]) for k in range(n + 1)]


@pytest.mark.parametrize("mean", [0.5, 5.0, 60.0])
def test_expected_f_of_many_labels_agrees_with_simulation_and_with_all_sums(mean, monkeypatch):
    n = 400
    probs = torch.rand(3, n, generator=seeded(0), dtype=torch.float64).pow(8)
    probs = (probs * mean / probs.sum(-1, keepdim=True)).clamp(max=1.0).sort(-1, descending=True).values
    found = expected_f(probs)
    truth = torch.rand(4000, 3, n, generator=seeded(1), dtype=torch.float64) < probs
    sizes = torch.arange(1, n + 1).double()
    simulated = (2 * truth.cumsum(-1) / (sizes + truth.sum(-1, keepdim=True))).mean(0)
    torch.testing.assert_close(found[:, 1:], simulated, rtol=0, atol=0.03)
    monkeypatch.setattr("shortlist.sets.risk.expected_f._most_labels", lambda p, look: p.shape[-1])
    torch.testing.assert_close(expected_f(probs), found, rtol=0, atol=1e-14)


def test_saved_utilities_are_their_values(tmp_path):
    probs = torch.rand(30, 5, generator=seeded(4)).softmax(-1)
    rule = ExpectedUtility(lambda size: 1 / size**0.3).fit(probs, from_logits=False)
    rule.save(tmp_path / "rule.json")
    loaded = load_rule(tmp_path / "rule.json")
    assert loaded.options()["utility"] == [1 / size**0.3 for size in range(1, 6)]
    assert torch.equal(loaded.fit(probs, from_logits=False)(probs), rule(probs))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ExpectedUtility([1.0, -0.1]), ValueError, "`utility` must be finite and at least 0; got -0.1"),
        (lambda: ExpectedUtility([1.0, math.nan]), ValueError, "`utility` must be finite"),
        (lambda: ExpectedUtility(["a"]), TypeError, "`utility` must be a number"),
        (lambda: ExpectedUtility(3), TypeError, "`utility` must be a function of the size or a sequence"),
        (lambda: ExpectedUtility(u65, worth=torch.zeros(2, 3)), ValueError, "`worth` must be a square matrix"),
        (lambda: ExpectedUtility(u65, worth=[[math.inf]]), ValueError, "`worth` must be a square matrix of finite"),
        (lambda: ExpectedF(0), ValueError, "`beta` must be positive"),
        (lambda: f_utility(-1), ValueError, "`beta` must be positive"),
        (lambda: fit(ExpectedUtility([1.0])), ValueError, "`utility` must be for 3 labels; got 1"),
        (lambda: fit(ExpectedUtility(u65, worth=torch.eye(2))), ValueError, "`worth` must be for 3 labels; got 2"),
        (lambda: fit(ExpectedUtility(lambda size: -1.0)), ValueError, "`utility` must be .* at least 0"),
        (lambda: fit(ExpectedUtility(u65), -torch.ones(1, 3)), ValueError, "`scores` must be probabilities, not neg"),
        (lambda: fit(ExpectedF(), torch.full((1, 3), 1.5)), ValueError, r"`scores` must be probabilities, in \[0, 1\]"),
    ],
)
def test_wrong_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def fit(rule, scores: Tensor | None = None) -> nn.Module:
    return rule.fit(torch.ones(1, 3) / 3 if scores is None else scores, from_logits=False)

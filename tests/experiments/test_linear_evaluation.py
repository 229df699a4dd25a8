"""Logistic regression along a path of penalties, and the choice of one."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from experiments.linear_evaluation import Linear, at_best, logistic_path, strengths


def small_problem():
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    classes = (plain @ torch.randn(4, 3, generator=generator, dtype=torch.float64) + 2 * noise).argmax(-1)
    return plain * torch.tensor([1.0, 5.0, 0.2, 2.0]) + 3, classes


def test_every_point_of_the_path_is_what_scikit_learn_finds():
    features, classes = small_problem()
    penalties = [100.0, 1.0, 0.01]
    path = logistic_path(features, classes, 3, penalties, steps=500, tolerance=1e-10)
    for penalty, found in zip(penalties, path, strict=True):
        other = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(features.numpy(), classes.numpy())
        scores = features @ found.weight + found.bias
        expected = torch.from_numpy(other.predict_proba(features.numpy()))
        torch.testing.assert_close(scores.softmax(-1), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            found.weight - found.weight.mean(-1, keepdim=True), torch.from_numpy(other.coef_.T), atol=1e-4, rtol=1e-4
        )


def test_a_feature_that_never_varies_does_no_harm():
    features, classes = small_problem()
    features[:, 2] = 7.0
    (found,) = logistic_path(features.float(), classes, 3, [1.0])
    assert found.weight.isfinite().all()
    assert found.weight[2].abs().max() < 1e-4


def test_a_penalty_must_be_positive():
    features, classes = small_problem()
    with pytest.raises(ValueError, match="`penalties` must be above 0; got 0"):
        next(logistic_path(features, classes, 3, [0.0]))


def test_penalties_go_from_strong_to_weak_over_the_whole_range():
    found = strengths({"least": 1e-6, "most": 1e5, "count": 45})
    assert (len(found), found[0], found[-1]) == (45, 1e5, 1e-6)
    assert found == sorted(found, reverse=True)


def test_of_equal_validation_figures_the_strongest_penalty_is_chosen():
    assert at_best({"val": [0.6, 0.7, 0.7], "test": [0.9, 0.5, 0.8]}, "val") == 0.5
    assert at_best({"val": [0.6, 0.7, 0.7], "test": [0.9, 0.5, 0.8]}, "test") == 0.9


def test_accuracy_counts_rows_whose_largest_score_is_right():
    classifier = Linear(torch.eye(2), torch.zeros(2))
    assert classifier.accuracy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])) == 0.5

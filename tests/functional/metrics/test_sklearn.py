"""The metrics agree with scikit-learn where it has them; ties only where both mean the same by them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from shortlist import functional as F

pytestmark = pytest.mark.cpu_only

many = settings(derandomize=True, deadline=None, max_examples=60)
shapes = {"rows": st.integers(1, 12), "n": st.integers(2, 6), "seed": st.integers(0, 10**6)}


def drawn(rows, n, seed, *, tied):
    """Scores and a multi-hot; without ties, all scores of a case differ."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (rows, n)).astype(float) if tied else rng.permutation(rows * n).reshape(rows, n) / 7
    return scores, rng.random((rows, n)) < rng.choice([0.1, 0.3, 0.7]), rng


@many
@given(tied=st.booleans(), **shapes)
def test_average_precision_by_class(tied, rows, n, seed):
    scores, hot, _ = drawn(rows, n, seed, tied=tied)
    got = F.average_precision(torch.tensor(scores), torch.tensor(hot), reduction="none")
    occurs = hot.any(0)
    assert np.array_equal(occurs, ~got.isnan().numpy())
    if occurs.any():
        wanted = sklearn_metrics.average_precision_score(hot[:, occurs], scores[:, occurs], average=None)
        assert np.allclose(got[occurs], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("levels", [10, 300, None])
def test_average_precision_by_class_of_many_rows(levels):
    """From few positives to almost all, in one table."""
    rng = np.random.default_rng(0)
    scores = (
        rng.permutation(1000 * 9).reshape(1000, 9) / 7 if levels is None else rng.integers(0, levels, (1000, 9)) / 7
    )
    hot = rng.random((1000, 9)) < [0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 0.99]
    hot[0] = True
    for x in (scores, scores.astype(np.float32)):
        got = F.average_precision(torch.tensor(x), torch.tensor(hot), reduction="none")
        wanted = sklearn_metrics.average_precision_score(hot, x, average=None)
        assert np.allclose(got, wanted, rtol=0, atol=1e-12)


@many
@given(tied=st.booleans(), **shapes)
def test_average_precision_by_sample_is_label_ranking(tied, rows, n, seed):
    scores, hot, _ = drawn(rows, n, seed, tied=tied)
    kept = hot.any(1)
    got = F.average_precision(torch.tensor(scores), torch.tensor(hot), by="sample")
    if not kept.any():
        assert got.isnan()
        return
    wanted = sklearn_metrics.label_ranking_average_precision_score(hot[kept], scores[kept])
    assert np.isclose(got, wanted, atol=1e-12)


@many
@given(tied=st.booleans(), **shapes)
def test_ndcg(tied, rows, n, seed):
    scores, hot, rng = drawn(rows, n, seed, tied=tied)
    k = int(rng.integers(1, n + 1))
    kept = hot.any(1)
    if kept.any():
        got = F.ndcg_at_k(torch.tensor(scores), torch.tensor(hot), k)
        assert np.isclose(got, sklearn_metrics.ndcg_score(hot[kept], scores[kept], k=k), atol=1e-12)


@many
@given(**shapes)
def test_top_k_accuracy(rows, n, seed):
    scores, _, rng = drawn(rows, n, seed, tied=False)
    classes, k = rng.integers(0, n, rows), int(rng.integers(1, n))
    truth, shown = (classes, scores) if n > 2 else (classes, scores[:, 1] - scores[:, 0])
    if n == 2:  # two classes are one score and a threshold there
        wanted = np.mean((shown > 0) == (truth == 1))
    else:
        wanted = sklearn_metrics.top_k_accuracy_score(truth, shown, k=k, labels=np.arange(n))
    assert np.isclose(F.topk_accuracy(torch.tensor(scores), torch.tensor(classes), k), wanted, atol=1e-12)


@many
@given(**shapes)
def test_macro_top_k_accuracy_is_that_of_each_class_that_occurs(rows, n, seed):
    scores, _, rng = drawn(rows, n + 1, seed, tied=False)
    classes, k = rng.integers(0, n + 1, rows), int(rng.integers(1, n + 1))
    by_class = [
        sklearn_metrics.top_k_accuracy_score(classes[chosen], scores[chosen], k=k, labels=np.arange(n + 1))
        for chosen in (classes == c for c in np.unique(classes))
    ]
    got = F.topk_accuracy(torch.tensor(scores), torch.tensor(classes), k, average="macro")
    assert np.isclose(got, np.mean(by_class), atol=1e-12)


@pytest.mark.parametrize("average", ["micro", "macro"])
@many
@given(**shapes)
def test_f1_at_a_threshold(average, rows, n, seed):
    scores, hot, rng = drawn(rows, n, seed, tied=True)
    threshold = float(rng.integers(0, 4))
    got = F.f1_score(torch.tensor(scores), torch.tensor(hot), threshold=threshold, average=average)
    predicted, occurs = scores >= threshold, np.flatnonzero(hot.any(0))
    if average == "macro" and len(occurs) == 0:
        assert got.isnan()
        return
    labels = occurs if average == "macro" else None
    wanted = sklearn_metrics.f1_score(hot, predicted, average=average, labels=labels, zero_division=np.nan)
    assert np.isclose(got, wanted, atol=1e-12, equal_nan=True)


@many
@given(**shapes)
def test_f1_at_k(rows, n, seed):
    scores, hot, rng = drawn(rows, n, seed, tied=False)
    k = int(rng.integers(1, n + 1))
    predicted = np.zeros_like(hot)
    np.put_along_axis(predicted, np.argsort(-scores, 1)[:, :k], True, 1)
    got = F.f1_score(torch.tensor(scores), torch.tensor(hot), k=k)
    assert np.isclose(got, sklearn_metrics.f1_score(hot, predicted, average="micro"), atol=1e-12)

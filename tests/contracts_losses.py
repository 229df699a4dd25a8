"""Every loss once: its reference and its contract.

A reference computes the loss from its formula, slowly and obviously: for one row, or for the whole batch where the loss
couples rows. A row is a sequence of floats, its labels are a set of positives and a set of unknown labels; all others
are negatives. ``weight`` is a sequence with one number per label. Subsets are enumerated and ranks are counted, so rows
must be short. Values are numbers of ``MP``.
"""

from functools import wraps
from itertools import combinations

import torch

from shortlist import functional as F
from shortlist import nn
from tests.loss_contract import EXPECTED, FORMS, Loss, N, batch, label_sets, random_hot, value_and_gradient
from tests.multiprecision import MP
from tests.reference import log_lml, noised_kth_largest, sparse_top

__all__ = [
    "BUILDING_BLOCKS",
    "EXPECTED",
    "FORMS",
    "LOSSES",
    "MARGINS",
    "PRESETS",
    "SCORES",
    "Loss",
    "N",
    "batch",
    "label_sets",
    "random_hot",
    "value_and_gradient",
]


def _without(row, unknown):
    """The row with -inf at its unknown labels."""
    return [MP.ninf if j in unknown else MP.mpf(x) for j, x in enumerate(row)]


def _negatives(row, positives, unknown):
    return [j for j in range(len(row)) if j not in positives and j not in unknown]


def _weights(weight, row):
    return [MP.mpf(1)] * len(row) if weight is None else [MP.mpf(w) for w in weight]


def _positive_part(x):
    return max(MP.mpf(0), x)


def _of_class(margin, y):
    """A margin is one number for all classes, or one for each."""
    return MP.mpf(margin[y] if hasattr(margin, "__len__") else margin)


def _nll(x):
    """-log σ(x), with all digits in both tails."""
    return MP.log1p(MP.exp(-MP.mpf(x)))


def _descending(values):
    return sorted(values, reverse=True)


def one_class(loss):
    """Give ``loss(row, y, ...)`` the signature of a set: weighted by its class, 0 for a row without one."""

    @wraps(loss)
    def on_set(row, positives, unknown=frozenset(), *args, weight=None, **options):
        if not positives:
            return MP.mpf(0)
        (y,) = positives
        return _weights(weight, row)[y] * loss(_without(row, unknown), y, *args, **options)

    return on_set


@one_class
def cross_entropy(row, y):
    return MP.log(MP.fsum(MP.exp(x) for x in row)) - row[y]


@one_class
def focal(row, y, gamma=2):
    p = MP.exp(row[y]) / MP.fsum(MP.exp(x) for x in row)
    rest = MP.fsum(MP.exp(x) for j, x in enumerate(row) if j != y) / MP.fsum(MP.exp(x) for x in row)
    return rest ** MP.mpf(gamma) * -MP.log(p)


@one_class
def ldam(row, y, margin, scale=30):
    shifted = [MP.mpf(scale) * (x - (_of_class(margin, y) if j == y else 0)) for j, x in enumerate(row)]
    return MP.log(MP.fsum(MP.exp(x) for x in shifted)) - shifted[y]


@one_class
def truncated_topk_entropy(row, y, k):
    kept = _descending(x for j, x in enumerate(row) if j != y)[k - 1 :]
    return MP.log1p(MP.fsum(MP.exp(x - row[y]) for x in kept))


@one_class
def topk_hinge(row, y, k, kind="calibrated", margin=1):
    others = _descending(x for j, x in enumerate(row) if j != y)
    everyone = _descending(row)
    if kind == "convex":
        raised = _descending(x + (0 if j == y else MP.mpf(margin)) for j, x in enumerate(row))
        return _positive_part(MP.fsum(raised[:k]) / k - row[y])
    if k == len(row):
        return MP.mpf(0)
    rival = others[k - 1] if kind == "plain" else everyone[k]
    return _positive_part(MP.mpf(margin) + rival - row[y])


@one_class
def smooth_topk_svm(row, y, k, temperature=1, margin=1):
    """τ log Σ over all k-subsets, the margin added to those without y, minus τ log Σ over those with y."""
    others = [x for j, x in enumerate(row) if j != y and x > MP.ninf]
    without = [MP.fsum(chosen) / k for chosen in combinations(others, k)]
    containing = [(MP.fsum(chosen) + row[y]) / k for chosen in combinations(others, k - 1)]
    if not without:
        return MP.mpf(0)
    if temperature == 0:
        return _positive_part(MP.mpf(margin) + max(without) - max(containing))
    tau = MP.mpf(temperature)
    wrong = MP.fsum(MP.exp((MP.mpf(margin) + mean) / tau) for mean in without)
    right = MP.fsum(MP.exp(mean / tau) for mean in containing)
    return tau * MP.log(wrong + right) - tau * MP.log(right)


@one_class
def noised_topk(row, y, k, noise, epsilon=1, margin=1, scale=1):
    if k == len(row):
        return MP.mpf(0)
    rival = noised_kth_largest(row, k + 1, noise, epsilon)
    return _positive_part(MP.mpf(scale) * (_of_class(margin, y) + rival - row[y]))


def lml_nll(row, positives, unknown=frozenset(), k=1, weight=None):
    log_p, w = log_lml(_without(row, unknown), k), _weights(weight, row)
    return -MP.fsum(w[j] * log_p[j] for j in positives)


def multilabel_softmax(row, positives, unknown=frozenset(), weight=None):
    if not positives:
        return MP.mpf(0)
    w, x = _weights(weight, row), _without(row, unknown)
    total = MP.log(MP.fsum(MP.exp(value) for value in x))
    return MP.fsum(w[i] * (total - x[i]) for i in positives) / len(positives)


def plackett_luce(row, positives, unknown=frozenset(), weight=None):
    """Draw labels one after the other: the probability that the positives come first, in any order."""
    if not positives:
        return MP.mpf(0)
    w, power = _weights(weight, row), [MP.exp(x) for x in _without(row, unknown)]
    rest = MP.fsum(power[j] for j in _negatives(row, positives, unknown))
    if not rest:
        return MP.mpf(0)
    if len(positives) <= 6:
        first = {frozenset(): MP.mpf(1)}
        for size in range(1, len(positives) + 1):
            for left in map(frozenset, combinations(positives, size)):
                total = rest + MP.fsum(power[j] for j in left)
                first[left] = MP.fsum(power[j] / total * first[left - {j}] for j in left)
        probability = first[frozenset(positives)]
    else:  # label j comes after an exponential time with rate power[j]: all positives before the first of the rest
        times = [MP.exp(MP.mpf(i) / 8) for i in range(-400, 50)]
        ratios = [power[j] / rest for j in positives]
        probability = MP.fsum(t * MP.exp(-t) * MP.fprod(-MP.expm1(-r * t) for r in ratios) for t in times) / 8
    return -MP.log(probability) * MP.fsum(w[j] for j in positives) / len(positives)


def multilabel_truncated_topk_entropy(row, positives, unknown=frozenset(), k=1, weight=None):
    w = _weights(weight, row)
    rivals = _descending(MP.mpf(row[j]) for j in _negatives(row, positives, unknown))[max(0, k - len(positives)) :]
    return MP.fsum(w[i] * MP.log1p(MP.fsum(MP.exp(x - MP.mpf(row[i])) for x in rivals)) for i in positives)


def _two_way_term(line, positives, negatives, positive_temperature, negative_temperature, margin):
    tp, tn = MP.mpf(positive_temperature), MP.mpf(negative_temperature)
    up = tn * MP.log(MP.fsum(MP.exp(MP.mpf(line[j]) / tn) for j in negatives))
    down = tp * MP.log(MP.fsum(MP.exp(-MP.mpf(line[i]) / tp) for i in positives))
    return MP.log1p(MP.exp(up + down + MP.mpf(margin)))


def _two_way_terms(lines, positives, unknown, options):
    """One value per line; None without a positive or a known negative."""
    terms = []
    for line, present, unclear in zip(lines, positives, unknown, strict=True):
        absent = _negatives(line, present, unclear)
        terms.append(_two_way_term(line, present, absent, *options) if present and absent else None)
    return terms


def _columns(sets, n):
    return [{i for i, labels in enumerate(sets) if c in labels} for c in range(n)]


def _weighted_mean(terms, weights):
    pairs = [(t, w) for t, w in zip(terms, weights, strict=True) if t is not None]
    return MP.fsum(t * w for t, w in pairs) / MP.fsum(w for _, w in pairs) if pairs else MP.mpf(0)


def _two_way_parts(rows, positives, unknown, weight, options):
    n = len(rows[0])
    samples = _two_way_terms(rows, positives, unknown, options)
    classes = _two_way_terms(list(zip(*rows, strict=True)), _columns(positives, n), _columns(unknown, n), options)
    by_class = _weights(weight, rows[0])
    by_row = [MP.fsum(by_class[j] for j in present) / len(present) if present else 0 for present in positives]
    return samples, by_row, classes, by_class


def two_way(
    rows, positives, unknown, kind="two-way", positive_temperature=4, negative_temperature=1, margin=0, weight=None
):
    """Values of the whole batch without a reduction, times the weight of their row or class."""
    options = (positive_temperature, negative_temperature, margin)
    samples, by_row, classes, by_class = _two_way_parts(rows, positives, unknown, weight, options)
    if kind == "class":
        return [(t or MP.mpf(0)) * w for t, w in zip(classes, by_class, strict=True)]
    shared = _weighted_mean(classes, by_class) if kind == "two-way" else 0
    return [(t or MP.mpf(0)) * w + shared for t, w in zip(samples, by_row, strict=True)]


def two_way_mean(
    rows, positives, unknown, kind="two-way", positive_temperature=4, negative_temperature=1, margin=0, weight=None
):
    """Mean over the rows that count plus mean over the classes that count, or one of the two."""
    options = (positive_temperature, negative_temperature, margin)
    samples, by_row, classes, by_class = _two_way_parts(rows, positives, unknown, weight, options)
    means = {"sample": _weighted_mean(samples, by_row), "class": _weighted_mean(classes, by_class)}
    return sum(means.values()) if kind == "two-way" else means[kind]


def sparse_top_loss(row, positives, unknown=frozenset(), weight=None):
    if not positives:
        return MP.mpf(0)
    row, size = _without(row, unknown), len(positives)
    probs = sparse_top([float(x) for x in row], size)
    pairs = list(zip(row, probs, strict=True))
    full = MP.fsum(x - MP.mpf(1) / 2 for x, p in pairs if p == 1)
    between = MP.fsum(x**2 - (x - p) ** 2 for x, p in pairs if 0 < p < 1) / 2
    value = -MP.fsum(row[j] for j in positives) + full + between + MP.mpf(size) / 2
    return value * MP.fsum(_weights(weight, row)[j] for j in positives) / size


def sparsemax_loss(row, positives, unknown=frozenset(), weight=None):
    if len(positives) > 1:
        raise ValueError("one class only")
    return sparse_top_loss(row, positives, unknown, weight)


def _entries(row, positives, unknown, weight, positive, negative):
    w = _weights(weight, row)
    return [
        MP.mpf(0) if j in unknown else w[j] * (positive if j in positives else negative)(MP.mpf(x))
        for j, x in enumerate(row)
    ]


def bce(row, positives, unknown=frozenset(), weight=None):
    return _entries(row, positives, unknown, weight, _nll, lambda x: _nll(-x))


def asymmetric(row, positives, unknown=frozenset(), gamma_positive=0, gamma_negative=4, clip=0.05, weight=None):
    def positive(x):
        return (1 / (1 + MP.exp(x))) ** MP.mpf(gamma_positive) * _nll(x)

    def negative(x):
        shifted = _positive_part(1 / (1 + MP.exp(-x)) - MP.mpf(clip))
        # 1 - p + clip, because 1 - (p - clip) would lose the digits of a p close to 1.
        loss = -MP.log(min(MP.mpf(1), 1 / (1 + MP.exp(x)) + MP.mpf(clip)))
        return loss if gamma_negative == 0 else shifted ** MP.mpf(gamma_negative) * loss

    return _entries(row, positives, unknown, weight, positive, negative)


def _rank_weight(row, i, negatives, margin):
    rank = sum(MP.mpf(margin) - MP.mpf(row[i]) + MP.mpf(row[j]) > 0 for j in negatives)
    return MP.fsum(MP.mpf(1) / s for s in range(1, rank + 1))


def warp(row, positives, unknown=frozenset(), margin=1, weight=None):
    total, w, negatives = MP.mpf(0), _weights(weight, row), _negatives(row, positives, unknown)
    for i in positives:
        for j in negatives:
            hinge = _positive_part(MP.mpf(margin) - MP.mpf(row[i]) + MP.mpf(row[j]))
            total += w[i] * _rank_weight(row, i, negatives, margin) * hinge
    return total


def rml(row, positives, unknown=frozenset(), floor=-0.8, balance=2, weight=None):
    def ramp(t):
        return min(1 - MP.mpf(floor), _positive_part(1 - t))

    total, w, negatives = MP.mpf(0), _weights(weight, row), _negatives(row, positives, unknown)
    for i in positives:
        for j in negatives:
            total += w[i] * _rank_weight(row, i, negatives, 1) * ramp(MP.mpf(row[i]) - MP.mpf(row[j]))
    for j in [*positives, *negatives]:
        total += MP.mpf(balance) * w[j] * ramp(MP.mpf(row[j]) if j in positives else -MP.mpf(row[j]))
    return total


def assume_negative(row, positives, unknown=frozenset(), weight=None):
    w, n = _weights(weight, row), len(row)
    observed = MP.fsum(w[j] * _nll(row[j]) for j in positives)
    assumed = MP.fsum(w[j] * _nll(-row[j]) for j in _negatives(row, positives, unknown))
    return observed + (assumed / (n - 1) if n > 1 else 0)


def expected_positive(rows, positives, unknown, expected=1, beta=1, weight=None):
    known = [MP.exp(-_nll(x)) for row, u in zip(rows, unknown, strict=True) for j, x in enumerate(row) if j not in u]
    penalty = MP.mpf(beta) * (MP.fsum(known) / len(rows) - MP.mpf(expected)) ** 2
    return [
        MP.fsum(_weights(weight, row)[j] * _nll(row[j]) for j in present) + penalty
        for row, present in zip(rows, positives, strict=True)
    ]


def _soft_cross_entropy(row, soft_logits, unknown):
    """Sum over known labels of the cross-entropy from σ(soft logits) to σ(logits)."""
    known = [j for j in range(len(row)) if j not in unknown]
    terms = []
    for j in known:
        share = 1 / (1 + MP.exp(-MP.mpf(soft_logits[j])))
        terms.append(share * _nll(row[j]) + (1 - share) * _nll(-row[j]))
    return MP.fsum(terms)


def role(rows, estimates, positives, unknown, expected=1, beta=1, weight=None):
    ours = expected_positive(rows, positives, unknown, expected, beta, weight)
    theirs = expected_positive(estimates, positives, unknown, expected, beta, weight)
    crossed = [
        _soft_cross_entropy(row, theta, unclear) + _soft_cross_entropy(theta, row, unclear)
        for row, theta, unclear in zip(rows, estimates, unknown, strict=True)
    ]
    return [(a + b + c) / 2 for a, b, c in zip(ours, theirs, crossed, strict=True)]


def average_k(rows, proposals, positives, unknown, k=2, alpha=1, weight=None):
    """Rows without a class propose nothing and are left out; a fractional number of candidates is rounded."""
    n, w = len(rows[0]), _weights(weight, rows[0])
    counted = [i for i, present in enumerate(positives) if present]
    pairs = []
    for i in counted:
        left = _without(proposals[i], unknown[i])
        mass = MP.fsum(MP.exp(x) for x in left)
        pairs += [(MP.exp(left[j]) / mass, i, j) for j in _negatives(left, positives[i], unknown[i])]
    chosen = {(i, j) for _, i, j in sorted(pairs, reverse=True)[: round((k - 1) * len(counted))]}
    values = [MP.mpf(0)] * len(rows)
    for i in counted:
        (y,), row = positives[i], rows[i]
        values[i] = cross_entropy(proposals[i], {y}, unknown[i], weight=weight) + w[y] * _nll(row[y])
        for j in _negatives(row, positives[i], unknown[i]):
            if (i, j) in chosen:
                values[i] += MP.mpf(alpha) / (MP.mpf(k) - 1) * w[j] * _nll(row[j])
            else:
                values[i] += MP.mpf(alpha) / (n - MP.mpf(k)) * w[j] * _nll(-row[j])
    return values


MARGINS = torch.tensor([0.5, 0.25, 1.0, 0.125, 0.0, 2.0, 0.75], dtype=torch.float64)
BETAS = [{"beta": 0.0}, {"beta": 2.5}]

LOSSES = [
    Loss(nn.CrossEntropy, cross_entropy),
    Loss(nn.Focal, focal, variants=[{"gamma": 0}, {"gamma": 0.5}, {"gamma": 3.5}]),
    Loss(
        nn.LDAM,
        ldam,
        {"margin": 0.3, "scale": 3.0},
        [{"margin": MARGINS}, {"scale": 30.0}, {"margin": 0.0, "scale": 1.0}],
    ),
    Loss(nn.TruncatedTopKEntropy, truncated_topk_entropy),
    *(
        Loss(nn.TopKHinge, topk_hinge, {"kind": kind}, [{"margin": 0.25}, {"margin": 3.0}], smooth=False, cancels=True)
        for kind in ("plain", "convex", "calibrated")
    ),
    Loss(
        nn.SmoothTopKSVM,
        smooth_topk_svm,
        variants=[{"temperature": 0.1}, {"temperature": 5.0, "margin": 0.5}, {"temperature": 0}, {"margin": 0}],
    ),
    Loss(
        nn.NoisedTopK,
        noised_topk,
        variants=[{"epsilon": 0.0}, {"epsilon": 0.3, "margin": MARGINS, "scale": 30.0}, {"margin": 0.2}],
        smooth=False,
        cancels=True,
    ),
    Loss(nn.SparsemaxLoss, sparsemax_loss, cancels=True),
    Loss(nn.LMLNLL, lml_nll),
    Loss(nn.MultilabelSoftmax, multilabel_softmax, cancels=True),
    Loss(nn.MultilabelTruncatedTopKEntropy, multilabel_truncated_topk_entropy),
    Loss(nn.PlackettLuce, plackett_luce, cancels=True),
    *(
        Loss(
            nn.TwoWay,
            two_way,
            {"kind": kind},
            [
                {"positive_temperature": 1.0},
                {"negative_temperature": 2.5, "margin": 1.5},
                {"positive_temperature": 0.5, "negative_temperature": 0.25, "margin": -1.0},
            ],
            mean_reference=two_way_mean,
            couples_rows=kind != "sample",
        )
        for kind in ("two-way", "sample", "class")
    ),
    Loss(nn.SparseTopLoss, sparse_top_loss, cancels=True),
    Loss(nn.BCE, bce, counts_absent=True),
    Loss(
        nn.Asymmetric,
        asymmetric,
        variants=[
            {"gamma_negative": 0, "clip": 0},
            {"gamma_positive": 1.0, "gamma_negative": 1.0, "clip": 0.2},
            {"gamma_positive": 0.5, "gamma_negative": 2.5, "clip": 0},
        ],
        counts_absent=True,
        cancels=True,
    ),
    Loss(nn.WARP, warp, variants=[{"margin": 0.25}, {"margin": 3.0}], smooth=False, cancels=True),
    Loss(
        nn.RML,
        rml,
        variants=[{"floor": 0.0}, {"balance": 0.0}, {"floor": -2.0, "balance": 0.5}],
        smooth=False,
        cancels=True,
        counts_absent=True,
    ),
    Loss(nn.AssumeNegative, assume_negative, counts_absent=True),
    Loss(nn.ExpectedPositive, expected_positive, variants=BETAS, counts_absent=True),
    Loss(nn.ROLE, role, variants=BETAS, detaches=True, counts_absent=True),
    Loss(nn.AverageK, average_k, variants=[{"alpha": 0.0}, {"alpha": 2.5}]),
]

PRESETS = [nn.NoisedTopKImbalanced]
"""Losses that differ from another one only in their defaults."""

_THESIS = "Garcin 2023, eq. 5.16-5.17 and algorithm 1: the softmax of every loss it compares"
_OWN_SOFTMAX = "the softmax is the probability that the loss fits"
_INVARIANT = "its evaluation ranks labels within rows only; like the loss, softmax ignores a shift of a row"
_EACH_LABEL = "a probability of each label for itself"

SCORES = {
    nn.CrossEntropy: ("softmax", _THESIS),
    nn.AverageK: ("softmax", _THESIS),
    nn.AssumeNegative: ("softmax", _THESIS),
    nn.ExpectedPositive: ("softmax", _THESIS),
    nn.ROLE: ("softmax", _THESIS),
    nn.NoisedTopK: ("softmax", _THESIS),
    nn.NoisedTopKImbalanced: ("softmax", _INVARIANT),
    nn.Focal: ("softmax", _OWN_SOFTMAX),
    nn.LDAM: ("softmax", _OWN_SOFTMAX),
    nn.MultilabelSoftmax: ("softmax", _OWN_SOFTMAX),
    nn.TruncatedTopKEntropy: ("softmax", "Amos et al. 2019, appendix A: the softmax, truncated in the loss only"),
    nn.MultilabelTruncatedTopKEntropy: ("softmax", "Amos et al. 2019, appendix B: as for one class"),
    nn.PlackettLuce: ("softmax", "the probability that a label is drawn first"),
    nn.TopKHinge: ("softmax", _INVARIANT),
    nn.SmoothTopKSVM: ("softmax", _INVARIANT),
    nn.WARP: ("softmax", _INVARIANT),
    nn.LMLNLL: ("softmax", _INVARIANT + "; its own p sums to k in every row, so sets of k on average hardly vary"),
    nn.SparsemaxLoss: ("softmax", _INVARIANT + "; sparsemax itself ties most labels at 0"),
    nn.SparseTopLoss: ("softmax", _INVARIANT + "; sparse-top itself ties most labels at 0"),
    nn.BCE: ("sigmoid", _EACH_LABEL),
    nn.Asymmetric: ("sigmoid", _EACH_LABEL + ", Ridnik et al. 2021"),
    nn.TwoWay: ("sigmoid", "Kobayashi 2023: mAP by class orders the rows of a class by logits, as the sigmoid does"),
    nn.RML: ("sigmoid", "Cevikalp et al. 2019: a label is predicted where its own logit is positive"),
}
"""The score by which rows are compared, for every loss, and where that comes from."""

BUILDING_BLOCKS = [F.kth_largest, F.noised_kth_largest, F.log_elementary_symmetric, F.margins_from_counts]
"""Neither projections nor losses; their references are in reference.py."""

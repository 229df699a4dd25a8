"""Calibrators find the optimum of their definition, never NaN, in every form of input, and survive a file."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import log_softmax, one_hot

from shortlist.calibration import (
    BetaCalibration,
    IsotonicCalibration,
    TemperatureScaling,
    VectorScaling,
    load_calibrator,
)
from shortlist.calibration.calibrator import concrete_calibrators
from shortlist.calibration.isotonic import isotonic_curve
from shortlist.errors import InputError

KINDS = {
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
    "isotonic": IsotonicCalibration,
    "isotonic per label": lambda **options: IsotonicCalibration(per_label=True, **options),
    "beta": BetaCalibration,
    "beta per label": lambda **options: BetaCalibration(per_label=True, **options),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
each_link = pytest.mark.parametrize("link", ["softmax", "sigmoid"])
LABELS = 5


def world(link: str, rows: int = 300, *, seed: int = 0, factor: float = 3.0, labels: int = LABELS):
    """Logits that are ``factor`` times too large, and labels drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    if link == "softmax":
        return factor * right, torch.multinomial(right.softmax(-1), 1, generator=generator).squeeze(-1)
    return factor * right, torch.rand(rows, labels, generator=generator, dtype=torch.float64) < right.sigmoid()


def loss(logits, labels, link):
    if link == "softmax":
        return -log_softmax(logits, -1)[torch.arange(len(labels)), labels].sum()
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.double(), reduction="sum")


def test_every_calibrator_is_tested():
    assert {type(make()) for make in KINDS.values()} == set(concrete_calibrators())
    assert len({kind.name for kind in concrete_calibrators()}) == 4


@each_link
@pytest.mark.parametrize("factor", [0.01, 1.0, 3.0, 1e4])
def test_the_temperature_minimizes_the_likelihood(link, factor):
    logits, labels = world(link, factor=factor)
    found = TemperatureScaling(link=link).fit(logits, labels)
    best = minimize_scalar(
        lambda theta: float(loss(logits / (factor * math.exp(theta)), labels, link)),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert float(found.temperature) == pytest.approx(factor * math.exp(best.x), rel=1e-6)
    assert found.evidence["nll_after"] <= found.evidence["nll_before"] * (1 + 1e-12)


def test_vector_scaling_of_label_scores_is_logistic_regression_of_each_label():
    logits, labels = world("sigmoid")
    found = VectorScaling(prior=1e-9, link="sigmoid").fit(logits, labels)
    for label in range(LABELS):
        model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(logits[:, [label]], labels[:, label])
        assert float(found.slopes[label]) == pytest.approx(model.coef_.item(), rel=1e-5)
        assert float(found.biases[label]) == pytest.approx(model.intercept_.item(), abs=1e-5)


def test_vector_scaling_of_classes_is_the_optimum_of_its_penalized_likelihood():
    logits, classes = world("softmax", labels=3)
    prior, found = 2.0, VectorScaling(prior=2.0).fit(logits, classes)
    slope, size = 1 / TemperatureScaling().fit(logits, classes).temperature, logits.square().mean()

    def objective(point):
        point = torch.as_tensor(point)
        penalty = prior / 2 * (size * (point[:3] - slope).square().sum() + point[3:].square().sum())
        return float(loss(logits * point[:3] + point[3:], classes, "softmax") + penalty)

    best = minimize(objective, [float(slope)] * 3 + [0.0] * 3, tol=1e-12)
    mine = objective(torch.cat([found.slopes, found.biases]))
    assert mine <= best.fun + 1e-6
    np.testing.assert_allclose([*found.slopes, *found.biases], best.x, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_beta_calibration_is_the_optimum_under_its_bounds(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    # In some worlds one shape would be negative, so that its bound holds.
    rate = (logits.abs() - 1).sigmoid() if seed % 2 else (logits / 2).sigmoid()
    labels = torch.rand(200, 1, generator=generator, dtype=torch.float64) < rate
    found = BetaCalibration(link="sigmoid").fit(logits, labels)

    def objective(point):
        a, b, c = torch.as_tensor(point)
        odds = a * torch.nn.functional.logsigmoid(logits) - b * torch.nn.functional.logsigmoid(-logits) + c
        return float(loss(odds, labels, "sigmoid"))

    best = minimize(objective, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)], tol=1e-14)
    assert objective(found.curve[0]) <= best.fun + 1e-5
    assert (found.curve[:, :2] >= 0).all()
    assert (found.curve[0, :2] == 0).any() == bool(seed % 2)


@pytest.mark.parametrize("ties", [False, True])
def test_the_isotonic_curve_is_that_of_scikit_learn(ties):
    logits, labels = world("sigmoid", labels=1, rows=500)
    logits = logits.round() if ties else logits
    fresh = torch.linspace(-12, 12, 999, dtype=torch.float64)[:, None]
    theirs = IsotonicRegression(out_of_bounds="clip").fit(logits[:, 0].numpy(), labels[:, 0].double().numpy())
    found = IsotonicCalibration(link="sigmoid").fit(logits, labels)(fresh)
    np.testing.assert_allclose(found[:, 0], theirs.predict(fresh[:, 0].numpy()), atol=2e-7)


@pytest.mark.parametrize("rows", range(1, 9))
def test_no_increasing_sequence_is_closer_than_the_isotonic_curve(rows):
    generator = np.random.default_rng(rows)
    for _ in range(20):
        scores, true = generator.integers(0, 5, rows).astype(float), generator.random(rows) < 0.5
        knots, values = isotonic_curve(scores, scores[true])
        at = np.interp(scores, knots, values)
        # The slow definition: the maximum over starts of the minimum over ends of the mean between.
        points = np.unique(scores)
        wanted = {
            t: max(
                min(true[(scores >= low) & (scores <= high)].mean() for high in points if high >= t)
                for low in points
                if low <= t
            )
            for t in points
        }
        np.testing.assert_allclose(at, [wanted[t] for t in scores], atol=1e-12)


class Scorer(ClassifierMixin, BaseEstimator):
    """A classifier of scikit-learn whose inputs are its scores."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, x):
        return x

    def predict(self, x):
        return self.classes_[x.argmax(-1)]


@pytest.mark.parametrize("method", ["isotonic", "temperature"])
def test_classes_are_calibrated_as_by_scikit_learn(method):
    logits, classes = world("softmax", rows=2000, factor=2.0)
    fresh = world("softmax", seed=1, factor=2.0)[0]
    make = {"isotonic": lambda: IsotonicCalibration(per_label=True, prior=0), "temperature": TemperatureScaling}[method]
    found = make().fit(logits, classes)
    inputs = [probs.log() - (1 - probs).log() for probs in (logits.softmax(-1), fresh.softmax(-1))]
    if method == "temperature":
        inputs = [logits, fresh]
    scorer = Scorer().fit(None, classes.numpy())
    theirs = CalibratedClassifierCV(FrozenEstimator(scorer), method=method)
    theirs.fit(inputs[0].numpy(), classes.numpy())
    tolerance = {"isotonic": 1e-5, "temperature": 1e-3}[method]
    np.testing.assert_allclose(found(fresh), theirs.predict_proba(inputs[1].numpy()), atol=tolerance)


@each_kind
@each_link
def test_calibration_brings_overconfident_probabilities_to_the_truth(make, link):
    logits, labels = world(link, rows=4000)
    fresh, _ = world(link, rows=500, seed=1)
    truth = (fresh / 3).softmax(-1) if link == "softmax" else (fresh / 3).sigmoid()
    calibrator = make(link=link).fit(logits, labels)
    before = fresh.softmax(-1) if link == "softmax" else fresh.sigmoid()
    assert (calibrator(fresh) - truth).abs().mean() < (before - truth).abs().mean() / 4
    assert calibrator.evidence["nll_after"] < calibrator.evidence["nll_before"]
    assert calibrator.evidence["nll_before"] == pytest.approx(
        float(loss(logits, labels, link)) / (4000 if link == "softmax" else labels.numel())
    )
    if link == "softmax":
        torch.testing.assert_close(calibrator(fresh).sum(-1), torch.ones(500, dtype=torch.float64))


HOSTILE = {
    "separable": lambda link: (100 * one_hot(torch.arange(6) % 3, 3).double() - 50, torch.arange(6) % 3),
    "always wrong": lambda link: (100 * one_hot(torch.arange(6) % 3, 3).double(), (torch.arange(6) + 1) % 3),
    "one class": lambda link: (torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(6).long()),
    "constant": lambda link: (torch.full((6, 3), 2.0), torch.arange(6) % 3),
    "zeros": lambda link: (torch.zeros(6, 3), torch.arange(6) % 3),
    "one label": lambda link: (torch.tensor([[1.0], [2.0]]), torch.zeros(2).long()),
    "one row": lambda link: (torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1).long()),
    "huge": lambda link: (1e30 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3),
    "widest": lambda link: (
        torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]) * torch.finfo(torch.float32).max,
        torch.arange(2),
    ),
    "masked": lambda link: (
        torch.zeros(6, 3).masked_fill(torch.eye(3).repeat(2, 1) > 0, -math.inf),
        torch.zeros(6).long(),
    ),
    "half": lambda link: (torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).half(), torch.arange(6) % 3),
}


@each_kind
@each_link
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_no_data_lead_to_nan(make, link, data):
    logits, classes = data(link)
    n = logits.shape[1]
    calibrator = make(link=link).fit(logits, classes)
    for buffer in calibrator.buffers():
        assert buffer.isfinite().all()
    extremes = torch.tensor([-math.inf, -3e38, -1e4, -1.0, 0.0, 1.0, 1e4, 3e38])
    fresh = torch.cat(
        [extremes[:, None].expand(-1, n), extremes[torch.arange(8)[:, None] + torch.arange(n) - n], logits]
    )
    probs, scores = calibrator(fresh), calibrator.calibrated_logits(fresh)
    assert ((probs >= 0) & (probs <= 1)).all()
    assert torch.equal(scores == -math.inf, fresh == -math.inf)
    assert (scores < math.inf).all()
    assert (calibrator(torch.full((1, n), math.inf)) <= 1).all()


@each_kind
@each_link
def test_unknown_labels_absent_labels_and_rows_without_labels_do_not_matter(make, link):
    logits, labels = world(link, rows=60)
    hot = one_hot(labels, LABELS).double() if link == "softmax" else labels.double()
    calibrator = make(link=link).fit(logits, hot)
    more = torch.cat([logits, world(link, rows=9, seed=5)[0]])
    hidden = torch.cat([hot, torch.full((9, LABELS), -1.0, dtype=torch.float64)])
    padded = torch.cat([more, torch.full((4, LABELS), -math.inf, dtype=torch.float64)])
    with_absent = torch.cat([hidden, one_hot(torch.arange(4), LABELS).double()])
    for x, y in ((more, hidden), (padded, with_absent)):
        again = make(link=link).fit(x, y)
        for name, value in calibrator.named_buffers():
            torch.testing.assert_close(again.get_buffer(name), value, rtol=1e-6, atol=1e-8, msg=name)


def test_an_unknown_label_is_no_evidence():
    logits = torch.tensor([[1.0, 1.0]] * 4)
    unknown = torch.tensor([[1.0, -1.0], [0.0, -1.0], [1.0, -1.0], [0.0, -1.0]])
    found = IsotonicCalibration(link="sigmoid").fit(logits, unknown)(logits[:1])
    torch.testing.assert_close(found, torch.full((1, 2), 0.5))


@each_kind
@each_link
def test_batches_are_one_fit_and_arrays_are_tensors(make, link):
    logits, labels = world(link, rows=50)
    whole, parts = make(link=link).fit(logits.numpy(), labels.numpy()), make(link=link)
    for some in (slice(0, 20), slice(20, 20), slice(20, 50)):
        parts.partial_fit(logits[some], labels[some])
    parts.finish()
    for name, value in whole.named_buffers():
        torch.testing.assert_close(parts.get_buffer(name), value, rtol=1e-7, atol=1e-9)
    assert torch.equal(whole.predict(logits.numpy()), whole(logits))


@each_kind
@each_link
def test_a_saved_calibrator_and_a_state_are_the_same_to_the_last_bit(make, link, tmp_path):
    logits, labels = world(link)
    calibrator = make(link=link).fit(logits, labels)
    calibrator.save(tmp_path / "calibration.json")
    loaded, copied = load_calibrator(tmp_path / "calibration.json"), make(link=link)
    copied.load_state_dict(calibrator.state_dict())
    for other in (loaded, copied, calibrator.half()):
        assert torch.equal(other(logits), calibrator(logits))
        assert other.evidence == calibrator.evidence
    assert repr(loaded) == repr(calibrator)


@each_kind
def test_row_by_row_is_together_and_shapes_are_kept(make):
    calibrator, fresh = make().fit(*world("softmax")), world("softmax", rows=6, seed=1)[0]
    torch.testing.assert_close(torch.cat([calibrator(row[None]) for row in fresh]), calibrator(fresh))
    assert torch.equal(calibrator(fresh.reshape(2, 3, LABELS)), calibrator(fresh).reshape(2, 3, LABELS))
    assert calibrator(fresh[:0]).shape == (0, LABELS)


def test_increasing_curves_keep_the_order_of_labels():
    logits, labels = world("softmax")
    for make in (TemperatureScaling, IsotonicCalibration, BetaCalibration):
        found = make().fit(logits, labels).calibrated_logits(logits)
        order = logits.argsort(-1)
        assert (found.gather(-1, order).diff(dim=-1) >= -1e-9).all()


@pytest.mark.parametrize("kind", ["isotonic per label", "beta per label", "vector"])
def test_a_label_without_positives_keeps_the_common_curve_and_a_frequent_one_has_its_own(kind):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    shift = torch.tensor([-1.0, 1.0, 0.0], dtype=torch.float64)
    labels = (torch.rand(4000, 3, generator=generator, dtype=torch.float64) < (logits + shift).sigmoid()).double()
    labels[:, 2] = -1
    calibrator = KINDS[kind](link="sigmoid").fit(logits, labels)
    fresh = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None].expand(-1, 3)
    error = calibrator(fresh) - (fresh + shift).sigmoid()
    assert (error[:, :2].abs() < 0.08).all()
    assert (error[:, 2].abs() < 0.08).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TemperatureScaling(link="probit"), '`link` must be "softmax" or "sigmoid"; got \'probit\'.'),
        (lambda: VectorScaling(prior=0), "`prior` must be positive; got 0"),
        (lambda: IsotonicCalibration(prior=-1), "`prior` must be finite and at least 0; got -1"),
        (lambda: TemperatureScaling().finish(), "`labels` must have at least one row with a known label."),
        (
            lambda: TemperatureScaling().fit(torch.zeros(2, 2), torch.full((2, 2), -1.0)),
            "`labels` must have at least one row with a known label.",
        ),
        (lambda: TemperatureScaling()(torch.zeros(1, 2)), "TemperatureScaling must be fitted before it predicts."),
        (
            lambda: TemperatureScaling().fit(torch.zeros(2), torch.zeros(2).long()),
            r"`logits` must have shape \(rows, labels\); got \(2,\)",
        ),
        (
            lambda: TemperatureScaling().fit([[0.0, math.nan]], torch.tensor([0])),
            "`logits` must not be NaN or infinite; row 0 violates this",
        ),
        (
            lambda: TemperatureScaling().fit(torch.zeros(2, 3), torch.tensor([0])),
            "`labels` must have one row per row of logits, 2; got 1",
        ),
        (
            lambda: TemperatureScaling().fit(torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]])),
            '`labels` must name one class per row for link="softmax"; row 0 has several.',
        ),
        (
            lambda: TemperatureScaling().fit(torch.zeros(1, 3), torch.tensor([0])).predict(torch.zeros(1, 2)),
            r"`logits` must have 3 labels as before; got shape \(1, 2\)",
        ),
        (
            lambda: TemperatureScaling().fit(torch.zeros(1, 2), torch.tensor([0])).predict([[0.0, math.inf]]),
            "`logits` must not be NaN or infinite; row 0 violates this",
        ),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("fitted"),
        lambda content: content.update(kind="os.system"),
        lambda content: content.update(num_labels=-1),
        lambda content: content.update(num_labels=7),
        lambda content: content["fitted"].pop("own_knots"),
        lambda content: content["fitted"]["values"]["values"].__setitem__(0, 2.0),
        lambda content: content["fitted"]["knots"]["values"].__setitem__(0, "inf"),
        lambda content: content["fitted"]["knots"]["values"].__setitem__(0, 1e300),
        lambda content: content["fitted"]["knots"].update(dtype="object"),
        lambda content: content["fitted"]["own_weights"]["values"].__setitem__(0, "nan"),
        lambda content: content["options"].update(link="probit"),
        lambda content: content["options"].update(unknown=1),
    ],
)
def test_a_damaged_file_is_one_error(change, tmp_path):
    path = tmp_path / "calibration.json"
    IsotonicCalibration(per_label=True).fit(*world("softmax")).save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="is damaged"):
        load_calibrator(path)

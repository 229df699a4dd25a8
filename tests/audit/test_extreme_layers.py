"""Layers whose entries span the range of float64: every verdict is true in exact arithmetic, and nothing warns."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.audit import AuditReport, Witness, audit
from tests.audit.layers import Case, every_set
from tests.audit.reports import checked_audit
from tests.fuzz.layers import adversarial_case

# Around the ends of the range, around 1, and anywhere.
EXPONENTS = st.sampled_from([-1074, -1073, -1060, -1022, -1021, -537, -300, -53, -1, 0, 1, 52, 300, 511, 999, 1000])
ENTRIES = st.builds(
    lambda sign, mantissa, exponent: sign * float(np.ldexp(float(mantissa), exponent)),
    st.sampled_from([-1, 0, 1, 1]),
    st.sampled_from([1, 1, 1, 3, 5]),
    EXPONENTS | st.integers(-1074, 1000),
)


@st.composite
def extreme_cases(draw: st.DrawFn) -> Case:
    n, d = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    weight = np.array(draw(st.lists(ENTRIES, min_size=n * d, max_size=n * d))).reshape(n, d)
    if n > 1 and draw(st.booleans()):  # rows that nearly or exactly cancel
        weight[1] = -weight[0] * draw(st.sampled_from([1.0, 0.5, 1 + 2.0**-52]))
    bias = np.array(draw(st.lists(ENTRIES, min_size=n, max_size=n))) if draw(st.booleans()) else None
    return Case(weight, bias, draw(st.sampled_from(["sign", "top-k"])), every_set(n))


def check_distances(report: AuditReport, case: Case, index: int) -> None:
    """The lower bound of the radius is achieved, in exact arithmetic: margin² >= low² norm², and the box holds."""
    certificate, low = report.certificates[index], report.radius_bounds[index, 0]
    if not isinstance(certificate, Witness) or low in (0, np.inf):  # infinite if no row depends on the input
        return
    largest = max(map(abs, certificate.vector))
    # Without a bias, the bound is about the multiple of the vector at the edge of the box.
    scale = Fraction(10_000) / Fraction(largest) if case.bias is None else Fraction(1)
    vector = [scale * Fraction(x) for x in certificate.vector.tolist()]
    assert max(map(abs, vector)) <= 10_000
    for label, row in enumerate(case.weight.tolist()):
        entries = [Fraction(x) for x in row] + [Fraction(1)] * (case.mode == "top-k")
        logit = sum(a * x for a, x in zip(entries, vector, strict=True))
        logit += 0 if case.bias is None else Fraction(float(case.bias[label]))
        margin = logit if label in case.label_sets[index] else -logit
        norm2 = sum(a * a for a in entries)
        assert norm2 == 0 or (margin > 0 and margin**2 >= Fraction(low) ** 2 * norm2 * (1 - Fraction(1, 10**12)))


def check(case: Case, *, radius: bool) -> None:
    report = checked_audit(case, radius=radius)
    for i in range(len(case.label_sets)):
        check_distances(report, case, i)


@settings(max_examples=120, derandomize=True, deadline=None)
@given(extreme_cases(), st.booleans())
def test_every_verdict_on_an_extreme_layer_is_true(case, radius):
    check(case, radius=radius)


@pytest.mark.slow
@settings(max_examples=5000, derandomize=True, deadline=None)
@given(extreme_cases(), st.booleans())
def test_every_verdict_on_thousands_of_extreme_layers_is_true(case, radius):
    check(case, radius=radius)


def test_every_set_of_an_adversarial_layer_is_decided():
    for seed in range(40):
        assert checked_audit(adversarial_case(seed), radius=seed % 2 == 0).counts()["undecided"] == 0


def test_a_row_of_zeros_among_denormal_rows_is_proved_and_verified():
    report = audit(np.array([[-1e-317], [0.0], [5e-318]]), [[0], []], np.array([0.0, 0.0, -1.0]), jobs=1)
    assert report.verdicts.tolist() == ["unargmaxable", "unargmaxable"]
    assert report.verify() == []

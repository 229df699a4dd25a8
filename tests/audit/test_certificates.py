"""Certificates hold in exact arithmetic, every forgery is found, and a saved report is the same report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shortlist.audit import AuditReport, Combination, ExactWitness, Theorem, Witness, audit
from shortlist.errors import InputError
from shortlist.nn import DFTHead
from tests.audit.layers import LAYERS, make_case
from tests.audit.reports import assert_same, exact_check
from tests.reference_audit import combination_length

PLACES = [(kind, n, d) for kind in LAYERS for n, d in [(10, 3), (60, 8), (400, 20)]]


@pytest.mark.parametrize(
    ("seed", "kind", "n", "d", "radius"),
    [
        pytest.param(seed, kind, n, d, radius, marks=[pytest.mark.slow] * (n == 400 and not radius))
        for seed, (kind, n, d) in enumerate(PLACES)
        for radius in (False, True)
    ],
)
def test_every_certificate_holds_in_exact_arithmetic(seed, kind, n, d, radius):
    case = make_case(kind, n, d, biased=seed % 2 == 0, mode="top-k" if seed % 3 == 0 else "sign", seed=seed)
    report = audit(case.weight, case.label_sets, case.bias, mode=case.mode, jobs=1, radius=radius)
    for i in range(len(case.label_sets)):
        exact_check(report, case, i)


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_weights_of_a_combination_make_unit_rows_vanish(kind, biased, mode):
    case = make_case(kind, 30, 4, biased=biased, mode=mode, seed=7)
    report = audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)
    found = [(s, c) for s, c in zip(case.label_sets, report.certificates, strict=True) if isinstance(c, Combination)]
    assert found
    for labels, certificate in found:
        assert certificate.weights.sum() == pytest.approx(1)
        assert certificate.residual < 1e-12
        assert combination_length(case.weight, labels, certificate, case.bias, mode) < 1e-12


def audited(*, biased: bool = False, mode: str = "sign", seed: int = 0) -> AuditReport:
    case = make_case("gaussian", 50, 6, biased=biased, mode=mode, seed=seed)
    return audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)


def first(report: AuditReport, kind: type) -> int:
    return next(i for i, certificate in enumerate(report.certificates) if isinstance(certificate, kind))


def failures(report: AuditReport, path: Path, index: int, **changes: Any) -> list[int]:
    """What `verify` finds in a saved report after one set, or its certificate, was changed."""
    report.save(path)
    content = json.loads(path.read_text())
    entry = content["sets"][index]
    for name, value in changes.items():
        (entry if name in entry else entry["certificate"])[name] = value
    path.write_text(json.dumps(content))
    return AuditReport.load(path).verify()


def heaviest_times(factor: float) -> Callable[[Any], dict[str, Any]]:
    return lambda c: {"weights": np.where(c.weights == c.weights.max(), factor * c.weights, c.weights).tolist()}


def other_rows(certificate: Combination) -> list[int]:
    return [row for row in range(50) if row not in certificate.rows][: len(certificate.rows)]


FORGERIES: dict[str, tuple[type, Callable[[Any], dict[str, Any]]]] = {
    "a witness turned around": (Witness, lambda c: {"vector": (-c.vector).tolist()}),
    "a witness of NaN": (Witness, lambda c: {"vector": [float("nan")] * 6}),
    "an infinite witness": (Witness, lambda c: {"vector": [float("inf")] * 6}),
    "a witness of zeros": (Witness, lambda c: {"vector": [0.0] * 6}),
    "a tiny witness of the opposite set": (Witness, lambda c: {"vector": (-1e-300 * c.vector).tolist()}),
    "a witness that is too short": (Witness, lambda c: {"vector": [1.0] * 5}),
    "an empty witness": (Witness, lambda c: {"vector": []}),
    "other rows": (Combination, lambda c: {"rows": other_rows(c)}),
    "rows exchanged": (Combination, lambda c: {"rows": np.roll(c.rows, 1).tolist()}),
    "a negative row": (Combination, lambda c: {"rows": [-1, *c.rows[1:].tolist()]}),
    "a row beyond the layer": (Combination, lambda c: {"rows": [50, *c.rows[1:].tolist()]}),
    "no rows": (Combination, lambda c: {"rows": [], "weights": []}),
    "one row": (Combination, lambda c: {"rows": [3], "weights": [1.0]}),
    "one row twice": (Combination, lambda c: {"rows": [3, 3], "weights": [0.5, 0.5]}),
    "a larger weight": (Combination, heaviest_times(2.0)),
    "a negative weight": (Combination, heaviest_times(-1.0)),
    "a weight of zero": (Combination, heaviest_times(0.0)),
    "a weight of NaN": (Combination, heaviest_times(float("nan"))),
    "only weights of zero": (Combination, lambda c: {"weights": [0.0] * len(c.rows)}),
    "another proof": (Combination, lambda c: {"proof": "exact" if c.proof == "interval" else "interval"}),
    "no witness": (Witness, lambda c: {"certificate": None}),
    "no combination": (Combination, lambda c: {"certificate": None}),
    "a witness for unargmaxable": (Witness, lambda c: {"verdict": "unargmaxable"}),
    "a combination for argmaxable": (Combination, lambda c: {"verdict": "argmaxable"}),
    "another set": (Combination, lambda c: {"labels": [0, 1, 2]}),
    "a radius beyond the witness": (Witness, lambda c: {"radius": [1e4, 1e5]}),
    "a radius of an unargmaxable set": (Combination, lambda c: {"radius": [7, 9]}),
    "an upper bound of an unargmaxable set": (Combination, lambda c: {"radius": [0, 9]}),
    "an upper bound below what is proved": (Witness, lambda c: {"radius": [0, 1e-9]}),
    "an upper bound without weights": (Witness, lambda c: {"multipliers": None}),
    "weights of no label": (Witness, lambda c: {"multipliers": {"rows": [50], "weights": [1.0]}}),
    "weights that sum to less": (Witness, lambda c: {"multipliers": {"rows": [0, 1], "weights": [0.1, 0.1]}}),
    "a negative weight in the bound": (Witness, lambda c: {"multipliers": {"rows": [0, 1], "weights": [2.0, -1.0]}}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_report_fails_where_it_was_forged(tmp_path, forgery):
    kind, change = FORGERIES[forgery]
    report = audited()
    i = first(report, kind)
    assert failures(report, tmp_path / "report.json", i, **change(report.certificates[i])) == [i]


@pytest.mark.parametrize("biased", [False, True])
def test_a_witness_turned_around_fails_with_a_bias_and_a_threshold_too(tmp_path, biased):
    report = audited(biased=biased, mode="top-k", seed=1)
    i = first(report, Witness)
    vector = (-report.certificates[i].vector).tolist()
    assert failures(report, tmp_path / "report.json", i, vector=vector) == [i]


@pytest.mark.parametrize(
    "change",
    [{"log10_radius": 2.0}, {"sign_changes": 6}, {"k": 4}, {"radius": [123, 124]}, {"labels": list(range(0, 40, 2))}],
)
def test_a_theorem_claims_exactly_the_radius_of_its_polynomial_for_its_set(tmp_path, change):
    report = audit(DFTHead(4, 1000, 5), [[0, 2, 4, 6, 8]], jobs=1)
    assert isinstance(report.certificates[0], Theorem)
    assert report.verify() == []
    assert failures(report, tmp_path / "report.json", 0, **change) == [0]


def test_a_witness_turned_in_memory_fails():
    report = audited()
    i = first(report, Witness)
    report.certificates[i].vector[:] *= -1
    assert report.verify() == [i]


def test_a_witness_that_holds_by_rounding_alone_fails(tmp_path):
    # The product is -0.5, but summed from left to right it is 0.5.
    report = audit(np.array([[1e16, -1.0, -1e16, 0.5]]), [[0]], jobs=1)
    assert failures(report, tmp_path / "report.json", 0, vector=[1.0] * 4) == [0]


@pytest.mark.parametrize("biased", [False, True])
def test_a_region_too_thin_for_float64_is_proved_by_integers(tmp_path, biased):
    """Two rows that differ in the last bit of one entry: the vector between them needs more than 53 bits."""
    row = np.array([1.0, 1 / 3, np.pi])
    weight, bias = np.array([row, np.nextafter(row, 2.0), [0.0, 0.0, 1.0]]), np.array([1e-300, 0.0, -1.0])
    report = audit(weight, [[0, 2], [1, 2]], bias if biased else None, jobs=1)
    assert report.verdicts.tolist() == ["argmaxable", "argmaxable"]
    i = first(report, ExactWitness)
    assert report.verify() == []
    report.save(tmp_path / "same.json")
    assert_same(report, AuditReport.load(tmp_path / "same.json"))
    turned = [hex(-value) for value in report.certificates[i].vector]
    assert failures(report, tmp_path / "report.json", i, vector=turned) == [i]
    assert failures(report, tmp_path / "report.json", i, vector=turned[1:]) == [i]


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_saved_report_is_the_same_report_and_still_verifies(tmp_path, biased, mode):
    report = audited(biased=biased, mode=mode, seed=2)
    path = tmp_path / "report.json"
    report.save(path)
    again = AuditReport.load(path)
    assert_same(report, again)
    assert again.verify() == []
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version": lambda content: content | {"version": 1},
    "another format": lambda content: content | {"format": "a letter"},
    "no sets": lambda content: {name: value for name, value in content.items() if name != "sets"},
    "an unknown verdict": lambda content: content | {"sets": [content["sets"][0] | {"verdict": "maybe"}]},
    "a witness that is text": lambda content: (
        content | {"sets": [content["sets"][0] | {"certificate": {"kind": "witness", "vector": "none"}}]}
    ),
    "a label beyond the layer": lambda content: content | {"sets": [content["sets"][0] | {"labels": [50]}]},
    "a label of any size": lambda content: content | {"sets": [content["sets"][0] | {"labels": [10**30]}]},
    "half a label": lambda content: content | {"sets": [content["sets"][0] | {"labels": [0.5]}]},
    "too few names": lambda content: content | {"names": ["a", "b"]},
    "names that are numbers": lambda content: content | {"names": [*range(content["weight"]["shape"][0])]},
    "names that are one text": lambda content: content | {"names": "a" * content["weight"]["shape"][0]},
    "a list": lambda content: [content],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_report_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "report.json"
    audited().save(path)
    path.write_text(json.dumps(DAMAGES[damage](json.loads(path.read_text()))))
    with pytest.raises(InputError, match=r"report\.json"):
        AuditReport.load(path)


def test_a_label_that_the_layer_cannot_have_is_shown_in_the_refusal(tmp_path):
    path = tmp_path / "report.json"
    audited().save(path)
    path.write_text(json.dumps(DAMAGES["a label of any size"](json.loads(path.read_text()))))
    with pytest.raises(InputError, match=r"is damaged: labels must be whole numbers in \[0, \d+\); got 10{30}\.$"):
        AuditReport.load(path)


def test_shares_that_survive_rounding_are_computed_from_the_certificates_and_not_believed(tmp_path):
    path, report = tmp_path / "report.json", audited()
    report.save(path)
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"survives": {"bfloat16": 2.0}, "counts": {"undecided": 7}})
    )
    assert AuditReport.load(path).survives == report.survives
    assert AuditReport.load(path).counts() == report.counts()


def test_a_report_nested_deeply_is_refused_by_name(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError, match=r"report\.json` cannot be read: it is nested too deeply\.$"):
        AuditReport.load(path)


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_report_is_refused_by_name(tmp_path, keep):
    path = tmp_path / "report.json"
    audited().save(path)
    path.write_text(path.read_text().rstrip()[:keep])
    with pytest.raises(InputError, match=r"report\.json"):
        AuditReport.load(path)

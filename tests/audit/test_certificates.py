"""Certificates hold in exact arithmetic, tampering is named, and a saved report is the same report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shortlist.audit import AuditReport, Combination, Witness, audit
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
    found = 0
    for labels, certificate in zip(case.label_sets, report.certificates, strict=True):
        if isinstance(certificate, Combination):
            assert certificate.weights.sum() == pytest.approx(1)
            assert certificate.residual < 1e-12
            assert combination_length(case.weight, labels, certificate, case.bias, mode) < 1e-12
            found += 1
    assert found


def audited(*, biased: bool = False, mode: str = "sign", seed: int = 0) -> AuditReport:
    case = make_case("gaussian", 50, 6, biased=biased, mode=mode, seed=seed)
    return audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)


def first(report: AuditReport, kind: type) -> int:
    return next(i for i, certificate in enumerate(report.certificates) if isinstance(certificate, kind))


def forged(report: AuditReport, path: Path, index: int, **changes: Any) -> list[int]:
    """What is named in a saved report after someone changed the certificate of one set, or its verdict."""
    report.save(path)
    held = json.loads(path.read_text())
    entry = held["sets"][index]
    for name, value in changes.items():
        place = entry if name in entry else entry["certificate"]
        assert name in place
        place[name] = value
    path.write_text(json.dumps(held))
    return AuditReport.load(path).verify()


def test_a_witness_turned_in_memory_is_named():
    report = audited()
    i = first(report, Witness)
    report.certificates[i].vector[:] *= -1
    assert report.verify() == [i]


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_witness_turned_around_is_named(tmp_path, biased, mode):
    report = audited(biased=biased, mode=mode, seed=1)
    i = first(report, Witness)
    vector = [-x for x in report.certificates[i].vector.tolist()]
    assert forged(report, tmp_path / "report.json", i, vector=vector) == [i]


def test_a_witness_with_one_entry_turned_is_named(tmp_path):
    # Every entry of the witness matters here: the region is the positive orthant.
    report = audit(np.eye(4), [[0, 1, 2, 3], [0]], jobs=1)
    vector = report.certificates[0].vector.tolist()
    vector[2] *= -1
    assert forged(report, tmp_path / "report.json", 0, vector=vector) == [0]


@pytest.mark.parametrize(
    "vector", [[float("nan")] * 6, [float("inf")] * 6, [0.0] * 6, [1.0] * 5, [], None, "none"], ids=str
)
def test_a_witness_that_is_no_vector_is_named_or_refused(tmp_path, vector):
    report = audited()
    i = first(report, Witness)
    try:
        named = forged(report, tmp_path / "report.json", i, vector=vector)
    except ValueError as error:
        assert "report.json" in str(error)  # noqa: PT017
    else:
        assert named == [i]


def test_a_witness_that_holds_by_rounding_alone_is_named(tmp_path):
    # The product is -0.5, but summed from left to right it is 0.5.
    report = audit(np.array([[1e16, -1.0, -1e16, 0.5]]), [[0]], jobs=1)
    assert forged(report, tmp_path / "report.json", 0, vector=[1.0] * 4) == [0]


def test_a_combination_of_other_rows_is_named(tmp_path):
    report = audited()
    i = first(report, Combination)
    rows = report.certificates[i].rows.tolist()
    others = [row for row in range(50) if row not in rows][: len(rows)]
    assert forged(report, tmp_path / "report.json", i, rows=others) == [i]


@pytest.mark.parametrize("row", [-1, 50, 51])
def test_a_combination_of_rows_that_do_not_exist_is_named_or_refused(tmp_path, row):
    report = audited()
    i = first(report, Combination)
    rows = report.certificates[i].rows.tolist()
    try:
        named = forged(report, tmp_path / "report.json", i, rows=[row, *rows[1:]])
    except ValueError as error:
        assert "report.json" in str(error)  # noqa: PT017
    else:
        assert named == [i]


def test_a_combination_with_rows_exchanged_is_named(tmp_path):
    report = audited()
    i = first(report, Combination)
    rows = report.certificates[i].rows.tolist()
    assert forged(report, tmp_path / "report.json", i, rows=rows[1:] + rows[:1]) == [i]


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0, float("nan")])
def test_a_combination_with_one_weight_changed_is_named(tmp_path, factor):
    report = audited()
    i = first(report, Combination)
    weights = report.certificates[i].weights
    changed = np.where(weights == weights.max(), factor * weights, weights).tolist()
    assert forged(report, tmp_path / "report.json", i, weights=changed) == [i]


def test_a_combination_without_weight_is_named(tmp_path):
    report = audited()
    i = first(report, Combination)
    zeros = [0.0] * len(report.certificates[i].rows)
    assert forged(report, tmp_path / "report.json", i, weights=zeros) == [i]


@pytest.mark.parametrize("rows", [[], [3], [3, 3]])
def test_a_combination_of_too_few_rows_is_named(tmp_path, rows):
    report = audited()
    i = first(report, Combination)
    weights = [1 / len(rows)] * len(rows) if rows else []
    assert forged(report, tmp_path / "report.json", i, rows=rows, weights=weights) == [i]


def test_a_certificate_of_another_set_is_named(tmp_path):
    report = audited()
    i = first(report, Combination)
    labels = next(s for s, c in zip(report.label_sets, report.certificates, strict=True) if isinstance(c, Witness))
    assert forged(report, tmp_path / "report.json", i, labels=labels.tolist()) == [i]


@pytest.mark.parametrize("kind", [Witness, Combination])
def test_a_missing_certificate_is_named(tmp_path, kind):
    report = audited()
    i = first(report, kind)
    assert forged(report, tmp_path / "report.json", i, certificate=None) == [i]


@pytest.mark.parametrize(("kind", "verdict"), [(Witness, "unargmaxable"), (Combination, "argmaxable")])
def test_a_verdict_changed_under_its_certificate_is_named(tmp_path, kind, verdict):
    report = audited()
    i = first(report, kind)
    assert forged(report, tmp_path / "report.json", i, verdict=verdict) == [i]


def test_a_radius_beyond_what_the_certificate_shows_is_named(tmp_path):
    report = audited()
    i = first(report, Witness)
    low, high = report.radius_bounds[i].tolist()
    assert forged(report, tmp_path / "report.json", i, radius=[2 * low, 2 * high]) == [i]


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


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_report_is_refused(tmp_path, keep):
    report = audited()
    path = tmp_path / "report.json"
    report.save(path)
    text = path.read_text().rstrip()
    path.write_text(text[:keep])
    with pytest.raises(ValueError, match=r"report\.json"):
        AuditReport.load(path)


def test_a_report_of_a_newer_version_or_of_something_else_is_refused(tmp_path):
    report = audited()
    path = tmp_path / "report.json"
    report.save(path)
    held = json.loads(path.read_text())
    versions = [name for name in held if "version" in name or "format" in name]
    assert versions, "a saved report says its version"
    for name in versions:
        if isinstance(held[name], int):
            path.write_text(json.dumps(held | {name: held[name] + 1}))
            with pytest.raises(ValueError, match="version"):
                AuditReport.load(path)
    for other in ("[]", "{}", "3", '{"version": 1}'):
        path.write_text(other)
        with pytest.raises(ValueError, match=r"report\.json"):
            AuditReport.load(path)

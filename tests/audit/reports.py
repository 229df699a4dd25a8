"""Checks of whole reports: certificates by exact arithmetic, and equality of two reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.audit import AuditReport, Combination, ExactWitness, Witness, audit
from tests.audit.layers import Case
from tests.reference_audit import combination_holds, exact_witness_holds, is_argmaxable, witness_holds


def exact_check(report: AuditReport, case: Case, index: int) -> None:
    """The verdict at ``index`` follows from its certificate in exact arithmetic."""
    weight, bias, mode, sets = case
    verdict, certificate = report.verdicts[index], report.certificates[index]
    if verdict == "argmaxable":
        holds = exact_witness_holds if isinstance(certificate, ExactWitness) else witness_holds
        assert isinstance(certificate, Witness | ExactWitness)
        assert holds(weight, sets[index], certificate.vector, bias, mode)
    elif verdict == "unargmaxable":
        assert isinstance(certificate, Combination)
        assert combination_holds(weight, sets[index], certificate, bias, mode)
    else:
        assert verdict == "undecided"
        assert certificate is None
        assert report.reasons[index]


def true_verdicts(case: Case) -> np.ndarray:
    yes = [is_argmaxable(case.weight, labels, case.bias, case.mode) for labels in case.label_sets]
    return np.where(yes, "argmaxable", "unargmaxable")


def checked_audit(case: Case, *, radius: bool = True) -> AuditReport:
    """The report of a case: no verdict is wrong, and every certificate and radius holds; some may be undecided."""
    report = audit(case.weight, case.label_sets, case.bias, mode=case.mode, jobs=1, radius=radius)
    assert report.verify() == [], case
    assert ((report.verdicts == true_verdicts(case)) | (report.verdicts == "undecided")).all(), case
    low, high = report.radius_bounds.T
    assert ((low >= 0) & (low <= high)).all(), case
    for i in range(len(case.label_sets)):
        exact_check(report, case, i)
    return report


def fields(certificate: Any) -> dict[str, Any]:
    """What a certificate holds, in plain values that compare."""
    if certificate is None:
        return {}
    names = ("vector", "rows", "weights", "residual", "proof", "k", "sign_changes", "log10_radius")
    held = {name: getattr(certificate, name) for name in names if hasattr(certificate, name)}
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in held.items()}
    return {"kind": type(certificate).__name__} | plain


def assert_same(left: AuditReport, right: AuditReport) -> None:
    """Equal to the last bit."""
    np.testing.assert_array_equal(left.verdicts, right.verdicts)
    np.testing.assert_array_equal(left.radii, right.radii)
    np.testing.assert_array_equal(left.radius_bounds, right.radius_bounds)
    assert [fields(c) for c in left.certificates] == [fields(c) for c in right.certificates]
    assert list(left.reasons) == list(right.reasons)
    assert [s.tolist() for s in left.label_sets] == [s.tolist() for s in right.label_sets]
    assert left.survives == right.survives

"""The DFT head keeps its promise: no set of at most k labels is ever called unargmaxable."""

from itertools import product

import numpy as np
import pytest
import torch

from shortlist.audit import AuditReport, Combination, Theorem, Witness, audit
from shortlist.functional import dft_matrix
from shortlist.nn import DFTHead
from tests.audit.layers import every_set
from tests.reference_audit import full_program, witness_holds

PLACES = list(product((100, 1000, 9000), (1, 5, 20)))


def active_sets(n: int, k: int, count: int, seed: int = 0) -> list[list[int]]:
    """Even, random and clustered positions in turn; k labels each."""
    rng = np.random.default_rng(seed)
    sets = []
    for i in range(count):
        if i % 3 == 0:
            labels = (np.arange(k) * n // k + rng.integers(n)) % n
        elif i % 3 == 1:
            labels = rng.choice(n, k, replace=False)
        else:
            labels = (rng.choice(min(n, 3 * k), k, replace=False) + rng.integers(n)) % n
        sets.append(sorted(labels.tolist()))
    return sets


def changes(labels: list[int], n: int) -> int:
    """Cyclic sign changes of an assignment."""
    present = np.zeros(n, dtype=bool)
    present[labels] = True
    return int((present != np.roll(present, 1)).sum())


def check_promise(report: AuditReport, sets: list[list[int]], n: int, k: int) -> None:
    """All argmaxable, by a vector that holds exactly for the matrix in float64 or by the theorem, named as such."""
    weight = dft_matrix(n, k, dtype=torch.float64).numpy()
    assert set(report.verdicts) == {"argmaxable"}
    assert report.verify() == []
    for i, (labels, certificate) in enumerate(zip(sets, report.certificates, strict=True)):
        if isinstance(certificate, Witness):
            assert witness_holds(weight, labels, certificate.vector)
        else:
            assert isinstance(certificate, Theorem)
            assert certificate.k == k
            assert certificate.sign_changes == changes(labels, n) <= 2 * k
            assert certificate.log10_radius < 0
        low, high = report.radius_bounds[i]
        assert 0 <= low <= high


SIZES = [pytest.param(7, id="few"), pytest.param(225, id="many", marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(("n", "k"), PLACES)
def test_no_set_of_k_labels_is_impossible_for_a_dft_head(n, k, count):
    sets = active_sets(n, k, count, seed=count)
    report = audit(DFTHead(8, n, k), sets, jobs=1, radius=count < 10)
    check_promise(report, sets, n, k)
    if k <= 5:
        # The analytic vector holds in float64 for nearly all sets that are not clustered.
        spread = [isinstance(report.certificates[i], Witness) for i in range(count) if i % 3 < 2]
        assert np.mean(spread) > 0.95


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(("n", "k"), PLACES)
def test_for_a_plain_matrix_every_verdict_on_thin_regions_is_proved(n, k, count):
    """Rounded to float64, the matrix may lose a region that the exact one has; then the proof says so."""
    sets = active_sets(n, k, min(count, 60) if n > 1000 else count, seed=1)
    report = audit(dft_matrix(n, k, dtype=torch.float64), sets, jobs=1, radius=False)
    assert k > 1 or set(report.verdicts) == {"argmaxable"}
    assert report.verify() == []
    for verdict, reason, certificate in zip(report.verdicts, report.reasons, report.certificates, strict=True):
        assert (reason != "") == (verdict == "undecided") == (certificate is None)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_exactly_the_assignments_with_few_sign_changes_are_argmaxable(k):
    n = 8
    sets = every_set(n)
    report = audit(DFTHead(4, n, k), sets, jobs=1)
    few = np.array([changes(labels, n) <= 2 * k for labels in sets])
    np.testing.assert_array_equal(report.verdicts, np.where(few, "argmaxable", "unargmaxable"))
    assert report.verify() == []
    assert ((report.radii > 0) == few).all()


@pytest.mark.parametrize(("n", "k"), [(100, 1), (100, 5), (1000, 5), (1000, 20)])
def test_more_than_2k_sign_changes_are_impossible_without_slack(n, k):
    rng = np.random.default_rng(k)
    sets = [sorted((2 * rng.choice(n // 2, k + extra, replace=False)).tolist()) for extra in (1, 2, k)]
    report = audit(DFTHead(8, n, k), sets, jobs=1)
    assert set(report.verdicts) == {"unargmaxable"}
    assert (report.radii == 0).all()
    assert report.verify() == []
    for labels, certificate in zip(sets, report.certificates, strict=True):
        assert isinstance(certificate, Combination | Theorem)
        if isinstance(certificate, Theorem):
            assert certificate.sign_changes == changes(labels, n) > 2 * k


@pytest.mark.parametrize("slack", [1, 6])
def test_slack_keeps_the_promise_and_adds_sets(slack):
    torch.manual_seed(0)
    n, k = 60, 3
    head = DFTHead(8, n, k, slack).double()
    sets = active_sets(n, k, 9)
    weight = head.explicit_weight(torch.float64).detach().numpy()
    rng = np.random.default_rng(0)
    beyond = [np.flatnonzero(weight @ rng.standard_normal(2 * k + 1 + slack) > 0).tolist() for _ in range(9)]
    report = audit(head, sets + beyond, jobs=1)
    assert set(report.verdicts) == {"argmaxable"}
    assert any(changes(labels, n) > 2 * k for labels in beyond)
    for i, labels in enumerate(sets + beyond):
        program = full_program(weight, labels)
        if program.high - program.low < 1e-7 * program.low:
            np.testing.assert_allclose(report.radii[i], program.low, rtol=1e-6)
    assert report.verify() == []


def test_with_slack_a_set_with_many_sign_changes_is_judged_by_the_whole_matrix():
    torch.manual_seed(1)
    n, k = 60, 2
    head = DFTHead(8, n, k, 2).double()
    weight = head.explicit_weight(torch.float64).detach().numpy()
    rng = np.random.default_rng(1)
    sets = [sorted(rng.choice(n, 12, replace=False).tolist()) for _ in range(10)]
    report = audit(head, sets, jobs=1)
    for labels, verdict, certificate in zip(sets, report.verdicts, report.certificates, strict=True):
        assert verdict == ("argmaxable" if full_program(weight, labels).low > 1e-8 else "unargmaxable")
        assert not isinstance(certificate, Theorem)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_promise_of_a_head_of_low_precision_is_that_of_its_exact_matrix(dtype):
    sets = active_sets(300, 4, 6)
    report = audit(DFTHead(8, 300, 4).to(dtype), sets, jobs=1)
    assert set(report.verdicts) == {"argmaxable"}
    assert report.verify() == []


def test_a_matrix_declared_to_be_a_dft_gets_the_theorem():
    n, k = 1000, 20
    sets = active_sets(n, k, 6)
    weight = dft_matrix(n, k, dtype=torch.float64)
    report = audit(weight, sets, dft=k, jobs=1)
    check_promise(report, sets, n, k)
    assert any(isinstance(certificate, Theorem) for certificate in report.certificates)


def test_a_matrix_wrongly_declared_to_be_a_dft_is_refused():
    weight = np.random.default_rng(0).standard_normal((20, 5))
    with pytest.raises(ValueError, match="dft"):
        audit(weight, [[0]], dft=2, jobs=1)
    with pytest.raises(ValueError, match="dft"):
        audit(dft_matrix(20, 2, dtype=torch.float64), [[0]], dft=3, jobs=1)


def test_the_share_that_survives_low_precision_falls_with_it():
    sets = active_sets(1000, 5, 30)
    survives = audit(DFTHead(8, 1000, 5), sets, jobs=1, radius=False).survives
    assert 1 >= survives["float64"] > survives["float32"] > survives["bfloat16"] >= 0

"""A radius that no certificate backs is found by ``verify``; odd layers and options are met as they should be."""

import json

import numpy as np
import pytest
import torch

from shortlist.audit import AuditReport, Theorem, audit
from shortlist.nn import CosineHead, DFTHead
from shortlist.report import draw_lattice


def forged(report: AuditReport, path, change) -> AuditReport:
    report.save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return AuditReport.load(path)


def test_an_impossible_set_has_no_radius(tmp_path):
    report = audit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [[2]])
    assert forged(report, tmp_path / "a.json", lambda content: content["sets"][0].update(radius=[7, 9])).verify() == [0]
    assert forged(report, tmp_path / "b.json", lambda content: content["sets"][0].update(radius=[0, 9])).verify() == [0]


@pytest.mark.parametrize("change", [{"log10_radius": 2.0}, {"sign_changes": 6}, {"k": 4}])
def test_a_theorem_claims_just_the_radius_of_its_polynomial(tmp_path, change):
    report = audit(DFTHead(4, 1000, 5), [[0, 2, 4, 6, 8]])
    assert isinstance(report.certificates[0], Theorem)
    assert report.verify() == []
    assert forged(
        report, tmp_path / "a.json", lambda content: content["sets"][0]["certificate"].update(change)
    ).verify()
    assert forged(report, tmp_path / "b.json", lambda content: content["sets"][0].update(radius=[123, 124])).verify()


def test_a_witness_does_not_claim_more_than_it_reaches(tmp_path):
    report = audit(np.eye(3), [[0], [1]])
    low, high = report.radius_bounds[1]
    change = {"radius": [low * 1.01, high * 1.01]}
    assert forged(report, tmp_path / "a.json", lambda content: content["sets"][1].update(change)).verify() == [1]


def test_names_of_a_saved_report_must_fit_its_layer(tmp_path):
    with pytest.raises(ValueError, match="2 names for 3 labels"):
        forged(audit(np.eye(3), [[0]]), tmp_path / "a.json", lambda content: content.update(names=["a", "b"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "weight"}, "`key` chooses among the arrays of a file"),
        ({"dft": -1}, "`dft` must be an integer, at least 0; got -1"),
        ({"dft": 1.5}, "`dft` must be an integer, at least 0; got 1.5"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        audit(np.eye(3), [[0]], **options)


def test_labels_without_sets_around_them_are_refused():
    with pytest.raises(TypeError, match="`label_sets` must hold sequences of labels; set 0 is 0"):
        audit(np.eye(3), [0, 1])


def test_a_layer_in_a_file_is_drawn_as_it_is(tmp_path):
    np.save(tmp_path / "w.npy", np.eye(3))
    assert draw_lattice(tmp_path / "w.npy", tmp_path / "a.png").stat().st_size > 0
    with pytest.raises(ValueError, match="at most 8 labels to draw all assignments; got 9"):
        draw_lattice(np.eye(9), tmp_path / "b.png")


def test_a_cosine_head_is_audited_as_it_computes():
    head = CosineHead(2, 4)
    head.load_state_dict({"weight": torch.tensor([[10.0, 0.0], [0.0, 10.0], [-10.0, -10.0], [1.0, 1.0]])})
    report = audit(head, [[3]], mode="top-k")
    assert report.verdicts.tolist() == ["argmaxable"]
    vector = torch.from_numpy(report.centres[0, :2]).float()
    assert int(head(vector).argmax()) == 3


@pytest.mark.parametrize("power", [100, 150, 160, 170, 200, 300])
def test_entries_of_extreme_range_are_never_judged_wrongly(power):
    weight = np.array([[10.0**power, 10.0**-power], [-(10.0**power), 10.0**-power]])
    report = audit(weight, [[0, 1], [0]], jobs=1)
    assert report.verdicts[0] in ("argmaxable", "undecided")
    assert report.verdicts[1] in ("argmaxable", "undecided")
    assert report.verify() == []


def test_large_entries_have_a_radius():
    report = audit(np.full((50, 5), 1e308), [list(range(50)), [0]], jobs=1)
    assert report.verdicts.tolist() == ["argmaxable", "unargmaxable"]
    np.testing.assert_allclose(report.radii, [1e4 * 5**0.5, 0.0], rtol=1e-9)

"""Bad input gives one clear error that names the argument, and the row where there is one."""

import numpy as np
import pytest
import torch

from shortlist.audit import audit

WEIGHT = np.random.default_rng(0).standard_normal((6, 3))


def spoiled(row: int, value: float) -> np.ndarray:
    weight = WEIGHT.copy()
    weight[row, 1] = value
    return weight


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_is_refused_by_row(value, kind):
    with pytest.raises(ValueError, match=r"`weight`.*row 4"):
        audit(kind(spoiled(4, value)), [[0]], jobs=1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bias_that_is_no_number_is_refused_by_row(value):
    bias = np.zeros(6)
    bias[2] = value
    with pytest.raises(ValueError, match=r"`bias`.*2"):
        audit(WEIGHT, [[0]], bias, jobs=1)


@pytest.mark.parametrize("shape", [(5,), (7,), (6, 1), ()])
def test_a_bias_of_another_size_is_refused(shape):
    with pytest.raises(ValueError, match="`bias`"):
        audit(WEIGHT, [[0]], np.zeros(shape), jobs=1)


@pytest.mark.parametrize("shape", [(), (6,), (2, 3, 4)])
def test_a_weight_that_is_no_matrix_is_refused(shape):
    with pytest.raises(ValueError, match="`weight`"):
        audit(np.ones(shape), [[0]], jobs=1)


@pytest.mark.parametrize("weight", [None, 3, "text", [[1, "a"]], torch.ones(2, 2, dtype=torch.complex64)])
def test_a_weight_of_no_known_kind_is_refused(weight):
    with pytest.raises((TypeError, ValueError, FileNotFoundError)):
        audit(weight, [[0]], jobs=1)


@pytest.mark.parametrize("label", [6, 100, -1, -7])
def test_a_label_out_of_range_is_refused_with_its_row_and_value(label):
    with pytest.raises(ValueError, match=rf"(row|set) 2\D+{label}\b"):
        audit(WEIGHT, [[0], [1, 2], [3, label]], jobs=1)


def test_a_label_out_of_range_in_a_tensor_is_refused_with_its_row():
    with pytest.raises(ValueError, match=r"row 1.*6"):
        audit(WEIGHT, torch.tensor([0, 6]), jobs=1)
    with pytest.raises(ValueError, match=r"row 1.*6"):
        audit(WEIGHT, torch.tensor([[0, 1], [6, -1]]), jobs=1)


def test_a_label_twice_in_one_set_is_refused_with_its_row():
    for sets in ([[0], [2, 4, 2]], torch.tensor([[0, -1, -1], [2, 4, 2]])):
        with pytest.raises(ValueError, match=r"(row|set) 1\D+2.*twice"):
            audit(WEIGHT, sets, jobs=1)


def test_multi_hots_of_another_width_soft_or_unknown_are_refused():
    with pytest.raises(ValueError, match="6"):
        audit(WEIGHT, torch.zeros(2, 5), jobs=1)
    for value in (0.5, -1.0):
        hot = torch.zeros(3, 6)
        hot[2, 1] = value
        with pytest.raises(ValueError, match="row 2"):
            audit(WEIGHT, hot, jobs=1)


@pytest.mark.parametrize(
    "sets", [None, 3, "01", [0.5], [[0.5]], [["a"]], [None], [[True]], torch.tensor([0], dtype=torch.int32)]
)
def test_label_sets_of_no_known_form_are_refused(sets):
    with pytest.raises((TypeError, ValueError)):
        audit(WEIGHT, sets, jobs=1)


@pytest.mark.parametrize("options", [{"mode": "topk"}, {"mode": None}, {"jobs": 0}, {"jobs": 1.5}, {"jobs": "2"}])
def test_options_out_of_range_are_refused_by_name(options):
    with pytest.raises((TypeError, ValueError), match=f"`{next(iter(options))}`"):
        audit(WEIGHT, [[0]], **({"jobs": 1} | options))


def test_names_of_another_number_are_refused():
    with pytest.raises(ValueError, match="`names`"):
        audit(WEIGHT, [[0]], names=["a", "b"], jobs=1)


@pytest.fixture
def saved(tmp_path):
    """The same layer in both formats."""
    safetensors = pytest.importorskip("safetensors.torch")
    held = {"head": WEIGHT, "other": 2 * WEIGHT, "bias": np.zeros(3)}
    np.savez(tmp_path / "layer.npz", **held)
    tensors = {name: torch.from_numpy(array) for name, array in held.items()}
    safetensors.save_file(tensors, tmp_path / "layer.safetensors")
    return tmp_path


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_truncated_file_is_refused_by_name(saved, suffix, keep):
    path = saved / f"layer.{suffix}"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=rf"layer\.{suffix}"):
        audit(path, [[0]], key="head", jobs=1)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_missing_key_is_refused_with_the_keys_there_are(saved, suffix):
    with pytest.raises(ValueError, match=r"head.*other|other.*head"):
        audit(saved / f"layer.{suffix}", [[0]], key="absent", jobs=1)
    with pytest.raises(ValueError, match="key"):
        audit(saved / f"layer.{suffix}", [[0]], jobs=1)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_key_of_something_that_is_no_matrix_is_refused(saved, suffix):
    with pytest.raises(ValueError, match="`weight`"):
        audit(saved / f"layer.{suffix}", [[0]], key="bias", jobs=1)


def test_a_missing_file_and_an_unknown_suffix_are_refused_by_name(tmp_path):
    with pytest.raises((ValueError, FileNotFoundError), match=r"absent\.npz"):
        audit(tmp_path / "absent.npz", [[0]], key="head", jobs=1)
    (tmp_path / "layer.pt").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"\.pt"):
        audit(tmp_path / "layer.pt", [[0]], key="head", jobs=1)


def test_a_file_never_runs_what_it_holds(tmp_path):
    array = np.array([[print, 1.0]], dtype=object)
    np.savez(tmp_path / "layer.npz", head=array)
    with pytest.raises(ValueError, match=r"layer\.npz"):
        audit(tmp_path / "layer.npz", [[0]], key="head", jobs=1)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_a_layer_without_labels_or_without_features_is_answered_or_refused_clearly(shape):
    try:
        report = audit(np.zeros(shape), [[]], jobs=1)
    except ValueError as error:
        assert "`weight`" in str(error)  # noqa: PT017
    else:
        # With no label nothing contradicts; with no feature every logit is 0, which has no sign.
        assert report.verdicts.tolist() == ["unargmaxable" if shape[0] else "argmaxable"]
        assert report.verify() == []

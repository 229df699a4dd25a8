"""Bad input gives one clear error that names the argument, and the row if there is one."""

import numpy as np
import pytest
import torch

from shortlist.audit import audit
from shortlist.errors import InputError
from tests.audit.layers import save_arrays

WEIGHT = np.random.default_rng(0).standard_normal((6, 3))


def spoiled(array: np.ndarray, row: int, value: float) -> np.ndarray:
    array = array.copy()
    array[row] = value
    return array


def multi_hot(value: float) -> torch.Tensor:
    hot = torch.zeros(3, 6)
    hot[2, 1] = value
    return hot


VALUES = [
    *(({"weight": spoiled(WEIGHT, 4, value)}, r"`weight`.*row 4") for value in (np.nan, np.inf, -np.inf)),
    ({"weight": torch.from_numpy(spoiled(WEIGHT, 4, np.nan))}, r"`weight`.*row 4"),
    *(({"bias": spoiled(np.zeros(6), 2, value)}, r"`bias`.*2") for value in (np.nan, np.inf)),
    *(({"bias": np.zeros(shape)}, "`bias`") for shape in [(5,), (7,), (6, 1), ()]),
    *(({"weight": np.ones(shape)}, "`weight`") for shape in [(), (6,), (2, 3, 4), (0, 3), (3, 0)]),
    *(({"label_sets": [[0], [1, 2], [3, label]]}, rf"set 2\D+{label}\b") for label in (6, 100, -1, -7)),
    ({"label_sets": torch.tensor([0, 6])}, r"`label_sets` row 1.*6"),
    ({"label_sets": torch.tensor([[0, 1], [6, -1]])}, r"`label_sets` row 1.*6"),
    ({"label_sets": [[0], [2, 4, 2]]}, r"set 1\D+2.*twice"),
    ({"label_sets": torch.tensor([[0, -1, -1], [2, 4, 2]])}, r"row 1\D+2.*twice"),
    ({"label_sets": torch.zeros(2, 5)}, "6"),
    ({"label_sets": multi_hot(0.5)}, "row 2"),
    ({"label_sets": multi_hot(-1.0)}, "row 2"),
    ({"mode": "topk"}, "`mode`"),
    ({"mode": None}, "`mode`"),
    ({"jobs": 0}, "`jobs`"),
    ({"jobs": 1.5}, "`jobs`"),
    ({"jobs": "2"}, "`jobs`"),
    ({"names": ["a", "b"]}, "`names`"),
    ({"key": "weight"}, "`key` chooses among the arrays of a file"),
    ({"dft": -1}, "`dft` must be an integer, at least 0; got -1"),
    ({"dft": 1.5}, "`dft` must be an integer, at least 0; got 1.5"),
]


@pytest.mark.parametrize(("arguments", "message"), VALUES)
def test_a_wrong_value_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        audit(**({"weight": WEIGHT, "label_sets": [[0]], "jobs": 1} | arguments))


@pytest.mark.parametrize("weight", [None, 3, [[1, "a"]], torch.ones(2, 2, dtype=torch.complex64)])
def test_a_weight_of_no_known_kind_is_refused(weight):
    with pytest.raises((TypeError, ValueError), match="`weight`"):
        audit(weight, [[0]], jobs=1)


@pytest.mark.parametrize(
    "sets", [None, 3, "01", [0, 1], [[0.5]], [["a"]], [None], [[True]], torch.tensor([0], dtype=torch.int32)]
)
def test_label_sets_of_no_known_form_are_refused(sets):
    with pytest.raises((TypeError, ValueError)):
        audit(WEIGHT, sets, jobs=1)


@pytest.fixture(params=["npz", "safetensors"])
def saved(tmp_path, request):
    """The same arrays in both formats."""
    return save_arrays(tmp_path / f"layer.{request.param}", head=WEIGHT, other=2 * WEIGHT, bias=np.zeros(3))


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_truncated_file_is_refused_by_name(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(InputError, match=rf"layer\{saved.suffix}"):
        audit(saved, [[0]], key="head", jobs=1)


def test_a_missing_or_unsuitable_key_is_refused(saved):
    with pytest.raises(InputError, match=r"head.*other|other.*head"):
        audit(saved, [[0]], key="absent", jobs=1)
    with pytest.raises(InputError, match="key"):
        audit(saved, [[0]], jobs=1)
    with pytest.raises(ValueError, match="`weight`"):
        audit(saved, [[0]], key="bias", jobs=1)


def test_a_missing_file_an_unknown_suffix_and_code_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"absent\.npz"):
        audit(tmp_path / "absent.npz", [[0]], key="head", jobs=1)
    (tmp_path / "layer.pt").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"\.pt"):
        audit(tmp_path / "layer.pt", [[0]], key="head", jobs=1)
    np.savez(tmp_path / "layer.npz", head=np.array([[print, 1.0]], dtype=object))
    with pytest.raises(InputError, match=r"layer\.npz"):
        audit(tmp_path / "layer.npz", [[0]], key="head", jobs=1)

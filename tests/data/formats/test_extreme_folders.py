"""Folders of the Extreme Classification Repository: parts, splits in files of their own, and matrices."""

import gzip
from functools import partial

import pytest
import torch

from shortlist.data import open_dataset
from shortlist.data.formats.extreme_text import read_extreme_text
from tests.data.datasets import parts_of
from tests.data.refusals import refuses_to_read

refuses = partial(refuses_to_read, read_extreme_text)

DATA = "4 3 2\n0 0:1\n1 1:2\n0,1 2:3\n 0:4\n"


def write_folds(folder, train="2 1\n4 2\n", test="1 3\n3 4\n"):
    (folder / "Bibtex_data.txt").write_text(DATA)
    (folder / "bibtex_trSplit.txt").write_text(train)
    (folder / "bibtex_tstSplit.txt").write_text(test)
    return folder


@pytest.mark.parametrize("which", ["", "Bibtex_data.txt"])
def test_a_split_beside_the_data_is_read(tmp_path, which):
    write_folds(tmp_path)
    for read in (read_extreme_text, open_dataset):
        assert parts_of(read(tmp_path / which)) == (("train", "test"), [1, 0, 1, 0])
        assert parts_of(read(tmp_path / which, fold=1)) == (("train", "test"), [1, 0, 1, 0])
        assert parts_of(read(tmp_path / which, fold=2)) == (("train", "test"), [0, 0, 1, 1])
    data = read_extreme_text(tmp_path / which)
    assert data.inputs.batch(torch.arange(4)).to_dense().tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 3], [4, 0, 0]]
    assert data.label_counts().tolist() == [2, 2]


def test_rows_in_no_list_have_no_part_and_three_splits_are_no_rows(tmp_path):
    write_folds(tmp_path, train="2 1 3\r\n\r\n", test="4 2 1\r\n")
    assert parts_of(open_dataset(tmp_path, fold=3)) == (("train", "test"), [1, -1, 0, -1])


@pytest.mark.parametrize(
    ("fold", "message"),
    [(3, "trSplit.txt` line 1: has 2 splits, so `fold` must lie in [1, 2]; got 3."), (0, "`fold` must be at least 1")],
)
def test_a_fold_that_is_not_there_is_refused(tmp_path, fold, message):
    refuses(write_folds(tmp_path), message, fold=fold)


def test_half_a_split_and_a_fold_of_none_are_refused(tmp_path):
    write_folds(tmp_path)
    (tmp_path / "bibtex_tstSplit.txt").unlink()
    refuses(tmp_path, "Bibtex_data.txt` must have both split files beside it; got")
    (tmp_path / "bibtex_trSplit.txt").unlink()
    assert read_extreme_text(tmp_path).split is None
    refuses(tmp_path, "has no split files; got 1.", fold=1)


def write_matrices(folder, **changes):
    texts = {
        "trn_X_Xf": "2 3\n0:0.5 2:1\n\n",
        "trn_X_Y": "2 4\n1:1.0 3:1\n0:1.000000\n",
        "tst_X_Xf": "1 3\n1:2\n",
        "tst_X_Y": "1 4\n2:1 0:0\n",
        "Y": "red\nblue\nred\nété\n",
        "lbl_X_Xf": "4 3\n0:1\n0:1\n0:1\n0:1\n",
    }
    for name, text in (texts | changes).items():
        if text is not None:
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("read", [read_extreme_text, open_dataset])
def test_matrices_of_features_and_labels_are_read(tmp_path, read, pack):
    write_matrices(tmp_path)
    for file in list(tmp_path.glob("*_X_*.txt")) if pack else ():
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    data = read(tmp_path)
    assert data.label_names == ("red (0)", "blue", "red (2)", "été")
    assert data.inputs.batch(torch.arange(3)).to_dense().tolist() == [[0.5, 0, 1], [0, 0, 0], [0, 2, 0]]
    assert data.targets.to_dense().tolist() == [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert parts_of(data) == (("train", "test"), [0, 0, 1])


def test_matrices_without_names_or_rows_are_read(tmp_path):
    data = read_extreme_text(write_matrices(tmp_path, Y=None, trn_X_Xf="0 3\n", trn_X_Y="0 4\n"), num_labels=4)
    assert data.label_names == ("0", "1", "2", "3")
    assert parts_of(data) == (("train", "test"), [1])


@pytest.mark.parametrize("changes", [{"trn_X_Xf": None}, {"dev_X_Y": "0 4\n"}])
def test_labels_without_features_are_refused(tmp_path, changes):
    refuses(write_matrices(tmp_path, **changes), "_X_Xf.txt` does not exist.")


def test_options_that_matrices_do_not_have_are_refused(tmp_path):
    write_matrices(tmp_path)
    refuses(tmp_path, "`fold` must be None for the matrices in", fold=1)
    refuses(tmp_path, "trn_X_Y.txt` line 1 says 4 columns; it must be 3.", num_labels=3)
    refuses(tmp_path, "trn_X_Xf.txt` line 1 says 3 columns; it must be 2.", num_features=2)

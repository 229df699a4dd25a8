"""Scores and true labels from files: the same rows whatever the format, in blocks, and one sentence for mistakes."""

import gzip
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pytest
import scipy.sparse
import torch
from pyarrow import parquet
from safetensors.torch import save_file

from shortlist.errors import InputError
from shortlist.predict import Scores, open_scores, read_true_labels
from shortlist.predict import scores as scores_module
from shortlist.predict.true_labels import labels_of
from shortlist.targets import to_index_lists

LOGITS = torch.randn(23, 4, generator=torch.Generator().manual_seed(0))
NAMES = ("owl", "red fox", "hare", "elk")


def write_scores(ending: str) -> dict[str, str]:
    """Write the logits and say how they are opened."""
    array = LOGITS.numpy()
    if ending == ".npy":
        np.save("scores.npy", array)
    elif ending == "fortran":
        np.save("fortran.npy", np.asfortranarray(array.astype(">f8")))
        return {"path": "fortran.npy"}
    elif ending == ".npz":
        np.savez("scores.npz", logits=array, y=np.arange(3))
        return {"path": "scores.npz", "key": "logits"}
    elif ending == "compressed":
        np.savez_compressed("small.npz", logits=array)
        return {"path": "small.npz"}
    elif ending == ".safetensors":
        save_file({"logits": LOGITS}, "scores.safetensors")
    elif ending == ".parquet":
        columns = {"image": [f"i{row}" for row in range(23)], **dict(zip(NAMES, array.T, strict=True))}
        parquet.write_table(pyarrow.table(columns), "scores.parquet")
        return {"path": "scores.parquet", "id_column": "image"}
    else:
        between = "\t" if ".tsv" in ending else ","
        lines = [between.join(["image", *NAMES])]
        lines += [between.join([f"i{row}", *map(repr, values)]) for row, values in enumerate(array.tolist())]
        opener = gzip.open if ending.endswith(".gz") else open
        with opener(f"scores{ending}", "wt") as file:
            file.write("\n".join(lines) + "\n")
        return {"path": f"scores{ending}", "id_column": "image"}
    return {"path": f"scores{ending}"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    """A folder of its own, and blocks so small that there are several."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 4 * 5)


FORMATS = (".npy", "fortran", ".npz", "compressed", ".safetensors", ".csv", ".tsv", ".csv.gz", ".parquet")


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_rows_in_blocks_and_twice(ending):
    scores = open_scores(**write_scores(ending), from_logits=True)
    assert (scores.num_rows, scores.num_labels, scores.from_logits) == (23, 4, True)
    for _ in range(2):
        blocks = list(scores.blocks())
        assert [list(block.rows) for block in blocks] == [list(range(at, min(at + 5, 23))) for at in range(0, 23, 5)]
        assert torch.equal(torch.cat([block.scores.float() for block in blocks]), LOGITS)
        if scores.names is not None:
            assert scores.names == NAMES
            assert [name for block in blocks for name in block.ids or ()] == [f"i{row}" for row in range(23)]
        else:
            assert all(block.ids is None for block in blocks)


def test_bfloat16_keeps_its_type_and_parquet_of_float32_too():
    save_file({"x": LOGITS.bfloat16()}, "half.safetensors")
    blocks = list(open_scores("half.safetensors", from_logits=True).blocks())
    assert torch.equal(torch.cat([block.scores for block in blocks]), LOGITS.bfloat16())
    block = next(open_scores(**write_scores(".parquet"), from_logits=True).blocks())
    assert block.scores.dtype == torch.float32


@pytest.mark.parametrize("ending", FORMATS)
def test_reading_resumes_at_the_end_of_any_block(ending):
    scores = open_scores(**write_scores(ending), from_logits=True)
    for start in (5, 10, 20, 23):
        blocks = list(scores.blocks(start))
        assert [list(block.rows) for block in blocks] == [
            list(range(at, min(at + 5, 23))) for at in range(start, 23, 5)
        ]
        assert all(torch.equal(block.scores.float(), LOGITS[block.start :][:5]) for block in blocks)
        assert [block.location(0).split()[-1] for block in blocks] == [
            str(at + (2 if "sv" in ending else 0)) for at in range(start, 23, 5)
        ]
        assert [name for block in blocks for name in block.ids or ()] in ([], [f"i{row}" for row in range(start, 23)])


@pytest.mark.parametrize("ending", [".npy", "fortran", ".npz", ".safetensors"])
def test_blocks_do_not_map_the_file_and_a_truncated_file_is_reported(ending):
    scores = open_scores(**write_scores(ending), from_logits=True)
    blocks = scores.blocks()
    first = next(blocks).scores.clone()
    with scores.path.open("r+b") as file:
        file.truncate(scores.path.stat().st_size // 3)
    with pytest.raises(InputError, match=r"was truncated while it was being read\.$"):
        list(blocks)
    assert torch.equal(first.float(), LOGITS[:5])


@pytest.mark.parametrize("chunks", [None, (1, 4), (3, 2), (23, 4)])
def test_hdf_is_read_in_blocks_that_hold_whole_chunks_where_these_are_small(chunks):
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("run/logits", data=LOGITS.numpy(), chunks=chunks, compression=chunks and "gzip")
        file["count"] = np.arange(3)
    scores = open_scores("x.h5", from_logits=True, key="run/logits")
    blocks = list(scores.blocks())
    assert torch.equal(torch.cat([block.scores for block in blocks]), LOGITS)
    assert [len(block.scores) for block in blocks] == {None: [5] * 4 + [3], (3, 2): [3] * 7 + [2]}.get(
        chunks, [5] * 4 + [3]
    )
    later = list(scores.blocks(blocks[1].start))
    assert [block.start for block in later] == [block.start for block in blocks[1:]]


@pytest.mark.parametrize(("value", "told"), [(np.nan, "nan"), (np.inf, "inf")])
@pytest.mark.parametrize("ending", [".npy", ".csv", ".parquet"])
def test_a_score_that_is_not_finite_is_named_with_its_row(ending, value, told, monkeypatch):
    changed = LOGITS.clone()
    changed[17, 2] = value
    monkeypatch.setattr(sys.modules[__name__], "LOGITS", changed)
    scores = open_scores(**write_scores(ending), from_logits=True)
    place = {".npy": "`scores.npy` row 17", ".csv": "`scores.csv` line 19", ".parquet": "`scores.parquet` row 17"}
    expected = f"{place[ending]}: scores must not be NaN or infinite; that of label 2 is {told}."
    with pytest.raises(InputError) as error:
        list(scores.blocks())
    assert str(error.value) == expected


def test_minus_infinity_marks_an_absent_label_of_either_kind():
    np.save("x.npy", np.array([[0.5, -np.inf]]))
    for from_logits in (True, False):
        assert len(next(open_scores("x.npy", from_logits=from_logits).blocks()).scores) == 1


@pytest.mark.parametrize("value", [1.5, -0.25])
def test_probabilities_outside_of_0_and_1_are_refused_and_logits_are_not(value):
    np.save("x.npy", np.array([[0.5, 0.5], [0.25, value]]))
    assert list(open_scores("x.npy", from_logits=True).blocks())
    with pytest.raises(
        InputError, match=rf"`x.npy` row 1: .* must lie in \[0, 1\]; that of label 1 is {value} \(are these logits"
    ):
        list(open_scores("x.npy", from_logits=False).blocks())


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "`x.csv` is empty."),
        ("a,b\n", {}, "`x.csv` holds no rows."),
        ("a,b\n0.1\n", {}, "`x.csv` line 2: must have 2 cells like the header; got 1."),
        (
            "a,b\n0.1,cat\n",
            {},
            "`x.csv` line 2: 'b' must be a number; got 'cat' (if 'b' holds the ids",
        ),
        ("a,b\n0,1\nz,\n", {"id_column": "a"}, "`x.csv` line 3: 'b' must be a number; got ''."),
        ("a,b\n0,1_0\n", {"id_column": "a"}, "`x.csv` line 2: 'b' must be a number; got '1_0'."),
        (",b\n0,1\n", {}, "`x.csv` column 1 has no name; if it holds the ids of rows, name '' as the id column."),
        ("a,b\n0,1\n", {"id_column": "c"}, "`x.csv` has no column 'c' of ids; its first column is 'a'."),
        ("a\n0\n", {"id_column": "a"}, "`x.csv` must have a column for each label; it has none."),
        ("a,a\n0,1\n", {}, "`x.csv`: columns must have different names; 'a' occurs twice."),
        ("a,b\n0,1\n", {"key": "x"}, "`x.csv` is a table, so it has no array 'x' to choose: leave out the key."),
        (
            "a,b\n0,1\n",
            {"names": "two.txt"},
            "`two.txt` must have the names of the header of `x.csv`; 'c'",
        ),
        ("a,b,c\n0,1,2\n", {"names": "two.txt"}, "`two.txt` must name each of the 3 labels of `x.csv`; it names 2."),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(content, options, message):
    Path("x.csv").write_text(content)
    Path("two.txt").write_text("a\nc\n")
    with pytest.raises(InputError) as error:
        read_all(open_scores("x.csv", from_logits=True, **options))
    assert str(error.value).startswith(message)


def read_all(scores: Scores) -> int:
    return scores.num_rows + len(list(scores.blocks()))


def test_an_unnamed_column_can_hold_ids():
    Path("x.csv").write_text(",b\nfirst,1\n")
    scores = open_scores("x.csv", from_logits=True, id_column="")
    assert (scores.names, next(scores.blocks()).ids) == (("b",), ["first"])


ONE_OF_TWO = "must hold one array, or key must choose one; it holds 'a', 'b'."


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("none.npy", {}, "`none.npy` does not exist"),
        (".", {}, "is a folder"),
        ("x.txt", {}, "`x.txt` must end in one of .npy"),
        ("cut.npy", {}, "`cut.npy` is not a numpy array"),
        ("cut.h5", {}, "`cut.h5` is not an HDF5 file: "),
        ("two.npz", {}, f"`two.npz` {ONE_OF_TWO}"),
        ("two.h5", {}, f"`two.h5` {ONE_OF_TWO}"),
        ("two.npz", {"key": "c"}, "has no array 'c'"),
        ("two.h5", {"key": "c"}, "`two.h5` has no array 'c'; it has 'a', 'b'."),
        ("whole.npy", {"key": "c"}, "`whole.npy` is a single array, so there is none called 'c': leave out key."),
        ("whole.npy", {"id_column": "c"}, "so it has no id column 'c'"),
        ("integers.npy", {}, "`integers.npy` must hold floating-point scores; got int64."),
        ("two.h5", {"key": "b"}, "`two.h5` 'b' must hold floating-point scores; got int64."),
        ("vector.npy", {}, "`vector.npy` must have shape (rows, labels); got (3,)."),
        ("no-labels.npy", {}, "`no-labels.npy` must have shape (rows, labels); got (3, 0)."),
        ("no-rows.npy", {}, "`no-rows.npy` holds no rows."),
    ],
)
def test_a_missing_damaged_or_wrong_file_is_refused_in_one_sentence(path, options, message):
    whole, integers = np.zeros((1, 2)), np.zeros((2, 3), dtype=np.int64)
    arrays = {"whole": whole, "integers": integers, "vector": np.zeros(3)}
    arrays |= {"no-labels": np.zeros((3, 0)), "no-rows": np.zeros((0, 3))}
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    np.savez("two.npz", a=whole, b=integers)
    with h5py.File("two.h5", "w") as file:
        file["a"], file["b"] = whole, integers
    Path("cut.npy").write_bytes(b"\x93NUMPY")
    Path("cut.h5").write_bytes(b"no")
    Path("x.txt").write_text("0")
    with pytest.raises(InputError, match=re.escape(message)):
        read_all(open_scores(path, from_logits=True, **options))


def test_a_file_that_vanishes_while_it_is_read_is_named():
    scores = open_scores(**write_scores(".npy"), from_logits=True)
    Path("scores.npy").unlink()
    with pytest.raises(InputError, match=r"`scores.npy` cannot be read: No such file or directory."):
        list(scores.blocks())


def test_progress_counts_rows_and_gives_the_same_blocks(monkeypatch, capsys):
    scores = open_scores(**write_scores(".npy"), from_logits=True)
    monkeypatch.setattr("shortlist.progress._SECONDS_BETWEEN_LINES", 0.0)
    for shown in (True, False):
        with scores.progress("looking", start=5, shown=shown) as blocks:
            assert sum(len(block.scores) for block in blocks) == 18
        lines = capsys.readouterr().err.splitlines()
        assert [line.split(",")[0] for line in lines] == (
            [f"looking: {rows} of 23 rows" for rows in (10, 15, 20, 23)] if shown else []
        )


SETS = [[0, 2], [1], [], *([[3]] * 20)]
LISTS = torch.tensor([row + [-1] * (2 - len(row)) for row in SETS])
HOT = torch.zeros(23, 4).index_put(((LISTS >= 0).nonzero()[:, 0], LISTS[LISTS >= 0]), torch.tensor(1.0))


def write_sets(form: str) -> dict[str, str]:
    if form == "lists":
        np.save("y.npy", LISTS.numpy())
    elif form in ("bool", "float32", "uint8"):
        np.save("y.npy", HOT.numpy().astype(form))
    elif form == "scipy":
        scipy.sparse.save_npz("y.npz", scipy.sparse.csr_matrix(HOT.numpy()))
        return {"path": "y.npz"}
    elif form == "pointers":
        matrix = scipy.sparse.csr_matrix(HOT.numpy())
        np.savez("y.npz", y_indptr=matrix.indptr, y_indices=matrix.indices, x=np.zeros(2))
        return {"path": "y.npz", "key": "y"}
    elif form == "json":
        Path("y.json").write_text(str(SETS))
        return {"path": "y.json"}
    else:
        names = form == "names"
        lines = [", ".join(NAMES[label] if names else str(label) for label in row) for row in SETS]
        Path("y.txt").write_text("\n".join(lines) + "\n")
        return {"path": "y.txt"}
    return {"path": "y.npy"}


@pytest.mark.parametrize("form", ["lists", "bool", "float32", "uint8", "scipy", "pointers", "json", "text", "names"])
def test_sets_of_labels_come_in_every_form_and_by_block(form):
    scores = open_scores(**write_scores(".csv" if form == "names" else ".npy"), from_logits=True)
    target = read_true_labels(**write_sets(form), scores=scores)
    assert torch.equal(to_index_lists(target, 4), LISTS)
    block = list(scores.blocks())[1]
    assert torch.equal(to_index_lists(labels_of(target, block), 4), to_index_lists(LISTS[5:10], 4))


def test_the_shape_of_arrays_and_the_rows_of_text_decide_between_class_and_set():
    scores = open_scores(**write_scores(".npy"), from_logits=True)
    classes = torch.arange(23) % 4
    np.save("y.npy", classes.numpy().astype(np.int32))
    np.save("lists.npy", classes.numpy()[:, None])
    Path("y.txt").write_text("\n".join(map(str, classes.tolist())))
    for path in ("y.npy", "y.txt"):
        assert torch.equal(read_true_labels(path, scores), classes)
        assert torch.equal(read_true_labels(path, scores, one_class=False), classes[:, None])
    assert torch.equal(to_index_lists(read_true_labels("lists.npy", scores), 4), classes[:, None])
    assert torch.equal(read_true_labels("lists.npy", scores, one_class=True), classes)


def test_unknown_labels_stay_unknown_where_the_form_is_left_open():
    scores = open_scores(**write_scores(".npy"), from_logits=True)
    hot = HOT.clone()
    hot[6, 0] = -1
    np.save("y.npy", hot.numpy())
    target = read_true_labels("y.npy", scores)
    assert torch.equal(target.to_dense(), hot)
    assert torch.equal(labels_of(target, list(scores.blocks())[1]).to_dense(), hot[5:10])
    with pytest.raises(InputError, match=r"`y.npy` row 6: label 0 must not be unknown"):
        read_true_labels("y.npy", scores, one_class=False)


def test_wrong_labels_are_named_with_file_and_row():
    scores = open_scores(**write_scores(".npy"), from_logits=True)
    np.save("few.npy", np.zeros(22, dtype=np.int64))
    np.save("large.npy", np.full(23, 4))
    Path("y.txt").write_text("0 1\n" * 23)
    scipy.sparse.save_npz("csc.npz", scipy.sparse.csc_matrix(HOT.numpy()))
    for path, options, message in (
        ("few.npy", {}, "`few.npy` must have labels for each of the 23 rows of `scores.npy`; got 22."),
        ("large.npy", {}, r"row 0: label 4 must lie in \[0, 4\)"),
        ("y.txt", {"one_class": True}, "`y.txt` row 0: exactly one label must be positive; got 2."),
        ("y.txt", {"key": "y"}, "`y.txt` holds no arrays, so there is none called 'y'."),
        ("none.txt", {}, "`none.txt` does not exist."),
        ("csc.npz", {}, "`csc.npz` must hold a sparse matrix in the format 'csr'; got 'csc'."),
    ):
        with pytest.raises(ValueError, match=message):
            read_true_labels(path, scores, **options)

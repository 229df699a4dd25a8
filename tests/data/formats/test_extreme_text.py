"""The extreme-classification text format: round trips, two parsers that test each other, and one sentence per fault."""

import gzip
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import SparseRows
from shortlist.data.formats import extreme_rows
from shortlist.data.formats.extreme_text import read_extreme_text, stream_extreme_text
from shortlist.data.target_rows import label_pairs
from tests.data.datasets import parts_of
from tests.data.formats.test_refusals import PLACES, WRONG

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ROWS = [([2, 0], {3: "0.25", 1: "1"}), ([], {0: "-2.5"}), ([1], {}), ([], {}), ([0, 1, 2], {2: "1e-3", 3: "7.0"})]


def written(rows, num_features=4, num_labels=3, *, header=True, end="\n") -> str:
    lines = [f"{len(rows)} {num_features} {num_labels}"] if header else []
    for labels, features in rows:
        lines.append(f"{','.join(map(str, labels))} {' '.join(f'{i}:{v}' for i, v in features.items())}")
    return "".join(line + end for line in lines)


def dense(rows, num_features=4) -> torch.Tensor:
    matrix = torch.zeros(len(rows), num_features)
    for row, (_, features) in enumerate(rows):
        for column, text in features.items():
            matrix[row, column] = float(text)
    return matrix


def hot(rows, num_labels=3) -> torch.Tensor:
    matrix = torch.zeros(len(rows), num_labels)
    for row, (labels, _) in enumerate(rows):
        matrix[row, labels] = 1
    return matrix


def fast(text: str | bytes, num_features=100, num_labels=10, dtype=FLOAT32):
    raw = text if isinstance(text, bytes) else text.encode()
    buffer = np.frombuffer(b"9" * extreme_rows._LEAD + raw, dtype=np.uint8)
    return extreme_rows._parse_block(buffer, extreme_rows._LEAD, len(buffer), num_features, num_labels, dtype)


def slow(text: str | bytes, num_features=100, num_labels=10, dtype=FLOAT32):
    raw = text if isinstance(text, bytes) else text.encode()
    return extreme_rows._parse_lines(raw, num_features, num_labels, dtype, path="x.txt", line=1)


def same(a, b) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("end", ["\n", " \n", "\t\r\n"])
def test_a_file_comes_back_with_labels_features_and_empty_rows(tmp_path, end):
    path = tmp_path / "tags.txt"
    path.write_text(written(ROWS, end=end), newline="")
    data = read_extreme_text(path)
    everything = data.batch(list(range(5)))
    assert torch.equal(everything.inputs.to_dense(), dense(ROWS))
    assert torch.equal(everything.targets.to_dense(), hot(ROWS))
    assert isinstance(data.inputs, SparseRows)
    assert data.inputs.columns.dtype == torch.int32
    assert data.inputs.values.dtype == torch.float32
    assert data.label_names == ("0", "1", "2")
    assert data.split is None
    assert data.name == "tags"
    torch.sparse_csr_tensor(
        data.targets.crow_indices(),
        data.targets.col_indices(),
        data.targets.values(),
        data.targets.shape,
        check_invariants=True,
    )


@pytest.mark.parametrize(
    ("train", "test"),
    [("train.txt", "test.txt"), ("eurlex_train.txt", "eurlex_test.txt"), ("A b-Train.txt.gz", "A b-Test.txt.gz")],
)
def test_a_folder_gives_both_parts_in_order(tmp_path, train, test):
    folder = tmp_path / "Wiki ‘10’"
    folder.mkdir()
    for name, rows in ((train, ROWS[:3]), (test, ROWS[3:])):
        content = written(rows).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (folder / "readme.txt").write_text("not data")
    data = read_extreme_text(folder)
    assert data.name == "Wiki ‘10’"
    assert parts_of(data) == (("train", "test"), [0, 0, 0, 1, 1])
    assert torch.equal(data.part("test").targets.to_dense(), hot(ROWS[3:]))
    paired = read_extreme_text(folder / train, test=folder / test)
    assert torch.equal(paired.inputs.batch(torch.arange(5)).to_dense(), dense(ROWS))
    assert torch.equal(paired.split.index, data.split.index)


def test_the_layout_without_a_first_line_needs_both_sizes(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text(written(ROWS, header=False))
    data = read_extreme_text(path, num_features=4, num_labels=3)
    assert torch.equal(data.targets.to_dense(), hot(ROWS))
    with pytest.raises(ValueError, match=r"`.*old.txt` line 1 must be three integers.*; got '2,0 3:0.25 1:1'\.$"):
        read_extreme_text(path, num_features=4)


def test_a_row_may_begin_with_a_feature_and_a_file_may_end_without_a_line_end_or_with_empty_lines(tmp_path):
    path = tmp_path / "a.txt"
    for content in ("2 3 2\n1:5\n1 2:6", "2 3 2\n1:5\n1 2:6\n\n \n", "\ufeff2 3 2\r\n 1:5\r\n1  2:6 \r\n"):
        path.write_text(content, newline="")
        data = read_extreme_text(path)
        assert data.inputs.batch(torch.arange(2)).to_dense().tolist() == [[0, 5, 0], [0, 0, 6]]
        assert [pairs.tolist() for pairs in label_pairs(data.targets, 2)[:2]] == [[1], [1]]


def test_names_of_labels_may_hold_anything_and_repeat_but_must_be_as_many(tmp_path):
    path, names = tmp_path / "a.txt", tmp_path / "Yf.txt"
    path.write_text("1 2 3\n2 0:1\n")
    names.write_bytes('\ufeffblue "sky"\r\nété, rouge\r\n日本\r\n\r\n'.encode())
    assert read_extreme_text(path, names_file=names)[0].labels == ("日本",)
    assert read_extreme_text(path, names_file=names).label_names[:2] == ('blue "sky"', "été, rouge")
    names.write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"`.*Yf.txt` must have a line for each of 3 labels; got 2\.$"):
        read_extreme_text(path, names_file=names)
    names.write_text("a\nb\na\n")
    assert read_extreme_text(path, names_file=names).label_names == ("a (0)", "b", "a (2)")


@pytest.mark.parametrize("line", WRONG["extreme text, lines"])
def test_a_stream_refuses_what_the_whole_does(tmp_path, line):
    place = PLACES["extreme text, lines"]
    path = tmp_path / place.file
    path.write_text(place.around.replace("{}", line))
    with pytest.raises(ValueError, match=re.escape(WRONG["extreme text, lines"][line])):
        list(stream_extreme_text(path))


def test_files_and_options_that_do_not_fit_are_refused(tmp_path):
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text(written(ROWS))
    other.write_text(written(ROWS, num_features=5))
    with pytest.raises(ValueError, match=r"`.*b.txt` line 1 says 5 features; it must be 4\.$"):
        read_extreme_text(path, test=other)
    with pytest.raises(ValueError, match=r"`.*a.txt` line 1 says 3 labels; it must be 7\.$"):
        read_extreme_text(path, num_labels=7)
    with pytest.raises(ValueError, match=r"`num_features` must be at least 0; got -1\.$"):
        read_extreme_text(path, num_features=-1)
    with pytest.raises(ValueError, match=r"must hold one file that is or ends in _train.txt .*; got none\.$"):
        read_extreme_text(tmp_path)
    with pytest.raises(ValueError, match=r"`test` must be None if `path` is a folder; got `.*`\.$"):
        read_extreme_text(tmp_path, test=other)
    with pytest.raises(TypeError, match=r"`dtype` must be torch.float32 or torch.float64; got torch.int64\.$"):
        read_extreme_text(path, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"`rows_per_chunk` must be at least 1; got 0\.$"):
        stream_extreme_text(path, rows_per_chunk=0)
    (tmp_path / "x_train.txt").write_text("")
    (tmp_path / "y_train.txt").write_text("")
    with pytest.raises(ValueError, match=r"; got x_train.txt, y_train.txt\.$"):
        read_extreme_text(tmp_path)


@pytest.mark.parametrize("rows_per_chunk", [1, 3, 100, 1000])
@pytest.mark.parametrize("block", [64, 1000])
def test_chunks_have_the_asked_size_and_hold_what_the_whole_holds(tmp_path, monkeypatch, rows_per_chunk, block):
    monkeypatch.setattr(extreme_rows, "BLOCK_BYTES", block)
    rng = random.Random(0)
    rows = [
        (
            rng.sample(range(20), rng.randrange(4)),
            {i: f"{rng.random():.4f}" for i in rng.sample(range(50), rng.randrange(20))},
        )
        for _ in range(250)
    ]
    path = tmp_path / "a.txt"
    path.write_text(written(rows, 50, 20))
    whole = read_extreme_text(path)
    assert isinstance(whole.inputs, SparseRows)
    assert torch.equal(whole.inputs.batch(torch.arange(250)).to_dense(), dense(rows, 50))
    chunks = list(stream_extreme_text(path, rows_per_chunk=rows_per_chunk))
    assert [chunk.first_row for chunk in chunks] == list(range(0, 250, rows_per_chunk))
    assert {len(chunk.inputs) for chunk in chunks[:-1]} <= {rows_per_chunk}
    assert torch.equal(torch.cat([chunk.targets.to_dense() for chunk in chunks]), hot(rows, 20))
    assert torch.equal(torch.cat([chunk.inputs.values for chunk in chunks]), whole.inputs.values)
    assert torch.equal(torch.cat([chunk.inputs.columns for chunk in chunks]), whole.inputs.columns)


def test_the_line_of_a_fault_is_right_far_into_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(extreme_rows, "BLOCK_BYTES", 100)
    path = tmp_path / "a.txt"
    lines = ["1000 9 3", *["1 2:0.5 3:4"] * 1000]
    lines[777] = "1 2:0.5 2:4"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="line 778: feature 2 must occur once"):
        read_extreme_text(path)
    seen = []
    with pytest.raises(ValueError, match="line 778: feature 2 must occur once"):
        seen.extend(chunk.first_row for chunk in stream_extreme_text(path, rows_per_chunk=50))
    assert seen[-1] >= 650


def test_a_file_of_one_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(extreme_rows, "BLOCK_BYTES", 100)
    monkeypatch.setenv("SHORTLIST_LIMITS", "line=1000")
    path = tmp_path / "a.txt"
    path.write_text("1 9 3\n1 " + "1:2 " * 1000)
    with pytest.raises(ValueError, match=r"has a line of more than 1000 bytes, which no file of this format has\.$"):
        read_extreme_text(path)


number_texts = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(-1e9, 1e9).map(lambda x: f"{x:.6f}"),
    st.floats(-1, 1).map(lambda x: f"{x:.17g}"),
    st.tuples(st.floats(-1e30, 1e30), st.sampled_from(["%.3e", "%.14e", "%.18e", "%.4E"])).map(lambda x: x[1] % x[0]),
    st.tuples(st.text("0123456789", min_size=1, max_size=22), st.text("0123456789", max_size=22)).map(".".join),
    st.integers(0, 10**20).map(str),
    st.sampled_from(
        [
            ".5",
            "5.",
            "+1",
            "-0.0",
            "0",
            "00012",
            "1E+2",
            "1e022",
            "9e-0045",
            "3e-30",
            "0e999999999999",
            "16777217",
            "16777219.0",
            "9007199254740993",
        ]
    ),
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(number_texts, min_size=1, max_size=60), st.sampled_from([FLOAT32, FLOAT64]))
def test_values_are_bit_for_bit_what_float_makes_of_them(texts, dtype):
    block = fast("1 " + " ".join(f"{i}:{text}" for i, text in enumerate(texts)) + "\n", dtype=dtype)
    assert block.values.tobytes() == np.array([float(text) for text in texts]).astype(dtype).tobytes()


def test_values_of_many_digits_near_the_middle_between_two_float32_are_rounded_rightly():
    rng = random.Random(1)
    texts = []
    for _ in range(300):
        low = np.float32(rng.random() + 0.01)
        middle = (float(low) + float(np.nextafter(low, np.float32(2)))) / 2
        texts += [f"{middle + step * 2**-56:.19f}"[:20] for step in (-2, -1, 0, 1, 2)] + [f"{middle:.17f}"]
    block = fast("1 " + " ".join(f"{i}:{text}" for i, text in enumerate(texts)) + "\n", num_features=2000)
    assert block.values.tobytes() == np.array([float(text) for text in texts]).astype(np.float32).tobytes()


lines = st.one_of(
    st.text("0123,.:- \te\r\n", max_size=40),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 11), max_size=3).map(lambda labels: ",".join(map(str, labels))),
            st.lists(st.tuples(st.integers(0, 101), number_texts), max_size=4),
        ).map(lambda row: row[0] + "".join(f" {i}:{text}" for i, text in row[1])),
        max_size=4,
    ).map("\n".join),
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(lines)
def test_the_fast_and_the_slow_parser_agree(text):
    text += "\n"
    quick = fast(text)
    try:
        careful = slow(text)
    except ValueError:
        assert quick is None
        return
    assert same(quick, careful)


def test_the_fast_parser_sees_that_a_row_is_out_of_order_and_sorts_it():
    block = fast("3,1 9:1 2:2\n0 7:1\n5,4,6 3:3 1:1 2:2\n")
    assert block.labels.tolist() == [1, 3, 0, 4, 5, 6]
    assert block.columns.tolist() == [2, 9, 7, 1, 2, 3]
    assert block.values.tolist() == [2, 1, 1, 1, 2, 3]
    assert block.counts.tolist() == [2, 1, 3]

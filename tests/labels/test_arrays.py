"""Scores and labels of numpy, scipy, pandas, polars, pyarrow and Python give the results of equal tensors."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist import functional as F
from shortlist import targets
from shortlist.audit import audit
from shortlist.labels import read_scores, read_target
from shortlist.metrics import LabelSets, SetCoverage, SetSize
from shortlist.sets import AverageK, PredictionSets, RecallControl, tradeoff
from tests.contracts_metrics import METRICS, N, flat
from tests.python_process import run_python
from tests.sets.rules import RULES, assert_same
from tests.sets.worlds import seeded

pytestmark = pytest.mark.cpu_only  # other libraries are on the CPU

COLUMNS = [f"label {i}" for i in range(N + 1)]


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


NULLABLE = {torch.bool: "boolean", torch.float32: "Float32", torch.float64: "Float64"}
TABLES = {
    "numpy": lambda x: x.numpy(),
    "read-only numpy": lambda x: read_only(x.numpy()),
    "numpy by columns": lambda x: np.asfortranarray(x.numpy()),
    "numpy backwards": lambda x: np.flip(np.flip(x.numpy(), 0).copy(), 0),
    "numpy of another byte order": lambda x: x.numpy().astype(x.numpy().dtype.newbyteorder(">")),
    "pandas": lambda x: pandas.DataFrame(x.numpy(), index=np.arange(len(x))[::-1]),
    "pandas, nullable": lambda x: pandas.DataFrame(x.numpy()).astype(NULLABLE[x.dtype]),
    "polars": lambda x: polars.DataFrame(x.numpy(), schema=COLUMNS[: x.shape[1]]),
    "pyarrow": lambda x: pyarrow.table(list(x.numpy().T), names=COLUMNS[: x.shape[1]]),
    "pandas column of rows": lambda x: pandas.Series(list(x.numpy())),
    "pyarrow column of rows": lambda x: pyarrow.FixedSizeListArray.from_arrays(
        pyarrow.array(x.numpy().ravel()), x.shape[1]
    ),
    "lists": lambda x: x.tolist(),
}
"""Other forms of a dense table."""
SPARSE = {
    "csr": scipy.sparse.csr_matrix,
    "csc array": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_matrix,
    "csr of integers": lambda hot: scipy.sparse.csr_matrix(hot.astype(np.int8)),
    "csr of float64": lambda hot: scipy.sparse.csr_matrix(hot.astype(np.float64)),
}


def forms_of(hot: Tensor, *, one_class: bool) -> list:
    """The same labels in every form in which another library may hold them."""
    found = [make(hot) for make in TABLES.values()]
    found += [make(hot.float()) for make in TABLES.values()]
    found += [make(hot.numpy()) for make in SPARSE.values()]
    lists = [row.nonzero()[:, 0].tolist() for row in hot]
    # Without the last list, which is longer than the others, lists of n indices would be as wide as the labels.
    if len({len(row) for row in lists}) > 1 or len(lists[0]) != hot.shape[1]:
        arrays = np.empty(len(lists), dtype=object)
        arrays[:] = [np.array(row, dtype=np.int32) for row in lists]
        found += [[row.nonzero()[:, 0] for row in hot]]
        found += [lists, [set(row) for row in lists], [tuple(row) for row in lists], arrays]
        found += [pandas.Series(lists), polars.Series(lists, dtype=polars.List(polars.Int64))]
        found += [pyarrow.array(lists, pyarrow.list_(pyarrow.int32()))]
    if one_class:
        classes = hot.long().argmax(-1)
        found += [classes.numpy(), classes.numpy().astype(np.uint8), pandas.Series(classes.numpy(), dtype="Int64")]
        found += [polars.Series(classes.tolist()), pyarrow.array(classes.tolist()), classes.tolist()]
    return found


@settings(derandomize=True, deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 6), n=st.integers(2, N))
def test_every_form_is_the_same_tensor(seed, rows, n):
    generator = seeded(seed)
    for dtype in (torch.float16, torch.float32, torch.float64):
        x = torch.randn(rows, n, generator=generator).to(dtype)
        for name, make in TABLES.items():
            if dtype == torch.float16 and name.split()[0] in ("polars", "pyarrow", "pandas,"):
                continue  # they have no such numbers, or other names for them
            read = read_scores(make(x))
            assert read.dtype == (torch.float64 if name == "lists" else dtype), name
            assert torch.equal(read.double(), x.double()), name
    one_class = bool(seed % 2)
    hot = torch.rand(rows, n, generator=generator) < 0.4
    if one_class:
        hot = torch.eye(n, dtype=torch.bool)[torch.randint(0, n, (rows,), generator=generator)]
    for labels in forms_of(hot, one_class=one_class):
        assert torch.equal(targets.to_multi_hot(labels, n), hot.float()), labels


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_is_the_same_for_every_form(rule):
    logits, labels = rule.data(40)
    logits = logits.double()
    expected = rule.make().fit(logits, labels, from_logits=True)
    hot = None if labels is None else targets.to_multi_hot(labels, logits.shape[1], dtype=torch.bool)
    forms = [None] if hot is None else forms_of(hot, one_class=rule.wants == "classes")
    for i, form in enumerate(forms):
        scores = list(TABLES.values())[i % len(TABLES)](logits)
        assert_same(rule.make().fit(scores, form, from_logits=True), expected, logits)
    answer = expected.predict(logits, generator=seeded(0))
    assert all(expected.predict(make(logits), generator=seeded(0)) == answer for make in TABLES.values())
    assert all(torch.equal(expected(make(logits)), expected(logits)) for make in TABLES.values())


@pytest.mark.parametrize("case", METRICS, ids=str)
def test_every_metric_is_the_same_for_every_form(case):
    generator = seeded(0)
    scores, hot = torch.randn(6, N, generator=generator).double(), torch.rand(6, N, generator=generator) < 0.4
    if case.one_class:
        hot = torch.eye(N, dtype=torch.bool)[torch.randint(0, N, (6,), generator=generator)]
    mask = torch.tensor([True, True, False, True, True, True])

    def value(first, target, mask) -> list[float]:
        metric = case.metric()
        rest = [[*range(6)]] if case.is_graph else []
        arguments = [first, target, *rest] if case.takes_target else [first]
        metric.update(*arguments, **({"mask": mask} if case.takes_mask else {}))
        return flat(metric.compute())

    first = scores > 0 if case.takes_sets else scores
    expected = torch.tensor(value(first, hot, mask))
    for i, target in enumerate(forms_of(hot, one_class=case.one_class)):
        make = list(TABLES.values())[i % len(TABLES)]
        if case.takes_sets and "macro" in str(case) and np.ndim(target) != 1:
            continue  # wants classes
        found = value(make(first), target, mask.numpy() if i % 2 else mask.tolist())
        torch.testing.assert_close(torch.tensor(found), expected, equal_nan=True)


def test_sets_tradeoffs_and_audits_are_the_same_for_every_form():
    generator = seeded(0)
    scores, hot = torch.rand(6, N, generator=generator).double(), torch.rand(6, N, generator=generator) < 0.4
    sets = PredictionSets.from_mask(scores > 0.5, scores)
    curve = tradeoff(scores, hot, from_logits=False)
    weight = torch.randn(N, 3, generator=generator).double()
    report = audit(weight, hot, radius=False)
    for make in TABLES.values():
        assert PredictionSets.from_mask(make(scores > 0.5), make(scores)) == sets
        assert list(audit(make(weight), hot, radius=False).verdicts) == list(report.verdicts)
    for labels in forms_of(hot, one_class=False):
        assert torch.equal(sets.contains(labels), sets.contains(hot))
        assert torch.equal(sets.count_hits(labels), sets.count_hits(hot))
        found = tradeoff(scores.numpy(), labels, from_logits=False)
        assert all(torch.equal(found.errors[name], curve.errors[name]) for name in curve.errors)
        if not isinstance(labels, list) or isinstance(labels[0], set | tuple):  # lists are label sets there
            assert list(audit(weight.numpy(), labels, radius=False).verdicts) == list(report.verdicts)
    sparse = scipy.sparse.csr_matrix(weight.numpy())
    assert list(audit(sparse, hot, radius=False).verdicts) == list(report.verdicts)


@pytest.mark.parametrize(
    "wide",
    [
        lambda y: y,
        lambda y: y.astype(np.uint8),
        pandas.DataFrame,
        lambda y: pandas.DataFrame(y).astype("Int64"),
        lambda y: polars.DataFrame(y, schema=COLUMNS[:N]),
        lambda y: y.tolist(),
        lambda y: pandas.Series(list(y)),
    ],
    ids=["numpy", "uint8", "pandas", "nullable", "polars", "lists", "column of arrays"],
)
def test_integers_as_wide_as_the_labels_stay_refused_and_the_conversions_take_them(wide):
    y = np.eye(N, dtype=np.int64)
    refused = "must not be as wide as the labels, .* `targets.from_multi_hot` or `targets.from_indices`"
    scores = torch.rand(N, N, generator=seeded(0))
    for call in (
        lambda: RecallControl(0.2).fit(scores, wide(y), from_logits=False),
        lambda: F.recall_at_k(scores, wide(y), 2),
        lambda: PredictionSets.from_mask(scores > 0.5).contains(wide(y)),
        lambda: tradeoff(scores, wide(y), from_logits=False),
    ):
        with pytest.raises(ValueError, match=refused):
            call()
    assert torch.equal(targets.from_multi_hot(wide(y)), torch.eye(N))
    assert targets.from_indices(wide(y), N).shape == (N, N + 1)
    assert torch.equal(targets.from_multi_hot(scipy.sparse.csr_array(y)).to_dense(), torch.eye(N))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[0.1, 0.2], [0.3]], "`scores` must hold numbers, in rows of one length; got objects"),
        ([["a", "b"]], "`scores` must hold numbers, in rows of one length; got <U1"),
        (np.array([[0.1, None]]), "`scores` must hold numbers, in rows of one length; got objects"),
        (np.array([[1, 2]]), "`scores` must be a floating tensor or array; got torch.int64"),
        (np.array([[1j]]), "`scores` must hold numbers, in rows of one length; got complex128"),
        (np.ones((1, 2), dtype=np.longdouble), "`scores` must hold numbers, in rows of one length; got"),
        (scipy.sparse.csr_matrix(np.eye(2)), "`scores` must be dense, because a score that is not stored may be 0 or"),
        (torch.eye(2).to_sparse(), "`scores` must be dense, because a score that is not stored may be 0 or absent"),
        (pandas.DataFrame({"a": ["x"], "b": [0.5]}), "`scores` must hold numbers"),
        (polars.DataFrame({"a": ["x"], "b": [0.5]}), "`scores` must hold numbers"),
        (np.ma.masked_array([[0.1, 0.2]], [[True, False]]), "`scores` must not be masked"),
        ("scores.csv", "`scores` must hold numbers"),
        (None, "`scores` must hold numbers"),
    ],
)
def test_scores_that_cannot_be_read_are_one_sentence(scores, message):
    for call in (lambda: AverageK(1).fit(scores, from_logits=False), lambda: F.hits_at_k(scores, [[0]], 1)):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["cat"], ["dog", "owl"]], "`labels` row 0: lists that differ in length must hold label indices; got <U3"),
        (["cat", "dog"], "`labels` must hold numbers, in rows of one length; got <U3"),
        ([[0.0, 1.0], [1.0]], "`labels` row 0: lists that differ in length must hold label indices; got float64"),
        (np.array(["a", 1], dtype=object), r"`labels` must hold numbers, in rows of one length; got objects \(str\)"),
        (pandas.Series(["a", "b"]), "`labels` must hold numbers"),
        ([{"a": 1}, {"a": 2}], r"`labels` must hold numbers, in rows of one length; got objects \(dict\)"),
    ],
)
def test_labels_that_cannot_be_read_are_one_sentence(labels, message):
    with pytest.raises(TypeError, match=message):
        RecallControl(0.2).fit(np.ones((2, 4)), labels, from_logits=False)


def test_lists_may_be_empty_and_as_long_as_there_are_labels():
    assert read_target([[], []], 3).shape == (2, 0)
    assert read_target([], 3).shape == (0,)
    assert read_target([[0, 1, 2], [1]], 3).tolist() == [[0, 1, 2, -1], [1, -1, -1, -1]]
    assert targets.from_indices([[0, 1], [1, 0]], 2).tolist() == [[0, 1, -1], [1, 0, -1]]


def test_sets_become_lists_tables_of_arrow_and_tables_of_pandas():
    scores = torch.tensor([[0.25, 0.75, 0.5], [0.0, 0.0, 0.0]], dtype=torch.bfloat16)
    for names, labels in ((None, [1, 2]), (["a", "b", "c"], ["b", "c"])):
        sets = PredictionSets.from_mask(scores > 0.3, scores, names=names)
        assert isinstance(sets, LabelSets)
        assert sets.to_list() == [labels, []]
        table = sets.to_arrow()
        assert table.to_pydict() == {"labels": [labels, []], "scores": [[0.75, 0.5], []]}
        assert polars.from_arrow(table)["labels"].to_list() == [labels, []]
        frame = sets.to_pandas()
        assert frame["labels"].tolist() == [labels, []]
        assert frame["scores"].tolist() == [[0.75, 0.5], []]
        assert len(frame.explode(["labels", "scores"])) == 3
    none = PredictionSets.from_mask(torch.zeros(0, 2, dtype=torch.bool))
    assert (none.to_list(), len(none.to_arrow()), len(none.to_pandas())) == ([], 0, 0)


def test_masks_of_other_libraries_are_sets():
    mask = torch.tensor([[True, True, False], [False, True, False]])
    for make in TABLES.values():
        size, coverage = SetSize(3), SetCoverage()
        size.update(make(mask))
        coverage.update(make(mask), [0, 2])
        assert (float(size.compute()), float(coverage.compute())) == (1.5, 0.5)


@pytest.mark.slow
def test_no_library_is_imported_for_the_user():
    lines = (
        "import sys",
        "from shortlist.sets import AverageError",
        "rule = AverageError(0.5).fit([[0.9, 0.1], [0.2, 0.8]], [0, 1], from_logits=False)",
        "rule.predict([[0.5, 0.5]]).to_list()",
        "assert not {'pandas', 'polars', 'pyarrow', 'scipy'} & set(sys.modules)",
    )
    run_python("-c", "\n".join(lines))

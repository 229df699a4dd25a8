"""Labels mean the same in all four forms, and errors name the row."""

import math
import re
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from shortlist import functional
from shortlist.targets import (
    TargetForm,
    check_target,
    count_positives,
    from_indices,
    from_multi_hot,
    sum_over_positives,
    target_form,
    to_class_indices,
    to_index_lists,
    to_multi_hot,
    to_pairs,
    to_sparse,
    unknown_mask,
)

examples = settings(derandomize=True, deadline=None, max_examples=60)

Rows = list[dict[int, float]]  # per row, the value of each label that is not absent


def make_multi_hot(rows: Rows, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    hot = torch.zeros(len(rows), n, dtype=dtype)
    for i, row in enumerate(rows):
        for label, value in row.items():
            hot[i, label] = value
    return hot


def make_lists(rows: Rows, n: int, *, descending: bool = False) -> Tensor:
    m = max((len(row) for row in rows), default=0)
    m += m == n > 0  # Tables of n columns could be multi-hots.
    padded = [sorted(row, reverse=descending) + [-1] * (m - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), m)


def make_coo(rows: Rows, n: int) -> Tensor:
    """Uncoalesced, and from the last entry to the first."""
    entries = [(i, label, value) for i, row in enumerate(rows) for label, value in row.items()][::-1]
    indices = torch.tensor([entry[:2] for entry in entries], dtype=torch.int64).reshape(-1, 2).T
    return raw_coo(indices, [entry[2] for entry in entries], (len(rows), n))


def raw_coo(indices: Tensor | list[list[int]], values: list[float], size: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(
        torch.as_tensor(indices), torch.tensor(values, dtype=torch.float32), size, check_invariants=False
    )


def raw_csr(pointers: list[int], columns: list[int], values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(
            torch.tensor(pointers), torch.tensor(columns), values, size, check_invariants=False
        )


def all_forms(rows: Rows, n: int) -> list[Tensor]:
    """Every form that can say what ``rows`` says."""
    hot, coo = make_multi_hot(rows, n), make_coo(rows, n)
    csr = to_sparse(hot, n, layout=torch.sparse_csr)
    forms = [hot, hot.double(), hot.half(), coo, coo.coalesce(), csr]
    if not (hot < 0).any():
        forms += [hot.bool(), to_sparse(hot, n, dtype=torch.bool)]
        forms += [make_lists(rows, n), make_lists(rows, n, descending=True)]
        if all(len(row) == 1 for row in rows):
            forms.append(torch.tensor([next(iter(row)) for row in rows], dtype=torch.int64))
    return forms


@st.composite
def labelled_rows(draw: st.DrawFn, unknown: bool = False, exactly_one: bool = False) -> tuple[Rows, int]:
    n = draw(st.integers(int(exactly_one), 6))
    value = st.sampled_from([1.0, -1.0]) if unknown else st.just(1.0)
    sizes = {"min_size": 1, "max_size": 1} if exactly_one else {"max_size": n}
    row = st.dictionaries(st.integers(0, n - 1), value, **sizes) if n else st.just({})
    return draw(st.lists(row, max_size=5)), n


def same(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left, right)


class TestTheFormFollowsFromTheType:
    @pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_bool_and_floating_tensors_are_multi_hots(self, dtype):
        assert target_form(torch.zeros(2, 3, dtype=dtype), 3) is TargetForm.MULTI_HOT
        assert target_form(torch.zeros(2, 3, dtype=dtype).to_sparse(), 3) is TargetForm.SPARSE

    def test_a_csr_tensor_is_sparse(self):
        csr = raw_csr([0, 1], [2], torch.ones(1), (1, 3))
        assert target_form(csr, 3) is TargetForm.SPARSE

    @pytest.mark.parametrize("row_shape", [(), (4,), (2, 3), (2, 0, 3)])
    def test_row_dims_tells_indices_from_lists(self, row_shape):
        row_dims = len(row_shape)
        indices = torch.zeros(row_shape, dtype=torch.int64)
        assert target_form(indices, 3, row_dims=row_dims) is TargetForm.CLASS_INDICES
        assert target_form(indices[..., None], 3, row_dims=row_dims) is TargetForm.INDEX_LISTS
        assert target_form(torch.zeros(*row_shape, 3), 3, row_dims=row_dims) is TargetForm.MULTI_HOT

    @pytest.mark.parametrize("n", [1, 2, 6])
    @pytest.mark.parametrize("row_shape", [(), (4,), (2, 3), (0,)])
    def test_integers_as_wide_as_the_labels_are_refused_until_they_say_what_they_are(self, row_shape, n):
        table = torch.ones(*row_shape, n, dtype=torch.int64)
        wide = r"an int64 `y` must not be as wide as the labels, .* `targets.from_multi_hot` or `targets.from_indices`"
        with pytest.raises(ValueError, match=rf"^{wide}; got shape {re.escape(str((*row_shape, n)))} for {n} labels"):
            target_form(table, n, row_dims=len(row_shape), name="y")
        for dtype in (torch.bool, torch.float32):
            hot = from_multi_hot(table, dtype=dtype)
            assert same(hot, table.to(dtype))
            assert target_form(hot, n, row_dims=len(row_shape)) is TargetForm.MULTI_HOT
        lists = from_indices(table, n, row_dims=len(row_shape))
        assert same(lists, torch.cat([table, -torch.ones_like(table[..., :1])], -1))
        assert target_form(lists, n, row_dims=len(row_shape)) is TargetForm.INDEX_LISTS

    def test_other_integers_stay_as_they_are(self):
        for indices in (torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [2, -1]]), torch.zeros(2, 5).long()):
            assert same(from_indices(indices.int(), 3), indices)
        assert target_form(torch.zeros(2, 0).long(), 0) is TargetForm.INDEX_LISTS  # both readings say the same

    def test_what_is_no_multi_hot_or_no_index_is_refused(self):
        with pytest.raises(ValueError, match=r"`target` must be 0, 1 or, for unknown, negative; got 2"):
            from_multi_hot(torch.tensor([[0, 2]]))
        with pytest.raises(ValueError, match=r"`target` must be 0 or 1 to become bool; got -1"):
            from_multi_hot(torch.tensor([[0, -1]]), dtype=torch.bool)
        with pytest.raises(TypeError, match=r"`dtype` must be bool or floating; got torch.int64"):
            from_multi_hot(torch.eye(2), dtype=torch.int64)
        with pytest.raises(TypeError, match=r"`indices` must be integers; got torch.float32"):
            from_indices(torch.eye(2), 2)
        with pytest.raises(ValueError, match=r"an int64 `indices` must have"):
            from_indices(torch.zeros(2, 2, 2).long(), 2)

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.complex64], ids=str)
    def test_other_dtypes_are_refused_with_what_to_use(self, dtype):
        rule = f"int64 for indices, and bool or floating for multi-hots, sparse ones included; got {dtype}"
        for target in (torch.zeros(2, dtype=dtype), torch.zeros(2, 3, dtype=dtype).to_sparse()):
            with pytest.raises(TypeError, match=rule):
                target_form(target, 3)

    @pytest.mark.filterwarnings("ignore:Sparse CSC tensor support is in beta state")
    @pytest.mark.parametrize(
        ("make", "error", "text"),
        [
            (lambda: torch.zeros(2, 3).long().to_sparse(), TypeError, "sparse ones included; got torch.int64"),
            (lambda: torch.zeros(2, 3).to_sparse_csc(), TypeError, "sparse CSR; got layout torch.sparse_csc"),
            (lambda: [0, 1], TypeError, "`y` must be a torch.Tensor; got list"),
            (lambda: torch.tensor(0), ValueError, r"1 \(class indices\) or 2 \(index lists\) dimensions; got shape"),
            (lambda: torch.zeros(2, 3, 4).long(), ValueError, r"an int64 `y` must have .*; got shape \(2, 3, 4\)"),
            (lambda: torch.zeros(3), ValueError, r"multi-hot `y` must have 2 .*, the last of size 3; got shape \(3,\)"),
            (lambda: torch.zeros(2, 4).to_sparse(), ValueError, r"the last of size 3; got shape \(2, 4\)"),
            (lambda: torch.zeros(2, 3).to_sparse(1), ValueError, "1 row dimension and 0 dense ones; got 1 and 1"),
        ],
    )
    def test_what_has_no_form_is_refused_by_the_name_of_the_argument(self, make, error, text):
        with pytest.raises(error, match=text):
            target_form(make(), 3, name="y")

    def test_sizes_and_rows_out_of_range_are_refused(self):
        with pytest.raises(ValueError, match="1 row dimension and 0 dense ones; got 2 and 0"):
            target_form(torch.zeros(2, 2, 3).to_sparse(), 3, row_dims=2)
        with pytest.raises(ValueError, match="`num_labels` must be at least 0; got -1"):
            target_form(torch.zeros(2, 3), -1)
        with pytest.raises(ValueError, match="`row_dims` must be at least 0; got -1"):
            target_form(torch.zeros(2, 3), 3, row_dims=-1)


class TestConversions:
    @examples
    @given(labelled_rows())
    def test_every_form_becomes_every_form_that_holds_many_labels(self, case):
        rows, n = case
        hot, lists = make_multi_hot(rows, n), make_lists(rows, n)
        for target in all_forms(rows, n):
            assert same(to_multi_hot(target, n), hot)
            assert same(to_multi_hot(target, n, dtype=torch.bool), hot.bool())
            assert same(to_index_lists(target, n), lists)
            assert same(to_sparse(target, n).to_dense(), hot)
            assert same(to_sparse(target, n, layout=torch.sparse_csr).to_dense(), hot)

    @examples
    @given(labelled_rows(exactly_one=True))
    def test_every_form_with_one_label_per_row_becomes_class_indices(self, case):
        rows, n = case
        indices = torch.tensor([next(iter(row)) for row in rows], dtype=torch.int64)
        for target in all_forms(rows, n):
            assert same(to_class_indices(target, n), indices)

    @examples
    @given(labelled_rows(unknown=True))
    def test_unknown_labels_survive_between_multi_hots(self, case):
        rows, n = case
        hot = make_multi_hot(rows, n)
        for target in all_forms(rows, n):
            assert same(to_multi_hot(target, n, dtype=torch.float64), hot.double())
            assert same(to_sparse(target, n, dtype=torch.float16).to_dense(), hot.half())

    def test_any_negative_value_is_unknown_and_becomes_minus_one(self):
        target = torch.tensor([[-0.5, 1.0, -torch.inf, 0.0]])
        assert to_multi_hot(target, 4).tolist() == [[-1.0, 1.0, -1.0, 0.0]]
        assert to_sparse(target, 4).values().tolist() == [-1.0, 1.0, -1.0]

    def test_a_stored_zero_is_absent(self):
        target = raw_coo([[0, 0], [0, 2]], [0.0, 1.0], (1, 3))
        assert to_class_indices(target, 3).tolist() == [2]
        assert to_sparse(target, 3)._nnz() == 1

    def test_lists_come_out_ascending_and_padded(self):
        target = torch.tensor([[4, 0, 2], [-1, -1, -1], [3, -1, -1]])
        assert to_index_lists(target, 5).tolist() == [[0, 2, 4], [-1, -1, -1], [3, -1, -1]]

    def test_sparse_results_have_the_layout_asked_for(self):
        coo = to_sparse(torch.tensor([[2, 0]]), 3)
        csr = to_sparse(torch.tensor([[2, 0]]), 3, layout=torch.sparse_csr)
        assert coo.layout == torch.sparse_coo
        assert coo.is_coalesced()
        assert csr.layout == torch.sparse_csr
        assert csr.col_indices().tolist() == [0, 2]

    def test_sparse_results_come_without_a_warning(self):
        always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            for layout in (torch.sparse_coo, torch.sparse_csr):
                to_sparse(torch.tensor([2, 0]), 3, layout=layout)
        finally:
            torch.set_warn_always(always)

    def test_csr_with_int32_indices_is_read(self):
        csr = to_sparse(torch.tensor([2, 0]), 3, layout=torch.sparse_csr)
        narrow = torch.sparse_csr_tensor(
            csr.crow_indices().int(), csr.col_indices().int(), csr.values(), csr.shape, check_invariants=False
        )
        assert same(to_class_indices(narrow, 3), torch.tensor([2, 0]))

    def test_row_dimensions_are_kept(self):
        lists = torch.tensor([[[0, 2], [1, -1]], [[-1, -1], [2, -1]], [[0, -1], [0, 1]]])
        hot = to_multi_hot(lists, 3, row_dims=2)
        assert hot.shape == (3, 2, 3)
        assert same(to_index_lists(hot, 3, row_dims=2), lists)
        indices = torch.tensor([[0, 1, 2], [2, 1, 0]])
        assert same(to_class_indices(to_multi_hot(indices, 3, row_dims=2), 3, row_dims=2), indices)

    def test_one_row_without_row_dimensions_converts(self):
        assert to_multi_hot(torch.tensor(1), 3, row_dims=0).tolist() == [0.0, 1.0, 0.0]
        assert to_index_lists(torch.tensor([1.0, 0.0, 1.0]), 3, row_dims=0).tolist() == [0, 2]
        assert to_class_indices(torch.tensor([2]), 3, row_dims=0).shape == ()

    @pytest.mark.parametrize(("rows", "n"), [(0, 0), (0, 3), (2, 0), (2, 3)])
    def test_no_rows_no_labels_and_no_positives_convert(self, rows, n):
        lists = torch.empty(rows, 0, dtype=torch.int64)
        padding = torch.full((rows, 2), -1)
        hot = torch.zeros(rows, n)
        sparse = [to_sparse(hot, n), to_sparse(lists, n, layout=torch.sparse_csr)]
        for target in [lists, padding, hot, hot.bool(), *sparse]:
            assert same(to_index_lists(target, n), lists)
            assert same(to_multi_hot(target, n), hot)
            assert to_sparse(target, n).shape == (rows, n)
            assert to_sparse(target, n)._nnz() == 0
            assert count_positives(target, n).tolist() == [0] * rows
            assert sum_over_positives(torch.ones(rows, n), target).tolist() == [0.0] * rows
        if rows == 0:
            assert to_class_indices(hot, n).shape == (0,)

    def test_a_trillion_labels_need_no_dense_table(self):
        n = 10**12
        lists = torch.tensor([[5, n - 1], [7, -1]])
        for layout in (torch.sparse_coo, torch.sparse_csr):
            sparse = to_sparse(lists, n, layout=layout)
            assert check_target(sparse, n) is TargetForm.SPARSE
            assert same(to_index_lists(sparse, n), lists)
            assert count_positives(sparse, n).tolist() == [2, 1]
        indices = torch.tensor([n - 1, 0])
        assert same(to_class_indices(to_sparse(indices, n), n), indices)

    def test_labels_near_the_largest_integer_are_sorted_without_overflow(self):
        n = 2**63 - 1
        assert to_index_lists(torch.tensor([[n - 1, 0], [3, n - 2]]), n).tolist() == [[0, n - 1], [3, n - 2]]

    def test_options_outside_their_range_are_refused(self):
        with pytest.raises(TypeError, match=r"`dtype` must be bool or floating; got torch.int64"):
            to_multi_hot(torch.tensor([0]), 3, dtype=torch.int64)
        with pytest.raises(TypeError, match=r"`dtype` must be bool or floating; got torch.int32"):
            to_sparse(torch.tensor([0]), 3, dtype=torch.int32)
        with pytest.raises(TypeError, match=r"`layout` must be torch.sparse_coo or torch.sparse_csr; got torch.str"):
            to_sparse(torch.tensor([0]), 3, layout=torch.strided)


OUTSIDE, TWICE = r"row 1: label 7 must lie in \[0, 3\)\.$", r"row 1: label 2 must not occur twice\.$"
BAD = {
    "past the last": (lambda: torch.tensor([0, 7]), OUTSIDE),
    "past the last in a list": (lambda: torch.tensor([[0], [7]]), OUTSIDE),
    "negative": (lambda: torch.tensor([0, -1]), r"row 1: label -1 must lie in \[0, 3\)"),
    "negative in a list": (lambda: torch.tensor([[0, -1], [0, -2]]), r"row 1: label -2 must lie in \[0, 3\)"),
    "after padding": (lambda: torch.tensor([[0, 1], [-1, 2]]), r"row 1: label 2 must not come after -1, which only"),
    "twice in a list": (lambda: torch.tensor([[0, 1], [2, 2]]), TWICE),
    "twice in COO": (lambda: raw_coo([[0, 1, 1], [0, 2, 2]], [1.0, 1.0, 0.0], (2, 3)), TWICE),
    "twice in CSR": (lambda: raw_csr([0, 1, 3], [0, 2, 2], torch.ones(3), (2, 3)), TWICE),
    "outside COO": (lambda: raw_coo([[0, 1], [2, 7]], [1.0, 1.0], (2, 3)), OUTSIDE),
    "outside CSR": (lambda: raw_csr([0, 1, 2], [2, 7], torch.ones(2), (2, 3)), OUTSIDE),
    "row outside COO": (lambda: raw_coo([[0, 5], [2, 0]], [1.0, 1.0], (2, 3)), r"row 5: the row must lie in \[0, 2\)"),
    **{
        f"row pointers {pointers}": (
            lambda pointers=pointers: raw_csr(pointers, [2, 0], torch.ones(2), (2, 3)),
            r"row pointers must rise from 0 to 2; got tensor\(\[",
        )
        for pointers in ([0, 2, 1], [0, 1, 5], [1, 1, 2], [0, 3, 2])
    },
}


class TestBadValuesAreNamedByRow:
    @pytest.mark.parametrize("case", BAD)
    def test_what_breaks_a_rule_is_refused(self, case):
        make, text = BAD[case]
        with pytest.raises(ValueError, match=f"^`label_sets` {text}"):
            check_target(make(), 3, name="label_sets")

    @pytest.mark.parametrize("value", [0.5, 2.0, torch.nan, torch.inf])
    def test_multi_hot_values_that_say_nothing(self, value):
        hot = torch.tensor([[0.0, 1.0, -1.0], [1.0, 0.0, value]])
        for target in (hot, hot.double(), hot.half(), hot.to_sparse()):
            with pytest.raises(ValueError, match=f"row 1: label 2 must have value 0, 1 or negative; got {value}"):
                check_target(target, 3)

    def test_several_row_dimensions_give_an_index_tuple(self):
        indices = torch.tensor([[0, 1, 2], [0, 9, 0]])
        with pytest.raises(ValueError, match=r"row \(1, 1\): label 9 must lie in \[0, 3\)"):
            check_target(indices, 3, row_dims=2)
        with pytest.raises(ValueError, match=r"row \(1, 2\): exactly one label must be positive; got 2"):
            to_class_indices(torch.tensor([[[0, -1]] * 3, [[0, -1], [1, -1], [0, 1]]]), 3, row_dims=2)

    @pytest.mark.parametrize(("row", "count"), [([0.0, 0.0, 0.0], 0), ([1.0, 0.0, 1.0], 2)])
    def test_class_indices_need_exactly_one_positive(self, row, count):
        hot = torch.tensor([[0.0, 1.0, 0.0], row])
        for target in (hot, hot.bool(), hot.to_sparse(), to_index_lists(hot, 3)):
            with pytest.raises(ValueError, match=f"row 1: exactly one label must be positive; got {count}"):
                to_class_indices(target, 3)

    def test_forms_that_cannot_say_unknown_refuse_it(self):
        hot = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, -2.0]])
        for target in (hot, hot.to_sparse()):
            rule = r"row 1: label 2 must not be unknown \(negative\) to become {}; got -2.0"
            with pytest.raises(ValueError, match=rule.format("class indices")):
                to_class_indices(target, 3)
            with pytest.raises(ValueError, match=rule.format("index lists")):
                to_index_lists(target, 3)
            with pytest.raises(ValueError, match=rule.format("bool")):
                to_multi_hot(target, 3, dtype=torch.bool)
            with pytest.raises(ValueError, match=rule.format("bool")):
                to_sparse(target, 3, dtype=torch.bool)

    def test_conversions_check_before_they_convert(self):
        for convert in (to_class_indices, to_index_lists, to_multi_hot, to_sparse):
            with pytest.raises(ValueError, match=r"^`target` row 0: label 3 must lie in"):
                convert(torch.tensor([3]), 3)
        for convert in (to_class_indices, to_index_lists, to_pairs):
            with pytest.raises(ValueError, match=r"^`labels` row 0: label 3 must lie in"):
                convert(torch.tensor([3]), 3, name="labels")

    @examples
    @given(labelled_rows(unknown=True))
    def test_good_values_pass(self, case):
        rows, n = case
        for target in all_forms(rows, n):
            assert check_target(target, n) is target_form(target, n)


class TestInsideLosses:
    @examples
    @given(labelled_rows(unknown=True))
    def test_all_forms_agree_with_a_loop_over_labels(self, case):
        rows, n = case
        values = torch.randn(len(rows), n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        positives = [[label for label in row if row[label] > 0] for row in rows]
        sums = [sum(float(values[i, label]) for label in labels) for i, labels in enumerate(positives)]
        for target in all_forms(rows, n):
            got = sum_over_positives(values, target)
            torch.testing.assert_close(got, torch.tensor(sums, dtype=torch.float64))
            counts = torch.tensor([len(labels) for labels in positives], dtype=torch.int64)
            assert same(count_positives(target, n), counts)
            mask = unknown_mask(target, n)
            if target.is_floating_point():
                assert same(mask, make_multi_hot(rows, n) < 0)
            else:
                assert mask is None

    def test_several_row_dimensions_keep_their_shape(self):
        lists = torch.tensor([[[0, 2], [1, -1], [-1, -1]]])
        values = torch.tensor([[[1.0, 2.0, 4.0]] * 3])
        for target in (lists, to_multi_hot(lists, 3, row_dims=2)):
            assert sum_over_positives(values, target).tolist() == [[5.0, 2.0, 0.0]]
            assert count_positives(target, 3, row_dims=2).tolist() == [[2, 1, 0]]
        assert sum_over_positives(values, torch.tensor([[0, 1, 2]])).tolist() == [[1.0, 2.0, 4.0]]

    @pytest.mark.parametrize("infinity", [torch.inf, -torch.inf, torch.nan])
    def test_values_that_are_not_positive_never_matter(self, infinity):
        hot = torch.tensor([[0.0, 1.0, -torch.inf]])
        lists = torch.tensor([[1, -1]])
        for target in (hot, lists, hot == 1, hot.to_sparse(), raw_coo([[0, 0], [0, 1]], [0.0, 1.0], (1, 3))):
            values = torch.tensor([[infinity, 3.0, infinity]], requires_grad=True)
            total = sum_over_positives(values, target)
            (gradient,) = torch.autograd.grad(total.sum(), values)
            assert total.tolist() == [3.0]
            assert gradient.tolist() == [[0.0, 1.0, 0.0]]

    def test_an_infinite_positive_stays_infinite(self):
        values = torch.tensor([[-torch.inf, 1.0]])
        for target in (
            torch.tensor([0]),
            torch.tensor([[0, 1, -1]]),
            torch.ones(1, 2),
            torch.ones(1, 2).to_sparse(),
        ):
            assert sum_over_positives(values, target).tolist() == [-torch.inf]

    @pytest.mark.parametrize("wrong", [2.0, 255.0, math.inf, math.nan])
    @pytest.mark.parametrize("form", [torch.Tensor.clone, torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
    def test_soft_targets_above_one_are_refused(self, wrong, form):
        target = form(torch.tensor([[0.0, 1.0, 0.5], [wrong, 0.0, -1.0]]))
        with pytest.raises(ValueError, match=rf"`target`: soft targets must lie in \[0, 1\].*; got {wrong:g}"):
            functional.bce(torch.zeros(2, 3), target)

    def test_soft_targets_weigh_and_count_as_one_each(self):
        soft = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.5, -1.0]])
        values = torch.tensor([[4.0, 8.0, torch.inf], [1.0, 2.0, -torch.inf]])
        for target in (soft, soft.to_sparse(), soft.double(), soft.half()):
            assert sum_over_positives(values, target).tolist() == [7.0, 1.0]
            assert count_positives(target, 3).tolist() == [2, 1]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_the_dtype_of_the_values_is_kept(self, dtype):
        for target in all_forms([{0: 1.0, 2: 1.0}], 3):
            assert sum_over_positives(torch.ones(1, 3, dtype=dtype), target).dtype == dtype

    def test_gradients_are_right_twice_over(self):
        rows = [{0: 1.0, 2: 1.0}, {1: 1.0}, {}]
        soft = torch.tensor([[0.2, 0.0, 0.8], [-1.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
        generator = torch.Generator().manual_seed(0)
        values = torch.randn(3, 3, dtype=torch.float64, generator=generator, requires_grad=True)
        for target in [*all_forms(rows, 3), soft, soft.to_sparse(), torch.tensor([2, 0, 0])]:

            def squares(x: Tensor, target: Tensor = target) -> Tensor:
                return sum_over_positives(x**2, target) ** 2

            assert gradcheck(squares, values)
            assert gradgradcheck(squares, values)

    @pytest.mark.parametrize(
        "target",
        [
            torch.tensor([2, 0]),
            torch.tensor([[2, 0], [1, -1]]),
            torch.tensor([[True, False, True], [False, True, False]]),
            torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.5, 0.0]]),
        ],
        ids=["class indices", "index lists", "bool", "floating"],
    )
    class TestUnderTransforms:
        @pytest.fixture
        def values(self) -> Tensor:
            return torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])

        def test_compile_takes_the_whole_graph(self, target, values):
            def loss(values: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
                if target_form(target, 3) is TargetForm.CLASS_INDICES:
                    values = 2 * values
                total = sum_over_positives(values, target)
                return total, count_positives(target, 3), unknown_mask(target, 3)

            torch.compiler.reset()
            compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(values, target), loss(values, target))

        def test_vmap_sees_single_rows(self, target, values):
            def one_row(values: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
                return sum_over_positives(values, target), count_positives(target, 3, row_dims=0)

            total, count = torch.func.vmap(one_row)(values, target)
            assert same(total, sum_over_positives(values, target))
            assert same(count, count_positives(target, 3))

    def test_no_form_reads_values_back_from_the_device(self):
        # Tensors on the meta device have no values: every read would raise.
        indices = torch.zeros(4, dtype=torch.int64, device="meta")
        stored = torch.zeros(4, device="meta")
        coo = torch.sparse_coo_tensor(torch.stack([indices, indices]), stored, (4, 3), check_invariants=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            csr = torch.sparse_csr_tensor(indices.new_zeros(5), indices, stored, (4, 3), check_invariants=False)
        hot = torch.zeros(4, 3, device="meta")
        for target in (indices, indices[:, None], hot, hot.bool(), coo, csr):
            results = [sum_over_positives(hot, target), count_positives(target, 3), unknown_mask(target, 3)]
            assert all(result is None or result.device.type == "meta" for result in results)

    def test_values_and_target_must_fit(self):
        with pytest.raises(TypeError, match=r"`values` must be floating; got torch.int64"):
            sum_over_positives(torch.ones(2, 3, dtype=torch.int64), torch.tensor([0, 1]))
        with pytest.raises(ValueError, match="`values` must have at least 1 dimension, the labels; got 0"):
            sum_over_positives(torch.tensor(1.0), torch.tensor(0))
        hot = torch.zeros(2, 3)
        for target in (torch.tensor([0, 1]), torch.tensor([[0], [1]]), hot, hot.to_sparse()):
            with pytest.raises(ValueError, match=r"the rows of `values`, \(4,\); got shape \(2,"):
                sum_over_positives(torch.zeros(4, 3), target)

"""Equivalent inputs get the same report."""

import numpy as np
import pytest
import torch
from torch import nn

from shortlist.audit import audit
from shortlist.nn import CosineHead
from shortlist.targets import to_index_lists, to_multi_hot, to_sparse
from tests.audit.layers import LAYERS, make_case, save_arrays
from tests.audit.reports import assert_same
from tests.reference_audit import is_argmaxable


def with_labels(order: np.ndarray, sets: list[list[int]]) -> list[list[int]]:
    """The sets after the rows were put into ``order``."""
    place = np.argsort(order)
    return [sorted(place[labels].tolist()) for labels in sets]


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_order_of_the_labels_does_not_matter(kind, mode):
    case = make_case(kind, 80, 7, biased=True, mode=mode, seed=5)
    order = np.random.default_rng(0).permutation(80)
    plain = audit(case.weight, case.label_sets, case.bias, mode=mode, jobs=1)
    moved = audit(case.weight[order], with_labels(order, case.label_sets), case.bias[order], mode=mode, jobs=1)
    np.testing.assert_array_equal(plain.verdicts, moved.verdicts)
    np.testing.assert_allclose(plain.radii, moved.radii, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_sets_and_repeated_sets_do_not_matter(seed):
    case = make_case("trained", 60, 6, biased=seed == 1, mode="sign", seed=seed)
    plain = audit(case.weight, case.label_sets, case.bias, jobs=1)
    order = np.random.default_rng(seed).integers(len(case.label_sets), size=30)
    mixed = audit(case.weight, [case.label_sets[i] for i in order], case.bias, jobs=1)
    assert len(mixed.verdicts) == 30
    np.testing.assert_array_equal(mixed.verdicts, plain.verdicts[order])
    np.testing.assert_allclose(mixed.radii, plain.radii[order], rtol=1e-9)


SCALES = {
    "powers of two": lambda rng: 2.0 ** rng.integers(-100, 101, 50),
    "any factors": lambda rng: 10.0 ** rng.uniform(-30, 30, 50),
    "squares beyond float64": lambda rng: 2.0 ** rng.integers(-600, 601, 50),
    "one tiny row": lambda rng: np.where(np.arange(50) == 7, 2.0**-1000, 1.0),
}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "trained"])
@pytest.mark.parametrize("scale", SCALES)
def test_rows_times_positive_numbers_have_the_same_verdict_and_radius(scale, kind, biased):
    case = make_case(kind, 50, 6, biased=biased, mode="sign", seed=8)
    factors = SCALES[scale](np.random.default_rng(1))
    bias = None if case.bias is None else case.bias * factors
    plain = audit(case.weight, case.label_sets, case.bias, jobs=1)
    scaled = audit(case.weight * factors[:, None], case.label_sets, bias, jobs=1)
    np.testing.assert_array_equal(plain.verdicts, scaled.verdicts)
    np.testing.assert_allclose(plain.radii, scaled.radii, rtol=1e-8)
    assert scaled.verify() == []


def test_another_basis_of_the_features_keeps_the_verdicts():
    case = make_case("long_tail", 70, 5, biased=False, mode="sign", seed=2)
    turn = np.random.default_rng(0).standard_normal((5, 5))
    plain = audit(case.weight, case.label_sets, jobs=1, radius=False)
    turned = audit(case.weight @ turn, case.label_sets, jobs=1, radius=False)
    np.testing.assert_array_equal(plain.verdicts, turned.verdicts)


def test_all_forms_of_label_sets_mean_the_same():
    case = make_case("gaussian", 20, 4, biased=False, mode="sign", seed=1)
    width = max(map(len, case.label_sets))
    lists = torch.tensor([labels + [-1] * (width - len(labels)) for labels in case.label_sets])
    hot = to_multi_hot(lists, 20)
    forms = [lists, to_index_lists(hot, 20), hot, hot.double(), hot.bool(), to_sparse(lists, 20)]
    forms += [to_sparse(lists, 20, layout=torch.sparse_csr), to_sparse(lists, 20, dtype=torch.bool)]
    forms.append([labels[::-1] for labels in case.label_sets])
    plain = audit(case.weight, case.label_sets, jobs=1)
    assert plain.label_sets[0].dtype == np.int64
    for form in forms:
        assert_same(plain, audit(case.weight, form, jobs=1))


def test_class_indices_are_sets_of_one():
    weight = np.random.default_rng(0).standard_normal((9, 3))
    by_class = audit(weight, torch.arange(9), jobs=1)
    assert_same(by_class, audit(weight, [[i] for i in range(9)], jobs=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["gaussian", "trained"])
def test_a_layer_of_low_precision_means_the_numbers_it_holds(kind, dtype):
    case = make_case(kind, 60, 5, biased=True, mode="sign", seed=3)
    weight, bias = torch.from_numpy(case.weight).to(dtype), torch.from_numpy(case.bias).to(dtype)
    low = audit(weight, case.label_sets, bias, jobs=1)
    assert_same(low, audit(weight.double(), case.label_sets, bias.double(), jobs=1))
    assert low.verify() == []


def test_a_linear_layer_is_audited_with_its_bias():
    torch.manual_seed(0)
    linear = nn.Linear(4, 25)
    case = make_case("gaussian", 25, 4, biased=True, mode="sign", seed=0)
    plain = audit(linear.weight, case.label_sets, linear.bias, jobs=1)
    assert_same(plain, audit(linear, case.label_sets, jobs=1))
    without = nn.Linear(4, 25, bias=False)
    no_bias = audit(without, case.label_sets, jobs=1)
    assert_same(audit(without.weight, case.label_sets, jobs=1), no_bias)
    zero = audit(without, case.label_sets, np.zeros(25), jobs=1)
    np.testing.assert_array_equal(no_bias.verdicts, zero.verdicts)
    np.testing.assert_allclose(no_bias.radii, zero.radii, rtol=1e-9)


def test_a_cosine_head_is_audited_as_it_computes():
    head = CosineHead(2, 4)
    head.load_state_dict({"weight": torch.tensor([[10.0, 0.0], [0.0, 10.0], [-10.0, -10.0], [1.0, 1.0]])})
    report = audit(head, [[3]], mode="top-k", jobs=1)
    assert report.verdicts.tolist() == ["argmaxable"]
    assert int(head(torch.from_numpy(report.centres[0, :2]).float()).argmax()) == 3


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_file_is_the_matrix_it_holds(tmp_path, suffix):
    case = make_case("gaussian", 30, 4, biased=False, mode="sign", seed=4)
    path = save_arrays(tmp_path / f"layer.{suffix}", other=np.zeros(3), head=case.weight)
    plain = audit(case.weight, case.label_sets, jobs=1)
    assert_same(plain, audit(path, case.label_sets, key="head", jobs=1))
    assert_same(plain, audit(str(path), case.label_sets, key="head", jobs=1))


def test_no_sets_at_all_give_an_empty_report():
    for none in ([], torch.zeros(0, dtype=torch.int64), torch.zeros(0, 6), torch.zeros(0, 3, dtype=torch.int64)):
        report = audit(np.eye(6), none, jobs=1)
        assert report.verdicts.shape == (0,)
        assert report.radii.shape == (0,)
        assert report.radius_bounds.shape == (0, 2)
        assert report.certificates == []
        assert report.verify() == []
        report.table()


@pytest.mark.parametrize("mode", ["sign", "top-k"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 4), (3, 8), (6, 6), (12, 1), (30, 2)])
def test_the_empty_set_the_full_set_and_narrow_layers_are_valid_questions(n, d, mode):
    weight = np.random.default_rng(n + d).standard_normal((n, d))
    sets = [[], list(range(n)), [0], list(range(n // 2))]
    report = audit(weight, sets, mode=mode, jobs=1)
    truth = [is_argmaxable(weight, labels, mode=mode) for labels in sets]
    assert report.verdicts.tolist() == ["argmaxable" if yes else "unargmaxable" for yes in truth]
    if d >= n or mode == "top-k":
        assert report.verdicts[:2].tolist() == ["argmaxable"] * 2
    assert report.verify() == []


def test_the_share_of_witnesses_that_survive_rounding_is_measured():
    # In bfloat16 the two rows become one, and no vector can tell them apart.
    weight = np.array([[1.0, 1.0], [1.0, 1.001]])
    report = audit(weight, [[0]], jobs=1)
    assert report.survives == {"float64": 1.0, "float32": 1.0, "bfloat16": 0.0}
    report = audit(weight, [[0], [0, 1], [], [1]], jobs=1)
    assert report.survives["bfloat16"] == 0.5
    assert audit(np.eye(3), [[0], []], jobs=1).survives == {"float64": 1.0, "float32": 1.0, "bfloat16": 1.0}

"""What holds for every projection, whatever the logits: invariances, order, limits and kinships."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.contracts import BY_NAME, EXACTLY_K, PER_LABEL, PROJECTIONS, WITH_K, Projection
from tests.functional.paths import every_path, on_each_path

# The path is chosen once for all examples.
quick = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VALUES = st.one_of(st.floats(-50, 50, width=32), st.integers(-3, 3).map(float), st.sampled_from([-1e3, 0.0, 1e3]))
ROWS = st.lists(VALUES, min_size=2, max_size=16)
SHARES = st.floats(0.02, 0.98)
SHIFT_INVARIANT = [projection for projection in PROJECTIONS if not projection.budget]

each_projection = pytest.mark.parametrize("projection", PROJECTIONS, ids=str)


def row_of(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(left: Tensor, right: Tensor, tolerance: float = 1e-9) -> bool:
    return torch.allclose(left, right, rtol=tolerance, atol=tolerance)


def k_of(share: float, row: Tensor) -> float:
    return share * row.shape[-1]


@pytest.mark.parametrize("projection", SHIFT_INVARIANT, ids=str)
@quick
@given(values=ROWS, share=SHARES, shift=st.sampled_from([-1e6, -3.5, 0.125, 40.0, 2.0**20]))
def test_a_constant_added_to_the_logits_changes_nothing(projection, values, share, shift):
    row = row_of(values)
    moved = projection(row + shift, k_of(share, row))
    assert close(moved + shift if projection.is_dual else moved, projection(row, k_of(share, row)))


@each_projection
@quick
@given(values=ROWS, share=SHARES, data=st.data())
def test_permuted_logits_give_permuted_answers(projection, values, share, data):
    row = row_of(values)
    order = torch.tensor(data.draw(st.permutations(range(len(values)))))
    result = projection(row, k_of(share, row))
    expected = result if projection.is_dual else result[order]
    assert close(projection(row[order], k_of(share, row)), expected)


@on_each_path("projection", PER_LABEL)
@quick
@given(values=ROWS, share=SHARES)
def test_the_order_of_the_logits_is_kept(projection, dtype, values, share):
    row = torch.tensor(values, dtype=dtype).sort(descending=True).values
    result = projection(row, k_of(share, row))
    assert (result[:-1] >= result[1:]).all()
    assert (result[:-1] == result[1:])[row[:-1] == row[1:]].all()


@each_projection
@quick
@given(table=st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=1, max_size=6), share=SHARES)
def test_rows_solved_together_are_solved_as_alone(projection, table, share):
    rows = torch.tensor(table)
    k = torch.linspace(share, 6 * share, len(table))
    together = projection(rows, k)
    for i, row in enumerate(rows):
        assert close(together[i], projection(row, k[i].item()), 1e-6)


@every_path
@each_projection
def test_a_batch_larger_than_one_block_is_solved_as_row_by_row(projection, fresh):
    logits = 3 * torch.randn(150, 5000, generator=fresh)
    logits[::50] *= 1e3
    together = projection(logits, 40)
    for i in (0, 1, 49, 50, 51, 75, 100, 149):
        assert close(together[i], projection(logits[i], 40), 1e-6)


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2, -3, -4])
@each_projection
def test_any_axis_may_hold_the_labels(projection, dim, fresh):
    logits = torch.randn(3, 4, 5, 2, generator=fresh, dtype=torch.float64)
    result = projection(logits, 1.5, dim=dim)
    expected = projection(logits.movedim(dim, -1).contiguous(), 1.5)
    assert close(result, expected if projection.is_dual else expected.movedim(-1, dim))


@pytest.mark.parametrize("projection", WITH_K, ids=str)
@quick
@given(values=ROWS, shares=st.tuples(SHARES, SHARES))
def test_more_k_takes_more_of_every_label(projection, values, shares):
    row = row_of(values)
    less, more = (projection(row, k_of(share, row)) for share in sorted(shares))
    assert (less <= more + 1e-12 * (1 + more.abs())).all()


@pytest.mark.parametrize("projection", EXACTLY_K, ids=str)
@quick
@given(order=st.permutations(range(8)), k=st.integers(1, 7), spacing=st.sampled_from([0.5, 1.0, 20.0]))
def test_a_vanishing_temperature_gives_the_hard_top_k(projection, order, k, spacing):
    row = spacing * row_of(order)
    k = projection.wanted(k)
    hard = torch.zeros_like(row).index_fill(0, row.topk(k).indices, 1.0)
    assert close(projection.probs(row, k, temperature=1e-3), hard, 1e-12)


@quick
@given(values=ROWS)
def test_constrained_softmax_of_one_label_is_softmax(values):
    row = row_of(values)
    assert close(BY_NAME["constrained_softmax"](row, 1), row.softmax(-1), 1e-12)


@quick
@given(values=ROWS)
def test_sparse_top_of_one_label_is_sparsemax(values):
    row = row_of(values)
    assert torch.equal(BY_NAME["sparse_top"](row, 1), BY_NAME["sparsemax"](row, 1))


@pytest.mark.parametrize("name", ["lml", "sparse_top"])
@quick
@given(values=ROWS, share=SHARES)
def test_taking_k_of_x_is_leaving_n_minus_k_of_minus_x(name, values, share):
    row, projection = row_of(values), BY_NAME[name]
    k = k_of(share, row)
    assert close(1 - projection(-row, len(values) - k), projection(row, k))


@quick
@given(values=ROWS, share=SHARES)
def test_log_lml_is_the_log_of_lml_and_the_dual_is_its_shift(values, share):
    row = row_of(values)
    k = k_of(share, row)
    probs = BY_NAME["lml"](row, k)
    assert close(BY_NAME["log_lml"](row, k).exp(), probs)
    assert close((row + BY_NAME["lml_dual"](row, k)).sigmoid(), probs)


@pytest.mark.parametrize(
    ("name", "unbound"), [("lml", torch.sigmoid), ("sparse_top", lambda x: x.clamp(0, 1))], ids=["lml", "sparse_top"]
)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
@quick
@given(values=ROWS, share=SHARES, offset=st.sampled_from([-5.0, -1.0, 0.0, 2.0]))
def test_budgets_bind_only_where_the_free_answer_spends_more(name, unbound, temperature, values, share, offset):
    row = row_of(values) + offset
    k = k_of(share, row)
    free = unbound(row / temperature)
    result = BY_NAME[f"{name}_budget"](row, k, temperature=temperature)
    assert result.sum() <= k + 1e-12 * max(1, k)
    slack = free.sum() <= k
    assert close(result, free if slack else BY_NAME[name](row, k, temperature=temperature), 1e-12)


@each_projection
@quick
@given(values=ROWS, share=SHARES, temperature=st.sampled_from([0.125, 0.5, 4.0]))
def test_a_temperature_is_a_division_of_the_logits(projection: Projection, values, share, temperature):
    row = row_of(values)
    k = k_of(share, row)
    result = projection(row, k, temperature=temperature)
    divided = projection(row / temperature, k)
    assert close(result, temperature * divided if projection.is_dual else divided)


@each_projection
def test_absent_labels_change_nothing_for_the_others(projection, fresh):
    logits = torch.randn(4, 6, generator=fresh, dtype=torch.float64)
    padded = torch.full((4, 9), -torch.inf, dtype=torch.float64)
    padded[:, [0, 2, 3, 5, 7, 8]] = logits
    result = projection(padded, 2.5)
    kept = result if projection.is_dual else result[:, [0, 2, 3, 5, 7, 8]]
    assert close(kept, projection(logits, 2.5), 1e-12)

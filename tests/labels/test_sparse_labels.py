"""Index and sparse labels are never turned into a rows x labels mask, and mean the same as one."""

import math
import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from shortlist import functional as F
from shortlist.data.target_rows import csr
from shortlist.metrics import SetCoverage, SizeStratifiedCoverage
from shortlist.sets import AverageK, tradeoff
from shortlist.targets import count_known, count_positives, fill_unknown, sum_over_positives, to_index_lists, to_sparse
from tests.contracts import POTENTIALS
from tests.contracts_losses import LOSSES, Loss
from tests.contracts_metrics import METRICS, MetricCase
from tests.contracts_metrics import N as FEW_LABELS
from tests.labels.label_taint import LABELS, SCORES, DenseLabelsError, PeakMemory, only_few_labels
from tests.sets.rules import ON_A_TAXONOMY, RULES, Rule

ROWS, N = 8, 120
SPARSE = ("sparse COO", "sparse CSR")
FORMS = ("class indices", "index lists", *SPARSE)
UPSTREAM = torch.linspace(0.5, 1.5, ROWS * N).double()
"""Upstream gradients that count as scores, so that no gradient in the logits is made of labels alone."""

SEVERAL = [loss for loss in LOSSES if not loss.one_class]
UNREAD = ("noised_topk", "smooth_topk_svm")
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_form = pytest.mark.parametrize("form", FORMS)
each_form_read_or_not = pytest.mark.parametrize(
    ("form", "reading"),
    # Without reading values, both sparse layouts take the same path.
    [(form, "read") for form in FORMS] + [(form, "not read") for form in FORMS if form != "sparse COO"],
    indirect=["reading"],
)


@pytest.fixture(params=["read", "not read"])
def reading(request, monkeypatch):
    """Whether values may be read; if not, everything runs as on an accelerator."""
    if request.param == "read":
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(("shortlist.functional", "shortlist.labels", "shortlist.tensors")) and hasattr(
            module, "may_look"
        ):
            monkeypatch.setattr(module, "may_look", lambda x: False)


def multi_hot(loss: Loss, form: str) -> Tensor:
    """Labels that the loss takes in this form, with empty rows and unknown labels if the form has them."""
    generator = torch.Generator().manual_seed(7)
    most = 1 if loss.one_class or form == "class indices" else 3
    sizes = torch.arange(ROWS).unsqueeze(-1) % (most + 1)
    ranks = torch.rand(ROWS, N, generator=generator).argsort(-1).argsort(-1)
    hot = (ranks < (1 if form == "class indices" else sizes)).double()
    unknown = (ranks >= N - 2) if form in SPARSE else torch.zeros_like(ranks, dtype=torch.bool)
    return hot.masked_fill(unknown, -1)


def labels_in(form: str, hot: Tensor) -> Tensor:
    """The multi-hot in another form."""
    if form == "class indices":
        return hot.argmax(-1)
    if form == "index lists":
        return to_index_lists(hot, hot.shape[-1])
    layout = torch.sparse_coo if form == "sparse COO" else torch.sparse_csr
    return to_sparse(hot, hot.shape[-1], layout=layout)


def scores(seed: int = 0, rows: int = ROWS, n: int = N) -> Tensor:
    return 2 * torch.randn(rows, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def derivatives(loss: Loss, logits: Tensor, target: Tensor, **options) -> list[Tensor]:
    """The loss, its gradient, and the gradient of that."""
    value = loss(logits, target, 3, **options)
    slope = torch.autograd.grad(value, logits, UPSTREAM[: value.numel()].view(value.shape), create_graph=True)[0]
    second = torch.autograd.grad(slope.square().sum(), logits, allow_unused=True)[0] if slope.requires_grad else None
    return [value.detach(), slope.detach(), torch.zeros(ROWS, N).double() if second is None else second]


@each_form_read_or_not
@each_loss
def test_no_loss_makes_a_mask_of_few_labels(loss, form, reading):
    hot, logits = multi_hot(loss, form), scores().requires_grad_()
    target, weight, second, noise = labels_in(form, hot), torch.linspace(0.5, 2, N).double(), scores(1), scores(2)
    more = {"noise": noise.expand(3, ROWS, N)} if loss.takes_noise else {}
    with only_few_labels(ROWS * N) as taint:
        taint.mark(LABELS, target)
        taint.mark(SCORES, logits, weight, second, noise, UPSTREAM)
        for options in ({"reduction": "none", "weight": weight}, {"reduction": "mean"}):
            derivatives(loss, logits, target, partner=second, **options, **more)
        assert taint.seen


@pytest.mark.parametrize("form", ["index lists", *SPARSE])
@pytest.mark.parametrize("case", POTENTIALS, ids=str)
def test_no_potential_makes_a_mask_of_few_labels(case, form):
    hot, logits = multi_hot(SEVERAL[0], form), scores().requires_grad_()
    target = labels_in(form, hot)
    with only_few_labels(ROWS * N) as taint:
        taint.mark(LABELS, target)
        taint.mark(SCORES, logits, UPSTREAM)
        F.fenchel_young_loss(logits, target, case.potential(2)).backward(UPSTREAM[:ROWS])
        sum_over_positives(logits, target), count_positives(target, N), count_known(target, N)
        assert taint.seen


@each_form
@pytest.mark.parametrize("case", [case for case in METRICS if case.takes_target and not case.on_a_taxonomy], ids=str)
def test_no_metric_makes_a_mask_of_few_labels(case: MetricCase, form):
    rows = 12
    hot = torch.nn.functional.one_hot(torch.arange(rows) % FEW_LABELS, FEW_LABELS).double()
    if form != "class indices":
        hot[::7] = 0
    target, values = labels_in(form, hot), scores(0, rows, FEW_LABELS).round()
    if form == "index lists":
        target = torch.cat([target, torch.full_like(target, -1)], -1)
    metric, arguments = case.metric(), case.arguments(values, target)
    with only_few_labels(rows * FEW_LABELS) as taint:
        taint.mark(LABELS, target)
        taint.mark(SCORES, values, arguments[0])
        metric.update(*arguments)
        metric.compute()
        if case.function is not None:
            case.function(values, target)
        assert taint.seen


FOR_ANY_NUMBER = [rule for rule in RULES if rule.wants != "none" and rule.name not in ON_A_TAXONOMY]
# A risk of hits alone has a table of rows and candidate thresholds, which does not grow with the labels.
FOR_ANY_NUMBER = [rule for rule in FOR_ANY_NUMBER if rule.name != "two risks and the best F1"]


@each_form
@pytest.mark.parametrize("rule", FOR_ANY_NUMBER, ids=str)
def test_no_set_rule_or_measure_of_sets_makes_a_mask_of_few_labels(rule: Rule, form):
    rows, n = 40, 50
    classes = torch.nn.functional.one_hot(torch.arange(rows) * 7 % n, n).double()
    hot = classes.clone()
    if form != "class indices" and rule.wants == "sets":
        hot[3, : n if form in SPARSE else 3] = 1  # lists as wide as this row would be a mask
    target, logits, one_each = labels_in(form, hot), scores(0, rows, n), labels_in(form, classes)
    sets = AverageK(3).fit(logits, from_logits=True).predict(logits)
    with only_few_labels(rows * n) as taint:
        taint.mark(LABELS, target, one_each)
        taint.mark(SCORES, logits, sets.labels, sets.indptr, sets.scores)
        rule.make().fit(logits, target, from_logits=True)
        tradeoff(logits, target, from_logits=True)
        for metric in (SetCoverage(), SizeStratifiedCoverage()):
            metric.update(sets, one_each)
        sets.contains(target), sets.count_hits(target)
        assert taint.seen


DENSIFYING = {
    "scatter into zeros": lambda x, t: torch.zeros_like(x).scatter(-1, t, 1.0),
    "scatter in place": lambda x, t: x.new_zeros(x.shape).scatter_(-1, t, torch.ones_like(t).double()),
    "index into zeros": lambda x, t: torch.zeros(x.shape, dtype=torch.bool).index_put_(
        (torch.arange(len(x)), t[:, 0]), torch.tensor(True)
    ),
    "write to a view": lambda x, t: torch.zeros(x.numel()).view(x.shape)[1:].scatter_(-1, t[1:], 1.0),
    "one-hot": lambda x, t: torch.nn.functional.one_hot(t[:, 0], x.shape[-1]),
    "comparison": lambda x, t: t[:, :1] == torch.arange(x.shape[-1]),
    "sparse to dense": lambda x, t: to_sparse(t, x.shape[-1]).to_dense(),
    "counts": lambda x, t: torch.bincount(t[:, 0] + x.shape[-1] * torch.arange(len(x)), minlength=x.numel()),
    "zeros of numpy": lambda x, t: np.zeros(x.shape).__setitem__((np.arange(len(x)), t[:, 0].numpy()), 1),
    "counts of numpy": lambda x, t: np.bincount(t[:, 0].numpy(), minlength=x.numel()),
    "comparison of numpy": lambda x, t: t[:, :1].numpy() == np.arange(x.shape[-1]),
    "rows of the unit matrix": lambda x, t: torch.eye(x.shape[-1])[t[:, 0]],
}


@pytest.mark.parametrize("way", DENSIFYING)
def test_a_function_that_makes_a_mask_is_caught(way):
    logits, target = scores(), torch.arange(ROWS).unsqueeze(-1) * 3
    with only_few_labels(ROWS * N) as taint:
        taint.mark(LABELS, target)
        taint.mark(SCORES, logits)
        logits.scatter(-1, target, -math.inf).softmax(-1)  # of scores and labels both
        torch.from_numpy(np.argsort(logits.numpy(), -1)) * 2
        with pytest.raises(DenseLabelsError, match="of labels alone"):
            DENSIFYING[way](logits, target)


@each_form_read_or_not
@each_loss
def test_few_labels_mean_what_a_mask_of_them_means(loss, form, reading):
    """In value and two derivatives."""
    hot, logits, weight = multi_hot(loss, form), scores(), torch.linspace(0.5, 2, N).double()
    target = labels_in(form, hot)
    if form in SPARSE:
        logits = logits.masked_fill(hot < 0, math.nan)
    soft = hot.clone().requires_grad_()  # is read as a mask
    for options in ({"reduction": "none"}, {"reduction": "mean", "weight": weight}):
        results = [derivatives(loss, logits.clone().requires_grad_(), t, **options) for t in (soft, target)]
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected.detach(), rtol=1e-9, atol=1e-11)


LISTS = torch.tensor(
    [[5, 2, 7], [9, -1, -1], [-1, -1, -1], [0, -1, -1], [3, 1, 2], [7, 4, 6], [1, 0, -1], [N - 1, 0, 4]]
)


def stored(lists: Tensor) -> Tensor:
    """Index lists as a sparse tensor in reverse order, not coalesced."""
    rows, slots = (lists >= 0).nonzero(as_tuple=True)
    at = torch.stack([rows, lists[rows, slots]]).flip(-1)
    return torch.sparse_coo_tensor(at, torch.ones(len(rows)), (len(lists), N), check_invariants=False)


@pytest.mark.parametrize("loss", SEVERAL, ids=str)
def test_labels_out_of_order_or_stored_as_absent_mean_what_a_mask_means(loss, reading):
    logits, hot = scores(), stored(LISTS).to_dense().double()
    zeros = torch.sparse_coo_tensor(
        torch.cat([hot.nonzero().T, torch.tensor([[2, 2], [0, 6]])], 1),
        torch.cat([torch.ones(int(hot.sum())), torch.zeros(2)]),
        (ROWS, N),
        is_coalesced=True,
        check_invariants=False,
    )
    expected = derivatives(loss, logits.clone().requires_grad_(), hot, reduction="none")
    for target in (LISTS, stored(LISTS), zeros):
        got = derivatives(loss, logits.clone().requires_grad_(), target, reduction="none")
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", SEVERAL, ids=str)
def test_a_label_named_twice_or_after_the_padding_is_refused_by_every_loss(loss):
    logits, twice, late = scores(), LISTS.clone(), LISTS.clone()
    twice[4], late[6] = torch.tensor([3, 1, 3]), torch.tensor([1, -1, 0])
    for target in (twice, stored(twice)):
        with pytest.raises(ValueError, match=r"`target` row 4: label 3 must not occur twice\."):
            loss(logits, target, 3)
    with pytest.raises(ValueError, match=r"`target` row 6: label 0 must not come after -1, which only pads\."):
        loss(logits, late, 3)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("loss", SEVERAL, ids=str)
def test_row_pointers_that_lead_nowhere_are_refused_before_they_are_followed(loss):
    labels, ones = torch.tensor([2, 0, 1]), torch.ones(3)
    target = torch.sparse_csr_tensor(torch.tensor([0, 400, 3]), labels, ones, (2, N), check_invariants=False)
    with pytest.raises(ValueError, match="`target` row pointers must rise from 0 to 3; got"):
        loss(torch.zeros(2, N), target, 3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch scripts some forward derivatives
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.couples_rows], ids=str)
def test_padded_lists_map_and_differentiate_forwards(loss):
    hot, logits = multi_hot(loss, "index lists"), scores()
    target = labels_in("index lists", hot)

    def run(x: Tensor, labels: Tensor) -> Tensor:
        return loss(x, labels, 3, reduction="none")

    expected = run(logits, target)
    torch.testing.assert_close(vmap(run)(logits, target), expected, rtol=1e-9, atol=1e-11)
    slopes = vmap(torch.func.grad(lambda x, labels: run(x, labels).sum()))(logits, target)
    rows = logits.clone().requires_grad_()
    torch.testing.assert_close(slopes, torch.autograd.grad(run(rows, target).sum(), rows)[0], rtol=1e-9, atol=1e-11)
    direction = scores(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shortlist.labels.reading.is_plain", lambda x: False)  # keeps the padding
        moved = torch.func.jvp(lambda x: run(x, target), (logits,), (direction,))[1]
    by_row = (slopes * direction).sum(-1)
    torch.testing.assert_close(moved.sum(-1) if loss.entrywise else moved, by_row, rtol=1e-9, atol=1e-11)


@each_form
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if str(loss) not in UNREAD], ids=str)
def test_nothing_is_read_where_values_cannot_be(loss, form):
    """But for the noised and the symmetric order statistics, which have no form for tensors without values."""
    target = labels_in(form, multi_hot(loss, form))
    logits = torch.empty(ROWS, N, device="meta", requires_grad=True)
    options = {"reduction": "none"}
    if form == "sparse CSR":
        parts = (part.to("meta") for part in (target.crow_indices(), target.col_indices(), target.values()))
        target = csr(*parts, N)
    elif form == "sparse COO":
        stored = target._indices().to("meta"), target._values().to("meta")
        target = torch.sparse_coo_tensor(*stored, (ROWS, N), is_coalesced=True, check_invariants=False)
    else:
        target = target.to("meta")
    value = loss(logits, target, 3, partner=torch.empty(ROWS, N, device="meta"), **options)
    assert torch.autograd.grad(value.sum(), logits)[0].shape == (ROWS, N)


def test_unknown_labels_of_a_sparse_target_are_filled_without_a_mask():
    hot, values = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, -2.0]]), scores(0, 2, 3)
    values[0, 1] = math.nan
    for target in (hot, hot.to_sparse(), hot.to_sparse_csr()):
        x = values.clone().requires_grad_()
        filled = fill_unknown(x, target, -5.0)
        assert torch.equal(filled, values.masked_fill(hot < 0, -5.0))
        assert torch.equal(torch.autograd.grad(filled.sum(), x)[0], (hot >= 0).double())
    assert count_known(hot.to_sparse(), 3).tolist() == count_known(hot, 3).tolist() == [2, 2]
    assert count_known(torch.tensor([[0, 1], [2, -1]]), 3).tolist() == [3, 3]


@pytest.mark.parametrize("form", SPARSE)
def test_a_sparse_label_outside_is_refused_and_no_neighbour_takes_its_place(form):
    at, values = torch.tensor([[0, 1], [1, 3]]), torch.ones(2)
    target = torch.sparse_coo_tensor(at, values, (2, 3), is_coalesced=True, check_invariants=False)
    if form == "sparse CSR":
        target = csr(torch.tensor([0, 1, 2]), at[1], values, 3)
    for loss in (F.bce, F.two_way, F.cross_entropy, F.multilabel_softmax):
        with pytest.raises(ValueError, match=r"`target` row 1: labels must lie in \[0, 3\); got 3"):
            loss(torch.zeros(2, 3), target)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_labels_of_half_precision_are_read_like_others(dtype):
    hot, logits = (scores() > 4.5).to(dtype), scores(1).float()
    for loss in (F.bce, F.two_way, F.warp, F.sparse_top_loss):
        for target in (hot, hot.to_sparse(), hot.to_sparse_csr()):
            torch.testing.assert_close(loss(logits, target), loss(logits, hot.double()))


@pytest.mark.parametrize(
    ("function", "options"),
    [(F.bce, ()), (F.two_way, ()), (F.lml_nll, (5,)), (F.multilabel_truncated_topk_entropy, (10,))],
    ids=["bce", "two-way", "lml", "truncated entropy"],
)
def test_few_labels_take_no_more_memory_than_a_mask_of_them(function, options):
    rows, n = 32, 100_000
    lists = torch.arange(rows * 5).view(rows, 5) * 625
    hot = torch.zeros(rows, n).scatter(-1, lists, 1.0)
    logits = torch.zeros(rows, n, requires_grad=True)

    def peak(target: Tensor) -> int:
        with PeakMemory() as memory:
            torch.autograd.grad(function(logits, target, *options), logits)
        return memory.peak

    dense = peak(hot)
    for target in (lists, to_sparse(hot, n), to_sparse(hot, n, layout=torch.sparse_csr)):
        assert peak(target) <= dense + 100 * lists.numel()  # a mask of them would take 400,000 bytes for each row

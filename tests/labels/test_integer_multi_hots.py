"""Integers as wide as the labels are refused by everything that takes labels: eager, compiled, mapped, on devices."""

import pytest
import torch
from torch.func import vmap

from shortlist import functional as F
from shortlist.audit import audit
from shortlist.sets import PredictionSets, tradeoff
from shortlist.targets import from_indices, from_multi_hot
from tests.compiling import whole_graph
from tests.contracts_losses import LOSSES
from tests.contracts_metrics import METRICS
from tests.contracts_metrics import N as METRIC_LABELS
from tests.sets.rules import LABELS, RULES

N = 6
REFUSED = (
    r"an int64 `\w+` must not be as wide as the labels, .* `targets.from_multi_hot` or `targets.from_indices`; got"
)


def table(rows: int, n: int) -> torch.Tensor:
    """One positive per row, as scikit-learn's `MultiLabelBinarizer` writes it."""
    return torch.eye(n, dtype=torch.int64)[torch.arange(rows) % n]


@pytest.mark.parametrize("kernels", ["on", "device"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_refuses_them(loss, kernels, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=REFUSED):
        loss(logits, table(4, N))


def test_two_labels_are_refused_too_and_the_conversions_are_the_two_meanings():
    logits = torch.tensor([[3.0, -2.0], [0.5, 1.0]])
    wide = torch.tensor([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match=REFUSED):
        F.bce(logits, wide)
    assert F.bce(logits, from_multi_hot(wide)) == F.bce(logits, wide.float())
    assert F.bce(logits, from_indices(wide, 2)) == F.bce(logits, torch.ones(2, 2))


@pytest.mark.parametrize("kernels", ["on", "device"])
def test_lists_of_the_only_class_there_is_are_classes(kernels, monkeypatch):
    monkeypatch.setenv("SHORTLIST_KERNELS", kernels)
    logits, lists = torch.randn(3, 1), from_indices(torch.tensor([[0], [-1], [0]]), 1)
    assert F.cross_entropy(logits, lists, reduction="none").tolist() == [0.0, 0.0, 0.0]


# Torch itself warns while it traces.
quiet_tracing = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

CALLS = {
    "multi-label": (F.bce, slice(None)),
    "one class": (F.cross_entropy, slice(None)),
    "two heads": (lambda logits, y: F.role(logits, -logits, y, 1.5), slice(None)),
    "two labels": (lambda logits, y: F.bce(logits[:, :2], y[:, :2]), slice(None)),
    "mapped over rows": (vmap(F.bce), slice(None)),
    "mapped over logits": (vmap(F.bce, in_dims=(0, None)), 0),
    "expanded": (lambda logits, row: F.bce(logits, row.expand(4, N)), 0),
}


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@quiet_tracing
@pytest.mark.parametrize("call", CALLS)
def test_a_graph_raises_the_sentence_itself_not_an_error_of_the_compiler(call):
    loss, rows = CALLS[call]
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(0)).requires_grad_()
    compiled = whole_graph(loss, backend="aot_eager")
    for _ in range(2):  # when the graph is captured, and when it is run again
        with pytest.raises(ValueError, match=f"^{REFUSED}"):
            compiled(logits, table(4, N)[rows])


@pytest.mark.usefixtures("fresh_compiler")
@quiet_tracing
@pytest.mark.parametrize("whole", [pytest.param(True, marks=pytest.mark.slow), False])
def test_compiled_for_sizes_that_vary_they_are_refused_and_other_targets_are_not(whole):
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(F.bce, backend="eager", dynamic=True, fullgraph=whole)
    for rows in (4, 3):
        with pytest.raises(ValueError, match=f"^{REFUSED}"):
            compiled(logits[:rows], table(rows, N))
        narrow = torch.tensor([[0, 1], [2, -1], [1, 4], [5, 3]])[:rows]
        torch.testing.assert_close(compiled(logits[:rows], narrow), F.bce(logits[:rows], narrow))


class Role(torch.nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.role(logits, -logits, target, 1.5)


@quiet_tracing
@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_export_raises_the_sentence_or_an_error_of_the_compiler_that_holds_it(strict):
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(0))
    # The strict exporter wraps every error of the code that it traces.
    with pytest.raises(Exception if strict else ValueError, match=REFUSED if strict else f"^{REFUSED}"):
        torch.export.export(Role(), (logits, table(4, N)), strict=strict)


@pytest.mark.usefixtures("fresh_compiler")
@quiet_tracing
def test_a_graph_for_tensors_without_values_refuses_them():
    logits, target = torch.randn(4, N, device="meta"), table(4, N).to("meta")
    with pytest.raises(ValueError, match=f"^{REFUSED}"):
        whole_graph(F.bce, backend="aot_eager")(logits, target)


def test_mapped_losses_refuse_them():
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=REFUSED):
        vmap(F.bce)(logits, table(4, N))


@quiet_tracing
@pytest.mark.parametrize("transform", [vmap, lambda f: whole_graph(f, backend="aot_eager")], ids=["vmap", "compile"])
def test_the_conversion_works_inside_of_transforms(transform):
    logits, wide = torch.randn(4, N, generator=torch.Generator().manual_seed(0)).requires_grad_(), table(4, N)
    value = transform(lambda x, y: F.bce(x, from_multi_hot(y)))(logits, wide)
    torch.testing.assert_close(value.mean(), F.bce(logits, wide.bool()))


@pytest.mark.parametrize("case", [case for case in METRICS if case.takes_target], ids=str)
def test_every_metric_refuses_them(case):
    scores = torch.randn(4, METRIC_LABELS, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=REFUSED):
        case.update(case.metric(), scores, table(4, METRIC_LABELS))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.wants != "none"], ids=str)
def test_every_rule_refuses_them(rule):
    with pytest.raises(ValueError, match=REFUSED):
        rule.make().fit(rule.data(8)[0], table(8, LABELS), from_logits=True)


def test_sets_tradeoffs_and_audits_refuse_them():
    scores = torch.rand(4, N, generator=torch.Generator().manual_seed(0))
    sets = PredictionSets.from_mask(scores > 0.5, scores)
    for call in (
        lambda: sets.contains(table(4, N)),
        lambda: sets.count_hits(table(4, N)),
        lambda: tradeoff(scores, table(4, N), from_logits=False),
        lambda: audit(torch.randn(N, 2).numpy(), table(4, N)),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            call()

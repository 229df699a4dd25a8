"""Time projections, losses and set rules side by side at a given size; used by ``shortlist bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist.data.target_rows import sparse_targets
from shortlist.factory import LOSSES, make_loss
from shortlist.nn import Task
from shortlist.sets import (
    AdaptiveConformal,
    AverageError,
    AverageK,
    CheapestCover,
    ClassConditional,
    CovariateShift,
    DeepestNode,
    ExpectedF,
    ExpectedUtility,
    GroupConditional,
    LabelShift,
    NoneOfThese,
    OnlineAverageK,
    OnlineConformal,
    PerLabelThreshold,
    PointwiseError,
    RankCalibrated,
    RecallControl,
    RiskControl,
    SelectiveAnswers,
    SetRule,
    TopK,
    false_discovery_rate,
    u65,
)
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups
from shortlist.timing import Step, Timing, threads, time_steps

WHAT = ("projections", "losses", "rules")
"""What can be timed."""
# Shift of the true labels' logits in standard deviations: simulates a model that is right most of the time.
_MARGIN = 6.0
_ALPHA = 0.1
# Measured peaks of resident memory, in float32 copies of the logits, including what persists between steps.
_COPIES = {"projections": 20, "losses": 32, "rules": 20}


class Group(NamedTuple):
    """Steps to compare: ``steps`` creates each of them, and ratios are relative to ``baseline``."""

    title: str
    baseline: str
    steps: dict[str, Callable[[], Step]]


@dataclass(frozen=True, eq=False)
class Batch:
    """Logits of two heads, and a class and a set of labels for each row."""

    logits: Tensor
    proposals: Tensor
    classes: Tensor
    sets: Tensor
    k: float

    @classmethod
    def draw(cls, rows: int, labels: int, k: float, device: str | torch.device = "cpu") -> Batch:
        """Draw with a fixed seed; the true class and about ``k`` labels with it have the largest logits.

        The numbers are drawn on the CPU, so that they are the same on every device.
        """
        generator = torch.Generator().manual_seed(0)
        size = min(max(1, round(k)), labels)
        lists = torch.randint(labels, (rows, size), generator=generator)
        logits, proposals = (torch.randn(rows, labels, generator=generator) for _ in range(2))
        for values in (logits, proposals):
            values.scatter_(-1, lists, _MARGIN + torch.randn(rows, size, generator=generator))
        at = torch.arange(rows).repeat_interleave(size)
        sets = sparse_targets(at, lists.flatten(), rows, labels)
        classes = lists[:, 0].contiguous()
        return cls(logits.to(device), proposals.to(device), classes.to(device), sets.to(device), k)

    @staticmethod
    def bytes_needed(rows: int, labels: int, k: float, what: Sequence[str]) -> int:
        """Return a generous estimate of the memory that the batch and the steps need."""
        copies = max(_COPIES[name] for name in what)
        return 4 * rows * labels * copies + 160 * rows * max(1, round(k))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and labels."""
        return self.logits.shape[0], self.logits.shape[1]


def projections(batch: Batch) -> Group:
    """Return forward and backward passes of everything that maps logits to probabilities of about k labels."""
    k = batch.k
    known: dict[str, Callable[[Tensor], Tensor]] = {
        "softmax": lambda x: x.softmax(-1),
        "sigmoid": torch.sigmoid,
        "sparsemax": F.sparsemax,
        "lml": lambda x: F.lml(x, k),
        "log_lml": lambda x: F.log_lml(x, k),
        "sparse_top": lambda x: F.sparse_top(x, k),
        "constrained_softmax": lambda x: F.constrained_softmax(x, k),
        "lml_budget": lambda x: F.lml_budget(x, k),
        "sparse_top_budget": lambda x: F.sparse_top_budget(x, k),
    }

    x = batch.logits.clone().requires_grad_()

    def make(op: Callable[[Tensor], Tensor]) -> Step:
        def step() -> None:
            x.grad = None
            op(x).backward(batch.proposals)

        return step

    steps = {name: lambda op=op: make(op) for name, op in known.items()}
    return Group("projections, forward and backward", "softmax", steps)


def losses(batch: Batch) -> list[Group]:
    """Return forward and backward passes of every loss, those for one class and those for sets."""
    # All losses share the leaf tensors, because one copy per loss would fill the memory.
    heads = tuple(values.clone().requires_grad_() for values in (batch.logits, batch.proposals))

    def steps(names: list[str], target: Tensor) -> dict[str, Callable[[], Step]]:
        return {name: lambda name=name: _loss_step(name, batch, heads, target) for name in names}

    one_class = [name for name in LOSSES if LOSSES[name].one_class]
    of_sets = [name for name in LOSSES if not LOSSES[name].one_class]
    return [
        Group("losses of one class, forward and backward", "cross_entropy", steps(one_class, batch.classes)),
        Group("losses of sets, forward and backward", "bce", steps(of_sets, batch.sets)),
    ]


def _loss_step(name: str, batch: Batch, heads: tuple[Tensor, ...], target: Tensor) -> Step:
    from shortlist.train.distributed.global_batch import (
        batch_loss,  # Only this step needs the extra ``train``.
    )

    rows, labels = batch.shape
    counts = torch.bincount(batch.classes, minlength=labels)
    loss = make_loss(name, Task(labels, counts, rows, batch.k)).to(target.device)
    outputs, numbers = heads[: loss.num_heads], torch.arange(rows, device=target.device)

    def step() -> None:
        for leaf in (*heads, *loss.parameters()):
            leaf.grad = None
        batch_loss(loss, outputs, target, numbers).backward()

    return step


def rules(batch: Batch) -> Group:
    """Return predictions of sets from logits, by rules fitted on the same number of rows."""
    k, whole = batch.k, max(1, round(batch.k))
    rows, labels = batch.shape
    given: dict[str, dict[str, Any]] = {
        "group-conditional": {"groups": torch.arange(rows) % 2},
        "covariate-shift": {"weights": torch.ones(rows)},
    }
    top_k = lambda: TopK(whole).fit(batch.logits, from_logits=True)
    known: dict[str, Callable[[], SetRule]] = {
        "top-k": lambda: TopK(whole),
        "average-k": lambda: AverageK(k),
        "average-error": lambda: AverageError(_ALPHA),
        "pointwise-error": lambda: PointwiseError(_ALPHA),
        "class-conditional": lambda: ClassConditional(_ALPHA),
        "rank-calibrated": lambda: RankCalibrated(_ALPHA),
        "group-conditional": lambda: GroupConditional(_ALPHA),
        "covariate-shift": lambda: CovariateShift(_ALPHA),
        "label-shift": lambda: LabelShift(_ALPHA, ratios=torch.ones(labels)),
        "adaptive-conformal": lambda: AdaptiveConformal(_ALPHA),
        "online-conformal": lambda: OnlineConformal(_ALPHA),
        "online-average-k": lambda: OnlineAverageK(k),
        "selective": lambda: SelectiveAnswers(0.9, rule=top_k()),
        "none-of-these": lambda: NoneOfThese(_ALPHA, rule=top_k()),
        "deepest-node": lambda: DeepestNode(_ALPHA, _groups_of_four(labels)),
        "cheapest-cover": lambda: CheapestCover(_ALPHA, _groups_of_four(labels)),
        "recall-control": lambda: RecallControl(_ALPHA),
        "risk-control": lambda: RiskControl(false_discovery_rate, 0.5, 0.1),
        "per-label": lambda: PerLabelThreshold(),
        "expected-utility": lambda: ExpectedUtility(u65),
        "expected-f": lambda: ExpectedF(link="softmax"),
    }

    def make(name: str) -> Step:
        rule: Any = known[name]()
        rule.fit(
            batch.logits,
            batch.sets if name in ("recall-control", "risk-control", "per-label") else batch.classes,
            from_logits=True,
            **given.get(name, {}),
        )
        generator = torch.Generator().manual_seed(0)
        return lambda: rule.predict(batch.logits, generator=generator, **given.get(name, {}))

    steps: dict[str, Callable[[], Step]] = {"topk": lambda: lambda: batch.logits.topk(whole)}
    steps |= {name: lambda name=name: make(name) for name in known}
    return Group("set rules, from logits to sets", "topk", steps)


def _groups_of_four(labels: int) -> Taxonomy:
    return taxonomy_from_groups([str(i) for i in range(labels)], {"group": [f"g{i // 4}" for i in range(labels)]})


def run_benchmark(
    *,
    rows: int,
    labels: int,
    k: float,
    device: str | torch.device = "cpu",
    what: Sequence[str] = WHAT,
    num_threads: int | None = None,
    turns: int = 10,
    progress: Callable[[str, int], object] | None = None,
) -> tuple[list[tuple[Group, dict[str, Timing]]], int]:
    """Time all selected steps on random logits.

    Args:
        rows, labels: size of a batch.
        k: size of a prediction set.
        device: where the tensors are; steps on an accelerator end when their work is done.
        what: the groups to time, from `WHAT`.
        num_threads: torch's number of threads; unchanged by default.
        turns: how often to run each step.
        progress: called after each turn, with the name of the step and the total number of turns.

    Returns:
        The timings of each group, and the number of threads.

    Example:
        >>> [(group, timings)], _ = run_benchmark(rows=2, labels=5, k=2, what=["rules"], turns=1)
        >>> group.baseline, timings["top-k"].seconds > 0
        ('topk', True)
    """
    with torch.random.fork_rng(devices=[]), threads(num_threads) as used:
        batch = Batch.draw(rows, labels, k, device)
        groups = [projections(batch)] if "projections" in what else []
        groups += losses(batch) if "losses" in what else []
        groups += [rules(batch)] if "rules" in what else []
        total = sum(len(group.steps) for group in groups) * (turns + 1)
        tell = None if progress is None else lambda name: progress(name, total)
        makers = [finished(group.steps, batch.logits.device) for group in groups]
        found = [time_steps(steps, rounds=turns, progress=tell) for steps in makers]
        return list(zip(groups, found, strict=True)), used


def finished(makers: dict[str, Callable[[], Step]], device: torch.device) -> dict[str, Callable[[], Step]]:
    """Steps that wait for the accelerator, which only queues the work of a call; on the CPU, the steps themselves."""
    if device.type == "cpu":
        return makers
    wait = getattr(torch, device.type).synchronize

    def waiting(step: Step) -> Step:
        def both() -> None:
            step()
            wait()

        return both

    return {name: lambda make=make: waiting(make()) for name, make in makers.items()}

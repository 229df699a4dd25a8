"""Run by test_global_batch.py: losses of one batch, and short trainings, in several processes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shortlist.factory import make_head, make_loss
from shortlist.nn import Task
from shortlist.train.distributed.batch_norm import use_global_batch_norm
from shortlist.train.distributed.global_batch import batch_loss, gather_rows, gather_targets
from shortlist.train.inputs import EpochBatches
from shortlist.train.model.encoders import Plain, SmallCNN
from shortlist.train.model.plan import SetModel
from tests.contracts_losses import FORMS
from tests.contracts_losses import LOSSES as CONTRACTS

ROWS, LABELS, FEATURES = 12, 7, 3
SHARES = {"few": [[7, 5]], "more": [[1, 11], [6, 1, 5], [5, 0, 7], [3, 3, 3, 3]]}
"""The number of rows of each process, in the fast and the slow tests."""
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool]
TRAINED = ["cross_entropy", "average_k", "role"]
"""Losses of rows, of coupled rows, and with parameters."""
TRAINING_ROWS, BATCH, EPOCHS = 23, 8, 2


@dataclass(frozen=True, eq=False)
class Case:
    """A loss with labels in one form."""

    name: str
    loss: Callable[[], nn.Module]
    hot: Tensor
    form: str

    def target(self, start: int, end: int) -> Tensor:
        """Labels of some rows; index lists are as wide as these rows need."""
        return FORMS[self.form](self.hot[start:end])


def labels(*, one_class: bool, unknown: bool = False) -> Tensor:
    """A multi-hot in which the first rows have few labels, the last one has most, and one may have none."""
    generator = torch.Generator().manual_seed(4)
    scores = torch.rand(ROWS, LABELS, generator=generator)
    sizes = torch.ones(ROWS, 1) if one_class else torch.tensor([1, 1, 2, 1, 1, 2, 1, 0, 3, 2, 3, 5]).unsqueeze(1)
    hot = (scores.argsort(-1).argsort(-1) < sizes).double()
    if unknown:  # many in the first rows and few in the last, so that processes know unequal numbers of entries
        odds = torch.linspace(0.7, 0.0, ROWS).unsqueeze(1)
        hot = hot.masked_fill((torch.rand(ROWS, LABELS, generator=generator) < odds) & (hot == 0), -1.0)
    return hot


def _cases() -> list[Case]:
    cases = []
    weight = torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0, 0.1, 1.5], dtype=torch.float64)
    example = torch.zeros(ROWS, LABELS, dtype=torch.float64)
    for contract in CONTRACTS:
        options = {"epsilon": 0.0} if contract.takes_noise else {}
        # The usual forms of labels, and what makes rows count unequally.
        variants = [("class indices" if contract.one_class else "index lists", False, None)]
        variants += [("sparse CSR", True, weight)]
        if contract.couples_rows:
            variants += [("sparse COO", False, None), ("bool multi-hot", False, weight)]
        if contract.entrywise or contract.function.__name__ == "cross_entropy":
            variants += [("float32 multi-hot", True, weight)]
        for form, unknown, factor in variants:
            hot = labels(one_class=contract.one_class, unknown=unknown)
            if contract.one_class and unknown:
                hot[2] = hot[2].clamp(max=0)  # a row without a class
            for reduction in ("mean", "sum") if form == "sparse CSR" else ("mean",):
                name = (
                    f"{contract}, {form}{', unknown labels' * unknown}{', weights' * (factor is not None)}, {reduction}"
                )

                def make(contract=contract, options=options, factor=factor, reduction=reduction) -> nn.Module:
                    return contract.layer(example, weight=factor, reduction=reduction, **options)

                cases.append(Case(name, make, hot, form))
    return cases


CASES = _cases()
ALONE = ["cross_entropy, class indices, mean", "bce, float32 multi-hot, unknown labels, weights, mean"]
"""Cases that also run as DDP does by itself."""


class Step(nn.Module):
    """From a batch to its loss, for DDP to wrap."""

    def __init__(self, model: SetModel, loss: nn.Module, *, alone: bool = False) -> None:
        super().__init__()
        self.model, self.loss, self.alone = model.double(), loss.double(), alone

    def forward(self, inputs: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        outputs = self.model.outputs(inputs)
        return self.loss(*outputs, target) if self.alone else batch_loss(self.loss, outputs, target, rows)


def inputs_of(rows: int) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def step_of(case: Case, start: int, end: int, *, alone: bool = False) -> dict[str, list[float]]:
    """The loss of some rows and all gradients, over all processes if there are several."""
    torch.manual_seed(0)
    criterion = case.loss()
    head = make_head("linear", FEATURES, LABELS, loss=criterion.name)
    step = Step(SetModel(Plain((FEATURES,)), head), criterion, alone=alone)
    loss = step(inputs_of(ROWS)[start:end], case.target(start, end), torch.arange(start, end))
    loss.backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in step.parameters()])
    if dist.is_initialized():  # as DDP does, which is slow to set up and is used by the trainings below
        dist.all_reduce(gradients)
        gradients /= dist.get_world_size()
    return {"loss": [loss.item()], "gradients": gradients.tolist()}


def training(name: str, process: int, processes: int) -> dict[str, list[float]]:
    """Losses of all steps and the parameters at the end of a short training of a network with batch normalization."""
    torch.manual_seed(0)
    noise = torch.randn(TRAINING_ROWS, 1, 6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inputs, encoder = inputs_of(TRAINING_ROWS)[:, :1, None, None] + 1 + 0.3 * noise, SmallCNN(1, width=2)
    use_global_batch_norm(encoder)
    target = torch.randint(LABELS, (TRAINING_ROWS,), generator=torch.Generator().manual_seed(2))
    task = Task(LABELS, torch.bincount(target, minlength=LABELS), TRAINING_ROWS, 2)
    model = SetModel(encoder, make_head("auto", 8, LABELS, loss=name))
    step = Step(model, make_loss(name, task))
    wrapped = DistributedDataParallel(step) if dist.is_initialized() else step
    optimizer = torch.optim.SGD(step.parameters(), lr=0.1, momentum=0.9)
    batches = EpochBatches(TRAINING_ROWS, BATCH, seed=5, process=process, processes=processes)
    losses = []
    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for batch in batches:
            rows = torch.tensor(batch)
            loss = wrapped(inputs[rows], target[rows], rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    parameters = torch.cat([value.double().flatten() for value in step.state_dict().values()])
    return {"loss": losses, "parameters": parameters.tolist()}


def broken(name: str, rank: int) -> bool:
    """Whether this process notices that the inputs of the last process are not finite."""
    inputs = torch.full((2, LABELS), torch.nan if rank == dist.get_world_size() - 1 else 1.0)
    target, rows = torch.tensor([0, 1]), torch.arange(2) + 2 * rank
    loss = make_loss(name, Task(LABELS, torch.ones(LABELS), ROWS, 2))
    return bool(batch_loss(loss, (inputs,) * loss.num_heads, target, rows).isnan())


def results(shares: list[int]) -> dict[str, object]:
    """What one process finds, which has its share of the rows."""
    rank, world = dist.get_rank(), dist.get_world_size()
    bounds = sum(shares[:rank]), sum(shares[: rank + 1])
    own = torch.arange(2 * rank, 2 * rank + 2 + rank)  # two rows, three rows, four rows
    return {
        "steps": {case.name: step_of(case, *bounds) for case in CASES},
        "alone": {case.name: step_of(case, *bounds, alone=True) for case in CASES if case.name in ALONE if all(shares)},
        "widths": [case.target(*bounds).shape[1] for case in CASES if case.form == "index lists"],
        "trained": {name: training(name, rank, world) for name in TRAINED},
        "broken": {name: broken(name, rank) for name in TRAINED},
        "gathered": {str(dtype): gather_rows(own.to(dtype)).tolist() for dtype in DTYPES},
        "lists": gather_targets(torch.full((1, rank + 1), rank), 9).tolist(),
    }

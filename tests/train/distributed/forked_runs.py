"""Run by test_strategies.py: whole runs in several processes, forked here so that what is imported once serves all."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import start_processes

from shortlist.data import Dataset, Groups
from shortlist.train import FitOptions, SetClassifier, fit
from shortlist.train.distributed import processes
from shortlist.train.distributed.processes import Topology
from tests.train.small_data import classes, images, label_sets, quick, texts

EPOCHS = 2
SMALL = {"encoder_options": {"hidden": [16], "dropout": 0.0}, "learning_rate": 0.01, "epochs": EPOCHS, "patience": 0}


def with_validation(data: Dataset, rows: int) -> Dataset:
    """The first rows in the part val, the rest in train."""
    return replace(data, split=Groups.of(["val" if row < rows else "train" for row in range(len(data))]))


@dataclass(frozen=True, eq=False)
class Run:
    """Data and options, and with how many processes and which strategies they are run."""

    data: Callable[[], Dataset]
    options: FitOptions
    ways: tuple[tuple[int, str], ...]
    slow: bool = False


ALL = ((2, "ddp"), (2, "fsdp"), (4, "ddp"), (4, "fsdp"))
RUNS = {
    # 203 rows in batches of 67: the last batch has 2 rows, and some of 4 processes none.
    "bce": Run(lambda: with_validation(label_sets(), 37), quick(**{**SMALL, "loss": "bce", "batch_size": 67}), ALL[:2]),
    "average_k": Run(
        lambda: with_validation(classes(), 3), quick(**{**SMALL, "loss": "average_k"}), ((4, "fsdp"),), True
    ),
    "two_way": Run(label_sets, quick(**{**SMALL, "loss": "two_way"}), ((2, "fsdp"),), slow=True),
    "lml, momentum": Run(
        label_sets, quick(**{**SMALL, "loss": "lml_nll", "optimizer": "sgd"}), ((2, "fsdp"),), slow=True
    ),
    "bce, four": Run(
        lambda: with_validation(label_sets(), 37),
        quick(**{**SMALL, "loss": "bce", "batch_size": 67}),
        ALL[2:],
        slow=True,
    ),
    "one number": Run(
        classes, quick(**{**SMALL, "head": "cosine", "head_options": {"learn_scale": True}}), ((2, "fsdp"),), slow=True
    ),
    "average_k, two": Run(classes, quick(**{**SMALL, "loss": "average_k"}), ((2, "ddp"), (2, "fsdp")), slow=True),
    "two_way, four": Run(label_sets, quick(**{**SMALL, "loss": "two_way"}), ((4, "ddp"), (4, "fsdp")), slow=True),
    "role": Run(label_sets, quick(**{**SMALL, "loss": "role"}), ALL, slow=True),
    "batch norms": Run(
        images, quick(**{**SMALL, "encoder": "cnn", "encoder_options": {"width": 4}}), ((2, "fsdp"), (4, "fsdp")), True
    ),
    "half precision": Run(classes, quick(**{**SMALL, "precision": "bf16-mixed"}), ((2, "ddp"), (2, "fsdp")), True),
    "bag": Run(texts, quick(**{**SMALL, "encoder": "bag", "encoder_options": {}}), ((2, "ddp"), (4, "ddp")), True),
    "bottleneck": Run(
        label_sets,
        quick(**{**SMALL, "loss": "lml_nll", "head": "bottleneck", "head_options": {"bottleneck": 3}}),
        ((4, "fsdp"),),
        True,
    ),
    "early stopping": Run(
        classes, quick(**{**SMALL, "epochs": 60, "patience": 2, "learning_rate": 0.05}), ((2, "fsdp"),), True
    ),
}
KILLED = quick(**{**SMALL, "epochs": 6, "loss": "average_k", "optimizer": "sgd", "learning_rate": 0.1})
"""Run by 4 processes that share parameters, then by 2 that do not, each until one of them is killed."""


def fork() -> None:
    """Start processes by forking, which takes no time; all else stays."""
    processes.spawn = partial(start_processes, start_method="fork")  # pyright: ignore


def watch(folder: Path) -> None:
    """Write down, in every process, which rows are measured and how many bytes are kept."""
    rows, step, end = [], SetClassifier.validation_step, SetClassifier.on_train_batch_start

    def validation_step(self: SetClassifier, batch: Any, index: int) -> None:
        rows.append((self.current_epoch, batch.rows.tolist()))
        step(self, batch, index)

    def on_train_batch_start(self: SetClassifier, batch: Any, index: int) -> None:
        end(self, batch, index)
        if self.current_epoch == EPOCHS - 1 and index == 0:
            (optimizer,) = self.trainer.optimizers
            states = [value for state in optimizer.state.values() for value in state.values()]
            kept = {"parameters": own_size(self.parameters()), "states": own_size(v for v in states if v.dim())}
            place = Path(os.environ["SHORTLIST_TEST_FOLDER"], f"{self.global_rank}.json")
            place.write_text(json.dumps(kept))

    def on_train_end(self: SetClassifier) -> None:
        place = Path(os.environ["SHORTLIST_TEST_FOLDER"], f"rows{self.global_rank}.json")
        place.write_text(json.dumps(rows))

    SetClassifier.validation_step = validation_step
    SetClassifier.on_train_batch_start = on_train_batch_start
    SetClassifier.on_train_end = on_train_end


def own_size(tensors: Any) -> int:
    """Bytes of tensors in this process."""
    parts = [value.to_local() if isinstance(value, DTensor) else value for value in tensors]
    return sum(part.numel() * part.element_size() for part in parts)


def die(rank: int, epoch: int) -> Callable[[], None]:
    """Let one process be killed in the middle of an epoch; gives back how to undo it."""
    step = SetClassifier.training_step

    def training_step(self: SetClassifier, batch: Any, index: int) -> torch.Tensor:
        if (self.global_rank, self.current_epoch, index) == (rank, epoch, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, batch, index)

    SetClassifier.training_step = training_step

    def undo() -> None:
        SetClassifier.training_step = step

    return undo


def killed_run(folder: Path) -> list[str]:
    """What is said of a run that is killed in its first epoch, in its third and in its fifth."""
    said = []
    folder.mkdir()
    os.environ["SHORTLIST_TEST_FOLDER"] = str(folder)
    for rank, epoch, world, strategy in ((1, 0, 2, "ddp"), (0, 2, 4, "fsdp"), (1, 4, 2, "ddp")):
        undo = die(rank, epoch)
        try:
            options = replace(KILLED, processes=world, strategy=strategy)
            fit(classes(), options, folder=folder, resume=epoch > 0)
        except ChildProcessError as error:
            said.append(str(error))
        undo()
    return said


def fails(tell: Callable[[float], object]) -> None:
    """The second process finds something wrong; the first would wait for it."""
    tell(0.5)
    if os.environ["LOCAL_RANK"] == "1":
        raise OSError(28, "No space left on device", "model")
    time.sleep(600)


def ends(tell: Callable[[float], object]) -> None:
    tell(1.0)


def loses(tell: Callable[[float], object]) -> None:
    """The first process is killed; the second notices it, maybe first."""
    if os.environ["LOCAL_RANK"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("[pair.cc:1] gloo: Connection closed by peer. Check the logs.")


def faults(tell: Callable[[float], object]) -> None:
    raise KeyError("what nobody has thought of")


def ending(work: Callable[[Callable[[float], object]], None]) -> list[str]:
    """How work ends in two processes."""
    try:
        processes.run_processes(work, Topology(processes_per_node=2, local_ranks=(0, 1)))
    except (OSError, RuntimeError) as error:
        return [work.__name__, type(error).__name__, str(error)]
    return [work.__name__, "", ""]


if __name__ == "__main__":
    torch.set_num_threads(1)
    fork()
    top = Path(sys.argv[1])
    watch(top)
    for name, run in RUNS.items():
        for world, strategy in run.ways if run.slow == (sys.argv[2] == "more") else ():
            place = top / name / f"{world} {strategy}"
            place.mkdir(parents=True)
            os.environ["SHORTLIST_TEST_FOLDER"] = str(place)
            fitted = fit(run.data(), replace(run.options, processes=world, strategy=strategy), folder=place)
            (place / "fitted.json").write_text(json.dumps([fitted.best_epoch, fitted.history]))
    if sys.argv[2] == "few":
        # Many times, for an end may be seen at any moment.
        endings = [ending(work) for work in [fails, ends, loses] * 10 + [faults]]
        sys.stdout.write(json.dumps([killed_run(top / "killed"), endings]))

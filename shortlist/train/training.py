"""A training by Lightning, in this process or in several, with checkpoints that it goes on from."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from shortlist.data import Dataset
from shortlist.train.batches import SetBatches
from shortlist.train.checkpoint_files import WholeCheckpoints
from shortlist.train.classifier import SetClassifier
from shortlist.train.global_norm import normalise_globally
from shortlist.train.nodes import Place
from shortlist.train.options import FitOptions
from shortlist.train.order import EpochBatches
from shortlist.train.processes import in_processes
from shortlist.train.run_folder import RunFolder, read_checkpoint
from shortlist.train.step_progress import StepProgress, share_bar

# How long processes wait for each other: nodes that start, the slowest step, the writing of a checkpoint. The end of a
# process is seen at once; only a machine that vanishes without closing its connections is waited for.
PATIENCE = timedelta(minutes=5)

Progress = bool | Callable[[float], object]


@dataclass(frozen=True, eq=False)
class Training:
    """What is trained, on what, and where its checkpoints are.

    Args:
        module: with its model as it starts.
        train, val: rows to learn from and to watch.
        options: of the run.
        monitor: the metric to stop by and to choose the best epoch by.
        folder: checkpoints are in its folder ``checkpoints``.
        place: which processes this command starts; by default it trains alone, in one.
    """

    module: SetClassifier
    train: Dataset
    val: Dataset
    options: FitOptions
    monitor: str
    folder: Path
    place: Place = field(default_factory=Place)

    def run(self, progress: Progress, *, resume: bool = False) -> int:
        """Train until the end, from the last checkpoint if there is one, and take the parameters of the best epoch.

        Args:
            progress: whether to show a bar; or what to call with the share of all steps that is done.
            resume: whether a run must have begun in the folder.

        Returns:
            The best epoch.

        Raises:
            ValueError: the folder holds another run, a checkpoint is damaged, or a loss is not finite.
        """
        files, asked = RunFolder(self.folder), self.module.asked
        before = files.checkpoint(asked, resume=resume)
        # Lightning would train one more epoch of a run that has ended early.
        if before is None or not (before["stopped"] or len(before["history"]) >= self.options.epochs):
            # Refuses what gives a process no rows before anything is started.
            EpochBatches(len(self.train), self.options.batch_size, seed=0, processes=self.place.processes)
            if before is None and self.place.is_first:
                files.note_begin(asked)
            elif before is None:
                files.await_begin(asked, seconds=PATIENCE.total_seconds())
            try:
                with nullcontext(progress) if callable(progress) else share_bar("training", shown=progress) as tell:
                    self._steps_in_processes(tell)
            finally:
                if self.place.is_first:
                    files.forget_begin()
        best = read_checkpoint(files.best)
        self.module.history = read_checkpoint(files.last)["history"]
        self.module.load_state_dict(best["state_dict"])
        self.module.model.eval()
        return int(best["epoch"])

    def _steps_in_processes(self, tell: Callable[[float], object] | None) -> None:
        if self.place.processes == 1:
            with quiet():
                self.steps(tell)
        else:
            in_processes(_Share(self), self.place, tell=tell)

    def steps(self, tell: Callable[[float], object] | None) -> None:
        """Train the module in this process, which may be one of several."""
        files = RunFolder(self.folder)
        keep = _Best(files.checkpoints, "best", monitor=self.monitor, mode="max", enable_version_counter=False)
        # A second one, for the first writes only when the monitor improves; it comes last and so knows all states.
        every = ModelCheckpoint(files.checkpoints, "last", monitor=None, every_n_epochs=1, enable_version_counter=False)
        callbacks: list[Callback] = [] if tell is None else [StepProgress(tell)]
        if self.options.patience:
            callbacks.append(EarlyStopping(self.monitor, mode="max", patience=self.options.patience))
        several = self.place.processes > 1
        if several:
            callbacks.append(_EndsAtOnce())
        trainer = Trainer(
            max_epochs=self.options.epochs,
            accelerator=self.place.accelerator,
            devices=self.place.per_node,
            num_nodes=self.place.nodes,
            strategy=self._strategy() if several else "auto",
            precision=self.options.precision,
            callbacks=[*callbacks, keep, every],
            plugins=[WholeCheckpoints(), *([LightningEnvironment()] if several else [])],
            logger=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            use_distributed_sampler=False,
            reload_dataloaders_every_n_epochs=1,
            num_sanity_val_steps=0,
            default_root_dir=self.folder,
        )
        batches = SetBatches(self.train, self.val, batch_size=self.options.batch_size, seed=self.options.seed)
        try:
            trainer.fit(self.module, batches, ckpt_path=files.last if files.last.is_file() else None)
        except SystemExit as stop:  # What Lightning makes of an interruption, which is the caller's to handle.
            raise KeyboardInterrupt from stop

    def _strategy(self) -> Any:
        if self.options.strategy == "ddp":
            return DDPStrategy(timeout=PATIENCE)
        from shortlist.train.sharding import Sharded

        return Sharded(self.place.processes, timeout=PATIENCE)


@dataclass(frozen=True, eq=False)
class _Share:
    """What one of several processes does."""

    training: Training

    def __call__(self, tell: Callable[[float], object]) -> None:
        # Tensors come here in memory that all processes share: each must step on parameters of its own.
        module = deepcopy(self.training.module)
        normalise_globally(module.model)
        with quiet():
            replace(self.training, module=module).steps(tell)


class _EndsAtOnce(Callback):
    """Lets a process end when it is told to: Lightning would go on and talk to the others, which wait elsewhere."""

    def on_train_start(self, *_: Any) -> None:
        """After Lightning has set its handler."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Best(ModelCheckpoint):
    """Knows its file by its name: Lightning forgets which epoch was best when a folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def here(path: str) -> str:
            return str(Path(self.dirpath or "") / Path(path).name) if path else path

        paths = {name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path")}
        scores = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **paths, "best_k_models": scores, "dirpath": self.dirpath})


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning speaks of choices that are made on purpose: no workers, no logger, few batches, several processes."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

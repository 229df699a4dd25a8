"""Train a model on a dataset, with one call that can be interrupted, and evaluate it."""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer, seed_everything
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.factory import loss_class, make_loss
from shortlist.files import locked
from shortlist.fingerprint import digest
from shortlist.fit_options import FitOptions, SettledOptions
from shortlist.formatting import format_percent
from shortlist.nn import ClusterHead, Task
from shortlist.progress import progress_bar
from shortlist.targets import check_target
from shortlist.train.checkpoints import AtomicCheckpoints, RunFolder, read_checkpoint, run_fingerprint
from shortlist.train.classifier import SetClassifier
from shortlist.train.distributed.batch_norm import use_global_batch_norm
from shortlist.train.distributed.global_batch import RowWeighted
from shortlist.train.distributed.processes import Topology, run_processes
from shortlist.train.distributed.sharding import ShardedStrategy
from shortlist.train.evaluation import (
    Evaluation,
    check_monitor_rows,
    evaluate_model,
    monitor_names,
    watched_metrics,
)
from shortlist.train.inputs import (
    EpochBatches,
    SetBatches,
    check_parts,
    check_rows,
    is_one_class,
    prepare_parts,
    row_batches,
    settle,
)
from shortlist.train.label_clusters import check_cluster_run, cluster_labels
from shortlist.train.model.encoders import Standardised, as_floats
from shortlist.train.model.plan import ModelPlan, SetModel, build_model, make_plan
from shortlist.train.model.sparse_layers import has_sparse_layers
from shortlist.train.model.starting_point import start_at_frequencies

_KINDS = ("features", "sparse features", "images", "text")
# How long processes wait for each other: for nodes to start, for the slowest step, for a checkpoint to be written. The
# end of a process is noticed at once; only a machine that vanishes without closing its connections takes this long.
_PEER_TIMEOUT = timedelta(minutes=5)

Report = Callable[[float], object]
Progress = bool | Report


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a run.

    ``model`` has the parameters of the epoch ``best_epoch``, which is the last one if ``options.keep`` says so;
    ``history`` has the metrics of every epoch.
    """

    model: SetModel
    plan: ModelPlan
    options: SettledOptions
    label_names: tuple[str, ...]
    monitor: str
    best_epoch: int
    history: list[dict[str, float]]


def fit(
    dataset: Dataset,
    options: FitOptions | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress = False,
    data_name: str = "dataset",
    row_weights: Tensor | None = None,
) -> Fitted:
    """Train a model on the part ``train``, monitoring the part ``val``.

    Args:
        dataset: features, sparse features, images or text; with parts ``train`` and ``val``. With ``options.frozen``
            the features of all its rows are computed first and cached in `shortlist.files.cache_folder`.
        options: how to train.
        folder: where checkpoints are kept after every epoch. A run with the same folder continues where the last one
            ended, with the same result as one that was not interrupted; a folder of other data or options is refused.
            Several nodes must see one folder; the first one writes to it.
        resume: whether to refuse a folder in which no run has started. Only the epoch in which a run died is repeated.
        progress: whether to show a progress bar; or a function that is called with the fraction of steps that is done.
        data_name: what messages call the dataset, such as its file.
        row_weights: how much each training row counts in the loss, in the order of the part ``train``; for losses that
            are a mean over rows, which `two_way` is not.

    Returns:
        The model of the kept epoch, with what is needed to rebuild it.

    Raises:
        InputError: if data or options do not fit, the folder holds another run, another process writes to it, or the
            loss diverges.
    """
    options = settle(options or FitOptions(), dataset)
    topology = Topology.of(options)
    if folder is None and (resume or not topology.is_alone):
        raise InputError(f"`folder` must be given {'with `resume`' if resume else 'with several nodes'}; got None.")
    # Whether a folder holds the same run; without one, the data need not be read for it.
    fingerprint = {} if folder is None else run_fingerprint(dataset, options)
    if row_weights is not None:
        fingerprint["row_weights"] = digest(row_weights.double().numpy().tobytes())
    with quiet_lightning():
        seed_everything(options.seed, verbose=False)
        module, plan = make_run(dataset, options, data_name=data_name)
        module.fingerprint = fingerprint
        if row_weights is not None:
            module.loss = _weighted_loss(module, row_weights, len(dataset.part_rows("train")))
        dataset = prepare_parts(dataset, plan, ("train", "val"), progress=progress is True)
        check_rows(dataset, ("train", "val"), name=data_name)
        train, val = dataset.part("train"), dataset.part("val")
        check_target(train.targets, dataset.num_labels)
        _standardize(module.model, train)
        if isinstance(module.model.head, ClusterHead):
            cluster_labels(module.model.head, train, seed=options.seed)
        chosen = loss_class(plan.loss)
        if options.start == "frequencies" or (options.start == "auto" and chosen.starts_at_frequencies):
            relative = chosen.averages_negatives
            start_at_frequencies(module.model.head, train.label_counts(), len(train), relative=relative)
        with TemporaryDirectory() if topology.world_size > 1 else nullcontext() as scratch:
            monitor, place = monitor_of(dataset, options), folder or scratch
            training = Training(module, train, val, options, monitor, Path(place) if place else None, topology)
            # On several nodes, which share the folder, the first one writes to it.
            lock = None if folder is None or not topology.is_first else locked(RunFolder(folder).lock, Path(folder))
            with lock or nullcontext():
                kept = training.run(progress, resume=resume)
    return Fitted(module.model, plan, options, dataset.label_names, monitor, kept, module.history)


def evaluate(fitted: Fitted, dataset: Dataset, *, part: str = "test", data_name: str = "dataset") -> Evaluation:
    """Evaluate a model on a part of the data; the threshold of its sets is fitted on the part ``val``.

    Args:
        fitted: of `fit`.
        dataset: the data that it was trained on, with its split. Labels are the true ones, not the noisy ones.
        part: which part.
        data_name: what messages call the dataset, such as its file.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, evaluate, fit
        >>> data = AmbiguousWorld().sample(2000, seed=0)
        >>> sorted(evaluate(fit(data, FitOptions(epochs=1)), data).values)
        ['average3_error', 'average_size', 'top1_error', 'top3_error']
    """
    check_parts(dataset, ("val", part), name=data_name)
    dataset = prepare_parts(dataset, fitted.plan, ("val", part))
    check_rows(dataset, ("val", part), name=data_name)
    val, rows = dataset.part("val"), dataset.part(part)
    return evaluate_model(fitted.model, val, rows, k=fitted.options.k, link=loss_class(fitted.plan.loss).link)


def make_run(dataset: Dataset, options: FitOptions, *, data_name: str = "dataset") -> tuple[SetClassifier, ModelPlan]:
    """Build model, loss and metrics of a run, before anything is read or trained.

    Raises:
        InputError: if options do not fit the data or each other.
    """
    kind = dataset.inputs.kind
    options = settle(options, dataset)
    if kind not in _KINDS:
        raise InputError(f"`{data_name}` must have {', '.join(_KINDS)} as inputs; got {kind}.")
    if options.augmentation and kind != "images":
        raise InputError(f"`augmentation` {options.augmentation!r} needs images; got {kind}.")
    if dataset.num_labels < 2:
        raise InputError(f"`{data_name}` must have at least 2 labels; got {dataset.num_labels}.")
    if options.k > dataset.num_labels:
        raise InputError(f"`k` must lie in (0, {dataset.num_labels}], the number of labels; got {options.k}.")
    check_parts(dataset, ("train", "val"), name=data_name)
    one_class = is_one_class(dataset)
    chosen = loss_class(options.loss if options.loss != "auto" else ("cross_entropy" if one_class else "bce"))
    if chosen.one_class and not one_class:
        raise InputError(f"`loss` {chosen.name!r} is for one class per row; the rows have sets.")
    plan = make_plan(dataset, options, loss=chosen.name, data_name=data_name)
    task = Task(dataset.num_labels, dataset.label_counts("train"), len(dataset.part_rows("train")), options.k)
    model = build_model(plan)
    if options.strategy == "fsdp" and options.optimizer == "adamw" and has_sparse_layers(model):
        raise InputError("`strategy` must be ddp for sparse features and text, whose updates are lazy; got 'fsdp'.")
    loss = make_loss(chosen.name, task, options.loss_options)
    if getattr(loss, "reduction", "mean") not in ("mean", "sum"):
        raise InputError(f"`loss_options` must have reduction 'mean' or 'sum'; got {loss.reduction!r}.")
    if isinstance(model.output_layer, ClusterHead):
        check_cluster_run(model.output_layer, loss, options)
    monitor = monitor_of(dataset, options)
    if monitor == "map" and isinstance(model.output_layer, ClusterHead):
        raise InputError("`monitor` map needs the scores of all labels, which `head` 'clusters' does not compute.")
    metrics = watched_metrics(one_class=one_class, num_labels=dataset.num_labels, k=options.k, monitor=monitor)
    return SetClassifier(model, loss, metrics, options, link=chosen.link), plan


@dataclass(frozen=True, eq=False)
class Training:
    """A training by Lightning, in this process or in several, that resumes from checkpoints.

    Args:
        module: with the initial parameters of its model.
        train, val: training and validation rows.
        options: of the run.
        monitor: the metric for early stopping and for choosing the best epoch.
        folder: checkpoints are in its subfolder ``checkpoints``; None keeps the best epoch in memory, in one process.
        topology: which processes this command starts.
    """

    module: SetClassifier
    train: Dataset
    val: Dataset
    options: SettledOptions
    monitor: str
    folder: Path | None
    topology: Topology = field(default_factory=Topology)

    def run(self, progress: Progress, *, resume: bool = False) -> int:
        """Train to the end, from the last checkpoint if there is one, and load the parameters of the kept epoch.

        Args:
            progress: whether to show a progress bar; or a function that is called with the fraction of steps done.
            resume: whether a run must have started in the folder.

        Returns:
            The kept epoch.

        Raises:
            InputError: if the folder holds another run, a checkpoint is damaged, or the loss is not finite.
        """
        if self.folder is None:
            return self._run_in_memory(progress)
        files, fingerprint = RunFolder(self.folder), self.module.fingerprint
        before = files.checkpoint(fingerprint, resume=resume)
        # Lightning would train one more epoch of a run that has stopped early.
        if before is None or not (before["stopped"] or len(before["history"]) >= self.options.epochs):
            self._check_rows()
            if before is None and self.topology.is_first:
                files.note_begin(fingerprint)
            elif before is None:
                files.await_begin(fingerprint, seconds=_PEER_TIMEOUT.total_seconds())
            try:
                with self._reported(progress) as report:
                    self._train(report)
            finally:
                if self.topology.is_first:
                    files.forget_begin()
        last = read_checkpoint(files.last)
        kept = last if self.options.keep == "last" else read_checkpoint(files.best)
        self.module.history = last["history"]
        self.module.load_state_dict(kept["state_dict"])
        self.module.model.eval()
        return int(kept["epoch"])

    def _run_in_memory(self, progress: Progress) -> int:
        self._check_rows()
        best = _BestInMemory(self.monitor)
        with self._reported(progress) as report:
            self._fit([_StepProgress(report), *([best] if self.options.keep == "best" else [])], devices=1)
        if best.state is not None:
            self.module.load_state_dict(best.state)
        self.module.model.eval()
        return len(self.module.history) - 1 if best.state is None else best.epoch

    @contextmanager
    def _reported(self, progress: Progress) -> Iterator[Report]:
        """A function to report to: the caller's, or that of a progress bar, which shows the last epoch's metric."""
        with progress_bar("training", 1.0, shown=progress is True) as bar:

            def report(fraction: float) -> None:
                about = "training"
                if self.module.history:
                    value = format_percent(self.module.history[-1][self.monitor])
                    about = f"training, epoch {len(self.module.history)}: {self.monitor} {value}"
                bar.update(fraction, description=about)

            yield progress if callable(progress) else report

    def _check_rows(self) -> None:
        """Check that every process has rows, before anything is started."""
        EpochBatches(len(self.train), self.options.batch_size, seed=0, processes=self.topology.world_size)

    def _train(self, report: Report) -> None:
        if self.topology.world_size > 1:
            run_processes(_ProcessTraining(self), self.topology, report=report)
            return
        self.train_here(report)

    def train_here(self, report: Report) -> None:
        """Train the module in this process, which may be one of several."""
        files, several = RunFolder(self.folder or ""), self.topology.world_size > 1
        naming: dict[str, Any] = {"dirpath": files.checkpoints, "enable_version_counter": False}
        best = _BestCheckpoint(filename="best", monitor=self.monitor, mode="max", **naming)
        # A second one, because the first writes only when the metric improves; it comes last and so saves all states.
        last = ModelCheckpoint(filename="last", monitor=None, every_n_epochs=1, **naming)
        self._fit(
            [_StepProgress(report), *([_DefaultSigterm()] if several else []), best, last],
            checkpoint=files.last if files.last.is_file() else None,
            devices=self.topology.processes_per_node,
            num_nodes=self.topology.nodes,
            strategy=self._strategy() if several else "auto",
            plugins=[AtomicCheckpoints(), *([LightningEnvironment()] if several else [])],
            default_root_dir=self.folder,
        )

    def _fit(self, callbacks: list[Callback], *, checkpoint: Path | None = None, **options: Any) -> None:
        """Train the module by Lightning, from a checkpoint if there is one; ``options`` are those of its Trainer."""
        if self.options.patience:
            callbacks = [EarlyStopping(self.monitor, mode="max", patience=self.options.patience), *callbacks]
        batches = SetBatches(self.train, self.val, batch_size=self.options.batch_size, seed=self.options.seed)
        with quiet_lightning():
            trainer = Trainer(
                max_epochs=self.options.epochs,
                accelerator=self.topology.accelerator,
                precision=self.options.precision,
                callbacks=callbacks,
                enable_checkpointing=self.folder is not None,
                logger=False,
                enable_model_summary=False,
                enable_progress_bar=False,
                use_distributed_sampler=False,
                reload_dataloaders_every_n_epochs=1,
                num_sanity_val_steps=0,
                **options,
            )
            try:
                trainer.fit(self.module, batches, ckpt_path=checkpoint)
            except SystemExit as stop:  # Lightning exits on an interruption, which is for the caller to handle.
                raise KeyboardInterrupt from stop

    def _strategy(self) -> Any:
        if self.options.strategy == "ddp":
            return DDPStrategy(timeout=_PEER_TIMEOUT)
        return ShardedStrategy(self.topology.world_size, timeout=_PEER_TIMEOUT)


@dataclass(frozen=True, eq=False)
class _ProcessTraining:
    """The part of one of several processes."""

    training: Training

    def __call__(self, report: Report) -> None:
        # Tensors arrive in memory that all processes share; each must update parameters of its own.
        module = deepcopy(self.training.module)
        use_global_batch_norm(module.model)
        replace(self.training, module=module).train_here(report)


class _StepProgress(Callback):
    """Reports the fraction of steps that is done, in [0, 1]; a run that stops early reports less."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            self.report(trainer.global_step / max(int(trainer.estimated_stepping_batches), 1))


class _DefaultSigterm(Callback):
    """Ends a process on SIGTERM: Lightning's handler would go on to communicate with peers that wait elsewhere."""

    def on_train_start(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _BestInMemory(Callback):
    """Keeps a copy of the module's state after the best epoch, and the number of that epoch."""

    def __init__(self, monitor: str) -> None:
        self.monitor, self.value, self.epoch = monitor, -math.inf, 0
        self.state: dict[str, Tensor] | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        value = float(trainer.callback_metrics[self.monitor])
        if self.state is None or value > self.value:
            self.value, self.epoch = value, trainer.current_epoch
            state = pl_module.state_dict()
            if self.state is None:
                self.state = {name: torch.empty_like(each) for name, each in state.items()}
            for name, each in state.items():
                self.state[name].copy_(each)


class _BestCheckpoint(ModelCheckpoint):
    """Finds its file in the present folder: Lightning forgets the best epoch when a folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def here(path: str) -> str:
            return str(Path(self.dirpath or "") / Path(path).name) if path else path

        paths = {name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path")}
        scores = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **paths, "best_k_models": scores, "dirpath": self.dirpath})


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence remarks on choices that are deliberate: no workers, no logger, few batches, several processes."""
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


def _weighted_loss(module: SetClassifier, weights: Tensor, num_rows: int) -> RowWeighted:
    if weights.shape != (num_rows,):
        raise InputError(f"`row_weights` must have one value per training row, {num_rows}; got {tuple(weights.shape)}.")
    if isinstance(module.model.head, ClusterHead):
        raise InputError("`row_weights` must be None with label clusters, whose loss sees only some labels of a row.")
    return RowWeighted(module.loss, weights)  # pyright: ignore[reportArgumentType]


def monitor_of(dataset: Dataset, options: FitOptions) -> str:
    """Return the metric that a run monitors; raise InputError if there is no such metric."""
    names = monitor_names(one_class=is_one_class(dataset), num_labels=dataset.num_labels, k=options.k)
    if options.monitor == "auto":
        return names[0]
    if options.monitor not in names:
        raise InputError(f"`monitor` must be one of {', '.join(names)}; got {options.monitor!r}.")
    check_monitor_rows(options.monitor, len(dataset.part_rows("val")), dataset.num_labels)
    return options.monitor


def _standardize(model: SetModel, train: Dataset) -> None:
    """Set mean and deviation of each feature to those of the training rows."""
    for module in model.modules():
        if isinstance(module, Standardised):
            module.load_state_dict(Standardised(*_moments(train, module.out_features)).state_dict())


def _moments(train: Dataset, size: int) -> tuple[Tensor, Tensor]:
    total, squares = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    shift: Tensor | None = None
    for rows in row_batches(len(train), 4096):
        values = as_floats(train.inputs.batch(rows), torch.float64).flatten(1)
        # Sums about the first row do not cancel where the mean is large compared to the deviation.
        shift = values[0] if shift is None else shift
        total += (values - shift).sum(0)
        squares += (values - shift).square().sum(0)
    mean = total / len(train)
    deviation = (squares / len(train) - mean.square()).clamp(min=0).sqrt()
    return (mean + (0 if shift is None else shift)).float(), deviation.float()

"""From a dataset to a trained model, in one call that can be interrupted."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning import Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor

from shortlist.data import Dataset
from shortlist.data.target_rows import label_pairs
from shortlist.targets import check_target
from shortlist.train.batches import SetBatches
from shortlist.train.checkpoint_files import WholeCheckpoints
from shortlist.train.classifier import SetClassifier
from shortlist.train.encoders import Standardised, as_floats
from shortlist.train.model import SetModel
from shortlist.train.options import FitOptions
from shortlist.train.plan import ModelPlan, build_model
from shortlist.train.recipes import ONE_CLASS, Task, link_of, make_loss
from shortlist.train.scores import (
    batches_of,
    is_one_class,
    prepared,
    refuse_missing,
    refuse_unusable,
    row_shape,
    run_metrics,
)

_KINDS = ("features", "sparse features", "images", "text")


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a run gives.

    ``model`` has the parameters of the best epoch; ``history`` has the numbers of every epoch.
    """

    model: SetModel
    plan: ModelPlan
    options: FitOptions
    label_names: tuple[str, ...]
    monitor: str
    best_epoch: int
    history: list[dict[str, float]]


def fit(
    dataset: Dataset, options: FitOptions | None = None, *, folder: str | Path | None = None, progress: bool = False
) -> Fitted:
    """Train a model on the part ``train``, watching the part ``val``.

    Args:
        dataset: features, sparse features, images or texts; with parts ``train`` and ``val``.
        options: how; by default those that suit most data.
        folder: where checkpoints are kept after every epoch. A run with the same folder goes on where the last one
            ended, and ends with the same numbers as one that was not interrupted; a folder of other data or options is
            refused.
        progress: whether to show a bar.

    Returns:
        The model of the best epoch, with what is needed to build it again.

    Raises:
        ValueError: in one sentence, for data or options that do not fit.
    """
    options = options or FitOptions()
    asked = run_identity(dataset, options)
    with _quiet():
        seed_everything(options.seed, verbose=False)
        module, plan = make_run(dataset, options)
        module.asked = asked
        dataset = dataset if plan.words is None else prepared(dataset, **plan.words)
        refuse_unusable(dataset, ("train", "val"))
        train, val = dataset.part("train"), dataset.part("val")
        check_target(train.targets, dataset.num_labels)
        _standardise(module.model, train)
        with TemporaryDirectory() as scratch:
            monitor, best = _train(module, train, val, options, Path(folder or scratch), progress)
    return Fitted(module.model, plan, options, dataset.label_names, monitor, best, module.history)


def make_run(dataset: Dataset, options: FitOptions) -> tuple[SetClassifier, ModelPlan]:
    """Model, loss and metrics of a run, before anything is read or trained.

    Raises:
        ValueError: in one sentence, for options that do not fit the data or each other.
    """
    if dataset.inputs.kind not in _KINDS:
        raise ValueError(f"`dataset` must have {', '.join(_KINDS)} as inputs; got {dataset.inputs.kind}.")
    if dataset.num_labels < 2:
        raise ValueError(f"`dataset` must have at least 2 labels; got {dataset.num_labels}.")
    refuse_missing(dataset, ("train", "val"))
    one_class = is_one_class(dataset)
    loss_name = options.loss if options.loss != "auto" else ("cross_entropy" if one_class else "bce")
    if loss_name in ONE_CLASS and not one_class:
        raise ValueError(f"`loss` {loss_name!r} is for one class per row; the rows have sets.")
    is_text = dataset.inputs.kind == "text"
    plan = ModelPlan(
        "sparse features" if is_text else dataset.inputs.kind,
        (options.words,) if is_text else row_shape(dataset),
        dataset.num_labels,
        loss_name,
        encoder=options.encoder,
        head=options.head,
        encoder_options=options.encoder_options,
        head_options=options.head_options,
        words={"num_features": options.words, "ngrams": 1} if is_text else None,
    )
    counts = dataset.label_counts("train")
    task = Task(dataset.num_labels, counts, len(dataset.part_rows("train")), options.k)
    model = build_model(plan)
    loss = make_loss(loss_name, task, options.loss_options)
    if getattr(loss, "reduction", "mean") not in ("mean", "sum"):
        raise ValueError(f"`loss_options` must have reduction 'mean' or 'sum'; got {loss.reduction!r}.")
    metrics = run_metrics(one_class=one_class, num_labels=dataset.num_labels, k=options.k)
    module = SetClassifier(model, loss, metrics, options, link=link_of(loss_name))
    _monitor(module, options)
    return module, plan


def _train(
    module: SetClassifier, train: Dataset, val: Dataset, options: FitOptions, folder: Path, progress: bool
) -> tuple[str, int]:
    monitor = _monitor(module, options)
    place = folder / "checkpoints"
    keep = _Best(place, "best", monitor=monitor, mode="max", enable_version_counter=False)
    # A second one, for the first writes only when the monitor improves; it comes last and so knows all states.
    every = ModelCheckpoint(place, "last", monitor=None, every_n_epochs=1, enable_version_counter=False)
    stop = [EarlyStopping(monitor, mode="max", patience=options.patience)] if options.patience else []
    trainer = Trainer(
        max_epochs=options.epochs,
        accelerator="cpu" if options.processes > 1 else "auto",
        devices=options.processes,
        strategy="ddp" if options.processes > 1 else "auto",
        precision=options.precision,
        callbacks=[*stop, keep, every],
        plugins=[WholeCheckpoints()],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    last = place / "last.ckpt"
    before = WholeCheckpoints().load_checkpoint(last) if last.is_file() else {}
    if before and before.get("asked") != module.asked:
        raise ValueError(f"`{folder}` holds a run of other data or options; choose another folder.")
    if before and (before["stopped"] or len(before["history"]) >= options.epochs):
        # Lightning would train one more epoch of a run that has ended early.
        module.history = before["history"]
    else:
        batches = SetBatches(train, val, batch_size=options.batch_size, seed=options.seed)
        trainer.fit(module, batches, ckpt_path=last if before else None)
    best = WholeCheckpoints().load_checkpoint(place / "best.ckpt")
    module.load_state_dict(best["state_dict"])
    module.model.eval()
    return monitor, int(best["epoch"])


def _monitor(module: SetClassifier, options: FitOptions) -> str:
    names = list(module.metrics)
    if "ranking" in names:
        ks = sorted(module.metrics["ranking"]._ks)  # pyright: ignore
        names = [f"{name}@{k}" for name in ("precision", "recall", "f1", "ndcg") for k in ks]
    default = names[-1] if names[-1].startswith("average") else f"recall@{max(int(n.split('@')[1]) for n in names)}"
    if options.monitor == "auto":
        return default
    if options.monitor not in names:
        raise ValueError(f"`monitor` must be one of {', '.join(names)}; got {options.monitor!r}.")
    return options.monitor


class _Best(ModelCheckpoint):
    """Knows its file by its name: Lightning forgets which epoch was best when a folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def here(path: str) -> str:
            return str(Path(self.dirpath or "") / Path(path).name) if path else path

        paths = {name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path")}
        scores = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **paths, "best_k_models": scores, "dirpath": self.dirpath})


def run_identity(dataset: Dataset, options: FitOptions) -> dict[str, Any]:
    """What tells a run from others, as plain values: its options, and a digest of labels, parts and the first inputs.

    The number of processes is left out, for it does not change what a run computes.
    """
    digest = blake2b(repr((dataset.inputs.kind, dataset.label_names)).encode(), digest_size=16)
    if dataset.split is not None:
        digest.update(repr(dataset.split.names).encode() + dataset.split.index.numpy().tobytes())
    for values in label_pairs(dataset.targets, dataset.num_labels):
        digest.update(values.numpy().tobytes())
    for content in dataset.inputs.fingerprints(torch.arange(min(len(dataset), 64))):
        digest.update(content)
    plain = {name: value for name, value in options.to_json().items() if name != "processes"}
    return {"options": plain, "data": digest.hexdigest(), "rows": len(dataset)}


def _standardise(model: SetModel, train: Dataset) -> None:
    """Measure mean and deviation of each feature on the training rows."""
    for module in model.modules():
        if isinstance(module, Standardised):
            mean, scale = _moments(train, module.out_features)
            fresh = Standardised(mean, scale)
            module.load_state_dict(fresh.state_dict())


def _moments(train: Dataset, size: int) -> tuple[Tensor, Tensor]:
    total, squares = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    shift: Tensor | None = None
    for rows in batches_of(len(train), 4096):
        values = as_floats(train.inputs.batch(rows), torch.float64).flatten(1)
        # Sums about the first row do not cancel where the mean is large against the deviation.
        shift = values[0] if shift is None else shift
        total += (values - shift).sum(0)
        squares += (values - shift).square().sum(0)
    mean = total / len(train)
    deviation = (squares / len(train) - mean.square()).clamp(min=0).sqrt()
    return (mean + (0 if shift is None else shift)).float(), deviation.float()


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning speaks of choices that are made on purpose: no workers, no logger, few batches."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        logger.setLevel(level)

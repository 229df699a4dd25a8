"""From a dataset to a trained model, in one call that can be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning import seed_everything
from torch import Tensor

from shortlist.data import Dataset, frozen_encoder
from shortlist.data.target_rows import label_pairs
from shortlist.nn import Task
from shortlist.recipes import loss_class, make_loss
from shortlist.targets import check_target
from shortlist.train.classifier import SetClassifier
from shortlist.train.encoders import Standardised, as_floats
from shortlist.train.identity import run_identity
from shortlist.train.model import SetModel
from shortlist.train.nodes import Place
from shortlist.train.options import FitOptions
from shortlist.train.plan import ModelPlan, build_model
from shortlist.train.prepared_inputs import prepared
from shortlist.train.scores import (
    batches_of,
    is_one_class,
    refuse_missing,
    refuse_unusable,
    row_shape,
    run_metrics,
)
from shortlist.train.starting_point import start_at_frequencies
from shortlist.train.training import Training, quiet

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
    dataset: Dataset,
    options: FitOptions | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool | Callable[[float], object] = False,
) -> Fitted:
    """Train a model on the part ``train``, watching the part ``val``.

    Args:
        dataset: features, sparse features, images or texts; with parts ``train`` and ``val``. With ``options.frozen``
            the features of all its rows are computed first, and kept in `shortlist.files.cache_folder`.
        options: how; by default those that suit most data.
        folder: where checkpoints are kept after every epoch. A run with the same folder goes on where the last one
            ended, and ends with the same numbers as one that was not interrupted; a folder of other data or options is
            refused. Several nodes must see one folder; the first one writes to it.
        resume: whether to refuse a folder in which no run has begun. What was done in the epoch that a run died in is
            done again, and that is all that is lost.
        progress: whether to show a bar; or what to call with the share of all steps that is done.

    Returns:
        The model of the best epoch, with what is needed to build it again.

    Raises:
        ValueError: in one sentence, for data or options that do not fit.
    """
    options = options or FitOptions()
    place = Place.here(options)
    if folder is None and (resume or not place.is_alone):
        raise ValueError(f"`folder` must be given {'with `resume`' if resume else 'with several nodes'}; got None.")
    asked = run_identity(dataset, options)
    with quiet():
        seed_everything(options.seed, verbose=False)
        module, plan = make_run(dataset, options)
        module.asked = asked
        dataset = prepared(dataset, plan, progress=progress is True)
        refuse_unusable(dataset, ("train", "val"))
        train, val = dataset.part("train"), dataset.part("val")
        check_target(train.targets, dataset.num_labels)
        _standardise(module.model, train)
        if options.start == "frequencies" or (options.start == "auto" and loss_class(plan.loss).starts_at_frequencies):
            start_at_frequencies(module.model.head, train.label_counts(), len(train))
        with TemporaryDirectory() as scratch:
            monitor = _monitor(module, options)
            training = Training(module, train, val, options, monitor, Path(folder or scratch), place)
            best = training.run(progress, resume=resume)
    return Fitted(module.model, plan, options, dataset.label_names, monitor, best, module.history)


def make_run(dataset: Dataset, options: FitOptions) -> tuple[SetClassifier, ModelPlan]:
    """Model, loss and metrics of a run, before anything is read or trained.

    Raises:
        ValueError: in one sentence, for options that do not fit the data or each other.
    """
    if dataset.inputs.kind not in _KINDS:
        raise ValueError(f"`dataset` must have {', '.join(_KINDS)} as inputs; got {dataset.inputs.kind}.")
    if options.augmentation and dataset.inputs.kind != "images":
        raise ValueError(f"`augmentation` {options.augmentation!r} needs images; got {dataset.inputs.kind}.")
    if dataset.num_labels < 2:
        raise ValueError(f"`dataset` must have at least 2 labels; got {dataset.num_labels}.")
    refuse_missing(dataset, ("train", "val"))
    one_class = is_one_class(dataset)
    chosen = loss_class(options.loss if options.loss != "auto" else ("cross_entropy" if one_class else "bce"))
    if chosen.one_class and not one_class:
        raise ValueError(f"`loss` {chosen.name!r} is for one class per row; the rows have sets.")
    plan = make_plan(dataset, options, loss=chosen.name)
    counts = dataset.label_counts("train")
    task = Task(dataset.num_labels, counts, len(dataset.part_rows("train")), options.k)
    model = build_model(plan)
    loss = make_loss(chosen.name, task, options.loss_options)
    if getattr(loss, "reduction", "mean") not in ("mean", "sum"):
        raise ValueError(f"`loss_options` must have reduction 'mean' or 'sum'; got {loss.reduction!r}.")
    metrics = run_metrics(one_class=one_class, num_labels=dataset.num_labels, k=options.k)
    module = SetClassifier(model, loss, metrics, options, link=chosen.link)
    _monitor(module, options)
    return module, plan


def make_plan(dataset: Dataset, options: FitOptions, *, loss: str) -> ModelPlan:
    """What is trained on a dataset: on its inputs, on the hashed words of its texts, or on frozen features.

    Raises:
        ValueError: in one sentence, if the frozen encoder takes other inputs.
    """
    kind, words, frozen = dataset.inputs.kind, None, None
    if options.frozen:
        encoder = frozen_encoder(options.frozen, options.frozen_options)
        if encoder.takes != kind:
            raise ValueError(f"`frozen` {options.frozen!r} takes {encoder.takes}; the dataset has {kind}.")
        about = {"encoder": options.frozen, "options": dict(options.frozen_options)}
        frozen = {**about, "takes": encoder.takes, "name": encoder.name}
        kind, shape = "features", (encoder.dim,)
    elif kind == "text":
        words = {"num_features": options.words, "ngrams": 1}
        kind, shape = "sparse features", (options.words,)
    else:
        words, shape = getattr(dataset.inputs, "words", None), row_shape(dataset)
    return ModelPlan(
        kind,
        shape,
        dataset.num_labels,
        loss,
        encoder=options.encoder,
        head=options.head,
        encoder_options=options.encoder_options,
        head_options=_head_options(dataset, options),
        words=words,
        frozen=frozen,
    )


def _head_options(dataset: Dataset, options: FitOptions) -> Mapping[str, Any]:
    """Those of the user; a DFT head that is not told otherwise can say every set as large as those in training."""
    if options.head != "dft" or "k" in options.head_options:
        return options.head_options
    rows, _, present = label_pairs(dataset.part("train").targets, dataset.num_labels)
    largest = int(torch.bincount(rows[present]).max())
    return {"k": min(largest, (dataset.num_labels - 1) // 2), **options.head_options}


def _monitor(module: SetClassifier, options: FitOptions) -> str:
    names = list(module.metrics)
    if "ranking" in names:
        ks = sorted(module.metrics["ranking"]._ks)  # pyright: ignore
        names = [f"{name}@{k}" for name in ("precision", "recall", "f1", "ndcg") for k in ks]
        default = f"recall@{min(ks, key=lambda size: abs(size - options.k))}"
    else:
        default = names[-1]
    if options.monitor == "auto":
        return default
    if options.monitor not in names:
        raise ValueError(f"`monitor` must be one of {', '.join(names)}; got {options.monitor!r}.")
    return options.monitor


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

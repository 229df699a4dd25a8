"""The Lightning module: a model with its loss, validation metrics, optimizer and learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from shortlist.data import Batch
from shortlist.errors import InputError
from shortlist.fit_options import SettledOptions
from shortlist.nn import ClusterHead
from shortlist.sets.scores import Link
from shortlist.train.distributed.global_batch import batch_loss
from shortlist.train.distributed.sharding import broadcast_buffers, shard
from shortlist.train.evaluation import metric_values, update_metrics
from shortlist.train.inputs import crop_flip
from shortlist.train.label_clusters import candidate_loss
from shortlist.train.lazy_adamw import LazyAdamW
from shortlist.train.model.plan import SetModel
from shortlist.train.model.sparse_layers import has_sparse_layers, use_sparse_gradients


class DivergedError(InputError):
    """The loss is not finite, so no step can be taken; another learning rate may help."""


class SetClassifier(LightningModule):
    """Trains a `SetModel`.

    The random draws of a step (dropout, noise, augmentation) are a function of seed and step alone, so an interrupted
    run continues as if it had not been interrupted.

    Args:
        model: encoder and head.
        loss: a loss of :mod:`shortlist.nn`, or any module that takes the outputs of the head and the labels.
        metrics: by name, for the validation rows.
        options: of the run.
        link: maps logits to scores that are comparable between rows, ``softmax`` or ``sigmoid``.
    """

    def __init__(
        self, model: SetModel, loss: nn.Module, metrics: dict[str, Metric], options: SettledOptions, *, link: Link
    ) -> None:
        super().__init__()
        self.model, self.loss, self.options = model, loss, options
        self.link: Link = link
        # A list, because names of modules must not contain a dot, as in average2.5_accuracy.
        self.metric_names, self._metrics = tuple(metrics), nn.ModuleList(metrics.values())
        self.fingerprint: dict[str, Any] = {}
        self.history: list[dict[str, float]] = []
        self._train_loss = torch.zeros(2, dtype=torch.float64)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name."""
        return dict(zip(self.metric_names, self._metrics, strict=True))  # pyright: ignore[reportReturnType]

    def forward(self, inputs: Any) -> Tensor:
        """Return the logits for prediction."""
        return self.model(inputs)

    def configure_model(self) -> None:
        """Keep this process's shard of the parameters, if the strategy shards them; else use sparse gradients."""
        if self.device_mesh is not None:
            shard(self.model, self.loss, self.device_mesh["data_parallel"])
        elif self.options.optimizer == "adamw" and self.options.precision != "16-mixed":
            # Other optimizers update all rows, and so do sharded parameters and gradients that are scaled.
            use_sparse_gradients(self.model)

    def on_train_start(self) -> None:
        """Check that all processes continue from the same epoch: each reads the checkpoint itself."""
        if self.trainer.world_size == 1:
            return
        epochs = torch.tensor([self.current_epoch, -self.current_epoch], device=self.device)
        dist.all_reduce(epochs, dist.ReduceOp.MAX)
        last, first = int(epochs[0]), -int(epochs[1])
        if first != last:
            raise InputError(f"processes find checkpoints of epochs {first} and {last}: all nodes must see one folder.")

    def on_validation_start(self) -> None:
        """Validate one model: DDP broadcasts buffers to all processes, sharded training does not."""
        for optimizer in self.trainer.optimizers:
            if isinstance(optimizer, LazyAdamW):
                optimizer.catch_up()
        if self.device_mesh is not None:
            broadcast_buffers(self.model)

    def on_train_epoch_start(self) -> None:
        """Reset the mean of the training loss."""
        self._train_loss.zero_()

    def on_train_batch_start(self, batch: Batch, index: int) -> None:
        """Seed the generator for this step and process; loaders and hooks may have drawn from it."""
        step = self.current_epoch * 1_000_003 + index
        seed = ((self.options.seed * 1_000_003 + step) * 1024 + self.global_rank) % 2**63
        # `torch.manual_seed` also seeds every kind of device that is not there, which takes longer than a small step.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """Return the loss of a batch; raise DivergedError if it is not finite."""
        inputs = crop_flip(batch.inputs) if self.options.augmentation else batch.inputs
        head = self.model.head
        outputs = (self.model.encoder(inputs),) if isinstance(head, ClusterHead) else self.model.outputs(inputs)
        # Networks may use half precision; losses may not, because their gradients are differences of similar numbers.
        outputs = tuple(each.float() if each.dtype in (torch.float16, torch.bfloat16) else each for each in outputs)
        with torch.autocast(self.device.type, enabled=False):
            if isinstance(head, ClusterHead):
                loss = candidate_loss(self.loss, head, outputs[0], batch.targets)
            else:
                loss = batch_loss(self.loss, outputs, batch.targets, batch.rows)
        if not torch.isfinite(loss):
            raise DivergedError(f"the loss is {loss.item()} in epoch {self.current_epoch}, batch {index}.")
        rows = torch.tensor(len(batch.rows), device=self.device)
        if self.trainer.world_size > 1:
            dist.all_reduce(rows)  # The loss is that of the global batch, and so is its weight in the mean.
        self._train_loss += torch.tensor([float(loss.detach()) * int(rows), int(rows)])
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        """Update the metrics."""
        head, target = self.model.head, batch.targets
        if isinstance(head, ClusterHead):
            logits, target = head.candidates(self.model.encoder(batch.inputs)).renumbered(target)
        else:
            logits = self.model(batch.inputs)
        update_metrics(self.metrics, logits.float(), target, link=self.link)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics, which early stopping and the choice of the best epoch use."""
        if self.trainer.sanity_checking:
            return
        values = metric_values(self.metrics)
        for metric in self.metrics.values():
            metric.reset()
        self.log_dict({name: torch.tensor(value) for name, value in values.items()}, prog_bar=True, sync_dist=False)
        total, rows = self._train_loss.tolist()
        self.history.append({"epoch": float(self.current_epoch), "train_loss": total / max(rows, 1), **values})

    def configure_optimizers(self) -> Any:
        """Return AdamW or SGD with the schedule of `rate_factor`."""
        options = self.options
        parameters = [p for p in (*self.model.parameters(), *self.loss.parameters()) if p.requires_grad]
        # Fused kernels take no sharded parameters in SGD, and no mixture of sharded and other ones in AdamW.
        mixed = options.optimizer == "sgd" or len({type(p) for p in parameters}) > 1
        unfused = self.device_mesh is not None and mixed
        kernel: dict[str, Any] = {"foreach": False} if unfused else {"fused": True}
        # Averaged over rows and labels, the gradients of rare words are often below AdamW's usual 1e-8.
        eps = 1e-13 if has_sparse_layers(self.model) else 1e-8
        optimizer = (
            LazyAdamW(parameters, lr=options.learning_rate, weight_decay=options.weight_decay, eps=eps, **kernel)
            if options.optimizer == "adamw"
            else torch.optim.SGD(
                parameters,
                options.learning_rate,
                momentum=0.9,
                weight_decay=options.weight_decay,
                nesterov=True,
                **kernel,
            )
        )
        steps = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: rate_factor(step, steps, milestones=options.milestones)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the history, the fingerprint of the run, and whether it has stopped early."""
        checkpoint["history"] = self.history
        checkpoint["asked"] = self.fingerprint
        checkpoint["stopped"] = bool(self.trainer.should_stop)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the history."""
        self.history = checkpoint["history"]


def rate_factor(step: int, steps: int, *, milestones: Sequence[float] = ()) -> float:
    """Return the factor of the highest learning rate at a step, a function of the step alone.

    Args:
        step: from 0.
        steps: of the whole run.
        milestones: fractions of the steps at which the rate is divided by ten. Without any, it warms up for a twentieth
            of the steps and then follows a cosine to 0.

    Example:
        >>> [rate_factor(step, 8, milestones=(0.5, 0.75)) for step in range(8)]
        [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    if milestones:
        # Rounded, because the product may lie slightly above the intended step.
        return 10.0 ** -sum(step >= round(fraction * steps) for fraction in milestones)
    warmup = max(steps // 20, 1)
    return min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0))))

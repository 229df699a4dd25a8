"""The Lightning module: a model, its loss, the metrics that are watched, and a learning rate that falls."""

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
from shortlist.train.augmentation import crop_flip
from shortlist.train.global_batch import batch_loss
from shortlist.train.model import SetModel
from shortlist.train.options import FitOptions
from shortlist.train.scores import metric_values, update_metrics


class DivergedError(ValueError):
    """A loss that is no finite number, so that no step can be taken."""


class SetClassifier(LightningModule):
    """Trains a `SetModel`.

    The chance of a step (dropout, noise, augmentation) is a function of the seed and the step alone, so that a run that
    was interrupted goes on as if it had not been.

    Args:
        model: encoder and head.
        loss: a loss of :mod:`shortlist.nn`, or any module that takes what the head gives and the labels.
        metrics: by name, for the validation rows.
        options: rates and numbers.
        link: how logits become scores that compare rows, ``softmax`` or ``sigmoid``.
    """

    def __init__(
        self, model: SetModel, loss: nn.Module, metrics: dict[str, Metric], options: FitOptions, *, link: str
    ) -> None:
        super().__init__()
        self.model, self.loss, self.options, self.link = model, loss, options, link
        # A list, for names may hold a point, as in average2.5_accuracy, and names of modules must not.
        self.metric_names, self._metrics = tuple(metrics), nn.ModuleList(metrics.values())
        self.asked: dict[str, Any] = {}
        self.history: list[dict[str, float]] = []
        self._train_loss = torch.zeros(2, dtype=torch.float64)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name."""
        return dict(zip(self.metric_names, self._metrics, strict=True))  # pyright: ignore[reportReturnType]

    def forward(self, inputs: Any) -> Tensor:
        """The logits that predict."""
        return self.model(inputs)

    def configure_model(self) -> None:
        """Leave to this process its part of the parameters, if the strategy shares them out."""
        if self.device_mesh is not None:
            from shortlist.train.sharding import shard

            shard(self.model, self.loss, self.device_mesh["data_parallel"])

    def on_train_start(self) -> None:
        """Refuse processes that go on from different epochs: each reads the checkpoint itself."""
        if self.trainer.world_size == 1:
            return
        epochs = torch.tensor([self.current_epoch, -self.current_epoch], device=self.device)
        dist.all_reduce(epochs, dist.ReduceOp.MAX)
        last, first = int(epochs[0]), -int(epochs[1])
        if first != last:
            raise ValueError(f"processes find checkpoints of epochs {first} and {last}: all nodes must see one folder.")

    def on_validation_start(self) -> None:
        """Measure one model: DDP gives buffers to all processes, and sharded training does not."""
        if self.device_mesh is not None:
            from shortlist.train.sharding import share_buffers

            share_buffers(self.model)

    def on_train_epoch_start(self) -> None:
        """Start the mean of the training loss anew."""
        self._train_loss.zero_()

    def on_train_batch_start(self, batch: Batch, index: int) -> None:
        """Set the chance of this step and of this process; loaders and hooks before it may have drawn any number."""
        step = self.current_epoch * 1_000_003 + index
        torch.manual_seed(((self.options.seed * 1_000_003 + step) * 1024 + self.global_rank) % 2**63)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """The loss of a batch; DivergedError names the batch where it is not finite."""
        inputs = crop_flip(batch.inputs) if self.options.augmentation else batch.inputs
        outputs = self.model.outputs(inputs)
        # Networks may compute in half precision; a loss, whose gradient is a difference of like numbers, may not.
        outputs = tuple(each.float() if each.dtype in (torch.float16, torch.bfloat16) else each for each in outputs)
        with torch.autocast(self.device.type, enabled=False):
            loss = batch_loss(self.loss, outputs, batch.targets, batch.rows)
        if not torch.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss.item()} in epoch {self.current_epoch}, batch {index}: no finite step."
            )
        rows = torch.tensor(len(batch.rows), device=self.device)
        if self.trainer.world_size > 1:
            dist.all_reduce(rows)  # The loss is that of the global batch, and so is its weight.
        self._train_loss += torch.tensor([float(loss.detach()) * int(rows), int(rows)])
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        """Show a batch to the metrics."""
        logits = self.model(batch.inputs).float()
        update_metrics(self.metrics, logits, batch.targets, link=self.link)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics, by which the run stops and chooses its best epoch."""
        if self.trainer.sanity_checking:
            return
        values = metric_values(self.metrics)
        for metric in self.metrics.values():
            metric.reset()
        self.log_dict({name: torch.tensor(value) for name, value in values.items()}, prog_bar=True, sync_dist=False)
        total, rows = self._train_loss.tolist()
        self.history.append({"epoch": float(self.current_epoch), "train_loss": total / max(rows, 1), **values})

    def configure_optimizers(self) -> Any:
        """AdamW or SGD, with the rates of `rate_share`."""
        options = self.options
        parameters = [p for p in (*self.model.parameters(), *self.loss.parameters()) if p.requires_grad]
        # Parameters that are cut: SGD has no kernel for all of them, and AdamW's takes no whole ones among them.
        cut = self.device_mesh is not None and (options.optimizer == "sgd" or len({type(p) for p in parameters}) > 1)
        kernel: dict[str, Any] = {"foreach": False} if cut else {"fused": True}
        optimizer = (
            torch.optim.AdamW(parameters, lr=options.learning_rate, weight_decay=options.weight_decay, **kernel)
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

        def rate(step: int) -> float:
            return rate_share(step, steps, milestones=options.milestones)

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what was measured so far, what was asked for, and whether the run has ended early."""
        checkpoint["history"] = self.history
        checkpoint["asked"] = self.asked
        checkpoint["stopped"] = bool(self.trainer.should_stop)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with it."""
        self.history = checkpoint["history"]


def rate_share(step: int, steps: int, *, milestones: Sequence[float] = ()) -> float:
    """The share of the highest rate that a step takes; it depends on nothing before the step, so that runs can go on.

    Args:
        step: from 0.
        steps: of the whole run.
        milestones: shares of the steps at which the rate is divided by ten. Without any it rises for a twentieth of the
            steps and falls to nothing as a cosine.

    Example:
        >>> [rate_share(step, 8, milestones=(0.5, 0.75)) for step in range(8)]
        [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    if milestones:
        # Rounded, for the product may come out a little above the step that is meant.
        return 10.0 ** -sum(step >= round(share * steps) for share in milestones)
    rise = max(steps // 20, 1)
    return min((step + 1) / rise, 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0))))

"""A LightningModule with a loss of shortlist, its metric, and the rule fitted after training."""

import logging
import warnings

import torch
from lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from shortlist.data import MultiLabelWorld
from shortlist.metrics import RankingMetrics
from shortlist.nn import TwoWay
from shortlist.sets import RecallControl
from shortlist.targets import to_multi_hot


class Tagger(LightningModule):
    """A linear model of tags."""

    def __init__(self, features: int, labels: int) -> None:
        super().__init__()
        self.layer, self.loss, self.metric = torch.nn.Linear(features, labels), TwoWay(), RankingMetrics((3,))

    def training_step(self, batch, _):
        x, y = batch
        return self.loss(self.layer(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.metric.update(self.layer(x), y)

    def on_validation_epoch_end(self):
        self.log_dict(self.metric.compute())
        self.metric.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def tensors(part):
    return part.inputs.batch(torch.arange(len(part))), to_multi_hot(part.targets, part.num_labels)


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")
torch.manual_seed(0)
data = MultiLabelWorld().sample(2000, seed=0)
train, val, test = (tensors(data.part(name)) for name in ("train", "val", "test"))
model = Tagger(train[0].shape[1], data.num_labels)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = Trainer(max_epochs=5, accelerator="cpu", **quiet)
trainer.fit(model, DataLoader(TensorDataset(*train), 64, shuffle=True), DataLoader(TensorDataset(*val), 1024))

with torch.no_grad():
    rule = RecallControl(0.1).fit(model.layer(val[0]), val[1], from_logits=True)
    sets = rule.predict(model.layer(test[0]))
found = sets.count_hits(test[1]).sum() / test[1].sum()
print(f"recall at 3: {float(trainer.callback_metrics['recall@3']):.2f}")
print(f"sets of {sets.sizes.float().mean():.1f} tags find {found:.0%} of the true ones; 90% were asked for")

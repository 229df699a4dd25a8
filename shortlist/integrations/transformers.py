"""Hugging Face: losses, metrics and a set rule for ``Trainer``, and models on the Hub together with their rule."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from shortlist.extras import import_failure

try:
    import transformers
except Exception as error:
    raise import_failure("transformers", error, extra="hf") from error

from huggingface_hub import ModelCard, PyTorchModelHubMixin, snapshot_download

from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.factory import loss_class
from shortlist.integrations.heads import use_head
from shortlist.nn import Loss
from shortlist.sets import PredictionSets, load_rule
from shortlist.sets.rule import SetRule
from shortlist.sets.scores import Link
from shortlist.train import Fitted, SavedModel, load_model, save_model
from shortlist.train.card.folder import CARD
from shortlist.train.card.page import rule_text
from shortlist.train.evaluation import metric_values, update_metrics, watched_metrics

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HubModel", "RuleHubMixin", "SetRuleCallback", "compute_metrics", "trainer_loss", "use_head"]

_RULE = "rule.json"
_CARD_LINE = "<!-- Written with the model; delete this line to keep this card as it is. -->"
_IGNORED = -100


class trainer_loss:  # noqa: N801
    """A loss for ``Trainer(compute_loss_func=...)``.

    With gradient accumulation, and on several devices, the loss of a step is that of all its rows: each part counts
    with its share of ``num_items_in_batch``, the number of labels of the whole step. That is exact for losses that are
    a mean over rows; of losses that couple rows, such as `two_way`, it is the mean over the parts. ``Trainer`` counts
    entries, not rows, so index lists must be padded to one width in all parts; multi-hots have one width anyway.

    Args:
        loss: a loss of :mod:`shortlist.nn`, or its name.
        options: of the loss, if it is given by name.

    Raises:
        InputError: for an unknown name.
        ValueError: for losses that need two heads or the index of each row, which ``Trainer`` does not have; and, when
            called, for parts of a step whose index lists have different widths.

    Example:
        >>> loss = trainer_loss("lml_nll", k=2)
        >>> loss({"logits": torch.tensor([[2.0, 1.0, 0.0]])}, torch.tensor([[0, -1]]))
        tensor(0.1526)
    """

    def __init__(self, loss: str | Loss, **options: Any) -> None:
        self.loss = loss_class(loss)(**options) if isinstance(loss, str) else loss
        if isinstance(loss, Loss) and options:
            raise ValueError(f"`options` must be empty for a loss that is built already; got {sorted(options)}.")
        if self.loss.num_heads > 1 or self.loss.needs_examples or self.loss.reduction != "mean":
            raise ValueError(f"`loss` must be a mean over rows of one head's logits; {self.loss.name!r} is not.")
        self._width: int | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of a batch, which may be a part of a step."""
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        # Losses take half precision, but the mean of several parts is better taken in float32.
        value = self.loss.to(logits.device)(logits.float(), labels)
        if num_items_in_batch is None:
            return value
        counted = (labels != _IGNORED).sum()
        if labels.ndim == 2 and labels.dtype == torch.int64 and bool(counted != num_items_in_batch):
            self._check_width(labels.shape[1])
        return value * (counted / num_items_in_batch)

    def _check_width(self, width: int) -> None:
        """Refuse parts of a step that would count by the width of their lists."""
        if self._width not in (None, width):
            raise ValueError(
                "`labels` must be index lists of one width in all parts of a step, because Trainer counts entries and "
                f"not rows; got width {width} after {self._width}: pad all lists alike, or convert them with "
                "`targets.to_multi_hot`."
            )
        self._width = width


def compute_metrics(k: float = 3, *, link: Link | None = None) -> Callable[[Any], dict[str, float]]:
    """Metrics for ``Trainer(compute_metrics=...)``, those that ``shortlist fit`` monitors.

    For one class per row: top-1, top-k and average-k accuracy; for sets precision, recall, F1 and nDCG.

    Args:
        k: the (average) size of a set.
        link: how logits become scores that are comparable between rows; None for softmax with one class per row, and
            sigmoid with sets.

    Example:
        >>> import numpy as np
        >>> from transformers import EvalPrediction
        >>> measured = EvalPrediction(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 3.0]]), np.array([0, 1]))
        >>> compute_metrics(k=2)(measured)
        {'top1_accuracy': 0.5, 'top2_accuracy': 1.0, 'average2_accuracy': 1.0}
    """

    def measured(prediction: Any) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        logits = torch.from_numpy(np.asarray(logits[0] if isinstance(logits, tuple) else logits)).float()
        target = torch.from_numpy(np.asarray(labels))
        one_class = target.ndim == 1
        metrics = watched_metrics(one_class=one_class, num_labels=logits.shape[-1], k=k)
        update_metrics(metrics, logits, target, link=link or ("softmax" if one_class else "sigmoid"))
        return metric_values(metrics)

    return measured


class SetRuleCallback(transformers.TrainerCallback):
    """Fits a set rule when ``Trainer`` has trained, and saves it as ``rule.json`` beside the model.

    The rule is fitted with the parameters that training ends with, the best ones if ``load_best_model_at_end``. Every
    process reads all rows, so the rule does not depend on their number. ``push_to_hub`` uploads the file.

    Args:
        rule: an unfitted rule of :mod:`shortlist.sets`.
        dataset: rows like those of ``eval_dataset``, not used for training; None for ``eval_dataset`` itself, if it
            was evaluated at least once.

    Attributes:
        rule: fitted after training.
    """

    def __init__(self, rule: SetRule, dataset: Any = None) -> None:
        self.rule, self.dataset = copy.deepcopy(rule), dataset

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Fit and save."""
        loader: Any = objects.get("eval_dataloader")
        model = objects["model"]
        if self.dataset is None and loader is None:
            raise ValueError("`dataset` must be given if nothing was evaluated during training.")
        dataset = loader.dataset if self.dataset is None else self.dataset
        collate = transformers.default_data_collator if loader is None else loader.collate_fn
        batches = DataLoader(dataset, batch_size=args.per_device_eval_batch_size, collate_fn=collate)
        self.rule.reset()
        for logits, labels in _evaluated(model, batches, columns=_label_free(model)):
            self.rule.partial_fit(logits, labels, from_logits=True)
        self.rule.finish()
        if state.is_world_process_zero:
            self.rule.save(Path(args.output_dir) / _RULE)


def _label_free(model: nn.Module) -> set[str] | None:
    """The columns that a model takes, other than labels; None for all, if it only hands them on."""
    parameters = inspect.signature(model.forward).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) and "labels" not in parameters:
        return None
    return set(parameters) - {"labels"}


@torch.no_grad()
def _evaluated(
    model: nn.Module, batches: Iterable[Mapping[str, Any]], *, columns: set[str] | None
) -> Iterable[tuple[Tensor, Tensor]]:
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        for batch in batches:
            given = {
                name: value.to(device)
                for name, value in batch.items()
                if name != "labels" and (columns is None or name in columns)
            }
            outputs = model(**given)
            logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
            yield logits.float().cpu(), batch["labels"].cpu()
    finally:
        model.train(was_training)


class RuleHubMixin(PyTorchModelHubMixin):
    """``PyTorchModelHubMixin`` for models that answer with sets: ``rule.json`` is saved, pushed and loaded with them.

    Mix it into a module whose constructor takes plain values, as the mixin of Hugging Face asks.

    Example:
        >>> from tempfile import mkdtemp
        >>> from shortlist.sets import AverageK
        >>> class Plants(torch.nn.Module, RuleHubMixin):
        ...     def __init__(self, features: int = 4, labels: int = 6):
        ...         super().__init__()
        ...         self.layer = torch.nn.Linear(features, labels)
        ...
        ...     def forward(self, x):
        ...         return self.layer(x)
        >>> model = Plants()
        >>> model = model.use_rule(AverageK(2).fit(model(torch.randn(50, 4)).detach(), from_logits=True))
        >>> folder = mkdtemp()
        >>> model.save_pretrained(folder)
        >>> again = Plants.from_pretrained(folder)
        >>> x = torch.randn(3, 4)
        >>> again.rule.predict(again(x)) == model.rule.predict(model(x))
        True
    """

    @property
    def rule(self) -> SetRule | None:
        """The rule, or None."""
        return self.__dict__.get("_rule")

    def use_rule(self, rule: SetRule | None) -> Self:
        """Attach a fitted rule; not as a submodule, because it is saved in a file of its own."""
        self.__dict__["_rule"] = rule
        return self

    def _save_pretrained(self, save_directory: Path) -> None:
        super()._save_pretrained(save_directory)
        if self.rule is not None:
            self.rule.save(Path(save_directory) / _RULE)
        else:
            (Path(save_directory) / _RULE).unlink(missing_ok=True)
        card = Path(save_directory) / CARD
        if card.is_file() and _CARD_LINE in card.read_text(encoding="utf-8", errors="replace"):
            card.unlink()  # Of a former rule; the mixin writes a card if there is none.

    def generate_model_card(self, *arguments: Any, **options: Any) -> ModelCard:
        """The card of the mixin, with a section about the rule."""
        card = super().generate_model_card(*arguments, **options)
        about = "The model has no set rule." if self.rule is None else rule_text(self.rule.document())
        return ModelCard(f"{str(card).rstrip()}\n\n## Set rule\n\n{about}\n\n{_CARD_LINE}\n")

    @classmethod
    def _from_pretrained(cls, *, model_id: str, map_location: str = "cpu", strict: bool = True, **options: Any) -> Self:
        folder, arguments = _folder(model_id, options)
        model = cls(**arguments)
        # Never the pickled form that the mixin would fall back to.
        weights = folder / "model.safetensors"
        if not weights.is_file():
            raise InputError(f"`{weights}` does not exist.")
        model = cls._load_as_safetensor(model, str(weights), map_location, strict)
        if (folder / _RULE).is_file():
            model.use_rule(load_rule(folder / _RULE))
        return model


def _folder(model_id: str, options: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder of a model, downloaded if it is not one; and what is left of the options."""
    download = ("revision", "cache_dir", "force_download", "local_files_only", "token")
    chosen = {name: options.pop(name) for name in download if name in options}
    if Path(model_id).is_dir():
        return Path(model_id), options
    return Path(snapshot_download(model_id, **chosen, allow_patterns=["*.json", "*.safetensors"])), options


class HubModel(nn.Module, RuleHubMixin):
    """A model of `shortlist.train` with its rule, on the Hugging Face Hub or in a folder.

    The files are those of `shortlist.train.save_model`, so ``shortlist predict FOLDER`` reads them, too.

    Args:
        fitted: of `shortlist.train.fit`, or of `shortlist.train.load_model`.
        rule: a fitted rule; None for that of a loaded model.

    Example:
        >>> from tempfile import mkdtemp
        >>> from shortlist.data import AmbiguousWorld
        >>> from shortlist.train import FitOptions, evaluate, fit
        >>> data = AmbiguousWorld().sample(500, seed=0)
        >>> fitted = fit(data, FitOptions(epochs=1))
        >>> folder = mkdtemp()
        >>> HubModel(fitted, evaluate(fitted, data).rule).save_pretrained(folder)  # or push_to_hub("me/plants")
        >>> len(HubModel.from_pretrained(folder).predict_sets(data.part("test")))
        100
    """

    def __init__(self, fitted: Fitted | SavedModel, rule: SetRule | None = None) -> None:
        super().__init__()
        self.fitted, self.model = fitted, fitted.model
        # The mixin would write the arguments as its config.json; what rebuilds the model is in model.json.
        self._hub_mixin_config = {"format": "shortlist model"}
        self.use_rule(fitted.rule if rule is None and isinstance(fitted, SavedModel) else rule)

    def forward(self, inputs: Any) -> Tensor:
        """Return the logits of a batch."""
        return self.model(inputs)

    def predict_sets(self, dataset: Dataset) -> PredictionSets:
        """Predict the set of every row; text and images become features as in training."""
        if self.rule is None:
            raise ValueError("`rule` must be given to predict sets; the model has none.")
        fitted = self.fitted
        calibrator = fitted.calibrator if isinstance(fitted, SavedModel) else None
        saved = SavedModel(fitted.model, fitted.plan, fitted.label_names, self.rule, {}, calibrator)
        return self.rule.predict(saved.scores(dataset), names=fitted.label_names)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(self.fitted, save_directory, rule=self.rule)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        folder, _ = _folder(model_id, options)
        return cls(load_model(folder))

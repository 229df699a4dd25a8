"""The options of a training run, and the recipes from which those come that are not given."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, get_args

from shortlist.errors import InputError

Optimizer = Literal["adamw", "sgd"]
RecipeName = Literal["adamw", "paper"]
Keep = Literal["best", "last"]
Start = Literal["auto", "frequencies", "drawn"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
Strategy = Literal["ddp", "fsdp"]
TextFeatures = Literal["tfidf", "hashed"]


_LEAST_BATCH = 16


@dataclass(frozen=True)
class Recipe:
    """Values for the options of a run that are not given.

    Args:
        defaults: values by option, the same options in every recipe.
        decays: the weight decays that tuning tries, that of ``defaults`` first.
        by_kind: values that suit one kind of inputs, or the encoders of Hugging Face, better; they take
            precedence over ``defaults``.
        steps: how many steps an epoch of few rows has at least: batches are smaller there, of powers of two down to 16.
    """

    defaults: Mapping[str, Any]
    decays: tuple[float, ...]
    by_kind: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 1

    def batch_size(self, default: int, rows: int) -> int:
        """Return the batch size for a number of training rows.

        Example:
            >>> recipe = RECIPES["adamw"]
            >>> [recipe.batch_size(128, rows) for rows in (100_000, 1_000, 300, 20)]
            [128, 64, 32, 16]
        """
        return default if self.steps == 1 else min(default, max(_LEAST_BATCH, 2 ** int(math.log2(rows / self.steps))))


RECIPES: dict[RecipeName, Recipe] = {
    "adamw": Recipe(
        {
            "epochs": 20,
            "batch_size": 128,
            "optimizer": "adamw",
            "learning_rate": 1e-3,
            "milestones": (),
            "weight_decay": 1e-4,
            "patience": 5,
            "keep": "best",
        },
        decays=(1e-4, 1e-1),
        # The vectors of words are rarely used, so each use must count; a few epochs are enough, and more overfit.
        by_kind={
            "text": {"epochs": 4, "batch_size": 256, "learning_rate": 5e-3},
            "sparse features": {"epochs": 5, "learning_rate": 5e-3},
            # A pretrained transformer forgets what it knows at higher rates.
            "hf encoders": {"epochs": 3, "batch_size": 32, "learning_rate": 5e-5},
        },
        # Of 265 rows, batches of 32 instead of 128 raise precision by four points (medical, held-out rows of train).
        steps=8,
    ),
    # Networks that memorize their training rows, as in the papers on top-k and average-K losses.
    "paper": Recipe(
        {
            "epochs": 20,
            "batch_size": 64,
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "milestones": (0.5, 0.75),
            "weight_decay": 1e-4,
            "patience": 0,
            "keep": "last",
        },
        decays=(1e-4, 1e-3),
    ),
}
"""``adamw`` generalizes well by default; ``paper`` trains to the end, as the papers do."""


TRIALS = 12
"""How many pairs of learning rate and weight decay tuning tries by default: six rates with each of two decays."""


@dataclass(frozen=True)
class FitOptions:
    """Options of a run. Those that are None are settled by the recipe, see `settled`.

    Args:
        recipe: where the values of epochs, batch_size, optimizer, learning_rate, milestones, weight_decay, patience
            and keep come from, unless they are given: ``adamw`` (warm-up and cosine, stops early, keeps the best
            epoch), or ``paper`` (SGD with Nesterov momentum and a high rate that is divided by ten at milestones, no
            early stopping, keeps the last epoch), the setting for which losses for top-k and average-K were proposed.
        loss: cross_entropy, lml_nll, average_k, two_way, bce, ... (``shortlist losses`` lists all); ``auto`` is
            cross_entropy for one class per row, and bce for sets.
        k: the (average) size of a prediction set; used by losses and metrics.
        encoder: linear, mlp, bag, cnn, densenet, ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME`` (a
            folder or a name on the Hugging Face Hub, for text or images); ``auto`` depends on the inputs.
            Networks of other libraries take the options weights (a file, or DEFAULT to download them; without it
            parameters are initialized at random) and resolution.
        head: linear, cosine, bottleneck, dft, clusters; ``auto`` depends on the loss. A DFT head takes the largest
            training set as its k by default, and 50 learned columns (``slack``) on top of its fixed ones, as wide as a
            bottleneck. Clusters are for 50,000 labels and more: only the labels of a row's best ``beam`` clusters of up
            to ``cluster_size`` labels are scored.
        frozen: an encoder that is not trained: minilm for text, efficientnet-lite0, ``torchvision:NAME`` or
            ``timm:NAME`` for images. Its features are computed once and cached on disk; ``encoder`` is trained on them.
            Empty for none.
        loss_options: keyword arguments of the loss.
        encoder_options: keyword arguments of the encoder.
        head_options: keyword arguments of the head.
        frozen_options: keyword arguments of the frozen encoder; those of other libraries need weights.
        epochs: the maximum number of epochs.
        batch_size: rows per step, over all processes; by default 128 (256 for text with fewer than 2,000 labels), fewer
            if an epoch would have fewer than eight steps.
        learning_rate: the highest learning rate.
        milestones: ascending fractions of all epochs at which the learning rate is divided by ten: 0.5 and 0.75 are
            epochs 150 and 225 of 300. Without any, the rate warms up for a twentieth of the steps and then follows a
            cosine to 0.
        weight_decay: the weight decay of the optimizer.
        optimizer: ``adamw``, or ``sgd`` with Nesterov momentum.
        augmentation: ``crop-flip`` for images: in every epoch each training image is shifted by up to 4 pixels,
            padded with black, and mirrored with probability 1/2. Empty for none.
        start: ``frequencies`` initializes the logits to the label frequencies, ``drawn`` initializes parameters at
            random; ``auto`` is the former unless the loss never pushes down a label that ranks first in every row.
        monitor: the metric for early stopping and for choosing the best epoch; ``auto`` is the average-k accuracy, or
            recall at k for sets. For sets also ``map``, the mean average precision over labels.
        patience: how many epochs to wait for a better value; 0 never stops early.
        keep: the epoch whose model is kept: the ``best`` by the monitored metric, or the ``last``.
        precision: ``32-true``, ``bf16-mixed`` or ``16-mixed``, as in Lightning: whether the network computes in half
            precision (on a CPU both mean bfloat16). Losses, parameters and saved models are float32.
        processes: how many processes on this machine share a step, each with its part of the batch; the result is that
            of one process except for random draws such as dropout. They use GPUs if there are enough, else CPUs. A
            script must guard its entry point with ``if __name__ == "__main__"``.
        nodes: how many machines share a step. Start the same command on each, with MASTER_ADDR and MASTER_PORT (the
            address of the first machine and a free port there) and NODE_RANK (0, 1, ...) in its environment; each
            starts ``processes``. All must see the same folder. Under ``torchrun``, which starts the processes itself,
            leave out both numbers.
        strategy: what each of several processes stores: ``ddp`` all parameters, ``fsdp`` its shard of parameters,
            gradients and optimizer states. The result is the same.
        seed: seed for parameters, order, dropout, noise and augmentation.
        text: how text becomes sparse features: ``tfidf``, the TF-IDF of n-grams of words and characters, fitted on the
            training rows and saved with the model, or ``hashed`` words.
        text_options: of tfidf ngrams (consecutive words, 2 by default), characters (the shortest and the longest n-gram
            within words; by default 3 and 5 if texts have up to 30 words on average, else empty for none),
            num_features (100,000 of either) and min_count (2); of hashed num_features (65,536) and ngrams (1).
        words: deprecated; the number of columns of hashed text.
    """

    recipe: RecipeName = "adamw"
    loss: str = "auto"
    k: float = 3
    encoder: str = "auto"
    head: str = "auto"
    frozen: str = ""
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    head_options: Mapping[str, Any] = field(default_factory=dict)
    frozen_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    milestones: tuple[float, ...] | None = None
    weight_decay: float | None = None
    optimizer: Optimizer | None = None
    augmentation: Literal["", "crop-flip"] = ""
    start: Start = "auto"
    monitor: str = "auto"
    patience: int | None = None
    keep: Keep | None = None
    precision: Precision = "32-true"
    processes: int = 1
    nodes: int = 1
    strategy: Strategy = "ddp"
    seed: int = 0
    text: TextFeatures = "tfidf"
    text_options: Mapping[str, Any] = field(default_factory=dict)
    words: int = 0

    def __post_init__(self) -> None:
        whole, number = ("patience", "seed"), ("learning_rate", "k")
        sizes = ("epochs", "batch_size", "processes", "nodes")
        self._check((*sizes, *whole), "be an integer", lambda value: type(value) is int)
        self._check((*number, "weight_decay"), "be a number", _is_number)
        self._check(("loss", "encoder", "head", "frozen", "monitor"), "be text", lambda value: isinstance(value, str))
        mappings = ("loss_options", "encoder_options", "head_options", "frozen_options", "text_options")
        self._check(mappings, "map names to values", lambda value: isinstance(value, Mapping))
        self._check(sizes, "be at least 1", lambda value: value >= 1)
        self._check(number, "be above 0 and finite", lambda value: 0 < value < math.inf)
        self._check((*whole, "weight_decay"), "be at least 0 and finite", lambda value: 0 <= value < math.inf)
        choices = {"recipe": RecipeName, "optimizer": Optimizer, "keep": Keep}
        choices |= {"precision": Precision, "start": Start, "strategy": Strategy, "text": TextFeatures}
        for name, kind in choices.items():
            known = get_args(kind)
            self._check((name,), f"be one of {', '.join(known)}", lambda value, known=known: value in known)
        self._check(("augmentation",), "be crop-flip or empty", lambda value: value in ("", "crop-flip"))
        if self.milestones is not None:
            object.__setattr__(self, "milestones", _fractions(self.milestones))
        if self.augmentation and self.frozen:
            rule = f"be empty with `frozen` {self.frozen!r}, whose features are computed once"
            raise InputError(f"`augmentation` must {rule}; got {self.augmentation!r}.")
        if self.strategy == "fsdp" and self.precision == "16-mixed":
            raise InputError("`precision` must be 32-true or bf16-mixed with `strategy` 'fsdp'; got '16-mixed'.")
        if self.frozen_options and not self.frozen:
            raise InputError(f"`frozen_options` must be empty without `frozen`; got {dict(self.frozen_options)}.")
        if self.words != 0:
            self._replace_words()

    def _replace_words(self) -> None:
        """Translate the former option ``words``."""
        if type(self.words) is not int or self.words < 1:
            raise InputError(f"`words` must be an integer of at least 1; got {self.words!r}.")
        instead = f"text='hashed', text_options={{'num_features': {self.words}}}"
        warnings.warn(f"`words` is deprecated; use {instead}.", DeprecationWarning, stacklevel=5)
        object.__setattr__(self, "text", "hashed")
        object.__setattr__(self, "text_options", {"num_features": self.words, **self.text_options})
        object.__setattr__(self, "words", 0)

    def _check(self, names: Sequence[str], rule: str, holds: Callable[[Any], bool]) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and name in RECIPES["adamw"].defaults:
                continue
            if not holds(value):
                raise InputError(f"`{name}` must {rule}; got {value!r}.")

    def settled(self, kind: str, rows: int = 0) -> SettledOptions:
        """Return the options with none left open: those that are None come from the recipe.

        Args:
            kind: of the dataset's inputs: ``features``, ``sparse features``, ``images`` or ``text``.
            rows: how many training rows there are, for the batch size; 0 if that is not known.

        Example:
            >>> options = FitOptions(recipe="paper", batch_size=32).settled("features")
            >>> options.optimizer, options.learning_rate, options.batch_size, options.keep
            ('sgd', 0.1, 32, 'last')
        """
        recipe = RECIPES[self.recipe]
        known = "features" if self.frozen else "hf encoders" if self.encoder.startswith("hf:") else kind
        values = {**recipe.defaults, **recipe.by_kind.get(known, {})}
        if rows:
            values["batch_size"] = recipe.batch_size(values["batch_size"], rows)
        given = {name: value for name, value in vars(self).items() if name not in values or value is not None}
        return SettledOptions(**{**values, **given})

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with tensors and arrays as lists; raise InputError for any other object.

        Nodes and strategy are left out: they determine where a run is computed, not what.
        """
        kept = {name: value for name, value in vars(self).items() if name not in ("nodes", "strategy")}
        try:
            return json.loads(json.dumps(kept, default=_plain))
        except TypeError as error:
            raise InputError(f"`options` must hold plain values, tensors or arrays: {error}.") from error


class SettledOptions(FitOptions):
    """Options of a run with none left open; see `FitOptions.settled`."""

    epochs: int
    batch_size: int
    learning_rate: float
    milestones: tuple[float, ...]
    weight_decay: float
    optimizer: Optimizer
    patience: int
    keep: Keep


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _fractions(milestones: Any) -> tuple[float, ...]:
    if not isinstance(milestones, Sequence) or isinstance(milestones, str | bytes):
        raise InputError(f"`milestones` must be a list of numbers; got {milestones!r}.")
    for fraction in milestones:
        if not _is_number(fraction):
            raise InputError(f"`milestones` must be a list of numbers; got {fraction!r} in it.")
    fractions = tuple(float(fraction) for fraction in milestones)
    if not all(before < after for before, after in pairwise((0.0, *fractions, 1.0))):
        raise InputError(f"`milestones` must lie in (0, 1) and be ascending; got {list(milestones)}.")
    return fractions


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def still_improving(history: Sequence[Mapping[str, float | None]], monitor: str | None) -> bool:
    """Return whether the last of several epochs was the best one by far enough to expect more of another.

    Example:
        >>> still_improving([{"recall": 0.1}, {"recall": 0.2}, {"recall": 0.3}], "recall")
        True
        >>> still_improving([{"recall": 0.1}, {"recall": 0.3}, {"recall": 0.3}], "recall")
        False
    """
    scores = [epoch.get(monitor or "") for epoch in history]
    known = [score for score in scores if score is not None and math.isfinite(score)]
    if len(known) < 2 or len(known) < len(scores):
        return False
    before = max(known[:-1])
    return known[-1] > before + 0.01 * abs(before)

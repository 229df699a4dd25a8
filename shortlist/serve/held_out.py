"""Rows that a model was not trained on: their scores, computed once, and what a rule's sets of them are like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.data.opening import BUILT_IN
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError
from shortlist.fingerprint import digest_values
from shortlist.predict import RULES, Scores, calibrate, iterate_sets, make_rule, tensor_scores
from shortlist.predict.model_data import open_labelled
from shortlist.predict.model_scores import ModelScores, part_scores
from shortlist.predict.true_labels import as_task
from shortlist.serve.models import ServedModel
from shortlist.sets import SetRule
from shortlist.train.data_source import is_training_data, with_classes

# More scores than this are not kept: of larger parts, evenly spaced rows are used.
_MOST_SCORES = 1 << 24
# Options of rules that are words, and that are whole numbers; others are numbers, and one is true or false.
_WORDS = {"risk": (str,), "utility": (str,), "objective": (str,)}
_WHOLE = ("free", "clusters", "min_count", "min_size")


@dataclass(frozen=True, eq=False)
class Part:
    """Rows with their scores and true labels.

    Attributes:
        rows: their numbers in the dataset, ascending.
        logits: ``(rows, n)``.
        target: the labels, in a form of ``shortlist.targets``.
        at, labels: of each true label, the place of its row, ascending, and its index.
    """

    rows: Tensor
    logits: Tensor
    target: Tensor
    at: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> Tensor:
        """How many true labels each row has."""
        return torch.bincount(self.at, minlength=len(self))

    @property
    def support(self) -> Tensor:
        """How many rows each label is true for."""
        return torch.bincount(self.labels, minlength=self.logits.shape[1])

    def labels_of(self, place: int) -> list[int]:
        """The true labels of a row."""
        first, last = torch.searchsorted(self.at, torch.tensor([place, place + 1])).tolist()
        return self.labels[first:last].tolist()


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The data of a model: rows to fit rules on, and others to measure them on.

    Attributes:
        model: the model.
        dataset: the rows themselves.
        data: the name of the data, or their path.
        key: equal for models of the same data, whose rows have the same numbers.
        fit, shown: the two parts; none is a row that the model was trained on, if the data are those of the training.
        fitted_on, part: what they are called.
        fitted: rules that were fitted for a request, by kind and options.
    """

    model: ServedModel
    dataset: Dataset
    data: str
    key: str
    fit: Part
    shown: Part
    fitted_on: str
    part: str
    train_counts: Tensor | None
    fitted: dict[str, SetRule] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)

    def rule(self, kind: str, options: Mapping[str, Any]) -> SetRule:
        """A rule with these options, as `shortlist calibrate` fits it on the rows to fit on; kept for the next time."""
        return fitted_rule(self.model, kind, options, self)

    def measure(self, rule: SetRule) -> Measured:
        """What a rule's sets of the shown rows are like; kept for the next time."""
        key = rule_key(rule)
        if key not in self.measured:
            _forget(self.measured)
            self.measured[key] = measure(self.scores(), self.shown, rule)
        return self.measured[key]

    def scores(self, places: Tensor | None = None) -> Scores:
        """The scores of the shown rows, or of some of them."""
        logits = self.shown.logits if places is None else self.shown.logits[places]
        return tensor_scores(logits, from_logits=True, names=self.model.labels)


@dataclass(frozen=True, eq=False)
class Measured:
    """The sets of a rule on rows with true labels.

    Attributes:
        sizes: ``(rows,)``, labels in each set.
        hits: for each true label whether it is in its row's set.
        missed: ``(rows,)``, the share of a row's true labels that is not; NaN for a row without any.
        holding: ``(n,)``, how many sets hold a label.
        held_size: ``(n,)``, the average size of these sets; NaN if there are none.
        signature: ``(rows,)``, equal for equal sets.
    """

    sizes: Tensor
    hits: Tensor
    missed: Tensor
    holding: Tensor
    held_size: Tensor
    signature: Tensor

    @property
    def size(self) -> float:
        """Labels per row."""
        return float(self.sizes.double().mean())

    @property
    def error(self) -> float | None:
        """The share of a row's true labels that is missed, on average over rows that have some."""
        known = self.missed[~self.missed.isnan()]
        return float(known.mean()) if len(known) else None

    @property
    def misses(self) -> float:
        """True labels that a row's set lacks, on average."""
        return float((~self.hits).sum()) / len(self.sizes)

    @property
    def empty(self) -> float:
        """The share of empty sets."""
        return float((self.sizes == 0).double().mean())


def measure(scores: Scores, part: Part, rule: SetRule) -> Measured:
    """Predict the sets of a part, block by block, and look at them."""
    n, rows = scores.num_labels, len(part)
    wanted, order = (part.at * n + part.labels).sort()
    sizes, hits = torch.zeros(rows, dtype=torch.int64), torch.zeros(len(wanted), dtype=torch.bool)
    holding, total = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.float64)
    signature, codes = torch.zeros(rows, dtype=torch.int64), _codes(scores)
    for block, sets in iterate_sets(scores, rule, seed=0):
        some = slice(block.rows.start, block.rows.stop)
        sizes[some] = sets.sizes
        row = sets.rows
        hits |= torch.isin(wanted, (row + some.start) * n + sets.labels)
        holding += torch.bincount(sets.labels, minlength=n)
        total += torch.bincount(sets.labels, weights=sets.sizes[row].double(), minlength=n)
        signature[some] = torch.zeros(len(sets), dtype=torch.int64).index_add(0, row, codes[sets.labels])
    found = torch.zeros_like(hits)
    found[order] = hits
    inside = torch.bincount(part.at, weights=found.double(), minlength=rows)
    return Measured(sizes, found, 1 - inside / part.counts, holding, total / holding, signature)


def open_held_out(model: ServedModel, data: str | None, opened: dict[str, Dataset]) -> HeldOut:
    """Open the data of a model and score the rows to fit on and to show.

    Of the data that the model was trained on these are the validation and the test rows; other data are halved at
    random.

    Args:
        model: the model.
        data: a file with labels; by default the data of the training, where they were.
        opened: datasets by what tells them apart, so that models of one comparison share theirs.

    Raises:
        InputError: if the data cannot be read, or are not those of the training.
    """
    source = model.source
    name = data or source.path or (source.format if source.format in BUILT_IN else None)
    if name is None:
        data = "its data" if source.name is None else f"`{source.name}`, its data,"
        raise InputError(f"`{model.folder}` does not know where {data} are: --data names a file with labels.")
    how = [name, source.format, sorted(source.reader.items()), source.seed, source.digest, source.one_class]
    key = digest_values(str(how))
    if key not in opened:
        dataset = open_labelled(name, source, format=None, reader={})
        opened[key] = with_classes(dataset) if source.one_class else dataset
    dataset = opened[key]
    known = is_training_data(dataset, source)
    if data is None and not known:
        raise InputError(f"`{name}` is not what `{model.folder}` was trained on: --data names a file with labels.")
    fitted_on, part, fit_rows, rows = _parts(dataset, known=known)
    given: dict[str, Any] = {"data": name, "folder": str(model.folder), "unseen": "drop"}
    most = max(2, _MOST_SCORES // len(model.labels))
    fit, shown = (
        _part(part_scores(model.saved, dataset, _thinned(some, most), source, **given)) for some in (fit_rows, rows)
    )
    counts = None
    if known and dataset.split is not None and "train" in dataset.split.names:
        counts = _by_model(dataset.label_counts("train"), dataset, model)
    return HeldOut(model, dataset, name, key, fit, shown, fitted_on, part, counts)


def fitted_rule(model: ServedModel, kind: str, options: Mapping[str, Any] | None, held_out: HeldOut | None) -> SetRule:
    """A rule of the folder, if there is one with these options, or one that is fitted now.

    Args:
        model: whose rule it is.
        kind: one of `RULES`.
        options: of the rule; None for the one of that kind in the folder.
        held_out: what it is fitted on; only a rule without thresholds needs none.

    Raises:
        InputError: for options that the rule refuses, or if there is nothing to fit it on.
    """
    if kind not in RULES:
        raise InputError(f"`kind` must be one of {', '.join(RULES)}; got {kind[:100]!r}.")
    about = RULES[kind]
    options = None if options is None else {name: value for name, value in options.items() if value is not None}
    saved = model.rules.get(kind)
    if options is None or not options:
        if saved is not None:
            return saved
        if about.required:
            raise InputError(f"`options` of {kind} must give {' and '.join(about.required)}.")
    options = options or {}
    if saved is not None and all(saved.options().get(name) == value for name, value in options.items()):
        return saved
    options = check_options(kind, options)
    if kind == "top-k":
        scores = tensor_scores(torch.zeros(1, len(model.labels)), from_logits=True, names=model.labels)
        return calibrate(scores, make_rule(kind, scores, link=model.link, **options))
    if held_out is None:
        raise InputError(f"{kind} must be fitted on held-out rows, and the data of `{model.name}` are not open.")
    key = digest_values([kind, dict(options)])
    if key not in held_out.fitted:
        _forget(held_out.fitted)
        fit = held_out.fit
        scores = tensor_scores(fit.logits, from_logits=True, names=model.labels)
        target = as_task(fit.target, scores.num_labels, about.one_class, held_out.data)
        rule = make_rule(kind, scores, **{"link": model.link, **options})
        held_out.fitted[key] = calibrate(scores, rule, target)
    return held_out.fitted[key]


def rule_key(rule: SetRule) -> str:
    """Identify a fitted rule by what it answers."""
    fitted = {name: buffer.tolist() for name, buffer in rule.named_buffers()}
    return digest_values([type(rule).__name__, str(rule.options()), rule.link, rule.min_size, str(fitted)])


def check_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a rule, as the rule takes them.

    Raises:
        InputError: for options that it does not take, or that only a file can give.
    """
    if kind not in RULES:
        raise InputError(f"`kind` must be one of {', '.join(RULES)}; got {kind[:100]!r}.")
    about, found = RULES[kind], {}
    if "taxonomy" in about.required:
        raise InputError(f"{kind} needs a taxonomy, which is a file: `shortlist calibrate` fits it.")
    for name, value in options.items():
        if name not in (*about.required, *about.optional, "min_size"):
            taken = ", ".join((*about.required, *about.optional)) or "none"
            raise InputError(f"`options` of {kind} must be among {taken}; got {name[:100]!r}.")
        wanted = _WORDS.get(name, (bool,) if name == "randomized" else (int, float))
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise InputError(f"`{name}` must be a {'word' if name in _WORDS else 'number'}; got {str(value)[:100]!r}.")
        found[name] = int(value) if name in _WHOLE and float(value).is_integer() else value
    for name in about.required:
        if name not in options:
            raise InputError(f"`options` of {kind} must give {name!r}.")
    return found


def _parts(dataset: Dataset, *, known: bool) -> tuple[str, str, Tensor, Tensor]:
    """Of the rows to fit on and to show: their names and their numbers."""
    names = () if dataset.split is None else dataset.split.names
    if known and {"val", "test"} <= set(names):
        return "val", "test", dataset.part_rows("val"), dataset.part_rows("test")
    rows = dataset.part_rows("test") if "test" in names else torch.arange(len(dataset))
    if len(rows) < 2:
        raise InputError("the data must have at least 2 rows, of which half are for fitting rules.")
    order = rows[Draws(0, "halves").order(len(rows))]
    half = len(order) // 2
    return "one half", "the other half", order[:half].sort().values, order[half:].sort().values


def _thinned(rows: Tensor, most: int) -> Tensor:
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).round().long()]


def _part(found: ModelScores) -> Part:
    logits, numbers = [], []
    for block in found.scores.blocks():
        logits.append(block.scores)
        numbers += list(block.rows if block.numbers is None else block.numbers)
    scores, n, target = torch.cat(logits), found.scores.num_labels, found.target
    if target is None:
        raise InputError("the data must have labels.")
    at, labels, present = label_pairs(target, n)
    return Part(torch.tensor(numbers), scores, target, at[present], labels[present])


def _by_model(counts: Tensor, dataset: Dataset, model: ServedModel) -> Tensor:
    number = {name: at for at, name in enumerate(dataset.label_names)}
    found = [number.get(name, -1) for name in model.labels]
    return torch.tensor([int(counts[at]) if at >= 0 else 0 for at in found])


def _codes(scores: Scores) -> Tensor:
    """A random number for each label name, so that the sum over a set tells sets apart, also between models."""
    names = scores.names or [str(label) for label in range(scores.num_labels)]
    found = [int(digest_values(name)[:16], 16) for name in names]
    return torch.from_numpy(np.array(found, dtype=np.uint64).view(np.int64))


def _forget(kept: dict[str, Any], most: int = 64) -> None:
    """Drop the oldest entry of a full cache."""
    while len(kept) >= most:
        kept.pop(next(iter(kept)))

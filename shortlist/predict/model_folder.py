"""A model's folder as users work with it: calibration and rules beside the model, and an audit of its output layer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shortlist.audit import AuditReport, audit
from shortlist.calibration import Calibrator
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError
from shortlist.files import replacing
from shortlist.predict.calibration import CALIBRATORS, RULES, calibrate, fit_calibrator, kind_of, make_rule
from shortlist.predict.model_data import label_numbers, open_labelled, part_rows
from shortlist.predict.model_scores import open_model
from shortlist.predict.true_labels import as_task
from shortlist.sets import SetRule, load_rule
from shortlist.sets.rule_file import encode_rule
from shortlist.train import load_model
from shortlist.train.card.folder import record_audit, write_card
from shortlist.train.card.layer_audit import audited_layer
from shortlist.train.data_source import saved_source
from shortlist.train.saved_model import CALIBRATION

_RULES = "rules"


def rule_name(name: str) -> str:
    """The name of a rule as `RULES` has it: underscores become dashes.

    Example:
        >>> rule_name("average_error")
        'average-error'
    """
    return name.replace("_", "-")


def find_rule(folder: str | Path, rule: str | Path | None = None) -> Path:
    """The file of a rule: the one that the model answers with by default, one of its folder by name, or any file.

    Raises:
        InputError: if there is none.
    """
    folder = Path(folder)
    if rule is None:
        if not (folder / "rule.json").is_file():
            raise InputError(f"`{folder}` has no rule; `shortlist calibrate` adds one.")
        return folder / "rule.json"
    name = rule_name(str(rule))
    if name not in RULES:
        if not Path(rule).exists() and not Path(rule).suffix:
            known = [kind for kind in RULES if (folder / _RULES / f"{kind}.json").is_file()]
            has = f"has {', '.join(known)}" if known else "has none besides its own"
            raise InputError(f"`{rule}` is neither a file nor a rule of `{folder}`, which {has}.")
        return Path(rule)
    file = folder / _RULES / f"{name}.json"
    if not file.is_file():
        raise InputError(f"`{folder}` has no rule {name!r}: `shortlist calibrate {folder} --rule {name}` adds it.")
    return file


def save_rule(folder: str | Path, rule: SetRule) -> Path:
    """Put a fitted rule into a model's folder, where it becomes the one that the model answers with.

    Rules of other kinds stay and can be chosen by name; one of the same kind is replaced.

    Returns:
        Its file.
    """
    folder = Path(folder)
    usual, document = folder / "rule.json", json.loads((folder / "model.json").read_text())
    if document.get("has_rule") and usual.is_file():
        former = folder / _RULES / f"{kind_of(load_rule(usual))}.json"
        if not former.is_file():
            load_rule(usual).save(former)
    file = folder / _RULES / f"{kind_of(rule)}.json"
    rule.save(file)
    rule.save(usual)
    _note(folder, has_rule=True)
    write_card(folder)
    return file


def keep_rule(folder: str | Path, rule: SetRule) -> Path | None:
    """Keep the rule that a model answers with before another one is saved: one of the same kind under another name.

    Returns:
        Its file in ``rules``: ``NAME.json``, or for one of the same kind ``NAME.1.json``, ``NAME.2.json``, …; None if
        there is none, or it is the same.
    """
    folder = Path(folder)
    usual, document = folder / "rule.json", json.loads((folder / "model.json").read_text())
    if not document.get("has_rule") or not usual.is_file():
        return None
    former, name = load_rule(usual), kind_of(rule)
    if kind_of(former) != name:
        return folder / _RULES / f"{kind_of(former)}.json"  # `save_rule` keeps those of other kinds.
    if encode_rule(former.document()) == encode_rule(rule.document()):
        return None
    number = 1
    while (file := folder / _RULES / f"{name}.{number}.json").exists():
        number += 1
    former.save(file)
    return file


def save_calibrator(folder: str | Path, calibrator: Calibrator) -> Path:
    """Put a fitted calibrator into a model's folder; from now on the model's scores are calibrated.

    The rules of the folder are removed: they were fitted on other scores.

    Returns:
        Its file.
    """
    folder = Path(folder)
    # Half done, the folder must not hold rules for scores that the model does not give.
    _note(folder, has_rule=False)
    for file in (folder / "rule.json", *(folder / _RULES / f"{name}.json" for name in RULES)):
        file.unlink(missing_ok=True)
    calibrator.save(folder / CALIBRATION)
    _note(folder, has_calibration=True)
    write_card(folder)
    return folder / CALIBRATION


def recalibrate_model(
    folder: str | Path,
    data: str,
    kind: str,
    *,
    part: str | None = None,
    format: str | None = None,
    reader: Mapping[str, Any] | None = None,
    strict: bool = False,
    **options: Any,
) -> Calibrator:
    """Fit a calibrator to held-out rows of a model and put it into the model's folder.

    Args:
        folder: of the model; a calibration that it has already is replaced, and its rules are removed.
        data, part, format, reader, strict: as in `calibrate_model`.
        kind: one of `CALIBRATORS`.
        options: of the calibrator, such as ``per_label``.

    Returns:
        The fitted calibrator.
    """
    reading: dict[str, Any] = {"part": part, "format": format, "reader": reader, "usual_part": "val"}
    unseen = "refuse" if strict else "drop"
    found = open_model(folder, data, labelled=True, unseen=unseen, calibrated=False, **reading)
    calibrator = CALIBRATORS[kind](**{"link": found.link, **options})
    fit_calibrator(found.scores, calibrator, found.target)
    save_calibrator(folder, calibrator)
    return calibrator


def _note(folder: Path, **facts: bool) -> None:
    """Write facts into the document of a model if they are new."""
    document = json.loads((folder / "model.json").read_text())
    if any(document.get(name, False) != fact for name, fact in facts.items()):
        with replacing(folder / "model.json") as partial:
            partial.write_text(json.dumps({**document, **facts}, indent=1))


def calibrate_model(
    folder: str | Path,
    data: str,
    rule: str,
    *,
    part: str | None = None,
    format: str | None = None,
    reader: Mapping[str, Any] | None = None,
    strict: bool = False,
    **options: Any,
) -> SetRule:
    """Fit a rule to held-out rows of a model, as `fit_model_rule` does, and put it into the model's folder.

    Returns:
        The fitted rule.
    """
    fitted = fit_model_rule(folder, data, rule, part=part, format=format, reader=reader, strict=strict, **options)
    save_rule(folder, fitted)
    return fitted


def fit_model_rule(
    folder: str | Path,
    data: str,
    rule: str,
    *,
    part: str | None = None,
    format: str | None = None,
    reader: Mapping[str, Any] | None = None,
    strict: bool = False,
    **options: Any,
) -> SetRule:
    """Fit a rule to held-out rows of a model.

    Args:
        folder: of the model.
        data: rows with labels; of the data that the model was trained on, the validation rows are used.
        rule: one of `RULES`.
        part, format, reader: as in `open_model`.
        strict: refuse labels that the model does not know. Otherwise they are left out of sets, and rows with such a
            class are left out.
        options: of the rule, such as ``alpha``.

    Returns:
        The fitted rule.
    """
    name, unseen = rule_name(rule), "refuse" if strict else "drop"
    reading: dict[str, Any] = {"part": part, "format": format, "reader": reader, "usual_part": "val"}
    found = open_model(folder, data, labelled=True, unseen=unseen, **reading)
    target = found.target
    if target is None:
        raise InputError(f"`{data}` has no labels.")
    fitted = make_rule(name, found.scores, **{"link": found.link, **options})
    return calibrate(found.scores, fitted, as_task(target, found.scores.num_labels, RULES[name].one_class, data))


def audit_model(
    folder: str | Path,
    data: str,
    *,
    part: str | None = None,
    format: str | None = None,
    reader: Mapping[str, Any] | None = None,
    **options: Any,
) -> AuditReport:
    """Decide which label sets of data a model's output layer can never give, and say so in the model's card.

    A folder that cannot be written is left as it is.

    Args:
        folder: of the model.
        data: rows with labels; labels that the model does not know are left out of their sets.
        part: the part of the data; all rows by default.
        format, reader: as in `open_model`.
        options: of `shortlist.audit.audit`. ``mode`` is ``top-k`` by default, because rules compare scores.
    """
    saved = load_model(folder)
    layer = audited_layer(saved.model.output_layer)
    if layer is None:
        raise InputError(f"`{folder}` has a head of clusters, which has no matrix of all labels to audit.")
    dataset = open_labelled(data, saved_source(saved, folder), format=format, reader=dict(reader or {}))
    if part is not None:
        dataset = dataset.subset(part_rows(dataset, part, data))
    numbers, sets = label_numbers(dataset, saved).tolist(), [[] for _ in range(len(dataset))]
    pairs = label_pairs(dataset.true_targets, dataset.num_labels)
    for row, label, present in zip(*(column.tolist() for column in pairs), strict=True):
        if present and numbers[label] >= 0:
            sets[row].append(numbers[label])
    distinct = sorted({tuple(sorted(labels)) for labels in sets if labels})
    options = {"mode": "top-k", **options}
    report = audit(layer, [list(labels) for labels in distinct], names=saved.label_names, **options)
    if os.access(folder, os.W_OK):
        record_audit(folder, report, data=dataset.name or Path(data).name)
    return report

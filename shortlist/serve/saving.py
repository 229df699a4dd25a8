"""Save a rule into a model's folder, as `shortlist calibrate` does, and keep the one that it replaces."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shortlist.errors import InputError
from shortlist.files import writing
from shortlist.predict import RULES, save_rule
from shortlist.predict.model_folder import fit_model_rule, keep_rule
from shortlist.serve.held_out import HeldOut, check_options


def save_fitted(held_out: HeldOut, kind: str, options: Mapping[str, Any]) -> tuple[Path, Path | None]:
    """Fit a rule and save it as the one that the model answers with.

    Returns:
        Its file, and where the former rule is now; None if there was none or it is the same.

    Raises:
        InputError: for options that the rule refuses, or a folder that cannot be written.
    """
    model = held_out.model
    rule = fit_model_rule(model.folder, held_out.data, kind, **check_options(kind, options))
    with writing(model.folder):
        kept = keep_rule(model.folder, rule)
        save_rule(model.folder, rule)
    model.read_rules()
    return model.folder / "rule.json", kept


def equivalents(folder: str, data: str, kind: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """The command and the Python that fit and save the same rule.

    Example:
        >>> command, python = equivalents("plants-model", "plants.csv", "average-k", {"k": 3.0})
        >>> print(command)
        shortlist calibrate plants-model --data plants.csv --rule average-k --k 3
        >>> print(python)
        from shortlist.predict import calibrate_model
        <BLANKLINE>
        calibrate_model('plants-model', 'plants.csv', 'average-k', k=3)
    """
    if kind not in RULES:
        raise InputError(f"`kind` must be one of {', '.join(RULES)}; got {kind[:100]!r}.")
    plain = {name: int(value) if _is_whole(value) else value for name, value in options.items()}
    words = ["shortlist", "calibrate", folder, "--data", data, "--rule", kind]
    for name, value in plain.items():
        if name == "randomized":
            words += [] if value else ["--deterministic"]
        else:
            words += [f"--{name.replace('_', '-')}", str(value)]
    given = "".join(f", {name}={value!r}" for name, value in plain.items())
    python = f"calibrate_model({folder!r}, {data!r}, {kind!r}{given})"
    return shlex.join(words), f"from shortlist.predict import calibrate_model\n\n{python}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()

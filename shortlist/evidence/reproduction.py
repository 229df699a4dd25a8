"""Run an experiment from its data to its result file."""

from __future__ import annotations

import importlib
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.cluster import check_cluster
from shortlist.errors import InputError
from shortlist.evidence.experiment import SCALES, Experiment, Outcome
from shortlist.evidence.lab import Lab
from shortlist.files import read_document, replacing
from shortlist.fingerprint import digest_file, digest_values, file_state, software_versions

_FORMAT = "shortlist evidence"
_VERSION = 2
_MAX_DIGESTED_BYTES = 2**30  # Reading larger files and folders would take minutes.


@dataclass(frozen=True)
class Folders:
    """The folders that experiments read from and write to.

    Args:
        experiments: experiment descriptions and studies.
        data_root: the data.
        output: results are written to ``output/SCALE/NAME.json``, figures to the folder ``NAME`` beside it.
        kept: the cache of finished trials.
    """

    experiments: Path
    data_root: Path
    output: Path
    kept: Path

    def result(self, name: str, scale: str) -> Path:
        """The path of a result file."""
        return self.output / scale / f"{name}.json"

    def figures(self, name: str, scale: str) -> Path:
        """The folder of a result's figures."""
        return self.output / scale / name


def reproduce(
    experiment: Experiment,
    scale: str,
    folders: Folders,
    *,
    jobs: int | None = None,
    cluster: str = "local",
    since: float = 0.0,
    tell: Callable[[float, float], object] | None = None,
) -> dict[str, Any]:
    """Run an experiment and write its result.

    Args:
        experiment: the experiment.
        scale: ``small`` or ``paper``.
        folders: where to read and write.
        jobs, cluster, since, tell: as in `Lab`. On a cluster, ``folders.experiments`` and ``folders.data_root`` must
            exist on all workers, under the same paths.

    Returns:
        The content of the result file.

    Raises:
        InputError: if data are missing or the study cannot use them.
    """
    check_cluster(cluster)
    chosen = experiment.scales[scale]
    missing = [file for file in chosen.files if not (folders.data_root / file).exists()]
    if missing:
        raise InputError(
            f"`{folders.data_root / missing[0]}`, which {experiment.name} reads at {scale} scale, is missing; "
            "--data-root says where the data are."
        )
    study = _study(experiment, folders.experiments)
    lab = Lab(
        folders.data_root,
        folders.figures(experiment.name, scale),
        folders.kept,
        data={file: _data_fingerprint(folders.data_root / file) for file in chosen.files},
        jobs=jobs,
        since=since,
        tell=tell,
        cluster=cluster,
        sources=folders.experiments.resolve().parent,
    )
    settings = {**chosen.settings, "claims": experiment.claims} if experiment.claims else chosen.settings
    outcome = study(settings, experiment.published, lab)
    if not isinstance(outcome, Outcome):
        raise TypeError(f"`{experiment.study}` must return an Outcome; got {type(outcome).__name__}.")
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": experiment.name,
        "title": experiment.title,
        "text": experiment.publication,
        "item": experiment.item,
        "claim": experiment.claim,
        "scale": scale,
        "settings": chosen.settings,
        "data": lab.data,
        "trials": lab.done,
        "core_seconds": round(lab.seconds, 1),
        "made_with": {
            **software_versions(),
            "python": platform.python_version(),
            "system": platform.system(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        },
        "outcome": outcome.to_json(),
    }
    with replacing(folders.result(experiment.name, scale)) as partial:
        partial.write_text(json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    # Remove figures of an earlier version of the study.
    for file in lab.figures.glob("*.png") if lab.figures.is_dir() else ():
        if file.name not in {figure.file for figure in outcome.figures}:
            file.unlink()
    return content


def read_results(output: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """All results in a folder, by name and scale."""
    found = {}
    for path in (path for scale in SCALES for path in sorted((output / scale).glob("*.json"))):
        content = read_document(path, kind=_FORMAT, version=_VERSION)
        found[content["name"], content["scale"]] = content
    return found


def is_current(result: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether a result was made with the settings that the experiment has now."""
    return result["settings"] == json.loads(json.dumps(_plain(experiment.scales[result["scale"]].settings)))


def _study(experiment: Experiment, folder: Path) -> Callable[..., Any]:
    """Import the function that an experiment names from the folder of the experiments."""
    module, name = experiment.study.split(":")
    root = str(folder.resolve().parent)
    if root not in sys.path:
        sys.path.insert(0, root)  # Trial processes inherit it.
    try:
        return getattr(importlib.import_module(f"{folder.resolve().name}.{module}"), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(f"`{experiment.study}`, the study of {experiment.name}, cannot be found: {error}.") from error


def _data_fingerprint(path: Path) -> str:
    if path.is_file() and path.stat().st_size <= _MAX_DIGESTED_BYTES:
        return digest_file(path)
    return digest_values(file_state(path))


def _plain(value: Any) -> Any:
    """JSON values: null for non-finite numbers, six digits for others, all the precision that seeds justify."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value

"""One experiment from its files to its result: data found and told apart, study run, outcome written."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist import __version__
from shortlist.cluster import check_cluster
from shortlist.evidence.experiment import SCALES, Experiment
from shortlist.evidence.lab import Lab
from shortlist.evidence.outcome import Outcome
from shortlist.files import read_document, replacing

_FORMAT = "shortlist evidence"
_VERSION = 1
# Larger ones, and folders, are told apart by sizes and times: reading them all would take minutes.
_LARGEST_HASHED = 2**30


@dataclass(frozen=True)
class Place:
    """Where experiments are, and where what they need and give is.

    Args:
        experiments: the folder of the configurations and of the studies.
        data_root: where data are.
        output: results go to ``output/SCALE/NAME.json``, pictures to the folder ``NAME`` beside it.
        kept: finished trials.
    """

    experiments: Path
    data_root: Path
    output: Path
    kept: Path

    def result(self, name: str, scale: str) -> Path:
        """The file of a result."""
        return self.output / scale / f"{name}.json"

    def figures(self, name: str, scale: str) -> Path:
        """The folder of the pictures of a result."""
        return self.output / scale / name


def missing_files(experiment: Experiment, scale: str, data_root: Path) -> list[str]:
    """What an experiment needs and is not there, as paths below the data root."""
    return [file for file in experiment.scales[scale].files if not (data_root / file).exists()]


def reproduce(
    experiment: Experiment,
    scale: str,
    place: Place,
    *,
    jobs: int | None = None,
    cluster: str = "local",
    since: float = 0.0,
    tell: Callable[[float, float], object] | None = None,
) -> dict[str, Any]:
    """Run an experiment and write its result.

    Args:
        experiment: which.
        scale: ``small`` or ``paper``.
        place: where everything is.
        jobs, cluster, since, tell: as in `Lab`; on a cluster the folders of ``place.experiments`` and
            ``place.data_root`` must be on all workers, under the same paths.

    Returns:
        The content of the result file.

    Raises:
        ValueError: in one sentence, if data are missing or the study cannot use them.
    """
    check_cluster(cluster)
    chosen = experiment.scales[scale]
    missing = missing_files(experiment, scale, place.data_root)
    if missing:
        raise ValueError(
            f"`{place.data_root / missing[0]}` is missing, which {experiment.name} reads at {scale} scale; "
            "--data-root says where data are."
        )
    study = _study(experiment, place.experiments)
    data = {file: _fingerprint(place.data_root / file) for file in chosen.files}
    figures = place.figures(experiment.name, scale)
    sources = place.experiments.resolve().parent
    lab = Lab(
        place.data_root,
        figures,
        place.kept,
        data=data,
        jobs=jobs,
        since=since,
        tell=tell,
        cluster=cluster,
        sources=sources,
    )
    outcome = study(chosen.settings, experiment.published, lab)
    if not isinstance(outcome, Outcome):
        raise TypeError(f"`{experiment.study}` must give an Outcome; got {type(outcome).__name__}.")
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": experiment.name,
        "title": experiment.title,
        "text": experiment.text,
        "item": experiment.item,
        "claim": experiment.claim,
        "scale": scale,
        "settings": chosen.settings,
        "data": data,
        "trials": lab.done,
        "core_seconds": round(lab.seconds, 1),
        "made_with": _made_with(),
        "outcome": outcome.to_json(),
    }
    with replacing(place.result(experiment.name, scale)) as partial:
        partial.write_text(json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _remove_others(figures, {figure.file for figure in outcome.figures})
    return content


def read_results(output: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """All results of a folder, by name and scale."""
    found = {}
    for path in (path for scale in SCALES for path in sorted((output / scale).glob("*.json"))):
        content = read_document(path, kind=_FORMAT, version=_VERSION)
        found[content["name"], content["scale"]] = content
    return found


def _study(experiment: Experiment, folder: Path) -> Callable[..., Any]:
    """The function that an experiment names, from the folder of the experiments."""
    module, name = experiment.study.split(":")
    root = str(folder.resolve().parent)
    if root not in sys.path:
        sys.path.insert(0, root)  # Processes that run trials get it, too.
    try:
        return getattr(importlib.import_module(f"{folder.resolve().name}.{module}"), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"`{experiment.study}`, the study of {experiment.name}, is not there: {error}.") from error


def _fingerprint(path: Path) -> str:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            continue
        about = file.stat()
        if path.is_dir() or about.st_size > _LARGEST_HASHED:
            digest.update(f"{file.relative_to(path)} {about.st_size} {about.st_mtime_ns}\n".encode())
        else:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def _made_with() -> dict[str, Any]:
    return {
        "shortlist": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _plain(value: Any) -> Any:
    """Values that JSON has: what is no number becomes null, numbers keep six digits, which is what seeds leave."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _remove_others(folder: Path, keep: set[str]) -> None:
    """Pictures of an earlier form of the study are nobody's."""
    for file in folder.glob("*.png") if folder.is_dir() else ():
        if file.name not in keep:
            file.unlink()

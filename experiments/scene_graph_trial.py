"""Trials of scene graphs: draw or open them, train one model, and tell its recalls."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from experiments.data import open_data
from experiments.scene_graph_model import KS, MODES, GraphFit, Scenes, epochs, recalls
from experiments.visual_genome_file import write_visual_genome
from shortlist.data import Dataset, SceneGraphWorld, read_visual_genome

COLUMNS = tuple((mode, k) for mode in MODES for k in KS)


def open_graphs(described: Mapping[str, Any], root: Path, *, seed: int) -> Dataset:
    """Scene graphs: of files below the root, or drawn from a world of that seed, written as files and read back.

    Args:
        described: as in `experiments.data.open_data`; or ``world``, options of `SceneGraphWorld`, with ``images``, how
            many, ``test``, the share of them for testing, and ``reader``, options of `read_visual_genome`.
        root: where data are.
        seed: of the world and of what is drawn from it.
    """
    if "world" not in described:
        return open_data(described, root, seed=seed)
    return _drawn(json.dumps(dict(described), sort_keys=True), seed)


@cache
def _drawn(key: str, seed: int) -> Dataset:
    described = json.loads(key)
    split = (1 - described["test"], 0.0, described["test"])
    graphs = SceneGraphWorld(**described["world"], seed=seed).sample(described["images"], seed=seed, split=split)
    with tempfile.TemporaryDirectory() as folder:
        return read_visual_genome(write_visual_genome(graphs, Path(folder)), **described["reader"])


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train one model and keep the epoch with the best mean of all recalls of the validation images.

    Returns:
        ``chosen_by``, that mean; ``val_MODE_K`` and ``train_MODE_K`` at that epoch; ``last_val_MODE_K`` and
        ``last_train_MODE_K``; ``curves`` with all epochs; ``test_MODE_K`` if ``part`` is ``test``.
    """
    dataset = open_graphs(settings["data"], root, seed=settings["seed"])
    fit = GraphFit(**settings["fit"])
    best, found, curves = -math.inf, {}, {"train": [], "val": []}
    model = kept = None
    for at, (model, train, val) in enumerate(epochs(dataset, fit, seed=settings["seed"]), start=1):
        now = {"train": train, "val": val}
        for part, values in now.items():
            curves[part].append([round(values[f"{mode}_{k}"], 5) for mode, k in COLUMNS])
        figure = sum(val.values()) / len(val)
        if kept is None or figure > best:
            best, kept = figure, copy.deepcopy(model)
            found = {"chosen_by": figure, "epoch": at, **_named(now, "")}
        found |= _named(now, "last_")
    if settings["part"] == "test" and kept is not None:
        found |= _named({"test": recalls(kept, Scenes(dataset, "test"), fit)}, "")
    return {**found, "curves": curves}


def _named(parts: Mapping[str, Mapping[str, float]], prefix: str) -> dict[str, float]:
    return {f"{prefix}{part}_{name}": value for part, values in parts.items() for name, value in values.items()}


def best_ranking(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The recalls of the true probabilities, which no model can exceed but by chance."""
    world = SceneGraphWorld(**settings["data"]["world"], seed=settings["seed"])
    images = settings["images"]
    values = {mode: world.bayes_recall(KS, constrained=mode == MODES[0], num_images=images).value for mode in MODES}
    return {f"{mode}_{k}": value for mode in MODES for k, value in zip(KS, values[mode].tolist(), strict=True)}

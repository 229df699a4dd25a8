"""Models and data that several tests of commands use."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.trained import train_all, write_features


class TrainedModels(NamedTuple):
    """A folder with data and a model of each kind, and the metrics that each training ended with."""

    folder: Path
    metrics: dict[str, dict[str, float]]


@pytest.fixture(scope="session")
def trained_models(tmp_path_factory) -> TrainedModels:
    folder, before = tmp_path_factory.mktemp("models"), Path.cwd()
    os.chdir(folder)
    try:
        return TrainedModels(folder, train_all())
    finally:
        os.chdir(before)


@pytest.fixture
def training_files(tmp_path, monkeypatch) -> Path:
    """The current folder, with tables and arrays to train on."""
    monkeypatch.chdir(tmp_path)
    write_features()
    return tmp_path

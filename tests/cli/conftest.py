"""Models and data that several tests of commands use."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from shortlist.data.files import table_files
from shortlist.predict import model_scores
from shortlist.predict import scores as scores_module
from tests.cli.score_files import BLOCK, write_score_files
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


@pytest.fixture
def model_folder(trained_models, monkeypatch, capsys) -> Path:
    """The folder of all models is the current one; rows come in several blocks."""
    monkeypatch.chdir(trained_models.folder)
    monkeypatch.setattr(table_files, "BLOCK", 50)
    monkeypatch.setattr(model_scores, "_ROWS", 40)
    capsys.readouterr()
    return trained_models.folder


@pytest.fixture
def score_files(tmp_path, monkeypatch) -> Path:
    """The current folder, with files of scores and labels, which are read in several blocks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(scores_module, "BLOCK_SCORES", 6 * BLOCK)
    write_score_files()
    return tmp_path

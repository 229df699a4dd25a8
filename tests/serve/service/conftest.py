"""Models trained in a moment, and a service of them that is asked without a network."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shortlist.serve.http.server import guarded
from shortlist.serve.observing import Log
from shortlist.serve.service import Limits, Service
from tests.cli.trained import train, write_files


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with data and models of features (one class, and sets), of texts and of images."""
    folder, before = tmp_path_factory.mktemp("served"), Path.cwd()
    os.chdir(folder)
    try:
        write_files()
        train("parts", f"{folder}/parts.csv", reader={"label": "species", "split": "part"})
        train("sets", f"{folder}/sets.npz", "--loss", "bce")
        train("texts", f"{folder}/texts.csv", reader={"text": "words"})
        train("photos-model", f"{folder}/photos", "--encoder_options", "{width: 2}", reader={"size": [4, 6]})
    finally:
        os.chdir(before)
    return folder


class Asked:
    """A service that is running, its client and what it logged.

    Args:
        service: the service.
        client: sends requests to it.
        logged: its log.
    """

    def __init__(self, service: Service, client: Any, logged: io.StringIO) -> None:
        self.service, self.client, self.logged = service, client, logged

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an answer that must be there."""
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **content: Any) -> Any:
        """The JSON of an answer to JSON that must be there."""
        answer = self.client.post(path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, status: int, path: str, **content: Any) -> str:
        """The one sentence with which JSON is refused."""
        return sentence(self.client.post(path, json=content), status)


def sentence(answer: Any, status: int) -> str:
    """The one sentence of a refusal."""
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert list(content) == ["error"]
    assert content["error"].endswith(".")
    assert "\n" not in content["error"]
    return content["error"]


@contextmanager
def running(*folders: Path, token: str | None = None, names: tuple[str, ...] = (), **options: Any) -> Iterator[Asked]:
    """A service of some folders, with limits and options of `Service`."""
    from starlette.testclient import TestClient

    service, logged = Service(folders, **options), io.StringIO()
    app: Any = guarded(service, token=token, names=names, log=Log(logged))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield Asked(service, client, logged)


@pytest.fixture(scope="session")
def asked(folder) -> Iterator[Asked]:
    """A service of all models, which no test changes."""
    names = ("parts", "sets", "texts", "photos-model")
    with running(*(folder / name for name in names), limits=Limits(rows=8, bytes=1 << 16, pixels=1 << 12)) as asked:
        yield asked

"""``shortlist serve`` as a command: what it refuses to start, how it stops, and processes that die under it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks.serve import workers_of
from shortlist.cli.serve import _token
from tests.cli.command import command
from tests.cli.trained import VALUES

run, refused = command("serve")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def test_another_host_needs_a_token(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("SHORTLIST_TOKEN", raising=False)
    for host in ("0.0.0.0", "192.168.1.7", "::", "plants.example.org"):
        assert "needs a token" in refused(capsys, str(tmp_path), "--host", host)
    monkeypatch.setenv("SHORTLIST_TOKEN", "short")
    assert "at least 16 visible" in refused(capsys, str(tmp_path), "--host", "0.0.0.0")
    monkeypatch.setenv("SHORTLIST_TOKEN", "a-token-of-some-length")
    assert "holds no model" in refused(capsys, str(tmp_path), "--host", "0.0.0.0")
    assert "`nowhere` cannot be read" in refused(capsys, str(tmp_path), "--token-file", "nowhere")
    (tmp_path / "token").write_text("another-token-of-some-length\n")
    options = type("Options", (), {"token_file": str(tmp_path / "token")})
    assert _token(options) == "another-token-of-some-length"


def test_folders_without_models_and_bad_options_are_refused(capsys, tmp_path, folder):
    assert "is not the folder of a model" in refused(capsys, str(tmp_path / "nothing"))
    assert "--port" in refused(capsys, str(folder / "parts"), "--port", "65536")
    assert "--workers" in refused(capsys, str(folder / "parts"), "--workers", "-1")
    assert "has no model.onnx" in refused(capsys, str(folder / "parts"), "--engine", "onnx")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot be listened on" in refused(capsys, str(folder / "parts"), "--port", port)


@contextmanager
def started(log, *arguments):
    """The command in a process of its own, and its address; it writes its log to a file, which never is full."""
    environment = os.environ | {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    whole = [sys.executable, "-m", "shortlist", "serve", *map(str, arguments), "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=file, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert "http://" in line, log.read_text()
        yield process, "http://" + line.split("http://")[1].split()[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(address, path, content=None):
    body = None if content is None else json.dumps(content).encode()
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address + path, body, headers), timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
def test_requests_under_way_are_answered_before_it_stops(folder, tmp_path):
    log = tmp_path / "log"
    with started(log, folder / "parts") as (process, address):
        ask(address, "/models/parts/rows")
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as connection:
            body = json.dumps({"features": VALUES[:1].astype(float).tolist()}).encode()
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
            connection.sendall(f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode() + body[:-1])
            ask(address, "/healthz")  # By now the first part of the other request has been read.
            process.send_signal(signal.SIGTERM)
            connection.sendall(body[-1:])
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["answers"]
        assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_no_request_is_lost(folder, tmp_path):
    rows = np.tile(VALUES.astype(float), (20, 1))[:200].tolist()
    with started(tmp_path / "log", folder / "parts", "--workers", "2") as (process, address):
        wanted = ask(address, "/predict", {"features": rows})
        answers = []

        def many():
            answers.extend(ask(address, "/predict", {"features": rows}) for _ in range(20))

        clients = [threading.Thread(target=many) for _ in range(4)]
        for client in clients:
            client.start()
        killed = workers_of(process.pid)[:1]
        os.kill(killed[0], signal.SIGKILL)
        for client in clients:
            client.join()
        assert answers == [wanted] * 80
        ask(address, "/predict", {"features": rows})
        deadline = time.monotonic() + 60
        while len(workers_of(process.pid)) < 2 and time.monotonic() < deadline:
            ask(address, "/predict", {"features": rows})
        assert len(workers_of(process.pid)) == 2
        assert killed[0] not in workers_of(process.pid)

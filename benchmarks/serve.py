"""`shortlist serve` under load on loopback: throughput beside a loop of torch, latency, a killed worker, equal answers.

    python -m benchmarks.serve [--models FOLDER] [--seconds 10] [--requests 10000]

Two models are trained in FOLDER unless they are there: words of PubMed abstracts (680 labels) and 16 features (89
labels). The client shares the machine's cores with the service, as the loop does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.data import Features, Inputs, Texts, open_dataset
from shortlist.predict.model_scores import row_scores
from shortlist.train import load_model
from shortlist.train.data_source import saved_source

_RUN = [sys.executable, "-m", "shortlist"]
_MODELS = {
    "text": ["fit", "pubmed", "--reader", "min_count=20", "--k", "6", "--epochs", "2", "--tune", "0"],
    "features": ["fit", "ambiguous", "--epochs", "2", "--tune", "0"],
}
_BATCH = 64


class Load(NamedTuple):
    """What clients saw: rows answered per second, seconds per request, and how often each status came."""

    rows_per_second: float
    seconds: np.ndarray
    statuses: Counter[int]
    lost: int
    bodies: list[bytes | None]


class Rates(NamedTuple):
    """Rows per second, and microseconds of processor time per row, which other work on the machine hardly changes."""

    rows_per_second: float
    cpu: float


class Service:
    """A running service.

    Args:
        process: the command.
        port: where it listens.
    """

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        return Connection(self.port).ask(request(path))[1]


class Connection:
    """A connection that stays open; it reads no more of HTTP than an answer's status and length.

    Args:
        port: of the service.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, content: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body; ConnectionError if the connection ends before."""
        self._socket.sendall(content)
        first = self._file.readline()
        if not first:
            raise ConnectionError("the connection ended")
        length = 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return int(first.split()[1]), self._file.read(length)

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()


def request(path: str, content: Any = None) -> bytes:
    """An HTTP request, ready to be sent."""
    if content is None:
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


@contextlib.contextmanager
def serving(folder: Path, *options: str, log: Path) -> Iterator[Service]:
    """Start the service and wait until it listens and has opened the held-out rows; stop it at the end."""
    command = [*_RUN, "serve", str(folder), "--port", "0", "--queue", "512", *options]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "http://" not in line:
            raise RuntimeError(log.read_text())
        service = Service(process, int(line.split("http://")[1].split()[0].rpartition(":")[2]))
        until = time.monotonic() + 120
        while b'"opening"' in service.get("/models") and time.monotonic() < until:
            time.sleep(0.2)
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def load(port: int, contents: Sequence[bytes], *, rows: int, connections: int, seconds: float | None = None) -> Load:
    """Send requests over some connections: all of them once, or again and again for some seconds."""
    times: list[list[float]] = [[] for _ in range(connections)]
    statuses: list[Counter[int]] = [Counter() for _ in range(connections)]
    bodies: list[bytes | None] = [None] * (len(contents) if seconds is None else 0)
    lost = [0] * connections
    begun = time.perf_counter()

    def work(client: int) -> None:
        connection = Connection(port)
        at = client
        while at < len(contents) if seconds is None else time.perf_counter() - begun < seconds:
            sent = time.perf_counter()
            try:
                status, body = connection.ask(contents[at % len(contents)])
            except (OSError, ValueError, IndexError):
                lost[client] += 1
                connection = Connection(port)
            else:
                times[client].append(time.perf_counter() - sent)
                statuses[client][status] += 1
                if seconds is None:
                    bodies[at] = body
            at += connections
        connection.close()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begun
    total = sum(statuses, Counter[int]())
    return Load(total[200] * rows / spent, np.concatenate([*map(np.array, times)]), total, sum(lost), bodies)


def loop(folder: Path, inputs: Inputs, *, seconds: float) -> Rates:
    """Torch in one loop of batches, without rules and without HTTP."""
    saved = load_model(folder)
    source = saved_source(saved, folder)
    batches = [inputs.take(rows) for rows in torch.arange(len(inputs)).split(_BATCH) if len(rows) == _BATCH]
    row_scores(saved, batches[0], source).whole()
    done, begun, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        row_scores(saved, batches[done % len(batches)], source).whole()
        done += 1
    spent = time.process_time() - cpu
    return Rates(done * _BATCH / (time.perf_counter() - begun), 1e6 * spent / (done * _BATCH))


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used so far."""
    fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def predict_body(model: str, inputs: Inputs, rows: torch.Tensor) -> dict[str, Any]:
    """The request for some rows."""
    batch = inputs.batch(rows)
    given = {"texts": batch} if isinstance(inputs, Texts) else {"features": batch.double().tolist()}
    return {"model": model, **given}


def throughput(service: Service, models: Path, inputs: dict[str, Inputs], seconds: float) -> None:
    """Print rows per second, processor time and latencies beside the loop."""
    print(f"threads {torch.get_num_threads()}, load of the machine {os.getloadavg()[0]:.1f}")
    for name, rows in inputs.items():
        for size, clients in ((_BATCH, 4), (1, 16)):
            parts = torch.arange(len(rows)).split(size)[:512]
            contents = [request("/predict", predict_body(name, rows, part)) for part in parts if len(part) == size]
            load(service.port, contents, rows=size, connections=clients, seconds=1)
            # Before and after, because the speed of a machine drifts.
            before, cpu = loop(models / name, rows, seconds=seconds / 2), cpu_seconds(service.process.pid)
            found = load(service.port, contents, rows=size, connections=clients, seconds=seconds)
            used = 1e6 * (cpu_seconds(service.process.pid) - cpu) / (found.statuses[200] * size)
            after = loop(models / name, rows, seconds=seconds / 2)
            wall, spent = ((getattr(before, each) + getattr(after, each)) / 2 for each in Rates._fields)
            p50, p99 = 1000 * np.quantile(found.seconds, [0.5, 0.99])
            print(f"{name}, {size} rows per request, {clients} clients:")
            print(f"  {found.rows_per_second:,.0f} rows/s, the loop {wall:,.0f} ({found.rows_per_second / wall:.0%})")
            print(f"  {used:.0f} µs of processor time per row, the loop {spent:.0f} ({spent / used:.0%})")
            print(f"  p50 {p50:.1f} ms, p99 {p99:.1f} ms; statuses {dict(found.statuses)}, {found.lost} lost")


def equal_answers(service: Service, models: Path, inputs: dict[str, Inputs], requests: int, scratch: Path) -> None:
    """Compare the answers to requests of one row each with what `shortlist predict` writes for all rows at once."""
    for name, rows in inputs.items():
        batch = rows.batch(torch.arange(requests) % len(rows))
        file, output = scratch / f"{name}{'.txt' if name == 'text' else '.npy'}", scratch / f"{name}.jsonl"
        if isinstance(rows, Texts):
            batch = [" ".join(text.split()) for text in batch]
            file.write_text("\n".join(batch) + "\n")
            contents = [request("/predict", {"model": name, "texts": [text]}) for text in batch]
        else:
            np.save(file, batch.numpy())
            contents = [request("/predict", {"model": name, "features": [row]}) for row in batch.double().tolist()]
        command = [*_RUN, "predict", str(models / name), "--data", str(file), "--output", str(output)]
        subprocess.run(command, check=True, capture_output=True)
        expected = [json.loads(line) for line in output.read_text().splitlines()]
        found = load(service.port, contents, rows=1, connections=16)
        same = 0
        for body, wanted in zip(found.bodies, expected, strict=True):
            row = json.loads(body or b"{}").get("answers", [{"rows": [{}]}])[0]["rows"][0]
            same += (row.get("labels"), row.get("scores")) == (wanted["labels"], wanted["scores"])
        print(f"{name}: {same:,} of {requests:,} requests of one row equal `shortlist predict`, labels and scores")


def killed_worker(models: Path, inputs: Inputs, scratch: Path, seconds: float) -> None:
    """Kill workers under load and count what became of the requests."""
    parts = [part for part in torch.arange(len(inputs)).split(_BATCH)[:64] if len(part) == _BATCH]
    contents = [request("/predict", predict_body("text", inputs, part)) for part in parts]
    with serving(models / "text", "--workers", "2", log=scratch / "workers.log") as service:
        load(service.port, contents, rows=_BATCH, connections=4, seconds=2)
        killed: list[int] = []

        def kill() -> None:
            for _ in range(2):
                time.sleep(seconds / 3)
                worker = workers_of(service.process.pid)[0]
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

        killer = threading.Thread(target=kill)
        killer.start()
        found = load(service.port, contents, rows=_BATCH, connections=4, seconds=seconds)
        killer.join()
        lines = service.get("/metrics").decode().splitlines()
        replaced = next(line for line in lines if line.startswith("shortlist_workers_replaced_total "))
        print(f"{len(killed)} workers killed under load: {dict(found.statuses)}, {found.lost} connections lost, "
              f"{replaced.split()[1]} replaced, slowest answer {found.seconds.max():.2f} s")  # fmt: skip
        print(f"memory with 2 workers: {shared_memory(service.process.pid)}")


def workers_of(pid: int) -> list[int]:
    """The processes of a service that map a model's parameters, other than itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                int(folder.name) != pid
                and _is_below(folder, pid)
                and "model.safetensors" in (folder / "maps").read_text()
            ):
                found.append(int(folder.name))
    return sorted(found)


def _is_below(folder: Path, pid: int) -> bool:
    current = folder
    while (parent := int((current / "stat").read_text().rpartition(")")[2].split()[1])) > 1:
        if parent == pid:
            return True
        current = Path("/proc", str(parent))
    return False


def shared_memory(pid: int) -> str:
    """Of the mapped parameters, how much the processes hold in all, and how much of it is in memory once."""
    resident = proportional = 0
    for process in (pid, *workers_of(pid)):
        inside = False
        for line in Path("/proc", str(process), "smaps").read_text().splitlines():
            if "-" in line.split()[0] and not line.split()[0].endswith(":"):
                inside = line.endswith("model.safetensors")
            elif inside and line.startswith(("Rss:", "Pss:")):
                kilobytes = int(line.split()[1])
                resident, proportional = (
                    (resident + kilobytes, proportional) if line[0] == "R" else (resident, proportional + kilobytes)
                )
    return f"{resident / 1024:,.0f} MB of parameters mapped by all processes, {proportional / 1024:,.0f} MB in memory"


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("out/serve-models"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    for name, command in _MODELS.items():
        if not (options.models / name / "model.json").is_file():
            subprocess.run([*_RUN, *command, "--output", str(options.models / name)], check=True)
    texts = open_dataset("pubmed", min_count=20).part("test").inputs
    features = open_dataset("ambiguous").part("test").inputs
    inputs: dict[str, Inputs] = {"text": texts, "features": Features(features.batch(torch.arange(len(features))))}
    with TemporaryDirectory() as scratch:
        with serving(options.models, log=Path(scratch, "log")) as service:
            throughput(service, options.models, inputs, options.seconds)
            equal_answers(service, options.models, inputs, options.requests, Path(scratch))
        killed_worker(options.models, texts, Path(scratch), options.seconds)


if __name__ == "__main__":
    main()

"""What the service says of itself: one line of JSON per request, without what it holds, and metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TextIO

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_Labels = tuple[tuple[str, str], ...]


class Log:
    """Writes events as lines of JSON.

    Args:
        file: where to; standard error by default.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def write(self, event: str, **facts: Any) -> None:
        """Write one event; facts that are None are left out."""
        found = {name: fact for name, fact in facts.items() if fact is not None}
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        file = sys.stderr if self._file is None else self._file
        file.write(json.dumps({"time": f"{now}Z", "event": event, **found}) + "\n")
        file.flush()

    def failure(self, event: str, error: BaseException, **facts: Any) -> None:
        """Write an event with the place of an error; not its message, which may repeat what a request held."""
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-6:]]
        self.write(event, error=type(error).__name__, where=where, **facts)


class JsonHandler(logging.Handler):
    """Passes the messages of the server, such as an unreadable request, to the log.

    Args:
        log: the log.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.failure("server", error, level=record.levelname.lower())
        else:
            self._log.write("server", level=record.levelname.lower(), message=record.getMessage()[:300])


class Metrics:
    """Counts of requests and rows, and times, in the text format of Prometheus.

    Args:
        gauges: values that are read when the metrics are, by name: help, type and a function.
    """

    def __init__(self, gauges: Mapping[str, tuple[str, str, Callable[[], float]]] | None = None) -> None:
        self._gauges = dict(gauges or {})
        self._requests: defaultdict[_Labels, int] = defaultdict(int)
        self._times: dict[str, list[float]] = {}
        self._rows: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._requests[(("route", route), ("method", method), ("status", str(status)))] += 1
            # Per bucket, then the sum of the times.
            times = self._times.setdefault(route, [0.0] * (len(_SECONDS) + 2))
            times[bisect_left(_SECONDS, seconds)] += 1
            times[-1] += seconds

    def rows(self, model: str, count: int) -> None:
        """Count rows that a model answered."""
        with self._lock:
            self._rows[model] += count

    def text(self) -> str:
        """All of them as Prometheus reads them."""
        lines: list[str] = []
        with self._lock:
            _family(lines, "requests_total", "Requests answered.", "counter")
            lines += [_sample("requests_total", labels, count) for labels, count in sorted(self._requests.items())]
            _family(lines, "request_seconds", "Seconds from a request to its answer.", "histogram")
            for route, (*buckets, total) in sorted(self._times.items()):
                lines += _histogram(route, buckets, total)
            _family(lines, "rows_total", "Rows answered, by model.", "counter")
            lines += [_sample("rows_total", (("model", model),), count) for model, count in sorted(self._rows.items())]
        for name, (about, kind, read) in self._gauges.items():
            _family(lines, name, about, kind)
            lines.append(_sample(name, (), read()))
        return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, about: str, kind: str) -> None:
    lines += [f"# HELP shortlist_{name} {about}", f"# TYPE shortlist_{name} {kind}"]


def _histogram(route: str, buckets: list[float], total: float) -> list[str]:
    lines, below = [], 0.0
    for bound, count in zip((*map(str, _SECONDS), "+Inf"), buckets, strict=True):
        below += count
        lines.append(_sample("request_seconds_bucket", (("route", route), ("le", bound)), below))
    ends = (("sum", total), ("count", below))
    return [*lines, *(_sample(f"request_seconds_{name}", (("route", route),), value) for name, value in ends)]


def _sample(name: str, labels: _Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"shortlist_{name}{f'{{{inside}}}' if inside else ''} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

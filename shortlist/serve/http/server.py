"""Run the service until it is stopped: the server around the application, its address, its log."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator

import uvicorn

from shortlist.errors import InputError
from shortlist.serve.http.app import make_app
from shortlist.serve.http.guard import Guard
from shortlist.serve.observing import JsonHandler, Log
from shortlist.serve.service import Service

# Requests under way beyond those that wait for a model.
_OTHERS = 256


def guarded(service: Service, *, names: Iterable[str] = (), token: str | None = None, log: Log | None = None) -> Guard:
    """The application behind the checks of every request.

    Args:
        service: what answers.
        names: that it is called by, beside those of this machine.
        token: that requests must bear; None for none.
        log: standard error by default.
    """
    return Guard(
        make_app(service),
        hosts=names,
        token=token,
        most_bytes=service.limits.bytes,
        seconds=service.limits.seconds,
        most_requests=service.limits.waiting + _OTHERS,
        log=log or Log(),
        metrics=service.metrics,
    )


def serve(
    service: Service,
    *,
    host: str,
    port: int,
    names: Iterable[str] = (),
    token: str | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> None:
    """Listen and answer until SIGINT or SIGTERM; requests under way are answered first.

    Args:
        service: what answers.
        host, port: the address; port 0 takes any that is free.
        names, token: as of `guarded`.
        tell: called with the address once the service listens.

    Raises:
        InputError: if the address cannot be listened on.
    """
    log = Log()
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [JsonHandler(log)], False
    config = uvicorn.Config(
        guarded(service, names=names, token=token, log=log),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=int(service.limits.seconds) + 5,
    )
    with contextlib.closing(_listen(host, port)) as listening:
        shown = f"[{host}]" if ":" in host else host
        tell(f"http://{shown}:{listening.getsockname()[1]}")
        with _stopping():
            uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as opened:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            # With the protocol named, asyncio turns off the delay of small packets, which costs 40 ms per answer.
            listening = opened.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(2048)
        except OSError as error:
            raise InputError(
                f"--host {host} --port {port} cannot be listened on: {error.strerror or error}."
            ) from error
        opened.pop_all()  # The caller closes it.
        return listening


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """End quietly on SIGINT and SIGTERM, which the server raises again once it has answered what was under way."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, former)

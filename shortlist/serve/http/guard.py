"""What stands before every request: who may ask, from which page, how much and for how long; and the log of it.

The service is for this machine unless it is told otherwise. A page of another site that the user has open must reach
it neither by its address nor by a name that resolves to it (DNS rebinding), so `Host` and `Origin` are checked, and no
answer allows other origins to read it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from shortlist.serve.observing import Log, Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# What shows no data, so that a browser can ask for the token there and a supervisor for the health.
_PUBLIC = ("/", "/healthz", "/docs", "/openapi.json")
# Bodies of the greatest length that are held at a time.
_BODIES = 16
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class TooLongError(Exception):
    """The body of a request has more bytes than the service reads."""


class TooSlowError(Exception):
    """The body of a request did not arrive in time."""


class TooManyError(Exception):
    """The requests under way hold more than the service keeps at a time."""


class Guard:
    """Middleware that refuses, limits, and logs.

    Args:
        app: what answers the requests that pass.
        hosts: names and addresses that the service is called by, beside those of this machine.
        token: that requests must bear; None for none.
        most_bytes: of a body.
        seconds: for a body to arrive.
        most_requests: at a time; more are refused, as are bodies that together are longer than sixteen of the longest.
        log, metrics: where requests are noted.
    """

    def __init__(
        self,
        app: Application,
        *,
        hosts: Iterable[str] = (),
        token: str | None = None,
        most_bytes: int,
        seconds: float,
        most_requests: int = 512,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._app, self._log, self._metrics = app, log, metrics
        self._hosts = {host.lower() for host in (*LOOPBACK, *hosts)}
        self._token = None if token is None else token.encode()
        self._most_bytes, self._seconds, self._most_requests = most_bytes, seconds, most_requests
        self._requests = self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun, status, ended, request_id = time.perf_counter(), 0, False, secrets.token_hex(8)

        async def answer(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message.get("headers", ())}
                own = {**_HEADERS, "x-request-id": request_id}
                extra = [(name.encode(), value.encode()) for name, value in own.items() if name.encode() not in given]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        refused, body = self._refusal(scope), _Body()
        self._requests += 1
        try:
            if refused is None:
                await self._app(scope, self._bounded(receive, body), answer)
            else:
                await refused(scope, receive, answer)
        except Exception as error:
            response = too_much(error)
            if response is None:
                self._log.failure("failure", error, request=request_id)
            if status and not ended:  # The answer has begun, so nothing can be said any more.
                raise
            if not status:
                failed = refusal(500, "the service failed; its log says where.")
                await (response or failed)(scope, receive, answer)
        finally:
            self._requests -= 1
            self._held -= body.bytes
            self._note(scope, status, time.perf_counter() - begun, request_id)

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        # The pattern of a route, not the path, which may name labels or rows.
        route = getattr(scope.get("route"), "path", "other")
        facts = {"method": scope["method"], "route": route, "status": status or 499, "ms": round(1000 * seconds, 2)}
        self._metrics.request(route, scope["method"], status or 499, seconds)
        self._log.write("request", **facts, request=request_id, **scope.get("shortlist", {}))

    def _refusal(self, scope: Scope) -> Response | None:
        if self._requests >= self._most_requests:
            return too_much(TooManyError())
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            name = name.decode("latin-1").lower()
            if name in headers and name in ("host", "origin", "authorization", "content-length"):
                return refusal(400, f"the header {name} must be given once.")
            headers[name] = value.decode("latin-1")
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            return refusal(403, "the Host of the request is not one that this service answers to.")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return refusal(403, "pages of other sites may not use this service.")
        navigation = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not navigation:
            return refusal(403, "pages of other sites may not use this service.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._most_bytes:
            return too_much(TooLongError(self._most_bytes))
        return self._check_token(scope["path"], headers.get("authorization", ""))

    def _check_token(self, path: str, given: str) -> Response | None:
        if self._token is None or path in _PUBLIC or path.startswith("/static/"):
            return None
        kind, _, token = given.partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            return None
        return refusal(401, "the request must bear the service's token.", {"www-authenticate": "Bearer"})

    def _bounded(self, receive: Receive, body: _Body) -> Receive:
        """Count the bytes of a body, and give it so much time."""
        until = time.monotonic() + self._seconds

        async def bounded() -> Message:
            if body.is_complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, until - time.monotonic()))
            except (TimeoutError, asyncio.TimeoutError) as error:
                raise TooSlowError from error
            length = len(message.get("body", b""))
            body.bytes += length
            self._held += length
            body.is_complete = not message.get("more_body", False)
            if body.bytes > self._most_bytes:
                raise TooLongError(self._most_bytes)
            if self._held > _BODIES * self._most_bytes:
                raise TooManyError
            return message

        return bounded


@dataclass
class _Body:
    """How much of a body was read."""

    bytes: int = 0
    is_complete: bool = False


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine alone.

    Example:
        >>> is_loopback("127.0.0.5"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    """The name or address in a Host header, without the port.

    Example:
        >>> _host_name("localhost:8000"), _host_name("[::1]:8000"), _host_name("LOCALHOST.")
        ('localhost', '::1', 'localhost')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().rstrip(".")


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as one sentence of JSON."""
    return JSONResponse({"error": sentence}, status, headers=None if headers is None else dict(headers))


def too_much(error: Exception) -> Response | None:
    """The answer to a body that was too long, too slow or one too many; None for other errors."""
    if isinstance(error, TooLongError):
        return refusal(413, f"the body must have at most {error.args[0]} bytes.", {"connection": "close"})
    if isinstance(error, TooManyError):
        headers = {"connection": "close", "retry-after": "1"}
        return refusal(429, "too many requests are under way: send this one again later.", headers)
    if isinstance(error, TooSlowError):
        return refusal(408, "the body did not arrive in time.", {"connection": "close"})
    return None

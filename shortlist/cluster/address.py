"""Where tasks run, as users write it: ``local``, ``dask://HOST:PORT`` or ``ray://HOST:PORT``."""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

_ENGINES = ("dask", "ray")
_SECONDS_TO_ANSWER = 5.0


class Address(NamedTuple):
    """An engine and, if it is one that runs already, where it listens; ``text`` is what the user wrote."""

    text: str
    engine: str
    host: str | None = None
    port: int | None = None


def read_address(text: str) -> Address:
    """Take an address apart.

    Raises:
        ValueError: for anything but the forms above.

    Example:
        >>> read_address("dask://10.0.0.5:8786")[1:], read_address("ray://")[1:]
        (('dask', '10.0.0.5', 8786), ('ray', None, None))
    """
    if not isinstance(text, str):
        raise TypeError(f"`cluster` must be a text; got {type(text).__name__}.")
    if text == "local":
        return Address(text, "local")
    engine, separator, where = text.partition("://")
    if engine in _ENGINES and separator:
        if not where:
            return Address(text, engine)
        try:
            parts = urlsplit(text)
            if parts.hostname and parts.port and not parts.username and parts.netloc == where:
                return Address(text, engine, parts.hostname, parts.port)
        except ValueError:  # Of a port that is no number.
            pass
    raise ValueError(
        "`cluster` must be local, dask://HOST:PORT or ray://HOST:PORT, or dask:// or ray:// for one that is started "
        f"on this machine; got {text!r}."
    )


def check_cluster(text: str) -> None:
    """Refuse an address that is none, or where nothing listens, before hours of work are prepared for it.

    Raises:
        ValueError: for what is no address.
        ConnectionError: in one sentence, where nobody answers.

    Example:
        >>> check_cluster("local")
        >>> check_cluster("slurm://here")
        Traceback (most recent call last):
        ValueError: `cluster` must be local, dask://HOST:PORT or ray://HOST:PORT, or dask:// or ray:// for one that is
        started on this machine; got 'slurm://here'.
    """
    address = read_address(text)
    if address.host is None or address.port is None:
        return
    try:
        socket.create_connection((address.host, address.port), timeout=_SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise unreachable(address, error.strerror or "no answer") from error


def unreachable(address: Address, reason: object) -> ConnectionError:
    """What to raise for a cluster that does not answer."""
    first = (str(reason).strip().splitlines() or ["no answer"])[0]
    return ConnectionError(f"`{address.text}` cannot be reached: {first.rstrip('.: ')}.")

"""Cluster addresses (``local``, ``dask://HOST:PORT``, ``ray://HOST:PORT``) and checks before sending work."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from shortlist import __version__
from shortlist.errors import InputError

_ENGINES = ("dask", "ray")
_CONNECT_SECONDS = 5.0


class Address(NamedTuple):
    """An engine and, for a running cluster, its host and port; ``text`` is what the user wrote."""

    text: str
    engine: str
    host: str | None = None
    port: int | None = None


def read_address(text: str) -> Address:
    """Parse an address.

    Raises:
        InputError: if the address is invalid.

    Example:
        >>> read_address("dask://10.0.0.5:8786")[1:], read_address("ray://")[1:]
        (('dask', '10.0.0.5', 8786), ('ray', None, None))
    """
    if not isinstance(text, str):
        raise TypeError(f"`cluster` must be a string; got {type(text).__name__}.")
    if text == "local":
        return Address(text, "local")
    engine, separator, netloc = text.partition("://")
    if engine in _ENGINES and separator:
        if not netloc:
            return Address(text, engine)
        try:
            parts = urlsplit(text)
            if parts.hostname and parts.port and not parts.username and parts.netloc == netloc:
                return Address(text, engine, parts.hostname, parts.port)
        except ValueError:  # The port is not a number.
            pass
    raise InputError(
        "`cluster` must be local, dask://HOST:PORT or ray://HOST:PORT, or dask:// or ray:// to start one on this "
        f"machine; got {text!r}."
    )


def check_cluster(text: str) -> None:
    """Check that an address is valid and that something listens there, before preparing hours of work.

    Raises:
        InputError: if the address is invalid.
        ConnectionError: if nothing listens there.

    Example:
        >>> check_cluster("local")
        >>> check_cluster("slurm://here")
        Traceback (most recent call last):
        shortlist.errors.InputError: `cluster` must be local, dask://HOST:PORT or ray://HOST:PORT, or dask:// or ray://
        to start one on this machine; got 'slurm://here'.
    """
    address = read_address(text)
    if address.host is None or address.port is None:
        return
    try:
        socket.create_connection((address.host, address.port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise unreachable(address, error.strerror or "no answer") from error


def unreachable(address: Address, reason: object) -> ConnectionError:
    """Return the error for a cluster that does not respond, with the first line of the reason."""
    first = (str(reason).strip().splitlines() or ["no answer"])[0]
    return ConnectionError(f"`{address.text}` cannot be reached: {first.rstrip('.: ')}.")


def check_versions(address: Address, found: Mapping[str, object]) -> None:
    """Check that workers have the same release of shortlist; others could fail midway or compute something else.

    Args:
        address: the cluster's address.
        found: for each worker, its version or the exception that the query raised. Lost workers are ignored.

    Raises:
        ImportError: if a worker has no shortlist or another release; names the worker.
    """
    for worker, version in found.items():
        if isinstance(version, ImportError):
            reason = " ".join(str(version).split()).rstrip(".")
            raise ImportError(f"worker {worker} of `{address.text}` cannot import shortlist: {reason}.")
        if isinstance(version, str) and version != __version__:
            raise ImportError(
                f"worker {worker} of `{address.text}` has shortlist {version} and this process {__version__}; install "
                "the same release on both."
            )

"""Addresses of clusters: invalid ones, unreachable ones and those of other releases are refused."""

import re
import socket
import threading

import pytest

from shortlist import __version__
from shortlist.cluster import check_cluster, run_tasks
from shortlist.cluster.address import Address, check_versions, read_address, unreachable
from shortlist.errors import InputError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("local", ("local", None, None)),
        ("dask://", ("dask", None, None)),
        ("ray://", ("ray", None, None)),
        ("dask://node-1.cluster:8786", ("dask", "node-1.cluster", 8786)),
        ("ray://[::1]:10001", ("ray", "::1", 10001)),
    ],
)
def test_an_address_is_an_engine_with_host_and_port(text, parts):
    assert read_address(text) == (text, *parts)


INVALID = (
    "Local,dask,dask:,dask:/,dask://host,dask://:8786,ray://host:,dask://host:0,tcp://h:1,local ,dask://host:99999,"
)
INVALID += "dask://host:port,dask://me:secret@host:1,ray://host:1/path,dask://h:1?x,"


@pytest.mark.parametrize("text", INVALID.split(","))
def test_anything_else_is_refused_with_what_came(text):
    with pytest.raises(InputError, match=rf"^`cluster` must be local, .*; got {re.escape(repr(text))}\.$"):
        check_cluster(text)


def test_other_types_are_refused():
    cluster: object = 8786
    with pytest.raises(TypeError, match=r"^`cluster` must be a string; got int\.$"):
        check_cluster(cluster)  # pyright: ignore


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_an_address_where_nothing_listens_is_reported(engine):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        text = f"{engine}://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: [^\n]+\.$"):
        check_cluster(text)
    with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: [^\n]+\.$"):
        list(run_tasks(divmod, 1, [1], cluster=text))
    assert list(run_tasks(divmod, 1, [], cluster=text)) == []


def test_another_kind_of_server_is_reported():
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):  # The check that something listens, and the client.
                other, _ = server.accept()
                with other:
                    other.sendall(b"HTTP/1.0 400 Bad request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        text = f"dask://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: no Dask scheduler responds\.$"):
            list(run_tasks(divmod, 1, [1], cluster=text))


def test_of_a_long_reason_the_first_line_is_reported():
    error = unreachable(Address("ray://a:1", "ray"), "\nno answer:\n  Traceback ...")
    assert str(error) == "`ray://a:1` cannot be reached: no answer."


def test_workers_without_this_release_are_refused_and_lost_ones_ignored():
    address = read_address("dask://a:1")
    check_versions(address, {"w1": __version__, "w2": OSError("gone")})
    with pytest.raises(ImportError, match=r"^worker w2 of `dask://a:1` has shortlist 0\.0\.1 and this "):
        check_versions(address, {"w1": __version__, "w2": "0.0.1"})
    missing = ModuleNotFoundError("No module named 'shortlist'")
    with pytest.raises(ImportError, match=r"^worker w1 of `dask://a:1` cannot import shortlist: No module named"):
        check_versions(address, {"w1": missing})

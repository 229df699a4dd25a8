"""Where tasks run: what is no address, nobody's address, or that of other releases is refused in one sentence."""

import re
import socket
import threading

import pytest

from shortlist import __version__
from shortlist.cluster import check_cluster, run_tasks
from shortlist.cluster.address import Address, read_address, unreachable
from shortlist.cluster.engine import refuse_other_versions


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
def test_an_address_is_an_engine_and_a_place(text, parts):
    assert read_address(text) == (text, *parts)


NONE = "Local,dask,dask:,dask:/,dask://host,dask://:8786,ray://host:,dask://host:0,tcp://h:1,local ,dask://host:99999,"
NONE += "dask://host:port,dask://me:secret@host:1,ray://host:1/path,dask://h:1?x,"


@pytest.mark.parametrize("text", NONE.split(","))
def test_anything_else_is_refused_with_what_came(text):
    with pytest.raises(ValueError, match=rf"^`cluster` must be local, .*; got {re.escape(repr(text))}\.$"):
        check_cluster(text)


def test_what_is_no_text_is_refused():
    cluster: object = 8786
    with pytest.raises(TypeError, match=r"^`cluster` must be a text; got int\.$"):
        check_cluster(cluster)  # pyright: ignore


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_where_nobody_listens_is_told_with_the_address(engine):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        text = f"{engine}://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: [^\n]+\.$"):
        check_cluster(text)
    with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: [^\n]+\.$"):
        list(run_tasks(divmod, 1, [1], cluster=text))
    assert list(run_tasks(divmod, 1, [], cluster=text)) == []


def test_where_something_else_listens_is_told_with_the_address():
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):  # The look whether anybody is there, and the client.
                other, _ = server.accept()
                with other:
                    other.sendall(b"HTTP/1.0 400 Bad request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        text = f"dask://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"^`{text}` cannot be reached: no Dask scheduler answers\.$"):
            list(run_tasks(divmod, 1, [1], cluster=text))


def test_reasons_of_many_lines_become_one_sentence():
    error = unreachable(Address("ray://a:1", "ray"), "\nno answer:\n  Traceback ...")
    assert str(error) == "`ray://a:1` cannot be reached: no answer."


def test_workers_of_other_releases_or_none_are_refused_and_lost_ones_are_not():
    address = read_address("dask://a:1")
    refuse_other_versions(address, {"w1": __version__, "w2": OSError("gone")})
    with pytest.raises(ImportError, match=r"^worker w2 of `dask://a:1` has shortlist 0\.0\.1 and this "):
        refuse_other_versions(address, {"w1": __version__, "w2": "0.0.1"})
    missing = ModuleNotFoundError("No module named 'shortlist'")
    with pytest.raises(ImportError, match=r"^worker w1 of `dask://a:1` cannot import shortlist: No module named"):
        refuse_other_versions(address, {"w1": missing})

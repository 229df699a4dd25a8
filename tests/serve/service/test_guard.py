"""Who may ask, from which page, how much; and what the log and the metrics say of it."""

import json

import anyio
import pytest

from shortlist.serve.http.guard import Guard, is_loopback
from shortlist.serve.observing import Log, Metrics
from shortlist.serve.service import Limits
from tests.serve.service.conftest import running, sentence

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8000", "[::1]:8000", "LOCALHOST."])
def test_this_machine_may_ask(asked, host):
    assert asked.client.get("/healthz", headers={"host": host}).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "0.0.0.0"]
)
def test_a_name_that_resolves_to_this_machine_is_refused(asked, host):
    assert "Host" in sentence(asked.client.get("/models", headers={"host": host}), 403)


@pytest.mark.parametrize("headers", [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
])  # fmt: skip
def test_pages_of_other_sites_are_refused(asked, headers):
    assert "other sites" in sentence(asked.client.post("/predict", json={"texts": ["a"]}, headers=headers), 403)


def test_the_own_page_and_links_to_it_are_not_refused(asked):
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert asked.client.post("/predict", json={"texts": ["a"]}, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert asked.client.get("/", headers=link).status_code == 200


def test_no_answer_lets_other_origins_read_it_and_none_is_stored(asked):
    for path in ("/", "/models", "/nothing", "/docs"):
        headers = asked.client.get(path).headers
        assert not [name for name in headers if name.startswith("access-control")]
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
    assert asked.client.options("/predict", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_request_without_the_token_is_refused(folder):
    with running(folder / "texts", token=TOKEN, names=("plants.example.org",)) as asked:
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Bearer é"}):
            headers = {name: value.encode("latin-1") for name, value in given.items()}
            for path in ("/models", "/metrics", "/rules", "/nothing"):
                assert "token" in sentence(asked.client.get(path, headers=headers), 401)
        bearer = {"authorization": f"Bearer {TOKEN}", "host": "plants.example.org"}
        assert asked.client.get("/models", headers=bearer).status_code == 200
        for path in ("/", "/healthz", "/docs", "/openapi.json"):
            assert asked.client.get(path).status_code == 200
        assert TOKEN not in asked.logged.getvalue()


@pytest.mark.parametrize("length", ["65537", "-1", "1e3", "9" * 40, ""])
def test_a_body_that_says_it_is_too_long_is_refused_unread(asked, length):
    answer = asked.client.post("/predict", content=b"", headers={"content-length": length})
    assert "bytes" in sentence(answer, 413)


def test_a_body_that_does_not_say_how_long_it_is_is_read_up_to_the_limit(asked):
    seen = []

    def body():
        for _ in range(100):
            seen.append(1)
            yield b" " * 4096

    answer = asked.client.post("/predict", content=body(), headers={"content-type": "application/json"})
    assert "at most 65536 bytes" in sentence(answer, 413)


def test_a_body_that_comes_too_slowly_is_refused():
    sent = []

    async def app(scope, receive, send):
        await receive()

    async def receive():
        await anyio.sleep_forever()

    async def send(message):
        sent.append(message)

    log, metrics = Log(Quiet()), Metrics()
    guard = Guard(app, most_bytes=10, seconds=0.0, log=log, metrics=metrics)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    anyio.run(guard, scope, receive, send)
    assert sent[0]["status"] == 408
    assert 'status="408"' in metrics.text()


class Quiet:
    """A file that keeps nothing."""

    def write(self, text):
        pass

    def flush(self):
        pass


def test_headers_that_decide_may_come_only_once(asked):
    headers = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert "once" in sentence(asked.client.get("/models", headers=headers), 400)


@pytest.mark.parametrize("path", [
    "/static/app.py", "/static/..%2fapp.py", "/static/%2e%2e/%2e%2e/models.py", "/static//etc/passwd", "/static/.",
    "/../../etc/passwd", "/models/..%2f..%2fetc/rows", "/static/%00",
])  # fmt: skip
def test_no_path_of_a_request_reaches_the_file_system(asked, path, monkeypatch):
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a file was opened"))
    monkeypatch.setattr("pathlib.Path.open", lambda *_, **__: pytest.fail("a file was opened"))
    sentence(asked.client.get(path), 404)


def test_the_page_and_its_documentation_need_no_other_site(asked):
    for path in ("/", "/docs"):
        page = asked.client.get(path).text
        assert "<script>" not in page
        assert 'src="http' not in page
        assert 'href="http' not in page
    assert "POST" in asked.client.get("/docs").text


def test_the_log_has_a_line_per_request_without_what_it_holds(asked):
    before = len(asked.logged.getvalue())
    asked.post("/predict", texts=["a secret word"])
    asked.refused(422, "/predict", texts=["a secret word"], model="photos-model")
    asked.client.get("/models/texts/rows", params={"show": "label", "label": "a secret word"})
    asked.client.get("/models/a secret word/rows")
    lines = asked.logged.getvalue()[before:].splitlines()
    assert "secret" not in "".join(lines)
    first = json.loads(lines[0])
    assert (first["route"], first["status"], first["rows"], first["models"]) == ("/predict", 200, 1, ["texts"])
    assert [json.loads(line)["status"] for line in lines] == [200, 422, 422, 404]


def test_metrics_are_what_prometheus_reads(asked):
    asked.post("/predict", texts=["owl"])
    text = asked.client.get("/metrics").text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(samples['shortlist_requests_total{route="/predict",method="POST",status="200"}']) >= 1
    assert float(samples['shortlist_rows_total{model="texts"}']) >= 1
    buckets = [
        float(samples[name]) for name in samples if name.startswith('shortlist_request_seconds_bucket{route="/predict"')
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == float(samples['shortlist_request_seconds_count{route="/predict"}'])
    assert float(samples["shortlist_waiting"]) == 0


def test_a_failure_is_one_sentence_and_the_log_says_where_but_not_of_what(asked, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a secret word")

    monkeypatch.setattr(asked.service, "describe", broken)
    assert "failed" in sentence(asked.client.get("/models"), 500)
    logged = asked.logged.getvalue()
    assert "KeyError" in logged
    assert "secret" not in logged


def test_only_addresses_of_this_machine_are_loopback():
    assert is_loopback("127.0.0.1")
    assert is_loopback("[::1]")
    assert not is_loopback("127.0.0.1.evil.example")
    assert not is_loopback("")


def test_limits_are_those_of_the_command():
    assert Limits().rows == 1024


def test_more_requests_or_bytes_at_a_time_than_are_held_are_refused():
    held, statuses = anyio.Event(), []

    async def app(scope, receive, send):
        await receive()
        await held.wait()

    async def receive():
        return {"type": "http.request", "body": b"0123456789", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def many(guard, count):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(guard, dict(scope), receive, send)
            await anyio.wait_all_tasks_blocked()
            held.set()

    given = {"most_bytes": 10, "seconds": 10.0, "log": Log(Quiet()), "metrics": Metrics()}
    anyio.run(many, Guard(app, most_requests=3, **given), 5)
    assert statuses == [429] * 2
    statuses.clear()
    held = anyio.Event()
    anyio.run(many, Guard(app, **given), 18)
    assert statuses == [429] * 2

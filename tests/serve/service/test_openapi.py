"""Requests made up from the OpenAPI document: none fails."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.serve.service.conftest import running

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
def test_no_request_of_the_document_is_answered_by_a_failure(folder):
    schemathesis = pytest.importorskip("schemathesis")
    with running(*(folder / name for name in ("parts", "sets", "texts", "photos-model")), read_only=True) as asked:
        for name in asked.service.models:
            asked.get(f"/models/{name}/rows")
        schema = schemathesis.openapi.from_dict(asked.get("/openapi.json"))
        seen = set()
        for operation in schema.get_all_operations():
            check(asked, operation.ok(), seen)
    assert ("/predict", 200) in seen or ("/predict", 422) in seen
    assert len({path for path, _ in seen}) >= 9


def check(asked, operation, seen):
    """Send made-up requests of one route."""

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(case=operation.as_strategy())
    def one(case):
        body = {"json": case.body} if case.media_type == "application/json" else {}
        path = "/" + case.formatted_path.lstrip("/")
        answer = asked.client.request(case.method, path, params=case.query or None, **body)
        seen.add((operation.path, answer.status_code))
        assert answer.status_code < 500, (case.method, path, case.query, body)

    one()

"""The OpenAPI document: it is valid, and what it says is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate

from eventq.http.app import OPERATIONS
from tests.http.conftest import of_server

if TYPE_CHECKING:
    import httpx
    import requests
    import schemathesis

    import eventq

BUDGET = settings(
    deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate],
)  # fmt: skip
BLOB = blake3(b"bytes").hexdigest()


def test_the_document_is_valid(client: httpx.Client) -> None:
    """It has each operation, with its sentence and its parameters."""
    document = of_server(client, "/api/openapi.json").json()
    validate(document)
    found = {
        one["operationId"]: one for path in document["paths"].values() for one in path.values()
    }
    assert {one.name for one in OPERATIONS} < {*found, "health"}
    assert found["claim"]["summary"] == "Lease the next events to a worker."
    assert [one["name"] for one in found["claim"]["parameters"]] == ["thread", "consumer", "wait"]


@pytest.mark.parametrize("examples", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_what_the_document_says_is_true(
    client: httpx.Client, thread: eventq.Thread, examples: int
) -> None:
    """Made-up calls get the replies that it promises, and never an error of the server's own."""
    import requests
    import schemathesis  # all tests would wait for it
    from schemathesis.core.result import Ok

    thread.push_many([("self", "note", "x")] * 3)
    thread.subscribe("w")
    thread.ask("Well?")
    thread.contexts.create("main").append("a turn")
    thread.contexts.create("other")
    run = thread.runs.start("work", "a task", label="build")
    run.step("coder", content="done")
    thread.artifacts.put(b"one\ntwo\n")
    thread.outputs.put("Scout", "found")
    thread.blobs.put(b"bytes")
    document = of_server(client, "/api/openapi.json").json()
    for streamed in ("events", "runs"):  # these do not end
        del document["paths"][f"/api/threads/{{thread}}/{streamed}/stream"]
    schema = schemathesis.openapi.from_dict(document)
    server = str(client.base_url).partition("/api")[0]
    with requests.Session() as session:
        session.headers["authorization"] = client.headers["authorization"]
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()

            @settings(BUDGET, max_examples=examples)
            @given(case=operation.as_strategy())
            def call(case: schemathesis.Case[Any]) -> None:
                checked(case, server, session)

            call()


def checked(case: schemathesis.Case[Any], server: str, session: requests.Session) -> None:
    """Make one call, and check its reply against the document."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    names = {
        "thread": "thread", "consumer": "w", "context": "main", "run": "build", "artifact": "0",
        "output": "0-Scout", "hash": BLOB,
    }  # fmt: skip
    found = case.path_parameters or {}
    case.path_parameters = {name: names.get(name, value) for name, value in found.items()}
    case.query = {
        name: 0 if name == "wait" else value for name, value in (case.query or {}).items()
    }
    response = case.call(base_url=server, session=session)
    promised = [
        not_a_server_error,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]
    case.validate_response(response, checks=promised)

"""Each right at each door, by a table: what is not in it is refused, and what is new must be in it.

Members of the kind: operations of the OpenAPI document, what is about the server, pages and their
forms, endpoints of CXDB; with a token of each right, of two, with none, a wrong one and a blank
one; what a reply tells to somebody who may not read. tests/mcp/test_servers.py has the tools of
MCP.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest

from eventq.http.app import OPERATIONS
from eventq.http.tokens import Token
from eventq.serving.principal import RIGHTS
from tests.http.conftest import TOKEN, problem

if TYPE_CHECKING:
    import eventq
    from tests.http.conftest import Serve

# The right that each operation needs.
TABLE = {
    "read": """
        listEvents getEvent listQuestions getQuestion listConsumers getConsumer listClaims
        listDeadLetters getStatus check streamEvents streamRuns listContexts getContext listTurns
        diffContexts getTurn listRuns getRun listSteps listMessages listArtifacts getArtifact
        readArtifact readLines listOutputs getOutput readOutput readBlob
        getEventCauses getTurnCauses getUsage getUsageByHour
    """,
    "push": "pushEvents ask",
    "answer": "answer",
    "work": """
        subscribe unsubscribe pop ack pause resume claim settle extend retryDeadLetters
        dropDeadLetters
    """,
    "all": """
        createContext forkContext appendTurn startRun addStep endRun pokeRun compactRun forkRun
        suspendRun resumeRun deleteRun cancelRun putArtifact putOutput putBlob
    """,
}
NEEDS = {name: right for right, names in TABLE.items() for name in names.split()}
# The rights that each token has.
HELD: dict[str, set[str]] = {
    "t-read": {"read"},
    "t-push": {"push"},
    "t-work": {"work", "read"},
    "t-all": {"read", "push", "work", "all"},
    "t-answer": {"answer"},
    "t-both": {"push", "answer"},
    TOKEN: {*RIGHTS},
}
TOKENS = [Token(name, name, frozenset(held)) for name, held in HELD.items() if name != TOKEN]
NOBODY = (
    "", "Bearer", "Bearer wrong", "Basic x", f"Bearer {TOKEN} x", "Bearer  t-all", "Bearer T-ALL",
    "t-all", "Bearer t-al",
)  # fmt: skip
CXDB = [
    ("GET", "/v1/contexts", "read"), ("GET", "/v1/contexts/1", "read"),
    ("GET", "/v1/contexts/1/turns", "read"), ("GET", "/v1/contexts/1/provenance", "read"),
    ("GET", "/v1/contexts/search?q=x", "read"), ("GET", "/v1/registry/bundles/x", "read"),
    ("GET", "/v1/registry/types/x/versions/1", "read"), ("GET", "/v1/registry/renderers", "read"),
    ("GET", "/v1/metrics", "read"), ("GET", "/v1/events", "read"), ("GET", "/healthz", "read"),
    ("POST", "/v1/contexts", "all"), ("POST", "/v1/contexts/create", "all"),
    ("POST", "/v1/contexts/fork", "all"), ("POST", "/v1/contexts/1/turns", "all"),
    ("POST", "/v1/contexts/1/append", "all"), ("PUT", "/v1/registry/bundles/x", "all"),
]  # fmt: skip
SERVER = [("GET", at, "read") for at in
          ("/api/threads", "/api/health", "/api/openapi.json", "/metrics")]  # fmt: skip
PAGES = [("GET", at, "read") for at in ("/", "/changes", "/t/thread/", "/t/thread/live",
         "/t/thread/answers", "/t/thread/consumers", "/t/thread/consumers/w", "/t/thread/health", "/t/thread/branches",
         "/t/thread/contexts/1", "/t/thread/turns/1", "/t/thread/diff", "/t/thread/runs",
         "/t/thread/runs/1", "/t/thread/output", "/t/thread/output/0")]  # fmt: skip
FORMS = {"answer": "answer", "resume": "work", "pause": "work", "replay": "work", "retry": "work",
         "skip": "work",
         "drop": "work", "fork": "all", "check": "read"}  # fmt: skip
OPEN = [("GET", "/login"), ("GET", "/static/style.css")]
NAMES = {"thread": "thread", "id": "1", "hash": "0" * 64} | dict.fromkeys(
    ("consumer", "context", "run", "artifact", "output"), "w"
)


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a client without a token of a server that others can reach."""
    client = serve(path, tokens=TOKENS, listen="0.0.0.0:0")
    client.base_url = httpx.URL(f"http://127.0.0.1:{client.base_url.port}")
    del client.headers["authorization"]
    return client


def status(client: httpx.Client, method: str, at: str, shown: str = "") -> int:
    """Return the status of a reply, of which no body is read: it may be a stream."""
    headers = {"authorization": shown} if shown else {}
    with client.stream(method, at, headers=headers) as found:
        return found.status_code


def doors() -> list[tuple[str, str, str]]:
    """Return each method and path that a token is for, with the right that it needs."""
    operations = [(one.method, one.path.format(**NAMES), NEEDS[one.name]) for one in OPERATIONS]
    return [*operations, *CXDB, *SERVER, *PAGES]


def test_the_table_has_each_operation() -> None:
    """None can be forgotten when it is added."""
    assert sorted(NEEDS) == sorted(one.name for one in OPERATIONS)


@pytest.mark.parametrize("token", HELD)
def test_a_right_opens_its_doors_and_no_other(client: httpx.Client, token: str) -> None:
    """A refusal is a 403, and comes before anything is looked up."""
    for method, at, right in doors():
        found = status(client, method, at, f"Bearer {token}")
        assert (found != 403) == (right in HELD[token]), (method, at, found)
        assert found not in (401, 500)


@pytest.mark.parametrize("shown", NOBODY)
def test_who_is_nobody_opens_none(client: httpx.Client, shown: str) -> None:
    """Without a token, or with what is none; whoever comes to sign in is let in to do that."""
    for method, at, _ in doors():
        assert status(client, method, at, shown) == 401, (method, at)
    for form in FORMS:
        assert status(client, "POST", f"/t/thread/do/{form}", shown) == 401
    if not shown:
        assert {status(client, *one) for one in OPEN} == {200}


def test_who_is_nobody_reads_on_this_machine(serve: Serve, path: str) -> None:
    """And changes nothing, as does whoever has a token for less; a wrong one is refused."""
    client = serve(path, tokens=TOKENS)
    del client.headers["authorization"]
    for method, at, right in doors():
        for shown, refused in (("", 401), ("Bearer t-read", 403), ("Bearer t-answer", 403)):
            found = status(client, method, at, shown)
            may = right == "read" or (right == "answer" and shown == "Bearer t-answer")
            assert found not in (401, 403) if may else found == refused, (method, at, found)
        assert status(client, method, at, "Bearer wrong") == 401


@pytest.mark.parametrize("token", HELD)
def test_a_form_takes_the_right_of_its_action(client: httpx.Client, token: str) -> None:
    """Of the token that came in; a GET does nothing, and neither does a form of another server."""
    with httpx.Client(base_url=client.base_url, timeout=60, verify=False) as owner:
        owner.post("/login", data={"token": TOKEN})
        found = re.search(r'name="csrf" value="([^"]+)"', owner.get("/t/thread/health").text)
        assert found
    with httpx.Client(base_url=client.base_url, timeout=60, verify=False) as browser:
        assert browser.post("/login", data={"token": token}).status_code == 303
        for name, right in FORMS.items():
            at = f"/t/thread/do/{name}"
            may = {right, "read"} <= HELD[token] and HELD[token] != {"read"}
            given = browser.post(at, data={"csrf": found[1], "consumer": "w", "id": "1"})
            assert (given.status_code != 403) == may, (name, given.status_code)
            assert given.status_code not in (401, 500)
            for wrong in ({"csrf": ""}, {"csrf": "x"}, {"csrf": found[1][:-1]}, {}):
                assert browser.post(at, data=wrong).status_code == 403
            assert browser.get(at).status_code in (403, 405)


@pytest.mark.parametrize("token", HELD)
def test_a_page_offers_what_its_token_is_for(
    serve: Serve, path: str, thread: eventq.Thread, token: str
) -> None:
    """And no form that would be refused."""
    thread.ask("Deploy?", approval=True)
    thread.contexts.create("c").append("x")
    thread.subscribe("w", from_now=True)
    client = serve(path, tokens=TOKENS)
    with httpx.Client(base_url=client.base_url, timeout=60, verify=False) as browser:
        for shown in (None, token):
            if shown is not None:
                browser.post("/login", data={"token": shown})
            held = HELD[token] if shown is not None else set()
            offered = {
                name
                for at in ("", "consumers/w", "turns/1", "health")
                for name in re.findall(
                    r'action="/t/thread/do/(\w+)"', browser.get(f"/t/thread/{at}").text
                )
            }
            expected = {
                name for name in ("answer", "pause", "replay", "fork") if FORMS[name] in held
            }
            assert offered == expected | ({"check"} if held - {"read"} else set())


def test_who_may_not_read_is_told_nothing_by_a_push(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """A key that was used returns the first event to whoever may read it, or pushed the same."""
    thread.push("self", "note", "a secret", key="k")
    at = "/api/threads/thread/events"
    for token, status in (("t-push", 409), ("t-all", 200)):
        shown = {"authorization": f"Bearer {token}"}
        for one in ({"content": "x", "key": "k"}, {"content": "a secret", "key": "k"}):
            found = client.post(at, json=one, headers=shown)
            assert (found.status_code, "a secret" in found.text) == (status, status == 200)
        same = {"content": "a secret", "key": "k", "type": "note"}
        assert client.post(at, json=same, headers=shown).status_code == 200
    headers = {"authorization": "Bearer t-push", "idempotency-key": "k"}
    status, what = problem(client.post(at, json={"content": "x"}, headers=headers))
    assert (status, "a secret" in what) == (409, False)

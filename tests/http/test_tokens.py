"""Tokens with rights: what the holder of each can do, and nothing else.

Its kind of fault is a right that comes with another: by another method, door or session; by a
cookie that a token was exchanged for; and by a file of tokens that others read or that says nothing
clear.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from eventq.errors import LogicError, UsageError
from eventq.http.access import Access
from eventq.http.tokens import Token, read_tokens
from eventq.mcp.mounting import Mount
from eventq.system.environment import user_name
from tests.http.conftest import TOKEN, problem

if TYPE_CHECKING:
    from pathlib import Path

    import eventq
    from tests.http.conftest import Serve

AT = "/api/threads/thread"
SENDS = {"authorization": "Bearer t-push"}
LINES: list[dict[str, Any]] = [
    {"name": "sees", "value": "t-read", "right": "read"},
    {"name": "sends", "value": "t-push", "right": ["push"]},
    {"name": "works", "value": "t-work", "right": ["work"]},
    {"name": "does", "value": "t-all", "right": "all"},
    {"name": "ada", "value": "t-answer", "right": ["answer"]},
    {"name": "both", "value": "t-both", "right": ["push", "answer"]},
]
ANSWER = {"type": "answer", "key": "answer:1", "content": '{"question":1,"text":"deny"}'}
CALLS: dict[str, tuple[str, str, Any]] = {
    "push": ("POST", f"{AT}/events", {"content": "x"}),
    "ask": ("POST", f"{AT}/questions", {"text": "Well?"}),
    "work": ("PUT", f"{AT}/consumers/c", {}),
    "claim": ("POST", f"{AT}/consumers/w/claim", {}),
    "all": ("POST", f"{AT}/contexts", {}),
    "cxdb": ("POST", "/v1/contexts/create", {}),
    "answer": ("POST", f"{AT}/questions/1/answer", {"text": "deny"}),
    "pushed": ("POST", f"{AT}/events", ANSWER),
    "batch": ("POST", f"{AT}/events", [ANSWER]),
}
MAY: dict[str, set[str]] = {
    "t-read": set(),
    "t-push": {"push", "ask"},
    "t-work": {"work", "claim"},
    "t-all": {"push", "ask", "work", "claim", "all", "cxdb"},
    "t-answer": {"answer"},
    "t-both": {"push", "ask", "answer", "pushed", "batch"},
    TOKEN: {*CALLS},
}


def written(path: Path, *lines: object) -> str:
    """Write a file of tokens that only its owner can read."""
    path.write_text("\n".join(map(json.dumps, lines)))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def client(serve: Serve, path: str, tmp_path: Path) -> httpx.Client:
    """Return a client of a server with tokens."""
    client = serve(path, tokens=read_tokens(written(tmp_path / "tokens", *LINES)))
    del client.headers["authorization"]
    return client


@pytest.mark.parametrize("token", MAY)
def test_a_token_may_do_what_its_right_says(
    client: httpx.Client, thread: eventq.Thread, token: str
) -> None:
    """Anything else is refused, and changes nothing."""
    thread.ask("Deploy?", approval=True, by_person=True)
    thread.subscribe("w")
    client.headers["authorization"] = f"Bearer {token}"
    for name, (method, url, body) in CALLS.items():
        found = client.request(method, url, json=body)
        if name in MAY[token]:
            assert found.status_code in (200, 201), (name, found.text)
        else:
            assert (found.status_code, "does not have the right" in found.text) == (403, True), name
    is_answered = "answer" in MAY[token]
    question = thread.question(1)
    assert (question.answer is not None) == is_answered
    if is_answered:
        name = next((one["name"] for one in LINES if one["value"] == token), "default")
        assert (question.answered_by, question.answered_via) == (f"token:{name}", "http")


def test_a_page_has_the_rights_of_the_token_that_came_in(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Each browser has its own session; the link has every right."""
    thread.ask("Deploy?", approval=True, by_person=True)
    link = client.running.server.link()  # type: ignore[attr-defined]

    def answers(browser: httpx.Client) -> int:
        page = browser.get("/t/thread/health").text
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        form = {"csrf": found[1] if found else "", "id": "1", "text": "deny"}
        return browser.post("/t/thread/do/answer", data=form).status_code

    browsers = [httpx.Client(base_url=client.base_url, timeout=60) for _ in range(3)]
    for browser, token in zip(browsers, ("t-read", "t-all"), strict=False):
        assert browser.post("/login", data={"token": token}).status_code == 303
        assert answers(browser) == 403
    assert thread.question(1).answer is None
    browsers[2].get(link)
    assert answers(browsers[2]) == 303
    assert thread.question(1).answered_via == "page"
    for browser in browsers:
        browser.close()


def test_no_token_answers_as_a_user(
    path: str, thread: eventq.Thread, serve: Serve, tmp_path: Path
) -> None:
    """Nor as the one token, or as who has none; whoever has the link is the user."""
    me = user_name()
    lines = [{"name": name, "value": f"t-{n}", "right": "answer"}
             for n, name in enumerate((me, "anonymous", "token", "person"))]  # fmt: skip
    tokens = read_tokens(written(tmp_path / "tokens", *lines))
    client = serve(path, tokens=tokens, insecure=True)
    shown = [f"Bearer {TOKEN}", *(f"Bearer {one['value']}" for one in lines), ""]
    names = []
    for one in shown:
        number = thread.ask("Well?").question_id
        client.headers["authorization"] = one
        if not one:
            del client.headers["authorization"]
        found = client.post(f"{AT}/questions/{number}/answer", json={"text": "yes"})
        assert found.status_code == 200, found.text
        names.append(thread.question(number).answered_by)
    assert names == [
        "token:default", f"token:{me}", "token:anonymous", "token:token", "token:person",
        "token:none",
    ]  # fmt: skip


def test_who_may_not_read_does_not(path: str, serve: Serve, tmp_path: Path) -> None:
    """Where others can reach the server; on this machine all may."""
    tokens = read_tokens(written(tmp_path / "tokens", *LINES))
    client = serve(path, token="", tokens=tokens, listen="0.0.0.0:0", mcp=Mount)
    url = f"http://127.0.0.1:{client.base_url.port}{AT}/events"
    for token, status in (("t-push", 403), ("t-read", 200), ("t-work", 200), ("t-all", 200)):
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(url, headers=headers).status_code == status
    assert problem(httpx.get(url))[0] == 401
    mcp = f"http://127.0.0.1:{client.base_url.port}/mcp"
    for headers, says in (({}, (401, "a token is missing")), (SENDS, (403, "the right 'read'"))):
        status, what = problem(httpx.post(mcp, json={}, headers=headers))
        assert (status, says[1] in what) == (says[0], True)
    assert httpx.post(url, json={"content": "x"}, headers=SENDS).status_code == 201


PAGES = ("/", "/changes", "/t/thread/", "/t/thread/live", "/t/thread/turns/1", "/t/nothing/")
APIS = (f"{AT}/events", f"{AT}/events/stream", f"{AT}/runs/stream", f"{AT}/check", "/metrics",
        "/api/threads", "/api/health", "/api/openapi.json", "/api/nothing", "/mcp", "/mcp/x")  # fmt: skip
CXDB = ("/v1/contexts", "/v1/events", "/v1/nothing", "/health", "/healthz")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_right_that_is_missing_is_a_403(
    path: str, serve: Serve, tmp_path: Path, method: str
) -> None:
    """In the form of its place, with the right; who shows no token, or a wrong one, gets a 401."""
    tokens = read_tokens(written(tmp_path / "tokens", *LINES))
    client = serve(path, tokens=tokens, listen="0.0.0.0:0", mcp=Mount)
    client.base_url = httpx.URL(f"http://127.0.0.1:{client.base_url.port}")
    del client.headers["authorization"]
    with httpx.Client(base_url=client.base_url) as browser:
        assert browser.post("/login", data={"token": "t-push"}).status_code == 303
        for at in (*PAGES, *APIS, *CXDB):
            if (method, at) == ("HEAD", "/changes"):  # which does not end
                continue
            refused(client, method, at)
            expected = 401 if at.startswith("/mcp") else 403
            assert browser.get(at).status_code == expected, at


def refused(client: httpx.Client, method: str, at: str) -> None:
    """Check what a place says to whoever lacks its right, or has no token."""
    kind = "text/html" if at in PAGES else "application/"
    for shown, status, says in (
        ("Bearer t-push", 403, "the right 'read'"),
        ("Bearer t-answer", 403, "the right 'read'"),
        ("", 401, "These pages need a token." if at in PAGES else "a token is missing"),
        ("Bearer x", 401, "the token is wrong"),
    ):
        found = client.request(method, at, headers={"authorization": shown} if shown else {})
        assert (at, found.status_code, found.headers["content-type"][: len(kind)]) == (
            at, status, kind,
        )  # fmt: skip
        if method == "GET":
            assert says in found.text.replace("&#39;", "'"), found.text
            if at in CXDB:
                assert found.json()["error"]["code"] == status
            assert ("Sign in" in found.text) == (at in PAGES)


def test_one_value_is_one_token(tmp_path: Path) -> None:
    """One of the file with the value of --token would have had the rights of either."""
    tokens = read_tokens(written(tmp_path / "tokens", *LINES))
    for one in tokens:
        with pytest.raises(UsageError, match="the value of the one token"):
            Access("127.0.0.1:0", is_local=True, token=one.value, write=True, insecure=False,
                   tokens=tokens)  # fmt: skip


@pytest.mark.parametrize("token", [" ", "x ", "\tx", "x\n", "x\x00y", "\udcff"])
def test_a_token_that_no_client_can_send_is_refused(token: str) -> None:
    """Everybody would be locked out, or each request would fail."""
    with pytest.raises(UsageError, match="no client can send the token"):
        Access("127.0.0.1:0", is_local=True, token=token, write=True, insecure=False)


GOOD = {"name": "a", "value": "x", "right": "push"}


def test_a_member_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    """Readers of JSON do not agree which of the two counts."""
    path = tmp_path / "tokens"
    path.write_text('{"name": "a", "value": "x", "right": "read", "right": "all"}')
    path.chmod(0o600)
    with pytest.raises(UsageError, match="'right' stands there twice"):
        read_tokens(str(path))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "has no token"),
        ([[]], "line 1 of .* a token has name, value and right"),
        ([{**GOOD, "more": 1}], "a token has name, value and right"),
        ([GOOD, {**GOOD, "name": "", "value": "y"}], "line 2 of .* a name has"),
        ([{**GOOD, "name": "a\nb"}], "printable"),
        ([{**GOOD, "name": " "}], "no blank around"),
        ([{**GOOD, "name": "default"}], "no token may have the name"),
        ([{**GOOD, "name": "None"}], "no token may have the name"),
        ([{**GOOD, "value": ""}], "a value has"),
        ([{**GOOD, "value": "a b"}], "no blanks"),
        ([{**GOOD, "value": "x" * 1025}], "1024 characters"),
        ([{**GOOD, "right": "write"}], "a right is one of read, push, work, all, answer"),
        ([{**GOOD, "right": []}], "a right is one of"),
        ([{**GOOD, "right": [1]}], "a right is one of"),
        ([GOOD, {**GOOD, "name": "b"}], "have one value"),
        ([GOOD, {**GOOD, "value": "y"}], "have one name"),
        ([GOOD, {**GOOD, "name": "A", "value": "y"}], "have one name"),
        ([GOOD, {**GOOD, "name": "\uff41", "value": "y"}], "have one name"),
    ],
)
def test_a_file_that_says_nothing_clear_is_refused(
    tmp_path: Path, lines: list[object], says: str
) -> None:
    """With the line and what a line looks like, but no token."""
    with pytest.raises(UsageError, match=says) as caught:
        read_tokens(written(tmp_path / "tokens", *lines))
    assert "xxx" not in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could add a token."""
    path = written(tmp_path / "tokens", GOOD)
    if os.geteuid() == 0:
        os.chown(path, 1234, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(LogicError, match="is another user's - give a file of your own"):
        read_tokens(path)


def test_a_file_that_others_read_is_refused(tmp_path: Path) -> None:
    """With the command that mends it; and one that is not there."""
    path = written(tmp_path / "tokens", GOOD)
    assert read_tokens(path) == [Token("a", "x", frozenset({"push"}))]
    (tmp_path / "tokens").chmod(0o640)
    with pytest.raises(LogicError, match=f"run 'chmod 600 {path}'"):
        read_tokens(path)
    with pytest.raises(LogicError, match="cannot be read"):
        read_tokens(f"{path}x")
    (tmp_path / "odd").write_bytes(b"\xff")
    (tmp_path / "odd").chmod(0o600)
    with pytest.raises(LogicError, match="cannot be read"):
        read_tokens(str(tmp_path / "odd"))

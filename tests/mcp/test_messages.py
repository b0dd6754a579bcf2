"""Messages that are none, arrays of messages, and surrogates, on stdio and over HTTP.

The kind: a request with an id that is answered with silence. Its members: no JSON, bytes that are
no UTF-8, deep nesting, NaN, an unpaired surrogate, another `jsonrpc` or none, an id that is null, a
fraction, a boolean or a list, a method that is no text, parameters that are no object, an object
with an id and nothing else, arrays (empty, nested, with repeated ids, too long, of notifications
alone), a call of an array that is cancelled, a message that is request and reply, an id that no
text can be, two requests of one id, an `initialize` that fails, and a client that goes meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

import eventq
from eventq.mcp.mounting import Mount
from tests.mcp.conftest import COMMAND, HELLO, Stdio

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from tests.conftest import Until

    Serve = Callable[..., httpx.Client]

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
PUSH = {"name": "push", "arguments": {"type": "note", "content": "x"}}
SHOWN = {"accept": "application/json, text/event-stream"}
_CUT = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"push","arguments":'
MALFORMED: list[tuple[bytes | dict[str, Any], int, Any]] = [
    (b"nonsense", PARSE_ERROR, None),
    (b"\xff\xfe", PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping"', PARSE_ERROR, None),
    (b"{" * 100_000, PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":NaN}}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + b"[" * 300 + b"]" * 300 + b"}}",
     INVALID_REQUEST, 7),
    (_CUT + b'{"type":"note","content":"\\ud83d CUT"}}}', INVALID_REQUEST, 7),
    (_CUT + b'{"type":"note","content":"\\udc00"}}}', INVALID_REQUEST, 7),
    (_CUT + b'{"type":"note","\\ud83d":"x"}}}', INVALID_REQUEST, 7),
    (b"7", INVALID_REQUEST, None),
    (b"null", INVALID_REQUEST, None),
    (b"{}", INVALID_REQUEST, None),
    ({"jsonrpc": "2.0"}, INVALID_REQUEST, None),
    ({"jsonrpc": "2.0", "id": 7}, INVALID_REQUEST, 7),
    ({"id": 7, "method": "ping"}, INVALID_REQUEST, 7),
    ({**PING, "jsonrpc": "1.0"}, INVALID_REQUEST, 7),
    ({**PING, "id": None}, INVALID_REQUEST, None),
    ({**PING, "id": 7.5}, INVALID_REQUEST, None),
    ({**PING, "id": True}, INVALID_REQUEST, None),
    ({**PING, "id": [7]}, INVALID_REQUEST, None),
    ({**PING, "method": 7}, INVALID_REQUEST, 7),
    ({**PING, "params": 7}, INVALID_PARAMS, 7),
    ({**PING, "params": [7]}, INVALID_PARAMS, 7),
    ({**PING, "method": "tools/call", "params": {"name": 7}}, INVALID_PARAMS, 7),
    ({**PING, "method": "tools/call", "params": {"name": "read", "arguments": [1]}},
     INVALID_PARAMS, 7),
    ({**PING, "params": []}, INVALID_PARAMS, 7),
    ({**PING, "result": {}}, INVALID_REQUEST, 7),
    ({**PING, "error": {"code": 1, "message": "x"}}, INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":1%s,"method":"ping"}' % (b"0" * 5_000), PARSE_ERROR, None),
    ({"jsonrpc": "2.0", "id": 7, "result": 7}, INVALID_REQUEST, None),
    (b"[]", INVALID_REQUEST, None),
    (json.dumps([PING]).encode(), INVALID_REQUEST, None),
]  # fmt: skip


def _bytes(message: bytes | dict[str, Any]) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def test_what_is_no_message_is_answered_at_once(path: str) -> None:
    """On stdio each has the error of the protocol, with its id if it has a valid one."""
    server = Stdio(path)
    server.begin()
    for message, code, number in MALFORMED:
        server.send(_bytes(message))
        found = server.receive()
        assert (found["error"]["code"], found["id"]) == (code, number), message
        assert found["error"]["message"]
    server.send(b"")  # nothing
    server.send({"jsonrpc": "2.0", "id": "nobody asked", "result": {}})
    server.send({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}})
    server.call(2, "status")
    assert server.receive()["result"]["isError"] is False
    assert server.end() == (0, b"")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_what_is_no_message_over_http(serve: Serve, path: str, revision: str) -> None:
    """Over HTTP the same errors come with status 400."""
    client = serve(path, mcp=Mount)
    headers = {**SHOWN, "mcp-protocol-version": revision}
    made = client.post("/mcp", json=HELLO, headers=SHOWN)
    if revision != "2026-07-28":
        headers["mcp-session-id"] = made.headers["mcp-session-id"]
    for message, code, number in MALFORMED:
        if b"tools/call" in _bytes(message) and b"ud" not in _bytes(message):
            continue  # by the SDK, with the headers that go with it
        found = client.post(
            "/mcp", content=_bytes(message), headers={**headers, "content-type": "application/json"}
        )
        assert found.status_code == 400
        value = found.json()
        assert (value["error"]["code"], value["id"]) == (code, number), message


def test_a_text_with_a_whole_pair(path: str) -> None:
    """Both halves of a pair, as escapes, are one character."""
    server = Stdio(path)
    server.begin()
    mark = b"\xef\xbb\xbf"  # which some programs put in front of what they send
    server.send(mark + _CUT + b'{"type":"note","content":"\\ud83d\\ude00"}}}')
    assert server.receive()["result"]["isError"] is False
    assert server.end()[0] == 0
    with eventq.open(path) as thread:
        assert next(thread.peek()).content == "\U0001f600"


def _array(*numbers: Any) -> list[dict[str, Any]]:
    found = [{"jsonrpc": "2.0", "method": "notifications/nothing"}]
    return found + [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": PUSH}
        for number in numbers
    ]


def test_an_array_is_a_batch_in_one_revision(path: str) -> None:
    """In 2025-03-26 an array has one array of replies, also for what is wrong in it."""
    server = Stdio(path)
    server.begin("2025-03-26")
    server.send([*_array(1, "a", 2), {**PING, "id": None}, 7, {**PING, "id": "1"}, HELLO, PING, []])
    found = server.receive()
    assert isinstance(found, list)
    assert sorted(str(one["id"]) for one in found if "result" in one) == ["1", "2", "7", "a"]
    wrong = [(one["id"], one["error"]["code"]) for one in found if "error" in one]
    assert wrong == [(number, INVALID_REQUEST) for number in (None, None, "1", 0, None)]
    server.send(_array())  # notifications alone have no reply
    server.send([7])
    (one,) = server.receive()
    assert one["error"]["code"] == INVALID_REQUEST
    for refused in ([], [PING] * 101, [PING | {"params": {"x": "x" * (1 << 20)}}]):
        server.send(refused)
        assert server.receive()["error"]["code"] == INVALID_REQUEST
    server.send(PING)
    assert server.receive()["result"] == {}
    assert server.end() == (0, b"")
    with eventq.open(path) as thread:
        assert thread.last_id() == 3


def test_the_revision_that_was_agreed_on_holds(path: str) -> None:
    """Another `initialize` that fails does not change what an array is."""
    server = Stdio(path)
    server.begin("2025-03-26")
    for params in ({}, {"protocolVersion": 7}, None):
        server.send({**HELLO, "id": 5, "params": params})
        assert "error" in server.receive()
        server.send([{**PING, "id": 1}])
        assert server.receive() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert server.end() == (0, b"")


def test_two_requests_of_one_id(path: str) -> None:
    """On stdio the second one is refused, alone and in a batch; the first gets its own reply."""
    server = Stdio(path)
    server.begin("2025-03-26")
    wait: dict[str, Any] = {"name": "wait", "arguments": {"seconds": 300, "after": 0}}
    server.call(1, "wait", **wait["arguments"])
    server.send([{**PING, "id": 2, "method": "tools/call", "params": wait}, {**PING, "id": 3}])
    for number in (1, 2):
        server.send({**PING, "id": number})
        found = server.receive()
        assert (found["id"], found["error"]["code"]) == (number, INVALID_REQUEST)
    server.send([{**PING, "id": 1}, {**PING, "id": 4}])
    found = {one["id"]: one for one in server.receive()}
    assert ("error" in found[1], "result" in found[4]) == (True, True)
    server.call(5, "push", type="note", content="x")
    replies = [server.receive() for _ in range(3)]
    (batch,) = (one for one in replies if isinstance(one, list))
    alone = {one["id"]: one["result"] for one in replies if not isinstance(one, list)}
    assert "events" in alone[1]["content"][0]["text"]
    assert {one["id"] for one in batch} == {2, 3}
    server.call(6, "wait", seconds=300, after=1)
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 6}}
    server.send({"jsonrpc": "2.0", **cancel})
    server.send({**PING, "id": 6})  # free again
    assert server.receive() == {"jsonrpc": "2.0", "id": 6, "result": {}}
    assert server.end() == (0, b"")


def test_a_batch_whose_calls_last(path: str) -> None:
    """Its replies come once all are there; none is cancelled, and other calls go on meanwhile."""
    server = Stdio(path)
    server.begin("2025-03-26")
    wait = {"name": "wait", "arguments": {"seconds": 300, "after": 0}}
    server.send([{**PING, "id": 1, "method": "tools/call", "params": wait}, {**PING, "id": 2}])
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    server.send({"jsonrpc": "2.0", **cancel})
    server.send([{**PING, "id": 1}])
    (one,) = server.receive()
    assert (one["id"], one["error"]["code"]) == (1, INVALID_REQUEST)
    server.send({**PING, "id": 3})
    assert server.receive()["id"] == 3
    server.call(4, "push", type="note", content="x")
    found = [server.receive(), server.receive()]
    (batch,) = (one for one in found if isinstance(one, list))
    assert {one["id"] for one in batch} == {1, 2}
    assert server.end() == (0, b"")


def test_a_batch_over_http(serve: Serve, path: str) -> None:
    """In 2025-03-26, whose clients name no revision in a header, a batch has one reply."""
    client = serve(path, mcp=Mount)
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": "2025-03-26"}}
    made = client.post("/mcp", json=hello, headers=SHOWN)
    headers = {**SHOWN, "mcp-session-id": made.headers["mcp-session-id"]}
    client.post("/mcp", json=_array()[0], headers=headers)
    found = client.post("/mcp", json=[*_array(1, "a"), {**PING, "id": None}], headers=headers)
    assert found.status_code == 200
    shown = {one["id"]: "result" in one for one in found.json()}
    assert shown == {1: True, "a": True, None: False}
    assert client.post("/mcp", json=_array(), headers=headers).status_code == 202
    assert client.post("/mcp", json=[], headers=headers).json()["error"]["code"] == INVALID_REQUEST
    (one,) = client.post("/mcp", json=[PING], headers=SHOWN).json()  # without a session
    assert (one["id"], "error" in one) == (7, True)
    with eventq.open(path) as thread:
        assert thread.last_id() == 2


def test_two_requests_of_one_id_over_http(serve: Serve, path: str) -> None:
    """The second one is refused while the first waits, which is answered."""
    client = serve(path, mcp=Mount)
    made = client.post("/mcp", json=HELLO, headers=SHOWN)
    headers = {**SHOWN, "mcp-session-id": made.headers["mcp-session-id"]}
    wait = {"name": "wait", "arguments": {"seconds": 300, "after": 0}}
    waits = {**PING, "method": "tools/call", "params": wait}
    with client.stream("POST", "/mcp", json=waits, headers=headers) as first:
        for number in (7, "7"):
            found = client.post("/mcp", json={**PING, "id": number}, headers=headers)
            assert (found.status_code, found.json()["id"]) == (400, number)
        push = {**PING, "id": 8, "method": "tools/call", "params": PUSH}
        assert '"result"' in client.post("/mcp", json=push, headers=headers).text
        assert '"id":7' in first.read().decode()
    assert '"result"' in client.post("/mcp", json=PING, headers=headers).text


def test_a_server_ends_with_its_parent(path: str, until: Until) -> None:
    """A client that is killed while another of its processes holds the pipe leaves no server."""
    client = (
        "import subprocess, sys\n"
        "server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "other = subprocess.Popen(['sleep', '1000'], pass_fds=[server.stdin.fileno()])\n"
        "server.stdin.write(sys.stdin.buffer.readline())\n"
        "server.stdin.flush()\n"
        "server.stdout.readline()\n"
        "print(server.pid, other.pid, flush=True)\n"
        "server.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", client, *COMMAND, "--thread", path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(HELLO).encode() + b"\n")
    process.stdin.flush()
    server, other = map(int, process.stdout.readline().split())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        until(lambda: not _is_there(server), "the server ends")
    finally:
        os.kill(other, signal.SIGKILL)
        process.stdin.close()
        process.stdout.close()


def _is_there(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return found.stdout.strip()[:1] not in (b"", b"Z")

"""Resources and subscriptions, who may do what over HTTP, and servers that are killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

import eventq
from eventq.http.tokens import Token
from tests.http.conftest import TOKEN
from tests.mcp import exchange
from tests.mcp.conftest import (
    COMMAND,
    HELLO,
    MODES,
    PAIRS,
    WAYS,
    Stdio,
    call,
    mounted,
    on_http,
    refusal,
    run,
)
from tests.reference import ROOT
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from mcp import Client

    from tests.mcp.conftest import Connect

    Serve = Callable[..., httpx.Client]


async def content(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    (found,) = (await client.read_resource(uri)).contents
    assert isinstance(found, TextResourceContents)
    return found.text


# --- resources ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "mode"), PAIRS)
def test_resources(connect: Connect, thread: eventq.Thread, way: str, mode: str) -> None:
    """Events, contexts, artifacts and outputs are listed, and read by their URLs; others are not."""
    thread.push("self", "note", "one")
    thread.contexts.create("a name/with ü").append("said")
    thread.artifacts.put(b"line\n" * 10_000)
    thread.outputs.put("report", "all is well")

    async def test() -> None:
        async with connect(way, mode) as client:
            found = (await client.list_resources()).resources
            assert [one.uri for one in found] == [
                "eventq://events", "eventq://contexts/a%20name%2Fwith%20%C3%BC", "artifact://0",
                "agent://0-report",
            ]  # fmt: skip
            texts = []
            for one in found:
                texts.append(await content(client, one.uri))
                assert len(texts[-1]) < 16 << 10
            assert json.loads(texts[0])["content"] == "one"
            assert json.loads(texts[1])["text"] == "said"
            more = f'{{"url":"artifact://0","line":{texts[2].count(chr(10))}}}'
            assert texts[2].endswith(f"(there is more: read_artifact {more})\n")
            assert texts[3] == "all is well"
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.uri_template for one in templates] == [
                "eventq://contexts/{name}", "artifact://{number}", "agent://{name}",
            ]  # fmt: skip
            for uri in ("eventq://nothing", "artifact://9", "eventq://contexts/none", "file:///x"):
                with pytest.raises(MCPError, match=" - "):
                    await client.read_resource(uri)

    run(test)


@pytest.mark.parametrize("way", WAYS)
def test_listening(connect: Connect, thread: eventq.Thread, way: str) -> None:
    """A client that listens hears of each change of what it named, and of nothing else."""
    branch = thread.contexts.create("memory")
    uris = ["eventq://events", "eventq://contexts/memory"]

    async def test() -> None:
        async with connect(way, "2026-07-28") as client:
            async with client.listen(
                resource_subscriptions=uris, resources_list_changed=True
            ) as heard:
                changes = aiter(heard)
                await asyncio.to_thread(thread.push, "self", "note", "x")
                assert await anext(changes) == ResourceUpdated(uris[0])
                await asyncio.to_thread(branch.append, "said")
                assert await anext(changes) == ResourceUpdated(uris[1])
                await asyncio.to_thread(thread.contexts.create, "another")
                assert await anext(changes) == ResourcesListChanged()
            await call(client, "status")

    run(test)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_subscribing(connect: Connect, thread: eventq.Thread, way: str) -> None:
    """A client of an older protocol subscribes to resources, and unsubscribes."""
    branch = thread.contexts.create("memory")
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        uri = getattr(getattr(message, "params", None), "uri", None)
        if uri is not None:
            heard.put_nowait(str(uri))

    async def test() -> None:
        async with connect(way, "legacy", message_handler=hear) as client:
            await client.subscribe_resource("eventq://events")
            await client.subscribe_resource("eventq://contexts/memory")
            await asyncio.to_thread(thread.push, "self", "note", "x")
            assert await heard.get() == "eventq://events"
            await client.unsubscribe_resource("eventq://events")
            await asyncio.to_thread(thread.push, "self", "note", "x")
            await asyncio.to_thread(branch.append, "said")
            assert await heard.get() == "eventq://contexts/memory"

    run(test)


def test_a_thread_in_postgresql(serve: Serve, postgres: str) -> None:
    """Events, questions and the memory work as those of a directory."""
    url = mounted(serve, fresh(postgres))

    async def test() -> None:
        async with on_http(url) as client:
            await call(client, "push", type="note", content="a needle")
            found = await call(client, "wait", after=0, filter="type = 'note'")
            assert found["events"][0]["content"] == "a needle"
            assert len((await call(client, "search", text="NEEDLE"))["found"]) == 1
            asked = await call(client, "ask_person", question="ok?", seconds=0)
            assert (await call(client, "status"))["questions"][0]["id"] == asked["id"]
            await call(client, "remember", text="what was said")
            (turn,) = (await call(client, "recall"))["turns"]
            assert "what was said" in str(turn)
            one, *_ = (await client.list_resources()).resources
            assert "needle" in await content(client, one.uri)
            async with client.listen(resource_subscriptions=[one.uri]) as heard:
                await call(client, "push", type="note", content="another")
                assert await anext(aiter(heard)) == ResourceUpdated(one.uri)

    run(test)


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_who_may_do_what(serve: Serve, path: str, mode: str) -> None:
    """Without the token a client on this machine only reads; with a wrong one it gets nothing."""
    url = mounted(serve, path)

    async def test() -> None:
        async with on_http(url, mode) as client:
            await call(client, "push", type="note", content="x")
        async with on_http(url, mode, token="") as client:
            assert "push" not in [tool.name for tool in (await client.list_tools()).tools]
            with pytest.raises(MCPError, match="there is no tool 'push'"):
                await client.call_tool("push", {"type": "note", "content": "x"})
            assert (await call(client, "status"))["events"]["last"] == 1

    async def test_wrong() -> None:
        async with on_http(url, mode, token="wrong") as client:
            await client.list_tools()
            raise AssertionError("it is let in")

    run(test)
    with pytest.raises(BaseExceptionGroup) as caught:
        run(test_wrong)
    assert "it is let in" not in repr(caught.value)


# The right that each tool needs.
TOOLS_OF = {
    "read": {"read", "wait", "search", "recall", "read_artifact", "status"},
    "push": {"push", "ask_person"},
    "all": {"remember", "fork"},
}
ANSWER = {"type": "answer", "key": "answer:1", "content": '{"question":1,"text":"deny"}'}


@pytest.mark.parametrize(
    ("right", "has"),
    [("read", {"read"}), ("push", {"read", "push"}), ("work", {"read"}),
     ("all", {"read", "push", "all"}), ("answer", {"read"}), ("", {"read"})],
)  # fmt: skip
def test_each_tool_needs_its_right(
    serve: Serve, path: str, thread: eventq.Thread, right: str, has: set[str]
) -> None:
    """What a token is not for is not offered, and cannot be called; `push` answers nothing."""
    rights = {right, "answer"} if right == "answer" else {right} if right != "all" else {
        "read", "push", "work", "all"}  # fmt: skip
    tokens = [Token("one", "t-one", frozenset(rights))]
    url = mounted(serve, path, tokens=tokens)
    thread.ask("Deploy?", approval=True)

    async def test() -> None:
        async with on_http(url, token="t-one" if right else "") as client:
            offered = {tool.name for tool in (await client.list_tools()).tools}
            assert offered == {name for one in has for name in TOOLS_OF[one]}
            for name in {name for names in TOOLS_OF.values() for name in names} - offered:
                with pytest.raises(MCPError, match=f"there is no tool '{name}'"):
                    await client.call_tool(name, {})
            if "push" in has:
                assert "the right 'answer'" in await refusal(client, "push", **ANSWER)

    run(test)
    assert (thread.question(1).answer, thread.last_id()) == (None, 1)


def test_a_server_that_only_reads(serve: Serve, path: str) -> None:
    """Without --write the token does not help."""
    url = mounted(serve, path, write=False)

    async def test() -> None:
        async with on_http(url) as client:
            assert "push" not in [tool.name for tool in (await client.list_tools()).tools]

    run(test)


def test_paths_are_for_those_with_the_token(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of tools and of resources name none to a stranger."""
    url = mounted(serve, path)

    def fail(*_: object, **__: object) -> None:
        raise eventq.StoreError("'/srv/a secret/events.db' is damaged", "look at it")

    monkeypatch.setattr(eventq.Thread, "status", fail)
    monkeypatch.setattr("eventq.mcp.thread_server.resources", fail)
    monkeypatch.setattr("eventq.mcp.thread_server.content", fail)

    async def look(token: str) -> list[str]:
        async with on_http(url, token=token) as client:
            found = [await refusal(client, "status")]
            for ask in (client.list_resources(), client.read_resource("thread://x")):
                with pytest.raises(MCPError) as refused:
                    await ask
                found.append(refused.value.error.message)
        return found

    async def both() -> None:
        for token, is_told in ((TOKEN, True), ("", False)):
            assert [("secret" in one, "send a token" in one) for one in await look(token)] == [
                (is_told, not is_told)
            ] * 3

    run(both)


def test_a_session_is_worth_no_token(serve: Serve, path: str) -> None:
    """Who knows the session of one with the token can neither use, nor follow, nor end it."""
    client = serve(path, mcp=_mount(), tokens=[Token("other", "t-other", frozenset({"all"}))])
    shown = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    made = client.post("/mcp", json=HELLO, headers=shown)
    shown["mcp-session-id"] = made.headers["mcp-session-id"]
    client.post(
        "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=shown
    )
    push = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "push", "arguments": {"type": "note", "content": "x"}}}  # fmt: skip
    assert '"isError":false' in client.post("/mcp", json=push, headers=shown).text
    # A cookie is no token here: a page of this server's host cannot write either.
    # And another token begins sessions of its own.
    others = [("", ""), ("", serve_cookie(client)), ("Bearer t-other", "")]
    assert (
        client.post(
            "/mcp",
            json=HELLO,
            headers={"accept": shown["accept"], "authorization": "Bearer t-other"},
        ).status_code
        == 200
    )
    for token, cookie in others:
        nobody = {**shown, "authorization": token, "cookie": cookie}
        for method, message in (("POST", push), ("GET", None), ("DELETE", None)):
            refused = client.request(method, "/mcp", json=message, headers=nobody)
            assert (refused.status_code, "Session not found" in refused.text) == (404, True)
    foreign = client.post("/mcp", json=push, headers={**shown, "origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert (
        client.post("/mcp", json=push, headers={**shown, "host": "evil.example"}).status_code == 421
    )
    assert client.delete("/mcp", headers=shown).status_code == 200
    assert client.post("/mcp", json=push, headers=shown).status_code == 404


def test_sessions_without_a_token_are_few(serve: Serve, path: str) -> None:
    """They keep nobody out who has it; a request of theirs is short."""
    client = serve(path, mcp=_mount())
    shown = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    alone = {**shown, "authorization": ""}
    found = [client.post("/mcp", json=HELLO, headers=alone).status_code for _ in range(40)]
    assert (found[0], found[-1]) == (200, 503)
    assert client.post("/mcp", json=HELLO, headers=shown).status_code == 200
    long = json.dumps([[]] * 40_000)
    assert client.post("/mcp", content=long, headers=alone).status_code == 413
    assert client.post("/mcp", content=long, headers=shown).status_code == 400


def _mount() -> Any:
    from eventq.mcp.mounting import Mount

    return Mount


def serve_cookie(client: httpx.Client) -> str:
    """Return the cookie that a browser gets for the token."""
    found = client.post("/login", data={"token": "a token"}, headers={"authorization": ""})
    return found.headers["set-cookie"].partition(";")[0]


def test_threads_by_name(serve: Serve, path: str, tmp_path: Any) -> None:
    """Each thread of a server has an address; the first is there without a name."""
    second = str(shutil.copytree(path, tmp_path / "second"))
    url = mounted(serve, path, second)

    async def test() -> None:
        for name, count in (("", 1), ("/second", 1), ("/thread", 2)):
            async with on_http(url + name) as client:
                await call(client, "push", type="note", content="x")
                assert (await call(client, "status"))["events"]["count"] == count

    run(test)


def test_addresses_that_are_none(serve: Serve, path: str) -> None:
    """A thread that is not there, and a server without MCP, say what to do."""
    client = serve(path, mcp=_mount())
    assert "/api/threads" in client.post("/mcp/nobody", json=HELLO).json()["detail"]
    client = serve(path)
    assert "--mcp" in client.post("/mcp", json=HELLO).json()["detail"]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_the_end_of_a_server(serve: Serve, path: str) -> None:
    """A server that ends lets go of clients that listen, wait or have a session at once."""
    client = serve(path, mcp=_mount())
    url = (
        f"{client.base_url}mcp" if str(client.base_url).endswith("/") else f"{client.base_url}/mcp"
    )

    done: list[str] = []

    async def test() -> None:
        async with (
            on_http(url, "legacy") as other,
            on_http(url, "2026-07-28") as one,
            one.listen(resource_subscriptions=["eventq://events"]) as heard,
        ):
            await one.list_tools()
            waits = asyncio.create_task(call(one, "wait", seconds=300))
            await other.subscribe_resource("eventq://events")
            await asyncio.to_thread(client.running.stop)  # type: ignore[attr-defined]
            done.append("stopped")
            assert [change async for change in heard] == []
            assert (await waits)["events"] == []
            done.append("told")

    with suppress(BaseExceptionGroup):  # the older client may find nobody to say goodbye to
        run(test)
    assert done == ["stopped", "told"]


# --- on stdio -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, None])
def test_the_end_on_stdio(path: str, number: signal.Signals | None) -> None:
    """A signal, or the end of stdin, lets calls finish: each reply is sent, waits end empty."""
    server = Stdio(path)
    server.begin()
    server.call(1, "wait", seconds=300)
    for n in range(2, 30):
        server.call(n, "push", type="note", content="x")
    assert server.receive()["result"]
    if number is None:
        assert server.process.stdin is not None
        server.process.stdin.close()
    else:
        server.process.send_signal(number)
    assert server.process.stdout is not None
    replies = [json.loads(line) for line in server.process.stdout]
    assert all(reply["result"]["isError"] is False for reply in replies)
    assert server.process.wait() == (130 if number == signal.SIGINT else 0)
    assert server.process.stderr is not None
    assert server.process.stderr.read() == b""
    with eventq.open(path) as thread:
        stored = thread.last_id()
    assert len(replies) + 1 == stored + 1  # the call that waited is one of them
    for stream in (server.process.stdin, server.process.stdout, server.process.stderr):
        assert stream is not None
        stream.close()


def test_a_client_that_goes_without_a_word(path: str) -> None:
    """A server whose client closed both pipes, or never reads, ends without a traceback."""
    server = Stdio(path)
    server.begin()
    assert server.process.stdout is not None
    server.process.stdout.close()
    for n in range(20):
        server.call(n, "status")
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait() == 0
    assert server.process.stderr is not None
    assert server.process.stderr.read() == b""
    server.process.stderr.close()


def test_processes_that_remember_at_once(path: str) -> None:
    """Servers of several agents that begin the same context at once all find it."""
    servers = [Stdio(path) for _ in range(3)]
    for server in servers:
        server.begin()
    for n in range(25):
        for server in servers:
            server.call(n + 1, "remember", text="x", context=f"shared {n}")
    for server in servers:
        for _ in range(25):
            assert server.receive()["result"]["isError"] is False
        assert server.end()[0] == 0
    with eventq.open(path) as thread:
        assert {info.head_depth for info in thread.contexts.list()} == {2}
        assert thread.check() == []


def test_what_handlers_print_is_no_message(path: str) -> None:
    """The handler that a push starts has other files than those of the server."""
    with eventq.open(path) as thread:
        thread.subscribe("loud", "echo out; echo err >&2; eventq pop --consumer loud | cat")
    server = Stdio(path)
    server.begin()
    for number in range(1, 6):
        server.call(number, "push", type="note", content="x")
        assert server.receive()["id"] == number
    assert server.end() == (0, b"")


def test_a_server_that_is_killed_before_its_reply(path: str) -> None:
    """A call with a key that is repeated after a kill is done once, whenever the kill came."""
    calls: Any = {"push": {"type": "note", "content": "x"}, "remember": {"text": "x"},
             "ask_person": {"question": "x", "seconds": 0}}  # fmt: skip
    ids: dict[str, set[int]] = {tool: set() for tool in calls}
    for number in range(4):
        server = Stdio(path)
        server.begin()
        for tool, given in calls.items():
            server.call(1, tool, key=f"{tool} once", **given)
            if number % 2:
                found = server.receive()["result"]["structuredContent"]
                ids[tool].add(found["turn"] if tool == "remember" else found["id"])
        server.process.send_signal(signal.SIGKILL)
        server.end()
    assert [len(found) for found in ids.values()] == [1, 1, 1]
    with eventq.open(path) as thread:
        assert thread.last_id() == 2
        assert len(thread.contexts.get("memory").last(10)) == 1
        assert thread.check() == []


# --- the command ----------------------------------------------------------------------------------


def test_settings_for_programs(path: str, tmp_path: Any) -> None:
    """What --print-config prints is JSON and TOML that start this very server."""
    odd = tmp_path / 'it\'s "odd" \U0001f600'
    path = str(shutil.copytree(path, odd))
    done = subprocess.run(
        [*COMMAND, "--print-config", "--read-only", "--max-result", "3000", "--thread", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    parts = dict(part.split("\n", 1) for part in done.stdout.split("# ")[1:])
    claude = json.loads(next(text for name, text in parts.items() if "Desktop" in name))
    entry = claude["mcpServers"]["eventq"]
    code = json.loads(next(text for name, text in parts.items() if "VS Code" in name))
    assert code["servers"]["eventq"] == {"type": "stdio", **entry}
    codex = tomllib.loads(next(text for name, text in parts.items() if "Codex" in name))
    assert codex["mcp_servers"]["eventq"] == entry
    remote = tomllib.loads(parts["The same for Codex"])["mcp_servers"]["eventq"]
    web = json.loads(next(text for name, text in parts.items() if "HTTP" in name))
    assert remote["url"] == web["mcpServers"]["eventq"]["url"]
    assert remote["bearer_token_env_var"] == "EVENTQ_TOKEN"
    assert entry["args"][-3:] == ["--read-only", "--max-result", "3000"]
    found = subprocess.run(
        [entry["command"], *entry["args"]], input=json.dumps(HELLO).encode() + b"\n",
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(found.stdout)["result"]["serverInfo"]["name"] == "eventq"


@pytest.mark.parametrize(
    "words", [["mcp", "--thread"], ["serve", "--http", "127.0.0.1:0", "--mcp", "--thread"]]
)
def test_without_its_packages(path: str, words: list[str]) -> None:
    """Where the SDK is missing, one sentence says what to install."""
    code = "import sys; sys.modules['mcp'] = None; from eventq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install '.[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_thread_that_is_not_there(tmp_path: Any) -> None:
    """The command fails before it says anything on stdout."""
    for words in ([], ["--print-config"]):
        done = subprocess.run(
            [*COMMAND, *words, "--thread", str(tmp_path / "none")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert "eventq init" in done.stderr


def test_the_page_is_up_to_date() -> None:
    """The page has the tools, and the exchange that the client and a server have now."""
    assert (ROOT / exchange.PAGE).read_text(encoding="utf-8") == exchange.page()

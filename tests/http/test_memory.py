"""The memory over HTTP: contexts, turns, runs, artifacts, outputs and blobs."""

from __future__ import annotations

import base64
import datetime as dt
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from eventq.http import memory_api, output_api
from eventq.output import artifacts
from tests.http.conftest import problem
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    import eventq
    from tests.http.conftest import Serve

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def texts(page: dict[str, Any]) -> list[str]:
    """Return the payloads of a page of turns."""
    return [one["payload"] for one in page["turns"]]


def test_a_conversation(client: httpx.Client, thread: eventq.Thread) -> None:
    """A context by its name, turns with and without bytes, a fork, and what the two differ in."""
    made = client.post("contexts", json={"name": "main"})
    assert (made.status_code, made.json()["head_turn_id"]) == (201, 0)
    for text in "abc":
        found = client.post("contexts/main/turns", json={"payload": text, "type_id": "note"})
        assert (found.status_code, found.json()["type_id"]) == (201, "note")
        assert "payload" not in found.json()
    fork = client.post("contexts/main/fork", json={"at": 2, "name": "other"})
    assert (fork.status_code, fork.json()["fork_of"]) == (201, 1)
    raw = base64.b64encode(b"\xff\x00").decode()
    client.post("contexts/other/turns", json={"payload_base64": raw})
    assert texts(client.get("contexts/main/turns").json()) == ["a", "b", "c"]
    last = client.get("contexts/2/turns", params={"limit": 1}).json()
    assert (last["turns"][0]["payload_base64"], last["next"]) == (raw, 4)
    assert texts(client.get("contexts/other/turns", params={"before": 4}).json()) == ["a", "b"]
    found = client.get("contexts/main/diff", params={"with": "other"}).json()
    assert (found["ancestor_turn_id"], found["mine_count"], found["theirs_count"]) == (2, 1, 1)
    assert (found["mine"][0]["payload"], found["theirs"][0]["turn_id"]) == ("c", 4)
    assert client.get("turns/1").json()["payload"] == "a"
    assert "payload" not in client.get("turns/1", params={"payload": "false"}).json()
    listed = client.get("contexts").json()
    assert ([one["name"] for one in listed["contexts"]], listed["next"]) == (["main", "other"], 2)
    assert client.get("contexts", params={"after": 2}).json() == {"contexts": [], "next": 2}
    assert client.get("contexts/main").json()["head_depth"] == 2
    assert [one.payload for one in thread.contexts.get("main").last()] == [b"a", b"b", b"c"]


def test_an_append_with_conditions(client: httpx.Client, thread: eventq.Thread) -> None:
    """A key stores once, a head that moved is a conflict, and an event can go with it."""
    thread.contexts.create("main")
    body = {"payload": '{"b": 1, "a": 2}', "key": "k", "canonical": "eventq-json-1"}
    first = client.post("contexts/main/turns", json=body).json()
    assert client.post("contexts/main/turns", json=body).json() == first
    assert client.get("turns/1").json()["payload"] == '{"a":2,"b":1}'
    late = client.post("contexts/main/turns", json={"payload": "x", "expected_head": 0})
    assert problem(late)[0] == 409
    client.post("contexts/main/turns", json={"payload": "y", "source": "tester"})
    assert (thread.last(1)[0].source, thread.last(1)[0].subtype) == ("tester", "turn")


@pytest.mark.parametrize(
    ("method", "at", "body", "status", "says"),
    [
        ("POST", "contexts/main/turns", {}, 422, "either a payload or a payload_base64"),
        ("POST", "contexts/main/turns", {"payload": "x", "payload_base64": "eA=="}, 422, "either"),
        ("POST", "contexts/main/turns", {"payload_base64": "!"}, 422, "is no base64"),
        ("POST", "contexts/none/turns", {"payload": "x"}, 404, "none"),
        ("POST", "contexts/main/turns", {"payload": "x", "refs": ["y"]}, 422, "y"),
        ("POST", "contexts", {"name": "main"}, 409, "main"),
        ("POST", "contexts", {"base": 9}, 404, "9"),
        ("GET", "contexts/main/turns?before=1&from=1", None, 400, "exclude each other"),
        ("GET", "contexts/main/turns?before=9", None, 404, "9"),
        ("GET", "contexts/main/diff", None, 400, "with is missing"),
        ("GET", "contexts/main/turns?payload=maybe", None, 400, "must be true or false"),
        ("GET", "turns/9", None, 404, "9"),
        ("GET", "runs/none", None, 404, "none"),
        ("POST", "runs", {"name": "w", "system": []}, 400, "system must be an object"),
        ("POST", "runs", {"name": "w", "system": {"a": 1}}, 422, "a"),
        ("GET", "artifacts/7", None, 404, "7"),
        ("GET", "artifacts?context=none", None, 404, "none"),
        ("GET", "outputs/none", None, 404, "none"),
        ("GET", f"blobs/{'0' * 64}", None, 404, "0000"),
        ("GET", "blobs/nonsense", None, 422, "nonsense"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    client: httpx.Client, thread: eventq.Thread, method: str, at: str, body: Any, status: int,
    says: str,
) -> None:  # fmt: skip
    """In one sentence, and nothing is stored."""
    thread.contexts.create("main")
    found = problem(client.request(method, at, json=body))
    assert (found[0], says in found[1]) == (status, True), found
    assert len([*thread.contexts]) == 1
    assert not thread.contexts.head("main")


def test_a_page_of_turns_is_bounded_by_bytes(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends early, and the next one goes on there, in both directions."""
    monkeypatch.setattr(memory_api, "PAGE_BYTES", 250)
    branch = thread.contexts.create("main")
    for n in range(7):
        branch.append(f"{n}" * 100)
    params: dict[str, int] = {}
    found: list[str] = []
    while True:
        page = client.get("contexts/main/turns", params=params).json()
        found = [one[0] for one in texts(page)] + found
        assert len(page["turns"]) <= 2
        if page["next"] is None:
            break
        params = {"before": page["next"]}
    assert found == [*"0123456"]
    rising: list[str] = []
    at: int | None = 0
    while at is not None:
        page = client.get("contexts/main/turns", params={"from": at}).json()
        rising += [one[0] for one in texts(page)]
        at = page["next"]
    assert rising == found
    branch.append("x" * 1_000)
    assert len(client.get("contexts/main/turns").json()["turns"]) == 1


def test_a_run_without_python(client: httpx.Client, thread: eventq.Thread) -> None:
    """Start it, take its steps, read its messages, and end it."""
    made = client.post("runs", json={
        "name": "solve", "prompt": "fix it", "label": "build", "system": {"coder": "You code."},
    })  # fmt: skip
    assert (made.status_code, made.json()["prompt"], made.json()["status"]) == (
        201, "fix it", "active",
    )  # fmt: skip
    body = {"role": "coder", "content": "done", "meta": {"files": 2}, "key": "k"}
    step = client.post("runs/build/steps", json=body)
    assert (step.status_code, step.json()["number"], step.json()["meta"]) == (201, 1, {"files": 2})
    assert client.post("runs/build/steps", json=body).json() == step.json()
    asked = {"role": "coder", "edge_prompt": "go on"}
    found = client.get("runs/build/messages", params=asked).json()["messages"]
    assert found == thread.runs.get("build").messages("coder", "go on")
    assert client.get("runs", params={"active": "true"}).json()["runs"][0]["label"] == "build"
    ended = client.post("runs/build/end", json={"summary": "green"})
    assert (ended.status_code, ended.json()["meta"]["returnCode"]) == (200, 0)
    assert problem(client.post("runs/build/steps", json=body | {"key": "other"}))[0] == 409
    steps = client.get("runs/1/steps", params={"limit": 1}).json()
    assert ([one["content"] for one in steps["steps"]], steps["next"]) == (["done"], 2)
    assert client.get("runs/1/steps", params={"from": 2}).json()["next"] is None
    assert client.get("runs/1").json()["status"] == "completed"
    other = client.post("runs", json={"name": "w"}).json()["run_id"]
    assert client.post(f"runs/{other}/cancel").json()["meta"]["returnCode"] == 130
    listed = client.get("runs", params={"after": 1}).json()
    assert ([one["status"] for one in listed["runs"]], listed["next"]) == (["cancelled"], other)
    assert client.get("runs", params={"active": "true"}).json()["runs"] == []


def test_a_run_is_changed_in_all_ways(client: httpx.Client, thread: eventq.Thread) -> None:
    """Poked, summed up, suspended, resumed, forked, ended, listed by its day, and deleted."""
    client.post("runs", json={"name": "w", "prompt": "task", "system": {"a": "A"}, "label": "one"})
    client.post("runs/one/steps", json={"role": "a", "content": "first", "agent": "m"})
    client.post("runs/one/steps", json={"role": "a", "content": "second", "edge_prompt": "go"})
    poked = client.post("runs/one/poke", json={"content": "better"})
    assert (poked.status_code, poked.json()["content"]) == (201, "better")
    assert (poked.json()["edge_prompt"], poked.json()["number"]) == ("go", 2)
    summed = client.post("runs/one/compact", json={"summary": "all well"}).json()
    assert (summed["number"], summed["content"]) == (3, "all well")
    assert client.post("runs/one/suspend", json={}).json()["status"] == "suspended"
    assert problem(client.post("runs/one/steps", json={"role": "a"}))[0] == 409
    assert client.post("runs/one/resume", json={}).json()["status"] == "active"
    made = client.post("runs/one/fork", json={"at": "1", "label": "two"})
    assert (made.status_code, made.json()["depth"], made.json()["prompt"]) == (201, 1, "task")
    other = client.post("runs/one/fork", json={"role": "a"}).json()
    assert other["depth"] == 1
    ref = thread.runs.get("one").chain()[1][0].ref
    assert client.post("runs/one/fork", json={"at": ref}).json()["head"] == ref
    assert problem(client.post("runs/one/fork", json={"at": "9"}))[0] == 409
    assert client.post("runs/one/end").status_code == 200
    day = client.get("runs/one").json()["completed_at_ms"]
    shown = dt.datetime.fromtimestamp(day / 1000, dt.UTC).date().isoformat()
    found = client.get("runs", params={"day": shown}).json()
    assert [one["label"] for one in found["runs"]] == ["one"]
    assert client.get("runs", params={"day": shown, "after": 1}).json()["runs"] == []
    assert problem(client.get("runs", params={"day": "yesterday"}))[0] in (400, 422)
    assert client.delete("runs/two").json()["label"] == "two"
    assert problem(client.delete("runs/two"))[0] == 404
    assert problem(client.delete("runs/99"))[0] == 404


# --- what was produced ----------------------------------------------------------------------------


def test_an_artifact_by_lines_and_bytes(client: httpx.Client, thread: eventq.Thread) -> None:
    """Stored over HTTP, read whole, by ranges and by lines."""
    data = b"".join(b"line %d\n" % n for n in range(30_000))
    made = client.post("artifacts", params={"tool": "make"}, content=data)
    assert (made.status_code, made.json()["url"], made.json()["lines"]) == (
        201, "artifact://0", 30_000,
    )  # fmt: skip
    whole = client.get("artifacts/0/content")
    assert (whole.content, whole.headers["etag"]) == (data, f'"{made.json()["hash"]}"')
    assert whole.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for asked, first, last in (
        ("bytes=0-9", 0, 9), ("bytes=65530-200000", 65_530, 200_000), ("bytes=100000-", 100_000,
        len(data) - 1), ("bytes=-7", len(data) - 7, len(data) - 1),
        (f"bytes=5-{10**17}", 5, len(data) - 1),
    ):  # fmt: skip
        part = client.get("artifacts/0/content", headers={"range": asked})
        assert part.status_code == 206
        assert part.headers["content-range"] == f"bytes {first}-{last}/{len(data)}"
        assert part.content == data[first : last + 1]
    for asked in (f"bytes={len(data)}-", f"bytes={10**17}-{10**17}", "bytes=-0"):
        none = client.get("artifacts/0/content", headers={"range": asked})
        assert (none.status_code, none.headers["content-range"]) == (416, f"bytes */{len(data)}")
    for asked in ("bytes=0-1,5-6", "lines=1-2", "bytes=-", "nonsense", "bytes=9-5"):
        assert client.get("artifacts/0/content", headers={"range": asked}).status_code == 200
    other = {"range": "bytes=0-9", "if-range": '"other"'}
    assert client.get("artifacts/0/content", headers=other).status_code == 200
    tag = {"if-none-match": whole.headers["etag"]}
    assert client.get("artifacts/0/content", headers=tag).status_code == 304
    head = client.head("artifacts/0/content")
    assert (head.headers["content-length"], head.content) == (str(len(data)), b"")
    page = client.get("artifacts/0/lines", params={"offset": 20_000, "limit": 2}).json()
    assert page == {
        "text": "line 19999\nline 20000\n", "next": 20_002, "lines": 30_000, "status": "sealed",
    }  # fmt: skip
    end = client.get("artifacts/0/lines", params={"offset": 30_001}).json()
    assert (end["text"], end["next"]) == ("", None)


def test_an_empty_artifact(client: httpx.Client, thread: eventq.Thread) -> None:
    """It has no bytes, no range and no line."""
    client.post("artifacts", content=b"")
    assert client.get("artifacts/0/content").content == b""
    for asked in ("bytes=0-", "bytes=5-2", "bytes=1-", "bytes=-3", "bytes=-0"):
        found = client.get("artifacts/0/content", headers={"range": asked})
        assert (found.status_code, found.headers["content-length"]) == (200, "0")
    assert client.get("artifacts/0/lines").json()["text"] == ""


def test_an_artifact_is_followed_while_it_is_written(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write is sent as it is committed; the reply ends when the artifact does."""
    monkeypatch.setattr(artifacts, "COMMIT_SECONDS", 0)
    with thread.artifacts.allocate("make") as writer:
        writer.write(b"one\n")
        with client.stream("GET", "artifacts/0/content", params={"follow": "true"}) as found:
            assert "content-length" not in found.headers
            pieces: Iterator[bytes] = found.iter_raw()
            assert next(pieces) == b"one\n"
            writer.write(b"two\n" * 50_000)
            writer.seal()
            assert b"".join(pieces) == b"two\n" * 50_000
    again = client.get("artifacts/0/content", params={"follow": "true"})
    assert again.headers["content-length"] == "200004"


def test_a_follower_ends_with_the_server(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the artifact is written."""
    monkeypatch.setattr(artifacts, "COMMIT_SECONDS", 0)
    ended: list[bytes] = []
    ready = threading.Semaphore(0)

    def follow() -> None:
        with client.stream("GET", "artifacts/0/content", params={"follow": "true"}) as found:
            pieces = found.iter_raw()
            first = next(pieces)
            ready.release()
            ended.append(first + b"".join(pieces))

    with thread.artifacts.allocate("make") as writer:
        writer.write(b"one")
        user = threading.Thread(target=follow)
        user.start()
        ready.acquire()
        client.running.stop()  # type: ignore[attr-defined]
        user.join(60)
    assert ended == [b"one"]


def test_artifacts_of_a_session(client: httpx.Client, thread: eventq.Thread) -> None:
    """They have numbers of their own."""
    thread.contexts.create("s")
    client.post("artifacts", content=b"the thread's")
    client.post("artifacts", params={"context": "s"}, content=b"the session's")
    assert client.get("artifacts/0/content", params={"context": "s"}).content == b"the session's"
    listed = client.get("artifacts", params={"context": "s"}).json()
    assert [one["url"] for one in listed["artifacts"]] == ["artifact://0?session=s"]
    assert client.get("artifacts", params={"after": 0}).json() == {"artifacts": [], "next": 0}
    assert client.get("artifacts/0").json()["session"] is None


def test_lines_of_bounded_size(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is read by its bytes."""
    monkeypatch.setattr(output_api, "PAGE_BYTES", 100_000)
    thread.artifacts.put(b"x" * 300_000)
    status, says = problem(client.get("artifacts/0/lines"))
    assert (status, "ask for fewer lines, or for a range of its bytes" in says) == (413, True)


def test_damage_is_seen(client: httpx.Client, thread: eventq.Thread, raw: apsw.Connection) -> None:
    """By an error, or after the first bytes by a reply that ends early."""
    thread.artifacts.put(bytes(3 << 20))
    raw.execute("UPDATE artifact_chunks SET bytes = x'00' WHERE position = 40")
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("artifacts/0/content")
    part = client.get("artifacts/0/content", headers={"range": "bytes=2650000-"})
    assert problem(part)[0] == 500
    raw.execute("DELETE FROM artifact_chunks")
    raw.execute("DELETE FROM artifacts")


def test_outputs(client: httpx.Client, thread: eventq.Thread) -> None:
    """Published, listed page by page, and read."""
    for text in ("one", "two"):
        made = client.post("outputs", params={"name": "Scout"}, content=text.encode())
        assert made.status_code == 201
    first = client.get("outputs", params={"limit": 1}).json()
    rest = client.get("outputs", params={"after": first["next"]}).json()
    names = [one["output_id"] for one in first["outputs"] + rest["outputs"]]
    assert names == [one.output_id for one in thread.outputs]
    assert client.get(f"outputs/{names[0]}/content").content == b"one"
    assert client.get(f"outputs/{names[1]}").json()["url"] == f"agent://{names[1]}"
    assert client.get("outputs", params={"after": rest["next"]}).json()["outputs"] == []


def test_blobs(client: httpx.Client, thread: eventq.Thread) -> None:
    """By hash; only images of known kinds are called so, and nothing may run."""
    made = client.post("blobs", content=PNG)
    assert (made.status_code, made.json()["size"]) == (201, len(PNG))
    assert client.post("blobs", content=PNG).status_code == 200
    name = made.json()["hash"]
    found = client.get(f"blobs/{name}")
    assert (found.content, found.headers["content-type"]) == (PNG, "image/png")
    assert found.headers["x-content-type-options"] == "nosniff"
    page = client.post("blobs", content=b"<script>alert(1)</script>").json()["ref"]
    assert client.get(f"blobs/{page}").headers["content-type"] == "application/octet-stream"


def test_a_range_of_a_blob_in_parts(client: httpx.Client, thread: eventq.Thread) -> None:
    """Only what is asked for is read, whatever the parts."""
    data = b"".join(n.to_bytes(4, "big") for n in range(1 << 20))
    name = thread.blobs.put(data).hash
    assert thread.blobs.stat(name).codec == "parts"
    assert client.get(f"blobs/{name}").content == data
    for first, last in ((0, 0), (1_048_570, 1_048_590), (3_000_001, 4_194_303)):
        part = client.get(f"blobs/{name}", headers={"range": f"bytes={first}-{last}"})
        assert part.content == data[first : last + 1]


def test_long_replies_are_compressed(client: httpx.Client, thread: eventq.Thread) -> None:
    """For those who take it; the tag of both is the same thing."""
    thread.push_many([("self", "note", "x" * 100)] * 100)
    packed = client.get("events", headers={"accept-encoding": "gzip"})
    plain = client.get("events", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 10
    assert packed.json() == plain.json()
    assert {packed.headers["vary"], plain.headers["vary"]} == {"accept-encoding"}
    for one in (packed, plain):
        tag = {"if-none-match": one.headers["etag"]}
        assert client.get("events", headers=tag).status_code == 304
    refused = client.get("events", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


def test_a_thread_in_postgresql(serve: Serve, postgres: str) -> None:
    """It has the memory as well as the log."""
    client = serve(fresh(postgres))
    name = client.get("/api/threads").json()["threads"][0]["name"]
    client.base_url = httpx.URL(f"{client.base_url}/api/threads/{name}/")
    assert client.post("events", json={"content": "x"}).json()["id"] == 1
    assert client.get("status").json()["last_id"] == 1
    for path in ("contexts", "runs", "artifacts", "outputs"):
        assert client.get(path).status_code == 200
    for path in (f"blobs/{'0' * 64}", "turns/1"):
        assert problem(client.get(path))[0] == 404
    with client.stream("GET", "events/stream", params={"after": 0}) as found:
        lines = (one for one in found.iter_lines() if one.startswith("id: "))
        assert next(lines) == "id: 1"
        client.post("events", json={"content": "y"})
        assert next(lines) == "id: 2"

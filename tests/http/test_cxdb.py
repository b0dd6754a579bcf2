"""The endpoints that clients of CXDB use: what they send, and what they read of the replies."""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING, Any

import httpx
import msgpack
import pytest
from blake3 import blake3

import eventq
from eventq.http import cxdb
from eventq.http.cxdb_about import Abouts
from eventq.http.cxdb_stream import Changes
from eventq.system import clock
from tests.http.conftest import of_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.http.conftest import Serve

BUNDLE: dict[str, Any] = {
    "registry_version": 1,
    "bundle_id": "app#2026",
    "types": {
        "app.Note": {
            "versions": {
                "1": {
                    "fields": {
                        "1": {"name": "role", "type": "u8", "enum": "app.Role"},
                        "2": {"name": "text", "type": "string"},
                        "3": {"name": "at", "type": "unix_ms", "optional": True},
                        "4": {"name": "size", "type": "u64", "optional": True},
                        "5": {"name": "raw", "type": "bytes", "optional": True},
                        "6": {"name": "by", "type": "ref", "ref": "app.Who", "optional": True},
                        "7": {"name": "all", "type": "array", "optional": True,
                              "items": {"type": "ref", "ref": "app.Who"}},
                        "8": {"name": "odd", "type": "i32", "optional": True, "semantic": "x"},
                    }
                }
            }
        },
        "app.Who": {"versions": {"2": {"fields": {"1": {"name": "name", "type": "string"}}}}},
    },
    "enums": {"app.Role": {"1": "user", "2": "tool"}},
}  # fmt: skip


@pytest.fixture
def client(serve: Serve, path: str) -> httpx.Client:
    """Return a client as these are: it sends no token, and keeps its connection."""
    return serve(path, token="", write=False, insecure=True)


def append(client: httpx.Client, context: str, data: Any, **more: Any) -> dict[str, Any]:
    """Append a turn, and return the reply."""
    body = {"type_id": "app.Note", "type_version": 1, "data": data, **more}
    found = client.post(f"/v1/contexts/{context}/append", json=body)
    assert found.status_code == 201, found.text
    return dict(found.json())


def create(client: httpx.Client) -> str:
    """Make a context, and return its id."""
    return str(client.post("/v1/contexts/create").json()["context_id"])


def error(found: httpx.Response) -> tuple[int, str]:
    """Return status and sentence of an error in the form of CXDB."""
    shown = found.json()["error"]
    assert shown["code"] == found.status_code
    return shown["code"], shown["message"]


def test_health(client: httpx.Client) -> None:
    """Both ways to ask."""
    found = client.get("/healthz")
    assert (found.text, found.headers["content-type"]) == ("ok", "text/plain")
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("at", ["/v1/contexts/create", "/v1/contexts"])
def test_create_however_it_is_asked(client: httpx.Client, at: str) -> None:
    """Without a body, with an empty one, with a base that is none; ids are text, depths numbers."""
    for body in (b"", b"{}", b'{"base_turn_id":"0"}', b'{"base_turn_id":0,"tag":"x"}'):
        found = client.post(at, content=body)
        assert found.status_code == 201
        shown = found.json()
        assert (type(shown["context_id"]), shown["head_turn_id"], shown["head_depth"]) == (
            str, "0", 0,
        )  # fmt: skip
    number = client.post(f"{at}?u64_format=number").json()
    assert type(number["context_id"]) is int


def test_append_both_ways(client: httpx.Client) -> None:
    """The same bytes have the same hash; the head moves on without a parent."""
    one = create(client)
    first = append(client, one, {"2": "x", "1": 1, "b": True, "a": None})
    body = {"type_id": "app.Note", "type_version": 1, "payload": {"a": None, "1": 1, "b": True,
            "2": "x"}, "metadata": {}}  # fmt: skip
    second = client.post(f"/v1/contexts/{one}/turns?offset=0", json=body).json()
    assert (first["depth"], second["depth"]) == (0, 1)
    assert first["content_hash"] == second["content_hash"]
    stored = msgpack.packb({1: 1, 2: "x", "a": None, "b": True})
    assert first["content_hash"] == blake3(stored).hexdigest()
    raw = base64.b64encode(msgpack.packb({1: 7})).decode()
    body = {"type_id": "t", "type_version": 1, "payload_base64": raw, "data": {"x": 1}}
    third = client.post(f"/v1/contexts/{one}/append", json=body).json()
    assert third["content_hash"] == blake3(msgpack.packb({1: 7})).hexdigest()
    assert client.get(f"/v1/contexts/{one}").json()["head_turn_id"] == third["turn_id"]


def test_types_name_the_fields(client: httpx.Client, path: str) -> None:
    """Of turns from the binary protocol, too, with tags as numbers or as digits."""
    assert client.put("/v1/registry/bundles/x", json=BUNDLE).status_code == 201
    with eventq.open(path) as thread:
        branch = thread.contexts.create()
        for keys in (int, str):
            value = {keys(1): 2, keys(2): "hi", keys(3): 1_700_000_000_123, keys(4): 1 << 60,
                     keys(5): b"\xff", keys(6): {keys(1): "me", keys(9): 1},
                     keys(7): [{keys(1): "you"}], keys(8): -5, keys(99): "more"}  # fmt: skip
            branch.append(eventq.NewTurn(msgpack.packb(value), "app.Note", 1, 1))
    found = client.get(f"/v1/contexts/{branch.id}/turns?include_unknown=true").json()
    wanted = {
        "role": "tool", "text": "hi", "at": "2023-11-14T22:13:20.123Z", "size": str(1 << 60),
        "raw": "/w==", "by": {"name": "me", "_unknown": {"9": 1}}, "all": [{"name": "you"}],
        "odd": -5,
    }  # fmt: skip
    for turn in found["turns"]:
        assert turn["data"] == wanted
        assert turn["unknown"] == {"99": "more"}
        assert turn["declared_type"] == turn["decoded_as"] == {
            "type_id": "app.Note", "type_version": 1,
        }  # fmt: skip
    assert found["meta"]["registry_bundle_id"] == "app#2026"
    other = client.get(
        f"/v1/contexts/{branch.id}/turns?u64_format=number&bytes_render=hex&enum_render=both"
        "&time_render=unix_ms&limit=1"
    ).json()["turns"][0]
    assert (other["turn_id"], other["data"]["size"], other["data"]["raw"]) == (3, 1 << 60, "ff")
    assert other["data"]["role"] == {"number": 2, "label": "tool"}
    assert other["data"]["at"] == 1_700_000_000_123
    assert "unknown" not in other


def test_appends_by_the_names_of_fields(client: httpx.Client) -> None:
    """Names become tags, a missing field is refused, one that is not known is kept."""
    client.put("/v1/registry/bundles/x", json=BUNDLE)
    one = create(client)
    data = {"text": "hi", "role": "user", "size": str(1 << 60), "raw": "/w==", "by": {"name": "me"},
            "more": 1}  # fmt: skip
    made = append(client, one, data)
    stored = msgpack.packb({1: 1, 2: "hi", 4: 1 << 60, 5: b"\xff", 6: {1: "me"}, "more": 1})
    assert made["content_hash"] == blake3(stored).hexdigest()
    shown = client.get(f"/v1/contexts/{one}/turns").json()["turns"][0]["data"]
    assert shown == {name: value for name, value in data.items() if name != "more"}
    missing = client.post(
        f"/v1/contexts/{one}/append", json={"type_id": "app.Note", "data": {"role": 1}}
    )
    assert error(missing)[0] == 422
    assert "'text' is missing" in error(missing)[1]


def test_types_that_nobody_registered(client: httpx.Client) -> None:
    """They are shown as they are; raw bytes have their hash; a later type names them."""
    one = create(client)
    made = append(client, one, {"1": 1, "2": "x", "9": 1 << 60})
    typed = client.get(f"/v1/contexts/{one}/turns").json()["turns"][0]
    assert typed["data"] == {"1": 1, "2": "x", "9": str(1 << 60)}
    both = client.get(f"/v1/contexts/{one}/turns?view=both").json()["turns"][0]
    raw = base64.b64decode(both["bytes_b64"])
    assert blake3(raw).hexdigest() == both["content_hash_b3"] == made["content_hash"]
    assert (both["encoding"], both["compression"], both["uncompressed_len"]) == (1, 0, len(raw))
    only = client.get(f"/v1/contexts/{one}/turns?view=raw&bytes_render=len_only").json()["turns"][0]
    assert (only["bytes_len"], "data" in only) == (len(raw), False)
    client.put("/v1/registry/bundles/x", json=BUNDLE)
    assert client.get(f"/v1/contexts/{one}/turns").json()["turns"][0]["data"]["text"] == "x"
    explicit = client.get(
        f"/v1/contexts/{one}/turns?type_hint_mode=explicit&as_type_id=app.Who&as_type_version=2"
    ).json()["turns"][0]
    assert explicit["decoded_as"] == {"type_id": "app.Who", "type_version": 2}


def test_turns_of_ours(client: httpx.Client, path: str) -> None:
    """Text and JSON are shown as well, and what is hidden is not."""
    with eventq.open(path) as thread:
        branch = thread.contexts.create("main")
        for payload in ("plain", '{"a": 1}', b"\xff\xfe", "hidden"):
            branch.append(payload)
        thread.contexts.tombstone(4)
    found = client.get(f"/v1/contexts/{branch.id}/turns").json()["turns"]
    assert [one["data"] for one in found] == [
        {"text": "plain"}, {"a": 1}, {"bytes": "//4="}, {},
    ]  # fmt: skip
    assert client.get(f"/v1/contexts/{branch.id}").json()["title"] == "main"


def test_bundles(client: httpx.Client) -> None:
    """Stored once, whatever the order of their members; the id is that of the body."""
    text = json.dumps(BUNDLE)
    paths = "/v1/registry/bundles/app"  # cut at its '#'
    assert client.put(paths, content=text).json() == {"bundle_id": "app#2026"}
    again = client.put(paths, content=text)
    assert (again.status_code, again.content) == (204, b"")
    other = json.dumps(BUNDLE, sort_keys=True, indent=1)
    assert client.put(paths, content=other).status_code == 204
    changed = json.dumps(BUNDLE | {"enums": {}})
    assert error(client.put(paths, content=changed))[0] == 422
    found = client.get("/v1/registry/bundles/app%232026")
    assert found.text == text
    assert found.headers["etag"] == f'"{blake3(text.encode()).hexdigest()}"'
    tag = {"if-none-match": found.headers["etag"]}
    assert client.get("/v1/registry/bundles/app%232026", headers=tag).status_code == 304
    assert error(client.get("/v1/registry/bundles/other"))[0] == 404
    slash = BUNDLE | {"bundle_id": "a/b"}
    assert client.put("/v1/registry/bundles/a/b", json=slash).status_code == 201
    assert client.get("/v1/registry/bundles/a/b").json() == slash
    fields = client.get("/v1/registry/types/app.Who/versions/2").json()["fields"]
    assert fields["1"]["name"] == "name"
    assert error(client.get("/v1/registry/types/app.Who/versions/1"))[0] == 404
    assert client.get("/v1/registry/renderers").json() == {"renderers": {}}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"bundle_id":"x"}', b'{"bundle_id":"x","registry_version":0}',
        b'{"bundle_id":"x","registry_version":1,"types":{"T":{}}}',
        b'{"bundle_id":"x","registry_version":1,"types":{"T":{"versions":{"a":{"fields":{}}}}}}',
        b'{"bundle_id":"x","registry_version":1,"types":{"T":{"versions":{"1":{"fields":{"1":2}}}}}}',
        b'{"bundle_id":"x","registry_version":1,"enums":{"E":{"1":2}}}',
        b'{"bundle_id":"x\\ud800","registry_version":1}', b'{"bundle_id":"x","registry_version":NaN}',
        '{"bundle_id":"x","registry_version":1}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_bundles_that_are_malformed(client: httpx.Client, body: bytes) -> None:
    """They are refused, and nothing is stored."""
    assert error(client.put("/v1/registry/bundles/x", content=body))[0] == 422
    assert error(client.get("/v1/registry/bundles/x"))[0] == 404


def test_a_raw_sharp_in_a_path(client: httpx.Client) -> None:
    """Some clients send it; what follows it is no part of the path."""
    import socket

    body = json.dumps(BUNDLE).encode()
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80)) as one:
        one.sendall(
            b"PUT /v1/registry/bundles/app#2026 HTTP/1.1\r\nhost: localhost\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        reply = b"".join(iter(lambda: one.recv(4096), b""))
    assert reply.startswith(b"HTTP/1.1 201 "), reply


def test_pages(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oldest first, each before the first turn of the one above, and then an empty one."""
    one = create(client)
    numbers = [append(client, one, {"9": n})["turn_id"] for n in range(5)]
    sizes: list[int] = []
    found: list[str] = []
    before = "0"
    while True:
        page = client.get(f"/v1/contexts/{one}/turns?limit=2&before_turn_id={before}").json()
        sizes.append(len(page["turns"]))
        found = [turn["turn_id"] for turn in page["turns"]] + found
        if not page.get("next_before_turn_id"):
            break
        before = page["next_before_turn_id"]
    assert (sizes, found) == ([2, 2, 1, 0], numbers)
    assert error(client.get(f"/v1/contexts/{one}/turns?before_turn_id=null"))[0] == 422
    monkeypatch.setattr(cxdb, "PAGE_BYTES", 7)  # bytes: two of these payloads
    page = client.get(f"/v1/contexts/{one}/turns").json()
    assert [turn["turn_id"] for turn in page["turns"]] == numbers[-2:]


def test_pages_are_not_clamped(client: httpx.Client, path: str) -> None:
    """Clients that do not page ask for thousands."""
    with eventq.open(path) as thread, thread.write():
        branch = thread.contexts.create()
        for n in range(2_100):
            branch.append(f"{n}")
    assert len(client.get(f"/v1/contexts/{branch.id}/turns?limit=2000").json()["turns"]) == 2_000


def test_forks(client: httpx.Client) -> None:
    """They share the turns above, and go apart."""
    one = create(client)
    numbers = [append(client, one, {"9": n})["turn_id"] for n in range(3)]
    made = client.post("/v1/contexts/fork", json={"base_turn_id": numbers[1]})
    assert (made.status_code, made.json()["head_depth"]) == (201, 1)
    other = made.json()["context_id"]
    append(client, other, {"9": 9})
    append(client, one, {"9": 3})
    shown = client.get(f"/v1/contexts/{other}/turns").json()["turns"]
    assert [turn["data"]["9"] for turn in shown] == [0, 1, 9]
    assert error(client.post("/v1/contexts/fork", json={"base_turn_id": "99"}))[0] == 409
    assert error(client.post("/v1/contexts/create", json={"base_turn_id": "99"}))[0] == 409
    assert error(client.post("/v1/contexts/fork", json={}))[0] == 422
    assert error(client.get(f"/v1/contexts/{one}/turns?before_turn_id=99"))[0] == 404


def test_the_list_of_contexts(client: httpx.Client) -> None:
    """The last to change first, with what their first turns say; a tag is looked for in all."""
    first = create(client)
    meta = {"30": {"1": "kilroy/x", "2": "Title", "3": ["a", "b"], "10": {"on": "host"}}}
    append(client, first, meta)
    others = [create(client) for _ in range(25)]
    found = client.get("/v1/contexts?labels=x").json()
    assert (found["count"], len(found["contexts"]), found["active_sessions"]) == (20, 20, [])
    assert found["contexts"][0]["context_id"] == others[-1]
    assert client.get("/v1/contexts?limit=10000").json()["count"] == 26
    tagged = client.get("/v1/contexts?tag=kilroy/x&limit=1&include_provenance=1").json()
    shown = tagged["contexts"][0]
    assert (shown["context_id"], shown["client_tag"], shown["title"], shown["labels"]) == (
        first, "kilroy/x", "Title", ["a", "b"],
    )  # fmt: skip
    assert (shown["provenance"], shown["is_live"]) == ({"on": "host"}, True)
    assert tagged["active_tags"] == ["kilroy/x"]
    assert type(shown["created_at_unix_ms"]) is int
    found = client.get(f"/v1/contexts/{first}/provenance").json()
    assert found == {"context_id": first, "provenance": {"on": "host"}}
    assert client.get(f"/v1/contexts/{others[0]}").json()["lineage"] == {"parent_context_id": None}


def test_search(client: httpx.Client) -> None:
    """By tag and label; what is not understood is said with its place."""
    numbers = []
    for tag, labels in (("kilroy/a", ["x"]), ("kilroy/b", ["x", "y"]), ("other", [])):
        numbers.append(create(client))
        append(client, numbers[-1], {"30": {"1": tag, "3": labels}})

    def search(text: str) -> list[int]:
        found = client.get("/v1/contexts/search", params={"q": text}).json()
        assert found["query"] == text
        assert found["total_count"] == len(found["contexts"])
        return [numbers.index(one["context_id"]) for one in found["contexts"]]

    assert search('tag ^= "kilroy/"') == [1, 0]
    assert search('label = "x" AND tag = "kilroy/a"') == [0]
    assert search('tag="other"') == [2]
    assert search('label = "none"') == []
    for text, at in (
        ("", 0),
        ("tag", 0),
        ('title = "x"', 0),
        ('tag = "x" OR', 10),
        ('tag="x" and', 11),
    ):
        found = client.get("/v1/contexts/search", params={"q": text})
        assert (found.status_code, found.json()["position"]) == (400, at), text


@pytest.mark.parametrize(
    ("method", "at", "body", "status"),
    [
        ("GET", "/v1/contexts/abc/turns", None, 422),
        ("GET", "/v1/contexts/99/turns", None, 404),
        ("GET", "/v1/contexts/0", None, 404),
        ("POST", "/v1/contexts/99/append", {"type_id": "t", "data": {}}, 404),
        ("POST", "/v1/contexts/99/turns", {"type_id": "t", "data": {}}, 404),
        ("POST", "/v1/contexts/1/append", {"data": {}}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t"}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "data": []}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "payload_base64": "kQE="}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "payload_base64": "!"}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "type_version": "x", "data": {}}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "data": {"1": 1 << 70}}, 422),
        ("POST", "/v1/contexts/1/append", {"type_id": "t", "data": {}, "parent_turn_id": 9}, 409),
        ("POST", "/v1/contexts/1/append", [1], 422),
        ("DELETE", "/v1/contexts/1", None, 405),
        ("GET", "/v1/blobs/00", None, 404),
        ("GET", "/v1/turns/1/fs", None, 404),
    ],
)  # fmt: skip
def test_what_is_wrong_changes_nothing(
    client: httpx.Client, method: str, at: str, body: Any, status: int
) -> None:
    """It has the form of an error that they know."""
    create(client)
    assert error(client.request(method, at, json=body))[0] == status
    assert client.get("/v1/contexts").json()["count"] == 1
    assert client.get("/v1/contexts/1").json()["head_turn_id"] == "0"


def test_a_key_appends_once(client: httpx.Client) -> None:
    """Whatever the parent of the second call; other bytes are a conflict."""
    one = create(client)
    first = append(client, one, {"9": 1}, idempotency_key="k")
    again = append(client, one, {"9": 1}, idempotency_key="k", parent_turn_id=first["turn_id"])
    assert again["turn_id"] == first["turn_id"]
    body = {"type_id": "app.Note", "data": {"9": 2}, "idempotency_key": "k"}
    assert error(client.post(f"/v1/contexts/{one}/append", json=body))[0] == 409
    assert client.get(f"/v1/contexts/{one}").json()["head_depth"] == 0


def test_payloads_that_are_nested_deep(client: httpx.Client, path: str) -> None:
    """They are refused; one that came by another way is shown as bytes, and hides no other."""
    deep = b"\x81\x1e\x81\x0a\x81\x01" + b"\x91" * 1_000 + b"\x01"
    one = create(client)
    for body in (
        {"type_id": "t", "payload_base64": base64.b64encode(deep).decode()},
        {"type_id": "t", "data": {"1": json.loads("[" * 300 + "]" * 300)}},
    ):  # fmt: skip
        assert error(client.post(f"/v1/contexts/{one}/append", json=body))[0] == 422
    with eventq.open(path) as thread:
        thread.contexts.create().append(eventq.NewTurn(msgpack.packb({1: float("nan")}), "t", 1, 1))
        for payload in (deep, b"[" * 5_000, b'{"a":' * 900 + b"1" + b"}" * 900):
            thread.contexts.create().append(eventq.NewTurn(payload, "t", 1, 1))
    found = client.get("/v1/contexts?include_provenance=1").json()
    assert found["count"] == 5
    number = client.get("/v1/contexts/2/turns").json()["turns"][0]
    assert number["data"] == {"1": "nan"}
    for number in range(3, 6):
        shown = client.get(f"/v1/contexts/{number}/turns?view=both").json()["turns"][0]
        assert shown["data"].keys() <= {"bytes", "text"}
    search = client.get("/v1/contexts/search", params={"q": 'tag = "x"'})
    assert search.json()["total_count"] == 0


def test_types_with_odd_members(client: httpx.Client) -> None:
    """What is not understood is passed over, when it is registered, read and written."""
    odd = [[], {}, 1, None]
    fields = {
        str(n + 1): {"name": f"f{n}", "type": one, "enum": one, "ref": one, "items": one}
        for n, one in enumerate(odd)
    }  # fmt: skip
    fields["9"] = {"name": "items", "type": "array", "items": {"enum": ["x"], "ref": {}}}
    bundle = {
        "registry_version": 1, "bundle_id": "odd",
        "types": {"Odd": {"versions": {"1": {"fields": fields}}}},
    }  # fmt: skip
    assert client.put("/v1/registry/bundles/odd", json=bundle).status_code == 201
    one = create(client)
    for value in (5, "x", [1, "x"], {"a": 1}):
        data = {f"f{n}": value for n in range(len(odd))} | {"items": [value]}
        append(client, one, data, type_id="Odd")
        shown = client.get(f"/v1/contexts/{one}/turns?limit=1").json()["turns"][0]["data"]
        assert shown == data


def test_a_thread_that_is_replaced(client: httpx.Client, path: str) -> None:
    """The types are those of the thread that is there; who follows it is let go."""
    one = {"registry_version": 1, "bundle_id": "one", "types": {}}
    assert client.put("/v1/registry/bundles/x", json=one).status_code == 201
    with client.stream("GET", "/v1/events") as found:
        lines = found.iter_lines()
        assert next(lines) == "event: connected"
        shutil.move(path, path + ".gone")
        assert list(lines) == ["data: {}", ""]
    assert error(client.get("/v1/registry/bundles/one"))[0] == 404
    assert path not in client.get("/v1/contexts").text
    eventq.init(path)
    other = one | {"bundle_id": "other"}
    assert client.put("/v1/registry/bundles/x", json=other).status_code == 201
    assert client.get("/v1/registry/bundles/other").json() == other
    assert error(client.get("/v1/registry/bundles/one"))[0] == 404


def test_events_of_an_empty_thread(client: httpx.Client, path: str) -> None:
    """The first context, and its turns, are told to whoever was connected before."""
    with client.stream("GET", "/v1/events") as found, eventq.open(path) as thread:
        lines = found.iter_lines()
        assert [next(lines), next(lines), next(lines)] == ["event: connected", "data: {}", ""]
        with thread.write():
            thread.contexts.create().append("x")
        assert next(lines) == "event: context_created"
        assert [next(lines) for _ in range(3)][2] == "event: turn_appended"


def test_each_append_within_a_look_is_told_once(path: str) -> None:
    """Also of appends after one parent, of a head that moved back, and of more than a page.

    The kind: a turn that is on no head's chain once somebody looks. Its members: two appends after
    one parent, a chain that was left, a head that was moved back or to another context, the newest
    turn at the first look.
    """
    with eventq.open(path) as thread:
        branch, other = thread.contexts.create(), thread.contexts.create()
        first = branch.append("first")
        left = branch.append("left")
        branch.move(first.turn_id)
        changes = Changes(thread, Abouts())

        def told() -> list[tuple[str, int]]:
            found = [one for name, one in changes.look(thread) if name == "turn_appended"]
            return [(one["context_id"], int(one["turn_id"])) for one in found]

        assert told() == []
        with thread.write():
            one = branch.append("a", parent=first.turn_id)
            two = branch.append("b", parent=first.turn_id)
            apart = other.append("apart")
        mine, others = str(branch.id), str(other.id)
        expected = [(mine, one.turn_id), (mine, two.turn_id), (others, apart.turn_id)]
        assert sorted(told()) == sorted(expected)
        assert told() == []
        with thread.write():
            chain = [branch.append(f"{n}", parent=left.turn_id if not n else None).turn_id
                     for n in range(600)]  # fmt: skip
            branch.move(first.turn_id)
        assert told() == [(mine, number) for number in chain]
        last = branch.append("x").turn_id
        assert told() == [(mine, last)]
        branch.move(left.turn_id)
        assert told() == []


def test_contexts_that_are_gone_before_a_look(path: str) -> None:
    """Contexts that are deleted before anybody looks are told of, with each of their appends.

    The kind: what is no more, or is somebody else's, once somebody looks. Its members: a context
    created and deleted, an older one that gets a turn and is deleted, another of the same name, a
    fork, one that is empty, one whose turn another head moved to, the first of an empty thread, a
    clock that was set back, more contexts and turns than one look takes, what an import brings.
    """
    with eventq.open(path) as thread:
        changes = Changes(thread, Abouts())

        def told() -> list[tuple[str, int]]:
            found: list[tuple[str, int]] = []
            while events := changes.look(thread):
                for name, one in events:
                    if name == "context_created":
                        found.append(("created", int(one["context_id"])))
                    elif name == "turn_appended":
                        found.append((one["context_id"], int(one["turn_id"])))
            return found

        with thread.write():  # of an empty thread
            first = thread.contexts.create("one")
            one = first.append("x").turn_id
            first.delete()
            empty = thread.contexts.create("empty")
            empty.delete()
            again = thread.contexts.create("one")
            two = again.append("y").turn_id
        assert told() == [
            ("created", first.id), ("created", empty.id), ("created", again.id),
            (str(first.id), one), (str(again.id), two),
        ]  # fmt: skip
        with thread.write():  # one that was there
            three = again.append("z").turn_id
            fork = again.fork()
            four = fork.append("w").turn_id
            other = thread.contexts.create()
            other.move(four)
            fork.delete()
            again.delete()
        assert told() == [
            ("created", fork.id), ("created", other.id), (str(again.id), three),
            (str(fork.id), four),
        ]  # fmt: skip
        with thread.write():
            many = [thread.contexts.create() for _ in range(2_001)]
            turns = [(str(one.id), one.append("v").turn_id) for one in many]
            turns += [(str(other.id), other.append("u").turn_id) for _ in range(2_001)]
            for each in many[::2]:
                each.delete()
        assert told() == [*(("created", one.id) for one in many), *turns]
        assert told() == []


def test_a_clock_that_was_set_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends are told whatever the time is."""
    with eventq.open(path) as thread:
        other, branch = thread.contexts.create(), thread.contexts.create()
        branch.append("x")
        changes = Changes(thread, Abouts())
        other.append("now")
        assert [name for name, _ in changes.look(thread)][:1] == ["turn_appended"]
        monkeypatch.setattr(clock, "now", lambda: 1.0e9)
        branch.append("y")
        assert [name for name, _ in changes.look(thread)] == ["turn_appended"]


def test_turns_that_an_import_brings(path: str, tmp_path: Path) -> None:
    """Those that a head moves on to are told once; a context that comes whole begins at its head."""
    eventq.init(tmp_path / "from")
    with eventq.open(tmp_path / "from") as source, eventq.open(path) as thread:
        trunk = source.contexts.create("trunk")
        trunk.append("first")
        changes = Changes(thread, Abouts())
        for n, expected in enumerate((0, 2_500)):
            source.export_pack(tmp_path / f"pack{n}")
            thread.import_pack(tmp_path / f"pack{n}")
            found: list[Any] = []
            while events := changes.look(thread):
                found += [one for name, one in events if name == "turn_appended"]
            assert len({one["turn_id"] for one in found}) == len(found) == expected
            assert {one["context_id"] for one in found} <= {str(trunk.id)}
            for more in range(2_500):
                trunk.append(f"{more}")


def test_a_thread_restored_to_an_older_state(client: httpx.Client, path: str) -> None:
    """Who follows it is let go, as its positions are those of another log."""
    one = create(client)
    append(client, one, {"9": 1})
    with client.stream("GET", "/v1/events") as found, eventq.open(path) as thread:
        lines = found.iter_lines()
        assert [next(lines), next(lines), next(lines)] == ["event: connected", "data: {}", ""]
        with thread.write():  # as an older copy of the thread has it
            run = thread.database.connection.execute  # type: ignore[attr-defined]
            run("UPDATE contexts SET head_id = NULL, version = 0")
            for table in ("context_log", "turns"):
                run(f"DELETE FROM {table}")
            run("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'turns'")
        assert list(lines) == []


def test_events_as_they_come(client: httpx.Client, path: str) -> None:
    """After the commit, with ids that are text; who reads at once sees the turn."""

    def events(found: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
        name = ""
        for line in found.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    before = create(client)
    append(client, before, {"9": 0})
    with client.stream("GET", "/v1/events") as found, eventq.open(path) as thread:
        assert found.headers["content-type"] == "text/event-stream"
        stream = events(found)
        assert next(stream) == ("connected", {})
        made = thread.contexts.create()
        name, shown = next(stream)
        assert (name, shown["context_id"], shown["session_id"]) == (
            "context_created", str(made.id), "http",
        )  # fmt: skip
        turn = made.append(
            eventq.NewTurn(msgpack.packb({30: {1: "t", 3: ["x"]}}), "app.Note", 1, 1)
        )
        name, shown = next(stream)
        assert (name, shown) == ("turn_appended", {
            "context_id": str(made.id), "turn_id": str(turn.turn_id), "parent_turn_id": "0",
            "depth": 0, "declared_type_id": "app.Note", "declared_type_version": 1,
        })  # fmt: skip
        name, shown = next(stream)
        assert (name, shown["client_tag"], shown["labels"]) == (
            "context_metadata_updated", "t", ["x"],
        )  # fmt: skip
        fork = thread.contexts.fork(made)
        assert next(stream)[0] == "context_created"
        assert next(stream) == ("context_linked", {
            "child_context_id": str(fork.id), "parent_context_id": str(made.id),
        })  # fmt: skip
        with thread.write():
            for n in range(600):
                thread.contexts.get(int(before)).append(f"{n}")
        assert [next(stream)[1]["depth"] for _ in range(600)] == [*range(1, 601)]


def test_large_ids_survive(client: httpx.Client) -> None:
    """As text, in requests and replies."""
    assert error(client.get(f"/v1/contexts/{(1 << 63) - 1}"))[0] == 404
    assert error(client.get(f"/v1/contexts/{10**19}/turns"))[0] == 404
    assert of_server(client, "/v1/metrics").json()["contexts"] == 0

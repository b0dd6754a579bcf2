"""What was erased is not sent any more, whatever a server has read, sent or kept before.

What a server could keep: the lines of events for followers, the types that clients of CXDB
registered, what the first turns of contexts say of them, blobs, and the nodes of runs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import httpx
import msgpack
import pytest

import eventq
from tests.http.test_cxdb import BUNDLE
from tests.http.test_streams import events

if TYPE_CHECKING:
    from tests.http.conftest import Serve

SECRET = "the password is hunter2hunter2"


def test_a_new_follower_does_not_get_what_was_erased(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """Also while others follow, who got it before it was erased."""
    thread.push("self", "note", "first")
    with client.stream("GET", "events/stream") as before:
        found = events(before)
        for number in range(2, 12):
            thread.push("self", "note", SECRET)
            assert next(found)[1]["content"] == SECRET
            thread.erasures.event(number)
            with client.stream("GET", "events/stream", params={"after": number - 1}) as after:
                assert next(events(after))[1]["content"] == "[erased]"


@pytest.mark.parametrize("how", [{}, {"accept": "application/x-ndjson"}])
@pytest.mark.parametrize("where", [{}, {"filter": "type = 'note'"}])
def test_a_text_that_is_erased_while_others_follow(
    client: httpx.Client, thread: eventq.Thread, how: dict[str, str], where: dict[str, str]
) -> None:
    """No stream, page or search has it afterwards, wherever they begin; what was pruned is a gap."""
    with client.stream("GET", "events/stream", headers=how, params=where) as before:
        follower = before.iter_lines()
        for number in range(1, 31):
            thread.push("self", "note", f"{number} {SECRET}" if number % 3 else f"{number} other")
        while "30 other" not in next(follower):
            pass
        assert thread.erasures.text(SECRET) == []
        thread.push("self", "note", "31")
        rest = ""
        while '"31"' not in rest:
            rest = next(follower)
            assert SECRET not in rest
        for after in (0, 7, 28):
            asked: dict[str, str | int] = {**where, "after": after}
            with client.stream("GET", "events/stream", headers=how, params=asked) as found:
                seen = ""
                for line in found.iter_lines():
                    seen += line
                    if '"31"' in line:
                        break
            assert SECRET not in seen
            assert seen.count("[erased]") == 20 - after // 3 * 2 - after % 3
            assert SECRET not in client.get("events", params=asked).text
        thread.prune(before_id=20, force=True)
        asked = {**where, "after": 5}
        with client.stream("GET", "events/stream", headers=how, params=asked) as found:
            assert found.headers["eventq-gap"] == "6-19"


def test_followers_that_came_together_get_the_same(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """They share what is read, and one that goes while it is read takes it from no other."""
    counts: list[int] = []

    def follow(most: int) -> None:
        with client.stream("GET", "events/stream", params={"after": 0}) as found:
            ready.wait()
            every = events(found)
            counts.append(sum(next(every)[0] for _ in range(most)))

    ready = threading.Barrier(9)
    running = [threading.Thread(target=follow, args=(100 * n,)) for n in range(1, 9)]
    for one in running:
        one.start()
    ready.wait()
    thread.push_many([("self", "note", f"{n}") for n in range(800)])
    for one in running:
        one.join()
    assert sorted(counts) == [sum(range(1, 100 * n + 1)) for n in range(1, 9)]


def test_registered_types_and_titles_are_forgotten(serve: Serve, path: str) -> None:
    """Those that a server has shown before, too."""
    client = serve(path, token="", write=True, insecure=True)
    secret = {**BUNDLE, "bundle_id": SECRET}
    assert client.put("/v1/registry/bundles/x", json=secret).status_code == 201
    assert client.put("/v1/registry/bundles/y", json=BUNDLE).status_code == 201
    place = "/v1/registry/bundles/" + SECRET.replace(" ", "%20")
    assert client.get(place).status_code == 200
    with eventq.open(path) as thread:
        branch = thread.contexts.create("main")
        payload = msgpack.packb({30: {1: "tag", 2: SECRET}})
        turn = branch.append(eventq.NewTurn(payload, "app.Note", 1, 1))
        assert SECRET in client.get("/v1/contexts").text
        thread.erasures.turn(turn.turn_id)
        thread.erasures.turn(1)
        assert SECRET not in client.get("/v1/contexts").text
        assert client.get(place).status_code == 404
        assert client.get("/v1/registry/bundles/app%232026").status_code == 200

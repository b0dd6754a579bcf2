"""A server that is killed: what it has acknowledged is stored, and the rest can be sent again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import httpx

import eventq

USERS = 4
ARGV = [sys.executable, "-m", "eventq", "serve", "--json", "--insecure-local", "--http"]


def start(path: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server of a thread; return it and the address of its events."""
    process = subprocess.Popen(
        [*ARGV, "127.0.0.1:0", "--thread", path], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["listening"]
    return process, f"{url}/api/threads/thread/events"


def test_nothing_acknowledged_is_lost(path: str) -> None:
    """However it ends; a push with a key that is sent again is stored once."""
    stored: dict[str, int] = {}
    enough = threading.Semaphore(0)

    def push(user: int, url: str) -> None:
        with httpx.Client(timeout=60) as client:
            for number in range(100_000):
                key = f"{user}-{number}"
                try:
                    reply = client.post(url, json={"content": key, "key": key})
                except httpx.TransportError:
                    unknown.append(key)  # it was stored, or it was not
                    return
                stored[key] = reply.json()["id"]
                enough.release()

    for _ in range(2):
        unknown: list[str] = []
        process, url = start(path)
        before = [*stored]
        users = [threading.Thread(target=push, args=(n, url)) for n in range(USERS)]
        for user in users:
            user.start()
        for _ in range(100 + len(before)):  # those of the round before are told again
            enough.acquire()
        process.send_signal(signal.SIGKILL)
        for user in users:
            user.join()
        process.communicate()
        with eventq.open(path) as thread:
            assert thread.check() == []
            found = {event.content: event.id for event in thread.peek(0, limit=1_000_000)}
        assert {key: found.get(key) for key in stored} == stored
        assert found.keys() - stored.keys() <= {*unknown}
        assert len(unknown) == USERS

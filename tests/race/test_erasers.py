"""A text is erased while others push it, push other things, follow, prune, and erase as well.

Who is beside it, each tried here: two that erase the same text; a writer of other texts and of the
same one; a prune; rotations and rebuilds of the mirror; followers, in this process and another, and
one that reads an old snapshot. Nothing else is lost, and in the end the text is nowhere.
"""

from __future__ import annotations

import threading

import pytest

import eventq
from eventq.records.checks import ERASED
from tests.crash.support import kill, read_lines, start
from tests.erasing import remains, secret

pytestmark = pytest.mark.usefixtures("quick")

TEXT = secret(4, 60)
HEAD = """
import eventq
from eventq.log import mirror
mirror.ROTATE_LINES = 40
with eventq.open(sys.argv[1]) as thread:
    say("go")
"""
PUSH = """
    for n in range(100000):
        same = f"{n} {sys.argv[2]}" if n % 7 == 3 else f"other {n} " + "x" * 300
        say(f"{thread.push('self', 'note', same, key=f'k{n}').id} {n}")
"""
PRUNE = """
    for n in range(100000):
        say(thread.prune(keep_last=60, force=True))
"""
REBUILD = """
    for n in range(100000):
        say(thread.rebuild_mirror())
"""
APPEND = """
    main = thread.contexts.create("main")
    for n in range(100000):
        same = f"{n} {sys.argv[2]}" if n % 7 == 3 else f"other {n} " + "x" * 300
        say(f"{main.append(same).turn_id} {n}")
"""
FOLLOW = """
    for n, event in enumerate(thread.follow(0)):
        say(event.id)
"""


SOAK = [pytest.param(one, marks=pytest.mark.soak) for one in (PUSH, REBUILD, FOLLOW, APPEND)]


@pytest.mark.parametrize("beside", [PRUNE, *SOAK])
def test_others_go_on(path: str, beside: str) -> None:
    """Two erase at once beside a writer and somebody else; then one call is enough."""
    with eventq.open(path) as thread:
        for number in range(100):
            thread.push("self", "note", f"{number} {TEXT}" if number % 5 == 0 else f"kept {number}")
    others = [start(HEAD + code, path, TEXT) for code in (PUSH, beside)]
    said = [read_lines(one, 8) for one in others]
    failed: list[BaseException] = []

    def erase() -> None:
        try:
            with eventq.open(path) as thread:
                thread.erasures.text(TEXT)
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=erase) for _ in range(2)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert failed == []
    said = [before + kill(one) for before, one in zip(said, others, strict=True)]
    with eventq.open(path) as thread:
        assert thread.erasures.text(TEXT) == []
        assert remains(path, TEXT) == []
        assert thread.check() == []
        pushed = dict(line.split() for line in said[0].decode().split("\n")[1:-1])
        found = {event.id: event.content for event in thread.peek(limit=None)}
        for number, n in ((int(one), int(two)) for one, two in pushed.items()):
            content = ERASED if n % 7 == 3 else f"other {n} " + "x" * 300
            assert found.get(number, content if beside is PRUNE else None) == content
        if beside is not PRUNE:
            kept = [content for content in found.values() if content.startswith("kept")]
            assert kept == [f"kept {number}" for number in range(100) if number % 5]

"""What a list of sessions says of each, and which it has.

The kind: a session that is here cannot be found again, because the list does not say what it is
about, or leaves it out. Members: the title stands at the end of the file, or nowhere; the first
message is one of the tool's own; the directory is in the header, or in each entry; the file has no
times, or one that is out of order; the session was imported long after it was used; the directory
begins with the other's name; a long file, a long line, a line that is no entry.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import UsageError
from tests.sessions.support import answers, entry, header, says

if TYPE_CHECKING:
    import eventq
    from eventq.records.session import SessionInfo

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


def at(text: str) -> int:
    """Return a time in milliseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def load(thread: eventq.Thread, folder: str, name: str, *entries: Any) -> None:
    """Import a file of these entries, or texts."""
    path = os.path.join(folder, f"{name}.jsonl")
    with open(path, "w") as file:
        texts = (one if isinstance(one, str) else json.dumps(one) for one in entries)
        file.writelines(f"{text}\n" for text in texts)
    thread.sessions.import_file(path, name=name)


@pytest.fixture
def folder(tmp_path: Any) -> str:
    """Return a folder for files."""
    return str(tmp_path)


def only(thread: eventq.Thread) -> SessionInfo:
    """Return the only session there is."""
    (found,) = thread.sessions.views.found()
    return found


def test_a_title_is_found_at_either_end_of_a_long_file(thread: eventq.Thread, folder: str) -> None:
    """The last one of the highest rank counts, and lines between are not looked at."""
    many = [says(f"u{n}", f"u{n - 1}" if n else None, f"go {n}") for n in range(90)]
    named = {"type": "custom-title", "customTitle": "Mine", "sessionId": "s"}
    own = {"type": "ai-title", "aiTitle": "Its own", "sessionId": "s"}
    load(thread, folder, "s", own, *many, named, {**own, "aiTitle": "Later"})
    found = only(thread)
    assert (found.title, found.prompt, found.lines, found.turns) == ("Mine", "go 0", 93, 90)
    assert found == thread.sessions.views.info("s")


def test_the_first_words_are_those_of_a_person(thread: eventq.Thread, folder: str) -> None:
    """What tools put into a conversation is passed over, and long words are cut."""
    load(
        thread, folder, "s",
        says("a", None, "meta", isMeta=True), says("b", "a", "<command-name>/clear</command-name>"),
        says("c", "b", "[Request interrupted by user]"), says("d", "c", "summary", isCompactSummary=True),
        answers("e", "d", {"type": "text", "text": "no"}), says("f", "e", "mend\n the " + "roof " * 200),
    )  # fmt: skip
    prompt = only(thread).prompt or ""
    assert prompt.startswith("mend the roof roof")
    assert len(prompt) in (199, 200)


def test_the_last_entry_says_when_a_session_was_used(thread: eventq.Thread, folder: str) -> None:
    """It counts even if an older one follows; without any time, the import's does."""
    early, late = "2026-01-01T10:00:00.000Z", "2026-01-02T10:00:00.500Z"
    load(
        thread, folder, "old",
        says("a", None, "x", timestamp=early), says("b", "a", "x", timestamp=late),
        says("c", "b", "x", timestamp=early), {"type": "tag", "tag": "t", "sessionId": "s"},
    )  # fmt: skip
    load(
        thread,
        folder,
        "none",
        {"id": "1", "text": "x"},
        {"id": "2", "timestamp": "soon"},
        "rubbish",
    )
    first, second = thread.sessions.views.found()
    assert (second.name, second.active_at_ms) == ("old", at("2026-01-02T10:00:00.500"))
    assert (first.name, first.active_at_ms) == ("none", first.updated_at_ms)
    assert thread.sessions.views.found(since=at("2026-01-03T00:00:00") / 1000) == [first]


def test_sessions_are_chosen_by_their_directory(thread: eventq.Thread, folder: str) -> None:
    """A directory has those below it, and not those that only begin like it."""
    for name, cwd in {"a": "/p/x", "b": "/p/x/y", "c": "/p/xy", "d": "/p"}.items():
        load(thread, folder, name, {**header(), "cwd": cwd}, entry("1", None))
    load(thread, folder, "e", says("1", None, "x", cwd="/p/x"), says("2", "1", "x", cwd="/q"))
    load(thread, folder, "f", {"id": "1"})

    def found(**wanted: Any) -> list[str]:
        return sorted(one.name for one in thread.sessions.views.found(**wanted))

    assert found(project="/p/x") == found(project="/p/x/") == ["a", "b", "e"]
    assert found(project="/") == ["a", "b", "c", "d", "e"]
    assert found(project="/q") == []
    assert found(tool="claude") == ["e"]
    assert found(tool="omp") == []
    assert found(project="/p/x", tool="pi") == ["a", "b"]
    with pytest.raises(UsageError, match="there is no tool 'vi' - choose among claude"):
        found(tool="vi")


def test_long_lines_and_files_are_not_read_for_a_list(
    thread: eventq.Thread, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many blobs are asked for, whatever the length of a file; long ones are left out."""
    asked: list[int] = []
    shown_many = type(thread.blobs).shown_many

    def counting(blobs: Any, digests: list[bytes]) -> dict[bytes, bytes]:
        asked.append(len(digests))
        return shown_many(blobs, digests)

    monkeypatch.setattr(type(thread.blobs), "shown_many", counting)
    counts = []
    for name, length in (("s", 100), ("t", 1_000)):
        load(
            thread,
            folder,
            name,
            *(says(f"{name}{n}", None, "x" * (n == 2) * 70_000 or f"y{n}") for n in range(length)),
        )
        asked.clear()
        assert thread.sessions.views.info(name).prompt == "y0"
        counts.append(sum(asked))
    assert counts[0] == counts[1] < 20

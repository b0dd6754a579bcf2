"""The folder beside a session's file: numbers are kept, every file comes out as it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ConflictError
from tests.storage.older import aged

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.records import SessionImported

pytestmark = pytest.mark.usefixtures("quick")

FILES = {
    "0.bash.log": b"equal bytes\n",
    "1.bash.log": b"equal bytes\n",
    "5.read.log": b"five\n",
    "Scout.md": b"unnumbered",
    "2-Helper.md": b"numbered",
    "Scout.jsonl": b'{"type":"session","id":"inner"}\n',
    "Scout/0.bash.log": b"of the agent below\n",
    "Scout/deep/x.bin": bytes(range(256)),
    "Scout.meta.json": b"{}",
    "draft.txt": b"",
}


def fill(folder: Path, files: dict[str, bytes]) -> None:
    """Write files below a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a session's file and the folder beside it."""
    home = tmp_path / "in"
    home.mkdir()
    (home / "s.jsonl").write_bytes(b'{"type":"session","id":"s-1"}\n')
    fill(home / "s", FILES)
    return home


def load(thread: eventq.Thread, place: Path) -> SessionImported:
    """Import the session."""
    return thread.sessions.import_file(str(place / "s.jsonl"))


def out(thread: eventq.Thread, folder: Path, name: str = "s-1") -> dict[str, bytes]:
    """Export the files of the session, and return them."""
    thread.sessions.export_folder(name, f"{folder}.jsonl", print)
    return tree(folder)


def test_a_folder_comes_out_as_it_was(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Numbers are those of the names, all files come out byte for byte, twice adds nothing."""
    made = load(thread, place)
    assert (made.files, made.notes) == (len(FILES), ())
    artifacts = thread.scope("s-1").artifacts
    assert [one.artifact_id for one in artifacts] == ["0", "1", "5"]
    assert thread.read("artifact://5?session=s-1").data == b"five\n"
    assert thread.read("agent://Scout", context="s-1").data == b"unnumbered"
    assert out(thread, tmp_path / "out") == FILES
    assert (load(thread, place).files, len(artifacts)) == (0, 3)
    assert out(thread, tmp_path / "out") == FILES
    assert artifacts.put(b"next").artifact_id == "6"


def test_a_changed_log_replaces_its_number(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """The number is cited, so it is what the folder now has; nothing else moves."""
    load(thread, place)
    (place / "s" / "0.bash.log").write_bytes(b"grown\n")
    (place / "s" / "Scout.md").write_bytes(b"second version")
    made = load(thread, place)
    assert (made.files, made.notes) == (2, ())
    assert thread.read("artifact://0", context="s-1").data == b"grown\n"
    assert thread.read("artifact://1", context="s-1").data == b"equal bytes\n"
    assert thread.scope("s-1").outputs.read("Scout", 2) == b"second version"
    assert out(thread, tmp_path / "out") == tree(place / "s")
    (place / "s" / "Scout.md").write_bytes(b"unnumbered")
    load(thread, place)
    assert out(thread, tmp_path / "out2")["Scout.md"] == b"unnumbered"


def test_a_number_that_was_taken_meanwhile(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """The file gets another number and a note; importing again adds nothing."""
    load(thread, place)
    thread.scope("s-1").artifacts.put(b"captured")
    fill(place / "s", {"6.bash.log": b"of the folder\n"})
    first = load(thread, place)
    assert "artifact://7?session=s-1" in first.notes[0]
    assert thread.read("artifact://6", context="s-1").data == b"captured"
    again = load(thread, place)
    assert (again.files, len(thread.scope("s-1").artifacts)) == (0, 5)
    assert out(thread, tmp_path / "out")["6.bash.log"] == b"of the folder\n"


def test_two_logs_of_one_number(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Both come, one under another number, and importing again adds nothing."""
    fill(place / "s", {"0.other.log": b"the other\n"})
    load(thread, place)
    assert thread.read("artifact://1", context="s-1").data == b"equal bytes\n"
    load(thread, place)
    assert len(thread.scope("s-1").artifacts) == 4
    assert out(thread, tmp_path / "out") == tree(place / "s")


def test_what_cannot_be_stored_is_noted(thread: eventq.Thread, place: Path) -> None:
    """Links, pipes and names that are not UTF-8 are left out, each with a note."""
    os.symlink("draft.txt", place / "s" / "link")
    os.mkfifo(place / "s" / "pipe")
    (place / "s" / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    made = load(thread, place)
    assert made.files == len(FILES)
    assert len(made.notes) == 3
    for why in ("it is a link", "neither a file nor a folder", "not UTF-8"):
        assert any(why in note for note in made.notes)


def test_a_thread_inside_of_the_folder(place: Path) -> None:
    """The thread is left out with a note; all else comes."""
    with eventq.open(place / "s" / "thread", create=True) as thread:
        made = load(thread, place)
        assert made.files == len(FILES)
        assert "it is the thread" in made.notes[0]


def test_an_empty_folder(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Nothing is stored of it, and nothing is written."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e.jsonl").write_bytes(b'{"type":"session","id":"e"}\n')
    assert thread.sessions.import_file(str(tmp_path / "e.jsonl")).files == 0
    assert out(thread, tmp_path / "none", "e") == {}
    assert not (tmp_path / "none").exists()


def test_an_existing_file_with_other_content(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """An export does not overwrite; what is there stays."""
    load(thread, place)
    for name in ("0.bash.log", "Scout.md", "Scout/deep/x.bin"):
        folder = tmp_path / name.replace("/", "_")
        fill(folder, {name: b"mine"})
        with pytest.raises(ConflictError):
            out(thread, folder)
        assert (folder / name).read_bytes() == b"mine"


def test_a_session_of_an_older_version_gets_a_scope(path: str, place: Path) -> None:
    """A context that shared the thread's numbers has its own once a folder is imported."""
    (place / "s").rename(place / "later")
    with eventq.open(path) as thread:
        load(thread, place)
        thread.artifacts.put(b"of the thread")
    aged(path, 7)
    (place / "later").rename(place / "s")
    with eventq.open(path) as thread:
        assert thread.scope("s-1").scope == 0
        load(thread, place)
        assert thread.scope("s-1").scope != 0
        assert thread.read("artifact://0", context="s-1").data == b"equal bytes\n"
        assert thread.read("artifact://0").data == b"of the thread"
        assert thread.check() == []

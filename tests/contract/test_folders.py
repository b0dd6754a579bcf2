"""The folder beside a session's file: numbers are kept, every file comes out as it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ConflictError
from eventq.system import disk
from tests.engines import sqlite

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.records.session import SessionImported

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


def test_what_was_deleted_here_stays_deleted(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """An artifact that was deleted is left out of an export and of the next import, with a note."""
    load(thread, place)
    thread.scope("s-1").artifacts.remove(1)
    notes: list[str] = []
    thread.sessions.export_folder("s-1", str(tmp_path / "out.jsonl"), notes.append)
    assert notes == ["'1.bash.log' was not written: its artifact was deleted"]
    wanted = tree(place / "s")
    del wanted["1.bash.log"]
    assert tree(tmp_path / "out") == wanted
    made = load(thread, place)
    assert (made.files, len(made.notes)) == (0, 1)
    assert "was deleted here as artifact 1" in made.notes[0]
    assert [one.artifact_id for one in thread.scope("s-1").artifacts] == ["0", "5"]


def test_a_file_that_became_a_folder(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """What a folder was last comes out: no path is a file and a folder."""
    fill(place / "s", {"a": b"a file", "b/c/d": b"deep", "b0": b"sorts after b/"})
    load(thread, place)
    (place / "s" / "a").unlink()
    (place / "s" / "b" / "c" / "d").unlink()
    (place / "s" / "b" / "c").rmdir()
    (place / "s" / "b").rmdir()
    fill(place / "s", {"a/x": b"below", "b": b"a file now"})
    assert load(thread, place).files == 2
    assert out(thread, tmp_path / "out") == tree(place / "s")
    assert thread.check() == []


def test_what_a_tool_deletes_is_kept(thread: eventq.Thread, place: Path, tmp_path: Path) -> None:
    """Files that are gone from the folder, or the folder itself, still come out."""
    load(thread, place)
    whole = tree(place / "s")
    for name in ("draft.txt", "0.bash.log", "Scout.md"):
        (place / "s" / name).unlink()
    assert load(thread, place).files == 0
    os.rename(place / "s", place / "elsewhere")
    assert load(thread, place).files == 0
    assert out(thread, tmp_path / "out") == whole


def test_an_output_that_changes_to_and_fro(
    thread: eventq.Thread, place: Path, tmp_path: Path
) -> None:
    """Each change is a version, the folder comes out as it is, and nothing is said of old ones."""
    for number, text in enumerate((b"unnumbered", b"changed", b"unnumbered", b"changed"), 1):
        (place / "s" / "Scout.md").write_bytes(text)
        load(thread, place)
        assert load(thread, place).files == 0
        notes: list[str] = []
        path = str(tmp_path / f"{number}.jsonl")
        thread.sessions.export_folder("s-1", path, notes.append)
        assert (tree(tmp_path / str(number)), notes) == (tree(place / "s"), [])
    assert thread.read("agent://Scout", context="s-1").data == b"unnumbered"
    assert thread.read("agent://Scout?version=4", context="s-1").data == b"changed"
    later = thread.scope("s-1").outputs.publish("Scout", "published")
    assert later.version == 5
    assert out(thread, tmp_path / "later") == {**tree(place / "s"), "Scout.v5.md": b"published"}


def test_a_file_that_cannot_be_read(
    thread: eventq.Thread, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out with a note that names it; all else comes, and it comes the next time."""
    real = disk.open_regular

    def refuse(path: str, *, follow: bool = True) -> Any:
        if path.endswith(("5.read.log", "x.bin")):
            raise PermissionError(13, "Permission denied", path)
        return real(path, follow=follow)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open_regular", refuse)
        made = load(thread, place)
    assert made.files == len(FILES) - 2
    assert sorted(made.notes) == [
        f"'{place}/s/{name}' was left out: Permission denied"
        for name in ("5.read.log", "Scout/deep/x.bin")
    ]
    assert (load(thread, place).files, thread.check()) == (2, [])


def test_a_file_without_a_stem_has_no_folder(thread: eventq.Thread, tmp_path: Path) -> None:
    """The folder that holds a file named `.jsonl` is not its own."""
    (tmp_path / ".jsonl").write_bytes(b'{"type":"session","id":"e"}\n')
    assert thread.sessions.import_file(str(tmp_path / ".jsonl")).files == 0


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


def test_a_session_in_the_scope_of_the_thread_gets_its_own(path: str, place: Path) -> None:
    """A context that shared the thread's numbers has its own once a folder is imported."""
    (place / "s").rename(place / "later")
    with eventq.open(path) as thread:
        load(thread, place)
        thread.artifacts.put(b"of the thread")
    (place / "later").rename(place / "s")
    with eventq.open(path) as thread:
        # As a context has it that comes with a pack of before there were scopes.
        sqlite(thread.database).change("UPDATE contexts SET scope_id = 0")
        assert thread.scope("s-1").scope == 0
        load(thread, place)
        assert thread.scope("s-1").scope != 0
        assert thread.read("artifact://0", context="s-1").data == b"equal bytes\n"
        assert thread.read("artifact://0").data == b"of the thread"
        assert thread.check() == []

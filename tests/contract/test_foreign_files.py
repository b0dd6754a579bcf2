"""Foreign folders: only regular files are read in them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.system import disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK_FILES = [
    "blobs.pack",
    "blobs.idx",
    "turns.log",
    "turns.idx",
    "turns.meta",
    "heads.tbl",
    "eventq.ndjson",
]


def _link_to_pipe(path: str) -> None:
    os.mkfifo(f"{path}-pipe")
    os.symlink(f"{path}-pipe", path)


INSTEAD: dict[str, Callable[[str], object]] = {
    "a pipe": os.mkfifo,
    "a link to a pipe": _link_to_pipe,
    "a link to /dev/zero": lambda path: os.symlink("/dev/zero", path),
    "a link to /dev/tty": lambda path: os.symlink("/dev/tty", path),
    "a folder": os.mkdir,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}

# What reads for ever or into all memory is ended by the limits of its process, and fails the test.
LIMITED = """
import json, os, resource, sys
import eventq
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
"""


def limited(code: str, *words: str) -> list[Any]:
    """Run a program of bounded memory and time; return the lines of what it printed, parsed."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + code, *words],
        env={**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def instead(kind: str, path: Path | str) -> None:
    """Put something else in the place of a file."""
    if os.path.lexists(path):
        os.unlink(path)
    INSTEAD[kind](os.fspath(path))


IMPORT_PACKS = """
for number, folder in enumerate(sys.argv[2:]):
    with eventq.open(eventq.init(f"{sys.argv[1]}-{number}")) as thread:
        print(json.dumps(list(thread.import_pack(folder).notes)))
"""


@pytest.mark.parametrize("kind", INSTEAD)
def test_in_place_of_a_file_of_a_pack(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """An import ends, says which file is none, and takes what the others prove."""
    thread.contexts.create("main").append("kept")
    thread.blobs.pin(thread.blobs.put(b"more").hash, "me")
    folders = []
    for name in PACK_FILES:
        folders.append(str(tmp_path / f"pack-{name}"))
        thread.export_pack(folders[-1])
        instead(kind, os.path.join(folders[-1], name))
    for name, notes in zip(
        PACK_FILES, limited(IMPORT_PACKS, str(tmp_path / "new"), *folders), strict=True
    ):
        said = "is missing" if name.endswith(".idx") else "is not a file"
        assert any(note.startswith(f"{name}: {said}") for note in notes) or name.endswith(".idx"), (
            name,
            notes,
        )
        assert notes


def test_a_pack_of_links(thread: eventq.Thread, tmp_path: Path) -> None:
    """The files of a pack may be links to regular files: what is read of them is checked."""
    thread.contexts.create("main").append("kept")
    thread.export_pack(tmp_path / "pack")
    (tmp_path / "links").mkdir()
    for name in PACK_FILES:
        os.symlink(tmp_path / "pack" / name, tmp_path / "links" / name)
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        found = other.import_pack(tmp_path / "links")
    assert (found.turns, found.contexts, found.notes) == (1, 1, ())


@pytest.mark.parametrize("kind", [*INSTEAD, "a link to a file"])
def test_in_place_of_an_artifact_of_a_pack(
    kind: str, thread: eventq.Thread, tmp_path: Path
) -> None:
    """An artifact whose file is missing or a link is left out, with a note."""
    thread.artifacts.put(b"mine", "bash")
    thread.export_pack(tmp_path / "pack")
    path = tmp_path / "pack" / "artifacts" / "0.bash.log"
    if kind == "a link to a file":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        instead(kind, path)
    (notes,) = limited(IMPORT_PACKS, str(tmp_path / "new"), str(tmp_path / "pack"))
    assert any("artifact 0 was left out" in note for note in notes)


IMPORT_SESSION = """
with eventq.open(sys.argv[1]) as thread:
    print(json.dumps(list(thread.sessions.import_file(sys.argv[2], blobs=sys.argv[3]).notes)))
"""


@pytest.mark.parametrize("kind", INSTEAD)
def test_in_place_of_a_blob_of_a_session(kind: str, path: str, tmp_path: Path) -> None:
    """A blob of `--blobs` whose file is none is said, and its ref is kept."""
    digits = hashlib.sha256(b"data").hexdigest()
    block = {"type": "image", "data": f"blob:sha256:{digits}", "mimeType": "image/png"}
    entry = {"type": "message", "message": {"role": "user", "content": [block]}}
    (tmp_path / "session.jsonl").write_text(json.dumps(entry, separators=(",", ":")) + "\n")
    (tmp_path / "blobs").mkdir()
    instead(kind, tmp_path / "blobs" / digits)
    (notes,) = limited(
        IMPORT_SESSION, path, str(tmp_path / "session.jsonl"), str(tmp_path / "blobs")
    )
    assert len(notes) == 1
    assert digits in notes[0]
    assert "regular file" in notes[0]


IMPORT_FOLDER = """
with eventq.open(sys.argv[1]) as thread:
    print(json.dumps([*thread.artifacts.import_folder(sys.argv[2]), *thread.outputs.import_folder(sys.argv[2])]))
"""


@pytest.mark.parametrize("kind", INSTEAD)
def test_in_a_folder_of_artifacts(kind: str, path: str, tmp_path: Path) -> None:
    """What is no regular file is no artifact and no output."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0.bash.log").write_bytes(b"kept")
    instead(kind, tmp_path / "files" / "1.bash.log")
    instead(kind, tmp_path / "files" / "0-Scout.md")
    assert limited(IMPORT_FOLDER, path, str(tmp_path / "files")) == [["0.bash.log"]]


def test_changed_between_the_look_and_the_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that becomes a pipe after it was looked at is not waited for."""
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"mine")
    real = os.open

    def swap(name: str, flags: int) -> int:
        instead("a pipe", path)
        return real(name, flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", swap)
        with pytest.raises(OSError, match="not a regular file"):
            disk.open_regular(path)


def test_a_pipe_that_is_named(path: str, tmp_path: Path) -> None:
    """A pipe named by the caller is read: `blob put <(command)`, `artifact put /dev/stdin`."""
    words = [sys.executable, "-m", "eventq"]
    env = {**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"}
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"through a pipe"))
    writer.start()
    done = subprocess.run(
        [*words, "blob", "put", pipe, "--thread", path],
        env=env,
        capture_output=True,
        timeout=60,
        check=True,
    )
    writer.join()
    subprocess.run(
        [*words, "artifact", "put", "/dev/stdin", "--thread", path],
        env=env, input=b"through stdin", capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    with eventq.open(path) as thread:
        assert thread.blobs.get(done.stdout.decode().strip()) == b"through a pipe"
        assert thread.artifacts.open(0).read() == b"through stdin"


def test_a_line_without_end(path: str, tmp_path: Path) -> None:
    """A file of holes in place of `eventq.ndjson` costs no memory."""
    with eventq.open(path) as thread:
        thread.contexts.create("main").append("kept")
        thread.export_pack(tmp_path / "pack")
    os.truncate(tmp_path / "pack" / "eventq.ndjson", 1 << 29)
    (notes,) = limited(IMPORT_PACKS, str(tmp_path / "new"), str(tmp_path / "pack"))
    assert any(note.startswith("eventq.ndjson: ") for note in notes)

"""An error names its cause and what helps against that, not something that is in order.

The kind: a cause that a general sentence hides, so that its reader looks in the wrong place.
Members here: words that are not UTF-8, in each kind of option; what the system refuses of a file
(EISDIR, ENAMETOOLONG, ENOSPC, EROFS; descriptors are in test_few_descriptors.py); handlers that are
too large for the system, at once or later; claims whose worker is gone; and attempts that a stall
does not wait for.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import DiskError, LogicError, StoreError, UsageError, refused
from eventq.running import coding_agents
from eventq.store.sqlite.failures import translate
from tests.doors.support import EVENTQ, environ, ok, raw_run, run
from tests.doors.support import refused as is_refused

if TYPE_CHECKING:
    from tests.conftest import Until

BYTES = "a\udcff"  # as Python has the bytes of a word that is not UTF-8


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("push --content", BYTES), "--content"),
        (("push --content x --type", BYTES), "--type"),
        (("push --content x --source", BYTES), "--source"),
        (("push --content x --key", BYTES), "--key"),
        (("peek --filter", BYTES), "--filter"),
        (("subscribe --handler true --consumer", BYTES), "--consumer"),
        (("subscribe --consumer c --handler", BYTES), "--handler"),
        (("ask", BYTES), "TEXT"),
        (("config runs.emit", BYTES), "VALUE"),
        (("turn append", BYTES), "CONTEXT"),
        (("context create --name", BYTES), "--name"),
        (("blob stat", BYTES), "REF"),
        (("run start --name n --prompt", BYTES), "--prompt"),
        (("sql", f"SELECT '{BYTES}'"), "STATEMENT"),
    ],
)
def test_words_that_are_not_utf8(inbox: str, words: tuple[str, ...], named: str) -> None:
    """Each command names the word, and how to convert it or where such bytes belong."""
    done = run(*words, "--thread", inbox)
    is_refused(2, f"{named} is not UTF-8 (at character ", done)
    assert "iconv" in done.err
    assert "surrogate" not in done.err


def test_paths_and_commands_are_bytes(inbox: str, tmp_path: Path) -> None:
    """Names of files, and the words of a command, are what the system takes them for."""
    path = os.fsencode(tmp_path) + b"/a\xff"
    with open(path, "wb") as file:
        file.write(b"{}")
    name = os.fsdecode(path)
    ok("push --thread", inbox, "--content-file", name)
    ok("blob put", name, "--thread", inbox)
    done = raw_run("capture --thread", inbox, "--", "printf", BYTES)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words",
    [
        "blob put", "artifact put --tool x", "push --content-file",
        "turn append main --file", "output put a --file", "run start --name n --prompt-file",
    ],
)  # fmt: skip
def test_a_folder_in_place_of_a_file(inbox: str, tmp_path: Path, words: str) -> None:
    """Whoever names a folder is told to name a file, and not to look at permissions."""
    ok("context create --name main --thread", inbox)
    done = run(words, str(tmp_path), "--thread", inbox)
    is_refused(1, f"'{tmp_path}' could not be read: Is a directory - give ", done)
    assert "file" in done.err.partition(" - ")[2]
    assert "permissions" not in done.err


@pytest.mark.parametrize(
    "words",
    ["session export s --output", "blob get {} --output", "pack export", "artifact export",
     "blob put", "push --content-file", "session import"],
)  # fmt: skip
def test_names_that_are_too_long(inbox: str, tmp_path: Path, words: str) -> None:
    """A name that the file system does not take is to be shorter."""
    with eventq.open(inbox) as thread:
        ref = thread.blobs.put(b"x").ref
        (tmp_path / "s.jsonl").write_text('{"type":"user"}\n')
        thread.sessions.import_file(str(tmp_path / "s.jsonl"))
    done = run(words.format(ref), str(tmp_path / ("x" * 300)), "--thread", inbox)
    is_refused(1, "File name too long - choose a shorter name", done)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "ulimit -n"), (errno.ENFILE, "ulimit -n"), (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"), (errno.EROFS, "mount it for writing"),
        (errno.ENAMETOOLONG, "shorter"), (errno.EACCES, "permissions"), (errno.ENOENT, "path"),
    ],
)  # fmt: skip
def test_what_the_system_refuses(number: int, says: str) -> None:
    """Each cause has its own remedy."""
    found = refused(OSError(number, os.strerror(number)), "it")
    assert isinstance(found, StoreError)
    assert says in found.fix
    assert isinstance(found, DiskError) is (number not in (errno.EMFILE, errno.ENFILE))


@pytest.mark.parametrize(
    "error", [apsw.ReadOnlyError(), apsw.CantOpenError(), apsw.PermissionsError()]
)
def test_a_read_only_file_system(
    inbox: str, monkeypatch: pytest.MonkeyPatch, error: apsw.Error
) -> None:
    """What SQLite may not write there is not a matter of permissions; elsewhere it is."""
    path = f"{inbox}/events.db"
    assert "permissions" in translate(error, path).fix
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert translate(error, path).fix == refused(OSError(errno.EROFS, ""), "").fix
    claude = coding_agents.AGENTS["claude"]
    (change, *_) = coding_agents.install(claude, "user", inbox, ["Stop"])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LogicError, match="mount it for writing"):
        coding_agents.check(change)


@pytest.mark.parametrize("each", [True, False])
def test_a_handler_that_no_shell_takes(inbox: str, *, each: bool) -> None:
    """A command beyond what the system takes as one argument is refused when it is given."""
    most = (128 << 10) - 1
    with eventq.open(inbox) as thread:
        with pytest.raises(UsageError, match="put the commands into a file"):
            thread.subscribe("w", "#" * (most + 1), each=each)
        with pytest.raises(UsageError, match="bytes"):
            thread.subscribe("w", "ä" * (most // 2 + 1), each=each)
        thread.subscribe("w", "true #".ljust(most, "x"), each=each)


def test_a_handler_of_the_largest_size_runs(inbox: str, until: Until) -> None:
    """What is accepted can be started."""
    command = "echo done #"
    with eventq.open(inbox) as thread:
        thread.subscribe("w", command.ljust((128 << 10) - 1, "x"), each=True)
        thread.push("self", "note", "x")
    ok("dispatch --thread", inbox)
    log = Path(inbox, "logs", "handlers", "w.log")
    until(lambda: log.exists() and log.read_text() == "done\n", "the handler has run")


def test_a_handler_that_does_not_start(inbox: str, until: Until) -> None:
    """Where the environment takes the room, the log of the handler says so."""
    with eventq.open(inbox) as thread:
        thread.subscribe("w", "true", each=True, max_attempts=1)
        thread.push("self", "note", "x")
    code = (
        "import os, sys\n"
        "from eventq.cli import run\n"
        "os.environ['HUGE'] = 'x' * (1 << 20)\n"  # longer than a variable may be
        "sys.exit(run(['dispatch', '--thread', sys.argv[1]]))\n"
    )
    subprocess.run([sys.executable, "-c", code, inbox], check=True, timeout=120)
    log = Path(inbox, "logs", "handlers", "w.log")
    until(lambda: log.exists() and "cannot be started" in log.read_text(), "the log says why")
    assert "the environment" in log.read_text()


def test_a_claim_whose_worker_is_gone(inbox: str, until: Until) -> None:
    """Whoever looks is told that the next worker takes it, and not to wait for hours."""
    with eventq.open(inbox) as thread:
        thread.subscribe("w", "exec sleep 600", each=True, lease=7200)
        thread.push("self", "note", "x")
        worker = subprocess.Popen(
            [EVENTQ, "work", "--thread", inbox], env=environ(), stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: [*thread.claims()], "the event is claimed")
            assert "ends in 1" in ok("claims ls --thread", inbox)
            assert [one.lost for one in thread.claims()] == [False]
        finally:
            worker.kill()
            worker.wait()
        assert "and its worker is gone: the next one takes it" in ok("claims ls --thread", inbox)
        assert [json.loads(ok("claims ls --json --thread", inbox))["lost"]] == [True]
        until(lambda: "claim" not in waits_for(inbox), "the watchdog of the worker has ended")
        assert thread.claim("w") == []  # others' claims are not for programs


def waits_for(thread: str) -> str:
    """Return what `info` says that the consumer waits for."""
    lines = ok("info --thread", thread).splitlines()
    return next(line for line in lines if "waits for:" in line)


def test_attempts_of_a_stall(inbox: str, until: Until) -> None:
    """A consumer that stalls after five runs is not said to have sixteen left."""
    with eventq.open(inbox) as thread:
        thread.subscribe("w", "true", backoff=(0, 0))
        thread.push("self", "note", "x")
        ok("dispatch --thread", inbox)
        until(lambda: thread.status().consumers[0].stalled, "it stalls")
    assert "    attempts: 5 of at most 21\n" in ok("info --thread", inbox)

"""Commands on a server print the same as on a directory, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.cli.app import run_click
from eventq.cli.execute import execute
from eventq.cli.groups import every, find
from eventq.cli.kinds import Opened
from eventq.cli.table import parse
from eventq.wire.frames import BlobPut, GetBlob, PutBlob, Type, Welcome, encode_reply
from tests.doors.support import EVENTQ, environ, refused, run
from tests.wire.support import DEADLINE, Peer, Process, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.cli.table import Command, Option
    from tests.conftest import Until

COMMANDS = every()
BIG = b"".join(n.to_bytes(4, "big") * 64 for n in range(40 << 10)) + b"\xff"  # 10 MiB and a byte
KINDS = ["directory", "eventq", "unix"]
NOWHERE = "0" * 64


def ref(data: bytes) -> str:
    """Return the ref of bytes."""
    return f"blob:blake3:{blake3(data).hexdigest()}"


@dataclass
class Door:
    """A way to a thread of its own; `folder` is where its commands are run."""

    kind: str
    folder: str
    address: str
    served: Served | None = None
    said: list[tuple[int, bytes, bytes]] = field(default_factory=list)


def here(folder: str, *words: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run a command in this process, in a folder: a process of its own takes ten times as long."""
    before, kept = os.getcwd(), [os.dup(fd) for fd in range(3)]
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        try:
            os.chdir(folder)
            for fd, file in enumerate((stdin, stdout, stderr)):
                os.dup2(file.fileno(), fd)
            with warnings.catch_warnings():
                # A process that ends closes its files without further ado.
                warnings.simplefilter("ignore", ResourceWarning)
                found = find(words)
                raw = parse(*found) if found else None
                code = execute(found[0], raw) if found and raw is not None else run_click([*words])
        finally:
            for fd in range(3):
                os.dup2(kept[fd], fd)
                os.close(kept[fd])
            os.chdir(before)
        stdout.seek(0)
        stderr.seek(0)
        return code, stdout.read(), stderr.read()


# What is done, in this order: words, and what stdin gives. Each is done as it stands, and again
# with --json.
STEPS: list[tuple[str, bytes]] = [
    # what there is
    ("context ls", b""),
    ("context ls --graph", b""),
    ("context show main", b""),
    ("context show 2", b""),
    ("context log retry", b""),
    ("turn last main", b""),
    ("turn last main --limit 1", b""),
    ("turn last main --limit 1 --no-payload --as-of 0", b""),
    ("turn before main --turn 3", b""),
    ("turn before main --turn 3 --limit 1", b""),
    ("turn range main", b""),
    ("turn range main --from 1 --limit 1", b""),
    ("turn replay main", b""),
    ("turn replay retry --to 2 --no-payload", b""),
    ("turn show 1", b""),
    ("turn show 1 --no-payload", b""),
    ("turn diff main --with retry", b""),
    ("turn diff 1 --with 2 --no-payload", b""),
    ("turn opened", b""),
    ("blob ls", b""),
    ("blob verify", b""),
    (f"blob verify {ref(b'one')}", b""),
    (f"blob stat {ref(b'one')}", b""),
    (f"blob get {ref(b'one')}", b""),
    (f"blob refs {ref(b'one')}", b""),
    # contexts
    ("context create", b""),
    ("context create --name new --base 2", b""),
    ("context create --name main", b""),
    ("context create --name 7", b""),
    ("context create --base 999", b""),
    ("context create --base -1", b""),
    ("context create --name=", b""),
    ("context fork main", b""),
    ("context fork main --at 1 --name early", b""),
    ("context fork main --at 4", b""),
    ("context fork nobody", b""),
    ("context move early --to 4 --expected-head 1", b""),
    ("context move early --to 3 --expected-head 77", b""),
    ("context move early --to 1", b""),
    ("context move early --to 999", b""),
    ("context move nobody --to 1", b""),
    ("context show nobody", b""),
    ("context show 99", b""),
    ("context show 99999999999999999999", b""),
    ("context log nobody", b""),
    ("context rm early", b""),
    ("context rm 4 --json", b""),
    ("context rm 99", b""),
    ("context log 3", b""),
    ("context ls --graph", b""),
    # turns
    ("turn append main --content four", b""),
    (
        "turn append main --content five --type note --type-version 2 --encoding 3 --flags 4 --key k",
        b"",
    ),
    ("turn append main --content other --key k", b""),
    ("turn append main", b"\xff\0 of stdin"),
    ("turn append main --file small", b""),
    ("turn append main --file big", b""),
    ("turn append main --file missing", b""),
    ("turn append main --file .", b""),
    ("turn append main --canonical eventq-json-1", b'{"b": 1, "a": [1.0]}'),
    ("turn append main --canonical eventq-json-1", b"no JSON"),
    ("turn append main --canonical other --content {}", b""),
    (f"turn append main --content x --expect-hash {ref(b'x')}", b""),
    (f"turn append main --content x --expect-hash {NOWHERE}", b""),
    ("turn append main --content x --expect-hash nonsense", b""),
    (f"turn append main --content x --refs {ref(b'one')},{ref(b'two')}", b""),
    (f"turn append main --content x --refs blob:blake3:{NOWHERE}", b""),
    ("turn append main --content x --refs nonsense", b""),
    ("turn append main --content x --expected-head 1", b""),
    ("turn append main --content x --parent 2", b""),
    ("turn append main --content x --parent 999", b""),
    ("turn append main --content x --emit --source me", b""),
    ("turn append main --content x --source me", b""),
    ("turn append main --content x --type=", b""),
    ("turn append main --content x --flags 4294967296", b""),
    ("turn append nobody --content x", b""),
    ("turn append retry --stream", b"streamed \xff"),
    ("turn append retry --stream --type note --key s --emit", BIG[: 3 << 20]),
    ("turn append retry --stream --expected-head 1", b"kept"),
    ("turn append retry --stream --expected-head 1 --type note", b"kept too"),
    ("turn append nobody --stream", b"x"),
    ("turn opened", b""),
    ("turn seal 6 --expected-head 1", b""),
    ("turn seal 6 --flags 2 --emit", b""),
    ("turn seal 7 --json", b""),
    ("turn seal 99", b""),
    ("turn discard 1", b""),
    ("turn discard 8 --json", b""),
    ("turn discard 99", b""),
    ("turn patch 2 --content second", b""),
    ("turn patch 2", b"\xfe"),
    ("turn patch 2 --file big", b""),
    ("turn patch 1 --tombstone", b""),
    ("turn patch 999 --content x", b""),
    ("turn last main --limit 20", b""),
    ("turn last main --limit 0", b""),
    ("turn last nobody", b""),
    ("turn before main --turn 4", b""),
    ("turn before main --turn 999", b""),
    ("turn range main --from 999", b""),
    ("turn range main --from -1", b""),
    ("turn range nobody", b""),
    ("turn replay main", b""),
    ("turn replay main --to 4", b""),
    ("turn replay main --as-of 1", b""),
    ("turn replay nobody", b""),
    ("turn show 2", b""),
    ("turn show 1", b""),
    ("turn show 999", b""),
    ("turn show 0", b""),
    ("turn diff main --with retry", b""),
    ("turn diff main --with nobody", b""),
    # blobs
    ("blob put", b""),
    ("blob put -", b"\xff of stdin"),
    ("blob put small", b""),
    ("blob put big", b""),
    ("blob put missing", b""),
    (f"blob put small --refs {ref(b'one')}", b""),
    (f"blob put --refs {ref(b'one')}", b"parent"),
    (f"blob put --refs blob:blake3:{NOWHERE}", b"orphan"),
    ("blob put --refs nonsense", b"x"),
    (f"blob put --expect-hash {ref(b'expected')}", b"expected"),
    (f"blob put --expect-hash {NOWHERE}", b"x"),
    (f"blob put big --expect-hash {NOWHERE}", b""),
    ("blob put --expect-hash nonsense", b"x"),
    (f"blob get {ref(BIG)}", b""),
    (f"blob get {ref(BIG)} --output got", b""),
    (f"blob get {ref(BIG)} --output .", b""),
    (f"blob get {ref(BIG)} --output nowhere/got", b""),
    (f"blob get {ref(BIG)} --output -", b""),
    (f"blob get {NOWHERE} --output absent", b""),
    (f"blob get {NOWHERE}", b""),
    ("blob get nonsense", b""),
    (f"blob stat {ref(BIG)}", b""),
    (f"blob stat {NOWHERE}", b""),
    ("blob stat nonsense", b""),
    (f"blob refs {ref(b'parent')}", b""),
    (f"blob refs {NOWHERE}", b""),
    ("blob refs nonsense", b""),
    (f"blob pin {ref(b'one')} --owner me", b""),
    (f"blob pin {ref(b'one')} --owner=", b""),
    (f"blob pin {ref(b'one')}", b""),
    (f"blob pin {NOWHERE} --owner me", b""),
    (f"blob refs {ref(b'one')}", b""),
    (f"blob unpin {ref(b'one')} --owner me", b""),
    (f"blob unpin {NOWHERE} --owner me", b""),
    ("blob unpin nonsense --owner me", b""),
    ("blob verify", b""),
    (f"blob verify {NOWHERE}", b""),
    ("blob verify nonsense", b""),
    ("blob ls", b""),
]
LINES = [(f"{words}{more}", given) for words, given in STEPS for more in ("", " --json")]


def furnish(path: str) -> None:
    """Create `main` (1) of three turns, forked at the second as `retry` (2), with one more."""
    eventq.init(path)
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for text in ("one", "two", "three"):
            main.append(text)
        main.fork(at=2, name="retry").append("other")
        main.open_turn().append_delta(b"begun")


@pytest.fixture(scope="module")
def doors() -> Iterator[dict[str, Door]]:
    """Yield three threads that are alike: a directory, one that is served over TCP, and one over a UNIX socket.

    All that is done to them is done at the same moment of their clock.
    """
    folder = tempfile.mkdtemp(prefix="eventq-doors-")  # short, as the path of a socket must be
    made: dict[str, Door] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_NOTIFIER", "none")
        patch.setenv("EVENTQ_SYNCHRONOUS", "normal")
        patch.delenv("EVENTQ_TOKEN", raising=False)
        patch.setattr("eventq.system.clock.now", lambda: 1773829800.1234)
        try:
            for kind in KINDS:
                made[kind] = _door(kind, os.path.join(folder, kind))
            yield made
        finally:
            for door in made.values():
                if door.served is not None:
                    door.served.stop()
            shutil.rmtree(folder)


def _door(kind: str, folder: str) -> Door:
    os.mkdir(folder)
    path = os.path.join(folder, "thread")
    furnish(path)
    for name, data in (("small", b"small\n"), ("big", BIG)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    if kind == "directory":
        return Door(kind, folder, path)
    served = Served(path, "127.0.0.1:0" if kind == "eventq" else f"unix:{folder}/socket")
    return Door(kind, folder, served.url, served)


@pytest.fixture(scope="module")
def said(doors: dict[str, Door]) -> dict[str, Door]:
    """Return the doors after all steps were done through each of them, with what was said."""
    for door in doors.values():
        for words, given in LINES:
            code, out, err = here(
                door.folder, *words.split(), "--thread", door.address, given=given
            )
            address = door.address.encode()
            door.said.append(
                (code, out.replace(address, b"THREAD"), err.replace(address, b"THREAD"))
            )
    return doors


# --- the same through each ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_command_says_what_it_says_of_a_directory(said: dict[str, Door], kind: str) -> None:
    """Status, stdout and stderr are the same for a server and a directory."""
    home, away = said["directory"].said, said[kind].said
    differ = [
        (words, mine, theirs)
        for (words, _), mine, theirs in zip(LINES, home, away, strict=True)
        if mine != theirs
    ]
    assert differ == []


def test_the_steps_are_what_they_are_taken_for(said: dict[str, Door]) -> None:
    """Every command is covered; errors are one line, or one object with --json."""
    wanted = {name for name in COMMANDS if name.split()[0] in ("context", "turn", "blob")}
    wanted -= {"turn erase", "blob erase"}  # that is for whoever has the files
    assert {" ".join(words.split()[:2]) for words, _ in STEPS} == wanted
    done = dict.fromkeys(wanted, 0)
    for (words, _), (code, out, err) in zip(LINES, said["directory"].said, strict=True):
        if code == 0:
            done[" ".join(words.split()[:2])] += 1
            assert err == b"", words
            continue
        assert code in (1, 2), words
        assert out == b"", words
        (line,) = err.splitlines()
        assert (
            set(json.loads(line)) == {"error", "suggestion"}
            if "--json" in words
            else line.startswith(b"Error: ")
        )
    assert {name: count for name, count in done.items() if count < 2} == {}
    assert sum(code == 1 for code, _, _ in said["directory"].said) > 40
    assert sum(code == 2 for code, _, _ in said["directory"].said) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_through_a_server_is_what_is_stored_at_home(
    said: dict[str, Door], kind: str
) -> None:
    """After all steps both threads are equal and check out."""
    door = said[kind]
    with open(os.path.join(door.folder, "got"), "rb") as file:
        assert file.read() == BIG
    assert sorted(os.listdir(door.folder)) == sorted(
        ["big", "got", "small", "thread", *(["socket"] if kind == "unix" else [])]
    )
    with (
        eventq.open(os.path.join(door.folder, "thread")) as thread,
        eventq.open(said["directory"].address) as home,
    ):
        assert thread.check() == []
        assert list(thread.contexts) == list(home.contexts)
        assert list(thread.blobs) == list(home.blobs)
        assert thread.last(100) == home.last(100)


# --- as a process ---------------------------------------------------------------------------------


def test_a_reader_that_stops_reading_ends_a_command_quietly(said: dict[str, Door]) -> None:
    """`| head` is no error, through a server too; a closed stdout is one."""
    for kind in KINDS:
        for words in (f"blob get {ref(BIG)}", "turn replay retry --json"):
            script = f"{EVENTQ} {words} --thread {said[kind].address} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
            done = subprocess.run(
                ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
            )
            assert (done.stdout, done.stderr) == ("0\n", "")
        closed = ["sh", "-c", f"{EVENTQ} context ls --thread {said[kind].address} >&-"]
        shut = subprocess.run(closed, capture_output=True, text=True, env=environ(), timeout=300)
        assert shut.returncode == 1
        assert shut.stderr.startswith("Error: stdout could not be written: Bad file descriptor - ")


def test_an_interrupted_stream_is_kept_at_the_server(said: dict[str, Door], until: Until) -> None:
    """On ^C the open turn stays, and the command on stderr works with the address."""
    told = []
    for kind in KINDS:
        door = said[kind]
        process = subprocess.Popen(
            [EVENTQ, "turn", "append", "main", "--stream", "--thread", door.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ(),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(b"ab\xff")
        process.stdin.flush()
        with eventq.open(os.path.join(door.folder, "thread"), read_only=True) as thread:
            contexts = thread.contexts
            until(
                lambda contexts=contexts: list(contexts.open_turns())[-1].size == 3,  # type: ignore[misc]
                "three bytes are stored",
            )
            open_id = list(thread.contexts.open_turns())[-1].open_id
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (130, b"")
        assert (
            f"run 'eventq turn seal {open_id} --thread {door.address}', or 'turn discard'"
            in err.decode()
        )
        told.append(err.decode().replace(door.address, "THREAD"))
        assert here(door.folder, "turn", "discard", str(open_id), "--thread", door.address)[0] == 0
    assert told == [told[0]] * 3


def test_an_interrupt_ends_a_command_that_waits_for_a_reply() -> None:
    """A server that does not answer can be left with ^C: status 130, and not a word."""
    folder = tempfile.mkdtemp(prefix="eventq-doors-")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        listener.settimeout(DEADLINE)
        process = subprocess.Popen(
            [EVENTQ, "context", "ls", "--thread", f"unix:{folder}/socket"], stdout=-1, stderr=-1,
            env=environ(),
        )  # fmt: skip
        try:
            peer, _ = listener.accept()
            with peer:
                assert peer.recv(1 << 16)
                peer.sendall(encode_reply(Welcome(1), 1, Type.HELLO))
                assert peer.recv(1 << 16)
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=DEADLINE) == (b"", b"")
                assert process.returncode == 130
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder)


def test_a_server_that_was_killed_is_found_dead_and_its_successor_works() -> None:
    """After a kill the error says so; acknowledged data is there on the next server."""
    folder = tempfile.mkdtemp(prefix="eventq-doors-")
    try:
        path, address = os.path.join(folder, "thread"), f"unix:{folder}/socket"
        furnish(path)
        words = ["turn", "append", "main", "--content", "four", "--thread", address]
        with Process(path, listen=address) as first:
            made = run(*words)
            assert (made.code, made.err) == (0, "")
            first.process.kill()
            first.process.wait(DEADLINE)
            refused(1, f"no server answers at {address} (Connection refused)", run(*words))
        with Process(path, listen=address) as second:
            shown = run("turn last main --limit 1 --thread", address)
            assert shown.out.splitlines()[:2] == [made.out.strip(), "  four"]
            assert second.end() == (0, "", "")
        refused(1, f"no server answers at {address} (No such file or directory)", run(*words))
    finally:
        shutil.rmtree(folder)


# --- addresses and tokens -------------------------------------------------------------------------


def test_where_nobody_listens_a_command_says_so(doors: dict[str, Door]) -> None:
    """An address without a server is status 1, an invalid one status 2."""
    folder = doors["unix"].folder
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        for address in (
            f"eventq://127.0.0.1:{port}",
            f"unix:{folder}/nobody",
            f"unix:{folder}/small",
        ):
            for words in ("context ls", "turn append main --content x", "blob put small"):
                code, out, err = here(folder, *words.split(), "--thread", address)
                assert (code, out) == (1, b"")
                assert err.startswith(f"Error: no server answers at {address} (".encode())
                assert err.endswith(b" - run 'eventq serve' there, or check the address\n")
    for address in (
        "eventq://",
        "eventq://host",
        "eventq://host:0",
        "eventq://host:65536",
        "eventq://a/b:1",
        "unix:",
    ):
        code, out, err = here(folder, "context", "ls", "--thread", address)
        assert (code, out) == (2, b"")
        assert (
            err
            == f"Error: '{address}' is not the address of a server - give eventq://HOST:PORT or unix:PATH\n".encode()
        )


def test_a_token_is_that_of_the_environment(
    doors: dict[str, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the right EVENTQ_TOKEN commands work; otherwise the error says why."""
    home = doors["directory"]
    served = Served(home.address, token="s3cret \u20ac")
    try:
        words = ["context", "ls", "--thread"]
        monkeypatch.setenv("EVENTQ_TOKEN", "s3cret \u20ac")
        assert here(home.folder, *words, f"eventq://{served.address}") == here(
            home.folder, *words, home.address
        )
        for wrong in ("s3cret", "", None):
            monkeypatch.setenv("EVENTQ_TOKEN", wrong) if wrong is not None else monkeypatch.delenv(
                "EVENTQ_TOKEN"
            )
            for told in (words, ["context", "create", "--name", "stranger", "--thread"]):
                code, out, err = here(home.folder, *told, f"eventq://{served.address}")
                assert (code, out) == (1, b"")
                assert err.startswith(b"Error: the token is wrong, or missing - ")
                assert len(err.splitlines()) == 1
                assert b"s3cret" not in err
        assert b"stranger" not in here(home.folder, *words, home.address)[1]
    finally:
        served.stop()


def test_a_token_that_is_none_isrefused(doors: dict[str, Door]) -> None:
    """An empty or overlong token is status 2, and is never printed."""
    home = doors["directory"].address
    refused(
        2,
        "--token is empty - give a value, or leave --token out",
        run("serve --thread", home, "--token", ""),
    )
    long = "t" * 1025
    for words, given, name in (
        (["--token", long], {}, "--token"),
        ([], {"EVENTQ_TOKEN": long}, "EVENTQ_TOKEN"),
    ):
        done = run("serve --thread", home, "--listen", "nowhere", *words, **given)
        refused(2, f"{name} has 1025 characters - give a token of at most 1024", done)
        assert "ttt" not in done.err
    with Process(home, "--token", long[1:]) as served:
        with eventq.connect(f"eventq://{served.address}", token=long[1:]) as connection:
            assert connection.contexts.get("main").id == 1
        assert served.end() == (0, "", "")


@pytest.mark.parametrize("words", [[], ["--token", "s3cret"]], ids=["environment", "option"])
def test_a_handler_does_not_get_the_token(words: list[str], tmp_path: Path, until: Until) -> None:
    """Handlers that a client's event starts have no EVENTQ_TOKEN."""
    path, told = str(tmp_path / "thread"), tmp_path / "told"
    furnish(path)
    with eventq.open(path) as thread:
        thread.subscribe("w", f'echo "${{EVENTQ_TOKEN-none}} $GIVEN" > "{told}"', max_attempts=1)
    given = {"EVENTQ_NOTIFIER": "builtin", "EVENTQ_TOKEN": "s3cret", "GIVEN": "all else"}
    with Process(path, *words, **given) as served:
        with eventq.connect(f"eventq://{served.address}", token="s3cret") as connection:
            connection.contexts.get("main").append("x", source="self")
        with eventq.open(path) as thread:
            until(lambda: thread.info().subscriptions[0].stalled, "the handler was run, once")
        assert served.end() == (0, "", "")
    assert told.read_text() == "none all else\n"


# --- the end of a server --------------------------------------------------------------------------


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_server_at_once(
    first: int, second: int, tmp_path: Path, until: Until
) -> None:
    """While it waits for a peer that does not read; it dies of the signal, without a word."""
    path = str(tmp_path / "thread")
    furnish(path)
    with Process(path) as served, Peer(served.address, SO_RCVBUF=4096) as peer:
        assert isinstance(peer.ask(PutBlob(blake3(BIG).digest(), BIG)), BlobPut)
        peer.send(*[GetBlob(blake3(BIG).digest())] * 5)
        assert peer.socket.recv(1)
        served.process.send_signal(first)
        until(lambda: not _answers(served.address), "it takes no more")
        assert served.process.poll() is None
        assert served.end(second) == (-second, "", "")


def _answers(address: str) -> bool:
    try:
        Peer(address).close()
    except ConnectionRefusedError:
        return False
    return True


# --- commands that need a directory ---------------------------------------------------------------


def _at_home() -> list[str]:
    """Return the names of the commands that take the directory of a thread and nothing else."""
    return sorted(
        name
        for name, command in COMMANDS.items()
        if any(option.name == "thread" and not _is_remote(option) for option in command.options)
    )


def _is_remote(option: Option) -> bool:
    return isinstance(option.kind, Opened) and option.kind.remote


# What these need besides what their tables require; their files are there, so that only the address
# is at fault.
MORE = {
    "push": "--source self --type t --content x",
    "peek": "--last 1",
    "prune": "--keep-last 1",
    "output put": "--content x",
    "run compact": "--summary x",
    "run step": "--role r --content x",
}


def _words(name: str, command: Command) -> list[str]:
    words = name.split() + [
        "small" if part.name == "FILE" else "1" for part in command.arguments if part.name != "CMD"
    ]
    given = MORE.get(name, "").split()
    for option in command.options:
        if option.required and option.name != "thread" and f"--{option.name}" not in given:
            given += [f"--{option.name}", "1"]
    return words + given


@pytest.mark.parametrize("name", _at_home())
def test_what_needs_a_directory_refuses_an_address(doors: dict[str, Door], name: str) -> None:
    """One sentence says what a server has, status 2, and no file is made; a hook stays silent."""
    before = sorted(os.listdir(doors["unix"].folder))
    for kind in KINDS[1:]:
        words = [*_words(name, COMMANDS[name]), "--thread", doors[kind].address]
        words += ["--", "true"] if name == "capture" else []
        code, out, err = here(doors["unix"].folder, *words, given=b"{}")
        if name == "hook":
            assert (code, out, err) == (0, b"", b"")
            continue
        assert (code, out) == (2, b""), err
        address = doors[kind].address
        assert err == (
            f"Error: '{address}' is a server, which this command cannot use - give the directory of a thread\n".encode()
        )
    assert sorted(os.listdir(doors["unix"].folder)) == before


@pytest.mark.parametrize("address", ["unix:x", "eventq://h:1", "unix:", "eventq://"])
def test_no_thread_is_made_under_the_name_of_a_server(address: str, tmp_path: Path) -> None:
    """No command could name it; with a folder before it there is no doubt."""
    code, out, err = here(str(tmp_path), "init", address)
    assert (code, out) == (2, b"")
    assert err.decode() == (
        f"Error: '{address}' is a server, which this command cannot use - give the directory of a thread\n"
    )
    assert os.listdir(tmp_path) == []
    assert here(str(tmp_path), "init", "./unix:x")[0] == 0
    assert here(str(tmp_path), "info", "--thread", "./unix:x")[0] == 0


def test_which_keys_a_rule_is_for_is_in_the_help() -> None:
    """The option concerns one message of the protocol, and the help names it, and the rules."""
    shown = " ".join(run("serve --help").out.split())
    assert "the idempotency key of an APPEND_TURN" in shown
    assert "The keys of eventq.connect and of commands always count" in shown
    assert all(f" {rule}: " in shown for rule in ("matching", "strict", "ignore"))
    assert "(default: matching)" in shown


def test_what_a_server_can_do_is_in_the_help() -> None:
    """The help of each command that accepts an address says so, and no other does."""
    wanted = {name for name in COMMANDS if name.split()[0] in ("context", "turn", "blob")}
    wanted -= {"turn erase", "blob erase"}  # that is for whoever has the files
    assert {
        name for name, command in COMMANDS.items() if any(map(_is_remote, command.options))
    } == wanted
    told = run("serve --help")
    assert (told.code, told.err) == (0, "")
    _, example = told.out.split("Example:\n")
    assert [line.strip() for line in example.splitlines()] == list(COMMANDS["serve"].examples)
    assert "eventq://HOST:PORT" in run("turn append --help").out

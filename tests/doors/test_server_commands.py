"""`eventq serve` at the command line: tokens, signals, help; and commands that refuse its address."""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.cli.app import run_click
from eventq.cli.execute import execute
from eventq.cli.groups import every, find
from eventq.cli.table import parse
from eventq.wire.frames import (
    BlobPut,
    CreateContext,
    GetBlob,
    GetHead,
    Head,
    Hello,
    PutBlob,
    Welcome,
)
from tests.doors.support import refused, run
from tests.servers import fresh
from tests.wire.support import Peer, Process, append

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.cli.table import Command
    from tests.conftest import Until

COMMANDS = every()
BIG = b"".join(n.to_bytes(4, "big") * 64 for n in range(40 << 10)) + b"\xff"  # 10 MiB and a byte


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


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Return the path of a thread with a context and a turn."""
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as thread:
        thread.contexts.create("main").append("one")
    return path


def test_a_token_is_that_of_the_environment(home: str) -> None:
    """With the right token a peer is served; otherwise the error says why, and does not show it."""
    with Process(home, EVENTQ_TOKEN="s3cret \u20ac") as served:
        with served.peer() as peer:
            assert isinstance(peer.ask(Hello(1, "s3cret \u20ac")), Welcome)
            assert peer.ask(GetHead(1)) == Head(1, 1, 0)
        for wrong in ("s3cret", ""):
            with served.peer() as peer:
                text = getattr(peer.ask(Hello(1, wrong)), "text", "")
                assert text.startswith("the token is wrong, or missing - ")
                assert "s3cret" not in text
        assert served.end() == (0, "", "")


def test_a_thread_at_a_url_is_served(postgres: str, tmp_path: Path) -> None:
    """By its URL, with a password in it, and by a directory that names it; its journal says so."""
    url = fresh(postgres)
    with_password = url.replace("postgres@", "postgres:sesame@")
    (tmp_path / "thread.url").write_text(with_password)
    for number, place in enumerate((with_password, str(tmp_path)), 1):
        with Process(place) as served:
            with served.peer() as peer:
                assert peer.ask(CreateContext(0)) == Head(number, 0, 0)
                assert getattr(peer.ask(append(number, b"x")), "turn_id", 0) == number
            assert served.end() == (0, "", "")
    assert "serve: stopped" in (tmp_path / "logs" / "thread.log").read_text()
    with eventq.open(url) as thread:
        assert (len(list(thread.contexts)), thread.check()) == (2, [])


def test_a_token_that_is_none_is_refused(home: str) -> None:
    """An empty or overlong token is status 2, and is never printed."""
    why = "--token is empty - give a value, or leave --token out"
    refused(2, why, run("serve --thread", home, "--token", ""))
    long = "t" * 1025
    for words, given, name in (
        (["--token", long], {}, "--token"),
        ([], {"EVENTQ_TOKEN": long}, "EVENTQ_TOKEN"),
    ):
        done = run("serve --thread", home, "--listen", "nowhere", *words, **given)
        refused(2, f"{name} has 1025 characters - give a token of at most 1024", done)
        assert "ttt" not in done.err
    with Process(home, "--token", long[1:]) as served:
        with served.peer() as peer:
            assert isinstance(peer.ask(Hello(1, long[1:])), Welcome)
        assert served.end() == (0, "", "")


@pytest.mark.parametrize("words", [[], ["--token", "s3cret"]], ids=["environment", "option"])
def test_a_handler_does_not_get_the_token(
    words: list[str], home: str, tmp_path: Path, until: Until
) -> None:
    """Handlers that are started beside a server have no EVENTQ_TOKEN."""
    told = tmp_path / "told"
    with eventq.open(home) as thread:
        thread.subscribe("w", f'echo "${{EVENTQ_TOKEN-none}} $GIVEN" > "{told}"', max_attempts=1)
    given = {"EVENTQ_NOTIFIER": "builtin", "EVENTQ_TOKEN": "s3cret", "GIVEN": "all else"}
    with Process(home, *words, **given) as served:
        with served.peer() as peer:
            assert isinstance(peer.ask(Hello(1, "s3cret")), Welcome)
            peer.ask(append(1, b"x"))
        assert run("push --source self --type t --content x --thread", home, **given).code == 0
        until(told.exists, "the handler was run")
        assert served.end() == (0, "", "")
    assert told.read_text() == "none all else\n"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_server_at_once(
    first: int, second: int, home: str, until: Until
) -> None:
    """While it waits for a peer that does not read; it dies of the signal, without a word."""
    with Process(home) as served, Peer(served.address, SO_RCVBUF=4096) as peer:
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


# --- the address of a server ----------------------------------------------------------------------

BESIDE = (
    "run this on the machine of the thread: 'eventq serve' is for clients of the binary protocol,"
    " and PostgreSQL shares a thread among machines"
)
# What these need besides what their tables require; their files are there, so that only the address
# is at fault.
MORE = {
    "push": "--source self --type t",
    "peek": "--last 1",
    "prune": "--keep-last 1",
    "output put": "--content x",
    "run compact": "--summary x",
    "run step": "--role r --content x",
}


def _words(name: str, command: Command) -> list[str]:
    words = name.split() + [
        "small" if part.name == "FILE" else "1" for part in command.own if part.name != "CMD"
    ]
    given = MORE.get(name, "").split()
    for option in command.options:
        if option.required and option.name != "thread" and f"--{option.name}" not in given:
            given += [f"--{option.name}", "1"]
    return words + given


def test_every_command_refuses_the_address_of_a_server(tmp_path: Path) -> None:
    """One sentence says what to do, status 2, and no file is made; a hook stays silent."""
    (tmp_path / "small").write_bytes(b"small")
    for name, command in COMMANDS.items():
        if not any(option.name == "thread" for option in command.options):
            continue
        words = [*_words(name, command), "--thread", "eventq://127.0.0.1:9009"]
        words += ["--", "true"] if name == "capture" else []
        found = here(str(tmp_path), *words, given=b"{}")
        error = (
            f"Error: 'eventq://127.0.0.1:9009' is a server, which commands do not use - {BESIDE}\n"
        )
        assert found == ((0, b"", b"") if name == "hook" else (2, b"", error.encode())), name
    assert os.listdir(tmp_path) == ["small"]


def test_the_address_of_a_server_in_the_environment_is_refused_too(tmp_path: Path) -> None:
    """In the same words."""
    done = run("info", EVENTQ_THREAD="unix:/run/eventq.sock")
    refused(2, f"'unix:/run/eventq.sock' is a server, which commands do not use - {BESIDE}", done)


@pytest.mark.parametrize("address", ["unix:x", "eventq://h:1", "unix:", "eventq://"])
def test_no_thread_is_made_under_the_name_of_a_server(address: str, tmp_path: Path) -> None:
    """No command could name it; with a folder before it there is no doubt."""
    code, out, err = here(str(tmp_path), "init", address)
    assert (code, out) == (2, b"")
    assert err.startswith(f"Error: '{address}' is a server, which commands do not use".encode())
    assert os.listdir(tmp_path) == []
    assert here(str(tmp_path), "init", "./unix:x")[0] == 0
    assert here(str(tmp_path), "info", "--thread", "./unix:x")[0] == 0


def test_which_keys_a_rule_is_for_is_in_the_help() -> None:
    """The option concerns one message of the protocol, and the help names it, and the rules."""
    shown = " ".join(run("serve --help").out.split())
    assert "the idempotency key of an APPEND_TURN" in shown
    assert "The keys of commands always count" in shown
    assert all(f" {rule}: " in shown for rule in ("matching", "strict", "ignore"))
    assert "(default: matching)" in shown

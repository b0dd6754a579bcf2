"""The link that lets in one browser: who can read it, and who can use it.

Its kind of fault is a right that is handed over where others can take it: in the arguments of a
browser, in a file that others can read, in one that stays; to a process of another user, over IPv4,
IPv6, or IPv4 in IPv6, to one that says in a header that it is somebody else, and to another machine.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from eventq.cli import ui
from eventq.system import peers

if TYPE_CHECKING:
    from tests.http.conftest import Serve

BROWSER = """\
import json, os, sys
path = sys.argv[1].removeprefix("file://")
found = {"arguments": sys.argv[1:], "page": open(path).read(), "path": path,
         "modes": [os.stat(one).st_mode & 0o777 for one in (path, os.path.dirname(path))]}
with open(os.environ["FOUND"] + ".part", "w") as file:
    json.dump(found, file)
os.rename(os.environ["FOUND"] + ".part", os.environ["FOUND"])
with open(os.environ["DONE"], "w") as file:
    file.write("x")
"""


def test_a_browser_gets_a_file_that_only_its_user_can_read(path: str, tmp_path: Path) -> None:
    """Its arguments say nothing of the key; the file leads to the link, and goes with the server."""
    browser, found = tmp_path / "browser.py", tmp_path / "found"
    browser.write_text(BROWSER)
    done = tmp_path / "done"
    os.mkfifo(done)
    reads = os.open(done, os.O_RDONLY | os.O_NONBLOCK)
    env = {**os.environ, "BROWSER": f"{sys.executable} {browser} %s", "FOUND": str(found),
           "DONE": str(done)}  # fmt: skip
    words = [
        sys.executable,
        "-m",
        "eventq",
        "ui",
        "--thread",
        path,
        "--http",
        "127.0.0.1:0",
        "--json",
    ]
    with subprocess.Popen(
        words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        link = json.loads(server.stdout.readline())["link"]
        assert select.select([reads], [], [], 30)[0]
        seen = json.loads(found.read_text())
        key = urlsplit(link).query
        assert key.startswith("key=")
        assert not any(key[4:] in one for one in seen["arguments"])
        assert seen["modes"] == [0o600, 0o700]
        (leads,) = re.findall(r'url=([^"]*)"', seen["page"])
        assert leads == link
        assert httpx.get(leads).status_code == 303
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert not Path(unquote(seen["path"])).parent.exists()
    os.close(reads)


def test_a_phone_comes_in_with_a_token_of_a_file(path: str, tmp_path: Path) -> None:
    """`eventq ui` takes the file that `serve` takes, and refuses one that others can read."""
    tokens = tmp_path / "tokens"
    tokens.write_text('{"name": "phone", "value": "t-phone", "right": ["read", "answer"]}')
    words = [sys.executable, "-m", "eventq", "ui", "--no-browser", "--thread", path,
             "--http", "127.0.0.1:0", "--tokens", str(tokens)]  # fmt: skip
    tokens.chmod(0o644)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "run 'chmod 600" in done.stderr) == (1, True)
    tokens.chmod(0o600)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        at = urlsplit(server.stdout.readline())
        with httpx.Client(base_url=f"{at.scheme}://{at.netloc}", timeout=60) as phone:
            assert phone.post("/login", data={"token": "t-phon"}).status_code == 401
            assert phone.post("/login", data={"token": "t-phone"}).status_code == 303
            assert phone.get("/t/thread/").status_code == 200
        server.send_signal(signal.SIGTERM)
        server.communicate()


def ended(host: str, port: int) -> str:
    """Return an end of a connection as the tables of Linux have it."""
    address = ip_address(host)
    data = address.packed
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return f"{data.hex().upper()}:{port:04X}"


def table(path: Path, *rows: tuple[str, str, int, int]) -> str:
    """Write a table of connections: local end, other end, user, inode."""
    lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"]
    lines += [
        f"   {n}: {own} {other} 01 00000000:00000000 00:00000000 00000000 {user:5} 0 {inode} 1"
        for n, (own, other, user, inode) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("own", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "::ffff:127.0.0.1")],
)
def test_a_peer_is_named_by_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, shown: str
) -> None:
    """By its own line, not by the server's, nor by that of another connection or a closed one."""
    here, there = ended(shown, 9010), ended(shown, 40000)
    rows = [(here, there, 1, 5), (there, ended(shown, 9011), 2, 6), (there, here, 3, 0),
            (there, here, 1234, 7)]  # fmt: skip
    monkeypatch.setattr(peers, "TABLES", (str(tmp_path / "none"), table(tmp_path / "tcp", *rows)))
    assert peers.user_of((own, 40000), (own, 9010)) == 1234
    assert peers.user_of((own, 40001), (own, 9010)) is None


def test_the_table_of_this_system_names_us(serve: Serve, path: str) -> None:
    """So the link lets in whoever runs the server."""
    client = serve(path)
    link = client.running.server.link()  # type: ignore[attr-defined]
    assert client.get(link).status_code == 303
    client.cookies.clear()
    used = client.get(link)
    assert (used.status_code, "set-cookie" in used.headers) == (401, False)
    assert "as it does once. Run &#39;eventq ui&#39; again" in used.text


def test_a_link_that_is_followed_again(serve: Serve, path: str) -> None:
    """The browser that it let in goes to the pages: it has no token that it could be asked for."""
    client = serve(path)
    del client.headers["authorization"]
    link = client.running.server.link()  # type: ignore[attr-defined]
    for _ in range(2):
        found = client.get(link)
        assert (found.status_code, found.headers["location"]) == (303, "/")
    assert client.get("/open?key=x").status_code == 401


@pytest.mark.parametrize("more", [{}, {"x-forwarded-for": "127.0.0.1"}])
def test_a_process_of_another_user_is_refused(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    """With where it can come in; the link is not used up by that. Root may come in."""
    client = serve(path)
    link = client.running.server.link()  # type: ignore[attr-defined]
    asked: list[object] = []

    def user_of(peer: tuple[str, int], own: tuple[str, int]) -> int:
        asked.append((peer[0], own[1]))
        return os.geteuid() + 1

    monkeypatch.setattr("eventq.http.access.user_of", user_of)
    refused = client.get(link, headers=more)
    assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)
    assert "Everybody else comes in here, with a token" in refused.text
    assert 'action="/login"' in refused.text
    assert asked == [("127.0.0.1", client.base_url.port)]
    monkeypatch.setattr("eventq.http.access.user_of", lambda *_: 0)
    assert client.get(link).status_code == 303


def test_another_machine_is_refused(serve: Serve, path: str) -> None:
    """A phone comes in at /login; where no table names a peer, this machine's may use the link."""
    access = serve(path).running.server._access  # type: ignore[attr-defined]  # noqa: SLF001
    from eventq.http.access import RefusedError

    for peer in (("192.0.2.7", 40000), ("2001:db8::7", 40000), None):
        with pytest.raises(RefusedError, match="with a token"):
            access.check_peer(peer, ("192.0.2.1", 9010))
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        access.check_peer((host, 1), (host, 2))


def test_a_port_that_is_taken_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The default is tried first; one note says that another port serves."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = "{}:{}".format(*other.getsockname())
        monkeypatch.setattr(ui, "DEFAULT", taken)
        assert ui._free() == "127.0.0.1:0"  # noqa: SLF001
    assert capfd.readouterr().err == f"Note: {taken} is in use: this takes another port\n"
    assert ui._free() == taken  # noqa: SLF001
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("bound", "opened"), [
    ("http://0.0.0.0:9010", "http://127.0.0.1:9010"), ("http://[::]:9010", "http://[::1]:9010"),
])  # fmt: skip
@pytest.mark.parametrize("has_token", [True, False])
def test_a_link_for_all_addresses_can_be_opened(
    capfd: pytest.CaptureFixture[str], bound: str, opened: str, has_token: bool
) -> None:
    """It leads to this machine; a note says where others come in, and what they need."""
    assert ui._here(bound, has_token=has_token) == opened  # noqa: SLF001
    there = f"at http://{socket.gethostname()}:9010/login"
    how = "with a token" if has_token else "once EVENTQ_TOKEN or --tokens sets a token"
    told = f"Note: the link is for this machine; others come in {there}, {how}\n"
    assert capfd.readouterr().err == told


@pytest.mark.parametrize("bound", ["http://127.0.0.1:9010", "http://[::1]:1", "http://192.0.2.1:1"])
def test_a_link_for_one_address_stays(capfd: pytest.CaptureFixture[str], bound: str) -> None:
    """It can be opened as it is, and there is nothing to say."""
    assert ui._here(bound, has_token=False) == bound  # noqa: SLF001
    assert capfd.readouterr().err == ""


def test_ui_on_all_addresses_prints_a_link_that_lets_in(path: str) -> None:
    """The server lets in who follows it."""
    words = [sys.executable, "-m", "eventq", "ui", "--no-browser", "--thread", path,
             "--http", "0.0.0.0:0"]  # fmt: skip
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        status = httpx.get(link).status_code
        server.send_signal(signal.SIGTERM)
        told = server.communicate()[1]
    assert (link[:17], status) == ("http://127.0.0.1:", 303)
    assert "/login, once EVENTQ_TOKEN or --tokens sets a token" in told

"""A byte order mark in front of JSON is passed over, whoever gives it, and is in nothing stored.

The kind: some inputs take what an editor or PowerShell writes, and others call it no JSON. Members:
a line of `push --batch` and of a stream, a hook, a file or a word of an option, a payload that is
made canonical, a session file, settings of agents in JSON and in TOML (tests/doors/test_hooks.py
for what is written there), tokens, lines of `--allow`, bodies and lines over HTTP
(tests/http/test_log.py), bundles of types, the HELLO of the protocol, and messages of MCP.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eventq
from eventq.http import registry
from eventq.http.tokens import read_tokens
from eventq.memory import canonical
from eventq.running import coding_agents
from eventq.running.allowed import Allowed
from tests.doors.support import contents, ok

MARK = b"\xef\xbb\xbf"
EVENT = b'{"source":"self","type":"note","content":{"a": 1}}\n'


@pytest.mark.parametrize("words", ["push --batch", "push --stream"])
def test_events(inbox: str, words: str) -> None:
    """A line of events may begin with a mark."""
    ok(*words.split(), "--thread", inbox, given=MARK + EVENT)
    assert contents(inbox) == ['{"a": 1}']


def test_hook(inbox: str) -> None:
    """The event of a hook is stored without its mark, so that filters can look into it."""
    ok("hook --thread", inbox, given=MARK + b'{"hook_event_name": "Stop"}\n')
    assert contents(inbox) == ['{"hook_event_name": "Stop"}']
    assert ok("peek --thread", inbox, "--filter", "content ->> '$.hook_event_name' = 'Stop'")


def test_options(inbox: str, tmp_path: Path) -> None:
    """So may the JSON of an option, in a file or on the command line."""
    (tmp_path / "meta").write_bytes(MARK + b'{"meta": {"a": 1}}')
    ok("run start --name s --label s --prompt x --thread", inbox)
    ok("run step s --role a --thread", inbox, "--extracted", str(tmp_path / "meta"))
    ok("run step s --role a --thread", inbox, "--meta", '\ufeff{"b": 2}')


@pytest.mark.parametrize("given", [MARK + b' {"a":1}', '\ufeff{"a":1}'])
def test_canonical(given: str | bytes) -> None:
    """A text with a mark has the value, and so the canonical bytes, of the one without."""
    value = canonical.parse(given)
    assert canonical.dump(value) == b'{"a":1}'
    if isinstance(given, bytes):
        assert canonical.apply(canonical.EVENTQ_JSON_1, given) == b'{"a":1}'


def test_session(inbox: str, tmp_path: Path) -> None:
    """A session file keeps its mark, and its first line is an entry."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(MARK + b'{"type":"user","text":"x"}\n')
    ok("session import", str(path), "--thread", inbox)
    assert ok("session export s --thread", inbox).encode() == path.read_bytes()


def test_settings(tmp_path: Path) -> None:
    """Settings of agents are read with a mark, JSON and TOML alike."""
    (tmp_path / "a.json").write_bytes(MARK + b'{"mcpServers": {"x": {"command": "y"}}}')
    (tmp_path / "a.toml").write_bytes(MARK + b'[mcp_servers.x]\ncommand = "y"\n')
    for path in tmp_path.iterdir():
        assert [*coding_agents.mcp_servers(str(path))] == [("x", {"command": "y"})]


def test_files_of_a_server(tmp_path: Path) -> None:
    """So are the tokens of a server, the commands that a machine allows, and bundles of types."""
    path = tmp_path / "tokens"
    path.write_bytes(MARK + b'{"name": "ci", "value": "s", "right": "read"}')
    path.chmod(0o600)
    assert [one.name for one in read_tokens(str(path))] == ["ci"]
    path.write_bytes(MARK + b"echo hello\n")
    assert Allowed(str(path))("echo hello")
    bundle = {"bundle_id": "b", "registry_version": 1, "types": {}}
    assert registry.checked(MARK + json.dumps(bundle).encode()) == bundle


def test_library(tmp_path: Path) -> None:
    """Content that is text is stored as it is: nobody said that it is JSON."""
    with eventq.open(tmp_path / "t", create=True) as thread:
        assert thread.push("self", "note", "\ufeff{}").content == "\ufeff{}"

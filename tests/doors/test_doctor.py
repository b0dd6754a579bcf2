"""`eventq doctor`: it finds what does not work, says what to do, and touches nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tomllib
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

import eventq
from eventq.cli.doctor import EXTRAS
from eventq.running import coding_agents
from eventq.running.coding_agents import AGENTS
from eventq.system import clock
from tests.doors.support import EVENTQ, ROOT, ok, run
from tests.servers import fresh

HOOK = '{{"hooks": {{"Stop": [{{"hooks": [{{"type": "command", "command": {}}}]}}]}}}}'
Found = list[dict[str, str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory where Claude Code was used; the current one is a project."""
    for folder in ("home/.claude", "project", "bin", "temporary"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "EVENTQ_THREAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def doctor(*words: str) -> Found:
    """Return the findings, once it is sure that the exit status and the text say the same."""
    done = run("doctor", *words, "--json")
    assert done.err == ""
    found: dict[str, Any] = json.loads(done.out)
    findings: Found = found["findings"]
    states = [one["state"] for one in findings]
    assert set(states) <= {"ok", "absent", "warning", "broken"}
    assert found["ok"] is (done.code == 0) is ("broken" not in states)
    for one in findings:
        assert (one["state"] in ("ok", "absent")) is not bool(one["fix"]), one
    text = run("doctor", *words)
    assert (text.code, text.err) == (done.code, "")
    assert [line.split()[0] for line in text.out.splitlines()] == states
    return findings


def bad(findings: Found) -> list[str]:
    """Return what is wrong, a line each, without paths' beginnings."""
    return [f"{one['state']}: {one['what']} - {one['fix']}" for one in findings if one["fix"]]


def about(findings: Found, part: str) -> list[str]:
    """Return the state and the sentence of each finding about something."""
    return [f"{one['state']}: {one['what']}" for one in findings if part in one["about"]]


def everything(folder: Path) -> dict[str, Any]:
    """Return every file below a folder, with bytes, mode and time of change."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.lstat().st_mode,
                    path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }  # fmt: skip


# --- eventq and a thread --------------------------------------------------------------------------


def test_a_machine_without_hooks_is_sound() -> None:
    """It names the version, the program and Python, and says that there are no hooks."""
    found = doctor()
    assert bad(found) == []
    (first,) = about(found, "eventq")
    assert f"{eventq.__version__}, {EVENTQ}, Python 3." in first
    assert about(found, "Claude Code") == [
        "ok: no hooks of eventq; 'eventq hooks install' adds them"
    ]
    assert about(found, "Codex") == ["absent: not found on this machine"]


def test_the_extras_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named with the module of its package."""
    with open(f"{ROOT}/pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    packages = {name: one.replace("[", ">").split(">")[0] for name, (one,) in extras.items()}
    assert packages == {name: module for name, (module, _) in EXTRAS.items()}
    found = doctor()
    assert [about(found, f"extra {name}") for name in EXTRAS] == [["ok: installed"]] * len(EXTRAS)


def test_an_extra_that_is_missing_is_nothing_wrong() -> None:
    """An extra without its module is absent, whatever of it others bring."""
    code = (
        "import sys, importlib.util as util; real = util.find_spec;"
        "util.find_spec = lambda name: None if name == 'psycopg' else real(name);"
        "from eventq.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    done = run("-c", code, "doctor", "--json", program=PYTHON)
    found = json.loads(done.out)["findings"]
    assert about(found, "extra mcp") == ["ok: installed"]
    assert about(found, "extra postgres") == [
        "absent: not installed (needed for threads in PostgreSQL)"
    ]
    assert done.code == 0


PYTHON = os.path.join(os.path.dirname(EVENTQ), "python")


def test_a_thread_is_looked_at(inbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much it holds, and which event of a hook is the newest, and how old that is."""
    assert about(doctor("--thread", inbox), "thread")[1:] == ["ok: no event of a hook"]
    with monkeypatch.context() as past:
        past.setattr(clock, "now", lambda: 1_700_000_000.0)
        with eventq.open(inbox) as thread:
            thread.push("self", "record", '{"hook_event_name": "Stop"}', subtype="Stop")
            thread.push("self", "record", "no hook", subtype="decision")
            thread.push("self", "message", "Stop", subtype="Stop")
    monkeypatch.setenv("EVENTQ_THREAD", inbox)
    found = about(doctor(), "thread")
    assert found[0].startswith("ok: 3 events, ")
    assert found[1].startswith("ok: the newest event of a hook is Stop, stored ")
    assert found[1].endswith("d ago")


def test_a_thread_that_is_broken_or_missing_is_found(inbox: str, tmp_path: Path) -> None:
    """What it lacks, its faults, its consumers that stand still, and files that are read-only."""
    place = str(tmp_path / "none")
    (line,) = bad(doctor("--thread", place))
    assert line == f"broken: '{place}' is not a thread - run 'eventq init {place}' first"
    ok("subscribe", "--consumer", "c", "--thread", inbox)
    ok("pause", "--consumer", "c", "--thread", inbox)
    database = Path(inbox, "events.db")
    database.chmod(0o400)
    found = bad(doctor("--thread", inbox))
    assert f"broken: '{inbox}/events.db' may not be written - run 'chmod u+w" in found[0]
    assert found[1].startswith("warning: ")
    assert "paused" in found[1]
    database.chmod(0o600)
    with open(f"{inbox}/events.jsonl", "a") as mirror:
        mirror.write("nonsense\n")
    assert any(line.startswith("broken: ") for line in bad(doctor("--thread", inbox)))
    database.write_bytes(b"nonsense" * 1000)
    assert bad(doctor("--thread", inbox))[0].startswith("broken: ")


def test_a_thread_is_only_read(originals_mirror: str) -> None:
    """One that the original tool wrote is not brought up to date; that is a warning."""
    before = everything(Path(originals_mirror))
    found = bad(doctor("--thread", originals_mirror))
    what = "the original 'thread' tool wrote it, and it was not brought up to date"
    assert f"warning: {what} - push an event" in found
    assert everything(Path(originals_mirror)) == before


# --- hooks ----------------------------------------------------------------------------------------


def test_hooks_that_work_are_tried(inbox: str, home: Path, tmp_path: Path) -> None:
    """Each program is run as an agent runs it; the thread itself gets no event, nothing is left."""
    ok("init", str(tmp_path / "it's"))
    run("hooks install --agent all --thread", inbox)
    run("hooks install --agent claude --scope project --thread", str(tmp_path / "it's"))
    before = everything(tmp_path)
    found = doctor()
    assert bad(found) == []
    for path, place in (
        (f"{home}/.claude/settings.json", inbox), (f"{home}/.codex/hooks.json", inbox),
        (f"{tmp_path}/project/.claude/settings.json", tmp_path / "it's"),
    ):  # fmt: skip
        assert about(found, path) == [f"ok: {EVENTQ} stores what it is sent; the thread is {place}"]
    assert about(found, "SKILL.md") == ["ok: current"] * 3
    assert {name: one for name, one in everything(tmp_path).items() if name not in before} == {}
    for thread in (inbox, str(tmp_path / "it's")):
        with eventq.open(thread, read_only=True) as opened:
            assert opened.last_id() == 0


def program(path: Path, script: str) -> str:
    """Write a program with the name of eventq, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def hook(path: Path, command: str, place: str) -> None:
    """Write settings with one hook."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HOOK.format(json.dumps(f"{command} hook --thread {place}")))


@pytest.mark.parametrize(("script", "reason"), [
    (None, "(not found|No such file or directory)"), ("exit 0", "it gives no reason"),
    ("echo it is odd >&2; exit 1", "it is odd"), ("read line; echo yes", "it gives no reason"),
])  # fmt: skip
def test_a_program_that_stores_nothing_is_found(
    inbox: str, home: Path, tmp_path: Path, script: str | None, reason: str
) -> None:
    """One that is gone, and one that exits with 0 and does nothing: the stored event counts."""
    path = str(tmp_path / "other/eventq") if script is None else ""
    path = path or program(tmp_path / "other/eventq", script or "")
    hook(home / ".claude/settings.json", path, inbox)
    (line,) = bad(doctor())
    assert line.startswith(f"broken: {path} stores nothing: ")
    assert re.search(f"{reason} - run 'eventq hooks install --scope user --thread {inbox}'$", line)
    assert run("hooks install --thread", inbox, "--events", "Stop").code == 0
    assert bad(doctor()) == []


def test_a_program_by_its_name_is_looked_for_on_the_path(inbox: str, home: Path) -> None:
    """As the shell of the agent does it."""
    hook(home / ".claude/settings.json", "eventq", inbox)
    assert bad(doctor()) == []


def test_a_hook_of_a_thread_that_is_gone_is_broken(home: Path) -> None:
    """The next step is to make the thread, or to remove the hook."""
    hook(home / ".claude/settings.json", EVENTQ, "/none")
    (line,) = bad(doctor())
    assert line == (
        "broken: there is no thread at /none - run 'eventq init /none',"
        " or 'eventq hooks uninstall' with this thread"
    )


def test_a_password_is_not_shown(home: Path) -> None:
    """Whatever is wrong with a thread in PostgreSQL, its URL is without it."""
    url = "postgresql://me:sesame@127.0.0.1:1/db?thread=x"
    for place in (url, url.replace("x", "x/y z"), url.replace("127.0.0.1:1", "")):
        hook(home / ".claude/settings.json", EVENTQ, quote(place))
        found = doctor("--thread", place)
        assert "broken" in [one["state"] for one in found]
        assert "sesame" not in json.dumps(found)


def test_a_program_that_a_project_names_is_not_run(inbox: str, tmp_path: Path) -> None:
    """A folder that was copied from somewhere does not decide what runs; eventq itself is run."""
    evil = program(tmp_path / "project/eventq", f"touch {tmp_path}/ran")
    for name in ("settings.json", "settings.local.json"):
        hook(tmp_path / f"project/.claude/{name}", evil, inbox)
    found = bad(doctor())
    assert [line.split(" - ")[0] for line in found] == [
        f"warning: {evil} was not tried, as settings of a project may name anything"
    ] * 2 + [f"warning: several hooks store Stop in {inbox}"]
    assert not (tmp_path / "ran").exists()


def test_an_event_that_is_stored_twice_is_a_warning(inbox: str) -> None:
    """The hooks of a project run beside those of the user."""
    run("hooks install --events Stop --thread", inbox)
    run("hooks install --events Stop,SessionEnd --scope project --thread", inbox)
    (line,) = bad(doctor())
    assert line.startswith(f"warning: several hooks store Stop in {inbox} - remove one of them")


def test_hooks_that_are_turned_off_are_a_warning(home: Path) -> None:
    """Both agents have a switch for all of them."""
    (home / ".claude/settings.json").write_text('{"disableAllHooks": true}')
    (home / ".codex").mkdir()
    for name in ("hooks", "codex_hooks"):
        (home / ".codex/config.toml").write_text(f"[features]\n{name} = false\n")
        assert [line.split(" - ")[1] for line in bad(doctor())] == [
            "remove 'disableAllHooks' there", "set 'hooks = true' in [features]"
        ]  # fmt: skip


@pytest.mark.parametrize("matcher", ["nothing", "*", "", None])
def test_hooks_that_are_narrowed_are_a_warning(inbox: str, home: Path, matcher: object) -> None:
    """A matcher that somebody has added keeps events away, unless it matches everything."""
    coding_agents.apply([*coding_agents.install(AGENTS["claude"], "user", inbox, ["Stop"])])
    path = home / ".claude/settings.json"
    found = json.loads(path.read_text())
    found["hooks"]["Stop"][0]["matcher"] = matcher
    path.write_text(json.dumps(found))
    shown = [f"warning: only what matches 'nothing' is sent to {inbox}"] * (matcher == "nothing")
    assert [line.split(" - ")[0] for line in bad(doctor())] == shown


@pytest.mark.parametrize("seconds", [0.5, -1, "10", None, True, 9, 10, 600, 1e400])
def test_hooks_that_end_early_are_a_warning(inbox: str, home: Path, seconds: object) -> None:
    """A time limit below that of `hooks install` may lose events; to install again mends it."""
    coding_agents.apply([*coding_agents.install(AGENTS["claude"], "user", inbox, ["Stop"])])
    path = home / ".claude/settings.json"
    found = json.loads(path.read_text())
    (hook,) = found["hooks"]["Stop"][0]["hooks"]
    hook["timeout"] = seconds
    path.write_text(json.dumps(found).replace("Infinity", "1e400"))
    is_short = not isinstance(seconds, int | float) or seconds < 10
    shown = f"warning: its 'timeout' is less than 10 s, so that events for {inbox} may be lost"
    assert [line.split(" - ")[0] for line in bad(doctor())] == [shown] * is_short
    coding_agents.apply([*coding_agents.install(AGENTS["claude"], "user", inbox, ["Stop"])])
    (hook,) = json.loads(path.read_text())["hooks"]["Stop"][0]["hooks"]
    assert hook["timeout"] == (10 if is_short else seconds)
    assert not is_short or not bad(doctor())


def test_the_skill_is_compared(
    inbox: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one and a changed one are warnings, a link is nothing wrong."""
    skill = home / ".claude/skills/eventq/SKILL.md"
    (tmp_path / "SKILL.md").write_text("older")
    with monkeypatch.context() as patched:
        patched.setattr(coding_agents, "SKILL_FOLDER", str(tmp_path))
        coding_agents.apply([*coding_agents.install(AGENTS["claude"], "user", inbox, ["Stop"])])
    assert bad(doctor()) == ["warning: of another version - run 'eventq hooks install' again"]
    run("hooks install --thread", inbox)
    skill.write_text(skill.read_text().replace("Push", "Put"))
    (line,) = bad(doctor())
    assert line.startswith("warning: changed by somebody - compare it with 'eventq guide'")
    skill.unlink()
    skill.parent.rmdir()
    skill.parent.symlink_to(ok("guide", "--path").strip())
    assert about(doctor(), "SKILL.md") == ["ok: linked"]


# --- MCP, and nonsense ----------------------------------------------------------------------------


def test_programs_of_mcp_servers_have_to_be_there(home: Path, tmp_path: Path, inbox: str) -> None:
    """Of those that name eventq: for everybody, for a project, in a project, and for Codex."""
    (home / ".codex").mkdir()
    there = {"command": EVENTQ, "args": ["mcp", "--thread", inbox]}
    gone = {"command": "gone", "args": ["eventq-mcp"]}
    project = str(tmp_path / "project")
    (home / ".claude.json").write_text(json.dumps({
        "mcpServers": {"a": there, "other": {"command": "gone"}, "eventq": {"url": "https://x"}},
        "projects": {project: {"mcpServers": {"b": gone}}, "/else": {"mcpServers": {"c": gone}}},
    }))  # fmt: skip
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"d": {"command": "eventq-gone"}}}))
    (home / ".codex/config.toml").write_text('[mcp_servers.eventq]\ncommand = "gone"\n')
    found = doctor()
    assert bad(found) == [
        f"broken: MCP server {name}: there is no {command} - give the absolute path of the"
        f" program as the command of {name}"
        for name, command in (("b", "gone"), ("d", "eventq-gone"), ("eventq", "gone"))
    ]
    assert about(found, ".claude.json")[:2] == [
        f"ok: MCP server a starts {EVENTQ}",
        "ok: MCP server eventq is reached over HTTP, and was not tried",
    ]


BY_NAME, AS_MODULE = [EVENTQ], [sys.executable, "-m", "eventq"]


@pytest.mark.parametrize(
    ("start", "words", "more", "says"),
    [
        (BY_NAME, ["mcp", "--thread", "INBOX", "--write"], {}, "No such option '--write'"),
        (AS_MODULE, ["mcp", "--thread", "/nowhere"], {}, "there is no thread at /nowhere"),
        (BY_NAME, ["mcp"], {}, "it has no --thread"),
        (BY_NAME, ["mcp", "--thread"], {}, "it has no --thread"),
        (BY_NAME, ["mcp", "--thread=INBOX", "a\0b"], {}, "embedded null byte"),
        (AS_MODULE, ["mcp"], {"env": {"EVENTQ_THREAD": "INBOX", "PATH": 7}}, None),
        (BY_NAME, ["mcp", "--thread", "INBOX"], {"env": 7}, None),
        (BY_NAME, ["mcp", "--thread", "${HOME}/inbox"], {}, None),
        (BY_NAME, ["mcp", "--thread", "inbox"], {"cwd": "/elsewhere"}, None),
        (["/bin/sh"], ["mcp", "gateway", "--servers", "eventq"], {}, None),
    ],
)
def test_mcp_servers_that_end_at_once_are_found(
    start: list[str], words: list[str], more: dict[str, Any], says: str | None, inbox: str
) -> None:
    """An agent only says that the server is not there, and hides why; what is not known is let be."""
    text = json.dumps({"command": start[0], "args": [*start[1:], *words], **more})
    entry = json.loads(text.replace("INBOX", inbox))
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"inbox": entry}}))
    before = everything(Path(inbox))
    findings = json.loads(run("doctor", "--json").out)["findings"]
    (found,) = [one for one in findings if "MCP server" in one["what"]]
    assert everything(Path(inbox)) == before
    if says is None:
        assert (found["state"], found["what"]) == ("ok", f"MCP server inbox starts {start[0]}")
    else:
        assert found["state"] == "broken"
        assert found["what"].startswith(f"MCP server inbox ends at once: {says}")


def test_a_project_does_not_decide_who_gets_a_password(
    inbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is connected to whom its settings name: by a URL, or by a folder that holds one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/d?thread=t&sslmode=disable"
        monkeypatch.setenv("PGPASSWORD", "secret")
        Path("shared").mkdir()
        Path("shared/thread.url").write_text(url)
        entries = [
            {"command": EVENTQ, "args": ["mcp", "--thread", url]},
            {"command": EVENTQ, "args": ["mcp"], "env": {"EVENTQ_THREAD": url}},
            {"command": EVENTQ, "args": ["mcp", "--thread=shared"]},
            {"command": EVENTQ, "args": ["mcp", "--thread", inbox, "--thread", url]},
        ]
        named = {f"eventq{number}": entry for number, entry in enumerate(entries)}
        Path(".mcp.json").write_text(json.dumps({"mcpServers": named}))
        Path(".claude").mkdir()
        line = coding_agents.command([EVENTQ], url)
        Path(".claude/settings.json").write_text(HOOK.format(json.dumps(line)))
        found = doctor()
        with pytest.raises(BlockingIOError):
            server.accept()
    assert any("was not looked for" in one["what"] for one in found)


def test_another_program_of_an_mcp_server_is_not_run(tmp_path: Path, inbox: str) -> None:
    """A project may name anything: only this eventq is asked about its words."""
    trap = tmp_path / "bin" / "eventq"
    trap.write_text(f"#!/bin/sh\ntouch {quote(str(tmp_path / 'ran'))}\n")
    trap.chmod(0o755)
    entry = {"command": str(trap), "args": ["mcp", "--thread", inbox]}
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"inbox": entry}}))
    doctor()
    assert not (tmp_path / "ran").exists()


def test_the_folders_of_the_environment_count(
    inbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLAUDE_CONFIG_DIR and CODEX_HOME say where everything is."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))
    for path in ("c/settings.json", "c/.claude.json", "x/hooks.json", "x/config.toml"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("{")
        assert all(f"'{tmp_path}/{path}' is not valid" in line for line in bad(doctor()))
        assert len(bad(doctor())) == 1
        (tmp_path / path).unlink()


NONSENSE = [
    b"", b"{", b"[]", b"7", b"\xff\xfe\0", b"[" * 100_000, b'{"hooks": 7}', b'{"hooks": {"Stop": 7}}',
    b'{"mcpServers": 7, "projects": 7, "features": 7, "mcp_servers": [7]}',
    b'{"mcpServers": {"eventq": 7, "x": {"command": 7, "args": ["eventq"]}, "y": {"args": 7}}}',
    b'{"mcpServers": {"eventq": {"command": "", "args": {"a": 7}}}, "projects": {"/": []}}',
    b'{"hooks": {"Stop": [{"hooks": [{"command": "eventq hook --thread \\u0000"}]}]}}',
    b'{"hooks": {"Stop": [{"hooks": [{"command": "eventq hook --thread \\ud800"}]}]}}',
    b'{"hooks": {"Stop": [{"hooks": [{"command": "/\\u0000/eventq hook --thread /x"}]}]}}',
    b'{"hooks": {"Stop": [{"hooks": [{"command": "eventq hook --thread postgresql://x"}]}]}}',
    b"mcp_servers = 7\nfeatures = 7", b"[mcp_servers]\neventq = 7", b"a = 1\na = 2",
]  # fmt: skip


@pytest.mark.parametrize("data", NONSENSE)
def test_nonsense_is_reported(home: Path, tmp_path: Path, data: bytes) -> None:
    """Whatever stands in any of the files: a line says so, and nothing is written."""
    (home / ".codex").mkdir()
    (home / ".claude/skills/eventq").mkdir(parents=True)
    for path in (home / ".claude/settings.json", home / ".claude.json", Path(".mcp.json"),
                 home / ".codex/hooks.json", home / ".codex/config.toml",
                 home / ".claude/skills/eventq/SKILL.md"):  # fmt: skip
        path.write_bytes(data)
    before = everything(tmp_path)
    found = doctor()
    assert [one for one in found if one["state"] != "ok"]
    after = everything(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} <= {
        str(tmp_path / "temporary")
    }


def test_what_is_no_file_is_reported(home: Path) -> None:
    """Folders, pipes and links to nowhere in place of the files end in a line, too."""
    (home / ".codex").mkdir()
    (home / ".claude/settings.json").mkdir()
    os.mkfifo(home / ".claude.json")
    (home / ".codex/hooks.json").symlink_to("/none")
    (home / ".codex/config.toml").symlink_to("config.toml")
    found = bad(doctor())
    assert len(found) == 3
    assert all(line.startswith("broken: '") and "could not be read" in line for line in found)


def test_agents_are_known_by_name() -> None:
    """The names of the table are those of the option --agent."""
    assert [*AGENTS] == [agent.name for agent in AGENTS.values()] == ["claude", "codex"]


# --- what was installed and is gone ----------------------------------------------------------------
# Members of the kind: the hooks of one event, of all, the whole file, the whole folder of an agent,
# the skill; in settings of the user and of a project; removed by uninstall, which is no loss.


def hooks(*words: str) -> None:
    """Install or uninstall, which must succeed."""
    done = run("hooks", *words)
    assert done.code == 0, done.err


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("left", ["{}", '{"hooks": {}}', None, "folder"])
def test_hooks_that_another_program_strips(
    home: Path, tmp_path: Path, scope: str, left: str | None
) -> None:
    """What was installed and is gone is broken; the command that is named brings it back."""
    inbox = eventq.init(tmp_path / "inbox")
    words = ["--scope", scope, "--agent", "claude"]
    hooks("install", "--thread", inbox, *words, "--events", "Stop,PreToolUse")
    assert bad(doctor()) == []
    folder = (home if scope == "user" else tmp_path / "project") / ".claude"
    if left == "folder":
        shutil.rmtree(folder)
    elif left is None:
        (folder / "settings.json").unlink()
    else:
        (folder / "settings.json").write_text(left)
    (what,) = [one for one in bad(doctor()) if one.startswith("broken")]
    assert f"hooks that were installed for {inbox} are gone" in what
    command = what.split("run 'eventq ")[1].split("'")[0]
    assert command.endswith("--events PreToolUse,Stop")
    hooks(*command.split()[1:])
    assert bad(doctor()) == []


def test_a_hook_and_a_skill_that_are_gone(home: Path, tmp_path: Path) -> None:
    """One hook of several is named alone; a skill that is gone is a warning."""
    inbox = eventq.init(tmp_path / "inbox")
    hooks("install", "--thread", inbox)
    path = home / ".claude/settings.json"
    held = json.loads(path.read_text())
    del held["hooks"]["Stop"]
    path.write_text(json.dumps(held))
    (home / ".claude/skills/eventq/SKILL.md").unlink()
    first, second = bad(doctor())
    assert first.startswith("broken: hooks that were")
    assert "--events Stop'" in first
    assert second.startswith("warning: it was installed and is gone")


def test_what_is_uninstalled_is_no_loss(home: Path, tmp_path: Path) -> None:
    """After uninstall nothing is missed, even if the hooks were stripped before; no file is left."""
    one, two = (eventq.init(tmp_path / name) for name in ("one", "two"))
    before = everything(home)
    for inbox in (one, two):
        hooks("install", "--thread", inbox)
    (home / ".claude/settings.json").write_text("{}")
    hooks("uninstall", "--thread", one)
    (what,) = [text for text in bad(doctor()) if text.startswith("broken")]
    assert two in what
    hooks("uninstall")
    assert bad(doctor()) == []
    assert {path for path in everything(home) if os.path.isfile(path)} - {*before} == {
        str(home / ".claude/settings.json")
    }


def test_a_record_that_cannot_be_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks are installed where nothing can be noted, which is said; nonsense there is a finding."""
    inbox = eventq.init(tmp_path / "inbox")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    done = run("hooks", "install", "--thread", inbox)
    assert done.code == 0
    assert "'eventq doctor' will not know of this" in done.err
    monkeypatch.delenv("XDG_STATE_HOME")
    state = home / ".local/state/eventq/hooks.json"
    state.parent.mkdir(parents=True)
    for text in ("[]", "nonsense", '{"a": 1}', '{"a": [1]}', '{"a": [[[], 2]]}'):
        state.write_text(text)
        assert any("hooks.json" in one for one in bad(doctor())), text


def test_a_thread_in_postgresql(postgres: str) -> None:
    """One at a URL is not said to be of the original tool: nothing about it needs to be done."""
    url = fresh(postgres)
    found = [one for one in doctor("--thread", url) if one["about"].startswith("thread ")]
    assert {one["state"] for one in found} == {"ok"}, found


def test_commands_that_hold_quotes(postgres: str, tmp_path: Path) -> None:
    """A command in an advice can be pasted: what quotes it is not what its arguments have.

    The kind: 'run '…'' of a path or URL that a shell needs quoted. Members: dispatch and init of a
    URL; init, mirror recover and chmod of a directory with a space; doctor's commands; the tables
    of a URL with several words in its query.
    """
    url = fresh(postgres)
    base = url.rpartition("&")[0]
    gone = f"{base}&thread=gone"
    place = tmp_path / "a b"
    bare = eventq.init(place)
    os.unlink(f"{bare}/events.db")
    (place / "events.jsonl").write_text("{}\n")
    cases = {
        f"eventq work --thread {quote(url)} --allow FILE": run("dispatch", "--thread", url),
        f"eventq init {quote(gone)}": run("info", "--thread", gone),
        f"eventq init {quote(f'{tmp_path}/c d')}": run("info", "--thread", f"{tmp_path}/c d"),
        f"eventq mirror recover --thread {quote(bare)}": run("info", "--thread", bare),
    }
    for command, done in cases.items():
        assert f'run "{command}"' in done.err, (command, done.err)

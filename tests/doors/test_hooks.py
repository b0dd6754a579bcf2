"""`eventq hooks`: what it writes into the settings of coding agents, and that it takes it back."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import LogicError
from eventq.running import coding_agents
from eventq.running.coding_agents import AGENTS
from tests.doors.support import EVENTQ, Done, contents, environ, objects, ok, refused, run
from tests.servers import fresh

CLAUDE, CODEX = AGENTS["claude"], AGENTS["codex"]
BACKUP = ".eventq-backup"
HAND = """{
    "model": "opus",  \t
    "permissions": {"allow": ["Bash(ls:*)", "Read"], "deny": []},
    "size": 1.50e1, "name": "\\u00e9 \\" }",
    "hooks": {
        "Stop": [{"matcher": "", "hooks": [{"type": "command", "command": "say done"}]}],
        "PreToolUse": []
    },
    "env": {}
}
"""
TEXTS = {
    "by hand": HAND,
    "crlf": HAND.replace("\n", "\r\n"),
    "tabs": HAND.replace("    ", "\t"),
    "no last newline": HAND.rstrip(),
    "one line": json.dumps(json.loads(HAND)),
    "tight": json.dumps(json.loads(HAND), separators=(",", ":")),
    "two blanks": json.dumps(json.loads(HAND), indent=2),
    "no hooks": '{\n  "model": "opus"\n}\n',
    "no hooks on one line": '{"model": "opus"}',
    "empty": "{}",
    "empty, with a newline": "{}\n",
    "with a byte order mark": "\ufeff" + HAND,
    "not ascii": '{\n  "name": "Käthe \U0001f600"\n}\n',
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory in which nobody has used an agent; the current one is a project."""
    found = tmp_path / "home"
    for folder in (found, tmp_path / "project", tmp_path / "bin"):
        folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "EVENTQ_THREAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return found


@pytest.fixture
def claude(home: Path) -> Path:
    """Return the path of the settings of Claude Code, whose folder is there."""
    (home / ".claude").mkdir()
    return home / ".claude/settings.json"


def install(*words: str) -> Done:
    """Install, which must succeed."""
    done = run("hooks", "install", *words)
    assert done.code == 0, done.err
    return done


def commands(path: Path) -> dict[str, list[str]]:
    """Return the commands of the hooks in a settings file, by event."""
    return {
        event: [hook["command"] for group in groups for hook in group["hooks"]]
        for event, groups in json.loads(path.read_text())["hooks"].items()
    }


def everything(folder: Path) -> dict[str, Any]:
    """Return every file below a folder, with its bytes, its mode and its times."""
    return {
        str(path): (os.readlink(path) if path.is_symlink() else path.read_bytes(),
                    path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_ino)
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }  # fmt: skip


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inbox", "my inbox", "it's", 'a "b" $HOME `id`', "Käthe\\x"])
def test_an_installed_hook_stores_what_an_agent_sends(
    tmp_path: Path, claude: Path, name: str
) -> None:
    """Each command, run by a shell in any folder, stores its stdin in the thread."""
    place = eventq.init(tmp_path / name)
    install("--thread", place)
    found = commands(claude)
    assert list(found) == [*CLAUDE.usual]
    sent = []
    for event, lines in found.items():
        (line,) = lines
        assert os.path.isabs(line.split()[0])
        sent.append(json.dumps({"hook_event_name": event, "session_id": "s"}))
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=sent[-1], cwd="/", env=environ(), text=True,
            capture_output=True, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert contents(place) == sent


def test_a_program_in_a_path_with_blanks_is_quoted(
    inbox: str, claude: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell of the agent gets the program as one word."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "eventq").write_text(f'#!/bin/sh\nexec "{EVENTQ}" "$@"\n')
    (folder / "eventq").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    coding_agents.apply([*coding_agents.install(CLAUDE, "user", inbox, ["Stop"])])
    (line,) = commands(claude)["Stop"]
    assert coding_agents.settings(str(claude)).entries[0].program == (str(folder / "eventq"),)
    subprocess.run(["/bin/sh", "-c", line], input="{}", env=environ(), text=True, timeout=300)
    assert contents(inbox) == ["{}"]


def test_a_hook_has_the_shape_that_agents_read(inbox: str, home: Path) -> None:
    """It has an absolute path, and a time limit in seconds, which Codex bounds for some events."""
    install("--thread", os.path.relpath(inbox), "--agent", "all")
    line = f"{EVENTQ} hook --thread {inbox}"
    for path, agent in ((".claude/settings.json", CLAUDE), (".codex/hooks.json", CODEX)):
        assert json.loads((home / path).read_text()) == {"hooks": {
            event: [{"hooks": [{
                "type": "command", "command": line,
                "timeout": 3 if agent is CODEX and event == "SessionEnd" else 10,
            }]}]
            for event in agent.usual
        }}  # fmt: skip


def test_without_a_script_the_hook_starts_the_module(
    inbox: str, claude: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python has no script `eventq` beside it, the command is `python -m eventq`."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (change, _) = coding_agents.install(CLAUDE, "user", inbox, ["Stop"])
    assert change.after
    (hook,) = json.loads(change.after)["hooks"]["Stop"][0]["hooks"]
    assert hook["command"] == f"{tmp_path}/python -P -m eventq hook --thread {inbox}"
    claude.write_bytes(change.after)
    assert len(coding_agents.settings(str(claude)).entries) == 1


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_uninstalling_gives_back_the_very_bytes(inbox: str, claude: Path, text: str) -> None:
    """Whatever the blanks, the spelling of numbers and the order of keys; others' hooks stay."""
    claude.write_bytes(text.encode())
    install("--thread", inbox)
    held = json.loads(claude.read_bytes())
    before = json.loads(text.removeprefix("\ufeff"))
    for event, groups in before.get("hooks", {}).items():
        assert held["hooks"][event][: len(groups)] == groups
    assert [*held] == [*before] + ["hooks"] * ("hooks" not in before)
    assert {**held, "hooks": 0} == {**before, "hooks": 0}
    ok("hooks", "uninstall")
    assert claude.read_bytes() == text.encode()


def test_what_is_added_is_indented_as_the_rest(inbox: str, claude: Path) -> None:
    """A file of one writer looks like one of one writer afterwards, also on one line."""
    for indent in (2, 3, "\t", None):
        claude.write_text(json.dumps({"a": [1], "hooks": {"Stop": [{"hooks": []}]}}, indent=indent))
        install("--thread", inbox)
        text = claude.read_text()
        assert text == json.dumps(json.loads(text), indent=indent)
    claude.write_bytes(TEXTS["crlf"].encode())
    install("--thread", inbox)
    assert b"\n" not in claude.read_bytes().replace(b"\r\n", b"")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=8,
)  # fmt: skip
HOOK = st.dictionaries(st.sampled_from(["type", "command", "timeout", "x"]), JSON, max_size=4)
GROUP = st.fixed_dictionaries({}, optional={"matcher": JSON, "hooks": st.lists(HOOK, max_size=3)})
HOOKS = st.dictionaries(st.sampled_from(CLAUDE.events), st.lists(GROUP, max_size=3), max_size=4)
SETTINGS = st.builds(
    lambda value, hooks, last: {**value, "hooks": hooks, **last},
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    HOOKS,
    st.dictionaries(st.text(max_size=5), JSON, max_size=2),
).filter(lambda value: isinstance(value["hooks"], dict)) | st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "hooks"), JSON, max_size=4
)


@settings(
    max_examples=20, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(SETTINGS, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
@example({"hooks": {}}, 2, True)
@example({"hooks": {"Stop": []}}, None, True)
def test_any_settings_are_given_back(
    claude: Path, value: dict[str, Any], indent: int | str | None, is_ascii: bool
) -> None:
    """Install and uninstall leave the value of any settings, but for lists that were empty."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    claude.write_bytes(text.encode("utf-8", "surrogatepass"))
    for thread in ("/a thread", "/another", "/a thread"):
        (change, _) = coding_agents.install(CLAUDE, "user", thread, CLAUDE.usual)
        claude.write_bytes(change.after or b"")
    held = json.loads(claude.read_bytes())
    for event, groups in value.get("hooks", {}).items():
        assert held["hooks"][event][: len(groups)] == groups
        assert len(held["hooks"][event]) == len(groups) + 2 * (event in CLAUDE.usual)
    (change, *_) = coding_agents.uninstall(CLAUDE, "user", "/another")
    claude.write_bytes(change.after or b"")
    (change, *_) = coding_agents.uninstall(CLAUDE, "user", None)
    left = {
        event: groups
        for event, groups in value.get("hooks", {}).items()
        if groups or event not in CLAUDE.usual
    }
    wanted = {name: one for name, one in value.items() if name != "hooks"}
    assert json.loads(change.after or b"{}") == (wanted | {"hooks": left} if left else wanted)


def test_a_second_installation_changes_nothing(inbox: str, home: Path) -> None:
    """No byte, no time, no backup: it says that all is there."""
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text(HAND)
    install("--thread", inbox, "--agent", "all")
    before = everything(home)
    done = install("--thread", inbox, "--agent", "all")
    assert everything(home) == before
    assert [line.split()[1] for line in done.out.splitlines()] == ["unchanged"] * 4
    assert done.err == ""


def test_each_thread_has_its_own_hooks(
    tmp_path: Path, claude: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread is added beside the first, and each is removed by itself."""
    one, two = eventq.init(tmp_path / "one"), eventq.init(tmp_path / "two")
    install("--thread", one)
    first = claude.read_bytes()
    install("--thread", two)
    assert commands(claude)["Stop"] == [f"{EVENTQ} hook --thread {place}" for place in (one, two)]
    done = run("hooks uninstall --thread", two)
    assert "unchanged" in done.out
    assert "(kept: for the hooks that are left)" in done.out
    assert claude.read_bytes() == first
    monkeypatch.setenv("EVENTQ_THREAD", two)
    assert "unchanged" in ok("hooks", "uninstall")
    monkeypatch.setenv("EVENTQ_THREAD", one)
    ok("hooks", "uninstall")
    assert not claude.exists()


def test_a_hook_of_another_eventq_is_taken_over(inbox: str, claude: Path) -> None:
    """Its command is replaced where it stands, once, and what somebody added to it stays."""
    old = {"type": "command", "command": f"/old/eventq hook --thread {inbox}", "timeout": 99}
    groups = [{"matcher": "x", "hooks": [old, {"command": "say"}]}, {"hooks": [old]}]
    claude.write_text(json.dumps({"hooks": {"Stop": groups}}))
    install("--thread", inbox, "--events", "Stop")
    new = {**old, "command": f"{EVENTQ} hook --thread {inbox}"}
    held = json.loads(claude.read_text())
    assert held == {"hooks": {"Stop": [{"matcher": "x", "hooks": [new, {"command": "say"}]}]}}


OURS = [
    "/any where/eventq", "eventq", "/usr/bin/python3 -P -m eventq", "/x/python -m eventq",
]  # fmt: skip
FOREIGN = [
    "eventq hook --thread {0} && say done", "eventq hook --thread {0} > /dev/null",
    "eventq hook --source me --thread {0}", "noeventq hook --thread {0}", "eventq push --thread {0}",
    "eventq hook --thread $HOME/inbox", "eventq hook --thread 'unclosed", "eventq hook --thread",
    "sh -c eventq hook --thread {0}", "", "hook --thread {0}",
]  # fmt: skip


def test_only_what_eventq_writes_is_removed(inbox: str, claude: Path) -> None:
    """Hooks of any eventq go, with any path; a command that a person made of it is theirs."""
    ours = [
        coding_agents.command(["/any where/eventq"] if " " in one and "-m" not in one
                              else one.split(), inbox)
        for one in OURS
    ]  # fmt: skip
    foreign = [one.format(inbox) for one in FOREIGN]
    hooks = [{"type": "command", "command": one} for pair in zip(foreign, ours * 3, strict=False)
             for one in pair]  # fmt: skip
    odd: list[Any] = [
        {"type": "prompt"},
        {"command": 7},
        {"command": None},
        {"command": ["eventq"]},
    ]
    claude.write_text(json.dumps({"hooks": {"Stop": [{"hooks": hooks + odd}]}}))
    ok("hooks", "uninstall")
    left = json.loads(claude.read_text())["hooks"]["Stop"][0]["hooks"]
    assert left == [{"type": "command", "command": one} for one in foreign] + odd


def test_what_install_made_is_removed_whole(inbox: str, home: Path) -> None:
    """Files that were not there before are gone again, and the folder of the skill."""
    install("--thread", inbox, "--agent", "all")
    assert len(everything(home)) == 4
    ok("hooks", "uninstall")
    assert everything(home) == {}
    assert [*home.rglob("eventq")] == []
    assert ok("hooks", "uninstall") == "There is nothing of eventq\n"


# --- which files ----------------------------------------------------------------------------------


def test_the_agents_are_those_that_are_here(inbox: str, home: Path, tmp_path: Path) -> None:
    """By their folder at home or in the project, or as a program; `all` and names are free."""
    refused(1, "choose with --agent", run("hooks install --thread", inbox))
    (tmp_path / "bin/codex").write_text("")
    (tmp_path / "bin/codex").chmod(0o755)
    assert {line.split()[0] for line in install("--thread", inbox).out.splitlines()} == {"codex:"}
    (tmp_path / "project/.claude").mkdir()
    assert {line.split()[0] for line in install("--thread", inbox).out.splitlines()} == {
        "claude:", "codex:"
    }  # fmt: skip
    ok("hooks", "uninstall", "--agent", "claude")
    assert not (home / ".claude/settings.json").exists()
    assert (home / ".codex/hooks.json").exists()


def test_the_folders_of_the_environment_count(
    inbox: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLAUDE_CONFIG_DIR and CODEX_HOME name the folders; Codex's skills stay at home."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))
    install("--thread", inbox, "--agent", "all")
    for path in ("c c/settings.json", "c c/skills/eventq/SKILL.md", "x/hooks.json",
                 "home/.agents/skills/eventq/SKILL.md"):  # fmt: skip
        assert (tmp_path / path).exists(), path
    assert [path.name for path in home.iterdir()] == [".agents"]


def test_a_project_has_settings_of_its_own(inbox: str, home: Path, tmp_path: Path) -> None:
    """With --scope project they are in the current directory, and those of the user stay."""
    install("--thread", inbox, "--agent", "all", "--scope", "project")
    project = tmp_path / "project"
    assert {str(Path(path).relative_to(project)) for path in everything(project)} == {
        ".claude/settings.json", ".claude/skills/eventq/SKILL.md", ".codex/hooks.json",
        ".agents/skills/eventq/SKILL.md",
    }  # fmt: skip
    assert everything(home) == {}
    (project / ".claude/settings.json").rename(project / ".claude/settings.local.json")
    ok("hooks", "uninstall", "--scope", "project")
    assert everything(project) == {}


def test_events_are_chosen(inbox: str, home: Path, claude: Path) -> None:
    """Those that are named are stored, where the agent has them; others are refused."""
    install("--thread", inbox, "--agent", "all", "--events", "PostToolUse,Notification")
    assert [*commands(claude)] == ["PostToolUse", "Notification"]
    assert [*commands(home / ".codex/hooks.json")] == ["PostToolUse"]
    for words, title in (("all", "Claude Code or Codex"), ("codex", "Codex")):
        done = run("hooks install --agent", words, "--events", "Stop,stop", "--thread", inbox)
        refused(2, f"'stop' is no hook event of {title} that", done)
    for agent in AGENTS.values():
        assert set(agent.usual) <= set(agent.events)
        assert not {event for event in agent.usual if "Tool" in event}


def test_the_note_says_what_is_left_to_do(inbox: str, claude: Path) -> None:
    """Codex runs a new hook only after somebody trusts it; that is said when there is a new one."""
    done = install("--thread", inbox, "--agent", "codex")
    assert done.err == f"Codex: {CODEX.advice}\n"
    assert "/hooks" in CODEX.advice


def test_a_thread_in_postgresql_is_named_without_its_password(postgres: str, claude: Path) -> None:
    """The URL in the settings leads to it, for whom the server lets in."""
    url = fresh(postgres)
    install("--thread", url.replace("@", ":sesame@", 1), "--events", "Stop")
    (line,) = commands(claude)["Stop"]
    assert "sesame" not in claude.read_text()
    subprocess.run(["/bin/sh", "-c", line], input="{}", env=environ(), text=True, timeout=300)
    assert contents(url) == ["{}"]
    ok("hooks", "uninstall", "--thread", url)
    assert not claude.exists()


# --- how it is written ----------------------------------------------------------------------------


def test_a_link_stays_a_link(inbox: str, claude: Path, tmp_path: Path) -> None:
    """The file behind it is written, also one that is not there yet."""
    target = tmp_path / "dotfiles/claude.json"
    target.parent.mkdir()
    claude.symlink_to(target)
    install("--thread", inbox)
    assert claude.is_symlink()
    assert [*commands(target)] == [*CLAUDE.usual]
    target.write_text(HAND)
    install("--thread", inbox)
    assert claude.is_symlink()
    assert EVENTQ in target.read_text()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o644])
def test_the_mode_stays(inbox: str, claude: Path, mode: int) -> None:
    """Whatever the umask, and the backup is for no more eyes than the file."""
    claude.write_text(HAND)
    claude.chmod(mode)
    install("--thread", inbox)
    assert stat.S_IMODE(claude.stat().st_mode) == mode
    backup = stat.S_IMODE(Path(f"{claude}{BACKUP}").stat().st_mode)
    assert backup & ~mode == 0
    ok("hooks", "uninstall")
    assert stat.S_IMODE(claude.stat().st_mode) == mode


def test_the_first_change_leaves_a_backup(inbox: str, claude: Path) -> None:
    """It is named, it is not written again, and later files get another name."""
    claude.write_text(HAND)
    first, second = f"{claude}{BACKUP}", f"{claude}{BACKUP}-2"
    assert f"{claude} (as it was before: {first})\n" in install("--thread", inbox).out
    install("--thread", inbox, "--events", "PostToolUse")
    ok("hooks", "uninstall")
    assert Path(first).read_text() == HAND
    install("--thread", inbox)
    assert not os.path.exists(second)
    ok("hooks", "uninstall")
    claude.write_text("{}")
    assert f"before: {second})\n" in install("--thread", inbox).out
    assert (Path(first).read_text(), Path(second).read_text()) == (HAND, "{}")


def test_a_file_with_a_hook_by_hand_has_a_backup_too(inbox: str, claude: Path) -> None:
    """Its first change by the command is that of a file that somebody else wrote."""
    text = '{"a": 1, "hooks": {"Stop": [{"hooks": [{"command": "eventq hook --thread /x"}]}]}}'
    claude.write_text(text)
    ok("hooks", "uninstall")
    assert json.loads(claude.read_text()) == {"a": 1}
    assert Path(f"{claude}{BACKUP}").read_text() == text


SHAPE = "has hooks of a wrong shape"
BAD = {
    "empty": ("", "is not valid JSON"),
    "cut": ('{"a": 1', "is not valid JSON"),
    "comment": ('{\n// x\n"a": 1}', "is not valid JSON"),
    "two values": ("{} {}", "is not valid JSON"),
    "constant": ('{"a": NaN}', "NaN is not JSON"),
    "bytes": (b'{"a": "\xff"}', "is not valid JSON"),
    "deep": ("[" * 200_000, "is not valid JSON"),
    "list": ("[]", "is not a JSON object"),
    "number": ("7", "is not a JSON object"),
    "hooks": ('{"hooks": []}', SHAPE),
    "null": ('{"hooks": null}', SHAPE),
    "event": ('{"hooks": {"Stop": {}}}', SHAPE),
    "another event": ('{"hooks": {"X": "y"}}', SHAPE),
    "group": ('{"hooks": {"Stop": ["x"]}}', SHAPE),
    "inner": ('{"hooks": {"Stop": [{"hooks": {}}]}}', SHAPE),
    "hook": ('{"hooks": {"Stop": [{"hooks": ["x"]}]}}', SHAPE),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_settings_that_an_agent_would_not_read_are_refused(
    inbox: str, home: Path, claude: Path, text: str | bytes, says: str
) -> None:
    """Nothing at all is changed, not even the files of another agent."""
    claude.write_bytes(text.encode() if isinstance(text, str) else text)
    before = everything(home)
    for words in ("hooks install --agent all --thread", "hooks install --agent all --dry-run --thread",
                  "hooks uninstall --thread"):  # fmt: skip
        done = run(words, inbox)
        refused(1, says, done)
        assert f"'{claude}'" in done.err
        assert " - correct it" in done.err
    assert everything(home) == before


def test_what_may_not_be_written_is_refused(inbox: str, home: Path, claude: Path) -> None:
    """A file or a folder without the right to write it, and what is no file; nothing is changed."""
    (home / ".codex").mkdir()
    claude.write_text(HAND)
    for path, mode in ((claude, 0o444), (claude.parent, 0o555), (home / ".codex", 0o555)):
        old = path.stat().st_mode
        path.chmod(mode)
        before = everything(home)
        for words in ("--agent all", "--agent all --dry-run"):
            done = run(f"hooks install {words} --thread", inbox)
            refused(1, f"'{path}' may not be written - run 'chmod u+w {path}'", done)
        assert everything(home) == before
        path.chmod(old)
    claude.unlink()
    os.mkfifo(claude)
    refused(1, f"'{claude}' could not be read", run("hooks install --thread", inbox))


def test_a_thread_that_is_not_there_is_refused(home: Path, claude: Path, tmp_path: Path) -> None:
    """A hook of it would store nothing; but hooks of a thread that is gone can be removed."""
    place = tmp_path / "none"
    refused(1, f"'{place}' is not a thread", run("hooks install --thread", str(place)))
    assert everything(home) == {}
    claude.write_text('{"hooks": {"Stop": [{"hooks": [{"command": "eventq hook --thread /x"}]}]}}')
    ok("hooks", "uninstall", "--thread", "/x")
    assert not claude.exists()


def test_a_file_that_changes_meanwhile_is_not_overwritten(inbox: str, claude: Path) -> None:
    """What the agent itself wrote since the file was read stays."""
    claude.write_text(HAND)
    changes = [*coding_agents.install(CLAUDE, "user", inbox, ["Stop"])]
    claude.write_text('{"new": 1}')
    with pytest.raises(LogicError, match="has changed meanwhile - run the command again"):
        coding_agents.apply(changes)
    assert claude.read_text() == '{"new": 1}'


# --- the skill ------------------------------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inbox: str, claude: Path) -> Path:
    """Return the path of the skill, installed by a version with another text."""
    folder = tmp_path / "older"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: eventq\n---\n\nolder\n")
    with monkeypatch.context() as patched:
        patched.setattr(coding_agents, "SKILL_FOLDER", str(folder))
        coding_agents.apply([*coding_agents.install(CLAUDE, "user", inbox, ["Stop"])])
    return claude.parent / "skills/eventq/SKILL.md"


def shipped() -> str:
    """Return the text of the skill in the package."""
    return (Path(ok("guide", "--path").strip()) / "SKILL.md").read_text()


def test_an_older_skill_is_updated(inbox: str, older: Path) -> None:
    """The text of the package begins the file; no backup is left of what nobody changed."""
    assert coding_agents.skill_state(str(older)) == "older"
    install("--thread", inbox)
    assert older.read_text().startswith(shipped())
    assert coding_agents.skill_state(str(older)) == "current"
    assert [path.name for path in older.parent.iterdir()] == ["SKILL.md"]


def test_a_skill_that_somebody_changed_is_kept(inbox: str, older: Path) -> None:
    """Install leaves a backup of it, and uninstall leaves it where it is."""
    mine = older.read_text() + "\nmine\n"
    older.write_text(mine)
    assert coding_agents.skill_state(str(older)) == "changed"
    assert "(kept: not as 'eventq hooks' wrote it)" in ok("hooks", "uninstall")
    assert older.read_text() == mine
    install("--thread", inbox)
    assert older.read_text().startswith(shipped())
    assert Path(f"{older}{BACKUP}").read_text() == mine


def test_an_older_skill_is_removed(older: Path) -> None:
    """It is eventq's, whatever the version."""
    ok("hooks", "uninstall")
    assert not older.parent.exists()


@pytest.mark.parametrize("part", ["eventq", "eventq/SKILL.md"])
def test_a_link_to_a_skill_is_not_followed(
    inbox: str, claude: Path, older: Path, part: str, tmp_path: Path
) -> None:
    """What is behind it belongs to somebody else, such as another installation of eventq."""
    link, target = older.parent.parent / part, tmp_path / "elsewhere"
    link.rename(target)
    link.symlink_to(target)
    assert "(kept: a link)" in install("--thread", inbox).out
    assert "(kept: not as 'eventq hooks' wrote it)" in ok("hooks", "uninstall")
    assert link.is_symlink()
    assert "older" in older.read_text()


def test_a_copy_by_hand_stays(inbox: str, claude: Path) -> None:
    """The text of the package is as good as what install writes, and is nobody's to remove."""
    skill = claude.parent / "skills/eventq/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(shipped())
    assert coding_agents.skill_state(str(skill)) == "current"
    install("--thread", inbox)
    ok("hooks", "uninstall")
    assert skill.read_text() == shipped()


# --- what is shown --------------------------------------------------------------------------------


def test_a_dry_run_shows_a_diff_and_changes_nothing(inbox: str, home: Path, claude: Path) -> None:
    """`git apply` makes of it what the command would have made."""
    claude.write_text(TEXTS["no last newline"])
    before = everything(home)
    diff = ok("hooks", "install", "--thread", inbox, "--agent", "all", "--dry-run")
    assert everything(home) == before
    assert not (home / ".codex").exists()
    assert diff.count("\n--- /dev/null\n") == 3
    assert f"\n+++ {home}/.codex/hooks.json\n" in diff
    git = shutil.which("git", path=os.defpath)
    assert git
    subprocess.run([git, "apply", "-p1"], input=diff, text=True, check=True, cwd="/")
    patched = claude.read_bytes()
    claude.write_text(TEXTS["no last newline"])
    install("--thread", inbox)
    assert claude.read_bytes() == patched
    assert ok("hooks", "install", "--thread", inbox, "--dry-run") == "Nothing would change\n"
    assert f"\n--- {home}/.codex/hooks.json\n+++ /dev/null\n" in ok(
        "hooks", "uninstall", "--dry-run"
    )
    assert claude.read_bytes() == patched


def test_the_result_as_json_names_every_file(inbox: str, home: Path, claude: Path) -> None:
    """What was done to it, where it is kept, and the difference of a dry run."""
    claude.write_text("{}")
    for words, outcome, is_dry in (
        ("install --dry-run", "changed", True), ("install", "changed", False),
        ("install", "unchanged", False), ("uninstall", "changed", False),
    ):  # fmt: skip
        thread = ["--thread", inbox] if "uninstall" not in words else []
        (found,) = objects(f"hooks {words} --agent claude", *thread)
        assert found["dry_run"] is is_dry
        assert len(found["advice"]) == ((words, outcome) == ("install", "changed"))
        first = found["files"][0]
        assert (first["agent"], first["path"], first["outcome"]) == ("claude", str(claude), outcome)
        assert first["backup"] == (None if outcome == "unchanged" else f"{claude}{BACKUP}")
        assert ("diff" in first) is is_dry
        assert found["files"][1]["path"] == f"{home}/.claude/skills/eventq/SKILL.md"
    claude.write_text("[]")
    done = run("hooks install --json --thread", inbox)
    assert (done.code, done.out) == (1, "")
    assert json.loads(done.err)["suggestion"] == "correct it, or move it away"


def test_help_says_which_events_are_stored() -> None:
    """Those of each tool are not, and the help says why."""
    done = run("hooks install", "--help")
    assert "such as PreToolUse and PostToolUse, are many" in " ".join(done.out.split())

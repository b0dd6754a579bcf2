"""The documents are true: examples are executed, links resolve, generated parts are up to date."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

import eventq
from tests import reference
from tests.docs.story import tell
from tests.docs.support import (
    FENCED,
    ROOT,
    anchors,
    blocks,
    environ,
    read,
    same,
    section,
    steps,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Until

PROSE = [
    *(str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])),
    "eventq/skill/eventq/SKILL.md", "vitest-parity/README.md",
]  # fmt: skip
GUIDES = [
    "USAGE.md", "docs/tutorial.md", "docs/cookbook.md", "docs/troubleshooting.md",
    *(name for name in PROSE if name.startswith("docs/guides/")),
]  # fmt: skip
COLUMNS = 100
INTERNAL = {
    "EVENTQ_COMPLETE",
    "EVENTQ_DISPATCH_AFTER",
    "EVENTQ_DISPATCH_FD",
    "EVENTQ_HOOK_KEY",
    "EVENTQ_HOOK_SESSION",
    "EVENTQ_JSON_",
}
HELLO = json.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "stub", "version": "1"},
    },
}) + "\n"  # fmt: skip
SETTINGS = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
STUB = """#!/bin/sh
[ "$1 $2 $3 $4" = 'mcp add eventq --' ] || { echo "unexpected: $*" >&2; exit 2; }
shift 4
exec "$@"
"""
_FRONT = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_generated_parts_are_up_to_date() -> None:
    """The module tree, command reference and diagrams are what `make reference` writes."""
    for name, text in reference.documents().items():
        assert read(name) == text


def test_the_story_of_the_readme_happens_as_printed(tmp_path: Path, until: Until) -> None:
    """Pasted in an empty directory: a handler is killed while it asks, and a person answers."""

    def answer(link: str) -> None:
        with httpx.Client(timeout=60, follow_redirects=True) as browser:
            page = browser.get(link)
            assert "May coder deploy?" in page.text
            (csrf,) = set(re.findall('name="csrf" value="([^"]*)"', page.text))
            form = {"csrf": csrf, "id": "2", "text": "approve"}
            headers = {"referer": str(page.url)}
            done = browser.post(page.url.join("do/answer"), data=form, headers=headers)
            assert done.status_code == 200, done.text

    shown, printed = tell(tmp_path, answer, until)
    assert same(shown.splitlines(), printed.splitlines()), printed


def test_the_program_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    """The program of README.md prints what the text says, and is at most ten lines long."""
    start = section(read("README.md"), "In Python")
    (script,) = blocks("python", start)
    assert len(script.splitlines()) <= 10
    (tmp_path / script.splitlines()[0].removeprefix("# ")).write_text(script)
    done = subprocess.run(
        ["python", "main.py"],
        cwd=tmp_path,
        env=environ(PYTHONUNBUFFERED=""),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "run `python main.py`, which prints `hello`." in " ".join(start.split())
    assert done.stdout == "hello\n"


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_commands_for_an_agent_connect_it(tmp_path: Path, agent: str) -> None:
    """Those of README.md set up a server that answers and a hook that sends, for each agent.

    The agent is a stub: `NAME mcp add SERVER -- COMMAND...` says hello to the command.
    """
    start = section(read("README.md"), "Claude Code or Codex, in two commands")
    assert "For Codex write `codex` in place of `claude`." in " ".join(start.split())
    (script,) = blocks("sh", start)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / agent).write_text(STUB)
    (folder / agent).chmod(0o755)
    env = environ(HOME=str(tmp_path), CLAUDE_CONFIG_DIR="", CODEX_HOME="")
    env["PATH"] = f"{folder}:{env['PATH']}"

    def shell(command: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", command], input=stdin, cwd=tmp_path, env=env, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    shell("eventq init ~/desk")
    printed = shell(script.replace("claude", agent), HELLO).splitlines()
    assert json.loads(printed[0])["result"]["serverInfo"]["name"] == "eventq"
    hooks = json.loads((tmp_path / SETTINGS[agent]).read_text())["hooks"]
    ((hook,),) = (one["hooks"] for one in hooks["UserPromptSubmit"])
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "hello"}
    shell(hook["command"], json.dumps(prompt | {"cwd": str(tmp_path)}))
    assert "hello" in shell("eventq tail --thread ~/desk")
    shell("EVENTQ_THREAD=elsewhere eventq hooks uninstall --thread ~/desk")
    assert not (tmp_path / SETTINGS[agent]).exists()


COOKBOOK = read("docs/cookbook.md")
RECIPES = {title: section(COOKBOOK, title) for title in re.findall(r"(?m)^## (.*)$", COOKBOOK)}
STORIES = {
    **{name: read(name) for name in GUIDES if name != "docs/cookbook.md"},
    **{title: text for title, text in RECIPES.items() if blocks("console", text)},
}  # each is told in a directory of its own


@pytest.mark.parametrize("story", STORIES)
def test_console_examples_print_what_is_shown(tmp_path: Path, story: str) -> None:
    """The examples of a guide, or of one recipe, run in order, print what is shown below them."""
    env = environ(HOME=str(tmp_path), CLAUDE_CONFIG_DIR="", CODEX_HOME="")
    assert blocks("console", STORIES[story])
    for block in blocks("console", STORIES[story]):
        for command, expected in steps(block):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                env[name] = value
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=120,
            )
            actual = (done.stdout + done.stderr).splitlines()
            if done.returncode:
                actual.append(f"[exit {done.returncode}]")
            assert same(expected, actual), f"{command}\nprinted\n" + "\n".join(actual)


@pytest.mark.parametrize("block", [one for name in GUIDES for one in blocks("python", read(name))])
def test_each_python_block_of_a_guide_runs_alone(tmp_path: Path, block: str) -> None:
    """A block that is pasted into a new file, in an empty directory, is a whole program."""
    (tmp_path / "pasted.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "pasted.py"], cwd=tmp_path, env=environ(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", [one for one in GUIDES if one != "docs/tutorial.md"])
def test_the_contents_of_a_guide_are_its_sections(name: str) -> None:
    """A guide lists every section, in the order in which they follow, under its heading."""
    text = FENCED.sub("", read(name))
    listed = re.findall(r"^- \[(.*)\]\(#.*\)$", text.split("\n## ", 1)[0], re.MULTILINE)
    assert listed == re.findall(r"^## (.*)$", text, re.MULTILINE)


def handler(name: str) -> str:
    """Return the shell handler that a guide shows."""
    (command,) = (
        command
        for block in blocks("console", read(name))
        for command, _ in steps(block)
        if command.startswith("cat > work.sh")
    )
    return command.partition("\n")[2].rpartition("EOF")[0]


@pytest.mark.parametrize("name", ["docs/guides/workers.md"])
def test_handlers_of_the_guides_ack_any_event(tmp_path: Path, name: str) -> None:
    """The printed shell handler gets each event once, even if its text looks like escapes."""
    inbox = eventq.init(tmp_path / "inbox")
    with eventq.open(inbox) as thread:
        thread.subscribe("worker", "true", from_now=True)
        for content in ("one", "a\nb\\c\\n\t\\", '"}\n{"id":9,', "\\0"):
            thread.push("self", "message", content)
        stored = [event.content for event in thread.peek()]
    given = environ(
        EVENTQ_NOTIFIER="none",
        EVENTQ_THREAD=inbox,
        EVENTQ_CONSUMER="worker",
        EVENTQ_LAST_ACKED_ID="0",
    )
    done = subprocess.run(
        ["sh", "-c", handler(name)], env=given, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["content"] for line in done.stdout.splitlines()] == stored
    with eventq.open(inbox) as thread:
        assert thread.status().consumers[0].last_acked_id == 4


@pytest.mark.parametrize("name", [*PROSE, "examples/demo-postgres.sh"])
def test_no_loop_waits_for_ever(name: str) -> None:
    """What a reader pastes counts how often it looks: a loop that sleeps ends by itself."""
    loops = re.findall(r"^[$> ]*((?:until|while)\b(?:.*\n)*?.*\bdone\b)", read(name), re.MULTILINE)
    assert [loop for loop in loops if "sleep" in loop] == []


@pytest.mark.parametrize("name", PROSE)
def test_links_resolve(name: str) -> None:
    """Every relative link leads to a file that exists, and to a heading in it."""
    for link in _LINK.findall(FENCED.sub("", read(name))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_every_document_is_listed() -> None:
    """docs/README.md links to each document below docs/, once; SPEC.md to the pages of promises."""
    here = ROOT / "docs"
    listed = [link for link in _LINK.findall(read("docs/README.md")) if link[0] not in "#."]
    documents = {path.relative_to(here).as_posix() for path in here.rglob("*.md")} - {"README.md"}
    promises = {name for name in documents if name.startswith("spec/")}
    assert sorted(listed) == sorted(documents - promises)
    assert {f"docs/{name}" for name in promises} <= {*_LINK.findall(read("SPEC.md"))}


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_at_most_100_columns_wide(name: str) -> None:
    """Lines of prose fit; tables, output and other fenced blocks may be wider."""
    lines = FENCED.sub("", _FRONT.sub("", read(name))).splitlines()
    wide = [line for line in lines if len(line) > COLUMNS and not line.lstrip().startswith("|")]
    assert wide == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [("README.md", 116), ("CONTRIBUTING.md", 150), ("USAGE.md", 400), ("SPEC.md", 300)],
)
def test_what_is_read_first_is_short(name: str, lines: int) -> None:
    """A page that everybody reads to its end has at most so many lines."""
    assert len(read(name).splitlines()) <= lines


@pytest.mark.parametrize("name", PROSE)
def test_nothing_is_installed_from_an_index(name: str) -> None:
    """There is no release yet: what a document tells to install comes from a clone."""
    installed = re.findall(r"pip install ([^`\n]*)", read(name))
    assert [what for what in installed if not re.match(r"(-e )?'?\.", what)] == []


def test_glossary_defines_each_term_once() -> None:
    """The terms of the glossary are in alphabetical order, without repeats."""
    terms = anchors(read("docs/glossary.md"))[1:]
    assert terms == sorted(set(terms))


def promises() -> dict[str, tuple[str, dict[str, str]]]:
    """Return each page of promises by its number: its path, and its promises by theirs."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for path in ROOT.glob("docs/spec/*.md"):
        text = FENCED.sub("", path.read_text())
        title = re.match(r"# (\d+)\. ", text)
        assert title is not None, path
        assert title[1] not in found
        _, *parts = re.split(r"^(\d+)\. ", text, flags=re.MULTILINE)
        found[title[1]] = (
            str(path.relative_to(ROOT)),
            dict(zip(parts[::2], parts[1::2], strict=True)),
        )
        assert len(found[title[1]][1]) * 2 == len(parts), path
    return found


def test_promises_are_numbered_without_gaps() -> None:
    """Pages of promises and promises on them are numbered 1, 2, 3, …, and references exist."""
    pages = promises()
    assert sorted(map(int, pages)) == [*range(1, 18)]
    for number, (_, items) in pages.items():
        assert [*items] == [str(n) for n in range(1, len(items) + 1)], number
    for name in PROSE:
        text = FENCED.sub("", read(name))
        if name.startswith("docs/spec/") or name == "docs/glossary.md":
            groups = r"\((\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*)\)"
            for group in re.findall(groups, text):
                for number, _, item in (one.partition(".") for one in group.split(", ")):
                    assert not item or item in pages[number][1], group
        for number, item, page in re.findall(
            r"\[(?:[Ss]ection\s)?(\d+)(?:\.(\d+))?\]\([^)]*?([a-z-]+\.md)\)", text
        ):
            assert pages[number][0] == f"docs/spec/{page}", (name, number, page)
            assert not item or item in pages[number][1], (name, number, item)


def test_each_promise_in_short_names_the_numbered_ones() -> None:
    """A line of SPEC.md links to the promises that it stands for; limits are in them as there."""
    pages = promises()
    text = read("SPEC.md").split("\n## ", 1)[1].split("\n## What it does not promise")[0]
    short = re.split(r"\n(?=- |\| |\|-|\n)", text)
    said = [one for one in short if one.startswith(("- ", "| ")) and "| What |" not in one]
    assert len(said) > 40
    for one in said:
        names = re.findall(r"\[(\d+)\.(\d+)\]\(docs/spec/", one)
        assert names, one
        if one.startswith("| "):
            whole = " ".join(pages[page][1][item] for page, item in names).replace(",", "")
            for limit in re.findall(r"\d[\d,]* [MG]iB|\d[\d,]*\d", one.split("|")[2]):
                assert re.search(rf"\b{limit.replace(',', '')}\b", whole), (one, limit)


def test_promises_are_short_sentences() -> None:
    """A sentence of a promise has at most 30 words, code and links counted as one each."""
    for path in ROOT.glob("docs/spec/*.md"):
        text = re.sub(r"^ *\|.*$", "", FENCED.sub("", path.read_text()), flags=re.MULTILINE)
        for part in re.split(r"\n\s*\n|\n(?=\s*(?:\d+\.|-) )", re.sub(r"`[^`]*`", "`X`", text)):
            for sentence in re.split(r'(?<=[.!?:;])\s+(?=[A-Z0-9`"(])', " ".join(part.split())):
                assert len(sentence.split()) <= 30, (path, sentence)


def test_environment_variables_are_documented() -> None:
    """docs/reference.md has every variable that the package reads or sets, and no other."""
    used = {
        name
        for path in (ROOT / "eventq").rglob("*.py")
        for name in re.findall(r"EVENTQ_[A-Z_]+", path.read_text())
    }
    assert set(re.findall(r"EVENTQ_[A-Z_]+", read("docs/reference.md"))) == used - INTERNAL

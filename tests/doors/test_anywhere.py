"""What a command prints for a thread at a URL is what it prints for one in a directory.

The kind: a command that takes a thread behaves otherwise, because the thread is in PostgreSQL, than
the documents say. Members: it refuses the URL; it takes it for a path, and looks for or makes
folders; it reads a file that is not there; it prints another text, status or order; it has a
traceback; it does so where a directory names the thread, or where the thread stands first, or is
that of the environment.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from eventq.cli.groups import every
from tests.doors.support import run
from tests.servers import fresh

if TYPE_CHECKING:
    from pathlib import Path

BIG = "".join(f"{number}\n" for number in range(20_000))
SESSION = (
    '{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"/x"}\n'
    '{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00Z",'
    '"message":{"role":"user","content":"hé"}}\n'
    '{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:01Z",'
    '"message":{"role":"assistant","content":"one"}}\n'
    '{"type":"message","id":"c","parentId":"a","timestamp":"2026-01-01T00:00:02Z",'
    '"message":{"role":"assistant","content":"two"}}\n'
)
# Commands in order, with what they get on stdin after a `<`. A blank in a word is a `_`.
STORY = """
push hello
push --json --type record --subtype decision <{"a":1}
push --batch <{"source":"self","type":"log","content":"b"}
push --stream --lines --type log <one
push --key k --content keyed
push --key k --content keyed
push --key k --key-strict --content other
tail --since 1h
peek --last-event-id 0 --filter type='log'
peek --last-event-id 0 --filter nope=1
subscribe --consumer mail
subscribe --consumer logs --filter type='log'
pop --consumer mail
pop --consumer mail --last-event-id 2
ack --consumer mail --last-event-id 99
ack --consumer mail --last-event-id 3
claim --consumer logs --limit 1 --worker w --lease 1h
claims ls
dead ls
dead retry --consumer logs --all
dead drop --consumer logs --all
done 0.1.logs
retry 0.1.logs
extend 0.1.logs --lease 1h
dead add 0.1.logs
dead show --consumer logs 9
pause --consumer mail
resume --consumer mail
info --short
unsubscribe --consumer mail
ask Deploy? --approval
questions
answer 6 approve
questions 6
ask Wait? --wait 0.1s
config
config runs.emit on
config nope 1
context create --name main
context create --name main
turn append main <one
turn append main --content two --key k
turn append main --content two --key k
turn append main --content three --expected-head 1
turn append main --stream <streamed
turn append nope --content x
context fork main --name side --at 2
context fork main --name old
turn append side --content aside
context ls --json
context ls --graph
context show main
context log main
turn last main --json
turn before main --turn 2
turn range main --from 1
turn replay main
turn patch 2 --content patched
turn show 2 --json
turn show 99
turn diff main --with side
turn opened
turn seal 9
turn discard 9
context move main --to 1 --expected-head 9
context move main --to 1
context rm old
turn erase 2 --reason why
turn erase 2 --reason why --everywhere
run start --name solve --prompt fix --label build
run start --name solve --prompt fix --label build
run step build --role coder --content done --meta {"n":2} --key s
run step build --role coder --content done --meta {"n":2} --key s
run show build
run messages build --role coder
run suspend build
run step build --role coder --content late
run resume build
run compact build --summary short
run fork build --at 1 --label retry
run ls --all
run end build --summary green
run cancel retry
run rm retry
run history --date 2026-01-01
blob put <bytes
blob put --json <BIG
blob ls
blob get {blob}
blob stat {blob}
blob pin {blob} --owner me
blob refs {blob}
blob unpin {blob} --owner me
blob verify
blob erase {blob} --everywhere
artifact put --tool make <BIG
artifact cat 0 --offset 101 --limit 2
cat artifact://0 --limit 2
cat artifact://9
output put Scout --content {"a":[1]}
output put --id 0-Scout --content v2
output ls
cat agent://0-Scout
artifact export out
artifact import out
artifact ls
output rm 0-Scout
output rm 0-Scout
capture -- seq 3
capture -- seq 20000
artifact rm 0
artifact erase 1
session import s.jsonl --as s
session import s.jsonl --as s
session import sessions
session import sessions --json
session import sessions
session import sessions
session import sessions --json
session ls
session ls --project /x --since 2026-01-01 --tool pi --json
session ls --tool vi
session show s
session show s --tree
session cat s
session diff s s/b
session export s
session export s --output copy.jsonl
session fork s --at a --out fork.jsonl
session rm other/b
session rm other
session rm other
push the_secret_word
find --text - <the_secret_word
event erase 11 --reason secret
find --text - --erase --yes <the_secret_word
erasures
gc --grace 0s
gc --grace 0s --apply
gc --reachable turn:1
usage
usage --context s
pack export pack
pack import pack
hook <{"hook_event_name":"Stop","session_id":"s"}
prune --keep-last 1 --dry-run
prune --keep-last 1
check
top
doctor
info
"""
ELSEWHERE = {  # commands that are tried in other files, take no thread, or are refused there
    "completion", "dispatch", "guide", "hooks install", "hooks uninstall", "init", "mcp",
    "mirror follow", "mirror rebuild", "mirror recover", "run watch", "serve", "service systemd",
    "sql", "thread copy", "thread ls", "thread rm", "ui", "work",
}  # fmt: skip


def told(place: str, way: str, folder: Path) -> list[tuple[str, int, str, str]]:
    """Run the story; return what each command printed, without times, hashes and the place."""
    os.chdir(folder)
    (folder / "s.jsonl").write_text(SESSION)
    (folder / "sessions").mkdir()
    (folder / "sessions" / "other.jsonl").write_text(SESSION.replace('"s"', '"other"'))
    found, blob = [], ""
    for line in STORY.strip().splitlines():
        words, _, given = line.replace("{blob}", blob).partition(" <")
        name = next(name for name in every() if f"{words} ".startswith(f"{name} "))
        rest = [word.replace("_", " ") for word in words.removeprefix(name).split()]
        where = {"option": ["--thread", place], "first": [place], "environment": []}[way]
        more = {"EVENTQ_THREAD": place} if way == "environment" else {}
        rest = [*rest, *where] if way == "option" and "--" not in rest else [*where, *rest]
        done = run(name, *rest, given=given.replace("BIG", BIG).replace("_", " "), **more)
        if name == "blob put":
            blob = re.findall("blob:blake3:[0-9a-f]{64}", done.out)[0]
        out, err = shown(done.out, place), shown(done.err, place)
        if name == "blob ls":  # in the order of hashes, some of which are of times
            out = "\n".join(sorted(out.splitlines()))
        found.append((words, done.code, out, err))
    return found


def shown(text: str, place: str) -> str:
    """Return what is printed without what differs from run to run, and from place to place."""
    for one in (os.path.abspath(place), place):
        text = text.replace(f"'{one}'", "THREAD").replace(one, "THREAD")
    text = text.replace(os.getcwd(), "HERE").replace("threads here: THREAD; ", "")
    text = re.sub(r"path +events\.jsonl\n", "", text)  # of the mirror, which a URL has none of
    text = re.sub(r"[\d,]+ bytes", "N bytes", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "TIME", text)
    text = re.sub(r'(_ms"|lag"|timestamp"):[\d.]+', r"\1:N", text)
    text = re.sub(r"\b(\d+)(ms|s|m|h)\b", "SPAN", text)
    text = re.sub(
        r"\b[0-9a-f]{64}|[0-9a-f]{32}\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "X", text
    )
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_every_command_is_in_the_story_or_elsewhere() -> None:
    """A new command is tried with a URL, too."""
    lines = STORY.strip().splitlines()
    told = {name for name in every() for line in lines if f"{line} ".startswith(f"{name} ")}
    assert told | ELSEWHERE == {*every()}
    assert told & ELSEWHERE == set()


@pytest.mark.timeout(600)  # some 300 commands
@pytest.mark.parametrize(
    ("way", "named"),
    [
        ("option", False),
        pytest.param("first", False, marks=pytest.mark.soak),
        pytest.param("environment", True, marks=pytest.mark.soak),
    ],
)
def test_a_thread_is_a_thread(
    inbox: str,
    postgres: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    *,
    named: bool,
) -> None:
    """By its URL, or by a directory that names it, and in a directory: the same words."""
    monkeypatch.chdir(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    shutil.move(inbox, here / "inbox")
    expected, place = told("inbox", way, here), fresh(postgres)
    if named:
        (there / "inbox").mkdir()
        (there / "inbox" / "thread.url").write_text(place)
        place = "inbox"
    for one, other in zip(told(place, way, there), expected, strict=True):
        assert one == other
    assert not [name for name in os.listdir(there) if name.startswith("postgres")]
    assert "Traceback" not in str(expected)

"""Commands for artifacts, outputs, URLs, sessions and copies: output, status, bytes."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from blake3 import blake3

import eventq
from eventq.cli import groups, render, show
from eventq.records.artifact import ArtifactInfo, OutputInfo
from eventq.records.session import SessionForked, SessionImported
from eventq.records.turn import Imported
from tests.doors.support import (
    EVENTQ,
    LARGE,
    MIXED,
    NOWHERE,
    Done,
    environ,
    objects,
    ok,
    raw_run,
    refused,
    run,
    split,
)
from tests.engines import sqlite

if TYPE_CHECKING:
    from tests.conftest import Until

ARTIFACT_FIELDS = [*ArtifactInfo._fields, "url"]
OUTPUT = [
    name
    for word in ("artifact", "output", "cat", "capture", "session")
    for name in groups.every()
    if name.split()[0] == word
]
OUTPUT_FIELDS = [*OutputInfo._fields, "url"]
NUMBERS = b"".join(b"%d\n" % n for n in range(1, 5001))
FINDINGS = '{"findings": [{"file": "a.py"}, {"file": "é"}]}'
PIXELS = bytes(range(256)) * 8
IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PIXELS).decode()}
SESSION = b"".join(
    json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    for entry in (
        {"type": "session", "version": 3, "id": "abc", "cwd": "/x"},
        {
            "type": "message",
            "message": {"role": "user", "content": [{"type": "text", "text": "é"}, IMAGE]},
        },
        {"type": "message", "message": {"role": "assistant", "content": "done"}},
    )
)
STAMP = re.compile(r"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


@pytest.fixture
def box(tmp_path: Path) -> str:
    """A thread with artifacts 0 (5000 lines), 1 (empty), 2 (failed), 0-Scout in two versions."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread, thread.write():
        thread.artifacts.put(NUMBERS, "seq")
        thread.artifacts.put(MIXED, "dump")
        broken = thread.artifacts.allocate("make")
        broken.write(b"half a line")
        broken.fail("it broke\nin two")
        thread.outputs.put("Scout", FINDINGS)
        thread.outputs.publish("0-Scout", "two\nlines")
        thread.contexts.create("main").append("see artifact://1")
    return path


def bare(text: str) -> list[str]:
    """Return lines without the times that they end with."""
    assert all(STAMP.search(line) for line in text.splitlines())
    return [STAMP.sub("", line) for line in text.splitlines()]


def noted(*words: str) -> tuple[bytes, str]:
    """Run eventq, which must succeed, and give its bytes and what it notes beside them."""
    done = raw_run(*words)
    assert done.returncode == 0
    return done.stdout, done.stderr.decode()


def state(path: str) -> list[Any]:
    """Return what a command may change."""
    with eventq.open(path, read_only=True) as thread:
        made = list(thread.artifacts), list(thread.outputs), list(thread.contexts)
        return [*made, len(thread.blobs)]


def without_stdin(*words: str) -> Done:
    """Run eventq with stdin closed."""
    script = 'exec "$@" <&-'
    done = subprocess.run(
        ["sh", "-c", script, "sh", EVENTQ, *split(words[:1]), *words[1:]], capture_output=True,
        env=environ(), timeout=300,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def _powerless() -> None:
    """Make the next program obey permissions, even as root."""
    if os.geteuid() == 0:
        for right in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP


def obedient(*words: str, given: bytes = b"") -> Done:
    """Run eventq as somebody whom permissions stop."""
    done = subprocess.run(
        [EVENTQ, *split(words[:1]), *words[1:]], input=given, capture_output=True, env=environ(),
        timeout=300, preexec_fn=_powerless,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


# --- artifacts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", MIXED + LARGE, NUMBERS], ids=["empty", "binary", "text"])
def test_the_bytes_of_an_artifact_come_out_as_they_went_in(
    box: str, tmp_path: Path, data: bytes
) -> None:
    """An artifact from a file or stdin, by number or URL, whole or as JSON, is unchanged."""
    source = tmp_path / "source"
    source.write_bytes(data)
    assert ok("artifact put", str(source), "--thread", box) == "artifact://3\n"
    for number, words in ((4, ["-"]), (5, []), (6, ["--tool", "b/a sh"])):
        (told,) = objects("artifact put", *words, "--thread", box, given=data)
        assert list(told) == ARTIFACT_FIELDS
        expected = (f"artifact://{number}", str(number), "sealed")
        assert (told["url"], told["artifact_id"], told["status"]) == expected
        said = (told["size"], told["tool"])
        assert said == (len(data), "b_a_sh" if words and words != ["-"] else "tool")
    for words in (
        ["cat", "artifact://3"],
        ["artifact", "cat", "4"],
        ["artifact", "cat", "artifact://5"],
    ):
        assert noted(*words, "--thread", box) == (data, "")
    (told,) = objects("cat artifact://6 --thread", box)
    found = told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    assert found == data
    wanted = ["artifact://6", None, True]
    assert [told[name] for name in ("url", "next_offset", "complete")] == wanted


def test_artifacts_are_listed_a_line_each(box: str) -> None:
    """`artifact ls` lists by number: URL, status, size, lines, tool, time, or JSON."""
    assert bare(ok("artifact ls --thread", box)) == [
        "artifact://0  sealed  23,893 bytes  5,000 lines  seq",
        "artifact://1  sealed  771 bytes  4 lines  dump",
        "artifact://2  failed  11 bytes  1 line  make",
    ]
    listed = objects("artifact ls --thread", box)
    assert [list(one) for one in listed] == [ARTIFACT_FIELDS] * 3
    assert (listed[2]["error"], listed[2]["hash"]) == ("it broke\nin two", None)
    with eventq.open(box) as thread:
        assert listed == [render.produced(one) for one in thread.artifacts]


def test_no_artifacts_and_no_outputs_are_no_lines(tmp_path: Path) -> None:
    """Of a fresh thread both lists are empty, in text and in JSON."""
    path = eventq.init(tmp_path / "fresh")
    for words in (["artifact", "ls"], ["output", "ls"]):
        for form in ([], ["--json"]):
            assert ok(*words, *form, "--thread", path) == ""


def test_a_deleted_artifact_leaves_its_number_unused(box: str) -> None:
    """`artifact rm` takes a number or a URL; the number is never used again."""
    assert ok("artifact rm 2 --thread", box) == "Deleted artifact://2\n"
    assert objects("artifact rm artifact://1 --thread", box) == [{"artifact_id": "1"}]
    assert ok("artifact put --thread", box, given="x") == "artifact://3\n"
    assert [one["artifact_id"] for one in objects("artifact ls --thread", box)] == ["0", "3"]
    done = run("artifact rm 1 --thread", box)
    assert (
        done.err
        == "Error: Artifact 1 not found. Available: 0, 3 - give a number that was printed or listed\n"
    )
    assert (done.code, done.out) == (1, "")


def test_what_cannot_be_read_makes_no_artifact(box: str, tmp_path: Path) -> None:
    """A missing file, a folder, an empty name and a closed stdin use no number."""
    before = state(box)
    done = run("artifact put", str(tmp_path / "none"), "--thread", box)
    refused(1, "could not be read: No such file", done)
    done = run("artifact put", str(tmp_path), "--thread", box)
    refused(1, "could not be read: Is a directory", done)
    refused(2, "FILE is empty", run("artifact put", "", "--thread", box))
    refused(2, "--tool is empty", run("artifact put --tool", "", "--thread", box, given="x"))
    refused(1, "stdin is closed", without_stdin("artifact put --thread", box))
    refused(1, "stdin is closed", without_stdin("output put x --thread", box))
    assert state(box) == before
    assert ok("artifact put --thread", box, given="x") == "artifact://3\n"


def begin(box: str, until: Until) -> subprocess.Popen[bytes]:
    """Start to store 5 MiB as artifact 3; return the command once some of it is stored."""
    put = subprocess.Popen(
        [EVENTQ, "artifact", "put", "--tool", "slow", "--thread", box],
        stdin=subprocess.PIPE,
        env=environ(),
    )
    assert put.stdin is not None
    put.stdin.write(b"x\n" * (5 << 19))
    put.stdin.flush()
    with eventq.open(box, read_only=True) as thread:
        until(
            lambda: [a for a in thread.artifacts if a.artifact_id == "3" and a.size],
            "the first bytes are stored",
        )
    return put


def test_what_a_killed_command_had_kept_can_be_read(box: str, until: Until) -> None:
    """During the write an artifact is open and cannot be deleted; after a kill it is partial."""
    put = begin(box, until)
    found, note = noted("cat artifact://3 --thread", box)
    assert set(found) == set(b"x\n")
    assert note == "[Incomplete: artifact://3 is open]\n"
    refused(1, "artifact 3 is still being written", run("artifact rm 3 --thread", box))
    put.kill()
    put.communicate()
    found, note = noted("artifact cat 3 --thread", box)
    assert len(found) >= 1 << 22
    assert note == "[Incomplete: artifact://3 is partial]\n"
    assert "artifact://3  partial  " in ok("artifact ls --thread", box)
    (told,) = objects("cat artifact://3 --limit 1 --thread", box)
    assert (told["text"], told["next_offset"], told["complete"]) == ("x\n", 2, False)
    assert ok("artifact rm 3 --thread", box) == "Deleted artifact://3\n"


def test_an_interrupted_command_leaves_a_failed_artifact(box: str, until: Until) -> None:
    """After Ctrl-C the status is 130, and what had come is there, as failed."""
    put = begin(box, until)
    put.send_signal(signal.SIGINT)
    assert put.wait(60) == 130
    assert put.stdin is not None
    put.stdin.close()
    (told,) = objects("artifact ls --thread", box)[3:]
    assert (told["status"], told["error"]) == ("failed", "it was interrupted")
    assert noted("cat artifact://3 --limit 1 --thread", box)[0] == b"x\n"


# --- URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "out", "note"), [
    ("artifact://0 --limit 2", "1\n2\n",
     "[Showing lines 1-2 of 5000. Use --offset 3 to continue]\n"),
    ("artifact://0 --offset 3 --limit 1", "3\n",
     "[Showing lines 3-3 of 5000. Use --offset 4 to continue]\n"),
    ("artifact://0 --offset 4999 --limit 2", "4999\n5000\n", ""),
    ("artifact://0 --offset 5000", "5000\n", ""),
    ("artifact://0/ --offset 4999 --limit 9", "4999\n5000\n", ""),
    ("ARTIFACT://0 --offset 4999 --limit 1", "4999\n",
     "[Showing lines 4999-4999 of 5000. Use --offset 5000 to continue]\n"),
    ("artifact://2", "half a line", "[Incomplete: artifact://2 is failed (it broke\\nin two)]\n"),
    ("artifact://2/ --limit 1", "half a line",
     "[Incomplete: artifact://2 is failed (it broke\\nin two)]\n"),
    ("agent://0-Scout", FINDINGS, ""), ("agent://0-Scout?version=2", "two\nlines", ""),
    ("agent://0-Scout?version=2 --limit 1", "two\n",
     "[Showing lines 1-1. Use --offset 2 to continue]\n"),
    ("agent://0-Scout?version=2 --offset 2", "lines", ""),
    ("agent://0-Scout?q=.findings[1].file", '"é"\n', ""),
    ("agent://0-Scout/findings/0/file", '"a.py"\n', ""),
])  # fmt: skip
def test_a_url_gives_bytes_on_stdout_and_notes_on_stderr(
    box: str, words: str, out: str, note: str
) -> None:
    """Exactly the requested lines, and a note if there are more, or if it is unfinished."""
    assert noted("cat", *words.split(), "--thread", box) == (out.encode(), note)
    url, *rest = words.split()
    if url.startswith("artifact://") and not url.endswith("/"):
        for name in (url, url.removeprefix("artifact://")):
            assert noted("artifact cat", *rest, name, "--thread", box) == (out.encode(), note)


def test_a_blob_is_a_url_too(box: str) -> None:
    """A ref returns the blob's bytes or lines; JSON has text or base64, and the type."""
    refs = [ok("blob put --thread", box, given=data).strip() for data in (b"a\nb\nc", MIXED)]
    assert noted("cat", refs[1], "--thread", box) == (MIXED, "")
    assert noted("cat", refs[0], "--offset", "2", "--limit", "1", "--thread", box) == (
        b"b\n", "[Showing lines 2-2. Use --offset 3 to continue]\n",
    )  # fmt: skip
    assert objects("cat", refs[0], "--offset", "2", "--limit", "1", "--thread", box) == [
        {
            "url": refs[0],
            "content_type": "application/octet-stream",
            "text": "b\n",
            "next_offset": 3,
            "complete": True,
        }
    ]
    (told,) = objects("cat", refs[1], "--thread", box)
    assert list(told) == ["url", "content_type", "base64", "next_offset", "complete"]
    assert base64.b64decode(told["base64"]) == MIXED
    (told,) = objects("cat agent://0-Scout/findings --thread", box)
    expected = ("application/json", json.loads(FINDINGS)["findings"])
    assert (told["content_type"], json.loads(told["text"])) == expected
    assert objects("cat artifact://2 --thread", box)[0]["complete"] is False


_NUMBER = "give the number that was printed"
_KNOWN = "give artifact://ID, agent://ID or blob:blake3:HASH"
_LISTED = "give a number that was printed or listed"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("file:///etc/passwd", 2, f"'file:///etc/passwd' is not a URL that eventq can read - {_KNOWN}"),
        ("artifact:0", 2, "'artifact:0' has no // - write artifact://ID"),
        ("artifact://x", 2, f"artifact:// ID must be numeric, got: x - {_NUMBER}"),
        ("artifact://9", 1, f"Artifact 9 not found. Available: 0, 1 - {_LISTED}"),
        ("artifact://0 --offset 5001", 1, "there is no line 5001: it has 5,000 lines - give a smaller offset"),
        ("agent://", 2, "agent:// URL requires an output ID: agent://<id> - give a name that was printed or listed"),
        ("agent://0-Scout/a?q=.b", 2, "agent:// URL cannot combine path extraction with ?q= - use one of them"),
        ("agent://0-Scout?q=.a --limit 1", 2, "offset and limit cannot be combined with extraction - leave them out, or read it whole"),
        ("agent://0-Scout?version=0", 2, "version must be a whole number from 1 on, not '0' - see 'eventq output ls'"),
        (f"{NOWHERE}", 1, f"missing blob {NOWHERE} - put its bytes first"),
        ("blob:blake3:xyz", 2, "'blob:blake3:xyz' names no blob - give blob:blake3:<64 lower-case hex digits>"),
        ("artifact://0 --offset 0", 2, "--offset must be a whole number from 1 to 2^63-1, not '0' - give 1 or more"),
        ("artifact://0 --limit x", 2, "--limit must be a whole number from 1 to 2^63-1, not 'x' - give plain digits"),
        ("artifact://0 artifact://1", 2, "Got unexpected extra argument (artifact://1) - run 'eventq cat --help'"),
        ("", 2, "Missing argument 'URL' - run 'eventq cat --help'"),
    ],
)  # fmt: skip
def test_a_wrong_url_is_a_sentence_with_the_next_step(
    box: str, words: str, code: int, says: str
) -> None:
    """An invalid URL is status 2, a missing object status 1, with the exact text."""
    done = run("cat", *words.split(), "--thread", box)
    assert (done.code, done.out, done.err) == (code, "", f"Error: {says}\n")
    told = json.loads(run("cat", *words.split(), "--thread", box, "--json").err)
    assert f"{told['error']} - {told['suggestion']}" == says


def test_an_empty_word_is_no_url(box: str) -> None:
    """An empty URL or number is named; another kind of URL is not an artifact's number."""
    refused(2, "Error: URL is empty - ", run("cat", "", "--thread", box))
    refused(2, "Error: ID is empty - ", run("artifact cat", "", "--thread", box))
    refused(2, "Error: ID is empty - ", run("artifact rm", "", "--thread", box))
    refused(2, "ID must be numeric, got: agent:", run("artifact cat agent://0-Scout --thread", box))


def test_an_unknown_output_is_said_in_two_lines(box: str) -> None:
    """The error has two lines: the requested name, and the available ones."""
    fix = "give a name that was printed or listed"
    done = run("cat agent://nobody --thread", box)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Error: Not found: nobody\nAvailable: 0-Scout - {fix}\n"
    done = run("cat agent://a%0AAvailable:%20b%1B[1m --thread", box)
    assert done.err == f"Error: Not found: a\\nAvailable: b\\x1b[1m\nAvailable: 0-Scout - {fix}\n"
    done = run("cat agent://0-Scout?version=3 --thread", box, "--json")
    assert done.err.count("\n") == 1
    expected = {"error": "Not found: 0-Scout, version 3\nAvailable: 0-Scout", "suggestion": fix}
    assert json.loads(done.err) == expected


def test_other_errors_stay_on_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Only an error that has two lines of its own is shown on two."""
    show.error("a\nb\nc", "d\ne", as_json=False)
    show.error("a\nb\nc", "d\ne", as_json=False, lines=2)
    assert capfd.readouterr().err == "Error: a\\nb\\nc - d\\ne\nError: a\\nb\nc - d\\ne\n"


def test_nothing_was_ever_produced(tmp_path: Path) -> None:
    """In a fresh thread, the error says that there are none yet, and how to create one."""
    path = eventq.init(tmp_path / "fresh")
    for url in ("artifact://0", "agent://0-x"):
        done = run("cat", url, "--thread", path)
        assert (
            done.err
            == "Error: No artifacts directory found - nothing was stored yet: see 'eventq artifact put'\n"
        )
        assert (done.code, done.out) == (1, "")


def test_only_sessions_have_artifacts(tmp_path: Path) -> None:
    """The error says where there are some."""
    path = eventq.init(tmp_path / "fresh")
    with eventq.open(path) as thread:
        for name in ("empty", "s 1", "s-2"):
            thread.contexts.create(name)
        thread.produced.of_session("s 1").outputs.publish("Scout", b"x")
        thread.produced.of_session("s-2").outputs.publish("Scout", b"x")
    for url in ("artifact://0", "agent://0-x"):
        done = run("cat", url, "--thread", path)
        assert done.code == 1
        assert done.err == (
            "Error: No artifacts directory found - sessions have some: give --context or ?session="
            " with one ('s-2', 's 1')\n"
        )


PEAK = """
import sys
from eventq.cli import run
code = run(sys.argv[1:])
with open("/proc/self/status") as file:
    print(code, *(line.split()[1] for line in file if line.startswith("VmHWM")), file=sys.stderr)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is read from /proc")
def test_a_large_artifact_goes_in_and_out_in_bounded_memory(tmp_path: Path) -> None:
    """100 MB are kept, written out and read by lines in less than 80 MB, and come out the same."""
    path, piece = eventq.init(tmp_path / "large"), b"0123456789abcde\n" * 4096
    call = [sys.executable, "-c", PEAK]
    with subprocess.Popen(
        [*call, "artifact", "put", "--thread", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environ(EVENTQ_SYNCHRONOUS="normal"),
    ) as put:  # fmt: skip
        assert put.stdin is not None
        for _ in range(1600):
            put.stdin.write(piece)
        told = [put.communicate()[1].decode()]
    hashes = [hashlib.sha256(piece * 1600).hexdigest()]
    last = 1600 * 4096
    for words, size in (
        ([], 1600 * len(piece)),
        (["--offset", "2", "--limit", str(last - 2)], (last - 2) * 16),
    ):
        with subprocess.Popen(
            [*call, "cat", "artifact://0", *words, "--thread", path],
            stdout=-1,
            stderr=-1,
            env=environ(),
        ) as cat:
            assert cat.stdout is not None
            assert cat.stderr is not None
            hasher, count = hashlib.sha256(), 0
            while data := cat.stdout.read(1 << 20):
                hasher.update(data)
                count += len(data)
            told.append(cat.stderr.read().decode())
        assert count == size
        hashes.append(hasher.hexdigest())
    assert hashes[0] == hashes[1]
    assert told[2].startswith(
        f"[Showing lines 2-{last - 1} of {last}. Use --offset {last} to continue]\n"
    )
    for one in told:
        code, peak = one.splitlines()[-1].split()
        assert code == "0"
        assert int(peak) < 80_000


# --- outputs of agents ----------------------------------------------------------------------------


def test_outputs_are_put_under_names_and_in_versions(box: str, tmp_path: Path) -> None:
    """An output from an option, a file or stdin; a name gets a new number, an id a version."""
    source = tmp_path / "source"
    source.write_bytes(MIXED)
    assert ok("output put He/lper --content x --thread", box) == "agent://1-He_lper\n"
    wanted = "agent://0-Scout.0-sub\n"
    assert ok("output put sub --parent 0-Scout --file", str(source), "--thread", box) == wanted
    (told,) = objects("output put --file - piped --thread", box, given="é")
    assert list(told) == OUTPUT_FIELDS
    expected = ("2-piped", 1, 2, "agent://2-piped")
    assert (told["output_id"], told["version"], told["size"], told["url"]) == expected
    assert (
        ok("output put --id 0-Scout --thread", box, given="third") == "agent://0-Scout?version=3\n"
    )
    assert ok("output put --id 7-new --content", "", "--thread", box) == "agent://7-new\n"
    assert noted("cat agent://0-Scout.0-sub --thread", box)[0] == MIXED
    assert noted("cat agent://0-Scout?version=3 --thread", box)[0] == b"third"
    assert noted("cat agent://0-Scout --thread", box)[0] == FINDINGS.encode()
    lines = [
        f"agent://0-Scout  {len(FINDINGS.encode())} bytes", "agent://0-Scout?version=2  9 bytes",
        "agent://0-Scout?version=3  5 bytes", "agent://0-Scout.0-sub  771 bytes",
        "agent://1-He_lper  1 byte", "agent://2-piped  2 bytes", "agent://7-new  0 bytes",
    ]  # fmt: skip
    assert bare(ok("output ls --thread", box)) == lines
    listed = objects("output ls --thread", box)
    with eventq.open(box) as thread:
        assert listed == [render.produced(one) for one in thread.outputs]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("", 2, "either NAME or --id is needed - give exactly one of the two"),
        ("x --id 0-Scout", 2, "either NAME or --id is needed - give exactly one of the two"),
        ("--id 0-Scout --parent 0-Scout", 2, "--id and --parent exclude each other - give one of them"),
        ("x --content a --file b", 2, "--content and --file exclude each other - give one of them"),
        ("--id @Scout --content a", 2, "'@Scout' is not the id of an output - give one such as 0-Scout, Scout or 0-Scout.1-Helper: letters, digits, _ and -"),
        ("x --file missing", 1, "'missing' could not be read: No such file or directory - check the path, its permissions and the disk"),
        ("x y", 2, "Got unexpected extra argument (y) - run 'eventq output put --help'"),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_put_is_a_sentence(
    box: str, words: str, code: int, says: str
) -> None:
    """Exactly one of name and id, one content, and a valid id; otherwise nothing is stored."""
    before = state(box)
    done = run("output put", *words.split(), "--thread", box, given="x")
    assert (done.code, done.out, done.err) == (code, "", f"Error: {says}\n")
    assert state(box) == before
    for empty in (
        ["", "--content", "x"],
        ["--id", "", "--content", "x"],
        ["x", "--file", ""],
        ["x", "--parent", ""],
    ):
        refused(2, "is empty", run("output put", *empty, "--thread", box))


# --- folders --------------------------------------------------------------------------------------


def test_artifacts_and_outputs_go_to_a_folder_and_to_another_thread(
    box: str, tmp_path: Path
) -> None:
    """Exported and imported, outputs keep numbers, names and versions, and twice adds nothing."""
    folder, other = str(tmp_path / "deep" / "files"), eventq.init(tmp_path / "other")
    done = ok("artifact export", folder, "--thread", box)
    assert done == f"Exported 3 artifacts and 2 outputs to {folder}\n"
    assert objects("artifact export", folder, "--thread", box) == [
        {"folder": folder, "artifacts": 3, "outputs": 2, "files": 0}
    ]
    names = ["0-Scout.md", "0-Scout.v2.md", "0.seq.log", "1.dump.log", "2.make.partial.log"]
    assert sorted(os.listdir(folder)) == names
    assert Path(folder, "1.dump.log").read_bytes() == MIXED
    Path(folder, "README").write_text("something else")
    expected = [
        "0.seq.log -> artifact://0", "1.dump.log -> artifact://1",
        "2.make.partial.log -> artifact://2", "0-Scout.md -> agent://0-Scout",
        "0-Scout.v2.md -> agent://0-Scout?version=2",
        f"README -> blob:blake3:{blake3(b'something else').hexdigest()}",
    ]  # fmt: skip
    assert ok("artifact import", folder, "--thread", other).splitlines() == expected
    before = state(other)
    told = objects("artifact import", folder, "--thread", other)
    assert [f"{one['name']} -> {one['url']}" for one in told] == expected
    assert [list(one) for one in told] == [["name", *ARTIFACT_FIELDS]] * 3 + [
        ["name", *OUTPUT_FIELDS]
    ] * 2 + [["name", "hash", "size", "stored", "codec", "new", "url"]]
    assert state(other) == before
    for url in ("artifact://0", "artifact://1", "agent://0-Scout?version=2"):
        assert noted("cat", url, "--thread", other) == noted("cat", url, "--thread", box)
    assert ok("artifact put --thread", other, given="x") == "artifact://3\n"


def test_a_folder_that_refuses_is_a_sentence(box: str, tmp_path: Path) -> None:
    """A file in place of the folder, no permission, a missing folder: status 1, with a hint."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "0.seq.log").write_text("another")
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "unread").mkdir()
    (tmp_path / "unread" / "3.x.log").touch(mode=0o000)
    step, before = "check the path, its permissions and the disk", state(box)
    for words, says in (
        (["export", "file"], f"'{tmp_path}/file' could not be written: File exists - {step}"),
        (
            ["export", "file/deep"],
            f"'{tmp_path}/file/deep' could not be written: Not a directory - {step}",
        ),
        (
            ["export", "locked"],
            f"'{tmp_path}/locked' could not be written: Permission denied - {step}",
        ),
        (
            ["export", "locked/deep"],
            f"'{tmp_path}/locked/deep' could not be written: Permission denied - {step}",
        ),
        (
            ["export", "taken"],
            f"'{tmp_path}/taken/0.seq.log' exists with other content - give another folder",
        ),
        (
            ["import", "none"],
            f"'{tmp_path}/none' could not be read: No such file or directory - {step}",
        ),
        (["import", "file"], f"'{tmp_path}/file' could not be read: Not a directory - {step}"),
        (
            ["import", "unread"],
            f"'{tmp_path}/unread/3.x.log' could not be read: Permission denied - {step}",
        ),
    ):
        done = obedient("artifact", words[0], str(tmp_path / words[1]), "--thread", box)
        assert (done.code, done.out, done.err) == (1, "", f"Error: {says}\n")
        refused(2, "FOLDER is empty", run("artifact", words[0], "", "--thread", box))
    assert state(box) == before
    assert os.listdir(tmp_path / "locked") == []


# --- session files --------------------------------------------------------------------------------


def test_each_command_numbers_in_a_context(box: str, tmp_path: Path) -> None:
    """With --context every command of artifacts, outputs and URLs is of a session's scope."""
    ok("context create --name s-1 --thread", box)
    ok("context fork s-1 --name retry --thread", box)
    inside = ["--context", "retry", "--thread", box]
    before = ok("artifact ls --thread", box), ok("output ls --thread", box)
    zero, scout = "artifact://0?session=s-1", "agent://0-Scout?session=s-1"
    assert ok("artifact put", *inside, given="one") == f"{zero}\n"
    assert ok("output put Scout --content two", *inside) == f"{scout}\n"
    seen = ok("capture --spill 1 --head 0", *inside, "--", "echo", "three")
    assert seen.endswith("[raw output: artifact://1?session=s-1]\n")
    assert ok("cat artifact://0", *inside) == ok("artifact cat 0", *inside) == "one"
    assert ok("cat", zero, "--thread", box) == ok("artifact cat 0?session=s-1 --thread", box)
    assert ok("cat agent://0-Scout", *inside) == ok("cat", scout, "--thread", box) == "two"
    assert [one["url"] for one in objects("artifact ls", *inside)] == [
        zero, "artifact://1?session=s-1",
    ]  # fmt: skip
    assert ok("output ls", *inside).startswith(scout)
    folder = str(tmp_path / "files")
    done = ok("artifact export", folder, *inside)
    assert done == f"Exported 2 artifacts and 1 output to {folder}\n"
    ok("context create --name other --thread", box)
    made = ok("artifact import", folder, "--context", "other", "--thread", box)
    assert made.splitlines()[0] == "0.tool.log -> artifact://0?session=other"
    assert ok("artifact rm 1", *inside) == "Deleted artifact://1?session=s-1\n"
    assert ok("artifact rm", zero, "--thread", box) == f"Deleted {zero}\n"
    assert ok("artifact ls", *inside) == ""
    assert (ok("artifact ls --thread", box), ok("output ls --thread", box)) == before
    refused(1, "there is no context 'none'", run("artifact ls --context none --thread", box))


def test_a_session_file_comes_out_as_it_went_in(box: str, tmp_path: Path) -> None:
    """A session is imported under its name or a given one, and exported unchanged."""
    file, copy, lines = (
        tmp_path / "s.jsonl",
        tmp_path / "copy.jsonl",
        SESSION.splitlines(keepends=True),
    )
    file.write_bytes(b"".join(lines[:2]))
    take = ["session", "import", str(file), "--thread", box]
    assert ok(*take) == "Imported 2 of 2 entries into context 'abc' (2)\n"
    file.write_bytes(SESSION)
    assert ok(*take) == "Imported 1 of 3 entries into context 'abc' (2)\n"
    assert ok(*take) == "Imported 0 of 3 entries into context 'abc' (2)\n"
    (told,) = objects(*take, "--as", "again")
    assert list(told) == list(SessionImported._fields)
    nothing = {"blobs": 0, "notes": [], "raw": 0, "files": 0, "agents": 0, "generation": 1}
    assert told == {"context_id": 3, "entries": 3, "added": 3, **nothing}
    for name in ("abc", "2", "again"):
        assert noted("session export", name, "--thread", box) == (SESSION, "")
    assert noted("session export abc --output - --json --thread", box) == (SESSION, "")
    assert ok("session export abc --output", str(copy), "--thread", box) == ""
    assert copy.read_bytes() == SESSION
    (told,) = objects("session export 3 --output", str(copy), "--thread", box)
    assert told == {
        "context": 3,
        "size": len(SESSION),
        "output": str(copy),
        "notes": [],
        "files": 0,
    }
    refused(1, "context 'main' is of no session", run("session export main --thread", box))


def test_a_session_is_forked_into_a_new_file(box: str, tmp_path: Path) -> None:
    """The new file, its id and notes are printed; a file that exists and a wrong entry are refused."""
    file = tmp_path / "s.jsonl"
    entry = '{"type":"message","id":"a1","parentId":null,"message":{"role":"user","content":"x"}}\n'
    file.write_bytes(SESSION.splitlines(keepends=True)[0] + entry.encode())
    ok("session import", str(file), "--thread", box)
    own = "99999999-2222-4333-8444-555555555555"
    out = str(tmp_path / f"x_{own}.jsonl")
    told = ok("session fork abc --at a1 --out", out, "--thread", box)
    assert told == f"Forked 'abc' into '{out}': session {own}, 2 lines\n"
    refused(1, f"'{out}' exists", run("session fork abc --out", out, "--thread", box))
    refused(1, "has no entry 'zz'", run("session fork abc --at zz --out .", "--thread", box))
    refused(2, "Missing option '--out'", run("session fork abc", "--thread", box))
    (made,) = objects("session fork abc --title t --cwd /new --out", str(tmp_path), "--thread", box)
    assert list(made) == list(SessionForked._fields)
    head, *_, title = [json.loads(line) for line in Path(made["output"]).read_text().splitlines()]
    assert (head["id"], head["cwd"], title["name"]) == (made["session_id"], "/new", "t")


def test_a_context_without_a_session_replaces_no_file(box: str, tmp_path: Path) -> None:
    """An export that has nothing to write says so, and leaves a file alone."""
    target = tmp_path / "kept.jsonl"
    for more in ([], ["--json"]):
        done = run("session export main --output", str(target), "--thread", box, *more)
        assert (done.code, done.out) == (1, "")
        assert "context 'main' is of no session" in done.err
        assert "'eventq session ls'" in done.err
        assert not more or json.loads(done.err)["error"]
        assert target.exists() == bool(more)
        target.write_text("kept")
    assert target.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir() if "kept" in path.name) == [target.name]


def test_a_torn_session_file_is_kept_and_then_mended(box: str, tmp_path: Path) -> None:
    """A torn last line is exported as it was, with a note, and replaced once complete."""
    file = tmp_path / "torn.jsonl"
    file.write_bytes(SESSION[:-20])
    done = run("session import", str(file), "--thread", box)
    assert (done.code, done.out) == (0, "Imported 3 of 3 entries into context 'abc' (2)\n")
    note = "line 3 is kept as raw text: not JSON, and not ended yet"
    assert done.err == f"{note}\n"
    assert noted("session export abc --thread", box) == (SESSION[:-20], "")
    (told,) = objects("session import", str(file), "--as", "other", "--thread", box)
    assert told["notes"] == [note]
    file.write_bytes(SESSION)
    expected = "Imported 1 of 3 entries into context 'abc' (2)\n"
    assert ok("session import", str(file), "--thread", box) == expected
    assert noted("session export abc --thread", box) == (SESSION, "")


def test_lines_that_are_kept_raw_are_said(box: str, tmp_path: Path) -> None:
    """The number of lines stored as text is a note on stderr, and a field with --json."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(b'{"cost":0.00005,"n":-0}\nplain text\n{"a": 1}\n[2]\n{"b"\n')
    take = ["session", "import", str(file), "--thread", box]
    several = "2 lines, the first is line 2, are kept as raw text: not JSON"
    note = "line 4 is kept as raw text: not an object"
    done = run(*take)
    assert (done.code, done.out) == (0, "Imported 5 of 5 entries into context 's' (2)\n")
    assert done.err == f"{several}\n{note}\n"
    done = run(*take, "--as", "again", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert (told["raw"], told["notes"]) == (3, [several, note])


def test_a_file_that_is_no_session_is_refused(box: str, tmp_path: Path) -> None:
    """Status 2, what to give, and no change."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(bytes(range(256)) * 12)
    before = state(box)
    done = run("session import", str(file), "--thread", box)
    why = "none of its first 13 lines is a JSON object"
    fix = "give a file of one JSON object a line, when its tool has written the first one whole"
    assert (done.code, done.out) == (2, "")
    assert done.err == f"Error: '{file}' is no session file: {why} - {fix}\n"
    assert state(box) == before


def test_blobs_of_another_tool_are_taken_from_its_folder(box: str, tmp_path: Path) -> None:
    """Blobs in the folder are stored; a missing one is noted, and its ref stays."""
    there, gone = hashlib.sha256(PIXELS).hexdigest(), "0" * 64
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / there).write_bytes(PIXELS)
    file = tmp_path / "s.jsonl"
    content = [{**IMAGE, "data": f"blob:sha256:{digits}"} for digits in (there, gone)]
    file.write_text(
        json.dumps({"type": "message", "message": {"content": content}}, separators=(",", ":"))
        + "\n"
    )
    done = run("session import", str(file), "--blobs", str(tmp_path / "blobs"), "--thread", box)
    assert (done.code, done.out) == (0, "Imported 1 of 1 entry into context 's' (2)\n")
    note = f"blob:sha256:{gone} is not in '{tmp_path}/blobs' (No such file or directory): the ref is kept\n"
    assert done.err == note
    assert noted("cat", f"blob:sha256:{there}", "--thread", box) == (PIXELS, "")
    refused(
        1, f"missing blob blob:sha256:{gone}", run("cat", f"blob:sha256:{gone}", "--thread", box)
    )
    assert noted("session export s --thread", box) == (file.read_bytes(), "")


def test_a_blob_that_is_gone_is_noted_beside_the_export(box: str, tmp_path: Path) -> None:
    """Its ref stays in the line; the note is on stderr, with --json and a file in the result."""
    (tmp_path / "s.jsonl").write_bytes(SESSION)
    ok("session import", str(tmp_path / "s.jsonl"), "--thread", box)
    with eventq.open(box) as thread:
        ref = thread.blobs.put(PIXELS).ref
        sqlite(thread.database).run("DELETE FROM blob_refs")
        sqlite(thread.database).run(
            "DELETE FROM blobs WHERE hash = ?", (bytes.fromhex(ref.removeprefix("blob:blake3:")),)
        )
    left = SESSION.replace(IMAGE["data"].encode(), ref.encode())
    note = f"blob {ref} is missing; the line keeps its ref"
    assert noted("session export abc --thread", box) == (left, f"{note}\n")
    target = tmp_path / "target"
    assert noted("session export abc --output", str(target), "--thread", box) == (b"", f"{note}\n")
    assert target.read_bytes() == left
    (told,) = objects("session export abc --output", str(target), "--thread", box)
    assert told["notes"] == [note]


def test_sessions_that_cannot_be_taken_or_given(box: str, tmp_path: Path) -> None:
    """A missing file, a foreign context, and a bad target are errors, and change nothing."""
    file, target = tmp_path / "s.jsonl", tmp_path / "target"
    file.write_bytes(SESSION)
    before = state(box)
    take, give = ["session", "import", "--thread", box], ["session", "export", "--thread", box]
    done = run(*take, str(tmp_path / "none"))
    step = "check the path, its permissions and the disk"
    expected = f"Error: '{tmp_path}/none' could not be read: No such file or directory - {step}\n"
    assert done.err == expected
    refused(
        1,
        "context 'main' has turns that are not lines of this session: turn 1",
        run(*take, str(file), "--as", "main"),
    )
    refused(2, "'12' is a number, not a name", run(*take, str(file), "--as", "12"))
    for words in ([""], [str(file), "--as", ""], [str(file), "--blobs", ""]):
        refused(2, "is empty", run(*take, *words))
    assert state(box) == before
    refused(1, "there is no context 'nobody'", run(*give, "nobody", "--output", str(target)))
    refused(1, "there is no context '9'", run(*give, "9"))
    assert ok(*take, str(file), "--as", "s")
    refused(1, "is not a regular file", run(*give, "s", "--output", str(tmp_path)))
    refused(1, "could not be written", run(*give, "s", "--output", str(tmp_path / "no" / "where")))
    assert sorted(os.listdir(tmp_path)) == ["box", "s.jsonl"]


# --- copies ---------------------------------------------------------------------------------------


def test_a_thread_is_copied_to_another_and_twice_adds_nothing(box: str, tmp_path: Path) -> None:
    """The destination is created with everything, and a second copy adds nothing."""
    other = str(tmp_path / "other")
    assert ok("thread copy", box, other) == (
        "Copied 3 blobs, 1 turn, 1 context, 3 artifacts and 2 outputs; 0 heads moved\n"
    )
    (told,) = objects("thread copy", box, other)
    assert list(told) == list(Imported._fields)
    assert told == dict.fromkeys(told, 0) | {"notes": []}
    assert (
        ok("thread copy", box, other) == "Copied 0 blobs, 0 turns and 0 contexts; 0 heads moved\n"
    )
    for words in (["artifact", "ls"], ["output", "ls"], ["turn", "replay", "main"]):
        assert ok(*words, "--thread", other) == ok(*words, "--thread", box)


@pytest.mark.parametrize(("order", "chosen"), [*enumerate(["main", "1", " 1, main", "main"])])
def test_some_contexts_are_copied_with_what_they_lead_to(
    box: str, tmp_path: Path, order: int, chosen: str
) -> None:
    """Contexts are selected by name or id, with the artifacts that they name."""
    with eventq.open(box) as thread:
        thread.contexts.create("side").append("nothing")
    option, other = ["--contexts", chosen], str(tmp_path / "other")
    words = [box, other]
    words[min(order, 2) : min(order, 2)] = option if order < 3 else [f"--contexts={chosen}"]
    told = ok("thread copy", *words)
    assert told == "Copied 1 blob, 1 turn, 1 context and 1 artifact; 0 heads moved\n"
    assert bare(ok("artifact ls --thread", other)) == [
        "artifact://1  sealed  771 bytes  4 lines  dump"
    ]


def test_a_thread_is_copied_into_a_database_and_back(
    box: str, postgres: str, tmp_path: Path
) -> None:
    """A URL is a destination and a source like a directory, and so is a link to one."""
    one, two = (f"{postgres}&thread={uuid4().hex}" for _ in range(2))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "thread.url").write_text(one)
    back, linked = str(tmp_path / "back"), str(tmp_path / "linked")
    counts = "3 blobs, 1 turn, 1 context, 3 artifacts and 2 outputs; 0 heads moved\n"
    for source, there in ((box, one), (one, two), (two, back)):
        assert ok("thread copy", source, there) == f"Copied {counts}"
        for words in (["artifact", "ls"], ["output", "ls"], ["turn", "replay", "main"]):
            assert ok(*words, "--thread", there) == ok(*words, "--thread", box)
        assert ok("check", there) == "ok\n"
    for source, there in ((box, linked), (linked, box)):
        assert ok("thread copy", source, there).startswith("Copied 0 blobs, 0 turns")
    ok("pack export", str(tmp_path / "pack"), "--thread", linked)
    ok("thread rm", two)
    ok("init", two)
    assert ok("pack import", str(tmp_path / "pack"), "--thread", two) == f"Imported {counts}"
    assert ok("turn replay main --thread", two) == ok("turn replay main --thread", box)
    refused(2, "are the same thread", run("thread copy", one, linked))


def test_a_whole_thread_goes_into_a_database_and_back(
    box: str, postgres: str, tmp_path: Path
) -> None:
    """`--all` brings events, consumers and their progress, says so, and is not for some contexts."""
    url, back = f"{postgres}&thread={uuid4().hex}", str(tmp_path / "back")
    with eventq.open(box) as thread:
        thread.push_many(("self", "note", str(number)) for number in range(3))
        thread.subscribe("w")
        thread.ack("w", 2)
    found = [ok("peek --thread", one) for one in (box,)]
    for source, there in ((box, url), (url, back)):
        said = ok("thread copy --all", source, there)
        assert said.endswith("3 artifacts, 2 outputs, 3 events and 1 consumer; 0 heads moved\n")
        found.append(ok("peek --thread", there))
        assert '"content":"2"' in ok("pop --consumer w --thread", there)
    assert found == [found[0]] * 3
    (told,) = objects("thread copy --all", box, url)
    assert told == dict.fromkeys(Imported._fields, 0) | {"notes": []}
    words = [box, url, "--all", "--contexts", "main"]
    refused(2, "--all and --contexts exclude each other", run("thread copy", *words))
    ok("push --type note --content mine --thread", back)
    refused(1, "event 4 is in the destination, and not", run("thread copy --all", url, back))


def test_a_copy_that_a_database_cannot_take_leaves_nothing(box: str, postgres: str) -> None:
    """Nothing is created for a context that is missing, or in a database without the tables."""
    url = f"{postgres}&thread={uuid4().hex}"
    refused(1, "there is no context 'no'", run("thread copy", box, url, "--contexts", "main,no"))
    assert not eventq.exists(url)
    bare = url.replace("/postgres?", "/template1?")
    refused(1, "there are no tables of eventq in", run("thread copy", box, bare))


def test_a_copy_that_cannot_be_made_makes_nothing(box: str, tmp_path: Path, original: str) -> None:
    """A missing source, context or word is an error, and creates no destination."""
    other, nowhere = str(tmp_path / "other"), str(tmp_path / "nowhere")
    done = run("thread copy", nowhere, other)
    assert done.err.startswith(f"Error: '{nowhere}' is not a thread - threads in {tmp_path}: ")
    assert done.err.endswith(f"; or run 'eventq init {nowhere}' first\n")
    assert done.code == 1
    refused(1, "was written by the original 'thread' tool", run("thread copy", original, other))
    for names in ("main,nobody", "nobody", "7"):
        refused(1, "there is no context '", run("thread copy", box, other, "--contexts", names))
    for words, says in (
        ([box, "", "--json"], '"DST is empty"'),
        ([box, other, "--contexts", "", "--json"], '"--contexts is empty"'),
        ([box, other, "--contexts", "main,,", "--json"], '"--contexts is empty"'),
        ([box, "--json"], "\"Missing argument 'DST'\""),
        (["--json"], "\"Missing argument 'SRC'\""),
        ([box, other, "more", "--json"], '"Got unexpected extra argument (more)"'),
    ):
        done = run("thread copy", *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert f'"error":{says}' in done.err
    (tmp_path / "file").write_text("x")
    refused(1, f"'{tmp_path}/file'", run("thread copy", box, str(tmp_path / "file")))
    refused(
        2,
        "the source and the destination are the same thread",
        run("thread copy", box, f"{box}/../box"),
    )
    assert sorted(os.listdir(tmp_path)) == ["box", "file", "original"]


def test_a_copy_that_would_make_another_artifact_is_a_conflict(box: str, tmp_path: Path) -> None:
    """Where a number is somebody else's already nothing is copied, and the status is 1."""
    other = eventq.init(tmp_path / "other")
    ok("artifact put --thread", other, given="mine")
    before = state(other)
    done = run("thread copy", box, other)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert state(other) == before


# --- all of them ----------------------------------------------------------------------------------

WORDS = {
    "artifact put": [], "artifact cat": ["0"], "artifact ls": [], "artifact rm": ["0"], "artifact erase": ["0"], "artifact export": ["folder"],
    "artifact import": ["."], "output put": ["x"], "output ls": [], "output rm": ["x"], "session rm": ["s"], "cat": ["artifact://0"], "capture": ["--", "true"],
    "session import": ["s"], "session export": ["main"], "session fork": ["main", "--out", "x"],
    "session ls": [], "session show": ["s"], "session cat": ["main"], "session diff": ["a", "b"],
}  # fmt: skip


@pytest.mark.parametrize("name", OUTPUT)
def test_without_a_thread_nothing_is_done(
    tmp_path: Path, original: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path that is not a thread is status 1 with a hint; nothing is created."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").write_bytes(SESSION)
    before = sorted(os.listdir(tmp_path))
    call, nowhere = [*name.split(), *WORDS[name]], str(tmp_path / "nowhere")
    at = call.index("--") if "--" in call else len(call)
    done = run(*call[:at], "--thread", nowhere, *call[at:], given="x")
    assert done.err.startswith(f"Error: '{nowhere}' is not a thread - threads in {tmp_path}: ")
    assert done.err.endswith(f"; or run 'eventq init {nowhere}' first\n")
    assert (done.code, done.out) == (1, "")
    done = run(*call, given="x")
    fix = f"give --thread, set EVENTQ_THREAD, or run 'eventq {name} --help'"
    assert (done.code, done.err.partition(" - ")[0]) == (2, "Error: Missing option '--thread'")
    assert done.err.startswith("threads here: '", done.err.index(" - ") + 3)
    assert done.err.endswith(f"; {fix}\n")
    if name in ("artifact cat", "artifact ls", "artifact export", "output ls", "cat"):
        refused(1, "was written by the original 'thread' tool", run(*call, "--thread", original))
    assert sorted(os.listdir(tmp_path)) == before


def test_reading_changes_nothing(box: str, tmp_path: Path) -> None:
    """Reading commands change no file, and work where nothing may be written."""

    def stamps() -> dict[str, tuple[int, int]]:
        files = [p for p in Path(box).rglob("*") if p.is_file() and not p.name.endswith("-shm")]
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in files}

    def lock(mode: int) -> None:
        for path in (Path(box), *Path(box).rglob("*")):
            path.chmod(mode | 0o100 if path.is_dir() else mode)

    (tmp_path / "s").write_bytes(SESSION)
    (tmp_path / "out").mkdir()
    ok("session import", str(tmp_path / "s"), "--thread", box)
    before, readers = stamps(), (
        "artifact ls", "artifact ls --json", "output ls", "cat artifact://0", "artifact cat 1", "session export abc",
        "cat agent://0-Scout --json", f"artifact export {tmp_path}/out", f"thread copy {box} {tmp_path}/copy",
    )  # fmt: skip
    shown = []
    for form in (0o600, 0o400):
        lock(form)
        for words in readers:
            thread = [] if words.startswith("thread copy") else ["--thread", box]
            done = subprocess.run([EVENTQ, *words.split(), *thread], capture_output=True, env=environ(), timeout=300, preexec_fn=_powerless)  # fmt: skip
            assert (done.returncode, done.stderr) == (0, b""), words
            shown.append(done.stdout)
    assert shown[: len(readers) - 1] == shown[len(readers) : -1]
    assert stamps() == before
    for words in ("artifact put", "artifact rm 0", "output put x", f"artifact import {tmp_path}/out", f"session import {tmp_path}/s --as new"):  # fmt: skip
        refusal = obedient(*words.split(), "--thread", box, given=b"x")
        refused(1, "cannot be written", refusal)
    lock(0o600)
    assert stamps() == before


MUCH = (
    "cat artifact://3", "artifact cat 3 --offset 2 --limit 150000", "cat artifact://3 --json", "session export long",
    "artifact ls", "output ls --json",
)  # fmt: skip


def test_a_reader_that_has_gone_is_no_error(box: str, tmp_path: Path) -> None:
    """`| head` ends every command that writes much quietly, with status 0; a closed stdout fails."""
    (tmp_path / "long.jsonl").write_bytes(b'{"type":"x"}\n' * 20_000)
    with eventq.open(box) as thread, thread.write():
        thread.artifacts.put(NUMBERS * 40)
        thread.sessions.import_file(str(tmp_path / "long.jsonl"), name="long")
        for _ in range(1000):
            thread.artifacts.put(b"")
            thread.outputs.put("x" * 60, b"")
    for words, (script, code, error) in product(
        MUCH,
        (
            ("| head -c 1 > /dev/null; echo ${PIPESTATUS[0]}", "0\n", ""),
            (">&-; echo $?", "1\n", "stdout could not be written: Bad file descriptor"),
        ),
    ):
        done = subprocess.run(["bash", "-c", f"{EVENTQ} {words} --thread {box} {script}"], capture_output=True, text=True, env=environ(), timeout=300)  # fmt: skip
        assert done.stdout == code, words
        assert error in done.stderr if error else not done.stderr, words


def test_what_was_added_in_words() -> None:
    """Blobs, turns and contexts are always told, artifacts and outputs where there are any."""
    assert render.added(Imported(1, 2, 0, 1, ())) == "1 blob, 2 turns and 0 contexts; 1 head moved"
    expected = "0 blobs, 0 turns, 0 contexts and 1 artifact; 0 heads moved"
    assert render.added(Imported(0, 0, 0, 0, (), 1, 0)) == expected
    assert render.added(Imported(0, 0, 0, 0, (), 0, 2)).startswith(
        "0 blobs, 0 turns, 0 contexts and 2 outputs; "
    )

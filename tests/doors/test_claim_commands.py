"""The commands of claims and of dead letters, as a shell script uses them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.cli import claims, show
from tests.doors.support import EVENTQ, environ, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inbox(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread of four events, with a consumer that has one attempt for each."""
    monkeypatch.setenv("EVENTQ_THREAD", path)
    monkeypatch.setenv("EVENTQ_CONSUMER", "w")
    run("subscribe", "--max-attempts", "1")
    lines = "".join(f'{{"source":"self","type":"note","content":"{n}"}}\n' for n in range(1, 5))
    run("push", "--batch", given=lines)
    return path


def claim(*options: str) -> list[dict[str, Any]]:
    """Return the lines that `claim` prints."""
    done = run("claim", *options)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def tokens(*options: str) -> list[str]:
    """Claim events and return the tokens."""
    return [one["token"] for one in claim(*options)]


def info() -> dict[str, Any]:
    """Return what `info` says of the consumer."""
    found: dict[str, Any] = json.loads(run("info", "--json").out)["subscriptions"][0]
    return found


@pytest.mark.usefixtures("inbox")
def test_a_claim_is_a_line_with_its_token_and_event() -> None:
    """Nothing is printed when there is none, which is no failure."""
    first, second = claim("--limit", "2")
    assert [*first] == ["token", "attempt", "deadline_ms", "event"]
    assert (first["attempt"], first["event"]["content"], second["event"]["id"]) == (1, "1", 2)
    assert len(claim("--limit", "9")) == 2
    done = run("claim")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.usefixtures("inbox")
def test_a_claim_is_repeated_with_its_nonce() -> None:
    """As a script does that was killed before it knew what it has."""
    assert tokens("--nonce", "n1") == tokens("--nonce", "n1") != tokens("--nonce", "n2")


def claim_into(where: str, *options: str) -> tuple[int, str]:
    """Return exit status and stderr of a claim of everything whose output is not read."""
    words = [EVENTQ, "claim", "--limit", "4", *options]
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full, open(writer, "wb") as gone:
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *words] if where == "closed" else words,
            stdout=gone if where == "gone" else full, stderr=subprocess.PIPE, text=True,
            env=environ(), timeout=300,
        )  # fmt: skip
    return done.returncode, done.stderr


UNREAD = {
    "closed": "stdout could not be written: Bad file descriptor",
    "full": "stdout could not be written: No space left on device",
    "gone": "the reader of stdout is gone",
}


@pytest.mark.usefixtures("inbox")
@pytest.mark.parametrize("where", [*UNREAD])
def test_claims_that_cannot_be_printed_are_given_back(where: str) -> None:
    """Nobody has their tokens: others get the events at once, and no attempt is counted."""
    code, error = claim_into(where)
    fix = "claim again, where the output can be written"
    assert (code, error) == (1, f"Error: {UNREAD[where]}; the claims were given back - {fix}\n")
    assert run("claims", "ls").out == ""
    again = [(one["event"]["id"], one["attempt"]) for one in claim("--limit", "9")]
    assert again == [(number, 1) for number in range(1, 5)]
    assert claim_into(where) == (0, "")  # there is nothing to print


@pytest.mark.usefixtures("inbox")
@pytest.mark.parametrize("where", [*UNREAD])
def test_claims_with_a_nonce_wait_to_be_printed_again(where: str) -> None:
    """They may have been printed before, and a repeat would find nothing if they were given back."""
    first = tokens("--limit", "2", "--nonce", "n1")
    fix = "claim again with the same nonce, which returns the same claims"
    for nonce in ("n1", "n2"):
        assert claim_into(where, "--nonce", nonce) == (1, f"Error: {UNREAD[where]} - {fix}\n")
    assert tokens("--nonce", "n1") == first
    assert [one["event"]["id"] for one in claim("--nonce", "n2")] == [3, 4]


def test_an_interrupted_claim_is_given_back(inbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when ^C ends a claim whose reader does not read."""

    def blocked(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "lines", blocked)
    told = {"lease": None, "wait": 0.0, "nonce": None, "worker": None}
    with eventq.open(inbox) as thread:
        with pytest.raises(KeyboardInterrupt):
            claims.claim(thread, consumer="w", limit=4, **told)  # type: ignore[arg-type]
        assert [*thread.claims()] == []
        assert [one.attempt for one in thread.claim("w", 9)] == [1] * 4


@pytest.mark.usefixtures("inbox")
def test_several_tokens_are_settled_at_once() -> None:
    """From the command line, from a file of tokens, or from what `claim` printed."""
    first, second, third = tokens("--limit", "3")
    assert run("done", first, second) == run("done", "-", given="\n")
    assert info()["last_acked_id"] == 2
    assert run("done", "-", "--json", given=f"\n{third}\n\n").out == '{"settled":1,"lost":[]}\n'
    whole = run("claim").out
    assert json.loads(run("done", "--json", "-", given=whole).out)["settled"] == 1
    assert info()["last_acked_id"] == 4


@pytest.mark.usefixtures("inbox")
def test_lost_claims_are_named_and_the_others_settled() -> None:
    """The exit status is 4, unlike that of a wrong token."""
    first, second, third = tokens("--limit", "3")
    run("done", first, second)
    done = run("done", first, second, third)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("Error: events 1 and 2 are not leased to this worker of 'w' any")
    assert info()["last_acked_id"] == 3
    done = run("done", "--json", second)
    assert (done.code, json.loads(done.out)) == (4, {"settled": 0, "lost": [second]})
    assert json.loads(done.err)["error"].startswith("event 2 is not leased")


@pytest.mark.usefixtures("inbox")
def test_input_that_is_no_text_is_refused() -> None:
    """The hint fits, however the input is wrong."""
    done = run("done", "-", given=b"\xff\n")
    assert done.code == 2
    assert done.err == (
        "Error: '-' is not UTF-8 text (byte 0) - give what 'claim' printed, not too much at once\n"
    )


@pytest.mark.usefixtures("inbox")
@pytest.mark.parametrize(
    ("words", "stdin", "error"),
    [
        (["done"], "", "Missing argument 'TOKEN…'"),
        (["done", "nothing"], "", "'nothing' is not the token of a claim"),
        (["done", ""], "", "TOKEN is empty"),
        (["done", "-", "-"], "", "standard input can be read once"),
        (["done", "-"], '{"attempt":1}\n', "line 1 has no token"),
        (["done", "-"], "\n{oops\n", "line 2: the text is not JSON"),
        (["retry", "--delay", "soon", "x"], "", "--delay must be a duration, not 'soon'"),
        (["claim", "--lease", "0"], "", "lease must be above zero"),
        (["claim", "--limit", "0"], "", "--limit must be a whole number from 1"),
        (["dead", "retry"], "", "either EVENT or --all is needed"),
        (["dead", "drop", "--all", "1"], "", "either EVENT or --all is needed"),
    ],
)
def test_wrong_words_are_refused(words: list[str], stdin: str, error: str) -> None:
    """The exit status is 2, and nothing is changed."""
    done = run(*words, given=stdin)
    assert done.code == 2
    assert done.err.startswith(f"Error: {error}")


@pytest.mark.usefixtures("inbox")
def test_a_claim_is_put_back_with_a_delay_and_without_counting() -> None:
    """Without `--no-count` the only attempt is over."""
    (token,) = tokens()
    assert run("retry", token, "--no-count", "--delay", "1h").code == 0
    assert [one["event"]["id"] for one in claim()] == [2]
    assert run("resume").code == 0
    (again,) = claim()
    assert (again["event"]["id"], again["attempt"]) == (1, 1)
    assert run("retry", again["token"], "--error", "first\nlast").code == 0
    assert run("dead", "ls").out.endswith("Z  last\n")


@pytest.mark.usefixtures("inbox")
def test_a_claim_is_extended() -> None:
    """By what is given, or by as much as before."""
    (one,) = claim("--lease", "10m")

    def deadline() -> int:
        found: int = json.loads(run("claims", "ls", "--json").out)["deadline_ms"]
        return found

    run("extend", one["token"], "--lease", "2h")
    assert deadline() >= one["deadline_ms"] + 110 * 60_000
    run("extend", one["token"], "--lease", "10m")
    assert one["deadline_ms"] <= (before := deadline()) < one["deadline_ms"] + 100 * 60_000
    run("extend", one["token"])
    assert before <= deadline() < before + 100 * 60_000


@pytest.mark.usefixtures("inbox")
def test_claims_are_listed_for_people() -> None:
    """The worker is the program that called, unless it has a name."""
    claim("--worker", "one", "--lease", "10m")
    claim("--lease", "50h")
    first, second = run("claims", "ls").out.splitlines()
    assert first.startswith("w  event 1  attempt 1  one  for 0s, ends in ")
    name = f"{os.uname().nodename}:"
    assert f"w  event 2  attempt 1  {name}" in second
    assert second.endswith("ends in 2d")
    assert run("claims", "ls", "--consumer", "other").out == ""


@pytest.mark.usefixtures("inbox")
def test_dead_letters_are_found_shown_retried_and_dropped() -> None:
    """The way from a failure to its end."""
    assert run("dead", "add", *tokens("--limit", "3"), "--error", "one\ntwo\x1b").code == 0
    listed = run("dead", "ls").out.splitlines()
    assert len(listed) == 3
    assert listed[0].startswith("w  event 1  1 attempt  2")
    assert listed[0].endswith("Z  two\\x1b")
    shown = run("dead", "show", "1").out.splitlines()
    assert shown[0:4] == ["Event: 1", "Consumer: w", "Attempts: 1", "Exit code: (none)"]
    assert shown[-4:] == ["Content: 1", "Error:", "  one", "  two\\x1b"]
    whole = json.loads(run("dead", "show", "1", "--json").out)
    assert (whole["event"]["content"], whole["error"]) == ("1", "one\ntwo\x1b")
    assert run("dead", "retry", "1").out == "Retrying 1 dead letter\n"
    assert [one["event"]["id"] for one in claim()] == [1]
    assert run("dead", "drop", "2", "--json").out == '{"count":1}\n'
    assert run("dead", "retry", "--all", "--consumer", "w").out == "Retrying 1 dead letter\n"
    assert run("dead", "ls").out == ""


def test_dead_letters_are_listed_up_to_a_limit(inbox: str) -> None:
    """A hundred by default; a note says that there are more, on stderr also with --json."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", str(n)) for n in range(97)])
        thread.settle(dead=thread.claim("w", 101))
    note = "Note: there are more dead letters (raise --limit)\n"
    for words in ([], ["--json"], ["--consumer", "w"]):
        done = run("dead", "ls", *words)
        assert len(done.out.splitlines()) == 100
        assert done.err == note
        done = run("dead", "ls", "--limit", "101", *words)
        assert (len(done.out.splitlines()), done.err) == (101, "")
    done = run("dead", "ls", "--limit", "1", "--json")
    assert json.loads(done.out)["event_id"] == 1
    assert (done.code, done.err) == (0, note)


@pytest.mark.usefixtures("inbox")
@pytest.mark.parametrize("verb", ["show", "retry", "drop"])
def test_what_is_no_dead_letter_is_named(verb: str) -> None:
    """The exit status is 1."""
    done = run("dead", verb, "3")
    error = "event 3 is no dead letter of consumer 'w'"
    assert (done.code, done.err) == (1, f"Error: {error} - see 'eventq dead ls'\n")


def test_a_deleted_event_is_shown_as_such(inbox: str) -> None:
    """What failed is known even then."""
    run("dead", "add", *tokens())
    run("prune", "--before-id", "2", "--force")
    assert "The event was deleted." in run("dead", "show", "1").out.splitlines()
    assert json.loads(run("dead", "ls", "--json").out)["event"] is None
    done = run("dead", "retry", "1", "--thread", inbox)
    assert done.code == 1
    assert "drop its dead letter with 'eventq dead drop'" in done.err


def test_lists_are_read_without_writing(inbox: str, tmp_path: Path) -> None:
    """Also those of a thread that nobody may write to."""
    run("dead", "add", *tokens())
    claim()
    before = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(inbox)}
    del before["events.db-shm"]
    assert run("claims", "ls").code == run("dead", "ls").code == 0
    after = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(inbox)}
    assert {name: after[name] for name in before} == before
    assert not [*tmp_path.glob("*.tmp")]


@pytest.mark.parametrize("command", ["dead", "claims"])
def test_a_list_of_a_consumer_that_never_was_is_refused(inbox: str, command: str) -> None:
    """It is a slip of the pen; what one has left that was unsubscribed is listed."""
    done = run(command, "ls", "--thread", inbox, "--consumer", "nope")
    assert (done.code, "consumer 'nope' is not subscribed" in done.err) == (1, True)
    assert run(command, "ls", "--thread", inbox).code == 0

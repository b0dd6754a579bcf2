"""Notes of `push` on stderr: keys that were used before, and unknown fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eventq
from tests.doors.support import THREAD, contents, run

ONE = ["--source", "self", "--type", "note"]


@pytest.fixture
def inbox(tmp_path: Path) -> str:
    """A thread with one event, pushed under a key."""
    path = eventq.init(tmp_path / "inbox")
    with eventq.open(path) as thread:
        thread.push("self", "note", "one", key="k")
    return path


# --- keys -----------------------------------------------------------------------------------------


def test_the_same_push_again_says_nothing(inbox: str) -> None:
    """A push that is tried again as it was is no news, strict or not."""
    for more in ([], ["--key-strict"], ["--json"]):
        done = run("push --thread", inbox, *ONE, "--content", "one", "--key", "k", *more)
        assert (done.code, done.err) == (0, "")
    assert contents(inbox) == ["one"]


def test_other_content_under_a_key_is_said(inbox: str) -> None:
    """The first event of a key is printed; a note names it and the difference."""
    words = [
        "push", "--thread", inbox, "--source", "self", "--type", "other", "--content", "two",
        "--key", "k",
    ]  # fmt: skip
    done = run(*words)
    said = "Note: key 'k' belongs to event 1, whose type and content differ; nothing was stored\n"
    assert (done.code, done.out, done.err) == (0, "", said)
    done = run(*words, "--json")
    assert (done.code, json.loads(done.out)["content"], done.err) == (0, "one", said)
    assert contents(inbox) == ["one"]


def test_a_strict_key_refuses_other_content(inbox: str) -> None:
    """With --key-strict it is an error of status 1, and nothing is stored."""
    words = ["push", "--thread", inbox, *ONE, "--content", "two", "--key", "k", "--key-strict"]
    done = run(*words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: key 'k' belongs to event 1, whose content differs - ")
    error = json.loads(run(*words, "--json").err)
    assert error["error"] == "key 'k' belongs to event 1, whose content differs"
    assert contents(inbox) == ["one"]


def test_a_strict_key_needs_a_key(inbox: str) -> None:
    """--key-strict alone is a mistake: it would check nothing."""
    done = run("push --thread", inbox, *ONE, "--content", "two", "--key-strict")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == "Error: --key-strict has no effect without --key - give --key too, or leave --key-strict out\n"
    )
    assert contents(inbox) == ["one"]


def test_a_batch_says_once_that_keys_were_used_before(inbox: str) -> None:
    """One note for all skipped lines names the first, and their number."""
    lines = [
        {"source": "self", "type": "note", "content": str(n), "key": f"k{n % 3}"} for n in range(6)
    ]
    lines += [{"source": "self", "type": "note", "content": "one", "key": "k"}]
    given = "\n".join(map(json.dumps, lines))
    done = run("push --thread", inbox, "--batch", "--json", given=given)
    assert (done.code, done.out) == (0, '{"count":3,"first_id":2,"last_id":4}\n')
    said = "Note: line 4: key 'k0' belongs to event 2, whose content differs; nothing was stored for this and 2 other lines\n"
    assert done.err == said
    done = run("push --thread", inbox, "--batch", given=json.dumps({**lines[0], "content": "new"}))
    assert (
        done.err
        == "Note: line 1: key 'k0' belongs to event 2, whose content differs; nothing was stored for this line\n"
    )
    assert contents(inbox) == ["one", "0", "1", "2"]


def test_a_strict_batch_names_the_line(inbox: str) -> None:
    """With --key-strict, a different line refuses the batch, by its number."""
    good = [
        json.dumps({"source": "s", "type": "t", "content": "c", "key": f"g{n}"}) for n in range(300)
    ]
    bad = json.dumps({"source": "self", "type": "note", "content": "two", "key": "k"})
    given = "\n\n".join([*good, bad, *good])
    done = run("push --thread", inbox, "--batch", "--key-strict", given=given)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "Error: line 601: key 'k' belongs to event 1, whose content differs - "
    )
    assert contents(inbox) == ["one"]


def test_a_strict_batch_does_not_send_one_to_an_event_that_is_not_there(inbox: str) -> None:
    """If two lines of a refused batch share a key, the error says so."""
    lines = [{"source": "self", "type": "note", "content": str(n), "key": "new"} for n in range(2)]
    done = run(
        "push --thread", inbox, "--batch", "--key-strict", given="\n".join(map(json.dumps, lines))
    )
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: line 2: key 'new' belongs to event 2, whose content differs"
        " - give each event of the batch its own key; nothing of it was stored, nor event 2\n"
    )
    assert contents(inbox) == ["one"]


def test_a_batch_takes_no_key_of_one_event(inbox: str) -> None:
    """--key would protect no line of a batch: who gave it would push all of it twice."""
    line = json.dumps({"source": "self", "type": "note", "content": "two"})
    done = run("push --thread", inbox, "--batch", "--key", "k2", given=line)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "Error: --batch and --key exclude each other - give each line a key of its own"
    )
    assert contents(inbox) == ["one"]


EVENT = {"source": "cron", "type": "record", "subtype": "s", "content": "one", "content-file": "-"}


@pytest.mark.parametrize("name", EVENT)
def test_a_batch_takes_no_field_of_one_event(inbox: str, name: str) -> None:
    """An option for one event would change no line of a batch; the older tool ignores it."""
    line = json.dumps({"source": "self", "type": "note", "content": "two"})
    for words in (("--batch", f"--{name}", EVENT[name]), (f"--{name}", "", "--batch")):
        done = run("push --thread", inbox, *words, given=line)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"Error: --batch and --{name} exclude each other - ")
        assert contents(inbox) == ["one"]
    done = run(
        "push --thread", inbox, "--batch", f"--{name}", EVENT[name], given=line, program=THREAD
    )
    assert (done.code, done.err) == (0, "")
    assert contents(inbox) == ["one", "two"]


# --- fields that events do not have ---------------------------------------------------------------


def test_unknown_fields_of_a_batch_are_said_once(inbox: str) -> None:
    """`eventq` names the fields that it left out, in one line, in whatever lines they were."""
    lines = [
        {"id": 7, "source": "self", "type": "note", "content": str(n), "created_at": "x"}
        for n in range(400)
    ]
    lines += [
        {
            "source": "self",
            "type": "note",
            "content": "last",
            "key": "q",
            "subtype": "s",
            "extra\n": {"a": 1},
        }
    ]
    done = run("push --thread", inbox, "--batch", given="\n".join(map(json.dumps, lines)))
    assert (done.code, done.out) == (0, "")
    assert (
        done.err == "Note: fields that events do not have were left out: id, created_at, extra\\n\n"
    )
    with eventq.open(inbox) as thread:
        assert thread.last_id() == 402


def test_many_unknown_fields_are_not_all_named(inbox: str) -> None:
    """A line on stderr stays a line that can be read."""
    line = {
        "source": "s",
        "type": "t",
        "content": "c",
        **{f"field-{n:03}-{'x' * 200}": n for n in range(300)},
    }
    done = run("push --thread", inbox, "--batch", given=json.dumps(line))
    assert done.err.startswith("Note: fields that events do not have were left out: field-000-xxx")
    assert done.err.endswith(", …\n")
    assert len(done.err) < 1000


def test_thread_is_quiet_about_unknown_fields(inbox: str) -> None:
    """Under the name of the older tool nothing is said: there it was always so."""
    line = json.dumps({"id": 7, "source": "self", "type": "note", "content": "x"})
    done = run("push --thread", inbox, "--batch", given=line, program=THREAD)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_refused_batch_says_only_why(inbox: str) -> None:
    """Of a batch of which nothing was stored no field was left out."""
    done = run(
        "push --thread", inbox, "--batch",
        given='{"id":1,"source":"s","type":"t","content":"c"}\nnonsense',
    )  # fmt: skip
    assert done.code == 2
    assert done.err.startswith("Error: line 2: ")
    assert len(done.err.splitlines()) == 1

"""Durations are spelled alike in all commands, and exit statuses mean the same everywhere."""

from __future__ import annotations

import re
import sys

import pytest

from eventq.cli import app, kinds
from eventq.cli.groups import every
from eventq.errors import UsageError
from tests.contract.test_errors import classes
from tests.docs.support import read

SPELLED = {
    "90": 90, "90s": 90, "15m": 900, "1h": 3600, "1.5h": 5400, " 7d ": 604800, "0": 0, "0.5": 0.5,
    "+3": 3,
}  # fmt: skip
WRONG = ("", "h", "-1", "1w", "1hs", "١h", "1e3", "1.2.3", "inf", "nan", "9" * 40)
TIMES = {
    f"{name} --{option.name}": option
    for name, command in every().items()
    for option in command.options
    if "DURATION" in option.value
}


def test_these_options_are_durations() -> None:
    """No option has a spelling of time of its own."""
    assert {*TIMES} == {
        "pop --wait", "subscribe --timeout", "subscribe --backoff", "subscribe --lease",
        "claim --lease", "claim --wait", "retry --delay", "extend --lease", "work --grace",
        "service systemd --grace", "gc --grace", "serve --idle", "ask --wait", "questions --wait", "sql --timeout",
    }  # fmt: skip
    for command in every().values():
        for option in command.options:
            assert not re.search("TIME|SECOND|MINUTE", option.value)


@pytest.mark.parametrize("name", sorted(TIMES))
def test_every_duration_takes_every_spelling(name: str) -> None:
    """Seconds, or a number with a unit; nothing else."""
    option = TIMES[name]
    is_pair = option.kind is kinds.durations
    for text, seconds in SPELLED.items():
        assert option.convert(text) == ((seconds, seconds) if is_pair else seconds)
    for text in WRONG:
        with pytest.raises(UsageError, match=f"--{option.name} must be a duration, not "):
            option.convert(text)


def test_a_back_off_is_two_durations() -> None:
    """The least and the most."""
    backoff = TIMES["subscribe --backoff"]
    assert backoff.convert("0.5s..2h") == (0.5, 7200)
    fix = "give two durations such as 1s..10m, the shorter one first"
    for text, says in {
        "1..x": "--backoff must be a duration, not 'x'",
        "1..": "--backoff must be a duration, not ''",
        "1d..2": "--backoff ends with 2, which is below its start, 1d",
    }.items():
        with pytest.raises(UsageError) as caught:
            backoff.convert(text)
        assert (caught.value.what, caught.value.fix) == (says, fix)


@pytest.mark.parametrize("name", ["pop --wait", "subscribe --timeout"])
def test_thread_takes_plain_seconds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Help and errors say so, as ever."""
    monkeypatch.setattr(sys, "argv", ["thread"])
    option = TIMES[name]
    assert (option.metavar, option.convert("1.5")) == ("SECONDS", 1.5)
    with pytest.raises(UsageError, match="must be a number of seconds, not '10m'"):
        option.convert("10m")


def statuses(document: str) -> set[int]:
    """Return the codes in the table of exit statuses that lists 130."""
    rows = re.findall(r"^ *\| (\d+) \|.*", read(document), re.MULTILINE)
    at = rows.index("130")
    return {int(code) for code in rows[at - len(app.STATUSES) + 1 : at + 1]}


def test_exit_statuses_are_the_same_everywhere() -> None:
    """In the help, the guide, the promises, and the exceptions."""
    for document in ("docs/spec/errors.md", "docs/guides/operate.md", "docs/reference.md"):
        assert statuses(document) == {*app.STATUSES}
    assert {kind.exit_code for kind in classes().values()} <= {*app.STATUSES}
    for code, meaning in app.STATUSES.items():
        assert f"  {code:3}  {meaning}" in app.MORE.splitlines()

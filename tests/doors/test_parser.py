"""The quick parser declines or agrees with click, and the quick way imports little."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventq
from eventq.cli import app, show
from eventq.cli.options import COMMANDS, Command, parse
from tests.doors.support import environ

_WORDS = sorted({f"--{o.name}" for c in COMMANDS.values() for o in c.options})


def by_click(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """Give what click makes of a command line, None when it refuses or does something else."""
    seen: list[dict[str, Any]] = []

    def note(_: Command, raw: dict[str, Any]) -> int:
        seen.append(raw)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(show, "execute", note)
        try:
            app.build().main(argv, prog_name="eventq", standalone_mode=False)
        except click.ClickException:
            return None
    return seen[0] if seen else None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    name=st.sampled_from([n for n in COMMANDS if " " not in n and n not in ("init", "completion")]),
    words=st.lists(
        st.one_of(
            st.sampled_from(_WORDS),
            st.sampled_from(["-", "--", "-n", "-f", "--help", "1", "", "--source=x", "--json", "-x", "--batc"]),
            st.text(max_size=4),
        ),
        max_size=10,
    ),
)
def test_the_quick_parser_declines_or_agrees_with_click(name: str, words: list[str]) -> None:
    """Whatever the words, the quick parser gives exactly what click gives, or leaves it to click."""
    quick = parse([name, *words])
    if quick is not None:
        assert quick == by_click([name, *words], pytest.MonkeyPatch())


def test_the_quick_parser_takes_plain_pairs_and_the_last_of_a_repeated_one() -> None:
    """What agents write is not left to click."""
    argv = ["pop", "--thread", "a", "--consumer", "b", "--last-event-id", "1", "--last-event-id", "2", "--json"]
    raw = parse(argv)
    assert raw == by_click(argv, pytest.MonkeyPatch())
    assert raw is not None
    assert raw["last-event-id"] == "2"


_SLOW = ("click", "json", "re", "typing", "dataclasses", "inspect", "importlib.metadata", "subprocess", "hashlib",
         "blake3", "zstandard", "asyncio", "random", "shutil", "tempfile", "enum", "logging")  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["push", "--source", "s", "--type", "t", "--content", "c", "--json"],
        ["push", "--batch"],
        ["pop", "--consumer", "w", "--last-event-id", "0"],
        ["peek", "--last-event-id", "0", "--filter", "type = 't'"],
        ["ack", "--consumer", "w", "--last-event-id", "0"],
        ["hook"],
    ],
    ids=lambda words: words[0],
)
def test_the_quick_commands_import_nothing_slow(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    """push, pop, peek, ack and hook import no module that costs more than the work itself."""
    path = eventq.init(tmp_path_factory.mktemp("quick") / "t")
    with eventq.open(path) as thread:
        thread.subscribe("w", "true")
    script = (
        "import sys, os; sys.argv[0] = 'eventq'; before = set(sys.modules); from eventq.cli import run;"
        "code = run(sys.argv[1:]); print(code, *(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"sys_path = {sys.path!r}\nimport sys; sys.path[:] = sys_path\n{script}", words[0], "--thread", path, *words[1:]],
        input=b'{"source":"a","type":"b","content":{}}', capture_output=True, env=environ(), timeout=300,
    )  # fmt: skip
    code, *modules = done.stderr.decode().split()
    assert code == "0"
    assert not set(modules) & set(_SLOW)

"""The story of README.md, told as a reader tells it who pastes its blocks one after another."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING, Any

import eventq
from tests.docs.support import blocks, environ, read, section

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Until


def tell(folder: Path, answer: Callable[[str], Any], until: Until) -> tuple[str, str]:
    """Return what the story says that it prints, and what it prints.

    `answer` is called with the one-time link of the pages, while one question is open in them.
    """
    story = section(read("README.md"), "See it work")
    begin, meddle, look = blocks("sh", story)
    (shown,) = blocks("text", story)
    run(begin, folder)
    with eventq.open(folder / "inbox") as thread:
        until(lambda: [*thread.questions()], "the question")
        # A browser that cannot be started: the link is printed, too.
        env = environ(EVENTQ_THREAD="inbox", BROWSER="false", PYTHONUNBUFFERED="1")
        with subprocess.Popen(
            ["sh", "-c", meddle], cwd=folder, env=env, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        ) as pages:  # fmt: skip
            try:
                assert pages.stdout is not None
                link = pages.stdout.readline().strip()
                until(lambda: attempts(thread) == [2], "the second attempt")
                assert len([*thread.questions()]) == 1
                answer(link)
                until(lambda: thread.status().consumers[0].last_acked_id == 1, "the deployment")
            finally:
                subprocess.run(["kill", "-INT", "--", f"-{pages.pid}"], check=True)
        assert pages.returncode in (0, 130, -signal.SIGINT)
    return shown, run(look, folder, EVENTQ_THREAD="inbox")


def run(script: str, folder: Path, **env: str) -> str:
    """Return what a block prints that is pasted into a shell."""
    done = subprocess.run(
        ["sh"], input=script, cwd=folder, env=environ(**env), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def attempts(thread: eventq.Thread) -> list[int]:
    """Return the numbers of the attempts that are under way."""
    return [claim.attempt for claim in thread.claims("deployer")]

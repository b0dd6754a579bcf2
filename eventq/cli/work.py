"""The command that runs handlers in the foreground, for service managers and containers."""

from __future__ import annotations

import gc

from eventq.cli import kinds, show
from eventq.cli.options import JSON_ERRORS, choose_threads
from eventq.cli.rules import needs
from eventq.cli.table import Argument, Command, Option, is_given, together
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.cli.table import Raw

    class Shared(TypedDict):
        """What this machine runs of threads in PostgreSQL."""

        allow: str | None
        label: list[str]


def work(
    *,
    worker: str | None,
    thread: list[str],
    all: list[str],
    consumer: list[str],
    grace: float,
    dispatches: bool,
    shared: Shared,
) -> int:
    """Run handlers in the foreground, until SIGTERM.

    While this runs, a push starts no process of its own, and handlers start sooner. If it is
    killed, or stuck for 11 seconds, pushes start handlers again. It prints on stderr what it does.
    With WORKER, which is module:name, it runs an eventq.Worker of Python functions instead, until
    SIGTERM or an error that does not pass; the module is looked for in the current directory first.
    """
    gc.set_threshold(2_000, 10, 10)  # as ever: what the command line set is for short lives
    from eventq.store import causing
    from eventq.system import clock, disk, processes

    processes.serve_long()
    causing.disown()
    if worker is not None:
        return _run_program(worker, *thread)
    from eventq.running.allowed import Allowed
    from eventq.running.work import Work

    disk.allow_more_files()
    made = Work(
        thread,
        all,
        consumer,
        allowed=None if shared["allow"] is None else Allowed(shared["allow"], shared["label"]),
        grace=grace,
        hands_over=dispatches,
        say=lambda line: show.note(f"[{clock.stamp(clock.now())}] {show.program()} work: {line}"),
    )
    return 130 if made.run() == _SIGINT else 0


def _run_program(place: str, thread: str | None = None) -> int:
    """Run the worker at module:name, with its log on stderr; return the exit status."""
    import logging

    from eventq.cli.programs import find_worker, run_worker
    from eventq.running.worker import logging_to_stderr

    program = find_worker(place)  # its module may set up logging
    if thread is not None:
        program.path = thread
    if not program.has_run:  # else its module calls `run`: it has ended, and stays so
        with logging_to_stderr(logging.INFO):
            run_worker(program)
    return 130 if program.signal == _SIGINT else 0


_SIGINT = 2


def _check_place(raw: Raw) -> None:
    """Refuse a command line that names no thread, or what a worker has in its program."""
    if raw["WORKER"] is None:
        choose_threads(raw)
        return
    for name in ("all", "consumer", "grace", "no-dispatch", "allow", "label"):
        if is_given(raw[name]) and raw[name] is not False:
            raise UsageError(
                f"--{name} is not for a Python worker", "leave it out; its program says such things"
            )
    if isinstance(raw["thread"], list) and len(raw["thread"]) > 1:
        raise UsageError("a Python worker has one thread", "give --thread once")


ALLOW = Option(
    "allow FILE",
    "The commands that may be run for threads in PostgreSQL. One a line; in it, * is any text that"
    " adds no other command. A line ** allows all.",
    kinds.path,
)
LABEL = Option(
    "label NAME…",
    "Run consumers with this label; may be repeated (default: those without one).",
)
COMMANDS = {
    "work": Command(
        work,
        [
            Argument("[WORKER]", yields=True),
            Option(
                "thread PATH…",
                "The directory or URL of a thread; may be repeated (default: $EVENTQ_THREAD).",
                kinds.place,
            ),
            Option(
                "all DIR…",
                "Work for all threads in DIR or in a database, also new ones.",
                kinds.place,
            ),
            Option("consumer ID…", "Work for this consumer only; may be repeated."),
            Option(
                "grace DURATION",
                "How long running handlers may take to end after SIGTERM.",
                kinds.duration,
                default="30s",
            ),
            *together("shared", ALLOW, LABEL),
            Option(
                "no-dispatch",
                "At the end, leave what waits to the next push or worker. By default a"
                " dispatch in the background takes over.",
                kinds.OFF,
                parameter="dispatches",
            ),
            JSON_ERRORS,
        ],
        "eventq work --thread ./inbox",
        "eventq work --all /srv/threads --grace 2m",
        "eventq work --thread ./inbox --consumer mailer --consumer worker",
        "eventq work --thread 'postgresql://user@host/database?thread=inbox' --allow commands.txt",
        "eventq work --all postgresql://user@host/database --allow commands.txt",
        "eventq work tasks:worker --thread ./inbox",
        rules=[_check_place, needs("label", "allow")],
    )
}

"""Run a command: check the rules, open the thread, convert values, call, report errors."""

from __future__ import annotations

from eventq.cli import show
from eventq.cli.kinds import Opened
from eventq.errors import (
    EventqError,
    FilterError,
    LogicError,
    NotAThreadError,
    UnknownOutputError,
    reason,
    refused,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.table import Command, Raw


def execute(command: Command, raw: Raw) -> int:
    """Run a command and return its exit status. Errors are printed, not raised."""
    if command.silent:
        return _run_silently(command, raw)
    as_json = bool(raw.get("json"))
    try:
        return _call(command, raw) or 0
    except show.Closed:
        return 0
    except EventqError as failure:
        if isinstance(failure, NotAThreadError) and show.program() != "thread":
            from eventq.cli.names import advise_thread

            advise_thread(failure)
        caret = failure.caret() if isinstance(failure, FilterError) else ""
        # An unknown output has a second line, which lists the known ones.
        lines = 2 if isinstance(failure, UnknownOutputError) else 1
        show.error(failure.what, failure.advice, caret, as_json=as_json, lines=lines)
        return failure.exit_code
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        show.error("not enough memory", "give less input at once", as_json=as_json)
    except OSError as error:
        which = f" '{error.filename}'" if error.filename else ""
        found = refused(error, f"the system refused{which}: {reason(error)}")
        show.error(found.what, found.advice, as_json=as_json)
    return 1


def _run_silently(command: Command, raw: Raw) -> int:
    try:
        _call(command, raw)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001, S110 (there is nowhere to report it)
        pass
    return 0


def _call(command: Command, raw: Raw) -> int | None:
    """Check the rules, open the thread, convert the values. SPEC promises this order of errors."""
    for rule in command.rules:
        rule(raw)
    show.begin(str(raw.get("thread")))
    part = command.opens
    if part is None or not isinstance(part.kind, Opened):
        return command.function(**command.values(raw))
    with part.kind.open(str(raw[part.name]), part.spelled, raw) as thread:
        try:
            return command.function(**{part.parameter: thread}, **command.values(raw))
        except LogicError as error:
            if show.program() != "thread":
                from eventq.cli.names import advise

                advise(error, thread)
            raise

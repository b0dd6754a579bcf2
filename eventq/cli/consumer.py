"""The commands of consumers: subscribe, unsubscribe, dispatch and resume."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import CONSUMER, FILTER, FOLDER, JSON, JSON_ERRORS, THREAD
from eventq.cli.table import Command, Option, together
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Terms(TypedDict):
        """When the handler of a subscription runs."""

        filter: str | None
        from_now: bool
        max_attempts: int
        timeout: float | None


def subscribe(thread: Thread, *, consumer: str, handler: str, terms: Terms, json: bool) -> None:
    """Run a handler whenever events wait for a consumer."""
    new = thread.subscribe(
        consumer, handler, **terms, warn=lambda what: show.note(f"Warning: {what}")
    )
    shown = {"consumer_id": new.consumer_id, "handler_cmd": new.handler_cmd, "filter": new.filter}
    show.result(shown, f"Subscribed consumer '{consumer}'", json=json)


def unsubscribe(thread: Thread, *, consumer: str, json: bool) -> None:
    """Delete a subscription. The consumer's progress is kept for a later one."""
    thread.unsubscribe(consumer)
    show.result({"consumer_id": consumer}, f"Unsubscribed consumer '{consumer}'", json=json)


def resume(thread: Thread, *, consumer: str, json: bool) -> None:
    """End the stall or back-off of a consumer. Its handler starts again."""
    thread.resume(consumer)
    show.result({"consumer_id": consumer}, f"Resumed consumer '{consumer}'", json=json)


def dispatch(*, thread: str) -> None:
    """Start the handlers of consumers that have events waiting. Returns at once."""
    from eventq.log.dispatch import Dispatch, leave_queue, start_supervisor, wait_turn

    waited = wait_turn()
    with Thread(thread) as opened:
        leave_queue(opened.layout)
        look = Dispatch(opened.consumers, opened.layout, opened.journal)
        locks = look.scan()
        for consumer in locks if waited else ():
            late = f"still due {waited:g}s after the notifier took the task"
            opened.journal.info(f"dispatch: consumer={consumer} {late}")
        directory = opened.path
    if locks:  # the thread is closed now: no connection may cross the fork
        start_supervisor(directory, locks)
    if look.failure is not None:
        raise look.failure


COMMANDS = {
    "subscribe": Command(
        subscribe,
        [
            THREAD,
            CONSUMER,
            Option("handler COMMAND", "The command to run, through sh -c.", required=True),
            *together(
                "terms",
                FILTER,
                Option("from-now", "Skip the events that are stored already."),
                Option(
                    "max-attempts N",
                    "Stall after N runs without progress.",
                    kinds.POSITIVE,
                    default="5",
                ),
                Option("timeout SECONDS", "Kill a handler that runs longer.", kinds.seconds),
            ),
            JSON,
        ],
        "eventq subscribe --thread ./inbox --consumer worker --handler ./work.sh"
        " --filter \"type = 'message'\"",
    ),
    "unsubscribe": Command(
        unsubscribe,
        [THREAD, CONSUMER, JSON],
        "eventq unsubscribe --thread ./inbox --consumer worker",
    ),
    "dispatch": Command(dispatch, [FOLDER, JSON_ERRORS], "eventq dispatch --thread ./inbox"),
    "resume": Command(
        resume, [THREAD, CONSUMER, JSON], "eventq resume --thread ./inbox --consumer worker"
    ),
}

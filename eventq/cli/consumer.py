"""The commands of consumers: subscribe, unsubscribe, dispatch, pause and resume."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import (
    CONSUMER,
    FILTER,
    HANDLED,
    IS_THREAD,
    JSON,
    JSON_ERRORS,
    THREAD,
    unless_thread,
)
from eventq.cli.table import Command, Option, together
from eventq.errors import ConsumerExistsError, UsageError
from eventq.system import environment
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.cli.table import Raw

    class Given(TypedDict):
        """What `subscribe` says of a handler and its events."""

        each: bool
        filter: str | None
        from_now: bool
        max_attempts: int
        timeout: float | None
        batch: int
        concurrency: int
        ordered_by: str | None
        on_failure: str | None
        backoff: tuple[float, float]
        lease: float
        emit_dead: bool
        label: str | None


_MUST_POP = (
    "Note: without --each, this handler has to pop and ack its events by itself ('eventq pop',"
    " 'eventq ack')"
)


def subscribe(
    thread: Thread,
    *,
    consumer: str,
    handler: str | None,
    terms: Given,
    replace: bool,
    json: bool,
) -> None:
    """Run a handler whenever events wait for a consumer.

    With --each it runs once for each event, which it reads from its standard input, and its exit
    status says what became of it: 0 done, 75 try again, 65 give up, anything else is a failed
    attempt. Without a handler nothing runs: the consumer is for claim and pop. Subscribing again
    with equal values changes nothing.
    """
    where = {"directory": None} if IS_THREAD else {}
    with thread.write():  # of several at once under the name thread, only one may find none
        is_known = any(s.consumer_id == consumer for s in thread.subscriptions())
        if IS_THREAD and is_known:
            raise ConsumerExistsError(consumer)
        new = thread.subscribe(
            consumer,
            handler,
            **terms,
            **where,
            replace=replace,
            warn=lambda what: show.note(f"Warning: {what}"),
        )
    if is_known and terms["from_now"]:
        show.note(
            "Note: the consumer was subscribed before and keeps its place: nothing is skipped"
        )
    if new.kind == "loop" and not IS_THREAD:
        show.note(_MUST_POP)
    if thread.is_shared and new.kind != "pull":
        command = thread.notifier.command(new.label)
        show.note(f"Note: the handler runs where a worker does and allows it: {command}")
    shown = {"consumer_id": new.consumer_id, "handler_cmd": new.handler_cmd, "filter": new.filter}
    show.result(shown, f"Subscribed consumer '{consumer}'", json=json)


def _check_handler(raw: Raw) -> None:
    """Refuse what makes no sense without a handler."""
    if raw["handler"] is None and IS_THREAD:
        raise UsageError("Missing option '--handler'", "run 'thread subscribe --help'")
    if raw["handler"] is None and raw["each"]:
        raise UsageError("--each needs a handler", "add --handler COMMAND")


def unsubscribe(thread: Thread, *, consumer: str, json: bool = False) -> None:
    """Delete a subscription. The consumer's progress is kept for a later one."""
    thread.unsubscribe(consumer)
    show.result({"consumer_id": consumer}, f"Unsubscribed consumer '{consumer}'", json=json)


def pause(thread: Thread, *, consumer: str, json: bool) -> None:
    """Pause a consumer until `resume`. Handlers that run may finish.

    No handler is started, and no event is claimed; events go on being stored.
    """
    thread.pause(consumer)
    show.result({"consumer_id": consumer}, f"Paused consumer '{consumer}'", json=json)


def resume(thread: Thread, *, consumer: str, json: bool) -> None:
    """End the pause, stall or back-off of a consumer. Its handler starts again."""
    thread.resume(consumer)
    show.result({"consumer_id": consumer}, f"Resumed consumer '{consumer}'", json=json)


def dispatch(*, thread: str) -> None:
    """Start the handlers of consumers that have events waiting. Returns at once.

    Names the consumers that are paused or stalled: nothing starts for them.
    """
    from eventq.log.notifier import QUEUE_FD
    from eventq.running.dispatch import Dispatch, leave_queue, start_supervisor, wait_turn

    # Under this name a stall lasts until the next push or dispatch that somebody asks for.
    restarts = show.program() == "thread" and not environment.env(QUEUE_FD)
    waited = wait_turn()
    with Thread(thread) as opened:
        leave_queue(opened.layout)
        if restarts:
            opened.consumers.restart()
        look = Dispatch(opened.consumers, opened.layout, opened.journal)
        locks = look.scan()
        for consumer in locks if waited else ():
            late = f"still due {waited:g}s after the notifier took the task"
            opened.journal.info(f"dispatch: consumer={consumer} {late}")
        skipped = [] if waited or show.program() == "thread" else look.skipped()
        directory = opened.path
    if locks:  # the thread is closed now: no connection may cross the fork
        start_supervisor(directory, locks)
    for what in skipped:
        show.note(f"Note: {what}")
    if look.failure is not None:
        raise look.failure


# Half an hour of an outage at least. The tool that `thread` replaces gives up sooner.
_MOST_ATTEMPTS, _BACKOFF = ("5", "0.5s..1m") if IS_THREAD else ("21", "1s..5m")

COMMANDS = {
    "subscribe": Command(
        subscribe,
        [
            THREAD,
            CONSUMER,
            Option(
                "handler COMMAND", "The command to run, through sh -c. Without one, nothing runs."
            ),
            *together(
                "terms",
                Option("each", "Run the handler once for each event, on its standard input."),
                FILTER,
                Option("from-now", "Skip the events that are stored already."),
                Option(
                    "max-attempts N",
                    "Stall, or make a dead letter, after N failed runs.",
                    kinds.POSITIVE,
                    default=_MOST_ATTEMPTS,
                ),
                Option("timeout DURATION", "Kill a handler that runs longer.", kinds.seconds),
                Option(
                    "batch N", "Give N events to one run of --each.", kinds.POSITIVE, default="1"
                ),
                Option(
                    "concurrency N",
                    "Run up to N handlers of --each at once. With 0, events come in order.",
                    kinds.WHOLE,
                    default="0",
                ),
                Option(
                    "ordered-by KEY",
                    "Keep the order of events that have the same KEY. It is source, type, or a path"
                    " in the content such as $.order.id.",
                ),
                Option(
                    "on-failure WHAT",
                    "What happens after the last attempt. stall stops the consumer, dead makes a"
                    " dead letter of the event. By default stall where events come in order, and"
                    " otherwise dead.",
                    kinds.Choice("stall", "dead"),
                ),
                Option(
                    "backoff DURATION..DURATION",
                    "The wait before another attempt, and the longest one. It doubles each time.",
                    kinds.durations,
                    default=_BACKOFF,
                ),
                Option(
                    "lease DURATION",
                    "How long a claim lasts unless it is extended.",
                    kinds.duration,
                    default="30s",
                ),
                Option("emit-dead", "Push an event record/dead-letter for each dead letter."),
                *unless_thread(
                    Option(
                        "label NAME",
                        "Only workers with this label run the handler. For a thread in PostgreSQL.",
                    )
                ),
            ),
            Option("replace", "Change an existing subscription; it keeps its place."),
            JSON,
        ],
        "eventq subscribe --thread ./inbox --consumer worker --each --handler ./work.sh"
        " --filter \"type = 'message'\"",
        rules=[_check_handler],
    ),
    "unsubscribe": Command(
        unsubscribe,
        [THREAD, CONSUMER, *unless_thread(JSON)],
        "eventq unsubscribe --thread ./inbox --consumer worker",
    ),
    "dispatch": Command(
        dispatch, [HANDLED, *unless_thread(JSON_ERRORS)], "eventq dispatch --thread ./inbox"
    ),
    "pause": Command(
        pause, [THREAD, CONSUMER, JSON], "eventq pause --thread ./inbox --consumer worker"
    ),
    "resume": Command(
        resume, [THREAD, CONSUMER, JSON], "eventq resume --thread ./inbox --consumer worker"
    ),
}

"""The operations of the log: events, questions, consumers, claims, dead letters, the status."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from eventq.errors import (
    InputError,
    UnknownConsumerError,
    UnknownEventError,
    UsageError,
)
from eventq.http.operations import AT, Operation, Reply, gap_header, of_json, once
from eventq.log.claims import claim_line
from eventq.log.mirror_lines import line
from eventq.log.selection import Selection, caused, newest_caused
from eventq.serving.event_pages import in_bounds, newest_events, next_lines
from eventq.serving.parameters import MOST_WAIT, Given, Part, lines_of, of_object, with_key
from eventq.serving.plans import QUICK, READ, WRITE
from eventq.system.jsontext import as_written, items_as_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eventq.log.claims import Claim
    from eventq.records.claim import DeadLetter
    from eventq.records.event import Event
    from eventq.records.info import ThreadStatus
    from eventq.records.question import Question
    from eventq.serving.principal import Principal
    from eventq.thread import Thread

T = TypeVar("T")

PAGE = 1_000  # events of a page, at most
CLAIMS = 1_000  # claims of a call, at most


# --- events ---------------------------------------------------------------------------------------


def _listed(lines: Iterable[str], after: int) -> bytes:
    return f'{{"events":[{",".join(lines)}],"next":{after}}}'.encode("utf-8", "replace")


def events(thread: Thread, given: Given) -> Reply:
    """Read the events after an id, in order, or the newest ones."""
    where, count = given["filter"], given["last"]
    if given["cause"] is not None:
        return _caused(thread, given)
    if count is not None:
        newest = newest_events(thread, where, count)
        return Reply(_listed(map(line, newest), newest[-1].id if newest else thread.last_id()))

    def look() -> tuple[list[str], int, bool]:
        return next_lines(thread.database.events, where, given["after"], given["limit"])

    lines, at, is_done = in_bounds(thread, where, look)
    gap = thread.log.gap_after(given["after"])  # then, as a prune may come meanwhile
    return Reply(_listed(lines, at), is_empty=not lines and is_done, more=gap_header(gap))


def _caused(thread: Thread, given: Given) -> Reply:
    """Read the events that an event has caused; what comes later is not waited for."""
    where, count, upto = given["filter"], given["last"], thread.last_id()

    def look() -> list[Event]:
        accepted, database = thread.database.events.accept(where), thread.database.memory
        if count is not None:
            return newest_caused(database, given["cause"], Selection(accepted, 0, upto), count)
        chosen = Selection(accepted, given["after"], upto)
        pages = caused(database, given["cause"], chosen, given["limit"])
        return [one for page in pages for one in page]

    found = in_bounds(thread, where, look)
    is_full = count is None and len(found) == given["limit"]
    return Reply(_listed(map(line, found), found[-1].id if is_full else upto))


def event_causes(thread: Thread, given: Given) -> Reply:
    """Read what caused an event, and what events and turns it has caused, some of each."""
    number = given["id"]
    if thread.database.events.get(number) is None:
        raise UnknownEventError(number)
    causes = [*map(_plain, thread.causes_of(event=number))]
    return of_json({"causes": causes, **_plain(thread.caused_by(number, limit=given["limit"]))})


def event(thread: Thread, given: Given) -> Reply:
    """Read one event."""
    found = thread.database.events.get(given["id"])
    if found is None:
        raise UnknownEventError(given["id"])
    return Reply(line(found).encode("utf-8", "replace"))


def push(thread: Thread, given: Given) -> Reply:
    """Store one event, or many as one change; with a key each is stored once.

    One is an object; many are a list of them, or one object a line (application/x-ndjson). The
    header Idempotency-Key is the key of one. A content that is no text is stored as its JSON is
    written. If the key of one was used for another event, that is returned to who may read it.
    """
    body = given["body"]
    if isinstance(body, dict):
        one = with_key(_pushed(body, given["text"].decode), given["key"])

        def store() -> Event:
            return thread.push(**one, key_strict="read" not in given["who"].rights)

        stored, status = once(thread, one["key"], thread.last_id, store, lambda it: it.id)
        return Reply(line(stored).encode("utf-8", "replace"), status=status)
    if not isinstance(body, list):
        raise InputError("the body is no event", "send an object, a list of objects, or lines")
    if given["key"] is not None:
        raise UsageError("Idempotency-Key is for one event", "give each of several its own key")
    texts: list[str] = []  # of each, if any is asked for

    def text_of(number: int) -> str:
        if not texts:
            sent: bytes = given["text"]
            texts.extend(lines_of(sent) if given["is_lines"] else items_as_written(sent.decode()))
        return texts[number]

    batch = thread.push_many(
        [_pushed(one, partial(text_of, number)) for number, one in enumerate(body)]
    )
    return of_json(batch._asdict(), status=201 if batch.count else 200)


def _pushed(value: Any, text: Callable[[], str]) -> Given:
    """Return the parameters of an event; `text` gives its JSON as it was sent."""
    one = of_object(EVENT, value)
    if not isinstance(one["content"], str):
        one["content"] = as_written(text(), "content")
    return one


# --- questions ------------------------------------------------------------------------------------


def _question(found: Question, *, is_empty: bool = False, status: int = 200) -> Reply:
    return of_json(_plain(found), is_empty=is_empty, status=status)


def _plain(record: Any) -> dict[str, Any]:
    """Return a record as an object, records inside it too."""
    found: dict[str, Any] = record._asdict()
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = [_plain(one) if hasattr(one, "_asdict") else one for one in value]
    return found


def questions(thread: Thread, _: Given) -> Reply:
    """List the questions that nobody has answered."""
    return of_json([*map(_plain, thread.questions())])


def ask(thread: Thread, given: Given) -> Reply:
    """Ask a question; with a key it is asked once."""
    given["options"] = given["options"] or ()
    found, status = once(
        thread, given["key"], thread.last_id, lambda: thread.ask(**given), lambda it: it.question_id
    )
    return _question(found, status=status)


def question(thread: Thread, given: Given) -> Reply:
    """Read a question, and wait for its answer."""
    found = thread.question(given["id"])
    return _question(found, is_empty=found.answer is None)


def answer(thread: Thread, given: Given) -> Reply:
    """Answer a question; the first answer counts."""
    found = thread.answer(given["id"], given["text"], source=given["source"], note=given["note"])
    return _question(found)


# --- consumers ------------------------------------------------------------------------------------


def consumers(thread: Thread, _: Given) -> Reply:
    """List the consumers with their state."""
    return of_json([*map(_consumer, thread.status().consumers)])


def _consumer(found: Any) -> dict[str, Any]:
    """Return a consumer as an object: its command and its files are this machine's business."""
    shown = _plain(found)
    for name in ("handler_cmd", "log", "advice"):
        del shown[name]
    return shown


def consumer(thread: Thread, given: Given) -> Reply:
    """Read the state of one consumer."""
    name = given["consumer"]
    for one in thread.status().consumers:
        if one.consumer_id == name:
            return of_json(_consumer(one))
    raise UnknownConsumerError(name)


def subscribe(thread: Thread, given: Given) -> Reply:
    """Subscribe a consumer without a handler; to do so again with equal values changes nothing."""
    name = given.pop("consumer")
    known = thread.consumers.state(name)
    if known is not None and known.settings.kind != "pull":
        what = f"consumer '{name}' has a handler"
        raise UsageError(what, "choose another name: handlers are changed on their machine only")
    more = {part: value for part, value in given.items() if value is not None}
    if "backoff" in more:
        more["backoff"] = tuple(more["backoff"])
    thread.subscribe(name, warn=lambda _: None, **more)
    return Reply(consumer(thread, {"consumer": name}).body, status=200 if known else 201)


def unsubscribe(thread: Thread, given: Given) -> Reply:
    """Delete a subscription, but keep its progress for a later one."""
    _check_pull(thread, given["consumer"])
    thread.unsubscribe(given["consumer"])
    return Reply(b"", status=204)


def _check_pull(thread: Thread, name: str) -> None:
    if thread.consumers.known(name).settings.kind != "pull":
        raise UsageError(
            f"consumer '{name}' has a handler", "it is unsubscribed on its machine only"
        )


def pop(thread: Thread, given: Given) -> Reply:
    """Ack the events up to an id, if any, and read the next ones."""
    lines = thread.pop_lines(
        given["consumer"], given["ack"], limit=given["limit"], replay=bool(given["replay"])
    )
    return Reply(f'{{"events":[{",".join(lines)}]}}'.encode("utf-8", "replace"), not lines)


def ack(thread: Thread, given: Given) -> Reply:
    """Mark all events up to an id as done."""
    thread.ack(given["consumer"], given["ack"], replay=bool(given["replay"]))
    return Reply(b"", status=204)


def pause(thread: Thread, given: Given) -> Reply:
    """Let a consumer rest: nothing is started for it, and none of its events is leased."""
    thread.pause(given["consumer"])
    return Reply(b"", status=204)


def resume(thread: Thread, given: Given) -> Reply:
    """End the pause, the stall or the back-off of a consumer."""
    thread.resume(given["consumer"])
    return Reply(b"", status=204)


# --- claims ---------------------------------------------------------------------------------------


def claim(thread: Thread, given: Given) -> Reply:
    """Lease the next events to a worker.

    Without a nonce, those of a caller who has gone before the reply are given back, and no attempt
    counts; with one, the same call again returns them.
    """
    found = thread.claim(
        given["consumer"], given["limit"], given["lease"], 0, given["nonce"],
        worker=given["worker"],
    )  # fmt: skip
    return Reply(
        f'{{"claims":[{",".join(map(claim_line, found))}]}}'.encode("utf-8", "replace"), not found,
        undo=partial(_give_back, found) if found and given["nonce"] is None else None,
    )  # fmt: skip


def _give_back(found: list[Claim], thread: Thread) -> None:
    thread.settle(retry=found, delay=0, count=False)


def settle(thread: Thread, given: Given) -> Reply:
    """Settle claims by their tokens, as one change; those whose lease has ended are listed."""
    done, retry, dead = (given[name] or [] for name in ("done", "retry", "dead"))
    lost = thread.settle(
        done, retry=retry, dead=dead, delay=given["delay"], error=given["error"],
        count=given["count"] is not False,
    )  # fmt: skip
    return of_json({"settled": len({*done, *retry, *dead}) - len(lost), "lost": lost})


def extend(thread: Thread, given: Given) -> Reply:
    """Let claims last longer, by their tokens, counted from now."""
    lost = thread.extend(given["tokens"], given["lease"])
    return of_json({"extended": len({*given["tokens"]}) - len(lost), "lost": lost})


def claims(thread: Thread, given: Given) -> Reply:
    """List the claims that are out, of one consumer or all; without their tokens."""
    found = [one._asdict() for one, _ in zip(thread.claims(given["consumer"]), range(CLAIMS))]  # noqa: B905
    for one in found:
        del one["token"]
    return of_json(found)


# --- dead letters ---------------------------------------------------------------------------------


def dead_letters(thread: Thread, given: Given) -> Reply:
    """List the events that failed for good, of one consumer or all."""
    found = thread.dead_letters(given["consumer"])
    shown = [_letter(one, given["who"]) for one, _ in zip(found, range(given["limit"]))]  # noqa: B905
    return of_json(shown)


def _letter(letter: DeadLetter, who: Principal) -> dict[str, Any]:
    shown: dict[str, Any] = letter._asdict()
    event: Event | None = letter.event
    error = letter.error and who.told(letter.error)  # the end of what a handler printed
    return {**shown, "event": None if event is None else event._asdict(), "error": error}


def retry_dead(thread: Thread, given: Given) -> Reply:
    """Let dead letters be tried again, with new attempts."""
    return of_json({"count": thread.retry_dead(given["events"], given["consumer"])})


def drop_dead(thread: Thread, given: Given) -> Reply:
    """Forget dead letters, but not their events."""
    return of_json({"count": thread.drop_dead(given["events"], given["consumer"])})


# --- the thread -----------------------------------------------------------------------------------


def status(thread: Thread, _: Given) -> Reply:
    """Read what the thread holds, what goes on in it, and who is needed."""
    found: ThreadStatus = thread.status()
    shown = {**_plain(found), "consumers": [*map(_consumer, found.consumers)]}
    del shown["path"]
    return of_json(shown)


def check(thread: Thread, _: Given) -> Reply:
    """Check the thread; this reads all of it. Faults are listed, and warnings of consumers."""
    faults = thread.check()
    return of_json({"ok": not faults, "faults": faults, "warnings": thread.warnings()})


_NAME = "The name of the consumer."
_SOURCE = Part("source", "string", "Who says it.", "self")
EVENT = (
    Part("source", "string", "The sender.", "self"),
    Part("type", "string", "The type.", "message"),
    Part("content", "json", "The payload: text, or JSON, which is kept as written.", required=True),
    Part("subtype", "string", "The subtype."),
    Part("key", "string", "Store the event once; if the key was used, that event is returned."),
)
_FILTER = Part("filter", "string", "A SQL condition over the columns of events.")
_WAIT = Part(
    "wait", "seconds", "Wait this long if there is nothing, as 30 or 30s.", 0, most=MOST_WAIT
)
_PAGE = Part("limit", "integer", "How many at most.", 100, least=1, most=PAGE)
_OF = Part("consumer", "string", "Only those of this consumer.")
_EVENTS = Part("events", "integers", "Their events; all when it is left out.", most=CLAIMS)
_REPLAY = Part("replay", "boolean", "Go back to an event that was acked before.")


def _tokens(name: str, about: str, *, required: bool = False) -> Part:
    return Part(name, "strings", about, required=required, most=CLAIMS)


_ENDS = ("stall", "dead")
_CONSUMER = f"{AT}/consumers/{{consumer}}"


# Which right each change needs; any other works on what consumers do.
_RIGHTS = {"pushEvents": "push", "ask": "push", "answer": "answer"}

_OPERATIONS: Sequence[Operation] = (
    Operation(
        "listEvents",
        "GET",
        f"{AT}/events",
        READ,
        events,
        "Events",
        (
            Part("after", "integer", "Only those above this id.", 0),
            _FILTER,
            _PAGE,
            Part("last", "integer", "The newest so many, instead.", least=1, most=PAGE),
            Part("cause", "integer", "Only those that this event has caused; does not wait."),
            _WAIT,
        ),
    ),
    Operation(
        "pushEvents",
        "POST",
        f"{AT}/events",
        WRITE,
        push,
        "Pushed",
        body=EVENT,
        many=True,
        by_caller=True,
        made=True,
    ),
    Operation("getEvent", "GET", f"{AT}/events/{{id}}", QUICK, event, "Event"),
    Operation(
        "getEventCauses",
        "GET",
        f"{AT}/events/{{id}}/causes",
        READ,
        event_causes,
        "EventCauses",
        (_PAGE,),
    ),
    Operation("listQuestions", "GET", f"{AT}/questions", QUICK, questions, "Questions"),
    Operation(
        "ask",
        "POST",
        f"{AT}/questions",
        WRITE,
        ask,
        "Question",
        body=(
            Part("text", "string", "What is asked.", required=True),
            Part("options", "strings", "Answers that are proposed.", most=100),
            Part("approval", "boolean", "Take nothing but one of the options.", False),
            Part("by_person", "boolean", "Of an approval: only a person may answer.", False),
            _SOURCE,
            Part("key", "string", "Ask once."),
            Part("context", "string", "The context in which it is asked."),
            Part("run", "integer", "The run in which it is asked.", least=1),
        ),
        made=True,
    ),
    Operation(
        "getQuestion", "GET", f"{AT}/questions/{{id}}", QUICK, question, "Question", (_WAIT,)
    ),
    Operation(
        "answer",
        "POST",
        f"{AT}/questions/{{id}}/answer",
        WRITE,
        answer,
        "Question",
        body=(
            Part("text", "string", "The answer.", required=True),
            Part("note", "string", "What is said beside it."),
            _SOURCE,
        ),
    ),
    Operation("listConsumers", "GET", f"{AT}/consumers", READ, consumers, "Consumers"),
    Operation("getConsumer", "GET", _CONSUMER, READ, consumer, "Consumer"),
    Operation(
        "subscribe",
        "PUT",
        _CONSUMER,
        WRITE,
        subscribe,
        "Consumer",
        body=(
            _FILTER,
            Part("from_now", "boolean", "Skip the events that are stored already."),
            Part("replace", "boolean", "Change what differs, and keep the progress."),
            Part("max_attempts", "integer", "How often an event is tried.", least=1, most=10**6),
            Part("ordered_by", "string", "source, type, or a path of the content, such as $.id."),
            Part("on_failure", "string", "What follows the last attempt.", choices=_ENDS),
            Part("lease", "seconds", "How long a claim lasts.", most=31_536_000),
            Part("emit_dead", "boolean", "Push an event for each dead letter."),
        ),
        alone=True,
        made=True,
    ),
    Operation("unsubscribe", "DELETE", _CONSUMER, WRITE, unsubscribe, ""),
    Operation(
        "pop",
        "POST",
        f"{_CONSUMER}/pop",
        WRITE,
        pop,
        "Popped",
        (_WAIT,),
        (
            Part("ack", "integer", "The last event that was processed."),
            _PAGE,
            _REPLAY,
        ),
        alone=True,
        again=lambda given: {**given, "ack": None, "replay": None},
    ),
    Operation(
        "ack",
        "POST",
        f"{_CONSUMER}/ack",
        WRITE,
        ack,
        "",
        body=(Part("ack", "integer", "The last event that was processed.", required=True), _REPLAY),
    ),
    Operation("pause", "POST", f"{_CONSUMER}/pause", WRITE, pause, "", body=()),
    Operation("resume", "POST", f"{_CONSUMER}/resume", WRITE, resume, "", body=()),
    Operation(
        "claim",
        "POST",
        f"{_CONSUMER}/claim",
        WRITE,
        claim,
        "Claimed",
        (_WAIT,),
        (
            Part("limit", "integer", "How many at most.", 1, least=1, most=CLAIMS),
            Part("lease", "seconds", "How long they are this worker's.", most=31_536_000),
            Part("nonce", "string", "The same again returns the same claims."),
            Part("worker", "string", "The name of the worker, which others see."),
        ),
        alone=True,
        watched=True,
    ),
    Operation(
        "settle",
        "POST",
        f"{AT}/settle",
        WRITE,
        settle,
        "Settled",
        body=(
            _tokens("done", "Claims that are finished."),
            _tokens("retry", "Claims that are tried again."),
            _tokens("dead", "Claims that are given up."),
            Part("delay", "seconds", "When they are tried again.", most=31_536_000),
            Part("error", "string", "Why they failed."),
            Part("count", "boolean", "Whether a retry follows a failed attempt.", True),
        ),
        alone=True,
    ),
    Operation(
        "extend",
        "POST",
        f"{AT}/extend",
        WRITE,
        extend,
        "Extended",
        body=(
            _tokens("tokens", "The claims.", required=True),
            Part("lease", "seconds", "How long they last from now.", most=31_536_000),
        ),
        alone=True,
    ),
    Operation("listClaims", "GET", f"{AT}/claims", READ, claims, "Claims", (_OF,)),
    Operation(
        "listDeadLetters",
        "GET",
        f"{AT}/dead-letters",
        READ,
        dead_letters,
        "DeadLetters",
        (_OF, _PAGE),
        by_caller=True,
    ),
    Operation(
        "retryDeadLetters",
        "POST",
        f"{AT}/dead-letters/retry",
        WRITE,
        retry_dead,
        "Count",
        body=(_OF, _EVENTS),
        alone=True,
    ),
    Operation(
        "dropDeadLetters",
        "POST",
        f"{AT}/dead-letters/drop",
        WRITE,
        drop_dead,
        "Count",
        body=(_OF, _EVENTS),
        alone=True,
    ),
    Operation("getStatus", "GET", f"{AT}/status", QUICK, status, "Status"),
    Operation("check", "GET", f"{AT}/check", READ, check, "Checked"),
)
OPERATIONS = tuple(one._replace(right=_RIGHTS.get(one.name, "work")) for one in _OPERATIONS)

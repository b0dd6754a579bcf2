"""The commands of claims: claim, done, retry, extend, and claims ls."""

from __future__ import annotations

import os
from itertools import chain, islice

from eventq.cli import kinds, show
from eventq.cli.options import CONSUMER, JSON, JSON_ERRORS, OF_CONSUMER, READ, THREAD
from eventq.cli.table import Argument, Command, Option
from eventq.errors import InputError, LeaseLostError, LogicError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeVar

    from eventq.log.claims import Claim
    from eventq.records.claim import ClaimInfo
    from eventq.thread import Thread

    _T = TypeVar("_T")


def claim(
    thread: Thread,
    *,
    consumer: str,
    limit: int,
    lease: float | None,
    wait: float,
    nonce: str | None,
    worker: str | None,
) -> None:
    """Lease the next events of a consumer to this worker.

    Prints one JSON object per line: the event, the attempt, when the lease ends, and the token that
    `done`, `retry`, `extend` and `dead add` take. No other worker gets the event before the lease
    ends. Prints nothing if there is no event to claim. What cannot be printed is given back.
    """
    worker = worker or f"{os.uname().nodename}:{os.getppid()}"  # this process ends at once
    from eventq.log.claims import claim_line

    found = thread.claim(consumer, limit, lease, wait, nonce, worker=worker)
    try:
        show.lines([claim_line(one) for one in found])
    except BaseException as error:  # an interrupt as well
        if nonce is None:  # with one, a repeat prints them
            thread.settle(retry=found, delay=0, count=False)
        if isinstance(error, (show.Closed, LogicError)):
            raise _unprinted(error, nonce) from error
        raise


def _unprinted(error: show.Closed | LogicError, nonce: str | None) -> LogicError:
    """Return the error for claims that nobody was told of."""
    why = error.what if isinstance(error, LogicError) else "the reader of stdout is gone"
    if nonce is None:
        fix = "claim again, where the output can be written"
        return LogicError(f"{why}; the claims were given back", fix)
    return LogicError(why, "claim again with the same nonce, which returns the same claims")


def done(thread: Thread, *, token: list[str], json: bool) -> None:
    """Finish the events of claims.

    Takes tokens, or reads them from standard input for `-`: one per line, or what claim printed.
    All are settled as one change. If the lease of one has ended, the others are settled, and the
    exit status is 4.
    """
    settle(token, thread.settle, json=json)


def retry(
    thread: Thread,
    *,
    token: list[str],
    delay: float | None,
    error: str | None,
    count: bool,
    json: bool,
) -> None:
    """Put the events of claims back, for another attempt.

    After the last attempt of a consumer the event is dead, or stops the consumer.
    """
    settle(
        token,
        lambda tokens: thread.settle(retry=tokens, delay=delay, error=error, count=count),
        json=json,
    )


def extend(thread: Thread, *, token: list[str], lease: float | None, json: bool) -> None:
    """Let claims last longer, counted from now."""
    settle(token, lambda tokens: thread.extend(tokens, lease), json=json)


def settle(
    words: Sequence[str],
    change: Callable[[list[Claim | str]], Sequence[Claim | str]],
    *,
    json: bool,
) -> None:
    """Apply a change to the claims of tokens; raise LeaseLostError for the leases that ended."""
    tokens = [*dict.fromkeys(_tokens(words))]
    lost = [str(one) for one in change([*tokens])]
    if json:
        show.dump({"settled": len(tokens) - len(lost), "lost": lost})
    if lost:
        from eventq.log.claims import parts_of

        consumer = parts_of(lost[0])[0]
        raise LeaseLostError(consumer, *(parts_of(token)[2] for token in lost))


def _tokens(words: Sequence[str]) -> Iterator[str]:
    if words.count("-") > 1:
        raise UsageError("standard input can be read once", "give '-' once")
    for word in words:
        if word == "-":
            yield from _from_stdin()
        else:
            yield word


def _from_stdin() -> Iterator[str]:
    """Yield the tokens of lines: each is a token, or a claim as JSON."""
    from eventq.cli.inputs import decode

    for number, text in enumerate(
        decode("-", "give what 'claim' printed, not too much at once").split("\n"), 1
    ):
        stripped = text.strip()
        if stripped.startswith("{"):
            yield _token_in(stripped, number)
        elif stripped:
            yield stripped


def _token_in(text: str, number: int) -> str:
    from eventq.memory import canonical

    try:
        found = canonical.parse(text)
    except InputError as error:
        raise InputError(
            f"line {number}: {error.what}", "give lines that 'claim' printed"
        ) from error
    token = found.get("token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise InputError(f"line {number} has no token", "give lines that 'claim' printed")
    return token


def known(thread: Thread, consumer: str | None, found: Iterable[_T]) -> Iterator[_T]:
    """Return what was found of a consumer; raise UnknownConsumerError if there is none of either.

    What a consumer has left stays when it is unsubscribed.
    """
    records = iter(found)
    first = [*islice(records, 1)]
    if not first and consumer is not None:
        thread.consumers.known(consumer)
    return chain(first, records)


def ls(thread: Thread, *, consumer: str | None, json: bool) -> None:
    """List the claims that are out. With their workers, ages and deadlines."""
    from eventq.cli import render
    from eventq.system import clock

    now = clock.now()

    def as_line(one: ClaimInfo) -> str:
        age, left = now - one.claimed_at_ms / 1000, one.deadline_ms / 1000 - now
        time = render.duration(abs(left))
        ends = f"ends in {time}" if left > 0 else f"ended {time} ago"
        ends = "and its worker is gone: the next one takes it" if one.lost and left > 0 else ends
        return (
            f"{show.readable(one.consumer_id)}  event {one.event_id}  attempt {one.attempt}  "
            f"{show.readable(one.worker)}  for {render.duration(max(age, 0))}, {ends}"
        )

    render.show_all(
        known(thread, consumer, thread.claims(consumer)), render.fields, as_line, json=json
    )


TOKENS = Argument("TOKEN…")
ERROR = Option("error TEXT", "What went wrong; it is shown and kept.", kinds.verbatim)

COMMANDS = {
    "claim": Command(
        claim,
        [
            THREAD,
            CONSUMER,
            Option("limit N", "Claim up to N events.", kinds.POSITIVE, default="1"),
            Option(
                "lease DURATION",
                "How long the claims last (default: as subscribe --lease says, or 30s).",
                kinds.duration,
            ),
            Option(
                "wait DURATION",
                "Wait up to this long for a first event.",
                kinds.duration,
                default="0",
            ),
            Option("nonce TEXT", "Make it safe to repeat: the same nonce gets the same claims."),
            Option("worker NAME", "The name that 'claims ls' shows (default: host and process)."),
            JSON_ERRORS,
        ],
        "eventq claim --thread ./inbox --consumer worker --limit 10 --wait 60s",
    ),
    "done": Command(
        done,
        [TOKENS, THREAD, JSON],
        "eventq done --thread ./inbox $TOKEN",
        "eventq done --thread ./inbox - < claims.jsonl",
    ),
    "retry": Command(
        retry,
        [
            TOKENS,
            THREAD,
            Option(
                "delay DURATION",
                "How long to wait before that (default: the consumer's back-off).",
                kinds.duration,
            ),
            ERROR,
            Option("no-count", "Do not count this attempt.", kinds.OFF, parameter="count"),
            JSON,
        ],
        "eventq retry --thread ./inbox --delay 10m --error 'the API is down' $TOKEN",
    ),
    "extend": Command(
        extend,
        [
            TOKENS,
            THREAD,
            Option(
                "lease DURATION",
                "The time from now (default: the length of the lease).",
                kinds.duration,
            ),
            JSON,
        ],
        "eventq extend --thread ./inbox --lease 5m $TOKEN",
    ),
    "claims ls": Command(
        ls,
        [READ, OF_CONSUMER, JSON],
        "eventq claims ls --thread ./inbox",
    ),
}

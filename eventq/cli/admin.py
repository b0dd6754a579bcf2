"""Commands that create, check and prune a thread, and explain how to use one."""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.cli.options import (
    DRY_RUN,
    JSON,
    READ,
    TRIED,
    thread_option,
    unless_thread,
)
from eventq.cli.rules import alone, exclude, one_of
from eventq.cli.table import Argument, Command, Option
from eventq.records.claim import WorkerStatus

_NO_HANDLER = "(none: it is for pop, claim and consume)"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus
    from eventq.thread import Thread


def init(*, path: str, shared: bool, any_mount: bool, schema: bool, json: bool) -> None:
    """Create a thread: a directory for events, consumers and logs.

    What a directory holds already is left alone.

    PATH may also be postgresql://USER@HOST/DATABASE?thread=NAME: then programs on many machines can
    use it. First, the owner of the database makes the tables with --schema; later, it brings them
    up to date.
    """
    from eventq.thread import init as make
    from eventq.thread import init_schema

    if schema:
        number = init_schema(path)
        show.result({"schema": number}, f"The tables are there (schema {number})", json=json)
        return

    # The tool that `thread` replaces refuses no file system.
    made = make(path, shared=shared, any_mount=any_mount or show.program() == "thread")
    show.result({"thread": made}, f"Initialized thread at {made}", json=json)
    if show.program() != "thread":  # it has never said so
        _note_others(made)


def _note_others(made: str) -> None:
    from eventq.store.paths import Layout, is_url

    if not is_url(made) and (others := Layout(made).entries()[1]):
        count = len(others)
        show.note(f"Note: the folder was not empty; its other entries ({count}) are left alone")


def info(thread: Thread, *, short: bool = False, json: bool) -> None:
    """Show what a thread holds and what goes on in it.

    Its questions, its consumers, and how many contexts, runs and artifacts it has.
    """
    found = thread.status()
    if short:
        _short(found, json=json)
    elif json:
        show.dump(_as_json(found))
    else:
        show.say("\n".join(_as_text(found)))


def _short(found: ThreadStatus, *, json: bool) -> None:
    """Write a line for each consumer, the worst first; those that need somebody say what to do."""
    from eventq.cli.render import aligned, dump_all
    from eventq.serving.attention import STATES, state

    states = [(state(one), one) for one in found.consumers]
    states.sort(key=lambda pair: (STATES.index(pair[0]), -(pair[1].lag or 0)))
    if json:
        names = ("consumer_id", "pending", "lag", "dead", "stalled", "waits_for", "advice")
        dump_all(
            {"state": worst, **{name: getattr(one, name) for name in names}}
            for worst, one in states
        )
    elif states:
        rows = [
            [worst, one.consumer_id, _burden(one), _next(one, worst, found.path)]
            for worst, one in states
        ]
        show.say("\n".join(aligned([[*map(show.readable, row)] for row in rows])))
    else:
        show.say("No consumers (see 'eventq subscribe --help')")


def _burden(one: ConsumerStatus) -> str:
    """Return what waits for a consumer, and since when."""
    from eventq.cli.render import count, duration
    from eventq.serving.attention import waiting

    parts = [count(one.dead, "dead letter")] if one.dead else []
    parts += [waiting(one)] if one.pending != 0 else []
    parts += [f"the oldest for {duration(one.lag)}"] if one.pending and one.lag is not None else []
    return ", ".join(parts)


def _next(one: ConsumerStatus, state: str, path: str) -> str:
    """Return what to do for a consumer, or what it waits for, unless all is well."""
    from eventq.log.notifier import quote

    if state == "dead":
        place = f"--thread {quote(path)} --consumer {quote(one.consumer_id)}"
        return f"next: eventq dead ls {place}"
    if state in ("running", "idle"):
        return ""
    why = "" if one.stalled is None else f"{one.stalled}; "
    return why + (f"waits for {one.waits_for}" if one.advice is None else f"next: {one.advice}")


def _as_json(found: ThreadStatus) -> dict[str, object]:
    shown: dict[str, object] = {
        "event_count": found.event_count,
        "subscriptions": [
            {name: _plain(getattr(consumer, name)) for name in _shown(consumer)}
            for consumer in found.consumers
        ],
        "thread": found.path,
        "newest_id": found.last_id,
        "db_bytes": found.db_bytes,
        "wal_bytes": found.wal_bytes,
        "mirror_bytes": found.mirror_bytes,
    }
    if show.program() == "thread":
        return shown
    return {
        **shown,
        "newest_at": found.last_at,
        "questions": [one._asdict() for one in found.questions],
        "question_count": found.question_count,
        "contexts": [one._asdict() for one in found.contexts],
        "context_count": found.context_count,
        "runs": dict(found.runs),
        "artifacts": [one._asdict() for one in found.artifacts],
    }


def _plain(value: object) -> object:
    """Return a field of a consumer, its workers as objects."""
    if isinstance(value, tuple):
        return [one._asdict() if isinstance(one, WorkerStatus) else one for one in value]
    return value


def _shown(consumer: ConsumerStatus) -> Sequence[str]:
    """Return the fields that are shown: `thread` shows those that it has always had."""
    names = consumer._fields
    return names[: names.index("kind")] if show.program() == "thread" else names


def _as_text(found: ThreadStatus) -> list[str]:
    lines = [f"Thread: {found.path}", f"Events: {found.event_count}"]
    if show.program() != "thread":
        lines += _of_people(found)
    lines.append(f"Subscriptions: {len(found.consumers)}")
    for consumer in found.consumers:
        lines += _consumer(consumer)
    return lines


def _of_people(found: ThreadStatus) -> Iterator[str]:
    """Yield the lines about what is asked, said, run and written; nothing of what there is none."""
    from eventq.cli.render import count, stamp

    if found.question_count:
        yield f"Questions: {found.question_count} (see 'eventq questions')"
    if found.contexts:
        newest = found.contexts[0]
        name = newest.name or str(newest.context_id)
        at = stamp(newest.updated_at_ms)
        yield f"Contexts: {found.context_count} (last change: {show.readable(name)}, {at})"
    if found.runs:
        yield f"Runs: {', '.join(f'{number} {status}' for status, number in found.runs.items())}"
    if found.artifacts:
        from eventq.system.counts import some

        urls = [f"{one.url} ({one.tool}, {count(one.size, 'byte')})" for one in found.artifacts]
        yield f"Being written: {some(urls, 3)}"


def _consumer(consumer: ConsumerStatus) -> list[str]:
    lines = [
        f"  - {show.readable(consumer.consumer_id)}",
        f"    handler: {show.readable(consumer.handler_cmd or _NO_HANDLER)}",
        f"    filter:  {show.readable('(none)' if consumer.filter is None else consumer.filter)}",
        f"    last_acked_id: {consumer.last_acked_id}",
        f"    updated_at: {show.readable(consumer.updated_at or '(never)')}",
        f"    pending: {_pending(consumer)}",
        f"    running: {'yes' if consumer.running else 'no'}",
    ]
    if consumer.attempts:
        lines.append(f"    attempts: {consumer.attempts} of at most {consumer.max_attempts}")
    if consumer.stalled is not None:
        why = show.readable(consumer.stalled)
        hint = " (fix it, then run 'thread resume')" * (show.program() == "thread")
        lines.append(f"    stalled: {why}{hint}")
    return lines if show.program() == "thread" else [*lines, *_of_queue(consumer)]


def _pending(consumer: ConsumerStatus) -> str:
    if consumer.pending is None:
        return "(unknown: the filter is refused)"
    return f"{consumer.pending}{'+' * consumer.pending_is_least}"


def _of_queue(consumer: ConsumerStatus) -> Iterator[str]:
    """Yield the lines about how it is run, what waits, failed, and is claimed."""
    from eventq.cli.render import duration
    from eventq.store.rules import MOST_UNFINISHED

    yield f"    runs: {_way(consumer)}"
    if consumer.label is not None:
        yield f"    label: {show.readable(consumer.label)}"
    yield f"    failure: {_failure(consumer)}"
    if consumer.worked:
        yield "    worker: yes"
    if consumer.workers:
        names = (f"{show.readable(one.worker)} ({one.claims})" for one in consumer.workers)
        yield f"    claimed by: {', '.join(names)}"
    yield f"    waits for: {show.readable(consumer.waits_for or 'an event')}"
    if consumer.advice is not None:
        yield f"    next: {show.readable(consumer.advice)}"
    if consumer.paused:
        yield "    paused: yes (until 'eventq resume')"
    if consumer.waiting_id is not None:
        since = "" if consumer.lag is None else f", stored {duration(consumer.lag)} ago"
        code = "" if consumer.exit_code is None else f", last exit code {consumer.exit_code}"
        yield f"    waits at: event {consumer.waiting_id}{since}{code}"
    if consumer.unfinished:
        is_full = consumer.unfinished >= MOST_UNFINISHED
        full = "; no new event is claimed until some of these are finished" if is_full else ""
        yield f"    unfinished: {consumer.unfinished} ({_of_unfinished(consumer)}){full}"
    if consumer.unfinished and consumer.unexamined and consumer.kind != "loop":
        yield f"    unexamined: {consumer.unexamined} (no worker has looked at them yet)"
    if consumer.dead:
        yield f"    dead letters: {consumer.dead} (see 'eventq dead ls')"
    if consumer.done or consumer.failed:
        ends = f"{consumer.done} done, {consumer.failed} failed, {consumer.buried} dead"
        yield f"    last 24 hours: {ends}"
    if consumer.log is not None:
        yield f"    log: {show.readable(consumer.log)}"


def _way(consumer: ConsumerStatus) -> str:
    """Return how the events of a consumer are handled."""
    by = f", in order of {show.readable(consumer.ordered_by)}" if consumer.ordered_by else ""
    if consumer.kind == "pull":
        return f"nothing; workers claim its events{by}"
    if consumer.kind == "loop":
        return "while events wait; the handler pops and acks them"
    events = "each event" if consumer.batch == 1 else f"each {consumer.batch} events"
    many = f"up to {consumer.concurrency} at once{by}" if consumer.concurrency else "in order"
    return f"once for {events}, {many}"


def _failure(consumer: ConsumerStatus) -> str:
    """Return how often an event is tried, and what follows the last attempt."""
    from eventq.cli.render import count
    from eventq.log.outcomes import in_words

    least, most = map(in_words, consumer.backoff)
    end = "the consumer stalls" if consumer.on_failure == "stall" else "it is a dead letter"
    late = "" if consumer.timeout is None else f"; killed after {consumer.timeout:g}s"
    tries = count(consumer.max_attempts, "attempt")
    apart = f", {least} to {most} apart" * (consumer.max_attempts > 1)
    return f"{tries}{apart}, then {end}{late}"


def _of_unfinished(consumer: ConsumerStatus) -> str:
    """Return what unfinished events wait for; nothing is said of what there is none of."""
    again = consumer.unfinished - consumer.leased - consumer.parked - consumer.halted
    parts = [
        f"{consumer.leased} claimed now" * bool(consumer.leased),
        f"{again} {'waits' if again == 1 else 'wait'} for another attempt" * bool(again),
        f"{consumer.halted} stopped after the last attempt" * bool(consumer.halted),
        f"{consumer.parked} behind another event of the same group" * bool(consumer.parked),
    ]
    return ", ".join(filter(None, parts))


def check(thread: Thread, *, strict: bool, json: bool) -> int:
    """Check a thread and print each fault. The exit status is 1 if there is any.

    Consumers that are stalled or paused, or whose events nobody handles, are warnings: with
    --strict, the exit status is 3.
    """
    faults = thread.check()
    text = "\n".join(show.readable(show.called(fault)) for fault in faults)
    if show.program() == "thread":
        show.result({"ok": not faults, "faults": faults}, text or "ok", json=json)
        return 1 if faults else 0
    warned = [] if faults else thread.warnings()
    found = {"ok": not faults, "faults": faults, "warnings": warned}
    show.result(found, text or "ok", json=json)
    for what in [] if json else warned:
        show.note(f"Warning: {what}")
    return 1 if faults else 3 if warned and strict else 0


def prune(
    thread: Thread,
    *,
    keep_last: int | None,
    before_id: int | None,
    force: bool,
    dry_run: bool = False,
    json: bool,
) -> None:
    """Delete old events that every consumer has acked. Their disk space is freed."""
    from eventq.cli.render import count

    if dry_run:
        ids = thread.prunable(keep_last=keep_last, before_id=before_id, force=force)
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        found = {"dry_run": True, "count": len(ids), "first_id": first, "last_id": last}
        which = f", {first} to {last}" if ids else ""
        show.result(found, f"Would prune {count(len(ids), 'event')}{which}", json=json)
        return
    number = thread.prune(keep_last=keep_last, before_id=before_id, force=force)
    show.result({"count": number}, f"Pruned {count(number, 'event')}", json=json)


def gc(
    thread: Thread, *, apply: bool, grace: float, reachable: list[tuple[str, ...]], json: bool
) -> None:
    """List unreachable turns and blobs. --apply deletes them and frees their space.

    With --reachable, print the refs of all blobs that some blobs and turns keep instead.
    """
    from eventq.cli.render import count, fields, show_all

    if reachable:
        roots = [root for some in reachable for root in some]
        show_all(thread.reachable(roots), lambda ref: {"ref": ref}, str, json=json)
        return
    found = thread.gc(apply=apply, grace=grace)
    what = f"{count(found.turns, 'turn')} and {count(found.blobs, 'blob')}"
    what += f" ({count(found.stored, 'byte')})"
    text = f"Deleted {what}" if apply else f"Would delete {what}; run with --apply"
    show.result(fields(found), text, json=json)


def guide(*, path: bool) -> None:
    """Print a short guide for agents: push, pop, process, ack."""
    from eventq.running.coding_agents import SKILL_FOLDER

    if path:
        show.say(SKILL_FOLDER)
        return
    with open(os.path.join(SKILL_FOLDER, "SKILL.md"), encoding="utf-8") as file:
        show.say(file.read().split("---\n", 2)[2].strip())


def completion(*, shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish."""
    from eventq.cli.app import completion_script

    show.say(completion_script(shell))


COMMANDS = {
    "init": Command(
        init,
        [
            Argument("PATH", kinds.place),
            Option("shared", "Create files with the process umask (default: owner only)."),
            Option("any-mount", "Allow NFS, FUSE and others, if only this machine writes."),
            Option("schema", "Make the tables in a database of PostgreSQL, and no thread."),
            JSON,
        ],
        "eventq init ./inbox",
        "eventq init --schema postgresql://owner@host/database",
        "eventq init 'postgresql://user@host/database?thread=inbox'",
        rules=[exclude("schema", "shared"), exclude("schema", "any-mount")],
    ),
    "info": Command(
        info,
        [
            READ,
            *unless_thread(Option("short", "Print a line for each consumer, the worst first.")),
            JSON,
        ],
        *unless_thread("eventq info ./inbox", "eventq info ./inbox --short"),
        "eventq info --thread ./inbox",
    ),
    "check": Command(
        check,
        [READ, Option("strict", "Exit with 3 if there are warnings."), JSON],
        "eventq check --thread ./inbox",
        "eventq check --thread ./inbox --strict",
    ),
    "prune": Command(
        prune,
        [
            TRIED,
            Option("keep-last N", "Keep the newest N events.", kinds.WHOLE),
            Option("before-id N", "Delete the events below this id.", kinds.WHOLE),
            Option("force", "Delete events even if a consumer has not acked them."),
            *unless_thread(DRY_RUN),
            JSON,
        ],
        "eventq prune --thread ./inbox --keep-last 100000",
        *unless_thread("eventq prune --thread ./inbox --keep-last 100000 --dry-run"),
        rules=[one_of("keep-last", "before-id")],
    ),
    "gc": Command(
        gc,
        [
            Option("apply", "Delete them instead of listing them."),
            Option(
                "grace DURATION",
                "Keep what was stored within this time.",
                kinds.duration,
                default="1h",
            ),
            Option(
                "reachable REF,REF…",
                "Print what these blobs and turns (turn:ID) keep. May be repeated.",
                kinds.refs,
            ),
            thread_option(kinds.Opened(reads=lambda raw: not raw["apply"])),
            JSON,
        ],
        "eventq gc --thread ./inbox",
        "eventq gc --apply --grace 7d --thread ./inbox",
        "eventq gc --reachable turn:40 --thread ./inbox",
        rules=[alone("reachable", "apply", "grace")],
    ),
    "guide": Command(
        guide,
        [Option("path", "Print the directory of the guide's skill instead.")],
        "eventq guide",
    ),
    "completion": Command(
        completion,
        [Argument("SHELL", kinds.Choice("bash", "zsh", "fish"))],
        'eval "$(eventq completion bash)"',
    ),
}

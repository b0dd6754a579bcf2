"""Commands that create, check, prune and explain a thread."""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.cli.options import JSON, READ, THREAD
from eventq.cli.rules import one_of
from eventq.cli.table import Argument, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records import ConsumerInfo, ThreadInfo
    from eventq.thread import Thread


def init(*, path: str, shared: bool, json: bool) -> None:
    """Create a thread: a directory for events, consumers and logs."""
    from eventq.thread import init as make

    made = make(path, shared=shared)
    show.result({"thread": made}, f"Initialized thread at {made}", json=json)


def info(thread: Thread, *, json: bool) -> None:
    """Show how many events a thread has, and its consumers."""
    found = thread.info()
    if json:
        show.dump(_as_json(found))
    else:
        show.say("\n".join(_as_text(found)))


def _as_json(found: ThreadInfo) -> dict[str, object]:
    return {
        "event_count": found.event_count,
        "subscriptions": [
            {name: getattr(consumer, name) for name in consumer.__slots__}
            for consumer in found.subscriptions
        ],
        "thread": found.path,
        "newest_id": found.last_id,
        "db_bytes": found.db_bytes,
        "wal_bytes": found.wal_bytes,
        "mirror_bytes": found.mirror_bytes,
    }


def _as_text(found: ThreadInfo) -> list[str]:
    lines = [
        f"Thread: {found.path}",
        f"Events: {found.event_count}",
        f"Subscriptions: {len(found.subscriptions)}",
    ]
    for consumer in found.subscriptions:
        lines += _consumer(consumer)
    return lines


def _consumer(consumer: ConsumerInfo) -> list[str]:
    pending = consumer.pending
    lines = [
        f"  - {show.readable(consumer.consumer_id)}",
        f"    handler: {show.readable(consumer.handler_cmd)}",
        f"    filter:  {show.readable('(none)' if consumer.filter is None else consumer.filter)}",
        f"    last_acked_id: {consumer.last_acked_id}",
        f"    updated_at: {show.readable(consumer.updated_at or '(never)')}",
        f"    pending: {'(unknown: the filter is refused)' if pending is None else pending}",
        f"    running: {'yes' if consumer.running else 'no'}",
    ]
    if consumer.attempts:
        lines.append(f"    attempts: {consumer.attempts} of {consumer.max_attempts}")
    if consumer.stalled is not None:
        why = show.readable(consumer.stalled)
        lines.append(f"    stalled: {why} (fix it, then run '{show.program()} resume')")
    return lines


def check(thread: Thread, *, json: bool) -> int:
    """Check a thread and print each fault. The exit status is 1 if there is any."""
    faults = thread.check()
    text = "\n".join(show.readable(show.called(fault)) for fault in faults)
    show.result({"ok": not faults, "faults": faults}, text or "ok", json=json)
    return 1 if faults else 0


def prune(
    thread: Thread, *, keep_last: int | None, before_id: int | None, force: bool, json: bool
) -> None:
    """Delete old events that every consumer has acked. Their disk space is freed."""
    count = thread.prune(keep_last=keep_last, before_id=before_id, force=force)
    show.result({"count": count}, f"Pruned {count} events", json=json)


def mirror_rebuild(thread: Thread, *, json: bool) -> None:
    """Rewrite events.jsonl from the database, in one file."""
    count = thread.rebuild_mirror()
    show.result({"count": count}, f"Rebuilt events.jsonl with {count} events", json=json)


def gc(thread: Thread, *, apply: bool, grace: float, json: bool) -> None:
    """List unreachable turns and blobs. --apply deletes them and frees their space."""
    from eventq.cli.render import count, fields

    found = thread.gc(apply=apply, grace=grace)
    what = f"{count(found.turns, 'turn')} and {count(found.blobs, 'blob')} ({found.stored:,} bytes)"
    text = f"Deleted {what}" if apply else f"Would delete {what}; run with --apply"
    show.result(fields(found), text, json=json)


def guide(*, path: bool) -> None:
    """Print a short guide for agents: push, pop, process, ack."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.join(package, "skill", "eventq")
    if path:
        show.say(folder)
        return
    with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as file:
        show.say(file.read().split("---\n", 2)[2].strip())


def completion(*, shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish."""
    from eventq.cli.app import completion_script

    show.say(completion_script(shell))


COMMANDS = {
    "init": Command(
        init,
        [
            Argument("PATH", kinds.directory),
            Option("shared", "Create files with the process umask (default: owner only)."),
            JSON,
        ],
        "eventq init ./inbox",
    ),
    "info": Command(info, [READ, JSON], "eventq info --thread ./inbox"),
    "check": Command(check, [READ, JSON], "eventq check --thread ./inbox"),
    "prune": Command(
        prune,
        [
            THREAD,
            Option("keep-last N", "Keep the newest N events.", kinds.WHOLE),
            Option("before-id N", "Delete the events below this id.", kinds.WHOLE),
            Option("force", "Delete events even if a consumer has not acked them."),
            JSON,
        ],
        "eventq prune --thread ./inbox --keep-last 100000",
        rules=[one_of("keep-last", "before-id")],
    ),
    "mirror rebuild": Command(
        mirror_rebuild, [THREAD, JSON], "eventq mirror rebuild --thread ./inbox"
    ),
    "gc": Command(
        gc,
        [
            Option("apply", "Delete them instead of listing them."),
            Option(
                "grace TIME",
                "Keep what was stored within this time: 90s, 15m, 1h, 7d.",
                kinds.duration,
                default="1h",
            ),
            Option("thread PATH", THREAD.help, kinds.Opened(reads="apply"), required=True),
            JSON,
        ],
        "eventq gc --thread ./inbox",
        "eventq gc --apply --grace 7d --thread ./inbox",
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

"""The commands around the log: making, looking after and explaining a thread."""

from __future__ import annotations

import os

from eventq.cli import show
from eventq.cli.log import local, open_thread
from eventq.cli.options import number, text
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.options import Raw
    from eventq.records import ConsumerInfo, ThreadInfo

SHELLS = ("bash", "zsh", "fish")


def init(raw: Raw) -> None:
    """Make a thread."""
    from eventq.thread import init as make

    path = make(local(str(raw["PATH"])), shared=bool(raw["shared"]))
    if raw["json"]:
        show.dump({"thread": path})
    else:
        show.say(f"Initialized thread at {path}")


def info(raw: Raw) -> None:
    """Show a thread at a glance."""
    with open_thread(raw, read_only=True) as thread:
        found = thread.info()
    if raw["json"]:
        show.dump(_as_json(found))
    else:
        show.say("\n".join(_as_text(found)))


def _as_json(found: ThreadInfo) -> dict[str, object]:
    return {
        "event_count": found.event_count,
        "subscriptions": [
            {name: getattr(consumer, name) for name in consumer.__slots__} for consumer in found.subscriptions
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
    pending = "(unknown: the filter is refused)" if consumer.pending is None else consumer.pending
    lines = [
        f"  - {show.readable(consumer.consumer_id)}",
        f"    handler: {show.readable(consumer.handler_cmd)}",
        f"    filter:  {show.readable('(none)' if consumer.filter is None else consumer.filter)}",
        f"    last_acked_id: {consumer.last_acked_id}",
        f"    updated_at: {show.readable(consumer.updated_at or '(never)')}",
        f"    pending: {pending}",
        f"    running: {'yes' if consumer.running else 'no'}",
    ]
    if consumer.attempts:
        lines.append(f"    attempts: {consumer.attempts} of {consumer.max_attempts}")
    if consumer.stalled is not None:
        lines.append(f"    stalled: {show.readable(consumer.stalled)} (mend it, then run '{show.program()} resume')")
    return lines


def check(raw: Raw) -> int:
    """Say what is wrong."""
    with open_thread(raw, read_only=True) as thread:
        faults = thread.check()
    if raw["json"]:
        show.dump({"ok": not faults, "faults": faults})
    else:
        show.say("\n".join(show.readable(show.called(fault)) for fault in faults) or "ok")
    return 1 if faults else 0


def prune(raw: Raw) -> None:
    """Delete old events."""
    if (raw["keep-last"] is None) == (raw["before-id"] is None):
        raise UsageError("prune needs --keep-last or --before-id, and not both", "give one of the two")
    with open_thread(raw) as thread:
        keep = None if raw["keep-last"] is None else number(raw, "keep-last")
        before = None if raw["before-id"] is None else number(raw, "before-id")
        count = thread.prune(keep_last=keep, before_id=before, force=bool(raw["force"]))
    if raw["json"]:
        show.dump({"count": count})
    else:
        show.say(f"Pruned {count} events")


def resume(raw: Raw) -> None:
    """End a stall or a back-off."""
    with open_thread(raw) as thread:
        consumer = text(raw, "consumer") or ""
        thread.resume(consumer)
    if raw["json"]:
        show.dump({"consumer_id": consumer})
    else:
        show.say(f"Resumed consumer '{consumer}'")


def mirror_rebuild(raw: Raw) -> None:
    """Write the mirror anew."""
    with open_thread(raw) as thread:
        count = thread.rebuild_mirror()
    if raw["json"]:
        show.dump({"count": count})
    else:
        show.say(f"Rebuilt events.jsonl with {count} events")


def gc(raw: Raw) -> None:
    """Collect what nothing leads to."""
    from eventq.cli.given import duration
    from eventq.cli.render import count, fields

    apply = bool(raw["apply"])
    with open_thread(raw, read_only=not apply) as thread:
        found = thread.gc(apply=apply, grace=duration(raw, "grace", 3600))
    if raw["json"]:
        show.dump(fields(found))
        return
    what = f"{count(found.turns, 'turn')} and {count(found.blobs, 'blob')} ({found.stored:,} bytes)"
    show.say(f"Deleted {what}" if apply else f"Would delete {what}; run with --apply")


def pack_export(raw: Raw) -> None:
    """Write a pack."""
    with open_thread(raw, read_only=True) as thread:
        folder = text(raw, "FOLDER") or ""
        thread.export_pack(folder)
    if raw["json"]:
        show.dump({"folder": os.path.abspath(folder)})
    else:
        show.say(f"Exported to {os.path.abspath(folder)}")


def pack_import(raw: Raw) -> None:
    """Store what a pack holds."""
    from eventq.cli.render import added, fields

    with open_thread(raw) as thread:
        found = thread.import_pack(text(raw, "FOLDER") or "")
    if raw["json"]:
        show.dump(fields(found))
        return
    show.say(f"Imported {added(found)}")
    for note in found.notes:
        show.say(show.readable(note))


def guide(raw: Raw) -> None:
    """Print the guide, without the head that makes it a skill."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skill", "eventq")
    if raw["path"]:
        show.say(folder)
        return
    with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as file:
        show.say(file.read().split("---\n", 2)[2].strip())


def completion(raw: Raw) -> None:
    """Print a shell's completion script."""
    from eventq.cli.app import completion_script

    shell = str(raw["SHELL"])
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for '{shell}'", f"choose one of {', '.join(SHELLS)}")
    show.say(completion_script(shell))

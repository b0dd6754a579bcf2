"""The state of threads as Prometheus reads it: the text format 0.0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus

_THREAD: Mapping[str, tuple[str, str, Callable[[ThreadStatus], float | None]]] = {
    "eventq_last_event_id": ("counter", "The id of the newest event.", lambda one: one.last_id),
    "eventq_events": ("gauge", "Events that are stored.", lambda one: one.event_count),
    "eventq_database_bytes": ("gauge", "Bytes of the database.", lambda one: one.db_bytes),
    "eventq_wal_bytes": ("gauge", "Bytes of its log of changes.", lambda one: one.wal_bytes),
    "eventq_mirror_bytes": ("gauge", "Bytes of events.jsonl.", lambda one: one.mirror_bytes),
    "eventq_questions": ("gauge", "Questions without an answer.", lambda one: one.question_count),
    "eventq_contexts": ("gauge", "Contexts.", lambda one: one.context_count),
    "eventq_artifacts_open": ("gauge", "Artifacts being written.", lambda one: len(one.artifacts)),
}
_CONSUMER: Mapping[str, tuple[str, Callable[[ConsumerStatus], float | None]]] = {
    "pending": ("Events that are not finished, counted to 1,000 with a filter.",
                lambda one: one.pending),
    "lag_seconds": ("Age of the first event that is not finished.", lambda one: one.lag or 0),
    "claimed": ("Events that are claimed now.", lambda one: one.leased),
    "dead_letters": ("Events that failed for good.", lambda one: one.dead),
    "running": ("Whether its handler runs.", lambda one: one.running),
    "worked": ("Whether a worker looks after it.", lambda one: one.worked),
    "paused": ("Whether it is paused.", lambda one: one.paused),
    "stalled": ("Whether it is stalled.", lambda one: one.stalled is not None),
}  # fmt: skip


def exposition(found: Mapping[str, ThreadStatus], sound: Mapping[str, bool]) -> str:
    """Return the metrics of threads, by name, and whether each is sound; others have no status."""
    return "".join(f"{line}\n" for line in _lines(found, sound))


def _lines(found: Mapping[str, ThreadStatus], sound: Mapping[str, bool]) -> Iterator[str]:
    yield "# HELP eventq_sound Whether the thread can be read, and its last check found no fault."
    yield "# TYPE eventq_sound gauge"
    for thread, is_sound in sound.items():
        yield f"eventq_sound{{thread={_quoted(thread)}}} {is_sound:d}"
    for name, (kind, about, value) in _THREAD.items():
        yield f"# HELP {name} {about}"
        yield f"# TYPE {name} {kind}"
        for thread, status in found.items():
            yield f"{name}{{thread={_quoted(thread)}}} {value(status) or 0:d}"
    yield "# HELP eventq_runs Runs by status."
    yield "# TYPE eventq_runs gauge"
    for thread, status in found.items():
        for what, count in status.runs.items():
            yield f"eventq_runs{{thread={_quoted(thread)},status={_quoted(what)}}} {count}"
    for name, (about, number) in _CONSUMER.items():
        yield f"# HELP eventq_consumer_{name} {about}"
        yield f"# TYPE eventq_consumer_{name} gauge"
        for thread, status in found.items():
            for one in status.consumers:
                amount = number(one)
                labels = f"thread={_quoted(thread)},consumer={_quoted(one.consumer_id)}"
                if amount is not None:
                    yield f"eventq_consumer_{name}{{{labels}}} {float(amount):g}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'

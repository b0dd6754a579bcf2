"""What a person does on a page: each act changes something, and leads to a page that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from eventq.errors import LogicError, UsageError
from eventq.http.pages.page_request import whole_in, word_in
from eventq.record import Record
from eventq.said import one_line
from eventq.serving.letters import shown
from eventq.serving.plans import READ, WRITE
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eventq.http.pages.page_request import Ask
    from eventq.thread import Thread


class Done(Record):
    """What an act did, in a sentence, and the page that it leads to, by default the one before."""

    note: str
    place: str | None = None


def _answer(thread: Thread, ask: Ask) -> Done:
    number = whole_in(ask.form, "id")
    text = ask.form.get("text", "").replace("\r\n", "\n")  # as forms send the lines of an option
    note = ask.form.get("note", "").strip() or None
    thread.answer(number, text, source="person", note=note)
    more = f", with the note: {one_line(note, 100)}" if note else ""
    return Done(f"You answered event {number}: {one_line(text, 100)}{more}")


def _resume(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    thread.resume(name)
    return Done(f"{name} goes on.")


def _pause(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    thread.pause(name)
    return Done(f"{name} is paused. What comes waits until it goes on.")


def _skip(thread: Thread, ask: Ask) -> Done:
    name, number = word_in(ask.form, "consumer"), whole_in(ask.form, "event")
    with thread.write():
        found = next((c for c in thread.status().consumers if c.consumer_id == name), None)
        if found is None or found.stalled is None or found.waiting_id != number:
            what = f"{name} does not stand still at event {number} any more"
            raise LogicError(what, "load the page again, and look where it stands")
        thread.ack(name, number)
    return Done(f"{name} skips event {number} and goes on. The event stays in the log.")


def _replay(thread: Thread, ask: Ask) -> Done:
    name, number = word_in(ask.form, "consumer"), whole_in(ask.form, "id")
    with thread.write():
        found = next((c for c in thread.status().consumers if c.consumer_id == name), None)
        if found is not None and number > found.last_acked_id + 1:  # an ack would skip what waits
            what = (
                f"{name} has not come to event {number} yet: it acked up to {found.last_acked_id}"
            )
            raise LogicError(what, f"give an event up to {found.last_acked_id + 1}")
        thread.ack(name, max(0, number - 1), replay=True)
    return Done(f"{name} handles event {number} and all that match after it once more.")


def _retry(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    found = _of_letters(thread, ask, thread.retry_dead)
    return Done(f"{name} tries {count(found, 'dead letter')} again.")


def _drop(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    found = _of_letters(thread, ask, thread.drop_dead)
    place = f"{ask.at}/consumers/{quote(name, safe='')}" if chosen_in(ask.form) else None
    stay = "event stays" if found == 1 else "events stay"
    said = f"{count(found, 'dead letter')} of {name} dropped. The {stay} in the log."
    return Done(said, place)


def chosen_in(given: Mapping[str, str]) -> list[int]:
    """Return the events that were chosen, by the names of their fields."""
    names = [name.removeprefix("event-") for name in given if name.startswith("event-")]
    return [whole_in({"event": name}, "event") for name in names]


def _of_letters(thread: Thread, ask: Ask, act: Callable[..., int]) -> int:
    """Act on dead letters: one, chosen ones, those of a reason, or all that were shown.

    Those that died after the page was made are left alone, and nothing is done should there be more
    than the page said, as after a step of the clock. Returns how many there were.
    """
    name, form = word_in(ask.form, "consumer"), ask.form
    if "event" in form:
        return act([whole_in(form, "event")], name)
    chosen, died_by = chosen_in(form), whole_in(form, "died_by")
    if not chosen and "letters" not in form:
        raise UsageError("no dead letter was chosen", "go back, and choose some")
    with thread.write():
        if chosen or form.get("reason"):
            most, upto = whole_in(form, "letters", 0), whole_in(form, "upto", 0)
            found = shown(
                thread, name, died_by, events=chosen or None, chosen=form.get("reason", ""),
                upto=upto, most=most,
            )  # fmt: skip
            return act(found, name)
        letters = whole_in(form, "letters")
        done = act(None, name, died_by_ms=died_by)
        if done > letters:
            what = f"{name} has more dead letters by now than the {letters} that were shown"
            raise LogicError(what, "load the page again, and look at them")
    return done


def _fork(thread: Thread, ask: Ask) -> Done:
    at = whole_in(ask.form, "turn")
    name = ask.form.get("name") or None
    made = thread.contexts.fork(word_in(ask.form, "context"), at=at, name=name)
    what = f"Forked at turn {at}. This context goes on from there; the other one stays as it is."
    return Done(what, f"{ask.at}/contexts/{made.id}")


def _fork_run(thread: Thread, ask: Ask) -> Done:
    step, label = whole_in(ask.form, "step"), ask.form.get("label") or None
    made = thread.runs.get(word_in(ask.form, "run")).fork(step, label=label)
    return Done(f"Forked at step {step}.", f"{ask.at}/runs/{made.id}")


def _end_run(thread: Thread, ask: Ask) -> Done:
    found = thread.runs.get(word_in(ask.form, "run"))
    found.cancel()
    return Done(f"Run {found.id} ended. Its steps stay.")


def _check(thread: Thread, ask: Ask) -> Done:
    faults = thread.check()
    ask.served.checked = {"at": clock.now(), "faults": faults, "warnings": thread.warnings()}
    return Done(f"Checked: {count(len(faults), 'fault') if faults else 'no fault'}.")


ACTS: Mapping[str, tuple[str, str, Callable[[Thread, Ask], Done]]] = {
    "answer": ("answer", WRITE, _answer),
    "resume": ("work", WRITE, _resume),
    "pause": ("work", WRITE, _pause),
    "skip": ("work", WRITE, _skip),
    "replay": ("work", WRITE, _replay),
    "retry": ("work", WRITE, _retry),
    "drop": ("work", WRITE, _drop),
    "fork": ("all", WRITE, _fork),
    "fork-run": ("all", WRITE, _fork_run),
    "end-run": ("all", WRITE, _end_run),
    "check": ("read", READ, _check),
}

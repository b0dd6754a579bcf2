"""Sums of the tokens that models took: of a session, a context, a run, the thread, each hour."""

from __future__ import annotations

from _operator import add

from eventq.errors import ClosedError, DamagedError, LogicError, NotAThreadError
from eventq.records.spent import HourUsage, ModelUsage, UsageSum
from eventq.sessions.counting import QUICKLY, catch_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.memory.blobs import Blobs
    from eventq.store.engine import Engine
    from eventq.store.usage import Sums

HOUR = 3_600_000
LINES = 500  # lines and turns of older versions that a question counts before it is answered


def of_context(database: Engine, blobs: Blobs, context: int, since: int, until: int) -> UsageSum:
    """Return what was used in a context; in a branch of a session, in all of the session."""
    is_all = _caught_up(database, blobs)
    row = database.sessions.of_context(context)
    if row is None:
        return _sum(database.usage.contexts([context], since, until), is_all=is_all)
    tips = [tip.context for tip in database.sessions.tips(row.name)]
    own, inside, beside = database.usage.session(row.name, since, until)
    if row.owner is not None or not own:  # it is that of a subagent
        own, inside = inside, []
    own = [*own, *database.usage.contexts(tips, since, until)]
    return _sum(own, is_all=is_all)._replace(subagents=_sum([*inside, *beside], is_all=is_all))


def of_runs(database: Engine, blobs: Blobs, runs: Sequence[int]) -> dict[int, UsageSum]:
    """Return what was used in each of some runs."""
    is_all = _caught_up(database, blobs)
    found = database.usage.by_context(runs)
    return {run: _sum(found.get(run, []), is_all=is_all) for run in runs}


def of_sessions(database: Engine, blobs: Blobs, names: Sequence[str]) -> dict[str, UsageSum]:
    """Return what was used in each of some sessions, all of which are there."""
    is_all = _caught_up(database, blobs)
    found: dict[tuple[str, int], Sums] = {}
    for row in database.usage.by_session(names):
        found.setdefault(row[:2], []).append(row[2:])
    return {
        name: _sum(found.get((name, 0), []), is_all=is_all)._replace(
            subagents=_sum(found.get((name, 1), []), is_all=is_all)
        )
        for name in names
    }


def of_thread(database: Engine, blobs: Blobs, since: int, until: int) -> UsageSum:
    """Return what was used in the thread."""
    is_all = _caught_up(database, blobs)
    return _sum(database.usage.thread(since, until), is_all=is_all)


def by_hour(database: Engine, since: int, until: int) -> list[HourUsage]:
    """Return what was used in each hour that has any."""
    return [
        HourUsage(row[0] * HOUR, *map(int, row[1:])) for row in database.usage.hours(since, until)
    ]


def count_rest(database: Engine, blobs: Blobs) -> None:
    """Count all that older versions have stored, as far as this thread can be written.

    It waits for other writers as a change does.
    """
    while database.has_usage() and database.usage.is_behind() and _count(database, blobs, None):
        pass


def _caught_up(database: Engine, blobs: Blobs) -> bool:
    """Count some of what older versions have stored, if there is any; return whether none is."""
    if not database.has_usage():
        return not database.has_memory()
    usage = database.usage
    return not usage.is_behind() or (_count(database, blobs, QUICKLY) and not usage.is_behind())


def _count(database: Engine, blobs: Blobs, patience: float | None) -> bool:
    """Count some of what older versions have stored; return False where that cannot be now.

    It is a question that is answered: somebody else who writes, a disk that is full or a thread
    that may not be written only keep the answer from being whole.
    """
    try:
        database.check_writable()
        catch_up(database, blobs, LINES, patience)
    except (ClosedError, DamagedError, NotAThreadError):
        raise
    except LogicError:
        return False
    return True


def _sum(rows: Sums, *, is_all: bool) -> UsageSum:
    """Return sums by model as one; a model may be there several times."""
    models: dict[str, list[int]] = {}
    for model, *counted in rows:
        before = models.get(model, [0] * len(counted))
        models[model] = [*map(add, before, counted)]
    found = [
        ModelUsage(model, out, fresh, cached, responses)
        for model, (out, fresh, cached, responses) in models.items()
    ]
    found.sort(key=lambda one: (-one.out, -one.fresh, one.model))
    return UsageSum(
        sum(one.out for one in found), sum(one.fresh for one in found),
        sum(one.cached for one in found), sum(one.responses for one in found),
        tuple(found), is_all=is_all,
    )  # fmt: skip

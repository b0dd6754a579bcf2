"""Import session files of coding agents, and export them."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.blob import save
from eventq.cli.options import CONTEXT, JSON, OUTPUT, READ, THREAD
from eventq.cli.rules import exclude
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import UsageError, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypedDict

    from eventq.records.session import EntryInfo, SessionBranch, SessionImported, SessionInfo
    from eventq.records.spent import UsageSum
    from eventq.records.turn import ContextInfo
    from eventq.thread import Thread

    class New(TypedDict):
        """What a new session has instead of what its source has."""

        title: str | None
        cwd: str | None


_FAILURES = 100  # that are named
_WORDS = 80  # characters of a title
_DRAWN = 200  # branches; a drawing can be as wide as it is long


def ls(
    thread: Thread, *, project: str | None, since: float | None, tool: str | None, json: bool
) -> None:
    """List the session files of a thread, the last used first.

    A line ends with the directory that the agent worked in, and the session's title or first words.
    Those of subagents are shown with the session that they belong to. Its tokens are those that
    models wrote in all of these, where the files say it.
    """
    found = thread.sessions.views.found(project=project, since=since, tool=tool)
    used = {} if json else thread.usage_of_sessions([one.name for one in found])
    render.show_all(found, render.fields, lambda one: _line(one, used[one.name]), json=json)


def _line(one: SessionInfo, used: UsageSum) -> str:
    parts = [show.readable(one.name), one.tool, render.count(one.lines, "line")]
    parts += [render.count(one.turns, "turn"), render.count(one.branches, "branch")]
    if one.agents:
        parts.append(render.count(one.agents, "subagent"))
    if one.generation > 1:
        parts.append(f"generation {one.generation}")
    if tokens := used.out + (used.subagents.out if used.subagents else 0):
        parts.append(render.tokens(tokens, "written", is_all=used.is_all))
    parts.append(render.stamp(one.active_at_ms))
    parts += [show.readable(one.cwd)] if one.cwd else []
    words = one.title or one.prompt
    return "  ".join((*parts, f'"{show.readable(words[:_WORDS])}"') if words else parts)


def show_one(thread: Thread, *, name: str, tree: bool, json: bool) -> None:
    """Show a session's file, generations, branches and subagents.

    NAME is the session's, or a context of it. In the list, * is where a session goes on. Notes name
    the lines where links are missing, or that are not one JSON object each.
    """
    views = thread.sessions.views
    if tree:
        render.say_all(_drawn(thread, name))
        return
    info, title = views.info(name), views.title(name)
    generations, branches = views.generations(name), views.branches(name)
    notes = views.notes(name)
    if json:
        show.dump({
            **render.fields(info), "title": title, "notes": notes,
            "generations": [*map(render.fields, generations)],
            "branches": [*map(render.fields, branches)],
        })  # fmt: skip
        return
    show.say(f"Session: {show.readable(info.name)}")
    show.say(f"Title: {'(none)' if title is None else show.readable(title)}")
    show.say(f"Tool: {info.tool}")
    show.say(f"File: {'(none)' if info.file is None else show.readable(info.file)}")
    show.say(f"Size: {render.count(info.size, 'byte')}, {render.count(info.lines, 'line')}")
    for one in generations:
        lines = render.count(one.lines, "line")
        show.say(f"Generation {one.generation}: {lines}  {render.stamp(one.updated_at_ms)}")
    render.say_all(f"Note: {show.readable(one)}" for one in notes)
    render.say_all(map(_branch, branches))


def _branch(one: SessionBranch) -> str:
    mark = "*" if one.name == one.session else " "
    parts = [
        f"{mark} {show.readable(one.name or str(one.context_id))}",
        render.count(one.entries, "entry"),
    ]
    places = {
        "continues": one.continues, "ends at": one.entry, "leaves at": one.leaves_at,
        "started by": one.started_by,
    }  # fmt: skip
    parts += [f"{what} {show.readable(own)}" for what, own in places.items() if own is not None]
    return "  ".join(parts)


def _drawn(thread: Thread, name: str) -> Iterator[str]:
    """Yield the lines of a drawing: where branches part or end, after how many entries."""
    from eventq.cli.graph import draw

    views, turns = thread.sessions.views, thread.contexts.turns
    active, others = (found := views.branches(name))[:1], found[1:]
    drawn = [*active, *others[1 - _DRAWN :]]  # the newest
    contexts = [thread.contexts.get(one.context_id).info() for one in drawn]

    def line(turn: int, above: int, heads: list[ContextInfo]) -> str:
        names = ", ".join(map(render.label, heads))
        if not turn:
            return f"(empty)  {names}"
        depth = turns.depth(turn)
        count = depth - turns.depth(above) if above and depth else depth + 1
        length = render.count(count, "entry") if count > 1 else ""
        parts = (_entry(views.entry(turn)), length, f"[{names}]" if names else "")
        return "  ".join(filter(None, parts))

    yield from draw(contexts, turns, line)
    if left := len(found) - len(drawn):
        command = f"{show.program()} session show {show.readable(name)}"
        yield f"… ({render.count(left, 'more branch')}; {command})"


def _entry(one: EntryInfo) -> str:
    """Return an entry on one line."""
    own = f"turn:{one.turn_id}" if one.entry is None else show.readable(one.entry)
    text = "" if one.text is None else f'"{show.readable(one.text)}"'
    return "  ".join(filter(None, (own, one.kind and show.readable(one.kind), text)))


def cat(thread: Thread, *, context: int | str) -> None:
    """Write the entries of a branch as JSON lines. Their images are in them."""
    for line in thread.sessions.views.entries(context, show.note):
        show.out(line)


def diff(thread: Thread, *, one: int | str, other: int | str, json: bool) -> None:
    """Show where two branches part. Their last common entry comes first."""
    found = thread.sessions.views.diff(one, other)
    if json:
        show.dump({
            "shared": render.fields(found.shared), "mine": [*map(render.fields, found.mine)],
            "theirs": [*map(render.fields, found.theirs)],
        })  # fmt: skip
        return
    show.say(f"  {_entry(found.shared)}")
    render.say_all(f"- {_entry(entry)}" for entry in found.mine)
    render.say_all(f"+ {_entry(entry)}" for entry in found.theirs)


def take(thread: Thread, *, file: str, name: str | None, blobs: str | None, json: bool) -> int:
    """Import an agent's session file, or all in a folder.

    Branches become contexts. Importing again adds what is new. The folder beside a file, FILE
    without .jsonl, comes along: N.TOOL.log is artifact://N of the session, NAME.md is agent://NAME,
    sessions of subagents are contexts under what started them, and other files are kept as they
    are. In a folder, a file that fails does not keep the others from being imported.
    """
    import os

    if os.path.isdir(file):
        if name is not None:
            what = "--as names one session, and this is a folder"
            raise UsageError(what, "leave it out, or give one file of it")
        return _take_all(thread, file, blobs, json=json)
    made = thread.sessions.import_file(file, name=name, blobs=blobs)
    if json:
        show.dump(render.fields(made))
    else:
        show.say(_taken(thread, made))
        _note_all(made.notes)
    return 0


def _take_all(thread: Thread, folder: str, blobs: str | None, *, json: bool) -> int:
    """Import the session files in a folder; return the exit status."""
    count = new = failed = 0
    failures: list[str] = []
    for one in thread.sessions.import_folder(folder, blobs=blobs):
        count += one.imported is not None
        new += one.is_new
        if one.error is not None:
            failed += 1
            if len(failures) < _FAILURES:
                failures.append(f"{one.path}: {one.error}")
        if json:
            made, error = one.imported, one.error
            show.dump({
                "path": one.path, **(render.fields(made) if made else {}),
                "error": error and error.what, "suggestion": error and error.fix,
            })  # fmt: skip
        elif one.imported is not None and one.is_new:
            show.say(f"{show.readable(one.path)}: {_taken(thread, one.imported)}")
            _note_all(one.imported.notes)
    if not json:
        told = f"{render.count(count, 'session')}: {new:,} new or grown, {count - new:,} unchanged"
        show.say(f"Imported {told}" + (f", {failed:,} failed" if failed else ""))
    _note_all(tuple(failures))
    if failed > len(failures):
        show.note(f"… and {render.count(failed - len(failures), 'more file')}")
    return 1 if failed else 0


def _taken(thread: Thread, made: SessionImported) -> str:
    context = show.readable(thread.contexts.get(made.context_id).info().name or "")
    what = f"{made.added:,} of {render.count(made.entries, 'entry')}"
    beside = [
        render.count(count, one)
        for count, one in ((made.files, "file"), (made.agents, "subagent"))
        if count
    ]
    if beside:
        what += f" and {' and '.join(beside)} beside it"
    return f"Imported {what} into context '{context}' ({made.context_id})"


def export(
    thread: Thread,
    *,
    context: int | str,
    generation: int | None,
    output: str | None,
    blobs: str | None,
    json: bool,
) -> None:
    """Export a session's file, byte for byte, and its folder.

    The folder, FILE without .jsonl, is written beside an --output FILE only.
    """
    from eventq.sessions.files import Written

    notes: list[str] = []
    to_stdout = output is None or output == "-"
    warn = notes.append if json and not to_stdout else show.note
    lines = Written(thread.sessions.lines(context, generation=generation, warn=warn))
    if to_stdout:
        for line in lines:
            show.out(line)
    else:
        size = save(output or "", lines)
    if blobs is not None:
        thread.sessions.export_blobs(lines.refs, blobs, warn)
    if to_stdout:
        return
    try:
        counts = thread.sessions.export_folder(context, output or "", warn)
    except OSError as error:
        what = f"the folder beside '{output}' could not be written: {error.strerror or error}"
        raise refused(error, what) from error
    if json:
        written = {"context": context, "size": size, "output": output, "notes": notes}
        show.dump({**written, "files": sum(counts.values())})


def fork(
    thread: Thread,
    *,
    context: int | str,
    at: str | None,
    out: str,
    new: New,
    blobs: str | None,
    json: bool,
) -> None:
    """Write a new session file that goes on from an entry.

    It is what the agent itself would write, to resume from: under a new id, with the folder beside
    it. OUT is a new file, or a folder, where it gets the agent's own name. What is stored stays as
    it is.
    """
    made = thread.sessions.fork(context, out, at=at, blobs=blobs, **new)
    if json:
        show.dump(render.fields(made))
        return
    what = f"Forked '{context}' into '{made.output}': session {made.session_id},"
    show.say(f"{what} {render.count(made.lines, 'line')}")
    _note_all(made.notes)


def _note_all(notes: tuple[str, ...]) -> None:
    for note in notes:
        show.note(note)


def rm(thread: Thread, *, name: str, json: bool) -> None:
    """Delete a session with the sessions of its subagents.

    Their lines, generations and contexts go. Forks stay, and what they need. The next gc deletes
    the other turns and blobs. What the session produced stays until 'artifact rm' and 'output rm'.
    """
    made = thread.sessions.remove(name)
    what = f"{render.count(made.lines, 'line')}, {render.count(len(made.contexts), 'context')}"
    if made.agents:
        what += f", {render.count(made.agents, 'subagent')}"
    free = f"'{show.program()} gc --apply' frees what no fork needs"
    show.result(
        render.fields(made), f"Deleted session '{show.readable(name)}': {what}; {free}", json=json
    )


_BLOBS = Option("blobs FOLDER", "Where to write blobs that entries name by SHA-256.", kinds.path)
COMMANDS = {
    "session import": Command(
        take,
        [
            Argument("FILE|DIR", kinds.path, parameter="file"),
            Option("as NAME", "The session's name here (default: its own).", parameter="name"),
            Option(
                "blobs FOLDER",
                "The agent's directory of blobs, named by SHA-256.",
                kinds.path,
            ),
            THREAD,
            JSON,
        ],
        "eventq session import session.jsonl --as work --thread ./inbox",
        "eventq session import ~/.claude/projects --thread ./inbox",
    ),
    "session export": Command(
        export,
        [
            CONTEXT,
            Option(
                "generation N",
                "The file as it was before it was rewritten (default: the newest).",
                kinds.POSITIVE,
            ),
            OUTPUT,
            _BLOBS,
            READ,
            JSON,
        ],
        "eventq session export work --output session.jsonl --thread ./inbox",
    ),
    "session ls": Command(
        ls,
        [
            Option(
                "project DIR", "Only those that worked in this directory, or below.", kinds.path
            ),
            Option(
                "since WHEN",
                "Only those that were worked on since then. WHEN is 1h (ago), 2026-11-01,"
                " 2026-11-01T09:30 or 09:30 (today), in local time unless a zone follows.",
                kinds.moment,
            ),
            Option("tool NAME", "Only those of this tool, such as claude or pi."),
            READ,
            JSON,
        ],
        "eventq session ls --thread ./inbox",
        "eventq session ls --project . --since 7d --thread ./inbox",
    ),
    "session show": Command(
        show_one,
        [
            Argument("NAME", kinds.text),
            Option("tree", "Draw where the branches part, and where they end."),
            READ,
            JSON,
        ],
        "eventq session show work --thread ./inbox",
        "eventq session show work --tree --thread ./inbox",
        rules=[exclude("tree", "json", fix="give one of the two: a drawing is for people")],
    ),
    "session cat": Command(
        cat, [CONTEXT, READ], "eventq session cat work --thread ./inbox | jq .message.role"
    ),
    "session diff": Command(
        diff,
        [Argument("ONE", kinds.branch), Argument("OTHER", kinds.branch), READ, JSON],
        "eventq session diff work work/1f0c2a9e --thread ./inbox",
    ),
    "session rm": Command(
        rm, [Argument("NAME", kinds.text), THREAD, JSON], "eventq session rm work --thread ./inbox"
    ),
    "session fork": Command(
        fork,
        [
            CONTEXT,
            Option("at ENTRY|turn:ID", "The last entry (default: where the context is)."),
            Option("out OUT", "A new file, or a folder.", kinds.path, required=True),
            *together(
                "new",
                Option("title TITLE", "The new session's title (default: that of the source)."),
                Option("cwd DIR", "The directory it is for (default: the source's).", kinds.path),
            ),
            _BLOBS,
            READ,
            JSON,
        ],
        "eventq session fork work --at 1f0c2a9e --out ./sessions --thread ./inbox",
    ),
}

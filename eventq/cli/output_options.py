"""The commands of what was produced and their options: artifacts, outputs of agents, session files, and copies."""

from __future__ import annotations

from eventq.cli.options import JSON, THREAD, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


READING = (
    Option("offset", "N", "Begin at this line, counted from 1."),
    Option("limit", "N", "Print at most N lines; all unless told."),
    THREAD,
    JSON,
)

OUTPUT: Mapping[str, Command] = {
    "artifact put": Command(
        "artifact:put",
        "Keep the output of a tool, durably, and print its URL: FILE, or stdin when it is left out or -.",
        [Option("tool", "NAME", "What made it; tool unless told."), THREAD, JSON],
        argument="[FILE]",
        examples=[
            "eventq artifact put build.log --tool make --thread ./inbox",
            "make 2>&1 | eventq artifact put --tool make --thread ./inbox",
        ],
    ),
    "artifact cat": Command(
        "output:cat_artifact",
        "Write the bytes of an artifact to stdout, all of them or some lines; one that is not whole as far as it is.",
        READING,
        argument="ID",
        examples=["eventq artifact cat 3 --offset 101 --limit 100 --thread ./inbox"],
    ),
    "artifact ls": Command(
        "artifact:ls",
        "List all artifacts in the order of their numbers, a line each.",
        [THREAD, JSON],
        examples=["eventq artifact ls --thread ./inbox"],
    ),
    "artifact rm": Command(
        "artifact:rm",
        "Delete an artifact; its number is never used again.",
        [THREAD, JSON],
        argument="ID",
        examples=["eventq artifact rm 3 --thread ./inbox"],
    ),
    "artifact export": Command(
        "artifact:export",
        "Write all artifacts and all outputs of agents to a folder, a file each; it is made unless it is there.",
        [THREAD, JSON],
        argument="FOLDER",
        examples=["eventq artifact export ./files --thread ./inbox"],
    ),
    "artifact import": Command(
        "artifact:take",
        "Keep the artifacts and outputs of agents that are files of a folder; twice adds nothing.",
        [THREAD, JSON],
        argument="FOLDER",
        examples=["eventq artifact import ./files --thread ./inbox"],
    ),
    "output put": Command(
        "output:put",
        "Publish what an agent put out, durably, and print its URL: from stdin, unless it is given.",
        [
            Option("id", "ID", "Publish a further version of this output, instead of a new one under a name."),
            Option("parent", "ID", "The output of the agent that called this one."),
            Option("content", "TEXT", "What was put out."),
            Option("file", "FILE", "Read it from a file, or from stdin when FILE is -."),
            THREAD,
            JSON,
        ],
        argument="[NAME]",
        examples=[
            "eventq output put Scout --file report.md --thread ./inbox",
            "eventq output put --id 0-Scout --content 'nothing new' --thread ./inbox",
        ],
    ),
    "output ls": Command(
        "output:ls",
        "List all outputs of agents in the order of their names, a line for each version.",
        [THREAD, JSON],
        examples=["eventq output ls --thread ./inbox"],
    ),
    "cat": Command(
        "output:cat",
        "Write what a URL names to stdout, all of it or some lines: artifact://ID, agent://ID or blob:blake3:HASH.",
        READING,
        argument="URL",
        examples=[
            "eventq cat artifact://3 --limit 100 --thread ./inbox",
            "eventq cat 'agent://0-Scout?q=.findings[0]' --thread ./inbox",
        ],
    ),
    "capture": Command(
        "capture:capture",
        "Run a command: show a bounded part of its output live, keep all of it as an artifact when that is not all,"
        " and exit as it does.",
        [
            Option("tool", "NAME", "What made it; the name of the command unless told."),
            Option("keep", None, "Keep the output as an artifact even when all of it is shown."),
            Option("spill", "BYTES", "Show all of it up to this size; 51200 unless told."),
            Option("head", "BYTES", "Of more than that, show so much of its beginning; 20480 unless told."),
            Option("columns", "BYTES", "Show at most so much of a line; 768 unless told, 0 for all."),
            Option("raw", None, "Leave escape sequences and control characters in."),
            THREAD,
            JSON,
        ],
        rest="CMD…",
        examples=["eventq capture --thread ./inbox -- make test"],
    ),
    "session import": Command(
        "session:take",
        "Keep a session file of a coding agent as a context; importing again adds what it has grown by.",
        [
            Option("name", "NAME", "The name of the context; the session's own unless told."),
            Option("blobs", "FOLDER", "Where the agent keeps the blobs that the session names by their SHA-256."),
            THREAD,
            JSON,
        ],
        argument="FILE",
        examples=["eventq session import session.jsonl --name work --thread ./inbox"],
    ),
    "session export": Command(
        "session:export",
        "Write a context as the session file that it was, byte for byte, to stdout or to a file.",
        [Option("output", "FILE", "Write to FILE, which is there whole or not at all."), THREAD, JSON],
        argument="CONTEXT",
        examples=["eventq session export work --output session.jsonl --thread ./inbox"],
    ),
    "thread-copy": Command(
        "session:copy",
        "Copy turns, blobs, artifacts and outputs of one thread to another, which is made unless it is there.",
        [Option("contexts", "NAME,NAME", "Copy only these contexts, by name or id, and all that they lead to."), JSON],
        argument="SRC DST",
        examples=["eventq thread-copy ./inbox ./archive --contexts main,retry"],
    ),
}

"""The commands of the memory and their options: blobs, contexts, turns, collection and packs; and the table of all."""

from __future__ import annotations

from eventq.cli.options import JSON, LOG, THREAD, Command, Option
from eventq.cli.output_options import OUTPUT
from eventq.cli.run_options import RUNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOB = "blob:blake3:9eff4037940429b2564d5a150b86cde302d60985a31c9af827f8055bfa842cb2"

PLACE = Option(
    "thread", "PATH", "The directory of the thread, or a server of it: eventq://HOST:PORT, unix:PATH.", required=True
)
ALLOW_EMPTY = Option("allow-empty", None, "Take an empty stdin as a payload without bytes; it is refused otherwise.")
AS_OF = Option("as-of", "SEQ", "Leave out overlays after this one; 0 shows every turn as it was appended.")
BARE = Option("no-payload", None, "Leave the payloads out.")
CANONICAL = Option(
    "canonical", "RULE", "The input is JSON: store the bytes that this rule makes of it (eventq-json-1)."
)
CONTENT = Option("content", "TEXT", "The payload.")
EMIT = Option("emit", None, "Push an event of type record, subtype turn, in the same transaction.")
EXPECTED_HEAD = Option(
    "expected-head", "TURN", "Only if the newest turn is this one, 0 for none; else say which it is."
)
EXPECT_HASH = Option("expect-hash", "HASH", "Refuse bytes that have another hash.")
FILE = Option("file", "FILE", "Read the payload from a file, or from stdin when FILE is -.")
FLAGS = Option("flags", "N", "A number of the caller's, of 32 bits; 0 unless told.")
KEY = Option("key", "KEY", "Append it once: the same key within 24 hours gives the first turn and stores nothing.")
NAME = Option("name", "NAME", "A unique name for it, which is no number.")
OWNER = Option("owner", "NAME", "Who keeps it.", required=True)
PAGE = Option("limit", "N", "Show at most N turns; 64 unless told.")
REFS = Option("refs", "REF,REF", "The blobs that these bytes name: they are kept as long as these are.")
SOURCE = Option("source", "ADDRESS", "Who the event of --emit comes from; self unless told.")

READING = (AS_OF, BARE, PLACE, JSON)

MEMORY: Mapping[str, Command] = {
    "blob put": Command(
        "blob:put",
        "Store bytes, durably, and print the ref that names them: FILE, or stdin when it is left out or -.",
        [EXPECT_HASH, REFS, PLACE, JSON],
        argument="[FILE]",
        examples=["eventq blob put report.pdf --thread ./inbox", "tar c src | eventq blob put --thread ./inbox"],
    ),
    "blob get": Command(
        "blob:get",
        "Write the bytes of a blob to stdout, or to a file; they are checked before the first is written.",
        [Option("output", "FILE", "Write to FILE, which is there whole or not at all."), PLACE, JSON],
        argument="REF",
        examples=[f"eventq blob get {_BLOB} --thread ./inbox --output report.pdf"],
    ),
    "blob stat": Command(
        "blob:stat",
        "Show the sizes of a blob without reading its bytes.",
        [PLACE, JSON],
        argument="REF",
        examples=[f"eventq blob stat {_BLOB} --thread ./inbox"],
    ),
    "blob ls": Command(
        "blob:ls",
        "List all blobs in the order of their hashes.",
        [PLACE, JSON],
        examples=["eventq blob ls --thread ./inbox"],
    ),
    "blob refs": Command(
        "blob:show_refs",
        "Show what a blob names, and what keeps it from being collected: turns, overlays, blobs, events, pins.",
        [PLACE, JSON],
        argument="REF",
        examples=[f"eventq blob refs {_BLOB} --thread ./inbox"],
    ),
    "blob verify": Command(
        "blob:verify",
        "Read a blob, or all of them, and say which are damaged; exit 1 if any is.",
        [PLACE, JSON],
        argument="[REF]",
        examples=["eventq blob verify --thread ./inbox"],
    ),
    "blob pin": Command(
        "blob:pin",
        "Keep a blob until the same owner unpins it.",
        [OWNER, PLACE, JSON],
        argument="REF",
        examples=[f"eventq blob pin {_BLOB} --owner reports --thread ./inbox"],
    ),
    "blob unpin": Command(
        "blob:unpin",
        "Keep a blob no more for an owner.",
        [OWNER, PLACE, JSON],
        argument="REF",
        examples=[f"eventq blob unpin {_BLOB} --owner reports --thread ./inbox"],
    ),
    "context create": Command(
        "context:create",
        "Make a context: a branch that is empty, or begins at any turn there is.",
        [NAME, Option("base", "TURN", "The turn that it begins at."), PLACE, JSON],
        examples=["eventq context create --name main --thread ./inbox"],
    ),
    "context fork": Command(
        "context:fork",
        "Make a context that goes on from another one; nothing is copied.",
        [Option("at", "TURN", "A turn of its chain; its newest unless told."), NAME, PLACE, JSON],
        argument="CONTEXT",
        examples=["eventq context fork main --at 40 --name retry --thread ./inbox"],
    ),
    "context ls": Command(
        "context:ls",
        "List all contexts, a line each, or draw how they branch.",
        [
            Option("graph", None, "Draw the tree of their newest turns and of the turns where they part."),
            PLACE,
            JSON,
        ],
        examples=["eventq context ls --thread ./inbox", "eventq context ls --graph --thread ./inbox"],
    ),
    "context show": Command(
        "context:show_one",
        "Show a context: its newest turn, and where it came from.",
        [PLACE, JSON],
        argument="CONTEXT",
        examples=["eventq context show main --thread ./inbox"],
    ),
    "context log": Command(
        "context:log",
        "Show every move of a context's head, also of a deleted one, by its id.",
        [PLACE, JSON],
        argument="CONTEXT",
        examples=["eventq context log main --thread ./inbox"],
    ),
    "context move": Command(
        "context:move",
        "Move a context's head to any turn; what it leaves stays in the log of its moves.",
        [Option("to", "TURN", "The turn to move to, 0 for none.", required=True), EXPECTED_HEAD, PLACE, JSON],
        argument="CONTEXT",
        examples=["eventq context move main --to 40 --expected-head 52 --thread ./inbox"],
    ),
    "context rm": Command(
        "context:rm",
        "Delete a context; its turns stay until a collection, and forks of it do not notice.",
        [PLACE, JSON],
        argument="CONTEXT",
        examples=["eventq context rm retry --thread ./inbox"],
    ),
    "turn append": Command(
        "turn:append",
        "Store a turn after the newest of a context, durably: from stdin, unless a payload is given.",
        [
            FILE,
            CONTENT,
            ALLOW_EMPTY,
            Option("type", "TYPE", "What it is; message unless told."),
            Option("type-version", "N", "The version of its type; 1 unless told."),
            Option("encoding", "N", "How the payload is encoded, a number of the caller's; 0 unless told."),
            FLAGS,
            CANONICAL,
            REFS,
            Option("parent", "TURN", "Put it after this turn instead of the newest."),
            EXPECTED_HEAD,
            KEY,
            EXPECT_HASH,
            EMIT,
            SOURCE,
            Option("stream", None, "Store stdin bit by bit as it comes, and make a turn of it at its end."),
            PLACE,
            JSON,
        ],
        argument="CONTEXT",
        examples=[
            "eventq turn append main --thread ./inbox --content 'use plan B' --expected-head 41",
            "agent | eventq turn append main --thread ./inbox --stream",
        ],
    ),
    "turn last": Command(
        "turn:last",
        "Show the newest turns of a context, oldest first; the id of the first is for 'turn before'.",
        [PAGE, *READING],
        argument="CONTEXT",
        examples=["eventq turn last main --limit 10 --thread ./inbox"],
    ),
    "turn before": Command(
        "turn:before",
        "Show the turns above one of a context, oldest first; the id of the first is for the next page.",
        [Option("turn", "TURN", "The turn whose predecessors are wanted.", required=True), PAGE, *READING],
        argument="CONTEXT",
        examples=["eventq turn before main --turn 43 --limit 10 --thread ./inbox"],
    ),
    "turn range": Command(
        "turn:between",
        "Show the turns of a context from a depth on; the depth after the last is for the next page.",
        [Option("from", "DEPTH", "Where to begin; 0, the root, unless told."), PAGE, *READING],
        argument="CONTEXT",
        examples=["eventq turn range main --from 100 --limit 10 --thread ./inbox"],
    ),
    "turn replay": Command(
        "turn:replay",
        "Show all turns of a context from its root on; also what is larger than memory.",
        [Option("to", "TURN", "End at this turn."), *READING],
        argument="CONTEXT",
        examples=["eventq turn replay main --json --thread ./inbox"],
    ),
    "turn show": Command(
        "turn:show_one",
        "Show one turn.",
        READING,
        argument="TURN",
        examples=["eventq turn show 12 --thread ./inbox"],
    ),
    "turn patch": Command(
        "turn:patch",
        "Lay another payload over a turn's wherever it is read, and print the seq of the overlay; both are kept.",
        [
            FILE,
            CONTENT,
            ALLOW_EMPTY,
            Option("tombstone", None, "Hide the payload instead."),
            CANONICAL,
            REFS,
            PLACE,
            JSON,
        ],
        argument="TURN",
        examples=[
            "eventq turn patch 12 --content 'use plan C' --thread ./inbox",
            "eventq turn patch 12 --tombstone --thread ./inbox",
        ],
    ),
    "turn diff": Command(
        "turn:diff",
        "Show what each of two contexts has after the turn that they share last: - is the first one's, + the other's.",
        [Option("with", "CONTEXT", "The other context.", required=True), *READING],
        argument="CONTEXT",
        examples=["eventq turn diff main --with retry --thread ./inbox"],
    ),
    "turn opened": Command(
        "turn:opened",
        "List the turns that are still being written, or whose writer has gone.",
        [PLACE, JSON],
        examples=["eventq turn opened --thread ./inbox"],
    ),
    "turn seal": Command(
        "turn:seal",
        "Append what was written to an open turn as one turn.",
        [FLAGS, REFS, EXPECTED_HEAD, KEY, EMIT, SOURCE, PLACE, JSON],
        argument="OPEN_ID",
        examples=["eventq turn seal 3 --thread ./inbox"],
    ),
    "turn discard": Command(
        "turn:discard",
        "Forget what was written to an open turn.",
        [PLACE, JSON],
        argument="OPEN_ID",
        examples=["eventq turn discard 3 --thread ./inbox"],
    ),
    **RUNS,
    "gc": Command(
        "admin:gc",
        "Say which turns and blobs nothing leads to any more; with --apply delete them and give their space back.",
        [
            Option("apply", None, "Delete them."),
            Option("grace", "TIME", "Keep what is younger, such as 90s, 15m, 1h or 7d; 1h unless told."),
            THREAD,
            JSON,
        ],
        examples=["eventq gc --thread ./inbox", "eventq gc --apply --grace 7d --thread ./inbox"],
    ),
    "serve": Command(
        "serve:serve",
        "Serve the thread over the binary protocol, until SIGTERM: then what was begun is finished and answered.",
        [
            Option("listen", "ADDRESS", "HOST:PORT, port 0 picks one, or unix:PATH; 127.0.0.1:9009 unless told."),
            Option(
                "token",
                "TOKEN",
                "What every peer has to show; EVENTQ_TOKEN unless told, which no list of processes shows. Needed where"
                " other machines can connect.",
            ),
            Option("connections", "N", "Serve at most N connections at once; 4096 unless told."),
            Option("idle", "SECONDS", "Close a connection after so much silence; 3600 unless told."),
            Option("frame", "BYTES", "Refuse longer requests; 67108864 unless told, which is the most."),
            Option("in-flight", "BYTES", "Hold at most so much of all requests and replies; 268435456 unless told."),
            Option(
                "ignore-keys",
                None,
                "Append whatever the idempotency key of an APPEND_TURN, for clients of the protocol whose key is a"
                " hash; those of eventq.connect and of the commands count as ever.",
            ),
            Option(
                "foreign-roots",
                None,
                "Accept an ATTACH_FS, or an APPEND_TURN with a root, whose root is no stored blob: file trees are"
                " kept elsewhere.",
            ),
            THREAD,
            JSON,
        ],
        examples=[
            "eventq serve --thread ./inbox --listen 127.0.0.1:9009",
            "eventq serve --thread ./inbox --listen unix:./inbox.sock",
        ],
    ),
    "pack export": Command(
        "admin:pack_export",
        "Write all blobs, turns and heads to a folder that holds no pack yet, in the interchange format.",
        [THREAD, JSON],
        argument="FOLDER",
        examples=["eventq pack export ./pack --thread ./inbox"],
    ),
    "pack import": Command(
        "admin:pack_import",
        "Store what is not here yet of a pack, or of the data directory of a CXDB server; twice adds nothing.",
        [THREAD, JSON],
        argument="FOLDER",
        examples=["eventq pack import ./pack --thread ./inbox", "eventq pack import ./cxdb/data --thread ./inbox"],
    ),
}

COMMANDS: Mapping[str, Command] = {**LOG, **MEMORY, **OUTPUT}

"""The commands of the log and their options, as a table: the quick parser reads it, click's commands are built from it.

Those of the memory are in `memory_options`, which is imported only for a command that is none of these.
"""

from __future__ import annotations

from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Raw = dict[str, str | bool | list[str] | None]


class Option:
    """One option: `--name VALUE`, or a flag when it has no `value`."""

    __slots__ = ("help", "name", "required", "short", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
        help: str,
        *,
        required: bool = False,
        short: str | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.help = help
        self.required = required
        self.short = short


class Command:
    """One command: where its function is, what it takes, and what its help says.

    `argument` names the words that it takes beside its options, each in brackets when it may be left out. `rest` names
    the words after `--`, at least one, which are handed to it as they are; None for a command that takes none.
    """

    __slots__ = ("argument", "examples", "function", "help", "module", "options", "rest")

    def __init__(
        self,
        function: str,
        help: str,
        options: Sequence[Option] = (),
        *,
        examples: Sequence[str],
        argument: str | None = None,
        rest: str | None = None,
    ) -> None:
        self.module, self.function = function.split(":")
        self.help = help
        self.options = options
        self.examples = examples
        self.argument = argument
        self.rest = rest

    @property
    def arguments(self) -> list[str]:
        """What the words are called among the options of a command line."""
        return [word.strip("[]") for word in self.argument.split()] if self.argument else []

    @property
    def rest_name(self) -> str:
        """What the words after `--` are called there."""
        return (self.rest or "").rstrip("…")


VERBOSE = "--verbose"  # taken anywhere: the tool that `thread` replaces does
THREAD = Option("thread", "PATH", "The directory of the thread.", required=True)
JSON = Option("json", None, "Print the result, and errors, as JSON.")
CONSUMER = Option("consumer", "ID", "The name of the consumer.", required=True)
LIMIT = Option("limit", "N", "Print at most N events; 100 unless told.")
FILTER = Option(
    "filter",
    "SQL",
    "Only events for which this condition holds, as after WHERE in SQL. The last hour is"
    " created_at > strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour').",
)
ACKED = Option("last-event-id", "N", "The last event that was processed; 0 at first.", required=True)

LOG: Mapping[str, Command] = {
    "init": Command(
        "admin:init",
        "Make a thread: a directory that holds events, their consumers and their logs.",
        [Option("shared", None, "Let others in, as far as the umask does; otherwise it is for its owner only."), JSON],
        argument="PATH",
        examples=["eventq init ./inbox"],
    ),
    "push": Command(
        "log:push",
        "Store an event, durably, and wake the consumers it is for.",
        [
            THREAD,
            Option("source", "ADDRESS", "Who it comes from, for example self or internal:dm:default:warden."),
            Option("type", "TYPE", "What it is, for example message or record."),
            Option("subtype", "SUBTYPE", "What it is more exactly, for example toolcall or decision."),
            Option("content", "TEXT", "The payload."),
            Option("content-file", "FILE", "Read the payload from a file, or from stdin when FILE is -."),
            Option("key", "KEY", "Store it once: the same key again gives the first event and stores nothing."),
            Option("key-strict", None, "Refuse a key that was used before for an event that differs from this one."),
            Option("batch", None, "Read events from stdin, a JSON object a line, and store all of them or none."),
            Option("strict-source", None, "Refuse a source that is not a structured address."),
            JSON,
        ],
        examples=[
            "eventq push --thread ./inbox --source self --type record --subtype decision --content 'use plan B'",
            "eventq push --thread ./inbox --batch < events.ndjson",
        ],
    ),
    "pop": Command(
        "log:pop",
        "Ack what was processed and print the next events that match the consumer's filter, one JSON object a line.",
        [
            THREAD,
            CONSUMER,
            ACKED,
            LIMIT,
            Option("wait", "SECONDS", "Wait so long for an event when there is none."),
            JSON,
        ],
        examples=["eventq pop --thread ./inbox --consumer worker --last-event-id 0"],
    ),
    "ack": Command(
        "log:ack",
        "Ack what was processed without reading on; a smaller id than before asks for a replay.",
        [THREAD, CONSUMER, ACKED, JSON],
        examples=["eventq ack --thread ./inbox --consumer worker --last-event-id 42"],
    ),
    "peek": Command(
        "log:peek",
        "Print events without consuming them, one JSON object a line; changes nothing, not even a file's time.",
        [
            THREAD,
            Option("last-event-id", "N", "Print the events after this one; 0 for all."),
            Option("last", "N", "Print the newest N events instead, oldest first."),
            LIMIT,
            FILTER,
            JSON,
        ],
        examples=[
            "eventq peek --thread ./inbox --last-event-id 0 --filter \"type = 'message'\"",
            "eventq peek --thread ./inbox --last 5",
        ],
    ),
    "tail": Command(
        "log:tail",
        "Show the newest events, a readable line each, and perhaps those that follow.",
        [
            THREAD,
            Option("lines", "N", "Show the newest N events; 10 unless told.", short="n"),
            Option("follow", None, "Wait for more, until interrupted.", short="f"),
            FILTER,
            JSON,
        ],
        examples=["eventq tail --thread ./inbox -n 20 -f"],
    ),
    "subscribe": Command(
        "log:subscribe",
        "Have a handler run by the shell whenever events wait for a consumer.",
        [
            THREAD,
            CONSUMER,
            Option("handler", "COMMAND", "What to run, through sh -c.", required=True),
            FILTER,
            Option("from-now", None, "Skip the events that are there already."),
            Option("max-attempts", "N", "Stall after N runs without progress; 5 unless told."),
            Option("timeout", "SECONDS", "End a handler that runs longer."),
            JSON,
        ],
        examples=[
            "eventq subscribe --thread ./inbox --consumer worker --handler './work.sh' --filter \"type = 'message'\""
        ],
    ),
    "unsubscribe": Command(
        "log:unsubscribe",
        "Delete a subscription; the consumer's progress is kept for a later one.",
        [THREAD, CONSUMER, JSON],
        examples=["eventq unsubscribe --thread ./inbox --consumer worker"],
    ),
    "dispatch": Command(
        "log:dispatch",
        "Start the handlers of all consumers that have events waiting, and return at once.",
        [THREAD, JSON],
        examples=["eventq dispatch --thread ./inbox"],
    ),
    "info": Command(
        "admin:info",
        "Show a thread at a glance: its events, its consumers, and where each of them stands.",
        [THREAD, JSON],
        examples=["eventq info --thread ./inbox"],
    ),
    "check": Command(
        "admin:check",
        "Say each thing that is wrong with a thread; exit 1 if there is any.",
        [THREAD, JSON],
        examples=["eventq check --thread ./inbox"],
    ),
    "prune": Command(
        "admin:prune",
        "Delete old events that every consumer has acked, and give their space back.",
        [
            THREAD,
            Option("keep-last", "N", "Keep the newest N events."),
            Option("before-id", "N", "Delete the events below this id."),
            Option("force", None, "Delete also what some consumer has not acked."),
            JSON,
        ],
        examples=["eventq prune --thread ./inbox --keep-last 100000"],
    ),
    "resume": Command(
        "admin:resume",
        "End the stall or back-off of a consumer: its handler is started again.",
        [THREAD, CONSUMER, JSON],
        examples=["eventq resume --thread ./inbox --consumer worker"],
    ),
    "mirror rebuild": Command(
        "admin:mirror_rebuild",
        "Write events.jsonl anew from the database, in one file.",
        [THREAD, JSON],
        examples=["eventq mirror rebuild --thread ./inbox"],
    ),
    "hook": Command(
        "log:hook",
        "Store the JSON object that a coding agent's hook gives on stdin as one event; silent, and always exits 0.",
        [THREAD, Option("source", "ADDRESS", "Who it comes from; self unless told.")],
        examples=['echo \'{"hook_event_name": "Stop"}\' | eventq hook --thread ./inbox'],
    ),
    "guide": Command(
        "admin:guide",
        "Print a short guide for agents: push, pop, process, ack.",
        [Option("path", None, "Print the directory that holds it as a skill instead.")],
        examples=["eventq guide"],
    ),
    "completion": Command(
        "admin:completion",
        "Print the completion script for a shell: bash, zsh or fish.",
        argument="SHELL",
        examples=['eval "$(eventq completion bash)"'],
    ),
}


def find(argv: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    """Give the command that a command line begins with, and the words after its name; None when there is none."""
    if not argv or " " in argv[0]:
        return None
    if argv[0] in LOG:
        return LOG[argv[0]], argv[1:]
    from eventq.cli.memory_options import COMMANDS

    for length in (1, 2):
        if command := COMMANDS.get(" ".join(argv[:length])):
            return command, argv[length:]
    return None


def parse(command: Command, words: Sequence[str]) -> Raw | None:
    """Give the options of a command line that is plain enough, or None: then it is click's."""
    named = {"--" + option.name: option for option in command.options}
    raw: Raw = {option.name: None if option.value else False for option in command.options}
    awaited = command.arguments
    raw.update(dict.fromkeys(awaited))
    left = iter(words)
    for word in left:
        option = named.get(word)
        if option is None:
            if word == VERBOSE:
                continue
            if word == "--" and command.rest:
                raw[command.rest_name] = [*left]
            elif not awaited or (word.startswith("-") and word != "-"):
                return None
            else:
                raw[awaited.pop(0)] = word
        elif option.value is None:
            raw[option.name] = True
        else:
            value = next(left, None)
            if value is None or (value.startswith("-") and value != "-"):
                return None
            raw[option.name] = value
    return None if _is_short(command, raw) else raw


def _is_short(command: Command, raw: Raw) -> bool:
    """Say whether something that a command needs was not given."""
    if command.argument and any(raw.get(word, "") is None for word in command.argument.split()):
        return True
    if command.rest and not raw.get(command.rest_name):
        return True
    return any(option.required and raw[option.name] is None for option in command.options)


def _spelled(name: str) -> str:
    return name if name.isupper() else f"--{name}"


def text(raw: Raw, name: str) -> str | None:
    """Give the text of an option, None when it was not given; UsageError when it is empty."""
    value = raw[name]
    if value == "":
        raise UsageError(f"{_spelled(name)} is empty", f"give a value, or leave {_spelled(name)} out")
    return None if value is None else str(value)


def number(raw: Raw, name: str, default: int = 0, *, least: int = 0) -> int:
    """Give the whole number of an option: decimal digits, an optional `+`, blanks around.

    Raises UsageError for anything else.
    """
    value = raw[name]
    if value is None:
        return default
    digits = str(value).strip().removeprefix("+")
    found = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 100 else -1
    if not least <= found < 1 << 63:
        raise UsageError(
            f"{_spelled(name)} must be a whole number from {least} to 2^63-1, not '{value}'", "give plain digits"
        )
    return found


def maybe(raw: Raw, name: str, *, least: int = 0) -> int | None:
    """Give the whole number of an option as `number` does, None when it was not given."""
    return None if raw[name] is None else number(raw, name, least=least)


def seconds(raw: Raw, name: str) -> float | None:
    """Give the seconds of an option, with an optional fraction; None when it was not given."""
    value = raw[name]
    if value is None:
        return None
    digits = str(value).strip().removeprefix("+")
    if not digits.isascii() or not digits.replace(".", "", 1).isdigit() or len(digits) > 15:
        raise UsageError(f"--{name} must be a number of seconds, not '{value}'", "give digits, such as 30 or 0.5")
    return float(digits)

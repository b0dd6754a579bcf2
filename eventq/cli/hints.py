"""What somebody means who types a word that is no command, no option, or has no place."""

from __future__ import annotations

from difflib import get_close_matches

from eventq.store.paths import is_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The words of other queues, logs and stores, by the command that does it here.
_COMMANDS = {
    "init": "create new setup",
    "push": "send publish pub emit add put enqueue produce post write message xadd lpush rpush",
    "peek": "get read show events history messages query search head",
    "tail": "log logs",
    "tail --follow": "watch follow monitor stream",
    "pop": "receive consume dequeue poll fetch next pull lpop rpop blpop xread",
    "info": "status stats consumers consumer subscriptions subscribers describe inspect count size"
    " length len depth lag queues health",
    "ask": "question prompt confirm approve",
    "answer": "reply respond",
    "subscribe": "listen register on sub",
    "unsubscribe": "unregister off",
    "dispatch": "trigger wake",
    "pause": "stop disable suspend",
    "resume": "unpause continue enable",
    "work": "start worker workers daemon",
    "ack": "commit",
    "claim": "lease reserve",
    "done": "complete finish",
    "retry": "nack reject release requeue",
    "extend": "heartbeat renew touch",
    "dead add": "fail bury",
    "dead ls": "dlq dead-letter deadletter dead-letters deadletters failed failures",
    "dead retry": "redrive replay",
    "prune": "purge trim truncate clear clean expire flush",
    "check": "verify validate fsck",
    "gc": "vacuum",
    "service systemd": "install systemd",
    "pack export": "export",
    "pack import": "import",
    "thread copy": "copy cp clone",
    "thread ls": "threads inboxes",
    "serve": "server",
    "top": "htop monitor",
    "sql": "sqlite sqlite3 select db tables",
    "ui": "page web browser dashboard gui",
    "doctor": "diagnose diagnostics",
    "find": "grep redact secrets",
    "context ls": "contexts",
    "run ls": "runs",
    "turn append": "append",
    "usage": "tokens cost costs spend spent billing",
    "artifact ls": "artifacts",
    "output ls": "outputs",
    "help": "man",
}
MEANT = {word: command for command, words in _COMMANDS.items() for word in words.split()}

# What to do where no command does it, or several may be meant.
ADVICE = dict.fromkeys(
    ("rm", "delete", "remove", "drop", "destroy", "del"),
    "run 'rm -r DIR' to delete a thread, 'eventq prune' to delete old events,"
    " or 'eventq unsubscribe' to delete a subscription",
) | dict.fromkeys(
    ("ls", "list"),
    "run 'eventq thread ls DIR' for the threads in a folder, 'eventq peek' for events,"
    " or 'eventq info' for consumers",
)

# The words for options, where a command has these options.
_OPTIONS = {
    "content": "message body data payload text",
    "thread": "inbox queue topic path dir directory",
    "consumer": "group worker subscriber",
    "last-event-id": "since after offset cursor",
    "since": "from newer-than",
    "until": "to before older-than",
    "limit": "max count size",
    "filter": "where query",
    "max-attempts": "retries attempts",
    "lease": "visibility-timeout",
}

# What to do where no option of a command does it.
_WITHOUT = {
    "prune": (
        ("before", "older-than", "until", "max-age", "age", "ttl", "retention"),
        "ages are not taken: give --before-id the id that 'eventq peek --until 1h --last 1' shows",
    )
}

# The option that a word beside the options was meant for, by command.
_STRAY = {"turn append": "content", "context create": "name"} | dict.fromkeys(
    ("subscribe", "unsubscribe", "pop", "ack", "claim", "pause", "resume"), "consumer"
)


# Words that are spelled like commands which do something else.
_UNLIKE = frozenset(
    ["backup", "dump", "restore", "version", "rename", "result", "compact", "detach"]
)


def near(word: str, known: Iterable[str]) -> str:
    """Return a question that names what is spelled nearly alike, or nothing."""
    return "" if word in _UNLIKE else _question(sorted(get_close_matches(word, [*known])))


def option(word: str, known: Iterable[str]) -> str:
    """Return a question that names the option that was meant, or nothing."""
    names = [name.removeprefix("--") for name in known if name.startswith("--")]
    if word == "--thread" and "thread" not in names:
        return ""  # the path stands by itself there
    word = word.lstrip("-")
    found = [name for name in names if word in _OPTIONS.get(name, "").split()][:1]
    found = found or [name for name in names if name.startswith(f"{word}-")]
    found = found or sorted(get_close_matches(word, names))
    return _question([f"--{name}" for name in found])


def without(command: str, word: str) -> str:
    """Return what to do instead of an option that a command does not have, or nothing."""
    words, advice = _WITHOUT.get(command, ((), ""))
    return advice if word.lstrip("-") in words else ""


def _question(found: Sequence[str]) -> str:
    return f". Did you mean {' or '.join(map(repr, found))}?" if found else ""


def stray(command: str, options: Iterable[str], word: str) -> str | None:
    """Return the option that a word beside the options of a command was meant for."""
    if "--thread" in options and is_thread(word):
        return "--thread"
    if command in ("pop", "ack") and word.isdigit():
        return "--last-event-id"
    return f"--{_STRAY[command]}" if command in _STRAY else None

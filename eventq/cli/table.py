"""Commands as data: their options and arguments, with types, defaults and bounds.

The quick parser and click's commands are both built from these tables, and both leave the words as
they were written. `Command.values` converts them for both, so that the errors are the same.
"""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from eventq.cli.kinds import Kind

    Raw = dict[str, str | bool | list[str] | None]  # the words of a command line, by option
    Rule = Callable[[Raw], None]  # raises UsageError

VERBOSE = "--verbose"  # taken anywhere: the tool that `thread` replaces does


class Option:
    """One option: `name VALUE`, or a flag, whose spelling has no value.

    One whose value ends in `…` may be given many times, and its parameter is a list.

    The function receives it as `parameter`; `group.name` puts it into a dictionary of that name,
    "" withholds it. If two options share a parameter, the one on the command line wins. `default`
    is text to be converted; an empty one is passed on unchanged. `env` names the variable whose
    value is used if the option is missing, except under the program name `thread`.
    """

    __slots__ = (
        "default",
        "env",
        "help",
        "kind",
        "name",
        "parameter",
        "required",
        "short",
        "value",
        "yields",
    )

    def __init__(
        self,
        spelling: str,
        help: str,
        kind: Kind | None = None,
        *,
        default: Any = None,
        required: bool = False,
        short: str | None = None,
        parameter: str | None = None,
    ) -> None:
        self.name, _, self.value = spelling.partition(" ")
        self.help = help
        self.kind = kind or (kinds.text if self.value else kinds.ON)
        self.default = default
        self.env: str | None = None
        self.required = required
        self.short = short
        self.yields = False
        self.parameter = self.name.replace("-", "_") if parameter is None else parameter

    def or_from(self, env: str) -> Option:
        """Let a variable of the environment stand in for the option, and return the option."""
        self.env = env
        return self

    @property
    def spelled(self) -> str:
        """The name as written on a command line."""
        return f"--{self.name}"

    @property
    def repeats(self) -> bool:
        """Whether it may be given many times."""
        return self.value.rstrip("]").endswith("…")

    @property
    def metavar(self) -> str:
        """The value as shown in the help; `thread` takes no units of time."""
        is_plain = self.kind is kinds.seconds and show.program() == "thread"
        return "SECONDS" if is_plain else self.value

    @property
    def described(self) -> str:
        """The help text with the default."""
        default = self.default or (self.variable and f"${self.variable}")
        shown = f" (default: {default})." if default else "."
        return self.help.removesuffix(".") + shown

    @property
    def variable(self) -> str | None:
        """The environment variable read if the option is missing; `thread` reads none."""
        return None if show.program() == "thread" else self.env

    def within(self, group: str) -> Option:
        """Return the same option as a member of a group."""
        made = object.__new__(type(self))
        for name in Option.__slots__:
            setattr(made, name, getattr(self, name))
        made.parameter = f"{group}.{self.parameter}"
        return made

    def convert(self, word: Any) -> Any:
        """Return the value of a word; raise UsageError if it is invalid."""
        if isinstance(self.kind, kinds.Switch):
            return self.kind.given if word else self.kind.missing
        if self.repeats and isinstance(word, (list, type(None))):
            return [self.convert(one) for one in word or ()]
        if word is None and not self.default:
            return self.default
        assert not isinstance(self.kind, kinds.Opened)
        if word == "" and self.required and self.kind in (kinds.text, kinds.path, kinds.branch):
            raise UsageError(f"{self.spelled} is empty", "give a value")
        return self.kind(self.default if word is None else word, self.spelled)

    def put(self, values: dict[str, Any], word: Any) -> None:
        """Convert a word and store it under its parameter."""
        group, _, name = self.parameter.rpartition(".")
        target = values.setdefault(group, {}) if group else values
        if name not in target or is_given(word):
            target[name] = self.convert(word)


class Argument(Option):
    """A word beside the options: `NAME`, or `[NAME]` if it is optional.

    `NAME…` takes all words that are left, and `-- NAME…` all after `--`; their parameter is a list.
    An optional one that `yields` is never the path of a thread: a word that is one is the thread.
    """

    __slots__ = ()

    def __init__(
        self,
        shown: str,
        kind: Kind | None = None,
        *,
        default: str | None = None,
        parameter: str | None = None,
        yields: bool = False,
    ) -> None:
        name = shown.strip("-[]… ")
        super().__init__(
            f"{name} {shown}",
            "",
            kind,
            default=default,
            required=not shown.startswith("["),
            parameter=name.lower() if parameter is None else parameter,
        )
        self.yields = yields

    @property
    def spelled(self) -> str:
        """The name as shown in the usage line."""
        return self.name

    @property
    def is_rest(self) -> bool:
        """Whether it takes all words after `--`."""
        return self.value.startswith("--")


# The word before a command's own that names the thread. It stands behind them in the table, where
# both parsers put a word more than the command takes; `settle` moves it.
PLACE = Argument("[THREAD]", kinds.place, parameter="")


def together(name: str, *options: Option) -> list[Option]:
    """Return options that a function receives together, as a dictionary of this name."""
    return [option.within(name) for option in options]


def is_given(word: object) -> bool:
    """Return whether an option is on the command line, even if its value is empty."""
    return word is not None and word is not False


class Command:
    """One command: its function, whose docstring is the help, its options, and examples.

    Values are converted in the order of `parts`. `rules` refuse combinations before the thread is
    opened. A `silent` command fails without a message and with status 0. One that takes --thread,
    and a fixed number of words, also takes the thread as a word before them; `thread` does not.
    """

    __slots__ = (
        "arguments",
        "examples",
        "function",
        "help",
        "opens",
        "options",
        "own",
        "parts",
        "rules",
        "silent",
    )

    def __init__(
        self,
        function: Callable[..., int | None],
        parts: Sequence[Option],
        *examples: str,
        rules: Sequence[Rule] = (),
        silent: bool = False,
    ) -> None:
        self.function = function
        self.help = " ".join((function.__doc__ or "").split())
        self.arguments = [part for part in parts if isinstance(part, Argument)]
        self.options = [part for part in parts if not isinstance(part, Argument)]
        self.own = [*self.arguments]
        if is_strict() and not any(part.repeats or part.is_rest for part in self.own):
            self.arguments += [PLACE] * any(part.name == "thread" for part in self.options)
        self.parts = [*parts, *self.arguments[len(self.own) :]]
        self.opens = next((part for part in parts if isinstance(part.kind, kinds.Opened)), None)
        self.examples = examples
        self.rules = rules
        self.silent = silent

    @property
    def words(self) -> str:
        """The words that it takes, as a usage line shows them."""
        return " ".join(part.value for part in [*self.arguments[len(self.own) :], *self.own])

    def settle(self, raw: Raw) -> str | None:
        """Take the thread from a word, and what is missing from the environment.

        Returns a word too many. Raises UsageError if the words leave open what is meant.
        """
        stray = self._take_place(raw) if PLACE in self.arguments else None
        for option in self.options:
            if raw[option.name] is None and option.variable:
                raw[option.name] = os.environ.get(option.variable) or None  # an empty one is unset
        return stray

    def _take_place(self, raw: Raw) -> str | None:
        from eventq.store.paths import is_thread

        names, last = [part.name for part in self.own], raw.pop(PLACE.name)
        words = [*(raw[name] for name in names), last]
        first, given = words[0], raw["thread"]
        if last is None:  # then no word is too many, and few can be meant for a thread
            own = next(iter(self.own), PLACE)
            is_other = given is not None or not (own.yields or own.kind is kinds.verbatim)
            if first is None or is_other or not is_thread(str(first)):
                return None
            if not own.yields:
                what = f"'{first}' is a thread, and there is no {own.name} beside it"
                fix = f"add the {own.name} after it, or name the thread with --thread"
                raise UsageError(what, fix)
        elif not is_thread(str(first)):
            if not names and given is None:
                raw["thread"] = self._as_thread(str(first))
            return str(last)
        if given is not None:
            raise UsageError(f"'{first}' and --thread both name a thread", "give one of them")
        raw["thread"] = self._as_thread(str(first))
        raw.update(zip(names, words[1:], strict=True))
        return None

    def _as_thread(self, word: str) -> str | list[str]:
        is_many = any(option.name == "thread" and option.repeats for option in self.options)
        return [word] if is_many else word

    def lacking(self, raw: Raw) -> Option | None:
        """Return the first part that is required and missing."""
        missing = (part for part in self.parts if part.required and raw[part.name] in (None, []))
        return next(missing, None)

    def values(self, raw: Raw) -> dict[str, Any]:
        """Convert the words of a command line to keyword arguments; raise UsageError."""
        values: dict[str, Any] = {}
        for part in self.parts:
            if part.parameter and part is not self.opens:
                part.put(values, raw[part.name])
        return values


def is_strict() -> bool:
    """Return whether a second value for an option is refused; the last one wins for `thread`."""
    return show.program() != "thread"


def parse(command: Command, words: Sequence[str]) -> Raw | None:
    """Return the words of a plain command line by option, or None to leave it to click."""
    named = {option.spelled: option for option in command.options}
    named |= {f"-{option.short}": option for option in command.options if option.short}
    raw: Raw = {part.name: None if part.value else False for part in command.parts}
    rest = next((part.name for part in command.arguments if part.is_rest), None)
    awaited = [part for part in command.arguments if not part.is_rest]
    left = iter(words)
    for word in left:
        option = named.get(word)
        if option is None:
            if word == VERBOSE:
                continue
            if word == "--" and rest:
                raw[rest] = [*left]
            elif not awaited or (word.startswith("-") and word != "-"):
                return None
            else:
                _add(raw, awaited[0] if awaited[0].repeats else awaited.pop(0), word)
        elif not option.value:
            raw[option.name] = True
        else:
            value = next(left, None)
            if value is None or (value.startswith("-") and value != "-"):
                return None
            if not option.repeats and raw[option.name] is not None and is_strict():
                return None
            _add(raw, option, value)
    try:
        is_plain = command.settle(raw) is None
    except UsageError:
        return None
    return raw if is_plain and command.lacking(raw) is None else None


def _add(raw: Raw, option: Option, word: str) -> None:
    before = raw[option.name]
    if not option.repeats:
        raw[option.name] = word
    else:
        raw[option.name] = [*before, word] if isinstance(before, list) else [word]

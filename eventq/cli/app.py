"""The click application, built from the tables of options: help, usage errors, completion."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from eventq import __version__
from eventq.cli import groups, hints, kinds, show
from eventq.cli.execute import execute
from eventq.cli.table import PLACE, VERBOSE, Argument, is_strict
from eventq.errors import LogicError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eventq.cli.table import Command, Option, Raw

EXAMPLES = {
    "eventq": ["eventq init ./inbox", "eventq push ./inbox hello", "eventq tail ./inbox"],
    "thread": [
        "eventq init ./inbox",
        "eventq push --thread ./inbox --source self --type message --content hello",
        "eventq peek --thread ./inbox --last 1",
    ],
}

READ_ON = """

\b
Read on:
  eventq help push   explains a command
  eventq guide       explains on one page how to push, pop and ack
"""

STATUSES = {
    0: "success",
    1: "the thread refuses: it does not exist, a consumer is unknown, the disk is full",
    2: "the command is wrong: an option, a number, a filter, a line of the input",
    3: "a warning, of check --strict",
    4: "a lease has ended, or a newer supervisor runs the consumer of this handler",
    130: "interrupted by SIGINT",
}

# What --verbose adds to --help.
MORE = """

\b
The directory of a thread:
  events.db        the log, turns, contexts, blobs, artifacts and outputs (SQLite)
  events.jsonl     a readable copy of the events; older ones are in events-<time>.jsonl
  run/             a lock file per consumer
  logs/thread.log  the thread's journal, one line per entry
  logs/handlers/   the output of handlers

\b
Exit status:
""" + "\n".join(f"  {code:3}  {meaning}" for code, meaning in STATUSES.items())


def _callback(command: Command) -> Any:
    def call(**values: Any) -> int:
        raw = {part.name: values[_identifier(part)] for part in command.parts}
        raw |= {
            part.name: list(raw[part.name]) or ([] if part in command.arguments else None)
            for part in command.parts
            if part.repeats
        }
        _settle(command, raw)
        return execute(command, raw)

    return call


def _settle(command: Command, raw: Raw) -> None:
    """Complete the words by the rules of the table; raise UsageError with advice."""
    ctx = click.get_current_context()
    try:
        stray = command.settle(raw)
    except UsageError as error:
        raise _Mistake(error.what, error.fix, ctx) from error
    fix = "" if stray is None else _for_stray(ctx, stray)
    if stray is not None and (fix or raw["thread"] not in (stray, [stray])):
        raise _Mistake(f"Got unexpected extra argument ({stray})", fix, ctx)
    missing = command.lacking(raw)
    if missing is not None:
        name, env = missing.spelled, missing.variable
        fix = f"give {name}, set {env}, or run '{ctx.command_path} --help'" if env else ""
        if env == "EVENTQ_THREAD":
            from eventq.cli.names import threads_here

            fix = threads_here() + fix
        raise _Mistake(f"Missing option '{name}'", fix, ctx)


def _identifier(part: Option) -> str:
    name = part.name.replace("-", "_").lower()
    return f"{name}_word" if isinstance(part, Argument) else name  # THREAD and --thread are two


def _params(command: Command) -> list[click.Parameter]:
    own = command.own
    words = [_argument(part, own) for part in command.arguments]
    return [*words, *(_option(part, own) for part in command.options)]


def _complete_names(part: Option, own: Sequence[Option]) -> Any:
    """Return what completes a value by the names in the thread of the command line."""

    def complete(ctx: click.Context, _: click.Parameter, start: str) -> list[Any]:
        from eventq.cli import names
        from eventq.store.paths import is_thread

        words = [value for name, value in ctx.params.items() if name.endswith("_word")]
        words += ctx.args  # where click left them, as the last option has no value yet
        words = [value for value in words if isinstance(value, str) and is_thread(value)]
        given = ctx.params.get("thread")
        many = [*given] if isinstance(given, tuple) else [given] if isinstance(given, str) else []
        place = next(iter([*many, *words]), os.environ.get("EVENTQ_THREAD"))
        # Behind a word that is the thread, click takes the command's own for the thread.
        wanted = own[-1] if part is PLACE and own and words else part
        found = names.completed(ctx.command_path.split()[1], wanted.name)
        if found and place:
            return [CompletionItem(one) for one in names.beginning(start, place, found)]
        is_thread_wanted = wanted is PLACE or (part in own and found)
        return [CompletionItem(start, type="dir")] if is_thread_wanted else []

    return complete


def _argument(part: Argument, own: Sequence[Option]) -> click.Argument:
    names = [_identifier(part)]
    if part.is_rest:
        return click.Argument(names, metavar=part.value, nargs=-1, type=click.UNPROCESSED)
    many = -1 if part.repeats else 1
    completed = _completed(part, own)
    return click.Argument(
        names, metavar=part.value, nargs=many, required=part.required, **completed
    )


def _option(part: Option, own: Sequence[Option]) -> click.Option:
    """Return a flag or a text option; the table knows what is required, and converts values."""
    names = [part.spelled, f"-{part.short}"] if part.short else [part.spelled]
    if not part.value:
        return click.Option(names, help=part.described, is_flag=True)
    more = _completed(part, own)
    return click.Option(
        names,
        metavar=part.metavar,
        help=part.described,
        required=part.required and not is_strict(),  # otherwise a word can replace it: `_settle`
        multiple=part.repeats,
        **more,
    )


def _completed(part: Option, own: Sequence[Option]) -> dict[str, Any]:
    """Return the keyword arguments that tell click how to complete a value."""
    if isinstance(part.kind, kinds.Choice):
        words = part.kind.words
        return {"shell_complete": lambda *args: [w for w in words if w.startswith(args[-1])]}
    paths = (kinds.path, kinds.directory, kinds.handled, kinds.place)
    is_path = part.kind in paths or isinstance(part.kind, kinds.Opened)
    if is_path and (part is not PLACE or not own):
        return {"type": click.Path(readable=False)}
    return {"type": click.STRING, "shell_complete": _complete_names(part, own)}


class _Mistake(click.UsageError):
    """A usage error that may bring its own suggestion."""

    def __init__(self, what: str, fix: str, context: click.Context | None = None) -> None:
        super().__init__(what, context)
        self.fix = fix


class _Command(click.Command):
    """A command that has advice for words which click refuses or ignores."""

    allow_extra_args = True  # they are refused below
    words = ""  # of the usage line

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the words after the name: the thread stands first, which click parses last."""
        return [*filter(None, [self.options_metavar, self.words])]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; raise UsageError for a word too many, or an option with two values."""
        words = [*args]  # click consumes them
        left = super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return left
        if left:
            what = f"Got unexpected extra argument{'s' * (len(left) > 1)} ({' '.join(left)})"
            raise _Mistake(what, _for_stray(ctx, left[0]), ctx)
        if is_strict():
            given = self.make_parser(ctx).parse_args(words)[2]
            for param in given:
                if _takes_one(param) and given.count(param) > 1:
                    fix = "give one, as only one of them would count"
                    raise _Mistake(f"{param.opts[0]} has more than one value", fix, ctx)
        return left


def _for_stray(ctx: click.Context, word: str) -> str:
    """Return the suggestion for a word beside the options."""
    name = ctx.command_path.partition(" ")[2]
    if is_strict() and name in ("push", "ask", "answer"):
        return f"put a text of several words in quotes, or run '{ctx.command_path} --help'"
    option = hints.stray(name, _long_options(ctx), word) if is_strict() else None
    return f"give it as {option}, or run '{ctx.command_path} --help'" if option else ""


def _long_options(ctx: click.Context) -> list[str]:
    """Return the options of a command that its help lists, without --help."""
    options = [param for param in ctx.command.params if isinstance(param, click.Option)]
    return [name for param in options if not param.hidden for name in param.opts]


def _takes_one(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.is_flag and not param.multiple


class _Group(click.Group):
    """A group that knows the words of other programs for its commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a word names; raise UsageError with the nearest one."""
        word = args[0]
        if word in self.commands or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        what = f"No such command '{word}'"
        is_first = is_strict() and ctx.parent is None
        if is_first and word in hints.ADVICE:
            raise _Mistake(what, hints.ADVICE[word], ctx)
        meant = hints.MEANT.get(word) if is_first else None
        if meant is None:
            raise _Mistake(what + hints.near(word, self.commands), "", ctx)
        fix = f"run '{ctx.command_path} {meant.partition(' --')[0]} --help'"
        raise _Mistake(f"{what}. Did you mean '{meant}'?", fix, ctx)


class _Program(_Group):
    """The program, whose help lists the commands by what they are for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each part; under `thread`, one for all, in alphabetical order."""
        if show.program() == "thread":
            super().format_commands(ctx, formatter)
            return
        parts = {part: [*words] for part, words in groups.PARTS.items()}
        parts[next(reversed(parts))].append("help")
        longest = max(len(self._name(one)) for words in parts.values() for one in words)
        for part, words in parts.items():
            formatter.write(f"\n{part}\n")
            with formatter.indentation():
                formatter.write_dl([self._row(one, longest, formatter.width) for one in words])

    def _name(self, word: str) -> str:
        """Return a command's name; of a group with one command, both words."""
        found = self.commands[word]
        below = [*found.commands] if isinstance(found, click.Group) else []
        return f"{word} {below[0]}" if len(below) == 1 else word

    def _row(self, name: str, longest: int, width: int) -> tuple[str, str]:
        text = self.commands[name].get_short_help_str(width - longest - 4)
        return self._name(name).ljust(longest), text if text.endswith("...") else text.rstrip(".")


class _WithRest(_Command):
    """A command whose last argument is all the words after `--`, verbatim."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`; raise UsageError if none follows it."""
        at = args.index("--") if "--" in args else len(args)
        left = super().parse_args(ctx, args[:at])
        name = next(param.name for param in self.params if param.nargs == -1) or ""
        if not ctx.resilient_parsing and ctx.params[name]:
            raise click.UsageError(
                f"'{ctx.params[name][0]}' is before '--': the command to run follows '--'", ctx
            )
        if not ctx.resilient_parsing and not args[at + 1 :]:
            raise click.UsageError("Missing the command to run: it follows '--'", ctx)
        ctx.params[name] = tuple(args[at + 1 :])
        return left


def _anywhere(*, hidden: bool = True) -> list[click.Parameter]:
    """Return the options that every command accepts; only the program's help lists them."""
    return [
        click.Option(
            ["--version", "-V"],
            help="Show the version.",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            hidden=hidden,
        ),
        click.Option(
            [VERBOSE],
            help="Make --help longer; every command accepts it.",
            is_flag=True,
            expose_value=False,
            hidden=hidden,
        ),
    ]


def _epilog(examples: Sequence[str], *, verbose: bool) -> str:
    """Return the end of a help: examples under the program's name, and perhaps MORE."""
    shown = "\n".join(f"  {line}" for line in examples).replace("eventq ", f"{show.program()} ")
    return f"\b\nExample:\n{shown}" + (MORE if verbose else "")


def _command(name: str, command: Command, *, verbose: bool) -> click.Command:
    has_rest = any(argument.is_rest for argument in command.arguments)
    kind = _WithRest if has_rest else _Command
    made = kind(
        name,
        params=_params(command) + _anywhere(),
        callback=_callback(command),
        help=command.help,
        epilog=_epilog(command.examples, verbose=verbose),
        short_help=command.help.split(". ")[0].rstrip("."),
    )
    made.words = command.words
    return made


def build(*, verbose: bool = False) -> click.Group:
    """Return the application; `verbose` adds MORE to its help."""
    program = show.program()
    more = READ_ON * (program != "thread") + MORE * verbose
    app = _Program(
        "eventq",
        params=_anywhere(hidden=False),
        help="A durable inbox and memory for agents: one directory, no server.",
        epilog=_epilog(EXAMPLES[program], verbose=False) + more,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    )
    for name, command in groups.every().items():
        words = name.split()
        group: Any = app
        if len(words) == 2:
            group = app.commands.get(words[0]) or _group(words[0], verbose=verbose)
            app.add_command(group)
        group.add_command(_command(words[-1], command, verbose=verbose))
    for former, name in groups.FORMER.items():
        made = _command(former, groups.every()[name], verbose=verbose)
        made.hidden = program != "thread"
        app.add_command(made)
    app.add_command(_help(app))
    return app


def _group(name: str, *, verbose: bool) -> click.Group:
    help, example = groups.about(name)  # noqa: A001 (click's word)
    return _Group(name, params=_anywhere(), help=help, epilog=_epilog([example], verbose=verbose))


def _help(app: click.Group) -> click.Command:
    """Return the command that explains another one."""

    def explain(command: tuple[str, ...]) -> object:
        found: click.Command | None = app
        for word in command:
            if not isinstance(found, click.Group):
                raise click.UsageError(f"'{' '.join(command)}' is no command")
            found = found.commands.get(word)
        return app.main([*command, "--help"], prog_name=show.program(), standalone_mode=False)

    def complete(ctx: click.Context, _: click.Parameter, start: str) -> list[str]:
        found: click.Command | None = app
        for word in ctx.params.get("command") or ():
            found = found.commands.get(word) if isinstance(found, click.Group) else None
        known = found.commands if isinstance(found, click.Group) else {}
        return [word for word in known if word.startswith(start) and not known[word].hidden]

    return click.Command(
        "help",
        params=[click.Argument(["command"], nargs=-1, shell_complete=complete), *_anywhere()],
        callback=explain,
        help="Show the help of a command, or this one.",
        epilog=_epilog(["eventq help push"], verbose=False),
    )


def _version(context: click.Context, _: click.Parameter, value: Any) -> None:
    if value:
        show.say(__version__ if show.program() == "thread" else f"{show.program()} {__version__}")
        context.exit(0)


def run_click(argv: list[str]) -> int:
    """Run a command line through click and return its exit status; format errors like eventq's."""
    if _completing():
        return 0
    as_json = "--json" in argv
    silent = [word for word in argv if word != VERBOSE][:1] == ["hook"]
    app = build(verbose=VERBOSE in argv)
    try:
        code = app.main(argv, prog_name=show.program(), standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        show.tell(error.format_message() + "\n")
        return 0 if silent else 2
    except click.UsageError as error:
        if not silent:
            show.error(_what(error), _fix(error, app, argv), as_json=as_json)
        return 0 if silent else 2
    except click.ClickException as error:
        show.error(
            error.format_message().rstrip("."), f"run '{show.program()} --help'", as_json=as_json
        )
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (show.Closed, BrokenPipeError):
        return 0
    except (LogicError, OSError) as error:  # while printing a help or a version
        if not isinstance(error, LogicError):
            error = show.unwritten(error)
        show.error(error.what, error.fix, as_json=as_json)
        return 1
    return code if isinstance(code, int) else 0


def _what(error: click.UsageError) -> str:
    """Return the message of a usage error; click's own names options that are far from the word."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        name = error.option_name
        return f"No such option '{name}'" + hints.option(name, _long_options(error.ctx))
    return error.format_message().rstrip(".")


def _fix(error: click.UsageError, app: click.Group, argv: Sequence[str]) -> str:
    """Return the suggestion for a usage error; it names a missing option's variable."""
    if isinstance(error, _Mistake) and error.fix:
        return error.fix
    path = error.ctx.command_path if error.ctx else _path(app, argv)
    if isinstance(error, click.NoSuchOption) and path == "eventq" and _takes(app, error):
        return f"give it after the command; run '{path} --help' for the commands"
    if isinstance(error, click.NoSuchOption) and is_strict():
        instead = hints.without(path.partition(" ")[2], error.option_name)
        if instead:
            return instead
    if isinstance(error, click.NoSuchOption) and error.option_name == "--thread":
        return f"give the path by itself, or run '{path} --help'"
    if isinstance(error, click.NoSuchOption) and error.option_name[:2] != "--" and _has_text(error):
        return f"put -- before a text that begins with -, or run '{path} --help'"
    return f"run '{path} --help'"


def _has_text(error: click.NoSuchOption) -> bool:
    return error.ctx is not None and "TEXT" in getattr(error.ctx.command, "words", "")


def _takes(app: click.Group, error: click.NoSuchOption) -> bool:
    """Return whether a command takes the option that was given before any command."""
    params = (param for command in app.commands.values() for param in command.params)
    return any(error.option_name in param.opts for param in params)


def _path(app: click.Group, argv: Sequence[str]) -> str:
    """Return the program and the command that a command line begins with."""
    words = [show.program()]
    command: click.Command | None = app
    for word in argv:
        command = command.commands.get(word) if isinstance(command, click.Group) else None
        if command is None:
            break
        words.append(word)
    return " ".join(words)


_CLASSES = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


def completion_script(shell: str) -> str:
    """Return the script that a shell sources to complete both names of the program."""
    return "\n".join(
        _CLASSES[shell](build(), {}, name, _variable(name)).source_template % _names(name)
        for name in ("eventq", "thread")
    )


def _names(name: str) -> dict[str, str]:
    return {
        "complete_func": f"_{name}_completion",
        "complete_var": _variable(name),
        "prog_name": name,
    }


def _variable(name: str) -> str:
    return f"_{name.upper()}_COMPLETE"


def _completing() -> bool:
    """Answer a shell that asks for completions; return whether one did."""
    for name in ("eventq", "thread"):
        asked = os.environ.get(_variable(name), "")
        shell = asked.partition("_")[0]
        if asked.endswith("_complete") and shell in _CLASSES:
            show.say(_CLASSES[shell](build(), {}, name, _variable(name)).complete())
            return True
    return False

"""The settings of a thread: values by name, which are kept with it. Each has a default."""

from __future__ import annotations

from eventq.errors import InputError, UsageError
from eventq.records.info import Setting
from eventq.store.rules import ANY_MOUNT, HOOKS_SESSIONS, RUNS_EMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.store.engine import Engine

_NO_SOURCES = {"false", "true", "no", "yes", "0", "1", "none"}  # what is meant by them is on or off
_DEFAULTS = {ANY_MOUNT: "false", HOOKS_SESSIONS: "on", RUNS_EMIT: "off"}
_CHOICES = {ANY_MOUNT: ("true", "false"), HOOKS_SESSIONS: ("on", "off")}


class Settings:
    """The settings of one thread.

    `runs.emit` is `off`, or the source of the events that report the changes of runs. A run that
    was started with a source of its own has that, whatever the setting says.

    `any_mount` is `true` for a thread that may be on a file system which `init` refuses, as only
    this machine writes there; `eventq.open` takes it where the first write would be refused.

    `hooks.sessions` is `on` if `eventq hook` imports the session file of an agent that stops.
    """

    def __init__(self, database: Engine, check_source: Callable[[str], None]) -> None:
        """Use the settings in a database; `check_source` refuses what can be no source."""
        self._database = database
        self._engine = database.settings
        self._check_source = check_source

    def get(self, name: str) -> str:
        """Return the value of a setting. Raises UsageError for an unknown name."""
        _check(name)
        value = self._engine.get(name)
        return _DEFAULTS[name] if value is None else value

    def set(self, name: str, value: str) -> None:
        """Change a setting from the next change on.

        `runs.emit` takes `off`, a source, and `on` for the source `self`. Raises UsageError for an
        unknown name, and InputError.
        """
        _check(name)
        self._database.check_writable()
        if choices := _CHOICES.get(name):
            if value not in choices:
                raise InputError(f"'{value}' is no value of {name}", f"use {' or '.join(choices)}")
            self._engine.put(name, None if value == _DEFAULTS[name] else value)
            return
        if isinstance(value, str) and value.casefold() in _NO_SOURCES:
            raise InputError(f"'{value}' is no value of {name}", "use on, off or a source")
        if value == _DEFAULTS[name]:
            self._engine.put(name, None)
            return
        source = "self" if value == "on" else value
        self._check_source(source)
        self._engine.put(name, source)

    def __iter__(self) -> Iterator[Setting]:
        """Yield all settings, by name."""
        return (Setting(name, self.get(name), default) for name, default in _DEFAULTS.items())


def _check(name: str) -> None:
    if not isinstance(name, str) or name not in _DEFAULTS:
        raise UsageError(
            f"there is no setting '{name}'", f"use one of these: {', '.join(_DEFAULTS)}"
        )

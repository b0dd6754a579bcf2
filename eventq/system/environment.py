"""The environment: every variable that eventq reads goes through here."""

from __future__ import annotations

import os

from eventq.errors import UsageError

environ = os.environ


def env(name: str, default: str = "") -> str:
    """Return an environment variable, or `default` if unset."""
    return os.environ.get(name, default)


def home(variable: str = "") -> str:
    """Return the home folder of the user. Raises UsageError where nothing says which it is.

    `variable` is another one that would do. A folder named `~` is never meant.
    """
    found = env("HOME") or _home_of_user()
    if not os.path.isabs(found):
        others = f" or {variable}" * bool(variable)
        why = (
            f"HOME is {found!r:.100}"
            if found
            else f"HOME is not set, and no user has number {os.getuid()}"
        )
        raise UsageError(
            f"there is no home folder: {why}", f"set HOME{others} to the path of a folder"
        )
    return found.rstrip("/") or "/"


def state() -> str:
    """Return the folder for what eventq keeps of a user on this machine, outside of threads."""
    found = env("XDG_STATE_HOME")
    if not os.path.isabs(found):  # a path that is not absolute is to be ignored, says XDG
        found = f"{home('XDG_STATE_HOME')}/.local/state"
    return f"{found}/eventq"


def _home_of_user() -> str:
    from pwd import getpwuid

    try:
        return getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def take_env(name: str) -> str:
    """Remove an environment variable, so that no child process gets it; return it, "" if unset."""
    return os.environ.pop(name, "")


def user_name() -> str:
    """Return the name of the user as whom this process acts, or the number of one without."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def env_number(name: str, default: int) -> int:
    """Return a variable as a whole number, or `default` if unset or invalid."""
    text = env(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def env_bytes(name: str, default: int) -> int:
    """Return a variable as a number of bytes, `default` if unset; raise UsageError if invalid."""
    if not (text := env(name)):
        return default
    if (found := env_number(name, -1)) < 0:
        raise UsageError(
            f"{name} is {text!r:.100}, which is no number of bytes",
            f"unset it, or set it to a whole number such as {default}",
        )
    return found


def env_choice(name: str, *allowed: str) -> str:
    """Return a variable in lower case, "" if unset; raise UsageError for what is not allowed."""
    text = env(name).lower()
    if text and text not in allowed:
        raise UsageError(
            f"{name} is {text!r:.100}, which has no meaning",
            f"unset it, or set it to {' or '.join(allowed)}",
        )
    return text


def env_seconds(name: str, default: float) -> float:
    """Return a variable as seconds, perhaps with a fraction; `default` if unset or invalid."""
    text = env(name)
    return (
        float(text)
        if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 19
        else default
    )

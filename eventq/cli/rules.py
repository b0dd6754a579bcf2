"""Rules on which options can be combined, checked before the thread is opened."""

from __future__ import annotations

from eventq.cli.table import is_given
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.cli.table import Raw, Rule


def exclude(*names: str, fix: str = "give one of them") -> Rule:
    """Allow at most one of some options."""

    def check(raw: Raw) -> None:
        given = [_spelled(name) for name in names if is_given(raw[name])]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other", fix)

    return check


def alone(name: str, *others: str) -> Rule:
    """Refuse an option together with any of the others."""
    return _all([exclude(name, other) for other in others])


def _all(rules: Iterable[Rule]) -> Rule:
    def check(raw: Raw) -> None:
        for rule in rules:
            rule(raw)

    return check


def one_of(first: str, second: str) -> Rule:
    """Require exactly one of two options."""

    def check(raw: Raw) -> None:
        if is_given(raw[first]) == is_given(raw[second]):
            what = f"either {_spelled(first)} or {_spelled(second)} is needed"
            raise UsageError(what, "give exactly one of the two")

    return check


def needs(name: str, other: str) -> Rule:
    """Refuse an option that has no effect without another one."""

    def check(raw: Raw) -> None:
        if is_given(raw[name]) and not is_given(raw[other]):
            fix = f"give --{other} too, or leave --{name} out"
            raise UsageError(f"--{name} has no effect without --{other}", fix)

    return check


def required(*names: str) -> Rule:
    """Require options that are required only under some condition."""

    def check(raw: Raw) -> None:
        for name in names:
            if not is_given(raw[name]):
                raise UsageError(f"--{name} is missing", f"give --{name}")

    return check


def unless(flag: str, *rules: Rule) -> Rule:
    """Apply rules only without a flag."""
    check = _all(rules)
    return lambda raw: None if raw[flag] else check(raw)


def one_stdin(*names: str) -> Rule:
    """Refuse more than one `-` among some options, as stdin can be read only once."""

    def check(raw: Raw) -> None:
        given = [f"--{name}" for name in names if raw[name] == "-"]
        if len(given) > 1:
            what = f"{' and '.join(given)} cannot both read stdin"
            raise UsageError(what, "give a file to one of them")

    return check


def _spelled(name: str) -> str:
    return name if name.isupper() else f"--{name}"

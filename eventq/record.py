"""The base of every value: a named tuple, written as a class with annotated fields.

It is the standard `collections.namedtuple`: `typing.NamedTuple`, which type checkers read in its
place, takes 10 ms to import and dataclasses 37, while a whole `push` takes 25. Unlike it, a record
may check itself (`__post_init__`), and `dataclasses.replace`, `fields` and `asdict` work.
"""

from __future__ import annotations

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
    from typing import NamedTuple as Record

__all__ = ["Record"]


class _DataclassFields:
    """What `dataclasses` reads of a class, without defaults; made when it is asked for."""

    def __get__(self, _: object, cls: Any) -> dict[str, Any]:
        from dataclasses import make_dataclass

        made: Any = make_dataclass(cls.__name__, cls.__annotations__.items())
        return made.__dataclass_fields__  # type: ignore[no-any-return]


class _Record:
    """What a named tuple lacks."""

    __slots__ = ()
    __dataclass_fields__ = _DataclassFields()

    def _replace(self, **changes: Any) -> Any:
        """Return a record with other values in some fields."""
        return type(self)(**{**self._asdict(), **changes})  # type: ignore[attr-defined]

    __replace__ = _replace


class _Maker(type):
    """Make a named tuple of a class with annotated fields."""

    def __new__(cls, name: str, _: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        defaults = [body.pop(field) for field in fields if field in body]
        make: Any = collections.namedtuple  # noqa: PYI024 (type checkers read the other one)
        base = make(name, fields, defaults=defaults)
        if "__post_init__" in body:
            body["__new__"] = _checked(base.__new__)
        return type(name, (_Record, base), {**body, "__slots__": ()})


def _checked(new: Any) -> Any:
    """Return a constructor that lets the record check itself."""

    def __new__(cls: Any, *values: Any, **named: Any) -> Any:  # noqa: N807
        made = new(cls, *values, **named)
        made.__post_init__()
        return made

    __new__.__wrapped__ = new  # type: ignore[attr-defined]  # for `inspect.signature`
    return __new__


if not TYPE_CHECKING:
    Record = type.__new__(_Maker, "Record", (), {})

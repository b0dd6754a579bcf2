"""The base of every value: a named tuple, written as a class with annotated fields.

It behaves as those of `collections.namedtuple`, which compiles a constructor for each class: that
takes 60 µs, and a command makes up to fifty. `typing.NamedTuple` takes 10 ms to import and
dataclasses 37, while a whole `push` takes 25. Unlike all of them, a record may check itself
(`__post_init__`), and `dataclasses.replace`, `fields` and `asdict` work.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]  # as `namedtuple` does

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any
    from typing import NamedTuple as Record

__all__ = ["Record"]

_new: Any = tuple.__new__


class _OfDataclass:
    """What `dataclasses` and `inspect` read of a class; made when it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, _: object, cls: Any) -> Any:
        from dataclasses import make_dataclass

        made: Any = make_dataclass(cls.__name__, cls.__annotations__.items())
        if self._name == "fields":
            return made.__dataclass_fields__
        from inspect import signature

        found, defaults = signature(made), cls._field_defaults
        parts = [
            part.replace(default=defaults.get(name, part.default))
            for name, part in found.parameters.items()
        ]
        return found.replace(parameters=parts)


class _Record:
    """The methods of a named tuple."""

    __slots__ = ()
    __dataclass_fields__ = _OfDataclass("fields")
    __signature__ = _OfDataclass("signature")
    _fields: tuple[str, ...]
    _field_defaults: dict[str, Any]
    _tail: tuple[Any, ...]  # the defaults, which are those of the last fields

    def __new__(cls, *values: Any, **named: Any) -> Any:
        missing = len(cls._fields) - len(values)
        if missing or named:
            tail = cls._tail
            if not named and 0 < missing <= len(tail):  # imports leave defaults out by the million
                values += tail[len(tail) - missing :]
            else:
                values = cls._complete(values, named)
        return _new(cls, values)

    @classmethod
    def _complete(cls, values: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return a value for each field. Raises TypeError."""
        fields = cls._fields
        rest, found = fields[len(values) :], {**cls._field_defaults, **named}
        if len(values) <= len(fields) and named.keys() <= {*rest} <= found.keys():
            return (*values, *[found[name] for name in rest])
        got = f"{len(values)} values and ({', '.join(named)})"
        raise TypeError(f"{cls.__name__}({', '.join(fields)}) does not take {got}")

    @classmethod
    def _make(cls, values: Any) -> Any:
        return _new(cls, values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))  # type: ignore[call-overload]

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**{**self._asdict(), **changes})

    __replace__ = _replace

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({pairs})"


def _checked(cls: Any, *values: Any, **named: Any) -> Any:
    made = _Record.__new__(cls, *values, **named)
    made.__post_init__()
    return made


class _Maker(type):
    """Make a named tuple of a class with annotated fields."""

    def __new__(cls, name: str, _: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        body["_field_defaults"] = {field: body[field] for field in fields if field in body}
        body.update((field, _tuplegetter(at, "")) for at, field in enumerate(fields))
        if "__post_init__" in body:
            body["__new__"] = _checked
        body["_tail"] = tuple(body["_field_defaults"].values())
        body.update(_fields=fields, __match_args__=fields, __slots__=())
        return type(name, (_Record, tuple), body)


if not TYPE_CHECKING:
    Record = type.__new__(_Maker, "Record", (), {})
